//! Facts as bytes: self-delimiting, so that a group holds one after the other.
//!
//! ```text
//! kind (1 byte; top bit: in the dead-letter queue), entity, then the fields in the order of the enum
//! ```
//! Numbers take seven bits per byte. A body that lies in the group of its own record is told by its offset alone; the group's number is
//! known to whoever reads the group.

use peeklock_types::{BodyPlace, BodyRef, GroupNumber, SequenceNumber, SubQueue};

use crate::fact::Fact;
use crate::message::EntityId;
use crate::wire::{
    DecodeError, Reader, put_bytes, put_fixed, put_number, put_optional, put_patch, put_settings,
};

// Kinds are on disk: a number is never given to another kind.
const QUEUE_CREATED: u8 = 1;
const QUEUE_DELETED: u8 = 2;
const ENQUEUED_HERE: u8 = 3;
const ENQUEUED_ELSEWHERE: u8 = 4;
const LOCKED: u8 = 5;
const RENEWED: u8 = 6;
const COMPLETED: u8 = 7;
const ABANDONED: u8 = 8;
const LOCK_EXPIRED: u8 = 9;
const RELEASED: u8 = 10;
const DEFERRED: u8 = 11;
const DEAD_LETTERED: u8 = 12;
const MOVED: u8 = 13;
const IN_DEAD_LETTER: u8 = 0x80;

/// Appends `fact` to `out`, as part of group `group`.
pub fn encode(fact: &Fact, group: GroupNumber, out: &mut Vec<u8>) {
    match fact {
        Fact::QueueCreated { entity, name, settings, created_at } => {
            put_entity(QUEUE_CREATED, *entity, out);
            put_bytes(name.as_str().as_bytes(), out);
            put_settings(settings, out);
            put_number(created_at.as_millis(), out);
        }
        Fact::QueueDeleted { entity } => put_entity(QUEUE_DELETED, *entity, out),
        &Fact::Enqueued { entity, sequence_number, enqueued_at, body, size_bytes } => {
            let here = offset_in(group, body);
            let kind = if here.is_some() { ENQUEUED_HERE } else { ENQUEUED_ELSEWHERE };
            put_message(kind, SubQueue::Main, entity, sequence_number, out);
            put_number(enqueued_at.as_millis(), out);
            match here {
                Some(offset_bytes) => put_number(offset_bytes.into(), out),
                None => put_fixed(body.to_raw(), out),
            }
            put_number(size_bytes.into(), out);
        }
        &Fact::Locked { entity, sub_queue, sequence_number, nonce, until } => {
            put_message(LOCKED, sub_queue, entity, sequence_number, out);
            put_fixed(nonce, out);
            put_number(until.as_millis(), out);
        }
        &Fact::Renewed { entity, sub_queue, sequence_number, until } => {
            put_message(RENEWED, sub_queue, entity, sequence_number, out);
            put_number(until.as_millis(), out);
        }
        &Fact::Completed { entity, sub_queue, sequence_number } => {
            put_message(COMPLETED, sub_queue, entity, sequence_number, out);
        }
        Fact::Abandoned { entity, sub_queue, sequence_number, patch } => {
            put_message(ABANDONED, *sub_queue, *entity, *sequence_number, out);
            put_optional(patch.as_deref(), out);
        }
        &Fact::LockExpired { entity, sub_queue, sequence_number } => {
            put_message(LOCK_EXPIRED, sub_queue, entity, sequence_number, out);
        }
        &Fact::Released { entity, sub_queue, sequence_number } => {
            put_message(RELEASED, sub_queue, entity, sequence_number, out);
        }
        Fact::Deferred { entity, sub_queue, sequence_number, patch } => {
            put_message(DEFERRED, *sub_queue, *entity, *sequence_number, out);
            put_optional(patch.as_deref(), out);
        }
        Fact::DeadLettered { entity, sub_queue, sequence_number, failed, patch } => {
            put_message(DEAD_LETTERED, *sub_queue, *entity, *sequence_number, out);
            out.push((*failed).into());
            put_patch(patch, out);
        }
        &Fact::Moved { entity, sequence_number, from, to } => {
            put_message(MOVED, SubQueue::Main, entity, sequence_number, out);
            put_fixed(from.to_raw(), out);
            put_fixed(to.to_raw(), out);
        }
    }
}

fn put_entity(kind: u8, entity: EntityId, out: &mut Vec<u8>) {
    out.push(kind);
    put_number(entity.0.into(), out);
}

