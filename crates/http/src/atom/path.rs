//! Addresses of management over ATOM.

use peeklock_filter::RuleName;
use peeklock_types::{ConsumerGroup, EntityName};

use crate::problem::Problem;
use crate::request::shown;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum AtomPath {
    Namespace,
    Queues,
    Topics,
    /// A queue or a topic; only the description specifies which.
    Entity(EntityName),
    Subscriptions {
        topic: EntityName,
    },
    Subscription(EntityName),
    Rules {
        subscription: EntityName,
    },
    Rule {
        subscription: EntityName,
        name: RuleName,
    },
    Hubs,
    ConsumerGroups {
        hub: EntityName,
    },
    ConsumerGroup {
        hub: EntityName,
        group: ConsumerGroup,
    },
    Partitions {
        hub: EntityName,
        group: ConsumerGroup,
    },
    Partition {
        hub: EntityName,
        group: ConsumerGroup,
        partition: u32,
    },
}

impl AtomPath {
    /// Parses the decoded segments of a path. SDKs differ in the case of the words between the names, and in whether
    /// they encode slashes.
    pub(super) fn parse(segments: &[String]) -> Result<Self, Problem> {
        let words: Vec<&str> = segments.iter().map(String::as_str).collect();
        if let [first, rest @ ..] = words.as_slice()
            && first.starts_with('$')
        {
            return reserved(first, rest);
        }
        let is_between = |word: &&str| word.eq_ignore_ascii_case("subscriptions");
        let is_group = |word: &&str| word.eq_ignore_ascii_case("consumergroups");
        let Some(at) = words.iter().position(is_between) else {
            if let Some(at) = words.iter().position(is_group).filter(|at| *at > 0) {
                return Self::below_hub(&words, at);
            }
            return Ok(Self::entity(EntityName::parse(&words.join("/"))?));
        };
        let (topic, below) = words.split_at(at);
        let topic = EntityName::parse(&topic.join("/"))?;
        match below.get(1..).unwrap_or_default() {
            [] => Ok(AtomPath::Subscriptions { topic }),
            [name] => Ok(AtomPath::Subscription(EntityName::subscription(&topic, name)?)),
            [name, word, rest @ ..] if word.eq_ignore_ascii_case("rules") => {
                let subscription = EntityName::subscription(&topic, name)?;
                match rest {
                    [] => Ok(AtomPath::Rules { subscription }),
                    [rule] => Ok(AtomPath::Rule { subscription, name: RuleName::parse(rule)? }),
                    _ => Err(nowhere(&words.join("/"))),
                }
            }
            _ => Err(nowhere(&words.join("/"))),
        }
    }

    fn below_hub(words: &[&str], at: usize) -> Result<Self, Problem> {
        let (hub, below) = words.split_at(at);
        let hub = EntityName::parse(&hub.join("/"))?;
        let below = below.get(1..).unwrap_or_default();
        let Some((group, rest)) = below.split_first() else { return Ok(AtomPath::ConsumerGroups { hub }) };
        let group = ConsumerGroup::parse(group).map_err(|error| Problem::bad(error.to_string()))?;
        match rest {
            [] => Ok(AtomPath::ConsumerGroup { hub, group }),
            [word] if word.eq_ignore_ascii_case("partitions") => Ok(AtomPath::Partitions { hub, group }),
            [word, number] if word.eq_ignore_ascii_case("partitions") => {
                let partition = number.parse().map_err(|_| nowhere(&words.join("/")))?;
                Ok(AtomPath::Partition { hub, group, partition })
            }
            _ => Err(nowhere(&words.join("/"))),
        }
    }

    /// Returns the path for which a token is required: the path of a hub covers everything below it.
    pub(super) fn token_path(&self) -> String {
        match self {
            AtomPath::ConsumerGroups { hub }
            | AtomPath::ConsumerGroup { hub, .. }
            | AtomPath::Partitions { hub, .. }
            | AtomPath::Partition { hub, .. } => hub.to_string(),
            other => other.to_text(),
        }
    }

    fn entity(name: EntityName) -> Self {
        if name.is_subscription() { AtomPath::Subscription(name) } else { AtomPath::Entity(name) }
    }

