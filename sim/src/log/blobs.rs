//! What those saw who change blobs.

use super::Answer;

/// What somebody wants to make of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobChange {
    /// There must be none yet.
    Create {
        value: u64,
    },
    /// The blob must still have this etag.
    Set {
        expected: u64,
        value: u64,
    },
    Delete {
        expected: u64,
    },
}

/// A blob as somebody finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundBlob {
    pub etag: u64,
    /// `None`: nobody has written that.
    pub value: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[rustfmt::skip]
pub enum BlobEvent {
    Changing { request: u32, blob: u32, change: BlobChange },
    /// With the etag that it has now.
    Changed { request: u32, answer: Answer, etag: Option<u64> },
    Looking { request: u32, blob: u32 },
    /// `None`: it is not there.
    Looked { request: u32, found: Option<FoundBlob> },
}
