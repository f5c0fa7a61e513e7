//! The partitions of this shard.

use peeklock_types::{BodyRef, EntityName, HubId, HubSettings, Timestamp};

use crate::Output;
use crate::agenda::Deadlines;
use crate::block::BlockHead;
use crate::error::Error;
use crate::extents::Extents;
use crate::fact::Fact;
use crate::hub::Hubs;
use crate::producers::{Producers, Verdict};
use crate::reader::ReaderEnd;
use crate::readers::Attached;
use crate::view::{LastEnqueued, StreamView, Traffic};
use crate::wire;

/// The number of a stream in this shard. It is never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// The partition of a stream, and the settings of its hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    pub hub: HubId,
    pub name: EntityName,
    pub partition: u32,
    pub settings: HubSettings,
}

/// The place of some events: one or more blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub first_sequence: u64,
    pub count: u32,
    pub first_enqueued_at: Timestamp,
    pub last_enqueued_at: Timestamp,
    pub body: BodyRef,
    pub size_bytes: u32,
}

/// A producer with numbered events, so that repeated sends are recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    pub id: i64,
    pub epoch: i16,
    /// The number of the last event; numbers continue with 0 after `i32::MAX`.
    pub sequence: i32,
}

/// The decision about the events of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// The caller stores the events with this head, and then calls [`Hubs::append`].
    Store(BlockHead),
    /// All events are stored already: the caller confirms them and stores nothing.
    Duplicate,
}

/// Extents of one stream to be joined, see [`Hubs::extents_in`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gather {
    pub stream: StreamId,
    pub runs: Vec<GatherRun>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatherRun {
    pub first_sequence: u64,
    pub bodies: Vec<(BodyRef, u32)>,
}

/// A partition and its state.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) spec: StreamSpec,
    pub(crate) extents: Extents,
    /// The time of the newest event ever.
    pub(crate) last_enqueued_at: Option<Timestamp>,
    pub(crate) producers: Producers,
    /// The position of the stream in the agenda.
    pub(crate) entry: Deadlines,
    pub(crate) readers: Attached,
    pub(crate) traffic: Traffic,
}

impl Stream {
    pub(crate) fn new(spec: StreamSpec) -> Stream {
        Stream {
            spec,
            extents: Extents::default(),
            last_enqueued_at: None,
            producers: Producers::default(),
            entry: Deadlines::default(),
            readers: Attached::default(),
            traffic: Traffic::default(),
        }
    }

    pub(crate) fn last_enqueued(&self) -> LastEnqueued {
        // Sequence numbers stay in the range of signed numbers, see `extents.rs`.
        let next = i64::try_from(self.extents.next()).unwrap_or(i64::MAX);
        LastEnqueued { sequence: next - 1, at: self.last_enqueued_at }
    }
}

impl Hubs {
    /// Creates the stream, or changes its settings. A stream that already has these settings produces no fact.
    pub fn open_stream(&mut self, spec: StreamSpec, out: &mut Output) -> StreamId {
        let spec = StreamSpec { settings: wire::kept(spec.settings), ..spec };
        let known = self.by_partition.get(&(spec.hub, spec.partition)).copied();
        let stream = known.unwrap_or(self.next_stream);
        if self.streams.get(&stream).is_some_and(|known| known.spec == spec) {
            return stream;
        }
        let can_receive = spec.settings.status.can_receive();
        self.record(Fact::StreamOpened { stream, spec: Box::new(spec) }, out);
        if !can_receive {
            self.end_readers(stream, |_| Some(ReaderEnd::Disabled), out);
        }
        self.overtake_readers(stream, out);
        stream
    }

    /// Deletes the stream, ends its readers and frees its bodies. Returns whether the stream existed.
    pub fn delete_stream(&mut self, hub: HubId, partition: u32, out: &mut Output) -> bool {
        let Some(&stream) = self.by_partition.get(&(hub, partition)) else { return false };
        self.end_readers(stream, |_| Some(ReaderEnd::Deleted), out);
        if let Some(known) = self.streams.get(&stream) {
            out.freed.extend(known.extents.cold());
        }
        self.record(Fact::StreamDeleted { stream }, out);
        true
    }

