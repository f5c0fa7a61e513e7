//! Explains why a rule matches a message or does not.

use crate::action::Script;
use crate::index::{Condition, value_of};
use crate::rule::RuleName;
use crate::run::{Budget, Fault, Ids, Run, Steps, Truth};
use crate::set::Program;
use crate::slots::Message;
use crate::sql::{Kind, Node, PatternSource, Property};
use crate::wire::DecodeError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Matched,
    NotMatched,
    /// The rule failed on this message.
    Error,
}

/// The result of one rule for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained<K> {
    pub key: K,
    pub rule: RuleName,
    pub decision: Decision,
    pub why: String,
}

impl<K> Explained<K> {
    pub fn matched(&self) -> bool {
        self.decision == Decision::Matched
    }
}

/// Explains one rule for one message.
pub(crate) struct Explainer<'m> {
    rule: &'m RuleName,
    message: &'m Message<'m>,
    ids: Ids,
    steps: &'m Steps<'m>,
    /// The budget for finding the explanation. It is separate, so that an explanation does not change the result.
    words: &'m Budget,
}

type Answer = (Decision, String);

impl<'m> Explainer<'m> {
    pub(crate) fn new(
        rule: &'m RuleName,
        message: &'m Message<'m>,
        steps: &'m Steps<'m>,
        words: &'m Budget,
    ) -> Self {
        Self { rule, message, ids: Ids::new(0), steps, words }
    }

    pub(crate) fn open() -> Answer {
        (Decision::Matched, "a true filter matches every message".to_owned())
    }

    pub(crate) fn closed() -> Answer {
        (Decision::NotMatched, "a false filter matches no message".to_owned())
    }

    pub(crate) fn unreadable(error: &DecodeError) -> Answer {
        (Decision::Error, format!("the properties of the message cannot be read: {error}"))
    }

    pub(crate) fn program<K>(&self, program: &'m Program<K>) -> Answer {
        let Some((source, condition)) = &program.condition else {
            return self.matched(Self::open().1, program.script.as_ref());
        };
        let run = self.run(source, &self.ids, self.steps);
        let truth = match run.condition(condition) {
            Ok(truth) => truth,
            Err(fault) => return (Decision::Error, fault),
        };
        let words = why(&self.run(source, &Ids::new(0), &Steps::new(self.words)), condition, truth);
        let words = words.unwrap_or_else(|_| format!("{source} is {}", shown_truth(truth)));
        match truth {
            Some(true) => self.matched(words, program.script.as_ref()),
            _ => (Decision::NotMatched, words),
        }
    }

    fn run<'r>(&'r self, source: &'r str, ids: &'r Ids, steps: &'r Steps<'r>) -> Run<'r> {
        Run { source, message: self.message, changes: &[], ids, steps }
    }

    pub(crate) fn correlation(&self, conditions: &[Condition], script: Option<&'m Script>) -> Answer {
        let unmet: Vec<String> = conditions
            .iter()
            .filter(|condition| !condition.is_met_by(self.message))
            .map(|condition| match value_of(condition.field, self.message) {
                Some(value) => format!("{} is {value}, not {}", condition.label, condition.value),
                None => format!("{} is not set, expected {}", condition.label, condition.value),
            })
            .collect();
        if !unmet.is_empty() {
            return (Decision::NotMatched, unmet.join("; "));
        }
        let met = conditions.iter().map(|condition| format!("{} is {}", condition.label, condition.value));
        self.matched(met.collect::<Vec<_>>().join(", "), script)
    }

    /// Returns the answer for a filter that matches. The rule matches only if its action succeeds as well.
    fn matched(&self, why: String, script: Option<&Script>) -> Answer {
        match script.map(|script| script.run(self.rule, self.message, &self.ids, self.steps)) {
            Some(Err(fault)) => (Decision::Error, format!("{why}; but the action fails: {fault}")),
            Some(Ok(_)) => (Decision::Matched, format!("{why}; its copy is changed by the action")),
            None => (Decision::Matched, why),
        }
    }
}

