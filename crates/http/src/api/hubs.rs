//! Event hubs and their partitions.

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use peeklock_api::{HubRuntime, PartitionRuntime, ReaderRuntime};
use peeklock_broker::PartitionInfo;
use peeklock_broker::hubs::HubView;
use peeklock_spec::{HubSpec, show_time};
use peeklock_types::ConsumerGroup;
use serde::Serialize;

use super::{Call, done, json, plain_name, shape};
use crate::entity::{self, ATTEMPT_COUNT_MAX, changed_meanwhile};
use crate::problem::Problem;
use crate::request::Condition;

/// A hub as it is told: its settings, and with `runtime` what happens in it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Hub {
    name: String,
    #[serde(flatten)]
    spec: HubSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime: Option<HubRuntime>,
    created_at: String,
    updated_at: String,
    revision: u64,
}

impl Hub {
    fn of(view: &HubView, runtime: Option<HubRuntime>) -> Self {
        let groups = view.groups.iter().map(|group| group.name.clone()).collect();
        Hub {
            name: view.name.to_string(),
            spec: HubSpec { consumer_groups: Some(groups), ..HubSpec::of(&view.settings) },
            runtime,
            created_at: show_time(view.created_at),
            updated_at: show_time(view.updated_at),
            revision: view.revision,
        }
    }
}

pub(super) fn partition_runtime(info: &PartitionInfo) -> PartitionRuntime {
    let PartitionInfo { view, traffic, .. } = info;
    let readers = view.readers.iter().map(|reader| ReaderRuntime {
        consumer_group: reader.group.to_string(),
        name: reader.name.clone(),
        owner_level: reader.owner_level,
        next_sequence_number: reader.next_sequence,
    });
    PartitionRuntime {
        partition: view.partition,
        begin_sequence_number: view.begin_sequence,
        last_sequence_number: last_sequence(view.next_sequence),
        event_count: view.next_sequence.saturating_sub(view.begin_sequence),
        size_bytes: view.size_bytes,
        received_bytes: traffic.received_bytes,
        read_bytes: traffic.read_bytes,
        read_event_count: traffic.read_events,
        first_enqueued_at: view.first_enqueued_at.map(show_time),
        last_enqueued_at: view.last_enqueued_at.map(show_time),
        readers: readers.collect(),
    }
}

/// −1: there never was an event.
pub(super) fn last_sequence(next_sequence: u64) -> i64 {
    i64::try_from(next_sequence).unwrap_or(i64::MAX) - 1
}

