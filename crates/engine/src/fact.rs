use bytes::Bytes;
use peeklock_types::{BodyRef, EntityName, QueueSettings, SequenceNumber, SubQueue, Timestamp};

use crate::message::EntityId;
use crate::patch::Patch;

/// What durably happened. Facts are journaled in the order in which they were decided; applied in that order they give the same state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    QueueCreated {
        entity: EntityId,
        name: EntityName,
        settings: QueueSettings,
        created_at: Timestamp,
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
    },
    Locked {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        nonce: u64,
        until: Timestamp,
    },
    Renewed {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        until: Timestamp,
    },
    /// The message is gone: settled, or received and deleted.
    Completed {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
    },
    /// Back to its place; the delivery failed.
    Abandoned {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        patch: Option<Bytes>,
    },
    /// Back to its place; the delivery failed because nobody settled in time.
    LockExpired {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
    },
    /// Back to its place; the delivery does not count.
    Released {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
    },
    Deferred {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        patch: Option<Bytes>,
    },
    /// Moved from `sub_queue` to the dead-letter queue, where it may have been already. `failed`: the last delivery counts as failed.
    DeadLettered {
        entity: EntityId,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        failed: bool,
        patch: Patch,
    },
    /// The body was copied from `from` to the cold segment at `to`.
    Moved {
        entity: EntityId,
        sequence_number: SequenceNumber,
        from: BodyRef,
        to: BodyRef,
    },
}

impl Fact {
    pub fn entity(&self) -> EntityId {
        match *self {
            Fact::QueueCreated { entity, .. }
            | Fact::QueueDeleted { entity }
            | Fact::Enqueued { entity, .. }
            | Fact::Locked { entity, .. }
            | Fact::Renewed { entity, .. }
            | Fact::Completed { entity, .. }
            | Fact::Abandoned { entity, .. }
            | Fact::LockExpired { entity, .. }
            | Fact::Released { entity, .. }
            | Fact::Deferred { entity, .. }
            | Fact::DeadLettered { entity, .. }
            | Fact::Moved { entity, .. } => entity,
        }
    }
}
