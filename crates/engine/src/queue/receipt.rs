//! Messages that are received, changed and deleted under receipts, as in storage queues.
//!
//! A receipt is more than a lock: it stays valid when the message is visible again, until another receiver gets the
//! message. So it is stored with the message. Each change creates a new receipt and invalidates the old one.

use std::time::Duration;

use peeklock_types::{
    BodyPlace, BodyRef, EntityKind, LockToken, SequenceNumber, StoredBody, SubQueue, Timestamp, limits,
};

use super::{Queue, standalone};
use crate::engine::FACTS_PER_CALL_MAX;
use crate::error::Error;
use crate::fact::Fact;
use crate::message::{Message, MessageState, NewMessage};
use crate::output::{Output, Received};
use crate::patch::Patch;
use crate::sessions::check_receive;

/// A new body for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewBody {
    pub body: BodyRef,
    pub size_bytes: u32,
}

impl Queue {
    /// Checks that messages can be received here without a receiver: only from a queue without sessions.
    pub(crate) fn check_plain(&self) -> Result<(), Error> {
        match self.kind {
            EntityKind::Topic => return Err(Error::IsTopic { name: self.name.clone() }),
            EntityKind::Subscription => return Err(Error::IsSubscription { name: self.name.clone() }),
            EntityKind::Queue => {}
        }
        if self.settings.requires_session {
            return Err(Error::SessionRequired { path: self.path(SubQueue::Main) });
        }
        Ok(())
    }

    pub(crate) fn put(
        &mut self,
        now: Timestamp,
        mut message: NewMessage,
        hidden_for: Duration,
        nonce: u64,
        out: &mut Output,
    ) -> Result<Received, Error> {
        self.check_plain()?;
        check_hidden(hidden_for)?;
        if let Some(attributes) = &mut message.attributes {
            attributes.message_id = None;
            attributes.scheduled_for = None;
        }
        self.check_send(now, std::slice::from_ref(&message))?;
        self.check_rates(now, std::slice::from_ref(&message))?;
        let number = self.store_sent(now, message, out);
        let until = (!hidden_for.is_zero()).then(|| now + hidden_for);
        Ok(self.receipt(number, nonce, until, out))
    }

    /// Delivers up to `count_max` messages, as many as fit in one response. Messages that are too large for a response
    /// are left for receivers. They do not delay later messages, unless the queue has an order: only the order decides
    /// which message may overtake another.
    pub(crate) fn take(
        &mut self,
        now: Timestamp,
        count_max: usize,
        hidden_for: Duration,
        nonces: &mut dyn FnMut() -> u64,
        out: &mut Output,
    ) -> Result<Vec<Received>, Error> {
        self.check_plain()?;
        check_receive(self, SubQueue::Main)?;
        check_hidden(hidden_for)?;
        let (mut taken, mut size_bytes) = (Vec::new(), 0);
        while taken.len() < count_max
            && let Some((number, next_bytes)) = self.next_to_take(now, out)
        {
            let (number, next_bytes) = match self.small_from(now, number, next_bytes) {
                Some(found) => found,
                None if taken.is_empty() && self.main.messages.order().is_some() => {
                    let path = self.path(SubQueue::Main);
                    return Err(Error::TooLargeToTake {
                        path,
                        sequence_number: number,
                        size_bytes: next_bytes,
                    });
                }
                None => break,
            };
            size_bytes += next_bytes as usize;
            if !taken.is_empty() && size_bytes > limits::ANSWER_SIZE_BYTES_MAX {
                break;
            }
            let (nonce, lane) = (nonces(), self.main.messages.get(number).and_then(|entry| entry.lane));
            self.lock_until(now, number, nonce, now + hidden_for, out);
            self.note_delivery(now, number, lane, None);
            taken.push(self.receipt(number, nonce, None, out));
        }
        Ok(taken)
    }

