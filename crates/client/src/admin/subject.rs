//! What a management request is about: how it is addressed, what the token must be for, and how it is told to people.

use std::fmt;

use peeklock_types::{EntityName, SequenceNumber};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// What access keys belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyScope {
    Namespace,
    Queue(EntityName),
    Topic(EntityName),
    Hub(EntityName),
}

/// One thing, or a collection, of the JSON API.
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
    /// Of a queue or subscription.
    Message {
        entity: EntityName,
        number: SequenceNumber,
    },
    Groups,
    Group(EntityName),
    Hubs,
    Hub(EntityName),
    /// What belongs to a hub: its path below the hub's, and what people call it.
    OfHub {
        hub: EntityName,
        path: String,
        told: String,
    },
    Keys(KeyScope),
    Key(KeyScope, String),
}

impl Subject {
    pub(crate) fn path(&self) -> String {
        match self {
            Subject::Queues => "/api/queues".to_owned(),
            Subject::Queue(name) => format!("/api/queues/{}", encode(name.as_str())),
            Subject::Topics => "/api/topics".to_owned(),
            Subject::Topic(name) => format!("/api/topics/{}", encode(name.as_str())),
            Subject::Subscriptions { topic } => {
                format!("/api/topics/{}/subscriptions", encode(topic.as_str()))
            }
            Subject::Subscription { topic, name } => {
                format!("/api/topics/{}/subscriptions/{}", encode(topic.as_str()), encode(name))
            }
            Subject::Rules { topic, subscription } => {
                format!("/api/topics/{}/subscriptions/{}/rules", encode(topic.as_str()), encode(subscription))
            }
            Subject::Rule { topic, subscription, name } => {
                let (topic, subscription) = (encode(topic.as_str()), encode(subscription));
                format!("/api/topics/{topic}/subscriptions/{subscription}/rules/{}", encode(name))
            }
            Subject::Message { entity, number } => {
                format!("{}/messages/{number}", Subject::entity(entity).path())
            }
            Subject::Groups => "/api/groups".to_owned(),
            Subject::Group(name) => format!("/api/groups/{}", encode(name.as_str())),
            Subject::Hubs => "/api/hubs".to_owned(),
            Subject::Hub(name) => format!("/api/hubs/{}", encode(name.as_str())),
            Subject::OfHub { hub, path, .. } => format!("/api/hubs/{}/{path}", encode(hub.as_str())),
            Subject::Keys(scope) => format!("{}/policies", scope.path()),
            Subject::Key(scope, name) => format!("{}/policies/{}", scope.path(), encode(name)),
        }
    }

    /// The entity that the token is for. A key of an entity signs for that entity, and for a topic's key that is the topic, also for what is
    /// below it.
    pub(crate) fn token_entity(&self) -> &str {
        match self {
            Subject::Queues | Subject::Topics | Subject::Groups | Subject::Hubs => "",
            Subject::Queue(name) | Subject::Topic(name) | Subject::Group(name) | Subject::Hub(name) => {
                name.as_str()
            }
            Subject::OfHub { hub, .. } => hub.as_str(),
            Subject::Subscriptions { topic }
            | Subject::Subscription { topic, .. }
            | Subject::Rules { topic, .. }
            | Subject::Rule { topic, .. } => topic.as_str(),
            Subject::Message { entity, .. } => match entity.topic_and_subscription() {
                Some((topic, _)) => topic,
                None => entity.as_str(),
            },
            Subject::Keys(scope) | Subject::Key(scope, _) => scope.name(),
        }
    }

    /// A queue, or a subscription by its whole name.
    pub(crate) fn entity(name: &EntityName) -> Subject {
        match (name.topic(), name.topic_and_subscription()) {
            (Some(topic), Some((_, name))) => Subject::Subscription { topic, name: name.to_owned() },
            _ => Subject::Queue(name.clone()),
        }
    }

    /// What is not there when this is not found: of a collection, whatever it belongs to.
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

    /// How to make one of its kind; for people who miss it.
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
            Subject::Group(name) => {
                format!("declare it in the broker's configuration under [groups.{name}], or check the name")
            }
            Subject::Queues | Subject::Topics | Subject::Groups | Subject::Hubs | Subject::Keys(_) => {
                "check the address".to_owned()
            }
            Subject::Subscriptions { .. } | Subject::Rules { .. } => self.missing().remedy(),
        }
    }

    /// What has the name that a new one should get.
    pub(crate) fn rival(&self) -> String {
        match self {
            Subject::Queue(name) | Subject::Topic(name) | Subject::Hub(name) => {
                format!("queue, topic or hub '{name}'")
            }
            other => other.to_string(),
        }
    }

    /// What to do about one that exists already.
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
            Subject::Groups => write!(f, "the groups"),
            Subject::Group(name) => write!(f, "group '{name}'"),
            Subject::Hubs => write!(f, "the hubs"),
            Subject::Hub(name) => write!(f, "hub '{name}'"),
            Subject::OfHub { hub, told, .. } => write!(f, "{told} of hub '{hub}'"),
            Subject::Keys(scope) => write!(f, "the keys of {scope}"),
            Subject::Key(scope, name) => write!(f, "key '{name}' of {scope}"),
        }
    }
}

impl KeyScope {
    fn path(&self) -> String {
        match self {
            KeyScope::Namespace => "/api".to_owned(),
            KeyScope::Queue(name) => format!("/api/queues/{}", encode(name.as_str())),
            KeyScope::Topic(name) => format!("/api/topics/{}", encode(name.as_str())),
            KeyScope::Hub(name) => format!("/api/hubs/{}", encode(name.as_str())),
        }
    }

    fn name(&self) -> &str {
        match self {
            KeyScope::Namespace => "",
            KeyScope::Queue(name) | KeyScope::Topic(name) | KeyScope::Hub(name) => name.as_str(),
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

/// One segment of a path: the '/' of a name is none of the path's own.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_segment_of_the_path_each() {
        let topic = EntityName::parse("shop/orders").unwrap();
        let rule =
            Subject::Rule { topic: topic.clone(), subscription: "a.b".into(), name: "$Default".into() };
        assert_eq!(rule.path(), "/api/topics/shop%2Forders/subscriptions/a%2Eb/rules/%24Default");
        assert_eq!(rule.token_entity(), "shop/orders");
        assert_eq!(
            Subject::Key(KeyScope::Topic(topic), "app key".into()).path(),
            "/api/topics/shop%2Forders/policies/app%20key"
        );
        assert_eq!(Subject::Keys(KeyScope::Namespace).path(), "/api/policies");
        assert_eq!(Subject::Keys(KeyScope::Namespace).token_entity(), "");
    }
}
