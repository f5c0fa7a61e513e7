//! Readers: cursors on streams. They are volatile.

use peeklock_types::{
    BodyRef, CommitGroupNumber, ConsumerGroup, ExpiredPosition, HubId, ReceiverId, Timestamp, limits,
};

use crate::Output;
use crate::checkpoint::check_owner;
use crate::error::Error;
use crate::excerpt::Bookmark;
use crate::hub::Hubs;
use crate::readers::{ENDED_GROUPS_MAX, EndedGroup, Reader, Skip};
use crate::stream::{Stream, StreamId};
use crate::view::LastEnqueued;

/// The start of a reader. If `inclusive` is set, the reader starts at the named event, otherwise after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    Earliest,
    /// After the newest event: the reader gets only later events.
    Latest,
    Sequence {
        sequence: u64,
        inclusive: bool,
    },
    /// The first event after this time, or at it. The reader starts with the extent of this event, and the caller omits
    /// the earlier events of the extent ([`Run::not_before`]).
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
    /// The revision of the hub that named the consumer group: if the consumer group was deleted later, the reader is
    /// rejected.
    pub hub_revision: u64,
    /// The name of the reader, which is shown to people.
    pub name: Option<String>,
}

/// The reason why a reader was ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReaderEnd {
    /// A reader with an owner level has taken over.
    Stolen { by: Option<String>, level: i64, name: Option<String>, own_level: Option<i64> },
    /// The next events of the reader were retired, see [`peeklock_types::ExpiredPosition`].
    Expired { next: u64, first: u64 },
    /// The events in this range were damaged on the disk, see [`peeklock_types::ExpiredPosition`].
    Lost { from: u64, upto: u64 },
    /// The hub or consumer group of the reader was deleted.
    Deleted,
    /// The hub was disabled for receivers.
    Disabled,
    /// The events from this one on cannot be read from the disk.
    Unreadable { from: u64 },
}

/// The next events for a reader. The caller reads and delivers them, and then calls [`Hubs::run_done`] or
/// [`Hubs::run_failed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub reader: ReceiverId,
    pub stream: StreamId,
    /// The first event of the run, and the event after the last one. The extents may contain more events at both ends.
    pub from: u64,
    pub upto: u64,
    pub not_before: Option<Timestamp>,
    /// The places and sizes of the extents, in order.
    pub bodies: Vec<(BodyRef, u32)>,
    /// The newest commit group of these extents: they are visible only when it is durable. [`CommitGroupNumber::NONE`]:
    /// all are in cold storage.
    pub newest_group: CommitGroupNumber,
    /// The bytes of the reader's window that the run used.
    pub window_bytes: i64,
    /// The approximate size of the events of the run.
    pub size_bytes: u64,
    /// The place of the first event of the run in the first extent, if it is known.
    pub bookmark: Option<Bookmark>,
    pub last: LastEnqueued,
}

impl Stream {
    /// Returns the first event of a reader, and which events of its extent are omitted.
    fn position(&self, start: StartAt) -> Result<(u64, Option<Skip>), Error> {
        match start {
            StartAt::Earliest => Ok((self.extents.skip_lost(self.extents.begin()), None)),
            StartAt::Latest => Ok((self.extents.next(), None)),
            StartAt::Sequence { sequence, inclusive } => {
                self.position_of(sequence, inclusive).map(|next| (next, None))
            }
            StartAt::Time { at, inclusive } => {
                let at =
                    if inclusive { at } else { Timestamp::from_millis(at.as_millis().saturating_add(1)) };
                let Some(extent) = self.extents.get(self.extents.find_time(at)) else {
                    return Ok((self.extents.next(), None));
                };
                let skip = Skip { before: at, until: extent.end() };
                Ok((extent.first_sequence, (extent.first_enqueued_at < at).then_some(skip)))
            }
        }
    }

    fn position_of(&self, sequence: u64, inclusive: bool) -> Result<u64, Error> {
        let (partition, first, next) = (self.spec.partition, self.extents.begin(), self.extents.next());
        let wanted = sequence.checked_add((!inclusive).into()).filter(|wanted| *wanted <= next);
        let last = self.last_enqueued().sequence;
        let wanted = wanted.ok_or(Error::BeyondEnd { partition, given: sequence, last })?;
        match self.spec.settings.expired_position {
            ExpiredPosition::Refuse if wanted < first => {
                Err(Error::Expired { partition, given: wanted, first })
            }
            _ => Ok(wanted.max(first)),
        }
    }
}

/// Returns the name of a reader; the default is that of the service.
fn named(name: &Option<String>) -> String {
    name.clone().unwrap_or_else(|| "nil".to_owned())
}