fn put_message(kind: u8, sub_queue: SubQueue, entity: EntityId, number: SequenceNumber, out: &mut Vec<u8>) {
    let mark = if sub_queue == SubQueue::DeadLetter { IN_DEAD_LETTER } else { 0 };
    put_entity(kind | mark, entity, out);
    put_number(number.0, out);
}

fn offset_in(here: GroupNumber, body: BodyRef) -> Option<u32> {
    match body.place() {
        BodyPlace::Log { group, offset_bytes } if group == here => Some(offset_bytes),
        _ => None,
    }
}

/// Takes one fact off the front of `input`, which is part of group `group`. After an error `input` is as before.
pub fn decode(input: &mut &[u8], group: GroupNumber) -> Result<Fact, DecodeError> {
    let mut reader = Reader { rest: input };
    let kind = reader.byte("a record's kind")?;
    let (kind, sub_queue) = match kind & IN_DEAD_LETTER {
        0 => (kind, SubQueue::Main),
        _ => (kind & !IN_DEAD_LETTER, SubQueue::DeadLetter),
    };
    let entity = reader.entity()?;
    let fact = match (kind, sub_queue) {
        (QUEUE_CREATED, SubQueue::Main) => {
            let (name, settings) = (reader.name()?, reader.settings()?);
            Fact::QueueCreated { entity, name, settings, created_at: reader.timestamp()? }
        }
        (QUEUE_DELETED, SubQueue::Main) => Fact::QueueDeleted { entity },
        (ENQUEUED_HERE | ENQUEUED_ELSEWHERE, SubQueue::Main) => {
            decode_enqueued(kind, entity, &mut reader, group)?
        }
        (MOVED, SubQueue::Main) => {
            let sequence_number = reader.sequence_number()?;
            let (from, to) = (decode_body(&mut reader, group)?, decode_body(&mut reader, group)?);
            Fact::Moved { entity, sequence_number, from, to }
        }
        _ => decode_step(kind, entity, sub_queue, &mut reader)?,
    };
    *input = reader.rest;
    Ok(fact)
}

fn decode_enqueued(
    kind: u8,
    entity: EntityId,
    reader: &mut Reader<'_>,
    group: GroupNumber,
) -> Result<Fact, DecodeError> {
    let (sequence_number, enqueued_at) = (reader.sequence_number()?, reader.timestamp()?);
    let body = if kind == ENQUEUED_HERE {
        let offset_bytes = reader.number32("a body's offset")?;
        BodyRef::in_log(group, offset_bytes).ok_or(DecodeError::Value("a body's offset"))?
    } else {
        decode_body(reader, group)?
    };
    Ok(Fact::Enqueued {
        entity,
        sequence_number,
        enqueued_at,
        body,
        size_bytes: reader.number32("a body's size")?,
    })
}

/// A body that lies anywhere but in a group of the future.
fn decode_body(reader: &mut Reader<'_>, here: GroupNumber) -> Result<BodyRef, DecodeError> {
    let body = BodyRef::from_raw(reader.fixed("a body's place")?);
    match body.place() {
        BodyPlace::Log { group, .. } if group > here => Err(DecodeError::Value("a body's place")),
        _ => Ok(body),
    }
}

/// The kinds that say how a message of either sub-queue went on.
fn decode_step(
    kind: u8,
    entity: EntityId,
    sub_queue: SubQueue,
    reader: &mut Reader<'_>,
) -> Result<Fact, DecodeError> {
    let sequence_number = reader.sequence_number()?;
    Ok(match kind {
        LOCKED => {
            let nonce = reader.fixed("a lock's nonce")?;
            Fact::Locked { entity, sub_queue, sequence_number, nonce, until: reader.timestamp()? }
        }
        RENEWED => Fact::Renewed { entity, sub_queue, sequence_number, until: reader.timestamp()? },
        COMPLETED => Fact::Completed { entity, sub_queue, sequence_number },
        ABANDONED => {
            Fact::Abandoned { entity, sub_queue, sequence_number, patch: reader.optional_properties()? }
        }
        LOCK_EXPIRED => Fact::LockExpired { entity, sub_queue, sequence_number },
        RELEASED => Fact::Released { entity, sub_queue, sequence_number },
        DEFERRED => {
            Fact::Deferred { entity, sub_queue, sequence_number, patch: reader.optional_properties()? }
        }
        DEAD_LETTERED => {
            let failed = reader.flag("whether a delivery failed")?;
            Fact::DeadLettered { entity, sub_queue, sequence_number, failed, patch: reader.patch()? }
        }
        _ => return Err(DecodeError::Value("a record's kind")),
    })
}
