//! Evaluates an expression for a message.

use std::borrow::Cow;
use std::cell::Cell;

use crate::changes::Change;
use crate::compare::{Relation, relate};
use crate::fold::same_name;
use crate::like::{Pattern, escape_char};
use crate::slots::Message;
use crate::sql::{Comparison, Kind, Node, Operator, PatternSource, Property};
use crate::value::ValueRef;
use crate::{guid, limits};

/// The reason why an expression has no result.
pub(crate) type Fault = String;

/// True, false, or unknown.
pub(crate) type Truth = Option<bool>;

/// The cost limits of rules. A step is approximately the comparison of two characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The limit of one rule for one message.
    pub rule_steps_max: u64,
    /// The limit of all rules of a topic for one message.
    pub message_steps_max: u64,
}

impl Default for Cost {
    fn default() -> Self {
        Cost { rule_steps_max: limits::RULE_STEPS_MAX, message_steps_max: limits::MESSAGE_STEPS_MAX }
    }
}

/// The remaining cost of all rules of a topic for one message.
#[derive(Debug)]
pub(crate) struct Budget {
    cost: Cost,
    left: Cell<u64>,
}

impl Budget {
    pub(crate) fn new(cost: Cost) -> Self {
        Self { cost, left: Cell::new(cost.message_steps_max) }
    }
}

/// The remaining cost of one rule.
#[derive(Debug)]
pub(crate) struct Steps<'b> {
    budget: &'b Budget,
    left: Cell<u64>,
}

/// Characters of a rule's text that an error contains.
const QUOTED_CHARS_MAX: usize = 100;

/// Comparing or copying bytes is faster than other steps by this factor.
const BYTES_PER_STEP: usize = 16;

impl<'b> Steps<'b> {
    pub(crate) fn new(budget: &'b Budget) -> Self {
        Self { budget, left: Cell::new(budget.cost.rule_steps_max) }
    }

    pub(crate) fn take(&self, count: usize) -> Result<(), Fault> {
        let Some(left) = self.left.get().checked_sub(count as u64) else {
            return Err(format!("the rule takes more than {} steps", self.budget.cost.rule_steps_max));
        };
        let Some(left_of_all) = self.budget.left.get().checked_sub(count as u64) else {
            let max = self.budget.cost.message_steps_max;
            return Err(format!("the rules of the topic take more than {max} steps for this message"));
        };
        self.left.set(left);
        self.budget.left.set(left_of_all);
        Ok(())
    }

    pub(crate) fn take_bytes(&self, count: usize) -> Result<(), Fault> {
        self.take(count / BYTES_PER_STEP)
    }
}

/// The source of `newid()`.
#[derive(Debug)]
pub(crate) struct Ids {
    seed: u64,
    next: Cell<u64>,
}

impl Ids {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, next: Cell::new(0) }
    }

    fn next(&self) -> String {
        let number = self.next.get();
        self.next.set(number.wrapping_add(1));
        guid::print(&guid::random(self.seed, number))
    }
}

/// The evaluation of one rule for one message.
#[derive(Debug)]
pub(crate) struct Run<'r> {
    /// The text of the rule, for errors and explanations.
    pub(crate) source: &'r str,
    pub(crate) message: &'r Message<'r>,
    /// The changes of earlier statements of the action.
    pub(crate) changes: &'r [Change],
    pub(crate) ids: &'r Ids,
    pub(crate) steps: &'r Steps<'r>,
}

impl<'r> Run<'r> {
    pub(crate) fn condition(&self, node: &'r Node) -> Result<Truth, Fault> {
        self.steps.take(1)?;
        match &node.kind {
            Kind::And(list) => self.all(list, true),
            Kind::Or(list) => Ok(self.all(list, false)?.map(|is_true| !is_true)),
            Kind::Not(inner) => Ok(self.condition(inner)?.map(|is_true| !is_true)),
            Kind::Compare { left, comparison, right } => self.compare(node, left, *comparison, right),
            Kind::In { is_negated, value, list } => {
                Ok(self.is_in(node, value, list)?.map(|is_in| is_in != *is_negated))
            }
            Kind::Like { is_negated, text, pattern } => {
                Ok(self.is_like(text, pattern)?.map(|is_like| is_like != *is_negated))
            }
            Kind::IsNull { is_negated, value } => Ok(Some(self.value(value)?.is_null() != *is_negated)),
            Kind::Exists(property) => Ok(Some(self.exists(property))),
            _ => match self.value(node)? {
                ValueRef::Bool(is_true) => Ok(Some(is_true)),
                ValueRef::Null => Ok(None),
                other => Err(format!("{} is {other}, which is neither true nor false", self.quote(node))),
            },
        }
    }

