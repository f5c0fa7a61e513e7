//! Groups of queues, which the configuration declares and the API only shows.

use axum::response::Response;
use http::StatusCode;
use peeklock_spec::QueueGroupSpec;
use peeklock_types::{EntityName, QueueGroupSettings};
use serde::Serialize;

use super::{Call, json, plain_name, shape};
use crate::problem::Problem;

#[derive(Serialize)]
struct Group<'a> {
    name: &'a str,
    #[serde(flatten)]
    spec: QueueGroupSpec,
}

impl<'a> Group<'a> {
    fn of(name: &'a EntityName, settings: &QueueGroupSettings) -> Self {
        Group { name: name.as_str(), spec: QueueGroupSpec::of(settings) }
    }

    fn tell(&self) -> Result<serde_json::Value, Problem> {
        serde_json::to_value(self).map_err(|error| Problem::Unavailable(error.to_string()))
    }
}

impl Call<'_> {
    pub(super) fn list_groups(&self) -> Result<Response, Problem> {
        let after = self.head.query("after").map(plain_name).transpose()?;
        let groups = self.namespace.broker.queue_groups();
        let mut rest = groups.iter().filter(|(name, _)| after.as_ref().is_none_or(|after| *name > after));
        let top = self.top()?;
        let found: Vec<_> = rest.by_ref().take(top).collect();
        let next = found.last().filter(|_| rest.next().is_some()).map(|(name, _)| name.to_string());
        let items = found.iter().map(|(name, settings)| Group::of(name, settings).tell());
        json(StatusCode::OK, None, &shape::Page { items: items.collect::<Result<_, _>>()?, next })
    }

    pub(super) fn show_group(&self) -> Result<Response, Problem> {
        let name = self.entity()?;
        let found = self.namespace.broker.queue_groups().get_key_value(&name);
        let (name, settings) =
            found.ok_or_else(|| Problem::NotFound(format!("there is no group '{name}'; {WHERE}")))?;
        json(StatusCode::OK, None, &Group::of(name, settings).tell()?)
    }
}

const WHERE: &str = "groups are declared in the configuration, under [groups.NAME]";

/// To whoever would change one.
pub(super) fn is_configured() -> Problem {
    Problem::bad(WHERE)
}
