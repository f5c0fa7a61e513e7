//! What the JSON API tells of a hub that lives: its partitions, readers, owners and checkpoints. Written by the broker, read by its clients.

use serde::{Deserialize, Serialize};

/// What happens in a hub just now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HubRuntime {
    /// Of all partitions, what retention has left.
    pub event_count: u64,
    pub size_bytes: u64,
    pub reader_count: u64,
    /// Since the broker was started: bytes that were stored, and what readers were handed, each for itself.
    pub received_bytes: u64,
    pub read_bytes: u64,
    pub read_event_count: u64,
    pub partitions: Vec<PartitionRuntime>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PartitionRuntime {
    pub partition: u32,
    /// Of the oldest event that is there, or the next one's if none is.
    pub begin_sequence_number: u64,
    /// Of the newest event that ever was; −1 if there was none.
    pub last_sequence_number: i64,
    pub event_count: u64,
    pub size_bytes: u64,
    /// As for the hub.
    pub received_bytes: u64,
    pub read_bytes: u64,
    pub read_event_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_enqueued_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_enqueued_at: Option<String>,
    pub readers: Vec<ReaderRuntime>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReaderRuntime {
    pub consumer_group: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_level: Option<i64>,
    /// Of the event that it gets next.
    pub next_sequence_number: u64,
}

/// A consumer group of a hub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConsumerGroupInfo {
    pub name: String,
    pub created_at: String,
    pub updated_at: String,
    pub user_metadata: Option<String>,
}

/// How far a consumer group has come in a partition, and how far it is behind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CheckpointInfo {
    pub partition: u32,
    /// Of the last event that is done with; absent if there is no checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence_number: Option<u64>,
    /// When it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Who owns the partition for the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Where it is kept.
    pub source: CheckpointSource,
    /// As for the partition.
    pub begin_sequence_number: u64,
    pub last_sequence_number: i64,
    /// Events behind the checkpoint; all there are, if there is none.
    pub lag_events: u64,
    /// Age of the oldest of them, about; 0 if there are none.
    pub lag_seconds: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CheckpointSource {
    #[default]
    Broker,
    /// A blob of an Azure SDK's checkpoint store.
    Blob,
}

/// Who owns a partition for a consumer group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnershipInfo {
    pub partition: u32,
    /// Empty: it was given up.
    pub owner: String,
    /// Grows when another owner takes over.
    pub epoch: u64,
    /// For `If-Match`.
    pub etag: String,
    pub modified_at: String,
}
