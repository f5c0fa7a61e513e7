//! Frames: the form of a group in a segment. 64 bytes of header, then the payload, padded to a multiple of eight bytes.
//!
//! The owner of a shard fills in the [`GroupHead`] and computes the checksum of the payload on its own thread. The
//! writer adds the [`Landing`] and computes the checksum of the header only.

use peeklock_journal::GroupHead;
use peeklock_types::{CommitGroupNumber, ShardId};

pub(crate) const FRAME_HEADER_BYTES: usize = 64;
const MAGIC: [u8; 4] = *b"PLgf";
const VERSION: u16 = 1;

/// Returns the space that a group takes in a commit.
pub(crate) fn frame_bytes(payload_bytes: usize) -> u64 {
    ((FRAME_HEADER_BYTES + payload_bytes) as u64).next_multiple_of(8)
}

/// The place at which the writer has put a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Landing {
    pub(crate) segment: u64,
    pub(crate) commit: u64,
    /// The number of groups that follow in the same commit.
    pub(crate) frames_left: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) group: GroupHead,
    pub(crate) landing: Landing,
}

impl FrameHeader {
    pub(crate) fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let (group, landing) = (&self.group, &self.landing);
        let mut out = [0; FRAME_HEADER_BYTES];
        out[0..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&VERSION.to_le_bytes());
        out[6..8].copy_from_slice(&group.shard.0.to_le_bytes());
        out[8..12].copy_from_slice(&group.payload_bytes.to_le_bytes());
        out[12..16].copy_from_slice(&group.payload_crc.to_le_bytes());
        out[16..24].copy_from_slice(&landing.segment.to_le_bytes());
        out[24..32].copy_from_slice(&landing.commit.to_le_bytes());
        out[32..36].copy_from_slice(&landing.frames_left.to_le_bytes());
        out[36..40].copy_from_slice(&group.epoch.to_le_bytes());
        out[40..48].copy_from_slice(&group.number.0.to_le_bytes());
        out[48..56].copy_from_slice(&group.previous.to_le_bytes());
        let crc = crc32c::crc32c(&out[..60]);
        out[60..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Returns `None` if the bytes are not a header of this version.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; FRAME_HEADER_BYTES] = bytes.first_chunk()?;
        if bytes[..4] != MAGIC || u32_at(bytes, 60) != crc32c::crc32c(&bytes[..60]) {
            return None;
        }
        (u16_at(bytes, 4) == VERSION).then(|| FrameHeader {
            group: GroupHead {
                shard: ShardId(u16_at(bytes, 6)),
                payload_bytes: u32_at(bytes, 8),
                payload_crc: u32_at(bytes, 12),
                epoch: u32_at(bytes, 36),
                number: CommitGroupNumber(u64_at(bytes, 40)),
                previous: u64_at(bytes, 48),
            },
            landing: Landing {
                segment: u64_at(bytes, 16),
                commit: u64_at(bytes, 24),
                frames_left: u32_at(bytes, 32),
            },
        })
    }
}

// The callers pass arrays of a fixed size, so a missing field is a bug in this crate.

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(field(bytes, at))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(bytes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(field(bytes, at))
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .copied()
        .expect("fields are within a header of fixed size")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> FrameHeader {
        FrameHeader {
            group: GroupHead {
                shard: ShardId(7),
                epoch: 3,
                number: CommitGroupNumber(99),
                previous: 0x1122_3344_5566_7788,
                payload_bytes: 1000,
                payload_crc: 0xdead_beef,
            },
            landing: Landing { segment: 12, commit: 34, frames_left: 5 },
        }
    }

    #[test]
    fn a_header_survives_encoding() {
        assert_eq!(FrameHeader::decode(&header().encode()), Some(header()));
    }

    #[test]
    fn any_flipped_bit_makes_a_header_invalid() {
        let good = header().encode();
        for bit in 0..good.len() * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHeader::decode(&bad), None, "bit {bit}");
        }
    }
}
