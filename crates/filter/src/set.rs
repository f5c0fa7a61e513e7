//! The compiled rules of all subscriptions of a topic.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;

use bytes::Bytes;

use crate::action::Script;
use crate::error::RuleError;
use crate::explain::{Explained, Explainer};
use crate::guard::{Guard, Guards};
use crate::index::{Condition, Correlation, Field, Index};
use crate::rule::{Action, CorrelationFilter, Filter, Rule, RuleName};
use crate::run::{Budget, Cost, Fault, Ids, Run, Steps};
use crate::slots::{Message, Slots};
use crate::sql::{self, Node};

/// The result of the rules of one subscription for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict<K> {
    pub key: K,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Copies {
        /// One unchanged copy, for all matching rules without an action together.
        plain: bool,
        /// One further copy for each matching rule with an action.
        changed: Vec<Changed>,
    },
    /// A rule failed. If several failed, this is the first one by name.
    Error { rule: RuleName, reason: String },
}

/// A copy with its changes ([`crate::Changes`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    pub rule: RuleName,
    pub changes: Bytes,
}

/// Compiled rules, by subscription and name. `K` identifies a subscription.
///
/// Rules that match everything cost nothing per message. Correlation filters cost one lookup for each set of properties. Each SQL filter is
/// evaluated, unless it begins with an equality that the message does not meet.
#[derive(Clone, Debug)]
pub struct RuleSet<K> {
    slots: Slots,
    rules: BTreeMap<(K, RuleName), Compiled<K>>,
    /// Subscriptions that get every message unchanged, with the number of rules that match everything.
    open: BTreeMap<K, usize>,
    /// Rules that are evaluated for every message.
    programs: BTreeMap<(K, RuleName), Arc<Program<K>>>,
    /// Rules that are evaluated for some messages.
    guards: Guards<Program<K>>,
    index: Index<K>,
    cost: Cost,
    sql_count: usize,
    correlation_count: usize,
}

#[derive(Clone, Debug)]
enum Compiled<K> {
    Open,
    Closed,
    Program(Arc<Program<K>>),
    Correlation(Arc<Correlation<K>>),
}

#[derive(Clone, Debug)]
pub(crate) struct Program<K> {
    key: K,
    name: RuleName,
    /// `None` matches every message.
    pub(crate) condition: Option<(String, Node)>,
    pub(crate) script: Option<Script>,
    schedule: Schedule,
}

/// The messages that a program is evaluated for.
#[derive(Clone, Copy, Debug)]
enum Schedule {
    Each,
    Guarded(Guard),
    /// The condition is always true, such as `1=1`, and the rule has no action.
    Open,
    /// The condition is always false, such as `1=0`.
    Never,
}

/// A rule that matches a message or fails on it.
struct Hit<'s, K> {
    key: K,
    rule: &'s RuleName,
    /// `None` for an unchanged copy.
    result: Result<Option<Bytes>, Fault>,
}

impl<K> Default for RuleSet<K> {
    fn default() -> Self {
        Self {
            slots: Slots::default(),
            rules: BTreeMap::new(),
            open: BTreeMap::new(),
            programs: BTreeMap::new(),
            guards: Guards::default(),
            index: Index::default(),
            cost: Cost::default(),
            sql_count: 0,
            correlation_count: 0,
        }
    }
}

