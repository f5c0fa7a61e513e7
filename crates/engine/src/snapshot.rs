//! The whole durable state as bytes: what replay of all facts so far would give.
//!
//! ```text
//! "PKLE", version (1 byte), next entity, number of queues, queues by entity, routes, arrivals, shared bodies, CRC-32C of all before (4 bytes)
//! queue:   entity, name, kind, settings, created at, updated at, revision, metadata, rules, next sequence number, newest group, sessions, history, messages of each sub-queue
//! rule:    the rule, created at
//! session: id, state, set at
//! shared body: place, how many more messages than one have it
//! message: step of sequence number, flags (1 byte), step of body, step of enqueued-at, size, delivery count,
//!          if in a session: its number in the list of sessions; if locked: nonce (8 bytes), until; if patched: patch; if detailed: details
//! ```
//! The same state gives the same bytes, however it came about. What is on its way to other shards is found again from the messages.

use std::collections::BTreeMap;

use peeklock_types::{BodyRef, CommitGroupNumber, SequenceNumber, SessionId, ShardId, SubQueue, Timestamp};

use crate::engine::Engine;
use crate::message::MessageState;
use crate::patch::Patch;
use crate::queue::{Entry, Marks, Messages, Moving, Queue, SEQUENCE_NUMBER_MAX, StoredRule};
use crate::shared::Shared;
use crate::transfers::OUT_NUMBER_MAX;
use crate::wire::{
    DecodeError, Decoder, put_bytes, put_details, put_fixed, put_kind, put_metadata, put_number,
    put_optional, put_patch, put_settings, put_step,
};

const MAGIC: &[u8; 4] = b"PKLE";
const VERSION: u8 = 5;
/// Without metadata of queues, otherwise the same.
const VERSION_BEFORE: u8 = 4;

// The two lowest bits are the state.
const STATE_MASK: u64 = 3;
const FLAG_LOCKED: u64 = 4;
const FLAG_PATCHED: u64 = 8;
const FLAG_DETAILED: u64 = 16;
const FLAG_STRAY: u64 = 32;
const FLAG_POISON: u64 = 64;
const FLAG_SESSION: u64 = 128;
const FLAG_STARTED: u64 = 256;
const FLAG_ACTIVATED: u64 = 512;

impl Engine {
    pub fn snapshot(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.push(VERSION);
        put_number(self.next_entity.0.into(), &mut out);
        let mut queues: Vec<_> = self.queues.values().collect();
        queues.sort_unstable_by_key(|queue| queue.entity);
        put_number(queues.len() as u64, &mut out);
        queues.into_iter().for_each(|queue| put_queue(queue, &mut out));
        let routes = self.transfers.routes.iter().map(|(shard, route)| (*shard, route.newest));
        put_shard_numbers(routes.collect(), &mut out);
        put_shard_numbers(self.transfers.arrived.clone(), &mut out);
        self.shared.put(&mut out);
        let checksum = crc32c::crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    pub fn restore(bytes: &[u8]) -> Result<Engine, DecodeError> {
        let (bytes, checksum) = bytes.split_last_chunk().ok_or(DecodeError::Short("a snapshot"))?;
        let rest = bytes.strip_prefix(MAGIC).ok_or(DecodeError::Value("the start of a snapshot"))?;
        let mut decoder = Decoder::new(rest);
        let found = decoder.byte("a snapshot's version")?;
        if found != VERSION && found != VERSION_BEFORE {
            return Err(DecodeError::Version { found, known: VERSION });
        }
        if crc32c::crc32c(bytes) != u32::from_le_bytes(*checksum) {
            return Err(DecodeError::Checksum);
        }
        restore_queues(found, &mut decoder)
    }
}

fn put_shard_numbers(numbers: BTreeMap<ShardId, u64>, out: &mut Vec<u8>) {
    put_number(numbers.len() as u64, out);
    for (shard, number) in numbers {
        put_number(shard.0.into(), out);
        put_number(number, out);
    }
}

fn put_queue(queue: &Queue, out: &mut Vec<u8>) {
    put_number(queue.entity.0.into(), out);
    put_bytes(queue.name.as_str().as_bytes(), out);
    put_kind(queue.kind, out);
    put_settings(&queue.settings, out);
    put_number(queue.created_at.as_millis(), out);
    put_number(queue.updated_at.as_millis(), out);
    put_number(queue.revision, out);
    put_metadata(&queue.metadata, out);
    put_number(queue.rules.len() as u64, out);
    for stored in &queue.rules {
        stored.rule.encode(out);
        put_number(stored.created_at.as_millis(), out);
    }
    put_number(queue.next_number.0, out);
    put_number(queue.newest_group.0, out);
    let sessions = put_sessions(queue, out);
    put_history(queue, out);
    if let Some(order) = queue.main.messages.order() {
        order.put_lanes(out);
    }
    for part in queue.parts() {
        put_messages(&part.messages, &sessions, out);
    }
    if let Some(order) = queue.main.messages.order() {
        order.put_tags(out);
    }
}

/// Writes the sessions that are more than held, by name, and tells which got which number.
fn put_sessions<'q>(queue: &'q Queue, out: &mut Vec<u8>) -> BTreeMap<&'q SessionId, u64> {
    let sessions = queue.main.messages.sessions();
    let kept = || sessions.iter().filter(|session| session.is_kept());
    put_number(kept().count() as u64, out);
    for session in kept() {
        put_bytes(session.id.as_str().as_bytes(), out);
        put_optional(session.state.as_deref(), out);
        put_number(session.state_set_at.as_millis(), out);
    }
    kept().map(|session| &session.id).zip(0..).collect()
}

