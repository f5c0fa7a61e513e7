//! The whole durable state as bytes: the same state that the replay of all facts so far gives.
//!
//! The state is tagged (`queues_part`, `stored_queue`, `queue_head` and others in [`peeklock_types::wire::tags`]), with
//! a CRC-32C of all of it at the end. Messages are many, so each is a row:
//!
//! ```text
//! sized: step of the sequence number, state and marks, step of the body, step of enqueued-at, size, lower half of the delivery count,
//!        then fields (`stored_message`)
//! ```
//! The same state gives the same bytes, regardless of its history. Transfers to other shards are reconstructed from the
//! messages.

use std::collections::BTreeMap;

use bytes::Bytes;
use peeklock_types::wire::tags::{
    message_mark, queue_head, queues_part, stored_id, stored_message, stored_queue, stored_session,
};
use peeklock_types::wire::{
    Fields, found_or, put_bytes, put_field, put_fixed, put_large, put_large_field, put_number, put_sized,
    put_step,
};
use peeklock_types::{
    BodyRef, CommitGroupNumber, EntityKind, EntityName, Placement, QueueSettings, SequenceNumber, SessionId,
    ShardId, SubQueue, Timestamp, tagged_fields,
};

use crate::engine::Engine;
use crate::message::{EntityId, MessageState, Metadata};
use crate::patch::Patch;
use crate::queue::{Marks, MessageRow, Messages, Moving, Queue, SEQUENCE_NUMBER_MAX, StoredRule};
use crate::shared::Shared;
use crate::transfers::OUT_NUMBER_MAX;
use crate::wire::{DecodeError, Decoder, Wire};

/// The lowest bits of the marks are the state.
const STATE_MASK: u64 = 3;

const MARKS: [(u64, Marks); 4] = [
    (message_mark::STRAY, Marks::STRAY),
    (message_mark::POISON, Marks::POISON),
    (message_mark::STARTED, Marks::STARTED),
    (message_mark::ACTIVATED, Marks::ACTIVATED),
];

/// A queue without its contents.
struct Head {
    entity: EntityId,
    name: EntityName,
    kind: EntityKind,
    settings: QueueSettings,
    created_at: Timestamp,
    updated_at: Timestamp,
    revision: u64,
    metadata: Metadata,
    rules: Vec<StoredRule>,
    next_number: SequenceNumber,
    newest_group: CommitGroupNumber,
}

tagged_fields! { Head in queue_head {
    ENTITY: entity,
    NAME: name,
    KIND: kind,
    SETTINGS: settings,
    CREATED_AT: created_at,
    UPDATED_AT: updated_at,
    REVISION: revision,
    METADATA: metadata,
    RULES: rules,
    NEXT_NUMBER: next_number,
    NEWEST_GROUP: newest_group,
}}

struct StoredSession {
    id: SessionId,
    state: Option<Bytes>,
    state_set_at: Timestamp,
}

tagged_fields! { StoredSession in stored_session {
    ID: id,
    STATE: state,
    STATE_SET_AT: state_set_at,
}}

impl Engine {
    pub fn snapshot(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put_snapshot(&mut out);
        out
    }

    /// Appends the snapshot to `out`.
    pub fn put_snapshot(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut queues: Vec<_> = self.queues.values().collect();
        queues.sort_unstable_by_key(|queue| queue.entity);
        put_large_field(queues_part::QUEUES, out, |out| {
            queues.into_iter().for_each(|queue| put_large(out, |out| put_queue(queue, out)));
        });
        let sent = self.transfers.routes.iter().map(|(shard, route)| (*shard, route.newest));
        put_field(queues_part::SENT, &sent.collect::<Vec<_>>(), out);
        let arrived = self.transfers.arrived.iter().map(|(shard, number)| (*shard, *number));
        put_field(queues_part::ARRIVED, &arrived.collect::<Vec<_>>(), out);
        put_large_field(queues_part::SHARED, out, |out| self.shared.put(out));
        put_field(queues_part::NEXT_ENTITY, &self.next_entity, out);
        let checksum = crc32c::crc32c(&out[start..]);
        out.extend_from_slice(&checksum.to_le_bytes());
    }

