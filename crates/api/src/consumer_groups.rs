//! Consumer groups of a hub.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoint::{Delete, Endpoint, Get, Page, Put};
use crate::query::PageQuery;

const ONE: &[&str] = &["/api/hubs/{hub}/consumer-groups/{consumerGroup}"];

pub static LIST: Get<Page<ConsumerGroupInfo>, PageQuery> =
    Endpoint::get(&["/api/hubs/{hub}/consumer-groups"], "Lists the consumer groups of a hub by name");
pub static SHOW: Get<ConsumerGroupInfo> = Endpoint::get(ONE, "Shows a consumer group");
pub static PUT: Put<ConsumerGroupBody, ConsumerGroupInfo> =
    Endpoint::put(ONE, "Creates or changes a consumer group. May be repeated");
pub static DELETE: Delete =
    Endpoint::delete(ONE, "Deletes a consumer group with its ownerships and checkpoints");

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "ConsumerGroupSettings")]
pub struct ConsumerGroupBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_metadata: Option<String>,
}

/// A consumer group of a hub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "ConsumerGroup")]
pub struct ConsumerGroupInfo {
    pub name: String,
    pub created_at: String,
    pub updated_at: String,
    pub user_metadata: Option<String>,
}
