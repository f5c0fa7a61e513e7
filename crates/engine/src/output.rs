use peeklock_types::{LockToken, SessionId, StoredBody, SubQueue, Timestamp};

use crate::fact::Fact;
use crate::message::{EntityId, Message, ReceiverId};
use crate::watch::HeadChange;

/// The results of commands for the driver. It is reused across calls; the caller clears it.
///
/// `facts` go to the journal in order. The driver may act on everything else only when all facts decided so far are
/// durable. The facts of the same output are not enough, because a delivery may contain a message whose enqueueing is
/// not durable yet.
#[derive(Debug, Default)]
pub struct Output {
    pub facts: Vec<Fact>,
    pub deliveries: Vec<Delivery>,
    /// New heads for receivers that watch. The driver sends them before the end of their drains.
    pub heads: Vec<HeadChange>,
    /// Receivers whose drain has finished.
    pub drained: Vec<Drained>,
    /// Receivers that waited for a session and now have one.
    pub accepted: Vec<Accepted>,
    /// Receivers that the engine has detached.
    pub closed: Vec<Closed>,
    /// Standalone bodies that no message needs any more. A receive-and-delete delivery of the same output may
    /// still have to read them.
    pub freed: Vec<StoredBody>,
}

impl Output {
    pub fn is_empty(&self) -> bool {
        self.facts.is_empty()
            && self.deliveries.is_empty()
            && self.heads.is_empty()
            && self.drained.is_empty()
            && self.accepted.is_empty()
            && self.closed.is_empty()
            && self.freed.is_empty()
    }

    /// Clears the output and keeps the memory.
    pub fn clear(&mut self) {
        self.facts.clear();
        self.deliveries.clear();
        self.heads.clear();
        self.drained.clear();
        self.accepted.clear();
        self.closed.clear();
        self.freed.clear();
    }
}

/// One delivery of a message to a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub entity: EntityId,
    pub sub_queue: SubQueue,
    pub receiver: ReceiverId,
    /// The lock token under peek-lock, and of a delivery that removes its message later; else only an id of the delivery.
    pub token: LockToken,
    pub message: Message,
    /// Under receive-and-delete: the message is only locked, because its body must be read from the disk first. The caller
    /// completes it when the body was read, and delivers it when that is durable.
    pub removes_later: bool,
    /// Whether the receiver holds the session of the message.
    pub in_session: bool,
}

/// A deferred message that was received by its sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    pub token: LockToken,
    pub message: Message,
    /// See [`Delivery::removes_later`].
    pub removes_later: bool,
}

/// A drain has finished, and `unused_credit` was returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    pub receiver: ReceiverId,
    pub unused_credit: u32,
}

/// A session that a receiver holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldSession {
    pub session: SessionId,
    pub locked_until: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    pub receiver: ReceiverId,
    pub held: HeldSession,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    pub receiver: ReceiverId,
    pub reason: CloseReason,
}

/// The reason why the engine has detached a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The queue was deleted.
    Deleted,
    /// The queue no longer permits receives.
    Disabled,
    SessionLockLost,
    /// No session became free in time.
    NoSession,
}
