//! Queue groups. The configuration of the broker declares them; the API only shows them.

use peeklock_spec::QueueGroupSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoint::{Endpoint, Get, Page};
use crate::query::PageQuery;

pub static LIST: Get<Page<QueueGroupInfo>, PageQuery> =
    Endpoint::get(&["/api/groups"], "Lists the configured queue groups by name");
pub static SHOW: Get<QueueGroupInfo> = Endpoint::get(&["/api/groups/{queueGroup}"], "Shows a queue group");

/// Several queues and subscriptions behind one name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "QueueGroup")]
pub struct QueueGroupInfo {
    pub name: String,
    #[serde(flatten)]
    pub spec: QueueGroupSpec,
}
