//! Messages of a queue, topic or subscription; the reason why a message waits, and the subscriptions that would receive
//! a sample message.

use peeklock_spec::Properties;
use peeklock_types::SubQueue;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::endpoint::{Endpoint, Get, Page};
use crate::order_runtime::ExplainedMessage;
use crate::query::{PageQuery, query};

pub static LIST: Get<Page<MessageInfo>, MessagesQuery> = Endpoint::get(
    &[
        "/api/queues/{queue}/messages",
        "/api/topics/{topic}/messages",
        "/api/topics/{topic}/subscriptions/{subscription}/messages",
    ],
    "Shows messages without locking or changing them",
);
pub static EXPLAIN: Get<ExplainedMessage> = Endpoint::get(
    &[
        "/api/queues/{queue}/messages/{number}/explain",
        "/api/topics/{topic}/subscriptions/{subscription}/messages/{number}/explain",
    ],
    "Shows why a message has not been received yet, and which messages are ahead of it",
);

pub static SESSIONS: Get<Page<SessionInfo>, PageQuery> = Endpoint::get(
    &["/api/queues/{queue}/sessions", "/api/topics/{topic}/subscriptions/{subscription}/sessions"],
    "Lists the sessions that have messages or a state, by id",
);

query! {
    /// The range of messages to return.
    MessagesQuery {
        top: u64 = "top", "The maximum number of messages; 100 by default";
        from: u64 = "from", "The lowest sequence number; the 'next' of the previous page";
        sub_queue: SubQueue = "subQueue", "deadLetter or transferDeadLetter; the queue itself by default";
    }
}

/// A message in an answer of the API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Message")]
pub struct MessageInfo {
    pub sequence_number: u64,
    pub state: MessageState,
    pub enqueued_at: String,
    pub delivery_count: u32,
    pub size_bytes: u32,
    /// The priority in the header that the sender wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// The class that the order of the queue has assigned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_until: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    #[serde(flatten)]
    pub system: SystemProperties,
    /// The properties that the application has set.
    pub properties: Properties,
    pub body: MessageBody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub enum MessageState {
    Active,
    Delayed,
    Deferred,
    Scheduled,
}

/// Properties of a message or event that have a name of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SystemProperties {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to_session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

/// The body of a message or event: text if its bytes are UTF-8, else base64.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", tag = "kind", content = "value")]
pub enum MessageBody {
    None,
    Text(String),
    Base64(String),
    /// An AMQP value or sequence in JSON.
    Value(serde_json::Value),
    /// The body is too large for an answer.
    Omitted,
}

/// A session of a queue or subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Session")]
pub struct SessionInfo {
    pub session_id: String,
}

/// A sample message for a test of a topic's filters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Sample {
    pub properties: Properties,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to_session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Also read as `subject`.
    #[serde(alias = "subject", skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_key: Option<String>,
}

/// The result of a sample message in one subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    pub subscription: String,
    /// The number of copies that the subscription would receive.
    pub copies: u64,
    /// The reason why the message would be dead-lettered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<String>,
    pub rules: Vec<ExplainedRule>,
}

/// The result of one rule for the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedRule {
    pub name: String,
    pub matched: bool,
    pub why: String,
}
