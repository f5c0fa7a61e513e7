//! How much there may be of everything.

pub const CONTAINER_NAME_CHARS_MIN: usize = 3;
pub const CONTAINER_NAME_CHARS_MAX: usize = 63;
pub const BLOB_NAME_CHARS_MAX: usize = 1024;
/// Names and values of the metadata of one blob or container together.
pub const METADATA_BYTES_MAX: usize = 8 * 1024;
pub const METADATA_COUNT_MAX: usize = 256;
/// Of each header that is kept with a blob.
pub const HEADER_BYTES_MAX: usize = 1024;
pub const CONTENT_BYTES_MAX: usize = 64 * 1024;
/// Names in one answer.
pub const PAGE_COUNT_MAX: usize = 5000;

// Of one shard. All of it is in memory and in each snapshot.
pub const CONTAINER_COUNT_MAX: usize = 1000;
pub const BLOB_COUNT_MAX: usize = 100_000;
pub const SIZE_BYTES_MAX: usize = 32 * 1024 * 1024;
