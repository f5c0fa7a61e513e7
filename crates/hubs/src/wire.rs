//! The parts of which records and snapshots of hubs are made. Reading checks everything: the bytes come from a disk.

use std::time::Duration;

use peeklock_types::wire::{
    DecodeError, Decoder, put_bytes, put_fixed, put_number, put_optional, put_optional_number,
};
use peeklock_types::{
    BodyPlace, BodyRef, CommitGroupNumber, ConsumerGroup, EntityName, ExpiredPosition, HubId, HubSettings,
    QueueStatus, limits,
};

use crate::stream::{Producer, StreamId, StreamSpec};

/// The longest that a character can be.
const CHAR_BYTES_MAX: usize = 4;

pub(crate) fn put_text(text: &str, out: &mut Vec<u8>) {
    put_bytes(text.as_bytes(), out);
}

pub(crate) fn put_name(name: &EntityName, out: &mut Vec<u8>) {
    put_text(name.as_str(), out);
}

pub(crate) fn put_group(group: &ConsumerGroup, out: &mut Vec<u8>) {
    put_text(group.as_str(), out);
}

pub(crate) fn put_metadata(metadata: Option<&str>, out: &mut Vec<u8>) {
    put_optional(metadata.map(str::as_bytes), out);
}

pub(crate) fn group(decoder: &mut Decoder<'_>) -> Result<ConsumerGroup, DecodeError> {
    let text = decoder.text(limits::CONSUMER_GROUP_CHARS_MAX * CHAR_BYTES_MAX, "a consumer group")?;
    ConsumerGroup::parse(text).map_err(|_| DecodeError::Value("a consumer group"))
}

pub(crate) fn metadata(decoder: &mut Decoder<'_>) -> Result<Option<String>, DecodeError> {
    const WHAT: &str = "user metadata";
    let text = |decoder: &mut Decoder<'_>| {
        decoder.text(limits::USER_METADATA_CHARS_MAX * CHAR_BYTES_MAX, WHAT).map(str::to_owned)
    };
    decoder.flag(WHAT)?.then(|| text(decoder)).transpose()
}

pub(crate) fn owner(decoder: &mut Decoder<'_>) -> Result<String, DecodeError> {
    decoder.text(limits::OWNER_CHARS_MAX * CHAR_BYTES_MAX, "an owner's name").map(str::to_owned)
}

pub(crate) fn put_settings(settings: &HubSettings, out: &mut Vec<u8>) {
    put_number(settings.partition_count.into(), out);
    // The limits of the settings keep this far below 2^64.
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    put_optional_number(settings.retention.map(millis), out);
    put_optional_number(settings.retention_bytes, out);
    out.push(match settings.expired_position {
        ExpiredPosition::Refuse => 0,
        ExpiredPosition::Earliest => 1,
    });
    out.push(match settings.status {
        QueueStatus::Active => 0,
        QueueStatus::SendDisabled => 1,
        QueueStatus::ReceiveDisabled => 2,
        QueueStatus::Disabled => 3,
    });
    put_metadata(settings.user_metadata.as_deref(), out);
}

pub(crate) fn settings(decoder: &mut Decoder<'_>) -> Result<HubSettings, DecodeError> {
    Ok(HubSettings {
        partition_count: decoder.number32("a partition count")?,
        retention: decoder.optional_number("a retention")?.map(Duration::from_millis),
        retention_bytes: decoder.optional_number("a retention in bytes")?,
        expired_position: match decoder.byte("a setting")? {
            0 => ExpiredPosition::Refuse,
            1 => ExpiredPosition::Earliest,
            _ => return Err(DecodeError::Value("a setting")),
        },
        status: match decoder.byte("a status")? {
            0 => QueueStatus::Active,
            1 => QueueStatus::SendDisabled,
            2 => QueueStatus::ReceiveDisabled,
            3 => QueueStatus::Disabled,
            _ => return Err(DecodeError::Value("a status")),
        },
        user_metadata: metadata(decoder)?,
    })
}

/// Just what a record says of the settings: times in whole milliseconds. After a restart a hub must not know more or less than before.
pub(crate) fn kept(settings: HubSettings) -> HubSettings {
    let whole = |span: Duration| Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
    HubSettings { retention: settings.retention.map(whole), ..settings }
}

pub(crate) fn put_stream(stream: StreamId, out: &mut Vec<u8>) {
    put_number(stream.0.into(), out);
}

pub(crate) fn stream(decoder: &mut Decoder<'_>) -> Result<StreamId, DecodeError> {
    decoder.number32("a stream's number").map(StreamId)
}

pub(crate) fn put_spec(spec: &StreamSpec, out: &mut Vec<u8>) {
    put_number(spec.hub.0, out);
    put_name(&spec.name, out);
    put_number(spec.partition.into(), out);
    put_settings(&spec.settings, out);
}

pub(crate) fn spec(decoder: &mut Decoder<'_>) -> Result<StreamSpec, DecodeError> {
    Ok(StreamSpec {
        hub: HubId(decoder.number("a hub's number")?),
        name: decoder.name()?,
        partition: decoder.number32("a partition")?,
        settings: settings(decoder)?,
    })
}

/// All eight bytes are used: producers choose their numbers at random.
pub(crate) fn put_producer(producer: &Producer, out: &mut Vec<u8>) {
    put_fixed(producer.id.cast_unsigned(), out);
    put_number(producer.epoch.cast_unsigned().into(), out);
    put_number(producer.sequence.cast_unsigned().into(), out);
}

pub(crate) fn producer(decoder: &mut Decoder<'_>) -> Result<Producer, DecodeError> {
    const WHAT: &str = "a producer";
    let id = decoder.fixed(WHAT)?.cast_signed();
    let epoch = u16::try_from(decoder.number(WHAT)?).map_err(|_| DecodeError::Value(WHAT))?.cast_signed();
    Ok(Producer { id, epoch, sequence: decoder.number32(WHAT)?.cast_signed() })
}

/// A body in the group of its own record is told by its offset, any other by its place.
pub(crate) fn put_body(body: BodyRef, here: CommitGroupNumber, out: &mut Vec<u8>) {
    match body.place() {
        BodyPlace::InGroup { group, offset_bytes } if group == here => {
            out.push(1);
            put_number(offset_bytes.into(), out);
        }
        _ => {
            out.push(0);
            put_fixed(body.to_raw(), out);
        }
    }
}

/// A body that lies anywhere but in a group of the future.
pub(crate) fn body(decoder: &mut Decoder<'_>, here: CommitGroupNumber) -> Result<BodyRef, DecodeError> {
    const WHAT: &str = "a body's place";
    if decoder.flag(WHAT)? {
        let offset_bytes = decoder.number32(WHAT)?;
        return BodyRef::in_group(here, offset_bytes).ok_or(DecodeError::Value(WHAT));
    }
    let body = BodyRef::from_raw(decoder.fixed(WHAT)?);
    match body.place() {
        BodyPlace::InGroup { group, .. } if group > here => Err(DecodeError::Value(WHAT)),
        _ => Ok(body),
    }
}
