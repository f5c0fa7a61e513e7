//! The limits of containers and blobs.

pub const CONTAINER_NAME_CHARS_MIN: usize = 3;
pub const CONTAINER_NAME_CHARS_MAX: usize = 63;
pub const BLOB_NAME_CHARS_MAX: usize = 1024;
/// The names and values of the metadata of one blob or container together.
pub const METADATA_BYTES_MAX: usize = 8 * 1024;
pub const METADATA_COUNT_MAX: usize = 256;
/// Each header that is stored with a blob.
pub const HEADER_BYTES_MAX: usize = 1024;
/// The content of a blob or of a block. A commit group has room for one of them beside its other content, and the
/// frameworks that store message bodies in blobs use no larger ones.
pub const CONTENT_BYTES_MAX: usize = 4 * 1024 * 1024;
pub const BLOCK_COUNT_MAX: usize = 1000;
/// A block id of 64 bytes, in base64.
pub const BLOCK_ID_CHARS_MAX: usize = 88;
/// Uncommitted blocks are dropped after a week.
pub const STAGED_TIME_MAX_S: u64 = 7 * 24 * 3600;
/// The permitted duration of a lease. A break period has the same maximum, but no minimum.
pub const LEASE_SPAN_S_MIN: u64 = 15;
pub const LEASE_SPAN_S_MAX: u64 = 60;
/// Names in one answer.
pub const PAGE_COUNT_MAX: usize = 5000;

// The following limits apply to each shard: all its containers and blobs are in memory and in each snapshot.
pub const CONTAINER_COUNT_MAX: usize = 1000;
pub const BLOB_COUNT_MAX: usize = 100_000;
/// Blobs with uncommitted blocks.
pub const STAGED_COUNT_MAX: usize = 1000;
