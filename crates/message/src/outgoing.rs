//! Deliveries: the front that precedes the stored bytes of a message.

use std::ops::Range;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use peeklock_amqp::{DecodeError, Sections};
use peeklock_engine::{self as engine, MessageState};
use peeklock_types::{ClassName, EntityName, LockToken, SequenceNumber, Timestamp, limits};

use crate::changes;
use crate::delivery::Stamp;
use crate::lifetime::Lifetime;
use crate::stored::StoredMessage;

/// Converts a time to milliseconds for AMQP.
pub fn timestamp(at: Timestamp) -> i64 {
    // SDK quirk: Python and .NET fail on a time beyond the year 9999.
    const TIME_MS_MAX: i64 = 253_402_300_799_999;
    i64::try_from(at.as_millis()).unwrap_or(i64::MAX).min(TIME_MS_MAX)
}

fn number(number: SequenceNumber) -> i64 {
    i64::try_from(number.0).unwrap_or(i64::MAX)
}

/// Appends the front of a message for a receiver and returns the stored bytes that follow it.
pub fn write_front<'b>(
    message: &engine::Message,
    token: Option<LockToken>,
    stored: &'b [u8],
    out: &mut BytesMut,
) -> Result<&'b [u8], DecodeError> {
    write_front_of(message, token, StoredMessage::parse(stored)?, out)
}

fn write_front_of<'b>(
    message: &engine::Message,
    token: Option<LockToken>,
    stored: StoredMessage<'b>,
    out: &mut BytesMut,
) -> Result<&'b [u8], DecodeError> {
    let rewritten = match changes::has_actions(&message.patch) {
        true => Some(changes::rewrite(&stored, &message.patch)?),
        false => None,
    };
    let patch = if rewritten.is_some() { None } else { changes::merge(&message.patch) };
    let details = message.details.as_deref();
    let origin = details.and_then(|details| details.origin.as_ref());
    let time_to_live = details.and_then(|details| details.time_to_live);
    // As in the service, a peek of a deferred message returns the end of the lock under which it was deferred.
    let is_peeked_deferred = token.is_none() && message.state == MessageState::Deferred;
    let was_locked_until =
        details.filter(|_| is_peeked_deferred).and_then(|details| details.was_locked_until);
    let stamp = Stamp {
        delivery_count: message.delivery_count,
        sequence_number: number(message.sequence_number),
        enqueued_at_ms: timestamp(message.enqueued_at),
        locked_until_ms: message.locked_until.or(was_locked_until).map(timestamp),
        message_state: match message.state {
            // As in the service, a message that was scheduled keeps the state scheduled.
            MessageState::Active | MessageState::Delayed if message.is_activated => 2,
            // A delayed message is active but not yet available; the SDKs have no state for it.
            MessageState::Active | MessageState::Delayed => 0,
            MessageState::Deferred => 1,
            MessageState::Scheduled => 2,
        },
        enqueue_sequence_number: origin.map_or(0, |origin| number(origin.sequence_number)),
        // SDK quirk: azservicebus for Rust reads the token from this annotation, because it misinterprets the byte
        // order of the delivery tag.
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

/// Returns the start of a message's time to live: for a scheduled message, the time at which it is due.
fn lives_from(message: &engine::Message) -> Timestamp {
    let due = message.details.as_ref().and_then(|details| details.due);
    due.filter(|_| message.state == MessageState::Scheduled).unwrap_or(message.enqueued_at)
}

/// Encodes the front of a large message for a management response and returns the range of the stored form that follows
/// it.
pub fn encode_front_of_large(
    message: &engine::Message,
    token: Option<LockToken>,
    stored: &[u8],
) -> Result<(Bytes, Range<u32>), DecodeError> {
    let mut out = BytesMut::new();
    let rest = write_front(message, token, stored, &mut out)?;
    let start = u32::try_from(stored.len() - rest.len()).unwrap_or(u32::MAX);
    Ok((out.freeze(), start..message.size_bytes))
}

/// Encodes a whole message for a management response. A large message is encoded without its body, because only its
/// front is loaded.
pub fn encode_whole(
    message: &engine::Message,
    token: Option<LockToken>,
    stored: &[u8],
    omit_body: bool,
) -> Result<Bytes, DecodeError> {
    let mut out = BytesMut::new();
    if message.size_bytes > limits::WHOLE_BODY_BYTES_MAX {
        let front = StoredMessage::parse(stored)?.without_body()?;
        let rest = write_front_of(message, token, front, &mut out)?;
        out.extend_from_slice(rest);
        return Ok(out.freeze());
    }
    let rest = write_front(message, token, stored, &mut out)?;
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