impl Hubs {
    /// Attaches a reader and fixes its position. Displaced readers are in [`Output::ended`].
    pub fn attach_reader(
        &mut self,
        stream: StreamId,
        reader: ReceiverId,
        spec: ReaderSpec,
        out: &mut Output,
    ) -> Result<(), Error> {
        let known = self.streams.get(&stream).ok_or(Error::StreamGone { stream })?;
        if !known.spec.settings.status.can_receive() {
            return Err(Error::Disabled { name: known.spec.name.clone(), what: "receivers" });
        }
        self.check_group(known, &spec)?;
        check_owner(spec.name.as_deref().unwrap_or_default())?;
        let evicted = self.check_level(known, &spec)?;
        let (next, skip) = known.position(spec.start)?;
        for other in evicted {
            let Some(old) = self.remove_reader(other) else { continue };
            let (by, level) = (spec.name.clone(), spec.owner_level.unwrap_or_default());
            let end = ReaderEnd::Stolen { by, level, name: old.name, own_level: old.owner_level };
            out.ended.push((other, end));
        }
        let ReaderSpec { group, owner_level, name, .. } = spec;
        self.insert_reader(reader, Reader::new(stream, group, owner_level, name, next, skip));
        Ok(())
    }

    /// Returns the readers that a new one displaces, if it is accepted. A consumer group has either one reader with an
    /// owner level, or several without.
    fn check_level(&self, stream: &Stream, spec: &ReaderSpec) -> Result<Vec<ReceiverId>, Error> {
        let others = stream.readers.of_group(&spec.group);
        let highest = others.iter().filter_map(|other| self.readers.get(*other));
        let highest =
            highest.filter_map(|other| Some((other.owner_level?, other))).max_by_key(|(level, _)| *level);
        let (partition, group) = (stream.spec.partition, spec.group.clone());
        match (spec.owner_level, highest) {
            (Some(found), Some((current, holder))) if found < current => {
                let (holder, name) = (named(&holder.name), named(&spec.name));
                Err(Error::OwnerLevel { group, partition, current, holder, found, name })
            }
            (Some(_), _) => Ok(others.to_vec()),
            (None, Some((current, holder))) => {
                Err(Error::NoOwnerLevel { group, partition, current, holder: named(&holder.name) })
            }
            // The limit does not apply to observers.
            (None, None) if others.len() >= limits::PLAIN_READERS_MAX && !group.is_observer() => {
                let readers = others.iter().filter_map(|other| self.readers.get(*other));
                let receivers = readers.map(|reader| named(&reader.name)).collect();
                Err(Error::TooManyReaders { group, partition, receivers })
            }
            (None, None) => Ok(Vec::new()),
        }
    }

    /// Detaches a reader. Returns whether it existed.
    pub fn detach_reader(&mut self, reader: ReceiverId) -> bool {
        self.remove_reader(reader).is_some()
    }

    pub fn has_reader(&self, reader: ReceiverId) -> bool {
        self.readers.get(reader).is_some()
    }

    /// Rejects a reader whose caller looked up the consumer group before its deletion, and attaches after the readers
    /// of the consumer group were ended: such a reader would stay for ever.
    fn check_group(&self, stream: &Stream, spec: &ReaderSpec) -> Result<(), Error> {
        let is_gone = |ended: &EndedGroup| {
            ended.hub == stream.spec.hub
                && ended.group == spec.group
                && spec.hub_revision < ended.deleted_at_revision
        };
        if self.readers.ended_groups.iter().any(is_gone) {
            return Err(Error::NoSuchGroup { name: stream.spec.name.clone(), group: spec.group.clone() });
        }
        Ok(())
    }

    /// Ends all readers of the consumer group on streams of this hub. Readers that attach later with an older revision
    /// of the hub are rejected.
    pub fn end_group(&mut self, hub: HubId, group: &ConsumerGroup, revision: u64, out: &mut Output) {
        let ended = EndedGroup { hub, group: group.clone(), deleted_at_revision: revision };
        self.readers.ended_groups.push_back(ended);
        if self.readers.ended_groups.len() > ENDED_GROUPS_MAX {
            self.readers.ended_groups.pop_front();
        }
        let streams = self.by_partition.range((hub, 0)..=(hub, u32::MAX));
        let streams: Vec<_> = streams.map(|(_, stream)| *stream).collect();
        let end = |reader: &Reader| (reader.group == *group).then_some(ReaderEnd::Deleted);
        streams.into_iter().for_each(|stream| self.end_readers(stream, end, out));
    }

    /// Permits events up to `limit` in total. All events of runs count against it, from [`Run::from`] to [`Run::upto`].
    pub fn set_reader_limit(&mut self, reader: ReceiverId, limit: u64) {
        self.change_reader(reader, |reader| reader.limit = limit);
    }

    /// Starts or cancels a drain, see [`Hubs::take_drained`]. When the available events were delivered, the remaining
    /// limit is used up, until it is set again.
    pub fn drain_reader(&mut self, reader: ReceiverId, drain: bool) {
        self.change_reader(reader, |reader| reader.drain = drain);
    }

    /// Returns the readers whose drain finished since the last call: they are at the end or at their limit, without a
    /// run in progress.
    pub fn take_drained(&mut self) -> Vec<ReceiverId> {
        self.readers.take_drained()
    }

    /// Permits this many more bytes.
    pub fn add_reader_window(&mut self, reader: ReceiverId, size_bytes: i64) {
        self.change_reader(reader, |reader| {
            reader.window_bytes = reader.window_bytes.saturating_add(size_bytes);
        });
    }
}
