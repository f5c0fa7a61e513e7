//! Consumer groups of a hub.

use http::StatusCode;
use peeklock_access::Right;
use peeklock_api::{ConsumerGroupBody, ConsumerGroupInfo, Page, PageQuery, consumer_groups};
use peeklock_broker::hubs::{GroupView, HubView};
use peeklock_spec::show_time;
use peeklock_types::{ConsumerGroup, limits};

use super::call::{Answer, Call};
use super::route::{Route, route};
use crate::problem::Problem;
use crate::request::Condition;

pub(super) fn routes() -> Vec<Route> {
    vec![
        route(&consumer_groups::LIST, Right::Manage, Call::list_consumer_groups),
        route(&consumer_groups::SHOW, Right::Manage, Call::show_consumer_group),
        route(&consumer_groups::PUT, Right::Manage, Call::put_consumer_group),
        route(&consumer_groups::DELETE, Right::Manage, Call::delete_consumer_group),
    ]
}

fn info(group: &GroupView) -> ConsumerGroupInfo {
    ConsumerGroupInfo {
        name: group.name.to_string(),
        created_at: show_time(group.created_at),
        updated_at: show_time(group.updated_at),
        user_metadata: group.user_metadata.clone(),
    }
}

fn find<'h>(hub: &'h HubView, group: &ConsumerGroup) -> Option<&'h GroupView> {
    hub.groups.iter().find(|known| known.name == *group)
}

impl Call<PageQuery> {
    async fn list_consumer_groups(self) -> Result<Answer<Page<ConsumerGroupInfo>>, Problem> {
        let hub = self.hub().await?;
        let after = self.query.after.as_deref().map(ConsumerGroup::parse).transpose();
        let after = after.map_err(|error| Problem::bad(error.to_string()))?;
        let mut rest =
            hub.groups.iter().filter(|group| after.as_ref().is_none_or(|after| group.name > *after));
        let items: Vec<_> = rest.by_ref().take(self.page_count(self.query.top)).map(info).collect();
        let next = items.last().filter(|_| rest.next().is_some()).map(|group| group.name.clone());
        Ok(Answer::ok(Page { items, next }))
    }
}

impl Call {
    async fn show_consumer_group(self) -> Result<Answer<ConsumerGroupInfo>, Problem> {
        let (hub, group) = self.hub_and_group().await?;
        respond(StatusCode::OK, &hub, &group)
    }

    async fn delete_consumer_group(self) -> Result<Answer<()>, Problem> {
        self.namespace.broker.delete_group(self.entity()?, self.consumer_group()?).await?;
        Ok(Answer::done())
    }
}

impl Call<(), ConsumerGroupBody> {
    async fn put_consumer_group(self) -> Result<Answer<ConsumerGroupInfo>, Problem> {
        let user_metadata = self.body.user_metadata.clone();
        check_metadata(user_metadata.as_deref())?;
        let (name, group, broker) = (self.entity()?, self.consumer_group()?, &self.namespace.broker);
        let hub = self.hub().await?;
        let known = find(&hub, &group);
        match self.head.condition() {
            Condition::None => {}
            Condition::IsNew if known.is_none() => {}
            Condition::IsNew => {
                return Err(Problem::Exists(format!("'{name}' has a consumer group '{group}' already")));
            }
            Condition::Exists if known.is_some() => {}
            Condition::Exists => {
                return Err(Problem::NotFound(format!("the hub '{name}' has no consumer group '{group}'")));
            }
            Condition::Revision(_) | Condition::Unknown => {
                return Err(Problem::Precondition(
                    "consumer groups have no tags; use If-Match: *".to_owned(),
                ));
            }
        }
        match known {
            None => {
                let hub = broker.create_group(name, group.clone(), user_metadata).await?;
                respond(StatusCode::CREATED, &hub, &group)
            }
            Some(known) if user_metadata.is_none() || known.user_metadata == user_metadata => {
                respond(StatusCode::OK, &hub, &group)
            }
            Some(_) => {
                let hub = broker.update_group(name, group.clone(), user_metadata).await?;
                respond(StatusCode::OK, &hub, &group)
            }
        }
    }
}

fn respond(
    status: StatusCode,
    hub: &HubView,
    group: &ConsumerGroup,
) -> Result<Answer<ConsumerGroupInfo>, Problem> {
    let gone = || Problem::Conflict(format!("the consumer group '{group}' has been deleted meanwhile"));
    Ok(Answer::with_status(status, info(find(hub, group).ok_or_else(gone)?)))
}

pub(crate) fn check_metadata(text: Option<&str>) -> Result<(), Problem> {
    let count = text.map_or(0, |text| text.chars().count());
    let max = limits::USER_METADATA_CHARS_MAX;
    if count > max {
        return Err(Problem::bad(format!(
            "the user metadata has {count} characters; at most {max} are allowed"
        )));
    }
    Ok(())
}
