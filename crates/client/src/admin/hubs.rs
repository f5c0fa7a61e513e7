//! Event hubs, their consumer groups, checkpoints and events.

use peeklock_api::{
    CheckpointInfo, CheckpointMove, CheckpointReset, ConsumerGroupBody, ConsumerGroupInfo, EventInfo,
    EventsQuery, HubInfo, OwnershipInfo, Page, PartitionRuntime, ResetTo, checkpoints, consumer_groups,
    events, hubs, ownerships, partitions,
};
use peeklock_spec::HubSpec;
use peeklock_types::EntityName;

use super::http::If;
use super::subject::Subject;
use super::{Admin, AdminError};

impl Admin {
    /// Creates a hub; if the name is taken, this is [`AdminError::Exists`].
    pub async fn create_hub(&mut self, name: &EntityName, spec: &HubSpec) -> Result<HubInfo, AdminError> {
        self.put(&hubs::PUT, &Subject::Hub(name.clone()), If::IsNew, spec).await
    }

    /// Changes the settings that the spec has; the others keep their values. Consumer groups are added and never removed.
    pub async fn update_hub(&mut self, name: &EntityName, spec: &HubSpec) -> Result<HubInfo, AdminError> {
        self.put(&hubs::PUT, &Subject::Hub(name.clone()), If::Exists, spec).await
    }

    /// Returns a hub with its settings and state.
    pub async fn hub(&mut self, name: &EntityName) -> Result<HubInfo, AdminError> {
        self.get(&hubs::SHOW, &Subject::Hub(name.clone())).await
    }

    /// Lists all hubs by name.
    pub async fn hubs(&mut self) -> Result<Vec<HubInfo>, AdminError> {
        self.list(&hubs::LIST, &Subject::Hubs).await
    }

    /// Deletes a hub with its events.
    pub async fn delete_hub(&mut self, name: &EntityName) -> Result<(), AdminError> {
        self.delete(&hubs::DELETE, &Subject::Hub(name.clone())).await
    }

    /// Lists the partitions of a hub with their positions.
    pub async fn partitions(&mut self, hub: &EntityName) -> Result<Vec<PartitionRuntime>, AdminError> {
        let subject = of_hub(hub, [], "the partitions".to_owned());
        Ok(self.get(&partitions::LIST, &subject).await?.items)
    }

    /// Returns a partition of a hub with its positions.
    pub async fn partition(
        &mut self,
        hub: &EntityName,
        partition: u32,
    ) -> Result<PartitionRuntime, AdminError> {
        let names = [("partition", partition.to_string())];
        self.get(&partitions::SHOW, &of_hub(hub, names, format!("partition {partition}"))).await
    }

    /// Creates a consumer group, or changes its metadata.
    pub async fn create_consumer_group(
        &mut self,
        hub: &EntityName,
        group: &str,
        user_metadata: Option<&str>,
    ) -> Result<ConsumerGroupInfo, AdminError> {
        let body = ConsumerGroupBody { user_metadata: user_metadata.map(str::to_owned) };
        self.put(&consumer_groups::PUT, &of_group(hub, group, ""), If::IsNew, &body).await
    }

    /// Lists the consumer groups of a hub by name.
    pub async fn consumer_groups(&mut self, hub: &EntityName) -> Result<Vec<ConsumerGroupInfo>, AdminError> {
        self.list(&consumer_groups::LIST, &of_hub(hub, [], "the consumer groups".to_owned())).await
    }

    /// Deletes a consumer group with its ownerships and checkpoints; its readers end.
    pub async fn delete_consumer_group(&mut self, hub: &EntityName, group: &str) -> Result<(), AdminError> {
        self.delete(&consumer_groups::DELETE, &of_group(hub, group, "")).await
    }

    /// Lists the checkpoints of a consumer group, with its lag in each partition.
    pub async fn checkpoints(
        &mut self,
        hub: &EntityName,
        group: &str,
    ) -> Result<Vec<CheckpointInfo>, AdminError> {
        Ok(self.get(&checkpoints::LIST, &of_group(hub, group, "the checkpoints of ")).await?.items)
    }

    /// Lists the owners of the partitions in a consumer group.
    pub async fn ownerships(
        &mut self,
        hub: &EntityName,
        group: &str,
    ) -> Result<Vec<OwnershipInfo>, AdminError> {
        Ok(self.get(&ownerships::LIST, &of_group(hub, group, "the owners of ")).await?.items)
    }

    /// Moves the checkpoints of a consumer group, of one partition or of all. With `dry_run`, the broker only computes the moves.
    pub async fn reset_checkpoints(
        &mut self,
        hub: &EntityName,
        group: &str,
        partition: Option<u32>,
        to: &ResetTo,
        dry_run: bool,
    ) -> Result<Vec<CheckpointMove>, AdminError> {
        let body = CheckpointReset { to: to.clone(), partition, dry_run };
        Ok(self.post(&checkpoints::RESET, &of_group(hub, group, ""), &body).await?.items)
    }

    /// Returns at most `max` events of a partition. `from` is `earliest`, `latest`, a sequence number or a time.
    pub async fn events(
        &mut self,
        hub: &EntityName,
        partition: u32,
        from: &str,
        max: usize,
    ) -> Result<Page<EventInfo>, AdminError> {
        let names = [("partition", partition.to_string())];
        let subject = of_hub(hub, names, format!("the events of partition {partition}"));
        let query = EventsQuery { from: Some(from.to_owned()), max: Some(max as u64) };
        self.ask(&events::LIST, &subject, &query).await
    }
}

/// Returns the subject of a request about a consumer group. `what` is the prefix of its name in errors.
fn of_group(hub: &EntityName, group: &str, what: &str) -> Subject {
    of_hub(hub, [("consumerGroup", group.to_owned())], format!("{what}consumer group '{group}'"))
}

fn of_hub<const N: usize>(hub: &EntityName, names: [(&'static str, String); N], told: String) -> Subject {
    Subject::OfHub { hub: hub.clone(), names: names.into(), told }
}
