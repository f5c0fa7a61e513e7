//! Addresses below a hub: its partitions, publishers and consumer groups.

use std::fmt;

use peeklock_access::Scope;
use peeklock_types::{EntityName, NameError};

/// A hub, or a part of it, as a link names it. The parser does not check that the part exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HubAddress {
    pub(crate) hub: EntityName,
    pub(crate) part: HubPart,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HubPart {
    /// The hub itself.
    Whole,
    Partition(String),
    /// The name of a publisher is the partition key of all its events.
    Publisher(String),
    /// A partition as a consumer group reads it.
    ConsumerGroup {
        group: String,
        partition: String,
    },
}

const PARTITIONS: &str = "Partitions";
const PUBLISHERS: &str = "Publishers";
const GROUPS: &str = "ConsumerGroups";

impl HubAddress {
    pub(crate) fn whole(hub: EntityName) -> Self {
        HubAddress { hub, part: HubPart::Whole }
    }

    /// Parses an address below a hub. Returns `None` if the path does not have that form. Parsing starts at the end,
    /// because the name of a hub may have several segments.
    pub(crate) fn parse(path: &str) -> Option<Result<Self, NameError>> {
        let (rest, last) = path.rsplit_once('/')?;
        let (rest, word) = rest.rsplit_once('/')?;
        let (hub, part) = if word.eq_ignore_ascii_case(PUBLISHERS) {
            (rest, HubPart::Publisher(last.to_owned()))
        } else if word.eq_ignore_ascii_case(PARTITIONS) {
            match consumer_group_of(rest) {
                Some((hub, group)) => {
                    (hub, HubPart::ConsumerGroup { group: group.to_owned(), partition: last.to_owned() })
                }
                None => (rest, HubPart::Partition(last.to_owned())),
            }
        } else {
            return None;
        };
        Some(EntityName::parse(hub).map(|hub| HubAddress { hub, part }))
    }

    /// Returns the scope that a token must cover.
    pub(crate) fn scope(&self) -> Scope {
        match &self.part {
            HubPart::Whole => Scope::from(&self.hub),
            _ => Scope::parse(&self.to_string()),
        }
    }
}

/// Splits `hub/ConsumerGroups/name` into the hub and the consumer group.
pub(crate) fn consumer_group_of(path: &str) -> Option<(&str, &str)> {
    let (rest, group) = path.rsplit_once('/')?;
    let (hub, word) = rest.rsplit_once('/')?;
    word.eq_ignore_ascii_case(GROUPS).then_some((hub, group))
}

impl fmt::Display for HubAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hub = &self.hub;
        match &self.part {
            HubPart::Whole => hub.fmt(f),
            HubPart::Partition(partition) => write!(f, "{hub}/{PARTITIONS}/{partition}"),
            HubPart::Publisher(publisher) => write!(f, "{hub}/{PUBLISHERS}/{publisher}"),
            HubPart::ConsumerGroup { group, partition } => {
                write!(f, "{hub}/{GROUPS}/{group}/{PARTITIONS}/{partition}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(path: &str) -> HubAddress {
        HubAddress::parse(path).unwrap().unwrap()
    }

    #[test]
    fn parts_of_a_hub_are_identified_by_the_preceding_keyword() {
        let hub = EntityName::parse("shop/clicks").unwrap();
        let part = |part| HubAddress { hub: hub.clone(), part };
        assert_eq!(parsed("shop/clicks/PARTITIONS/3"), part(HubPart::Partition("3".into())));
        assert_eq!(parsed("shop/clicks/publishers/till"), part(HubPart::Publisher("till".into())));
        let group = part(HubPart::ConsumerGroup { group: "$Default".into(), partition: "0".into() });
        assert_eq!(parsed("Shop/Clicks/consumergroups/$Default/partitions/0"), group);
        assert_eq!(group.to_string(), "shop/clicks/ConsumerGroups/$Default/Partitions/0");
    }

    #[test]
    fn other_paths_are_not_hub_addresses() {
        for path in ["clicks", "shop/clicks", "clicks/ConsumerGroups/a", "a/partitions", "partitions/0"] {
            assert_eq!(HubAddress::parse(path), None, "{path}");
        }
        assert!(HubAddress::parse("a b/partitions/0").unwrap().is_err());
        assert!(HubAddress::parse("/partitions/0").unwrap().is_err());
    }

    #[test]
    fn a_token_for_the_hub_or_the_consumer_group_permits_a_reader() {
        let reader = parsed("clicks/ConsumerGroups/$Default/Partitions/0").scope();
        let audiences = [
            "sb://host/clicks",
            "sb://host/clicks/consumergroups/$default",
            "amqps://host/clicks/ConsumerGroups/%24Default/Partitions/0",
            "sb://host:5672/Clicks/ConsumerGroups/$Default/Partitions/0",
            "sb://host/",
        ];
        for audience in audiences {
            assert!(Scope::parse(audience).covers(&reader), "{audience}");
        }
        for audience in
            ["sb://host/click", "sb://host/clicks/partitions/0", "sb://host/clicks/consumergroups/a"]
        {
            assert!(!Scope::parse(audience).covers(&reader), "{audience}");
        }
    }
}
