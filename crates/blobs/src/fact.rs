use bytes::Bytes;
use peeklock_types::wire::{DecodeError, Decoder};
use peeklock_types::{Etag, Timestamp};

use crate::blob::NewBlob;
use crate::block::BlockId;
use crate::lease::Lease;
use crate::metadata::Metadata;
use crate::name::{BlobName, ContainerName};
use crate::record;

/// A durable change of containers and blobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    ContainerCreated {
        name: ContainerName,
        metadata: Metadata,
        etag: Etag,
        at: Timestamp,
    },
    ContainerMetadataSet {
        name: ContainerName,
        metadata: Metadata,
        etag: Etag,
        at: Timestamp,
    },
    /// The container was deleted, with all its blobs.
    ContainerDeleted {
        name: ContainerName,
    },
    /// A blob was created or replaced.
    Put {
        container: ContainerName,
        blob: BlobName,
        new: Box<NewBlob>,
        etag: Etag,
        at: Timestamp,
    },
    MetadataSet {
        container: ContainerName,
        blob: BlobName,
        metadata: Metadata,
        etag: Etag,
        at: Timestamp,
    },
    Deleted {
        container: ContainerName,
        blob: BlobName,
    },
    /// The lease of a blob, or of the container itself, was changed or removed.
    Leased {
        container: ContainerName,
        blob: Option<BlobName>,
        lease: Option<Lease>,
    },
    /// An uncommitted block was stored.
    Staged {
        container: ContainerName,
        blob: BlobName,
        id: BlockId,
        content: Bytes,
        at: Timestamp,
    },
    /// The uncommitted blocks of a blob were removed.
    Unstaged {
        container: ContainerName,
        blob: BlobName,
    },
}

impl Fact {
    /// Appends the fact to `out` as a self-delimiting record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        record::encode(self, out);
    }

    /// Takes one fact from the front of `input`. After an error `input` is unchanged.
    pub fn decode(input: &mut &[u8]) -> Result<Fact, DecodeError> {
        record::decode(input)
    }

    /// Returns the fact of a record of this kind; `None` if blobs have no such kind.
    pub fn of_record(kind: u64, fields: Decoder<'_>) -> Result<Option<Fact>, DecodeError> {
        record::of_fields(kind, fields)
    }
}
