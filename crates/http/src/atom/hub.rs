//! Event hubs, their consumer groups and partitions as ATOM entries. Azure's SDKs for events do not use them; scripts
//! and tools do.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{Method, StatusCode};
use peeklock_broker::hubs::{GroupView, HubView, StreamView};
use peeklock_types::{ConsumerGroup, EntityName, HubSettings, QueueStatus};
use peeklock_web::xml::{ARRAYS, Element, Writer};

use super::change::unexpected;
use super::describe::{Context, Entry, show_date, status_name, write_policies};
use super::path::AtomPath;
use super::policy::read_policies;
use super::{Call, ENTRY, respond, unchanged};
use crate::entity;
use crate::problem::Problem;
use crate::request::{Condition, shown};

pub(super) const HUB: &str = "EventHubDescription";
const GROUP: &str = "ConsumerGroupDescription";
const PARTITION: &str = "PartitionDescription";

const DAY: Duration = Duration::from_secs(86_400);

/// Read-only elements, which clients return unchanged with the rest of a description.
const READ_ONLY: [&str; 5] = ["AuthorizationRules", "CreatedAt", "UpdatedAt", "PartitionIds", "SizeInBytes"];

/// Returns the retention in whole days, the unit of ATOM. Returns `None` if it is unlimited: ATOM has no value for it.
fn days(retention: Option<Duration>) -> Option<u64> {
    retention.map(|retention| retention.as_secs().div_ceil(DAY.as_secs()))
}

/// Returns the settings in a description. An omitted element keeps its current value, or gets the default for a new
/// hub.
pub(super) fn read_hub(description: &Element, current: Option<&HubSettings>) -> Result<HubSettings, Problem> {
    let mut settings = current.cloned().unwrap_or_default();
    for element in description.children.iter().filter(|element| !element.is_nil) {
        let text = element.trimmed();
        match element.name.as_str() {
            "MessageRetentionInDays" => {
                let given: u64 = number(element)?;
                // A retention that is not a whole number of days stays unchanged if the client returns its rounded
                // value.
                if current.is_none_or(|current| days(current.retention) != Some(given)) {
                    settings.retention = Some(Duration::from_secs(given.saturating_mul(DAY.as_secs())));
                }
            }
            "PartitionCount" => settings.partition_count = number(element)?,
            "Status" => settings.status = status(text)?,
            "UserMetadata" => {
                settings.user_metadata = Some(element.text.clone()).filter(|text| !text.is_empty())
            }
            name if READ_ONLY.contains(&name) => {}
            name => {
                return Err(Problem::bad(format!(
                    "{HUB} has no element {}; there are MessageRetentionInDays, AuthorizationRules, Status, UserMetadata and PartitionCount",
                    shown(name)
                )));
            }
        }
    }
    Ok(settings)
}

fn number<T: std::str::FromStr>(element: &Element) -> Result<T, Problem> {
    let wrong =
        |_| Problem::bad(format!("{} is '{}'; give a number", element.name, shown(element.trimmed())));
    element.trimmed().parse().map_err(wrong)
}

fn status(text: &str) -> Result<QueueStatus, Problem> {
    use QueueStatus::{Active, Disabled, ReceiveDisabled, SendDisabled};
    let known = [Active, Disabled, ReceiveDisabled, SendDisabled];
    known.into_iter().find(|status| status_name(*status) == text).ok_or_else(|| {
        let known = known.map(status_name).join(", ");
        Problem::bad(format!("the Status is '{}'; give one of {known}", shown(text)))
    })
}

/// Returns the metadata in the description of a consumer group.
fn read_group(description: &Element) -> Result<Option<String>, Problem> {
    if description.name != GROUP {
        return Err(unexpected(&description.name, GROUP));
    }
    let known = ["CreatedAt", "UpdatedAt", "UserMetadata", "EventHubPath", "Name"];
    if let Some(strange) = description.children.iter().find(|child| !known.contains(&child.name.as_str())) {
        let name = shown(&strange.name);
        return Err(Problem::bad(format!("{GROUP} has no element {name}; there is UserMetadata")));
    }
    let text = description.child("UserMetadata").filter(|element| !element.is_nil);
    let text = text.map(|element| element.text.clone()).filter(|text| !text.is_empty());
    crate::api::check_metadata(text.as_deref())?;
    Ok(text)
}

