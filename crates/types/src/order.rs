//! The order in which a queue delivers its messages: classes, tenants, targets and rates.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::limits;

/// Assigns the messages of a queue to classes, and decides which class goes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderSettings {
    pub policy: OrderPolicy,
    /// The classes of messages, sorted by priority, the most urgent first. Empty: all messages are in one class called
    /// [`ClassName::ONLY`].
    pub classes: Vec<ClassSettings>,
    /// The class of messages that specify no class, or an unknown one. `None`: see
    /// [`OrderSettings::default_class_index`].
    pub default_class: Option<ClassName>,
    /// The rules are evaluated in order. The first rule that is true decides the class, whatever the message itself
    /// specifies.
    pub rules: Vec<ClassRule>,
    pub tenants: Option<TenantSettings>,
    /// The limit of deliveries per second, over all classes.
    pub rate: Option<Rate>,
    /// The limit of messages sent to the queue per second.
    pub send_rate: Option<Rate>,
    /// The limit of messages that one receiver may hold unsettled, however much credit it grants. A receiver that
    /// settles fast may hold more: as many as it settles in [`limits::OUTSTANDING_HORIZON`].
    pub max_outstanding: u32,
}

/// Decides which class goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrderPolicy {
    /// The message that was enqueued first, whatever its class.
    Fifo,
    /// Always the most urgent class. The others wait as long as it has messages.
    Strict,
    /// The message with the smallest enqueueing time plus class offset: a message can be overtaken only for a limited
    /// time.
    #[default]
    Aged,
    /// Classes share by their weights.
    Weighted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassSettings {
    pub name: ClassName,
    /// The first and the last priority of the class.
    pub priorities: (u8, u8),
    /// The head start of a message without an offset over this class, if the policy is [`OrderPolicy::Aged`]. `None`:
    /// the target, or a default by the place of the class, see [`OrderSettings::offset`].
    pub offset: Option<Duration>,
    /// The share of the class if the policy is [`OrderPolicy::Weighted`]. `None` is 1.
    pub weight: Option<u32>,
    pub target: Option<Target>,
    pub rate: Option<Rate>,
    pub send_rate: Option<Rate>,
}

/// A service objective: a share of the messages starts within a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub within: Duration,
    /// How many of a million messages are to meet the target.
    pub objective_ppm: u32,
}

/// A condition of the filter language, and the class of messages for which it is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassRule {
    pub when: String,
    pub class: ClassName,
}

/// Determines the tenant of a message, and each tenant's share of the workers' time inside a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantSettings {
    /// An expression of the filter language; its value is the tenant's name. Usually just the name of a property.
    pub key: String,
    /// The classes of tenants. Empty: all tenants are equal, in one class called [`ClassName::ONLY`].
    pub classes: Vec<TenantClass>,
    /// The class of tenants that match none of the conditions. `None`: the last one.
    pub default_class: Option<ClassName>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantClass {
    pub name: ClassName,
    /// A condition of the filter language; classes are evaluated in order.
    pub when: Option<String>,
    /// In thousandths: the weight of each tenant of the class in the distribution of the workers' time.
    pub weight_milli: u32,
    /// In thousandths: the maximum share of the messages in flight that may belong to tenants of this class together,
    /// while others wait.
    pub max_share_milli: Option<u32>,
    /// The share also applies while no other tenant waits.
    pub is_share_hard: bool,
    /// The limit for each tenant of the class separately.
    pub rate: Option<Rate>,
    pub send_rate: Option<Rate>,
}

/// A number per second on average, and a burst after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub per_second_milli: u64,
    pub burst: u32,
}

/// The name of a class of messages or tenants. Compared without case.
#[derive(Clone, Debug)]
pub struct ClassName(Arc<str>);

impl PartialEq for ClassName {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for ClassName {}

impl ClassName {
    /// The name of the only class if none is configured.
    pub const ONLY: &'static str = "default";

    pub fn parse(text: &str) -> Result<Self, ClassNameError> {
        let first = text.chars().next().ok_or(ClassNameError::Empty)?;
        let count = text.chars().count();
        if count > limits::CLASS_NAME_CHARS_MAX {
            return Err(ClassNameError::TooLong { count });
        }
        // A name that begins with a digit could be a priority.
        if !first.is_ascii_alphabetic() {
            return Err(ClassNameError::Start { found: first });
        }
        let fits = |found: &char| found.is_ascii_alphanumeric() || matches!(found, '-' | '_');
        if let Some(found) = text.chars().find(|found| !fits(found)) {
            return Err(ClassNameError::Character { found });
        }
        Ok(ClassName(text.into()))
    }

