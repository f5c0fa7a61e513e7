//! Facts as bytes: self-delimiting, so that a group holds one after the other.
//!
//! ```text
//! kind (1 byte; top two bits: the sub-queue), entity, then the fields in the order of the enum
//! ```
//! Numbers take seven bits per byte. A body that lies in the group of its own record is told by its offset alone; the group's number is
//! known to whoever reads the group.

use peeklock_types::{BodyPlace, BodyRef, CommitGroupNumber, SequenceNumber, ShardId, SubQueue, Timestamp};

use crate::fact::Fact;
use crate::message::{Attributes, EntityId};
use crate::wire::{
    DecodeError, Decoder, put_attributes, put_bytes, put_fixed, put_kind, put_metadata, put_number,
    put_optional, put_optional_number, put_patch, put_settings, put_step,
};

// Kinds are on disk: a number is never given to another kind. 1, 8 and 9 were earlier forms.
const QUEUE_DELETED: u8 = 2;
const ENQUEUED_HERE: u8 = 3;
const ENQUEUED_ELSEWHERE: u8 = 4;
const LOCKED: u8 = 5;
const RENEWED: u8 = 6;
const COMPLETED: u8 = 7;
const RELEASED: u8 = 10;
const DEFERRED: u8 = 11;
const DEAD_LETTERED: u8 = 12;
const MOVED: u8 = 13;
const QUEUE_CREATED: u8 = 14;
const QUEUE_UPDATED: u8 = 15;
const ENQUEUED_HERE_WITH: u8 = 16;
const ENQUEUED_ELSEWHERE_WITH: u8 = 17;
const ACTIVATED: u8 = 18;
const ABANDONED: u8 = 19;
const LOCK_EXPIRED: u8 = 20;
const DELAY_ENDED: u8 = 21;
const PURGED: u8 = 22;
const SESSION_STATE_SET: u8 = 23;
const TRANSFER_STARTED: u8 = 24;
const TRANSFER_FAILED: u8 = 25;
const ARRIVED: u8 = 26;
const SENT_ON: u8 = 27;
const FANNED_OUT: u8 = 28;
const SEEN: u8 = 29;
const RULE_SET: u8 = 30;
const RULE_REMOVED: u8 = 31;
const MOVED_AGAIN: u8 = 32;
const CHARGED: u8 = 33;
const RECEIPTED: u8 = 34;
const REPLACED: u8 = 35;
const CLEARED: u8 = 36;
const METADATA_SET: u8 = 37;
const BODY_LOST: u8 = 38;
const NUMBERS_RESERVED: u8 = 39;

/// No topic has as many subscriptions; only damage says so.
const COPY_COUNT_MAX: u64 = 1 << 24;

const SUB_QUEUE_SHIFT: u32 = 6;

