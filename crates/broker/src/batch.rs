use std::ops::Range;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use peeklock_engine::{
    Attributes, CloseReason, Counts, Delivery, EntityId, Explained, ExplainedMessage, Head, HeldSession,
    Metadata, OrderView, ReceiveMode, Received, ReceiverId, Settlement,
};
use peeklock_filter::{Rule, RuleName};
use peeklock_hubs::{Producer, ReaderEnd, ReaderSpec};
use peeklock_journal::StoredBody;
use peeklock_types::{
    EntityKind, EntityName, LockToken, QueueSettings, SequenceNumber, SessionId, ShardId, SubQueue, Timestamp,
};
use tokio::sync::mpsc;

use crate::blobs::{BlobAnswer, BlobRequest};
use crate::hub::{Events, Fence, HubAnswer, HubRequest, Partition};
use crate::large::BodyHold;
use crate::measure::Measure;
use crate::receipts::ReceiptRequest;

/// One connection, unique while its broker lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerId(pub(crate) u64);

impl PeerId {
    const LOCAL_BITS: u32 = 24;
    /// How many receivers one peer can have.
    pub const RECEIVERS_MAX: u32 = 1 << Self::LOCAL_BITS;

    /// The receiver with the peer's own number `local`; the peer can be read off it again.
    pub fn receiver(self, local: u32) -> ReceiverId {
        debug_assert!(local < Self::RECEIVERS_MAX);
        ReceiverId((self.0 << Self::LOCAL_BITS) | u64::from(local))
    }

    pub fn of(receiver: ReceiverId) -> PeerId {
        PeerId(receiver.0 >> Self::LOCAL_BITS)
    }

    #[expect(clippy::cast_possible_truncation, reason = "masked to the width of the field")]
    pub fn local(receiver: ReceiverId) -> u32 {
        (receiver.0 & u64::from(Self::RECEIVERS_MAX - 1)) as u32
    }
}

/// How shards reach a peer: one channel for everything. It needs no bound of its own: what a peer can have waiting is bounded by the
/// credit and the byte window that it gave, and by the requests it has open.
#[derive(Clone, Debug)]
pub struct Peer {
    pub id: PeerId,
    pub replies: mpsc::UnboundedSender<Vec<Reply>>,
}

impl Peer {
    pub(crate) fn new(id: PeerId) -> (Self, mpsc::UnboundedReceiver<Vec<Reply>>) {
        let (replies, incoming) = mpsc::unbounded_channel();
        (Peer { id, replies }, incoming)
    }
}

/// A peer's own number for a request, given back with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// Everything that one peer asks of one shard at one time. The bytes of new messages lie in one arena, so a message costs no allocation.
#[derive(Debug, Default)]
pub struct Batch {
    pub(crate) requests: Vec<Request>,
    arena: BytesMut,
    messages: Vec<Written>,
}

/// A message whose bytes lie in a batch's arena, or in the journal already.
#[derive(Debug)]
struct Written {
    bytes: Range<usize>,
    stored: Option<StoredBody>,
    attributes: Option<Box<Attributes>>,
}

/// A session, and the receiver that says that it holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionHold {
    pub session: SessionId,
    pub receiver: ReceiverId,
}

/// Which session a receiver asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionAsk {
    /// None: the queue has no sessions.
    None,
    Named(SessionId),
    /// The next that has messages and that nobody holds. The answer comes when there is one, or an error after `timeout`.
    Next {
        timeout: Duration,
    },
}

/// A settlement that is part of a transaction.
#[derive(Clone, Debug)]
pub struct TransactionSettle {
    pub sub_queue: SubQueue,
    pub token: LockToken,
    pub settlement: Settlement,
}

/// A send that is part of a transaction.
#[derive(Clone, Debug)]
pub struct TransactionSend {
    pub target: EntityName,
    /// Numbers of messages that were written to the batch.
    pub messages: Range<usize>,
}

