use std::collections::BTreeMap;

use bytes::Bytes;
use peeklock_types::{Etag, Timestamp};

use crate::block::{Block, BlockId, Staged, list_cost};
use crate::lease::Lease;
use crate::metadata::Metadata;
use crate::name::BlobName;

/// A container with its blobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    pub metadata: Metadata,
    pub etag: Etag,
    pub modified_at: Timestamp,
    pub lease: Option<Lease>,
    pub(crate) blobs: BTreeMap<BlobName, Blob>,
    pub(crate) staged: BTreeMap<BlobName, Staged>,
}

/// A container without its blobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerView {
    pub metadata: Metadata,
    pub etag: Etag,
    pub modified_at: Timestamp,
    pub lease: Option<Lease>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    pub metadata: Metadata,
    pub headers: BlobHeaders,
    pub content: Bytes,
    /// The blocks of the content, in order. Empty if the blob was put in one piece.
    pub blocks: Vec<Block>,
    pub etag: Etag,
    pub created_at: Timestamp,
    pub modified_at: Timestamp,
    pub lease: Option<Lease>,
}

/// A blob as a client puts it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewBlob {
    pub metadata: Metadata,
    pub headers: BlobHeaders,
    pub content: Bytes,
    /// The blocks of the content, in order. Empty if the client puts the blob in one piece.
    pub blocks: Vec<Block>,
}

/// The headers that the client set for the content. The broker interprets none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlobHeaders {
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    pub content_language: Option<String>,
    pub content_disposition: Option<String>,
    pub cache_control: Option<String>,
    pub content_md5: Option<String>,
}

impl BlobHeaders {
    pub(crate) fn all(&self) -> [Option<&str>; 6] {
        [
            self.content_type.as_deref(),
            self.content_encoding.as_deref(),
            self.content_language.as_deref(),
            self.content_disposition.as_deref(),
            self.cache_control.as_deref(),
            self.content_md5.as_deref(),
        ]
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.all().into_iter().flatten().map(str::len).sum()
    }
}

impl Container {
    pub(crate) fn view(&self) -> ContainerView {
        let Container { metadata, etag, modified_at, lease, .. } = self;
        ContainerView { metadata: metadata.clone(), etag: *etag, modified_at: *modified_at, lease: *lease }
    }
}

impl Blob {
    pub(crate) fn cost(&self, name: &BlobName) -> usize {
        cost(name, &self.metadata, &self.headers, &self.content, &self.blocks)
    }

    /// Returns the content of the first block with this id.
    pub(crate) fn block(&self, id: &BlockId) -> Option<Bytes> {
        let mut start = 0;
        for block in &self.blocks {
            let end = start + usize::try_from(block.size_bytes).ok()?;
            if block.id == *id {
                return (end <= self.content.len()).then(|| self.content.slice(start..end));
            }
            start = end;
        }
        None
    }
}

/// The approximate cost of a map item beside the texts.
const OVERHEAD_BYTES: usize = 256;

/// Returns the cost of a blob against the limits.
pub(crate) fn cost(
    name: &BlobName,
    metadata: &Metadata,
    headers: &BlobHeaders,
    content: &[u8],
    blocks: &[Block],
) -> usize {
    let texts = name.as_str().len() + metadata.size_bytes() + headers.size_bytes();
    OVERHEAD_BYTES + texts + content.len() + list_cost(blocks)
}

pub(crate) fn container_cost(container: &str, metadata: &Metadata) -> usize {
    OVERHEAD_BYTES + container.len() + metadata.size_bytes()
}
