//! All readers of a shard, and which of them can get events.

use std::collections::{BTreeMap, VecDeque};

use peeklock_types::{BodyRef, ConsumerGroup, ExpiredPosition, HubId, ReceiverId, Timestamp};

use crate::Output;
use crate::excerpt::Bookmark;
use crate::hub::Hubs;
use crate::reader::ReaderEnd;
use crate::stream::{Stream, StreamId};
use crate::view::ReaderView;

/// All readers of the shard.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    by_id: BTreeMap<ReceiverId, Reader>,
    /// The readers that may get a run, in turn.
    ready: VecDeque<ReceiverId>,
    drained: Vec<ReceiverId>,
    /// Recently deleted consumer groups.
    pub(crate) ended_groups: VecDeque<EndedGroup>,
}

/// The limit on the remembered consumer groups. A reader attaches long before so many other consumer groups are
/// deleted.
pub(crate) const ENDED_GROUPS_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct EndedGroup {
    pub(crate) hub: HubId,
    pub(crate) group: ConsumerGroup,
    pub(crate) deleted_at_revision: u64,
}

/// The readers of one stream.
#[derive(Debug, Default)]
pub(crate) struct Attached {
    by_group: BTreeMap<ConsumerGroup, Vec<ReceiverId>>,
    /// The readers at the end with remaining credit.
    waiting: Vec<ReceiverId>,
}

#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) stream: StreamId,
    pub(crate) group: ConsumerGroup,
    pub(crate) owner_level: Option<i64>,
    pub(crate) name: Option<String>,
    /// The next event of the reader.
    pub(crate) next: u64,
    pub(crate) skip: Option<Skip>,
    /// The total number of permitted events, and the number of events in the runs so far.
    pub(crate) limit: u64,
    pub(crate) counted: u64,
    pub(crate) window_bytes: i64,
    pub(crate) drain: bool,
    /// Whether a run is in progress.
    pub(crate) has_run: bool,
    /// Before this event the reader gets one extent at a time, because one of the extents cannot be read.
    pub(crate) careful_until: u64,
    /// The place of the next event in its extent, if the event is inside a large extent.
    pub(crate) bookmark: Option<(BodyRef, Bookmark)>,
    row: Row,
}

/// Events before `until` are omitted if they are older than the time `before`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Skip {
    pub(crate) before: Timestamp,
    pub(crate) until: u64,
}

/// The list that a reader is in, so that it is in no list twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Row {
    None,
    Ready,
    Waiting,
}

impl Reader {
    pub(crate) fn new(
        stream: StreamId,
        group: ConsumerGroup,
        owner_level: Option<i64>,
        name: Option<String>,
        next: u64,
        skip: Option<Skip>,
    ) -> Reader {
        let (limit, counted, window_bytes, drain, has_run) = (0, 0, 0, false, false);
        let row = Row::None;
        Reader {
            stream,
            group,
            owner_level,
            name,
            next,
            skip,
            limit,
            counted,
            window_bytes,
            drain,
            has_run,
            careful_until: 0,
            bookmark: None,
            row,
        }
    }

    pub(crate) fn credit(&self) -> u64 {
        self.limit.saturating_sub(self.counted)
    }

    pub(crate) fn can_take(&self) -> bool {
        !self.has_run && self.credit() > 0 && self.window_bytes > 0
    }
}

impl Attached {
    pub(crate) fn of_group(&self, group: &ConsumerGroup) -> &[ReceiverId] {
        self.by_group.get(group).map_or(&[], Vec::as_slice)
    }

    fn iter(&self) -> impl Iterator<Item = ReceiverId> {
        self.by_group.values().flatten().copied()
    }

    fn remove(&mut self, id: ReceiverId, reader: &Reader) {
        if let Some(group) = self.by_group.get_mut(&reader.group) {
            group.retain(|other| *other != id);
            if group.is_empty() {
                self.by_group.remove(&reader.group);
            }
        }
        if reader.row == Row::Waiting {
            self.waiting.retain(|other| *other != id);
        }
    }
}

impl Readers {
    pub(crate) fn get(&self, id: ReceiverId) -> Option<&Reader> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ReceiverId) -> Option<&mut Reader> {
        self.by_id.get_mut(&id)
    }

    pub(crate) fn take_drained(&mut self) -> Vec<ReceiverId> {
        std::mem::take(&mut self.drained)
    }

    /// Returns the next reader in turn.
    pub(crate) fn pop_ready(&mut self) -> Option<ReceiverId> {
        let id = self.ready.pop_front()?;
        if let Some(reader) = self.by_id.get_mut(&id) {
            reader.row = Row::None;
        }
        Some(id)
    }
}

