use std::fmt;
use std::num::NonZeroU16;

use uuid::Uuid;

use crate::EntityName;

/// The position of a message in its queue: unique, rising, never reused. The first message has number 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceNumber(pub u64);

impl SequenceNumber {
    pub const FIRST: SequenceNumber = SequenceNumber(1);

    #[must_use]
    pub const fn next(self) -> Self {
        SequenceNumber(self.0 + 1)
    }
}

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies one state of an ownership, a blob or a container. Each change issues a new etag, and no etag is reused for
/// the same thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Etag(pub u64);

/// One shard of the broker: the unit of ownership, replay and snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

/// Maps names to shards, by the number of shards. The number belongs to the data: it is chosen once, when a data
/// directory is created, and never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    shard_count: NonZeroU16,
}

impl Placement {
    /// The default number of shards of a data directory.
    pub const SHARD_COUNT_DEFAULT: u16 = 8;
    pub const SHARD_COUNT_MAX: u16 = 256;

    /// Creates the placement for this number of shards. `None` if the number is 0 or larger than
    /// [`Placement::SHARD_COUNT_MAX`].
    pub fn new(shard_count: u16) -> Option<Self> {
        let shard_count =
            NonZeroU16::new(shard_count).filter(|count| count.get() <= Self::SHARD_COUNT_MAX)?;
        Some(Placement { shard_count })
    }

    pub fn shard_count(self) -> u16 {
        self.shard_count.get()
    }

    pub fn shards(self) -> impl Iterator<Item = ShardId> {
        (0..self.shard_count()).map(ShardId)
    }

    /// Returns the shard that owns the entity of this name.
    pub fn of(self, name: &EntityName) -> ShardId {
        self.of_hash(hash(name))
    }

    /// Returns the shard that owns a partition of the hub of this name. Neighbouring partitions are in different
    /// shards, so that a hub uses all shards evenly.
    pub fn of_partition(self, hub: &EntityName, partition: u32) -> ShardId {
        self.of_hash(hash(hub).wrapping_add(u64::from(partition)))
    }

    /// Returns the shard that owns the blob container of this name.
    pub fn of_container(self, name: &str) -> ShardId {
        self.of_hash(hash_of(name))
    }

    fn of_hash(self, hash: u64) -> ShardId {
        #[expect(clippy::cast_possible_truncation, reason = "the remainder is less than the shard count")]
        ShardId((hash % u64::from(self.shard_count())) as u16)
    }
}

impl Default for Placement {
    fn default() -> Self {
        Placement { shard_count: const { NonZeroU16::new(Self::SHARD_COUNT_DEFAULT).unwrap() } }
    }
}

fn hash(name: &EntityName) -> u64 {
    hash_of(name.shard_key())
}

/// Computes FNV-1a: the result must be the same in every version, on every machine.
fn hash_of(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {}", self.0)
    }
}

/// Identifies a receiver of messages or events: unique while its broker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiverId(pub u64);

/// The number of a commit group in one shard's log: dense and rising. The first group has number 1; 0 means "none yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitGroupNumber(pub u64);

impl CommitGroupNumber {
    pub const NONE: CommitGroupNumber = CommitGroupNumber(0);

    #[must_use]
    pub const fn next(self) -> Self {
        CommitGroupNumber(self.0 + 1)
    }
}

impl fmt::Display for CommitGroupNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}", self.0)
    }
}

/// The token that a receiver has while it holds the lock on a message.
///
/// It contains the message's sequence number, so that no map from token to message is needed, and a nonce that is new
/// for each lock, so that the token of an earlier lock never matches a later one. The sixteen bytes are in network
/// order, as an AMQP `uuid` prints them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockToken([u8; 16]);

impl LockToken {
    pub fn new(sequence_number: SequenceNumber, nonce: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&nonce.to_be_bytes());
        bytes[8..].copy_from_slice(&(sequence_number.0 ^ nonce).to_be_bytes());
        LockToken(bytes)
    }

    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        LockToken(bytes)
    }

    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    pub fn nonce(self) -> u64 {
        self.halves().0
    }

    pub fn sequence_number(self) -> SequenceNumber {
        let (nonce, mixed) = self.halves();
        SequenceNumber(nonce ^ mixed)
    }

    fn halves(self) -> (u64, u64) {
        let whole = u128::from_be_bytes(self.0);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves are taken on purpose")]
        let halves = ((whole >> 64) as u64, whole as u64);
        halves
    }

    /// Returns the layout of a .NET `Guid`, with the first three parts little-endian. Delivery tags contain it.
    #[must_use]
    pub fn to_guid_bytes(self) -> [u8; 16] {
        Uuid::from_bytes(self.0).to_bytes_le()
    }

    #[must_use]
    pub fn from_guid_bytes(bytes: [u8; 16]) -> Self {
        LockToken(Uuid::from_bytes_le(bytes).into_bytes())
    }
}

impl fmt::Display for LockToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(Uuid::from_bytes_ref(&self.0), f)
    }
}

impl fmt::Debug for LockToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_shards() {
        let name = |text| EntityName::parse(text).unwrap();
        let eight = Placement::default();
        let shards = ["orders", "bills", "Shop/Orders"].map(|text| eight.of(&name(text)).0);
        assert_eq!((shards, eight.of_partition(&name("meters"), 9).0), ([4, 5, 3], 4));
        assert_eq!(eight.of_container("box").0, 2);
        let three = Placement::new(3).unwrap();
        assert!((0..9).all(|number| three.of_partition(&name("meters"), number).0 < 3));
        assert_eq!((Placement::new(0), Placement::new(257)), (None, None));
    }

    #[test]
    fn a_lock_token_contains_its_sequence_number() {
        let token = LockToken::new(SequenceNumber(77), 0x1234_5678_9abc_def0);
        assert_eq!(token.sequence_number(), SequenceNumber(77));
        assert_eq!(token.nonce(), 0x1234_5678_9abc_def0);
        assert_eq!(LockToken::from_guid_bytes(token.to_guid_bytes()), token);
    }

    #[test]
    fn a_lock_token_converts_to_the_layout_of_a_dotnet_guid() {
        let printed = 0xc884_7220_5552_4956_b654_0a7c_845e_0ff9_u128.to_be_bytes();
        let tag = 0x2072_84c8_5255_5649_b654_0a7c_845e_0ff9_u128.to_be_bytes();
        assert_eq!(LockToken::from_bytes(printed).to_guid_bytes(), tag);
        assert_eq!(LockToken::from_bytes(printed).to_string(), "c8847220-5552-4956-b654-0a7c845e0ff9");
    }
}
