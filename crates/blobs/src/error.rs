use crate::blob::Etag;
use crate::limits::{
    BLOB_COUNT_MAX, CONTAINER_COUNT_MAX, CONTENT_BYTES_MAX, HEADER_BYTES_MAX, SIZE_BYTES_MAX,
};
use crate::name::{BlobName, ContainerName};

/// Why a command was refused; nothing has changed then.
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
    /// `None`: it is not there at all.
    #[error("the condition of the request is not met: {}", state(*current))]
    ConditionNotMet { current: Option<Etag> },
    #[error(
        "a blob holds at most {CONTENT_BYTES_MAX} bytes here, which is for checkpoints; this one has {size_bytes}"
    )]
    TooLarge { size_bytes: usize },
    #[error(
        "a header of a blob has more than {HEADER_BYTES_MAX} bytes, or a character that HTTP cannot carry"
    )]
    Header,
    #[error("there are {CONTAINER_COUNT_MAX} containers in this part of the broker already; delete some")]
    TooManyContainers,
    #[error(
        "this part of the broker holds as many blobs as it may ({BLOB_COUNT_MAX}, with {SIZE_BYTES_MAX} bytes); delete some"
    )]
    Full,
}

fn state(current: Option<Etag>) -> String {
    match current {
        Some(_) => "the blob or container was changed since it was read; read it again".to_owned(),
        None => "there is no such blob".to_owned(),
    }
}

/// A fact that does not fit the state before it: the journal does not hold what was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fact about blobs does not fit what is known: {what}")]
pub struct ReplayError {
    pub what: &'static str,
}
