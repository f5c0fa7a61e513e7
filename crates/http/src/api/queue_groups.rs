//! Queue groups. The configuration declares them; the API only shows them.

use peeklock_access::Right;
use peeklock_api::{Page, PageQuery, QueueGroupInfo, queue_groups};
use peeklock_spec::QueueGroupSpec;
use peeklock_types::{EntityName, QueueGroupSettings};

use super::call::{Answer, Call};
use super::names::plain_name;
use super::route::{Route, route};
use crate::problem::Problem;

pub(super) fn routes() -> Vec<Route> {
    vec![
        route(&queue_groups::LIST, Right::Manage, Call::list_queue_groups),
        route(&queue_groups::SHOW, Right::Manage, Call::show_queue_group),
    ]
}

fn info(name: &EntityName, settings: &QueueGroupSettings) -> QueueGroupInfo {
    QueueGroupInfo { name: name.to_string(), spec: QueueGroupSpec::of(settings) }
}

impl Call<PageQuery> {
    async fn list_queue_groups(self) -> Result<Answer<Page<QueueGroupInfo>>, Problem> {
        let after = self.query.after.as_deref().map(plain_name).transpose()?;
        let groups = self.namespace.broker.queue_groups();
        let mut rest = groups.iter().filter(|(name, _)| after.as_ref().is_none_or(|after| *name > after));
        let top = self.page_count(self.query.top);
        let items: Vec<_> = rest.by_ref().take(top).map(|(name, settings)| info(name, settings)).collect();
        let next = items.last().filter(|_| rest.next().is_some()).map(|group| group.name.clone());
        Ok(Answer::ok(Page { items, next }))
    }
}

impl Call {
    async fn show_queue_group(self) -> Result<Answer<QueueGroupInfo>, Problem> {
        let name = self.entity()?;
        let found = self.namespace.broker.queue_groups().get_key_value(&name);
        let (name, settings) = found.ok_or_else(|| {
            Problem::NotFound(format!(
                "there is no group '{name}'; groups are declared in the configuration, under [groups.NAME]"
            ))
        })?;
        Ok(Answer::ok(info(name, settings)))
    }
}