    pub fn find_stream(&self, hub: HubId, partition: u32) -> Result<StreamId, Error> {
        self.by_partition.get(&(hub, partition)).copied().ok_or(Error::NoSuchStream { hub, partition })
    }

    pub fn streams(&self) -> impl Iterator<Item = (StreamId, &StreamSpec)> {
        self.streams.iter().map(|(id, stream)| (*id, &stream.spec))
    }

    pub fn stream(&self, stream: StreamId) -> Option<StreamView> {
        let known = self.streams.get(&stream)?;
        let extents = &known.extents;
        Some(StreamView {
            partition: known.spec.partition,
            begin_sequence: extents.begin(),
            next_sequence: extents.next(),
            last_enqueued_at: known.last_enqueued_at,
            first_enqueued_at: extents.get(0).map(|extent| extent.first_enqueued_at),
            size_bytes: extents.size_bytes(),
            extent_count: extents.len(),
            readers: self.reader_views(known),
        })
    }

    /// Returns the hub's name and the stream's partition.
    pub fn stream_name(&self, stream: StreamId) -> Option<(&EntityName, u32)> {
        self.streams.get(&stream).map(|known| (&known.spec.name, known.spec.partition))
    }

    pub fn traffic(&self, stream: StreamId) -> Traffic {
        self.streams.get(&stream).map_or_else(Traffic::default, |known| known.traffic)
    }

    /// Returns the approximate time of the first existing event with at least this sequence number: it is as exact as
    /// the index of the stream. The lag in seconds is computed from it.
    pub fn enqueued_at(&self, stream: StreamId, sequence: u64) -> Option<Timestamp> {
        let extents = &self.streams.get(&stream)?.extents;
        Some(extents.get(extents.find(sequence))?.enqueued_at(sequence))
    }

    /// Returns the state of the producer with this id, for an attach; `None` if the stream does not remember it.
    pub fn producer(&self, stream: StreamId, id: i64) -> Option<Producer> {
        self.streams.get(&stream)?.producers.get(id)
    }

    /// Checks a send of `count` events. `producer` has the number of the first event.
    pub fn prepare(
        &self,
        now: Timestamp,
        stream: StreamId,
        count: u32,
        producer: Option<Producer>,
    ) -> Result<Prepared, Error> {
        let known = self.streams.get(&stream).ok_or(Error::StreamGone { stream })?;
        if !known.spec.settings.status.can_send() {
            return Err(Error::Disabled { name: known.spec.name.clone(), what: "senders" });
        }
        let verdict = producer.map(|first| known.producers.check(first, count)).transpose()?;
        // A send without events counts as stored.
        if count == 0 || matches!(verdict, Some(Verdict::Seen)) {
            return Ok(Prepared::Duplicate);
        }
        // A clock that is set back does not make times fall.
        let enqueued_at = known.last_enqueued_at.map_or(now, |last| last.max(now));
        Ok(Prepared::Store(BlockHead { first_sequence: known.extents.next(), count, enqueued_at }))
    }

    /// Stores the events that [`Hubs::prepare`] has accepted with `head`, in the same round. `size_bytes` is the size
    /// of the block with its header. `producer` has the number of the first event.
    pub fn append(
        &mut self,
        stream: StreamId,
        head: BlockHead,
        body: BodyRef,
        size_bytes: u32,
        producer: Option<Producer>,
        out: &mut Output,
    ) {
        let BlockHead { first_sequence, count, enqueued_at } = head;
        let producer = producer.map(|first| first.last_of(count));
        let fact = Fact::Appended { stream, first_sequence, count, enqueued_at, body, size_bytes, producer };
        self.record(fact, out);
        if let Some(known) = self.streams.get_mut(&stream) {
            known.traffic.received_bytes += u64::from(size_bytes);
        }
        self.wake_waiting(stream);
    }
}
