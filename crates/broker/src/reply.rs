//! Replies of a shard to its peers: answers, deliveries, and the ends of receivers.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use peeklock_engine::{CloseReason, Counts, Delivery, Head, Metadata, ReceiverId};
use peeklock_filter::Rule;
use peeklock_hubs::ReaderEnd;
use peeklock_types::{EntityKind, EntityName, LockToken, NameError, QueueSettings, ShardId, Timestamp};

use crate::hub::Events;
use crate::large::{BodyHold, KeptBody};
use crate::request::Answer;

/// A message from a shard to a peer.
#[derive(Debug)]
pub enum Reply {
    Answer(Answer),
    Receiver(ReceiverReply),
    Reader(ReaderReply),
    /// The large bodies of a transaction are durable; see [`Broker::keep_bodies`](crate::Broker::keep_bodies). The
    /// bodies are in the order of the uploads.
    Kept {
        /// The caller's own number.
        number: u32,
        result: Result<Vec<KeptBody>, Error>,
    },
    /// The shard has stopped and sends no more replies.
    Stopped {
        reason: String,
    },
}

/// The reason why bytes of a large body cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub why: String,
    /// A later attempt may succeed.
    pub is_passing: bool,
}

/// A reply for a receiver of messages.
#[derive(Debug)]
pub enum ReceiverReply {
    Deliveries(DeliveryRun),
    /// Some bytes of a large body, or the reason why they cannot be read.
    Range {
        receiver: ReceiverId,
        token: LockToken,
        bytes: Result<Bytes, Unreadable>,
    },
    Drained {
        receiver: ReceiverId,
    },
    /// The next message of a queue that the receiver watches.
    Head {
        receiver: ReceiverId,
        /// The serial of the [`Watch`](crate::request::receiving::Watch) that this reply answers.
        serial: u32,
        head: Option<Head>,
    },
    /// The receiver is detached.
    Closed {
        receiver: ReceiverId,
        reason: CloseReason,
    },
}

/// A reply for a reader of events.
#[derive(Debug)]
pub enum ReaderReply {
    Events(Box<Events>),
    Drained {
        receiver: ReceiverId,
    },
    /// The reader is detached.
    Ended {
        receiver: ReceiverId,
        reason: Box<ReaderEnd>,
    },
}

/// Consecutive deliveries to one receiver. Deliveries and bodies are in two lists, so that a delivery stays where the
/// shard has put it until its peer has sent it.
#[derive(Debug)]
pub struct DeliveryRun {
    pub shard: ShardId,
    pub receiver: ReceiverId,
    deliveries: VecDeque<Delivery>,
    /// As many as deliveries, in the same order.
    bodies: VecDeque<DeliveredBody>,
}

impl DeliveryRun {
    /// Creates a run of deliveries and their bodies. There are as many bodies as deliveries.
    pub fn new(
        shard: ShardId,
        receiver: ReceiverId,
        deliveries: Vec<Delivery>,
        bodies: Vec<DeliveredBody>,
    ) -> Self {
        debug_assert_eq!(deliveries.len(), bodies.len(), "each delivery has a body");
        DeliveryRun { shard, receiver, deliveries: deliveries.into(), bodies: bodies.into() }
    }

    pub fn len(&self) -> usize {
        self.deliveries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.deliveries.is_empty()
    }

    /// Returns the first delivery and its body.
    pub fn first(&self) -> Option<(&Delivery, &DeliveredBody)> {
        self.deliveries.front().zip(self.bodies.front())
    }

    /// Drops the first delivery, which the caller has sent.
    pub fn pass_first(&mut self) {
        self.deliveries.pop_front();
        self.bodies.pop_front();
    }

    pub fn pop_first(&mut self) -> Option<Delivered> {
        let (delivery, body) = self.deliveries.pop_front().zip(self.bodies.pop_front())?;
        Some(Delivered { delivery, body })
    }

    /// Puts a delivery back in front of the others.
    pub fn push_first(&mut self, Delivered { delivery, body }: Delivered) {
        self.deliveries.push_front(delivery);
        self.bodies.push_front(body);
    }

    /// Returns the deliveries without their bodies.
    pub fn into_deliveries(self) -> impl Iterator<Item = Delivery> {
        self.deliveries.into_iter()
    }
}

