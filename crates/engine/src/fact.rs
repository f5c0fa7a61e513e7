use bytes::Bytes;
use peeklock_filter::{Rule, RuleName};
use peeklock_types::{
    BodyRef, EntityKind, EntityName, QueueSettings, SequenceNumber, SessionId, ShardId, SubQueue, Timestamp,
};

use crate::message::{Attributes, EntityId, Metadata};
use crate::patch::Patch;

/// A durable change. Facts are journaled in the order in which they were decided; applied in that order they give the
/// same state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    QueueCreated {
        entity: EntityId,
        name: EntityName,
        kind: EntityKind,
        settings: Box<QueueSettings>,
        created_at: Timestamp,
    },
    QueueUpdated {
        entity: EntityId,
        settings: Box<QueueSettings>,
        at: Timestamp,
    },
    QueueDeleted {
        entity: EntityId,
    },
    Enqueued {
        entity: EntityId,
        sequence_number: SequenceNumber,
        enqueued_at: Timestamp,
        body: BodyRef,
        size_bytes: u32,
        attributes: Option<Box<Attributes>>,
    },
    /// A message of a topic was copied to these subscriptions, under these numbers. `again` is set if its body already
    /// belongs to other copies.
    FannedOut {
        copies: Box<[(EntityId, SequenceNumber)]>,
        enqueued_at: Timestamp,
        body: BodyRef,
        size_bytes: u32,
        attributes: Option<Box<Attributes>>,
        again: bool,
    },
    /// A topic that detects duplicates has seen this message id.
    Seen {
        entity: EntityId,
        message_id: Bytes,
        at: Timestamp,
    },
    /// A subscription has a new rule, which replaces a rule of the same name.
    RuleSet {
        entity: EntityId,
        rule: Box<Rule>,
        at: Timestamp,
    },
    RuleRemoved {
        entity: EntityId,
        name: RuleName,
    },
    /// A scheduled message is due: it moves to the end of the queue, under a new number.
    Activated {
        entity: EntityId,
        sequence_number: SequenceNumber,
        new_number: SequenceNumber,
        at: Timestamp,
    },
    /// The message was locked. In a queue with sessions `until` is [`Timestamp::MAX`]: the lock lasts as long as the
    /// session lock.
    Locked {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        nonce: u64,
        until: Timestamp,
    },
    /// The processing time that workers spent on a message of a queue whose tenants share their time: the measured time
    /// for a locked message, the usual time for another.
    Charged {
        entity: EntityId,
        sequence_number: SequenceNumber,
        cost_ms: u32,
    },
    Renewed {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        until: Timestamp,
    },
    /// The message is gone: settled, received and deleted, cancelled, expired, or transferred to another queue.
    Completed {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
    },
    /// The message returns to its place, at once or when it is due; the delivery failed.
    Abandoned {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        patch: Option<Bytes>,
        due: Option<Timestamp>,
    },
    /// The message returns to its place, at once or when it is due; the delivery failed because it was not settled in
    /// time.
    LockExpired {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        due: Option<Timestamp>,
    },
    /// A delayed message waits again.
    DelayEnded {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
    },
    /// The message returns to its place; the delivery does not count.
    Released {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
    },
    /// The message is deferred; the delivery counts. The lock would have lasted until `locked_until`.
    Deferred {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        locked_until: Timestamp,
        patch: Option<Bytes>,
    },
    /// The message moved from `sub_queue` to the dead-letter queue. `failed` is set if the last delivery counts as
    /// failed.
    DeadLettered {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        failed: bool,
        patch: Patch,
    },
    /// The first `count_max` messages that were enqueued before `before`, are not locked, and wait or are deferred, are
    /// gone.
    Purged {
        entity: EntityId,
        sub_queue: SubQueue,
        before: Timestamp,
        count_max: u64,
    },
    SessionStateSet {
        entity: EntityId,
        session: SessionId,
        state: Option<Bytes>,
        at: Timestamp,
    },
    /// The message moved from `sub_queue` to the transfer queue, with destination `target`, as number `number` of the
    /// route to the target's shard.
    TransferStarted {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        target: EntityName,
        number: u64,
    },
    /// Reserves the sequence numbers before `next` for messages that a transaction schedules.
    NumbersReserved {
        entity: EntityId,
        next: SequenceNumber,
    },
    /// A transaction that changed this queue has sent a message to `target`, which is in another shard.
    SentOn {
        entity: EntityId,
        sequence_number: SequenceNumber,
        enqueued_at: Timestamp,
        body: BodyRef,
        size_bytes: u32,
        attributes: Option<Box<Attributes>>,
        target: Box<EntityName>,
        number: u64,
    },
    /// The message could not be transferred to its target, or must not be forwarded further: it moved to the transfer
    /// dead-letter queue.
    TransferFailed {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        patch: Patch,
    },
    /// The next message arrived from the shard `source`, as number `number` of its route.
    Arrived {
        source: ShardId,
        number: u64,
    },
    /// The body was copied from `from` to a place of its own at `to`.
    Moved {
        entity: EntityId,
        sequence_number: SequenceNumber,
        from: BodyRef,
        to: BodyRef,
        /// The copy already belongs to other messages.
        again: bool,
    },
    /// The holder of this nonce may change or delete the message until another receiver gets it. If there is a time,
    /// the message is not delivered before it: a lock gets the new nonce and expiry, an unlocked message is delayed.
    Receipted {
        entity: EntityId,
        sequence_number: SequenceNumber,
        nonce: u64,
        until: Option<Timestamp>,
    },
    /// The message has a new body, at the same place of the queue.
    Replaced {
        entity: EntityId,
        sequence_number: SequenceNumber,
        body: BodyRef,
        size_bytes: u32,
    },
    /// The body was damaged on the disk. The message has an empty body instead and is dead-lettered with a reason,
    /// unless it is in transit to another queue; its lock is gone.
    BodyLost {
        entity: EntityId,
        sequence_number: SequenceNumber,
        body: BodyRef,
        patch: Patch,
    },
    /// All messages of the queue are gone, in any state and locked or not; its dead letters stay.
    Cleared {
        entity: EntityId,
    },
    /// The metadata of the queue was replaced.
    MetadataSet {
        entity: EntityId,
        metadata: Box<Metadata>,
    },
}

