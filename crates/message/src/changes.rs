//! The changes of a message by settlements and rule actions since it was stored.

use bytes::Bytes;
use peeklock_amqp::{DecodeError, Encode, MessageId, RawMap, Symbol, Text, Value};
use peeklock_engine::{Patch, PatchPart};
use peeklock_filter::{Change, Changes, SystemProperty, same_name};

use crate::delivery::Rewritten;
use crate::error::PatchError;
use crate::stored::StoredMessage;
use crate::values::{from_filter, in_type_of};

/// The application property with the reason of a dead-lettered message.
pub const DEAD_LETTER_REASON: &str = "DeadLetterReason";
/// The application property with the description of a dead-lettered message.
pub const DEAD_LETTER_DESCRIPTION: &str = "DeadLetterErrorDescription";

/// The maximum number of properties that one settlement sets.
pub const PATCH_PROPERTIES_MAX: usize = 256;

/// Returns whether the patch contains changes of a rule action, which can affect more than the application properties.
pub(crate) fn has_actions(patch: &Patch) -> bool {
    patch.parts.iter().any(|part| matches!(part, PatchPart::Changes(_)))
}

/// Returns the properties and application properties with all changes applied.
pub(crate) fn rewrite(stored: &StoredMessage<'_>, patch: &Patch) -> Result<Rewritten, DecodeError> {
    let mut front = Rewritten::of(&stored.front_sections()?)?;
    apply(patch, &mut front);
    Ok(front)
}

/// Applies the parts of a patch in their order. A later part wins.
pub(crate) fn apply(patch: &Patch, front: &mut Rewritten) {
    for part in &patch.parts {
        for (key, value) in entries(part) {
            set(&mut front.application_properties, key, value);
        }
        if let PatchPart::Changes(encoded) = part {
            // The filter crate encoded the changes, so decoding succeeds.
            for change in Changes::decode(encoded).unwrap_or_default() {
                apply_change(change, front);
            }
        }
    }
}

/// Sets a property and moves it to the end of the list. The key is a string or a symbol.
fn set(properties: &mut Vec<(Value, Value)>, key: Value, value: Value) {
    properties.retain(|(old, _)| old.as_str() != key.as_str());
    properties.push((key, value));
}

/// Returns the properties that a settlement has set.
fn entries(part: &PatchPart) -> Vec<(Value, Value)> {
    match part {
        // The broker encoded the properties when it received the settlement, so decoding succeeds.
        PatchPart::Properties(encoded) => {
            RawMap::parse(encoded).and_then(|map| map.decode()).unwrap_or_default()
        }
        PatchPart::DeadLetter { reason, description } => {
            let entry = |key: &'static str, text: &Option<String>| {
                text.as_ref().map(|text| (Value::from(key), Value::from(text.clone())))
            };
            [entry(DEAD_LETTER_REASON, reason), entry(DEAD_LETTER_DESCRIPTION, description)]
                .into_iter()
                .flatten()
                .collect()
        }
        PatchPart::Changes(_) => Vec::new(),
    }
}

fn apply_change(change: Change, front: &mut Rewritten) {
    let is = |name: &str, key: &Value| key.as_str().is_some_and(|key| same_name(key, name));
    match change {
        Change::SetUser { name, value } => {
            let value = from_filter(&value);
            match front.application_properties.iter_mut().find(|(key, _)| is(&name, key)) {
                Some((_, old)) => *old = in_type_of(old, value),
                None => front.application_properties.push((Value::from(name), value)),
            }
        }
        Change::RemoveUser { name } => front.application_properties.retain(|(key, _)| !is(&name, key)),
        Change::SetSystem { property, value } => set_system(property, &from_filter(&value), front),
    }
}

/// Sets a system property in the properties section. Times are ignored: the engine holds them, and the delivery is
/// stamped with them.
fn set_system(property: SystemProperty, value: &Value, front: &mut Rewritten) {
    let properties = &mut front.properties;
    let text = value.as_str().map(|text| Text::from(text.to_owned()));
    match property {
        // SDK quirk: JavaScript cannot settle a message without an id, so an action can change the id but not remove
        // it.
        SystemProperty::MessageId => {
            properties.message_id = text.map(MessageId::String).or_else(|| properties.message_id.take());
        }
        SystemProperty::CorrelationId => properties.correlation_id = text.map(MessageId::String),
        SystemProperty::SessionId => properties.group_id = text,
        SystemProperty::ReplyToSessionId => properties.reply_to_group_id = text,
        SystemProperty::To => properties.to = text,
        SystemProperty::ReplyTo => properties.reply_to = text,
        SystemProperty::Label => properties.subject = text,
        // A symbol is ASCII; other text removes the content type.
        SystemProperty::ContentType => {
            properties.content_type = text.and_then(|text| Symbol::parse(text.as_str()).ok());
        }
        _ => {}
    }
}

/// Encodes all changes to the properties as one map, for a patch without rule actions. A later part wins.
pub(crate) fn merge(patch: &Patch) -> Option<Bytes> {
    if patch.parts.is_empty() {
        return None;
    }
    let mut merged: Vec<(Value, Value)> = Vec::new();
    for part in &patch.parts {
        for (key, value) in entries(part) {
            set(&mut merged, key, value);
        }
    }
    Some(encode_properties(merged))
}

/// Encodes the properties that a settlement sets, as they are stored beside the message. Returns `None` for no
/// properties.
pub fn encode_patch(properties: Vec<(Value, Value)>) -> Result<Option<Bytes>, PatchError> {
    if properties.len() > PATCH_PROPERTIES_MAX {
        return Err(PatchError::TooManyProperties { count: properties.len() });
    }
    Ok((!properties.is_empty()).then(|| encode_properties(properties)))
}

fn encode_properties(properties: Vec<(Value, Value)>) -> Bytes {
    Value::Map(properties).to_bytes()
}
