//! Messages that are too large for a shard's queue. Their bodies are written to and read from the journal piece by
//! piece, bypassing the shard. The shard receives a message when its body is durable, and delivers it by its place.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use peeklock_engine::{Attributes, EntityId, ReceiverId};
use peeklock_journal::{BodyError, BodyReader, LargeBodies, LargeBody, ReadError, StoredBody};
use peeklock_types::{BodyRef, LockToken, limits};
use tokio::sync::{mpsc, oneshot};

use crate::batch::{Batch, Peer};
use crate::broker::{Broker, ShardStopped};
use crate::manage::AdminError;
use crate::reply::{Error, ReceiverReply, Reply, Unreadable};
use crate::request::sending::{GiveUpBodies, SendMessages};
use crate::request::{Answered, Ask, Ticket};
use crate::shard::patience;

/// The maximum size of a body that is loaded whole.
pub const WHOLE_BODY_BYTES_MAX: u32 = limits::WHOLE_BODY_BYTES_MAX;
/// The number of bytes of a larger body that are loaded first.
pub const FRONT_BYTES: u32 = limits::BODY_FRONT_BYTES;
/// The maximum number of pieces of an upload that wait for the disk.
const STEPS_MAX: usize = 2;
/// The number of bytes that are copied at a time from one shard to another.
const COPY_BYTES: u32 = 256 * 1024;

/// Returns whether a body of this size is never loaded whole.
pub(crate) fn is_large(size_bytes: u32) -> bool {
    size_bytes > WHOLE_BODY_BYTES_MAX
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Access to the large bodies of one shard, for any journal.
#[derive(Clone)]
pub(crate) struct LargeStore(Arc<dyn Ways>);

trait Ways: Send + Sync {
    fn start(&self) -> Boxed<'static, Result<Box<dyn Draft>, BodyError>>;
    fn read_range(&self, body: StoredBody, range: Range<u32>) -> Boxed<'static, Result<Bytes, ReadError>>;
}

trait Draft: Send {
    fn write(&mut self, pieces: Vec<Bytes>) -> Boxed<'_, Result<(), BodyError>>;
    fn finish(self: Box<Self>) -> Boxed<'static, Result<StoredBody, BodyError>>;
}

struct JournalWays<B, R> {
    bodies: B,
    reader: R,
}

impl<B: LargeBodies, R: BodyReader> Ways for JournalWays<B, R> {
    fn start(&self) -> Boxed<'static, Result<Box<dyn Draft>, BodyError>> {
        let started = self.bodies.start();
        Box::pin(async move { Ok(Box::new(JournalDraft(started.await?)) as Box<dyn Draft>) })
    }

    fn read_range(&self, body: StoredBody, range: Range<u32>) -> Boxed<'static, Result<Bytes, ReadError>> {
        let reader = self.reader.clone();
        Box::pin(async move { patience::read_range(&reader, body, range).await })
    }
}

struct JournalDraft<B>(B);

impl<B: LargeBody> Draft for JournalDraft<B> {
    fn write(&mut self, pieces: Vec<Bytes>) -> Boxed<'_, Result<(), BodyError>> {
        Box::pin(self.0.write(pieces))
    }

    fn finish(self: Box<Self>) -> Boxed<'static, Result<StoredBody, BodyError>> {
        Box::pin(async move { self.0.finish().await })
    }
}

impl LargeStore {
    pub(crate) fn new(bodies: impl LargeBodies, reader: impl BodyReader) -> Self {
        LargeStore(Arc::new(JournalWays { bodies, reader }))
    }

    /// Copies a body from another shard.
    pub(crate) async fn copy_from(
        &self,
        source: &LargeStore,
        body: StoredBody,
    ) -> Result<StoredBody, CopyError> {
        let mut draft = self.0.start().await?;
        let mut at = 0;
        while at < body.size_bytes {
            let end = at.saturating_add(COPY_BYTES).min(body.size_bytes);
            let piece = source.0.read_range(body, at..end).await?;
            draft.write(vec![piece]).await?;
            at = end;
        }
        Ok(draft.finish().await?)
    }
}