    pub fn only() -> Self {
        ClassName(Self::ONLY.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClassName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassNameError {
    #[error("the name of a class is empty; give it one, like 'high'")]
    Empty,
    #[error("the name of a class has {count} characters; at most {max} are allowed", max = limits::CLASS_NAME_CHARS_MAX)]
    TooLong { count: usize },
    #[error(
        "the name of a class begins with '{found}'; begin it with a letter, so that it cannot be taken for a priority"
    )]
    Start { found: char },
    #[error("the name of a class has the character '{found}'; only letters, digits, '-' and '_' are allowed")]
    Character { found: char },
}

/// The reason why an order is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    #[error("the {what} '{name}' is named twice; give each a name of its own")]
    NamedTwice { what: &'static str, name: ClassName },
    #[error(
        "the class '{name}' has the priorities {from}-{to}, which is no range; write the smaller one first, like 0-3"
    )]
    EmptyRange { name: ClassName, from: u8, to: u8 },
    #[error(
        "the priorities of the classes '{one}' and '{other}' overlap at {priority}; each priority belongs to one class"
    )]
    Overlap { one: ClassName, other: ClassName, priority: u8 },
    #[error("there is no class '{name}' ({used_by}); there are {known}")]
    NoSuchClass { name: ClassName, used_by: &'static str, known: String },
    #[error("{count} {what} are too many; at most {max} are allowed")]
    TooMany { what: &'static str, count: usize, max: usize },
    #[error("the weight of '{name}' is {given}; a weight is from {min} to {max}")]
    Weight { name: ClassName, given: String, min: &'static str, max: u32 },
    #[error(
        "the policy is strict, but the class '{name}' has a weight: either the most urgent class always goes first, whatever it weighs \
         (policy strict; leave the weights out), or the classes share by their weights (policy weighted); say which"
    )]
    StrictWithWeights { name: ClassName },
    #[error("the {what} of '{name}' is {given:?}; it is from {min:?} to {max:?}")]
    Span { what: &'static str, name: ClassName, given: Duration, min: Duration, max: Duration },
    #[error("the objective of '{name}' is {given} of a million; it is more than 0 and less than all")]
    Objective { name: ClassName, given: u32 },
    #[error("the max share of '{name}' is {given} thousandths; it is from 1 to 1000")]
    Share { name: ClassName, given: u32 },
    #[error("the rate of {what} is {given}; a rate is at least 1 in 1000 seconds and at most {max} per second, with a burst of at least 1",
        max = limits::RATE_PER_SECOND_MAX)]
    Rate { what: String, given: Rate },
    #[error("a max outstanding of {given} is outside of 1 to {max}", max = limits::OUTSTANDING_MAX)]
    Outstanding { given: u32 },
    #[error("{what} has {count} characters; at most {max} are allowed", max = limits::CLASS_EXPRESSION_CHARS_MAX)]
    Expression { what: String, count: usize },
}

impl Rate {
    /// Returns a rate with a burst of one second's number.
    pub const fn per_second(count: u32) -> Self {
        Rate { per_second_milli: count as u64 * 1000, burst: count }
    }

    /// Returns a rate with a burst of one second's number, rounded up.
    pub const fn per_minute(count: u32) -> Self {
        Rate { per_second_milli: (count as u64 * 1000 + 30) / 60, burst: count.div_ceil(60) }
    }

    /// Returns the same rate with another burst.
    #[must_use]
    pub const fn burst(self, count: u32) -> Self {
        Rate { burst: count, ..self }
    }
}

impl fmt::Display for Rate {
    /// Writes `5/s burst 10`, or `0.5/s burst 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.per_second_milli / 1000, self.per_second_milli % 1000);
        match rest {
            0 => write!(f, "{whole}/s")?,
            _ => write!(f, "{whole}.{}/s", format!("{rest:03}").trim_end_matches('0'))?,
        }
        write!(f, " burst {}", self.burst)
    }
}

impl Default for OrderSettings {
    fn default() -> Self {
        OrderSettings {
            policy: OrderPolicy::Aged,
            classes: Vec::new(),
            default_class: None,
            rules: Vec::new(),
            tenants: None,
            rate: None,
            send_rate: None,
            max_outstanding: Self::MAX_OUTSTANDING,
        }
    }
}

impl ClassSettings {
    pub fn new(name: ClassName, priorities: (u8, u8)) -> Self {
        ClassSettings {
            name,
            priorities,
            offset: None,
            weight: None,
            target: None,
            rate: None,
            send_rate: None,
        }
    }

