//! A value that is computed from a message's properties, outside of any rule.

use crate::error::RuleError;
use crate::run::{Budget, Cost, Ids, Run, Steps};
use crate::slots::Slots;
use crate::sql::{self, Node};
use crate::value::Value;

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

/// Two expressions are equal if their texts are equal.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Expression {}
