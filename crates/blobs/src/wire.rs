//! The parts of which records and snapshots of blobs are made. Reading checks everything: the bytes come from a disk.

use std::time::Duration;

use bytes::Bytes;
use peeklock_types::Timestamp;
use peeklock_types::wire::{DecodeError, Decoder, put_bytes, put_number, put_optional};

use crate::blob::{BlobHeaders, Etag, NewBlob};
use crate::block::{Block, BlockId};
use crate::lease::{Lease, LeaseId, LeaseTerm};
use crate::limits::{
    BLOB_NAME_CHARS_MAX, BLOCK_COUNT_MAX, BLOCK_ID_CHARS_MAX, CONTAINER_NAME_CHARS_MAX, CONTENT_BYTES_MAX,
    HEADER_BYTES_MAX, METADATA_BYTES_MAX, METADATA_COUNT_MAX,
};
use crate::metadata::Metadata;
use crate::name::{BlobName, ContainerName};

pub(crate) fn put_container(name: &ContainerName, out: &mut Vec<u8>) {
    put_bytes(name.as_str().as_bytes(), out);
}

pub(crate) fn container(decoder: &mut Decoder<'_>) -> Result<ContainerName, DecodeError> {
    const WHAT: &str = "the name of a container";
    ContainerName::parse(decoder.text(CONTAINER_NAME_CHARS_MAX, WHAT)?).map_err(|_| DecodeError::Value(WHAT))
}

pub(crate) fn put_blob_name(name: &BlobName, out: &mut Vec<u8>) {
    put_bytes(name.as_str().as_bytes(), out);
}

pub(crate) fn blob_name(decoder: &mut Decoder<'_>) -> Result<BlobName, DecodeError> {
    const WHAT: &str = "the name of a blob";
    BlobName::parse(decoder.text(BLOB_NAME_CHARS_MAX * 4, WHAT)?).map_err(|_| DecodeError::Value(WHAT))
}

pub(crate) fn put_metadata(metadata: &Metadata, out: &mut Vec<u8>) {
    put_number(metadata.iter().len() as u64, out);
    for (name, value) in metadata.iter() {
        put_bytes(name.as_bytes(), out);
        put_bytes(value.as_bytes(), out);
    }
}

pub(crate) fn metadata(decoder: &mut Decoder<'_>) -> Result<Metadata, DecodeError> {
    const WHAT: &str = "metadata";
    let count = decoder.number(WHAT)?;
    if count > METADATA_COUNT_MAX as u64 {
        return Err(DecodeError::Value(WHAT));
    }
    let mut metadata = Metadata::default();
    for _ in 0..count {
        let name = decoder.text(METADATA_BYTES_MAX, WHAT)?;
        let value = decoder.text(METADATA_BYTES_MAX, WHAT)?;
        let is_new = metadata.get(name).is_none();
        metadata.add(name, value).ok().filter(|()| is_new).ok_or(DecodeError::Value(WHAT))?;
    }
    Ok(metadata)
}

pub(crate) fn put_etag(etag: Etag, out: &mut Vec<u8>) {
    put_number(etag.0, out);
}

pub(crate) fn etag(decoder: &mut Decoder<'_>) -> Result<Etag, DecodeError> {
    decoder.number("an etag").map(Etag)
}

pub(crate) fn put_time(at: Timestamp, out: &mut Vec<u8>) {
    put_number(at.as_millis(), out);
}

/// Puts what was said of a content. The content follows, and then its blocks.
pub(crate) fn put_said(metadata: &Metadata, headers: &BlobHeaders, out: &mut Vec<u8>) {
    put_metadata(metadata, out);
    headers.all().into_iter().for_each(|header| put_optional(header.map(str::as_bytes), out));
}

pub(crate) fn put_blocks(blocks: &[Block], out: &mut Vec<u8>) {
    put_number(blocks.len() as u64, out);
    for block in blocks {
        put_block_id(&block.id, out);
        put_number(block.size_bytes.into(), out);
    }
}