impl Hubs {
    pub(crate) fn insert_reader(&mut self, id: ReceiverId, reader: Reader) {
        // A reader with a reused id is a new reader: the old one is removed.
        self.remove_reader(id);
        if let Some(stream) = self.streams.get_mut(&reader.stream) {
            stream.readers.by_group.entry(reader.group.clone()).or_default().push(id);
            self.readers.by_id.insert(id, reader);
        }
    }

    pub(crate) fn remove_reader(&mut self, id: ReceiverId) -> Option<Reader> {
        let reader = self.readers.by_id.remove(&id)?;
        if reader.row == Row::Ready {
            self.readers.ready.retain(|other| *other != id);
        }
        if let Some(stream) = self.streams.get_mut(&reader.stream) {
            stream.readers.remove(id, &reader);
        }
        Some(reader)
    }

    pub(crate) fn change_reader(&mut self, id: ReceiverId, change: impl FnOnce(&mut Reader)) {
        if let Some(reader) = self.readers.get_mut(id) {
            change(reader);
            self.arrange(id);
        }
    }

    /// Moves the reader to its list, and checks whether it is drained.
    pub(crate) fn arrange(&mut self, id: ReceiverId) {
        let Readers { by_id, ready, drained, .. } = &mut self.readers;
        let Some(reader) = by_id.get_mut(&id) else { return };
        let Some(stream) = self.streams.get_mut(&reader.stream) else { return };
        let begin = stream.extents.begin();
        if stream.spec.settings.expired_position == ExpiredPosition::Earliest {
            reader.next = reader.next.max(begin);
        }
        if reader.has_run {
            return;
        }
        let is_at_end = reader.next == stream.extents.next();
        if reader.drain && (is_at_end || reader.credit() == 0) {
            reader.drain = false;
            reader.limit = reader.counted;
            drained.push(id);
        }
        if reader.row != Row::None {
            return;
        }
        // A reader whose next event was retired must be handled even without credit.
        if reader.next < begin || (reader.can_take() && !is_at_end) {
            reader.row = Row::Ready;
            ready.push_back(id);
        } else if reader.can_take() {
            reader.row = Row::Waiting;
            stream.readers.waiting.push(id);
        }
    }

    /// Wakes the waiting readers after an append.
    pub(crate) fn wake_waiting(&mut self, stream: StreamId) {
        let Some(known) = self.streams.get_mut(&stream) else { return };
        for id in std::mem::take(&mut known.readers.waiting) {
            self.change_reader(id, |reader| reader.row = Row::None);
        }
    }

    /// Ends the readers of a stream for which `end` returns a reason.
    pub(crate) fn end_readers(
        &mut self,
        stream: StreamId,
        end: impl Fn(&Reader) -> Option<ReaderEnd>,
        out: &mut Output,
    ) {
        let Some(known) = self.streams.get(&stream) else { return };
        let ended = known.readers.iter().filter_map(|id| Some((id, end(self.readers.get(id)?)?)));
        for (id, end) in ended.collect::<Vec<_>>() {
            self.remove_reader(id);
            out.ended.push((id, end));
        }
    }

    /// Handles the readers behind retired events, after a retirement or a change of the setting.
    pub(crate) fn overtake_readers(&mut self, stream: StreamId, out: &mut Output) {
        let Some(known) = self.streams.get(&stream) else { return };
        for id in known.readers.iter().collect::<Vec<_>>() {
            self.overtake_reader(id, out);
        }
    }

    /// Ends the reader or moves it on, if its next event was retired.
    pub(crate) fn overtake_reader(&mut self, id: ReceiverId, out: &mut Output) {
        let Some(reader) = self.readers.get(id) else { return };
        let Some(stream) = self.streams.get(&reader.stream) else { return };
        let (next, first) = (reader.next, stream.extents.begin());
        if next >= first {
            return;
        }
        match stream.spec.settings.expired_position {
            ExpiredPosition::Earliest => self.arrange(id),
            ExpiredPosition::Refuse => {
                self.remove_reader(id);
                out.ended.push((id, ReaderEnd::Expired { next, first }));
            }
        }
    }

    pub(crate) fn reader_views(&self, stream: &Stream) -> Vec<ReaderView> {
        let view = |id: ReceiverId| {
            let reader = self.readers.get(id)?;
            Some(ReaderView {
                reader: id,
                group: reader.group.clone(),
                owner_level: reader.owner_level,
                name: reader.name.clone(),
                next_sequence: reader.next,
            })
        };
        stream.readers.iter().filter_map(view).collect()
    }
}