/// A delivery with its body.
#[derive(Debug)]
pub struct Delivered {
    pub delivery: Delivery,
    pub body: DeliveredBody,
}

#[derive(Debug)]
pub enum DeliveredBody {
    Whole(Bytes),
    /// The body is too large to be sent whole; [`Broker::fetch`](crate::Broker::fetch) reads it.
    Large(BodyHold),
}

/// A requested message, with the properties from the engine and the stored bytes.
#[derive(Debug)]
pub struct Message {
    /// The lock token. `None` if the message was peeked.
    pub token: Option<LockToken>,
    pub message: peeklock_engine::Message,
    pub body: Bytes,
    /// Present if `body` is only the front of a large body; [`Broker::fetch`](crate::Broker::fetch) reads the rest.
    pub rest: Option<BodyRest>,
}

/// The part of a large body that is not loaded. The body is kept until this value is dropped.
#[derive(Clone, Debug)]
pub struct BodyRest {
    pub shard: ShardId,
    pub hold: BodyHold,
}

#[derive(Clone, Debug)]
pub struct EntityInfo {
    pub name: EntityName,
    pub kind: EntityKind,
    pub settings: QueueSettings,
    /// The owner's key-value pairs.
    pub metadata: Metadata,
    pub counts: Counts,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// The time of the last use, which is not before the start of the broker.
    pub accessed_at: Timestamp,
    /// The revision, which increases with each change of the settings.
    pub revision: u64,
    /// The number of subscriptions of a topic.
    pub subscription_count: usize,
    pub sql_rule_count: usize,
    pub correlation_rule_count: usize,
    /// The number of rules of a subscription.
    pub rule_count: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RuleInfo {
    pub rule: Rule,
    pub created_at: Timestamp,
}

/// The delay before a retry after [`Error::Behind`].
pub const BEHIND_RETRY_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Engine(Box<peeklock_engine::Error>),
    #[error(
        "the disk is nearly full, so no new messages are taken; receive and complete go on. Free disk space, or raise the limit, and send again"
    )]
    DiskFull,
    #[error(
        "the log grows faster than the disk can tidy it, so no new messages are taken for a moment; receive and complete go on. Try again after {} s, or send less at a time",
        BEHIND_RETRY_AFTER.as_secs()
    )]
    Behind,
    #[error("{size_bytes} bytes are over the limit of {limit_bytes} for one message or batch")]
    TooLarge { size_bytes: usize, limit_bytes: usize },
    #[error(
        "'{name}' is the name of a group of queues in the configuration; choose another name, or rename the group"
    )]
    NameOfQueueGroup { name: EntityName },
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("the message could not be stored: {0}")]
    NotKept(String),
    #[error(
        "messages of up to {given} bytes need a namespace of the premium tier; the standard tier has messages of up to {max} bytes. Leave the \
         size out, or start the broker with --tier premium"
    )]
    StandardTier { given: u32, max: u32 },
    #[error(transparent)]
    Quota(Box<crate::manage::QuotaError>),
    #[error(transparent)]
    Hub(Box<peeklock_hubs::Error>),
    #[error(transparent)]
    Blob(Box<peeklock_blobs::Error>),
    #[error(
        "'{name}' is the name of {article} already, and a name means one entity; choose another name, or delete that one",
        article = if *is_hub { "an event hub" } else { "a queue, a topic or a subscription" }
    )]
    NameTaken { name: EntityName, is_hub: bool },
    #[error("no session of the queue has messages and is free; try again later")]
    NoSession,
    #[error("the queue was {what} while the receiver waited for a session")]
    Gone { what: &'static str },
}

impl From<peeklock_engine::Error> for Error {
    fn from(error: peeklock_engine::Error) -> Self {
        Error::Engine(Box::new(error))
    }
}

impl From<peeklock_blobs::Error> for Error {
    fn from(error: peeklock_blobs::Error) -> Self {
        Error::Blob(Box::new(error))
    }
}

impl From<peeklock_hubs::Error> for Error {
    fn from(error: peeklock_hubs::Error) -> Self {
        Error::Hub(Box::new(error))
    }
}
