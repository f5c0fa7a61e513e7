//! The hubs whose names belong to this shard.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use peeklock_types::{ConsumerGroup, EntityName, HubId, HubSettings, HubSettingsError, Timestamp, limits};

use crate::Output;
use crate::agenda::Agenda;
use crate::checkpoint::Progress;
use crate::error::Error;
use crate::fact::Fact;
use crate::readers::Readers;
use crate::stream::{Stream, StreamId};
use crate::view::{GroupView, HubView};
use crate::wire;

/// All hubs and streams of one shard. A command is executed as a whole, or rejected with an [`Error`] without any
/// change.
#[derive(Debug)]
pub struct Hubs {
    pub(crate) hubs: BTreeMap<EntityName, Hub>,
    /// The next etag. It only rises, so that the shard issues no etag twice, whatever was deleted in between.
    pub(crate) next_etag: u64,
    pub(crate) streams: BTreeMap<StreamId, Stream>,
    pub(crate) next_stream: StreamId,

    // The following state is derived from the above, or volatile.
    pub(crate) by_partition: BTreeMap<(HubId, u32), StreamId>,
    pub(crate) agenda: Agenda,
    pub(crate) readers: Readers,
}

impl Default for Hubs {
    fn default() -> Self {
        Hubs {
            hubs: BTreeMap::new(),
            next_etag: 1,
            streams: BTreeMap::new(),
            next_stream: StreamId(1),
            by_partition: BTreeMap::new(),
            agenda: Agenda::default(),
            readers: Readers::default(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) id: HubId,
    pub(crate) settings: HubSettings,
    pub(crate) groups: BTreeMap<ConsumerGroup, ConsumerGroupState>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) revision: u64,
}

#[derive(Debug)]
pub(crate) struct ConsumerGroupState {
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) user_metadata: Option<String>,
    /// The state of each partition. Partitions without any state are absent.
    pub(crate) progress: BTreeMap<u32, Progress>,
}

impl ConsumerGroupState {
    pub(crate) fn new(at: Timestamp, user_metadata: Option<String>) -> ConsumerGroupState {
        ConsumerGroupState { created_at: at, updated_at: at, user_metadata, progress: BTreeMap::new() }
    }
}

impl Hub {
    fn view(&self, name: &EntityName) -> HubView {
        let group = |(name, group): (&ConsumerGroup, &ConsumerGroupState)| GroupView {
            name: name.clone(),
            created_at: group.created_at,
            updated_at: group.updated_at,
            user_metadata: group.user_metadata.clone(),
        };
        HubView {
            name: name.clone(),
            id: self.id,
            settings: self.settings.clone(),
            groups: self.groups.iter().map(group).collect(),
            created_at: self.created_at,
            updated_at: self.updated_at,
            revision: self.revision,
        }
    }
}

fn check_metadata(user_metadata: Option<&str>) -> Result<(), Error> {
    match user_metadata.map_or(0, |text| text.chars().count()) {
        count if count > limits::USER_METADATA_CHARS_MAX => {
            Err(HubSettingsError::UserMetadata { count }.into())
        }
        _ => Ok(()),
    }
}

impl Hubs {
    /// Applies a decided fact and adds it to the output.
    pub(crate) fn record(&mut self, fact: Fact, out: &mut Output) {
        self.apply(&fact).expect("a fact fits the state on which it was decided");
        out.facts.push(fact);
    }

    /// Creates a hub with `groups` beside `$Default`.
    pub fn create_hub(
        &mut self,
        now: Timestamp,
        name: EntityName,
        id: HubId,
        settings: HubSettings,
        groups: &[ConsumerGroup],
        out: &mut Output,
    ) -> Result<HubView, Error> {
        if self.hubs.contains_key(&name) {
            return Err(Error::HubExists { name });
        }
        settings.check()?;
        let groups: BTreeSet<_> = groups.iter().filter(|group| !group.is_default()).collect();
        if groups.len() >= limits::CONSUMER_GROUPS_MAX {
            return Err(Error::TooManyGroups { name });
        }
        let settings = Box::new(wire::kept(settings));
        self.record(Fact::HubCreated { name: name.clone(), id, settings, at: now }, out);
        for group in groups {
            self.set_group(now, &name, group.clone(), None, out);
        }
        self.hub(&name)
    }

