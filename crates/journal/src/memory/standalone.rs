//! The standalone bodies of a shard.
//!
//! The bodies are stored in segments, like those of a journal on disk, so that tests of owners meet the same requests
//! to move bodies.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use peeklock_types::{BodyPlace, BodyRange, BodyRef, StoredBody};

#[derive(Debug, Default)]
pub(super) struct StandaloneBodies {
    segments: BTreeMap<u32, Segment>,
    /// The segment that takes the next copy, of each stream and (`None`) of [`Move::Each`](crate::Move::Each).
    newest: HashMap<Option<u64>, u32>,
    /// Whether the owner has adopted the bodies that live. Nothing is removed before that.
    adopted: bool,
    next: u32,
}

#[derive(Debug, Default)]
struct Segment {
    bodies: BTreeMap<u32, Bytes>,
    /// Whether all bodies belong to one stream. Such bodies are released from the front and never moved.
    is_stream: bool,
    size_bytes: u32,
    live_bytes: u64,
    sealed: bool,
}

const SEGMENT_BYTES: u32 = 1024 * 1024;
const OFFSET_BITS: u32 = 32;

fn stored_bytes(size: usize) -> u32 {
    u32::try_from(size.max(1).next_multiple_of(BodyRef::ALIGNMENT)).unwrap_or(u32::MAX)
}

fn handle(segment: u32, offset: u32) -> u64 {
    (u64::from(segment) << OFFSET_BITS) | u64::from(offset)
}

fn segment_and_offset(handle: u64) -> Option<(u32, u32)> {
    let offset = u32::try_from(handle & u64::from(u32::MAX)).ok()?;
    Some((u32::try_from(handle >> OFFSET_BITS).ok()?, offset))
}

fn segment_of(body: StoredBody) -> Option<u32> {
    match body.place.place() {
        BodyPlace::Standalone { handle } => segment_and_offset(handle).map(|(segment, _)| segment),
        BodyPlace::InGroup { .. } => None,
    }
}

impl StandaloneBodies {
    pub(super) fn body(&self, handle: u64) -> Option<Bytes> {
        let (segment, offset) = segment_and_offset(handle)?;
        self.segments.get(&segment)?.bodies.get(&offset).cloned()
    }

    pub(super) fn handles(&self) -> impl Iterator<Item = u64> {
        let of_segment = |(number, segment): (&u32, &Segment)| {
            let number = *number;
            segment.bodies.keys().map(move |offset| handle(number, *offset)).collect::<Vec<_>>()
        };
        self.segments.iter().flat_map(of_segment)
    }

    pub(super) fn places(&self) -> impl Iterator<Item = BodyRef> {
        self.handles().filter_map(BodyRef::standalone)
    }

    pub(super) fn has_any(&self, range: BodyRange) -> bool {
        self.places().any(|place| range.contains(place))
    }

    /// Forgets which bodies live. The new owner names them again, and its copies go to new segments.
    pub(super) fn reopen(&mut self) {
        self.adopted = false;
        self.newest.clear();
        for segment in self.segments.values_mut() {
            segment.live_bytes = 0;
            segment.sealed = true;
        }
    }

    pub(super) fn adopt(&mut self, live: &[StoredBody]) {
        for body in live {
            if let Some(segment) = segment_of(*body).and_then(|number| self.segments.get_mut(&number)) {
                segment.live_bytes += u64::from(stored_bytes(body.size_bytes as usize));
            }
        }
        self.adopted = true;
        self.segments.retain(|_, segment| segment.live_bytes > 0 || !segment.sealed);
    }

    /// Adds a body to the newest segment of its stream, or of all other moved bodies.
    pub(super) fn push(&mut self, stream: Option<u64>, body: Bytes) -> StoredBody {
        let size_bytes = u32::try_from(body.len()).expect("the sizes of moved bodies are 32-bit numbers");
        let number = self.open_segment(stream);
        let fresh = || Segment { is_stream: stream.is_some(), ..Segment::default() };
        let segment = self.segments.entry(number).or_insert_with(fresh);
        let (offset, size) = (segment.size_bytes, stored_bytes(body.len()));
        segment.size_bytes = segment.size_bytes.saturating_add(size);
        segment.live_bytes += u64::from(size);
        segment.sealed = segment.size_bytes >= SEGMENT_BYTES;
        segment.bodies.insert(offset, body);
        let place = BodyRef::standalone(handle(number, offset)).expect("segment numbers are small");
        StoredBody { place, size_bytes }
    }

    /// Stores a body in a segment of its own.
    pub(super) fn push_alone(&mut self, body: Bytes) -> StoredBody {
        self.seal_newest();
        let stored = self.push(None, body);
        self.seal_newest();
        stored
    }

    fn seal_newest(&mut self) {
        let newest = self.newest.get(&None);
        if let Some(segment) = newest.and_then(|number| self.segments.get_mut(number)) {
            segment.sealed = true;
        }
    }

    fn open_segment(&mut self, stream: Option<u64>) -> u32 {
        let newest = self.newest.get(&stream).copied();
        let is_open = |number: &u32| self.segments.get(number).is_some_and(|segment| !segment.sealed);
        newest.filter(is_open).unwrap_or_else(|| {
            self.next += 1;
            self.newest.insert(stream, self.next);
            self.next
        })
    }

    pub(super) fn release(&mut self, body: StoredBody) {
        let BodyPlace::Standalone { handle } = body.place.place() else { return };
        let Some((number, offset)) = segment_and_offset(handle) else { return };
        let Some(segment) = self.segments.get_mut(&number) else { return };
        segment.bodies.remove(&offset);
        let size = u64::from(stored_bytes(body.size_bytes as usize));
        segment.live_bytes = segment.live_bytes.saturating_sub(size);
        if self.adopted && segment.live_bytes == 0 {
            self.segments.remove(&number);
        }
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.live_bytes).sum()
    }

    /// Returns the bodies of a segment in which less than half of the bytes live.
    pub(super) fn mostly_dead(&self) -> Option<BodyRange> {
        let is_dead = |s: &Segment| s.sealed && !s.is_stream && s.live_bytes * 2 < u64::from(s.size_bytes);
        let found = self.segments.iter().find(|(_, segment)| self.adopted && is_dead(segment));
        found.map(|(number, _)| BodyRange::handles(handle(*number, 0), handle(*number, u32::MAX)))
    }
}