fn put_history(queue: &Queue, out: &mut Vec<u8>) {
    put_number(queue.history.len() as u64, out);
    for (at, id, number) in queue.history.iter() {
        put_number(at.as_millis(), out);
        put_bytes(id, out);
        put_number(number.0, out);
    }
}

/// What the next message's fields are told as steps from.
#[derive(Clone, Copy, Default)]
struct Last {
    number: u64,
    body: u64,
    enqueued_at: u64,
}

fn put_messages(messages: &Messages, sessions: &BTreeMap<&SessionId, u64>, out: &mut Vec<u8>) {
    put_number(messages.count(), out);
    let mut last = Last::default();
    for (number, entry) in messages.iter_from(SequenceNumber(0)) {
        let now = Last {
            number: number.0,
            body: entry.body.to_raw(),
            enqueued_at: entry.enqueued_at().as_millis(),
        };
        put_number(now.number - last.number, out);
        put_number(flags(entry), out);
        put_step(last.body, now.body, out);
        put_step(last.enqueued_at, now.enqueued_at, out);
        put_number(entry.size_bytes.into(), out);
        put_number(entry.delivery_count_low.into(), out);
        if let Some(session) = entry.session.and_then(|slot| messages.sessions().get(slot)) {
            put_number(sessions.get(&session.id).copied().unwrap_or_default(), out);
        }
        if let Some(lock) = messages.lock_of(entry) {
            put_fixed(lock.nonce, out);
            put_number(lock.until.as_millis(), out);
            if let Some(order) = messages.order() {
                put_number(order.work(number.0).map_or(0, |work| work.charged_ms.into()), out);
            }
        }
        if let Some(lane) = entry.lane.filter(|_| messages.order().is_some()) {
            put_number(lane.index() as u64, out);
        }
        if let Some(patch) = messages.patch_of(number).filter(|_| entry.marks.has(Marks::PATCHED)) {
            put_patch(patch, out);
        }
        if let Some(details) = messages.details_of(number).filter(|_| entry.marks.has(Marks::DETAILED)) {
            put_details(details, out);
        }
        last = now;
    }
}