impl Call<'_> {
    /// The hub in the path.
    pub(super) async fn hub(&self) -> Result<HubView, Problem> {
        Ok(self.namespace.broker.hub(self.entity()?).await?)
    }

    /// The hub, and a group that it has.
    pub(super) async fn hub_and_group(&self) -> Result<(HubView, ConsumerGroup), Problem> {
        let (hub, group) = (self.hub().await?, self.group()?);
        let found = hub.groups.iter().find(|known| known.name == group).map(|known| known.name.clone());
        match found {
            Some(group) => Ok((hub, group)),
            None => Err(Problem::NotFound(format!("the hub '{}' has no consumer group '{group}'", hub.name))),
        }
    }

    pub(super) async fn list_hubs(&self) -> Result<Response, Problem> {
        let after = self.head.query("after").map(plain_name).transpose()?;
        let top = self.top()?;
        // One more than asked for tells whether there is a next page.
        let mut found = self.namespace.broker.hubs(after, top.saturating_add(1)).await?;
        let is_more = found.len() > top;
        found.truncate(top);
        let next = found.last().filter(|_| is_more).map(|hub| hub.name.to_string());
        let items = found.iter().map(|hub| Hub::of(hub, None)).collect();
        json(StatusCode::OK, None, &shape::Page { items, next })
    }

    pub(super) async fn show_hub(&self) -> Result<Response, Problem> {
        let hub = self.hub().await?;
        self.respond_hub(StatusCode::OK, &hub).await
    }

    async fn respond_hub(&self, status: StatusCode, hub: &HubView) -> Result<Response, Problem> {
        let partitions = self.partition_runtimes(hub).await?;
        let sum = |of: fn(&PartitionRuntime) -> u64| partitions.iter().map(of).fold(0, u64::saturating_add);
        let runtime = HubRuntime {
            event_count: sum(|partition| partition.event_count),
            size_bytes: sum(|partition| partition.size_bytes),
            reader_count: sum(|partition| partition.readers.len() as u64),
            received_bytes: sum(|partition| partition.received_bytes),
            read_bytes: sum(|partition| partition.read_bytes),
            read_event_count: sum(|partition| partition.read_event_count),
            partitions,
        };
        json(status, Some(hub.revision), &Hub::of(hub, Some(runtime)))
    }

    async fn partition_runtimes(&self, hub: &HubView) -> Result<Vec<PartitionRuntime>, Problem> {
        let found = self.namespace.broker.partitions(hub).await?;
        Ok(found.iter().map(partition_runtime).collect())
    }

    /// A hub has few enough partitions for one answer.
    pub(super) async fn list_partitions(&self) -> Result<Response, Problem> {
        let items = self.partition_runtimes(&self.hub().await?).await?;
        json(StatusCode::OK, None, &shape::Page { items, next: None })
    }

    pub(super) async fn show_partition(&self) -> Result<Response, Problem> {
        let found = self.namespace.broker.partition(&self.hub().await?, self.partition()?, None).await?;
        json(StatusCode::OK, None, &partition_runtime(&found))
    }

    pub(super) async fn delete_hub(&self) -> Result<Response, Problem> {
        let name = self.entity()?;
        let expected = match self.head.condition() {
            Condition::None | Condition::Exists => None,
            Condition::Revision(revision) => Some(revision),
            Condition::Unknown | Condition::IsNew => return Err(changed_meanwhile(&name)),
        };
        entity::delete_hub(self.namespace, name, expected).await?;
        Ok(done())
    }

    pub(super) async fn put_hub(&self, body: Body) -> Result<Response, Problem> {
        let spec: HubSpec = self.body(body).await?;
        let name = self.entity()?;
        let condition = self.head.condition();
        for _ in 0..ATTEMPT_COUNT_MAX {
            let current = match self.namespace.broker.hub(name.clone()).await.map_err(Problem::from) {
                Ok(current) => Some(current),
                Err(Problem::NotFound(_)) => None,
                Err(problem) => return Err(problem),
            };
            let result = match (current, &condition) {
                (None, Condition::None | Condition::IsNew) => {
                    entity::create_hub(self.namespace, name.clone(), spec.settings(), spec.groups())
                        .await
                        .map(|hub| (StatusCode::CREATED, hub))
                }
                (None, _) => return Err(Problem::NotFound(format!("there is no hub '{name}'"))),
                (Some(_), Condition::IsNew) => {
                    return Err(Problem::Exists(format!("'{name}' exists already")));
                }
                (Some(current), condition) => {
                    self.update_hub(current, &spec, condition).await.map(|hub| (StatusCode::OK, hub))
                }
            };
            match result {
                // Only for a change that any state will do for.
                Err(Problem::Conflict(_)) if matches!(condition, Condition::None | Condition::Exists) => {}
                Ok((status, hub)) => return self.respond_hub(status, &hub).await,
                Err(problem) => return Err(problem),
            }
        }
        Err(Problem::Conflict(format!("'{name}' is being changed by others; try again")))
    }

    async fn update_hub(
        &self,
        current: HubView,
        spec: &HubSpec,
        condition: &Condition,
    ) -> Result<HubView, Problem> {
        let expected = match condition {
            Condition::Revision(revision) => Some(*revision),
            Condition::Unknown => return Err(changed_meanwhile(&current.name)),
            _ => None,
        };
        if expected.is_some_and(|expected| expected != current.revision) {
            return Err(changed_meanwhile(&current.name));
        }
        let mut settings = current.settings.clone();
        spec.apply(&mut settings);
        let (broker, name) = (&self.namespace.broker, current.name.clone());
        let mut hub = if settings == current.settings {
            current
        } else {
            let updated = broker.update_hub(name.clone(), settings, Some(current.revision)).await;
            updated.map_err(|error| entity::update_problem(error, expected.is_some()))?
        };
        for group in spec.groups() {
            if hub.groups.iter().all(|known| known.name != group) {
                hub = broker.create_group(name.clone(), group, None).await?;
            }
        }
        Ok(hub)
    }
}
