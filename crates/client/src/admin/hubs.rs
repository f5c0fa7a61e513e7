//! Event hubs, their consumer groups, checkpoints and events.

use hyper::Method;
use peeklock_spec::{
    CheckpointInfo, CheckpointSource, ConsumerGroupInfo, HubRuntime, HubSpec, OwnershipInfo,
    PartitionRuntime, Properties,
};
use peeklock_types::EntityName;
use serde::{Deserialize, Serialize};

use super::http::{Call, If};
use super::subject::{Subject, encode};
use super::{Admin, AdminError, Items, Page};

/// A hub with its settings, and with what happens in it where one hub was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HubInfo {
    pub name: String,
    #[serde(flatten)]
    pub spec: HubSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<HubRuntime>,
    pub created_at: String,
    pub updated_at: String,
    pub revision: u64,
}

/// Where checkpoints shall be: `earliest`, `latest`, `none`, a time, or the number of the last event that counts as done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ResetTo {
    Sequence(u64),
    Text(String),
}

/// What a reset does to one checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckpointMove {
    pub partition: u32,
    /// Where it is kept.
    pub source: CheckpointSource,
    /// Of a blob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Absent: none. Before every event: -1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<i64>,
    pub repeated_events: u64,
    pub skipped_events: u64,
    /// Who owns the partition: if it still reads, it goes on where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// An event, as the JSON API tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventInfo {
    pub partition: u32,
    pub sequence_number: u64,
    pub offset: String,
    pub enqueued_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_key: Option<String>,
    pub size_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    #[serde(default)]
    pub properties: Properties,
    /// Its kind and its value.
    pub body: serde_json::Value,
}

/// Some events of a partition, and where those behind them start.
#[derive(Clone, Debug, PartialEq)]
pub struct EventPage {
    pub events: Vec<EventInfo>,
    /// `None`: there are none behind them now.
    pub next: Option<String>,
}

impl Admin {
    /// Creates a hub; one that is there already is [`AdminError::Exists`].
    pub async fn create_hub(&mut self, name: &EntityName, spec: &HubSpec) -> Result<HubInfo, AdminError> {
        self.put(&Subject::Hub(name.clone()), If::IsNew, spec).await
    }

    /// Changes what the spec says of a hub and leaves the rest as it is. Consumer groups are added, none is taken away.
    pub async fn update_hub(&mut self, name: &EntityName, spec: &HubSpec) -> Result<HubInfo, AdminError> {
        self.put(&Subject::Hub(name.clone()), If::Exists, spec).await
    }

    /// With what happens in it.
    pub async fn hub(&mut self, name: &EntityName) -> Result<HubInfo, AdminError> {
        self.get(&Subject::Hub(name.clone())).await
    }

    pub async fn hubs(&mut self) -> Result<Vec<HubInfo>, AdminError> {
        self.list(&Subject::Hubs).await
    }

    /// Deletes a hub with all its events.
    pub async fn delete_hub(&mut self, name: &EntityName) -> Result<(), AdminError> {
        self.delete(&Subject::Hub(name.clone())).await
    }

    pub async fn partitions(&mut self, hub: &EntityName) -> Result<Vec<PartitionRuntime>, AdminError> {
        let answer: Items<_> = self.get(&of_hub(hub, "partitions", "the partitions".to_owned())).await?;
        Ok(answer.items)
    }

    pub async fn partition(
        &mut self,
        hub: &EntityName,
        partition: u32,
    ) -> Result<PartitionRuntime, AdminError> {
        let path = format!("partitions/{partition}");
        self.get(&of_hub(hub, &path, format!("partition {partition}"))).await
    }

    pub async fn create_consumer_group(
        &mut self,
        hub: &EntityName,
        group: &str,
        user_metadata: Option<&str>,
    ) -> Result<ConsumerGroupInfo, AdminError> {
        let body = serde_json::json!({ "userMetadata": user_metadata });
        self.put(&consumer_group(hub, group), If::IsNew, &body).await
    }

    pub async fn consumer_groups(&mut self, hub: &EntityName) -> Result<Vec<ConsumerGroupInfo>, AdminError> {
        self.list(&of_hub(hub, "consumer-groups", "the consumer groups".to_owned())).await
    }

    /// Deletes a consumer group with its ownerships and checkpoints; its readers are ended.
    pub async fn delete_consumer_group(&mut self, hub: &EntityName, group: &str) -> Result<(), AdminError> {
        self.delete(&consumer_group(hub, group)).await
    }

    /// How far a consumer group has come in each partition, and how far it is behind.
    pub async fn checkpoints(
        &mut self,
        hub: &EntityName,
        group: &str,
    ) -> Result<Vec<CheckpointInfo>, AdminError> {
        let answer: Items<_> = self.get(&checkpoints(hub, group)).await?;
        Ok(answer.items)
    }

    pub async fn ownerships(
        &mut self,
        hub: &EntityName,
        group: &str,
    ) -> Result<Vec<OwnershipInfo>, AdminError> {
        let path = format!("consumer-groups/{}/ownerships", encode(group));
        let subject = of_hub(hub, &path, format!("the owners of consumer group '{group}'"));
        let answer: Items<_> = self.get(&subject).await?;
        Ok(answer.items)
    }

    /// Moves the checkpoints of a consumer group, of one partition or of all. With `dry_run` it only tells what it would do.
    pub async fn reset_checkpoints(
        &mut self,
        hub: &EntityName,
        group: &str,
        partition: Option<u32>,
        to: &ResetTo,
        dry_run: bool,
    ) -> Result<Vec<CheckpointMove>, AdminError> {
        let body = serde_json::json!({ "to": to, "partition": partition, "dryRun": dry_run });
        let answer: Items<_> = self.post(&consumer_group(hub, group), "reset", &body).await?;
        Ok(answer.items)
    }

    /// Looks at events of a partition: from `earliest`, `latest`, a sequence number or a time on, `max` at most.
    pub async fn events(
        &mut self,
        hub: &EntityName,
        partition: u32,
        from: &str,
        max: usize,
    ) -> Result<EventPage, AdminError> {
        let path = format!("partitions/{partition}/events");
        let subject = of_hub(hub, &path, format!("the events of partition {partition}"));
        let mut call = Call::plain(Method::GET, &subject);
        call.rest = format!("?from={}&max={max}", encode(from));
        let page: Page<EventInfo> = self.ask(call).await?;
        Ok(EventPage { events: page.items, next: page.next })
    }
}

fn consumer_group(hub: &EntityName, group: &str) -> Subject {
    let path = format!("consumer-groups/{}", encode(group));
    of_hub(hub, &path, format!("consumer group '{group}'"))
}

fn checkpoints(hub: &EntityName, group: &str) -> Subject {
    let path = format!("consumer-groups/{}/checkpoints", encode(group));
    of_hub(hub, &path, format!("the checkpoints of consumer group '{group}'"))
}

fn of_hub(hub: &EntityName, path: &str, told: String) -> Subject {
    Subject::OfHub { hub: hub.clone(), path: path.to_owned(), told }
}
