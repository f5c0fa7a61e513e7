//! What a shard says to peers: answers, deliveries, and why something ended.

use std::time::Duration;

use bytes::Bytes;
use peeklock_engine::{
    CloseReason, Counts, Delivery, EntityId, Explained, ExplainedMessage, Head, HeldSession, Metadata,
    OrderView, Received, ReceiverId,
};
use peeklock_filter::Rule;
use peeklock_hubs::ReaderEnd;
use peeklock_types::{
    EntityKind, EntityName, LockToken, QueueSettings, SequenceNumber, SessionId, ShardId, Timestamp,
};

use crate::batch::Ticket;
use crate::blobs::BlobAnswer;
use crate::hub::{Events, HubAnswer};
use crate::large::{BodyHold, KeptBody};
use crate::measure::Measure;

#[derive(Debug)]
pub enum Reply {
    Answer {
        ticket: Ticket,
        result: Result<Answer, Error>,
    },
    Delivery {
        shard: ShardId,
        delivery: Delivery,
        body: Bytes,
    },
    /// A delivery whose body is too large to be passed on whole; see [`Broker::fetch`](crate::Broker::fetch).
    Large {
        shard: ShardId,
        delivery: Delivery,
        hold: BodyHold,
    },
    /// Some bytes of such a body, or why they cannot be read.
    Range {
        receiver: ReceiverId,
        token: LockToken,
        bytes: Result<Bytes, String>,
    },
    Drained {
        receiver: ReceiverId,
    },
    /// What the queue of a receiver that watches would hand out next.
    Head {
        receiver: ReceiverId,
        /// Of the [`Request::Watch`](crate::Request::Watch) that it answers.
        serial: u32,
        head: Option<Head>,
    },
    /// The receiver is detached.
    Closed {
        receiver: ReceiverId,
        reason: CloseReason,
    },
    Events(Box<Events>),
    /// The reader is detached.
    ReaderEnded {
        receiver: ReceiverId,
        reason: Box<ReaderEnd>,
    },
    /// The shard has stopped and will answer nothing more.
    Stopped {
        reason: String,
    },
}

impl Reply {
    /// The delivery that it brings, if it brings one.
    pub fn into_delivery(self) -> Option<Delivery> {
        match self {
            Reply::Delivery { delivery, .. } | Reply::Large { delivery, .. } => Some(delivery),
            Reply::Answer { .. }
            | Reply::Range { .. }
            | Reply::Drained { .. }
            | Reply::Head { .. }
            | Reply::Closed { .. }
            | Reply::Events(_)
            | Reply::ReaderEnded { .. }
            | Reply::Stopped { .. } => None,
        }
    }
}

#[derive(Debug)]
pub enum Answer {
    Done,
    Found(Found),
    /// With the session, if the queue has any.
    Attached(Option<HeldSession>),
    Renewed(Vec<Timestamp>),
    Messages(Vec<Message>),
    Entities(Vec<EntityInfo>),
    Names(Vec<EntityName>),
    Rules(Vec<RuleInfo>),
    Explained(Vec<Explained>),
    /// `None`: the queue has no order.
    Order(Option<Box<OrderView>>),
    ExplainedMessage(Box<ExplainedMessage>),
    Measures(Vec<Measure>),
    Scheduled(Vec<SequenceNumber>),
    Sessions(Vec<SessionId>),
    State(Option<Bytes>),
    /// How many messages it hit.
    Count(u64),
    Brought(TransferOutcome),
    /// Carries durable large bodies, in the order of the uploads.
    Kept(Vec<KeptBody>),
    Hub(Box<HubAnswer>),
    Blob(Box<BlobAnswer>),
    /// `None`: the message has failed too often, and went to the dead letters.
    Receipt(Option<Box<Received>>),
}

/// An entity, with what its senders must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub entity: EntityId,
    pub kind: EntityKind,
    /// Whether messages belong to sessions, and receivers hold them.
    pub requires_session: bool,
    pub max_message_size_bytes: u32,
    /// Whether messages must come with their message ids: the queue detects duplicates, or forwards to one that may.
    pub needs_message_id: bool,
    /// Whether messages should come with their views: it is a topic, or a queue with an order. What comes without, the shard looks at itself.
    pub needs_view: bool,
}

/// A message that was asked for, with what the engine knows of it and its stored bytes.
#[derive(Debug)]
pub struct Message {
    /// `None` if it was only looked at.
    pub token: Option<LockToken>,
    pub message: peeklock_engine::Message,
    pub body: Bytes,
    /// Set if `body` is only the front of a large one; [`Broker::fetch`](crate::Broker::fetch) reads the rest.
    pub rest: Option<BodyRest>,
}

/// The part of a large body that is not loaded. The body stays as long as this is held.
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
    /// The owner's names and values.
    pub metadata: Metadata,
    pub counts: Counts,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// When somebody used it last; since the start of the broker at the earliest.
    pub accessed_at: Timestamp,
    /// Grows with each change of the settings.
    pub revision: u64,
    /// Of a topic.
    pub subscription_count: usize,
    pub sql_rule_count: usize,
    pub correlation_rule_count: usize,
    /// Of a subscription.
    pub rule_count: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RuleInfo {
    pub rule: Rule,
    pub created_at: Timestamp,
}

/// How far a shard has taken what was brought to it.
#[derive(Debug, Default)]
pub struct TransferOutcome {
    /// Everything up to this number is taken.
    pub(crate) upto: u64,
    /// The next one is refused, and nothing behind it was looked at.
    pub(crate) refused: Option<(u64, String)>,
}

/// When to send again after [`Error::Behind`].
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
    #[error("the message could not be stored: {0}")]
    NotKept(String),
    #[error(
        "messages of up to {given} bytes need a namespace of the premium tier; the standard tier has messages of up to {max} bytes. Leave the \
         size out, or start the broker with --tier premium"
    )]
    StandardTier { given: u32, max: u32 },
    #[error(transparent)]
    Quota(Box<crate::quotas::QuotaError>),
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
