use peeklock_types::Etag;

use crate::lease::LeaseError;
use crate::limits::{
    BLOB_COUNT_MAX, BLOCK_COUNT_MAX, CONTAINER_COUNT_MAX, CONTENT_BYTES_MAX, HEADER_BYTES_MAX,
};
use crate::name::{BlobName, ContainerName};

/// The reason why a command was rejected. A rejected command changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("there is no container '{name}'; create it first")]
    NoSuchContainer { name: ContainerName },
    #[error("the container '{name}' exists already")]
    ContainerExists { name: ContainerName },
    #[error("there is no blob '{blob}' in the container '{container}'")]
    NoSuchBlob { container: ContainerName, blob: BlobName },
    #[error("the blob '{blob}' exists already in the container '{container}'")]
    BlobExists { container: ContainerName, blob: BlobName },
    /// `None`: the blob or container does not exist.
    #[error("the condition of the request is not met: {}", state(*current))]
    ConditionNotMet { current: Option<Etag> },
    #[error("a blob or block holds at most {CONTENT_BYTES_MAX} bytes here; this one has {size_bytes}")]
    TooLarge { size_bytes: usize },
    #[error(
        "a header of a blob has more than {HEADER_BYTES_MAX} bytes, or a character that HTTP cannot carry"
    )]
    Header,
    #[error("there are {CONTAINER_COUNT_MAX} containers in this part of the broker already; delete some")]
    TooManyContainers,
    #[error("there are {BLOB_COUNT_MAX} blobs in this part of the broker already; delete some")]
    TooManyBlobs,
    #[error("the blobs of this namespace take as much memory as they may; delete some")]
    Full,
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// A lease error of a container, for which the service has other codes than for a blob.
    #[error("{0}")]
    ContainerLease(LeaseError),
    #[error("the list names a block that was not put, or is gone; put the blocks again")]
    NoSuchBlock,
    #[error("the ids of all blocks of a blob have the same length; this one has another")]
    BlockIdLength,
    #[error("a blob consists of at most {BLOCK_COUNT_MAX} blocks here; put larger ones")]
    TooManyBlocks,
}

impl Error {
    pub(crate) fn of_container(error: LeaseError) -> Self {
        Error::ContainerLease(error)
    }
}

fn state(current: Option<Etag>) -> String {
    match current {
        Some(_) => "the blob or container was changed since it was read; read it again".to_owned(),
        None => "there is no such blob".to_owned(),
    }
}

/// A fact does not fit the state before it: the journal is damaged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fact about blobs does not fit what is known: {what}")]
pub struct ReplayError {
    pub what: &'static str,
}
