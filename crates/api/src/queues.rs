//! Queues.

use peeklock_spec::QueueSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoint::{Delete, Endpoint, Get, Page, Put};
use crate::order_runtime::Runtime;
use crate::query::PageQuery;

pub static LIST: Get<Page<QueueInfo>, PageQuery> =
    Endpoint::get(&["/api/queues"], "Lists the queues by name");
pub static SHOW: Get<QueueInfo> = Endpoint::get(&["/api/queues/{queue}"], "Shows a queue");
pub static PUT: Put<QueueSpec, QueueInfo> = Endpoint::put(
    &["/api/queues/{queue}"],
    "Creates or changes a queue; settings that the body leaves out keep their values. May be repeated",
);
pub static DELETE: Delete = Endpoint::delete(&["/api/queues/{queue}"], "Deletes a queue with its messages");

/// A queue with its settings and counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Queue")]
pub struct QueueInfo {
    pub name: String,
    #[serde(flatten)]
    pub spec: QueueSpec,
    #[serde(flatten)]
    pub counts: Counts,
    /// The state of its classes; absent for a queue without an order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
    #[serde(flatten)]
    pub history: History,
}

/// The messages of a queue or subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Messages that wait to be received.
    pub active_count: u64,
    /// Messages that a receiver has locked.
    pub locked_count: u64,
    pub deferred_count: u64,
    /// Messages that are not yet available.
    pub scheduled_count: u64,
    pub dead_letter_count: u64,
    /// Messages in transit to the entity that this one forwards to.
    pub transfer_count: u64,
    /// Messages that could not be forwarded.
    pub transfer_dead_letter_count: u64,
    /// The sum of all states.
    pub message_count: u64,
    pub size_bytes: u64,
}

/// The times at which an entity was created, changed and used, as in RFC 3339.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct History {
    pub created_at: String,
    pub updated_at: String,
    pub accessed_at: String,
    /// Increases with each change of the settings.
    pub revision: u64,
}