/// Appends `fact` to `out`, as part of group `group`.
pub fn encode(fact: &Fact, group: CommitGroupNumber, out: &mut Vec<u8>) {
    match fact {
        // The life of most messages.
        Fact::Enqueued { entity, sequence_number, enqueued_at, body, size_bytes, attributes } => {
            let here = offset_in(group, *body);
            let kind = match (here, attributes) {
                (Some(_), None) => ENQUEUED_HERE,
                (None, None) => ENQUEUED_ELSEWHERE,
                (Some(_), Some(_)) => ENQUEUED_HERE_WITH,
                (None, Some(_)) => ENQUEUED_ELSEWHERE_WITH,
            };
            put_message(kind, SubQueue::Main, *entity, *sequence_number, out);
            put_new(*enqueued_at, here, *body, *size_bytes, out);
            if let Some(attributes) = attributes {
                put_attributes(attributes, out);
            }
        }
        &Fact::Locked { entity, sub_queue, sequence_number, nonce, until } => {
            put_message(LOCKED, sub_queue, entity, sequence_number, out);
            put_fixed(nonce, out);
            put_number(until.as_millis(), out);
        }
        &Fact::Completed { entity, sub_queue, sequence_number } => {
            put_message(COMPLETED, sub_queue, entity, sequence_number, out);
        }
        &Fact::Charged { entity, sequence_number, cost_ms } => {
            put_message(CHARGED, SubQueue::Main, entity, sequence_number, out);
            put_number(cost_ms.into(), out);
        }
        Fact::FannedOut { copies, enqueued_at, body, size_bytes, attributes, again } => {
            put_entity(FANNED_OUT, EntityId(0), out);
            put_copies(copies, out);
            let here = offset_in(group, *body);
            let flag = |set: bool, flag: u8| if set { flag } else { 0 };
            out.push(flag(here.is_some(), HERE) | flag(attributes.is_some(), WITH) | flag(*again, AGAIN));
            put_new(*enqueued_at, here, *body, *size_bytes, out);
            if let Some(attributes) = attributes {
                put_attributes(attributes, out);
            }
        }
        Fact::Seen { entity, message_id, at } => {
            put_entity(SEEN, *entity, out);
            put_bytes(message_id, out);
            put_number(at.as_millis(), out);
        }
        Fact::RuleSet { entity, rule, at } => {
            put_entity(RULE_SET, *entity, out);
            rule.encode(out);
            put_number(at.as_millis(), out);
        }
        Fact::RuleRemoved { entity, name } => {
            put_entity(RULE_REMOVED, *entity, out);
            put_bytes(name.as_str().as_bytes(), out);
        }
        Fact::QueueCreated { entity, name, kind, settings, created_at } => {
            put_entity(QUEUE_CREATED, *entity, out);
            put_bytes(name.as_str().as_bytes(), out);
            put_kind(*kind, out);
            put_settings(settings, out);
            put_number(created_at.as_millis(), out);
        }
        Fact::QueueUpdated { entity, settings, at } => {
            put_entity(QUEUE_UPDATED, *entity, out);
            put_settings(settings, out);
            put_number(at.as_millis(), out);
        }
        Fact::QueueDeleted { entity } => put_entity(QUEUE_DELETED, *entity, out),
        Fact::SentOn {
            entity,
            sequence_number,
            enqueued_at,
            body,
            size_bytes,
            attributes,
            target,
            number,
        } => {
            put_message(SENT_ON, SubQueue::Main, *entity, *sequence_number, out);
            put_new(*enqueued_at, None, *body, *size_bytes, out);
            let none = Attributes::default();
            put_attributes(attributes.as_deref().unwrap_or(&none), out);
            put_bytes(target.as_str().as_bytes(), out);
            put_number(*number, out);
        }
        &Fact::Activated { entity, sequence_number, new_number, at } => {
            put_message(ACTIVATED, SubQueue::Main, entity, sequence_number, out);
            put_number(new_number.0, out);
            put_number(at.as_millis(), out);
        }
        Fact::Purged { entity, sub_queue, before, count_max } => {
            put_message(PURGED, *sub_queue, *entity, SequenceNumber(*count_max), out);
            put_number(before.as_millis(), out);
        }
        Fact::SessionStateSet { entity, session, state, at } => {
            put_entity(SESSION_STATE_SET, *entity, out);
            put_bytes(session.as_str().as_bytes(), out);
            put_optional(state.as_deref(), out);
            put_number(at.as_millis(), out);
        }
        Fact::Arrived { source, number } => {
            put_entity(ARRIVED, EntityId(source.0.into()), out);
            put_number(*number, out);
        }
        &Fact::Moved { entity, sequence_number, from, to, again } => {
            put_message(
                if again { MOVED_AGAIN } else { MOVED },
                SubQueue::Main,
                entity,
                sequence_number,
                out,
            );
            put_fixed(from.to_raw(), out);
            put_fixed(to.to_raw(), out);
        }
        &Fact::Receipted { entity, sequence_number, nonce, until } => {
            put_message(RECEIPTED, SubQueue::Main, entity, sequence_number, out);
            put_fixed(nonce, out);
            put_optional_number(until.map(Timestamp::as_millis), out);
        }
        &Fact::Replaced { entity, sequence_number, body, size_bytes } => {
            put_message(REPLACED, SubQueue::Main, entity, sequence_number, out);
            put_fixed(body.to_raw(), out);
            put_number(size_bytes.into(), out);
        }
        Fact::BodyLost { entity, sequence_number, body, patch } => {
            put_message(BODY_LOST, SubQueue::Main, *entity, *sequence_number, out);
            put_fixed(body.to_raw(), out);
            put_patch(patch, out);
        }
        Fact::Cleared { entity } => put_entity(CLEARED, *entity, out),
        &Fact::NumbersReserved { entity, next } => {
            put_message(NUMBERS_RESERVED, SubQueue::Main, entity, next, out);
        }
        Fact::MetadataSet { entity, metadata } => {
            put_entity(METADATA_SET, *entity, out);
            put_metadata(metadata, out);
        }
        _ => encode_step(fact, out),
    }
}