    /// Returns this message if it fits in a response, otherwise the first later one that does.
    fn small_from(
        &self,
        now: Timestamp,
        number: SequenceNumber,
        size_bytes: u32,
    ) -> Option<(SequenceNumber, u32)> {
        if is_small(size_bytes) {
            return Some((number, size_bytes));
        }
        let messages = &self.main.messages;
        if messages.order().is_some() {
            return None;
        }
        let near = messages.all_waiting().take(FACTS_PER_CALL_MAX);
        let mut small = near.filter(|(number, entry)| {
            is_small(entry.size_bytes) && entry.session.is_none() && !messages.has_expired(now, *number)
        });
        small.next().map(|(number, entry)| (number, entry.size_bytes))
    }

    /// Returns the next waiting message and its size. An expired message is never delivered, even if the expiry is
    /// found late.
    fn next_to_take(&mut self, now: Timestamp, out: &mut Output) -> Option<(SequenceNumber, u32)> {
        for _ in 0..FACTS_PER_CALL_MAX {
            let number = self.main.messages.next_waiting(now)?;
            if !self.main.messages.has_expired(now, number) {
                return self.main.messages.get(number).map(|entry| (number, entry.size_bytes));
            }
            let fact = self.expire(SubQueue::Main, number);
            self.record_end(now, fact, out);
        }
        None
    }

    /// Returns the messages that could be received now, in the order of enqueueing.
    pub(crate) fn peek_waiting(&self, now: Timestamp, max: usize) -> Vec<Message> {
        let messages = &self.main.messages;
        let found = messages
            .all_waiting()
            .take(FACTS_PER_CALL_MAX)
            .filter(|(number, entry)| is_small(entry.size_bytes) && !messages.has_expired(now, *number));
        found.take(max).map(|(number, entry)| messages.view(number, &entry)).collect()
    }

    /// Checks that `token` is the newest receipt of an existing message.
    pub(crate) fn check_receipt(&self, now: Timestamp, token: LockToken) -> Result<(), Error> {
        let (path, sequence_number) = (self.path(SubQueue::Main), token.sequence_number());
        let messages = &self.main.messages;
        if messages.get(sequence_number).is_none() || messages.has_expired(now, sequence_number) {
            return Err(Error::NoSuchMessage { path, sequence_number });
        }
        // The holder of a receipt can also settle the message like a receiver, and defer it: then it is available only
        // by its number.
        let is_in_row = messages
            .get(sequence_number)
            .is_some_and(|entry| matches!(entry.state, MessageState::Active | MessageState::Delayed));
        if messages.receipt_of(sequence_number) != Some(token.nonce()) || !is_in_row {
            return Err(Error::ReceiptLost { path, sequence_number });
        }
        Ok(())
    }

    /// Hides the message for a time from now, or makes it visible at once, and replaces its body if there is a new one.
    /// The old receipt becomes invalid.
    pub(crate) fn change(
        &mut self,
        now: Timestamp,
        token: LockToken,
        hidden_for: Duration,
        body: Option<NewBody>,
        nonce: u64,
        out: &mut Output,
    ) -> Result<Option<Received>, Error> {
        self.check_plain()?;
        check_hidden(hidden_for)?;
        self.check_receipt(now, token)?;
        let (entity, sequence_number) = (self.entity, token.sequence_number());
        if let Some(NewBody { body, size_bytes }) = body {
            self.check_replace(sequence_number, body, size_bytes)?;
            self.record(Fact::Replaced { entity, sequence_number, body, size_bytes }, out);
        }
        if !hidden_for.is_zero() {
            return Ok(Some(self.receipt(sequence_number, nonce, Some(now + hidden_for), out)));
        }
        if let Some(fact) = self.show(sequence_number) {
            self.record_end(now, fact, out);
        }
        let is_there = self.main.messages.get(sequence_number).is_some();
        Ok(is_there.then(|| self.receipt(sequence_number, nonce, None, out)))
    }

