//! Classes of messages and tenants as builders.

use std::ops::RangeInclusive;
use std::time::Duration;

use peeklock_types::{ClassName, ClassRule, ClassSettings, OrderSettings, Rate, Target, TenantSettings};

use super::invalid;
use crate::error::Error;

/// The priorities that classes without priorities share: 0 to 9, as in AMQP.
const PRIORITY_COUNT: usize = 10;

/// The default share of messages that are to meet the target of their class.
const OBJECTIVE: f64 = 0.99;

const MILLION: f64 = 1_000_000.0;
const THOUSAND: f64 = 1_000.0;

/// A class of messages, such as the urgent ones.
#[derive(Clone, Debug, Default)]
#[must_use = "pass it to a queue or subscription"]
pub struct Class {
    name: String,
    priorities: Option<(u8, u8)>,
    target: Option<Duration>,
    objective: Option<f64>,
    offset: Option<Duration>,
    weight: Option<u32>,
    rate: Option<Rate>,
    send_rate: Option<Rate>,
}

impl Class {
    /// Returns a class with a name.
    pub fn new(name: impl Into<String>) -> Self {
        Class { name: name.into(), ..Class::default() }
    }

    /// Sets the priorities of its messages. Either all classes of a queue have priorities or none.
    pub fn priorities(mut self, range: RangeInclusive<u8>) -> Self {
        self.priorities = Some((*range.start(), *range.end()));
        self
    }

    /// Sets the time within which its messages should start. It is also the default offset.
    pub fn target(mut self, within: Duration) -> Self {
        self.target = Some(within);
        self
    }

    /// Sets the share of its messages that are to meet the target. The default is 0.99.
    pub fn objective(mut self, share: f64) -> Self {
        self.objective = Some(share);
        self
    }

    /// Sets the time by which a more urgent message may arrive later and still go first.
    pub fn offset(mut self, offset: Duration) -> Self {
        self.offset = Some(offset);
        self
    }

    /// Sets its share, for the policy [`Weighted`](super::OrderPolicy::Weighted).
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = Some(weight);
        self
    }

    /// Limits the deliveries of its messages.
    pub fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Limits the messages that are sent to it.
    pub fn send_rate(mut self, rate: Rate) -> Self {
        self.send_rate = Some(rate);
        self
    }

    fn settings(self, shared: (u8, u8)) -> Result<ClassSettings, Error> {
        let target = match (self.target, self.objective) {
            (Some(within), objective) => {
                let objective_ppm = parts(objective.unwrap_or(OBJECTIVE), MILLION);
                Some(Target { within, objective_ppm })
            }
            (None, None) => None,
            (None, Some(_)) => {
                return Err(invalid(format!(
                    "the class '{}' has an objective but no target; set a target, such as 10 s",
                    self.name
                )));
            }
        };
        Ok(ClassSettings {
            name: class_name(&self.name)?,
            priorities: self.priorities.unwrap_or(shared),
            offset: self.offset,
            weight: self.weight,
            target,
            rate: self.rate,
            send_rate: self.send_rate,
        })
    }
}

impl From<&str> for Class {
    fn from(name: &str) -> Self {
        Class::new(name)
    }
}

impl From<String> for Class {
    fn from(name: String) -> Self {
        Class::new(name)
    }
}

/// Shares the workers' time between the tenants of a queue.
///
/// ```
/// use peeklock::admin::{Queue, Rate, TenantClass, Tenants};
///
/// let tenants = Tenants::by("tenant")
///     .class(TenantClass::new("paying").when("tier = 'paying'").weight(4.0))
///     .class(TenantClass::new("free").max_share(0.3).rate(Rate::per_second(5)));
/// # let _ = Queue::new().tenants(tenants);
/// ```
#[derive(Clone, Debug)]
#[must_use = "pass it to a queue or subscription"]
pub struct Tenants {
    key: String,
    classes: Vec<TenantClass>,
    default_class: Option<String>,
}