    /// Evaluates the conjunction of the conditions or of their negations. Stops at the first condition that decides.
    fn all(&self, list: &'r [Node], expected: bool) -> Result<Truth, Fault> {
        let mut all = Some(true);
        for node in list {
            match self.condition(node)? {
                Some(is_true) if is_true != expected => return Ok(Some(false)),
                Some(_) => (),
                None => all = None,
            }
        }
        Ok(all)
    }

    fn compare(
        &self,
        node: &Node,
        left: &'r Node,
        comparison: Comparison,
        right: &'r Node,
    ) -> Result<Truth, Fault> {
        let (left, right) = (self.value(left)?, self.value(right)?);
        if left.is_null() || right.is_null() {
            return Ok(None);
        }
        let relation = self.relate(node, &left, &right)?;
        let ordering = match (relation, comparison) {
            (_, Comparison::Equal) => return Ok(Some(relation.is_equal())),
            (_, Comparison::NotEqual) => return Ok(Some(!relation.is_equal())),
            (Relation::Ordered(ordering), _) => ordering,
            (Relation::Unordered, _) => return Ok(Some(false)),
            _ => return Err(format!("{}: {} has no order", self.quote(node), left.kind())),
        };
        Ok(Some(match comparison {
            Comparison::Less => ordering.is_lt(),
            Comparison::LessOrEqual => ordering.is_le(),
            Comparison::Greater => ordering.is_gt(),
            _ => ordering.is_ge(),
        }))
    }

    fn relate(&self, node: &Node, left: &ValueRef<'_>, right: &ValueRef<'_>) -> Result<Relation, Fault> {
        self.steps.take_bytes(size_bytes(left).min(size_bytes(right)))?;
        match relate(left, right) {
            Relation::Mismatch => Err(format!(
                "{} compares {} {left} with {} {right}",
                self.quote(node),
                left.kind(),
                right.kind()
            )),
            relation => Ok(relation),
        }
    }

    fn is_in(&self, node: &Node, value: &'r Node, list: &'r [Node]) -> Result<Truth, Fault> {
        let value = self.value(value)?;
        if value.is_null() {
            return Ok(None);
        }
        let mut is_in = Some(false);
        for element in list {
            let element = self.value(element)?;
            if element.is_null() {
                is_in = None;
            } else if self.relate(node, &value, &element)?.is_equal() {
                return Ok(Some(true));
            }
        }
        Ok(is_in)
    }

    fn is_like(&self, text: &'r Node, pattern: &'r PatternSource) -> Result<Truth, Fault> {
        let value = self.value(text)?;
        let PatternSource::Computed { pattern, escape } = pattern else {
            let PatternSource::Fixed(pattern) = pattern else { return Ok(None) };
            return match self.text_of(text, &value)? {
                Some(text) => Ok(Some(pattern.matches(text, self.steps)?)),
                None => Ok(None),
            };
        };
        let pattern_value = self.value(pattern)?;
        let escape_value = match escape {
            Some(escape) => Some((escape, self.value(escape)?)),
            None => None,
        };
        let (text, pattern) = (self.text_of(text, &value)?, self.text_of(pattern, &pattern_value)?);
        let escape = match &escape_value {
            Some((node, value)) => match self.text_of(node, value)? {
                Some(escape) => {
                    Some(escape_char(escape).map_err(|error| format!("{}: {error}", self.quote(node)))?)
                }
                None => return Ok(None),
            },
            None => None,
        };
        let (Some(text), Some(pattern)) = (text, pattern) else { return Ok(None) };
        self.steps.take(pattern.len())?;
        let compiled =
            Pattern::compile(pattern, escape).map_err(|error| format!("{pattern_value}: {error}"))?;
        Ok(Some(compiled.matches(text, self.steps)?))
    }

