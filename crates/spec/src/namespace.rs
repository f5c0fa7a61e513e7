//! A namespace with all its entities, in configuration files.

use peeklock_types::{EntityKind, EntityName, QueueGroupError, QueueSettings, Tier, limits};
use serde::{Deserialize, Serialize};

use crate::entity::{QueueSpec, TopicSpec};
use crate::hub::HubSpec;
use crate::named::{Name, Named};
use crate::order::OrderSpec;
use crate::policy::PolicySpec;
use crate::queue_group::QueueGroupSpec;
use crate::written::setting;

/// The entities of a namespace. A topic contains its subscriptions, and a subscription its rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NamespaceSpec {
    /// The host names of the namespace.
    pub hosts: Vec<String>,
    /// The tier; the default is that of the server.
    #[serde(with = "setting", skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Policies with their keys, by name.
    pub keys: Named<String, PolicySpec>,
    pub queues: Named<EntityName, QueueSpec>,
    pub topics: Named<EntityName, TopicSpec>,
    /// Queue groups: several queues or subscriptions under one name for receivers.
    pub groups: Named<EntityName, QueueGroupSpec>,
    pub hubs: Named<EntityName, HubSpec>,
}

/// An invalid part of a namespace, and its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    pub path: Vec<String>,
    pub message: String,
}

impl Misfit {
    /// Returns the same error with a longer path.
    #[must_use]
    pub fn under(self, keys: impl IntoIterator<Item = String>) -> Self {
        Misfit { path: keys.into_iter().chain(self.path).collect(), message: self.message }
    }
}

impl NamespaceSpec {
    /// Checks that every entity is valid by itself and that names are unique.
    pub fn check(&self) -> Result<(), Misfit> {
        for (name, queue) in &self.queues.0 {
            let path = || vec!["queues".to_owned(), name.to_string()];
            check_order(queue.order.as_ref(), path)?;
            check_settings(&queue.settings(), name, EntityKind::Queue)
                .map_err(|message| misfit(path(), message))?;
        }
        for (name, topic) in &self.topics.0 {
            let path = || vec!["topics".to_owned(), name.to_string()];
            if self.queues.0.iter().any(|(queue, _)| queue == name) {
                return Err(misfit(
                    path(),
                    format!("there is a queue '{name}' already; a queue and a topic cannot share a name"),
                ));
            }
            check_settings(&topic.settings(), name, EntityKind::Topic)
                .map_err(|message| misfit(path(), message))?;
            check_subscriptions(name, topic, &path())?;
        }
        self.check_groups()?;
        for (name, policy) in &self.keys.0 {
            let path = || vec!["keys".to_owned(), name.clone()];
            policy.declared(name).map_err(|error| misfit(path(), error.to_string()))?;
        }
        self.check_hubs()
    }

    fn check_hubs(&self) -> Result<(), Misfit> {
        for (name, hub) in &self.hubs.0 {
            let path = || vec!["hubs".to_owned(), name.to_string()];
            if let Some(kind) = self.kind_of(name) {
                let text =
                    format!("there is a {kind} '{name}' already; a {kind} and a hub cannot share a name");
                return Err(misfit(path(), text));
            }
            if name.is_subscription() {
                return Err(misfit(
                    path(),
                    format!("'{name}' is the name of a subscription; give the hub its own"),
                ));
            }
            hub.check().map_err(|message| misfit(path(), message))?;
        }
        Ok(())
    }

