//! The whole state as bytes: what replay of all facts so far would give.
//!
//! ```text
//! "PKLB", version (1 byte), next etag, number of containers, containers by name
//! container: name, metadata, etag, modified at, lease, number of blobs, blobs by name, number of staged, staged by name
//! blob:      name, metadata, headers, content, blocks, etag, created at, modified at, lease
//! staged:    name, time of the last block, number of blocks, blocks by id
//! ```
//! The same state gives the same bytes, however it came about. Whoever keeps them sees to it that they come back as they were.

use bytes::Bytes;
use peeklock_types::wire::{DecodeError, Decoder, put_bytes, put_number};

use crate::blob::{Blob, Container};
use crate::blobs::Blobs;
use crate::block::Staged;
use crate::limits::{BLOB_COUNT_MAX, BLOCK_COUNT_MAX, CONTAINER_COUNT_MAX, STAGED_COUNT_MAX};
use crate::name::{BlobName, ContainerName};
use crate::wire::{
    self, put_blob_name, put_block_id, put_blocks, put_container, put_etag, put_lease, put_metadata,
    put_said, put_time,
};

const MAGIC: &[u8; 4] = b"PKLB";
const VERSION: u8 = 1;

/// Contents from this size on are a part of their own.
const PART_BYTES_MIN: usize = 16 * 1024;

/// A snapshot as it grows.
#[derive(Default)]
struct Parts {
    done: Vec<Bytes>,
    open: Vec<u8>,
}

impl Parts {
    /// Adds a content with its length. A large one is shared and not copied.
    fn put(&mut self, content: &Bytes) {
        if content.len() < PART_BYTES_MIN {
            return put_bytes(content, &mut self.open);
        }
        put_number(content.len() as u64, &mut self.open);
        self.done.push(std::mem::take(&mut self.open).into());
        self.done.push(content.clone());
    }
}

impl Blobs {
    /// Returns the whole state in parts that follow each other.
    pub fn snapshot(&self) -> Vec<Bytes> {
        let mut parts = Parts::default();
        parts.open.extend_from_slice(MAGIC);
        parts.open.push(VERSION);
        put_number(self.next_etag, &mut parts.open);
        put_number(self.containers.len() as u64, &mut parts.open);
        self.containers.iter().for_each(|(name, container)| put_one(name, container, &mut parts));
        parts.done.push(parts.open.into());
        parts.done
    }

    pub fn restore(bytes: &[u8]) -> Result<Blobs, DecodeError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(DecodeError::Value("the start of a snapshot of blobs"))?;
        let mut decoder = Decoder { rest };
        if decoder.byte("a snapshot's version")? != VERSION {
            return Err(DecodeError::Value("the version of a snapshot of blobs"));
        }
        let mut blobs = Blobs { next_etag: decoder.number("an etag")?, ..Blobs::default() };
        for _ in 0..count(&mut decoder, CONTAINER_COUNT_MAX)? {
            let (name, container) = read_one(&mut decoder)?;
            blobs.containers.insert(name, container);
        }
        blobs.count_all();
        match decoder.rest {
            [] => Ok(blobs),
            _ => Err(DecodeError::Value("the end of a snapshot of blobs")),
        }
    }
}

fn put_one(name: &ContainerName, container: &Container, parts: &mut Parts) {
    let out = &mut parts.open;
    put_container(name, out);
    put_metadata(&container.metadata, out);
    put_etag(container.etag, out);
    put_time(container.modified_at, out);
    put_lease(container.lease.as_ref(), out);
    put_number(container.blobs.len() as u64, out);
    container.blobs.iter().for_each(|(name, blob)| put_blob(name, blob, parts));
    put_number(container.staged.len() as u64, &mut parts.open);
    for (name, staged) in &container.staged {
        put_blob_name(name, &mut parts.open);
        put_time(staged.at, &mut parts.open);
        put_number(staged.blocks.len() as u64, &mut parts.open);
        for (id, content) in &staged.blocks {
            put_block_id(id, &mut parts.open);
            parts.put(content);
        }
    }
}

fn put_blob(name: &BlobName, blob: &Blob, parts: &mut Parts) {
    put_blob_name(name, &mut parts.open);
    put_said(&blob.metadata, &blob.headers, &mut parts.open);
    parts.put(&blob.content);
    let out = &mut parts.open;
    put_blocks(&blob.blocks, out);
    put_etag(blob.etag, out);
    put_time(blob.created_at, out);
    put_time(blob.modified_at, out);
    put_lease(blob.lease.as_ref(), out);
}

fn read_one(decoder: &mut Decoder<'_>) -> Result<(ContainerName, Container), DecodeError> {
    let name = wire::container(decoder)?;
    let metadata = wire::metadata(decoder)?;
    let (etag, modified_at, lease) = (wire::etag(decoder)?, decoder.timestamp()?, wire::lease(decoder)?);
    let (blobs, staged) = Default::default();
    let mut container = Container { metadata, etag, modified_at, lease, blobs, staged };
    for _ in 0..count(decoder, BLOB_COUNT_MAX)? {
        let (name, blob) = read_blob(decoder)?;
        container.blobs.insert(name, blob);
    }
    for _ in 0..count(decoder, STAGED_COUNT_MAX)? {
        let (name, staged) = read_staged(decoder)?;
        container.staged.insert(name, staged);
    }
    Ok((name, container))
}

fn read_blob(decoder: &mut Decoder<'_>) -> Result<(BlobName, Blob), DecodeError> {
    let name = wire::blob_name(decoder)?;
    let new = wire::content(decoder)?;
    let blob = Blob {
        metadata: new.metadata,
        headers: new.headers,
        content: new.content,
        blocks: new.blocks,
        etag: wire::etag(decoder)?,
        created_at: decoder.timestamp()?,
        modified_at: decoder.timestamp()?,
        lease: wire::lease(decoder)?,
    };
    Ok((name, blob))
}

fn read_staged(decoder: &mut Decoder<'_>) -> Result<(BlobName, Staged), DecodeError> {
    let name = wire::blob_name(decoder)?;
    let mut staged = Staged { at: decoder.timestamp()?, ..Staged::default() };
    for _ in 0..count(decoder, BLOCK_COUNT_MAX)? {
        let (id, content) = wire::block(decoder)?;
        staged.blocks.insert(id, content);
    }
    Ok((name, staged))
}

fn count(decoder: &mut Decoder<'_>, max: usize) -> Result<usize, DecodeError> {
    const WHAT: &str = "a number of containers, blobs or blocks";
    let count = usize::try_from(decoder.number(WHAT)?).ok().filter(|count| *count <= max);
    count.ok_or(DecodeError::Value(WHAT))
}
