//! Event hubs.

use peeklock_spec::HubSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoint::{Delete, Endpoint, Get, Page, Put};
use crate::partitions::PartitionRuntime;
use crate::query::PageQuery;

pub static LIST: Get<Page<HubInfo>, PageQuery> =
    Endpoint::get(&["/api/hubs"], "Lists the event hubs by name");
pub static SHOW: Get<HubInfo> = Endpoint::get(&["/api/hubs/{hub}"], "Shows a hub and its state");
pub static PUT: Put<HubSpec, HubInfo> = Endpoint::put(
    &["/api/hubs/{hub}"],
    "Creates or changes a hub; settings that the body leaves out keep their values, the number of partitions can only grow, and consumer \
     groups are added. May be repeated",
);
pub static DELETE: Delete = Endpoint::delete(&["/api/hubs/{hub}"], "Deletes a hub with its events");

/// A hub with its settings; the answer for one hub also has its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Hub")]
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

/// The state of a hub: sums over its partitions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HubRuntime {
    /// Events within the retention.
    pub event_count: u64,
    pub size_bytes: u64,
    pub reader_count: u64,
    /// Bytes stored since the broker started.
    pub received_bytes: u64,
    /// Bytes delivered to readers since the broker started, counted for each reader.
    pub read_bytes: u64,
    /// Events delivered to readers since the broker started, counted for each reader.
    pub read_event_count: u64,
    pub partitions: Vec<PartitionRuntime>,
}
