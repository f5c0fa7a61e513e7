//! Event hubs: publishers, readers, and what `$management` tells of them.
//!
//! A hub lives in the shard of its name, each partition in a shard of its own. So a link asks the hub first, and then speaks with the shard of its
//! partition, or, for a publisher that names none, with those of all.

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

/// The publishers and readers of a connection, and its requests about hubs. Their links have the rest of their state.
#[derive(Default)]
pub(crate) struct Hubs {
    requests: HubRequests,
    /// Readers with events to write.
    line: ReaderLine,
}

/// A link whose hub or partition is being asked.
pub(crate) struct PendingHub {
    pub(crate) attach: Box<Attach>,
    pub(crate) address: HubAddress,
    step: Step,
}

enum Step {
    /// The hub is being looked for.
    Find,
    /// The partition is asked what it knows of a producer.
    Producer { at: PartitionRef, wish: Wish },
    /// The partition is asked to take a reader.
    Reader { at: PartitionRef, reader: Box<Reading> },
}

/// A partition, and where it lives.
#[derive(Clone, Copy, Debug)]
struct PartitionRef {
    shard: usize,
    partition: Partition,
}

/// What a reader wants.
struct Reading {
    group: ConsumerGroup,
    start: StartAt,
    owner_level: Option<i64>,
    name: Option<String>,
    wants_metrics: bool,
    fence: Fence,
}

/// The peer sends events to a hub.
pub(crate) struct Publisher {
    address: HubAddress,
    hub: HubId,
    destination: Destination,
    /// It numbers its events.
    numbered: Option<Numbered>,
    /// As in a [`SenderLink`](crate::connection::link::SenderLink).
    pub(crate) unconfirmed: u32,
    pub(crate) confirmed: u32,
}

/// Where events go.
enum Destination {
    /// To the partition of their key, or in turn.
    Any {
        partition_count: u32,
        next: u32,
        looked_at: Millis,
    },
    /// All of them have the same key.
    Key {
        key: Arc<str>,
        partition_count: u32,
        looked_at: Millis,
    },
    Partition(u32),
}

impl PendingHub {
    /// The shard that knows a reader for it.
    pub(crate) fn reads_from(&self) -> Option<usize> {
        match &self.step {
            Step::Reader { at, .. } => Some(at.shard),
            Step::Find | Step::Producer { .. } => None,
        }
    }
}
