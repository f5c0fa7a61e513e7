//! The observations of clients that change blobs.

use super::Answer;

/// A change of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobChange {
    /// Creates the blob, which must not exist yet.
    Create {
        value: u64,
    },
    /// Changes the blob, which must still have this etag.
    Set {
        expected: u64,
        value: u64,
    },
    Delete {
        expected: u64,
    },
}

/// A change of the lease of a blob. Leases have no end here, and each is acquired once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseWish {
    Acquire {
        lease: u64,
    },
    Release {
        lease: u64,
    },
    /// Ends any lease.
    Break,
}

/// A blob as a client reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FoundBlob {
    pub etag: u64,
    /// The value; `None` if no client has written it.
    pub value: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[rustfmt::skip]
pub enum BlobEvent {
    /// A blob is about to be changed, under a lease if the change names one.
    Changing { request: u32, blob: u32, change: BlobChange, lease: Option<u64> },
    /// The answer to a change, with the new etag.
    Changed { request: u32, answer: Answer, etag: Option<u64> },
    Leasing { request: u32, blob: u32, wish: LeaseWish },
    Leased { request: u32, answer: Answer },
    Looking { request: u32, blob: u32 },
    /// The answer to a read. `found` is `None` if there is no blob.
    Looked { request: u32, found: Option<FoundBlob> },
}

impl Answer {
    /// Returns whether a change was rejected because of a lease.
    pub(crate) fn is_about_lease(&self) -> bool {
        matches!(self, Answer::Refused { why, .. } if why.contains(" lease"))
    }
}
