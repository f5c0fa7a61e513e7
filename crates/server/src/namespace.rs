//! Namespaces, each with its own data, keys and entities.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result};
use peeklock_access::{Access, JwtKeys, Policy};
use peeklock_broker::{Broker, Clock, Listing, Page, Recovered, Running};
use peeklock_gateway_azure::Namespace;
use peeklock_journal::MemoryJournal;
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

/// The place where a broker stores its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A directory, which has one owner at a time.
    Directory(PathBuf),
    /// The memory of the process. The data ends with the broker.
    Memory,
}

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
    created_at: Timestamp,
    pub(crate) broker: Broker,
    pub(crate) access: Access,
    pub(crate) recovered: Recovered,
    pub(crate) shards: Shards,
}

/// The running shards of a namespace, and their journal if it is in a directory.
pub(crate) struct Shards {
    running: Running,
    journal: Option<WalJournal>,
}

impl Shards {
    pub(crate) fn are_running(&self) -> bool {
        self.running.is_whole()
    }

    /// Waits until every shard has stopped or one has failed.
    pub(crate) async fn stopped(&mut self) -> Result<(), String> {
        self.running.stopped().await
    }
}

/// A namespace that is dropped while its shards run leaves no thread and no lock on its directory behind. The journal writes what it has;
/// the shards are not asked.
impl Drop for Shards {
    fn drop(&mut self) {
        if let Some(journal) = &self.journal {
            journal.close();
        }
    }
}

impl Medium {
    /// Returns the folder of a namespace, or `None` in memory.
    fn folder(&self, namespace: &str) -> Option<PathBuf> {
        match self {
            Medium::Memory => None,
            Medium::Directory(data) if namespace == DEFAULT_NAMESPACE => Some(data.clone()),
            Medium::Directory(data) => Some(data.join(NAMESPACES_FOLDER).join(namespace)),
        }
    }
}

impl NamespaceOptions {
    /// Returns the options of the only namespace of a broker.
    pub(crate) fn only(keys: Vec<Policy>, entities: Entities) -> Self {
        let name = DEFAULT_NAMESPACE.to_owned();
        NamespaceOptions { name, hosts: Vec::new(), tier: None, keys, entities }
    }

    /// Opens the keys. This comes first, so that invalid keys are rejected before the data is touched.
    pub(crate) fn open_access(
        &self,
        medium: &Medium,
        listen: Addresses,
        jwt: Option<&JwtKeys>,
    ) -> Result<Access> {
        let addresses: Vec<SocketAddr> = listen.iter().collect();
        let file = medium.folder(&self.name).map(|folder| access::key_file(&folder));
        let access = access::open(self.keys.clone(), file, addresses.into_iter())
            .with_context(|| format!("the keys of the namespace '{}'", self.name))?;
        Ok(match jwt {
            Some(keys) => access.with_jwt(keys.clone()),
            None => access,
        })
    }

    pub(crate) async fn open(
        mut self,
        medium: &Medium,
        access: Access,
        (filter_cost, tier, strict_emulator_quotas): (FilterCost, Tier, bool),
    ) -> Result<Opened> {
        let folder = medium.folder(&self.name);
        let (broker, shards, recovered) = open_broker(folder.as_deref(), filter_cost).await?;
        let created_at = folder.as_deref().and_then(created_at).unwrap_or_else(|| broker.clock().now());
        let mut broker = broker.with_tier(self.tier.unwrap_or(tier));
        if strict_emulator_quotas {
            broker = broker.with_emulator_quotas();
        }
        let groups = std::mem::take(&mut self.entities.groups);
        declare(&broker, self.entities).await?;
        let broker = with_queue_groups(broker, groups)
            .await
            .with_context(|| format!("the groups of the namespace '{}'", self.name))?;
        Ok(Opened { name: self.name, hosts: self.hosts, created_at, broker, access, recovered, shards })
    }
}

impl Opened {
    /// Splits into the served namespace and its running shards.
    pub(crate) fn split(self) -> (Namespace, Shards) {
        let Opened { name, hosts, broker, access, shards, .. } = self;
        (Namespace { name, hosts, broker, access }, shards)
    }

    pub(crate) fn for_http(&self) -> peeklock_http::Namespace {
        peeklock_http::Namespace {
            name: self.name.clone(),
            hosts: self.hosts.clone(),
            broker: self.broker.clone(),
            access: self.access.clone(),
            created_at: self.created_at,
        }
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

/// Returns the creation time of a folder, where the file system stores it.
fn created_at(folder: &Path) -> Option<Timestamp> {
    let made = std::fs::metadata(folder).and_then(|folder| folder.created()).ok()?;
    let millis = made.duration_since(UNIX_EPOCH).ok()?.as_millis();
    Some(Timestamp::from_millis(u64::try_from(millis).ok()?))
}

async fn open_broker(folder: Option<&Path>, filter_cost: FilterCost) -> Result<(Broker, Shards, Recovered)> {
    let (clock, describe) = (Clock::start(), peeklock_message::describe);
    let Some(folder) = folder else {
        let opened = Broker::open_with(&MemoryJournal::new(), clock, describe, filter_cost).await?;
        let (broker, running, recovered) = opened;
        return Ok((broker, Shards { running, journal: None }, recovered));
    };
    // The log contains every message, so only its owner may enter the directory.
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("cannot create the data directory {}", folder.display()))?;
    let ring_bytes = ring_bytes(folder);
    let journal = WalJournal::open(folder, WalConfig { ring_bytes, ..WalConfig::default() })?;
    let (broker, running, recovered) = Broker::open_with(&journal, clock, describe, filter_cost).await?;
    Ok((broker, Shards { running, journal: Some(journal) }, recovered))
}

/// Returns how much log to keep before old bodies are copied out of it. A backlog that is received before then is written once instead of
/// twice, so the size is generous, but at most a small part of the disk.
fn ring_bytes(data: &Path) -> u64 {
    let free_bytes = rustix::fs::statvfs(data).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    (free_bytes / 8).clamp(RING_BYTES_MIN, RING_BYTES_MAX)
}
