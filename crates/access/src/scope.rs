//! The scope of a token or a policy, in all the spellings of the SDKs.

use std::fmt;

use peeklock_types::{EntityName, EntityPath};
use percent_encoding::percent_decode_str;

const MANAGEMENT: &str = "$management";

/// Returns the path in an address: without scheme, authority, query and outer slashes, percent-decoded.
pub fn normalize(address: &str) -> String {
    let path = match address.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        None => address,
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    percent_decode_str(path.trim_matches('/')).decode_utf8_lossy().into_owned()
}

/// Returns the entity of a `$management` path.
pub fn without_management(path: &str) -> Option<&str> {
    let (entity, last) = path.rsplit_once('/')?;
    last.eq_ignore_ascii_case(MANAGEMENT).then_some(entity)
}

/// An entity with everything below it, or the whole namespace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope(
    /// The path in lower case; empty for the namespace.
    String,
);

impl Scope {
    pub const NAMESPACE: Scope = Scope(String::new());

    /// Parses an audience (`sb://host/orders/$management`) or a token's resource.
    pub fn parse(audience: &str) -> Self {
        let path = normalize(audience);
        let entity = without_management(&path).unwrap_or(&path);
        if entity.eq_ignore_ascii_case(MANAGEMENT) { Scope::NAMESPACE } else { Scope(entity.to_lowercase()) }
    }

    /// Returns whether `other` is this scope or below it: a token for `shop` is valid for `shop/orders`.
    pub fn covers(&self, other: &Scope) -> bool {
        let Some(rest) = other.0.strip_prefix(&self.0) else { return false };
        self.0.is_empty() || rest.is_empty() || rest.starts_with('/')
    }

    /// Returns whether `other` is this entity or a part of it: its subscriptions, sub-queues, partitions and consumer
    /// groups, but not another entity whose name has the same beginning. The namespace owns everything.
    pub fn owns(&self, other: &Scope) -> bool {
        const PARTS: [&str; 5] =
            ["/$", "/subscriptions/", "/consumergroups/", "/partitions/", "/publishers/"];
        let Some(rest) = other.0.strip_prefix(&self.0) else { return false };
        self.0.is_empty() || rest.is_empty() || PARTS.iter().any(|part| rest.starts_with(part))
    }

    /// Returns this scope and all scopes above it, the narrowest first.
    pub(crate) fn upwards(&self) -> impl Iterator<Item = &str> {
        let mut next = Some(self.0.as_str());
        std::iter::from_fn(move || {
            let here = next?;
            next = match here.rsplit_once('/') {
                Some((above, _)) => Some(above),
                None => (!here.is_empty()).then_some(""),
            };
            Some(here)
        })
    }

    pub(crate) fn of_entity(entity: Option<&EntityName>) -> Scope {
        entity.map_or(Scope::NAMESPACE, Scope::from)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path as in an audience.
    pub fn as_path(&self) -> &str {
        &self.0
    }
}

impl From<&EntityName> for Scope {
    fn from(name: &EntityName) -> Self {
        Scope(name.folded().to_owned())
    }
}

impl From<&EntityPath> for Scope {
    fn from(path: &EntityPath) -> Self {
        Scope(path.to_string().to_lowercase())
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("the namespace") } else { write!(f, "'{}'", self.0) }
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_covers_itself_and_everything_below_it() {
        let entity = Scope::parse("sb://host:5672/Orders");
        assert!(Scope::NAMESPACE.covers(&entity));
        assert!(Scope::parse("sb://host/").covers(&entity));
        assert!(entity.covers(&Scope::parse("amqps://other/orders/$management")));
        assert!(entity.covers(&Scope::parse("orders/$DeadLetterQueue")));
        assert!(entity.covers(&Scope::parse("https://host/orders?api-version=2021-05")));
        assert!(!entity.covers(&Scope::parse("orders2")));
        assert!(!entity.covers(&Scope::NAMESPACE));
    }

    #[test]
    fn an_entity_owns_its_parts_but_no_other_entity() {
        let topic = Scope::parse("shop");
        for part in [
            "shop",
            "Shop/Subscriptions/audit",
            "shop/$deadletterqueue",
            "shop/subscriptions/a/$Transfer",
            "shop/ConsumerGroups/$Default/Partitions/0",
            "shop/Partitions/1",
            "shop/Publishers/p",
        ] {
            assert!(topic.owns(&Scope::parse(part)), "{part}");
        }
        for other in ["shop/orders", "shop2", "", "shop/subscriptionsx"] {
            assert!(!topic.owns(&Scope::parse(other)), "{other}");
        }
        assert!(Scope::NAMESPACE.owns(&topic));
    }

    #[test]
    fn upwards_ends_at_the_namespace() {
        let scope = Scope::parse("a/b/$deadletterqueue");
        assert_eq!(scope.upwards().collect::<Vec<_>>(), ["a/b/$deadletterqueue", "a/b", "a", ""]);
        assert_eq!(Scope::NAMESPACE.upwards().collect::<Vec<_>>(), [""]);
    }
}