    /// Restores the state of a snapshot, in a broker of this placement.
    pub fn restore(bytes: &[u8], placement: Placement) -> Result<Engine, DecodeError> {
        let (bytes, checksum) = bytes.split_last_chunk().ok_or(DecodeError::Short("a snapshot"))?;
        if crc32c::crc32c(bytes) != u32::from_le_bytes(*checksum) {
            return Err(DecodeError::Checksum);
        }
        let mut engine = Engine::new(placement);
        let mut next_entity = None;
        let mut decoder = Decoder::new(bytes);
        let mut parts = Fields::new(&mut decoder);
        while let Some((tag, part)) = parts.next_field()? {
            match tag {
                queues_part::QUEUES => restore_queues(&mut engine, part)?,
                queues_part::SENT => restore_routes(&mut engine, part)?,
                queues_part::ARRIVED => engine.transfers.arrived = restore_shard_numbers(part)?,
                queues_part::SHARED => engine.shared = Shared::restore(part)?,
                queues_part::NEXT_ENTITY => next_entity = Some(part.whole("the next entity")?),
                _ => return Err(DecodeError::Unknown { of: queues_part::LIST, tag }),
            }
        }
        let next_entity = found_or(next_entity, None, "the next entity")?;
        if next_entity < engine.next_entity {
            return Err(DecodeError::Value("the next entity"));
        }
        engine.next_entity = next_entity;
        Ok(engine)
    }
}

fn put_queue(queue: &Queue, out: &mut Vec<u8>) {
    let head = Head {
        entity: queue.entity,
        name: queue.name.clone(),
        kind: queue.kind,
        settings: queue.settings.clone(),
        created_at: queue.created_at,
        updated_at: queue.updated_at,
        revision: queue.revision,
        metadata: queue.metadata.clone(),
        rules: queue.rules.clone(),
        next_number: queue.next_number,
        newest_group: queue.newest_group,
    };
    put_field(stored_queue::HEAD, &head, out);
    let sessions = put_sessions(queue, out);
    if queue.history.len() > 0 {
        put_large_field(stored_queue::HISTORY, out, |out| put_history(queue, out));
    }
    if let Some(order) = queue.main.messages.order() {
        put_large_field(stored_queue::LANES, out, |out| order.put_lanes(out));
    }
    for sub_queue in SubQueue::ALL {
        let messages = &queue.part(sub_queue).messages;
        if messages.count() > 0 {
            put_large_field(tag_of(sub_queue), out, |out| put_messages(messages, &sessions, out));
        }
    }
    if let Some(order) = queue.main.messages.order() {
        put_large_field(stored_queue::PACE, out, |out| order.put_pace(out));
    }
}

fn tag_of(sub_queue: SubQueue) -> u64 {
    match sub_queue {
        SubQueue::Main => stored_queue::MAIN,
        SubQueue::DeadLetter => stored_queue::DEAD_LETTER,
        SubQueue::Transfer => stored_queue::TRANSFER,
        SubQueue::TransferDeadLetter => stored_queue::TRANSFER_DEAD_LETTER,
    }
}

/// Writes the sessions that have messages or a state, by name, and returns their numbers.
fn put_sessions<'q>(queue: &'q Queue, out: &mut Vec<u8>) -> BTreeMap<&'q SessionId, u64> {
    let sessions = queue.main.messages.sessions();
    let kept = || sessions.iter().filter(|session| session.is_kept());
    if kept().next().is_some() {
        put_large_field(stored_queue::SESSIONS, out, |out| {
            for session in kept() {
                let (id, state) = (session.id.clone(), session.state.clone());
                StoredSession { id, state, state_set_at: session.state_set_at }.put(out);
            }
        });
    }
    kept().map(|session| &session.id).zip(0..).collect()
}

fn put_history(queue: &Queue, out: &mut Vec<u8>) {
    for (at, id, number) in queue.history.iter() {
        put_sized(out, |out| {
            at.put(out);
            number.put(out);
            put_bytes(&id, out);
        });
    }
}

/// The values of the previous message, from which the steps of the next one are computed.
#[derive(Clone, Copy, Default)]
struct Last {
    number: u64,
    body: u64,
    enqueued_at: u64,
}

fn put_messages(messages: &Messages, sessions: &BTreeMap<&SessionId, u64>, out: &mut Vec<u8>) {
    let mut last = Last::default();
    for (number, entry) in messages.iter_from(SequenceNumber(0)) {
        put_sized(out, |out| put_message(messages, sessions, number, &entry, &mut last, out));
    }
}

