//! The part of a commit group's header that every journal stores, so that each of them detects loss and confusion in
//! the same way.

use peeklock_types::{CommitGroupNumber, ShardId};

/// Identifies a commit group and links it to the group before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHead {
    /// The shard that the group belongs to.
    pub shard: ShardId,
    /// The epoch of the owner that appended the group. Every [`open`](crate::Journal::open) of the shard uses a higher
    /// epoch.
    pub epoch: u32,
    /// The number of the group.
    pub number: CommitGroupNumber,
    /// [`GroupHead::chain`] of the group before, or 0 for the first group of a shard.
    pub previous: u64,
    /// The size of the payload.
    pub payload_bytes: u32,
    /// The CRC-32C of the payload.
    pub payload_crc: u32,
}

impl GroupHead {
    /// Returns a hash of this group and, through `previous`, of every earlier group of the shard. It detects lost and
    /// confused groups. It does not protect against forgery.
    pub fn chain(&self) -> u64 {
        let content = (u64::from(self.payload_crc) << 32) | u64::from(self.payload_bytes);
        let owner = (u64::from(self.epoch) << 16) | u64::from(self.shard.0);
        mix(mix(mix(self.previous, content), self.number.0), owner)
    }
}

/// Mixes one more word into the hash: multiply and fold, twice.
fn mix(hash: u64, word: u64) -> u64 {
    let mut x = hash.rotate_left(23) ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_depends_on_every_field() {
        let base = GroupHead {
            shard: ShardId(7),
            epoch: 3,
            number: CommitGroupNumber(99),
            previous: 0x1122_3344_5566_7788,
            payload_bytes: 1000,
            payload_crc: 0xdead_beef,
        };
        let changed = [
            GroupHead { shard: ShardId(8), ..base },
            GroupHead { epoch: 4, ..base },
            GroupHead { number: CommitGroupNumber(100), ..base },
            GroupHead { previous: 0, ..base },
            GroupHead { payload_bytes: 1001, ..base },
            GroupHead { payload_crc: 1, ..base },
        ];
        assert!(changed.iter().all(|group| group.chain() != base.chain()));
    }

    #[test]
    fn the_chain_of_stored_groups_never_changes() {
        let head = GroupHead {
            shard: ShardId(1),
            epoch: 2,
            number: CommitGroupNumber(3),
            previous: 4,
            payload_bytes: 5,
            payload_crc: 6,
        };
        assert_eq!(head.chain(), 0x370f_f461_0c2c_007a);
    }
}
