use std::collections::BTreeMap;

use bytes::Bytes;
use peeklock_types::{BodyPlace, BodyRef};

use crate::StoredBody;

/// Bodies that outlived their group, in segments that are dropped whole.
#[derive(Debug, Default)]
pub(super) struct ColdSegments {
    segments: BTreeMap<u32, Segment>,
    /// The segment that was written last, of each stream and of all that is in none.
    newest: BTreeMap<Option<u64>, u32>,
    /// Whether the owner has named everything that lives; nothing of an earlier owner is removed before.
    counted: bool,
    next: u32,
}

#[derive(Debug, Default)]
struct Segment {
    bodies: BTreeMap<u64, Bytes>,
    /// Whether all bodies here are of one stream, which is forgotten from its front.
    is_stream: bool,
    size_bytes: u64,
    live_bytes: u64,
    sealed: bool,
}

const SEGMENT_BYTES: u64 = 1024 * 1024;

fn stored_bytes(size: usize) -> u64 {
    (size as u64).next_multiple_of(BodyRef::ALIGNMENT as u64).max(BodyRef::ALIGNMENT as u64)
}

/// The segment of a cold body and what it takes there.
fn place(body: StoredBody) -> Option<(u32, u64)> {
    match body.place.place() {
        BodyPlace::Cold { segment, .. } => Some((segment, stored_bytes(body.size_bytes as usize))),
        BodyPlace::Log { .. } => None,
    }
}

impl ColdSegments {
    pub(super) fn body(&self, segment: u32, offset_bytes: u64) -> Option<Bytes> {
        self.segments.get(&segment)?.bodies.get(&offset_bytes).cloned()
    }

    pub(super) fn places(&self) -> impl Iterator<Item = BodyRef> {
        let places = |(number, segment): (&u32, &Segment)| {
            let number = *number;
            let offsets = segment.bodies.keys().copied().collect::<Vec<_>>();
            offsets.into_iter().filter_map(move |offset| BodyRef::in_cold(number, offset))
        };
        self.segments.iter().flat_map(places)
    }

    pub(super) fn has(&self, segment: u32) -> bool {
        self.segments.contains_key(&segment)
    }

    /// A new owner counts anew and writes to new segments.
    pub(super) fn reopen(&mut self) {
        self.counted = false;
        self.newest.clear();
        for segment in self.segments.values_mut() {
            segment.live_bytes = 0;
            segment.sealed = true;
        }
    }

    pub(super) fn close_count(&mut self) {
        if !self.counted {
            self.counted = true;
            self.segments.retain(|_, s| s.live_bytes > 0 || !s.sealed);
        }
    }

    pub(super) fn push(&mut self, body: Bytes) -> BodyRef {
        self.push_to(None, body)
    }

    /// Adds a body behind those of its stream.
    pub(super) fn gather(&mut self, stream: u64, body: Bytes) -> StoredBody {
        let size_bytes = u32::try_from(body.len()).expect("gathered bodies have a limit far below");
        StoredBody { place: self.push_to(Some(stream), body), size_bytes }
    }

    fn push_to(&mut self, stream: Option<u64>, body: Bytes) -> BodyRef {
        let number = self.open_segment(stream);
        let fresh = || Segment { is_stream: stream.is_some(), ..Segment::default() };
        let segment = self.segments.entry(number).or_insert_with(fresh);
        let (offset, size) = (segment.size_bytes, stored_bytes(body.len()));
        segment.size_bytes += size;
        segment.live_bytes += size;
        segment.sealed = segment.size_bytes >= SEGMENT_BYTES;
        segment.bodies.insert(offset, body);
        BodyRef::in_cold(number, offset).expect("segments are far smaller than a reference can say")
    }

    /// A segment with one body, which is never mostly dead.
    pub(super) fn push_alone(&mut self, body: Bytes) -> BodyRef {
        self.seal_newest();
        let place = self.push(body);
        self.seal_newest();
        place
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

    pub(super) fn remember(&mut self, body: StoredBody) {
        if let Some((number, size)) = place(body)
            && let Some(segment) = self.segments.get_mut(&number)
        {
            segment.live_bytes += size;
        }
    }

    pub(super) fn forget(&mut self, body: StoredBody) {
        let Some((number, size)) = place(body) else { return };
        let Some(segment) = self.segments.get_mut(&number) else { return };
        segment.live_bytes = segment.live_bytes.saturating_sub(size);
        if self.counted && segment.live_bytes == 0 {
            self.segments.remove(&number);
        }
    }

    pub(super) fn live_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.live_bytes).sum()
    }

    pub(super) fn mostly_dead(&self) -> Option<u32> {
        let dead = |s: &Segment| s.sealed && !s.is_stream && s.live_bytes * 2 < s.size_bytes;
        self.segments.iter().find(|(_, s)| self.counted && dead(s)).map(|(number, _)| *number)
    }
}
