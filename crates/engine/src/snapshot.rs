//! The whole durable state as bytes: what replay of all facts so far would give.
//!
//! ```text
//! "PKLE", version (1 byte), next entity, number of queues, queues by entity, CRC-32C of all before (4 bytes)
//! queue:   entity, name, settings, created at, next sequence number, newest group, messages, dead letters
//! message: step of sequence number, flags (1 byte), step of body, step of enqueued-at, size, delivery count,
//!          if locked: nonce (8 bytes), until; if patched: patch
//! ```
//! The same state gives the same bytes, however it came about.

use peeklock_types::{BodyPlace, BodyRef, GroupNumber, SequenceNumber, SubQueue, Timestamp};

use crate::engine::Engine;
use crate::message::MessageState;
use crate::patch::Patch;
use crate::queue::{Entry, Messages, Queue, SEQUENCE_NUMBER_MAX};
use crate::wire::{DecodeError, Reader, put_bytes, put_fixed, put_number, put_patch, put_settings, put_step};

const MAGIC: &[u8; 4] = b"PKLE";
const VERSION: u8 = 1;

const FLAG_DEFERRED: u8 = 1;
const FLAG_LOCKED: u8 = 2;
const FLAG_PATCHED: u8 = 4;

impl Engine {
    pub fn snapshot(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.push(VERSION);
        put_number(self.next_entity.0.into(), &mut out);
        let mut queues: Vec<_> = self.queues.values().collect();
        queues.sort_unstable_by_key(|queue| queue.entity);
        put_number(queues.len() as u64, &mut out);
        queues.into_iter().for_each(|queue| put_queue(queue, &mut out));
        let checksum = crc32c::crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    pub fn restore(bytes: &[u8]) -> Result<Engine, DecodeError> {
        let (bytes, checksum) = bytes.split_last_chunk().ok_or(DecodeError::Short("a snapshot"))?;
        let rest = bytes.strip_prefix(MAGIC).ok_or(DecodeError::Value("the start of a snapshot"))?;
        let mut reader = Reader { rest };
        let found = reader.byte("a snapshot's version")?;
        if found != VERSION {
            return Err(DecodeError::Version { found, known: VERSION });
        }
        if crc32c::crc32c(bytes) != u32::from_le_bytes(*checksum) {
            return Err(DecodeError::Checksum);
        }
        restore_queues(&mut reader)
    }
}

fn put_queue(queue: &Queue, out: &mut Vec<u8>) {
    put_number(queue.entity.0.into(), out);
    put_bytes(queue.name.as_str().as_bytes(), out);
    put_settings(&queue.settings, out);
    put_number(queue.created_at.as_millis(), out);
    put_number(queue.next_number.0, out);
    put_number(queue.newest_group.0, out);
    put_messages(&queue.main.messages, out);
    put_messages(&queue.dead_letter.messages, out);
}

/// What the next message's fields are told as steps from.
#[derive(Clone, Copy, Default)]
struct Last {
    number: u64,
    body: u64,
    enqueued_at: u64,
}

fn put_messages(messages: &Messages, out: &mut Vec<u8>) {
    put_number(messages.count(), out);
    let mut last = Last::default();
    for (number, entry) in messages.iter_from(SequenceNumber(0)) {
        let now =
            Last { number: number.0, body: entry.body.to_raw(), enqueued_at: entry.enqueued_at.as_millis() };
        let lock = messages.lock_of(entry);
        let patch = if entry.patched { messages.patch_of(number) } else { None };
        put_number(now.number - last.number, out);
        out.push(flags(entry.state == MessageState::Deferred, lock.is_some(), patch.is_some()));
        put_step(last.body, now.body, out);
        put_step(last.enqueued_at, now.enqueued_at, out);
        put_number(entry.size_bytes.into(), out);
        put_number(entry.delivery_count.into(), out);
        if let Some(lock) = lock {
            put_fixed(lock.nonce, out);
            put_number(lock.until.as_millis(), out);
        }
        if let Some(patch) = patch {
            put_patch(patch, out);
        }
        last = now;
    }
}

fn flags(deferred: bool, locked: bool, patched: bool) -> u8 {
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    flag(deferred, FLAG_DEFERRED) | flag(locked, FLAG_LOCKED) | flag(patched, FLAG_PATCHED)
}

fn restore_queues(reader: &mut Reader<'_>) -> Result<Engine, DecodeError> {
    let mut engine = Engine::default();
    let next_entity = reader.entity()?;
    for _ in 0..reader.number("the number of queues")? {
        let queue = restore_queue(reader)?;
        let entity = queue.entity;
        engine.insert_queue(queue).map_err(|_| DecodeError::Value("a queue"))?;
        let queue = engine.queues.get_mut(&entity).ok_or(DecodeError::Value("a queue"))?;
        engine.agenda.note(queue);
    }
    if next_entity < engine.next_entity || !reader.rest.is_empty() {
        return Err(DecodeError::Value("the end of a snapshot"));
    }
    engine.next_entity = next_entity;
    Ok(engine)
}

fn restore_queue(reader: &mut Reader<'_>) -> Result<Queue, DecodeError> {
    let (entity, name, settings) = (reader.entity()?, reader.name()?, reader.settings()?);
    let mut queue = Queue::new(entity, name, settings, reader.timestamp()?);
    queue.next_number = reader.sequence_number()?;
    if !(SequenceNumber::FIRST..=SEQUENCE_NUMBER_MAX).contains(&queue.next_number) {
        return Err(DecodeError::Value("a sequence number"));
    }
    queue.newest_group = GroupNumber(reader.number("a group number")?);
    restore_messages(&mut queue, SubQueue::Main, reader)?;
    restore_messages(&mut queue, SubQueue::DeadLetter, reader)?;
    Ok(queue)
}

struct RestoredLock {
    number: SequenceNumber,
    nonce: u64,
    until: Timestamp,
}

fn restore_messages(
    queue: &mut Queue,
    sub_queue: SubQueue,
    reader: &mut Reader<'_>,
) -> Result<(), DecodeError> {
    let mut last = Last::default();
    let mut newest = GroupNumber::NONE;
    let mut locks = Vec::new();
    for _ in 0..reader.number("the number of messages")? {
        let (number, entry, lock, patch) = restore_message(&mut last, reader)?;
        if number >= queue.next_number || queue.sub_queue_of(number).is_some() {
            return Err(DecodeError::Value("a sequence number"));
        }
        if let BodyPlace::Log { group, .. } = entry.body.place() {
            if group < newest || group > queue.newest_group {
                return Err(DecodeError::Value("a body's place"));
            }
            newest = group;
        }
        locks.extend(lock);
        let misfit = |_| DecodeError::Value("a message");
        queue.part_mut(sub_queue).messages.insert(number, entry, patch).map_err(misfit)?;
    }
    // In the order in which they run out, as they were made: each finds its place without a search.
    locks.sort_by_key(|lock| lock.until);
    for RestoredLock { number, nonce, until } in locks {
        let misfit = |_| DecodeError::Value("a lock");
        queue.part_mut(sub_queue).messages.lock(number, nonce, until).map_err(misfit)?;
    }
    Ok(())
}

type Restored = (SequenceNumber, Entry, Option<RestoredLock>, Patch);

fn restore_message(last: &mut Last, reader: &mut Reader<'_>) -> Result<Restored, DecodeError> {
    let step = reader.number("a sequence number")?;
    let number = last.number.checked_add(step).filter(|_| step > 0);
    let number = SequenceNumber(number.ok_or(DecodeError::Value("a sequence number"))?);
    let flags = reader.byte("a message's flags")?;
    if flags & !(FLAG_DEFERRED | FLAG_LOCKED | FLAG_PATCHED) != 0 {
        return Err(DecodeError::Value("a message's flags"));
    }
    let body = reader.step(last.body, "a body's place")?;
    let enqueued_at = reader.step(last.enqueued_at, "a time")?;
    *last = Last { number: number.0, body, enqueued_at };
    let entry = Entry {
        body: BodyRef::from_raw(body),
        enqueued_at: Timestamp::from_millis(enqueued_at),
        size_bytes: reader.number32("a body's size")?,
        delivery_count: reader.number32("a delivery count")?,
        lock: None,
        state: if flags & FLAG_DEFERRED != 0 { MessageState::Deferred } else { MessageState::Active },
        patched: false,
    };
    let lock = (flags & FLAG_LOCKED != 0).then(|| restore_lock(number, reader)).transpose()?;
    let patch = if flags & FLAG_PATCHED != 0 { reader.patch()? } else { Patch::default() };
    Ok((number, entry, lock, patch))
}

fn restore_lock(number: SequenceNumber, reader: &mut Reader<'_>) -> Result<RestoredLock, DecodeError> {
    Ok(RestoredLock { number, nonce: reader.fixed("a lock's nonce")?, until: reader.timestamp()? })
}
