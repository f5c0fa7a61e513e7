//! The whole durable state as bytes, equal to a replay of all facts so far.
//!
//! The state is tagged (`hubs_part`, `stored_hub`, `stored_stream` and others in [`peeklock_types::wire::tags`]), with
//! a CRC-32C of all of it at the end. There are many extents, so each is a row:
//!
//! ```text
//! sized: count, step of the body, steps of the first and last enqueued-at, size
//! ```
//! The same state always gives the same bytes.

use std::collections::VecDeque;

use peeklock_types::wire::tags::{
    hubs_part, stored_extent, stored_group, stored_hub, stored_producer, stored_progress, stored_stream,
};
use peeklock_types::wire::{Fields, found_or, put_field, put_large_field, put_number, put_sized, put_step};
use peeklock_types::{BodyRef, ConsumerGroup, EntityName, HubId, HubSettings, Timestamp, tagged_fields};

use crate::apply::ETAG_MAX;
use crate::checkpoint::{Checkpoint, Owned, Progress};
use crate::extents::Extents;
use crate::hub::{ConsumerGroupState, Hub, Hubs};
use crate::producers::{Known, SENDS_MAX};
use crate::stream::{Extent, Producer, Stream, StreamId, StreamSpec};
use crate::wire::{DecodeError, Decoder};

struct StoredHub {
    name: EntityName,
    id: HubId,
    settings: HubSettings,
    created_at: Timestamp,
    updated_at: Timestamp,
    revision: u64,
    groups: Vec<StoredGroup>,
}

tagged_fields! { StoredHub in stored_hub {
    NAME: name,
    ID: id,
    SETTINGS: settings,
    CREATED_AT: created_at,
    UPDATED_AT: updated_at,
    REVISION: revision,
    GROUPS: groups,
}}

struct StoredGroup {
    name: ConsumerGroup,
    created_at: Timestamp,
    updated_at: Timestamp,
    user_metadata: Option<String>,
    progress: Vec<StoredProgress>,
}

tagged_fields! { StoredGroup in stored_group {
    NAME: name,
    CREATED_AT: created_at,
    UPDATED_AT: updated_at,
    USER_METADATA: user_metadata,
    PROGRESS: progress,
}}

struct StoredProgress {
    partition: u32,
    owned: Option<Owned>,
    checkpoint: Option<Checkpoint>,
}

tagged_fields! { StoredProgress in stored_progress {
    PARTITION: partition,
    OWNED: owned,
    CHECKPOINT: checkpoint,
}}

struct StoredProducer {
    producer: Producer,
    last_event: u64,
    sends: Vec<u32>,
}

tagged_fields! { StoredProducer in stored_producer {
    PRODUCER: producer,
    LAST_EVENT: last_event,
    SENDS: sends,
}}

impl Hubs {
    /// Appends the durable state; readers are volatile.
    pub fn snapshot(&self, out: &mut Vec<u8>) {
        let start = out.len();
        put_field(hubs_part::NEXT_ETAG, &self.next_etag, out);
        let hubs: Vec<_> = self.hubs.iter().map(|(name, hub)| stored(name, hub)).collect();
        put_field(hubs_part::HUBS, &hubs, out);
        put_large_field(hubs_part::STREAMS, out, |out| {
            for (number, stream) in &self.streams {
                put_sized(out, |out| put_stream(*number, stream, out));
            }
        });
        put_field(hubs_part::NEXT_STREAM, &self.next_stream, out);
        let checksum = crc32c::crc32c(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&checksum.to_le_bytes());
    }

