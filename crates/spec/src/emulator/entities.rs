//! Namespaces, queues, topics, subscriptions and hubs.

use std::time::Duration;

use peeklock_types::{ConsumerGroup, EntityKind, EntityName, PoisonSession, QueueStatus, RetryPolicy};
use serde::Deserialize;

use super::Place;
use super::properties::{Lifetime, number_or_text, unless_empty};
use super::rules::Rule;
use crate::document::Problem;
use crate::entity::{QueueSpec, SubscriptionSpec, TopicSpec};
use crate::hub::HubSpec;
use crate::named::{Named, SubscriptionName};
use crate::namespace::{NamespaceSpec, check_settings};
use crate::written::{MessageSize, Size};

/// The emulator's default window of duplicate detection.
const DUPLICATE_WINDOW_DEFAULT: Duration = Duration::from_secs(20);

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct Namespace {
    pub(super) name: String,
    #[serde(default)]
    queues: Vec<Queue>,
    #[serde(default)]
    topics: Vec<Topic>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Queue {
    name: String,
    #[serde(default)]
    properties: Properties,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Topic {
    name: String,
    #[serde(default)]
    properties: TopicProperties,
    #[serde(default)]
    subscriptions: Vec<Subscription>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Subscription {
    name: String,
    #[serde(default)]
    properties: SubscriptionProperties,
    rules: Option<Vec<Rule>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
struct Properties {
    dead_lettering_on_message_expiration: Option<bool>,
    #[serde(deserialize_with = "unless_empty")]
    default_message_time_to_live: Option<Lifetime>,
    #[serde(deserialize_with = "unless_empty")]
    duplicate_detection_history_time_window: Option<Duration>,
    #[serde(deserialize_with = "unless_empty")]
    forward_dead_lettered_messages_to: Option<EntityName>,
    #[serde(deserialize_with = "unless_empty")]
    forward_to: Option<EntityName>,
    #[serde(deserialize_with = "unless_empty")]
    lock_duration: Option<Duration>,
    max_delivery_count: Option<u32>,
    requires_duplicate_detection: Option<bool>,
    requires_session: Option<bool>,
    // Not in the emulators' schema.
    #[serde(deserialize_with = "unless_empty")]
    auto_delete_on_idle: Option<Lifetime>,
    max_size_in_megabytes: Option<u32>,
    max_message_size_in_kilobytes: Option<u32>,
    enable_batched_operations: Option<bool>,
    enable_partitioning: Option<bool>,
    enable_express: Option<bool>,
    support_ordering: Option<bool>,
    #[serde(deserialize_with = "unless_empty")]
    status: Option<QueueStatus>,
    #[serde(deserialize_with = "unless_empty")]
    user_metadata: Option<String>,
    #[serde(deserialize_with = "unless_empty")]
    retry_policy: Option<RetryPolicy>,
    #[serde(deserialize_with = "unless_empty")]
    poison_session: Option<PoisonSession>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
struct TopicProperties {
    #[serde(deserialize_with = "unless_empty")]
    default_message_time_to_live: Option<Lifetime>,
    #[serde(deserialize_with = "unless_empty")]
    duplicate_detection_history_time_window: Option<Duration>,
    requires_duplicate_detection: Option<bool>,
    // Not in the emulators' schema.
    #[serde(deserialize_with = "unless_empty")]
    auto_delete_on_idle: Option<Lifetime>,
    max_size_in_megabytes: Option<u32>,
    max_message_size_in_kilobytes: Option<u32>,
    enable_batched_operations: Option<bool>,
    enable_partitioning: Option<bool>,
    enable_express: Option<bool>,
    support_ordering: Option<bool>,
    #[serde(deserialize_with = "unless_empty")]
    status: Option<QueueStatus>,
    #[serde(deserialize_with = "unless_empty")]
    user_metadata: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
struct SubscriptionProperties {
    dead_lettering_on_message_expiration: Option<bool>,
    #[serde(deserialize_with = "unless_empty")]
    default_message_time_to_live: Option<Lifetime>,
    #[serde(deserialize_with = "unless_empty")]
    forward_dead_lettered_messages_to: Option<EntityName>,
    #[serde(deserialize_with = "unless_empty")]
    forward_to: Option<EntityName>,
    #[serde(deserialize_with = "unless_empty")]
    lock_duration: Option<Duration>,
    max_delivery_count: Option<u32>,
    requires_session: Option<bool>,
    // Not in the emulators' schema.
    dead_lettering_on_filter_evaluation_exceptions: Option<bool>,
    #[serde(deserialize_with = "unless_empty")]
    auto_delete_on_idle: Option<Lifetime>,
    enable_batched_operations: Option<bool>,
    #[serde(deserialize_with = "unless_empty")]
    status: Option<QueueStatus>,
    #[serde(deserialize_with = "unless_empty")]
    user_metadata: Option<String>,
    #[serde(deserialize_with = "unless_empty")]
    retry_policy: Option<RetryPolicy>,
    #[serde(deserialize_with = "unless_empty")]
    poison_session: Option<PoisonSession>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(super) struct HubNamespace {
    #[serde(default, rename = "Type")]
    _kind: Option<String>,
    pub(super) name: String,
    #[serde(default)]
    entities: Vec<Hub>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Hub {
    name: String,
    #[serde(default, deserialize_with = "number_or_text")]
    partition_count: Option<u32>,
    #[serde(default)]
    consumer_groups: Vec<WrittenConsumerGroup>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct WrittenConsumerGroup {
    name: String,
}

impl Namespace {
    pub(super) fn spec(self, place: &Place<'_>) -> Result<NamespaceSpec, Problem> {
        let mut spec = NamespaceSpec::default();
        for (at, queue) in self.queues.into_iter().enumerate() {
            let place = place.item("Queues", at);
            let name = entity_name(&queue.name, &spec, &place)?;
            let queue = queue.properties.spec();
            check_settings(&queue.settings(), &name, EntityKind::Queue)
                .map_err(|message| place.problem(message))?;
            spec.queues.0.push((name, queue));
        }
        for (at, topic) in self.topics.into_iter().enumerate() {
            let place = place.item("Topics", at);
            let name = entity_name(&topic.name, &spec, &place)?;
            let topic = topic.spec(&name, &place)?;
            check_settings(&topic.settings(), &name, EntityKind::Topic)
                .map_err(|message| place.problem(message))?;
            spec.topics.0.push((name, topic));
        }
        Ok(spec)
    }
}

impl HubNamespace {
    pub(super) fn spec(self, place: &Place<'_>) -> Result<NamespaceSpec, Problem> {
        let mut spec = NamespaceSpec::default();
        for (at, hub) in self.entities.into_iter().enumerate() {
            let place = place.item("Entities", at);
            let name = entity_name(&hub.name, &spec, &place)?;
            let mut groups: Vec<ConsumerGroup> = Vec::new();
            for (at, group) in hub.consumer_groups.iter().enumerate() {
                let at_name = place.item("ConsumerGroups", at).under(&["Name"]);
                let group =
                    ConsumerGroup::parse(&group.name).map_err(|error| at_name.problem(error.to_string()))?;
                if groups.contains(&group) {
                    let text =
                        format!("the consumer group '{group}' is given twice; case makes no difference");
                    return Err(at_name.problem(text));
                }
                groups.push(group);
            }
            let consumer_groups = Some(groups);
            let hub = HubSpec { partition_count: hub.partition_count, consumer_groups, ..HubSpec::default() };
            hub.check().map_err(|message| place.problem(message))?;
            spec.hubs.0.push((name, hub));
        }
        Ok(spec)
    }
}

/// Returns a valid name that is unique in the namespace.
fn entity_name(text: &str, taken: &NamespaceSpec, place: &Place<'_>) -> Result<EntityName, Problem> {
    let at_name = place.under(&["Name"]);
    let name = EntityName::parse(text).map_err(|error| at_name.problem(error.to_string()))?;
    let queues = taken.queues.0.iter().map(|(name, _)| name);
    let topics = taken.topics.0.iter().map(|(name, _)| name);
    let hubs = taken.hubs.0.iter().map(|(name, _)| name);
    if queues.chain(topics).chain(hubs).any(|taken| *taken == name) {
        return Err(at_name.problem(format!("the name '{name}' is given twice; case makes no difference")));
    }
    Ok(name)
}

/// Returns the window that is stored although duplicates are not detected.
fn unused_window(is_wanted: Option<bool>, window: Option<Duration>) -> Option<Option<Duration>> {
    window.filter(|_| is_wanted != Some(true)).map(Some)
}

fn duplicate_window(is_wanted: Option<bool>, window: Option<Duration>) -> Option<Option<Duration>> {
    is_wanted.map(|is_wanted| is_wanted.then(|| window.unwrap_or(DUPLICATE_WINDOW_DEFAULT)))
}

fn megabytes(count: u32) -> Option<Size> {
    Some(Size(u64::from(count) << 20))
}

/// Converts a count of kilobytes. A product that would overflow is over the limit in any case.
fn kilobytes(count: u32) -> MessageSize {
    MessageSize(count.saturating_mul(1024))
}

impl Properties {
    fn spec(self) -> QueueSpec {
        QueueSpec {
            lock_duration: self.lock_duration,
            max_delivery_count: self.max_delivery_count,
            requires_session: self.requires_session,
            dead_letter_on_expiration: self.dead_lettering_on_message_expiration,
            max_message_size: self.max_message_size_in_kilobytes.map(kilobytes),
            status: self.status,
            retry: self.retry_policy,
            poison_session: self.poison_session,
            batched_operations: self.enable_batched_operations,
            support_ordering: self.support_ordering,
            express: self.enable_express,
            partitioning: self.enable_partitioning,
            default_time_to_live: self.default_message_time_to_live.map(|time| time.0),
            auto_delete_on_idle: self.auto_delete_on_idle.map(|time| time.0),
            duplicate_window: duplicate_window(
                self.requires_duplicate_detection,
                self.duplicate_detection_history_time_window,
            ),
            unused_duplicate_window: unused_window(
                self.requires_duplicate_detection,
                self.duplicate_detection_history_time_window,
            ),
            max_size: self.max_size_in_megabytes.map(megabytes),
            forward_to: self.forward_to.map(Some),
            forward_dead_letters_to: self.forward_dead_lettered_messages_to.map(Some),
            user_metadata: self.user_metadata.map(Some),
            // Other settings can only be set in a `peeklock.toml`.
            ..QueueSpec::default()
        }
    }
}

impl Topic {
    fn spec(self, topic: &EntityName, place: &Place<'_>) -> Result<TopicSpec, Problem> {
        let properties = self.properties;
        let mut subscriptions: Vec<(SubscriptionName, SubscriptionSpec)> = Vec::new();
        for (at, subscription) in self.subscriptions.into_iter().enumerate() {
            let place = place.item("Subscriptions", at);
            let at_name = place.under(&["Name"]);
            let text = subscription.name.clone();
            let name = SubscriptionName::parse(&text).map_err(|error| at_name.problem(error.to_string()))?;
            if subscriptions.iter().any(|(taken, _)| taken.as_str().eq_ignore_ascii_case(&text)) {
                return Err(
                    at_name.problem(format!("the name '{text}' is given twice; case makes no difference"))
                );
            }
            subscriptions.push((name, subscription.spec(topic, &place)?));
        }
        Ok(TopicSpec {
            max_message_size: properties.max_message_size_in_kilobytes.map(kilobytes),
            status: properties.status,
            batched_operations: properties.enable_batched_operations,
            support_ordering: properties.support_ordering,
            express: properties.enable_express,
            partitioning: properties.enable_partitioning,
            default_time_to_live: properties.default_message_time_to_live.map(|time| time.0),
            auto_delete_on_idle: properties.auto_delete_on_idle.map(|time| time.0),
            duplicate_window: duplicate_window(
                properties.requires_duplicate_detection,
                properties.duplicate_detection_history_time_window,
            ),
            unused_duplicate_window: unused_window(
                properties.requires_duplicate_detection,
                properties.duplicate_detection_history_time_window,
            ),
            max_size: properties.max_size_in_megabytes.map(megabytes),
            user_metadata: properties.user_metadata.map(Some),
            subscriptions: Some(Named(subscriptions)),
        })
    }
}

impl Subscription {
    fn spec(self, topic: &EntityName, place: &Place<'_>) -> Result<SubscriptionSpec, Problem> {
        let properties = self.properties;
        let rules = match self.rules {
            Some(rules) if !rules.is_empty() => Some(super::rules::specs(rules, place)?),
            _ => None,
        };
        let spec = SubscriptionSpec {
            lock_duration: properties.lock_duration,
            max_delivery_count: properties.max_delivery_count,
            requires_session: properties.requires_session,
            dead_letter_on_expiration: properties.dead_lettering_on_message_expiration,
            dead_letter_on_filter_error: properties.dead_lettering_on_filter_evaluation_exceptions,
            status: properties.status,
            retry: properties.retry_policy,
            poison_session: properties.poison_session,
            batched_operations: properties.enable_batched_operations,
            default_time_to_live: properties.default_message_time_to_live.map(|time| time.0),
            auto_delete_on_idle: properties.auto_delete_on_idle.map(|time| time.0),
            forward_to: properties.forward_to.map(Some),
            forward_dead_letters_to: properties.forward_dead_lettered_messages_to.map(Some),
            user_metadata: properties.user_metadata.map(Some),
            rules,
            ..SubscriptionSpec::default()
        };
        let full = EntityName::subscription(topic, &self.name);
        let full = full.map_err(|error| place.under(&["Name"]).problem(error.to_string()))?;
        check_settings(&spec.settings(), &full, EntityKind::Subscription)
            .map_err(|message| place.problem(message))?;
        Ok(spec)
    }
}
