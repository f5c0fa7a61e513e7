//! Sends confirmed messages and batches.

use std::sync::Arc;

use bytes::Bytes;
use peeklock_amqp::connection::LinkId;
use peeklock_amqp::{Body, Encode, Message};
use peeklock_types::SequenceNumber;
use tokio::sync::{Semaphore, oneshot};

use crate::driver::command::{Command, LinkKind, LinkRequest, Opened};
use crate::driver::coordinator::Unsent;
use crate::error::{Ending, Error};
use crate::management::Management;
use crate::producer::Producer;
use crate::shared::Shared;

/// The number of sends of one [`Sender`] that may wait for their confirmation. Further sends wait for a permit.
const UNCONFIRMED_MAX: usize = 1000;
/// The message format of a delivery whose data sections are messages.
pub(crate) const BATCH_FORMAT: u32 = 0x8001_3700;

/// Sends messages to one queue. It is cheap to clone; clones share the link.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use peeklock_client::{Client, Message};
///
/// let client = Client::connect("amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@127.0.0.1:5672").await?;
/// let orders = client.sender("orders").await?;
/// orders.send(&Message::data("hello").with_message_id("order-17")).await?;   // on disk when this returns
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sender {
    link: Arc<SenderLink>,
}

pub(crate) struct SenderLink {
    shared: Arc<Shared>,
    link: LinkId,
    entity: Arc<str>,
    ending: Ending,
    permits: Arc<Semaphore>,
    message_size_bytes_max: Option<u64>,
    last_number: Option<i32>,
}

impl SenderLink {
    pub(crate) async fn open(
        shared: Arc<Shared>,
        entity: &str,
        unconfirmed_max: usize,
        producer: Option<Producer>,
    ) -> Result<Self, Error> {
        let (entity, ending): (Arc<str>, _) = (entity.into(), Ending::default());
        let permits = Arc::new(Semaphore::new(unconfirmed_max));
        let kind = LinkKind::Send { permits: Arc::clone(&permits), producer };
        let request = LinkRequest { entity: Arc::clone(&entity), ending: Arc::clone(&ending), kind };
        let opened = shared.open(request).await?;
        let Opened { link, message_size_bytes_max, last_number, .. } = opened;
        Ok(Self { shared, link, entity, ending, permits, message_size_bytes_max, last_number })
    }

    pub(crate) fn check_size(&self, size_bytes: usize) -> Result<(), Error> {
        match self.message_size_bytes_max {
            Some(max) if size_bytes as u64 > max => {
                Err(Error::TooLarge { entity: Arc::clone(&self.entity), size_bytes, max })
            }
            _ => Ok(()),
        }
    }

    /// Returns the reason why the link ended.
    pub(crate) fn lost(&self) -> Error {
        self.ending.get().cloned().unwrap_or_else(|| self.shared.lost())
    }

    pub(crate) fn permits(&self) -> &Semaphore {
        &self.permits
    }

    pub(crate) fn id(&self) -> LinkId {
        self.link
    }

    /// Reserves a place in the command queue. The future can be dropped without effect.
    pub(crate) async fn place(&self) -> Result<tokio::sync::mpsc::Permit<'_, Command>, Error> {
        self.shared.commands.reserve().await.map_err(|_| self.lost())
    }
}

/// Encodes messages as one delivery; `None` if there are none.
pub(crate) fn batch(messages: &[Message]) -> Option<Bytes> {
    let parts = messages.iter().map(Encode::to_bytes).collect();
    let batch = Message { body: Body::Data(parts), ..Message::default() };
    (!messages.is_empty()).then(|| batch.to_bytes())
}

impl Drop for SenderLink {
    fn drop(&mut self) {
        self.shared.let_go(self.link);
    }
}

impl Sender {
    pub(crate) async fn open(
        shared: Arc<Shared>,
        entity: &str,
        producer: Option<Producer>,
    ) -> Result<Self, Error> {
        Ok(Self { link: Arc::new(SenderLink::open(shared, entity, UNCONFIRMED_MAX, producer).await?) })
    }

    /// For a producer that numbers its events: returns the last number that the broker had stored when the link was opened, or 0 if none.
    pub fn last_number(&self) -> Option<i32> {
        self.link.last_number
    }

    /// Returns the largest message that the entity accepts, if the broker sent a limit.
    pub fn message_size_bytes_max(&self) -> Option<u64> {
        self.link.message_size_bytes_max
    }

    /// Returns whether the link has ended.
    pub fn is_cut_off(&self) -> bool {
        self.link.ending.get().is_some() || self.link.shared.ending.get().is_some()
    }

    /// Sends one message. Returns when the broker has it on stable storage. Waits while the broker grants no credit.
    pub async fn send(&self, message: &Message) -> Result<(), Error> {
        self.send_encoded(message.to_bytes(), 0, None).await
    }

    /// Sends all messages as one delivery: all are stored or none. Together they must fit the size limit.
    pub async fn send_batch(&self, messages: &[Message]) -> Result<(), Error> {
        match batch(messages) {
            Some(payload) => self.send_encoded(payload, BATCH_FORMAT, None).await,
            None => Ok(()),
        }
    }

    /// Schedules messages, each for its own time ([`with_scheduled_time`](crate::MessageExt::with_scheduled_time)). All are stored or none.
    /// Returns their numbers for [`Sender::cancel_scheduled`]; a message gets another number when it becomes available.
    pub async fn schedule(&self, messages: &[Message]) -> Result<Vec<SequenceNumber>, Error> {
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        self.management().await?.schedule(messages).await
    }

    /// Cancels scheduled messages: all of them, or none if one of them is no longer scheduled.
    pub async fn cancel_scheduled(&self, numbers: &[SequenceNumber]) -> Result<(), Error> {
        self.management().await?.cancel_scheduled(numbers).await
    }

    /// Sends an encoded message in a transaction and waits for its outcome.
    pub(crate) async fn send_in(
        &self,
        transaction: &Bytes,
        payload: Bytes,
        message_format: u32,
    ) -> Result<(), Error> {
        self.send_encoded(payload, message_format, Some(transaction.clone())).await
    }

    /// Sends an encoded message in a transaction without an outcome. The message has the mark `unsent` until it leaves.
    pub(crate) async fn send_step(
        &self,
        transaction: &Bytes,
        payload: Bytes,
        message_format: u32,
        unsent: &Unsent,
    ) -> Result<(), Error> {
        let link = &self.link;
        link.check_size(payload.len())?;
        let permit = link.permits.acquire().await.map_err(|_| link.lost())?;
        let place = link.place().await?;
        // From here on, the driver returns the permit when the message leaves.
        permit.forget();
        let (link, transaction, unsent) = (link.link, transaction.clone(), unsent.clone());
        place.send(Command::SendStep { link, payload, message_format, transaction, unsent });
        Ok(())
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.link.shared
    }

    async fn management(&self) -> Result<Management<'_>, Error> {
        Management::open(&self.link.shared, &self.link.entity).await
    }

    /// Sends an encoded message.
    async fn send_encoded(
        &self,
        payload: Bytes,
        message_format: u32,
        transaction: Option<Bytes>,
    ) -> Result<(), Error> {
        let link = &self.link;
        link.check_size(payload.len())?;
        let permit = link.permits.acquire().await.map_err(|_| link.lost())?;
        let place = link.place().await?;
        let (reply, outcome) = oneshot::channel();
        // From here on, the driver returns the permit with the outcome.
        permit.forget();
        place.send(Command::Send { link: link.link, payload, message_format, transaction, reply });
        outcome.await.unwrap_or_else(|_| Err(link.lost()))
    }
}