    /// Returns `None` for null.
    fn text_of<'t>(&self, node: &Node, value: &'t ValueRef<'_>) -> Result<Option<&'t str>, Fault> {
        match value {
            ValueRef::Null => Ok(None),
            ValueRef::Text(text) => Ok(Some(text)),
            other => Err(format!("{} is {} {other}, where text is needed", self.quote(node), other.kind())),
        }
    }

    fn exists(&self, property: &Property) -> bool {
        match property {
            Property::System(property) => !self.system(*property).is_null(),
            Property::User { name, slot } => self.user(name, *slot).is_some(),
        }
    }

    pub(crate) fn value(&self, node: &'r Node) -> Result<ValueRef<'r>, Fault> {
        self.steps.take(1)?;
        match &node.kind {
            Kind::Literal(value) => Ok(value.borrow()),
            Kind::Property(property) => Ok(self.property(property)),
            Kind::NewId => Ok(ValueRef::Text(Cow::Owned(self.ids.next()))),
            Kind::Lookup(name) => {
                let value = self.value(name)?;
                let Some(name) = self.text_of(name, &value)? else { return Ok(ValueRef::Null) };
                self.steps.take_bytes(self.message.view_size_bytes())?;
                Ok(self.search(name))
            }
            Kind::Sign { is_minus, value } => {
                let number = self.value(value)?;
                self.signed(value, *is_minus, number)
            }
            Kind::Arithmetic { first, rest } => {
                let mut result = self.value(first)?;
                for (operator, node_right) in rest {
                    let right = self.value(node_right)?;
                    result = self.calculate(node, *operator, result, right)?;
                }
                Ok(result)
            }
            _ => Ok(self.condition(node)?.map_or(ValueRef::Null, ValueRef::Bool)),
        }
    }

    fn signed(&self, node: &Node, is_minus: bool, number: ValueRef<'r>) -> Result<ValueRef<'r>, Fault> {
        match number {
            ValueRef::Null => Ok(ValueRef::Null),
            ValueRef::Long(_) | ValueRef::Double(_) if !is_minus => Ok(number),
            ValueRef::Long(number) => {
                number.checked_neg().map(ValueRef::Long).ok_or_else(|| self.overflow(node))
            }
            ValueRef::Double(number) => Ok(ValueRef::Double(-number)),
            other => {
                Err(format!("{} is {} {other}, where a number is needed", self.quote(node), other.kind()))
            }
        }
    }

    fn calculate(
        &self,
        node: &Node,
        operator: Operator,
        left: ValueRef<'r>,
        right: ValueRef<'r>,
    ) -> Result<ValueRef<'r>, Fault> {
        match (left, right) {
            (ValueRef::Null, _) | (_, ValueRef::Null) => Ok(ValueRef::Null),
            (ValueRef::Long(left), ValueRef::Long(right)) => {
                self.whole(node, operator, left, right).map(ValueRef::Long)
            }
            (ValueRef::Double(left), ValueRef::Double(right)) => self.double(node, operator, left, right),
            #[allow(clippy::cast_precision_loss, reason = "arithmetic with a double uses doubles")]
            (ValueRef::Long(left), ValueRef::Double(right)) => {
                self.double(node, operator, left as f64, right)
            }
            #[allow(clippy::cast_precision_loss, reason = "arithmetic with a double uses doubles")]
            (ValueRef::Double(left), ValueRef::Long(right)) => {
                self.double(node, operator, left, right as f64)
            }
            (ValueRef::Text(left), ValueRef::Text(right)) if operator == Operator::Add => {
                self.joined(node, left, &right)
            }
            (left, right) => Err(format!(
                "{} calculates with {} {left} and {} {right}",
                self.quote(node),
                left.kind(),
                right.kind()
            )),
        }
    }

    fn whole(&self, node: &Node, operator: Operator, left: i64, right: i64) -> Result<i64, Fault> {
        let result = match operator {
            Operator::Add => left.checked_add(right),
            Operator::Subtract => left.checked_sub(right),
            Operator::Multiply => left.checked_mul(right),
            Operator::Divide | Operator::Remainder if right == 0 => return Err(self.division_by_zero(node)),
            Operator::Divide => left.checked_div(right),
            Operator::Remainder => left.checked_rem(right),
        };
        result.ok_or_else(|| self.overflow(node))
    }

    /// Calculates with doubles. A result that is too large is infinite.
    fn double(&self, node: &Node, operator: Operator, left: f64, right: f64) -> Result<ValueRef<'r>, Fault> {
        let result = match operator {
            Operator::Add => left + right,
            Operator::Subtract => left - right,
            Operator::Multiply => left * right,
            Operator::Divide | Operator::Remainder if right == 0.0 => return Err(self.division_by_zero(node)),
            Operator::Divide => left / right,
            Operator::Remainder => left % right,
        };
        Ok(ValueRef::Double(result))
    }

