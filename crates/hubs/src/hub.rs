//! The hubs whose names belong to this shard.

use peeklock_types::wire::DecodeError;
use peeklock_types::{ConsumerGroup, EntityName, HubId, HubSettings, Timestamp};

use crate::error::{Error, ReplayError};
use crate::fact::Fact;
use crate::view::HubView;
use crate::{Outbox, todo_body};

/// All hubs and streams of one shard. A command is done whole, or refused with an [`Error`] and nothing has changed.
#[derive(Debug, Default)]
pub struct Hubs {}

impl Hubs {
    /// `groups` beside `$Default`.
    pub fn create_hub(
        &mut self,
        now: Timestamp,
        name: EntityName,
        id: HubId,
        settings: HubSettings,
        groups: &[ConsumerGroup],
        out: &mut Outbox,
    ) -> Result<HubView, Error> {
        todo_body!(self, now, name, id, settings, groups, out)
    }

    /// `expected`: the revision that the caller has read.
    pub fn update_hub(
        &mut self,
        now: Timestamp,
        name: &EntityName,
        settings: HubSettings,
        expected: Option<u64>,
        out: &mut Outbox,
    ) -> Result<HubView, Error> {
        todo_body!(self, now, name, settings, expected, out)
    }

    /// With its groups, ownerships and checkpoints. Its streams are deleted in their own shards.
    pub fn delete_hub(
        &mut self,
        name: &EntityName,
        expected: Option<u64>,
        out: &mut Outbox,
    ) -> Result<HubView, Error> {
        todo_body!(self, name, expected, out)
    }

    pub fn hub(&self, name: &EntityName) -> Result<HubView, Error> {
        todo_body!(self, name)
    }

    pub fn contains_hub(&self, name: &EntityName) -> bool {
        todo_body!(self, name)
    }

    /// By name, after `after`.
    pub fn hubs_after(&self, after: Option<&EntityName>) -> impl Iterator<Item = HubView> {
        let _ = after;
        std::iter::empty()
    }

    pub fn create_group(
        &mut self,
        now: Timestamp,
        name: &EntityName,
        group: ConsumerGroup,
        user_metadata: Option<String>,
        out: &mut Outbox,
    ) -> Result<HubView, Error> {
        todo_body!(self, now, name, group, user_metadata, out)
    }

    pub fn update_group(
        &mut self,
        now: Timestamp,
        name: &EntityName,
        group: ConsumerGroup,
        user_metadata: Option<String>,
        out: &mut Outbox,
    ) -> Result<HubView, Error> {
        todo_body!(self, now, name, group, user_metadata, out)
    }

    /// With its ownerships and checkpoints. Its readers are ended in the shards of the streams, see [`Hubs::end_group`].
    pub fn delete_group(
        &mut self,
        name: &EntityName,
        group: &ConsumerGroup,
        out: &mut Outbox,
    ) -> Result<HubView, Error> {
        todo_body!(self, name, group, out)
    }

    /// Applies a fact that was read back from the journal. After an error the machine is not to be used further.
    pub fn apply(&mut self, fact: &Fact) -> Result<(), ReplayError> {
        todo_body!(self, fact)
    }

    /// The durable state; volatile are readers.
    pub fn snapshot(&self, out: &mut Vec<u8>) {
        let _ = out;
    }

    pub fn restore(bytes: &[u8]) -> Result<Hubs, DecodeError> {
        let _ = bytes;
        Ok(Hubs::default())
    }
}
