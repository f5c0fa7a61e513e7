//! What the JSON API tells of entities, rules and keys.

use peeklock_spec::{
    Named, PropertyValue, QueueGroupSpec, QueueSpec, RuleSpec, Runtime, SubscriptionSpec, TopicSpec,
};
use serde::{Deserialize, Serialize};

/// A queue with its settings and counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueInfo {
    pub name: String,
    #[serde(flatten)]
    pub spec: QueueSpec,
    #[serde(flatten)]
    pub counts: Counts,
    /// What happens in its classes, if it has an order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
    #[serde(flatten)]
    pub history: History,
}

/// A topic with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopicInfo {
    pub name: String,
    #[serde(flatten)]
    pub spec: TopicSpec,
    pub subscription_count: u64,
    /// Rules of all subscriptions, by kind.
    pub sql_rule_count: u64,
    pub correlation_rule_count: u64,
    /// Not yet handed to the subscriptions.
    pub scheduled_count: u64,
    pub size_bytes: u64,
    #[serde(flatten)]
    pub history: History,
}

/// A subscription with its settings and counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscriptionInfo {
    pub name: String,
    pub topic: String,
    #[serde(flatten)]
    pub spec: SubscriptionSpec,
    #[serde(flatten)]
    pub counts: Counts,
    /// What happens in its classes, if it has an order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
    pub rule_count: u64,
    #[serde(flatten)]
    pub history: History,
}

/// A group of queues and subscriptions, as the configuration of the broker declares it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupInfo {
    pub name: String,
    #[serde(flatten)]
    pub spec: QueueGroupSpec,
}

/// The messages of a queue or subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Counts {
    /// Waiting to be received.
    pub active_count: u64,
    /// Held by a receiver.
    pub locked_count: u64,
    pub deferred_count: u64,
    /// Not yet available.
    pub scheduled_count: u64,
    pub dead_letter_count: u64,
    /// On their way to the entity that this one forwards to.
    pub transfer_count: u64,
    /// Those that could not be forwarded.
    pub transfer_dead_letter_count: u64,
    /// All of them.
    pub message_count: u64,
    pub size_bytes: u64,
}

/// When an entity was made and used. Times are written as in RFC 3339.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    pub created_at: String,
    pub updated_at: String,
    pub accessed_at: String,
    /// Grows with every change of the settings.
    pub revision: u64,
}

/// A rule of a subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleInfo {
    pub name: String,
    #[serde(flatten)]
    pub spec: RuleSpec,
    pub created_at: String,
}

/// An access key. Its `Debug` form leaves the secrets out.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyInfo {
    pub name: String,
    pub rights: Vec<String>,
    /// Either secret works. Absent where only names were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secondary_key: Option<String>,
    /// By the broker's flags or its configuration: cannot be changed from here.
    pub is_declared: bool,
    pub created_at: String,
    pub modified_at: String,
}

impl std::fmt::Debug for KeyInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyInfo")
            .field("name", &self.name)
            .field("rights", &self.rights)
            .finish_non_exhaustive()
    }
}

/// Which secret of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum WhichKey {
    Primary,
    Secondary,
}

/// A message to try a topic's filters with.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    pub properties: Named<String, PropertyValue>,
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
    /// What it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

/// What would become of a message in one subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    pub subscription: String,
    /// How many times it would come there.
    pub copies: u64,
    /// Why it would go to the dead-letter queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_letters: Option<String>,
    pub rules: Vec<ExplainedRule>,
}

/// What one rule says of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedRule {
    pub name: String,
    pub matched: bool,
    pub why: String,
}