const _: () = assert!(size_of::<Fact>() <= 72, "most facts are small, and each is moved a few times");

impl Fact {
    /// Returns the queue that the fact changes; `None` if it changes the shard.
    pub fn entity(&self) -> Option<EntityId> {
        match *self {
            Fact::Arrived { .. } | Fact::FannedOut { .. } => None,
            Fact::QueueCreated { entity, .. }
            | Fact::QueueUpdated { entity, .. }
            | Fact::QueueDeleted { entity }
            | Fact::Enqueued { entity, .. }
            | Fact::Seen { entity, .. }
            | Fact::RuleSet { entity, .. }
            | Fact::RuleRemoved { entity, .. }
            | Fact::Activated { entity, .. }
            | Fact::Locked { entity, .. }
            | Fact::Charged { entity, .. }
            | Fact::Renewed { entity, .. }
            | Fact::Completed { entity, .. }
            | Fact::Abandoned { entity, .. }
            | Fact::LockExpired { entity, .. }
            | Fact::DelayEnded { entity, .. }
            | Fact::Released { entity, .. }
            | Fact::Deferred { entity, .. }
            | Fact::DeadLettered { entity, .. }
            | Fact::Purged { entity, .. }
            | Fact::SessionStateSet { entity, .. }
            | Fact::TransferStarted { entity, .. }
            | Fact::NumbersReserved { entity, .. }
            | Fact::SentOn { entity, .. }
            | Fact::TransferFailed { entity, .. }
            | Fact::Moved { entity, .. }
            | Fact::Receipted { entity, .. }
            | Fact::Replaced { entity, .. }
            | Fact::BodyLost { entity, .. }
            | Fact::Cleared { entity }
            | Fact::MetadataSet { entity, .. } => Some(entity),
        }
    }
}
