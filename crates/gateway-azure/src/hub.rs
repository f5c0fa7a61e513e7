//! Event hubs: publishers, readers, and their requests to `$management`.
//!
//! A hub is in the shard of its name, and each partition is in its own shard. So a link first sends a request to the
//! hub, and then uses the shard of its partition or, for a publisher without a partition, the shards of all partitions.

mod address;
pub(crate) mod attach;
mod error;
mod manage;
mod operation;
mod position;
mod producer;
mod publication;
pub(crate) mod publish;
mod read;
mod run;

use std::sync::Arc;

use peeklock_amqp::Attach;
use peeklock_amqp::connection::Millis;
use peeklock_broker::hubs::StartAt;
use peeklock_broker::{Fence, Partition};
use peeklock_types::{ConsumerGroup, HubId};

pub(crate) use address::{HubAddress, consumer_group_of};
pub(crate) use error::{hub_refusal, is_hub};
pub(crate) use manage::{
    HubRequests, describe_checkpoints, describe_claim, describe_ownerships, describe_set_checkpoint,
};
pub(crate) use position::SELECTOR;
use producer::{Numbered, Wish};
use read::ReaderLine;
pub(crate) use read::ReaderLink;

/// The publishers and readers of a connection, and its requests about hubs. The links contain the rest of the state.
#[derive(Default)]
pub(crate) struct Hubs {
    requests: HubRequests,
    /// Readers with events to write.
    line: ReaderLine,
}

/// A link that waits for its hub or partition.
pub(crate) struct PendingHub {
    pub(crate) attach: Box<Attach>,
    pub(crate) address: HubAddress,
    step: Step,
}

enum Step {
    /// The lookup of the hub is in flight.
    Find,
    /// The request for the producer's state in the partition is in flight.
    Producer { at: PartitionRef, wish: Wish },
    /// The request to attach the reader to the partition is in flight.
    Reader { at: PartitionRef, reader: Box<Reading> },
}

/// A partition and its shard.
#[derive(Clone, Copy, Debug)]
struct PartitionRef {
    shard: usize,
    partition: Partition,
}

/// The settings of a reader.
struct Reading {
    group: ConsumerGroup,
    start: StartAt,
    owner_level: Option<i64>,
    name: Option<String>,
    wants_metrics: bool,
    fence: Fence,
}

/// A link on which the peer sends events to a hub.
pub(crate) struct Publisher {
    address: HubAddress,
    hub: HubId,
    destination: Destination,
    /// The state of a publisher that numbers its events.
    numbered: Option<Numbered>,
    /// Deliveries that the partitions have not answered yet.
    pub(crate) unconfirmed: u32,
    /// Deliveries answered since the last grant of credit.
    pub(crate) confirmed: u32,
}

/// The destination of events.
enum Destination {
    /// The partition of the key, or round-robin.
    Any {
        partition_count: u32,
        next: u32,
        looked_at: Millis,
    },
    /// All events have the same key.
    Key {
        key: Arc<str>,
        partition_count: u32,
        looked_at: Millis,
    },
    Partition(u32),
}

impl PendingHub {
    /// Returns the shard that has a reader for this link.
    pub(crate) fn reads_from(&self) -> Option<usize> {
        match &self.step {
            Step::Reader { at, .. } => Some(at.shard),
            Step::Find | Step::Producer { .. } => None,
        }
    }
}