/// A class of tenants.
#[derive(Clone, Debug, Default)]
#[must_use = "pass it to Tenants"]
pub struct TenantClass {
    name: String,
    when: Option<String>,
    weight: Option<f64>,
    max_share: Option<f64>,
    is_share_hard: bool,
    rate: Option<Rate>,
    send_rate: Option<Rate>,
}

impl Tenants {
    /// Takes the name of the tenant from a property, or from an expression such as `region + '/' + tier`.
    pub fn by(key: impl Into<String>) -> Self {
        Tenants { key: key.into(), classes: Vec::new(), default_class: None }
    }

    /// Adds a class of tenants. The first class whose condition is true is that of a tenant.
    pub fn class(mut self, class: impl Into<TenantClass>) -> Self {
        self.classes.push(class.into());
        self
    }

    /// Sets the class of tenants for which no condition is true. The default is the last class.
    pub fn default_class(mut self, name: impl Into<String>) -> Self {
        self.default_class = Some(name.into());
        self
    }

    fn settings(self) -> Result<TenantSettings, Error> {
        let classes = self.classes.into_iter().map(TenantClass::settings).collect::<Result<_, _>>()?;
        let default_class = self.default_class.as_deref().map(class_name).transpose()?;
        Ok(TenantSettings { key: self.key, classes, default_class })
    }
}

impl TenantClass {
    /// Returns a class with a name.
    pub fn new(name: impl Into<String>) -> Self {
        TenantClass { name: name.into(), ..TenantClass::default() }
    }

    /// Sets the condition on the messages of its tenants, such as `tier = 'paying'`.
    pub fn when(mut self, condition: impl Into<String>) -> Self {
        self.when = Some(condition.into());
        self
    }

    /// Sets the weight of each of its tenants. The default is 1.
    pub fn weight(mut self, weight: f64) -> Self {
        self.weight = Some(weight);
        self
    }

    /// Limits the share of the messages in flight that belong to its tenants together, while other tenants wait.
    pub fn max_share(mut self, share: f64) -> Self {
        self.max_share = Some(share);
        self
    }

    /// Applies the maximum share also while no other tenant waits.
    pub fn hard(mut self) -> Self {
        self.is_share_hard = true;
        self
    }

    /// Limits the deliveries to each of its tenants.
    pub fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Limits the messages that are sent for each of its tenants.
    pub fn send_rate(mut self, rate: Rate) -> Self {
        self.send_rate = Some(rate);
        self
    }

    fn settings(self) -> Result<peeklock_types::TenantClass, Error> {
        let usual = peeklock_types::TenantClass::new(class_name(&self.name)?);
        Ok(peeklock_types::TenantClass {
            when: self.when,
            weight_milli: self.weight.map_or(usual.weight_milli, |weight| parts(weight, THOUSAND)),
            max_share_milli: self.max_share.map(|share| parts(share, THOUSAND)),
            is_share_hard: self.is_share_hard,
            rate: self.rate,
            send_rate: self.send_rate,
            name: usual.name,
        })
    }
}

impl From<&str> for TenantClass {
    fn from(name: &str) -> Self {
        TenantClass::new(name)
    }
}

/// The order of a queue while it is built.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    classes: Vec<Class>,
    default_class: Option<String>,
    /// Conditions with the name of their class.
    rules: Vec<(String, String)>,
    tenants: Option<Tenants>,
    /// The other settings; absent if nothing was set.
    settings: Option<Box<OrderSettings>>,
}

impl Order {
    pub(super) fn class(&mut self, class: Class) {
        self.settings();
        self.classes.push(class);
    }

    pub(super) fn default_class(&mut self, name: &str) {
        self.settings();
        self.default_class = Some(name.to_owned());
    }

    pub(super) fn class_rule(&mut self, when: &str, class: &str) {
        self.settings();
        self.rules.push((when.to_owned(), class.to_owned()));
    }

    pub(super) fn tenants(&mut self, tenants: Tenants) {
        self.settings();
        self.tenants = Some(tenants);
    }

