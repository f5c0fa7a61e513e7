//! The observations of the hub's clients.

use peeklock_broker::hubs::StartAt;

use super::Answer;
use crate::scenario::GroupIndex;

/// The number by which a publisher identifies an event; unique in a run.
pub type EventNumber = u32;

/// A producer with its id, and the number of its first event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Numbered {
    pub id: i64,
    pub epoch: i16,
    pub first: i32,
}

/// The reason why a reader was rejected.
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
    /// The consumer group or the partition does not exist.
    Missing,
    Other(String),
}

/// The end of a link for its reader.
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
    /// The reader left.
    Left,
}

/// An event as a reader received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadEvent {
    pub sequence: u64,
    /// The enqueued time, by the broker's clock.
    pub enqueued_ms: u64,
    /// The event; `None` if no client has sent it.
    pub number: Option<EventNumber>,
    pub is_intact: bool,
}

/// The broker's record of a partition's owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub partition: u32,
    /// The name of the owner; empty if there is none.
    pub owner: String,
    pub epoch: u64,
    pub etag: u64,
}

/// A change of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Started,
    /// The instance ended without any notice.
    Crashed,
    /// The instance was asked to stop, and gives up its partitions.
    Stopping,
    Stopped,
    Paused,
    Resumed,
}

/// The subject of a part of the calm phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// This many instances start without partitions.
    Start {
        count: usize,
    },
    /// Nothing changes.
    Stay,
    Join,
    Crash,
    Leave,
    /// This many partitions are added.
    Grow {
        added: u32,
    },
    /// More instances run than there are partitions.
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
    /// A reader is about to be opened. If `is_wired`, it uses the network, so events may have been in flight for a
    /// while.
    Opening { link: u32, group: GroupIndex, partition: u32, start: StartAt, level: Option<i64>, run: u32, is_wired: bool },
    Opened { link: u32 },
    /// A reader was not opened. `refusal` is `None` without an answer.
    NotOpened { link: u32, refusal: Option<Refusal> },
    Read { link: u32, events: Vec<ReadEvent> },
    ReadEnded { link: u32, how: ReadEnd },
    /// A partition is about to be claimed. An empty owner gives it up.
    Claiming { request: u32, group: GroupIndex, partition: u32, owner: String, expected: Option<u64> },
    /// The answer to a claim, with the current record if it is known.
    Claimed { request: u32, answer: Answer, owned: Option<Owned> },
    Listing { request: u32, group: GroupIndex },
    Listed { request: u32, owned: Vec<Owned>, checkpoints: Vec<(u32, u64)> },
    Checkpointing { request: u32, group: GroupIndex, partition: u32, sequence: Option<u64>, owner: Option<(String, u64)> },
    Checkpointed { request: u32, answer: Answer },
    /// Partitions are about to be added to the hub.
    Growing { request: u32, partition_count: u32 },
    Grown { request: u32, answer: Answer },
    /// The temporary consumer group is created or deleted.
    GroupChanging { request: u32, exists: bool },
    GroupChanged { request: u32, answer: Answer },
    Looking { request: u32, partition: u32, run: u32 },
    /// The broker's state of a partition: the first event, the next one, and the readers by consumer group and owner
    /// level.
    Looked { request: u32, begin: u64, next: u64, readers: Vec<(String, Option<i64>)> },
    Instance { instance: String, fate: Fate },
    /// The instance has handled these events, including the last.
    Handled { instance: String, partition: u32, first: u64, last: u64 },
    Staged(Stage),
}
