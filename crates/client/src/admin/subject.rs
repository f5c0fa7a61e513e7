//! The subject of a management request: its names in the path, the entity of its token, and its name in errors.

use std::fmt;

use peeklock_types::{EntityName, SequenceNumber};

/// The namespace or the entity to which access keys belong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyScope {
    /// The keys are valid for all entities.
    Namespace,
    /// The keys are valid for one queue.
    Queue(EntityName),
    /// The keys are valid for one topic and its subscriptions.
    Topic(EntityName),
    /// The keys are valid for one event hub.
    Hub(EntityName),
}

/// One item, or a collection, of the JSON API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    Queues,
    Queue(EntityName),
    Topics,
    Topic(EntityName),
    Subscriptions {
        topic: EntityName,
    },
    Subscription {
        topic: EntityName,
        name: String,
    },
    Rules {
        topic: EntityName,
        subscription: String,
    },
    Rule {
        topic: EntityName,
        subscription: String,
        name: String,
    },
    /// A message of a queue or subscription.
    Message {
        entity: EntityName,
        number: SequenceNumber,
    },
    QueueGroups,
    QueueGroup(EntityName),
    Hubs,
    Hub(EntityName),
    /// A part of a hub: the names in its path after the hub, and its name in errors.
    OfHub {
        hub: EntityName,
        names: Vec<(&'static str, String)>,
        told: String,
    },
    Keys(KeyScope),
    Key(KeyScope, String),
}

impl Subject {
    /// Returns the names in the path from left to right, each with its key.
    pub(crate) fn names(&self) -> Vec<(&'static str, String)> {
        match self {
            Subject::Queues | Subject::Topics | Subject::QueueGroups | Subject::Hubs => Vec::new(),
            Subject::Queue(name) => vec![("queue", name.to_string())],
            Subject::Topic(topic) | Subject::Subscriptions { topic } => vec![("topic", topic.to_string())],
            Subject::Subscription { topic, name: subscription } | Subject::Rules { topic, subscription } => {
                vec![("topic", topic.to_string()), ("subscription", subscription.clone())]
            }
            Subject::Rule { topic, subscription, name } => vec![
                ("topic", topic.to_string()),
                ("subscription", subscription.clone()),
                ("rule", name.clone()),
            ],
            Subject::Message { entity, number } => {
                let mut names = Subject::entity(entity).names();
                names.push(("number", number.to_string()));
                names
            }
            Subject::QueueGroup(name) => vec![("queueGroup", name.to_string())],
            Subject::Hub(hub) => vec![("hub", hub.to_string())],
            Subject::OfHub { hub, names, .. } => [vec![("hub", hub.to_string())], names.clone()].concat(),
            Subject::Keys(scope) => scope.names(),
            Subject::Key(scope, name) => [scope.names(), vec![("policy", name.clone())]].concat(),
        }
    }

    /// Returns the entity of the token. For a subscription or rule, this is the topic: the key of a topic is valid for all its parts.
    pub(crate) fn token_entity(&self) -> String {
        let first = self.names().into_iter().next();
        first.filter(|(key, _)| *key != "policy").map_or_else(String::new, |(_, name)| name)
    }

    /// Returns the subject for the whole name of a queue or subscription.
    pub(crate) fn entity(name: &EntityName) -> Subject {
        match (name.topic(), name.topic_and_subscription()) {
            (Some(topic), Some((_, name))) => Subject::Subscription { topic, name: name.to_owned() },
            _ => Subject::Queue(name.clone()),
        }
    }

    /// Returns the missing subject when this one is not found. For a collection, this is the entity that it belongs to.
    pub(crate) fn missing(&self) -> Subject {
        match self.clone() {
            Subject::Subscriptions { topic } => Subject::Topic(topic),
            Subject::Rules { topic, subscription } => Subject::Subscription { topic, name: subscription },
            Subject::Keys(KeyScope::Queue(name)) => Subject::Queue(name),
            Subject::Keys(KeyScope::Topic(name)) => Subject::Topic(name),
            Subject::Keys(KeyScope::Hub(name)) => Subject::Hub(name),
            other => other,
        }
    }

    /// Returns the advice for a missing subject.
    pub(crate) fn remedy(&self) -> String {
        match self {
            Subject::Queue(name) => {
                format!("create it with `peeklock queue create {name}`, or check the name")
            }
            Subject::Topic(name) => {
                format!("create it with `peeklock topic create {name}`, or check the name")
            }
            Subject::Hub(name) => {
                format!("create it with `peeklock hub create {name}`, or check the name")
            }
            Subject::OfHub { hub, .. } => {
                format!("`peeklock hub show {hub}` shows what there is")
            }
            Subject::Subscription { topic, name } => {
                format!("create it with `peeklock subscription create {topic} {name}`, or check the names")
            }
            Subject::Rule { topic, subscription, .. } => {
                format!("`peeklock rule list {topic} {subscription}` shows those that are there")
            }
            Subject::Message { entity, .. } => {
                format!("`peeklock peek {entity}` shows those that are there")
            }
            Subject::Key(scope, _) => {
                format!("`peeklock key list{}` shows those that are there", scope.flag())
            }
            Subject::QueueGroup(name) => {
                format!("declare it in the broker's configuration under [groups.{name}], or check the name")
            }
            Subject::Queues | Subject::Topics | Subject::QueueGroups | Subject::Hubs | Subject::Keys(_) => {
                "check the address".to_owned()
            }
            Subject::Subscriptions { .. } | Subject::Rules { .. } => self.missing().remedy(),
        }
    }

