//! Puts the parts together: the journal, the broker, the listeners and their keys. The only crate that names a concrete journal.

mod access;
mod listen;
mod tls;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use peeklock_broker::{AdminError, Broker, Listing, Page, Recovered, Running};
use peeklock_gateway_azure::Gateway;
use peeklock_http::HttpState;
use peeklock_journal_wal::{WalConfig, WalJournal};
use peeklock_types::{EntityName, QueueSettings};
use tokio::sync::watch;
use tokio::task::JoinSet;

use listen::Edge;

pub use access::{WELL_KNOWN_KEY_NAME, WELL_KNOWN_KEY_SECRET};
pub use listen::ListenLimits;
pub use peeklock_access::{Access, Policy, Right};
pub use peeklock_gateway_azure::Limits as AmqpLimits;

/// How long open connections get to finish when the server stops.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);
/// What the official emulator calls its only namespace.
const NAMESPACE_NAME: &str = "sbemulatorns";
const RING_BYTES_MIN: u64 = 128 << 20;
const RING_BYTES_MAX: u64 = 2 << 30;

/// Where to listen; `None`: not there. Each address serves AMQP, HTTP and AMQP over WebSocket, told apart by the first bytes; the names say
/// what clients look for at the usual ports.
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

/// What `serve` was told.
pub struct Options {
    pub data: PathBuf,
    pub listen: Addresses,
    /// Certificate chain and private key, both PEM. `None`: a self-signed one, made on first start.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Policies that hold while this server runs, whatever is stored. Empty: the well-known key, on loopback only.
    pub keys: Vec<Policy>,
    /// Of all connections together, before anybody knows who they are.
    pub limits: ListenLimits,
    /// Of each AMQP connection.
    pub amqp_limits: AmqpLimits,
    /// Created if they are not there yet.
    pub queues: Vec<(EntityName, QueueSettings)>,
}

/// A running broker with its listeners.
pub struct Server {
    /// As bound: port 0 has become a real one.
    pub addresses: Addresses,
    pub certificate: Option<PathBuf>,
    pub data: PathBuf,
    pub recovered: Recovered,
    pub queue_names: Vec<String>,
    pub ready_after: Duration,
    pub uses_well_known_key: bool,
    pub access: Access,
    running: Running,
    listeners: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Server {
    pub async fn start(options: Options) -> Result<Server> {
        let started = Instant::now();
        listen::raise_handle_limit();
        let uses_well_known_key = options.keys.is_empty();
        let access = access::open(options.keys, &options.data, options.listen.iter())?;
        // Before the data is opened: a broker that nobody can reach should not touch it.
        let bound = listen::bind(options.listen).await?;
        let tls = tls::load_if_needed(options.certificate, &options.data, options.listen)?;
        let (broker, running, recovered) = open(&options.data).await?;
        for (name, settings) in options.queues {
            declare(&broker, name, settings).await?;
        }
        let queue_names = broker
            .list(Listing::All, Page::ALL)
            .await?
            .into_iter()
            .map(|queue| queue.name.to_string())
            .collect();
        let (stop, stopping) = watch::channel(false);
        let (acceptor, certificate) = tls.map(|tls| (tls.acceptor, tls.certificate)).unzip();
        let routes = routes(broker.clone(), access.clone());
        let gateway = Gateway::new(broker, access.clone()).with_limits(options.amqp_limits);
        let edge = Edge::new(gateway, routes, acceptor, options.limits);
        let mut listeners = JoinSet::new();
        let addresses = bound.addresses;
        for (listener, door) in bound.listeners {
            listeners.spawn(listen::serve(listener, door, Arc::clone(&edge), stopping.clone()));
        }
        let ready_after = started.elapsed();
        let data = options.data;
        Ok(Server {
            addresses,
            certificate,
            data,
            recovered,
            queue_names,
            ready_after,
            uses_well_known_key,
            access,
            running,
            listeners,
            stop,
        })
    }

    /// Ends only when a part of the broker fails.
    pub async fn failed(&mut self) -> String {
        match self.running.stopped().await {
            Ok(()) => "every part of the broker has stopped".to_owned(),
            Err(reason) => reason,
        }
    }

    /// Takes no new connections, closes the open ones, and returns when everything taken is durable.
    pub async fn stop(mut self) -> Result<()> {
        let _ = self.stop.send(true);
        let drained = async { while self.listeners.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIME_MAX, drained).await.is_err() {
            self.listeners.abort_all();
            while self.listeners.join_next().await.is_some() {}
        }
        match self.running.stopped().await {
            Ok(()) => Ok(()),
            Err(reason) => bail!(reason),
        }
    }
}

/// Management over HTTP.
fn routes(broker: Broker, access: Access) -> axum::Router {
    let created_at = broker.clock().now();
    let (name, hosts) = (NAMESPACE_NAME.to_owned(), Vec::new());
    let namespace = peeklock_http::Namespace { name, hosts, broker, access, created_at };
    peeklock_http::router(HttpState::new(vec![namespace], peeklock_http::Limits::default()))
}

async fn open(data: &Path) -> Result<(Broker, Running, Recovered)> {
    std::fs::create_dir_all(data)
        .with_context(|| format!("cannot create the data directory {}", data.display()))?;
    let ring_bytes = ring_bytes(data);
    let journal = WalJournal::open(data, WalConfig { ring_bytes, ..WalConfig::default() })?;
    Ok(Broker::open(&journal, peeklock_gateway_azure::describe).await?)
}

/// How much log to keep before old bodies are copied out of it. A backlog that is worked off before then is written once instead of
/// twice, so this is generous, but never more than a small part of the disk.
fn ring_bytes(data: &Path) -> u64 {
    let free_bytes = rustix::fs::statvfs(data).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    (free_bytes / 8).clamp(RING_BYTES_MIN, RING_BYTES_MAX)
}

/// Creates the queue; one that is there already is left as it is.
async fn declare(broker: &Broker, name: EntityName, settings: QueueSettings) -> Result<()> {
    use peeklock_broker::{Error, engine};
    match broker.create_queue(name.clone(), settings).await {
        Ok(()) => Ok(()),
        Err(AdminError::Refused(Error::Engine(error)))
            if matches!(*error, engine::Error::AlreadyExists { .. }) =>
        {
            Ok(())
        }
        Err(error) => Err(error).with_context(|| format!("cannot create the queue '{name}'")),
    }
}
