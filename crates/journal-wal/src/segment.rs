//! Segments of the log: the header block, and places in a segment.

use std::sync::Arc;

use crate::config::BLOCK_BYTES;
use crate::disk::DiskFile;
use crate::frame::{u32_at, u64_at};

/// An open segment file. A reader holds an `Arc` of it, and the file is recycled only when no reader has one.
pub(crate) struct Segment {
    pub(crate) id: u64,
    pub(crate) size_bytes: u64,
    pub(crate) file: Arc<dyn DiskFile>,
}

/// The end of the log when a new segment was started: the segment before and the end of its last frame. Segment 0 means
/// that there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) segment: u64,
    pub(crate) end: u64,
}

/// The first block of a used segment. It is written together with the first commit, so a prepared segment has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) id: u64,
    pub(crate) size_bytes: u64,
    pub(crate) previous: Link,
    /// The number of the commit that follows the header.
    pub(crate) first_commit: u64,
}

const MAGIC: [u8; 8] = *b"PLwalseg";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 56;

impl SegmentHeader {
    /// Encodes the whole block. The header shares its block with nothing, so it is never rewritten.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(usize::try_from(BLOCK_BYTES).unwrap_or(0));
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.size_bytes.to_le_bytes());
        out.extend_from_slice(&self.previous.segment.to_le_bytes());
        out.extend_from_slice(&self.previous.end.to_le_bytes());
        out.extend_from_slice(&self.first_commit.to_le_bytes());
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out.resize(out.capacity(), 0);
        out
    }

    /// Returns `None` if the bytes are not a header of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        if bytes[..8] != MAGIC
            || u32_at(bytes, 8) != VERSION
            || u32_at(bytes, 52) != crc32c::crc32c(&bytes[..52])
        {
            return None;
        }
        let previous = Link { segment: u64_at(bytes, 28), end: u64_at(bytes, 36) };
        let (id, size_bytes, first_commit) = (u64_at(bytes, 12), u64_at(bytes, 20), u64_at(bytes, 44));
        Some(SegmentHeader { id, size_bytes, previous, first_commit })
    }
}

/// The segment and the offset of a frame in eight bytes: every group in the log takes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u64);

impl Place {
    const OFFSET_BITS: u32 = 24;

    /// Encodes a place. Frames start at multiples of eight bytes, and a segment has at most 64 MiB, so the offset fits
    /// in 24 bits.
    pub(crate) fn new(segment: u64, offset: u64) -> Self {
        debug_assert!(offset.is_multiple_of(8) && offset >> 3 < 1 << Self::OFFSET_BITS);
        Place((segment << Self::OFFSET_BITS) | (offset >> 3))
    }

    /// The ids of segments are smaller than this.
    pub(crate) const SEGMENT_MAX: u64 = 1 << (64 - Self::OFFSET_BITS);

    pub(crate) fn segment(self) -> u64 {
        self.0 >> Self::OFFSET_BITS
    }

    pub(crate) fn offset(self) -> u64 {
        (self.0 & ((1 << Self::OFFSET_BITS) - 1)) << 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_fills_a_block() {
        let header = SegmentHeader {
            id: 9,
            size_bytes: 1 << 24,
            previous: Link { segment: 8, end: 123_456 },
            first_commit: 77,
        };
        let block = header.encode();
        assert_eq!(block.len() as u64, BLOCK_BYTES);
        assert_eq!(SegmentHeader::decode(&block), Some(header));
        assert_eq!(SegmentHeader::decode(&[0; 4096]), None);
    }

    #[test]
    fn a_place_keeps_segment_and_offset() {
        let place = Place::new(1 << 39, (64 << 20) - 8);
        assert_eq!((place.segment(), place.offset()), (1 << 39, (64 << 20) - 8));
    }
}
