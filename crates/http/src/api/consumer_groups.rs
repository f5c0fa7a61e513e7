//! Consumer groups of a hub.

use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use peeklock_api::ConsumerGroupInfo;
use peeklock_broker::hubs::{GroupView, HubView};
use peeklock_spec::show_time;
use peeklock_types::{ConsumerGroup, limits};
use serde::Deserialize;

use super::{Call, done, json, shape};
use crate::problem::Problem;
use crate::request::Condition;

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct GroupBody {
    user_metadata: Option<String>,
}

fn tell(group: &GroupView) -> ConsumerGroupInfo {
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

impl Call<'_> {
    pub(super) async fn list_consumer_groups(&self) -> Result<Response, Problem> {
        let hub = self.hub().await?;
        let after = self.head.query("after").map(ConsumerGroup::parse).transpose();
        let after = after.map_err(|error| Problem::bad(error.to_string()))?;
        let mut rest =
            hub.groups.iter().filter(|group| after.as_ref().is_none_or(|after| group.name > *after));
        let items: Vec<_> = rest.by_ref().take(self.top()?).map(tell).collect();
        let next = items.last().filter(|_| rest.next().is_some()).map(|group| group.name.clone());
        json(StatusCode::OK, None, &shape::Page { items, next })
    }

    pub(super) async fn show_consumer_group(&self) -> Result<Response, Problem> {
        let (hub, group) = self.hub_and_group().await?;
        self.respond_group(StatusCode::OK, &hub, &group)
    }

    fn respond_group(
        &self,
        status: StatusCode,
        hub: &HubView,
        group: &ConsumerGroup,
    ) -> Result<Response, Problem> {
        let gone = || Problem::Conflict(format!("the consumer group '{group}' has been deleted meanwhile"));
        json(status, None, &tell(find(hub, group).ok_or_else(gone)?))
    }

    pub(super) async fn put_consumer_group(&self, body: Body) -> Result<Response, Problem> {
        let GroupBody { user_metadata } = self.body(body).await?;
        check_metadata(user_metadata.as_deref())?;
        let (name, group, broker) = (self.entity()?, self.group()?, &self.namespace.broker);
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
                self.respond_group(StatusCode::CREATED, &hub, &group)
            }
            Some(known) if user_metadata.is_none() || known.user_metadata == user_metadata => {
                self.respond_group(StatusCode::OK, &hub, &group)
            }
            Some(_) => {
                let hub = broker.update_group(name, group.clone(), user_metadata).await?;
                self.respond_group(StatusCode::OK, &hub, &group)
            }
        }
    }

    pub(super) async fn delete_consumer_group(&self) -> Result<Response, Problem> {
        self.namespace.broker.delete_group(self.entity()?, self.group()?).await?;
        Ok(done())
    }
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
