//! Checkpoints of a consumer group, its lag, and resets.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoint::{Endpoint, Get, Page, Post, Put};

const ONE: &[&str] = &["/api/hubs/{hub}/consumer-groups/{consumerGroup}/checkpoints/{partition}"];

pub static LIST: Get<Page<CheckpointInfo>> = Endpoint::get(
    &["/api/hubs/{hub}/consumer-groups/{consumerGroup}/checkpoints"],
    "Lists the checkpoints of a consumer group and its lag in each partition",
);
pub static SHOW: Get<CheckpointInfo> =
    Endpoint::get(ONE, "Shows the checkpoint and the lag of a consumer group in one partition");
pub static PUT: Put<CheckpointBody, CheckpointInfo> =
    Endpoint::put(ONE, "Moves a checkpoint forward; refused for a former owner of the partition");
pub static RESET: Post<CheckpointReset, Page<CheckpointMove>> = Endpoint::post(
    &["/api/hubs/{hub}/consumer-groups/{consumerGroup}/reset"],
    "Moves checkpoints in any direction: to earliest, latest, none, a sequence number or a time",
);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "CheckpointSettings")]
pub struct CheckpointBody {
    /// The last processed event.
    pub sequence_number: u64,
    /// The owner and the epoch of the ownership; both are absent if the partition has no owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}

/// The checkpoint of a consumer group in a partition, and its lag.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "Checkpoint")]
pub struct CheckpointInfo {
    pub partition: u32,
    /// The last processed event; absent if there is no checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence_number: Option<u64>,
    /// The time of the checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The owner of the partition in the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    pub source: CheckpointSource,
    /// The oldest stored event of the partition.
    pub begin_sequence_number: u64,
    /// The newest event that the partition ever had; -1 if there was none.
    pub last_sequence_number: i64,
    /// Events behind the checkpoint; all stored events if there is no checkpoint.
    pub lag_events: u64,
    /// The approximate age of the oldest of these events; 0 if there are none.
    pub lag_seconds: f64,
}

/// The place that stores a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub enum CheckpointSource {
    #[default]
    Broker,
    /// A blob of an Azure SDK's checkpoint store.
    Blob,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CheckpointReset {
    pub to: ResetTo,
    /// All partitions by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    /// Only computes the moves.
    #[serde(default)]
    pub dry_run: bool,
}

/// The position of checkpoints after a reset: `earliest`, `latest`, `none`, a time, or the number of the last event that counts as processed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum ResetTo {
    Sequence(u64),
    Text(String),
}

/// The effect of a reset on one checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "CheckpointMoved")]
pub struct CheckpointMove {
    pub partition: u32,
    pub source: CheckpointSource,
    /// The container of the blob.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The checkpoint before the reset; absent if there was none. In a blob, -1 stands for the position before every event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<i64>,
    /// Events that the group will read once more.
    pub repeated_events: u64,
    /// Events that the group will never read.
    pub skipped_events: u64,
    /// The owner of the partition. While it reads, it continues at its own position.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}