fn write_hub(
    writer: &mut Writer,
    context: &Context<'_>,
    is_root: bool,
    hub: &HubView,
    policies: &[peeklock_access::Policy],
) {
    let path = AtomPath::Entity(hub.name.clone());
    let (created_at, updated_at) = (hub.created_at, hub.updated_at);
    let entry = Entry { path: &path, title: hub.name.as_str(), created_at, updated_at };
    entry.write(writer, context, is_root, HUB, |writer| {
        let settings = &hub.settings;
        if let Some(days) = days(settings.retention) {
            writer.number("MessageRetentionInDays", days);
        }
        write_policies(writer, policies);
        writer.text("Status", status_name(settings.status));
        writer.text("CreatedAt", &show_date(created_at));
        writer.text("UpdatedAt", &show_date(updated_at));
        writer.optional("UserMetadata", settings.user_metadata.as_deref());
        writer.number("PartitionCount", settings.partition_count);
        writer.begin("PartitionIds", &[("xmlns:d2p1", ARRAYS)]);
        (0..settings.partition_count).for_each(|number| writer.number("d2p1:string", number));
        writer.end();
    });
}

fn write_group(
    writer: &mut Writer,
    context: &Context<'_>,
    is_root: bool,
    hub: &EntityName,
    group: &GroupView,
) {
    let path = AtomPath::ConsumerGroup { hub: hub.clone(), group: group.name.clone() };
    let (created_at, updated_at) = (group.created_at, group.updated_at);
    let entry = Entry { path: &path, title: group.name.as_str(), created_at, updated_at };
    entry.write(writer, context, is_root, GROUP, |writer| {
        writer.text("CreatedAt", &show_date(created_at));
        writer.text("UpdatedAt", &show_date(updated_at));
        writer.optional("UserMetadata", group.user_metadata.as_deref());
    });
}

fn write_partition(
    writer: &mut Writer,
    context: &Context<'_>,
    is_root: bool,
    hub: &HubView,
    group: &ConsumerGroup,
    stream: &StreamView,
) {
    let (hub_name, group, partition) = (hub.name.clone(), group.clone(), stream.partition);
    let path = AtomPath::Partition { hub: hub_name, group, partition };
    let (created_at, updated_at) = (hub.created_at, stream.last_enqueued_at.unwrap_or(hub.created_at));
    let title = stream.partition.to_string();
    let entry = Entry { path: &path, title: &title, created_at, updated_at };
    entry.write(writer, context, is_root, PARTITION, |writer| {
        let last = i64::try_from(stream.next_sequence).unwrap_or(i64::MAX) - 1;
        writer.number("SizeInBytes", stream.size_bytes);
        writer.number("BeginSequenceNumber", stream.begin_sequence);
        writer.number("EndSequenceNumber", last);
        writer.number("LastEnqueuedOffset", last);
        if let Some(at) = stream.last_enqueued_at {
            writer.text("LastEnqueuedTimeUtc", &show_date(at));
        }
    });
}

