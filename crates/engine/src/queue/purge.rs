//! Deleting many messages at once, as one fact.

use peeklock_types::{SequenceNumber, SubQueue, Timestamp};

use super::{Entry, Queue, cold};
use crate::fact::Fact;
use crate::message::MessageState;
use crate::outbox::{ColdBody, Outbox};

impl Queue {
    /// Deletes the first `count_max` messages that came before `before`, that nobody holds and that are not scheduled. Tells how many.
    pub(crate) fn purge(
        &mut self,
        now: Timestamp,
        sub_queue: SubQueue,
        before: Timestamp,
        count_max: u64,
        out: &mut Outbox,
    ) -> u64 {
        let (entity, messages) = (self.entity, &self.part(sub_queue).messages);
        let found = messages.iter_from(SequenceNumber(0)).any(|(_, entry)| is_purged(entry, before));
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

    pub(super) fn apply_purge(
        &mut self,
        sub_queue: SubQueue,
        before: Timestamp,
        count_max: u64,
        freed: &mut Vec<ColdBody>,
    ) {
        let messages = &mut self.part_mut(sub_queue).messages;
        let count_max = usize::try_from(count_max).unwrap_or(usize::MAX);
        let all = messages.iter_from(SequenceNumber(0)).filter(|(_, entry)| is_purged(entry, before));
        let numbers: Vec<_> = all.take(count_max).map(|(number, _)| number).collect();
        for number in numbers {
            if let Ok(moving) = messages.remove(number) {
                freed.extend(cold(&moving.entry));
            }
        }
    }
}

fn is_purged(entry: &Entry, before: Timestamp) -> bool {
    entry.lock.is_none() && entry.state != MessageState::Scheduled && entry.enqueued_at() < before
}