#[derive(Debug)]
pub enum Request {
    /// Store the messages that were written to the batch under these numbers: all or none.
    Send {
        ticket: Ticket,
        entity: EntityId,
        messages: Range<usize>,
    },
    /// The same, and the answer names the messages' sequence numbers: for those who may cancel scheduled ones.
    Schedule {
        ticket: Ticket,
        entity: EntityId,
        messages: Range<usize>,
    },
    CancelScheduled {
        ticket: Ticket,
        entity: EntityId,
        numbers: Vec<SequenceNumber>,
    },
    Settle {
        ticket: Ticket,
        entity: EntityId,
        sub_queue: SubQueue,
        token: LockToken,
        settlement: Settlement,
    },
    /// Several at once: all or none. `session`: the messages must belong to it.
    SettleAll {
        ticket: Ticket,
        entity: EntityId,
        sub_queue: SubQueue,
        tokens: Vec<LockToken>,
        settlement: Settlement,
        session: Option<SessionId>,
    },
    /// Whether the lock is held now: a settlement of it takes part in a transaction.
    CheckLock {
        ticket: Ticket,
        entity: EntityId,
        sub_queue: SubQueue,
        token: LockToken,
    },
    /// Settlements of one queue and sends to any, all or nothing. A send to another shard goes by way of `entity`.
    Commit {
        ticket: Ticket,
        entity: EntityId,
        settles: Vec<TransactionSettle>,
        sends: Vec<TransactionSend>,
    },
    /// A delivery that never reached its receiver goes back uncounted. Nobody waits for it.
    Release {
        entity: EntityId,
        sub_queue: SubQueue,
        token: LockToken,
    },
    /// The receiver takes deliveries until there were `limit` in all. A running count, not a rest: deliveries that are on their way to the
    /// peer while it says this are in it.
    Credit {
        receiver: ReceiverId,
        limit: u64,
        drain: Drain,
    },
    /// The receiver takes deliveries until there were `limit` in all, none less urgent than `not_after`, and no more than there are now.
    /// [`Reply::Drained`] says when that is done. See [`Request::Watch`].
    Take {
        receiver: ReceiverId,
        limit: u64,
        not_after: Option<Timestamp>,
    },
    /// Tell the receiver by [`Reply::Head`] which message is next, now and whenever that changes; or stop to, for `None`.
    Watch {
        receiver: ReceiverId,
        serial: Option<u32>,
    },
    /// The peer has passed on this many bytes of deliveries.
    Window {
        receiver: ReceiverId,
        size_bytes: i64,
    },
    Attach {
        ticket: Ticket,
        entity: EntityId,
        sub_queue: SubQueue,
        receiver: ReceiverId,
        mode: ReceiveMode,
        session: SessionAsk,
    },
    Detach {
        ticket: Ticket,
        receiver: ReceiverId,
    },
    Renew {
        ticket: Ticket,
        entity: EntityId,
        sub_queue: SubQueue,
        tokens: Vec<LockToken>,
    },
    Peek {
        ticket: Ticket,
        entity: EntityId,
        sub_queue: SubQueue,
        from: SequenceNumber,
        count_max: usize,
        session: Option<SessionId>,
    },
    ReceiveDeferred {
        ticket: Ticket,
        entity: EntityId,
        sub_queue: SubQueue,
        numbers: Vec<SequenceNumber>,
        mode: ReceiveMode,
        /// In a queue with sessions: whose messages they are.
        hold: Option<SessionHold>,
    },
    RenewSession {
        ticket: Ticket,
        entity: EntityId,
        hold: SessionHold,
    },
    SessionState {
        ticket: Ticket,
        entity: EntityId,
        hold: SessionHold,
    },
    SetSessionState {
        ticket: Ticket,
        entity: EntityId,
        hold: SessionHold,
        state: Option<Bytes>,
    },
    /// Sessions by name: those with messages, or those whose state was set after a time.
    ListSessions {
        ticket: Ticket,
        entity: EntityId,
        updated_since: Option<Timestamp>,
        skip: usize,
        top: usize,
    },
    /// Deletes messages that nobody holds: the oldest `count_max` of those that came before `before`.
    Purge {
        ticket: Ticket,
        entity: EntityId,
        sub_queue: SubQueue,
        before: Option<Timestamp>,
        count_max: Option<u64>,
    },
    Find {
        ticket: Ticket,
        name: EntityName,
    },
    /// `rule`: the first rule of a subscription; without one it gets everything.
    Create {
        ticket: Ticket,
        name: EntityName,
        kind: EntityKind,
        settings: Box<QueueSettings>,
        rule: Option<Box<Rule>>,
    },
    /// `expected`: the revision that the caller has read.
    Update {
        ticket: Ticket,
        name: EntityName,
        settings: Box<QueueSettings>,
        expected: Option<u64>,
    },
    Delete {
        ticket: Ticket,
        name: EntityName,
        expected: Option<u64>,
    },
    Show {
        ticket: Ticket,
        name: EntityName,
    },
    /// Entities by name, after `after`, at most `top`.
    List {
        ticket: Ticket,
        what: Listing,
        after: Option<EntityName>,
        top: usize,
    },
    /// Only their names, all of them.
    Names {
        ticket: Ticket,
        what: Listing,
    },
    AddRule {
        ticket: Ticket,
        name: EntityName,
        rule: Box<Rule>,
    },
    /// In place of the one with the same name.
    ReplaceRule {
        ticket: Ticket,
        name: EntityName,
        rule: Box<Rule>,
    },
    RemoveRule {
        ticket: Ticket,
        name: EntityName,
        rule: RuleName,
    },
    ShowRule {
        ticket: Ticket,
        name: EntityName,
        rule: RuleName,
    },
    ListRules {
        ticket: Ticket,
        name: EntityName,
        skip: usize,
        top: usize,
    },
    /// What a topic would do with a message that has these properties.
    Explain {
        ticket: Ticket,
        name: EntityName,
        view: Bytes,
    },
    /// What happens in the order of a queue.
    ShowOrder {
        ticket: Ticket,
        name: EntityName,
    },
    /// Why a message has not been received yet.
    ExplainMessage {
        ticket: Ticket,
        name: EntityName,
        number: SequenceNumber,
    },
    /// Entities of all kinds with what monitoring wants to know: by name, after `after`, at most `top`.
    Measure {
        ticket: Ticket,
        after: Option<EntityName>,
        top: usize,
    },
    /// Store the events that were written to the batch under the number `block` by [`peeklock_hubs::block::put_event`]: all or none.
    /// `producer`: with the number of the first event.
    Append {
        ticket: Ticket,
        partition: Partition,
        block: usize,
        count: u32,
        producer: Option<Producer>,
    },
    /// A reader of events. [`Request::Credit`], [`Request::Window`] and [`Request::Detach`] are for readers, too.
    AttachReader {
        ticket: Ticket,
        partition: Partition,
        receiver: ReceiverId,
        spec: Box<ReaderSpec>,
        fence: Fence,
    },
    Hub {
        ticket: Ticket,
        request: Box<HubRequest>,
    },
    Blob {
        ticket: Ticket,
        request: Box<BlobRequest>,
    },
    /// Messages without a receiver: what storage queues do.
    Receipt {
        ticket: Ticket,
        request: Box<ReceiptRequest>,
    },
    /// The peer has gone; what it had attached is detached.
    Gone,
    /// Messages from the outbox of a shard, in order. The answer says how far they were taken.
    Bring {
        ticket: Ticket,
        source: ShardId,
        messages: Vec<Brought>,
    },
    /// What became of messages that were brought to `target`.
    Transferred {
        target: ShardId,
        outcome: TransferOutcome,
    },
}

