//! Partitions, events and fences, as peers see them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use peeklock_hubs::{Checkpoint, LastEnqueued, StreamView, Traffic};
use peeklock_types::{HubId, ReceiverId, Timestamp};

/// A partition of one life of a hub. It lives in the shard of [`Broker::place_partition`](crate::Broker::place_partition).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    pub hub: HubId,
    pub number: u32,
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