    /// Returns the fact that makes a message visible at once; `None` if it is visible.
    fn show(&self, sequence_number: SequenceNumber) -> Option<Fact> {
        let (entity, sub_queue) = (self.entity, SubQueue::Main);
        let entry = self.main.messages.get(sequence_number)?;
        match (entry.lock, entry.state) {
            // The message was received and not deleted, so the delivery counts.
            (Some(_), _) if self.failed_too_often(sub_queue, sequence_number) => {
                Some(self.give_up(sub_queue, sequence_number, Patch::default()))
            }
            (Some(_), _) => {
                Some(Fact::Abandoned { entity, sub_queue, sequence_number, patch: None, due: None })
            }
            (None, MessageState::Delayed) => Some(Fact::DelayEnded { entity, sub_queue, sequence_number }),
            (None, _) => None,
        }
    }

    fn check_replace(&self, number: SequenceNumber, body: BodyRef, size_bytes: u32) -> Result<(), Error> {
        let path = || self.path(SubQueue::Main);
        self.check_size(size_bytes)?;
        let old = self.main.messages.get(number).map_or(0, |entry| entry.size_bytes);
        let after = self.size_bytes().saturating_sub(old.into()) + u64::from(size_bytes);
        if let Some(max) = self.settings.max_size_bytes.filter(|max| after > *max && size_bytes > old) {
            return Err(self.full(self.size_bytes(), max, "bytes", "max size"));
        }
        match body.place() {
            BodyPlace::InGroup { group, .. } if group < self.newest_group => {
                Err(Error::BodyOrder { path: path(), group, newest: self.newest_group })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn delete(&mut self, now: Timestamp, token: LockToken, out: &mut Output) -> Result<(), Error> {
        self.check_plain()?;
        self.check_receipt(now, token)?;
        let (entity, sequence_number) = (self.entity, token.sequence_number());
        let fact = Fact::Completed { entity, sub_queue: SubQueue::Main, sequence_number };
        self.record_end(now, fact, out);
        Ok(())
    }

    fn receipt(
        &mut self,
        sequence_number: SequenceNumber,
        nonce: u64,
        until: Option<Timestamp>,
        out: &mut Output,
    ) -> Received {
        self.record(Fact::Receipted { entity: self.entity, sequence_number, nonce, until }, out);
        let messages = &self.main.messages;
        let entry = messages.get(sequence_number).expect("the fact has just found the message");
        let message = messages.view(sequence_number, &entry);
        Received { token: LockToken::new(sequence_number, nonce), message, removes_later: false }
    }

    /// Deletes all messages except the dead letters, including locked ones. Returns their number.
    pub(crate) fn clear(&mut self, now: Timestamp, out: &mut Output) -> Result<u64, Error> {
        self.check_plain()?;
        let count = self.main.messages.count();
        if count == 0 {
            return Ok(0);
        }
        let late = self.late_counts(now);
        self.record(Fact::Cleared { entity: self.entity }, out);
        let still_late = self.late_counts(now);
        if let Some(order) = self.main.messages.order_mut() {
            order.note_late_gone(&late, &still_late);
        }
        Ok(count)
    }

    pub(super) fn apply_clear(&mut self, freed: &mut Vec<StoredBody>) {
        let messages = &mut self.main.messages;
        let numbers: Vec<_> = messages.iter_from(SequenceNumber(0)).map(|(number, _)| number).collect();
        for number in numbers {
            if let Ok(moving) = messages.remove(number) {
                freed.extend(standalone(&moving.entry));
            }
        }
    }
}

fn check_hidden(given: Duration) -> Result<(), Error> {
    if given > limits::HIDDEN_MAX {
        return Err(Error::HiddenTooLong { given });
    }
    Ok(())
}

/// Returns whether the message fits in a response.
fn is_small(size_bytes: u32) -> bool {
    size_bytes <= limits::WHOLE_BODY_BYTES_MAX
}