// What a fact about copies announces.
const HERE: u8 = 1;
const WITH: u8 = 2;
const AGAIN: u8 = 4;

/// Numbers of neighbouring subscriptions are close.
fn put_copies(copies: &[(EntityId, SequenceNumber)], out: &mut Vec<u8>) {
    put_number(copies.len() as u64, out);
    let mut last = 0;
    for (entity, number) in copies {
        put_step(last, entity.0.into(), out);
        last = entity.0.into();
        put_number(number.0, out);
    }
}

/// The kinds that say how a message of any sub-queue went on.
fn encode_step(fact: &Fact, out: &mut Vec<u8>) {
    match fact {
        &Fact::Renewed { entity, sub_queue, sequence_number, until } => {
            put_message(RENEWED, sub_queue, entity, sequence_number, out);
            put_number(until.as_millis(), out);
        }
        Fact::Abandoned { entity, sub_queue, sequence_number, patch, due } => {
            put_message(ABANDONED, *sub_queue, *entity, *sequence_number, out);
            put_optional(patch.as_deref(), out);
            put_optional_number(due.map(Timestamp::as_millis), out);
        }
        &Fact::LockExpired { entity, sub_queue, sequence_number, due } => {
            put_message(LOCK_EXPIRED, sub_queue, entity, sequence_number, out);
            put_optional_number(due.map(Timestamp::as_millis), out);
        }
        &Fact::DelayEnded { entity, sub_queue, sequence_number } => {
            put_message(DELAY_ENDED, sub_queue, entity, sequence_number, out);
        }
        &Fact::Released { entity, sub_queue, sequence_number } => {
            put_message(RELEASED, sub_queue, entity, sequence_number, out);
        }
        Fact::Deferred { entity, sub_queue, sequence_number, locked_until, patch } => {
            put_message(DEFERRED, *sub_queue, *entity, *sequence_number, out);
            put_number(locked_until.as_millis(), out);
            put_optional(patch.as_deref(), out);
        }
        Fact::DeadLettered { entity, sub_queue, sequence_number, failed, patch } => {
            put_message(DEAD_LETTERED, *sub_queue, *entity, *sequence_number, out);
            out.push((*failed).into());
            put_patch(patch, out);
        }
        Fact::TransferStarted { entity, sub_queue, sequence_number, target, number } => {
            put_message(TRANSFER_STARTED, *sub_queue, *entity, *sequence_number, out);
            put_bytes(target.as_str().as_bytes(), out);
            put_number(*number, out);
        }
        Fact::TransferFailed { entity, sub_queue, sequence_number, patch } => {
            put_message(TRANSFER_FAILED, *sub_queue, *entity, *sequence_number, out);
            put_patch(patch, out);
        }
        _ => unreachable!("the caller encodes the others"),
    }
}

