//! Event hubs and their partitions.

use http::StatusCode;
use peeklock_access::Right;
use peeklock_api::{HubInfo, HubRuntime, Page, PageQuery, PartitionRuntime, ReaderRuntime, hubs, partitions};
use peeklock_broker::PartitionInfo;
use peeklock_broker::hubs::HubView;
use peeklock_spec::{HubSpec, show_time};
use peeklock_types::ConsumerGroup;

use super::call::{Answer, Call};
use super::names::plain_name;
use super::route::{Route, route};
use crate::entity::{self, ATTEMPT_COUNT_MAX, changed_meanwhile};
use crate::problem::Problem;
use crate::request::Condition;

pub(super) fn routes() -> Vec<Route> {
    vec![
        route(&hubs::LIST, Right::Manage, Call::list_hubs),
        route(&hubs::SHOW, Right::Manage, Call::show_hub),
        route(&hubs::PUT, Right::Manage, Call::put_hub),
        route(&hubs::DELETE, Right::Manage, Call::delete_hub),
        route(&partitions::LIST, Right::Listen, Call::list_partitions),
        route(&partitions::SHOW, Right::Listen, Call::show_partition),
    ]
}

fn info(view: &HubView, runtime: Option<HubRuntime>) -> HubInfo {
    let groups = view.groups.iter().map(|group| group.name.clone()).collect();
    HubInfo {
        name: view.name.to_string(),
        spec: HubSpec { consumer_groups: Some(groups), ..HubSpec::of(&view.settings) },
        runtime,
        created_at: show_time(view.created_at),
        updated_at: show_time(view.updated_at),
        revision: view.revision,
    }
}

fn partition_runtime(info: &PartitionInfo) -> PartitionRuntime {
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

/// Returns the last sequence number; -1 if there never was an event.
pub(super) fn last_sequence(next_sequence: u64) -> i64 {
    i64::try_from(next_sequence).unwrap_or(i64::MAX) - 1
}

impl<Q, B> Call<Q, B> {
    /// Returns the hub in the path.
    pub(super) async fn hub(&self) -> Result<HubView, Problem> {
        Ok(self.namespace.broker.hub(self.entity()?).await?)
    }

    /// Returns the hub and one of its consumer groups.
    pub(super) async fn hub_and_group(&self) -> Result<(HubView, ConsumerGroup), Problem> {
        let (hub, group) = (self.hub().await?, self.consumer_group()?);
        let found = hub.groups.iter().find(|known| known.name == group).map(|known| known.name.clone());
        match found {
            Some(group) => Ok((hub, group)),
            None => Err(Problem::NotFound(format!("the hub '{}' has no consumer group '{group}'", hub.name))),
        }
    }
}

impl Call<PageQuery> {
    async fn list_hubs(self) -> Result<Answer<Page<HubInfo>>, Problem> {
        let after = self.query.after.as_deref().map(plain_name).transpose()?;
        let top = self.page_count(self.query.top);
        // One item more than requested shows whether there is a next page.
        let mut found = self.namespace.broker.hubs(after, top.saturating_add(1)).await?;
        let is_more = found.len() > top;
        found.truncate(top);
        let next = found.last().filter(|_| is_more).map(|hub| hub.name.to_string());
        let items = found.iter().map(|hub| info(hub, None)).collect();
        Ok(Answer::ok(Page { items, next }))
    }
}

impl Call {
    async fn show_hub(self) -> Result<Answer<HubInfo>, Problem> {
        let hub = self.hub().await?;
        self.respond_hub(StatusCode::OK, &hub).await
    }

    async fn respond_hub(&self, status: StatusCode, hub: &HubView) -> Result<Answer<HubInfo>, Problem> {
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
        Ok(Answer::with_status(status, info(hub, Some(runtime))).tagged(hub.revision))
    }

    async fn partition_runtimes(&self, hub: &HubView) -> Result<Vec<PartitionRuntime>, Problem> {
        let found = self.namespace.broker.partitions(hub).await?;
        Ok(found.iter().map(partition_runtime).collect())
    }

    /// Returns the partitions in one page, which has room for all partitions of a hub.
    async fn list_partitions(self) -> Result<Answer<Page<PartitionRuntime>>, Problem> {
        Ok(Answer::ok(Page::whole(self.partition_runtimes(&self.hub().await?).await?)))
    }

    async fn show_partition(self) -> Result<Answer<PartitionRuntime>, Problem> {
        let found = self.namespace.broker.partition(&self.hub().await?, self.partition()?, None).await?;
        Ok(Answer::ok(partition_runtime(&found)))
    }

    async fn delete_hub(self) -> Result<Answer<()>, Problem> {
        let name = self.entity()?;
        let expected = match self.head.condition() {
            Condition::None | Condition::Exists => None,
            Condition::Revision(revision) => Some(revision),
            Condition::Unknown | Condition::IsNew => return Err(changed_meanwhile(&name)),
        };
        entity::delete_hub(&self.namespace, name, expected).await?;
        Ok(Answer::done())
    }

    async fn create_or_update_hub(&self, spec: &HubSpec) -> Result<Answer<HubInfo>, Problem> {
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
                    entity::create_hub(&self.namespace, name.clone(), spec.settings(), spec.groups())
                        .await
                        .map(|hub| (StatusCode::CREATED, hub))
                }
                (None, _) => return Err(Problem::NotFound(format!("there is no hub '{name}'"))),
                (Some(_), Condition::IsNew) => {
                    return Err(Problem::Exists(format!("'{name}' exists already")));
                }
                (Some(current), condition) => {
                    self.update_hub(current, spec, condition).await.map(|hub| (StatusCode::OK, hub))
                }
            };
            match result {
                // A change without a required revision is retried.
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

impl Call<(), HubSpec> {
    async fn put_hub(self) -> Result<Answer<HubInfo>, Problem> {
        let (call, spec) = self.split();
        call.create_or_update_hub(&spec).await
    }
}