fn put_message(
    messages: &Messages,
    sessions: &BTreeMap<&SessionId, u64>,
    number: SequenceNumber,
    entry: &MessageRow,
    last: &mut Last,
    out: &mut Vec<u8>,
) {
    let now =
        Last { number: number.0, body: entry.body.to_raw(), enqueued_at: entry.enqueued_at().as_millis() };
    put_number(now.number - last.number, out);
    put_number(marks(entry), out);
    put_step(last.body, now.body, out);
    put_step(last.enqueued_at, now.enqueued_at, out);
    put_number(entry.size_bytes.into(), out);
    put_number(entry.delivery_count_low.into(), out);
    *last = now;
    if let Some(session) = entry.session.and_then(|slot| messages.sessions().get(slot)) {
        let index = sessions.get(&session.id).copied().unwrap_or_default();
        put_field(stored_message::SESSION, &index, out);
    }
    if let Some(lock) = messages.lock_of(entry) {
        put_number(stored_message::LOCK, out);
        put_sized(out, |out| {
            put_fixed(lock.nonce, out);
            lock.until.put(out);
        });
        let work = messages.order().and_then(|order| order.work(number.0));
        let charged_ms = work.map(|work| work.charged_ms).filter(|charged_ms| *charged_ms > 0);
        put_field(stored_message::CHARGED_MS, &charged_ms, out);
    }
    if let Some(lane) = entry.lane.filter(|_| messages.order().is_some()) {
        put_field(stored_message::LANE, &(lane.index() as u64), out);
    }
    if let Some(patch) = messages.patch_of(number).filter(|_| entry.marks.has(Marks::PATCHED)) {
        put_field(stored_message::PATCH, patch, out);
    }
    if let Some(details) = messages.details_of(number).filter(|_| entry.marks.has(Marks::DETAILED)) {
        put_field(stored_message::DETAILS, details, out);
    }
}

fn marks(entry: &MessageRow) -> u64 {
    let state = match entry.state {
        MessageState::Active => 0,
        MessageState::Deferred => 1,
        MessageState::Scheduled => 2,
        MessageState::Delayed => 3,
    };
    let set = MARKS.into_iter().filter(|(_, mark)| match *mark {
        Marks::STRAY => entry.is_stray(),
        mark => entry.marks.has(mark),
    });
    set.fold(state, |marks, (bit, _)| marks | bit)
}

fn restore_queues(engine: &mut Engine, mut bytes: Decoder<'_>) -> Result<(), DecodeError> {
    while !bytes.is_empty() {
        let queue = restore_queue(bytes.sized("a queue")?)?;
        let (entity, rules) = (queue.entity, queue.rules.clone());
        engine.insert_queue(queue).map_err(|_| DecodeError::Value("a queue"))?;
        rules
            .iter()
            .try_for_each(|stored| engine.compile(entity, &stored.rule))
            .map_err(|_| DecodeError::Value("a rule"))?;
        restore_transfers(engine, entity)?;
        engine.note(entity);
    }
    Ok(())
}

fn restore_routes(engine: &mut Engine, bytes: Decoder<'_>) -> Result<(), DecodeError> {
    for (shard, newest) in restore_shard_numbers(bytes)? {
        let route = engine.transfers.routes.entry(shard).or_default();
        if route.newest > newest {
            return Err(DecodeError::Value("a number in an outbox"));
        }
        route.newest = newest;
    }
    Ok(())
}

fn restore_shard_numbers(bytes: Decoder<'_>) -> Result<BTreeMap<ShardId, u64>, DecodeError> {
    let numbers: Vec<(ShardId, u64)> = bytes.whole("a number in an outbox")?;
    if numbers.iter().any(|(_, number)| *number > OUT_NUMBER_MAX) {
        return Err(DecodeError::Value("a number in an outbox"));
    }
    Ok(numbers.into_iter().collect())
}

