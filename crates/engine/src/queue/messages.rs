//! The messages of one sub-queue: their states, their locks, and the next one to deliver.
//!
//! The methods that change messages are the steps of facts; only `Queue::apply` calls them.

mod bodies;
mod order;
mod receipt;
mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use peeklock_types::{CommitGroupNumber, LockToken, SequenceNumber, SessionId, StoredBody, Timestamp};

use self::order::came;
use self::tally::Tally;
use super::locks::{Lock, Locks};
use super::sessions::{Holder, LazySessions, Look, SessionSlot, Sessions};
use super::standalone;
use super::table::{Marks, MessageRow, Row, Table};
use super::waiting::Waiting;
use crate::message::{Details, Message, MessageState};
use crate::order::{Order, Pick};
use crate::patch::{Patch, PatchPart};

#[derive(Debug)]
pub(crate) struct Messages {
    table: Table,
    locks: Locks,
    patches: BTreeMap<u64, Patch>,
    details: BTreeMap<u64, Box<Details>>,
    waiting: Waiting,
    /// The order of the queue, if it has one. It replaces `waiting`.
    order: Option<Box<Order>>,
    sessions: LazySessions,
    /// The times at which scheduled and delayed messages are due.
    due: BTreeSet<(Timestamp, u64)>,
    /// The times at which unlocked messages expire.
    expiry: BTreeSet<(Timestamp, u64)>,
    /// Whether messages expire in this sub-queue: dead letters do not.
    expires: bool,
    tally: Tally,
    /// Bodies in the log that are out of order.
    strays: BTreeSet<(CommitGroupNumber, u64)>,
    /// The body of every message before this number is standalone or a stray. The number only shortens the
    /// search, see `oldest_in_log`.
    log_from: u64,
}

/// A step that does not fit the message's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    Missing,
    Present,
    LockedTwice,
    NotLocked,
    OtherBody,
    OtherState,
}

/// The change of a locked message that stays in its sub-queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unlock {
    /// Whether the delivery counts.
    pub(crate) counts: bool,
    /// The new state; `None` keeps the current one, so a deferred message stays deferred.
    pub(crate) state: Option<MessageState>,
    /// The earliest next delivery.
    pub(crate) due: Option<Timestamp>,
    /// From this number of failed deliveries on, the session of the message is set aside.
    pub(crate) poison_from: Option<u32>,
    /// The expiry of the lock, if it is needed later.
    pub(crate) was_locked_until: Option<Timestamp>,
}

/// A message that is moved into a sub-queue or out of one.
#[derive(Clone, Debug)]
pub(crate) struct Moving {
    pub(crate) entry: MessageRow,
    pub(crate) patch: Patch,
    pub(crate) details: Option<Box<Details>>,
    /// The session to which the message belonged.
    pub(crate) session: Option<SessionId>,
}

impl Moving {
    /// Counts one more failed delivery.
    pub(crate) fn count_failure(&mut self) {
        if self.entry.count_failure() {
            let details = self.details.get_or_insert_default();
            details.delivery_count_high = details.delivery_count_high.saturating_add(1);
        }
    }
}

fn delivery_count(entry: &MessageRow, details: Option<&Details>) -> u32 {
    let high = details.map_or(0, |details| details.delivery_count_high);
    u32::from(high) << 16 | u32::from(entry.delivery_count_low)
}