    fn joined(&self, node: &Node, left: Cow<'r, str>, right: &str) -> Result<ValueRef<'r>, Fault> {
        let len = left.len().saturating_add(right.len());
        if len > limits::MADE_TEXT_SIZE_BYTES_MAX {
            let max = limits::MADE_TEXT_SIZE_BYTES_MAX;
            return Err(format!(
                "{} makes a text of {len} bytes; at most {max} are allowed",
                self.quote(node)
            ));
        }
        self.steps.take_bytes(len)?;
        Ok(ValueRef::Text(Cow::Owned(left.into_owned() + right)))
    }

    fn overflow(&self, node: &Node) -> Fault {
        format!("{} goes beyond the largest number", self.quote(node))
    }

    fn division_by_zero(&self, node: &Node) -> Fault {
        format!("{} divides by zero", self.quote(node))
    }

    pub(crate) fn property(&self, property: &Property) -> ValueRef<'r> {
        match property {
            Property::System(property) => self.system(*property),
            Property::User { name, slot } => self.user(name, *slot).unwrap_or(ValueRef::Null),
        }
    }

    fn system(&self, property: crate::SystemProperty) -> ValueRef<'r> {
        let changed = self.changes.iter().rev().find_map(|change| match change {
            Change::SetSystem { property: changed, value } if *changed == property => Some(value.borrow()),
            _ => None,
        });
        changed.unwrap_or_else(|| self.message.system(property).clone())
    }

    /// Returns `None` if the message does not have the property.
    pub(crate) fn user(&self, name: &str, slot: usize) -> Option<ValueRef<'r>> {
        self.changed(name).unwrap_or_else(|| self.message.user(slot).map(|(_, value)| value.clone()))
    }

    fn search(&self, name: &str) -> ValueRef<'r> {
        let found = self.changed(name).unwrap_or_else(|| self.message.search(name));
        found.unwrap_or(ValueRef::Null)
    }

    /// Returns the change of a user property by an earlier statement, if there is one.
    fn changed(&self, name: &str) -> Option<Option<ValueRef<'r>>> {
        self.changes.iter().rev().find_map(|change| match change {
            Change::SetUser { name: changed, value } if same_name(changed, name) => {
                Some(Some(value.borrow()))
            }
            Change::RemoveUser { name: changed } if same_name(changed, name) => Some(None),
            _ => None,
        })
    }

    /// Returns the text of the node in the rule.
    pub(crate) fn text(&self, node: &Node) -> &'r str {
        self.source.get(node.span.clone()).unwrap_or_default()
    }

    /// Returns the text of the node for an error. Long texts are cut, because each copy of the message contains the error.
    fn quote(&self, node: &Node) -> Cow<'r, str> {
        let text = self.text(node);
        match text.char_indices().nth(QUOTED_CHARS_MAX) {
            Some((end, _)) => Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default())),
            None => Cow::Borrowed(text),
        }
    }
}

fn size_bytes(value: &ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(text) => text.len(),
        ValueRef::Binary(bytes) => bytes.len(),
        _ => 0,
    }
}
