//! The transport between shards: messages from a shard's outbox are sent to their target, and the outcome is returned
//! to the source.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use peeklock_engine::OutMessage;
use peeklock_journal::{ReadError, StoredBody};
use peeklock_types::ShardId;
use tokio::sync::mpsc;

use crate::batch::{Batch, Peer, PeerId};
use crate::broker::{Describe, ShardHandle};
use crate::large::{BodyHold, CopyError, LargeStore};
use crate::reply::Reply;
use crate::request::outbox::{Bring, Brought, TransferOutcome, Transferred};
use crate::request::{Ask, Request, Ticket};
use crate::shard::Envelope;
use crate::shard::outgoing::Load;

/// The pause before a retry when the target cannot accept messages.
const RETRY_AFTER: Duration = Duration::from_secs(1);

const UNREADABLE: &str = "its body cannot be read from the disk";

/// Sends to all shards without keeping any of them alive.
#[derive(Clone)]
pub(crate) struct Router {
    shards: Arc<[mpsc::WeakSender<Envelope>]>,
    large: Arc<[LargeStore]>,
    next_peer: Arc<AtomicU64>,
    describe: Describe,
}

/// Messages with their bodies.
pub(crate) type Loads = Vec<(OutMessage, Load)>;

/// The way of messages from one shard to another.
pub(crate) struct Route {
    /// A shard has at most one load in flight to another, so this never contains more than one.
    loads: mpsc::UnboundedSender<Loads>,
}

impl Route {
    pub(crate) fn bring(&self, load: Loads) {
        // The task of the route ends after this sender only. Without it, the messages stay in the outbox.
        let _ = self.loads.send(load);
    }
}

/// A peer at a shard, with its replies.
struct Link {
    peer: Peer,
    replies: mpsc::UnboundedReceiver<Vec<Reply>>,
}

/// The reason why messages have not arrived at their target yet.
enum Delay {
    /// The target cannot accept messages at present; a later attempt may succeed.
    Busy,
    /// The broker is stopping. The messages stay in the outbox.
    Stopping,
}

impl Router {
    pub(crate) fn new(shards: &[ShardHandle], next_peer: Arc<AtomicU64>, describe: Describe) -> Self {
        let large = shards.iter().map(|shard| shard.large.clone()).collect();
        Router {
            shards: shards.iter().map(|shard| shard.incoming.downgrade()).collect(),
            large,
            next_peer,
            describe,
        }
    }

    /// Starts a route: a task that transfers messages from `source` to `target` and reports their outcome to `source`.
    /// It ends when the sender of its loads is dropped.
    pub(crate) fn route(&self, source: ShardId, target: ShardId) -> Route {
        let (sender, mut loads) = mpsc::unbounded_channel();
        let router = self.clone();
        tokio::spawn(async move {
            let mut link = router.link();
            while let Some(load) = loads.recv().await {
                router.run(source, target, &mut link, load).await;
            }
            let _ = router.send(target, &link.peer, Batch::from(Request::Gone)).await;
        });
        Route { loads: sender }
    }

    /// Transfers one message whose body is too large to be loaded.
    pub(crate) fn bring_large(&self, source: ShardId, target: ShardId, message: OutMessage, hold: BodyHold) {
        let run = self.clone().run_large(source, target, message);
        tokio::spawn(async move {
            run.await;
            drop(hold);
        });
    }

    async fn run(&self, source: ShardId, target: ShardId, link: &mut Link, load: Loads) {
        let outcome = loop {
            match self.offer(source, target, link, &load).await {
                Ok(outcome) => break outcome,
                Err(Delay::Busy) => tokio::time::sleep(RETRY_AFTER).await,
                Err(Delay::Stopping) => return,
            }
        };
        self.report(source, target, outcome).await;
    }

    async fn run_large(self, source: ShardId, target: ShardId, message: OutMessage) {
        let outcome = loop {
            match self.offer_large(source, target, &message).await {
                Ok(outcome) => break outcome,
                Err(Delay::Busy) => tokio::time::sleep(RETRY_AFTER).await,
                Err(Delay::Stopping) => return,
            }
        };
        self.report(source, target, outcome).await;
    }

    async fn report(&self, source: ShardId, target: ShardId, outcome: TransferOutcome) {
        let mut batch = Batch::from(Transferred { target, outcome });
        batch.push(Request::Gone);
        let _ = self.send(source, &self.link().peer, batch).await;
    }

