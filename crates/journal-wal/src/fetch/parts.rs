//! Parts of commit groups, checked without reading the whole group each time.
//!
//! A group has one checksum. When a part of it is wanted for the first time, the whole group is read and verified, and the
//! checksums of its blocks are kept in memory. Later reads of parts are compared with those.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use peeklock_journal::ReadError;
use peeklock_types::CommitGroupNumber;

use super::Source;
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader};
use crate::locked;
use crate::segment::Place;
use crate::shard::Shard;

const BLOCK_BYTES: u64 = 4096;
/// The size of one read while a group is verified.
const STEP_BYTES: u64 = 64 * BLOCK_BYTES;
/// The number of checksums that are kept for a shard: one mebibyte, for one gibibyte of the log.
const SUMS_MAX: usize = 256 * 1024;

/// The checksums of the blocks of groups that were verified.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    groups: BTreeMap<CommitGroupNumber, Arc<[u32]>>,
    count: usize,
}

impl Sums {
    fn find(&self, group: CommitGroupNumber) -> Option<Arc<[u32]>> {
        self.groups.get(&group).cloned()
    }

    /// Adds the checksums of a group. Those of the oldest groups give way, because the log is given up from its start.
    fn put(&mut self, group: CommitGroupNumber, sums: Arc<[u32]>) {
        self.count += sums.len();
        if let Some(old) = self.groups.insert(group, sums) {
            self.count -= old.len();
        }
        while self.count > SUMS_MAX
            && let Some((_, oldest)) = self.groups.pop_first()
        {
            self.count -= oldest.len();
        }
    }
}

/// Reads a part of the payload of a group and checks it. The part must be inside of the payload.
pub(super) fn read(
    source: &Source,
    shard: &Shard,
    place: Place,
    header: &FrameHeader,
    offset_bytes: u64,
    size_bytes: u64,
) -> Result<Bytes, ReadError> {
    let (number, payload_bytes) = (header.group.number, u64::from(header.group.payload_bytes));
    let known = locked(&shard.sums).find(number);
    let sums = match known {
        Some(sums) => sums,
        None => {
            let sums: Arc<[u32]> = verify(source, place, header)?.into();
            locked(&shard.sums).put(number, Arc::clone(&sums));
            sums
        }
    };
    let first = offset_bytes / BLOCK_BYTES;
    let start = first * BLOCK_BYTES;
    let end = (offset_bytes + size_bytes).next_multiple_of(BLOCK_BYTES).min(payload_bytes);
    let bytes = source.read(payload_at(place) + start, end.saturating_sub(start))?;
    let first = usize::try_from(first).unwrap_or(usize::MAX);
    let mut wanted = sums.get(first..).unwrap_or_default().iter();
    if !blocks(&bytes).all(|block| wanted.next() == Some(&crc32c::crc32c(block))) {
        return Err(
            source.damaged(place.offset(), "a part of a group has changed since the group was verified")
        );
    }
    let from = usize::try_from(offset_bytes - start).unwrap_or(usize::MAX);
    let upto = from.saturating_add(usize::try_from(size_bytes).unwrap_or(usize::MAX));
    if upto > bytes.len() {
        return Err(source.damaged(place.offset(), super::BEHIND_END));
    }
    Ok(bytes.slice(from..upto))
}

/// Reads a whole group and returns the checksums of its blocks.
fn verify(source: &Source, place: Place, header: &FrameHeader) -> Result<Vec<u32>, ReadError> {
    let payload_bytes = u64::from(header.group.payload_bytes);
    let (mut sums, mut whole, mut at) = (Vec::new(), 0, 0);
    while at < payload_bytes {
        let size_bytes = (payload_bytes - at).min(STEP_BYTES);
        let bytes = source.read(payload_at(place) + at, size_bytes)?;
        whole = crc32c::crc32c_append(whole, &bytes);
        sums.extend(blocks(&bytes).map(crc32c::crc32c));
        at += size_bytes;
    }
    if whole != header.group.payload_crc {
        return Err(source.damaged(place.offset(), "the checksum of a group does not fit"));
    }
    Ok(sums)
}

fn payload_at(place: Place) -> u64 {
    place.offset() + FRAME_HEADER_BYTES as u64
}

fn blocks(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.chunks(usize::try_from(BLOCK_BYTES).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_of_the_oldest_groups_give_way() {
        let mut sums = Sums::default();
        let half: Arc<[u32]> = vec![7; SUMS_MAX / 2].into();
        for number in 1..=3 {
            sums.put(CommitGroupNumber(number), Arc::clone(&half));
        }
        sums.put(CommitGroupNumber(3), half);
        assert_eq!(sums.find(CommitGroupNumber(1)), None);
        assert!(sums.find(CommitGroupNumber(2)).is_some() && sums.find(CommitGroupNumber(3)).is_some());
        assert_eq!(sums.count, SUMS_MAX);
    }
}