impl LargeStore {
    /// Reads the first bytes of a body, which contain its properties.
    pub(crate) async fn front(&self, body: StoredBody) -> Result<Bytes, ReadError> {
        self.0.read_range(body, 0..FRONT_BYTES.min(body.size_bytes)).await
    }
}

/// The reason why a body could not be copied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CopyError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] BodyError),
}

impl From<BodyError> for Error {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::NoSpace(_) => Error::DiskFull,
            other => Error::NotKept(other.to_string()),
        }
    }
}

/// A large message that is being received. If it is dropped before [`Upload::finish`], nothing remains stored.
#[derive(Debug)]
pub struct Upload {
    steps: mpsc::Sender<Step>,
}

#[derive(Debug)]
enum Step {
    Write(Vec<Bytes>),
    Finish { entity: EntityId, attributes: Option<Box<Attributes>> },
    Keep(oneshot::Sender<Result<KeptBody, Error>>),
}

impl Upload {
    /// Appends to the stored form of the message, and waits while the disk is behind. Errors are reported when the
    /// upload ends.
    pub async fn write(&self, pieces: Vec<Bytes>) {
        let _ = self.steps.send(Step::Write(pieces)).await;
    }

    /// Ends a complete upload. The peer receives the answer under the ticket that was given at the start.
    pub async fn finish(self, entity: EntityId, attributes: Option<Box<Attributes>>) {
        let _ = self.steps.send(Step::Finish { entity, attributes }).await;
    }

    /// Makes a complete body durable without a message.
    async fn keep(self) -> Result<KeptBody, Error> {
        let (reply, kept) = oneshot::channel();
        let _ = self.steps.send(Step::Keep(reply)).await;
        kept.await.unwrap_or_else(|_| Err(Error::NotKept(ShardStopped.to_string())))
    }
}

/// Owns a durable large body that no message uses yet. Dropping it deletes the body.
pub struct KeptBody {
    body: StoredBody,
    shard: usize,
    /// The broker that deletes the body on drop; `None` once a message uses the body.
    broker: Option<Broker>,
}

impl KeptBody {
    /// Returns the body for a message that will use it.
    pub(crate) fn take(mut self) -> StoredBody {
        self.broker = None;
        self.body
    }

    /// Copies the body to another shard and deletes the original.
    async fn copied_to(self, broker: &Broker, home: usize) -> Result<Self, Error> {
        if self.shard == home {
            return Ok(self);
        }
        let store = |shard| broker.shard(shard).map(|handle| handle.large.clone());
        let stopped = || Error::NotKept(ShardStopped.to_string());
        let (from, to) = store(self.shard).zip(store(home)).ok_or_else(stopped)?;
        let body = to.copy_from(&from, self.body).await.map_err(|error| match error {
            CopyError::Write(error) => error.into(),
            CopyError::Read(error) => Error::NotKept(error.to_string()),
        })?;
        Ok(KeptBody { body, shard: home, broker: Some(broker.clone()) })
    }
}

impl Drop for KeptBody {
    fn drop(&mut self) {
        // Without a runtime the broker is gone, and the journal removes unreferenced bodies when it is opened.
        if let Some(broker) = self.broker.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (shard, body) = (self.shard, self.body);
            runtime.spawn(async move {
                let mut batch = Batch::default();
                let mut messages = batch.messages();
                messages.add_stored(body, None);
                let messages = messages.keep();
                let _ = broker.ask_with(shard, batch, GiveUpBodies { messages }).await;
            });
        }
    }
}

impl std::fmt::Debug for KeptBody {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("KeptBody").field("body", &self.body).field("shard", &self.shard).finish()
    }
}

impl Broker {
    /// Starts to store a large message in a queue of this shard.
    pub fn upload(&self, shard: usize, peer: &Peer, ticket: Ticket<SendMessages>) -> Upload {
        let (steps, incoming) = mpsc::channel(STEPS_MAX);
        tokio::spawn(take_in(self.clone(), shard, peer.clone(), ticket, incoming));
        Upload { steps }
    }

    /// Makes the large bodies of a transaction durable in the shard that commits it. Bodies that were uploaded to
    /// another shard are copied. The peer receives [`Reply::Kept`] with the same number.
    pub fn keep_bodies(&self, home: usize, peer: &Peer, number: u32, uploads: Vec<Upload>) {
        let (broker, replies) = (self.clone(), peer.replies.clone());
        tokio::spawn(async move {
            let result = keep_all(&broker, home, uploads).await;
            let _ = replies.send(vec![Reply::Kept { number, result }]);
        });
    }