    /// Returns the description of the entity, rule or key that already has the name of a new one.
    pub(crate) fn rival(&self) -> String {
        match self {
            Subject::Queue(name) | Subject::Topic(name) | Subject::Hub(name) => {
                format!("queue, topic or hub '{name}'")
            }
            other => other.to_string(),
        }
    }

    /// Returns the advice for a subject that exists already.
    pub(crate) fn change(&self) -> String {
        match self {
            Subject::Queue(name) => {
                format!("change it with `peeklock queue update {name}`, or choose another name")
            }
            Subject::Topic(name) => {
                format!("change it with `peeklock topic update {name}`, or choose another name")
            }
            Subject::Hub(name) => {
                format!("change it with `peeklock hub update {name}`, or choose another name")
            }
            Subject::Subscription { topic, name } => {
                format!("change it with `peeklock subscription update {topic} {name}`")
            }
            Subject::Rule { topic, subscription, name } => {
                format!("remove it first with `peeklock rule remove {topic} {subscription} '{name}'`")
            }
            Subject::Key(scope, name) => {
                format!("give it a new secret with `peeklock key rotate {name}{}`", scope.flag())
            }
            _ => "choose another name".to_owned(),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Queues => write!(f, "the queues"),
            Subject::Queue(name) => write!(f, "queue '{name}'"),
            Subject::Topics => write!(f, "the topics"),
            Subject::Topic(name) => write!(f, "topic '{name}'"),
            Subject::Subscriptions { topic } => write!(f, "the subscriptions of topic '{topic}'"),
            Subject::Subscription { topic, name } => write!(f, "subscription '{name}' of topic '{topic}'"),
            Subject::Rules { topic, subscription } => {
                write!(f, "the rules of subscription '{subscription}' of topic '{topic}'")
            }
            Subject::Rule { topic, subscription, name } => {
                write!(f, "rule '{name}' of subscription '{subscription}' of topic '{topic}'")
            }
            Subject::Message { entity, number } => write!(f, "message {number} of '{entity}'"),
            Subject::QueueGroups => write!(f, "the groups"),
            Subject::QueueGroup(name) => write!(f, "group '{name}'"),
            Subject::Hubs => write!(f, "the hubs"),
            Subject::Hub(name) => write!(f, "hub '{name}'"),
            Subject::OfHub { hub, told, .. } => write!(f, "{told} of hub '{hub}'"),
            Subject::Keys(scope) => write!(f, "the keys of {scope}"),
            Subject::Key(scope, name) => write!(f, "key '{name}' of {scope}"),
        }
    }
}

impl KeyScope {
    fn names(&self) -> Vec<(&'static str, String)> {
        match self {
            KeyScope::Namespace => Vec::new(),
            KeyScope::Queue(name) => vec![("queue", name.to_string())],
            KeyScope::Topic(name) => vec![("topic", name.to_string())],
            KeyScope::Hub(name) => vec![("hub", name.to_string())],
        }
    }

    fn flag(&self) -> String {
        match self {
            KeyScope::Namespace => String::new(),
            KeyScope::Queue(name) => format!(" --queue {name}"),
            KeyScope::Topic(name) => format!(" --topic {name}"),
            KeyScope::Hub(name) => format!(" --hub {name}"),
        }
    }
}

impl fmt::Display for KeyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyScope::Namespace => write!(f, "the namespace"),
            KeyScope::Queue(name) => write!(f, "queue '{name}'"),
            KeyScope::Topic(name) => write!(f, "topic '{name}'"),
            KeyScope::Hub(name) => write!(f, "hub '{name}'"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_the_entity_that_the_key_belongs_to() {
        let topic = EntityName::parse("shop/orders").unwrap();
        let rule =
            Subject::Rule { topic: topic.clone(), subscription: "a.b".into(), name: "$Default".into() };
        assert_eq!(rule.token_entity(), "shop/orders");
        assert_eq!(Subject::Key(KeyScope::Topic(topic), "app".into()).token_entity(), "shop/orders");
        assert_eq!(Subject::Key(KeyScope::Namespace, "app".into()).token_entity(), "");
        assert_eq!(Subject::Keys(KeyScope::Namespace).token_entity(), "");
    }
}
