//! Selects the next events for readers.

use peeklock_types::{BodyRef, CommitGroupNumber, ReceiverId};

use crate::Output;
use crate::excerpt::Bookmark;
use crate::hub::Hubs;
use crate::reader::Run;
use crate::readers::Reader;
use crate::stream::{Extent, Stream};

/// The limit on the extents of a run: each is read separately.
const RUN_EXTENTS_MAX: usize = 1024;

/// The part of an extent that even one event uses in a window, as a divisor: an extent is in memory as a whole until
/// its last event was delivered. Otherwise a reader that requests single events without taking them could hold the same
/// extent in memory as often as it has events.
const WINDOW_SHARE_MIN: u64 = 16;

/// Returns the approximate bytes of the events from `from` to `upto` of an extent.
fn share_bytes(extent: &Extent, from: u64, upto: u64) -> u64 {
    let share = u64::from(extent.size_bytes).saturating_mul(upto.saturating_sub(from));
    share.checked_div(extent.count.into()).unwrap_or_default()
}

/// Returns the window bytes for delivering this many bytes of an extent.
fn window_bytes(extent: &Extent, share_bytes: u64) -> i64 {
    let bytes = share_bytes.max(u64::from(extent.size_bytes) / WINDOW_SHARE_MIN);
    i64::try_from(bytes).unwrap_or(i64::MAX).max(1)
}

fn group_of(extent: &Extent) -> CommitGroupNumber {
    extent.body.group().unwrap_or(CommitGroupNumber::NONE)
}

/// Takes the extents from the reader's next event on, as many as fit. Returns `None` if there is none.
fn take(id: ReceiverId, reader: &mut Reader, stream: &Stream, bytes_max: u32) -> Option<Run> {
    let from = reader.next;
    let end = from.saturating_add(reader.credit());
    let mut run = Run {
        reader: id,
        stream: reader.stream,
        from,
        upto: from,
        not_before: reader.skip.filter(|skip| from < skip.until).map(|skip| skip.before),
        bodies: Vec::new(),
        newest_group: CommitGroupNumber::NONE,
        window_bytes: 0,
        size_bytes: 0,
        bookmark: None,
        last: stream.last_enqueued(),
    };
    let extent_count_max = if from < reader.careful_until { 1 } else { RUN_EXTENTS_MAX };
    let mut extents_bytes = 0_u64;
    for extent in stream.extents.iter_from(stream.extents.find(from)) {
        extents_bytes += u64::from(extent.size_bytes);
        let is_full = extents_bytes > bytes_max.into()
            || run.window_bytes >= reader.window_bytes
            || run.bodies.len() >= extent_count_max;
        if extent.is_lost() || run.upto >= end || (is_full && !run.bodies.is_empty()) {
            break;
        }
        let upto = extent.end().min(end);
        if run.bodies.is_empty() {
            let is_here = |(body, mark): &(_, Bookmark)| *body == extent.body && mark.sequence == from;
            run.bookmark = reader.bookmark.filter(is_here).map(|(_, mark)| mark);
        }
        let bytes = share_bytes(&extent, run.upto, upto);
        run.window_bytes = run.window_bytes.saturating_add(window_bytes(&extent, bytes));
        run.size_bytes = run.size_bytes.saturating_add(bytes);
        run.bodies.push((extent.body, extent.size_bytes));
        run.newest_group = run.newest_group.max(group_of(&extent));
        run.upto = upto;
    }
    if run.bodies.is_empty() {
        return None;
    }
    reader.next = run.upto;
    reader.counted += run.upto - run.from;
    reader.window_bytes = reader.window_bytes.saturating_sub(run.window_bytes);
    reader.has_run = true;
    Some(run)
}

impl Hubs {
    /// Returns the next run for any reader with credit, a window and no run in progress. Readers take turns. A run has
    /// at most approximately `bytes_max`, but at least one extent. Cheap when no reader can get one.
    pub fn next_run(&mut self, bytes_max: u32, out: &mut Output) -> Option<Run> {
        while let Some(id) = self.readers.pop_ready() {
            self.overtake_reader(id, out);
            self.pass_lost(id, out);
            let Some(reader) = self.readers.get_mut(id) else { continue };
            let Some(stream) = self.streams.get(&reader.stream) else { continue };
            if reader.can_take()
                && let Some(run) = take(id, reader, stream, bytes_max)
            {
                self.count_run(&run, u64::saturating_add);
                return Some(run);
            }
            self.arrange(id);
        }
        None
    }

    /// Counts a run for its reader, or reverts the count of a failed one.
    fn count_run(&mut self, run: &Run, change: fn(u64, u64) -> u64) {
        let Some(known) = self.streams.get_mut(&run.stream) else { return };
        let traffic = &mut known.traffic;
        traffic.read_events = change(traffic.read_events, run.upto.saturating_sub(run.from));
        traffic.read_bytes = change(traffic.read_bytes, run.size_bytes);
    }

    /// Ends a delivered run; the reader can get another one.
    pub fn run_done(&mut self, reader: ReceiverId) {
        self.change_reader(reader, |reader| reader.has_run = false);
    }

    /// Shortens a run to the events before `upto`, which were read: the reader gets the others in its next run.
    pub fn shorten_run(&mut self, run: &mut Run, upto: u64) {
        let (all, left) = (run.upto.saturating_sub(run.from), run.upto.saturating_sub(upto));
        if left == 0 || left >= all {
            return;
        }
        self.count_run(run, u64::saturating_sub);
        run.upto = upto;
        run.size_bytes = run.size_bytes.saturating_mul(all - left).checked_div(all).unwrap_or_default();
        self.count_run(run, u64::saturating_add);
        if let Some(reader) = self.readers.get_mut(run.reader).filter(|reader| reader.has_run) {
            reader.next = upto;
            reader.counted = reader.counted.saturating_sub(left);
        }
    }

    /// Stores the place of the reader's next event in the extent at `body`.
    pub fn keep_place(&mut self, reader: ReceiverId, body: BodyRef, place: Bookmark) {
        if let Some(reader) = self.readers.get_mut(reader) {
            reader.bookmark = Some((body, place));
        }
    }

    /// Returns whether the events of the run are still at its places: if so, a failed read need not be retried.
    pub fn is_current(&self, run: &Run) -> bool {
        let Some(known) = self.streams.get(&run.stream) else { return false };
        let extents = known.extents.iter_from(known.extents.find(run.from));
        let bodies = extents.map(|extent| (extent.body, extent.size_bytes)).take(run.bodies.len());
        known.extents.begin() <= run.from && bodies.eq(run.bodies.iter().copied())
    }

    /// Ends a run that could not be read because its extents have moved or are gone: the reader returns to `from`, with
    /// its window and credit.
    pub fn run_failed(&mut self, run: &Run) {
        self.count_run(run, u64::saturating_sub);
        self.change_reader(run.reader, |reader| {
            if !reader.has_run {
                return;
            }
            reader.has_run = false;
            reader.next = run.from;
            reader.counted = reader.counted.saturating_sub(run.upto.saturating_sub(run.from));
            reader.window_bytes = reader.window_bytes.saturating_add(run.window_bytes);
        });
    }
}
