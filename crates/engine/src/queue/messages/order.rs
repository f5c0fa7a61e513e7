//! The messages of a queue that has an order.

use peeklock_types::{OrderSettings, SequenceNumber, Timestamp};

use super::super::locks::LockSlot;
use super::super::table::{Marks, MessageRow, Table};
use super::{Messages, SessionSlot, Waiting};
use crate::error::Error;
use crate::order::{LaneKey, LaneSlot, Order, Pick};

/// Returns the time at which a message was enqueued.
pub(super) fn came(table: &Table, number: u64) -> Timestamp {
    table.get(number).map_or(Timestamp::ZERO, |entry| entry.enqueued_at())
}

impl Messages {
    pub(crate) fn order(&self) -> Option<&Order> {
        self.order.as_deref()
    }

    pub(crate) fn order_mut(&mut self) -> Option<&mut Order> {
        self.order.as_deref_mut()
    }

    /// Sets or removes the order. It applies at once to all waiting messages; without a previous order, they are in the
    /// default class.
    pub(crate) fn set_order(
        &mut self,
        settings: Option<&OrderSettings>,
        has_sessions: bool,
    ) -> Result<(), Error> {
        match (settings, &mut self.order) {
            (Some(settings), Some(order)) => order.change(settings.clone())?,
            (Some(settings), None) => {
                self.order = Some(Box::new(Order::new(settings.clone(), has_sessions)?));
                self.enter_all();
            }
            (None, Some(order)) => {
                self.waiting = Waiting::of(if has_sessions { 0 } else { order.waiting_count() });
                self.order = None;
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// Puts every message into the lane of messages without a classification.
    fn enter_all(&mut self) {
        let Some(order) = &mut self.order else { return };
        let numbers: Vec<u64> = self.table.iter_from(0).map(|(number, _)| number).collect();
        if numbers.is_empty() {
            // A snapshot restores its lanes into an order without lanes.
            return;
        }
        let lane = order.open(&order.default_key());
        for number in numbers {
            let Some(entry) = self.table.get_mut(number) else { continue };
            entry.lane = Some(lane);
            entry.marks.set(Marks::STARTED, entry.marks.has(Marks::STARTED) || entry.lock.is_some());
            order.join(lane);
            if entry.is_waiting() {
                order.add_waiting(lane, number, !entry.marks.has(Marks::STARTED));
            } else if entry.lock.is_some() {
                order.lock(lane, number, false);
            }
        }
        if self.sessions.slots().next().is_none() {
            return;
        }
        self.sessions.forget_listed();
        let slots: Vec<_> = self.sessions.slots().collect();
        slots.into_iter().for_each(|slot| self.refresh(Some(slot)));
    }

    /// Assigns the message to its lane. Does nothing without an order.
    pub(crate) fn enter(&mut self, entry: &mut MessageRow, key: Option<&LaneKey>) {
        entry.lane = self.order.as_mut().map(|order| match key {
            Some(key) => order.open(key),
            None => order.open(&order.default_key()),
        });
    }

    pub(super) fn remove_lock(&mut self, number: SequenceNumber, slot: LockSlot, lane: Option<LaneSlot>) {
        self.locks.remove(slot);
        if let Some((order, lane)) = self.order.as_mut().zip(lane) {
            order.unlock(lane, number.0);
        }
    }

    /// Returns the next available session.
    pub(crate) fn next_session(&mut self, now: Timestamp) -> Option<SessionSlot> {
        let Some(order) = &mut self.order else { return self.sessions.next_available() };
        let table = &self.table;
        match order.pick(now, |number| came(table, number)) {
            Pick::Message(_, lane) => order.first_session(lane),
            Pick::HeldUp | Pick::Nothing => None,
        }
    }

    /// Resumes the sessions that rates have held up until now.
    pub(crate) fn wake_order(&mut self, now: Timestamp) {
        let Some(order) = &mut self.order else { return };
        for session in order.wake(now) {
            self.sessions.go_on(session);
        }
    }

    /// Returns whether a rate holds up the first message of a session. If so, the holder waits until the rate permits
    /// the message.
    pub(crate) fn hold_up(&mut self, now: Timestamp, session: SessionSlot, number: SequenceNumber) -> bool {
        let lane = self.get(number).and_then(|entry| entry.lane);
        let Some((order, lane)) = self.order.as_mut().zip(lane) else { return false };
        let until = order.start_at(now, lane);
        if let Some(until) = until {
            order.hold_session_up(session, until);
        }
        until.is_some()
    }

    /// Returns whether a rate prevents the delivery of the message now.
    pub(crate) fn is_held_up(&self, now: Timestamp, number: SequenceNumber) -> bool {
        let lane = self.get(number).and_then(|entry| entry.lane);
        self.order.as_ref().zip(lane).is_some_and(|(order, lane)| order.start_at(now, lane).is_some())
    }

    pub(crate) fn sample_order(&mut self, now: Timestamp) {
        let table = &self.table;
        if let Some(order) = &mut self.order {
            order.sample(now, &|number| came_or_after(table, number));
        }
    }

    /// Returns the time at which the message with this number was enqueued; if the message is gone, that of the next
    /// message.
    pub(crate) fn came(&self, number: u64) -> Timestamp {
        came_or_after(&self.table, number)
    }
}

fn came_or_after(table: &Table, number: u64) -> Timestamp {
    table.next_from(number).map_or(Timestamp::MAX, |(_, entry)| entry.enqueued_at())
}
