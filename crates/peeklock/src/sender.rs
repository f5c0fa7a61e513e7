//! Sends messages.

use peeklock_client::{SequenceNumber, Timestamp};

use crate::connection::Connection;
use crate::error::Error;
use crate::message::Message;

/// Sends messages to one queue or topic. It is cheap to clone; clones share the link.
#[derive(Clone)]
pub struct Sender {
    link: peeklock_client::Sender,
}

impl Sender {
    pub(crate) async fn open(connection: Connection, entity: &str) -> Result<Self, Error> {
        Ok(Sender { link: connection.live().await?.sender(entity).await? })
    }

    /// Sends a message. Returns when the broker has it on stable storage.
    pub async fn send(&self, message: impl Into<Message>) -> Result<(), Error> {
        Ok(self.link.send(&message.into().amqp).await?)
    }

    /// Sends messages as one delivery: all are stored or none.
    pub async fn send_batch(&self, messages: impl IntoIterator<Item = Message>) -> Result<(), Error> {
        let messages: Vec<_> = messages.into_iter().map(Message::into_amqp).collect();
        Ok(self.link.send_batch(&messages).await?)
    }

    /// Schedules a message and returns its number for [`Sender::cancel_scheduled`].
    pub async fn schedule(
        &self,
        message: impl Into<Message>,
        at: Timestamp,
    ) -> Result<SequenceNumber, Error> {
        use peeklock_client::MessageExt;
        let message = message.into().amqp.with_scheduled_time(at);
        let numbers = self.link.schedule(std::slice::from_ref(&message)).await?;
        Ok(numbers.first().copied().unwrap_or_default())
    }

    /// Cancels a scheduled message.
    pub async fn cancel_scheduled(&self, number: SequenceNumber) -> Result<(), Error> {
        Ok(self.link.cancel_scheduled(&[number]).await?)
    }
}
