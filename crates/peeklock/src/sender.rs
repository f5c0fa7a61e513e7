//! Sends messages.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use peeklock_amqp::Message as AmqpMessage;
use peeklock_client::{SequenceNumber, Timestamp};

use crate::batch::{Batch, SizeCount};
use crate::connection::{Connection, Reopened};
use crate::error::Error;
use crate::message::Message;

/// Sends messages to one queue or topic. It is cheap to clone; clones share the link, and many sends can be in flight at once.
///
/// A send that was not confirmed is sent again, also over another connection, with the same message id. A message without an id gets a random
/// one. A queue with duplicate detection therefore stores it once; another queue may store it twice if the first confirmation was lost.
#[derive(Clone)]
pub struct Sender {
    inner: Arc<Inner>,
}

struct Inner {
    connection: Connection,
    entity: Arc<str>,
    link: Reopened<peeklock_client::Sender>,
}

impl Sender {
    pub(crate) async fn open(connection: Connection, entity: &str) -> Result<Self, Error> {
        let (entity, link) = (Arc::from(entity), Reopened::empty());
        let sender = Sender { inner: Arc::new(Inner { connection, entity, link }) };
        let mut attempts = sender.inner.connection.attempts();
        loop {
            match sender.link().await {
                Ok(_) => return Ok(sender),
                Err(error) => attempts.retry_after(error).await?,
            }
        }
    }

    /// Returns the name of the queue or topic.
    pub fn entity(&self) -> &str {
        &self.inner.entity
    }

    /// Sends a message. Returns when the broker has it on stable storage.
    ///
    /// While the queue limits the rate, this waits as long as the broker asks for. If the future is dropped, the message may or may not be stored.
    pub async fn send(&self, message: impl Into<Message>) -> Result<(), Error> {
        let message = message.into().ready()?;
        let mut attempts = self.inner.connection.attempts();
        loop {
            match self.try_send(&message).await {
                Ok(()) => return Ok(()),
                Err(error) => attempts.retry_after(error).await?,
            }
        }
    }

    /// Sends messages as one delivery: all are stored or none. Fails with [`Kind::TooLarge`](crate::Kind::TooLarge) if they exceed the limit
    /// together; [`Sender::batch`] fills a batch up to the limit.
    pub async fn send_batch(&self, messages: impl IntoIterator<Item = Message>) -> Result<(), Error> {
        let messages = messages.into_iter().map(Message::ready).collect::<Result<Vec<_>, _>>()?;
        if messages.is_empty() {
            return Ok(());
        }
        let mut attempts = self.inner.connection.attempts();
        loop {
            match self.try_send_batch(&messages).await {
                Ok(()) => return Ok(()),
                Err(error) => attempts.retry_after(error).await?,
            }
        }
    }

    /// Returns an empty batch with the size limit of this queue or topic.
    pub async fn batch(&self) -> Result<Batch, Error> {
        let mut attempts = self.inner.connection.attempts();
        loop {
            match self.link().await {
                Ok(link) => return Ok(Batch::new(SizeCount::new(link.message_size_bytes_max()))),
                Err(error) => attempts.retry_after(error).await?,
            }
        }
    }

    /// Schedules a message for a time, such as a `SystemTime`, and returns its number for [`Sender::cancel_scheduled`].
    pub async fn schedule(
        &self,
        message: impl Into<Message>,
        at: impl Into<Timestamp>,
    ) -> Result<SequenceNumber, Error> {
        let message = message.into().scheduled_for(at).ready()?;
        let numbers = self.schedule_all(std::slice::from_ref(&message)).await?;
        Ok(numbers.first().copied().unwrap_or_default())
    }

    /// Schedules messages, each for the time that [`Message::scheduled_for`] has set: all or none. Returns their numbers.
    pub async fn schedule_many(
        &self,
        messages: impl IntoIterator<Item = Message>,
    ) -> Result<Vec<SequenceNumber>, Error> {
        let messages = messages.into_iter().map(Message::ready).collect::<Result<Vec<_>, _>>()?;
        self.schedule_all(&messages).await
    }

    async fn schedule_all(&self, messages: &[AmqpMessage]) -> Result<Vec<SequenceNumber>, Error> {
        let mut attempts = self.inner.connection.attempts();
        loop {
            match self.try_schedule(messages).await {
                Ok(numbers) => return Ok(numbers),
                Err(error) => attempts.retry_after(error).await?,
            }
        }
    }

    /// Cancels a scheduled message.
    pub async fn cancel_scheduled(&self, number: SequenceNumber) -> Result<(), Error> {
        self.cancel_scheduled_many(&[number]).await
    }

    /// Cancels scheduled messages: all of them, or none if one of them is no longer scheduled.
    pub async fn cancel_scheduled_many(&self, numbers: &[SequenceNumber]) -> Result<(), Error> {
        let mut attempts = self.inner.connection.attempts();
        loop {
            match self.try_cancel(numbers).await {
                Ok(()) => return Ok(()),
                Err(error) => attempts.retry_after(error).await?,
            }
        }
    }

    /// Returns the link on the live connection.
    pub(crate) async fn link(&self) -> Result<peeklock_client::Sender, Error> {
        let inner = &self.inner;
        let open = || -> BoxFuture<'static, _> {
            let (connection, entity) = (inner.connection.clone(), Arc::clone(&inner.entity));
            Box::pin(async move { Ok(connection.live().await?.sender(&entity).await?) })
        };
        inner.connection.check_open()?;
        inner.link.get(|link| !link.is_cut_off(), open).await
    }

    async fn try_send(&self, message: &AmqpMessage) -> Result<(), Error> {
        Ok(self.link().await?.send(message).await?)
    }

    async fn try_send_batch(&self, messages: &[AmqpMessage]) -> Result<(), Error> {
        Ok(self.link().await?.send_batch(messages).await?)
    }

    async fn try_schedule(&self, messages: &[AmqpMessage]) -> Result<Vec<SequenceNumber>, Error> {
        Ok(self.link().await?.schedule(messages).await?)
    }

    async fn try_cancel(&self, numbers: &[SequenceNumber]) -> Result<(), Error> {
        Ok(self.link().await?.cancel_scheduled(numbers).await?)
    }
}
