//! What the parties of a hub saw.

use peeklock_broker::hubs::StartAt;

use super::Answer;
use crate::scenario::GroupIndex;

/// An event as its publisher names it; unique in a run.
pub type EventNumber = u32;

/// Who numbers its events, and the number of the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Numbered {
    pub id: i64,
    pub epoch: i16,
    pub first: i32,
}

/// Why somebody was not let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    OwnerLevel {
        current: i64,
    },
    TooMany,
    BeyondEnd {
        last: i64,
    },
    Expired {
        first: u64,
    },
    /// The group or the partition is not there.
    Missing,
    Other(String),
}

/// How a link ended for its reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadEnd {
    Stolen,
    Expired {
        next: u64,
        first: u64,
    },
    Deleted,
    Other(String),
    /// The connection was lost.
    Lost,
    /// The reader went.
    Left,
}

/// An event as a reader got it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadEvent {
    pub sequence: u64,
    /// By the broker's clock.
    pub enqueued_ms: u64,
    /// `None`: nobody has sent such an event.
    pub number: Option<EventNumber>,
    pub is_intact: bool,
}

/// What the broker says of who owns a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub partition: u32,
    /// Empty: nobody.
    pub owner: String,
    pub epoch: u64,
    pub etag: u64,
}

/// What becomes of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Started,
    /// From one moment to the next.
    Crashed,
    /// It is asked to end, and gives back what it has.
    Stopping,
    Stopped,
    Paused,
    Resumed,
}

/// What the calm part of a run is about, from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// So many instances start with nothing.
    Start {
        count: usize,
    },
    /// Nothing changes.
    Stay,
    Join,
    Crash,
    Leave,
    /// So many partitions come.
    Grow {
        added: u32,
    },
    /// More instances than partitions.
    Surplus {
        count: usize,
    },
    End,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[rustfmt::skip]
pub enum HubEvent {
    Publishing { request: u32, partition: u32, events: Vec<EventNumber>, numbered: Option<Numbered>, size_bytes: u64, run: u32 },
    Published { request: u32, answer: Answer },
    /// Somebody is about to read.
    /// `is_wired`: over the network, so that what it gets may have been under way for a while.
    Opening { link: u32, group: GroupIndex, partition: u32, start: StartAt, level: Option<i64>, run: u32, is_wired: bool },
    Opened { link: u32 },
    /// `None`: no answer.
    NotOpened { link: u32, refusal: Option<Refusal> },
    Read { link: u32, events: Vec<ReadEvent> },
    ReadEnded { link: u32, how: ReadEnd },
    /// An empty owner gives the partition up.
    Claiming { request: u32, group: GroupIndex, partition: u32, owner: String, expected: Option<u64> },
    /// With what is the case now, if it is known.
    Claimed { request: u32, answer: Answer, owned: Option<Owned> },
    Listing { request: u32, group: GroupIndex },
    Listed { request: u32, owned: Vec<Owned>, checkpoints: Vec<(u32, u64)> },
    Checkpointing { request: u32, group: GroupIndex, partition: u32, sequence: Option<u64>, owner: Option<(String, u64)> },
    Checkpointed { request: u32, answer: Answer },
    /// The hub is to have more partitions.
    Growing { request: u32, partition_count: u32 },
    Grown { request: u32, answer: Answer },
    /// The group that is not always there is made or deleted.
    GroupChanging { request: u32, exists: bool },
    GroupChanged { request: u32, answer: Answer },
    Looking { request: u32, partition: u32, run: u32 },
    /// What the broker says of a partition: the first event, the next one, and the readers by group and owner level.
    Looked { request: u32, begin: u64, next: u64, readers: Vec<(String, Option<i64>)> },
    Instance { instance: String, fate: Fate },
    /// The instance is done with these events, the last of them included.
    Handled { instance: String, partition: u32, first: u64, last: u64 },
    Staged(Stage),
}
