//! What the outside may see.

use peeklock_types::{ConsumerGroup, EntityName, HubId, HubSettings, ReceiverId, Timestamp};

/// A hub, its settings and groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubView {
    pub name: EntityName,
    pub id: HubId,
    pub settings: HubSettings,
    /// By name; `$Default` is always there.
    pub groups: Vec<GroupView>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Grows with each change of the settings or groups.
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
    /// Number of the oldest event that is there, or the next one's if none is.
    pub begin_sequence: u64,
    /// The number that the next event gets.
    pub next_sequence: u64,
    /// Of the newest event that ever was; `None` if there was none.
    pub last_enqueued_at: Option<Timestamp>,
    /// When the oldest event came that is there, about.
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
    /// The event that it gets next.
    pub next_sequence: u64,
}

/// What went through a partition since the shard was opened. Nothing of it is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Of the blocks that were stored.
    pub received_bytes: u64,
    /// What readers were handed, each for itself; bytes of parts of an extent about.
    pub read_events: u64,
    pub read_bytes: u64,
}

/// The newest event of a partition, as readers may ask to hear with each event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastEnqueued {
    /// −1: none ever was.
    pub sequence: i64,
    pub at: Option<Timestamp>,
}
