//! The books of large bodies. Each has a segment of its own.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{ColdStore, Dead, Kind, Segment, stored_bytes};
use crate::locked;

impl ColdStore {
    /// Assigns a segment to an unfinished large body, which is not removed before it is finished. Returns `None` for an
    /// earlier owner.
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

    /// Counts the space of an unfinished large body.
    pub(crate) fn grow_large(&self, number: u32, bytes: u64, usage_bytes: &AtomicU64) {
        if let Some(segment) = locked(&self.books).segments.get_mut(&number) {
            segment.size_bytes += bytes;
            usage_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts a large body as live. Returns `false` if there is a later owner, which has not adopted the body.
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

    /// Removes a large body that will not be finished.
    pub(crate) fn abandon_large(&self, number: u32) -> Option<Dead> {
        locked(&self.books).remove(number)
    }
}