    pub fn restore(bytes: &[u8]) -> Result<Hubs, DecodeError> {
        let (bytes, checksum) = bytes.split_last_chunk().ok_or(DecodeError::Short("a snapshot of hubs"))?;
        if crc32c::crc32c(bytes) != u32::from_le_bytes(*checksum) {
            return Err(DecodeError::Checksum);
        }
        let (mut hubs, mut next_etag, mut next_stream) = (Hubs::default(), None, None);
        let mut decoder = Decoder::new(bytes);
        let mut parts = Fields::new(&mut decoder);
        while let Some((tag, part)) = parts.next_field()? {
            match tag {
                hubs_part::NEXT_ETAG => next_etag = Some(part.whole("an etag")?),
                hubs_part::HUBS => restore_hubs(&mut hubs, part.whole("hubs")?)?,
                hubs_part::STREAMS => restore_streams(&mut hubs, part)?,
                hubs_part::NEXT_STREAM => next_stream = Some(part.whole("a stream's number")?),
                _ => return Err(DecodeError::Unknown { of: hubs_part::LIST, tag }),
            }
        }
        hubs.next_etag = found_or(next_etag, None, "the next etag")?;
        hubs.next_stream = found_or(next_stream, None, "the next stream")?;
        if hubs.next_etag > ETAG_MAX {
            return Err(DecodeError::Value("an etag"));
        }
        if hubs.streams.last_key_value().is_some_and(|(number, _)| *number >= hubs.next_stream) {
            return Err(DecodeError::Value("a stream's number"));
        }
        hubs.note_all();
        Ok(hubs)
    }
}

fn stored(name: &EntityName, hub: &Hub) -> StoredHub {
    let progress = |(partition, progress): (&u32, &Progress)| StoredProgress {
        partition: *partition,
        owned: progress.owned.clone(),
        checkpoint: progress.checkpoint,
    };
    let group = |(name, group): (&ConsumerGroup, &ConsumerGroupState)| StoredGroup {
        name: name.clone(),
        created_at: group.created_at,
        updated_at: group.updated_at,
        user_metadata: group.user_metadata.clone(),
        progress: group.progress.iter().map(progress).collect(),
    };
    StoredHub {
        name: name.clone(),
        id: hub.id,
        settings: hub.settings.clone(),
        created_at: hub.created_at,
        updated_at: hub.updated_at,
        revision: hub.revision,
        groups: hub.groups.iter().map(group).collect(),
    }
}

fn put_stream(number: StreamId, stream: &Stream, out: &mut Vec<u8>) {
    put_field(stored_stream::STREAM, &number, out);
    put_field(stored_stream::SPEC, &stream.spec, out);
    put_field(stored_stream::LAST_ENQUEUED_AT, &stream.last_enqueued_at, out);
    let producer = |known: &Known| StoredProducer {
        producer: known.producer,
        last_event: known.last_event,
        sends: known.sends.iter().copied().collect(),
    };
    let producers: Vec<_> = stream.producers.iter().map(producer).collect();
    put_field(stored_stream::PRODUCERS, &producers, out);
    put_field(stored_stream::BEGIN, &stream.extents.begin(), out);
    put_large_field(stored_stream::EXTENTS, out, |out| put_extents(stream, out));
}

fn put_extents(stream: &Stream, out: &mut Vec<u8>) {
    let (mut body, mut at) = (0, 0);
    for extent in stream.extents.iter_from(0) {
        put_sized(out, |out| {
            put_number(extent.count.into(), out);
            put_step(body, extent.body.to_raw(), out);
            put_step(at, extent.first_enqueued_at.as_millis(), out);
            put_step(extent.first_enqueued_at.as_millis(), extent.last_enqueued_at.as_millis(), out);
            put_number(extent.size_bytes.into(), out);
        });
        (body, at) = (extent.body.to_raw(), extent.last_enqueued_at.as_millis());
    }
}

fn restore_hubs(hubs: &mut Hubs, stored: Vec<StoredHub>) -> Result<(), DecodeError> {
    for hub in stored {
        let mut restored = Hub {
            id: hub.id,
            settings: hub.settings,
            created_at: hub.created_at,
            updated_at: hub.updated_at,
            revision: hub.revision,
            groups: Default::default(),
        };
        for group in hub.groups {
            let name = group.name.clone();
            let group = restored_group(group, restored.settings.partition_count)?;
            if restored.groups.insert(name, group).is_some() {
                return Err(DecodeError::Value("a consumer group"));
            }
        }
        if !restored.groups.contains_key(&ConsumerGroup::default_group()) {
            return Err(DecodeError::Value("the groups of a hub"));
        }
        if hubs.hubs.insert(hub.name, restored).is_some() {
            return Err(DecodeError::Value("the name of a hub"));
        }
    }
    Ok(())
}

