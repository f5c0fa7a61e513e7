//! Puts the parts together: the journal, the broker, the listeners and their keys. The only crate that names a concrete journal.

mod access;
mod listen;
mod tls;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use peeklock_broker::{AdminError, Broker, Recovered, Running};
use peeklock_gateway_azure::Gateway;
use peeklock_journal_wal::{WalConfig, WalJournal};
use peeklock_types::{EntityName, QueueSettings};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use access::{WELL_KNOWN_KEY_NAME, WELL_KNOWN_KEY_SECRET};
pub use peeklock_access::{Policy, Right};

/// How long open connections get to finish when the server stops.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);
const RING_BYTES_MIN: u64 = 128 << 20;
const RING_BYTES_MAX: u64 = 2 << 30;

/// What `serve` was told.
pub struct Options {
    pub data: PathBuf,
    pub listen: SocketAddr,
    /// `None`: no TLS.
    pub listen_tls: Option<SocketAddr>,
    /// Certificate chain and private key, both PEM. `None`: a self-signed one, made on first start.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Policies that hold while this server runs, whatever is stored. Empty: the well-known key, on loopback only.
    pub keys: Vec<Policy>,
    /// Created if they are not there yet.
    pub queues: Vec<(EntityName, QueueSettings)>,
}

/// A running broker with its listeners.
pub struct Server {
    pub address: SocketAddr,
    pub address_tls: Option<SocketAddr>,
    pub certificate: Option<PathBuf>,
    pub data: PathBuf,
    pub recovered: Recovered,
    pub queue_names: Vec<String>,
    pub ready_after: Duration,
    pub uses_well_known_key: bool,
    running: Running,
    listeners: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Server {
    pub async fn start(options: Options) -> Result<Server> {
        let started = Instant::now();
        listen::raise_handle_limit();
        let uses_well_known_key = options.keys.is_empty();
        let addresses = [Some(options.listen), options.listen_tls];
        let access = access::open(options.keys, &options.data, addresses.into_iter().flatten())?;
        let plain = bind(options.listen).await?;
        let (broker, running, recovered) = open(&options.data).await?;
        for (name, settings) in options.queues {
            declare(&broker, name, settings).await?;
        }
        let queue_names = broker.queues().await?.into_iter().map(|queue| queue.name.to_string()).collect();
        let (stop, stopping) = watch::channel(false);
        let gateway = Arc::new(Gateway::new(broker, access));
        let mut listeners = JoinSet::new();
        let address = plain.local_addr()?;
        listeners.spawn(listen::serve(plain, None, Arc::clone(&gateway), stopping.clone()));
        let (mut address_tls, mut certificate) = (None, None);
        if let Some(wanted) = options.listen_tls {
            let listener = bind(wanted).await?;
            let tls = tls::load(options.certificate, &options.data, wanted.ip())?;
            address_tls = Some(listener.local_addr()?);
            certificate = Some(tls.certificate);
            listeners.spawn(listen::serve(listener, Some(tls.acceptor), gateway, stopping));
        }
        let ready_after = started.elapsed();
        let data = options.data;
        Ok(Server {
            address,
            address_tls,
            certificate,
            data,
            recovered,
            queue_names,
            ready_after,
            uses_well_known_key,
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

async fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; another program may use it. Choose another address with --listen or --listen-tls")
    })
}

async fn open(data: &Path) -> Result<(Broker, Running, Recovered)> {
    std::fs::create_dir_all(data)
        .with_context(|| format!("cannot create the data directory {}", data.display()))?;
    let ring_bytes = ring_bytes(data);
    let journal = WalJournal::open(data, WalConfig { ring_bytes, ..WalConfig::default() })?;
    Ok(Broker::open(&journal).await?)
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
