//! Assembles the journal, the broker, the listeners and their keys. It is the only crate that names a concrete journal.

mod access;
mod assembly;
mod declare;
mod instance;
mod listen;
mod namespace;
mod private;
mod storage;
#[cfg(feature = "test-clock")]
pub mod test_clock;
mod tls;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use peeklock_access::JwtKeys;
use peeklock_broker::Recovered;
use peeklock_types::Tier;

use assembly::{Assembly, Limits};
use listen::Door;
use namespace::Opened;
use storage::Accounts;
use tls::Source;

pub use access::{WELL_KNOWN_KEY_NAME, WELL_KNOWN_KEY_SECRET};
pub use declare::Entities;
pub use instance::{Instance, InstanceOptions, OpenError};
pub use listen::{ListenLimits, NotAnOrigin, WebOrigin, WebPages};
pub use namespace::{DEFAULT_NAMESPACE, Medium, NamespaceOptions};
pub use peeklock_access::{Access, JwtOptions, Policy, Right};
pub use peeklock_broker::filter::Cost as FilterCost;
pub use peeklock_gateway_azure::Limits as AmqpLimits;
pub use peeklock_http::Limits as HttpLimits;
pub use peeklock_storage::{AccountKey, WELL_KNOWN_ACCOUNT, WELL_KNOWN_KEY as WELL_KNOWN_STORAGE_KEY};
pub use storage::{Served, StorageDoors, StorageListen, StorageOptions};
pub use tls::TlsOptions;

/// The time that open connections have to finish when the server stops.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);

/// The addresses to listen on; `None` means no listener. Each address serves AMQP, HTTP and AMQP over WebSocket, distinguished by the first
/// bytes. The fields have the names of the default ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    pub amqp: Option<SocketAddr>,
    /// TLS only.
    pub amqp_tls: Option<SocketAddr>,
    pub http: Option<SocketAddr>,
    /// TLS only.
    pub https: Option<SocketAddr>,
}

impl Addresses {
    fn iter(self) -> impl Iterator<Item = SocketAddr> {
        [self.amqp, self.amqp_tls, self.http, self.https].into_iter().flatten()
    }
}

/// The configuration of a server.
#[derive(Default)]
pub struct Options {
    pub data: PathBuf,
    pub listen: Addresses,
    /// Blob and Queue Storage, which have their own addresses.
    pub storage: StorageOptions,
    pub tls: TlsOptions,
    /// The limits of all connections together, before authentication.
    pub limits: ListenLimits,
    /// The host names and the web pages that are accepted beside those of this machine. The hosts of namespaces are accepted as well.
    pub web_pages: WebPages,
    /// The limits of each AMQP connection.
    pub amqp_limits: AmqpLimits,
    /// The limits of each management request.
    pub http_limits: HttpLimits,
    /// The cost limits of the rules of a topic for one message.
    pub filter_cost: FilterCost,
    /// The default tier of namespaces.
    pub tier: Tier,
    /// Enforces the quotas of the official emulators, and sets the standard tier for all namespaces.
    pub strict_emulator_quotas: bool,
    /// Accepts bearer tokens of this issuer in all namespaces.
    pub jwt: Option<JwtOptions>,
    /// Policies of the default namespace that are valid while this server runs. Without any, the well-known key is valid, on loopback only.
    pub keys: Vec<Policy>,
    /// The entities of the default namespace.
    pub entities: Entities,
    /// Host names of the default namespace. It also serves every host that belongs to no other namespace.
    pub hosts: Vec<String>,
    /// The namespaces beside the default one.
    pub namespaces: Vec<NamespaceOptions>,
}

/// A running broker with its listeners.
pub struct Server {
    /// The bound addresses, with the actual port in the place of port 0.
    pub addresses: Addresses,
    pub storage: StorageDoors,
    /// The certificate that clients trust: the configured one, or that of the broker's own authority.
    pub certificate: Option<PathBuf>,
    pub data: PathBuf,
    /// The recovered state of all namespaces together.
    pub recovered: Recovered,
    /// The queues of the default namespace. The topics, hubs and groups are those of the default namespace, too.
    pub queue_names: Vec<String>,
    pub topic_names: Vec<String>,
    pub hub_names: Vec<String>,
    pub group_names: Vec<String>,
    /// The namespaces beside the default one.
    pub namespace_names: Vec<String>,
    /// What the administrator should change, as sentences.
    pub warnings: Vec<String>,
    pub ready_after: Duration,
    pub uses_well_known_key: bool,
    /// The keys of the default namespace.
    pub access: Access,
    certificates: Option<Arc<Source>>,
    assembly: Assembly,
}