pub(crate) fn put_block_id(id: &BlockId, out: &mut Vec<u8>) {
    put_bytes(id.as_str().as_bytes(), out);
}

pub(crate) fn content(decoder: &mut Decoder<'_>) -> Result<NewBlob, DecodeError> {
    let metadata = metadata(decoder)?;
    let mut all = [const { None }; 6];
    for header in &mut all {
        *header = self::header(decoder)?;
    }
    let content = Bytes::copy_from_slice(decoder.bytes(CONTENT_BYTES_MAX, "a blob's content")?);
    let blocks = blocks(decoder)?;
    Ok(NewBlob { metadata, headers: BlobHeaders::of(all), content, blocks })
}

fn blocks(decoder: &mut Decoder<'_>) -> Result<Vec<Block>, DecodeError> {
    const WHAT: &str = "the blocks of a blob";
    let count = decoder.number(WHAT)?;
    if count > BLOCK_COUNT_MAX as u64 {
        return Err(DecodeError::Value(WHAT));
    }
    (0..count).map(|_| Ok(Block { id: block_id(decoder)?, size_bytes: decoder.number32(WHAT)? })).collect()
}

fn block_id(decoder: &mut Decoder<'_>) -> Result<BlockId, DecodeError> {
    const WHAT: &str = "the id of a block";
    BlockId::parse(decoder.text(BLOCK_ID_CHARS_MAX, WHAT)?).map_err(|_| DecodeError::Value(WHAT))
}

pub(crate) fn block(decoder: &mut Decoder<'_>) -> Result<(BlockId, Bytes), DecodeError> {
    let id = block_id(decoder)?;
    Ok((id, Bytes::copy_from_slice(decoder.bytes(CONTENT_BYTES_MAX, "a block's content")?)))
}

const NO_LEASE: u8 = 0;
const INFINITE: u8 = 1;
const FIXED: u8 = 2;
const BREAKING: u8 = 3;

pub(crate) fn put_lease(lease: Option<&Lease>, out: &mut Vec<u8>) {
    let Some(lease) = lease else { return out.push(NO_LEASE) };
    out.push(match lease.term {
        LeaseTerm::Infinite => INFINITE,
        LeaseTerm::Fixed { .. } => FIXED,
        LeaseTerm::Breaking { .. } => BREAKING,
    });
    out.extend_from_slice(&lease.id.0.to_le_bytes());
    match lease.term {
        LeaseTerm::Infinite => {}
        LeaseTerm::Fixed { span, until } => {
            put_number(span.as_secs(), out);
            put_time(until, out);
        }
        LeaseTerm::Breaking { until } => put_time(until, out),
    }
}

pub(crate) fn lease(decoder: &mut Decoder<'_>) -> Result<Option<Lease>, DecodeError> {
    const WHAT: &str = "a lease";
    let kind = decoder.byte(WHAT)?;
    if kind == NO_LEASE {
        return Ok(None);
    }
    let (low, high) = (decoder.fixed(WHAT)?, decoder.fixed(WHAT)?);
    let id = LeaseId((u128::from(high) << 64) | u128::from(low));
    let term = match kind {
        INFINITE => LeaseTerm::Infinite,
        FIXED => LeaseTerm::Fixed {
            span: Duration::from_secs(decoder.number32(WHAT)?.into()),
            until: decoder.timestamp()?,
        },
        BREAKING => LeaseTerm::Breaking { until: decoder.timestamp()? },
        _ => return Err(DecodeError::Value(WHAT)),
    };
    Ok(Some(Lease { id, term }))
}

fn header(decoder: &mut Decoder<'_>) -> Result<Option<String>, DecodeError> {
    const WHAT: &str = "a blob's header";
    let text = |decoder: &mut Decoder<'_>| decoder.text(HEADER_BYTES_MAX, WHAT).map(str::to_owned);
    decoder.flag(WHAT)?.then(|| text(decoder)).transpose()
}
