//! The interface of a server in the comparison, and the parts that all servers share.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;

use crate::process::Process;

/// The messages that a sender has in flight.
pub(crate) const UNCONFIRMED_MAX: usize = 256;
/// The messages that a receiver of one queue takes in advance.
pub(crate) const CREDIT: usize = 1000;
/// The least number of messages that a receiver of many queues takes in advance from each.
const CREDIT_MIN: usize = 32;
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A server with its queues `q0`, `q1`, …
///
/// * A send is confirmed after the message is on disk, if the server has that promise.
/// * An acknowledged message is not delivered again.
/// * The server ends when this is dropped.
pub(crate) trait Peer: Sized + Send + Sync + 'static {
    type Sender: Sender;
    type Receiver: Receiver;

    /// Starts the server with an empty data directory in `data`, and creates the queues.
    fn start(data: PathBuf, queue_count: usize) -> impl Future<Output = Result<Self>> + Send;

    /// Stops the server as an operator would, and starts it again with its data. Returns the time of the start as well.
    fn restart(self) -> impl Future<Output = Result<(Self, Instant)>> + Send;

    fn version(&self) -> Result<String>;

    fn process(&self) -> &Process;

    /// Returns the message that has this body, as it is sent. The body is at its end.
    fn encode(body: &[u8]) -> Bytes {
        Bytes::copy_from_slice(body)
    }

    /// Connects a sender, which uses these queues in turn.
    fn sender(&self, queues: Vec<usize>) -> impl Future<Output = Result<Self::Sender>> + Send;

    /// Connects a receiver of these queues.
    fn receiver(&self, queues: Vec<usize>) -> impl Future<Output = Result<Self::Receiver>> + Send;
}

pub(crate) trait Sender: Send + 'static {
    /// Sends `count` copies. Waits only while [`UNCONFIRMED_MAX`] messages are unconfirmed.
    fn send(&mut self, message: &Bytes, count: usize) -> impl Future<Output = Result<()>> + Send;

    /// Waits until every message is confirmed.
    fn flush(&mut self) -> impl Future<Output = Result<()>> + Send;
}

pub(crate) trait Receiver: Send + 'static {
    /// Receives and acknowledges until it is cancelled.
    fn run(self, deliveries: Arc<Deliveries>) -> impl Future<Output = Result<()>> + Send;
}

/// The observations of all receivers.
pub(crate) struct Deliveries {
    epoch: Instant,
    acknowledged_count: AtomicU64,
    first: OnceLock<Instant>,
    /// The time from the due time of each message to its delivery, if the bodies have it.
    latencies: Option<Mutex<Vec<Duration>>>,
}

impl Deliveries {
    pub(crate) fn new() -> Self {
        Deliveries {
            epoch: Instant::now(),
            acknowledged_count: AtomicU64::new(0),
            first: OnceLock::new(),
            latencies: None,
        }
    }

    /// Records latencies as well. Every body must end with [`Deliveries::due`].
    pub(crate) fn with_latencies() -> Self {
        Deliveries { latencies: Some(Mutex::default()), ..Self::new() }
    }

    /// Returns the last bytes of a message that is due at this time.
    pub(crate) fn due(&self, at: Instant) -> [u8; 8] {
        u64::try_from((at - self.epoch).as_nanos()).unwrap_or(u64::MAX).to_le_bytes()
    }

    pub(crate) fn delivered(&self, message: &[u8]) {
        if self.first.get().is_none() {
            self.first.get_or_init(Instant::now);
        }
        let Some(latencies) = &self.latencies else { return };
        let Some(due) = message.last_chunk::<8>() else { return };
        let due = Duration::from_nanos(u64::from_le_bytes(*due));
        let mut latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
        latencies.push(self.epoch.elapsed().saturating_sub(due));
    }

    pub(crate) fn acknowledged(&self, count: u64) {
        self.acknowledged_count.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn acknowledged_count(&self) -> u64 {
        self.acknowledged_count.load(Ordering::Relaxed)
    }

    pub(crate) fn first(&self) -> Option<Instant> {
        self.first.get().copied()
    }

    /// Returns the latencies since the last call.
    pub(crate) fn take_latencies(&self) -> Vec<Duration> {
        let Some(latencies) = &self.latencies else { return Vec::new() };
        std::mem::take(&mut latencies.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The messages that a receiver of this many queues takes in advance from each.
pub(crate) fn credit(queue_count: usize) -> usize {
    (CREDIT / queue_count.max(1)).max(CREDIT_MIN)
}

pub(crate) fn queue_name(queue: usize) -> String {
    format!("q{queue}")
}

/// Returns another number with each call, for names of consumers and inboxes.
pub(crate) fn unique_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns a port of the loopback interface that is free now.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Waits until `connect` succeeds. Fails if the process ends.
pub(crate) async fn ready<T, F>(process: &mut Process, mut connect: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let started = Instant::now();
    loop {
        match connect().await {
            Ok(connected) => return Ok(connected),
            Err(error) if started.elapsed() > READY_WITHIN => {
                return Err(error.context("the server does not become ready"));
            }
            Err(_) => process.check_alive()?,
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the word of a program's version that follows `before`.
pub(crate) fn version_of(program: &str, before: &str) -> Result<String> {
    let output =
        Command::new(program).arg("--version").output().with_context(|| format!("cannot run {program}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let Some((_, rest)) = text.split_once(before) else { bail!("{program} --version printed {text:?}") };
    Ok(rest.split_whitespace().next().unwrap_or_default().to_owned())
}