    /// Returns the kind of the entity with this name, except hubs.
    fn kind_of(&self, name: &EntityName) -> Option<&'static str> {
        let is_queue = self.queues.0.iter().any(|(queue, _)| queue == name);
        let is_topic = self.topics.0.iter().any(|(topic, _)| topic == name);
        let is_group = self.groups.0.iter().any(|(group, _)| group == name);
        let kinds = [(is_queue, "queue"), (is_topic, "topic"), (is_group, "group")];
        kinds.into_iter().find_map(|(is_this, kind)| is_this.then_some(kind))
    }

    fn check_groups(&self) -> Result<(), Misfit> {
        let count = self.groups.0.len();
        if count > limits::GROUPS_MAX {
            let text = format!("{count} groups are too many; at most {} are allowed", limits::GROUPS_MAX);
            return Err(misfit(vec!["groups".to_owned()], text));
        }
        for (name, group) in &self.groups.0 {
            let path = || vec!["groups".to_owned(), name.to_string()];
            let taken = |kind: &str, by: &EntityName| {
                let text = format!("there is a {kind} '{by}'; a {kind} and a group cannot share a name");
                Err(misfit(path(), text))
            };
            if name.is_subscription() {
                return Err(misfit(
                    path(),
                    format!("'{name}' is the name of a subscription; give the group its own"),
                ));
            }
            if let Some((queue, _)) = self.queues.0.iter().find(|(queue, _)| queue == name) {
                return taken("queue", queue);
            }
            if let Some((topic, _)) = self.topics.0.iter().find(|(topic, _)| topic == name) {
                return taken("topic", topic);
            }
            group.settings().check(name).map_err(|error| {
                let key = match error {
                    QueueGroupError::Outstanding { .. } => "maxOutstanding",
                    _ => "members",
                };
                misfit(path().into_iter().chain([key.to_owned()]).collect(), error.to_string())
            })?;
            for member in &group.members {
                self.check_member(&member.0.name).map_err(|message| {
                    misfit(path().into_iter().chain(["members".to_owned()]).collect(), message)
                })?;
            }
        }
        Ok(())
    }

    /// Checks a member of a queue group as far as the file determines it; the member may be created later.
    fn check_member(&self, name: &EntityName) -> Result<(), String> {
        if self.groups.0.iter().any(|(group, _)| group == name) {
            return Err(format!("the member '{name}' is a group; name its members instead"));
        }
        if self.topics.0.iter().any(|(topic, _)| topic == name) {
            return Err(format!(
                "the member '{name}' is a topic; name one of its subscriptions, '{name}/Subscriptions/…'"
            ));
        }
        let queues = self.queues.0.iter().map(|(queue, spec)| (queue.clone(), spec.settings()));
        let subscriptions = self.topics.0.iter().flat_map(|(topic, spec)| {
            let named = spec.subscriptions.iter().flat_map(|named| &named.0);
            named.filter_map(move |(subscription, spec)| {
                Some((EntityName::subscription(topic, subscription.as_str()).ok()?, spec.settings()))
            })
        });
        let found = queues.chain(subscriptions).find(|(known, _)| known == name);
        match found.is_some_and(|(_, settings)| settings.requires_session) {
            true => Err(format!(
                "the member '{name}' has sessions, and a group hands out single messages; leave it out"
            )),
            false => Ok(()),
        }
    }
}

fn misfit(path: Vec<String>, message: impl Into<String>) -> Misfit {
    Misfit { path, message: message.into() }
}

fn check_order(order: Option<&Option<OrderSpec>>, path: impl FnOnce() -> Vec<String>) -> Result<(), Misfit> {
    let Some(Some(order)) = order else { return Ok(()) };
    order.check().map_err(|inside| inside.under(path().into_iter().chain(["order".to_owned()])))
}

pub(crate) fn check_settings(
    settings: &QueueSettings,
    name: &EntityName,
    kind: EntityKind,
) -> Result<(), String> {
    if kind != EntityKind::Subscription && name.is_subscription() {
        return Err(format!("'{name}' is the name of a subscription; declare it under its topic"));
    }
    settings.check().and_then(|()| settings.check_kind(kind)).map_err(|error| error.to_string())
}

fn check_subscriptions(topic: &EntityName, spec: &TopicSpec, path: &[String]) -> Result<(), Misfit> {
    let subscriptions = spec.subscriptions.iter().flat_map(|named| &named.0);
    for (name, subscription) in subscriptions {
        let path = [path, &["subscriptions".to_owned(), name.as_text().to_owned()]].concat();
        let wrong = |message: String| misfit(path.clone(), message);
        let full =
            EntityName::subscription(topic, name.as_str()).map_err(|error| wrong(error.to_string()))?;
        check_order(subscription.order.as_ref(), || path.clone())?;
        check_settings(&subscription.settings(), &full, EntityKind::Subscription).map_err(wrong)?;
        for (rule_name, rule) in subscription.rules.iter().flat_map(|named| &named.0) {
            let place = |key: Option<&str>| {
                let keys = ["rules", rule_name.as_text()].into_iter().chain(key);
                path.iter().cloned().chain(keys.map(str::to_owned)).collect()
            };
            rule.check().map_err(|error| misfit(place(error.key), error.message))?;
        }
    }
    Ok(())
}
