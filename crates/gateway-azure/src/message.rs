//! Messages on their way in and out: what is stored of them, and what a delivery adds.

use bytes::{Bytes, BytesMut};
use peeklock_amqp::{
    Body, Encode, Message, MessageId, MessageIdRef, RawMap, Sections, Stamp, StoredMessage, Text, Value,
};
use peeklock_broker::engine::{self, MessageState, Patch, PatchPart};
use peeklock_types::{LockToken, Timestamp, limits};

use crate::error::Refusal;
use crate::outcome::{DESCRIPTION, REASON};

const SCHEDULED_TIME: &str = "x-opt-scheduled-enqueue-time";

/// Writes the stored form of a message that a peer has sent.
pub(crate) fn store(payload: &[u8], now: Timestamp, out: &mut BytesMut) -> Result<(), Refusal> {
    let unreadable = |error: peeklock_amqp::DecodeError| {
        let text = format!("the message is not valid AMQP: {error}");
        Refusal::new(400, peeklock_amqp::condition::DECODE_ERROR, text)
    };
    let sections = Sections::scan(payload).map_err(unreadable)?;
    let properties = sections.properties().map_err(unreadable)?;
    check_message_id(properties.message_id)?;
    let annotations = sections.message_annotations().map_err(unreadable)?;
    check_schedule(&annotations, now).map_err(unreadable)??;
    if properties.message_id.is_some() {
        return StoredMessage::encode(out, &sections, None).map_err(unreadable);
    }
    let mut id = [0; 32];
    let id = write_hex(fastrand::u128(..), &mut id);
    StoredMessage::encode(out, &sections, Some(id)).map_err(unreadable)
}

/// By hand, because the formatter costs as much as storing a small message.
fn write_hex(number: u128, digits: &mut [u8; 32]) -> &str {
    for (pair, byte) in digits.chunks_exact_mut(2).zip(number.to_be_bytes()) {
        let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    std::str::from_utf8(digits).unwrap_or_default()
}

fn check_message_id(id: Option<MessageIdRef<'_>>) -> Result<(), Refusal> {
    let count = match id {
        Some(MessageIdRef::String(text)) => text.chars().count(),
        Some(MessageIdRef::Binary(bytes)) => bytes.len(),
        _ => 0,
    };
    if count > limits::MESSAGE_ID_CHARS_MAX {
        let text = format!(
            "the message id has {count} characters; at most {} are allowed",
            limits::MESSAGE_ID_CHARS_MAX
        );
        return Err(Refusal::new(400, peeklock_amqp::condition::ARGUMENT_OUT_OF_RANGE, text));
    }
    Ok(())
}

type Checked = Result<Result<(), Refusal>, peeklock_amqp::DecodeError>;

/// Delivering a scheduled message at once would be a lie; say so instead.
fn check_schedule(annotations: &RawMap<'_>, now: Timestamp) -> Checked {
    let due = annotations.get(SCHEDULED_TIME)?.and_then(|value| value.as_timestamp());
    let is_later = due.is_some_and(|due| due > timestamp(now));
    Ok(if is_later {
        Err(Refusal::not_implemented("scheduled messages are not supported yet"))
    } else {
        Ok(())
    })
}

pub(crate) fn timestamp(at: Timestamp) -> i64 {
    i64::try_from(at.as_millis()).unwrap_or(i64::MAX)
}

/// Writes the front of a message as a receiver gets it, and returns the stored bytes that follow it.
pub(crate) fn write_front<'b>(
    message: &engine::Message,
    token: Option<LockToken>,
    body: &'b [u8],
    out: &mut BytesMut,
) -> Result<&'b [u8], peeklock_amqp::DecodeError> {
    let patch = merge(&message.patch);
    let stamp = Stamp {
        delivery_count: message.delivery_count,
        sequence_number: i64::try_from(message.sequence_number.0).unwrap_or(i64::MAX),
        enqueued_at_ms: timestamp(message.enqueued_at),
        locked_until_ms: message.locked_until.map(timestamp),
        message_state: match message.state {
            MessageState::Active => 0,
            MessageState::Deferred => 1,
        },
        // SDK quirk: azservicebus for Rust reads the token from here; the tag's byte order confuses it.
        lock_token: token.map(LockToken::to_bytes),
        patch: patch.as_deref(),
        ..Stamp::default()
    };
    StoredMessage::parse(body)?.write_front(out, &stamp)
}

