//! Link addresses, in all the spellings that SDKs use.

use peeklock_access::{normalize, without_management};
use peeklock_types::{EntityPath, NameError};

use crate::hub::{HubAddress, consumer_group_of};

/// The node that a link address names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Cbs,
    /// `$management` of one entity, or of the namespace.
    Management(Option<EntityPath>),
    Entity(EntityPath),
    /// A part of an event hub. The hub itself has the address of an entity.
    Hub(HubAddress),
}

const MANAGEMENT: &str = "$management";

impl Node {
    pub(crate) fn parse(address: &str) -> Result<Self, NameError> {
        let path = normalize(address);
        if path.eq_ignore_ascii_case("$cbs") {
            return Ok(Node::Cbs);
        }
        if path.eq_ignore_ascii_case(MANAGEMENT) {
            return Ok(Node::Management(None));
        }
        if let Some(entity) = without_management(&path) {
            // Tokens are put for the management of a consumer group, so links may request it, too; it is the hub's.
            let entity = consumer_group_of(entity).map_or(entity, |(hub, _)| hub);
            return Ok(Node::Management(Some(EntityPath::parse(entity)?)));
        }
        match HubAddress::parse(&path) {
            Some(address) => Ok(Node::Hub(address?)),
            None => Ok(Node::Entity(EntityPath::parse(&path)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_a_queue_are_equal() {
        let plain = Node::parse("orders").unwrap();
        for spelling in [
            "/orders",
            "amqps://localhost:5672/orders",
            "amqp://ns.example/Orders",
            "sb://h/orders/",
            "%6frders",
        ] {
            assert_eq!(Node::parse(spelling).unwrap(), plain, "{spelling}");
        }
    }

    #[test]
    fn suffixes_name_the_parts_of_an_entity() {
        let dead = EntityPath::parse("orders/$DeadLetterQueue").unwrap();
        assert_eq!(Node::parse("orders/$deadletterqueue").unwrap(), Node::Entity(dead.clone()));
        assert_eq!(
            Node::parse("/orders/$DeadLetterQueue/$management").unwrap(),
            Node::Management(Some(dead))
        );
        assert_eq!(Node::parse("$cbs").unwrap(), Node::Cbs);
        assert_eq!(Node::parse("amqps://h/$management").unwrap(), Node::Management(None));
        assert!(Node::parse("").is_err());
    }

    #[test]
    fn all_spellings_of_a_partition_are_equal() {
        let plain = Node::parse("clicks/ConsumerGroups/$Default/Partitions/0").unwrap();
        assert!(matches!(plain, Node::Hub(_)));
        for spelling in [
            "amqps://localhost:5672/clicks/ConsumerGroups/$Default/Partitions/0",
            "/clicks/consumergroups/$Default/partitions/0",
            "amqps://ns.example/clicks/ConsumerGroups/%24Default/Partitions/0",
        ] {
            assert_eq!(Node::parse(spelling).unwrap(), plain, "{spelling}");
        }
        let hub = Some(EntityPath::parse("clicks").unwrap());
        for spelling in ["clicks/$management", "/clicks/ConsumerGroups/$Default/$management"] {
            assert_eq!(Node::parse(spelling).unwrap(), Node::Management(hub.clone()), "{spelling}");
        }
    }
}
