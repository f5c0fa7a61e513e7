//! The books of large bodies, each of which has a segment to itself.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{ColdStore, Dead, Kind, Segment, stored_bytes};
use crate::locked;

impl ColdStore {
    /// A number for a large body in the making, which nobody removes before it is finished; `None` for an owner whose word counts no more.
    pub(crate) fn begin_large(&self, epoch: u32) -> Option<u32> {
        let mut books = locked(&self.books);
        if books.owner != epoch {
            return None;
        }
        let number = books.next;
        books.next += 1;
        let segment = Segment { kind: Kind::Large, size_bytes: 0, live_bytes: 0, sealed: false };
        books.segments.insert(number, segment);
        Some(number)
    }

    /// Counts what a large body in the making takes.
    pub(crate) fn grow_large(&self, number: u32, bytes: u64, usage_bytes: &AtomicU64) {
        if let Some(segment) = locked(&self.books).segments.get_mut(&number) {
            segment.size_bytes += bytes;
            usage_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts a large body as live. False if there is a newer owner, who does not know of it.
    pub(crate) fn finish_large(&self, epoch: u32, number: u32, size_bytes: u32) -> bool {
        let mut books = locked(&self.books);
        if books.owner != epoch {
            return false;
        }
        let Some(segment) = books.segments.get_mut(&number) else { return false };
        segment.live_bytes = stored_bytes(size_bytes as usize);
        segment.sealed = true;
        true
    }

    /// A large body that will not be finished.
    pub(crate) fn abandon_large(&self, number: u32) -> Option<Dead> {
        locked(&self.books).remove(number)
    }
}
