//! Assembles the journal, the broker, the listeners and their keys. It is the only crate that names a concrete journal.

mod access;
mod declare;
mod listen;
mod namespace;
mod storage;
#[cfg(feature = "test-clock")]
pub mod test_clock;
mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use futures_util::future::select_all;
use peeklock_access::JwtKeys;
use peeklock_broker::{Recovered, Running};
use peeklock_gateway_azure::Gateway;
use peeklock_http::HttpState;
use peeklock_types::Tier;
use tokio::sync::watch;
use tokio::task::JoinSet;

use listen::{Door, Edge, Routes};
use namespace::Opened;
use storage::Accounts;

pub use access::{WELL_KNOWN_KEY_NAME, WELL_KNOWN_KEY_SECRET};
pub use declare::Entities;
pub use listen::ListenLimits;
pub use namespace::{DEFAULT_NAMESPACE, NamespaceOptions};
pub use peeklock_access::{Access, JwtOptions, Policy, Right};
pub use peeklock_broker::filter::Cost as FilterCost;
pub use peeklock_gateway_azure::Limits as AmqpLimits;
pub use peeklock_http::Limits as HttpLimits;
pub use peeklock_storage::{AccountKey, WELL_KNOWN_ACCOUNT, WELL_KNOWN_KEY as WELL_KNOWN_STORAGE_KEY};
pub use storage::{Served, StorageDoors, StorageListen, StorageOptions};

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
    /// The files of the certificate chain and of the private key, both in PEM form. With `None`, the first start creates a self-signed
    /// certificate.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The limits of all connections together, before authentication.
    pub limits: ListenLimits,
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
    pub ready_after: Duration,
    pub uses_well_known_key: bool,
    /// The keys of the default namespace.
    pub access: Access,
    running: Vec<Running>,
    listeners: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Server {
    pub async fn start(options: Options) -> Result<Server> {
        let started = Instant::now();
        listen::raise_handle_limit();
        let uses_well_known_key = options.keys.is_empty();
        let first = NamespaceOptions {
            name: DEFAULT_NAMESPACE.to_owned(),
            hosts: options.hosts,
            tier: None,
            keys: options.keys,
            entities: options.entities,
        };
        let jwt = options.jwt.map(JwtKeys::load).transpose()?;
        let access_of =
            |space: &NamespaceOptions| space.open_access(&options.data, options.listen, jwt.as_ref());
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
        let tls = tls::load_if_needed(options.certificate, &options.data, options.listen)?;
        let cost = (options.filter_cost, options.tier, options.strict_emulator_quotas);
        let first = first.open(&options.data, access.clone(), cost).await?;
        let (queue_names, topic_names) = first.names().await?;
        let hub_names = first.hub_names().await?;
        let group_names = first.broker.queue_groups().keys().map(ToString::to_string).collect();
        let mut others = Vec::new();
        for (space, access) in options.namespaces.into_iter().zip(other_access) {
            others.push(space.open(&options.data, access, cost).await?);
        }
        let namespace_names = others.iter().map(|space| space.name.clone()).collect();
        let recovered = sum(std::iter::once(&first).chain(&others));
        let routes = routes(std::iter::once(&first).chain(&others), options.http_limits);
        let (blob_routes, queue_routes) =
            accounts.routes(std::iter::once(&first).chain(&others), options.http_limits);
        let routes = Routes { management: routes, blobs: blob_routes, queues: queue_routes };
        let (first, first_running) = first.split();
        let (others, mut running): (Vec<_>, Vec<_>) = others.into_iter().map(Opened::split).unzip();
        running.push(first_running);
        let (stop, stopping) = watch::channel(false);
        let (acceptor, certificate) = tls.map(|tls| (tls.acceptor, tls.certificate)).unzip();
        let gateway = Gateway::with_namespaces(first, others).with_limits(options.amqp_limits);
        let edge = Edge::new(gateway, routes, acceptor, options.limits);
        let mut listeners = JoinSet::new();
        let addresses = bound.addresses;
        for (listener, door) in bound.listeners {
            listeners.spawn(listen::serve(listener, door, Arc::clone(&edge), stopping.clone()));
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
            ready_after,
            uses_well_known_key,
            access,
            running,
            listeners,
            stop,
        })
    }

    /// Waits until a part of the broker fails, and returns the reason.
    pub async fn failed(&mut self) -> String {
        let (ended, ..) =
            select_all(self.running.iter_mut().map(|running| Box::pin(running.stopped()))).await;
        match ended {
            Ok(()) => "every part of the broker has stopped".to_owned(),
            Err(reason) => reason,
        }
    }

    /// Stops accepting connections, closes the open ones, and returns when every accepted message is durable.
    pub async fn stop(mut self) -> Result<()> {
        let _ = self.stop.send(true);
        let drained = async { while self.listeners.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIME_MAX, drained).await.is_err() {
            self.listeners.abort_all();
            while self.listeners.join_next().await.is_some() {}
        }
        for running in &mut self.running {
            if let Err(reason) = running.stopped().await {
                bail!(reason);
            }
        }
        Ok(())
    }
}

/// Returns the management and health routes for all namespaces.
fn routes<'a>(spaces: impl Iterator<Item = &'a Opened>, limits: HttpLimits) -> axum::Router {
    peeklock_http::router(HttpState::new(spaces.map(Opened::for_http).collect(), limits))
}

fn sum<'a>(spaces: impl Iterator<Item = &'a Opened>) -> Recovered {
    spaces.fold(Recovered::default(), |sum, space| Recovered {
        queue_count: sum.queue_count + space.recovered.queue_count,
        message_count: sum.message_count + space.recovered.message_count,
        hub_count: sum.hub_count + space.recovered.hub_count,
    })
}
