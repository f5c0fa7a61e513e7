//! The whole durable state as bytes: what replay of all facts so far would give.
//!
//! ```text
//! "PKLH", version (1 byte), next etag, number of hubs, hubs by name, next stream, number of streams, streams by number,
//! CRC-32C of all before (4 bytes)
//! hub:       name, id, settings, created at, updated at, revision, number of groups, groups by name
//! group:     name, created at, updated at, user metadata, number of partitions of which something is known, these by number
//! partition: number, flag and ownership (owner, epoch, etag, modified at), flag and checkpoint (sequence number, at)
//! stream:    number, spec, last enqueued at, number of producers, these by their last event (producer, last event, number of
//!            sends, these by their number of events),
//!            number of the first event, number of extents, extents (count, steps of body, first and last enqueued at, size)
//! ```
//! The same state gives the same bytes, however it came about.

use std::collections::VecDeque;

use peeklock_types::wire::{DecodeError, Decoder, put_number, put_optional_number, put_step};
use peeklock_types::{BodyRef, ConsumerGroup, EntityName, HubId, Timestamp};

use crate::apply::ETAG_MAX;
use crate::checkpoint::{Checkpoint, Etag, Owned, Progress};
use crate::extents::Extents;
use crate::hub::{ConsumerGroupState, Hub, Hubs};
use crate::producers::{Known, SENDS_MAX};
use crate::stream::{Extent, Stream};
use crate::wire::{
    self, put_group, put_metadata, put_name, put_producer, put_settings, put_spec, put_stream, put_text,
};

const MAGIC: &[u8; 4] = b"PKLH";
const VERSION: u8 = 1;

impl Hubs {
    /// The durable state; volatile are readers.
    pub fn snapshot(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(MAGIC);
        out.push(VERSION);
        put_number(self.next_etag, out);
        put_number(self.hubs.len() as u64, out);
        self.hubs.iter().for_each(|(name, hub)| put_hub(name, hub, out));
        put_stream(self.next_stream, out);
        put_number(self.streams.len() as u64, out);
        for (number, stream) in &self.streams {
            put_stream(*number, out);
            put_stream_state(stream, out);
        }
        let checksum = crc32c::crc32c(out.get(start..).unwrap_or_default());
        out.extend_from_slice(&checksum.to_le_bytes());
    }

    pub fn restore(bytes: &[u8]) -> Result<Hubs, DecodeError> {
        let (bytes, checksum) = bytes.split_last_chunk().ok_or(DecodeError::Short("a snapshot of hubs"))?;
        let rest = bytes.strip_prefix(MAGIC).ok_or(DecodeError::Value("the start of a snapshot of hubs"))?;
        let mut decoder = Decoder { rest };
        if decoder.byte("a snapshot's version")? != VERSION {
            return Err(DecodeError::Value("the version of a snapshot of hubs"));
        }
        if crc32c::crc32c(bytes) != u32::from_le_bytes(*checksum) {
            return Err(DecodeError::Value("the checksum of a snapshot of hubs"));
        }
        let hubs = read_hubs(&mut decoder)?;
        match decoder.rest {
            [] => Ok(hubs),
            _ => Err(DecodeError::Value("the end of a snapshot of hubs")),
        }
    }
}

fn put_time(at: Timestamp, out: &mut Vec<u8>) {
    put_number(at.as_millis(), out);
}

fn put_hub(name: &EntityName, hub: &Hub, out: &mut Vec<u8>) {
    put_name(name, out);
    put_number(hub.id.0, out);
    put_settings(&hub.settings, out);
    put_time(hub.created_at, out);
    put_time(hub.updated_at, out);
    put_number(hub.revision, out);
    put_number(hub.groups.len() as u64, out);
    for (name, group) in &hub.groups {
        put_group(name, out);
        put_time(group.created_at, out);
        put_time(group.updated_at, out);
        put_metadata(group.user_metadata.as_deref(), out);
        put_number(group.progress.len() as u64, out);
        for (partition, progress) in &group.progress {
            put_number((*partition).into(), out);
            put_progress(progress, out);
        }
    }
}

fn put_progress(progress: &Progress, out: &mut Vec<u8>) {
    out.push(progress.owned.is_some().into());
    if let Some(owned) = &progress.owned {
        put_text(&owned.owner, out);
        put_number(owned.epoch, out);
        put_number(owned.etag.0, out);
        put_time(owned.modified_at, out);
    }
    out.push(progress.checkpoint.is_some().into());
    if let Some(checkpoint) = &progress.checkpoint {
        put_number(checkpoint.sequence, out);
        put_time(checkpoint.at, out);
    }
}

fn put_stream_state(stream: &Stream, out: &mut Vec<u8>) {
    put_spec(&stream.spec, out);
    put_optional_number(stream.last_enqueued_at.map(Timestamp::as_millis), out);
    put_number(stream.producers.len() as u64, out);
    for known in stream.producers.iter() {
        put_producer(&known.producer, out);
        put_number(known.last_event, out);
        put_number(known.sends.len() as u64, out);
        known.sends.iter().for_each(|count| put_number((*count).into(), out));
    }
    put_number(stream.extents.begin(), out);
    put_number(stream.extents.len() as u64, out);
    let (mut body, mut at) = (0, 0);
    for extent in stream.extents.iter_from(0) {
        put_number(extent.count.into(), out);
        put_step(body, extent.body.to_raw(), out);
        put_step(at, extent.first_enqueued_at.as_millis(), out);
        put_step(extent.first_enqueued_at.as_millis(), extent.last_enqueued_at.as_millis(), out);
        put_number(extent.size_bytes.into(), out);
        (body, at) = (extent.body.to_raw(), extent.last_enqueued_at.as_millis());
    }
}

