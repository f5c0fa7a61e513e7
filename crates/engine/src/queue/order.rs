//! A queue with an order: the lanes of its messages, and their measurements.

use peeklock_types::{SequenceNumber, SubQueue, Timestamp};

use super::Queue;
use super::messages::Misfit;
use super::table::Marks;
use crate::error::Error;
use crate::fact::Fact;
use crate::message::{Attributes, NewMessage, ReceiveMode, ReceiverId};
use crate::order::{LaneKey, LaneSlot};
use crate::output::Output;

impl Queue {
    /// Returns the lane of a message with these attributes, in a queue with an order; and whether it specified an
    /// unknown class.
    pub(crate) fn lane_for(&self, attributes: Option<&Attributes>, seed: u64) -> Option<(LaneKey, bool)> {
        let order = self.main.messages.order()?;
        let view = attributes.and_then(|attributes| attributes.view.as_deref()).unwrap_or_default();
        Some(order.classify(view, seed))
    }

    /// Records a message that was just sent.
    pub(crate) fn note_new(
        &mut self,
        now: Timestamp,
        number: SequenceNumber,
        key: &LaneKey,
        is_misfit: bool,
    ) {
        let lane = self.main.messages.get(number).and_then(|entry| entry.lane);
        let Some(order) = self.main.messages.order_mut() else { return };
        order.note_new(now, lane, key, is_misfit);
    }

    /// Stores a message of a sender. Messages from other queues do not count against the send rates.
    pub(crate) fn store_sent(
        &mut self,
        now: Timestamp,
        message: NewMessage,
        out: &mut Output,
    ) -> SequenceNumber {
        let number = self.store(now, message, out);
        let lane = self.main.messages.get(number).and_then(|entry| entry.lane);
        if let Some((order, lane)) = self.main.messages.order_mut().zip(lane) {
            order.take_send(now, lane);
        }
        number
    }

    /// Checks that the send rates permit these messages now. Messages from other queues were checked there.
    pub(crate) fn check_rates(&mut self, now: Timestamp, messages: &[NewMessage]) -> Result<(), Error> {
        let path = || self.path(SubQueue::Main);
        let Some(order) = self.main.messages.order().filter(|order| order.settings.has_send_rates()) else {
            return Ok(());
        };
        let check = |message: &NewMessage| {
            let view = message.attributes.as_ref().and_then(|attributes| attributes.view.as_deref());
            let (key, _) = order.classify(view.unwrap_or_default(), message.seed(now));
            order.check_send(now, &key)
        };
        let Err(over) = messages.iter().try_for_each(check) else { return Ok(()) };
        let error = Error::Throttled { path: path(), what: over.what, retry_after: over.retry_after };
        if let Some(order) = self.main.messages.order_mut() {
            order.note_throttled(messages.len());
        }
        Err(error)
    }

    /// Applies the processing time of a message.
    pub(super) fn charge(&mut self, number: SequenceNumber, cost_ms: u32) -> Result<(), Misfit> {
        let entry = *self.main.messages.get(number).ok_or(Misfit::Missing)?;
        if let Some((order, lane)) = self.main.messages.order_mut().zip(entry.lane) {
            match entry.lock {
                Some(_) => order.correct(lane, number.0, cost_ms),
                None => _ = order.start(lane),
            }
        }
        Ok(())
    }

    /// Records a delivery before it happens. A delivery without a lock is recorded as a fact if it is charged.
    pub(super) fn note_start(
        &mut self,
        now: Timestamp,
        sub_queue: SubQueue,
        number: SequenceNumber,
        mode: ReceiveMode,
        out: &mut Output,
    ) {
        if sub_queue != SubQueue::Main || self.main.messages.order().is_none() {
            return;
        }
        let Some(entry) = self.main.messages.get(number).map(|entry| *entry) else { return };
        let Some((order, lane)) = self.main.messages.order_mut().zip(entry.lane) else { return };
        if !entry.marks.has(Marks::STARTED) {
            order.note_started(now, lane, entry.enqueued_at());
        }
        if mode == ReceiveMode::ReceiveAndDelete {
            order.note_settled(now, lane, entry.enqueued_at());
            if order.charges_starts() {
                self.record(Fact::Charged { entity: self.entity, sequence_number: number, cost_ms: 0 }, out);
            }
        }
    }

    /// Records a delivery after it happened. `holder` is a receiver with a limit of unsettled messages.
    pub(crate) fn note_delivery(
        &mut self,
        now: Timestamp,
        number: SequenceNumber,
        lane: Option<LaneSlot>,
        holder: Option<ReceiverId>,
    ) {
        let Some((order, lane)) = self.main.messages.order_mut().zip(lane) else { return };
        order.take(now, lane);
        order.note_work(number.0, now, holder);
    }

    /// Counts the messages of each class that are late and were never delivered.
    pub(super) fn late_counts(&self, now: Timestamp) -> Vec<u64> {
        let messages = &self.main.messages;
        messages.order().map_or(Vec::new(), |order| order.late_counts(now, &|number| messages.came(number)))
    }

    /// Records a fact that ends the processing or the waiting of a message, with its cost.
    pub(crate) fn record_end(&mut self, now: Timestamp, fact: Fact, out: &mut Output) {
        if self.main.messages.order().is_some() {
            self.note_end(now, &fact, out);
        }
        self.record(fact, out);
    }

    fn note_end(&mut self, now: Timestamp, fact: &Fact, out: &mut Output) {
        let (number, is_done) = match *fact {
            Fact::Completed { sub_queue: SubQueue::Main, sequence_number, .. }
            | Fact::BodyLost { sequence_number, .. }
            | Fact::DeadLettered { sub_queue: SubQueue::Main, sequence_number, .. } => {
                (sequence_number, true)
            }
            Fact::Abandoned { sub_queue: SubQueue::Main, sequence_number, .. }
            | Fact::LockExpired { sub_queue: SubQueue::Main, sequence_number, .. }
            | Fact::Released { sub_queue: SubQueue::Main, sequence_number, .. }
            | Fact::Deferred { sub_queue: SubQueue::Main, sequence_number, .. } => (sequence_number, false),
            _ => return,
        };
        let Some(entry) = self.main.messages.get(number).map(|entry| *entry) else { return };
        // An expired lock does not count as a settlement, even if the message is dead-lettered for it.
        let has_run_out = self.main.messages.lock_of(&entry).is_some_and(|lock| lock.until <= now);
        let Some((order, lane)) = self.main.messages.order_mut().zip(entry.lane) else { return };
        if entry.lock.is_none() {
            if !entry.marks.has(Marks::STARTED) && entry.is_waiting() {
                order.note_unstarted(now, lane, entry.enqueued_at());
            }
            return;
        }
        if is_done {
            order.note_settled(now, lane, entry.enqueued_at());
        }
        if has_run_out || matches!(fact, Fact::Released { .. } | Fact::LockExpired { .. }) {
            order.note_return(number.0);
        }
        let since = order.work(number.0).and_then(|work| work.since).filter(|_| order.charges());
        if let Some(since) = since {
            let cost_ms = u32::try_from(now.since(since).as_millis()).unwrap_or(u32::MAX).max(1);
            self.record(Fact::Charged { entity: self.entity, sequence_number: number, cost_ms }, out);
        }
    }
}
