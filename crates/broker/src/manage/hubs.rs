//! Calls about hubs. A hub spans several shards: its name is in one, its partitions are in others. The hub itself is
//! authoritative: its streams are opened before it is created and deleted after it is removed, and the next start
//! repairs the remains of a crash in between. Changes run one at a time, so that all parts of a hub have the same
//! settings.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use peeklock_hubs::{Checkpoint, CheckpointBy, HubView, Ownership, StreamSpec};
use peeklock_types::{ConsumerGroup, EntityName, Etag, HubId, HubSettings};

use super::AdminError;
use crate::broker::{Broker, ShardStopped};
use crate::hub::{Lag, Partition, PartitionInfo};
use crate::reply::Error;
use crate::request::entities::Find;
use crate::request::hubs::{
    Claim, CreateConsumerGroup, CreateHub, DeleteConsumerGroup, DeleteHub, DeleteStreams, EndConsumerGroup,
    ListCheckpoints, ListHubs, ListOwnerships, ListPartitions, OpenStreams, SetCheckpoint, ShowHub,
    ShowPartition, ShowPartitions, UpdateConsumerGroup, UpdateHub,
};

impl Broker {
    /// Creates a hub with the consumer groups `groups` and `$Default`.
    pub async fn create_hub(
        &self,
        name: EntityName,
        settings: HubSettings,
        groups: Vec<ConsumerGroup>,
    ) -> Result<HubView, AdminError> {
        name.check_new().map_err(Error::from)?;
        settings.check().map_err(peeklock_hubs::Error::from).map_err(Error::from)?;
        let _turn = self.quota_turn().await;
        self.check_hub_count(&name, &groups).await?;
        let settings = self.hub_within_quotas(settings)?;
        self.change_hub(|broker| async move { broker.create_alone(name, settings, groups).await }).await
    }

    /// Runs a change to its end, even if the caller is cancelled: half of a change would remain until the next start.
    async fn change_hub<T, F>(&self, change: impl FnOnce(Broker) -> F) -> Result<T, AdminError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, AdminError>> + Send + 'static,
    {
        let (turn, change) = (Arc::clone(&self.hub_changes), change(self.clone()));
        let done = tokio::spawn(async move {
            let _turn = turn.lock().await;
            change.await
        });
        done.await.unwrap_or_else(|_| Err(ShardStopped.into()))
    }

    async fn create_alone(
        &self,
        name: EntityName,
        settings: HubSettings,
        groups: Vec<ConsumerGroup>,
    ) -> Result<HubView, AdminError> {
        if self.queue_groups().contains_key(&name) {
            return Err(Error::NameOfQueueGroup { name }.into());
        }
        if self.find(&name).await? {
            return Err(self.taken(name).await);
        }
        let id = HubId(crate::shard::nonce());
        let count = settings.partition_count;
        let created = match self.open_streams(id, &name, &settings, 0..count).await {
            Ok(()) => {
                let settings = Box::new(settings);
                self.ask_at(&name, CreateHub { name: name.clone(), id, settings, groups }).await
            }
            Err(error) => Err(error),
        };
        if created.is_err() {
            self.delete_streams(id, &name, count).await;
        }
        created
    }