    /// Formats the path for answers. JavaScript reads names from the addresses of entries, and only in this case.
    pub(super) fn to_text(&self) -> String {
        match self {
            AtomPath::Namespace => "$namespaceinfo".to_owned(),
            AtomPath::Queues => "$Resources/Queues".to_owned(),
            AtomPath::Topics => "$Resources/Topics".to_owned(),
            AtomPath::Entity(name) | AtomPath::Subscription(name) => name.to_string(),
            AtomPath::Subscriptions { topic } => format!("{topic}/Subscriptions"),
            AtomPath::Rules { subscription } => format!("{subscription}/Rules"),
            AtomPath::Rule { subscription, name } => format!("{subscription}/Rules/{name}"),
            AtomPath::Hubs => "$Resources/eventhubs".to_owned(),
            AtomPath::ConsumerGroups { hub } => format!("{hub}/consumergroups"),
            AtomPath::ConsumerGroup { hub, group } => format!("{hub}/consumergroups/{group}"),
            AtomPath::Partitions { hub, group } => format!("{hub}/consumergroups/{group}/partitions"),
            AtomPath::Partition { hub, group, partition } => {
                format!("{hub}/consumergroups/{group}/partitions/{partition}")
            }
        }
    }
}

fn reserved(first: &str, rest: &[&str]) -> Result<AtomPath, Problem> {
    let is = |word: &str, name: &str| word.eq_ignore_ascii_case(name);
    match rest {
        [] if is(first, "$namespaceinfo") => Ok(AtomPath::Namespace),
        [kind] if is(first, "$Resources") && is(kind, "queues") => Ok(AtomPath::Queues),
        [kind] if is(first, "$Resources") && is(kind, "topics") => Ok(AtomPath::Topics),
        [kind] if is(first, "$Resources") && is(kind, "eventhubs") => Ok(AtomPath::Hubs),
        _ => Err(nowhere(&[&[first], rest].concat().join("/"))),
    }
}

fn nowhere(path: &str) -> Problem {
    Problem::NotFound(format!(
        "nothing is at '/{}'; there are /QUEUE, /TOPIC, /TOPIC/Subscriptions/NAME, /TOPIC/Subscriptions/NAME/Rules/RULE, /HUB, \
         /HUB/consumergroups/GROUP/partitions/NUMBER, /$Resources/Queues, /$Resources/Topics, /$Resources/eventhubs, /$namespaceinfo, /api and /health",
        shown(path)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str) -> Result<AtomPath, Problem> {
        AtomPath::parse(&path.split('/').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn every_address_of_the_sdks_is_parsed() {
        for (path, shown) in [
            ("q1", "q1"),
            ("a/q1", "a/q1"),
            ("t/subscriptions", "t/Subscriptions"),
            ("t/Subscriptions/s", "t/Subscriptions/s"),
            ("a/t/SUBSCRIPTIONS/s/rules", "a/t/Subscriptions/s/Rules"),
            ("t/subscriptions/s/Rules/$Default", "t/Subscriptions/s/Rules/$Default"),
            ("$Resources/queues", "$Resources/Queues"),
            ("$resources/Topics", "$Resources/Topics"),
            ("$namespaceinfo", "$namespaceinfo"),
            ("$Resources/EventHubs", "$Resources/eventhubs"),
            ("a/h/ConsumerGroups", "a/h/consumergroups"),
            ("h/consumergroups/$default", "h/consumergroups/$Default"),
            ("h/consumergroups/g/Partitions", "h/consumergroups/g/partitions"),
            ("h/consumergroups/g/partitions/7", "h/consumergroups/g/partitions/7"),
            ("consumergroups", "consumergroups"),
        ] {
            assert_eq!(parse(path).unwrap().to_text(), shown);
        }
    }

    #[test]
    fn all_other_addresses_are_rejected() {
        for path in [
            "$cbs",
            "$Resources",
            "$Resources/relays",
            "..",
            "a/../b",
            ".",
            "a//b",
            "q1/$DeadLetterQueue",
            "a b",
            "t/subscriptions/s/x",
            "t/subscriptions/s/rules/r/x",
            "subscriptions/s",
            "t/subscriptions/s/rules/",
            "a\0",
            "t/subscriptions/..",
            "h/consumergroups/g/partitions/x",
            "h/consumergroups/g/rules",
            "h/consumergroups/a b",
        ] {
            assert!(parse(path).is_err(), "{path}: {:?}", parse(path));
        }
    }
}
