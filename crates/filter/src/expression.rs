//! One value that is made of a message's properties, outside of any rule.

use crate::error::RuleError;
use crate::run::{Budget, Cost, Ids, Run, Steps};
use crate::slots::Slots;
use crate::sql::{self, Node};
use crate::value::Value;

/// A value expression of the filter language, compiled: mostly just the name of a property, but also `sys.Label` or `region + '/' + tier`.
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
    /// A condition, such as a comparison, is no value and refused.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        let mut node = sql::parse_value(text)?;
        let mut slots = Slots::default();
        node.properties_mut(&mut |property| slots.take_property(property));
        Ok(Self { source: text.to_owned(), node, slots })
    }

    /// As it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Its value for a message: null where a property that it needs is not there. The error says in words why there is no value.
    ///
    /// It may cost what one rule may cost. The seed decides what `newid()` gives.
    pub fn evaluate(&self, view: &[u8], seed: u64) -> Result<Value, String> {
        let message = self
            .slots
            .read(view)
            .map_err(|error| format!("the properties of the message cannot be read: {error}"))?;
        let (ids, budget) = (Ids::new(seed), Budget::new(Cost::default()));
        let steps = Steps::new(&budget);
        let run = Run { source: &self.source, message: &message, changes: &[], ids: &ids, steps: &steps };
        run.value(&self.node).map(|value| value.to_value())
    }
}

/// Two are equal when they are written alike.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Expression {}
