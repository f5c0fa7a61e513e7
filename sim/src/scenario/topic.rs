//! Topics, and the subscriptions that get a copy. The simulator evaluates rules by their meaning; the broker has them
//! as filters and actions.

use peeklock_filter::{self as filter, CorrelationFilter, Filter, RuleName, RuleNameError, SqlFilter, Value};
use peeklock_types::QueueSettings;

use crate::log::{MessageNumber, QueueIndex};

/// The property into which a rule with an action writes its own name.
pub(crate) const MARK: &str = "mark";

#[derive(Clone, Debug)]
pub struct Topic {
    pub name: String,
    pub settings: QueueSettings,
    /// The number of sessions; 0 where no subscription has sessions.
    pub session_count: u32,
    pub subscriptions: Vec<Subscription>,
}

#[derive(Clone, Debug)]
pub struct Subscription {
    pub queue: QueueIndex,
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
pub struct Rule {
    pub name: String,
    pub test: Test,
    /// Whether the rule marks its copy, which is therefore a separate one.
    pub marks: bool,
}

/// The messages that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    All,
    Nothing,
    /// A correlation filter on a property.
    Color(u32),
    /// A correlation filter on a field of the message.
    Subject(u32),
    /// A correlation filter on both.
    Both(u32, u32),
    /// A SQL filter.
    Above(u32),
    /// A SQL filter on a property that not every message has.
    Either(u32, u32),
    /// A SQL filter whose comparison is an error.
    Failing,
}

/// The properties that rules use. They follow from the number of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// The color, which not every message has.
    pub color: Option<u32>,
    pub subject: u32,
    pub level: u32,
}

pub(crate) const COLORS: u32 = 3;
pub(crate) const SUBJECTS: u32 = 3;
pub(crate) const LEVELS: u32 = 10;

impl Traits {
    pub fn of(number: MessageNumber) -> Self {
        let mut rng = fastrand::Rng::with_seed(number.into());
        let color = rng.u32(0..=COLORS);
        Traits {
            color: (color < COLORS).then_some(color),
            subject: rng.u32(0..SUBJECTS),
            level: rng.u32(0..LEVELS),
        }
    }
}

pub(crate) fn color_name(color: u32) -> String {
    format!("color {color}")
}

pub(crate) fn subject_name(subject: u32) -> String {
    format!("subject {subject}")
}

impl Test {
    pub fn takes(self, traits: Traits) -> bool {
        match self {
            Test::All => true,
            Test::Nothing | Test::Failing => false,
            Test::Color(color) => traits.color == Some(color),
            Test::Subject(subject) => traits.subject == subject,
            Test::Both(color, subject) => traits.color == Some(color) && traits.subject == subject,
            Test::Above(level) => traits.level > level,
            Test::Either(color, level) => {
                traits.color.is_some_and(|own| own != color) || traits.level == level
            }
        }
    }

    fn filter(self) -> Filter {
        let sql = |expression: String| Filter::Sql(SqlFilter { expression, ..SqlFilter::default() });
        let by = |color: Option<u32>, subject: Option<u32>| {
            let properties =
                color.map(|color| ("color".to_owned(), Value::Text(color_name(color).into()).into()));
            Filter::Correlation(CorrelationFilter {
                label: subject.map(subject_name),
                properties: properties.into_iter().collect(),
                ..CorrelationFilter::default()
            })
        };
        match self {
            Test::All => Filter::True,
            Test::Nothing => Filter::False,
            Test::Color(color) => by(Some(color), None),
            Test::Subject(subject) => by(None, Some(subject)),
            Test::Both(color, subject) => by(Some(color), Some(subject)),
            Test::Above(level) => sql(format!("level > {level}")),
            Test::Either(color, level) => sql(format!("color <> '{}' OR level = {level}", color_name(color))),
            Test::Failing => sql("level > 'high'".to_owned()),
        }
    }
}

impl Rule {
    pub(crate) fn spelled(&self) -> Result<filter::Rule, RuleNameError> {
        let expression = format!("SET {MARK} = '{}'", self.name);
        let action = self.marks.then(|| filter::Action { expression, ..filter::Action::default() });
        Ok(filter::Rule { name: RuleName::parse(&self.name)?, filter: self.test.filter(), action })
    }
}

/// One of the copies that a message may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy<'a> {
    pub queue: QueueIndex,
    /// The rule that marked the copy.
    pub rule: Option<&'a str>,
    subscription: &'a Subscription,
}

impl PartialEq for Subscription {
    fn eq(&self, other: &Self) -> bool {
        self.queue == other.queue
    }
}

impl Eq for Subscription {}

impl Subscription {
    /// Returns whether every message is dead-lettered here because a rule cannot be evaluated.
    pub fn fails(&self) -> bool {
        self.rules.iter().any(|rule| rule.test == Test::Failing)
    }

    /// Returns whether a message has a copy without a mark, which all rules without a mark share.
    fn has_plain_copy(&self, traits: Traits) -> bool {
        self.fails() || self.rules.iter().any(|rule| !rule.marks && rule.test.takes(traits))
    }
}

impl Copy<'_> {
    pub fn is_for(&self, traits: Traits) -> bool {
        match self.rule {
            None => self.subscription.has_plain_copy(traits),
            Some(name) => {
                self.subscription.rules.iter().any(|rule| rule.name == name && rule.test.takes(traits))
            }
        }
    }
}

impl Topic {
    /// Returns every possible copy of a message. The number of a copy is that of its message, plus one, plus its index
    /// here.
    pub fn copies(&self) -> Vec<Copy<'_>> {
        self.subscriptions.iter().flat_map(copies_of).collect()
    }

    /// Returns how many numbers a message needs: its own, and one for each copy.
    pub fn numbers(&self) -> u32 {
        u32::try_from(self.copies().len()).unwrap_or(u32::MAX - 1) + 1
    }
}

fn copies_of(subscription: &Subscription) -> Vec<Copy<'_>> {
    let queue = subscription.queue;
    let marking = subscription.rules.iter().filter(|rule| rule.marks);
    let marked = marking.map(|rule| Copy { queue, rule: Some(rule.name.as_str()), subscription });
    [Copy { queue, rule: None, subscription }].into_iter().chain(marked).collect()
}

/// Returns the number of the copy at an index of `Topic::copies`.
pub(crate) fn copy_number(message: MessageNumber, place: usize) -> MessageNumber {
    message.saturating_add(1).saturating_add(u32::try_from(place).unwrap_or(u32::MAX))
}