/// Which entities are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    All,
    Queues,
    Topics,
    Subscriptions { topic: EntityName },
}

/// A message from another shard.
#[derive(Debug)]
pub struct Brought {
    pub(crate) number: u64,
    pub(crate) target: EntityName,
    /// Its number among those that were written to the batch.
    pub(crate) message: usize,
}

/// How far a shard has taken what was brought to it.
#[derive(Debug, Default)]
pub struct TransferOutcome {
    /// Everything up to this number is taken.
    pub(crate) upto: u64,
    /// The next one is refused, and nothing behind it was looked at.
    pub(crate) refused: Option<(u64, String)>,
}

/// What a word about credit means for a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// Nothing: one that is under way goes on.
    Keep,
    /// Hand out what there is, take the rest of the credit back, and say [`Reply::Drained`].
    Start,
    /// The receiver has changed its mind: the credit stands.
    Cancel,
}

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
        /// Of the [`Request::Watch`] that it answers.
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

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Engine(Box<peeklock_engine::Error>),
    #[error(
        "the disk is nearly full, so no new messages are taken; receive and complete go on. Free disk space, or raise the limit, and send again"
    )]
    DiskFull,
    #[error("{size_bytes} bytes are over the limit of {limit_bytes} for one message or batch")]
    TooLarge { size_bytes: usize, limit_bytes: usize },
    #[error(
        "'{name}' is the name of a group of queues in the configuration; choose another name, or rename the group"
    )]
    NameOfGroup { name: EntityName },
    #[error("the message could not be stored: {0}")]
    NotKept(String),
    #[error(
        "message {number} has {size_bytes} bytes, too many for an answer; do not defer messages of more than {limit_bytes} bytes, but abandon them"
    )]
    TooLargeToAnswer { number: SequenceNumber, size_bytes: u32, limit_bytes: u32 },
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