fn put_entity(kind: u8, entity: EntityId, out: &mut Vec<u8>) {
    out.push(kind);
    put_number(entity.0.into(), out);
}

fn put_message(kind: u8, sub_queue: SubQueue, entity: EntityId, number: SequenceNumber, out: &mut Vec<u8>) {
    let mark = match sub_queue {
        SubQueue::Main => 0,
        SubQueue::Transfer => 1,
        SubQueue::DeadLetter => 2,
        SubQueue::TransferDeadLetter => 3,
    };
    put_entity(kind | (mark << SUB_QUEUE_SHIFT), entity, out);
    put_number(number.0, out);
}

fn put_new(at: Timestamp, here: Option<u32>, body: BodyRef, size_bytes: u32, out: &mut Vec<u8>) {
    put_number(at.as_millis(), out);
    match here {
        Some(offset_bytes) => put_number(offset_bytes.into(), out),
        None => put_fixed(body.to_raw(), out),
    }
    put_number(size_bytes.into(), out);
}

fn offset_in(here: CommitGroupNumber, body: BodyRef) -> Option<u32> {
    match body.place() {
        BodyPlace::InGroup { group, offset_bytes } if group == here => Some(offset_bytes),
        _ => None,
    }
}

/// Takes one fact off the front of `input`, which is part of group `group`. After an error `input` is as before.
pub fn decode(input: &mut &[u8], group: CommitGroupNumber) -> Result<Fact, DecodeError> {
    let mut decoder = Decoder::new(input);
    let kind = decoder.byte("a record's kind")?;
    let sub_queue = match kind >> SUB_QUEUE_SHIFT {
        0 => SubQueue::Main,
        1 => SubQueue::Transfer,
        2 => SubQueue::DeadLetter,
        _ => SubQueue::TransferDeadLetter,
    };
    let kind = kind & ((1 << SUB_QUEUE_SHIFT) - 1);
    let entity = decoder.entity()?;
    let fact = match sub_queue {
        SubQueue::Main => match decode_main(kind, entity, &mut decoder, group)? {
            Some(fact) => fact,
            None => decode_step(kind, entity, sub_queue, &mut decoder)?,
        },
        _ => decode_step(kind, entity, sub_queue, &mut decoder)?,
    };
    *input = decoder.rest;
    Ok(fact)
}

