//! Events of a hub.

use peeklock_spec::Properties;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoint::{Endpoint, Get, Page, Post};
use crate::messages::{MessageBody, SystemProperties};
use crate::query::query;

pub static LIST: Get<Page<EventInfo>, EventsQuery> = Endpoint::get(
    &["/api/hubs/{hub}/partitions/{partition}/events"],
    "Shows events of a partition without a reader",
);
pub static SEND: Post<NewEvents, EventsSent> = Endpoint::post_new(
    &["/api/hubs/{hub}/events"],
    "Stores events as one publication: in a given partition, by a key, or in any partition",
);

query! {
    /// The range of events to return.
    EventsQuery {
        from: String = "from", "earliest, latest, a sequence number or a time; the 'next' of the previous page";
        max: u64 = "max", "The maximum number of events; 100 by default";
    }
}

/// An event in an answer of the API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Event")]
pub struct EventInfo {
    pub partition: u32,
    pub sequence_number: u64,
    /// The offset that SDKs use.
    pub offset: String,
    pub enqueued_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_key: Option<String>,
    pub size_bytes: u64,
    #[serde(flatten)]
    pub system: SystemProperties,
    /// The properties that the application has set.
    #[serde(default)]
    pub properties: Properties,
    pub body: MessageBody,
}

/// Events to store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(rename = "EventsToSend")]
pub struct NewEvents {
    /// Excludes `partitionKey`. Without both, the broker picks a partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_key: Option<String>,
    pub events: Vec<NewEvent>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
#[schemars(rename = "EventToSend")]
pub struct NewEvent {
    /// A string is stored as its text, any other value as JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<serde_json::Value>,
    /// Instead of `body`, for bytes that are not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    pub properties: Properties,
}

/// The partition that stores the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventsSent {
    pub partition: u32,
    pub count: u64,
}