    async fn offer(
        &self,
        source: ShardId,
        target: ShardId,
        link: &mut Link,
        load: &Loads,
    ) -> Result<TransferOutcome, Delay> {
        let readable = load.iter().take_while(|(_, body)| matches!(body, Load::Body(_))).count();
        let mut outcome = TransferOutcome::default();
        if let Some(batch) = write(source, &load[..readable]) {
            outcome = self.ask(target, link, batch).await?;
        }
        match load.get(readable) {
            Some((lost, Load::Lost)) if outcome.refused.is_none() => {
                outcome.refused = Some((lost.number, UNREADABLE.to_owned()));
            }
            // The rest stays in the outbox, and its bodies are read again.
            Some((_, Load::Failed)) => tokio::time::sleep(RETRY_AFTER).await,
            _ => {}
        }
        Ok(outcome)
    }

    async fn offer_large(
        &self,
        source: ShardId,
        target: ShardId,
        message: &OutMessage,
    ) -> Result<TransferOutcome, Delay> {
        let store = |shard: ShardId| self.large.get(usize::from(shard.0)).ok_or(Delay::Stopping);
        let body = StoredBody { place: message.body, size_bytes: message.size_bytes };
        // The target may be a topic or have an order, which both need properties, and the shard does not read large
        // bodies.
        let front = match store(source)?.front(body).await {
            Ok(front) => front,
            Err(error) => return unread(message, CopyError::Read(error), target),
        };
        let copy = match store(target)?.copy_from(store(source)?, body).await {
            Ok(copy) => copy,
            Err(error) => return unread(message, error, target),
        };
        let mut attributes = message.attributes.clone();
        let view = (self.describe)(&front, &attributes.patch);
        attributes.view = Some(view.unwrap_or_else(|| Bytes::from_static(peeklock_filter::UNREADABLE)));
        let mut batch = Batch::default();
        let mut messages = batch.messages();
        messages.add_stored(copy, Some(attributes));
        let first = messages.keep().start;
        let brought = Brought { number: message.number, target: message.target.clone(), message: first };
        batch.ask(Ticket::new(0), Bring { source, messages: vec![brought] });
        let mut link = self.link();
        let outcome = self.ask(target, &mut link, batch).await;
        let _ = self.send(target, &link.peer, Batch::from(Request::Gone)).await;
        outcome
    }

    async fn ask(
        &self,
        target: ShardId,
        Link { peer, replies }: &mut Link,
        batch: Batch,
    ) -> Result<TransferOutcome, Delay> {
        self.send(target, peer, batch).await?;
        let reply = replies.recv().await.and_then(|replies| replies.into_iter().next());
        let answered = reply.and_then(|reply| match reply {
            Reply::Answer(answer) => Bring::answered(answer),
            _ => None,
        });
        // The target has no room at present, or its journal has failed and it accepts nothing before a restart.
        answered.and_then(|answered| answered.result.ok()).ok_or(Delay::Busy)
    }

    fn link(&self) -> Link {
        let (peer, replies) = Peer::new(PeerId(self.next_peer.fetch_add(1, Ordering::Relaxed)));
        Link { peer, replies }
    }

    async fn send(&self, shard: ShardId, peer: &Peer, batch: Batch) -> Result<(), Delay> {
        let handle = self.shards.get(usize::from(shard.0)).and_then(mpsc::WeakSender::upgrade);
        let handle = handle.ok_or(Delay::Stopping)?;
        handle.send(Envelope { peer: peer.clone(), batch, place: None }).await.map_err(|_| Delay::Busy)
    }
}

/// Returns the outcome for a message whose body could not be copied: the message waits, unless its body can never be
/// read.
fn unread(message: &OutMessage, error: CopyError, target: ShardId) -> Result<TransferOutcome, Delay> {
    if let CopyError::Read(ReadError::Corrupt { .. } | ReadError::Gone(_)) = error {
        let refused = Some((message.number, UNREADABLE.to_owned()));
        return Ok(TransferOutcome { refused, ..TransferOutcome::default() });
    }
    tracing::warn!("a large message waits to be brought to {target}: {error}");
    Err(Delay::Busy)
}

/// Returns the messages as a batch for their target; `None` if there are none.
fn write(source: ShardId, load: &[(OutMessage, Load)]) -> Option<Batch> {
    let mut batch = Batch::default();
    let mut messages = batch.messages();
    let mut brought = Vec::with_capacity(load.len());
    for (message, body) in load {
        let OutMessage { number, target, attributes, .. } = message;
        brought.push(Brought { number: *number, target: target.clone(), message: messages.count() });
        let written = messages.add(|out: &mut BytesMut| -> Result<_, std::convert::Infallible> {
            if let Load::Body(body) = body {
                out.extend_from_slice(body);
            }
            Ok(Some(attributes.clone()))
        });
        let Ok(()) = written;
    }
    let first = messages.keep().start;
    brought.iter_mut().for_each(|brought| brought.message += first);
    let is_empty = brought.is_empty();
    batch.ask(Ticket::new(0), Bring { source, messages: brought });
    (!is_empty).then_some(batch)
}
