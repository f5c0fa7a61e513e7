//! Partitions of a hub and their readers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoint::{Endpoint, Get, Page};

pub static LIST: Get<Page<PartitionRuntime>> =
    Endpoint::get(&["/api/hubs/{hub}/partitions"], "Lists the partitions of a hub with their readers");
pub static SHOW: Get<PartitionRuntime> =
    Endpoint::get(&["/api/hubs/{hub}/partitions/{partition}"], "Shows a partition");

/// The state of a partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "Partition")]
pub struct PartitionRuntime {
    pub partition: u32,
    /// The oldest stored event; the next one if the partition is empty.
    pub begin_sequence_number: u64,
    /// The newest event that was ever stored; -1 if there was none.
    pub last_sequence_number: i64,
    pub event_count: u64,
    pub size_bytes: u64,
    /// Bytes stored since the broker started.
    pub received_bytes: u64,
    /// Bytes delivered to readers since the broker started, counted for each reader.
    pub read_bytes: u64,
    /// Events delivered to readers since the broker started, counted for each reader.
    pub read_event_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_enqueued_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_enqueued_at: Option<String>,
    pub readers: Vec<ReaderRuntime>,
}

/// A reader of a partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "Reader")]
pub struct ReaderRuntime {
    pub consumer_group: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_level: Option<i64>,
    /// The next event for the reader.
    pub next_sequence_number: u64,
}
