//! The behaviour of topics and subscriptions in the simplest form: lists, without shared or redundant state.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use peeklock_engine::EntityId;
use peeklock_filter::{Action, CorrelationFilter, Filter, Rule, RuleName, SqlFilter, Value};
use peeklock_types::{BodyRef, CommitGroupNumber, LockToken, Timestamp};

pub(crate) const TOPIC_COUNT: usize = 2;
/// The number of subscriptions of each topic; the second one has sessions.
pub(crate) const SUBSCRIPTION_COUNT: usize = 3;
pub(crate) const RULE_COUNT: usize = 3;
/// The window of the second topic, which detects duplicates.
pub(crate) const DUPLICATE_WINDOW: Duration = Duration::from_secs(10);
/// The session that a rule with `Groups` sets.
pub(crate) const GROUPED: &str = "grouped";

/// The kind of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleKind {
    True,
    False,
    Fails,
    Equals {
        p: i64,
    },
    Above {
        p: i64,
    },
    /// Like `Above`, and marks the copy.
    Marks {
        p: i64,
    },
    /// Gives the copy a session.
    Groups,
}

impl RuleKind {
    pub(crate) fn rule(self, name: &str) -> Rule {
        let sql = |text: String| Filter::Sql(SqlFilter { expression: text, parameters: Vec::new() });
        let act = |text: String| Some(Action { expression: text, parameters: Vec::new() });
        let (filter, action) = match self {
            RuleKind::True => (Filter::True, None),
            RuleKind::False => (Filter::False, None),
            RuleKind::Fails => (sql("1 / 0 = 1".to_owned()), None),
            RuleKind::Equals { p } => {
                let properties = vec![("p".to_owned(), Value::Long(p).into())];
                (Filter::Correlation(CorrelationFilter { properties, ..CorrelationFilter::default() }), None)
            }
            RuleKind::Above { p } => (sql(format!("p > {p}")), None),
            RuleKind::Marks { p } => (sql(format!("p > {p}")), act("SET mark = 'm'".to_owned())),
            RuleKind::Groups => (Filter::True, act(format!("SET sys.SessionId = '{GROUPED}'"))),
        };
        Rule { name: RuleName::parse(name).unwrap(), filter, action }
    }

    fn acts(self) -> bool {
        matches!(self, RuleKind::Marks { .. } | RuleKind::Groups)
    }

    fn matches(self, message: &ModelMessage) -> bool {
        match self {
            RuleKind::True | RuleKind::Groups => true,
            RuleKind::False | RuleKind::Fails => false,
            RuleKind::Equals { p } => message.p == Some(p),
            RuleKind::Above { p } | RuleKind::Marks { p } => message.p.is_some_and(|own| own > p),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelMessage {
    /// The unique id of the message, which the engine gets as the size.
    pub(crate) id: u32,
    pub(crate) p: Option<i64>,
    pub(crate) session: Option<String>,
    pub(crate) body: BodyRef,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) number: u64,
    pub(crate) message: ModelMessage,
    /// The rule whose action has changed the copy.
    pub(crate) rule: Option<String>,
    pub(crate) is_dead: bool,
    pub(crate) lock: Option<LockToken>,
    pub(crate) failed_count: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) entity: EntityId,
    pub(crate) has_sessions: bool,
    pub(crate) rules: BTreeMap<String, RuleKind>,
    pub(crate) next_number: u64,
    pub(crate) copies: Vec<Copy>,
}

#[derive(Clone, Debug)]
pub(crate) struct Scheduled {
    pub(crate) number: u64,
    pub(crate) due: Timestamp,
    pub(crate) message: ModelMessage,
}

#[derive(Clone, Debug)]
pub(crate) struct Topic {
    pub(crate) entity: EntityId,
    pub(crate) detects_duplicates: bool,
    pub(crate) next_number: u64,
    pub(crate) scheduled: Vec<Scheduled>,
    pub(crate) seen: Vec<(Timestamp, u8)>,
    pub(crate) subscriptions: [Option<Subscription>; SUBSCRIPTION_COUNT],
}

#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) topics: Vec<Topic>,
}

