use peeklock_types::{EntityName, QueueSettings, Timestamp};

use crate::message::EntityId;

/// What can be told about a queue without looking at its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueView<'a> {
    pub entity: EntityId,
    pub name: &'a EntityName,
    pub settings: &'a QueueSettings,
    pub created_at: Timestamp,
    pub counts: Counts,
}

/// How many messages a queue holds, kept as they come and go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Neither deferred nor dead-lettered; locked ones included.
    pub active_count: u64,
    /// Set aside; locked ones included, dead-lettered ones not.
    pub deferred_count: u64,
    /// Locked right now, outside of the dead-letter queue.
    pub locked_count: u64,
    /// In the dead-letter queue, whatever their state.
    pub dead_letter_count: u64,
    /// Bytes of all bodies, dead-lettered ones included.
    pub size_bytes: u64,
}
