//! Facts as records, one after the other in a commit group. [`peeklock_types::wire`] has the form of a record.

use peeklock_types::wire::tags::{blob_field, record};
use peeklock_types::wire::{Large, take_record};
use peeklock_types::{CommitGroupNumber, records};

use crate::fact::Fact;
use crate::wire::{DecodeError, Decoder};

records! { Fact, kinds record, fields blob_field, room 4 {
    CONTAINER_CREATED: ContainerCreated { name, metadata, etag, at } {},
    CONTAINER_DELETED: ContainerDeleted { name } {},
    CONTAINER_METADATA_SET: ContainerMetadataSet { name, metadata, etag, at } {},
    BLOB_PUT: Put { container, blob, etag, at, new as Large } {},
    BLOB_METADATA_SET: MetadataSet { container, blob, metadata, etag, at } {},
    BLOB_DELETED: Deleted { container, blob } {},
    LEASED: Leased { container } { BLOB: blob, LEASE: lease },
    STAGED: Staged { container, blob, id, at, content as Large } {},
    UNSTAGED: Unstaged { container, blob } {},
}}

pub(crate) fn encode(fact: &Fact, out: &mut Vec<u8>) {
    put_record(fact, CommitGroupNumber::NONE, out);
}

pub(crate) fn decode(input: &mut &[u8]) -> Result<Fact, DecodeError> {
    let mut decoder = Decoder::new(input);
    let (kind, fields) = take_record(&mut decoder)?;
    let fact = of_fields(kind, fields)?.ok_or(DecodeError::Unknown { of: record::LIST, tag: kind })?;
    *input = decoder.rest;
    Ok(fact)
}

pub(crate) fn of_fields(kind: u64, fields: Decoder<'_>) -> Result<Option<Fact>, DecodeError> {
    take_fields(kind, fields, CommitGroupNumber::NONE)
}
