//! Ownerships of partitions in a consumer group.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoint::{Endpoint, Get, Page, Put};

const ONE: &[&str] = &["/api/hubs/{hub}/consumer-groups/{consumerGroup}/ownerships/{partition}"];

pub static LIST: Get<Page<OwnershipInfo>> = Endpoint::get(
    &["/api/hubs/{hub}/consumer-groups/{consumerGroup}/ownerships"],
    "Lists the owners of partitions in a consumer group",
);
pub static SHOW: Get<OwnershipInfo> =
    Endpoint::get(ONE, "Shows the owner of one partition; its etag is for If-Match");
pub static PUT: Put<Claim, OwnershipInfo> = Endpoint::put(
    ONE,
    "Claims, renews or (with an empty owner) gives up a partition: with If-Match and the etag that was read, or If-None-Match: *",
);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Claim {
    /// The new owner; an empty owner releases the partition.
    pub owner: String,
}

/// The owner of a partition in a consumer group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "Ownership")]
pub struct OwnershipInfo {
    pub partition: u32,
    /// Empty if the last owner released the partition.
    pub owner: String,
    /// Increases when another owner takes over.
    pub epoch: u64,
    /// The value for `If-Match`.
    pub etag: String,
    pub modified_at: String,
}
