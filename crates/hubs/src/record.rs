//! Facts as bytes: self-delimiting, so that a group holds one after the other.
//!
//! ```text
//! kind (1 byte), then the fields in the order of the enum
//! ```
//! Numbers take seven bits per byte. A body that lies in the group of its own record is told by its offset alone; the group's number is
//! known to whoever reads the group.

use peeklock_types::wire::{DecodeError, Decoder, put_number};
use peeklock_types::{CommitGroupNumber, HubId};

use crate::checkpoint::{Checkpoint, Etag};
use crate::fact::Fact;
use crate::wire::{
    self, put_body, put_group, put_metadata, put_name, put_producer, put_settings, put_spec, put_stream,
    put_text,
};

// Kinds are on disk: a number is never given to another kind. They are none of those of queues.
const HUB_CREATED: u8 = 48;
const HUB_UPDATED: u8 = 49;
const HUB_DELETED: u8 = 50;
const GROUP_SET: u8 = 51;
const GROUP_DELETED: u8 = 52;
const CLAIMED: u8 = 53;
const CHECKPOINTED: u8 = 54;
const STREAM_OPENED: u8 = 55;
const STREAM_DELETED: u8 = 56;
const APPENDED: u8 = 57;
const APPENDED_BY: u8 = 58;
const GATHERED: u8 = 59;
const RETIRED: u8 = 60;
const LOST: u8 = 61;

pub(crate) fn encode(fact: &Fact, here: CommitGroupNumber, out: &mut Vec<u8>) {
    match fact {
        Fact::HubCreated { .. }
        | Fact::HubUpdated { .. }
        | Fact::HubDeleted { .. }
        | Fact::GroupSet { .. }
        | Fact::GroupDeleted { .. }
        | Fact::Claimed { .. }
        | Fact::Checkpointed { .. } => encode_hub(fact, out),
        Fact::StreamOpened { stream, spec } => {
            out.push(STREAM_OPENED);
            put_stream(*stream, out);
            put_spec(spec, out);
        }
        Fact::StreamDeleted { stream } => {
            out.push(STREAM_DELETED);
            put_stream(*stream, out);
        }
        Fact::Appended { stream, first_sequence, count, enqueued_at, body, size_bytes, producer } => {
            out.push(if producer.is_some() { APPENDED_BY } else { APPENDED });
            put_stream(*stream, out);
            put_number(*first_sequence, out);
            put_number((*count).into(), out);
            put_number(enqueued_at.as_millis(), out);
            put_body(*body, here, out);
            put_number((*size_bytes).into(), out);
            if let Some(producer) = producer {
                put_producer(producer, out);
            }
        }
        Fact::Gathered { stream, first_sequence, extent_count, body, size_bytes } => {
            out.push(GATHERED);
            put_stream(*stream, out);
            put_number(*first_sequence, out);
            put_number((*extent_count).into(), out);
            put_body(*body, here, out);
            put_number((*size_bytes).into(), out);
        }
        Fact::Lost { stream, first_sequence } => {
            out.push(LOST);
            put_stream(*stream, out);
            put_number(*first_sequence, out);
        }
        Fact::Retired { stream, upto } => {
            out.push(RETIRED);
            put_stream(*stream, out);
            put_number(*upto, out);
        }
    }
}

/// What belongs to a hub as a whole.
fn encode_hub(fact: &Fact, out: &mut Vec<u8>) {
    match fact {
        Fact::HubCreated { name, id, settings, at } => {
            out.push(HUB_CREATED);
            put_name(name, out);
            put_number(id.0, out);
            put_settings(settings, out);
            put_number(at.as_millis(), out);
        }
        Fact::HubUpdated { name, settings, at } => {
            out.push(HUB_UPDATED);
            put_name(name, out);
            put_settings(settings, out);
            put_number(at.as_millis(), out);
        }
        Fact::HubDeleted { name } => {
            out.push(HUB_DELETED);
            put_name(name, out);
        }
        Fact::GroupSet { name, group, user_metadata, at } => {
            out.push(GROUP_SET);
            put_name(name, out);
            put_group(group, out);
            put_metadata(user_metadata.as_deref(), out);
            put_number(at.as_millis(), out);
        }
        Fact::GroupDeleted { name, group } => {
            out.push(GROUP_DELETED);
            put_name(name, out);
            put_group(group, out);
        }
        Fact::Claimed { name, group, partition, owner, epoch, etag, at } => {
            out.push(CLAIMED);
            put_name(name, out);
            put_group(group, out);
            put_number((*partition).into(), out);
            put_text(owner, out);
            put_number(*epoch, out);
            put_number(etag.0, out);
            put_number(at.as_millis(), out);
        }
        Fact::Checkpointed { name, group, partition, checkpoint } => {
            out.push(CHECKPOINTED);
            put_name(name, out);
            put_group(group, out);
            put_number((*partition).into(), out);
            out.push(checkpoint.is_some().into());
            if let Some(Checkpoint { sequence, at }) = checkpoint {
                put_number(*sequence, out);
                put_number(at.as_millis(), out);
            }
        }
        _ => unreachable!("the caller encodes the others"),
    }
}

