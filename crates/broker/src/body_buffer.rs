//! The bodies of the new messages of one batch, in one buffer that becomes a part of a commit group without a copy.

use std::ops::Range;

use bytes::{Buf, BytesMut};
use peeklock_types::BodyRef;

/// Bodies one behind another, each at a multiple of [`BodyRef::ALIGNMENT`], as in a commit group. A range stays valid
/// after the bytes in front of it were taken.
#[derive(Debug, Default)]
pub(crate) struct BodyBuffer {
    bytes: BytesMut,
    /// The number of bytes that were removed from the front.
    removed_bytes: usize,
}

impl BodyBuffer {
    pub(crate) fn reserve(&mut self, additional_bytes: usize) {
        self.bytes.reserve(additional_bytes);
    }

    pub(crate) fn len(&self) -> usize {
        self.removed_bytes + self.bytes.len()
    }

    /// Adds the bytes that `write` appends, and returns their range.
    pub(crate) fn add<T, E>(
        &mut self,
        write: impl FnOnce(&mut BytesMut) -> Result<T, E>,
    ) -> Result<(Range<usize>, T), E> {
        let start = self.len().next_multiple_of(BodyRef::ALIGNMENT);
        self.bytes.resize(start - self.removed_bytes, 0);
        let written = write(&mut self.bytes)?;
        Ok((start..self.len(), written))
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len - self.removed_bytes);
    }

    /// Returns a body, or `None` if its bytes were taken.
    pub(crate) fn get(&self, range: &Range<usize>) -> Option<&[u8]> {
        let start = range.start.checked_sub(self.removed_bytes)?;
        self.bytes.get(start..start.checked_add(range.len())?)
    }

    /// Returns the number of bytes that stay allocated as long as any range of the buffer is in use.
    pub(crate) fn allocated_bytes(&self) -> usize {
        self.removed_bytes + self.bytes.capacity()
    }

    /// Removes a range, and everything in front of it, from the buffer. Returns `None` if its bytes were taken.
    pub(crate) fn take(&mut self, range: &Range<usize>) -> Option<BytesMut> {
        self.get(range)?;
        self.bytes.advance(range.start - self.removed_bytes);
        self.removed_bytes = range.end;
        Some(self.bytes.split_to(range.len()))
    }
}