    async fn find(&self, name: &EntityName) -> Result<bool, AdminError> {
        match self.ask_at(name, Find { name: name.clone() }).await {
            Ok(_) => Ok(true),
            Err(AdminError::Refused(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn taken(&self, name: EntityName) -> AdminError {
        match self.hub(name.clone()).await {
            Ok(_) => Error::from(peeklock_hubs::Error::HubExists { name }).into(),
            Err(_) => Error::NameTaken { name, is_hub: false }.into(),
        }
    }

    /// Changes the settings of a hub. `expected` is the revision that the caller has read; `None` accepts any.
    pub async fn update_hub(
        &self,
        name: EntityName,
        settings: HubSettings,
        expected: Option<u64>,
    ) -> Result<HubView, AdminError> {
        let settings = self.hub_within_quotas(settings)?;
        self.change_hub(|broker| async move { broker.update_alone(name, settings, expected).await }).await
    }

    async fn update_alone(
        &self,
        name: EntityName,
        settings: HubSettings,
        expected: Option<u64>,
    ) -> Result<HubView, AdminError> {
        let old = self.hub(name.clone()).await?;
        let refused = |error| AdminError::from(Error::from(peeklock_hubs::Error::from(error)));
        settings.check().and_then(|()| old.settings.check_change(&settings)).map_err(refused)?;
        // Partitions are created before the hub lists them.
        let more = old.settings.partition_count..settings.partition_count;
        self.open_streams(old.id, &name, &settings, more).await?;
        let settings = Box::new(settings);
        let view = self.ask_at(&name, UpdateHub { name: name.clone(), settings, expected }).await?;
        self.open_streams(view.id, &name, &view.settings, 0..view.settings.partition_count).await?;
        Ok(view)
    }

    /// Deletes a hub with all its events.
    pub async fn delete_hub(&self, name: EntityName, expected: Option<u64>) -> Result<(), AdminError> {
        self.change_hub(|broker| async move { broker.delete_alone(name, expected).await }).await
    }

    async fn delete_alone(&self, name: EntityName, expected: Option<u64>) -> Result<(), AdminError> {
        let view = self.ask_at(&name, DeleteHub { name: name.clone(), expected }).await?;
        self.delete_streams(view.id, &name, view.settings.partition_count).await;
        Ok(())
    }

    pub async fn hub(&self, name: EntityName) -> Result<HubView, AdminError> {
        self.ask_at(&name.clone(), ShowHub { name }).await
    }

    /// Lists hubs by name, after `after`.
    pub async fn hubs(&self, after: Option<EntityName>, top: usize) -> Result<Vec<HubView>, AdminError> {
        let mut found = BTreeMap::new();
        for shard in 0..self.shard_count() {
            let hubs = self.ask(shard, ListHubs { after: after.clone(), top }).await?;
            found.extend(hubs.into_iter().map(|hub| (hub.name.clone(), hub)));
        }
        Ok(found.into_values().take(top).collect())
    }

    pub async fn create_group(
        &self,
        name: EntityName,
        group: ConsumerGroup,
        user_metadata: Option<String>,
    ) -> Result<HubView, AdminError> {
        let _turn = self.quota_turn().await;
        self.check_group_count(&name, &group).await?;
        self.ask_at(&name.clone(), CreateConsumerGroup { name, group, user_metadata }).await
    }

    pub async fn update_group(
        &self,
        name: EntityName,
        group: ConsumerGroup,
        user_metadata: Option<String>,
    ) -> Result<HubView, AdminError> {
        self.ask_at(&name.clone(), UpdateConsumerGroup { name, group, user_metadata }).await
    }

    /// Deletes a consumer group with its ownerships and checkpoints, and ends its readers.
    pub async fn delete_group(&self, name: EntityName, group: ConsumerGroup) -> Result<HubView, AdminError> {
        self.change_hub(|broker| async move { broker.delete_group_alone(name, group).await }).await
    }

    async fn delete_group_alone(
        &self,
        name: EntityName,
        group: ConsumerGroup,
    ) -> Result<HubView, AdminError> {
        let request = DeleteConsumerGroup { name: name.clone(), group: group.clone() };
        let view = self.ask_at(&name, request).await?;
        for shard in 0..self.shard_count() {
            let (hub, group, revision) = (view.id, group.clone(), view.revision);
            self.ask(shard, EndConsumerGroup { hub, group, revision }).await?;
        }
        Ok(view)
    }

    /// Returns all partitions of a hub, in order.
    pub async fn partitions(&self, hub: &HubView) -> Result<Vec<PartitionInfo>, AdminError> {
        self.partitions_after(hub, |_| None).await
    }

    /// Returns partitions with one request per shard.
    async fn partitions_after(
        &self,
        hub: &HubView,
        after: impl Fn(u32) -> Option<u64>,
    ) -> Result<Vec<PartitionInfo>, AdminError> {
        let mut found = BTreeMap::new();
        for (shard, numbers) in self.by_shard(&hub.name, 0..hub.settings.partition_count) {
            let wanted = |number: u32| (Partition { hub: hub.id, number }, after(number));
            let partitions = numbers.into_iter().map(wanted).collect();
            let infos = self.ask(shard, ShowPartitions { partitions }).await?;
            found.extend(infos.into_iter().map(|info| (info.view.partition, info)));
        }
        Ok(found.into_values().collect())
    }

    fn by_shard(&self, name: &EntityName, partitions: Range<u32>) -> BTreeMap<usize, Vec<u32>> {
        let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for number in partitions {
            found.entry(self.place_partition(name, number)).or_default().push(number);
        }
        found
    }

    /// Returns one partition. [`PartitionInfo::enqueued_after`] refers to `after`.
    pub async fn partition(
        &self,
        hub: &HubView,
        number: u32,
        after: Option<u64>,
    ) -> Result<PartitionInfo, AdminError> {
        let count = hub.settings.partition_count;
        if number >= count {
            let name = hub.name.clone();
            return Err(Error::from(peeklock_hubs::Error::NoSuchPartition {
                name,
                partition: number,
                count,
            })
            .into());
        }
        let shard = self.place_partition(&hub.name, number);
        let partition = Partition { hub: hub.id, number };
        self.ask(shard, ShowPartition { partition, after }).await
    }

    /// Claims, renews or (with an empty owner) releases a partition, if the etag is the one that the caller has read.
    pub async fn claim(
        &self,
        name: EntityName,
        group: ConsumerGroup,
        partition: u32,
        owner: String,
        expected: Option<Etag>,
    ) -> Result<Ownership, AdminError> {
        self.ask_at(&name.clone(), Claim { name, group, partition, owner, expected }).await
    }

    pub async fn ownerships(
        &self,
        name: EntityName,
        group: ConsumerGroup,
    ) -> Result<Vec<Ownership>, AdminError> {
        self.ask_at(&name.clone(), ListOwnerships { name, group }).await
    }

    /// Sets a checkpoint. `sequence` is the number of the last processed event; `None` removes the checkpoint.
    pub async fn checkpoint(
        &self,
        name: EntityName,
        group: ConsumerGroup,
        partition: u32,
        sequence: Option<u64>,
        by: CheckpointBy,
    ) -> Result<Option<Checkpoint>, AdminError> {
        if let Some(given) = sequence {
            let hub = self.hub(name.clone()).await?;
            let next = self.partition(&hub, partition, None).await?.view.next_sequence;
            if given >= next {
                let last = next.cast_signed() - 1;
                return Err(Error::from(peeklock_hubs::Error::BeyondEnd { partition, given, last }).into());
            }
        }
        self.ask_at(&name.clone(), SetCheckpoint { name, group, partition, sequence, by }).await
    }

    pub async fn checkpoints(
        &self,
        name: EntityName,
        group: ConsumerGroup,
    ) -> Result<Vec<(u32, Checkpoint)>, AdminError> {
        self.ask_at(&name.clone(), ListCheckpoints { name, group }).await
    }

    /// Returns the lag of a consumer group, by partition.
    pub async fn lag(&self, name: EntityName, group: ConsumerGroup) -> Result<Vec<Lag>, AdminError> {
        let hub = self.hub(name.clone()).await?;
        let checkpoints = self.checkpoints(name, group).await?.into_iter().collect();
        self.lag_behind(&hub, &checkpoints).await
    }

    /// Returns the lag behind the caller's checkpoints. Sends one request per shard, regardless of the number of
    /// partitions.
    pub async fn lag_behind(
        &self,
        hub: &HubView,
        checkpoints: &BTreeMap<u32, Checkpoint>,
    ) -> Result<Vec<Lag>, AdminError> {
        let after = |partition| checkpoints.get(&partition).map(|checkpoint| checkpoint.sequence);
        let infos = self.partitions_after(hub, after).await?;
        Ok(infos.into_iter().map(|info| lag(checkpoints.get(&info.view.partition).copied(), info)).collect())
    }

    /// Returns the lag in one partition.
    pub async fn partition_lag(
        &self,
        hub: &HubView,
        partition: u32,
        checkpoint: Option<Checkpoint>,
    ) -> Result<Lag, AdminError> {
        let after = checkpoint.map(|checkpoint| checkpoint.sequence);
        Ok(lag(checkpoint, self.partition(hub, partition, after).await?))
    }

    async fn open_streams(
        &self,
        hub: HubId,
        name: &EntityName,
        settings: &HubSettings,
        partitions: Range<u32>,
    ) -> Result<(), AdminError> {
        for (shard, numbers) in self.by_shard(name, partitions) {
            let spec =
                |partition| StreamSpec { hub, name: name.clone(), partition, settings: settings.clone() };
            let specs = numbers.into_iter().map(spec).collect();
            self.ask(shard, OpenStreams { specs }).await?;
        }
        Ok(())
    }

    /// Deletes streams. A stream that cannot be deleted now is deleted at the next start.
    async fn delete_streams(&self, hub: HubId, name: &EntityName, count: u32) {
        for (shard, numbers) in self.by_shard(name, 0..count) {
            let partitions = numbers.into_iter().map(|number| Partition { hub, number }).collect();
            if let Err(error) = self.ask(shard, DeleteStreams { partitions }).await {
                tracing::warn!("partitions of the deleted hub '{name}' are still there: {error}");
            }
        }
    }

    /// Repairs hubs after a crash: removes streams without a hub, and gives each hub its streams, with its settings.
    pub(crate) async fn mend_hubs(&self) {
        if let Err(error) = self.try_mend_hubs().await {
            tracing::error!("the partitions of hubs could not be looked through: {error}");
        }
    }

    async fn try_mend_hubs(&self) -> Result<(), AdminError> {
        let hubs = self.hubs(None, usize::MAX).await?;
        let alive: BTreeSet<HubId> = hubs.iter().map(|hub| hub.id).collect();
        for shard in 0..self.shard_count() {
            let streams = self.ask(shard, ListPartitions {}).await?;
            let partitions = streams.into_iter().map(|(partition, _)| partition);
            let partitions: Vec<_> = partitions.filter(|partition| !alive.contains(&partition.hub)).collect();
            if !partitions.is_empty() {
                self.ask(shard, DeleteStreams { partitions }).await?;
            }
        }
        for hub in hubs {
            self.open_streams(hub.id, &hub.name, &hub.settings, 0..hub.settings.partition_count).await?;
        }
        Ok(())
    }
}

fn lag(checkpoint: Option<Checkpoint>, PartitionInfo { view, enqueued_after, .. }: PartitionInfo) -> Lag {
    let after = checkpoint.map(|checkpoint| checkpoint.sequence);
    let next_wanted = after.map_or(view.begin_sequence, |after| after.saturating_add(1));
    let events = view.next_sequence.saturating_sub(next_wanted.max(view.begin_sequence));
    let oldest_at = if after.is_some() { enqueued_after } else { view.first_enqueued_at };
    Lag {
        partition: view.partition,
        checkpoint,
        begin_sequence: view.begin_sequence,
        next_sequence: view.next_sequence,
        events,
        oldest_at: oldest_at.filter(|_| events > 0),
    }
}
