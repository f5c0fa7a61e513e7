use std::time::Duration;

use peeklock_types::{CommitGroupNumber, LockToken, SequenceNumber, SessionId, SubQueue, Timestamp, limits};

use super::{Queue, SessionSlot};
use crate::error::Error;
use crate::fact::Fact;
use crate::message::{Message, MessageState, ReceiveMode, check_count};
use crate::output::{Output, Received};

/// The longest time from the delivery of a message under receive-and-delete to its removal: a large body is read while its
/// peer receives it. A restart limits the lock to the lock duration.
const REMOVAL_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

impl Queue {
    /// Delivers an unlocked message that the caller has just found.
    #[expect(
        clippy::too_many_arguments,
        reason = "time and nonce are arguments, beside those of the receiver"
    )]
    pub(crate) fn hand_out(
        &mut self,
        now: Timestamp,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        mode: ReceiveMode,
        removes_later: bool,
        nonce: u64,
        out: &mut Output,
    ) -> Received {
        let locks = mode == ReceiveMode::PeekLock || removes_later;
        let fact_mode = if locks { ReceiveMode::PeekLock } else { mode };
        self.note_start(now, sub_queue, sequence_number, fact_mode, out);
        let entity = self.entity;
        let messages = &self.part(sub_queue).messages;
        let entry = messages.get(sequence_number).expect("the caller has just found the message");
        let session = entry.session.and_then(|slot| messages.holder(slot));
        let fact = match fact_mode {
            ReceiveMode::PeekLock => {
                // In a session the session lock applies, which may be renewed and may end early.
                let lasts = if removes_later { REMOVAL_TIME_MAX } else { self.settings.lock_duration };
                let until = if session.is_some() { Timestamp::MAX } else { now + lasts };
                Fact::Locked { entity, sub_queue, sequence_number, nonce, until }
            }
            ReceiveMode::ReceiveAndDelete => Fact::Completed { entity, sub_queue, sequence_number },
        };
        let mut message = messages.view(sequence_number, &entry);
        message.end_receipt();
        if let Fact::Locked { until, .. } = fact
            && !removes_later
        {
            message.locked_until = Some(session.map_or(until, |holder| holder.until));
        }
        self.record(fact, out);
        Received { token: LockToken::new(sequence_number, nonce), message, removes_later }
    }

    /// Returns whether a delivery under receive-and-delete must lock the message until its body was read.
    pub(crate) fn removes_later(
        &self,
        sub_queue: SubQueue,
        number: SequenceNumber,
        near_from: Option<CommitGroupNumber>,
    ) -> bool {
        let body = self.part(sub_queue).messages.get(number).map(|entry| entry.body);
        near_from.is_some_and(|near_from| body.is_some_and(|body| body.group() < Some(near_from)))
    }

    /// Locks an unlocked message of the main queue that the caller has just found, for a time that the caller
    /// specifies.
    pub(crate) fn lock_until(
        &mut self,
        now: Timestamp,
        sequence_number: SequenceNumber,
        nonce: u64,
        until: Timestamp,
        out: &mut Output,
    ) {
        let (entity, sub_queue) = (self.entity, SubQueue::Main);
        self.note_start(now, sub_queue, sequence_number, ReceiveMode::PeekLock, out);
        self.record(Fact::Locked { entity, sub_queue, sequence_number, nonce, until }, out);
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the engine's method of the same name has the same arguments"
    )]
    pub(crate) fn receive_deferred(
        &mut self,
        now: Timestamp,
        sub_queue: SubQueue,
        numbers: &[SequenceNumber],
        mode: ReceiveMode,
        held: Option<SessionSlot>,
        near_from: Option<CommitGroupNumber>,
        nonce: u64,
        out: &mut Output,
    ) -> Result<Vec<Received>, Error> {
        check_count(numbers.len())?;
        check_distinct(numbers)?;
        if self.settings.requires_session && sub_queue == SubQueue::Main && held.is_none() {
            return Err(Error::SessionRequired { path: self.path(sub_queue) });
        }
        let mut size_bytes = 0;
        for &number in numbers {
            size_bytes += self.check_deferred(now, sub_queue, number, held)?;
        }
        if numbers.len() > 1 && size_bytes > limits::ANSWER_SIZE_BYTES_MAX {
            return Err(Error::TooMuch { size_bytes });
        }
        let deletes = mode == ReceiveMode::ReceiveAndDelete;
        let hand_out = |&number| {
            let removes_later = deletes && self.removes_later(sub_queue, number, near_from);
            self.hand_out(now, sub_queue, number, mode, removes_later, nonce, out)
        };
        Ok(numbers.iter().map(hand_out).collect())
    }

    /// Checks that a message is deferred and unlocked. Returns the bytes that are loaded at once to answer with it.
    fn check_deferred(
        &self,
        now: Timestamp,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        held: Option<SessionSlot>,
    ) -> Result<usize, Error> {
        let messages = &self.part(sub_queue).messages;
        let entry = messages.get(sequence_number).filter(|entry| entry.session == held);
        let free = entry.filter(|entry| entry.state == MessageState::Deferred && entry.lock.is_none());
        let free = free.filter(|_| !messages.has_expired(now, sequence_number));
        let missing = || Error::NotFound { path: self.path(sub_queue), sequence_number };
        free.map(|entry| loaded_bytes(entry.size_bytes)).ok_or_else(missing)
    }

    pub(crate) fn peek(&self, sub_queue: SubQueue, from: SequenceNumber, max: usize) -> Vec<Message> {
        let messages = &self.part(sub_queue).messages;
        let found = messages.iter_from(from).take(max.min(limits::BATCH_COUNT_MAX));
        found.map(|(number, entry)| messages.view(number, &entry)).collect()
    }

    /// Like `peek`, within one session.
    pub(crate) fn peek_session(&self, session: &SessionId, from: SequenceNumber, max: usize) -> Vec<Message> {
        let messages = &self.main.messages;
        let session = messages.sessions().find(session).and_then(|slot| messages.sessions().get(slot));
        let numbers =
            session.into_iter().flat_map(|session| session.numbers_from(from.0)).map(SequenceNumber);
        let found = numbers.filter_map(|number| Some(messages.view(number, &*messages.get(number)?)));
        found.take(max.min(limits::BATCH_COUNT_MAX)).collect()
    }
}

fn loaded_bytes(size_bytes: u32) -> usize {
    let is_whole = size_bytes <= limits::WHOLE_BODY_BYTES_MAX;
    (if is_whole { size_bytes } else { limits::BODY_FRONT_BYTES }) as usize
}

pub(super) fn check_distinct(numbers: &[SequenceNumber]) -> Result<(), Error> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Error::Repeated { sequence_number: pair[0] }),
        None => Ok(()),
    }
}
