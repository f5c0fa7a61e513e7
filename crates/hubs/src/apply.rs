//! Applies facts, both new ones and those read back from the journal.

use peeklock_types::{ConsumerGroup, EntityName, Timestamp};

use crate::checkpoint::{Owned, Progress};
use crate::error::ReplayError;
use crate::fact::Fact;
use crate::hub::{ConsumerGroupState, Hub, Hubs};
use crate::stream::{Extent, Producer, Stream, StreamId, StreamSpec};

/// The largest etag that a fact can have. No shard issues so many; only damage leads to a larger one.
pub(crate) const ETAG_MAX: u64 = i64::MAX.cast_unsigned();

fn wrong<T>(what: &'static str) -> Result<T, ReplayError> {
    Err(ReplayError { what })
}

impl Hubs {
    /// Applies a fact that was read back from the journal. After an error the machine must not be used further.
    pub fn apply(&mut self, fact: &Fact) -> Result<(), ReplayError> {
        match fact {
            &Fact::Appended { stream, first_sequence, count, enqueued_at, body, size_bytes, producer } => {
                let (first_enqueued_at, last_enqueued_at) = (enqueued_at, enqueued_at);
                let extent =
                    Extent { first_sequence, count, first_enqueued_at, last_enqueued_at, body, size_bytes };
                self.apply_appended(stream, extent, producer)
            }
            &Fact::Gathered { stream, first_sequence, extent_count, body, size_bytes } => {
                let extents = &mut self.known_stream(stream)?.extents;
                extents.gather(first_sequence, extent_count as usize, body, size_bytes)?;
                self.note(stream);
                Ok(())
            }
            &Fact::Lost { stream, first_sequence } => {
                self.known_stream(stream)?.extents.lose(first_sequence)?;
                self.note(stream);
                Ok(())
            }
            &Fact::Retired { stream, upto } => self.apply_retired(stream, upto),
            Fact::StreamOpened { stream, spec } => self.apply_opened(*stream, spec),
            Fact::StreamDeleted { stream } => self.apply_stream_deleted(*stream),
            Fact::HubCreated { .. } | Fact::HubUpdated { .. } | Fact::HubDeleted { .. } => {
                self.apply_hub(fact)
            }
            Fact::GroupSet { name, group, user_metadata, at } => {
                self.apply_group(name, group, user_metadata.clone(), *at)
            }
            Fact::GroupDeleted { name, group } => {
                let hub = self.applied_hub(name)?;
                if group.is_default() || hub.groups.remove(group).is_none() {
                    return wrong("a group is deleted that cannot be");
                }
                hub.revision = hub.revision.saturating_add(1);
                Ok(())
            }
            Fact::Claimed { name, group, partition, owner, epoch, etag, at } => {
                if etag.0 < self.next_etag || etag.0 >= ETAG_MAX {
                    return wrong("an etag was given before");
                }
                let progress = self.applied_progress(name, group, *partition)?;
                let last_epoch = progress.owned.as_ref().map_or(0, |owned| owned.epoch);
                if *epoch < last_epoch {
                    return wrong("an ownership goes back to an earlier epoch");
                }
                let (owner, epoch, etag, modified_at) = (owner.clone(), *epoch, *etag, *at);
                progress.owned = Some(Owned { owner, epoch, etag, modified_at });
                self.next_etag = etag.0 + 1;
                Ok(())
            }
            Fact::Checkpointed { name, group, partition, checkpoint } => {
                self.applied_progress(name, group, *partition)?.checkpoint = *checkpoint;
                Ok(())
            }
        }
    }

    fn applied_hub(&mut self, name: &EntityName) -> Result<&mut Hub, ReplayError> {
        self.hubs.get_mut(name).ok_or(ReplayError { what: "a hub is unknown" })
    }

    fn applied_progress(
        &mut self,
        name: &EntityName,
        group: &ConsumerGroup,
        partition: u32,
    ) -> Result<&mut Progress, ReplayError> {
        let hub = self.applied_hub(name)?;
        if partition >= hub.settings.partition_count {
            return wrong("a hub has no such partition");
        }
        let group = hub.groups.get_mut(group).ok_or(ReplayError { what: "a group is unknown" })?;
        Ok(group.progress.entry(partition).or_default())
    }

