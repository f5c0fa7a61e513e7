//! What peers, and other shards, ask of a shard.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use peeklock_engine::{EntityId, ReceiveMode, ReceiverId, Settlement};
use peeklock_filter::{Rule, RuleName};
use peeklock_hubs::block::Block;
use peeklock_hubs::{Producer, ReaderSpec};
use peeklock_types::{
    EntityKind, EntityName, LockToken, QueueSettings, SequenceNumber, SessionId, ShardId, SubQueue, Timestamp,
};

use crate::batch::Ticket;
use crate::blobs::BlobRequest;
use crate::hub::{Fence, HubRequest, Partition};
use crate::receipts::ReceiptRequest;
use crate::reply::TransferOutcome;

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

/// Sets the state of a session as part of a transaction.
#[derive(Clone, Debug)]
pub struct TransactionState {
    pub entity: EntityId,
    pub hold: SessionHold,
    pub state: Option<Bytes>,
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
    /// Several at once: all or none. In a queue with sessions and with a `hold`, the messages must belong to that session.
    SettleAll {
        ticket: Ticket,
        entity: EntityId,
        sub_queue: SubQueue,
        tokens: Vec<LockToken>,
        settlement: Settlement,
        hold: Option<SessionHold>,
    },
    /// Whether the lock is held now: a settlement of it takes part in a transaction.
    CheckLock {
        ticket: Ticket,
        entity: EntityId,
        sub_queue: SubQueue,
        token: LockToken,
    },
    /// Checks that all these messages are scheduled. A transaction cancels them at its commit.
    CheckScheduled {
        ticket: Ticket,
        entity: EntityId,
        numbers: Vec<SequenceNumber>,
    },
    /// Checks that the session is held and that the state is not too large. A transaction sets it at its commit.
    CheckState {
        ticket: Ticket,
        state: TransactionState,
    },
    /// Reserves sequence numbers for messages that a transaction schedules. The answer is that of [`Request::Schedule`].
    Reserve {
        ticket: Ticket,
        entity: EntityId,
        count: usize,
    },
    /// Settlements of one queue and sends to any, all or nothing. A send to another shard goes by way of `entity`. Scheduled messages to
    /// cancel and states to set are of entities of the same shard.
    Commit {
        ticket: Ticket,
        entity: EntityId,
        settles: Vec<TransactionSettle>,
        cancels: Vec<(EntityId, SequenceNumber)>,
        states: Vec<TransactionState>,
        sends: Vec<TransactionSend>,
    },
    /// Deletes large bodies that no message will use. The batch holds their places.
    GiveUp {
        ticket: Ticket,
        messages: Range<usize>,
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
    /// [`Reply::Drained`](crate::Reply::Drained) says when that is done. See [`Request::Watch`].
    Take {
        receiver: ReceiverId,
        limit: u64,
        not_after: Option<Timestamp>,
    },
    /// Tell the receiver by [`Reply::Head`](crate::Reply::Head) which message is next, now and whenever that changes; or stop to, for `None`.
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
    /// The same within a session that the peer holds. The answer may be that fewer were deleted; then the rest is for the next request.
    PurgeSession {
        ticket: Ticket,
        entity: EntityId,
        hold: SessionHold,
        before: Option<Timestamp>,
        count_max: u64,
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
    /// Store the events of a block: all or none. `producer`: with the number of the first event.
    Append {
        ticket: Ticket,
        partition: Partition,
        block: Block,
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

impl Request {
    /// Whether it is answered.
    pub(crate) fn has_ticket(&self) -> bool {
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

/// What a word about credit means for a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// Nothing: one that is under way goes on.
    Keep,
    /// Hand out what there is, take the rest of the credit back, and say [`Reply::Drained`](crate::Reply::Drained).
    Start,
    /// The receiver has changed its mind: the credit stands.
    Cancel,
}
