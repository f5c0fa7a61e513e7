//! The partitions that live in this shard.

use peeklock_types::{BodyRef, EntityName, GroupNumber, HubId, HubSettings, Timestamp};

use crate::block::BlockHead;
use crate::error::Error;
use crate::hub::Hubs;
use crate::view::StreamView;
use crate::{Outbox, todo_body};

/// A stream of this shard. Numbers are not used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// Which partition a stream is, and what its hub says about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    pub hub: HubId,
    pub name: EntityName,
    pub partition: u32,
    pub settings: HubSettings,
}

/// Where some events lie: one or more blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub first_sequence: u64,
    pub count: u32,
    pub first_enqueued_at: Timestamp,
    pub last_enqueued_at: Timestamp,
    pub body: BodyRef,
    pub size_bytes: u32,
}

/// A producer whose events are numbered, so that what it sends again is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    pub id: i64,
    pub epoch: i16,
    /// Of the last event; numbers go on with 0 after `i32::MAX`.
    pub sequence: i32,
}

/// What to do with the events of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prepared {
    /// Store them with this head, then [`Hubs::append`].
    Store(BlockHead),
    /// All of them are there already: confirm, and store nothing.
    Duplicate,
}

/// Extents of one stream that should lie together, see [`Hubs::extents_in`].
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

impl Hubs {
    /// Creates the stream, or gives it new settings. Says nothing twice: a stream that is as wanted brings no fact.
    pub fn open_stream(&mut self, now: Timestamp, spec: StreamSpec, out: &mut Outbox) -> StreamId {
        todo_body!(self, now, spec, out)
    }

    /// Ends its readers and frees what it holds. Whether there was one.
    pub fn delete_stream(&mut self, hub: HubId, partition: u32, out: &mut Outbox) -> bool {
        todo_body!(self, hub, partition, out)
    }

    pub fn find_stream(&self, hub: HubId, partition: u32) -> Result<StreamId, Error> {
        todo_body!(self, hub, partition)
    }

    pub fn streams(&self) -> impl Iterator<Item = (StreamId, &StreamSpec)> {
        std::iter::empty()
    }

    pub fn stream(&self, stream: StreamId) -> Option<StreamView> {
        todo_body!(self, stream)
    }

    /// When the first event with at least this sequence number came that is there, about: as exact as the index of the stream is. For lag in seconds.
    pub fn enqueued_at(&self, stream: StreamId, sequence: u64) -> Option<Timestamp> {
        todo_body!(self, stream, sequence)
    }

    /// What a producer of this id is known by, for one that asks at attach; `None`: unknown here.
    pub fn producer(&self, stream: StreamId, id: i64) -> Option<Producer> {
        todo_body!(self, stream, id)
    }

    /// Checks a send of `count` events. `producer`: number of its first event.
    pub fn prepare(
        &self,
        now: Timestamp,
        stream: StreamId,
        count: u32,
        producer: Option<Producer>,
    ) -> Result<Prepared, Error> {
        todo_body!(self, now, stream, count, producer)
    }

    /// Stores what [`Hubs::prepare`] has allowed with `head`, in the same round. `size_bytes`: of the block with its header.
    pub fn append(
        &mut self,
        stream: StreamId,
        head: BlockHead,
        body: BodyRef,
        size_bytes: u32,
        producer: Option<Producer>,
        out: &mut Outbox,
    ) {
        todo_body!(self, stream, head, body, size_bytes, producer, out)
    }

    /// Drops what retention allows to drop by `now`.
    pub fn retire(&mut self, now: Timestamp, out: &mut Outbox) {
        let _ = (now, out);
    }

    /// The oldest group with a body that a stream still needs.
    pub fn oldest_log_body(&self) -> Option<GroupNumber> {
        None
    }

    /// Up to about `bytes_max` of extents in groups at or before `upto`, to be moved to cold segments of their streams. Those of one run are
    /// neighbours and become one extent of at most `run_bytes_max`.
    pub fn extents_in(&self, upto: GroupNumber, bytes_max: u64, run_bytes_max: u32) -> Vec<Gather> {
        let _ = (upto, bytes_max, run_bytes_max);
        Vec::new()
    }

    /// Journals that the extents of a run lie together at `body` now. `false`, and nothing happens, if some of them are gone or have moved: the copy is garbage.
    pub fn gathered(
        &mut self,
        stream: StreamId,
        run: &GatherRun,
        body: BodyRef,
        size_bytes: u32,
        out: &mut Outbox,
    ) -> bool {
        todo_body!(self, stream, run, body, size_bytes, out)
    }

    /// Every extent in a cold segment: place and size; asked after recovery.
    pub fn cold_bodies(&self) -> impl Iterator<Item = (BodyRef, u32)> {
        std::iter::empty()
    }
}