    pub fn has(&self, priority: u8) -> bool {
        (self.priorities.0..=self.priorities.1).contains(&priority)
    }
}

impl TenantClass {
    /// Returns whether a limit may hold back messages of its tenants while others proceed.
    pub fn is_limited(&self) -> bool {
        self.rate.is_some() || self.max_share_milli.is_some()
    }

    pub fn new(name: ClassName) -> Self {
        TenantClass {
            name,
            when: None,
            weight_milli: 1000,
            max_share_milli: None,
            is_share_hard: false,
            rate: None,
            send_rate: None,
        }
    }
}

/// The priority of a message that specifies none.
const USUAL_PRIORITY: u8 = 4;

impl OrderSettings {
    pub const MAX_OUTSTANDING: u32 = 16;
    /// The default weight of a class, or of a member of a queue group.
    pub const WEIGHT: u32 = 1;

    /// Sorts the classes, the most urgent first.
    pub fn sort(&mut self) {
        self.classes.sort_by_key(|class| std::cmp::Reverse(class.priorities));
    }

    pub fn class_index(&self, name: &str) -> Option<usize> {
        self.classes.iter().position(|class| class.name.as_str().eq_ignore_ascii_case(name))
    }

    pub fn class_of(&self, priority: u8) -> Option<usize> {
        self.classes.iter().position(|class| class.has(priority))
    }

    /// Returns the class of messages that specify none: the configured one, else the one of the usual priority, else
    /// the least urgent one.
    pub fn default_class_index(&self) -> usize {
        let named = self.default_class.as_ref().and_then(|name| self.class_index(name.as_str()));
        let usual = || self.class_of(USUAL_PRIORITY);
        named.or_else(usual).unwrap_or_else(|| self.classes.len().saturating_sub(1))
    }

    /// Returns the head start of a message without an offset over this class. The default is the target of the class,
    /// or increases with its place: 0, 30 s, 5 min, and 5 min more for each below; but it is never less than that of a
    /// more urgent class.
    pub fn offset(&self, class: usize) -> Duration {
        let target = |class: &ClassSettings| class.target.map(|target| target.within);
        offset_at(class, self.classes.iter().map(|class| class.offset.or_else(|| target(class))))
    }

    /// Returns whether there is any send rate.
    pub fn has_send_rates(&self) -> bool {
        let mut tenants = self.tenants.iter().flat_map(|tenants| &tenants.classes);
        self.send_rate.is_some()
            || self.classes.iter().any(|class| class.send_rate.is_some())
            || tenants.any(|class| class.send_rate.is_some())
    }

    pub fn weight(&self, class: usize) -> u32 {
        self.classes.get(class).and_then(|class| class.weight).unwrap_or(Self::WEIGHT)
    }

    /// Returns whether a limit on starts may hold a class back while others proceed.
    pub fn may_hold_class(&self, class: usize) -> bool {
        let tenants = self.tenants.iter().flat_map(|tenants| &tenants.classes);
        self.classes.get(class).is_some_and(|class| class.rate.is_some())
            || tenants.into_iter().any(TenantClass::is_limited)
    }

    /// Like `may_hold_class`, for tenants of a class.
    pub fn may_hold_tenants(&self, tenant_class: usize) -> bool {
        let class = self.tenants.as_ref().and_then(|tenants| tenants.classes.get(tenant_class));
        class.is_some_and(TenantClass::is_limited)
    }

    pub fn check(&self) -> Result<(), OrderError> {
        check_count("classes", self.classes.len(), limits::CLASSES_MAX)?;
        check_count("rules", self.rules.len(), limits::CLASS_RULES_MAX)?;
        check_names("class", self.classes.iter().map(|class| &class.name))?;
        self.classes.iter().try_for_each(|class| self.check_class(class))?;
        self.check_overlap()?;
        let named = self.default_class.iter().map(|name| (name, "as the default class"));
        for (name, used_by) in named.chain(self.rules.iter().map(|rule| (&rule.class, "of a rule"))) {
            if self.class_index(name.as_str()).is_none() {
                let known = list(self.classes.iter().map(|class| &class.name));
                return Err(OrderError::NoSuchClass { name: name.clone(), used_by, known });
            }
        }
        for rule in &self.rules {
            check_text(&rule.when, || format!("the rule of the class '{}'", rule.class))?;
        }
        check_rate(self.rate, || "the queue".to_owned())?;
        check_rate(self.send_rate, || "sending to the queue".to_owned())?;
        if !(1..=limits::OUTSTANDING_MAX).contains(&self.max_outstanding) {
            return Err(OrderError::Outstanding { given: self.max_outstanding });
        }
        self.tenants.as_ref().map_or(Ok(()), TenantSettings::check)
    }