impl Request {
    fn has_ticket(&self) -> bool {
        !matches!(
            self,
            Request::Release { .. }
                | Request::Credit { .. }
                | Request::Take { .. }
                | Request::Watch { .. }
                | Request::Window { .. }
                | Request::Transferred { .. }
                | Request::Gone
        )
    }
}

impl From<Request> for Batch {
    fn from(request: Request) -> Self {
        Batch { requests: vec![request], ..Batch::default() }
    }
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// How many answers it will bring.
    pub fn ticket_count(&self) -> usize {
        self.requests.iter().filter(|request| request.has_ticket()).count()
    }

    pub fn push(&mut self, request: Request) {
        self.requests.push(request);
    }

    /// Collects the messages of one send. Nothing is asked for until [`Messages::send`]; dropped before that, it leaves no trace.
    pub fn messages(&mut self) -> Messages<'_> {
        Messages { first_byte: self.arena.len(), first: self.messages.len(), batch: self, sent: false }
    }

    pub(crate) fn bodies(&self, messages: Range<usize>) -> impl ExactSizeIterator<Item = &[u8]> {
        let written = self.messages.get(messages).unwrap_or_default();
        written.iter().map(|message| self.arena.get(message.bytes.clone()).unwrap_or_default())
    }

    /// The message's body, if it is in the journal already.
    pub(crate) fn stored(&self, message: usize) -> Option<StoredBody> {
        self.messages.get(message).and_then(|message| message.stored)
    }

    /// The attributes of a message, which are taken out of the batch.
    pub(crate) fn take_attributes(&mut self, message: usize) -> Option<Box<Attributes>> {
        self.messages.get_mut(message).and_then(|message| message.attributes.take())
    }

    pub fn take(&mut self) -> Batch {
        std::mem::take(self)
    }
}

pub struct Messages<'a> {
    batch: &'a mut Batch,
    first_byte: usize,
    first: usize,
    sent: bool,
}

impl Messages<'_> {
    /// Adds one message, written by `write` behind what is there already; it returns what the queue must know of it.
    pub fn add<E>(
        &mut self,
        write: impl FnOnce(&mut BytesMut) -> Result<Option<Box<Attributes>>, E>,
    ) -> Result<(), E> {
        let start = self.batch.arena.len();
        let attributes = write(&mut self.batch.arena)?;
        let bytes = start..self.batch.arena.len();
        self.batch.messages.push(Written { bytes, stored: None, attributes });
        Ok(())
    }

    /// Adds a message whose body is in the shard's journal already. If it is not taken, the shard gives the body up.
    pub(crate) fn add_stored(&mut self, body: StoredBody, attributes: Option<Box<Attributes>>) {
        self.batch.messages.push(Written { bytes: 0..0, stored: Some(body), attributes });
    }

    pub fn count(&self) -> usize {
        self.batch.messages.len() - self.first
    }

    pub fn send(self, ticket: Ticket, entity: EntityId) {
        self.ask(|messages| Request::Send { ticket, entity, messages });
    }

    pub fn schedule(self, ticket: Ticket, entity: EntityId) {
        self.ask(|messages| Request::Schedule { ticket, entity, messages });
    }

    /// Asks to store the one block of `count` events that was added.
    pub fn append(self, ticket: Ticket, partition: Partition, count: u32, producer: Option<Producer>) {
        self.ask(|blocks| Request::Append { ticket, partition, block: blocks.start, count, producer });
    }

    /// Leaves the messages in the batch, for a request that names them by these numbers.
    pub fn keep(mut self) -> Range<usize> {
        self.sent = true;
        self.first..self.batch.messages.len()
    }

    fn ask(mut self, request: impl FnOnce(Range<usize>) -> Request) {
        self.sent = true;
        let messages = self.first..self.batch.messages.len();
        self.batch.requests.push(request(messages));
    }
}

impl Drop for Messages<'_> {
    fn drop(&mut self) {
        if !self.sent {
            self.batch.arena.truncate(self.first_byte);
            self.batch.messages.truncate(self.first);
        }
    }
}
