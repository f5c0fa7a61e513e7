//! The public views of hubs and partitions.

use peeklock_types::{ConsumerGroup, EntityName, HubId, HubSettings, ReceiverId, Timestamp};

/// A hub, its settings and consumer groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubView {
    pub name: EntityName,
    pub id: HubId,
    pub settings: HubSettings,
    /// The consumer groups by name. `$Default` always exists.
    pub groups: Vec<GroupView>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Grows with each change of the settings or consumer groups.
    pub revision: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    pub name: ConsumerGroup,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub user_metadata: Option<String>,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamView {
    pub partition: u32,
    /// The number of the oldest existing event, or that of the next one if there is none.
    pub begin_sequence: u64,
    /// The number of the next event.
    pub next_sequence: u64,
    /// The time of the newest event ever; `None` if there was none.
    pub last_enqueued_at: Option<Timestamp>,
    /// The approximate time of the oldest existing event.
    pub first_enqueued_at: Option<Timestamp>,
    pub size_bytes: u64,
    pub extent_count: usize,
    pub readers: Vec<ReaderView>,
}

impl StreamView {
    pub fn is_empty(&self) -> bool {
        self.begin_sequence == self.next_sequence
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderView {
    pub reader: ReceiverId,
    pub group: ConsumerGroup,
    pub owner_level: Option<i64>,
    pub name: Option<String>,
    /// The next event of the reader.
    pub next_sequence: u64,
}

/// The traffic of a partition since the shard was opened. Volatile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The bytes of the stored blocks.
    pub received_bytes: u64,
    /// The events delivered to readers, counted for each reader; bytes of partial extents are approximate.
    pub read_events: u64,
    pub read_bytes: u64,
}

/// The newest event of a partition, which readers may request with each event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastEnqueued {
    /// −1: the partition never had an event.
    pub sequence: i64,
    pub at: Option<Timestamp>,
}