fn flags(entry: &Entry) -> u64 {
    let state = match entry.state {
        MessageState::Active => 0,
        MessageState::Deferred => 1,
        MessageState::Scheduled => 2,
        MessageState::Delayed => 3,
    };
    let flag = |set: bool, flag: u64| if set { flag } else { 0 };
    state
        | flag(entry.lock.is_some(), FLAG_LOCKED)
        | flag(entry.marks.has(Marks::PATCHED), FLAG_PATCHED)
        | flag(entry.marks.has(Marks::DETAILED), FLAG_DETAILED)
        | flag(entry.is_stray(), FLAG_STRAY)
        | flag(entry.marks.has(Marks::POISON), FLAG_POISON)
        | flag(entry.session.is_some(), FLAG_SESSION)
        | flag(entry.marks.has(Marks::STARTED), FLAG_STARTED)
        | flag(entry.marks.has(Marks::ACTIVATED), FLAG_ACTIVATED)
}

fn restore_queues(version: u8, decoder: &mut Decoder<'_>) -> Result<Engine, DecodeError> {
    let mut engine = Engine::default();
    let next_entity = decoder.entity()?;
    for _ in 0..decoder.number("the number of queues")? {
        let queue = restore_queue(version, decoder)?;
        let (entity, rules) = (queue.entity, queue.rules.clone());
        engine.insert_queue(queue).map_err(|_| DecodeError::Value("a queue"))?;
        rules
            .iter()
            .try_for_each(|stored| engine.compile(entity, &stored.rule))
            .map_err(|_| DecodeError::Value("a rule"))?;
        restore_transfers(&mut engine, entity)?;
        engine.note(entity);
    }
    for (shard, newest) in restore_shard_numbers(decoder)? {
        let route = engine.transfers.routes.entry(shard).or_default();
        if route.newest > newest {
            return Err(DecodeError::Value("a number in an outbox"));
        }
        route.newest = newest;
    }
    engine.transfers.arrived = restore_shard_numbers(decoder)?;
    engine.shared = Shared::restore(decoder)?;
    if next_entity < engine.next_entity || !decoder.rest.is_empty() {
        return Err(DecodeError::Value("the end of a snapshot"));
    }
    engine.next_entity = next_entity;
    Ok(engine)
}

fn restore_shard_numbers(decoder: &mut Decoder<'_>) -> Result<BTreeMap<ShardId, u64>, DecodeError> {
    let mut numbers = BTreeMap::new();
    for _ in 0..decoder.number("the number of shards")? {
        let shard = u16::try_from(decoder.number("a shard's number")?);
        let shard = ShardId(shard.map_err(|_| DecodeError::Value("a shard's number"))?);
        let number = decoder.number("a number in an outbox")?;
        if number > OUT_NUMBER_MAX {
            return Err(DecodeError::Value("a number in an outbox"));
        }
        numbers.insert(shard, number);
    }
    Ok(numbers)
}

/// Puts what a queue has for other shards back into their routes.
fn restore_transfers(engine: &mut Engine, entity: crate::EntityId) -> Result<(), DecodeError> {
    let Some(queue) = engine.queues.get(&entity) else { return Ok(()) };
    let messages = &queue.transfer.messages;
    for (number, _) in messages.iter_from(SequenceNumber(0)) {
        let transfer = messages.details_of(number).and_then(|details| details.transfer.as_ref());
        let transfer = transfer.ok_or(DecodeError::Value("a transfer"))?;
        let route = engine.transfers.routes.entry(ShardId::of(&transfer.target)).or_default();
        if transfer.number > OUT_NUMBER_MAX {
            return Err(DecodeError::Value("a number in an outbox"));
        }
        route.newest = route.newest.max(transfer.number);
        if route.pending.insert(transfer.number, (entity, number)).is_some() {
            return Err(DecodeError::Value("a number in an outbox"));
        }
    }
    Ok(())
}

