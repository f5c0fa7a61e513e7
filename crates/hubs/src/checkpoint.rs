//! Owners and checkpoints of partitions in a consumer group.

use peeklock_types::{ConsumerGroup, EntityName, Etag, Timestamp, limits};

use crate::Output;
use crate::error::Error;
use crate::fact::Fact;
use crate::hub::Hubs;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    pub partition: u32,
    /// The name of the owner. Empty: the ownership was given up.
    pub owner: String,
    /// Grows when another owner takes over, and stays the same when the owner renews.
    pub epoch: u64,
    pub etag: Etag,
    pub modified_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The last event that was handled.
    pub sequence: u64,
    pub at: Timestamp,
}

/// The writer of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointBy {
    /// An owner. It is rejected if it is not the current owner of the partition.
    Owner { owner: String, epoch: u64 },
    /// A writer without ownership, for a partition that was never claimed or was given up. It is rejected if there is
    /// an owner.
    Anyone,
    /// An operator, who may also move a checkpoint back.
    Reset,
}

/// The state of a consumer group for one partition.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) owned: Option<Owned>,
    pub(crate) checkpoint: Option<Checkpoint>,
}

/// An [`Ownership`] without the number of its partition.
#[derive(Clone, Debug)]
pub(crate) struct Owned {
    pub(crate) owner: String,
    pub(crate) epoch: u64,
    pub(crate) etag: Etag,
    pub(crate) modified_at: Timestamp,
}

impl Owned {
    fn view(&self, partition: u32) -> Ownership {
        Ownership {
            partition,
            owner: self.owner.clone(),
            epoch: self.epoch,
            etag: self.etag,
            modified_at: self.modified_at,
        }
    }
}

/// The length to which a name that is too long is cut in an error.
const TOLD_CHARS: usize = 40;

pub(crate) fn check_owner(owner: &str) -> Result<(), Error> {
    if owner.chars().count() <= limits::OWNER_CHARS_MAX {
        return Ok(());
    }
    let given = owner.chars().take(TOLD_CHARS).chain(['…']).collect();
    Err(Error::OwnerName { given })
}

/// Checks that the writer may write the checkpoint.
fn check_right(owned: Option<&Owned>, by: &CheckpointBy) -> Result<(), Error> {
    let current = owned.filter(|owned| !owned.owner.is_empty());
    match (by, current) {
        (CheckpointBy::Reset, _) | (CheckpointBy::Anyone, None) => Ok(()),
        (CheckpointBy::Anyone, Some(owned)) => {
            Err(Error::Owned { current: owned.owner.clone(), current_epoch: owned.epoch })
        }
        (CheckpointBy::Owner { owner, epoch }, Some(owned))
            if owned.owner == *owner && owned.epoch == *epoch =>
        {
            Ok(())
        }
        (CheckpointBy::Owner { owner, epoch }, current) => Err(Error::NotOwner {
            owner: owner.clone(),
            epoch: *epoch,
            current: current.map(|owned| owned.owner.clone()).unwrap_or_default(),
            current_epoch: owned.map_or(0, |owned| owned.epoch),
        }),
    }
}

impl Hubs {
    /// Claims, renews or (with an empty `owner`) gives up a partition. `expected` is the etag that the caller has read,
    /// or `None` if there was no record.
    #[expect(clippy::too_many_arguments, reason = "a key, a value and a condition")]
    pub fn claim(
        &mut self,
        now: Timestamp,
        hub: &EntityName,
        group: &ConsumerGroup,
        partition: u32,
        owner: &str,
        expected: Option<Etag>,
        out: &mut Output,
    ) -> Result<Ownership, Error> {
        let current = self.progress(hub, group, partition)?.and_then(|progress| progress.owned.as_ref());
        check_owner(owner)?;
        match (current, expected) {
            (None, Some(_)) => return Err(Error::NeverOwned),
            (Some(current), _) if expected != Some(current.etag) => {
                return Err(Error::StaleEtag { current: Box::new(current.view(partition)) });
            }
            _ => {}
        }
        let last_epoch = current.map_or(0, |current| current.epoch);
        let takes_over = !owner.is_empty() && current.is_none_or(|current| current.owner != owner);
        let claimed = Owned {
            owner: owner.to_owned(),
            // Like an etag, an epoch is never reused: a consumer group that was deleted and created again has no former
            // owner.
            epoch: if takes_over { self.next_etag.max(last_epoch.saturating_add(1)) } else { last_epoch },
            etag: Etag(self.next_etag),
            modified_at: now,
        };
        let view = claimed.view(partition);
        let Owned { owner, epoch, etag, modified_at: at } = claimed;
        let (name, group) = (hub.clone(), group.clone());
        self.record(Fact::Claimed { name, group, partition, owner, epoch, etag, at }, out);
        Ok(view)
    }

    /// Returns the ownerships by partition.
    pub fn ownerships(&self, hub: &EntityName, group: &ConsumerGroup) -> Result<Vec<Ownership>, Error> {
        let progress = self.known_group(hub, group)?.progress.iter();
        Ok(progress
            .filter_map(|(partition, progress)| Some(progress.owned.as_ref()?.view(*partition)))
            .collect())
    }

    /// Writes a checkpoint. `sequence` is the last event that was handled; `None` removes the checkpoint, which only
    /// [`CheckpointBy::Reset`] may.
    #[expect(clippy::too_many_arguments, reason = "a key, a value and its writer")]
    pub fn checkpoint(
        &mut self,
        now: Timestamp,
        hub: &EntityName,
        group: &ConsumerGroup,
        partition: u32,
        sequence: Option<u64>,
        by: &CheckpointBy,
        out: &mut Output,
    ) -> Result<Option<Checkpoint>, Error> {
        let progress = self.progress(hub, group, partition)?;
        let current = progress.and_then(|progress| progress.checkpoint);
        check_right(progress.and_then(|progress| progress.owned.as_ref()), by)?;
        if sequence.is_none() && *by != CheckpointBy::Reset {
            return Err(Error::OnlyReset);
        }
        match (current, sequence) {
            (Some(current), Some(found)) if found < current.sequence && *by != CheckpointBy::Reset => {
                return Err(Error::Backwards { current: current.sequence, found, at: current.at });
            }
            // The checkpoint already has this value.
            _ if current.map(|current| current.sequence) == sequence => return Ok(current),
            _ => {}
        }
        let checkpoint = sequence.map(|sequence| Checkpoint { sequence, at: now });
        let (name, group) = (hub.clone(), group.clone());
        self.record(Fact::Checkpointed { name, group, partition, checkpoint }, out);
        Ok(checkpoint)
    }

    /// Returns the checkpoints by partition.
    pub fn checkpoints(
        &self,
        hub: &EntityName,
        group: &ConsumerGroup,
    ) -> Result<Vec<(u32, Checkpoint)>, Error> {
        let progress = self.known_group(hub, group)?.progress.iter();
        Ok(progress.filter_map(|(partition, progress)| Some((*partition, progress.checkpoint?))).collect())
    }

    /// Returns the state of the consumer group for an existing partition; `None` if there is none yet.
    fn progress(
        &self,
        hub: &EntityName,
        group: &ConsumerGroup,
        partition: u32,
    ) -> Result<Option<&Progress>, Error> {
        let count = self.known_hub(hub)?.settings.partition_count;
        let group = self.known_group(hub, group)?;
        if partition >= count {
            return Err(Error::NoSuchPartition { name: hub.clone(), partition, count });
        }
        Ok(group.progress.get(&partition))
    }
}
