//! The writer takes all waiting groups, writes them as one commit, syncs, and raises the watermarks.
//!
//! In a broker a [`Desk`](crate::desk::Desk) runs it; a simulation calls [`Writer::step`]. It writes a commit only after
//! the one before it is durable, so that recovery can distinguish a torn end from damage.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use peeklock_types::{CommitGroupNumber, ShardId};

use crate::config::BLOCK_BYTES;
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, Landing};
use crate::layout::text;
use crate::locked;
use crate::queue::Pending;
use crate::ring::RingSegment;
use crate::segment::{Link, Place, Segment, SegmentHeader};
use crate::shard::Shard;
use crate::shared::Shared;

/// The keeper checks the free space after this many commits, even if no segment was filled.
const COMMITS_PER_LOOK: u64 = 256;
/// Parts of payloads up to this size are copied behind their header, because one larger part costs less than many small
/// ones. Larger parts are written from their own buffers.
const COPY_BYTES_MAX: usize = 4096;

pub(crate) struct Writer {
    shared: Arc<Shared>,
    current: Option<Current>,
    /// The end of the log, for the header of the next segment.
    end: Link,
    next_commit: u64,
    hot: VecDeque<Cooling>,
    hot_bytes: usize,
    /// The headers, padding and small parts of one commit. The buffer is kept to reuse its memory.
    scratch: Vec<u8>,
}

struct Current {
    segment: Arc<Segment>,
    /// The next free block.
    next: u64,
    header_written: bool,
}

/// A durable payload that is still in memory.
struct Cooling {
    shard: Arc<Shard>,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Committed,
    /// No group waits.
    Idle,
    /// No segment is available.
    Stalled,
    /// A write or sync has failed, and the journal has stopped.
    Stopped,
}

/// A part of a commit, before the buffers are final.
enum Part {
    Scratch(Range<usize>),
    /// The group in the commit, and the part of its payload.
    Payload(usize, usize),
}