fn restore_queue(version: u8, decoder: &mut Decoder<'_>) -> Result<Queue, DecodeError> {
    let (entity, name, kind) = (decoder.entity()?, decoder.name()?, decoder.kind()?);
    let settings = decoder.settings()?;
    let mut queue = Queue::new(entity, name, kind, settings, decoder.timestamp()?);
    (queue.updated_at, queue.revision) = (decoder.timestamp()?, decoder.number("a revision")?);
    if version > VERSION_BEFORE {
        queue.metadata = decoder.metadata()?;
    }
    for _ in 0..decoder.number("the number of rules")? {
        queue.rules.push(StoredRule { rule: decoder.rule()?, created_at: decoder.timestamp()? });
    }
    queue.next_number = decoder.sequence_number()?;
    if !(SequenceNumber::FIRST..=SEQUENCE_NUMBER_MAX).contains(&queue.next_number) {
        return Err(DecodeError::Value("a sequence number"));
    }
    queue.newest_group = CommitGroupNumber(decoder.number("a group number")?);
    queue.settings.check().map_err(|_| DecodeError::Value("a queue's settings"))?;
    queue.follow_order().map_err(|_| DecodeError::Value("the order of a queue"))?;
    let sessions = restore_sessions(&mut queue, decoder)?;
    for _ in 0..decoder.number("the number of message ids")? {
        let (at, id) = (decoder.timestamp()?, decoder.message_id()?);
        queue.history.restore(at, id, decoder.sequence_number()?);
    }
    if let Some(order) = queue.main.messages.order_mut() {
        order.restore_lanes(decoder)?;
    }
    for sub_queue in SubQueue::ALL {
        restore_messages(&mut queue, sub_queue, &sessions, decoder)?;
    }
    if let Some(order) = queue.main.messages.order_mut() {
        order.restore_tags(decoder)?;
    }
    if SEQUENCE_NUMBER_MAX.0 - queue.next_number.0 < queue.main.messages.scheduled_count() {
        return Err(DecodeError::Value("a sequence number"));
    }
    Ok(queue)
}

fn restore_sessions(queue: &mut Queue, decoder: &mut Decoder<'_>) -> Result<Vec<SessionId>, DecodeError> {
    let mut sessions = Vec::new();
    for _ in 0..decoder.number("the number of sessions")? {
        let (session, state, at) = (decoder.session()?, decoder.optional_state()?, decoder.timestamp()?);
        // A session without a state is there for its messages; it comes with the first of them.
        if state.is_some() {
            queue.main.messages.set_session_state(&session, state, at);
        }
        sessions.push(session);
    }
    Ok(sessions)
}

struct RestoredLock {
    number: SequenceNumber,
    nonce: u64,
    until: Timestamp,
    charged_ms: u32,
}

/// A message as it was read; its session is still a number in the list of sessions.
struct Restored {
    number: SequenceNumber,
    moving: Moving,
    session: Option<u64>,
    lock: Option<RestoredLock>,
    /// The same of its lane.
    lane: Option<u64>,
}

fn restore_messages(
    queue: &mut Queue,
    sub_queue: SubQueue,
    sessions: &[SessionId],
    decoder: &mut Decoder<'_>,
) -> Result<(), DecodeError> {
    let mut last = Last::default();
    let mut newest = CommitGroupNumber::NONE;
    let mut locks = Vec::new();
    let has_order = queue.part(sub_queue).messages.order().is_some();
    for _ in 0..decoder.number("the number of messages")? {
        let Restored { number, mut moving, session, lock, lane } =
            restore_message(&mut last, has_order, decoder)?;
        if !is_possible(sub_queue, &moving) {
            return Err(DecodeError::Value("a message's state"));
        }
        if number >= queue.next_number || queue.sub_queue_of(number).is_some() {
            return Err(DecodeError::Value("a sequence number"));
        }
        if let Some(group) = moving.entry.body.group() {
            let is_out_of_order = group < newest && !moving.entry.is_stray();
            if is_out_of_order || group > queue.newest_group {
                return Err(DecodeError::Value("a body's place"));
            }
            newest = newest.max(if moving.entry.is_stray() { newest } else { group });
        }
        if let Some(session) = session {
            let id = usize::try_from(session).ok().and_then(|index| sessions.get(index));
            let id = id.filter(|_| sub_queue == SubQueue::Main && queue.settings.requires_session);
            let id = id.ok_or(DecodeError::Value("a message's session"))?;
            moving.entry.session = Some(queue.main.messages.open_session_to_keep(id));
        }
        if let Some(order) = queue.part(sub_queue).messages.order() {
            let lane = lane.and_then(|lane| order.restored_lane(lane));
            moving.entry.lane = Some(lane.ok_or(DecodeError::Value("a message's lane"))?);
        }
        locks.extend(lock);
        let misfit = |_| DecodeError::Value("a message");
        queue.part_mut(sub_queue).messages.insert(number, moving).map_err(misfit)?;
    }
    // In the order in which they run out, as they were made: each finds its place without a search.
    locks.sort_by_key(|lock| lock.until);
    if sub_queue == SubQueue::Transfer && !locks.is_empty() {
        return Err(DecodeError::Value("a lock"));
    }
    for RestoredLock { number, nonce, until, charged_ms } in locks {
        let misfit = |_| DecodeError::Value("a lock");
        let messages = &mut queue.part_mut(sub_queue).messages;
        messages.lock(number, nonce, until).map_err(misfit)?;
        if let Some(order) = messages.order_mut() {
            order.restore_work(number.0, charged_ms);
        }
    }
    Ok(())
}

