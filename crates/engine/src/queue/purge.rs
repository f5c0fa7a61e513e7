//! Deletes many messages at once.

use peeklock_types::{SequenceNumber, StoredBody, SubQueue, Timestamp};

use super::{MessageRow, Queue, SessionSlot, standalone};
use crate::engine::FACTS_PER_CALL_MAX;
use crate::fact::Fact;
use crate::message::MessageState;
use crate::output::Output;

impl Queue {
    /// Deletes the first `count_max` messages that were enqueued before `before` and are neither locked nor scheduled.
    /// Returns their number.
    pub(crate) fn purge(
        &mut self,
        now: Timestamp,
        sub_queue: SubQueue,
        before: Timestamp,
        count_max: u64,
        out: &mut Output,
    ) -> u64 {
        let (entity, messages) = (self.entity, &self.part(sub_queue).messages);
        let found = messages.iter_from(SequenceNumber(0)).any(|(_, entry)| is_purged(&entry, before));
        if !found || count_max == 0 {
            return 0;
        }
        let count = messages.count();
        let late = self.late_counts(now);
        self.record(Fact::Purged { entity, sub_queue, before, count_max }, out);
        let still_late = self.late_counts(now);
        if let Some(order) = self.main.messages.order_mut() {
            order.note_late_gone(&late, &still_late);
        }
        count - self.part(sub_queue).messages.count()
    }

    /// Deletes messages of one session in the same way, at most [`FACTS_PER_CALL_MAX`] at a time.
    pub(crate) fn purge_session(
        &mut self,
        now: Timestamp,
        slot: SessionSlot,
        before: Timestamp,
        count_max: u64,
        out: &mut Output,
    ) -> u64 {
        let (entity, sub_queue, messages) = (self.entity, SubQueue::Main, &self.main.messages);
        let count_max = usize::try_from(count_max).unwrap_or(usize::MAX).min(FACTS_PER_CALL_MAX);
        let is_meant =
            |number: &SequenceNumber| messages.get(*number).is_some_and(|entry| is_purged(&entry, before));
        let all = messages.sessions().get(slot).into_iter().flat_map(|session| session.numbers_from(0));
        let numbers: Vec<_> = all.map(SequenceNumber).filter(is_meant).take(count_max).collect();
        for &sequence_number in &numbers {
            self.record_end(now, Fact::Completed { entity, sub_queue, sequence_number }, out);
        }
        numbers.len() as u64
    }

    pub(super) fn apply_purge(
        &mut self,
        sub_queue: SubQueue,
        before: Timestamp,
        count_max: u64,
        freed: &mut Vec<StoredBody>,
    ) {
        let messages = &mut self.part_mut(sub_queue).messages;
        let count_max = usize::try_from(count_max).unwrap_or(usize::MAX);
        let all = messages.iter_from(SequenceNumber(0)).filter(|(_, entry)| is_purged(entry, before));
        let numbers: Vec<_> = all.take(count_max).map(|(number, _)| number).collect();
        for number in numbers {
            if let Ok(moving) = messages.remove(number) {
                freed.extend(standalone(&moving.entry));
            }
        }
    }
}

fn is_purged(entry: &MessageRow, before: Timestamp) -> bool {
    entry.lock.is_none() && entry.state != MessageState::Scheduled && entry.enqueued_at() < before
}
