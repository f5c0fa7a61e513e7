//! Link addresses, in all the spellings that SDKs use.

use peeklock_access::{normalize, without_management};
use peeklock_types::{EntityPath, NameError};

/// What a link address names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Cbs,
    /// `$management` of one entity, or of the namespace.
    Management(Option<EntityPath>),
    Entity(EntityPath),
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
        match without_management(&path) {
            Some(entity) => Ok(Node::Management(Some(EntityPath::parse(entity)?))),
            None => Ok(Node::Entity(EntityPath::parse(&path)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_queue_is_the_same_queue() {
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
}
