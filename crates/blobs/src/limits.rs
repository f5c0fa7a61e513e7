//! How much there may be of everything.

pub const CONTAINER_NAME_CHARS_MIN: usize = 3;
pub const CONTAINER_NAME_CHARS_MAX: usize = 63;
pub const BLOB_NAME_CHARS_MAX: usize = 1024;
/// Names and values of the metadata of one blob or container together.
pub const METADATA_BYTES_MAX: usize = 8 * 1024;
pub const METADATA_COUNT_MAX: usize = 256;
/// Of each header that is kept with a blob.
pub const HEADER_BYTES_MAX: usize = 1024;
/// Of a blob, and of a block. A group of the log takes one of them beside what it has already, and a body of a message that is kept in a blob
/// is no larger in the frameworks that do so.
pub const CONTENT_BYTES_MAX: usize = 4 * 1024 * 1024;
pub const BLOCK_COUNT_MAX: usize = 1000;
/// 64 bytes in base64.
pub const BLOCK_ID_CHARS_MAX: usize = 88;
/// Blocks that nobody commits are dropped after a week.
pub const STAGED_TIME_MAX_S: u64 = 7 * 24 * 3600;
/// How long a lease may be asked for, and within how long it may be broken, in seconds.
pub const LEASE_SPAN_S_MIN: u64 = 15;
pub const LEASE_SPAN_S_MAX: u64 = 60;
/// Names in one answer.
pub const PAGE_COUNT_MAX: usize = 5000;

// Of one shard. All of it is in memory and in each snapshot.
pub const CONTAINER_COUNT_MAX: usize = 1000;
pub const BLOB_COUNT_MAX: usize = 100_000;
/// Blobs for which blocks wait.
pub const STAGED_COUNT_MAX: usize = 1000;