/// The kinds that name no sub-queue.
fn decode_main(
    kind: u8,
    entity: EntityId,
    decoder: &mut Decoder<'_>,
    group: CommitGroupNumber,
) -> Result<Option<Fact>, DecodeError> {
    Ok(Some(match kind {
        QUEUE_CREATED => {
            let (name, kind, settings) = (decoder.name()?, decoder.kind()?, Box::new(decoder.settings()?));
            Fact::QueueCreated { entity, name, kind, settings, created_at: decoder.timestamp()? }
        }
        QUEUE_UPDATED => {
            let settings = Box::new(decoder.settings()?);
            Fact::QueueUpdated { entity, settings, at: decoder.timestamp()? }
        }
        FANNED_OUT => decode_fanned_out(decoder, group)?,
        SEEN => Fact::Seen { entity, message_id: decoder.message_id()?, at: decoder.timestamp()? },
        RULE_SET => Fact::RuleSet { entity, rule: Box::new(decoder.rule()?), at: decoder.timestamp()? },
        RULE_REMOVED => Fact::RuleRemoved { entity, name: decoder.rule_name()? },
        QUEUE_DELETED => Fact::QueueDeleted { entity },
        ENQUEUED_HERE | ENQUEUED_ELSEWHERE | ENQUEUED_HERE_WITH | ENQUEUED_ELSEWHERE_WITH => {
            decode_enqueued(kind, entity, decoder, group)?
        }
        CHARGED => {
            let sequence_number = decoder.sequence_number()?;
            Fact::Charged { entity, sequence_number, cost_ms: decoder.number32("a cost")? }
        }
        SENT_ON => decode_sent_on(entity, decoder, group)?,
        ACTIVATED => {
            let (sequence_number, new_number) = (decoder.sequence_number()?, decoder.sequence_number()?);
            Fact::Activated { entity, sequence_number, new_number, at: decoder.timestamp()? }
        }
        SESSION_STATE_SET => {
            let (session, state) = (decoder.session()?, decoder.optional_state()?);
            Fact::SessionStateSet { entity, session, state, at: decoder.timestamp()? }
        }
        ARRIVED => {
            let source = u16::try_from(entity.0).map_err(|_| DecodeError::Value("a shard's number"))?;
            Fact::Arrived { source: ShardId(source), number: decoder.number("a number in an outbox")? }
        }
        MOVED | MOVED_AGAIN => {
            let sequence_number = decoder.sequence_number()?;
            let (from, to) = (decode_body(decoder, group)?, decode_body(decoder, group)?);
            Fact::Moved { entity, sequence_number, from, to, again: kind == MOVED_AGAIN }
        }
        RECEIPTED => {
            let (sequence_number, nonce) = (decoder.sequence_number()?, decoder.fixed("a receipt")?);
            Fact::Receipted { entity, sequence_number, nonce, until: decoder.optional_timestamp()? }
        }
        REPLACED => {
            let (sequence_number, body) = (decoder.sequence_number()?, decode_body(decoder, group)?);
            Fact::Replaced { entity, sequence_number, body, size_bytes: decoder.number32("a body's size")? }
        }
        BODY_LOST => {
            let (sequence_number, body) = (decoder.sequence_number()?, decode_body(decoder, group)?);
            Fact::BodyLost { entity, sequence_number, body, patch: decoder.patch()? }
        }
        CLEARED => Fact::Cleared { entity },
        NUMBERS_RESERVED => Fact::NumbersReserved { entity, next: decoder.sequence_number()? },
        METADATA_SET => Fact::MetadataSet { entity, metadata: Box::new(decoder.metadata()?) },
        _ => return Ok(None),
    }))
}

fn decode_enqueued(
    kind: u8,
    entity: EntityId,
    decoder: &mut Decoder<'_>,
    group: CommitGroupNumber,
) -> Result<Fact, DecodeError> {
    let (sequence_number, enqueued_at) = (decoder.sequence_number()?, decoder.timestamp()?);
    let body = if matches!(kind, ENQUEUED_HERE | ENQUEUED_HERE_WITH) {
        decode_body_here(decoder, group)?
    } else {
        decode_body(decoder, group)?
    };
    let size_bytes = decoder.number32("a body's size")?;
    let has_more = matches!(kind, ENQUEUED_HERE_WITH | ENQUEUED_ELSEWHERE_WITH);
    let attributes = has_more.then(|| decoder.attributes().map(Box::new)).transpose()?;
    Ok(Fact::Enqueued { entity, sequence_number, enqueued_at, body, size_bytes, attributes })
}

fn decode_fanned_out(decoder: &mut Decoder<'_>, group: CommitGroupNumber) -> Result<Fact, DecodeError> {
    let count = decoder.number("the number of copies")?;
    if count > COPY_COUNT_MAX {
        return Err(DecodeError::Value("the number of copies"));
    }
    let mut last = 0;
    let mut copy = || {
        last = decoder.step(last, "an entity number")?;
        let entity = u32::try_from(last).map_err(|_| DecodeError::Value("an entity number"))?;
        Ok((EntityId(entity), decoder.sequence_number()?))
    };
    let copies = (0..count).map(|_| copy()).collect::<Result<_, DecodeError>>()?;
    let flags = decoder.byte("the flags of copies")?;
    let has = |flag: u8| flags & flag != 0;
    let enqueued_at = decoder.timestamp()?;
    let body = if has(HERE) { decode_body_here(decoder, group)? } else { decode_body(decoder, group)? };
    let size_bytes = decoder.number32("a body's size")?;
    let attributes = has(WITH).then(|| decoder.attributes().map(Box::new)).transpose()?;
    Ok(Fact::FannedOut { copies, enqueued_at, body, size_bytes, attributes, again: has(AGAIN) })
}

