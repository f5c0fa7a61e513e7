//! Addresses of management over ATOM.

use peeklock_filter::RuleName;
use peeklock_types::EntityName;

use crate::problem::Problem;
use crate::request::shown;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum AtomPath {
    Namespace,
    Queues,
    Topics,
    /// A queue or a topic: only its description tells which.
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
}

impl AtomPath {
    /// From the decoded parts of a path. SDKs differ in the case of the words between the names, and in whether they encode slashes.
    pub(super) fn parse(segments: &[String]) -> Result<Self, Problem> {
        let words: Vec<&str> = segments.iter().map(String::as_str).collect();
        if let [first, rest @ ..] = words.as_slice()
            && first.starts_with('$')
        {
            return reserved(first, rest);
        }
        let is_between = |word: &&str| word.eq_ignore_ascii_case("subscriptions");
        let Some(at) = words.iter().position(is_between) else {
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

    fn entity(name: EntityName) -> Self {
        if name.is_subscription() { AtomPath::Subscription(name) } else { AtomPath::Entity(name) }
    }

    /// As answers write it: JS reads names off the addresses of entries, and only in this case.
    pub(super) fn to_text(&self) -> String {
        match self {
            AtomPath::Namespace => "$namespaceinfo".to_owned(),
            AtomPath::Queues => "$Resources/Queues".to_owned(),
            AtomPath::Topics => "$Resources/Topics".to_owned(),
            AtomPath::Entity(name) | AtomPath::Subscription(name) => name.to_string(),
            AtomPath::Subscriptions { topic } => format!("{topic}/Subscriptions"),
            AtomPath::Rules { subscription } => format!("{subscription}/Rules"),
            AtomPath::Rule { subscription, name } => format!("{subscription}/Rules/{name}"),
        }
    }
}

fn reserved(first: &str, rest: &[&str]) -> Result<AtomPath, Problem> {
    let is = |word: &str, name: &str| word.eq_ignore_ascii_case(name);
    match rest {
        [] if is(first, "$namespaceinfo") => Ok(AtomPath::Namespace),
        [kind] if is(first, "$Resources") && is(kind, "queues") => Ok(AtomPath::Queues),
        [kind] if is(first, "$Resources") && is(kind, "topics") => Ok(AtomPath::Topics),
        _ => Err(nowhere(&[&[first], rest].concat().join("/"))),
    }
}

fn nowhere(path: &str) -> Problem {
    Problem::NotFound(format!(
        "nothing is at '/{}'; there are /QUEUE, /TOPIC, /TOPIC/Subscriptions/NAME, /TOPIC/Subscriptions/NAME/Rules/RULE, \
         /$Resources/Queues, /$Resources/Topics, /$namespaceinfo, /api and /health",
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
    fn every_address_of_the_sdks_is_understood() {
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
        ] {
            assert_eq!(parse(path).unwrap().to_text(), shown);
        }
    }

    #[test]
    fn everything_else_is_refused() {
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
        ] {
            assert!(parse(path).is_err(), "{path}: {:?}", parse(path));
        }
    }
}
