//! A link that sends: which messages wait for credit, and which wait for their outcome.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use peeklock_amqp::connection::{Connection, LinkId, Outgoing, SendError};
use peeklock_amqp::{AmqpError, DeliveryState, DeliveryTag};
use tokio::sync::{Semaphore, mpsc};

use super::OUTPUT_BYTES_MAX;
use super::command::Reply;
use super::coordinator::Unsent;
use crate::error::{Ending, Error};
use crate::outcome::{in_transaction, outcome_of};
use crate::pipeline::Failure;

pub(super) struct SendingLink {
    entity: Arc<str>,
    ending: Ending,
    /// One permit for each message that may be unconfirmed. A sender takes it; this link returns it.
    permits: Arc<Semaphore>,
    waiting: VecDeque<Waiting>,
    /// The outcomes of deliveries from number `first_number` on. They are in a ring, because outcomes arrive nearly in order.
    outcomes: VecDeque<Slot>,
    first_number: u64,
    failures: Option<mpsc::Sender<Failure>>,
    /// The number of permits to return at the end of this round.
    confirmed_count: usize,
}

struct Waiting {
    number: u64,
    payload: Bytes,
    message_format: u32,
    transaction: Option<Bytes>,
    /// The mark of a step of a transaction, which is sent settled.
    unsent: Option<Unsent>,
}

enum Slot {
    Awaited(Reply<()>),
    Counted,
    Done,
}

impl SendingLink {
    pub(super) fn new(entity: Arc<str>, ending: Ending, permits: Arc<Semaphore>) -> Self {
        Self {
            entity,
            ending,
            permits,
            waiting: VecDeque::new(),
            outcomes: VecDeque::new(),
            first_number: 0,
            failures: None,
            confirmed_count: 0,
        }
    }

    pub(super) fn entity(&self) -> Arc<str> {
        Arc::clone(&self.entity)
    }

    pub(super) fn push(
        &mut self,
        payload: Bytes,
        message_format: u32,
        transaction: Option<Bytes>,
        reply: Reply<()>,
    ) {
        self.enqueue(payload, message_format, transaction, Slot::Awaited(reply), None);
    }

    /// Adds a message of a transaction. It has no outcome: its permit returns when it leaves.
    pub(super) fn push_step(
        &mut self,
        payload: Bytes,
        message_format: u32,
        transaction: Bytes,
        unsent: Unsent,
    ) {
        self.enqueue(payload, message_format, Some(transaction), Slot::Done, Some(unsent));
        self.forget_done();
    }

    pub(super) fn push_counted(
        &mut self,
        payload: Bytes,
        message_format: u32,
        failures: &mpsc::Sender<Failure>,
    ) {
        if self.failures.is_none() {
            self.failures = Some(failures.clone());
        }
        self.enqueue(payload, message_format, None, Slot::Counted, None);
    }

    fn enqueue(
        &mut self,
        payload: Bytes,
        message_format: u32,
        transaction: Option<Bytes>,
        slot: Slot,
        unsent: Option<Unsent>,
    ) {
        let number = self.first_number + self.outcomes.len() as u64;
        self.outcomes.push_back(slot);
        self.waiting.push_back(Waiting { number, payload, message_format, transaction, unsent });
    }

    /// Sends as much as credit, window and output allow.
    pub(super) fn pump(&mut self, link: LinkId, connection: &mut Connection) {
        while connection.output_len() < OUTPUT_BYTES_MAX
            && let Some(next) = self.waiting.front()
        {
            let delivery = Outgoing {
                tag: tag(next.number),
                message_format: next.message_format,
                settled: next.unsent.is_some(),
                state: in_transaction(next.transaction.as_ref()),
            };
            match connection.send(link, &delivery, &[&next.payload]) {
                Ok(()) => {
                    self.confirmed_count += usize::from(delivery.settled);
                    self.waiting.pop_front();
                }
                // Credit, the window or an outcome continues the link; an event reports a link that has ended.
                Err(
                    SendError::NoCredit
                    | SendError::Blocked
                    | SendError::TooManyUnsettled
                    | SendError::NotAttached
                    | SendError::Incomplete,
                ) => {
                    break;
                }
            }
        }
    }

    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn handle_outcome(&mut self, tag: DeliveryTag, state: Option<DeliveryState>) {
        let Some(index) = self.index_of(tag) else { return };
        let Some(slot) = self.outcomes.get_mut(index) else { return };
        let slot = std::mem::replace(slot, Slot::Done);
        let result = match outcome_of(state) {
            Some(DeliveryState::Accepted) => Ok(()),
            other => Err(Error::rejected(&self.entity, Some(refusal(other)))),
        };
        match slot {
            Slot::Done => return,
            Slot::Awaited(reply) => drop(reply.send(result)),
            Slot::Counted => self.count(index, result),
        }
        self.confirmed_count += 1;
        self.forget_done();
    }

    fn forget_done(&mut self) {
        while let Some(Slot::Done) = self.outcomes.front() {
            self.outcomes.pop_front();
            self.first_number += 1;
        }
    }

    fn count(&self, index: usize, result: Result<(), Error>) {
        if let (Err(error), Some(failures)) = (result, &self.failures) {
            let number = self.first_number + index as u64;
            // The channel has capacity for every unconfirmed message, so it is full only if its reader is gone.
            drop(failures.try_send(Failure { number, error }));
        }
    }

    fn index_of(&self, tag: DeliveryTag) -> Option<usize> {
        let low = u32::from_be_bytes(tag.as_slice().try_into().ok()?);
        #[expect(clippy::cast_possible_truncation, reason = "tags carry the low half of the number")]
        let first = self.first_number as u32;
        usize::try_from(low.wrapping_sub(first)).ok()
    }

    /// Returns the permits of this round at once, so that senders wake once per round.
    pub(super) fn finish_round(&mut self) {
        if self.confirmed_count > 0 {
            self.permits.add_permits(std::mem::take(&mut self.confirmed_count));
        }
    }

    pub(super) fn end(mut self, error: &Error) {
        // The reason is set before pending calls are woken.
        let _ = self.ending.set(error.clone());
        for slot in self.outcomes.drain(..) {
            if let Slot::Awaited(reply) = slot {
                let _ = reply.send(Err(error.clone()));
            }
        }
        self.permits.close();
    }
}

#[expect(clippy::cast_possible_truncation, reason = "tags carry the low half of the number")]
fn tag(number: u64) -> DeliveryTag {
    DeliveryTag::from(number as u32)
}

/// Returns the error of any outcome other than `accepted`.
fn refusal(state: Option<DeliveryState>) -> AmqpError {
    use peeklock_amqp::condition::{INTERNAL_ERROR, SERVER_BUSY};
    match state {
        Some(DeliveryState::Rejected { error: Some(error) }) => *error,
        Some(DeliveryState::Rejected { error: None }) => {
            AmqpError::new(INTERNAL_ERROR, "rejected without a reason")
        }
        Some(DeliveryState::Released | DeliveryState::Modified { .. }) => {
            AmqpError::new(SERVER_BUSY, "the broker gave the message back; send it again")
        }
        _ => AmqpError::new(INTERNAL_ERROR, "settled without an outcome"),
    }
}
