//! The rules of subscriptions as builders.

use peeklock_filter::{RuleName, Value};
use peeklock_spec::{CorrelationSpec, Match, RuleSpec};

use super::invalid;
use crate::error::Error;

/// A rule of a subscription: a filter that selects messages, and an action that changes the copies of the subscription.
///
/// ```
/// use peeklock::admin::{Correlation, Rule};
///
/// let large = Rule::sql("amount > @limit").parameter("@limit", 1000).action("SET region = 'EU'");
/// let urgent = Rule::from(Correlation::new().subject("order").property("tier", "gold"));
/// # let _ = (large, urgent);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "pass it to a subscription or to a method of Admin"]
pub struct Rule {
    spec: RuleSpec,
}

impl Rule {
    /// Returns a rule that matches every message.
    pub fn all() -> Self {
        RuleSpec { r#match: Some(Match::All), ..RuleSpec::default() }.into()
    }

    /// Returns a rule that matches no message.
    pub fn none() -> Self {
        RuleSpec { r#match: Some(Match::None), ..RuleSpec::default() }.into()
    }

    /// Returns a rule with a SQL filter, such as `amount > 1000 AND sys.Label LIKE 'order%'`.
    pub fn sql(filter: impl Into<String>) -> Self {
        RuleSpec { sql: Some(filter.into()), ..RuleSpec::default() }.into()
    }

    /// Sets a SQL action, such as `SET priority = 1; REMOVE secret`.
    pub fn action(mut self, action: impl Into<String>) -> Self {
        self.spec.action = Some(action.into());
        self
    }

    /// Sets the value of a parameter of the filter, such as `@limit`.
    pub fn parameter(mut self, name: impl Into<String>, value: impl Into<RuleValue>) -> Self {
        self.spec.parameters.get_or_insert_default().0.push((name.into(), value.into().0));
        self
    }

    /// Sets the value of a parameter of the action.
    pub fn action_parameter(mut self, name: impl Into<String>, value: impl Into<RuleValue>) -> Self {
        self.spec.action_parameters.get_or_insert_default().0.push((name.into(), value.into().0));
        self
    }

    /// Returns the spec, validated with its name.
    pub(super) fn checked(self, name: &str) -> Result<RuleSpec, Error> {
        Ok(self.named(name)?.1)
    }

    pub(super) fn named(self, name: &str) -> Result<(RuleName, RuleSpec), Error> {
        let name = RuleName::parse(name).map_err(|error| invalid(error.to_string()))?;
        let checked = self.spec.rule(name.clone());
        checked.map_err(|error| invalid(format!("rule '{name}': {error}")))?;
        Ok((name, self.spec))
    }
}

impl From<RuleSpec> for Rule {
    fn from(spec: RuleSpec) -> Self {
        Rule { spec }
    }
}

impl From<Correlation> for Rule {
    fn from(correlation: Correlation) -> Self {
        RuleSpec { correlation: Some(correlation.spec), ..RuleSpec::default() }.into()
    }
}

/// A filter of equality conditions that must all be true. It is cheaper than a SQL filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "pass it as a rule"]
pub struct Correlation {
    spec: CorrelationSpec,
}

/// Adds one condition for each field.
macro_rules! conditions {
    ($($(#[$doc:meta])* $method:ident => $field:ident),* $(,)?) => { $(
        $(#[$doc])*
        pub fn $method(mut self, value: impl Into<String>) -> Self {
            self.spec.$field = Some(value.into());
            self
        }
    )* };
}

impl Correlation {
    /// Returns a filter without conditions.
    pub fn new() -> Self {
        Self::default()
    }

    conditions! {
        /// Requires a subject.
        subject => label,
        /// Requires a correlation id.
        correlation_id => correlation_id,
        /// Requires a message id.
        message_id => message_id,
        /// Requires a session.
        session_id => session_id,
        /// Requires a value of the field `to`.
        to => to,
        /// Requires a queue for replies.
        reply_to => reply_to,
        /// Requires a session for replies.
        reply_to_session_id => reply_to_session_id,
        /// Requires a media type of the body.
        content_type => content_type,
    }

    /// Requires the value of an application property.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<RuleValue>) -> Self {
        self.spec.properties.get_or_insert_default().0.push((name.into(), value.into().0));
        self
    }
}

/// A value in a rule: text, a number or a boolean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleValue(peeklock_spec::RuleValue);

impl From<peeklock_spec::RuleValue> for RuleValue {
    fn from(value: peeklock_spec::RuleValue) -> Self {
        RuleValue(value)
    }
}

/// Converts types of Rust to the value of the filter language that holds them.
macro_rules! values {
    ($($kind:ty => |$value:ident| $filter_value:expr),* $(,)?) => { $(
        impl From<$kind> for RuleValue {
            fn from($value: $kind) -> Self {
                RuleValue($filter_value.into())
            }
        }
    )* };
}

values! {
    &str => |text| Value::text(text),
    String => |text| Value::text(text.as_str()),
    bool => |value| Value::Bool(value),
    i64 => |number| Value::Long(number),
    i32 => |number| Value::Long(number.into()),
    u32 => |number| Value::Long(number.into()),
    f64 => |number| Value::Double(number),
}