fn restored_group(stored: StoredGroup, partition_count: u32) -> Result<ConsumerGroupState, DecodeError> {
    let mut group = ConsumerGroupState::new(stored.created_at, stored.user_metadata);
    group.updated_at = stored.updated_at;
    for StoredProgress { partition, owned, checkpoint } in stored.progress {
        let is_repeated = group.progress.insert(partition, Progress { owned, checkpoint }).is_some();
        if partition >= partition_count || is_repeated {
            return Err(DecodeError::Value("a partition"));
        }
    }
    Ok(group)
}

fn restore_streams(hubs: &mut Hubs, mut bytes: Decoder<'_>) -> Result<(), DecodeError> {
    while !bytes.is_empty() {
        let (number, stream) = restore_stream(bytes.sized("a stream")?)?;
        let key = (stream.spec.hub, stream.spec.partition);
        let is_new = hubs.by_partition.insert(key, number).is_none();
        if !is_new || hubs.streams.insert(number, stream).is_some() {
            return Err(DecodeError::Value("a stream's number"));
        }
    }
    Ok(())
}

fn restore_stream(mut bytes: Decoder<'_>) -> Result<(StreamId, Stream), DecodeError> {
    let (mut number, mut spec, mut last_enqueued_at) = (None, None, None);
    let (mut producers, mut begin, mut extents): (Vec<StoredProducer>, _, _) = (Vec::new(), None, None);
    let mut fields = Fields::new(&mut bytes);
    while let Some((tag, value)) = fields.next_field()? {
        match tag {
            stored_stream::STREAM => number = Some(value.whole("a stream's number")?),
            stored_stream::SPEC => spec = Some(value.whole("a stream's specification")?),
            stored_stream::LAST_ENQUEUED_AT => last_enqueued_at = Some(value.whole("a time")?),
            stored_stream::PRODUCERS => producers = value.whole("producers")?,
            stored_stream::BEGIN => begin = Some(value.whole("a sequence number")?),
            stored_stream::EXTENTS => extents = Some(value),
            _ => return Err(DecodeError::Unknown { of: stored_stream::LIST, tag }),
        }
    }
    let spec: StreamSpec = found_or(spec, None, "a stream's specification")?;
    let mut stream = Stream::new(spec);
    stream.last_enqueued_at = last_enqueued_at;
    let last = restore_producers(&mut stream, producers)?;
    let begin = found_or(begin, None, "the begin of a stream")?;
    let extents = extents.ok_or(DecodeError::Missing("the extents of a stream"))?;
    stream.extents = restore_extents(begin, extents)?;
    let newest = stream.extents.last().map(|extent| extent.last_enqueued_at);
    if newest > stream.last_enqueued_at || last.is_some_and(|last| last >= stream.extents.next()) {
        return Err(DecodeError::Value("the newest event of a stream"));
    }
    Ok((found_or(number, None, "a stream's number")?, stream))
}

/// Restores the producers, and returns the newest event of all of them.
fn restore_producers(stream: &mut Stream, stored: Vec<StoredProducer>) -> Result<Option<u64>, DecodeError> {
    let mut last = None;
    for StoredProducer { producer, last_event, sends } in stored {
        let is_known = last >= Some(last_event) || stream.producers.get(producer.id).is_some();
        if is_known || sends.len() > SENDS_MAX {
            return Err(DecodeError::Value("a producer"));
        }
        last = Some(last_event);
        stream.producers.insert(Known { producer, sends: VecDeque::from(sends), last_event });
    }
    Ok(last)
}

fn restore_extents(begin: u64, mut bytes: Decoder<'_>) -> Result<Extents, DecodeError> {
    let wrong = |_| DecodeError::Value("the extents of a stream");
    let mut extents = Extents::starting_at(begin).map_err(wrong)?;
    let (mut body, mut at) = (0, 0);
    while !bytes.is_empty() {
        let mut row = bytes.sized("an extent")?;
        let count = row.number32("a number of events")?;
        body = row.step(body, "a body's place")?;
        let first_at = row.step(at, "a time")?;
        at = row.step(first_at, "a time")?;
        let extent = Extent {
            first_sequence: extents.next(),
            count,
            first_enqueued_at: Timestamp::from_millis(first_at),
            last_enqueued_at: Timestamp::from_millis(at),
            body: BodyRef::from_raw(body),
            size_bytes: row.number32("a body's size")?,
        };
        row.end_row(stored_extent::LIST)?;
        extents.push(extent).map_err(wrong)?;
    }
    Ok(extents)
}
