//! Link addresses and token audiences, in all the spellings that SDKs use.

use peeklock_types::{EntityPath, NameError};
use percent_encoding::percent_decode_str;

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

/// Drops scheme and authority, slashes at both ends, and percent signs.
pub(crate) fn normalize(address: &str) -> String {
    let path = match address.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        None => address,
    };
    percent_decode_str(path.trim_matches('/')).decode_utf8_lossy().into_owned()
}

fn without_management(path: &str) -> Option<&str> {
    let (entity, last) = path.rsplit_once('/')?;
    last.eq_ignore_ascii_case(MANAGEMENT).then_some(entity)
}

/// What a token is good for: an entity with everything below it, or the whole namespace (empty).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scope(String);

impl Scope {
    pub(crate) const NAMESPACE: Scope = Scope(String::new());

    /// From an audience (`sb://host/orders/$management`) or a token's resource, already percent-decoded once by the caller or not.
    pub(crate) fn parse(audience: &str) -> Self {
        let path = normalize(audience);
        let entity = without_management(&path).unwrap_or(&path);
        if entity.eq_ignore_ascii_case(MANAGEMENT) { Scope::NAMESPACE } else { Scope(entity.to_lowercase()) }
    }

    /// Whether `other` is this scope or lies below it.
    pub(crate) fn covers(&self, other: &Scope) -> bool {
        let Some(rest) = other.0.strip_prefix(&self.0) else { return false };
        self.0.is_empty() || rest.is_empty() || rest.starts_with('/')
    }
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { f.write_str("the namespace") } else { write!(f, "'{}'", self.0) }
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

    #[test]
    fn a_scope_covers_what_lies_below_it() {
        let entity = Scope::parse("sb://host:5672/Orders");
        assert!(Scope::NAMESPACE.covers(&entity));
        assert!(Scope::parse("sb://host/").covers(&entity));
        assert!(entity.covers(&Scope::parse("amqps://other/orders/$management")));
        assert!(entity.covers(&Scope::parse("orders/$DeadLetterQueue")));
        assert!(!entity.covers(&Scope::parse("orders2")));
        assert!(!entity.covers(&Scope::NAMESPACE));
    }
}