fn read_hubs(decoder: &mut Decoder<'_>) -> Result<Hubs, DecodeError> {
    let next_etag = decoder.number("an etag")?;
    if next_etag > ETAG_MAX {
        return Err(DecodeError::Value("an etag"));
    }
    let mut hubs = Hubs { next_etag, ..Hubs::default() };
    for _ in 0..decoder.number("a number of hubs")? {
        let (name, hub) = read_hub(decoder)?;
        if hubs.hubs.insert(name, hub).is_some() {
            return Err(DecodeError::Value("the name of a hub"));
        }
    }
    hubs.next_stream = wire::stream(decoder)?;
    for _ in 0..decoder.number("a number of streams")? {
        let number = wire::stream(decoder)?;
        let stream = read_stream(decoder)?;
        let key = (stream.spec.hub, stream.spec.partition);
        let is_new = hubs.by_partition.insert(key, number).is_none();
        if number >= hubs.next_stream || !is_new || hubs.streams.insert(number, stream).is_some() {
            return Err(DecodeError::Value("a stream's number"));
        }
    }
    hubs.note_all();
    Ok(hubs)
}

fn read_hub(decoder: &mut Decoder<'_>) -> Result<(EntityName, Hub), DecodeError> {
    let name = decoder.name()?;
    let mut hub = Hub {
        id: HubId(decoder.number("a hub's number")?),
        settings: wire::settings(decoder)?,
        created_at: decoder.timestamp()?,
        updated_at: decoder.timestamp()?,
        revision: decoder.number("a revision")?,
        groups: Default::default(),
    };
    for _ in 0..decoder.number("a number of groups")? {
        let name = wire::group(decoder)?;
        let group = read_group(decoder, hub.settings.partition_count)?;
        if hub.groups.insert(name, group).is_some() {
            return Err(DecodeError::Value("a consumer group"));
        }
    }
    if !hub.groups.contains_key(&ConsumerGroup::default_group()) {
        return Err(DecodeError::Value("the groups of a hub"));
    }
    Ok((name, hub))
}

fn read_group(decoder: &mut Decoder<'_>, partition_count: u32) -> Result<ConsumerGroupState, DecodeError> {
    let created_at = decoder.timestamp()?;
    let mut group = ConsumerGroupState::new(created_at, None);
    group.updated_at = decoder.timestamp()?;
    group.user_metadata = wire::metadata(decoder)?;
    for _ in 0..decoder.number("a number of partitions")? {
        let partition = decoder.number32("a partition")?;
        let progress = read_progress(decoder)?;
        if partition >= partition_count || group.progress.insert(partition, progress).is_some() {
            return Err(DecodeError::Value("a partition"));
        }
    }
    Ok(group)
}

fn read_progress(decoder: &mut Decoder<'_>) -> Result<Progress, DecodeError> {
    let owned = |decoder: &mut Decoder<'_>| -> Result<Owned, DecodeError> {
        Ok(Owned {
            owner: wire::owner(decoder)?,
            epoch: decoder.number("an epoch")?,
            etag: Etag(decoder.number("an etag")?),
            modified_at: decoder.timestamp()?,
        })
    };
    let checkpoint = |decoder: &mut Decoder<'_>| -> Result<Checkpoint, DecodeError> {
        Ok(Checkpoint { sequence: decoder.number("a checkpoint")?, at: decoder.timestamp()? })
    };
    Ok(Progress {
        owned: decoder.flag("an ownership")?.then(|| owned(decoder)).transpose()?,
        checkpoint: decoder.flag("a checkpoint")?.then(|| checkpoint(decoder)).transpose()?,
    })
}

fn read_sends(decoder: &mut Decoder<'_>) -> Result<VecDeque<u32>, DecodeError> {
    let count = usize::try_from(decoder.number("a number of sends")?).unwrap_or(usize::MAX);
    if count > SENDS_MAX {
        return Err(DecodeError::Value("a number of sends"));
    }
    (0..count).map(|_| decoder.number32("a number of events")).collect()
}

fn read_stream(decoder: &mut Decoder<'_>) -> Result<Stream, DecodeError> {
    let mut stream = Stream::new(wire::spec(decoder)?);
    stream.last_enqueued_at = decoder.optional_timestamp()?;
    let mut last = None;
    for _ in 0..decoder.number("a number of producers")? {
        let producer = wire::producer(decoder)?;
        let last_event = decoder.number("a producer")?;
        if last >= Some(last_event) || stream.producers.get(producer.id).is_some() {
            return Err(DecodeError::Value("a producer"));
        }
        last = Some(last_event);
        let sends = read_sends(decoder)?;
        stream.producers.insert(Known { producer, sends, last_event });
    }
    let wrong = |_| DecodeError::Value("the extents of a stream");
    stream.extents = Extents::starting_at(decoder.number("a sequence number")?).map_err(wrong)?;
    let (mut body, mut at) = (0, 0);
    for _ in 0..decoder.number("a number of extents")? {
        let count = decoder.number32("a number of events")?;
        body = decoder.step(body, "a body's place")?;
        let first_at = decoder.step(at, "a time")?;
        at = decoder.step(first_at, "a time")?;
        let extent = Extent {
            first_sequence: stream.extents.next(),
            count,
            first_enqueued_at: Timestamp::from_millis(first_at),
            last_enqueued_at: Timestamp::from_millis(at),
            body: BodyRef::from_raw(body),
            size_bytes: decoder.number32("a body's size")?,
        };
        stream.extents.push(extent).map_err(wrong)?;
    }
    let newest = stream.extents.last().map(|extent| extent.last_enqueued_at);
    if newest > stream.last_enqueued_at || last.is_some_and(|last| last >= stream.extents.next()) {
        return Err(DecodeError::Value("the newest event of a stream"));
    }
    Ok(stream)
}