impl<K: Copy + Ord + Hash> RuleSet<K> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule, or replaces the one of the same name. A rejected rule changes nothing.
    pub fn insert(&mut self, key: K, rule: &Rule) -> Result<(), RuleError> {
        let condition = match &rule.filter {
            Filter::Sql(filter) => Some((filter.expression.clone(), sql::parse_filter(filter)?)),
            Filter::Correlation(filter) => filter.check().map(|()| None)?,
            Filter::True | Filter::False => None,
        };
        let script = rule.action.as_ref().map(compile_action).transpose()?;
        match &rule.filter {
            Filter::False => self.put(key, rule, Compiled::Closed),
            Filter::True if script.is_none() => self.put(key, rule, Compiled::Open),
            Filter::True | Filter::Sql(_) => {
                let name = rule.name.clone();
                self.put_program(rule, Program { key, name, condition, script, schedule: Schedule::Each });
            }
            Filter::Correlation(filter) => self.put_correlation(key, rule, filter, script),
        }
        Ok(())
    }

    fn put_correlation(&mut self, key: K, rule: &Rule, filter: &CorrelationFilter, script: Option<Script>) {
        let conditions = Condition::all_of(filter, &mut self.slots);
        let script = script.map(|script| self.slots.bind_script(script));
        let correlation = Correlation { key, name: rule.name.clone(), conditions, script };
        self.put(key, rule, Compiled::Correlation(Arc::new(correlation)));
    }

    fn put_program(&mut self, rule: &Rule, program: Program<K>) {
        let mut program = self.slots.bind(program);
        program.schedule = program.scheduled();
        self.put(program.key, rule, Compiled::Program(Arc::new(program)));
    }

    fn put(&mut self, key: K, rule: &Rule, compiled: Compiled<K>) {
        self.remove(key, &rule.name);
        match &compiled {
            Compiled::Open => self.add_open(key),
            Compiled::Closed => (),
            Compiled::Program(program) => {
                self.sql_count += usize::from(program.condition.is_some());
                match program.schedule {
                    Schedule::Each => {
                        self.programs.insert((key, rule.name.clone()), Arc::clone(program));
                    }
                    Schedule::Guarded(guard) => self.guards.insert(guard, Arc::clone(program)),
                    Schedule::Open => self.add_open(key),
                    Schedule::Never => (),
                }
            }
            Compiled::Correlation(correlation) => {
                self.correlation_count += 1;
                self.index.insert(Arc::clone(correlation));
            }
        }
        self.rules.insert((key, rule.name.clone()), compiled);
    }

    /// Removes a rule and returns whether it existed.
    pub fn remove(&mut self, key: K, name: &RuleName) -> bool {
        let place = (key, name.clone());
        let Some(compiled) = self.rules.remove(&place) else { return false };
        match compiled {
            Compiled::Open => self.remove_open(key),
            Compiled::Closed => (),
            Compiled::Program(program) => {
                self.sql_count -= usize::from(program.condition.is_some());
                match program.schedule {
                    Schedule::Each => drop(self.programs.remove(&place)),
                    Schedule::Guarded(guard) => self.guards.remove(guard, &program),
                    Schedule::Open => self.remove_open(key),
                    Schedule::Never => (),
                }
                self.slots.unbind(&program);
            }
            Compiled::Correlation(correlation) => {
                self.correlation_count -= 1;
                self.index.remove(&correlation);
                for condition in &correlation.conditions {
                    if let Field::User { slot } = condition.field {
                        self.slots.release(slot);
                    }
                }
                correlation.script.iter().for_each(|script| self.slots.unbind_script(script));
            }
        }
        true
    }

    fn add_open(&mut self, key: K) {
        *self.open.entry(key).or_default() += 1;
    }

    fn remove_open(&mut self, key: K) {
        if let Some(count) = self.open.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&key);
            }
        }
    }

    /// Removes all rules of a subscription.
    pub fn remove_all(&mut self, key: K) {
        let from = (key, RuleName::lowest());
        let names: Vec<RuleName> = self
            .rules
            .range(from..)
            .take_while(|((k, _), _)| *k == key)
            .map(|((_, name), _)| name.clone())
            .collect();
        for name in &names {
            self.remove(key, name);
        }
    }

    /// Sets the cost limits of rules.
    pub fn set_cost(&mut self, cost: Cost) {
        self.cost = cost;
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the number of all rules.
    pub fn rule_count(&self) -> usize {
        self.rules.len()
    }

    /// Returns the number of rules with an SQL filter.
    pub fn sql_count(&self) -> usize {
        self.sql_count
    }

    /// Returns the number of rules with a correlation filter.
    pub fn correlation_count(&self) -> usize {
        self.correlation_count
    }

    /// Returns whether the verdicts depend on the message. If not, the caller can pass an empty view.
    pub fn needs_view(&self) -> bool {
        !self.programs.is_empty() || !self.guards.is_empty() || !self.index.is_empty()
    }

    /// Adds the verdicts for a message in the order of subscriptions. A subscription without a matching rule has none.
    ///
    /// A subscription has up to two verdicts: its copies, followed by an error if one of its rules failed. The seed determines the result
    /// of `newid()`: the same message, rules and seed give the same verdicts.
    pub fn evaluate(&self, view: &[u8], seed: u64, out: &mut Vec<Verdict<K>>) {
        if !self.needs_view() {
            out.extend(
                self.open.keys().map(|&key| Verdict { key, outcome: Outcome::copies(true, Vec::new()) }),
            );
            return;
        }
        let mut hits = self.hits(view, &Ids::new(seed), &Budget::new(self.cost));
        hits.sort_by(|left, right| (left.key, left.rule).cmp(&(right.key, right.rule)));
        let mut open = self.open.keys().copied().peekable();
        let mut hits = hits.into_iter().peekable();
        loop {
            let key = match (open.peek(), hits.peek()) {
                (None, None) => return,
                (Some(&key), None) => key,
                (None, Some(hit)) => hit.key,
                (Some(&key), Some(hit)) => key.min(hit.key),
            };
            let plain = open.next_if_eq(&key).is_some();
            gather(key, plain, std::iter::from_fn(|| hits.next_if(|hit| hit.key == key)), out);
        }
    }

    fn hits(&self, view: &[u8], ids: &Ids, budget: &Budget) -> Vec<Hit<'_, K>> {
        let message = match self.slots.read(view) {
            Ok(message) => message,
            Err(error) => {
                return self.unreadable(&format!("the properties of the message cannot be read: {error}"));
            }
        };
        // `newid()` depends on the order of evaluation, which must not depend on the order of insertion.
        let mut guarded = Vec::new();
        self.guards.find(&message, &mut guarded);
        guarded.sort_by(|left, right| (left.key, &left.name).cmp(&(right.key, &right.name)));
        let mut found = Vec::new();
        self.index.find(&message, &mut found);
        found.sort_by(|left, right| (left.key, &left.name).cmp(&(right.key, &right.name)));

        let mut hits = Vec::new();
        for program in self.programs.values().map(|program| &**program).chain(guarded) {
            if let Some(result) = program.run(&message, ids, budget).transpose() {
                hits.push(Hit { key: program.key, rule: &program.name, result });
            }
        }
        for rule in found {
            let script = rule.script.as_ref();
            let changes = script.map(|script| script.run(&rule.name, &message, ids, &Steps::new(budget)));
            hits.push(Hit { key: rule.key, rule: &rule.name, result: changes.transpose() });
        }
        hits
    }

    /// Returns an error for each rule that depends on the message, so that the message is not lost.
    fn unreadable(&self, reason: &str) -> Vec<Hit<'_, K>> {
        let judges = |compiled: &Compiled<K>| match compiled {
            Compiled::Open | Compiled::Closed => false,
            Compiled::Program(program) => !program.is_settled(),
            Compiled::Correlation(_) => true,
        };
        self.rules
            .iter()
            .filter(|(_, compiled)| judges(compiled))
            .map(|((key, rule), _)| Hit { key: *key, rule, result: Err(reason.to_owned()) })
            .collect()
    }

    /// Returns for every rule, in the order of subscriptions and names, whether it matches the message and why.
    pub fn explain(&self, view: &[u8]) -> Vec<Explained<K>> {
        let message = self.slots.read(view);
        let empty = Message::empty();
        let (budget, words) = (Budget::new(self.cost), Budget::new(self.cost));
        let explain = |((key, rule), compiled): (&(K, RuleName), &Compiled<K>)| {
            let steps = Steps::new(&budget);
            let (decision, why) = match (compiled, &message) {
                (Compiled::Open, _) => Explainer::open(),
                (Compiled::Closed, _) => Explainer::closed(),
                (Compiled::Program(program), Err(_)) if program.is_settled() => {
                    Explainer::new(rule, &empty, &steps, &words).program(program)
                }
                (_, Err(error)) => Explainer::unreadable(error),
                (Compiled::Program(program), Ok(message)) => {
                    Explainer::new(rule, message, &steps, &words).program(program)
                }
                (Compiled::Correlation(correlation), Ok(message)) => {
                    let (conditions, script) = (&correlation.conditions, correlation.script.as_ref());
                    Explainer::new(rule, message, &steps, &words).correlation(conditions, script)
                }
            };
            Explained { key: *key, rule: rule.clone(), decision, why }
        };
        self.rules.iter().map(explain).collect()
    }
}