/// Returns the part of a condition that decided the result, with its values.
fn why<'r>(run: &Run<'r>, node: &'r Node, truth: Truth) -> Result<String, Fault> {
    match &node.kind {
        Kind::Not(inner) => why(run, inner, truth.map(|is_true| !is_true)),
        Kind::And(list) => decided(run, list, truth, truth == Some(true)),
        Kind::Or(list) => decided(run, list, truth, truth == Some(false)),
        _ => Ok(leaf(run, node, truth)),
    }
}

/// Returns all parts of a chain if all were needed for its result, else the first part with the same result.
fn decided<'r>(run: &Run<'r>, list: &'r [Node], truth: Truth, needs_all: bool) -> Result<String, Fault> {
    let mut reasons = Vec::new();
    for node in list {
        let part = run.condition(node)?;
        if part == truth {
            reasons.push(why(run, node, part)?);
            if !needs_all {
                break;
            }
        }
    }
    Ok(reasons.join("; "))
}

fn shown_truth(truth: Truth) -> &'static str {
    match truth {
        Some(true) => "true",
        Some(false) => "false",
        None => "unknown",
    }
}

fn leaf<'r>(run: &Run<'r>, node: &'r Node, truth: Truth) -> String {
    let mut names: Vec<(String, Option<String>)> = Vec::new();
    collect(run, node, &mut names);
    let text = run.text(node);
    let shown = |(name, value): &(String, Option<String>)| match value {
        Some(value) => format!("{name} is {value}"),
        None => format!("{name} is not set"),
    };
    if let (None, Some(missing)) = (truth, names.iter().find(|(_, value)| value.is_none())) {
        return format!("{}, so {text} is unknown", shown(missing));
    }
    let truth = shown_truth(truth);
    if names.is_empty() {
        return format!("{text} is {truth}");
    }
    format!("{text} is {truth}: {}", names.iter().map(shown).collect::<Vec<_>>().join(", "))
}

/// Collects every property in an expression once, with its value in readable form.
fn collect<'r>(run: &Run<'r>, node: &'r Node, names: &mut Vec<(String, Option<String>)>) {
    match &node.kind {
        Kind::Property(property) | Kind::Exists(property) => show(run, property, names),
        Kind::Literal(_) | Kind::NewId => (),
        Kind::Lookup(value) | Kind::Sign { value, .. } | Kind::IsNull { value, .. } | Kind::Not(value) => {
            collect(run, value, names);
        }
        Kind::Arithmetic { first, rest } => {
            collect(run, first, names);
            rest.iter().for_each(|(_, node)| collect(run, node, names));
        }
        Kind::Compare { left, right, .. } => {
            collect(run, left, names);
            collect(run, right, names);
        }
        Kind::Like { text, pattern, .. } => {
            collect(run, text, names);
            if let PatternSource::Computed { pattern, escape } = pattern {
                collect(run, pattern, names);
                escape.iter().for_each(|node| collect(run, node, names));
            }
        }
        Kind::In { value, list, .. } => {
            collect(run, value, names);
            list.iter().for_each(|node| collect(run, node, names));
        }
        Kind::And(list) | Kind::Or(list) => list.iter().for_each(|node| collect(run, node, names)),
    }
}

fn show(run: &Run<'_>, property: &Property, names: &mut Vec<(String, Option<String>)>) {
    let (name, value) = match property {
        Property::System(system) => {
            let value = run.property(property);
            (system.to_string(), (!value.is_null()).then(|| value.to_string()))
        }
        Property::User { name, slot } => {
            (format!("user.{name}"), run.user(name, *slot).map(|value| value.to_string()))
        }
    };
    if !names.iter().any(|(other, _)| *other == name) {
        names.push((name, value));
    }
}
