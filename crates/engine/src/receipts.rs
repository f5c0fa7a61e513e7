//! Access to messages without receivers: one request, one response, and a receipt for each message. Storage queues work
//! like this.

use std::time::Duration;

use peeklock_types::{LockToken, Timestamp, limits};

use crate::engine::Engine;
use crate::error::Error;
use crate::message::{EntityId, Message, NewMessage};
use crate::output::{Output, Received};
use crate::queue::NewBody;

impl Engine {
    /// Stores a message that is hidden for `hidden_for`, and returns a receipt for it. The message keeps its number and
    /// its place. There is no duplicate detection: the caller generates a new id for each message.
    pub fn put_message(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        message: NewMessage,
        hidden_for: Duration,
        nonce: u64,
        out: &mut Output,
    ) -> Result<Received, Error> {
        self.command(now, entity, |queue| queue.put(now, message, hidden_for, nonce, out))
    }

    /// Locks up to `count_max` waiting messages, in the order of the queue, each for `hidden_for`, and returns receipts
    /// for them. Takes no more messages than fit in one response, but at least one if there is any.
    pub fn take_messages(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        count_max: usize,
        hidden_for: Duration,
        nonces: &mut dyn FnMut() -> u64,
        out: &mut Output,
    ) -> Result<Vec<Received>, Error> {
        let count_max = count_max.min(limits::TAKE_COUNT_MAX);
        self.command(now, entity, |queue| queue.take(now, count_max, hidden_for, nonces, out))
    }

    /// Returns the first messages that could be taken now, without changing them.
    pub fn peek_waiting(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        count_max: usize,
    ) -> Result<Vec<Message>, Error> {
        self.command(now, entity, |queue| {
            queue.check_plain()?;
            Ok(queue.peek_waiting(now, count_max.min(limits::TAKE_COUNT_MAX)))
        })
    }

    /// Hides a message for a time from now, or makes it visible at once for zero, and replaces its body if there is a
    /// new one. Returns the new receipt; `None` if the message failed too often and was dead-lettered.
    ///
    /// Returns [`Error::NoSuchMessage`] if the message is gone, [`Error::ReceiptLost`] if `token` is not its newest
    /// receipt.
    #[expect(clippy::too_many_arguments, reason = "time and nonce are arguments, beside those of the holder")]
    pub fn change_message(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        token: LockToken,
        hidden_for: Duration,
        body: Option<NewBody>,
        nonce: u64,
        out: &mut Output,
    ) -> Result<Option<Received>, Error> {
        self.command(now, entity, |queue| queue.change(now, token, hidden_for, body, nonce, out))
    }

    /// Deletes a message under its newest receipt, locked or not.
    pub fn delete_message(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        token: LockToken,
        out: &mut Output,
    ) -> Result<(), Error> {
        self.command(now, entity, |queue| queue.delete(now, token, out))
    }

    /// Deletes all messages of a queue, including locked ones, but not its dead letters. Returns their number. Records
    /// one fact, however many messages there are.
    pub fn clear(&mut self, now: Timestamp, entity: EntityId, out: &mut Output) -> Result<u64, Error> {
        self.command(now, entity, |queue| queue.clear(now, out))
    }
}