/// Adds the messages of a queue that are in transit to other shards to their routes.
fn restore_transfers(engine: &mut Engine, entity: EntityId) -> Result<(), DecodeError> {
    let Some(queue) = engine.queues.get(&entity) else { return Ok(()) };
    let messages = &queue.transfer.messages;
    for (number, _) in messages.iter_from(SequenceNumber(0)) {
        let transfer = messages.details_of(number).and_then(|details| details.transfer.as_ref());
        let transfer = transfer.ok_or(DecodeError::Value("a transfer"))?;
        let shard = engine.transfers.placement.of(&transfer.target);
        let route = engine.transfers.routes.entry(shard).or_default();
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

fn restore_queue(mut bytes: Decoder<'_>) -> Result<Queue, DecodeError> {
    let mut parts = Fields::new(&mut bytes);
    let (mut queue, sessions) = match parts.next_field()? {
        Some((stored_queue::HEAD, head)) => (restore_head(head.whole("a queue")?)?, &mut Vec::new()),
        _ => return Err(DecodeError::Missing("the head of a queue")),
    };
    let mut has_pace = false;
    while let Some((tag, part)) = parts.next_field()? {
        let sub_queue = SubQueue::ALL.into_iter().find(|sub_queue| tag_of(*sub_queue) == tag);
        match (tag, sub_queue) {
            (_, Some(sub_queue)) => restore_messages(&mut queue, sub_queue, sessions, part)?,
            (stored_queue::SESSIONS, _) => *sessions = restore_sessions(&mut queue, part)?,
            (stored_queue::HISTORY, _) => restore_history(&mut queue, part)?,
            (stored_queue::LANES, _) => order_of(&mut queue)?.restore_lanes(part)?,
            (stored_queue::PACE, _) => {
                order_of(&mut queue)?.restore_pace(part)?;
                has_pace = true;
            }
            _ => return Err(DecodeError::Unknown { of: stored_queue::LIST, tag }),
        }
    }
    if has_pace != queue.main.messages.order().is_some() {
        return Err(DecodeError::Missing("the pace of an order"));
    }
    if SEQUENCE_NUMBER_MAX.0 - queue.next_number.0 < queue.main.messages.scheduled_count() {
        return Err(DecodeError::Value("a sequence number"));
    }
    Ok(queue)
}

fn order_of(queue: &mut Queue) -> Result<&mut crate::order::Order, DecodeError> {
    queue.main.messages.order_mut().ok_or(DecodeError::Value("the order of a queue"))
}

fn restore_head(head: Head) -> Result<Queue, DecodeError> {
    let mut queue = Queue::new(head.entity, head.name, head.kind, head.settings, head.created_at);
    (queue.updated_at, queue.revision) = (head.updated_at, head.revision);
    (queue.metadata, queue.rules) = (head.metadata, head.rules);
    (queue.next_number, queue.newest_group) = (head.next_number, head.newest_group);
    if !(SequenceNumber::FIRST..=SEQUENCE_NUMBER_MAX).contains(&queue.next_number) {
        return Err(DecodeError::Value("a sequence number"));
    }
    queue.settings.check().map_err(|_| DecodeError::Value("a queue's settings"))?;
    queue.follow_order().map_err(|_| DecodeError::Value("the order of a queue"))?;
    Ok(queue)
}

fn restore_history(queue: &mut Queue, mut bytes: Decoder<'_>) -> Result<(), DecodeError> {
    const WHAT: &str = "a message id";
    while !bytes.is_empty() {
        let mut row = bytes.sized(WHAT)?;
        let (at, number) = (row.take(WHAT)?, row.take(WHAT)?);
        let id: Bytes = row.take(WHAT)?;
        row.end_row(stored_id::LIST)?;
        queue.history.restore(at, &id, number);
    }
    Ok(())
}

fn restore_sessions(queue: &mut Queue, mut bytes: Decoder<'_>) -> Result<Vec<SessionId>, DecodeError> {
    let mut sessions = Vec::new();
    while !bytes.is_empty() {
        let StoredSession { id, state, state_set_at } = bytes.take("a session")?;
        // A session without a state exists for its messages; the first of them creates it.
        if state.is_some() {
            queue.main.messages.set_session_state(&id, state, state_set_at);
        }
        sessions.push(id);
    }
    Ok(sessions)
}

struct RestoredLock {
    number: SequenceNumber,
    nonce: u64,
    until: Timestamp,
    charged_ms: u32,
}

/// A decoded message, whose session is still a number in the list of sessions.
struct Restored {
    number: SequenceNumber,
    moving: Moving,
    session: Option<u64>,
    lock: Option<RestoredLock>,
    /// The lane of the message, as a number in the list of lanes.
    lane: Option<u64>,
}

fn restore_messages(
    queue: &mut Queue,
    sub_queue: SubQueue,
    sessions: &[SessionId],
    mut bytes: Decoder<'_>,
) -> Result<(), DecodeError> {
    let mut last = Last::default();
    let mut newest = CommitGroupNumber::NONE;
    let mut locks = Vec::new();
    let has_order = queue.part(sub_queue).messages.order().is_some();
    while !bytes.is_empty() {
        let Restored { number, mut moving, session, lock, lane } =
            restore_message(&mut last, bytes.sized("a message")?)?;
        if lane.is_some() != has_order {
            return Err(DecodeError::Value("a message's lane"));
        }
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
    // Locks are inserted in the order of expiry, so that each finds its place without a search.
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

/// Returns whether the sub-queue can contain a message in such a state. A lock on it is checked when it is applied.
fn is_possible(sub_queue: SubQueue, Moving { entry, details, .. }: &Moving) -> bool {
    let is_due = details.as_ref().is_some_and(|details| details.due.is_some());
    match entry.state {
        MessageState::Scheduled => sub_queue == SubQueue::Main && is_due,
        MessageState::Delayed => sub_queue != SubQueue::Transfer && is_due,
        MessageState::Deferred => sub_queue != SubQueue::Transfer,
        MessageState::Active => true,
    }
}

fn restore_message(last: &mut Last, mut row: Decoder<'_>) -> Result<Restored, DecodeError> {
    let step = row.number("a sequence number")?;
    let number = last.number.checked_add(step).filter(|_| step > 0);
    let number = SequenceNumber(number.ok_or(DecodeError::Value("a sequence number"))?);
    let marks = row.number("a message's marks")?;
    let body = row.step(last.body, "a body's place")?;
    let enqueued_at = row.step(last.enqueued_at, "a time")?;
    *last = Last { number: number.0, body, enqueued_at };
    let size_bytes = row.number32("a body's size")?;
    let mut entry = MessageRow::new(BodyRef::from_raw(body), size_bytes, Timestamp::from_millis(enqueued_at));
    entry.delivery_count_low = row.take("a delivery count")?;
    restore_marks(&mut entry, marks)?;
    let (mut session, mut lock, mut lane) = (None, None, None);
    let (mut patch, mut details) = (Patch::default(), None);
    let mut fields = Fields::new(&mut row);
    while let Some((tag, value)) = fields.next_field()? {
        match tag {
            stored_message::SESSION => session = Some(value.whole("a message's session")?),
            stored_message::LOCK => lock = Some(restore_lock(number, value)?),
            stored_message::CHARGED_MS => {
                let lock = lock.as_mut().ok_or(DecodeError::Value("a cost"))?;
                lock.charged_ms = value.whole("a cost")?;
            }
            stored_message::LANE => lane = Some(value.whole("a message's lane")?),
            stored_message::PATCH => patch = value.whole("a patch")?,
            stored_message::DETAILS => details = Some(value.whole("a message's details")?),
            _ => return Err(DecodeError::Unknown { of: stored_message::LIST, tag }),
        }
    }
    Ok(Restored { number, moving: Moving { entry, patch, details, session: None }, session, lock, lane })
}

fn restore_marks(entry: &mut MessageRow, marks: u64) -> Result<(), DecodeError> {
    entry.state = match marks & STATE_MASK {
        0 => MessageState::Active,
        1 => MessageState::Deferred,
        2 => MessageState::Scheduled,
        _ => MessageState::Delayed,
    };
    let known = MARKS.into_iter().fold(STATE_MASK, |known, (bit, _)| known | bit);
    if marks & !known != 0 {
        return Err(DecodeError::Unknown { of: message_mark::LIST, tag: marks & !known });
    }
    MARKS.into_iter().for_each(|(bit, mark)| entry.marks.set(mark, marks & bit != 0));
    Ok(())
}

fn restore_lock(number: SequenceNumber, mut value: Decoder<'_>) -> Result<RestoredLock, DecodeError> {
    let nonce = value.fixed("a lock's nonce")?;
    Ok(RestoredLock { number, nonce, until: value.whole("the end of a lock")?, charged_ms: 0 })
}
