//! Several sets of entities behind one address, each with its own keys.

use peeklock_access::Access;
use peeklock_broker::Broker;

/// A set of entities with its access policies.
pub struct Namespace {
    pub name: String,
    /// Host names of the namespace, in addition to those whose first label is its name.
    pub hosts: Vec<String>,
    pub broker: Broker,
    pub access: Access,
}

impl Namespace {
    fn has_host(&self, host: &str) -> bool {
        let host = without_port(host);
        let label = host.split('.').next().unwrap_or_default();
        label.eq_ignore_ascii_case(&self.name) || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
    }
}

pub(crate) fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// All namespaces. The first is the default.
pub(crate) struct Namespaces {
    pub(crate) first: Namespace,
    pub(crate) others: Vec<Namespace>,
}

impl Namespaces {
    fn iter(&self) -> impl Iterator<Item = &Namespace> {
        std::iter::once(&self.first).chain(&self.others)
    }

    pub(crate) fn by_host(&self, host: &str) -> Option<&Namespace> {
        self.iter().find(|namespace| namespace.has_host(host))
    }

    /// Returns the only namespace that has a key of this name.
    pub(crate) fn by_key_name(&self, name: &str) -> Option<&Namespace> {
        let mut known = self.iter().filter(|namespace| namespace.access.knows_key_name(name));
        known.next().filter(|_| known.next().is_none())
    }
}
