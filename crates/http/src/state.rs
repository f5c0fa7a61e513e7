//! The state that all requests share: the namespaces, and the origin of a request.

use std::sync::Arc;

use peeklock_access::{Access, key_name};
use peeklock_broker::Broker;
use peeklock_types::Timestamp;
use peeklock_web::{Limits, host_of};
use tokio::sync::Mutex;

use crate::health::Health;
use crate::request::{Head, is_loopback_host};

/// A set of entities with its own keys.
#[derive(Clone)]
pub struct Namespace {
    pub name: String,
    /// Host names of this namespace, in addition to those whose first label is its name.
    pub hosts: Vec<String>,
    pub broker: Broker,
    pub access: Access,
    pub created_at: Timestamp,
}

/// The state for answering requests. Clones share it.
#[derive(Clone)]
pub struct HttpState(Arc<Inner>);

struct Inner {
    namespaces: Vec<Namespace>,
    limits: Limits,
    health: Health,
    scraping: Mutex<()>,
    started_at: Timestamp,
}

/// The origin of a request. The server adds it as an extension of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The listener is reachable only by programs on this machine.
    pub is_loopback: bool,
    pub connection_count: usize,
    pub connection_count_max: usize,
}

impl HttpState {
    /// Creates the state. The first namespace answers requests that name none.
    ///
    /// # Panics
    /// If there is no namespace.
    pub fn new(namespaces: Vec<Namespace>, limits: Limits) -> Self {
        assert!(!namespaces.is_empty(), "a server has at least one namespace");
        let brokers = namespaces.iter().map(|namespace| namespace.broker.clone()).collect();
        let started_at = namespaces.first().map_or(Timestamp::ZERO, Namespace::now);
        let (health, scraping) = (Health::new(brokers), Mutex::default());
        HttpState(Arc::new(Inner { namespaces, limits, health, scraping, started_at }))
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub(crate) fn health(&self) -> &Health {
        &self.0.health
    }

    pub(crate) fn namespaces(&self) -> &[Namespace] {
        &self.0.namespaces
    }

    /// Returns the mutex that is held while metrics are collected.
    pub(crate) fn scraping(&self) -> &Mutex<()> {
        &self.0.scraping
    }

    pub(crate) fn started_at(&self) -> Timestamp {
        self.0.started_at
    }

    /// Returns the namespace of a request: by its host, else by a key name that is unique to a namespace, else the
    /// first.
    pub(crate) fn namespace(&self, head: &Head) -> &Namespace {
        let (first, rest) = self.0.namespaces.split_first().expect("the constructor rejects an empty list");
        if rest.is_empty() {
            return first;
        }
        let host = host_of(head.authority());
        let of_basic = |token| crate::auth::basic(token).flatten().map(|(name, _)| name);
        let key_name = head.token().and_then(|token| key_name(token).or_else(|| of_basic(token)));
        let by_host = || self.0.namespaces.iter().find(|namespace| namespace.has_host(host));
        let by_key = || {
            let name = key_name.as_deref()?;
            let mut known =
                self.0.namespaces.iter().filter(|namespace| namespace.access.knows_key_name(name));
            known.next().filter(|_| known.next().is_none())
        };
        by_host().or_else(by_key).unwrap_or(first)
    }
}

impl Namespace {
    fn has_host(&self, host: &str) -> bool {
        let label = host.split('.').next().unwrap_or_default();
        label.eq_ignore_ascii_case(&self.name)
            || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
    }

    /// Returns whether the host, without a port, is a configured one or a name of this machine.
    pub(crate) fn is_known_host(&self, host: &str) -> bool {
        is_loopback_host(host) || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.broker.clock().now()
    }
}