    pub(super) fn settings(&mut self) -> &mut OrderSettings {
        self.settings.get_or_insert_default()
    }

    /// Returns the order, or `None` if nothing was set.
    pub(super) fn finish(self) -> Result<Option<OrderSettings>, Error> {
        let Some(mut order) = self.settings.map(|order| *order) else { return Ok(None) };
        let shared = shared_priorities(&self.classes)?;
        let classes = self.classes.into_iter().zip(shared);
        order.classes = classes.map(|(class, shared)| class.settings(shared)).collect::<Result<_, _>>()?;
        order.sort();
        order.default_class = self.default_class.as_deref().map(class_name).transpose()?;
        let rule = |(when, class): (String, String)| Ok(ClassRule { when, class: class_name(&class)? });
        order.rules = self.rules.into_iter().map(rule).collect::<Result<_, Error>>()?;
        order.tenants = self.tenants.map(Tenants::settings).transpose()?;
        Ok(Some(order))
    }
}

/// Returns the priorities for classes without any: an even part of 0 to 9 for each, the most urgent class first. The less urgent classes get
/// what remains, so three classes have 7-9, 4-6 and 0-3.
fn shared_priorities(classes: &[Class]) -> Result<Vec<(u8, u8)>, Error> {
    let given_count = classes.iter().filter(|class| class.priorities.is_some()).count();
    if given_count == classes.len() {
        return Ok(vec![(0, 0); given_count]);
    }
    if let Some(class) = classes.iter().find(|class| class.priorities.is_none() && given_count > 0) {
        return Err(invalid(format!(
            "the class '{}' has no priorities but other classes have; set the priorities of all classes or of none",
            class.name
        )));
    }
    if classes.len() > PRIORITY_COUNT {
        return Err(invalid(format!(
            "{} classes cannot share the priorities 0 to 9; set the priorities of each class, from 0 to 255",
            classes.len()
        )));
    }
    let (each, rest) = (PRIORITY_COUNT / classes.len(), PRIORITY_COUNT % classes.len());
    let mut above = PRIORITY_COUNT;
    let ranges = (0..classes.len()).map(|place| {
        let count = each + usize::from(place >= classes.len() - rest);
        let (from, to) = (above - count, above - 1);
        above = from;
        let priority = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        (priority(from), priority(to))
    });
    Ok(ranges.collect())
}

fn class_name(text: &str) -> Result<ClassName, Error> {
    ClassName::parse(text).map_err(|error| invalid(error.to_string()))
}

/// Returns a number in parts of one. A negative number or one without a value becomes 0, which the check of the order rejects.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast from a float saturates")]
fn parts(number: f64, whole: f64) -> u32 {
    (number * whole).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn priorities(names: &[&str]) -> Vec<(u8, u8)> {
        let classes: Vec<_> = names.iter().map(|name| Class::new(*name)).collect();
        shared_priorities(&classes).unwrap()
    }

    #[test]
    fn classes_without_priorities_share_them_evenly() {
        assert_eq!(priorities(&["high", "normal", "low"]), [(7, 9), (4, 6), (0, 3)]);
        assert_eq!(priorities(&["high", "low"]), [(5, 9), (0, 4)]);
        assert_eq!(priorities(&["only"]), [(0, 9)]);
        let ten = priorities(&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]);
        assert_eq!((ten[0], ten[9]), ((9, 9), (0, 0)));
        assert_eq!(priorities(&["a", "b", "c", "d"]), [(8, 9), (6, 7), (3, 5), (0, 2)]);
    }

    #[test]
    fn priorities_are_set_for_all_classes_or_for_none() {
        let mixed = [Class::new("high").priorities(7..=9), Class::new("low")];
        assert!(shared_priorities(&mixed).unwrap_err().to_string().contains("'low'"));
        let many: Vec<_> = (0..11).map(|number| Class::new(format!("c{number}"))).collect();
        assert!(shared_priorities(&many).unwrap_err().to_string().contains("11 classes"));
    }
}