impl Call<'_> {
    pub(super) fn show_hub(&self, status: StatusCode, hub: &HubView) -> Response {
        if self.head.parts.method == Method::GET && self.head.has_already(hub.revision) {
            return unchanged(hub.revision);
        }
        let mut writer = Writer::document();
        let policies = self.namespace.access.policies(Some(&hub.name));
        write_hub(&mut writer, &self.context, true, hub, &policies);
        respond(status, ENTRY, Some(hub.revision), writer)
    }

    pub(super) async fn list_hub_things(
        &self,
        path: &AtomPath,
        skip: usize,
        top: usize,
    ) -> Result<Response, Problem> {
        let (broker, context) = (&self.namespace.broker, &self.context);
        // One item more than requested shows whether there is a next page.
        let wanted = top.saturating_add(1);
        match path {
            AtomPath::ConsumerGroups { hub } => {
                let found = broker.hub(hub.clone()).await?.groups;
                let found: Vec<_> = found.into_iter().skip(skip).take(wanted).collect();
                Ok(self.feed(path, skip, top, &found, |writer, group| {
                    write_group(writer, context, false, hub, group);
                }))
            }
            AtomPath::Partitions { hub, group } => {
                let hub = self.hub_with_group(hub, group).await?;
                let found = broker.partitions(&hub).await?;
                let found: Vec<_> = found.into_iter().skip(skip).take(wanted).collect();
                Ok(self.feed(path, skip, top, &found, |writer, partition| {
                    write_partition(writer, context, false, &hub, group, &partition.view);
                }))
            }
            _ => {
                let found = broker.hubs(None, skip.saturating_add(wanted)).await?;
                let found: Vec<_> = found.into_iter().skip(skip).collect();
                Ok(self.feed(path, skip, top, &found, |writer, hub| {
                    let policies = self.namespace.access.policies(Some(&hub.name));
                    write_hub(writer, context, false, hub, &policies);
                }))
            }
        }
    }

    async fn hub_with_group(&self, hub: &EntityName, group: &ConsumerGroup) -> Result<HubView, Problem> {
        let hub = self.namespace.broker.hub(hub.clone()).await?;
        find(&hub, group)?;
        Ok(hub)
    }

    pub(super) async fn consumer_group(
        &self,
        hub: EntityName,
        group: ConsumerGroup,
    ) -> Result<Response, Problem> {
        let hub = self.namespace.broker.hub(hub).await?;
        self.show_group(StatusCode::OK, &hub, &group)
    }

    fn show_group(
        &self,
        status: StatusCode,
        hub: &HubView,
        group: &ConsumerGroup,
    ) -> Result<Response, Problem> {
        let mut writer = Writer::document();
        write_group(&mut writer, &self.context, true, &hub.name, find(hub, group)?);
        Ok(respond(status, ENTRY, None, writer))
    }

    pub(super) async fn partition(
        &self,
        hub: EntityName,
        group: ConsumerGroup,
        partition: u32,
    ) -> Result<Response, Problem> {
        let hub = self.hub_with_group(&hub, &group).await?;
        let found = self.namespace.broker.partition(&hub, partition, None).await?;
        let mut writer = Writer::document();
        write_partition(&mut writer, &self.context, true, &hub, &group, &found.view);
        Ok(respond(StatusCode::OK, ENTRY, None, writer))
    }

    pub(super) async fn put_hub(&self, name: EntityName, description: &Element) -> Result<Response, Problem> {
        let policies = read_policies(description)?;
        let expected = match self.head.condition() {
            Condition::None | Condition::IsNew => {
                let settings = read_hub(description, None)?;
                let hub = entity::create_hub(self.namespace, name.clone(), settings, Vec::new()).await?;
                if let Some(drafts) = policies.filter(|drafts| !drafts.is_empty())
                    && let Err(problem) = self.set_policies(&name, drafts).await
                {
                    // Creation is atomic: the client has received no answer yet, so the hub is deleted again.
                    self.namespace.broker.delete_hub(name, Some(hub.revision)).await?;
                    return Err(problem);
                }
                return Ok(self.show_hub(StatusCode::CREATED, &hub));
            }
            Condition::Exists => None,
            Condition::Revision(revision) => Some(revision),
            Condition::Unknown => return Err(entity::changed_meanwhile(&name)),
        };
        let mut result = self.try_update_hub(&name, description, expected).await;
        for _ in 1..entity::ATTEMPT_COUNT_MAX {
            if expected.is_some() || !matches!(result, Err(Problem::Conflict(_))) {
                break;
            }
            result = self.try_update_hub(&name, description, expected).await;
        }
        let hub = result?;
        if let Some(drafts) = policies {
            self.set_policies(&name, drafts).await?;
        }
        Ok(self.show_hub(StatusCode::OK, &hub))
    }

    async fn try_update_hub(
        &self,
        name: &EntityName,
        description: &Element,
        expected: Option<u64>,
    ) -> Result<HubView, Problem> {
        let broker = &self.namespace.broker;
        let current = broker.hub(name.clone()).await?;
        let settings = read_hub(description, Some(&current.settings))?;
        let revision = expected.unwrap_or(current.revision);
        let updated = broker.update_hub(name.clone(), settings, Some(revision)).await;
        updated.map_err(|error| entity::update_problem(error, expected.is_some()))
    }

    /// Deletes a hub. `missing` is the error text if the hub does not exist.
    pub(super) async fn delete_hub(&self, name: EntityName, missing: String) -> Result<(), Problem> {
        let expected = match self.head.condition() {
            Condition::Revision(revision) => Some(revision),
            _ => None,
        };
        match entity::delete_hub(self.namespace, name, expected).await {
            Err(Problem::NotFound(_)) => Err(Problem::NotFound(missing)),
            other => other,
        }
    }

    pub(super) async fn put_consumer_group(
        &self,
        hub: EntityName,
        group: ConsumerGroup,
        body: Body,
    ) -> Result<Response, Problem> {
        let user_metadata = read_group(&self.description(body).await?)?;
        let broker = &self.namespace.broker;
        let (status, hub) = match self.head.condition() {
            Condition::None | Condition::IsNew => {
                (StatusCode::CREATED, broker.create_group(hub, group.clone(), user_metadata).await?)
            }
            Condition::Exists => {
                (StatusCode::OK, broker.update_group(hub, group.clone(), user_metadata).await?)
            }
            Condition::Revision(_) | Condition::Unknown => {
                return Err(Problem::Precondition(
                    "consumer groups have no tags; use If-Match: *".to_owned(),
                ));
            }
        };
        self.show_group(status, &hub, &group)
    }

    pub(super) async fn delete_consumer_group(
        &self,
        hub: EntityName,
        group: ConsumerGroup,
    ) -> Result<Response, Problem> {
        self.namespace.broker.delete_group(hub, group).await?;
        Ok(Response::new(Body::empty()))
    }
}

fn find<'h>(hub: &'h HubView, group: &ConsumerGroup) -> Result<&'h GroupView, Problem> {
    let found = hub.groups.iter().find(|known| known.name == *group);
    found.ok_or_else(|| Problem::NotFound(format!("the hub '{}' has no consumer group '{group}'", hub.name)))
}