fn blocks(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES)
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, end: Link, next_commit: u64) -> Self {
        Writer {
            shared,
            current: None,
            end,
            next_commit,
            hot: VecDeque::new(),
            hot_bytes: 0,
            scratch: Vec::new(),
        }
    }

    pub(crate) fn step(&mut self) -> Step {
        if self.shared.stopped().is_some() {
            return Step::Stopped;
        }
        let Some(first_bytes) = self.first_waiting() else { return Step::Idle };
        match self.make_room(first_bytes) {
            Ok(true) => {}
            Ok(false) => return self.stall(),
            Err(error) => return self.fail(&error),
        }
        let batch = self.take();
        match self.write(&batch) {
            Ok(places) => self.publish(batch, &places),
            Err(error) => return self.fail(&error),
        }
        Step::Committed
    }

    fn first_waiting(&self) -> Option<u64> {
        locked(&self.shared.queue.state).waiting.front().map(|pending| pending.frame_bytes())
    }

    fn stall(&self) -> Step {
        self.shared.queue.stalled.store(true, Ordering::Relaxed);
        self.shared.bell.ring();
        Step::Stalled
    }

    /// Stops the journal after a failed write or sync: the contents of the disk are unknown, and another write could
    /// leave a hole before durable groups.
    fn fail(&self, error: &io::Error) -> Step {
        let file = self
            .current
            .as_ref()
            .map(|c| text(&self.shared.layout.segment(c.segment.id)))
            .unwrap_or_default();
        self.shared.stop(format!("writing {file}: {error}; start again to learn what survived"));
        Step::Stopped
    }

    /// Makes sure that a commit that starts with a frame of this size has space. Takes the next segment if needed, and
    /// returns `false` if there is none.
    fn make_room(&mut self, frame_bytes: u64) -> io::Result<bool> {
        loop {
            if let Some(current) = &self.current {
                if current.next + blocks(frame_bytes) <= current.segment.size_bytes {
                    return Ok(true);
                }
                self.leave_current()?;
            }
            let config = &self.shared.config;
            let mut ring = locked(&self.shared.ring);
            let spare = ring.take_spare(self.next_commit, config.spares_min, config.spares_max);
            drop(ring);
            let Some(spare) = spare else { return Ok(false) };
            self.shared.queue.stalled.store(false, Ordering::Relaxed);
            self.shared.bell.ring();
            self.current =
                Some(Current { segment: Arc::new(spare), next: BLOCK_BYTES, header_written: false });
        }
    }

    /// Leaves the current segment. If it is too small even for its first group, it becomes part of the log without a
    /// group, so that all used files are linked.
    fn leave_current(&mut self) -> io::Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        if !current.header_written {
            let header = self.header_of(&current.segment).encode();
            current.segment.file.write_at(&mut [IoSlice::new(&header)], 0)?;
            current.segment.file.sync()?;
            self.end = Link { segment: current.segment.id, end: BLOCK_BYTES };
            let entry = RingSegment { segment: current.segment, newest: BTreeMap::new() };
            locked(&self.shared.ring).live.push_back(entry);
        }
        Ok(())
    }

    fn header_of(&self, segment: &Segment) -> SegmentHeader {
        SegmentHeader {
            id: segment.id,
            size_bytes: segment.size_bytes,
            previous: self.end,
            first_commit: self.next_commit,
        }
    }

    /// Takes waiting groups in order while they fit into the segment and into one commit. Always takes the first group.
    fn take(&self) -> Vec<Pending> {
        let Some(current) = &self.current else { return Vec::new() };
        let room = current.segment.size_bytes - current.next;
        let limit = self.shared.config.commit_bytes_max as u64;
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut state = locked(&self.shared.queue.state);
        while let Some(pending) = state.waiting.front() {
            let more = bytes + pending.frame_bytes();
            if !batch.is_empty() && (more > limit || blocks(more) > room) {
                break;
            }
            bytes = more;
            batch.extend(state.waiting.pop_front());
        }
        batch
    }

    /// Writes and syncs one commit, and returns the places of its groups.
    fn write(&mut self, batch: &[Pending]) -> io::Result<Vec<Place>> {
        let Some(mut current) = self.current.take() else { return Ok(Vec::new()) };
        self.scratch.clear();
        let mut start = current.next;
        if !current.header_written {
            self.scratch.extend_from_slice(&self.header_of(&current.segment).encode());
            start = 0;
        }
        let mut layout = CommitLayout::new(&mut self.scratch, current.next);
        for (at, pending) in batch.iter().enumerate() {
            let landing = Landing {
                segment: current.segment.id,
                commit: self.next_commit,
                frames_left: u32::try_from(batch.len() - at - 1).unwrap_or(u32::MAX),
            };
            layout.add(at, pending, landing);
        }
        let CommitLayout { places, parts, last_end, .. } = layout.finish();
        let mut slices: Vec<IoSlice<'_>> =
            parts.iter().map(|part| slice_of(part, &self.scratch, batch)).collect();
        let written =
            current.segment.file.write_at(&mut slices, start).and_then(|()| current.segment.file.sync());
        current.next = blocks(last_end);
        self.end = Link { segment: current.segment.id, end: last_end };
        let first = !std::mem::replace(&mut current.header_written, true);
        let segment = Arc::clone(&current.segment);
        self.current = Some(current);
        written?;
        if first {
            let entry = RingSegment { segment, newest: BTreeMap::new() };
            locked(&self.shared.ring).live.push_back(entry);
        }
        Ok(places)
    }

    /// Publishes a durable commit: readers find its groups, owners see the new watermarks, and old payloads may leave
    /// memory.
    fn publish(&mut self, batch: Vec<Pending>, places: &[Place]) {
        self.note_newest(&batch);
        let mut landed_bytes = 0;
        for (pending, place) in batch.iter().zip(places) {
            locked(&pending.shard.books).landed(*place);
            pending.shard.add_logged(pending.frame_bytes());
            landed_bytes += pending.frame_bytes();
        }
        self.shared.queue.landed(landed_bytes);
        self.shared.commit_count.fetch_add(1, Ordering::Relaxed);
        self.shared.group_count.fetch_add(batch.len() as u64, Ordering::Relaxed);
        let commit = self.next_commit;
        self.next_commit += 1;
        // The loop starts from the back, so that the first group of each shard in this order is its newest.
        for pending in batch.iter().rev().filter(|pending| pending.shard.first_wake(commit)) {
            pending.shard.progress.send_modify(|progress| progress.watermark = pending.head.number);
        }
        if commit.is_multiple_of(COMMITS_PER_LOOK) {
            self.shared.bell.ring();
        }
        self.cool(batch);
    }

    fn note_newest(&self, batch: &[Pending]) {
        let mut ring = locked(&self.shared.ring);
        let Some(entry) = ring.live.back_mut() else { return };
        let mut noted: Option<(ShardId, CommitGroupNumber)> = None;
        for pending in batch {
            // Neighbours often belong to one shard: only the last of them is noted.
            if let Some((shard, number)) = noted.filter(|(shard, _)| *shard != pending.shard.id) {
                entry.newest.insert(shard, number);
            }
            noted = Some((pending.shard.id, pending.head.number));
        }
        entry.newest.extend(noted);
    }

    /// Keeps durable payloads in memory, in the order of their commits, up to a limit.
    fn cool(&mut self, batch: Vec<Pending>) {
        for pending in batch {
            // The size includes the header, so that empty groups count as well.
            let bytes = FRAME_HEADER_BYTES + pending.payload.len();
            self.hot_bytes += bytes;
            self.hot.push_back(Cooling { bytes, shard: pending.shard });
        }
        while self.hot_bytes > self.shared.config.hot_cache_bytes {
            let Some(oldest) = self.hot.pop_front() else { return };
            self.hot_bytes -= oldest.bytes;
            locked(&oldest.shard.books).cool_oldest();
        }
    }
}