    fn check_class(&self, class: &ClassSettings) -> Result<(), OrderError> {
        let name = || class.name.clone();
        let (from, to) = class.priorities;
        if from > to {
            return Err(OrderError::EmptyRange { name: name(), from, to });
        }
        if let Some(weight) = class.weight {
            if !(1..=limits::WEIGHT_MAX).contains(&weight) {
                let given = weight.to_string();
                return Err(OrderError::Weight { name: name(), given, min: "1", max: limits::WEIGHT_MAX });
            }
            if self.policy == OrderPolicy::Strict {
                return Err(OrderError::StrictWithWeights { name: name() });
            }
        }
        let max = limits::SCHEDULE_AHEAD_MAX;
        let span = |what, given, min| match (min..=max).contains(&given) {
            true => Ok(()),
            false => Err(OrderError::Span { what, name: name(), given, min, max }),
        };
        class.offset.map_or(Ok(()), |offset| span("offset", offset, Duration::ZERO))?;
        if let Some(target) = class.target {
            span("target", target.within, Duration::from_millis(1))?;
            if !(1..1_000_000).contains(&target.objective_ppm) {
                return Err(OrderError::Objective { name: name(), given: target.objective_ppm });
            }
        }
        check_rate(class.rate, || format!("the class '{}'", class.name))?;
        check_rate(class.send_rate, || format!("sending to the class '{}'", class.name))
    }

    fn check_overlap(&self) -> Result<(), OrderError> {
        for (place, one) in self.classes.iter().enumerate() {
            for other in self.classes.iter().skip(place + 1) {
                let (from, to) =
                    (one.priorities.0.max(other.priorities.0), one.priorities.1.min(other.priorities.1));
                if from <= to {
                    let (one, other) = (one.name.clone(), other.name.clone());
                    return Err(OrderError::Overlap { one, other, priority: from });
                }
            }
        }
        Ok(())
    }
}

impl TenantSettings {
    pub fn class_index(&self, name: &str) -> Option<usize> {
        self.classes.iter().position(|class| class.name.as_str().eq_ignore_ascii_case(name))
    }

    pub fn default_class_index(&self) -> usize {
        let named = self.default_class.as_ref().and_then(|name| self.class_index(name.as_str()));
        named.unwrap_or_else(|| self.classes.len().saturating_sub(1))
    }

    fn check(&self) -> Result<(), OrderError> {
        check_count("tenant classes", self.classes.len(), limits::CLASSES_MAX)?;
        check_names("tenant class", self.classes.iter().map(|class| &class.name))?;
        check_text(&self.key, || "the tenant key".to_owned())?;
        for class in &self.classes {
            let name = || class.name.clone();
            if !(1..=limits::WEIGHT_MAX * 1000).contains(&class.weight_milli) {
                let given = format!("{} thousandths", class.weight_milli);
                return Err(OrderError::Weight {
                    name: name(),
                    given,
                    min: "0.001",
                    max: limits::WEIGHT_MAX,
                });
            }
            if let Some(given) = class.max_share_milli.filter(|share| !(1..=1000).contains(share)) {
                return Err(OrderError::Share { name: name(), given });
            }
            check_text(class.when.as_deref().unwrap_or_default(), || {
                format!("the condition of '{}'", class.name)
            })?;
            check_rate(class.rate, || format!("tenants of the class '{}'", class.name))?;
            check_rate(class.send_rate, || format!("sending by tenants of the class '{}'", class.name))?;
        }
        match &self.default_class {
            Some(name) if self.class_index(name.as_str()).is_none() => Err(OrderError::NoSuchClass {
                name: name.clone(),
                used_by: "as the default class of tenants",
                known: list(self.classes.iter().map(|class| &class.name)),
            }),
            _ => Ok(()),
        }
    }
}

/// Returns the offset of a class, or of a member of a queue group, from the configured ones. The default increases with
/// the place: 0, 30 s, 5 min, and 5 min more for each below; but it is never less than the offset of the place above.
pub(crate) fn offset_at(place: usize, set: impl Iterator<Item = Option<Duration>>) -> Duration {
    let mut least = Duration::ZERO;
    for (place, set) in (0u32..).zip(set.take(place + 1)) {
        let default = match place {
            0 => Duration::ZERO,
            1 => Duration::from_secs(30),
            _ => Duration::from_secs(300) * (place - 1),
        };
        least = set.unwrap_or_else(|| default.max(least));
    }
    least
}

