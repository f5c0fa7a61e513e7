//! A received message with its lock.

use std::sync::Arc;
use std::time::Duration;

use peeklock_client::ReceivedMessage;

use crate::Outcome;
use crate::connection::Connection;
use crate::error::Error;

/// A received message. In mode [`ReceiveMode::PeekLock`](crate::ReceiveMode::PeekLock) it is locked until it is settled.
#[must_use = "settle it; a dropped delivery is abandoned"]
pub struct Delivery {
    message: ReceivedMessage,
    link: peeklock_client::Delivery,
    source: Arc<Source>,
}

/// The queue that a delivery is from.
pub(crate) struct Source {
    pub(crate) connection: Connection,
    pub(crate) entity: String,
}

impl Delivery {
    pub(crate) fn new(link: peeklock_client::Delivery, source: &Arc<Source>) -> Result<Self, Error> {
        Ok(Delivery { message: link.message()?, link, source: Arc::clone(source) })
    }

    /// Returns the message.
    pub fn message(&self) -> &ReceivedMessage {
        &self.message
    }

    /// Completes the message: it is removed. The removal is on stable storage when this returns.
    pub async fn complete(self) -> Result<(), Error> {
        self.settle(Outcome::Complete).await
    }

    /// Makes the message available again and increases its delivery count.
    pub async fn abandon(self) -> Result<(), Error> {
        self.settle(Outcome::Abandon).await
    }

    /// Makes the message available again after a delay.
    pub async fn abandon_after(self, delay: Duration) -> Result<(), Error> {
        self.settle(Outcome::AbandonWith { properties: Default::default(), delay: Some(delay) }).await
    }

    /// Defers the message: it stays in the queue until a receiver fetches it by its sequence number.
    pub async fn defer(self) -> Result<(), Error> {
        self.settle(Outcome::Defer).await
    }

    /// Moves the message to the dead-letter queue with a reason.
    pub async fn dead_letter(self, reason: &str, description: &str) -> Result<(), Error> {
        let (reason, description) = (reason.to_owned(), description.to_owned());
        self.settle(Outcome::DeadLetter { reason, description }).await
    }

    /// Returns the message without increasing its delivery count.
    pub async fn release(self) -> Result<(), Error> {
        self.settle(Outcome::Release).await
    }

    /// Settles the message and waits for the broker's confirmation.
    pub async fn settle(self, outcome: Outcome) -> Result<(), Error> {
        Ok(self.link.settle(outcome).await?)
    }

    /// Extends the lock by its duration.
    pub async fn renew(&self) -> Result<(), Error> {
        if let Some(token) = self.link.lock_token() {
            self.source.connection.live().await?.renew(&self.source.entity, &[token]).await?;
        }
        Ok(())
    }
}