/// Builds the verdicts of one subscription from its rules that matched or failed.
fn gather<'s, K: Copy + 's>(
    key: K,
    mut plain: bool,
    hits: impl Iterator<Item = Hit<'s, K>>,
    out: &mut Vec<Verdict<K>>,
) {
    let (mut changed, mut error) = (Vec::new(), None);
    for hit in hits {
        match hit.result {
            Ok(None) => plain = true,
            Ok(Some(changes)) => changed.push(Changed { rule: hit.rule.clone(), changes }),
            Err(reason) => {
                error.get_or_insert_with(|| Outcome::Error { rule: hit.rule.clone(), reason });
            }
        }
    }
    if plain || !changed.is_empty() {
        out.push(Verdict { key, outcome: Outcome::copies(plain, changed) });
    }
    out.extend(error.map(|outcome| Verdict { key, outcome }));
}

impl Outcome {
    fn copies(plain: bool, changed: Vec<Changed>) -> Self {
        Outcome::Copies { plain, changed }
    }
}

impl<K> Program<K> {
    /// Returns whether the result is the same for every message.
    fn is_settled(&self) -> bool {
        matches!(self.schedule, Schedule::Open | Schedule::Never)
    }

    fn scheduled(&self) -> Schedule {
        let Some((source, condition)) = &self.condition else { return Schedule::Each };
        if condition.is_constant() {
            let message = Message::empty();
            let (ids, budget) = (Ids::new(0), Budget::new(Cost::default()));
            let run = Run { source, message: &message, changes: &[], ids: &ids, steps: &Steps::new(&budget) };
            match run.condition(condition) {
                Ok(Some(true)) if self.script.is_none() => return Schedule::Open,
                Ok(Some(false) | None) => return Schedule::Never,
                _ => return Schedule::Each,
            }
        }
        Guard::of(condition).map_or(Schedule::Each, Schedule::Guarded)
    }