    /// Changes a hub. `expected` is the revision that the caller has read.
    pub fn update_hub(
        &mut self,
        now: Timestamp,
        name: &EntityName,
        settings: HubSettings,
        expected: Option<u64>,
        out: &mut Output,
    ) -> Result<HubView, Error> {
        let hub = self.expected_hub(name, expected)?;
        settings.check()?;
        hub.settings.check_change(&settings)?;
        let settings = Box::new(wire::kept(settings));
        self.record(Fact::HubUpdated { name: name.clone(), settings, at: now }, out);
        self.hub(name)
    }

    /// Deletes a hub with its consumer groups, ownerships and checkpoints. Its streams are deleted in their own shards.
    pub fn delete_hub(
        &mut self,
        name: &EntityName,
        expected: Option<u64>,
        out: &mut Output,
    ) -> Result<HubView, Error> {
        self.expected_hub(name, expected)?;
        let last = self.hub(name)?;
        self.record(Fact::HubDeleted { name: name.clone() }, out);
        Ok(last)
    }

    pub fn hub(&self, name: &EntityName) -> Result<HubView, Error> {
        let (name, hub) =
            self.hubs.get_key_value(name).ok_or_else(|| Error::NoSuchHub { name: name.clone() })?;
        Ok(hub.view(name))
    }

    pub fn contains_hub(&self, name: &EntityName) -> bool {
        self.hubs.contains_key(name)
    }

    /// Returns hubs by name, after `after`.
    pub fn hubs_after(&self, after: Option<&EntityName>) -> impl Iterator<Item = HubView> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.hubs.range::<EntityName, _>((start, Bound::Unbounded)).map(|(name, hub)| hub.view(name))
    }

    pub fn create_group(
        &mut self,
        now: Timestamp,
        name: &EntityName,
        group: ConsumerGroup,
        user_metadata: Option<String>,
        out: &mut Output,
    ) -> Result<HubView, Error> {
        let hub = self.known_hub(name)?;
        if hub.groups.contains_key(&group) {
            return Err(Error::GroupExists { name: name.clone(), group });
        }
        if hub.groups.len() >= limits::CONSUMER_GROUPS_MAX {
            return Err(Error::TooManyGroups { name: name.clone() });
        }
        check_metadata(user_metadata.as_deref())?;
        self.set_group(now, name, group, user_metadata, out);
        self.hub(name)
    }

    pub fn update_group(
        &mut self,
        now: Timestamp,
        name: &EntityName,
        group: ConsumerGroup,
        user_metadata: Option<String>,
        out: &mut Output,
    ) -> Result<HubView, Error> {
        self.known_group(name, &group)?;
        check_metadata(user_metadata.as_deref())?;
        self.set_group(now, name, group, user_metadata, out);
        self.hub(name)
    }

    /// Deletes a consumer group with its ownerships and checkpoints. Its readers are ended in the shards of the
    /// streams, see [`Hubs::end_group`].
    pub fn delete_group(
        &mut self,
        name: &EntityName,
        group: &ConsumerGroup,
        out: &mut Output,
    ) -> Result<HubView, Error> {
        self.known_group(name, group)?;
        if group.is_default() {
            return Err(Error::DefaultGroup);
        }
        self.record(Fact::GroupDeleted { name: name.clone(), group: group.clone() }, out);
        self.hub(name)
    }

    fn set_group(
        &mut self,
        at: Timestamp,
        name: &EntityName,
        group: ConsumerGroup,
        user_metadata: Option<String>,
        out: &mut Output,
    ) {
        self.record(Fact::GroupSet { name: name.clone(), group, user_metadata, at }, out);
    }

    pub(crate) fn known_hub(&self, name: &EntityName) -> Result<&Hub, Error> {
        self.hubs.get(name).ok_or_else(|| Error::NoSuchHub { name: name.clone() })
    }

    fn expected_hub(&self, name: &EntityName, expected: Option<u64>) -> Result<&Hub, Error> {
        let hub = self.known_hub(name)?;
        if expected.is_some_and(|expected| expected != hub.revision) {
            return Err(Error::Changed { name: name.clone() });
        }
        Ok(hub)
    }

    pub(crate) fn known_group(
        &self,
        name: &EntityName,
        group: &ConsumerGroup,
    ) -> Result<&ConsumerGroupState, Error> {
        let no_such = || Error::NoSuchGroup { name: name.clone(), group: group.clone() };
        self.known_hub(name)?.groups.get(group).ok_or_else(no_such)
    }
}
