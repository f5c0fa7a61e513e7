use peeklock_types::{LockToken, SequenceNumber, SubQueue, Timestamp, limits};

use super::Queue;
use crate::error::Error;
use crate::fact::Fact;
use crate::message::{Message, MessageState, ReceiveMode, check_count};
use crate::outbox::{Outbox, Received};

impl Queue {
    /// Hands out a message that the caller has just found, not locked.
    pub(crate) fn hand_out(
        &mut self,
        now: Timestamp,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        mode: ReceiveMode,
        nonce: u64,
        out: &mut Outbox,
    ) -> Received {
        let entity = self.entity;
        let fact = match mode {
            ReceiveMode::PeekLock => {
                let until = now + self.settings.lock_duration;
                Fact::Locked { entity, sub_queue, sequence_number, nonce, until }
            }
            ReceiveMode::ReceiveAndDelete => Fact::Completed { entity, sub_queue, sequence_number },
        };
        let messages = &self.part(sub_queue).messages;
        let entry = messages.get(sequence_number).expect("the caller has just found it");
        let mut message = messages.view(sequence_number, entry);
        if let Fact::Locked { until, .. } = fact {
            message.locked_until = Some(until);
        }
        self.record(fact, out);
        Received { token: LockToken::new(sequence_number, nonce), message }
    }

    pub(crate) fn receive_deferred(
        &mut self,
        now: Timestamp,
        sub_queue: SubQueue,
        numbers: &[SequenceNumber],
        mode: ReceiveMode,
        nonce: u64,
        out: &mut Outbox,
    ) -> Result<Vec<Received>, Error> {
        check_count(numbers.len())?;
        check_distinct(numbers)?;
        let mut size_bytes = 0;
        for &number in numbers {
            size_bytes += self.check_deferred(sub_queue, number)?;
        }
        if numbers.len() > 1 && size_bytes > limits::ANSWER_SIZE_BYTES_MAX {
            return Err(Error::TooMuch { size_bytes });
        }
        let hand_out = |&number| self.hand_out(now, sub_queue, number, mode, nonce, out);
        Ok(numbers.iter().map(hand_out).collect())
    }

    /// The size of a deferred message that nobody has locked.
    fn check_deferred(&self, sub_queue: SubQueue, sequence_number: SequenceNumber) -> Result<usize, Error> {
        let entry = self.part(sub_queue).messages.get(sequence_number);
        let free = entry.filter(|entry| entry.state == MessageState::Deferred && entry.lock.is_none());
        let missing = || Error::NotFound { path: self.path(sub_queue), sequence_number };
        free.map(|entry| entry.size_bytes as usize).ok_or_else(missing)
    }

    pub(crate) fn peek(&self, sub_queue: SubQueue, from: SequenceNumber, max: usize) -> Vec<Message> {
        let messages = &self.part(sub_queue).messages;
        let found = messages.iter_from(from).take(max.min(limits::BATCH_COUNT_MAX));
        found.map(|(number, entry)| messages.view(number, entry)).collect()
    }
}

fn check_distinct(numbers: &[SequenceNumber]) -> Result<(), Error> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::Repeated { sequence_number: pair[0] }),
        None => Ok(()),
    }
}
