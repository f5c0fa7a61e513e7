//! The messages of one sub-queue: their states, their locks, and who is next.
//!
//! The changing methods are the steps of which facts are made; only `Queue::apply` calls them.

use std::collections::{BTreeMap, BTreeSet};

use peeklock_types::{BodyPlace, BodyRef, GroupNumber, LockToken, SequenceNumber, Timestamp};

use super::locks::{Lock, Locks};
use super::table::{Entry, Table};
use crate::message::{Message, MessageState};
use crate::outbox::ColdBody;
use crate::patch::{Patch, PatchPart};

#[derive(Debug)]
pub(crate) struct Messages {
    table: Table,
    locks: Locks,
    patches: BTreeMap<u64, Patch>,
    waiting: Waiting,
    deferred_count: u64,
    cold_count: u64,
    size_bytes: u64,
    /// Every message before this number is in a cold segment. Only ever a shortcut: see `oldest_in_log`.
    log_from: u64,
}

/// Which messages wait to be handed out. Every waiting message before `from` is in `returned`; those after it need no index, because the
/// table itself holds them in order.
#[derive(Debug, Default)]
struct Waiting {
    from: u64,
    returned: BTreeSet<u64>,
    count: u64,
}

impl Waiting {
    fn add(&mut self, number: u64) {
        self.count += 1;
        if number < self.from {
            self.returned.insert(number);
        }
    }

    fn remove(&mut self, number: u64) {
        self.count -= 1;
        if number < self.from {
            self.returned.remove(&number);
        }
    }
}

/// A step that does not fit the message's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misfit {
    Missing,
    Present,
    LockedTwice,
    NotLocked,
    OtherBody,
}

/// How a locked message goes on without leaving its sub-queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unlock {
    /// Whether the delivery counts as failed.
    pub(crate) failed: bool,
    /// The new state; `None` keeps the one it has, so a deferred message stays deferred.
    pub(crate) state: Option<MessageState>,
}

