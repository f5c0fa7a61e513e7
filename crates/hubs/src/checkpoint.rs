//! Who owns a partition for a consumer group, and how far the group has come.

use peeklock_types::{ConsumerGroup, EntityName, Timestamp};

use crate::error::Error;
use crate::hub::Hubs;
use crate::{Outbox, todo_body};

/// Changes with each change of an ownership, and is never used again for the same partition and group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Etag(pub u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    pub partition: u32,
    /// Empty: it was given up.
    pub owner: String,
    /// Grows when another owner takes over, and stays when an owner renews.
    pub epoch: u64,
    pub etag: Etag,
    pub modified_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Of the last event that is done with.
    pub sequence: u64,
    pub at: Timestamp,
}

/// Who says how far the group has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointBy {
    /// An owner: refused if it no longer owns the partition.
    Owner { owner: String, epoch: u64 },
    /// Somebody who needs no ownership, because nobody ever claimed the partition (or it was given up); refused if there is an owner.
    Anyone,
    /// An operator, who may also go back.
    Reset,
}

impl Hubs {
    /// Claims, renews or (with an empty `owner`) gives up a partition. `expected`: the etag that the caller has read; `None`: there was no record.
    #[expect(clippy::too_many_arguments, reason = "a key, a value and a condition")]
    pub fn claim(
        &mut self,
        now: Timestamp,
        hub: &EntityName,
        group: &ConsumerGroup,
        partition: u32,
        owner: &str,
        expected: Option<Etag>,
        out: &mut Outbox,
    ) -> Result<Ownership, Error> {
        todo_body!(self, now, hub, group, partition, owner, expected, out)
    }

    /// By partition.
    pub fn ownerships(&self, hub: &EntityName, group: &ConsumerGroup) -> Result<Vec<Ownership>, Error> {
        todo_body!(self, hub, group)
    }

    /// `sequence`: of the last event that is done with; `None` takes the checkpoint away, which only [`CheckpointBy::Reset`] may.
    #[expect(clippy::too_many_arguments, reason = "a key, a value and who says so")]
    pub fn checkpoint(
        &mut self,
        now: Timestamp,
        hub: &EntityName,
        group: &ConsumerGroup,
        partition: u32,
        sequence: Option<u64>,
        by: &CheckpointBy,
        out: &mut Outbox,
    ) -> Result<Option<Checkpoint>, Error> {
        todo_body!(self, now, hub, group, partition, sequence, by, out)
    }

    /// By partition.
    pub fn checkpoints(
        &self,
        hub: &EntityName,
        group: &ConsumerGroup,
    ) -> Result<Vec<(u32, Checkpoint)>, Error> {
        todo_body!(self, hub, group)
    }
}
