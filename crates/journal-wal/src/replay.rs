//! Reads the groups of one shard lazily and in order.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use peeklock_journal::{OpenError, StoredGroup};
use peeklock_types::{CommitGroupNumber, ShardId};

use crate::buffers::Buffers;
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, frame_bytes};
use crate::layout::{Layout, text};
use crate::segment::{Place, Segment};

/// The read-ahead when the groups of the shard are close together, and when they are not.
const DENSE_BYTES: u64 = 1024 * 1024;
const SPARSE_BYTES: u64 = 16 * 1024;

/// Iterates over the groups of a shard. It holds the segments, so that they are not recycled before it ends.
pub(crate) struct Replay {
    pub(crate) layout: Layout,
    pub(crate) shard: ShardId,
    pub(crate) segments: BTreeMap<u64, Arc<Segment>>,
    pub(crate) next: CommitGroupNumber,
    pub(crate) places: std::vec::IntoIter<Place>,
    pub(crate) window: Window,
}

/// The bytes of the log that were read last.
#[derive(Default)]
pub(crate) struct Window {
    segment: u64,
    start: u64,
    bytes: Bytes,
    buffers: Arc<Buffers>,
}

impl Window {
    pub(crate) fn new(buffers: &Arc<Buffers>) -> Self {
        Window { buffers: Arc::clone(buffers), ..Window::default() }
    }

    /// Returns `size_bytes` from an offset on, from the window or from the file, or `None` if the segment ends before.
    /// Reads ahead if `next`, the place of the next read, is near.
    pub(crate) fn read(
        &mut self,
        segment: &Segment,
        offset: u64,
        size_bytes: usize,
        next: Option<Place>,
    ) -> io::Result<Option<Bytes>> {
        let known = self.slice(segment.id, offset, size_bytes);
        if known.is_some() {
            return Ok(known);
        }
        let is_near = |next: Place| {
            next.segment() == segment.id && next.offset().saturating_sub(offset) < DENSE_BYTES / 8
        };
        let ahead = if next.is_some_and(is_near) { DENSE_BYTES } else { SPARSE_BYTES };
        let room = segment.size_bytes.saturating_sub(offset);
        let now = usize::try_from(ahead.max(size_bytes as u64).min(room)).unwrap_or(0);
        // The old bytes are dropped first, so that the read can use their buffer.
        (self.segment, self.start, self.bytes) = (segment.id, offset, Bytes::new());
        if now > 0 {
            self.bytes = self.buffers.read(&*segment.file, now, offset)?;
        }
        Ok(self.slice(segment.id, offset, size_bytes))
    }

    /// Returns the size of the memory that a slice of the window keeps alive.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn slice(&self, segment: u64, offset: u64, size_bytes: usize) -> Option<Bytes> {
        let from = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        let to = from.checked_add(size_bytes)?;
        (self.segment == segment && to <= self.bytes.len()).then(|| self.bytes.slice(from..to))
    }
}

impl Iterator for Replay {
    type Item = Result<StoredGroup, OpenError>;

    fn next(&mut self) -> Option<Self::Item> {
        let place = self.places.next()?;
        let number = self.next;
        self.next = number.next();
        let group = self.group(place, number).map(|payload| StoredGroup { number, payload });
        if group.is_err() {
            // Replay ends at the first error: the groups after a gap are useless.
            self.places = Vec::new().into_iter();
        }
        Some(group)
    }
}

impl Replay {
    fn group(&mut self, place: Place, number: CommitGroupNumber) -> Result<Bytes, OpenError> {
        let head = self.bytes(place, FRAME_HEADER_BYTES)?;
        let header =
            FrameHeader::decode(&head).filter(|h| h.group.shard == self.shard && h.group.number == number);
        let Some(header) = header else {
            return Err(self.damaged(place, "the header of a group is damaged"));
        };
        let payload_bytes = header.group.payload_bytes as usize;
        if place.offset() + frame_bytes(payload_bytes) > self.size_of(place) {
            return Err(self.damaged(place, "a group would end behind the file"));
        }
        let frame = self.bytes(place, FRAME_HEADER_BYTES + payload_bytes)?;
        let payload = frame.slice(FRAME_HEADER_BYTES..);
        if crc32c::crc32c(&payload) != header.group.payload_crc {
            return Err(self.damaged(place, "the checksum of a group does not fit"));
        }
        Ok(payload)
    }

    /// Returns `size_bytes` from a place on.
    fn bytes(&mut self, place: Place, size_bytes: usize) -> Result<Bytes, OpenError> {
        let Some(segment) = self.segments.get(&place.segment()) else {
            return Err(self.damaged(place, "the segment of a group is gone"));
        };
        let next = self.places.as_slice().first().copied();
        let read = self.window.read(segment, place.offset(), size_bytes, next);
        let read = read.map_err(|source| OpenError::Io {
            action: "reading",
            path: text(&self.layout.segment(place.segment())),
            source,
        })?;
        read.ok_or_else(|| self.damaged(place, "a group would end behind the file"))
    }

    fn size_of(&self, place: Place) -> u64 {
        self.segments.get(&place.segment()).map_or(0, |segment| segment.size_bytes)
    }

    fn damaged(&self, place: Place, what: &str) -> OpenError {
        let file = text(&self.layout.segment(place.segment()));
        OpenError::Corrupt { file, offset: place.offset(), what: what.to_owned() }
    }
}