impl Messages {
    pub(crate) fn new(table: Table) -> Messages {
        Messages {
            table,
            locks: Locks::default(),
            patches: BTreeMap::new(),
            waiting: Waiting::default(),
            deferred_count: 0,
            cold_count: 0,
            size_bytes: 0,
            log_from: 0,
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.table.len()
    }

    pub(crate) fn deferred_count(&self) -> u64 {
        self.deferred_count
    }

    pub(crate) fn locked_count(&self) -> u64 {
        self.locks.count()
    }

    pub(crate) fn waiting_count(&self) -> u64 {
        self.waiting.count
    }

    pub(crate) fn cold_count(&self) -> u64 {
        self.cold_count
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(crate) fn get(&self, number: SequenceNumber) -> Option<&Entry> {
        self.table.get(number.0)
    }

    pub(crate) fn lock_of(&self, entry: &Entry) -> Option<&Lock> {
        entry.lock.map(|slot| self.locks.get(slot))
    }

    pub(crate) fn patch_of(&self, number: SequenceNumber) -> Option<&Patch> {
        self.patches.get(&number.0)
    }

    /// All messages from `number` on, in order.
    pub(crate) fn iter_from(&self, number: SequenceNumber) -> impl Iterator<Item = (SequenceNumber, &Entry)> {
        self.table.iter_from(number.0).map(|(number, entry)| (SequenceNumber(number), entry))
    }

    /// Whether `token` is the one under which the message is locked now. A lock that has run out is lost, released or not.
    pub(crate) fn is_held(&self, now: Timestamp, token: LockToken) -> bool {
        let entry = self.get(token.sequence_number());
        let lock = entry.and_then(|entry| self.lock_of(entry));
        lock.is_some_and(|lock| lock.nonce == token.nonce() && lock.until > now)
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.locks.first().map(|lock| lock.until)
    }

    /// The message whose lock ran out first, if it ran out by `now`.
    pub(crate) fn next_expired(&self, now: Timestamp) -> Option<SequenceNumber> {
        self.locks.first().filter(|lock| lock.until <= now).map(|lock| lock.sequence_number)
    }

    /// The message to hand out next. It stays where it is until a fact locks or removes it.
    pub(crate) fn next_waiting(&mut self) -> Option<SequenceNumber> {
        if self.waiting.count == 0 {
            return None;
        }
        if let Some(&number) = self.waiting.returned.first() {
            return Some(SequenceNumber(number));
        }
        loop {
            let next = self.table.next_from(self.waiting.from);
            let (number, entry) = next.expect("the count says that one waits, and none has returned");
            if entry.is_waiting() {
                self.waiting.from = number;
                return Some(SequenceNumber(number));
            }
            self.waiting.from = number + 1;
        }
    }

    pub(crate) fn view(&self, sequence_number: SequenceNumber, entry: &Entry) -> Message {
        let patch = if entry.patched { self.patch_of(sequence_number).cloned() } else { None };
        Message {
            sequence_number,
            body: entry.body,
            size_bytes: entry.size_bytes,
            delivery_count: entry.delivery_count,
            enqueued_at: entry.enqueued_at,
            locked_until: self.lock_of(entry).map(|lock| lock.until),
            state: entry.state,
            patch: patch.unwrap_or_default(),
        }
    }

    /// Takes in a message that nobody has locked.
    pub(crate) fn insert(
        &mut self,
        number: SequenceNumber,
        entry: Entry,
        patch: Patch,
    ) -> Result<(), Misfit> {
        let entry = Entry { lock: None, patched: !patch.is_empty(), ..entry };
        if !self.table.insert(number.0, entry) {
            return Err(Misfit::Present);
        }
        self.size_bytes += u64::from(entry.size_bytes);
        self.deferred_count += u64::from(entry.state == MessageState::Deferred);
        if entry.body.is_cold() {
            self.cold_count += 1;
        } else {
            self.log_from = self.log_from.min(number.0);
        }
        if entry.is_waiting() {
            self.waiting.add(number.0);
        }
        if entry.patched {
            self.patches.insert(number.0, patch);
        }
        Ok(())
    }

    /// Takes a message out, locked or not.
    pub(crate) fn remove(&mut self, number: SequenceNumber) -> Result<(Entry, Patch), Misfit> {
        let entry = self.table.remove(number.0).ok_or(Misfit::Missing)?;
        self.size_bytes -= u64::from(entry.size_bytes);
        self.deferred_count -= u64::from(entry.state == MessageState::Deferred);
        self.cold_count -= u64::from(entry.body.is_cold());
        if entry.is_waiting() {
            self.waiting.remove(number.0);
        }
        if let Some(slot) = entry.lock {
            self.locks.remove(slot);
        }
        let patch = if entry.patched { self.patches.remove(&number.0) } else { None };
        Ok((entry, patch.unwrap_or_default()))
    }

    pub(crate) fn lock(
        &mut self,
        number: SequenceNumber,
        nonce: u64,
        until: Timestamp,
    ) -> Result<(), Misfit> {
        let entry = self.table.get_mut(number.0).ok_or(Misfit::Missing)?;
        if entry.lock.is_some() {
            return Err(Misfit::LockedTwice);
        }
        if entry.is_waiting() {
            self.waiting.remove(number.0);
        }
        entry.lock = Some(self.locks.add(number, nonce, until));
        Ok(())
    }

    pub(crate) fn renew(&mut self, number: SequenceNumber, until: Timestamp) -> Result<(), Misfit> {
        let entry = self.table.get(number.0).ok_or(Misfit::Missing)?;
        let slot = entry.lock.ok_or(Misfit::NotLocked)?;
        self.locks.renew(slot, until);
        Ok(())
    }

    pub(crate) fn unlock(&mut self, number: SequenceNumber, how: Unlock) -> Result<(), Misfit> {
        let entry = self.table.get_mut(number.0).ok_or(Misfit::Missing)?;
        let slot = entry.lock.take().ok_or(Misfit::NotLocked)?;
        self.locks.remove(slot);
        if how.failed {
            entry.delivery_count = entry.delivery_count.saturating_add(1);
        }
        self.deferred_count -= u64::from(entry.state == MessageState::Deferred);
        entry.state = how.state.unwrap_or(entry.state);
        self.deferred_count += u64::from(entry.state == MessageState::Deferred);
        if entry.is_waiting() {
            self.waiting.add(number.0);
        }
        Ok(())
    }

    pub(crate) fn add_patch(&mut self, number: SequenceNumber, part: PatchPart) -> Result<(), Misfit> {
        let entry = self.table.get_mut(number.0).ok_or(Misfit::Missing)?;
        entry.patched = true;
        self.patches.entry(number.0).or_default().add(part);
        Ok(())
    }

    /// Says that the body now lies in a cold segment; returns the message's old body if that was in one too.
    pub(crate) fn move_body(
        &mut self,
        number: SequenceNumber,
        from: BodyRef,
        to: BodyRef,
    ) -> Result<Option<ColdBody>, Misfit> {
        let entry = self.table.get_mut(number.0).ok_or(Misfit::Missing)?;
        // Bodies in the log lie in the order of sequence numbers, and `oldest_in_log` rests on it: nothing moves back into the log.
        if entry.body != from || !to.is_cold() {
            return Err(Misfit::OtherBody);
        }
        entry.body = to;
        let freed = from.is_cold().then_some(ColdBody { place: from, size_bytes: entry.size_bytes });
        self.cold_count += u64::from(freed.is_none());
        Ok(freed)
    }

    /// The first message whose body is still in the log, and that body's group. The walk goes over each moved message once.
    pub(crate) fn oldest_in_log(&mut self) -> Option<(SequenceNumber, GroupNumber)> {
        loop {
            let Some((number, entry)) = self.table.next_from(self.log_from) else {
                // Nothing is left to walk over again; whatever comes in late lowers the mark.
                self.log_from = u64::MAX;
                return None;
            };
            self.log_from = number;
            match entry.body.place() {
                BodyPlace::Log { group, .. } => return Some((SequenceNumber(number), group)),
                BodyPlace::Cold { .. } => self.log_from = number + 1,
            }
        }
    }
}