fn decode_body_here(decoder: &mut Decoder<'_>, group: CommitGroupNumber) -> Result<BodyRef, DecodeError> {
    let offset_bytes = decoder.number32("a body's offset")?;
    BodyRef::in_group(group, offset_bytes).ok_or(DecodeError::Value("a body's offset"))
}

fn decode_sent_on(
    entity: EntityId,
    decoder: &mut Decoder<'_>,
    group: CommitGroupNumber,
) -> Result<Fact, DecodeError> {
    let (sequence_number, enqueued_at) = (decoder.sequence_number()?, decoder.timestamp()?);
    let (body, size_bytes) = (decode_body(decoder, group)?, decoder.number32("a body's size")?);
    let attributes = decoder.attributes()?;
    let attributes = (!attributes.is_empty()).then(|| Box::new(attributes));
    let (target, number) = (Box::new(decoder.name()?), decoder.number("a number in an outbox")?);
    Ok(Fact::SentOn { entity, sequence_number, enqueued_at, body, size_bytes, attributes, target, number })
}

/// A body that lies anywhere but in a group of the future.
fn decode_body(decoder: &mut Decoder<'_>, here: CommitGroupNumber) -> Result<BodyRef, DecodeError> {
    let body = BodyRef::from_raw(decoder.fixed("a body's place")?);
    match body.place() {
        BodyPlace::InGroup { group, .. } if group > here => Err(DecodeError::Value("a body's place")),
        _ => Ok(body),
    }
}

/// The kinds that say how a message of any sub-queue went on.
fn decode_step(
    kind: u8,
    entity: EntityId,
    sub_queue: SubQueue,
    decoder: &mut Decoder<'_>,
) -> Result<Fact, DecodeError> {
    let sequence_number = decoder.sequence_number()?;
    Ok(match kind {
        LOCKED => {
            let nonce = decoder.fixed("a lock's nonce")?;
            Fact::Locked { entity, sub_queue, sequence_number, nonce, until: decoder.timestamp()? }
        }
        RENEWED => Fact::Renewed { entity, sub_queue, sequence_number, until: decoder.timestamp()? },
        COMPLETED => Fact::Completed { entity, sub_queue, sequence_number },
        ABANDONED => {
            let (patch, due) = (decoder.optional_properties()?, decoder.optional_timestamp()?);
            Fact::Abandoned { entity, sub_queue, sequence_number, patch, due }
        }
        LOCK_EXPIRED => {
            Fact::LockExpired { entity, sub_queue, sequence_number, due: decoder.optional_timestamp()? }
        }
        DELAY_ENDED => Fact::DelayEnded { entity, sub_queue, sequence_number },
        RELEASED => Fact::Released { entity, sub_queue, sequence_number },
        DEFERRED => {
            let (locked_until, patch) = (decoder.timestamp()?, decoder.optional_properties()?);
            Fact::Deferred { entity, sub_queue, sequence_number, locked_until, patch }
        }
        DEAD_LETTERED => {
            let failed = decoder.flag("a failed delivery")?;
            Fact::DeadLettered { entity, sub_queue, sequence_number, failed, patch: decoder.patch()? }
        }
        PURGED => {
            Fact::Purged { entity, sub_queue, before: decoder.timestamp()?, count_max: sequence_number.0 }
        }
        TRANSFER_STARTED => {
            let (target, number) = (decoder.name()?, decoder.number("a number in an outbox")?);
            Fact::TransferStarted { entity, sub_queue, sequence_number, target, number }
        }
        TRANSFER_FAILED => {
            Fact::TransferFailed { entity, sub_queue, sequence_number, patch: decoder.patch()? }
        }
        _ => return Err(DecodeError::Value("a record's kind")),
    })
}