    fn apply_hub(&mut self, fact: &Fact) -> Result<(), ReplayError> {
        match fact {
            Fact::HubCreated { name, id, settings, at } => {
                if self.hubs.contains_key(name) {
                    return wrong("a hub is created twice");
                }
                let group = (ConsumerGroup::default_group(), ConsumerGroupState::new(*at, None));
                let hub = Hub {
                    id: *id,
                    settings: (**settings).clone(),
                    groups: [group].into(),
                    created_at: *at,
                    updated_at: *at,
                    revision: 1,
                };
                self.hubs.insert(name.clone(), hub);
            }
            Fact::HubUpdated { name, settings, at } => {
                let hub = self.applied_hub(name)?;
                if hub.settings.check_change(settings).is_err() {
                    return wrong("a hub has fewer partitions than before");
                }
                hub.settings = (**settings).clone();
                hub.updated_at = *at;
                hub.revision = hub.revision.saturating_add(1);
            }
            Fact::HubDeleted { name } => {
                if self.hubs.remove(name).is_none() {
                    return wrong("a hub is deleted that is unknown");
                }
            }
            _ => unreachable!("the caller applies the others"),
        }
        Ok(())
    }

    fn apply_group(
        &mut self,
        name: &EntityName,
        group: &ConsumerGroup,
        user_metadata: Option<String>,
        at: Timestamp,
    ) -> Result<(), ReplayError> {
        let hub = self.applied_hub(name)?;
        match hub.groups.get_mut(group) {
            Some(known) => {
                known.user_metadata = user_metadata;
                known.updated_at = at;
            }
            None => {
                hub.groups.insert(group.clone(), ConsumerGroupState::new(at, user_metadata));
            }
        }
        hub.revision = hub.revision.saturating_add(1);
        Ok(())
    }

    fn known_stream(&mut self, stream: StreamId) -> Result<&mut Stream, ReplayError> {
        self.streams.get_mut(&stream).ok_or(ReplayError { what: "a stream is unknown" })
    }

    fn apply_opened(&mut self, stream: StreamId, spec: &StreamSpec) -> Result<(), ReplayError> {
        let key = (spec.hub, spec.partition);
        if let Some(known) = self.streams.get_mut(&stream) {
            if (known.spec.hub, known.spec.partition) != key {
                return wrong("a stream becomes another one");
            }
            known.spec = spec.clone();
            self.note(stream);
            return Ok(());
        }
        if stream < self.next_stream || stream.0 == u32::MAX || self.by_partition.contains_key(&key) {
            return wrong("a stream is opened twice");
        }
        self.next_stream = StreamId(stream.0 + 1);
        self.by_partition.insert(key, stream);
        self.streams.insert(stream, Stream::new(spec.clone()));
        Ok(())
    }

    fn apply_stream_deleted(&mut self, stream: StreamId) -> Result<(), ReplayError> {
        let Some(known) = self.streams.remove(&stream) else {
            return wrong("a stream is deleted that is unknown");
        };
        self.by_partition.remove(&(known.spec.hub, known.spec.partition));
        self.agenda.change(stream, known.entry, Default::default());
        Ok(())
    }

    fn apply_appended(
        &mut self,
        stream: StreamId,
        extent: Extent,
        producer: Option<Producer>,
    ) -> Result<(), ReplayError> {
        let known = self.known_stream(stream)?;
        if extent.body.is_standalone()
            || known.last_enqueued_at.is_some_and(|last| last > extent.last_enqueued_at)
        {
            return wrong("new events are old");
        }
        known.extents.push(extent)?;
        known.last_enqueued_at = Some(extent.last_enqueued_at);
        if let Some(producer) = producer {
            known.producers.take(producer, extent.count, extent.end() - 1);
        }
        self.note(stream);
        Ok(())
    }

    fn apply_retired(&mut self, stream: StreamId, upto: u64) -> Result<(), ReplayError> {
        let extents = &mut self.known_stream(stream)?.extents;
        while extents.get(0).is_some_and(|first| first.end() <= upto) {
            extents.pop_front();
        }
        if extents.begin() != upto {
            return wrong("events are retired that do not end an extent");
        }
        self.note(stream);
        Ok(())
    }

    /// Updates the position of the stream in the agenda.
    fn note(&mut self, stream: StreamId) {
        if let Some(known) = self.streams.get_mut(&stream) {
            let entry = known.next_entry();
            if entry != known.entry {
                self.agenda.change(stream, known.entry, entry);
                known.entry = entry;
            }
        }
    }

    /// Computes the derived state, after a snapshot was read.
    pub(crate) fn note_all(&mut self) {
        let streams: Vec<_> = self.streams.keys().copied().collect();
        streams.into_iter().for_each(|stream| self.note(stream));
    }
}
