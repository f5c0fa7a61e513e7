//! Runs the statements of an action on a subscription's copy of a message.

use bytes::Bytes;

use crate::changes::{Change, Changes};
use crate::compare::as_whole;
use crate::fold::same_name;
use crate::limits;
use crate::rule::RuleName;
use crate::run::{Fault, Ids, Run, Steps};
use crate::slots::Message;
use crate::sql::{Property, Statement};
use crate::system::{Settable, SystemProperty};
use crate::value::{Value, ValueRef};
use crate::{guid, time};

/// The property with the name of the rule that made the copy.
const RULE_NAME_PROPERTY: &str = "RuleName";

/// A compiled action.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) source: String,
    pub(crate) statements: Vec<Statement>,
}

impl Script {
    pub(crate) fn run(
        &self,
        rule: &RuleName,
        message: &Message<'_>,
        ids: &Ids,
        steps: &Steps<'_>,
    ) -> Result<Bytes, Fault> {
        let mut changes = Vec::new();
        for statement in &self.statements {
            let run = Run { source: &self.source, message, changes: &changes, ids, steps };
            let change = match statement {
                Statement::Set { target, value } => set(&run, target, run.value(value)?)?,
                Statement::Remove { target: Property::User { name, slot } } => {
                    Change::RemoveUser { name: name_in_message(&run, name, *slot) }
                }
                Statement::Remove { target: Property::System(property) } => {
                    return Err(format!("{property} cannot be removed"));
                }
            };
            put(&mut changes, change)?;
        }
        let name = RULE_NAME_PROPERTY.to_owned();
        put(&mut changes, Change::SetUser { name, value: Value::text(rule.as_str()) })?;
        Ok(Changes::encode(&changes))
    }
}

/// Adds a change. Each property is in the list once, with its final change.
fn put(changes: &mut Vec<Change>, change: Change) -> Result<(), Fault> {
    match changes.iter_mut().find(|earlier| is_same_property(earlier, &change)) {
        Some(earlier) => *earlier = change,
        None => changes.push(change),
    }
    let size: usize = changes.iter().map(Change::size_bytes).sum();
    if size > limits::CHANGES_SIZE_BYTES_MAX {
        let max = limits::CHANGES_SIZE_BYTES_MAX;
        return Err(format!("the action makes changes of {size} bytes; at most {max} are allowed"));
    }
    Ok(())
}

fn is_same_property(left: &Change, right: &Change) -> bool {
    match (left, right) {
        (Change::SetSystem { property: left, .. }, Change::SetSystem { property: right, .. }) => {
            left == right
        }
        (
            Change::SetUser { name: left, .. } | Change::RemoveUser { name: left },
            Change::SetUser { name: right, .. } | Change::RemoveUser { name: right },
        ) => same_name(left, right),
        _ => false,
    }
}

fn set(run: &Run<'_>, target: &Property, value: ValueRef<'_>) -> Result<Change, Fault> {
    match target {
        Property::System(property) => {
            Ok(Change::SetSystem { property: *property, value: system_value(*property, &value)? })
        }
        Property::User { name, slot } => {
            let existing = run.user(name, *slot).unwrap_or(ValueRef::Null);
            let value = converted(&existing, &value).unwrap_or_else(|| value.to_value());
            Ok(Change::SetUser { name: name_in_message(run, name, *slot), value })
        }
    }
}

/// Returns the name of a property as the sender wrote it.
fn name_in_message(run: &Run<'_>, name: &str, slot: usize) -> String {
    run.message.user(slot).map_or(name, |(written, _)| written).to_owned()
}

/// Converts a value to the kind of the existing property, where that is possible.
fn converted(existing: &ValueRef<'_>, value: &ValueRef<'_>) -> Option<Value> {
    match (existing, value) {
        (ValueRef::Long(_), ValueRef::Double(number)) => as_whole(*number).map(Value::Long),
        (ValueRef::Long(_), ValueRef::Text(text)) => text.trim().parse().ok().map(Value::Long),
        #[allow(clippy::cast_precision_loss, reason = "the property is a double")]
        (ValueRef::Double(_), ValueRef::Long(number)) => Some(Value::Double(*number as f64)),
        (ValueRef::Double(_), ValueRef::Text(text)) => text.trim().parse().ok().map(Value::Double),
        (ValueRef::Bool(_), ValueRef::Text(text)) => text.to_lowercase().parse().ok().map(Value::Bool),
        (ValueRef::Uuid(_), ValueRef::Text(text)) => guid::parse(text).map(Value::Uuid),
        (ValueRef::Time(_), ValueRef::Text(text)) => time::parse_time(text).map(Value::Time),
        (ValueRef::Span(_), ValueRef::Text(text)) => time::parse_span(text).map(Value::Span),
        (ValueRef::Text(_), value) => as_text(value).map(Value::text),
        _ => None,
    }
}

fn as_text(value: &ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Text(text) => Some(text.to_string()),
        ValueRef::Long(number) => Some(number.to_string()),
        ValueRef::Double(number) => Some(number.to_string()),
        ValueRef::Uuid(bytes) => Some(guid::print(bytes)),
        _ => None,
    }
}

fn system_value(property: SystemProperty, value: &ValueRef<'_>) -> Result<Value, Fault> {
    if value.is_null() {
        return Ok(Value::Null);
    }
    let converted = match (property.settable(), value) {
        (Settable::Text { chars_max }, value) => {
            let text = as_text(value);
            let count = text.as_deref().map_or(0, |text| text.chars().count());
            if let Some(max) = chars_max.filter(|max| count > *max) {
                return Err(format!("{property} would have {count} characters; at most {max} are allowed"));
            }
            if property == SystemProperty::ContentType && !text.as_deref().is_none_or(str::is_ascii) {
                return Err(format!("{property} cannot be set to {value}, as it is not ASCII"));
            }
            text.map(Value::text)
        }
        (Settable::Span, ValueRef::Span(ticks)) => Some(Value::Span(*ticks)),
        (Settable::Span, ValueRef::Text(text)) => time::parse_span(text).map(Value::Span),
        (Settable::Time, ValueRef::Time(ms)) => Some(Value::Time(*ms)),
        (Settable::Time, ValueRef::Text(text)) => time::parse_time(text).map(Value::Time),
        _ => None,
    };
    converted.ok_or_else(|| format!("{property} cannot be set to {} {value}", value.kind()))
}