impl Server {
    pub async fn start(options: Options) -> Result<Server> {
        let started = Instant::now();
        listen::raise_handle_limit();
        private::restrict_new_files();
        let uses_well_known_key = options.keys.is_empty();
        let first = NamespaceOptions {
            name: DEFAULT_NAMESPACE.to_owned(),
            hosts: options.hosts,
            tier: None,
            keys: options.keys,
            entities: options.entities,
        };
        let jwt = options.jwt.map(JwtKeys::load).transpose()?;
        let medium = Medium::Directory(options.data.clone());
        let access_of = |space: &NamespaceOptions| space.open_access(&medium, options.listen, jwt.as_ref());
        let access = access_of(&first)?;
        let is_trusting =
            uses_well_known_key && options.listen.iter().all(|address| address.ip().is_loopback());
        let mut storage = options.storage;
        let (accounts, mut blobs, mut queues) = Accounts::open(&mut storage, is_trusting)?;
        let other_access = options.namespaces.iter().map(access_of).collect::<Result<Vec<_>>>()?;
        // The addresses are bound before the data is opened, so that a broker that cannot be reached does not touch it.
        let mut bound = listen::bind(options.listen).await?;
        bound.add_storage(storage.blobs, Door::Blobs, &mut blobs).await?;
        bound.add_storage(storage.queues, Door::Queues, &mut queues).await?;
        let spaces = std::iter::once(&first).chain(&options.namespaces);
        let hosts: Vec<String> = spaces.flat_map(|space| space.hosts.clone()).collect();
        // A name of the certificate is a name of the broker.
        let web_pages = options.web_pages.with_hosts(hosts.iter().chain(&options.tls.names).cloned());
        let tls = tls::load_if_needed(options.tls, &options.data, options.listen, hosts.into_iter())?;
        let cost = (options.filter_cost, options.tier, options.strict_emulator_quotas);
        let first = first.open(&medium, access.clone(), cost).await?;
        let (queue_names, topic_names) = first.names().await?;
        let hub_names = first.hub_names().await?;
        let group_names = first.broker.queue_groups().keys().map(ToString::to_string).collect();
        let mut others = Vec::new();
        for (space, access) in options.namespaces.into_iter().zip(other_access) {
            others.push(space.open(&medium, access, cost).await?);
        }
        let namespace_names = others.iter().map(|space| space.name.clone()).collect();
        let recovered = sum(std::iter::once(&first).chain(&others));
        let warnings = warnings(&options.data, tls.as_ref());
        let (acceptor, certificates) = tls.map(|tls| (tls.acceptor, tls.source)).unzip();
        let certificate = certificates.as_ref().map(|source| source.certificate().to_owned());
        let limits = Limits {
            listen: options.limits,
            amqp: options.amqp_limits,
            http: options.http_limits,
            web_pages,
        };
        let assembly = Assembly::new(first, others, &accounts, limits, acceptor);
        let addresses = bound.addresses;
        assembly.add_listeners(bound);
        if let Some(source) = &certificates {
            assembly.watch_certificate(Arc::clone(source));
        }
        let ready_after = started.elapsed();
        let data = options.data;
        let storage = StorageDoors {
            account: accounts.name,
            uses_well_known_key: accounts.uses_well_known_key,
            blobs,
            queues,
        };
        Ok(Server {
            addresses,
            storage,
            certificate,
            data,
            recovered,
            queue_names,
            topic_names,
            hub_names,
            group_names,
            namespace_names,
            warnings,
            ready_after,
            uses_well_known_key,
            access,
            certificates,
            assembly,
        })
    }

    /// Waits until a part of the broker fails, and returns the reason.
    pub async fn failed(&mut self) -> String {
        self.assembly.failed().await
    }

    /// Loads the certificate and its key again. New connections get them. If they cannot be used, the old ones stay.
    pub fn reload(&self) -> Result<()> {
        self.certificates.as_ref().map_or(Ok(()), |source| source.reload())
    }

    /// Stops accepting connections, closes the open ones, and returns when every accepted message is durable.
    pub async fn stop(self) -> Result<()> {
        self.assembly.stop().await
    }
}

fn warnings(data: &Path, tls: Option<&tls::Tls>) -> Vec<String> {
    let key = tls.and_then(|tls| private::warning("The private key", tls.source.key_file()));
    private::warning("The data directory", data).into_iter().chain(key).collect()
}

fn sum<'a>(spaces: impl Iterator<Item = &'a Opened>) -> Recovered {
    spaces.fold(Recovered::default(), |sum, space| Recovered {
        queue_count: sum.queue_count + space.recovered.queue_count,
        message_count: sum.message_count + space.recovered.message_count,
        hub_count: sum.hub_count + space.recovered.hub_count,
    })
}
