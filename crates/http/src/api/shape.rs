//! What the JSON API tells, as types. What it takes is declared in `peeklock_spec`, or here where it is nobody else's.

use peeklock_access::Policy;
use peeklock_api::Runtime;
use peeklock_broker::{EntityInfo, RuleInfo, engine};
use peeklock_spec::{Properties, QueueSpec, RuleSpec, SubscriptionSpec, TopicSpec, show_time};
use serde::{Deserialize, Serialize};

/// A page of a collection. `next` goes into `after` for the page behind this one.
#[derive(Serialize)]
pub(super) struct Page<T> {
    pub(super) items: Vec<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}

/// One of the three kinds. Written as it is, and not through a map that sorts its keys: classes of tenants are asked in the order in which
/// they are written.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Entity {
    Queue(Box<Queue>),
    Topic(Box<Topic>),
    Subscription(Box<Subscription>),
}

#[derive(Serialize)]
pub(super) struct Queue {
    name: String,
    #[serde(flatten)]
    spec: QueueSpec,
    #[serde(flatten)]
    counts: Counts,
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime: Option<Runtime>,
    #[serde(flatten)]
    dates: Dates,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Topic {
    name: String,
    #[serde(flatten)]
    spec: TopicSpec,
    subscription_count: u64,
    sql_rule_count: u64,
    correlation_rule_count: u64,
    scheduled_count: u64,
    size_bytes: u64,
    #[serde(flatten)]
    dates: Dates,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Subscription {
    name: String,
    topic: String,
    #[serde(flatten)]
    spec: SubscriptionSpec,
    #[serde(flatten)]
    counts: Counts,
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime: Option<Runtime>,
    rule_count: u64,
    #[serde(flatten)]
    dates: Dates,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    active_count: u64,
    locked_count: u64,
    deferred_count: u64,
    scheduled_count: u64,
    dead_letter_count: u64,
    transfer_count: u64,
    transfer_dead_letter_count: u64,
    message_count: u64,
    size_bytes: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Dates {
    created_at: String,
    updated_at: String,
    accessed_at: String,
    revision: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rule {
    name: String,
    #[serde(flatten)]
    spec: RuleSpec,
    created_at: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PolicyShape {
    name: String,
    rights: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    primary_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secondary_key: Option<String>,
    /// By flags or configuration: cannot be changed here.
    is_declared: bool,
    created_at: String,
    modified_at: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Explained {
    subscription: String,
    copies: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letters: Option<String>,
    rules: Vec<ExplainedRule>,
}

#[derive(Serialize)]
struct ExplainedRule {
    name: String,
    matched: bool,
    why: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RegenerateBody {
    pub(super) key: KeyName,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "camelCase")]
pub(super) enum KeyName {
    Primary,
    Secondary,
}

/// A message to try filters with.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Sample {
    pub(super) message_id: Option<String>,
    pub(super) correlation_id: Option<String>,
    pub(super) session_id: Option<String>,
    pub(super) reply_to_session_id: Option<String>,
    pub(super) to: Option<String>,
    pub(super) reply_to: Option<String>,
    #[serde(alias = "subject")]
    pub(super) label: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) partition_key: Option<String>,
    pub(super) properties: Properties,
}

impl Entity {
    pub(super) fn queue(entity: &EntityInfo, runtime: Option<Runtime>) -> Self {
        Entity::Queue(Box::new(Queue::of(entity, runtime)))
    }

    pub(super) fn topic(entity: &EntityInfo) -> Self {
        Entity::Topic(Box::new(Topic::of(entity)))
    }

    pub(super) fn subscription(entity: &EntityInfo, runtime: Option<Runtime>) -> Self {
        Entity::Subscription(Box::new(Subscription::of(entity, runtime)))
    }
}

impl Queue {
    fn of(entity: &EntityInfo, runtime: Option<Runtime>) -> Self {
        Queue {
            name: entity.name.to_string(),
            spec: QueueSpec::of(&entity.settings),
            counts: Counts::of(&entity.counts),
            runtime,
            dates: Dates::of(entity),
        }
    }
}

impl Topic {
    fn of(entity: &EntityInfo) -> Self {
        Topic {
            name: entity.name.to_string(),
            spec: TopicSpec::of(&entity.settings),
            subscription_count: count(entity.subscription_count),
            sql_rule_count: count(entity.sql_rule_count),
            correlation_rule_count: count(entity.correlation_rule_count),
            scheduled_count: entity.counts.scheduled_count,
            size_bytes: entity.counts.size_bytes,
            dates: Dates::of(entity),
        }
    }
}

impl Subscription {
    fn of(entity: &EntityInfo, runtime: Option<Runtime>) -> Self {
        let (topic, name) = entity.name.topic_and_subscription().unwrap_or_default();
        Subscription {
            name: name.to_owned(),
            topic: topic.to_owned(),
            spec: SubscriptionSpec::of(&entity.settings),
            counts: Counts::of(&entity.counts),
            runtime,
            rule_count: count(entity.rule_count),
            dates: Dates::of(entity),
        }
    }
}

impl Counts {
    fn of(counts: &engine::Counts) -> Self {
        Counts {
            active_count: counts.active_count,
            locked_count: counts.locked_count,
            deferred_count: counts.deferred_count,
            scheduled_count: counts.scheduled_count,
            dead_letter_count: counts.dead_letter_count,
            transfer_count: counts.transfer_count,
            transfer_dead_letter_count: counts.transfer_dead_letter_count,
            message_count: counts.message_count(),
            size_bytes: counts.size_bytes,
        }
    }
}

impl Dates {
    fn of(entity: &EntityInfo) -> Self {
        Dates {
            created_at: show_time(entity.created_at),
            updated_at: show_time(entity.updated_at),
            accessed_at: show_time(entity.accessed_at),
            revision: entity.revision,
        }
    }
}

impl Rule {
    pub(super) fn of(info: &RuleInfo) -> Self {
        Rule {
            name: info.rule.name.to_string(),
            spec: RuleSpec::of(&info.rule),
            created_at: show_time(info.created_at),
        }
    }
}

impl PolicyShape {
    /// `with_keys`: secrets are handed out one policy at a time only, so that a list can be looked at by anybody's side.
    pub(super) fn of(policy: &Policy, is_declared: bool, with_keys: bool) -> Self {
        let key = |secret: &peeklock_access::Secret| with_keys.then(|| secret.expose().to_owned());
        PolicyShape {
            name: policy.name.clone(),
            rights: policy.rights.iter().map(peeklock_access::Right::name).collect(),
            primary_key: key(&policy.primary),
            secondary_key: key(&policy.secondary),
            is_declared,
            created_at: show_time(policy.created_at),
            modified_at: show_time(policy.modified_at),
        }
    }
}

impl Explained {
    pub(super) fn of(explained: engine::Explained) -> Self {
        let name = explained.subscription.topic_and_subscription().map(|(_, name)| name.to_owned());
        let rules = explained.rules.into_iter().map(|rule| ExplainedRule {
            name: rule.name.to_string(),
            matched: rule.matched,
            why: rule.why,
        });
        Explained {
            subscription: name.unwrap_or_default(),
            copies: count(explained.copy_count),
            dead_letters: explained.dead_letter,
            rules: rules.collect(),
        }
    }
}

fn count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