/// A whole message, for those that travel inside a management response.
pub(crate) fn encode_whole(found: &peeklock_broker::Message) -> Result<Bytes, peeklock_amqp::DecodeError> {
    let mut out = BytesMut::new();
    let rest = write_front(&found.message, found.token, &found.body, &mut out)?;
    out.extend_from_slice(rest);
    Ok(out.freeze())
}

/// All changes to a message's properties as one encoded map; later ones win.
fn merge(patch: &Patch) -> Option<Bytes> {
    if patch.parts.is_empty() {
        return None;
    }
    let mut merged: Vec<(Value, Value)> = Vec::new();
    for part in &patch.parts {
        for (key, value) in entries(part) {
            merged.retain(|(old, _)| *old != key);
            merged.push((key, value));
        }
    }
    Some(encode_properties(merged))
}

fn entries(part: &PatchPart) -> Vec<(Value, Value)> {
    match part {
        // Encoded by us when the settlement came in.
        PatchPart::Properties(encoded) => {
            RawMap::parse(encoded).and_then(|map| map.decode()).unwrap_or_default()
        }
        PatchPart::DeadLetter { reason, description } => {
            let entry = |key: &'static str, text: &Option<String>| {
                text.as_ref().map(|text| (Value::from(key), Value::from(text.clone())))
            };
            [entry(REASON, reason), entry(DESCRIPTION, description)].into_iter().flatten().collect()
        }
    }
}

/// Properties that one settlement may set.
const PATCH_PROPERTIES_MAX: usize = 256;

/// Properties that a settlement sets, as they are stored beside the message.
pub(crate) fn encode_patch(properties: Vec<(Value, Value)>) -> Result<Option<Bytes>, Refusal> {
    if properties.len() > PATCH_PROPERTIES_MAX {
        let text =
            format!("{} properties to modify; at most {PATCH_PROPERTIES_MAX} are allowed", properties.len());
        return Err(Refusal::bad_request(text));
    }
    Ok((!properties.is_empty()).then(|| encode_properties(properties)))
}

fn encode_properties(properties: Vec<(Value, Value)>) -> Bytes {
    Value::Map(properties).to_bytes()
}

/// A request to `$cbs` or `$management`, as far as it matters.
pub(crate) struct RequestMessage {
    pub(crate) message_id: Option<MessageId>,
    pub(crate) reply_to: Option<String>,
    pub(crate) body: Value,
    properties: Vec<(Text, Value)>,
}

impl RequestMessage {
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, peeklock_amqp::DecodeError> {
        let message = Message::decode(payload)?;
        Ok(RequestMessage {
            message_id: message.properties.message_id,
            reply_to: message.properties.reply_to.map(|to| to.to_string()),
            body: match message.body {
                Body::Value(value) => value,
                _ => Value::Null,
            },
            properties: message.application_properties,
        })
    }

    /// An application property.
    pub(crate) fn property(&self, key: &str) -> Option<&Value> {
        self.properties.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }
}

/// A response: SDKs find their request by the correlation id, which must have the very type of the request's message id.
pub(crate) fn encode_response(
    correlation: Option<MessageId>,
    properties: Vec<(&'static str, Value)>,
    body: Value,
) -> Bytes {
    let mut message = Message::value(body);
    message.properties.correlation_id = correlation;
    message.application_properties =
        properties.into_iter().map(|(key, value)| (Text::from_static(key), value)).collect();
    message.to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_are_plain_hex() {
        for number in [0, u128::MAX, 0x0123_4567_89ab_cdef_0f1e_2d3c_4b5a_6978] {
            assert_eq!(write_hex(number, &mut [0; 32]), format!("{number:032x}"));
        }
    }
}
