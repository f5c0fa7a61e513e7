//! What can be asked about hubs and partitions, beside events themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use peeklock_hubs::{
    Checkpoint, CheckpointBy, Etag, HubView, LastEnqueued, Ownership, Producer, StreamSpec, StreamView,
    Traffic,
};
use peeklock_types::{ConsumerGroup, EntityName, HubId, HubSettings, ReceiverId, Timestamp};

/// A partition of one life of a hub. It lives in the shard of [`Broker::place_partition`](crate::Broker::place_partition).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    pub hub: HubId,
    pub number: u32,
}

/// For the shard of the hub's name, unless it says otherwise.
#[derive(Debug)]
pub enum HubRequest {
    /// After its streams were opened.
    Create {
        name: EntityName,
        id: HubId,
        settings: HubSettings,
        groups: Vec<ConsumerGroup>,
    },
    Update {
        name: EntityName,
        settings: HubSettings,
        expected: Option<u64>,
    },
    Delete {
        name: EntityName,
        expected: Option<u64>,
    },
    Show {
        name: EntityName,
    },
    List {
        after: Option<EntityName>,
        top: usize,
    },
    CreateGroup {
        name: EntityName,
        group: ConsumerGroup,
        user_metadata: Option<String>,
    },
    UpdateGroup {
        name: EntityName,
        group: ConsumerGroup,
        user_metadata: Option<String>,
    },
    DeleteGroup {
        name: EntityName,
        group: ConsumerGroup,
    },
    Claim {
        name: EntityName,
        group: ConsumerGroup,
        partition: u32,
        owner: String,
        expected: Option<Etag>,
    },
    Ownerships {
        name: EntityName,
        group: ConsumerGroup,
    },
    Checkpoint {
        name: EntityName,
        group: ConsumerGroup,
        partition: u32,
        sequence: Option<u64>,
        by: CheckpointBy,
    },
    Checkpoints {
        name: EntityName,
        group: ConsumerGroup,
    },
    /// For the partition's shard, as all that follow.
    OpenStreams {
        specs: Vec<StreamSpec>,
    },
    DeleteStreams {
        partitions: Vec<Partition>,
    },
    /// `after`: see [`PartitionInfo::enqueued_after`].
    ShowStream {
        partition: Partition,
        after: Option<u64>,
    },
    /// The same for several.
    ShowStreams {
        partitions: Vec<(Partition, Option<u64>)>,
    },
    /// All partitions of the shard, whatever hub they belong to.
    ListStreams,
    /// What is known of a producer.
    ShowProducer {
        partition: Partition,
        id: i64,
    },
    /// Ends all readers of a consumer group that is gone since the hub has this revision.
    EndGroup {
        hub: HubId,
        group: ConsumerGroup,
        revision: u64,
    },
}

#[derive(Debug)]
pub enum HubAnswer {
    Hub(HubView),
    Hubs(Vec<HubView>),
    Ownership(Ownership),
    Ownerships(Vec<Ownership>),
    Checkpoint(Option<Checkpoint>),
    Checkpoints(Vec<(u32, Checkpoint)>),
    Stream(PartitionInfo),
    /// In the order in which they were asked for.
    PartitionInfos(Vec<PartitionInfo>),
    Streams(Vec<(Partition, EntityName)>),
    Producer(Option<Producer>),
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    pub view: StreamView,
    /// When the first event after the asked-for sequence number came, about.
    pub enqueued_after: Option<Timestamp>,
    /// Since the broker was started.
    pub traffic: Traffic,
}

/// How far a consumer group is behind in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    pub partition: u32,
    pub checkpoint: Option<Checkpoint>,
    /// Numbers of the oldest event that is there, and of the next one to come.
    pub begin_sequence: u64,
    pub next_sequence: u64,
    /// Events behind the checkpoint; all there are if there is none.
    pub events: u64,
    /// When the oldest of them came, about; `None` if there are none.
    pub oldest_at: Option<Timestamp>,
}

/// Tells whoever hands out a reader's events that the reader has lost its partition. It is set before the new reader is let in.
#[derive(Clone, Debug, Default)]
pub struct Fence(Arc<AtomicBool>);

impl Fence {
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Events for a reader. See [`peeklock_hubs::block::events`] for what is in the bytes.
#[derive(Debug)]
pub struct Events {
    pub receiver: ReceiverId,
    /// The first event that is meant, and the one after the last. All of them count against the reader's limit, also those that
    /// `not_before` leaves out.
    pub from: u64,
    pub upto: u64,
    /// Events that came before this are to be left out.
    pub not_before: Option<Timestamp>,
    /// Extents, in order. They may hold more at both ends than is meant.
    pub extents: Vec<Bytes>,
    /// What it has taken of the reader's window: to be given back by `Request::Window` when it was passed on.
    pub window_bytes: i64,
    pub last: LastEnqueued,
    /// When `last` was looked at.
    pub at: Timestamp,
}