impl Subscription {
    /// Returns the number of copies of a message, and whether one of them is a dead letter.
    pub(crate) fn would_take(&self, message: &ModelMessage) -> (usize, bool) {
        let mut probe = Subscription { copies: Vec::new(), ..self.clone() };
        probe.publish(message);
        let dead_count = probe.copies.iter().filter(|copy| copy.is_dead).count();
        (probe.copies.len() - dead_count, dead_count > 0)
    }

    pub(crate) fn publish(&mut self, message: &ModelMessage) {
        let matching: Vec<_> = self.rules.iter().filter(|(_, kind)| kind.matches(message)).collect();
        let mut copies = Vec::new();
        if matching.iter().any(|(_, kind)| !kind.acts()) {
            copies.push((None, message.clone(), false));
        }
        for (name, kind) in matching.into_iter().filter(|(_, kind)| kind.acts()) {
            let mut message = message.clone();
            if *kind == RuleKind::Groups {
                message.session = Some(GROUPED.to_owned());
            }
            copies.push((Some(name.clone()), message, false));
        }
        if self.rules.values().any(|kind| *kind == RuleKind::Fails) {
            copies.push((None, message.clone(), true));
        }
        for (rule, message, has_failed) in copies {
            let is_dead = has_failed || (self.has_sessions && message.session.is_none());
            let number = self.next_number;
            self.next_number += 1;
            self.copies.push(Copy { number, message, rule, is_dead, lock: None, failed_count: 0 });
        }
    }
}

impl Topic {
    pub(crate) fn has_seen(&self, now: Timestamp, message_id: Option<u8>) -> bool {
        let within = |at: Timestamp| at + DUPLICATE_WINDOW > now;
        self.detects_duplicates && self.seen.iter().any(|(at, id)| Some(*id) == message_id && within(*at))
    }

    pub(crate) fn publish(&mut self, message: &ModelMessage) {
        self.subscriptions.iter_mut().flatten().for_each(|subscription| subscription.publish(message));
    }

    pub(crate) fn send(
        &mut self,
        now: Timestamp,
        message: ModelMessage,
        message_id: Option<u8>,
        due: Option<Timestamp>,
    ) {
        if self.has_seen(now, message_id) {
            return;
        }
        self.seen.extend(message_id.map(|id| (now, id)));
        match due {
            Some(due) => {
                let number = self.next_number;
                self.next_number += 1;
                self.scheduled.push(Scheduled { number, due, message });
            }
            None => self.publish(&message),
        }
    }

    pub(crate) fn tick(&mut self, now: Timestamp) {
        while let Some(first) = (0..self.scheduled.len())
            .filter(|n| self.scheduled[*n].due <= now)
            .min_by_key(|n| (self.scheduled[*n].due, self.scheduled[*n].number))
        {
            let scheduled = self.scheduled.remove(first);
            self.publish(&scheduled.message);
        }
    }

    fn bodies(&self) -> impl Iterator<Item = BodyRef> {
        let copies = self.subscriptions.iter().flatten().flat_map(|subscription| &subscription.copies);
        let waiting = self.scheduled.iter().map(|scheduled| scheduled.message.body);
        copies.map(|copy| copy.message.body).chain(waiting)
    }
}

impl Model {
    pub(crate) fn standalone_bodies(&self) -> BTreeSet<u64> {
        let bodies = self.topics.iter().flat_map(Topic::bodies);
        bodies.filter(|body| body.is_standalone()).map(BodyRef::to_raw).collect()
    }

    pub(crate) fn oldest_log_body(&self) -> Option<CommitGroupNumber> {
        let groups = self.topics.iter().flat_map(Topic::bodies).filter_map(|body| body.group());
        groups.min()
    }

    /// Sets the place of the body of one message of one entity.
    pub(crate) fn move_body(&mut self, entity: EntityId, number: u64, to: BodyRef) {
        for topic in &mut self.topics {
            for scheduled in &mut topic.scheduled {
                if topic.entity == entity && scheduled.number == number {
                    scheduled.message.body = to;
                }
            }
            let here = topic.subscriptions.iter_mut().flatten().filter(|found| found.entity == entity);
            for copy in here.flat_map(|subscription| &mut subscription.copies) {
                if copy.number == number {
                    copy.message.body = to;
                }
            }
        }
    }
}