impl Messages {
    pub(crate) fn new(table: Table, expires: bool) -> Messages {
        Messages {
            table,
            locks: Locks::default(),
            patches: BTreeMap::new(),
            details: BTreeMap::new(),
            waiting: Waiting::default(),
            order: None,
            sessions: LazySessions::default(),
            due: BTreeSet::new(),
            expiry: BTreeSet::new(),
            expires,
            tally: Tally::default(),
            strays: BTreeSet::new(),
            log_from: 0,
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.table.len()
    }

    pub(crate) fn deferred_count(&self) -> u64 {
        self.tally.deferred
    }

    pub(crate) fn scheduled_count(&self) -> u64 {
        self.tally.scheduled
    }

    pub(crate) fn locked_count(&self) -> u64 {
        self.locks.count()
    }

    /// Returns the number of messages that wait outside of sessions.
    pub(crate) fn waiting_count(&self) -> u64 {
        self.order.as_ref().map_or_else(|| self.waiting.count(), |order| order.waiting_count())
    }

    /// Returns whether a message can be delivered now, as far as is known.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        match &self.order {
            None => self.waiting.count() > 0,
            Some(order) => order.has_ready(),
        }
    }

    /// Returns whether there is a message for a holder of a session, or a session for a receiver that waits for one.
    pub(crate) fn has_session_work(&self) -> bool {
        let is_blocked = self.order.as_ref().is_some_and(|order| order.is_blocked());
        self.sessions.has_work(is_blocked)
    }

    pub(crate) fn standalone_count(&self) -> u64 {
        self.tally.standalone
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.tally.size_bytes
    }

    #[inline]
    pub(crate) fn get(&self, number: SequenceNumber) -> Option<Row<'_>> {
        self.table.get(number.0)
    }

    #[inline]
    pub(crate) fn lock_of(&self, entry: &MessageRow) -> Option<&Lock> {
        entry.lock.map(|slot| self.locks.get(slot))
    }

    pub(crate) fn patch_of(&self, number: SequenceNumber) -> Option<&Patch> {
        self.patches.get(&number.0)
    }

    pub(crate) fn details_of(&self, number: SequenceNumber) -> Option<&Details> {
        self.details.get(&number.0).map(Box::as_ref)
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Returns all messages from `number` on, in order.
    pub(crate) fn iter_from(
        &self,
        number: SequenceNumber,
    ) -> impl Iterator<Item = (SequenceNumber, Row<'_>)> {
        self.table.iter_from(number.0).map(|(number, entry)| (SequenceNumber(number), entry))
    }

    /// Returns whether the message is locked under `token` now. An expired lock is lost, whether it was released yet or
    /// not.
    #[inline]
    pub(crate) fn is_held(&self, now: Timestamp, token: LockToken) -> bool {
        let Some(entry) = self.table.get_locked(token.sequence_number().0) else { return false };
        let is_locked =
            self.lock_of(entry).is_some_and(|lock| lock.nonce == token.nonce() && lock.until > now);
        is_locked
            && entry.session.is_none_or(|slot| self.holder(slot).is_some_and(|holder| holder.until > now))
    }

    pub(crate) fn holder(&self, slot: SessionSlot) -> Option<Holder> {
        self.sessions.get(slot).and_then(|session| session.holder())
    }

    /// Returns the time of the next timer of this sub-queue.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        let mut next = self.locks.first().map_or(Timestamp::MAX, |lock| lock.until);
        if let Some(&(at, _)) = self.due.first() {
            next = next.min(at);
        }
        if let Some(&(at, _)) = self.expiry.first() {
            next = next.min(at);
        }
        if let Some(at) = self.sessions.next_deadline() {
            next = next.min(at);
        }
        if let Some(at) = self.order.as_ref().and_then(|order| order.wakes_at()) {
            next = next.min(at);
        }
        // Locks of messages in sessions have the maximum time, because they never expire by themselves.
        (next != Timestamp::MAX).then_some(next)
    }

    /// Returns the message whose lock expired first, if it expired by `now`.
    pub(crate) fn next_lock_expired(&self, now: Timestamp) -> Option<SequenceNumber> {
        self.locks.first().filter(|lock| lock.until <= now).map(|lock| lock.sequence_number)
    }

    /// Returns the messages whose own locks last beyond `limit`, with their expiry.
    pub(crate) fn locked_beyond(
        &self,
        limit: Timestamp,
    ) -> impl Iterator<Item = (SequenceNumber, Timestamp)> {
        let beyond = self.locks.iter().filter(move |lock| lock.until > limit && lock.until != Timestamp::MAX);
        beyond.map(|lock| (lock.sequence_number, lock.until))
    }

    /// Moves what ends after `before` and is not durable, because the clock has stepped by `by`.
    pub(crate) fn follow_step(&mut self, before: Timestamp, by: Duration) {
        if let Some(sessions) = self.sessions.if_any() {
            sessions.follow_step(before, by);
        }
        if let Some(order) = &mut self.order {
            order.follow_step(by);
        }
    }

    /// Returns the scheduled or delayed message that is due first, if it is due by `now`.
    pub(crate) fn next_due(&self, now: Timestamp) -> Option<SequenceNumber> {
        self.due.first().filter(|&&(at, _)| at <= now).map(|&(_, number)| SequenceNumber(number))
    }

    /// Returns the message that expired first, if it expired by `now`.
    pub(crate) fn next_expired(&self, now: Timestamp) -> Option<SequenceNumber> {
        self.expiry.first().filter(|&&(at, _)| at <= now).map(|&(_, number)| SequenceNumber(number))
    }

    /// Returns whether an unlocked message has expired.
    #[inline]
    pub(crate) fn has_expired(&self, now: Timestamp, number: SequenceNumber) -> bool {
        if self.expiry.is_empty() {
            return false;
        }
        let entry = self.get(number).filter(|entry| entry.lock.is_none());
        entry.and_then(|entry| self.timers(number, &entry).1).is_some_and(|at| at <= now)
    }

    /// Returns the message to deliver next. It stays in its place until a fact locks or removes it.
    #[inline]
    pub(crate) fn next_waiting(&mut self, now: Timestamp) -> Option<SequenceNumber> {
        if self.order.is_some() {
            return self.next_in_order(now);
        }
        let table = &self.table;
        let row = |from| {
            table
                .next_from(from)
                .map(|(number, entry)| (number, entry.is_waiting() && entry.session.is_none()))
        };
        self.waiting.first(row).map(SequenceNumber)
    }

    fn next_in_order(&mut self, now: Timestamp) -> Option<SequenceNumber> {
        let (order, table) = (self.order.as_mut()?, &self.table);
        match order.pick(now, |number| came(table, number)) {
            Pick::Message(number, _) => Some(SequenceNumber(number)),
            Pick::HeldUp | Pick::Nothing => None,
        }
    }

    /// Returns whether there is a message to forward.
    pub(crate) fn can_forward(&self) -> bool {
        self.waiting_count() > 0 || self.sessions.first_available().is_some()
    }

    /// Returns the message to forward next, regardless of rates. Messages of sessions go in the order of each session, and
    /// sessions in turn.
    pub(crate) fn next_to_forward(&mut self) -> Option<SequenceNumber> {
        if let Some(number) = self.sessions.first_available() {
            return Some(SequenceNumber(number));
        }
        let table = &self.table;
        match &self.order {
            Some(order) => order.pick_any(|number| came(table, number)).map(SequenceNumber),
            None => self.next_waiting(Timestamp::ZERO),
        }
    }

    #[inline]
    pub(crate) fn view(&self, sequence_number: SequenceNumber, entry: &MessageRow) -> Message {
        let patch =
            if entry.marks.has(Marks::PATCHED) { self.patch_of(sequence_number).cloned() } else { None };
        let details = if entry.marks.has(Marks::DETAILED) {
            self.details.get(&sequence_number.0).cloned()
        } else {
            None
        };
        let lane = self.order.as_ref().zip(entry.lane);
        Message {
            sequence_number,
            class: lane.and_then(|(order, lane)| order.class_of(lane)),
            tenant: lane.and_then(|(order, lane)| order.tenant_of(lane)),
            body: entry.body,
            size_bytes: entry.size_bytes,
            delivery_count: delivery_count(entry, details.as_deref()),
            enqueued_at: entry.enqueued_at(),
            locked_until: self.locked_until(entry),
            state: entry.state,
            is_activated: entry.marks.has(Marks::ACTIVATED),
            patch: patch.unwrap_or_default(),
            details,
        }
    }

    /// Returns the number of counted deliveries of the message.
    pub(crate) fn delivery_count(&self, number: SequenceNumber, entry: &MessageRow) -> u32 {
        let details = self.details_of(number).filter(|_| entry.marks.has(Marks::DETAILED));
        delivery_count(entry, details)
    }

    fn count_failure(&mut self, number: SequenceNumber, entry: &mut MessageRow) {
        if entry.count_failure() {
            let details = self.details.entry(number.0).or_default();
            details.delivery_count_high = details.delivery_count_high.saturating_add(1);
            entry.marks.set(Marks::DETAILED, true);
        }
    }

    pub(crate) fn locked_until(&self, entry: &MessageRow) -> Option<Timestamp> {
        let until = self.lock_of(entry)?.until;
        let session = entry.session.and_then(|slot| self.holder(slot)).map(|holder| holder.until);
        Some(session.unwrap_or(until))
    }

    /// Inserts a new message without details, as most are.
    #[inline]
    pub(crate) fn insert_plain(&mut self, number: SequenceNumber, entry: MessageRow) -> Result<(), Misfit> {
        if !self.table.insert(number.0, entry) {
            return Err(Misfit::Present);
        }
        self.tally.add(&entry);
        self.note_body(number, &entry);
        match self.order.as_mut().zip(entry.lane) {
            Some((order, lane)) => {
                order.join(lane);
                order.add_waiting(lane, number.0, true);
            }
            None => self.waiting.add(number.0),
        }
        Ok(())
    }

    /// Inserts an unlocked message. `entry.session` is a session of this sub-queue.
    pub(crate) fn insert(&mut self, number: SequenceNumber, moving: Moving) -> Result<(), Misfit> {
        let Moving { mut entry, patch, details, .. } = moving;
        let details = details.filter(|details| **details != Details::default());
        entry.lock = None;
        entry.marks.set(Marks::PATCHED, !patch.is_empty());
        entry.marks.set(Marks::DETAILED, details.is_some());
        if !self.table.insert(number.0, entry) {
            return Err(Misfit::Present);
        }
        self.tally.add(&entry);
        self.note_body(number, &entry);
        if entry.marks.has(Marks::PATCHED) {
            self.patches.insert(number.0, patch);
        }
        if let Some(details) = details {
            self.details.insert(number.0, details);
        }
        if let Some((order, lane)) = self.order.as_mut().zip(entry.lane) {
            order.join(lane);
        }
        if let Some(slot) = entry.session {
            self.sessions.add_message(slot, number.0);
            if entry.marks.has(Marks::POISON) {
                self.sessions.add_poison(slot);
            }
        }
        self.arm(number, &entry);
        self.refresh(entry.session);
        Ok(())
    }

    /// Removes a message, locked or not, and returns it.
    pub(crate) fn remove(&mut self, number: SequenceNumber) -> Result<Moving, Misfit> {
        let mut entry = *self.get(number).ok_or(Misfit::Missing)?;
        self.take_out(number, &entry);
        entry.lock = None;
        let patch = if entry.marks.has(Marks::PATCHED) { self.patches.remove(&number.0) } else { None };
        let mut details =
            if entry.marks.has(Marks::DETAILED) { self.details.remove(&number.0) } else { None };
        if let Some(details) = &mut details {
            (details.receipt, details.was_locked_until) = (None, None);
        }
        let slot = entry.session.take();
        let session = slot.and_then(|slot| self.leave_session(slot, number, &entry));
        entry.marks.set(Marks::POISON, false);
        Ok(Moving { entry, patch: patch.unwrap_or_default(), details, session })
    }

    /// Deletes a message. Returns its body if the body is standalone.
    #[inline]
    pub(crate) fn discard(&mut self, number: SequenceNumber) -> Result<Option<StoredBody>, Misfit> {
        let entry = *self.get(number).ok_or(Misfit::Missing)?;
        self.take_out(number, &entry);
        if entry.marks.has(Marks::PATCHED) {
            self.patches.remove(&number.0);
        }
        if entry.marks.has(Marks::DETAILED) {
            self.details.remove(&number.0);
        }
        if let Some(slot) = entry.session {
            self.leave_session(slot, number, &entry);
        }
        Ok(standalone(&entry))
    }

    /// Removes a message from all indexes except its session and its details.
    #[inline]
    fn take_out(&mut self, number: SequenceNumber, entry: &MessageRow) {
        self.table.remove(number.0);
        self.tally.remove(entry);
        match entry.lock {
            Some(slot) => self.remove_lock(number, slot, entry.lane),
            None => self.disarm(number, entry),
        }
        if let Some((order, lane)) = self.order.as_mut().zip(entry.lane) {
            order.leave(lane);
        }
        if entry.is_stray()
            && let Some(group) = entry.body.group()
        {
            self.strays.remove(&(group, number.0));
        }
    }

    fn leave_session(
        &mut self,
        slot: SessionSlot,
        number: SequenceNumber,
        entry: &MessageRow,
    ) -> Option<SessionId> {
        let session = self.sessions.get(slot).map(|session| session.id.clone());
        self.sessions.remove_message(slot, number.0, entry.marks.has(Marks::POISON));
        self.refresh(Some(slot));
        session
    }

    #[inline]
    pub(crate) fn lock(
        &mut self,
        number: SequenceNumber,
        nonce: u64,
        until: Timestamp,
    ) -> Result<(), Misfit> {
        let stored = self.table.get_mut(number.0).ok_or(Misfit::Missing)?;
        if stored.lock.is_some() {
            return Err(Misfit::LockedTwice);
        }
        if matches!(stored.state, MessageState::Scheduled | MessageState::Delayed) {
            return Err(Misfit::OtherState);
        }
        let entry = *stored;
        stored.lock = Some(self.locks.add(number, nonce, until));
        if self.order.is_some() {
            stored.marks.set(Marks::STARTED, true);
        }
        self.disarm(number, &entry);
        if let Some((order, lane)) = self.order.as_mut().zip(entry.lane) {
            order.lock(lane, number.0, entry.state == MessageState::Active);
        }
        if let Some(slot) = entry.session {
            self.sessions.set_locked(slot, number.0, true);
            self.refresh(Some(slot));
        }
        Ok(())
    }

    pub(crate) fn renew(&mut self, number: SequenceNumber, until: Timestamp) -> Result<(), Misfit> {
        let entry = self.get(number).ok_or(Misfit::Missing)?;
        let slot = entry.lock.ok_or(Misfit::NotLocked)?;
        self.locks.renew(slot, until);
        Ok(())
    }

    pub(crate) fn unlock(&mut self, number: SequenceNumber, how: Unlock) -> Result<(), Misfit> {
        let mut entry = *self.get(number).ok_or(Misfit::Missing)?;
        let slot = entry.lock.take().ok_or(Misfit::NotLocked)?;
        self.remove_lock(number, slot, entry.lane);
        self.tally.remove(&entry);
        if how.counts {
            self.count_failure(number, &mut entry);
        }
        entry.state = how.state.unwrap_or(entry.state);
        self.tally.add(&entry);
        let is_poison =
            how.poison_from.is_some_and(|from| how.counts && self.delivery_count(number, &entry) >= from);
        if let Some(slot) = entry.session {
            self.sessions.set_locked(slot, number.0, false);
            if is_poison && !entry.marks.has(Marks::POISON) {
                entry.marks.set(Marks::POISON, true);
                self.sessions.add_poison(slot);
            }
        }
        self.change(number, |stored| *stored = entry)?;
        if how.due.is_some() || how.was_locked_until.is_some() || entry.marks.has(Marks::DETAILED) {
            self.set_times(number, how.due, how.was_locked_until)?;
            entry = *self.get(number).ok_or(Misfit::Missing)?;
        }
        self.arm(number, &entry);
        self.refresh(entry.session);
        Ok(())
    }

    /// Makes a delayed message wait again.
    pub(crate) fn end_delay(&mut self, number: SequenceNumber) -> Result<(), Misfit> {
        let entry = *self.get(number).ok_or(Misfit::Missing)?;
        if entry.state != MessageState::Delayed || entry.lock.is_some() {
            return Err(Misfit::OtherState);
        }
        self.disarm(number, &entry);
        self.change(number, |entry| entry.state = MessageState::Active)?;
        self.set_times(number, None, None)?;
        let entry = *self.get(number).ok_or(Misfit::Missing)?;
        self.arm(number, &entry);
        self.refresh(entry.session);
        Ok(())
    }

    fn change(&mut self, number: SequenceNumber, change: impl FnOnce(&mut MessageRow)) -> Result<(), Misfit> {
        self.table.get_mut(number.0).map(change).ok_or(Misfit::Missing)
    }

    /// Sets the time at which the message is due, and, if specified, the time until which it was locked. The message
    /// must not be armed.
    fn set_times(
        &mut self,
        number: SequenceNumber,
        due: Option<Timestamp>,
        was_locked_until: Option<Timestamp>,
    ) -> Result<(), Misfit> {
        let old = self.details_of(number).map(|details| (details.due, details.was_locked_until));
        let old = old.unwrap_or_default();
        let new = (due, was_locked_until.or(old.1));
        if new == old {
            return Ok(());
        }
        let details = self.details.entry(number.0).or_default();
        (details.due, details.was_locked_until) = new;
        let is_needed = **details != Details::default();
        if !is_needed {
            self.details.remove(&number.0);
        }
        self.change(number, |entry| entry.marks.set(Marks::DETAILED, is_needed))
    }

    pub(crate) fn add_patch(&mut self, number: SequenceNumber, part: PatchPart) -> Result<(), Misfit> {
        self.change(number, |entry| entry.marks.set(Marks::PATCHED, true))?;
        self.patches.entry(number.0).or_default().add(part);
        Ok(())
    }

    /// Adds an unlocked message to the indexes of waiting messages and timers.
    fn arm(&mut self, number: SequenceNumber, entry: &MessageRow) {
        if entry.is_waiting() {
            if let Some(slot) = entry.session {
                self.sessions.add_waiting(slot, number.0);
            }
            match (self.order.as_mut().zip(entry.lane), entry.session) {
                (Some((order, lane)), _) => {
                    order.add_waiting(lane, number.0, !entry.marks.has(Marks::STARTED));
                }
                (None, Some(_)) => {}
                (None, None) => self.waiting.add(number.0),
            }
        }
        let (due, expiry) = self.timers(number, entry);
        self.due.extend(due.map(|at| (at, number.0)));
        self.expiry.extend(expiry.map(|at| (at, number.0)));
    }

    #[inline]
    fn disarm(&mut self, number: SequenceNumber, entry: &MessageRow) {
        if entry.is_waiting() {
            if let Some(slot) = entry.session {
                self.sessions.remove_waiting(slot, number.0);
            }
            match (self.order.as_mut().zip(entry.lane), entry.session) {
                (Some((order, lane)), _) => order.remove_waiting(lane, number.0),
                (None, Some(_)) => {}
                (None, None) => self.waiting.remove(number.0),
            }
        }
        let (due, expiry) = self.timers(number, entry);
        if let Some(at) = due {
            self.due.remove(&(at, number.0));
        }
        if let Some(at) = expiry {
            self.expiry.remove(&(at, number.0));
        }
    }

    /// Returns the times at which an unlocked message is due and expires.
    #[inline]
    fn timers(&self, number: SequenceNumber, entry: &MessageRow) -> (Option<Timestamp>, Option<Timestamp>) {
        if !entry.marks.has(Marks::DETAILED) {
            return (None, None);
        }
        let Some(details) = self.details_of(number) else { return (None, None) };
        let waits_for_time = matches!(entry.state, MessageState::Scheduled | MessageState::Delayed);
        let due = details.due.filter(|_| waits_for_time);
        let counts = self.expires && entry.state != MessageState::Scheduled;
        (due, details.time_to_live.filter(|_| counts).map(|ttl| entry.enqueued_at() + ttl))
    }

    fn refresh(&mut self, slot: Option<SessionSlot>) {
        let Some(slot) = slot else { return };
        let table = &self.table;
        let changed = self.sessions.refresh(slot, |number| {
            let entry = table.get(number);
            Look {
                waits: entry.as_ref().is_some_and(|entry| entry.is_waiting()),
                is_delayed: entry.as_ref().is_some_and(|entry| entry.state == MessageState::Delayed),
                lane: entry.and_then(|entry| entry.lane),
            }
        });
        if let (Some(order), Some((old, new))) = (&mut self.order, changed) {
            if let Some((turn, Some(lane))) = old {
                order.unlist_session(lane, turn, slot);
            }
            if let Some((turn, Some(lane))) = new {
                order.list_session(lane, turn, slot);
            }
        }
    }

    /// Returns the session of this name for a holder, and creates it if necessary; the session is removed again when it
    /// has no holder, message or state.
    pub(crate) fn open_session(&mut self, id: &SessionId) -> SessionSlot {
        self.sessions.open(id)
    }

    /// Like `open_session`, for a message that is about to be inserted.
    pub(crate) fn open_session_to_keep(&mut self, id: &SessionId) -> SessionSlot {
        self.sessions.open_to_keep(id)
    }

    pub(crate) fn set_session_state(&mut self, id: &SessionId, state: Option<Bytes>, at: Timestamp) {
        let slot = self.sessions.open_to_keep(id);
        self.sessions.set_state(slot, state, at);
        self.refresh(Some(slot));
    }

    /// Sets the holder of the session. The holder is volatile, so this is not a step of a fact.
    pub(crate) fn set_holder(&mut self, slot: SessionSlot, holder: Option<Holder>) {
        self.sessions.set_holder(slot, holder);
        self.refresh(Some(slot));
    }

    /// Returns the lists of sessions and of receivers that wait for them.
    pub(crate) fn sessions_mut(&mut self) -> &mut Sessions {
        &mut self.sessions
    }
}
