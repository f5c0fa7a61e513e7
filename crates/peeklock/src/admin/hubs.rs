//! Event hubs with their consumer groups and checkpoints.

use peeklock_client::{
    AdminError, CheckpointInfo, CheckpointMove, ConsumerGroupInfo, EventInfo, HubInfo, OwnershipInfo, Page,
    PartitionRuntime, ResetTo,
};

use super::{Admin, Hub, entity};
use crate::error::Error;

impl Admin {
    /// Creates an event hub. If the name is taken, the error is of the kind [`Exists`](crate::Kind::Exists).
    pub async fn create_hub(&self, name: &str, hub: impl Into<Hub>) -> Result<HubInfo, Error> {
        let (name, spec) = (entity(name)?, hub.into().checked()?);
        attempts!(self, Always, |admin, is_repeated| {
            match admin.create_hub(&name, &spec).await {
                Err(AdminError::Exists { .. }) if is_repeated => admin.hub(&name).await,
                created => created,
            }
        })
    }

    /// Changes the settings that `changes` has; the others keep their values. Consumer groups are added and never removed.
    pub async fn update_hub(&self, name: &str, changes: impl Into<Hub>) -> Result<HubInfo, Error> {
        let (name, spec) = (entity(name)?, changes.into().checked()?);
        attempts!(self, Always, |admin| admin.update_hub(&name, &spec).await)
    }

    /// Returns a hub with its settings and state.
    pub async fn hub(&self, name: &str) -> Result<HubInfo, Error> {
        let name = entity(name)?;
        attempts!(self, Always, |admin| admin.hub(&name).await)
    }

    /// Lists all hubs by name.
    pub async fn hubs(&self) -> Result<Vec<HubInfo>, Error> {
        attempts!(self, Always, |admin| admin.hubs().await)
    }

    /// Deletes a hub with its events.
    pub async fn delete_hub(&self, name: &str) -> Result<(), Error> {
        let name = entity(name)?;
        attempts!(self, Always, |admin, is_repeated| {
            match admin.delete_hub(&name).await {
                Err(AdminError::NotFound { .. }) if is_repeated => Ok(()),
                deleted => deleted,
            }
        })
    }

    /// Lists the partitions of a hub with their positions.
    pub async fn partitions(&self, hub: &str) -> Result<Vec<PartitionRuntime>, Error> {
        let hub = entity(hub)?;
        attempts!(self, Always, |admin| admin.partitions(&hub).await)
    }

    /// Returns a partition of a hub with its positions.
    pub async fn partition(&self, hub: &str, partition: u32) -> Result<PartitionRuntime, Error> {
        let hub = entity(hub)?;
        attempts!(self, Always, |admin| admin.partition(&hub, partition).await)
    }

    /// Creates a consumer group.
    pub async fn create_consumer_group(
        &self,
        hub: &str,
        group: &str,
        user_metadata: Option<&str>,
    ) -> Result<ConsumerGroupInfo, Error> {
        let hub = entity(hub)?;
        attempts!(self, Always, |admin, is_repeated| {
            match admin.create_consumer_group(&hub, group, user_metadata).await {
                Err(AdminError::Exists { .. }) if is_repeated => {
                    let groups = admin.consumer_groups(&hub).await?;
                    let found = groups.into_iter().find(|found| found.name.eq_ignore_ascii_case(group));
                    found.ok_or_else(|| AdminError::Changed { subject: format!("consumer group '{group}'") })
                }
                created => created,
            }
        })
    }

    /// Lists the consumer groups of a hub by name.
    pub async fn consumer_groups(&self, hub: &str) -> Result<Vec<ConsumerGroupInfo>, Error> {
        let hub = entity(hub)?;
        attempts!(self, Always, |admin| admin.consumer_groups(&hub).await)
    }

    /// Deletes a consumer group with its ownerships and checkpoints; its readers end.
    pub async fn delete_consumer_group(&self, hub: &str, group: &str) -> Result<(), Error> {
        let hub = entity(hub)?;
        attempts!(self, Always, |admin, is_repeated| {
            match admin.delete_consumer_group(&hub, group).await {
                Err(AdminError::NotFound { .. } | AdminError::Missing { .. }) if is_repeated => Ok(()),
                deleted => deleted,
            }
        })
    }

    /// Lists the checkpoints of a consumer group, with its lag in each partition.
    pub async fn checkpoints(&self, hub: &str, group: &str) -> Result<Vec<CheckpointInfo>, Error> {
        let hub = entity(hub)?;
        attempts!(self, Always, |admin| admin.checkpoints(&hub, group).await)
    }

    /// Lists the owners of the partitions in a consumer group.
    pub async fn ownerships(&self, hub: &str, group: &str) -> Result<Vec<OwnershipInfo>, Error> {
        let hub = entity(hub)?;
        attempts!(self, Always, |admin| admin.ownerships(&hub, group).await)
    }

    /// Moves the checkpoints of a consumer group, of one partition or of all. With `dry_run`, the broker only computes the moves.
    pub async fn reset_checkpoints(
        &self,
        hub: &str,
        group: &str,
        partition: Option<u32>,
        to: &ResetTo,
        dry_run: bool,
    ) -> Result<Vec<CheckpointMove>, Error> {
        let hub = entity(hub)?;
        attempts!(self, Unsent, |admin| admin.reset_checkpoints(&hub, group, partition, to, dry_run).await)
    }

    /// Returns at most `max` events of a partition. `from` is `earliest`, `latest`, a sequence number or a time.
    pub async fn events(
        &self,
        hub: &str,
        partition: u32,
        from: &str,
        max: usize,
    ) -> Result<Page<EventInfo>, Error> {
        let hub = entity(hub)?;
        attempts!(self, Always, |admin| admin.events(&hub, partition, from, max).await)
    }
}
