//! Facts as bytes: self-delimiting, so that a group holds one after the other.
//!
//! ```text
//! kind (1 byte), then the fields in the order of the enum
//! ```

use peeklock_types::wire::{DecodeError, Decoder, put_bytes, put_optional};

use crate::fact::Fact;
use crate::wire::{
    self, put_blob_name, put_block_id, put_blocks, put_container, put_etag, put_lease, put_metadata,
    put_said, put_time,
};

// Kinds are on disk: a number is never given to another kind.
const CONTAINER_CREATED: u8 = 64;
const CONTAINER_DELETED: u8 = 65;
const PUT: u8 = 66;
const METADATA_SET: u8 = 67;
const DELETED: u8 = 68;
const LEASED: u8 = 69;
const STAGED: u8 = 70;
const UNSTAGED: u8 = 71;
const CONTAINER_METADATA_SET: u8 = 72;

pub(crate) fn encode(fact: &Fact, out: &mut Vec<u8>) {
    match fact {
        Fact::ContainerCreated { name, metadata, etag, at } => {
            out.push(CONTAINER_CREATED);
            put_container(name, out);
            put_metadata(metadata, out);
            put_etag(*etag, out);
            put_time(*at, out);
        }
        Fact::ContainerDeleted { name } => {
            out.push(CONTAINER_DELETED);
            put_container(name, out);
        }
        Fact::Put { container, blob, new, etag, at } => {
            out.push(PUT);
            put_container(container, out);
            put_blob_name(blob, out);
            put_said(&new.metadata, &new.headers, out);
            put_bytes(&new.content, out);
            put_blocks(&new.blocks, out);
            put_etag(*etag, out);
            put_time(*at, out);
        }
        Fact::MetadataSet { container, blob, metadata, etag, at } => {
            out.push(METADATA_SET);
            put_container(container, out);
            put_blob_name(blob, out);
            put_metadata(metadata, out);
            put_etag(*etag, out);
            put_time(*at, out);
        }
        Fact::Deleted { container, blob } => {
            out.push(DELETED);
            put_container(container, out);
            put_blob_name(blob, out);
        }
        Fact::Leased { container, blob, lease } => {
            out.push(LEASED);
            put_container(container, out);
            put_optional(blob.as_ref().map(|blob| blob.as_str().as_bytes()), out);
            put_lease(lease.as_ref(), out);
        }
        Fact::Staged { container, blob, id, content, at } => {
            out.push(STAGED);
            put_container(container, out);
            put_blob_name(blob, out);
            put_block_id(id, out);
            put_bytes(content, out);
            put_time(*at, out);
        }
        Fact::Unstaged { container, blob } => {
            out.push(UNSTAGED);
            put_container(container, out);
            put_blob_name(blob, out);
        }
        Fact::ContainerMetadataSet { name, metadata, etag, at } => {
            out.push(CONTAINER_METADATA_SET);
            put_container(name, out);
            put_metadata(metadata, out);
            put_etag(*etag, out);
            put_time(*at, out);
        }
    }
}

pub(crate) fn decode(input: &mut &[u8]) -> Result<Fact, DecodeError> {
    let mut decoder = Decoder { rest: input };
    let kind = decoder.byte("a record's kind")?;
    if !(CONTAINER_CREATED..=CONTAINER_METADATA_SET).contains(&kind) {
        return Err(DecodeError::Value("a record's kind"));
    }
    let name = wire::container(&mut decoder)?;
    let fact = decode_rest(kind, name, &mut decoder)?;
    *input = decoder.rest;
    Ok(fact)
}

fn decode_rest(
    kind: u8,
    container: crate::ContainerName,
    decoder: &mut Decoder<'_>,
) -> Result<Fact, DecodeError> {
    Ok(match kind {
        CONTAINER_CREATED => Fact::ContainerCreated {
            name: container,
            metadata: wire::metadata(decoder)?,
            etag: wire::etag(decoder)?,
            at: decoder.timestamp()?,
        },
        CONTAINER_DELETED => Fact::ContainerDeleted { name: container },
        PUT => Fact::Put {
            container,
            blob: wire::blob_name(decoder)?,
            new: Box::new(wire::content(decoder)?),
            etag: wire::etag(decoder)?,
            at: decoder.timestamp()?,
        },
        METADATA_SET => Fact::MetadataSet {
            container,
            blob: wire::blob_name(decoder)?,
            metadata: wire::metadata(decoder)?,
            etag: wire::etag(decoder)?,
            at: decoder.timestamp()?,
        },
        DELETED => Fact::Deleted { container, blob: wire::blob_name(decoder)? },
        LEASED => {
            let is_of_blob = decoder.flag("whose lease it is")?;
            let blob = is_of_blob.then(|| wire::blob_name(decoder)).transpose()?;
            Fact::Leased { container, blob, lease: wire::lease(decoder)? }
        }
        STAGED => {
            let blob = wire::blob_name(decoder)?;
            let (id, content) = wire::block(decoder)?;
            Fact::Staged { container, blob, id, content, at: decoder.timestamp()? }
        }
        UNSTAGED => Fact::Unstaged { container, blob: wire::blob_name(decoder)? },
        _ => Fact::ContainerMetadataSet {
            name: container,
            metadata: wire::metadata(decoder)?,
            etag: wire::etag(decoder)?,
            at: decoder.timestamp()?,
        },
    })
}
