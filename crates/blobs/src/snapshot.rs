//! The whole state as bytes, equal to a replay of all facts so far.
//!
//! The state is a list of records (`blobs_record` in [`peeklock_types::wire::tags`]): each container, its blobs by
//! name, and the uncommitted blocks of a blob, by name; then the next etag, which is always last. The content of a blob
//! or block is the last field of its record, so that a large one is shared and not copied.
//!
//! The same state always gives the same bytes. The journal guarantees that they are read back unchanged.

use bytes::Bytes;
use peeklock_types::wire::tags::{blobs_record, stored_blob, stored_container, stored_staged};
use peeklock_types::wire::{put_field, put_number, take_record};
use peeklock_types::{Etag, Timestamp, tagged_fields};

use crate::blob::{Blob, BlobHeaders, Container};
use crate::blobs::Blobs;
use crate::block::{Block, BlockId, Staged};
use crate::lease::Lease;
use crate::limits::{BLOB_COUNT_MAX, BLOCK_COUNT_MAX, CONTAINER_COUNT_MAX, STAGED_COUNT_MAX};
use crate::metadata::Metadata;
use crate::name::{BlobName, ContainerName};
use crate::wire::{DecodeError, Decoder, Wire};

/// Contents of at least this size become a part of their own, which is shared with the blob and not copied.
const PART_BYTES_MIN: usize = 16 * 1024;

struct StoredContainer {
    name: ContainerName,
    metadata: Metadata,
    etag: Etag,
    modified_at: Timestamp,
    lease: Option<Lease>,
}

tagged_fields! { StoredContainer in stored_container {
    NAME: name,
    METADATA: metadata,
    ETAG: etag,
    MODIFIED_AT: modified_at,
    LEASE: lease,
}}

struct StoredBlob {
    name: BlobName,
    metadata: Metadata,
    headers: BlobHeaders,
    blocks: Vec<Block>,
    etag: Etag,
    created_at: Timestamp,
    modified_at: Timestamp,
    lease: Option<Lease>,
    /// The writer omits the content here and appends it as the last field.
    content: Option<Bytes>,
}

tagged_fields! { StoredBlob in stored_blob {
    NAME: name,
    METADATA: metadata,
    HEADERS: headers,
    BLOCKS: blocks,
    ETAG: etag,
    CREATED_AT: created_at,
    MODIFIED_AT: modified_at,
    LEASE: lease,
    CONTENT: content,
}}

/// The uncommitted blocks of a blob, or one of them.
struct StoredStaged {
    name: Option<BlobName>,
    at: Option<Timestamp>,
    id: Option<BlockId>,
    content: Option<Bytes>,
}

tagged_fields! { StoredStaged in stored_staged {
    NAME: name,
    AT: at,
    ID: id,
    CONTENT: content,
}}

/// A snapshot under construction.
#[derive(Default)]
struct Parts {
    done: Vec<Bytes>,
    open: Vec<u8>,
}

impl Parts {
    fn put(&mut self, kind: u64, fields: &impl Wire) {
        put_number(kind, &mut self.open);
        fields.put(&mut self.open);
    }

    /// Adds a record whose last field is `content`. A large one is shared and not copied.
    fn put_with(&mut self, kind: u64, fields: &impl Wire, content_tag: u64, content: &Bytes) {
        let mut head = Vec::new();
        fields.put_value(&mut head);
        put_number(content_tag, &mut head);
        put_number(content.len() as u64, &mut head);
        put_number(kind, &mut self.open);
        put_number((head.len() + content.len()) as u64, &mut self.open);
        self.open.extend_from_slice(&head);
        if content.len() < PART_BYTES_MIN {
            return self.open.extend_from_slice(content);
        }
        self.done.push(std::mem::take(&mut self.open).into());
        self.done.push(content.clone());
    }

    fn put_container(&mut self, name: &ContainerName, container: &Container) {
        let Container { metadata, etag, modified_at, lease, blobs, staged } = container;
        let (name, metadata) = (name.clone(), metadata.clone());
        let head = StoredContainer { name, metadata, etag: *etag, modified_at: *modified_at, lease: *lease };
        self.put(blobs_record::CONTAINER, &head);
        blobs.iter().for_each(|(name, blob)| self.put_blob(name, blob));
        for (name, staged) in staged {
            let head =
                StoredStaged { name: Some(name.clone()), at: Some(staged.at), id: None, content: None };
            self.put(blobs_record::STAGED, &head);
            for (id, content) in &staged.blocks {
                let block = StoredStaged { name: None, at: None, id: Some(id.clone()), content: None };
                self.put_with(blobs_record::STAGED_BLOCK, &block, stored_staged::CONTENT, content);
            }
        }
    }

