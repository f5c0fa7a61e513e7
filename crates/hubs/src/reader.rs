//! Readers: cursors on streams. Nothing of them is durable.

use peeklock_types::{BodyRef, ConsumerGroup, GroupNumber, HubId, ReceiverId, Timestamp};

use crate::error::Error;
use crate::hub::Hubs;
use crate::stream::StreamId;
use crate::view::LastEnqueued;
use crate::{Outbox, todo_body};

/// Where a reader starts. `inclusive`: at the named event; else after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    Earliest,
    /// Only what comes from now on.
    Latest,
    Sequence {
        sequence: u64,
        inclusive: bool,
    },
    /// The first event that came after this time, or at it. Found up to the extent that holds it: whoever hands out the events leaves out those
    /// that came before ([`Run::not_before`]).
    Time {
        at: Timestamp,
        inclusive: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderSpec {
    pub group: ConsumerGroup,
    pub start: StartAt,
    pub owner_level: Option<i64>,
    /// What it calls itself, for people.
    pub name: Option<String>,
}

/// Why a reader was ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReaderEnd {
    /// A reader with an owner level has taken over.
    Stolen { by: Option<String>, level: i64, name: Option<String>, own_level: Option<i64> },
    /// The events that it would get next are gone, see [`peeklock_types::ExpiredPosition`].
    Expired { next: u64, first: u64 },
    /// Its hub or consumer group was deleted.
    Deleted,
    /// The hub was disabled for receivers.
    Disabled,
}

/// What a reader is to be handed next: to be read, handed out, and followed by [`Hubs::run_done`] or [`Hubs::run_failed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub reader: ReceiverId,
    pub stream: StreamId,
    /// The first event that it wants, and the one after the last: fewer than the extents hold at both ends, maybe.
    pub from: u64,
    pub upto: u64,
    pub not_before: Option<Timestamp>,
    /// In order.
    pub bodies: Vec<(BodyRef, u32)>,
    /// The newest group that one of them lies in: nobody may see them before it is durable. [`GroupNumber::NONE`]: all lie in cold segments.
    pub newest_group: GroupNumber,
    /// What it has taken of the reader's window.
    pub window_bytes: i64,
    pub last: LastEnqueued,
}

impl Hubs {
    /// Readers that it evicts are in [`Outbox::ended`]. The position is fixed now.
    pub fn attach_reader(
        &mut self,
        stream: StreamId,
        reader: ReceiverId,
        spec: ReaderSpec,
        out: &mut Outbox,
    ) -> Result<(), Error> {
        todo_body!(self, stream, reader, spec, out)
    }

    /// Whether there was such a reader.
    pub fn detach_reader(&mut self, reader: ReceiverId) -> bool {
        let _ = reader;
        false
    }

    pub fn has_reader(&self, reader: ReceiverId) -> bool {
        let _ = reader;
        false
    }

    /// Ends all readers of the group on streams of this hub.
    pub fn end_group(&mut self, hub: HubId, group: &ConsumerGroup, out: &mut Outbox) {
        let _ = (hub, group, out);
    }

    /// The reader takes events until there were `limit` in all. A running count: what its runs named counts, from [`Run::from`] to [`Run::upto`].
    pub fn set_reader_limit(&mut self, reader: ReceiverId, limit: u64) {
        let _ = (reader, limit);
    }

    /// Tells when what is there was handed out: through `drained` of [`Hubs::next_run`]'s caller, see [`Hubs::take_drained`].
    pub fn drain_reader(&mut self, reader: ReceiverId, drain: bool) {
        let _ = (reader, drain);
    }

    /// Readers whose drain is done since the last call: they are at the end or at their limit, and no run is under way.
    pub fn take_drained(&mut self) -> Vec<ReceiverId> {
        Vec::new()
    }

    /// The reader may be handed this many bytes more.
    pub fn add_reader_window(&mut self, reader: ReceiverId, size_bytes: i64) {
        let _ = (reader, size_bytes);
    }

    /// The next run for any reader that can have one: it has credit and a window, and no run under way. Readers take turns. At most about
    /// `bytes_max`, but at least one extent. Cheap when nobody can.
    pub fn next_run(&mut self, bytes_max: u32, out: &mut Outbox) -> Option<Run> {
        let _ = (bytes_max, out);
        None
    }

    /// The run was handed out; the reader can have another.
    pub fn run_done(&mut self, reader: ReceiverId) {
        let _ = reader;
    }

    /// The run could not be read because its extents have moved or are gone: the reader is back at `from`, and gets its window and credit back.
    pub fn run_failed(&mut self, run: &Run) {
        let _ = run;
    }
}
