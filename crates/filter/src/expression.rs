//! A value that is computed from a message's properties, outside of any rule.

use crate::error::RuleError;
use crate::fold::same_name;
use crate::run::{Budget, Cost, Ids, Run, Steps};
use crate::slots::Slots;
use crate::sql::{self, Kind, Node, Property};
use crate::value::{Value, ValueRef};
use crate::view::{Entries, ViewProperty};
use crate::wire::DecodeError;

/// A compiled value expression of the filter language: often the name of a property, but also `sys.Label` or `region + '/' + tier`.
///
/// ```
/// use peeklock_filter::{Expression, Value, ViewBuilder};
///
/// let expression = Expression::parse("region + '/' + tier").unwrap();
/// let mut view = ViewBuilder::new();
/// view.user("region", &Value::text("eu"));
/// view.user("tier", &Value::text("free"));
/// assert_eq!(expression.evaluate(&view.finish(), 0), Ok(Value::text("eu/free")));
/// ```
#[derive(Clone, Debug)]
pub struct Expression {
    source: String,
    node: Node,
    slots: Slots,
}

impl Expression {
    /// Parses a value expression. A condition, such as a comparison, is rejected.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let mut node = sql::parse_value(text)?;
        let mut slots = Slots::default();
        node.properties_mut(&mut |property| slots.take_property(property));
        Ok(Self { source: text.to_owned(), node, slots })
    }

    /// Returns the text of the expression.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Evaluates the expression for a message. Returns null if a property is missing. The error explains why there is no value.
    ///
    /// The evaluation has the budget of one rule. The seed determines the result of `newid()`.
    pub fn evaluate(&self, view: &[u8], seed: u64) -> Result<Value, String> {
        let unreadable = |error| format!("the properties of the message cannot be read: {error}");
        if let Kind::Property(property) = &self.node.kind {
            return find(property, view).map(|value| value.to_value()).map_err(unreadable);
        }
        let message = self.slots.read(view).map_err(unreadable)?;
        let (ids, budget) = (Ids::new(seed), Budget::new(Cost::default()));
        let steps = Steps::new(&budget);
        let run = Run { source: &self.source, message: &message, changes: &[], ids: &ids, steps: &steps };
        run.value(&self.node).map(|value| value.to_value())
    }
}

/// Returns the value of one property without reading the others into a message. The result is the same.
fn find<'v>(property: &Property, view: &'v [u8]) -> Result<ValueRef<'v>, DecodeError> {
    let mut found = None;
    for entry in Entries::of(view) {
        let is_null = found.as_ref().is_none_or(ValueRef::is_null);
        match (entry?, property) {
            (ViewProperty::System(name, value), Property::System(wanted)) if name == *wanted && is_null => {
                found = Some(value);
            }
            (ViewProperty::User(name, value), Property::User { name: wanted, .. })
                if found.is_none() && same_name(name, wanted) =>
            {
                found = Some(value);
            }
            _ => {}
        }
    }
    Ok(found.unwrap_or(ValueRef::Null))
}

/// Two expressions are equal if their texts are equal.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Expression {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SystemProperty, ViewBuilder};

    #[test]
    fn a_single_property_has_the_same_value_as_in_a_larger_expression() {
        let mut view = ViewBuilder::new();
        view.system(SystemProperty::Label, &Value::Null);
        view.system(SystemProperty::Label, &Value::text("label"));
        view.user("TIER", &Value::text("first"));
        view.user("tier", &Value::text("second"));
        view.user("none", &Value::Null);
        view.user("none", &Value::text("late"));
        let view = view.finish();
        for name in ["tier", "Tier", "none", "missing", "sys.Label", "sys.To"] {
            let alone = Expression::parse(name).unwrap().evaluate(&view, 0);
            let larger = Expression::parse(&format!("{name} + ''")).unwrap().evaluate(&view, 0);
            assert_eq!(alone, larger, "{name}");
        }
        let damaged = [view.as_ref(), &[0xff]].concat();
        for text in ["tier", "tier + ''"] {
            assert!(Expression::parse(text).unwrap().evaluate(&damaged, 0).is_err(), "{text}");
        }
    }
}
