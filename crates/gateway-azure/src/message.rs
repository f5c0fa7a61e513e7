//! Messages on their way out: what a delivery adds to the stored form. Requests and responses, too.

use std::ops::Range;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use peeklock_amqp::{
    Body, Encode, Lifetime, Message, MessageId, Sections, Stamp, StoredMessage, Text, Value,
};
use peeklock_broker::WHOLE_BODY_BYTES_MAX;
use peeklock_broker::engine::{self, MessageState, Patch};
use peeklock_types::{ClassName, EntityName, LockToken, SequenceNumber, Timestamp};

use crate::changes;
use crate::error::Refusal;

pub(crate) fn timestamp(at: Timestamp) -> i64 {
    // SDK quirk: Python and .NET fail on a time beyond the year 9999.
    const TIME_MS_MAX: i64 = 253_402_300_799_999;
    i64::try_from(at.as_millis()).unwrap_or(i64::MAX).min(TIME_MS_MAX)
}

fn number(number: SequenceNumber) -> i64 {
    i64::try_from(number.0).unwrap_or(i64::MAX)
}

/// Writes the front of a message as a receiver gets it, and returns the stored bytes that follow it.
pub(crate) fn write_front<'b>(
    message: &engine::Message,
    token: Option<LockToken>,
    body: &'b [u8],
    out: &mut BytesMut,
) -> Result<&'b [u8], peeklock_amqp::DecodeError> {
    write_front_of(message, token, StoredMessage::parse(body)?, out)
}

fn write_front_of<'b>(
    message: &engine::Message,
    token: Option<LockToken>,
    stored: StoredMessage<'b>,
    out: &mut BytesMut,
) -> Result<&'b [u8], peeklock_amqp::DecodeError> {
    let rewritten = match changes::has_actions(&message.patch) {
        true => Some(changes::rewrite(&stored, &message.patch)?),
        false => None,
    };
    let patch = if rewritten.is_some() { None } else { merge(&message.patch) };
    let details = message.details.as_deref();
    let origin = details.and_then(|details| details.origin.as_ref());
    let time_to_live = details.and_then(|details| details.time_to_live);
    // The service shows whoever peeks the end of the lock under which a message was deferred.
    let is_peeked_deferred = token.is_none() && message.state == MessageState::Deferred;
    let was_locked_until =
        details.filter(|_| is_peeked_deferred).and_then(|details| details.was_locked_until);
    let stamp = Stamp {
        delivery_count: message.delivery_count,
        sequence_number: number(message.sequence_number),
        enqueued_at_ms: timestamp(message.enqueued_at),
        locked_until_ms: message.locked_until.or(was_locked_until).map(timestamp),
        message_state: match message.state {
            // The service goes on to show a message that was scheduled as scheduled.
            MessageState::Active | MessageState::Delayed if message.is_activated => 2,
            // A delayed message is an active one that nobody gets yet; the SDKs have no word for it.
            MessageState::Active | MessageState::Delayed => 0,
            MessageState::Deferred => 1,
            MessageState::Scheduled => 2,
        },
        enqueue_sequence_number: origin.map_or(0, |origin| number(origin.sequence_number)),
        // SDK quirk: azservicebus for Rust reads the token from here; the tag's byte order confuses it.
        lock_token: token.map(LockToken::to_bytes),
        dead_letter_source: origin
            .and_then(|origin| origin.dead_letter_source.as_ref())
            .map(EntityName::as_str),
        class: message.class.as_ref().map(ClassName::as_str),
        tenant: message.tenant.as_deref(),
        lifetime: time_to_live.map(|span| lifetime(lives_from(message), span)),
        patch: patch.as_deref(),
        rewritten: rewritten.as_ref(),
    };
    stored.write_front(out, &stamp)
}

fn lifetime(from: Timestamp, time_to_live: Duration) -> Lifetime {
    Lifetime {
        time_to_live_ms: u64::try_from(time_to_live.as_millis()).unwrap_or(u64::MAX),
        from_ms: timestamp(from),
        until_ms: timestamp(from + time_to_live),
    }
}

/// When a message's time to live begins: for a scheduled one when it is due.
fn lives_from(message: &engine::Message) -> Timestamp {
    let due = message.details.as_ref().and_then(|details| details.due);
    due.filter(|_| message.state == MessageState::Scheduled).unwrap_or(message.enqueued_at)
}

/// The front of a large message inside a management response, and where in its stored form the rest lies.
pub(crate) fn encode_front_of_large(
    found: &peeklock_broker::Message,
) -> Result<(Bytes, Range<u32>), peeklock_amqp::DecodeError> {
    let mut out = BytesMut::new();
    let rest = write_front(&found.message, found.token, &found.body, &mut out)?;
    let start = u32::try_from(found.body.len() - rest.len()).unwrap_or(u32::MAX);
    Ok((out.freeze(), start..found.message.size_bytes))
}

/// A whole message, for those that travel inside a management response. A large one is shown without its body, which was not loaded.
pub(crate) fn encode_whole(
    found: &peeklock_broker::Message,
    omit_body: bool,
) -> Result<Bytes, peeklock_amqp::DecodeError> {
    let mut out = BytesMut::new();
    if found.message.size_bytes > WHOLE_BODY_BYTES_MAX {
        let front = StoredMessage::parse(&found.body)?.without_body()?;
        let rest = write_front_of(&found.message, found.token, front, &mut out)?;
        out.extend_from_slice(rest);
        return Ok(out.freeze());
    }
    let rest = write_front(&found.message, found.token, &found.body, &mut out)?;
    out.extend_from_slice(rest);
    if omit_body {
        let sections = Sections::scan(&out)?;
        let body = sections.body_range();
        let footer = out.split_off(body.end);
        out.truncate(body.start);
        out.extend_from_slice(&footer);
    }
    Ok(out.freeze())
}

/// All changes to a message's properties as one encoded map; later ones win.
fn merge(patch: &Patch) -> Option<Bytes> {
    if patch.parts.is_empty() {
        return None;
    }
    let mut merged: Vec<(Value, Value)> = Vec::new();
    for part in &patch.parts {
        for (key, value) in changes::entries(part) {
            merged.retain(|(old, _)| *old != key);
            merged.push((key, value));
        }
    }
    Some(encode_properties(merged))
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
    Message { body: Body::Value(body), ..response_head(correlation, properties) }.to_bytes()
}

/// The same without a body.
pub(crate) fn response_head(
    correlation: Option<MessageId>,
    properties: Vec<(&'static str, Value)>,
) -> Message {
    let mut message = Message::default();
    message.properties.correlation_id = correlation;
    message.application_properties =
        properties.into_iter().map(|(key, value)| (Text::from_static(key), value)).collect();
    message
}