fn check_count(what: &'static str, count: usize, max: usize) -> Result<(), OrderError> {
    if count > max {
        return Err(OrderError::TooMany { what, count, max });
    }
    Ok(())
}

fn check_names<'n>(
    what: &'static str,
    names: impl Iterator<Item = &'n ClassName> + Clone,
) -> Result<(), OrderError> {
    for (place, name) in names.clone().enumerate() {
        if names.clone().skip(place + 1).any(|other| other == name) {
            return Err(OrderError::NamedTwice { what, name: name.clone() });
        }
    }
    Ok(())
}

fn check_text(text: &str, what: impl FnOnce() -> String) -> Result<(), OrderError> {
    let count = text.chars().count();
    if count > limits::CLASS_EXPRESSION_CHARS_MAX {
        return Err(OrderError::Expression { what: what(), count });
    }
    Ok(())
}

fn check_rate(rate: Option<Rate>, what: impl FnOnce() -> String) -> Result<(), OrderError> {
    let Some(given) = rate else { return Ok(()) };
    let is_possible = (1..=limits::RATE_PER_SECOND_MAX * 1000).contains(&given.per_second_milli);
    if !is_possible || given.burst == 0 {
        return Err(OrderError::Rate { what: what(), given });
    }
    Ok(())
}

fn list<'n>(names: impl Iterator<Item = &'n ClassName>) -> String {
    let names: Vec<_> = names.map(ClassName::as_str).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, from: u8, to: u8) -> ClassSettings {
        ClassSettings::new(ClassName::parse(name).unwrap(), (from, to))
    }

    fn three() -> OrderSettings {
        let classes = vec![class("high", 7, 9), class("normal", 4, 6), class("low", 0, 3)];
        OrderSettings { classes, ..OrderSettings::default() }
    }

    #[test]
    fn the_usual_three_classes_are_valid() {
        let mut order = three();
        order.classes.reverse();
        order.sort();
        assert_eq!(order, three());
        assert_eq!(order.check(), Ok(()));
        assert_eq!(order.default_class_index(), 1);
        assert_eq!((order.class_of(3), order.class_of(9), order.class_of(10)), (Some(2), Some(0), None));
        assert_eq!([0, 1, 2].map(|class| order.offset(class).as_secs()), [0, 30, 300]);
    }

    #[test]
    fn the_default_offset_is_the_target_and_not_below_that_of_a_more_urgent_class() {
        let mut order = three();
        order.classes[0].target = Some(Target { within: Duration::from_secs(60), objective_ppm: 990_000 });
        assert_eq!([0, 1, 2].map(|class| order.offset(class).as_secs()), [60, 60, 300]);
        order.classes[1].offset = Some(Duration::from_secs(1));
        assert_eq!(
            [0, 1, 2].map(|class| order.offset(class).as_secs()),
            [60, 1, 300],
            "a configured offset has precedence"
        );
    }

    #[test]
    fn invalid_orders_are_rejected() {
        let refused = |change: fn(&mut OrderSettings)| {
            let mut order = three();
            change(&mut order);
            order.check().unwrap_err().to_string()
        };
        assert!(refused(|order| order.classes[1].priorities = (6, 7)).contains("overlap at 7"));
        assert!(refused(|order| order.classes[1].priorities = (6, 5)).contains("no range"));
        assert!(refused(|order| order.classes[1].weight = Some(0)).contains("from 1 to"));
        assert!(refused(|order| order.classes[2].name = ClassName::parse("HIGH").unwrap()).contains("twice"));
        assert!(refused(|order| order.default_class = Some(ClassName::only())).contains("high, normal, low"));
        assert!(refused(|order| order.max_outstanding = 0).contains("outside"));
        let both = refused(|order| {
            order.policy = OrderPolicy::Strict;
            order.classes[0].weight = Some(2);
        });
        assert!(both.contains("policy strict") && both.contains("policy weighted"), "{both}");
        let unknown = refused(|order| {
            let class = ClassName::parse("urgent").unwrap();
            order.rules = vec![ClassRule { when: "1=1".to_owned(), class }];
        });
        assert!(unknown.contains("no class 'urgent'"), "{unknown}");
        let rate = refused(|order| order.rate = Some(Rate { per_second_milli: 500, burst: 0 }));
        assert!(rate.contains("0.5/s burst 0"), "{rate}");
    }

    #[test]
    fn a_class_name_cannot_be_mistaken_for_a_priority() {
        assert!(ClassName::parse("high-1").is_ok());
        for wrong in ["", "9", "a b", "ä"] {
            assert!(ClassName::parse(wrong).is_err(), "{wrong}");
        }
    }
}