fn slice_of<'a>(part: &Part, scratch: &'a [u8], batch: &'a [Pending]) -> IoSlice<'a> {
    match part {
        Part::Scratch(range) => IoSlice::new(&scratch[range.clone()]),
        Part::Payload(at, part) => IoSlice::new(&batch[*at].payload.parts()[*part]),
    }
}

/// Arranges the frames of one commit: small parts consecutively in the scratch buffer, large parts in their own
/// buffers.
struct CommitLayout<'a> {
    scratch: &'a mut Vec<u8>,
    parts: Vec<Part>,
    places: Vec<Place>,
    /// The start of the scratch bytes that belong to no part yet.
    open_from: usize,
    /// The offset in the segment of the next frame, and the end of the last one.
    at: u64,
    last_end: u64,
}

impl<'a> CommitLayout<'a> {
    fn new(scratch: &'a mut Vec<u8>, at: u64) -> Self {
        CommitLayout { scratch, parts: Vec::new(), places: Vec::new(), open_from: 0, at, last_end: at }
    }

    fn add(&mut self, index: usize, pending: &Pending, landing: Landing) {
        let header = FrameHeader { group: pending.head, landing };
        self.places.push(Place::new(landing.segment, self.at));
        self.scratch.extend_from_slice(&header.encode());
        for (number, part) in pending.payload.parts().iter().enumerate() {
            if part.len() <= COPY_BYTES_MAX {
                self.scratch.extend_from_slice(part);
            } else {
                self.close_part();
                self.parts.push(Part::Payload(index, number));
            }
        }
        self.last_end = self.at + (FRAME_HEADER_BYTES + pending.payload.len()) as u64;
        self.at += pending.frame_bytes();
        self.pad(self.at - self.last_end);
    }

    fn pad(&mut self, bytes: u64) {
        let bytes = usize::try_from(bytes).expect("padding is less than a block");
        self.scratch.resize(self.scratch.len() + bytes, 0);
    }

    fn close_part(&mut self) {
        if self.open_from < self.scratch.len() {
            self.parts.push(Part::Scratch(self.open_from..self.scratch.len()));
            self.open_from = self.scratch.len();
        }
    }

    /// Fills the last block. Commits never share a block, so durable bytes are never rewritten.
    fn finish(mut self) -> Self {
        self.pad(blocks(self.at) - self.at);
        self.close_part();
        self
    }
}
