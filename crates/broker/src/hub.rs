//! Partitions, events and fences in the form that peers receive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use peeklock_hubs::{Checkpoint, LastEnqueued, StreamView, Traffic};
use peeklock_types::{HubId, ReceiverId, Timestamp};

/// A partition of one incarnation of a hub. It is in the shard of
/// [`Broker::place_partition`](crate::Broker::place_partition).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    pub hub: HubId,
    pub number: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionInfo {
    pub view: StreamView,
    /// The approximate arrival time of the first event after the requested sequence number.
    pub enqueued_after: Option<Timestamp>,
    /// The traffic since the broker was started.
    pub traffic: Traffic,
}

/// The lag of a consumer group in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    pub partition: u32,
    pub checkpoint: Option<Checkpoint>,
    /// The numbers of the oldest stored event and of the next event to arrive.
    pub begin_sequence: u64,
    pub next_sequence: u64,
    /// The number of events after the checkpoint, or of all events if there is no checkpoint.
    pub events: u64,
    /// The approximate arrival time of the oldest of these events; `None` if there are none.
    pub oldest_at: Option<Timestamp>,
}

/// A flag that a reader has lost its partition, for the code that delivers the reader's events. It is set before the
/// new reader is admitted.
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

/// Events for a reader. [`peeklock_hubs::block::events`] decodes the bytes.
#[derive(Debug)]
pub struct Events {
    pub receiver: ReceiverId,
    /// The first event of the run, and the event after the last one. All of them count against the reader's limit,
    /// including those that `not_before` omits.
    pub from: u64,
    pub upto: u64,
    /// Events that arrived before this time are omitted.
    pub not_before: Option<Timestamp>,
    /// The extents, in order. They may contain events before and after the run.
    pub extents: Vec<Bytes>,
    /// The bytes that the run takes from the reader's window. `Request::Window` returns them after the events are
    /// passed on.
    pub window_bytes: i64,
    pub last: LastEnqueued,
    /// The time at which `last` was read.
    pub at: Timestamp,
}