    /// Reads some bytes of a large message. The peer receives them as [`ReceiverReply::Range`].
    pub fn fetch(&self, shard: usize, peer: &Peer, wanted: Wanted) {
        let Some(handle) = self.shard(shard) else { return };
        let read = handle.large.0.read_range(wanted.body, wanted.range);
        let (replies, receiver, token) = (peer.replies.clone(), wanted.receiver, wanted.token);
        tokio::spawn(async move {
            let bytes = read.await.map_err(|error| Unreadable {
                why: error.to_string(),
                is_passing: matches!(error, ReadError::Io { .. }),
            });
            let _ = replies.send(vec![Reply::Receiver(ReceiverReply::Range { receiver, token, bytes })]);
        });
    }
}

/// A range of bytes of one delivery.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub receiver: ReceiverId,
    pub token: LockToken,
    pub body: StoredBody,
    pub range: Range<u32>,
}

async fn take_in(
    broker: Broker,
    shard: usize,
    peer: Peer,
    ticket: Ticket<SendMessages>,
    mut steps: mpsc::Receiver<Step>,
) {
    let Some(store) = broker.shard(shard).map(|handle| handle.large.clone()) else { return };
    let mut draft = store.0.start().await;
    while let Some(step) = steps.recv().await {
        match step {
            Step::Write(pieces) => {
                if let Ok(open) = &mut draft
                    && let Err(error) = open.write(pieces).await
                {
                    draft = Err(error);
                }
            }
            Step::Finish { entity, attributes } => {
                let result = keep(&broker, shard, draft, entity, attributes).await;
                let answer = SendMessages::answer(Answered { ticket, result });
                let _ = peer.replies.send(vec![Reply::Answer(answer)]);
                return;
            }
            Step::Keep(reply) => {
                let kept = match draft {
                    Ok(draft) => draft.finish().await,
                    Err(error) => Err(error),
                };
                let kept = kept.map(|body| KeptBody { body, shard, broker: Some(broker) });
                let _ = reply.send(kept.map_err(Error::from));
                return;
            }
        }
    }
}

async fn keep_all(broker: &Broker, home: usize, uploads: Vec<Upload>) -> Result<Vec<KeptBody>, Error> {
    let mut kept = Vec::with_capacity(uploads.len());
    for upload in uploads {
        kept.push(upload.keep().await?.copied_to(broker, home).await?);
    }
    Ok(kept)
}

async fn keep(
    broker: &Broker,
    shard: usize,
    draft: Result<Box<dyn Draft>, BodyError>,
    entity: EntityId,
    attributes: Option<Box<Attributes>>,
) -> Result<(), Error> {
    let body = draft?.finish().await?;
    let mut batch = Batch::default();
    let mut messages = batch.messages();
    messages.add_stored(body, attributes);
    let messages = messages.keep();
    match broker.ask_with(shard, batch, SendMessages { entity, messages }).await {
        Ok(()) => Ok(()),
        Err(AdminError::Refused(error)) => Err(error),
        Err(AdminError::Stopped(stopped)) => Err(Error::NotKept(stopped.to_string())),
    }
}

/// A hold on a large body. The body is kept until every hold is dropped, even if its message is gone.
#[derive(Clone, Debug)]
pub struct BodyHold(#[expect(dead_code, reason = "only its presence counts")] Arc<()>);

/// The large bodies with a hold.
#[derive(Default)]
pub(crate) struct Holds(Vec<(BodyRef, Weak<()>)>);

impl Holds {
    pub(crate) fn take(&mut self, body: BodyRef) -> BodyHold {
        self.0.retain(|(_, held)| held.strong_count() > 0);
        let hold = Arc::new(());
        self.0.push((body, Arc::downgrade(&hold)));
        BodyHold(hold)
    }

    pub(crate) fn is_held(&self, body: BodyRef) -> bool {
        self.0.iter().any(|(held, by)| *held == body && by.strong_count() > 0)
    }
}