    fn put_blob(&mut self, name: &BlobName, blob: &Blob) {
        let stored = StoredBlob {
            name: name.clone(),
            metadata: blob.metadata.clone(),
            headers: blob.headers.clone(),
            blocks: blob.blocks.clone(),
            etag: blob.etag,
            created_at: blob.created_at,
            modified_at: blob.modified_at,
            lease: blob.lease,
            content: None,
        };
        self.put_with(blobs_record::BLOB, &stored, stored_blob::CONTENT, &blob.content);
    }
}

impl Blobs {
    /// Returns the whole state in consecutive parts.
    pub fn snapshot(&self) -> Vec<Bytes> {
        let mut parts = Parts::default();
        self.containers.iter().for_each(|(name, container)| parts.put_container(name, container));
        put_field(blobs_record::NEXT_ETAG, &self.next_etag, &mut parts.open);
        parts.done.push(parts.open.into());
        parts.done
    }

    pub fn restore(bytes: &[u8]) -> Result<Blobs, DecodeError> {
        let mut blobs = Blobs::default();
        let mut decoder = Decoder::new(bytes);
        // The container and the blob to which the following records belong.
        let (mut container, mut blob) = (None, None);
        loop {
            if decoder.is_empty() {
                return Err(DecodeError::Missing("the next etag"));
            }
            let (kind, record) = take_record(&mut decoder)?;
            match kind {
                blobs_record::CONTAINER => {
                    container = Some(restore_container(&mut blobs, record.whole("a container")?)?);
                    blob = None;
                }
                blobs_record::BLOB => {
                    let stored: StoredBlob = record.whole("a blob")?;
                    restore_blob(container_of(&mut blobs, container.as_ref())?, stored)?;
                }
                blobs_record::STAGED => {
                    let container = container_of(&mut blobs, container.as_ref())?;
                    blob = Some(restore_staged(container, record.whole("blocks")?)?);
                }
                blobs_record::STAGED_BLOCK => {
                    let container = container_of(&mut blobs, container.as_ref())?;
                    restore_block(container, blob.as_ref(), record.whole("a block")?)?;
                }
                blobs_record::NEXT_ETAG => {
                    blobs.next_etag = record.whole("an etag")?;
                    blobs.count_all();
                    let is_whole = decoder.is_empty();
                    return if is_whole { Ok(blobs) } else { Err(DecodeError::Value("the next etag")) };
                }
                _ => return Err(DecodeError::Unknown { of: blobs_record::LIST, tag: kind }),
            }
        }
    }
}

fn within(count: usize, max: usize) -> Result<(), DecodeError> {
    if count < max { Ok(()) } else { Err(DecodeError::Value("a number of containers, blobs or blocks")) }
}

fn restore_container(blobs: &mut Blobs, stored: StoredContainer) -> Result<ContainerName, DecodeError> {
    within(blobs.containers.len(), CONTAINER_COUNT_MAX)?;
    let StoredContainer { name, metadata, etag, modified_at, lease } = stored;
    let (of_blobs, staged) = Default::default();
    let container = Container { metadata, etag, modified_at, lease, blobs: of_blobs, staged };
    blobs.containers.insert(name.clone(), container);
    Ok(name)
}

fn container_of<'b>(
    blobs: &'b mut Blobs,
    name: Option<&ContainerName>,
) -> Result<&'b mut Container, DecodeError> {
    let found = name.and_then(|name| blobs.containers.get_mut(name));
    found.ok_or(DecodeError::Missing("the container of a blob"))
}

fn restore_blob(container: &mut Container, stored: StoredBlob) -> Result<(), DecodeError> {
    within(container.blobs.len(), BLOB_COUNT_MAX)?;
    let blob = Blob {
        metadata: stored.metadata,
        headers: stored.headers,
        content: stored.content.ok_or(DecodeError::Missing("the content of a blob"))?,
        blocks: stored.blocks,
        etag: stored.etag,
        created_at: stored.created_at,
        modified_at: stored.modified_at,
        lease: stored.lease,
    };
    container.blobs.insert(stored.name, blob);
    Ok(())
}

fn restore_staged(container: &mut Container, stored: StoredStaged) -> Result<BlobName, DecodeError> {
    within(container.staged.len(), STAGED_COUNT_MAX)?;
    let StoredStaged { name: Some(name), at: Some(at), id: None, content: None } = stored else {
        return Err(DecodeError::Value("blocks"));
    };
    container.staged.insert(name.clone(), Staged { at, ..Staged::default() });
    Ok(name)
}

fn restore_block(
    container: &mut Container,
    blob: Option<&BlobName>,
    stored: StoredStaged,
) -> Result<(), DecodeError> {
    let staged = blob.and_then(|blob| container.staged.get_mut(blob));
    let staged = staged.ok_or(DecodeError::Missing("the blob of a block"))?;
    within(staged.blocks.len(), BLOCK_COUNT_MAX)?;
    let StoredStaged { name: None, at: None, id: Some(id), content: Some(content) } = stored else {
        return Err(DecodeError::Value("a block"));
    };
    staged.blocks.insert(id, content);
    Ok(())
}