/// Whether a message in such a state can be there. That it is not locked too is seen when it is to be locked.
fn is_possible(sub_queue: SubQueue, Moving { entry, details, .. }: &Moving) -> bool {
    let is_due = details.as_ref().is_some_and(|details| details.due.is_some());
    match entry.state {
        MessageState::Scheduled => sub_queue == SubQueue::Main && is_due,
        MessageState::Delayed => sub_queue != SubQueue::Transfer && is_due,
        MessageState::Deferred => sub_queue != SubQueue::Transfer,
        MessageState::Active => true,
    }
}

fn restore_message(
    last: &mut Last,
    has_order: bool,
    decoder: &mut Decoder<'_>,
) -> Result<Restored, DecodeError> {
    let step = decoder.number("a sequence number")?;
    let number = last.number.checked_add(step).filter(|_| step > 0);
    let number = SequenceNumber(number.ok_or(DecodeError::Value("a sequence number"))?);
    let flags = decoder.number("a message's flags")?;
    if flags >= FLAG_ACTIVATED * 2 {
        return Err(DecodeError::Value("a message's flags"));
    }
    let has = |flag: u64| flags & flag != 0;
    let body = decoder.step(last.body, "a body's place")?;
    let enqueued_at = decoder.step(last.enqueued_at, "a time")?;
    *last = Last { number: number.0, body, enqueued_at };
    let size_bytes = decoder.number32("a body's size")?;
    let mut entry = Entry::new(BodyRef::from_raw(body), size_bytes, Timestamp::from_millis(enqueued_at));
    let count = decoder.number("a delivery count")?;
    entry.delivery_count_low = u16::try_from(count).map_err(|_| DecodeError::Value("a delivery count"))?;
    entry.state = match flags & STATE_MASK {
        0 => MessageState::Active,
        1 => MessageState::Deferred,
        2 => MessageState::Scheduled,
        _ => MessageState::Delayed,
    };
    entry.marks.set(Marks::STRAY, has(FLAG_STRAY));
    entry.marks.set(Marks::POISON, has(FLAG_POISON));
    entry.marks.set(Marks::STARTED, has(FLAG_STARTED));
    entry.marks.set(Marks::ACTIVATED, has(FLAG_ACTIVATED));
    let session = has(FLAG_SESSION).then(|| decoder.number("a message's session")).transpose()?;
    let lock = has(FLAG_LOCKED).then(|| restore_lock(number, has_order, decoder)).transpose()?;
    let lane = has_order.then(|| decoder.number("a message's lane")).transpose()?;
    let patch = if has(FLAG_PATCHED) { decoder.patch()? } else { Patch::default() };
    let details = has(FLAG_DETAILED).then(|| decoder.details().map(Box::new)).transpose()?;
    Ok(Restored { number, moving: Moving { entry, patch, details, session: None }, session, lock, lane })
}

fn restore_lock(
    number: SequenceNumber,
    has_order: bool,
    decoder: &mut Decoder<'_>,
) -> Result<RestoredLock, DecodeError> {
    let (nonce, until) = (decoder.fixed("a lock's nonce")?, decoder.timestamp()?);
    let charged_ms = if has_order { decoder.number32("a cost")? } else { 0 };
    Ok(RestoredLock { number, nonce, until, charged_ms })
}
