//! Calls about events: reads some of them, and stores a few.

use std::convert::Infallible;

use bytes::Bytes;
use peeklock_hubs::block::{self, Block, Event};
use peeklock_hubs::{HubView, ReaderEnd, ReaderSpec, StartAt};
use peeklock_types::ConsumerGroup;

use super::{AdminError, Guest};
use crate::batch::Batch;
use crate::broker::{Broker, ShardStopped};
use crate::hub::{Events, Fence, Partition};
use crate::reply::{Error, ReaderReply, Reply};
use crate::request::events::{Append, AttachReader};
use crate::request::receiving::{Credit, Drain, Window};
use crate::request::{Ask, Ticket};

/// The number of bytes after which a read ends.
const LOOK_BYTES_MAX: usize = 1 << 20;
/// The number of bytes that are delivered before the first event is processed.
const WINDOW_BYTES: i64 = 1 << 20;

impl Broker {
    /// Reads events of a partition from a position, at most `top`. Returns fewer if there are no more at present, or if
    /// they are large. The call does not read as part of a consumer group, so no reader loses its partition.
    pub async fn read_events(
        &self,
        hub: &HubView,
        partition: u32,
        start: StartAt,
        top: usize,
    ) -> Result<Vec<Event>, AdminError> {
        self.check_partition(hub, partition)?;
        let mut guest = Guest::new(self, self.place_partition(&hub.name, partition))?;
        let (place, receiver) = (Partition { hub: hub.id, number: partition }, guest.peer.id.receiver(0));
        let spec = ReaderSpec {
            group: ConsumerGroup::observer(),
            start,
            owner_level: None,
            hub_revision: hub.revision,
            name: None,
        };
        let (spec, fence) = (Box::new(spec), Fence::default());
        let mut batch = Batch::default();
        batch.ask(Ticket::new(0), AttachReader { partition: place, receiver, spec, fence });
        batch.push(Window { receiver, size_bytes: WINDOW_BYTES });
        // Only the window limits the read, because omitted events would count against a credit limit.
        batch.push(Credit { receiver, limit: u64::MAX, drain: Drain::Start });
        guest.send(batch).await?;
        let mut look = Look { found: Vec::new(), size_bytes: 0, top };
        loop {
            for reply in guest.replies().await? {
                match reply {
                    Reply::Answer(answer) => {
                        AttachReader::answered(answer).map_or(Ok(()), |attached| attached.result)?;
                    }
                    Reply::Reader(ReaderReply::Events(events)) => {
                        let size_bytes = events.window_bytes;
                        look.take(*events, partition)?;
                        if look.is_done() {
                            return Ok(look.found);
                        }
                        guest.send(Batch::from(Window { receiver, size_bytes })).await?;
                    }
                    Reply::Reader(ReaderReply::Drained { .. }) => return Ok(look.found),
                    Reply::Reader(ReaderReply::Ended { reason, .. }) => {
                        return Err(ended(hub, partition, *reason));
                    }
                    Reply::Stopped { .. } => return Err(ShardStopped.into()),
                    Reply::Receiver(_) | Reply::Kept { .. } => {}
                }
            }
        }
    }

    /// Stores events together. Each is in the stored form of events.
    pub async fn append_events(
        &self,
        hub: &HubView,
        partition: u32,
        events: &[Bytes],
    ) -> Result<(), AdminError> {
        self.check_partition(hub, partition)?;
        let shard = self.place_partition(&hub.name, partition);
        let mut block = Block::with_capacity(events.iter().map(Bytes::len).sum());
        for event in events {
            let written = block.add(|out| {
                out.extend_from_slice(event);
                Ok::<_, Infallible>(())
            });
            written.unwrap_or_else(|never| match never {});
        }
        let partition = Partition { hub: hub.id, number: partition };
        self.ask(shard, Append { partition, block, producer: None }).await
    }

    fn check_partition(&self, hub: &HubView, partition: u32) -> Result<(), AdminError> {
        let count = hub.settings.partition_count;
        if partition < count {
            return Ok(());
        }
        let error = peeklock_hubs::Error::NoSuchPartition { name: hub.name.clone(), partition, count };
        Err(Error::from(error).into())
    }
}

/// The events found so far.
struct Look {
    found: Vec<Event>,
    size_bytes: usize,
    top: usize,
}

impl Look {
    fn is_done(&self) -> bool {
        self.found.len() >= self.top || self.size_bytes >= LOOK_BYTES_MAX
    }

    fn take(&mut self, events: Events, partition: u32) -> Result<(), AdminError> {
        let Events { from, upto, not_before, extents, .. } = events;
        for event in extents.into_iter().flat_map(|extent| block::events(extent, from)) {
            let event = event.map_err(|error| {
                tracing::error!("partition {partition} cannot be read: {error}");
                ShardStopped
            })?;
            let is_wanted = event.sequence < upto && not_before.is_none_or(|at| event.enqueued_at >= at);
            if is_wanted && !self.is_done() {
                self.size_bytes += event.bytes.len();
                self.found.push(event);
            }
        }
        Ok(())
    }
}

fn ended(hub: &HubView, partition: u32, reason: ReaderEnd) -> AdminError {
    let error = match reason {
        ReaderEnd::Unreadable { from } => {
            tracing::error!("partition {partition} of '{}' cannot be read from event {from} on", hub.name);
            return ShardStopped.into();
        }
        ReaderEnd::Lost { from, upto } => peeklock_hubs::Error::Lost { partition, from, upto },
        ReaderEnd::Expired { next, first } => peeklock_hubs::Error::Expired { partition, given: next, first },
        ReaderEnd::Disabled => peeklock_hubs::Error::Disabled { name: hub.name.clone(), what: "receivers" },
        ReaderEnd::Deleted | ReaderEnd::Stolen { .. } => {
            peeklock_hubs::Error::NoSuchStream { hub: hub.id, partition }
        }
    };
    Error::from(error).into()
}