pub(crate) fn decode(input: &mut &[u8], here: CommitGroupNumber) -> Result<Fact, DecodeError> {
    let mut decoder = Decoder { rest: input };
    let kind = decoder.byte("a record's kind")?;
    let fact = if (STREAM_OPENED..=LOST).contains(&kind) {
        decode_stream(kind, &mut decoder, here)?
    } else {
        decode_hub(kind, &mut decoder)?
    };
    *input = decoder.rest;
    Ok(fact)
}

fn decode_hub(kind: u8, decoder: &mut Decoder<'_>) -> Result<Fact, DecodeError> {
    if !(HUB_CREATED..=CHECKPOINTED).contains(&kind) {
        return Err(DecodeError::Value("a record's kind"));
    }
    let name = decoder.name()?;
    Ok(match kind {
        HUB_CREATED => {
            let id = HubId(decoder.number("a hub's number")?);
            let settings = Box::new(wire::settings(decoder)?);
            Fact::HubCreated { name, id, settings, at: decoder.timestamp()? }
        }
        HUB_UPDATED => {
            let settings = Box::new(wire::settings(decoder)?);
            Fact::HubUpdated { name, settings, at: decoder.timestamp()? }
        }
        HUB_DELETED => Fact::HubDeleted { name },
        GROUP_SET => {
            let (group, user_metadata) = (wire::group(decoder)?, wire::metadata(decoder)?);
            Fact::GroupSet { name, group, user_metadata, at: decoder.timestamp()? }
        }
        GROUP_DELETED => Fact::GroupDeleted { name, group: wire::group(decoder)? },
        CLAIMED => Fact::Claimed {
            name,
            group: wire::group(decoder)?,
            partition: decoder.number32("a partition")?,
            owner: wire::owner(decoder)?,
            epoch: decoder.number("an epoch")?,
            etag: Etag(decoder.number("an etag")?),
            at: decoder.timestamp()?,
        },
        _ => {
            let (group, partition) = (wire::group(decoder)?, decoder.number32("a partition")?);
            let checkpoint = |decoder: &mut Decoder<'_>| -> Result<Checkpoint, DecodeError> {
                Ok(Checkpoint { sequence: decoder.number("a checkpoint")?, at: decoder.timestamp()? })
            };
            let checkpoint = decoder.flag("a checkpoint")?.then(|| checkpoint(decoder)).transpose()?;
            Fact::Checkpointed { name, group, partition, checkpoint }
        }
    })
}

fn decode_stream(kind: u8, decoder: &mut Decoder<'_>, here: CommitGroupNumber) -> Result<Fact, DecodeError> {
    let stream = wire::stream(decoder)?;
    Ok(match kind {
        STREAM_OPENED => Fact::StreamOpened { stream, spec: Box::new(wire::spec(decoder)?) },
        STREAM_DELETED => Fact::StreamDeleted { stream },
        APPENDED | APPENDED_BY => Fact::Appended {
            stream,
            first_sequence: decoder.number("a sequence number")?,
            count: decoder.number32("a number of events")?,
            enqueued_at: decoder.timestamp()?,
            body: wire::body(decoder, here)?,
            size_bytes: decoder.number32("a body's size")?,
            producer: (kind == APPENDED_BY).then(|| wire::producer(decoder)).transpose()?,
        },
        GATHERED => Fact::Gathered {
            stream,
            first_sequence: decoder.number("a sequence number")?,
            extent_count: decoder.number32("a number of extents")?,
            body: wire::body(decoder, here)?,
            size_bytes: decoder.number32("a body's size")?,
        },
        LOST => Fact::Lost { stream, first_sequence: decoder.number("a sequence number")? },
        _ => Fact::Retired { stream, upto: decoder.number("a sequence number")? },
    })
}