    /// Returns `None` if the message does not match, else the changes of the copy, if any.
    fn run(&self, message: &Message<'_>, ids: &Ids, budget: &Budget) -> Result<Option<Option<Bytes>>, Fault> {
        let steps = Steps::new(budget);
        if let Some((source, condition)) = &self.condition {
            let run = Run { source, message, changes: &[], ids, steps: &steps };
            if run.condition(condition)? != Some(true) {
                return Ok(None);
            }
        }
        let changes = self.script.as_ref().map(|script| script.run(&self.name, message, ids, &steps));
        changes.transpose().map(Some)
    }
}

fn compile_action(action: &Action) -> Result<Script, RuleError> {
    Ok(Script { source: action.expression.clone(), statements: sql::parse_action(action)? })
}

impl Slots {
    fn bind<K>(&mut self, mut program: Program<K>) -> Program<K> {
        if let Some((_, condition)) = &mut program.condition {
            condition.properties_mut(&mut |property| self.take_property(property));
        }
        program.script = program.script.map(|script| self.bind_script(script));
        program
    }

    fn bind_script(&mut self, mut script: Script) -> Script {
        for statement in &mut script.statements {
            statement.properties_mut(&mut |property| self.take_property(property));
        }
        script
    }

    fn unbind<K>(&mut self, program: &Program<K>) {
        if let Some((_, condition)) = &program.condition {
            condition.clone().properties_mut(&mut |property| self.release_property(property));
        }
        program.script.iter().for_each(|script| self.unbind_script(script));
    }

    fn unbind_script(&mut self, script: &Script) {
        for mut statement in script.statements.iter().cloned() {
            statement.properties_mut(&mut |property| self.release_property(property));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SqlFilter, Value};

    fn rule(name: &str, filter: Filter, action: Option<&str>) -> Rule {
        let action = action.map(|text| Action { expression: text.to_owned(), parameters: Vec::new() });
        Rule { name: RuleName::parse(name).unwrap(), filter, action }
    }

    #[test]
    fn removed_rules_leave_no_state_behind() {
        let mut rules = RuleSet::new();
        let sql = SqlFilter { expression: "a = 1 AND p(b) LIKE c".to_owned(), parameters: Vec::new() };
        let properties =
            vec![("A".to_owned(), Value::Long(1).into()), ("d".to_owned(), Value::Long(2).into())];
        let correlation = CorrelationFilter { properties, ..CorrelationFilter::default() };
        rules.insert(1, &rule("sql", Filter::Sql(sql), Some("SET e = f; REMOVE g"))).unwrap();
        rules.insert(1, &rule("correlation", Filter::Correlation(correlation), Some("SET a = h"))).unwrap();
        rules.insert(1, &rule("open", Filter::True, None)).unwrap();
        rules.insert(2, &rule("closed", Filter::False, None)).unwrap();
        assert_eq!(rules.slots.used_count(), 8);
        assert_eq!((rules.sql_count(), rules.correlation_count()), (1, 1));

        assert!(!rules.remove(2, &RuleName::parse("sql").unwrap()));
        rules.remove_all(1);
        assert!(rules.remove(2, &RuleName::parse("CLOSED").unwrap()));
        assert_eq!(rules.slots.used_count(), 0);
        assert_eq!((rules.sql_count(), rules.correlation_count()), (0, 0));
        assert!(rules.is_empty() && !rules.needs_view() && rules.open.is_empty());
    }
}
