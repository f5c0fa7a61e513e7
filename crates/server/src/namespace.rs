//! Namespaces, each with its own data, keys and entities.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result};
use peeklock_access::{Access, JwtKeys, Policy};
use peeklock_broker::{Broker, Clock, Listing, Page, Recovered, Running};
use peeklock_gateway_azure::Namespace;
use peeklock_journal_wal::{WalConfig, WalJournal};
use peeklock_types::{Tier, Timestamp};

use crate::access;
use crate::declare::{Entities, declare, with_queue_groups};
use crate::{Addresses, FilterCost};

/// The namespace of clients that name none. It has the name of the official emulator's only namespace.
pub const DEFAULT_NAMESPACE: &str = "sbemulatorns";
/// The folder in the data directory with the data of the other namespaces.
const NAMESPACES_FOLDER: &str = "namespaces";
const RING_BYTES_MIN: u64 = 128 << 20;
const RING_BYTES_MAX: u64 = 2 << 30;

/// The configuration of a namespace.
#[derive(Clone, Debug, Default)]
pub struct NamespaceOptions {
    /// The first label of its host names, and the name of its folder: letters, digits and '-' only.
    pub name: String,
    /// Further host names.
    pub hosts: Vec<String>,
    /// The tier, or `None` for the default tier of the server.
    pub tier: Option<Tier>,
    /// Policies that are valid while this server runs. Without any, the well-known key is valid, on loopback only.
    pub keys: Vec<Policy>,
    pub entities: Entities,
}

/// An open namespace.
pub(crate) struct Opened {
    pub(crate) name: String,
    pub(crate) hosts: Vec<String>,
    folder: PathBuf,
    pub(crate) broker: Broker,
    pub(crate) access: Access,
    pub(crate) running: Running,
    pub(crate) recovered: Recovered,
}

impl NamespaceOptions {
    pub(crate) fn folder(&self, data: &Path) -> PathBuf {
        if self.name == DEFAULT_NAMESPACE {
            return data.to_owned();
        }
        data.join(NAMESPACES_FOLDER).join(&self.name)
    }

    /// Opens the keys. This comes first, so that invalid keys are rejected before the data is touched.
    pub(crate) fn open_access(
        &self,
        data: &Path,
        listen: Addresses,
        jwt: Option<&JwtKeys>,
    ) -> Result<Access> {
        let addresses: Vec<SocketAddr> = listen.iter().collect();
        let access = access::open(self.keys.clone(), &self.folder(data), addresses.into_iter())
            .with_context(|| format!("the keys of the namespace '{}'", self.name))?;
        Ok(match jwt {
            Some(keys) => access.with_jwt(keys.clone()),
            None => access,
        })
    }

    pub(crate) async fn open(
        mut self,
        data: &Path,
        access: Access,
        (filter_cost, tier, strict_emulator_quotas): (FilterCost, Tier, bool),
    ) -> Result<Opened> {
        let folder = self.folder(data);
        let (broker, running, recovered) = open_broker(&folder, filter_cost).await?;
        let mut broker = broker.with_tier(self.tier.unwrap_or(tier));
        if strict_emulator_quotas {
            broker = broker.with_emulator_quotas();
        }
        let groups = std::mem::take(&mut self.entities.groups);
        declare(&broker, self.entities).await?;
        let broker = with_queue_groups(broker, groups)
            .await
            .with_context(|| format!("the groups of the namespace '{}'", self.name))?;
        Ok(Opened { name: self.name, hosts: self.hosts, folder, broker, access, running, recovered })
    }
}

impl Opened {
    /// Splits into the served namespace and its running tasks.
    pub(crate) fn split(self) -> (Namespace, Running) {
        let Opened { name, hosts, broker, access, running, .. } = self;
        (Namespace { name, hosts, broker, access }, running)
    }

    pub(crate) fn for_http(&self) -> peeklock_http::Namespace {
        peeklock_http::Namespace {
            name: self.name.clone(),
            hosts: self.hosts.clone(),
            broker: self.broker.clone(),
            access: self.access.clone(),
            created_at: self.created_at(),
        }
    }

    /// Returns the creation time of the folder, where the file system stores it.
    fn created_at(&self) -> Timestamp {
        let made = std::fs::metadata(&self.folder).and_then(|folder| folder.created()).ok();
        let since = made.and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        let millis = since.and_then(|since| u64::try_from(since.as_millis()).ok());
        millis.map_or_else(|| self.broker.clock().now(), Timestamp::from_millis)
    }

    /// Returns the names of the queues and of the topics.
    pub(crate) async fn names(&self) -> Result<(Vec<String>, Vec<String>)> {
        let names = async |what| -> Result<Vec<String>> {
            let found = self.broker.list(what, Page::ALL).await?;
            Ok(found.into_iter().map(|entity| entity.name.to_string()).collect())
        };
        Ok((names(Listing::Queues).await?, names(Listing::Topics).await?))
    }

    pub(crate) async fn hub_names(&self) -> Result<Vec<String>> {
        let found = self.broker.hubs(None, usize::MAX).await?;
        Ok(found.into_iter().map(|hub| hub.name.to_string()).collect())
    }
}

async fn open_broker(data: &Path, filter_cost: FilterCost) -> Result<(Broker, Running, Recovered)> {
    std::fs::create_dir_all(data)
        .with_context(|| format!("cannot create the data directory {}", data.display()))?;
    let ring_bytes = ring_bytes(data);
    let journal = WalJournal::open(data, WalConfig { ring_bytes, ..WalConfig::default() })?;
    let describe = peeklock_message::describe;
    Ok(Broker::open_with(&journal, Clock::start(), describe, filter_cost).await?)
}

/// Returns how much log to keep before old bodies are copied out of it. A backlog that is received before then is written once instead of
/// twice, so the size is generous, but at most a small part of the disk.
fn ring_bytes(data: &Path) -> u64 {
    let free_bytes = rustix::fs::statvfs(data).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    (free_bytes / 8).clamp(RING_BYTES_MIN, RING_BYTES_MAX)
}
