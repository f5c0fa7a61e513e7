//! The byte forms of blobs. The basic forms are in [`peeklock_types::wire`].

use peeklock_types::wire::tags::{blob_headers, block, lease, lease_field, lease_term, new_blob};
pub(crate) use peeklock_types::wire::{DecodeError, Decoder, Wire};
use peeklock_types::wire::{put_bytes, take_record};
use peeklock_types::{CommitGroupNumber, tagged_fields, texts};

use crate::blob::{BlobHeaders, NewBlob};
use crate::block::{Block, BlockId};
use crate::lease::{Lease, LeaseId, LeaseTerm};
use crate::metadata::Metadata;
use crate::name::{BlobName, ContainerName};

texts! {
    ContainerName: ContainerName::parse;
    BlobName: BlobName::parse;
    BlockId: BlockId::parse;
}

// The content is last, because it may be large.
tagged_fields! { NewBlob in new_blob {
    METADATA: metadata,
    HEADERS: headers,
    BLOCKS: blocks,
    CONTENT: content,
}}

tagged_fields! { BlobHeaders in blob_headers {
    CONTENT_TYPE: content_type,
    CONTENT_ENCODING: content_encoding,
    CONTENT_LANGUAGE: content_language,
    CONTENT_DISPOSITION: content_disposition,
    CACHE_CONTROL: cache_control,
    CONTENT_MD5: content_md5,
}}

tagged_fields! { Block in block {
    ID: id,
    SIZE_BYTES: size_bytes,
}}

tagged_fields! { Lease in lease {
    ID: id,
    TERM: term,
}}

impl Wire for Metadata {
    const IS_OPEN: bool = true;

    fn put_value(&self, out: &mut Vec<u8>) {
        for (name, value) in self.iter() {
            put_bytes(name.as_bytes(), out);
            put_bytes(value.as_bytes(), out);
        }
    }

    fn take_value(input: &mut Decoder<'_>, what: &'static str) -> Result<Self, DecodeError> {
        let mut metadata = Metadata::default();
        while !input.is_empty() {
            let (name, value) = (input.text(what)?, input.text(what)?);
            let is_new = metadata.get(name).is_none();
            metadata.add(name, value).ok().filter(|()| is_new).ok_or(DecodeError::Value(what))?;
        }
        Ok(metadata)
    }

    fn absent() -> Option<Self> {
        Some(Metadata::default())
    }

    fn is_absent(&self) -> bool {
        *self == Metadata::default()
    }
}

impl Wire for LeaseId {
    const IS_OPEN: bool = false;

    fn put_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_le_bytes());
    }

    fn take_value(input: &mut Decoder<'_>, what: &'static str) -> Result<Self, DecodeError> {
        input.array(what).map(|bytes| LeaseId(u128::from_le_bytes(bytes)))
    }
}

mod term {
    use peeklock_types::records;

    use super::{LeaseTerm, lease_field, lease_term};

    records! { LeaseTerm, kinds lease_term, fields lease_field, room 1 {
        INFINITE: Infinite {} {},
        FIXED: Fixed { span, until } {},
        BREAKING: Breaking { until } {},
    }}
}

impl Wire for LeaseTerm {
    const IS_OPEN: bool = false;

    fn put_value(&self, out: &mut Vec<u8>) {
        term::put_record(self, CommitGroupNumber::NONE, out);
    }

    fn take_value(input: &mut Decoder<'_>, _: &'static str) -> Result<Self, DecodeError> {
        let (kind, fields) = take_record(input)?;
        let term = term::take_fields(kind, fields, CommitGroupNumber::NONE)?;
        term.ok_or(DecodeError::Unknown { of: lease_term::LIST, tag: kind })
    }
}
