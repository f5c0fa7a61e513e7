//! The timers of a queue: locks expire, messages become due and expire.

use peeklock_types::{SequenceNumber, SubQueue, Timestamp};

use super::Queue;
use super::forward::reason;
use super::receive::check_distinct;
use crate::error::Error;
use crate::fact::Fact;
use crate::message::{MessageState, check_count};
use crate::output::Output;
use crate::patch::Patch;

const REASON_EXPIRED: &str = "TTLExpiredException";
const DESCRIPTION_EXPIRED: &str = "The message expired and was dead lettered.";

impl Queue {
    /// Executes the timers that are due by `now`, in at most `max` steps; returns the number of steps.
    pub(crate) fn tick(
        &mut self,
        now: Timestamp,
        sub_queue: SubQueue,
        max: usize,
        out: &mut Output,
    ) -> usize {
        if sub_queue == SubQueue::Main {
            self.main.messages.wake_order(now);
        }
        for done in 0..max {
            let Some(fact) = self.next_step(now, sub_queue) else { return done };
            self.record_end(now, fact, out);
        }
        max
    }

    fn next_step(&self, now: Timestamp, sub_queue: SubQueue) -> Option<Fact> {
        let messages = &self.part(sub_queue).messages;
        if let Some(number) = messages.next_lock_expired(now) {
            return Some(self.expire_lock(now, sub_queue, number));
        }
        if let Some(number) = messages.next_due(now) {
            return Some(self.come_due(now, sub_queue, number));
        }
        messages.next_expired(now).map(|number| self.expire(sub_queue, number))
    }

    /// Decides the fact for an expired lock of a message or its session: the delivery has failed.
    pub(crate) fn expire_lock(
        &self,
        now: Timestamp,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
    ) -> Fact {
        if self.failed_too_often(sub_queue, sequence_number) {
            return self.give_up(sub_queue, sequence_number, Patch::default());
        }
        let due = self.retry_at(now, sub_queue, sequence_number, None);
        Fact::LockExpired { entity: self.entity, sub_queue, sequence_number, due }
    }

    fn come_due(&self, now: Timestamp, sub_queue: SubQueue, sequence_number: SequenceNumber) -> Fact {
        let entity = self.entity;
        let entry = self.part(sub_queue).messages.get(sequence_number);
        if entry.is_some_and(|entry| entry.state == MessageState::Scheduled) {
            Fact::Activated { entity, sequence_number, new_number: self.next_number, at: now }
        } else {
            Fact::DelayEnded { entity, sub_queue, sequence_number }
        }
    }

    /// Checks that all these messages are scheduled.
    pub(crate) fn check_scheduled(&self, numbers: &[SequenceNumber]) -> Result<(), Error> {
        check_count(numbers.len())?;
        check_distinct(numbers)?;
        for &sequence_number in numbers {
            let entry = self.main.messages.get(sequence_number);
            if entry.is_none_or(|entry| entry.state != MessageState::Scheduled) {
                return Err(Error::NotScheduled { path: self.path(SubQueue::Main), sequence_number });
            }
        }
        Ok(())
    }

    pub(crate) fn cancel_scheduled(
        &mut self,
        numbers: &[SequenceNumber],
        out: &mut Output,
    ) -> Result<(), Error> {
        self.check_scheduled(numbers)?;
        let (entity, sub_queue) = (self.entity, SubQueue::Main);
        for &sequence_number in numbers {
            self.record(Fact::Completed { entity, sub_queue, sequence_number }, out);
        }
        Ok(())
    }

    /// Decides the fact for an unlocked message that has expired.
    pub(crate) fn expire(&self, sub_queue: SubQueue, sequence_number: SequenceNumber) -> Fact {
        let entity = self.entity;
        if !self.settings.dead_letter_on_expiration {
            return Fact::Completed { entity, sub_queue, sequence_number };
        }
        let patch = reason(REASON_EXPIRED, DESCRIPTION_EXPIRED.to_owned());
        Fact::DeadLettered { entity, sub_queue, sequence_number, failed: false, patch }
    }
}
