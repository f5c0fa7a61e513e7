//! Sends without waiting for each confirmation. The number of unconfirmed messages is bounded.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use peeklock_amqp::{Encode, Message};
use smallvec::{SmallVec, smallvec};
use tokio::sync::{SemaphorePermit, mpsc};

use crate::driver::command::Command;
use crate::error::Error;
use crate::sender::{BATCH_FORMAT, SenderLink};
use crate::shared::Shared;

/// The number of messages that are passed to the driver at once.
const CHUNK_MAX: usize = 64;
/// The size of the buffers that encoded messages share.
const BUFFER_BYTES: usize = 64 * 1024;

/// A message that the broker rejected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("message {} was not stored", number + 1)]
pub struct Failure {
    /// The number of the message in the pipeline, counted from 0.
    pub number: u64,
    /// The reason.
    #[source]
    pub error: Error,
}

/// The reason why a pipeline failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PipelineError {
    /// An earlier message failed; later messages are not affected.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The link or the connection is lost. Unconfirmed messages may or may not be stored.
    #[error(transparent)]
    Lost(#[from] Error),
}

/// Sends to one queue at full speed. Confirmations are counted, not awaited one by one.
///
/// A call returns as soon as the message is in flight. It waits while `unconfirmed_max` messages are unconfirmed. A failure is returned by
/// a later call. [`Pipeline::flush`] waits until every message is stored; without it, messages in flight may be lost when the pipeline is
/// dropped.
///
/// ```no_run
/// # async fn example(client: peeklock_client::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use peeklock_client::Message;
///
/// let mut orders = client.pipeline("orders", 256).await?;
/// for number in 0..100_000 {
///     orders.send(&Message::data(format!("order {number}"))).await?;
/// }
/// orders.flush().await?;   // all 100,000 are on disk
/// # Ok(())
/// # }
/// ```
pub struct Pipeline {
    link: SenderLink,
    unconfirmed_max: u32,
    failures: mpsc::Receiver<Failure>,
    /// The sender of failures. Each command contains a clone, of which the driver keeps the first.
    failed: mpsc::Sender<Failure>,
    buffer: BytesMut,
}

impl Pipeline {
    pub(crate) async fn open(shared: Arc<Shared>, entity: &str, unconfirmed_max: u32) -> Result<Self, Error> {
        let unconfirmed_max = unconfirmed_max.max(1);
        let places = usize::try_from(unconfirmed_max).unwrap_or(usize::MAX);
        let link = SenderLink::open(shared, entity, places, None).await?;
        // A failure is sent before its permit is returned, so this capacity is always sufficient.
        let (failed, failures) = mpsc::channel(places);
        Ok(Self { link, unconfirmed_max, failures, failed, buffer: BytesMut::new() })
    }

    /// Sends one message. Waits only while too many messages are unconfirmed.
    pub async fn send(&mut self, message: &Message) -> Result<(), PipelineError> {
        let payload = self.encode(message);
        self.send_encoded(payload).await
    }

    /// Sends an encoded message.
    pub async fn send_encoded(&mut self, payload: Bytes) -> Result<(), PipelineError> {
        self.link.check_size(payload.len())?;
        self.check_failures()?;
        let permit = acquire(&self.link, 1).await?;
        self.hand_over(permit, 0, smallvec![payload]).await
    }

    /// Sends several messages as one delivery, which is stored as a whole or not at all. `batch` has each message in its own data section,
    /// as [`Sender::send_batch`](crate::Sender::send_batch) encodes it.
    pub async fn send_encoded_batch(&mut self, batch: Bytes) -> Result<(), PipelineError> {
        self.link.check_size(batch.len())?;
        self.check_failures()?;
        let permit = acquire(&self.link, 1).await?;
        self.hand_over(permit, BATCH_FORMAT, smallvec![batch]).await
    }

    /// Sends several messages, each as its own delivery, with fewer commands to the driver than single sends.
    pub async fn send_many<'a>(
        &mut self,
        messages: impl IntoIterator<Item = &'a Message>,
    ) -> Result<(), PipelineError> {
        let mut chunk: SmallVec<[Bytes; 1]> = SmallVec::new();
        for message in messages {
            let payload = self.encode(message);
            self.link.check_size(payload.len())?;
            chunk.push(payload);
            if chunk.len() == CHUNK_MAX {
                self.send_chunk(std::mem::take(&mut chunk)).await?;
            }
        }
        if chunk.is_empty() { Ok(()) } else { self.send_chunk(chunk).await }
    }

    /// Sends several encoded messages.
    pub async fn send_many_encoded(
        &mut self,
        payloads: impl IntoIterator<Item = Bytes>,
    ) -> Result<(), PipelineError> {
        let mut payloads = payloads.into_iter();
        loop {
            let chunk: SmallVec<[Bytes; 1]> = payloads.by_ref().take(CHUNK_MAX).collect();
            if chunk.is_empty() {
                return Ok(());
            }
            chunk.iter().try_for_each(|payload| self.link.check_size(payload.len()))?;
            self.send_chunk(chunk).await?;
        }
    }

    /// Waits until every message sent so far is confirmed. Returns the first failure that was not returned yet.
    pub async fn flush(&mut self) -> Result<(), PipelineError> {
        let all = acquire(&self.link, self.unconfirmed_max).await?;
        drop(all);
        self.check_failures()
    }

    /// Returns the number of messages in flight.
    pub fn unconfirmed_count(&self) -> usize {
        let window = usize::try_from(self.unconfirmed_max).unwrap_or(usize::MAX);
        window.saturating_sub(self.link.permits().available_permits())
    }

    fn encode(&mut self, message: &Message) -> Bytes {
        if self.buffer.capacity() == 0 {
            self.buffer.reserve(BUFFER_BYTES);
        }
        message.encode(&mut self.buffer);
        self.buffer.split().freeze()
    }

    /// Sends the chunk as permits become available: all of it at once, or in parts under load.
    async fn send_chunk(&mut self, mut chunk: SmallVec<[Bytes; 1]>) -> Result<(), PipelineError> {
        while !chunk.is_empty() {
            self.check_failures()?;
            let mut permit = acquire(&self.link, 1).await?;
            let more = self.link.permits().available_permits().min(chunk.len() - 1);
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            // This pipeline is the only user of the permits, so the available ones stay available.
            if let Ok(rest) = self.link.permits().try_acquire_many(more) {
                permit.merge(rest);
            }
            let later = chunk.drain(permit.num_permits()..).collect();
            let now = std::mem::replace(&mut chunk, later);
            self.hand_over(permit, 0, now).await?;
        }
        Ok(())
    }

    async fn hand_over(
        &self,
        permit: SemaphorePermit<'_>,
        message_format: u32,
        payloads: SmallVec<[Bytes; 1]>,
    ) -> Result<(), PipelineError> {
        let place = self.link.place().await?;
        // From here on, the driver returns one permit with each outcome.
        permit.forget();
        let (link, failures) = (self.link.id(), self.failed.clone());
        place.send(Command::SendMany { link, message_format, payloads, failures });
        Ok(())
    }

    fn check_failures(&mut self) -> Result<(), PipelineError> {
        self.failures.try_recv().map_or(Ok(()), |failure| Err(failure.into()))
    }
}

async fn acquire(link: &SenderLink, count: u32) -> Result<SemaphorePermit<'_>, PipelineError> {
    link.permits().acquire_many(count).await.map_err(|_| link.lost().into())
}
