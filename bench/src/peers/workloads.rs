//! The workloads, each the same for every server.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use tokio::task::JoinSet;

use super::peer::{Deliveries, Peer, Receiver, Sender};
use crate::latency::quantile;
use crate::load;

const SENT_AT_ONCE: usize = 64;
const QUEUE_COUNT: usize = 1000;
const OPEN_LOOP_RATE: u32 = 5000;
/// The time by which an open loop may be late at its end.
const BEHIND_MAX: Duration = Duration::from_secs(2);
const SEND_WARM_UP: usize = 200;
/// The rate of a fill is extrapolated after this time.
const FILL_TRIAL: Duration = Duration::from_secs(10);
const FILL_WITHIN: Duration = Duration::from_secs(90);
/// The time for memory that a server frees or writes after the last confirmation.
const SETTLE: Duration = Duration::from_secs(2);
const MIB: f64 = 1024.0 * 1024.0;

/// The extent of each measurement.
#[derive(Clone)]
pub(crate) struct Extent {
    pub(crate) data: PathBuf,
    warm_up: Duration,
    measure: Duration,
    open_loop: Duration,
    send_count: usize,
    waiting_count: usize,
    /// A measurement that takes longer is given up, and the page reports that.
    pub(crate) limit: Duration,
}

impl Extent {
    pub(crate) fn new(data: PathBuf, is_quick: bool) -> Self {
        let seconds = |quick, full| Duration::from_secs(if is_quick { quick } else { full });
        let count = |quick, full| if is_quick { quick } else { full };
        Extent {
            data,
            warm_up: seconds(1, 2),
            measure: seconds(2, 6),
            open_loop: seconds(3, 10),
            send_count: count(300, 2000),
            waiting_count: count(100_000, 1_000_000),
            limit: Duration::from_secs(240),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Workload {
    Large,
    Small,
    Queues,
    Send,
    EndToEnd,
    Waiting,
}

/// A number that a workload yields.
pub(crate) struct Quantity {
    pub(crate) what: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) is_more_better: bool,
    /// Whether it describes the client, so that no server is better.
    pub(crate) is_of_client: bool,
}

const fn less(what: &'static str, unit: &'static str) -> Quantity {
    Quantity { what, unit, is_more_better: false, is_of_client: false }
}

const fn throughput_quantities(what: &'static str) -> [Quantity; 3] {
    [
        Quantity { what, unit: "messages/s", is_more_better: true, is_of_client: false },
        less("… server CPU per message", "µs"),
        Quantity { is_of_client: true, ..less("… client CPU per message", "µs") },
    ]
}

static LARGE: [Quantity; 3] =
    throughput_quantities("1 KiB, 2 senders × 256 in flight, 2 receivers: sent, delivered, acknowledged");
static SMALL: [Quantity; 3] = throughput_quantities("the same, 256 B");
static QUEUES: [Quantity; 3] =
    throughput_quantities("1,000 queues, 8 senders × 256 in flight, 8 receivers, 1 KiB");
static SEND: [Quantity; 2] = [less("one send at a time, 1 KiB, p50", "ms"), less("… p99", "ms")];
static END_TO_END: [Quantity; 3] =
    [less("end to end at 5,000/s, open loop, 1 KiB, p50", "ms"), less("… p99", "ms"), less("… p99.9", "ms")];
static WAITING: [Quantity; 2] =
    [less("1 M × 256 B waiting: resident memory", "MiB"), less("… restart to first delivery", "s")];

/// The result of one measurement.
pub(crate) enum Measured {
    /// One value for each quantity.
    Values(Vec<f64>),
    /// The reason why the server cannot run this in reasonable time.
    GivenUp(String),
}

impl Workload {
    pub(crate) const ALL: [Workload; 6] = [
        Workload::Large,
        Workload::Small,
        Workload::Queues,
        Workload::Send,
        Workload::EndToEnd,
        Workload::Waiting,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Workload::Large => "1k",
            Workload::Small => "256",
            Workload::Queues => "queues",
            Workload::Send => "send",
            Workload::EndToEnd => "end-to-end",
            Workload::Waiting => "waiting",
        }
    }

    pub(crate) fn quantities(self) -> &'static [Quantity] {
        match self {
            Workload::Large => &LARGE,
            Workload::Small => &SMALL,
            Workload::Queues => &QUEUES,
            Workload::Send => &SEND,
            Workload::EndToEnd => &END_TO_END,
            Workload::Waiting => &WAITING,
        }
    }

    /// Runs once with a new server, which ends afterwards. Returns the version of the server as well.
    pub(crate) fn run<P: Peer>(self, extent: &Extent) -> Result<(Measured, String)> {
        // One send at a time needs no second thread, which would only add a wake-up.
        let runtime = match self {
            Workload::Send => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
            _ => load::runtime()?,
        };
        let queue_count = if self == Workload::Queues { QUEUE_COUNT } else { 1 };
        let measure = async {
            let peer = P::start(extent.data.clone(), queue_count).await?;
            let version = peer.version()?;
            let measured = match self {
                Workload::Large => throughput(&peer, extent, 1024, 1, 2).await?,
                Workload::Small => throughput(&peer, extent, 256, 1, 2).await?,
                Workload::Queues => throughput(&peer, extent, 1024, QUEUE_COUNT, 8).await?,
                Workload::Send => send(&peer, extent).await?,
                Workload::EndToEnd => end_to_end(&peer, extent).await?,
                Workload::Waiting => waiting(peer, extent).await?,
            };
            anyhow::Ok((measured, version))
        };
        runtime.block_on(async {
            match tokio::time::timeout(extent.limit, measure).await {
                Ok(result) => result,
                Err(_) => {
                    let text = format!("not within {} s", extent.limit.as_secs());
                    Ok((Measured::GivenUp(text), String::new()))
                }
            }
        })
    }
}

/// Senders and receivers that run until they are dropped.
struct Load {
    tasks: JoinSet<Result<()>>,
    deliveries: Arc<Deliveries>,
}

impl Load {
    async fn start<P: Peer>(
        peer: &P,
        message: &Bytes,
        queue_count: usize,
        client_count: usize,
    ) -> Result<Self> {
        let mut load = Load { tasks: JoinSet::new(), deliveries: Arc::new(Deliveries::new()) };
        for client in 0..client_count {
            let receiver = peer.receiver(share(client, client_count, queue_count)).await?;
            load.tasks.spawn(receiver.run(Arc::clone(&load.deliveries)));
        }
        for client in 0..client_count {
            let mut sender = peer.sender(share(client, client_count, queue_count)).await?;
            let message = message.clone();
            load.tasks.spawn(async move {
                loop {
                    sender.send(&message, SENT_AT_ONCE).await?;
                }
            });
        }
        Ok(load)
    }

    /// Returns the error of a task that failed.
    fn check(&mut self) -> Result<()> {
        self.tasks.try_join_next().map_or(Ok(()), |ended| ended?)
    }
}

/// Returns the queues of one of several clients: a part of many queues, or the only one.
fn share(client: usize, client_count: usize, queue_count: usize) -> Vec<usize> {
    if queue_count == 1 { vec![0] } else { (client..queue_count).step_by(client_count).collect() }
}

async fn throughput<P: Peer>(
    peer: &P,
    extent: &Extent,
    body_bytes: usize,
    queue_count: usize,
    client_count: usize,
) -> Result<Measured> {
    let message = P::encode(&vec![b'x'; body_bytes]);
    let mut load = Load::start(peer, &message, queue_count, client_count).await?;
    tokio::time::sleep(extent.warm_up).await;
    let count = || load.deliveries.acknowledged_count();
    let measured = load::measure(peer.process(), extent.measure, count).await?;
    load.check()?;
    let micros = |cpu: Duration| cpu.as_secs_f64() * 1e6;
    let (server, client) = (micros(measured.cpu_per_message), micros(measured.client_cpu_per_message));
    Ok(Measured::Values(vec![measured.rate, server, client]))
}

async fn send<P: Peer>(peer: &P, extent: &Extent) -> Result<Measured> {
    let mut sender = peer.sender(vec![0]).await?;
    let message = P::encode(&[b'x'; 1024]);
    let mut times = Vec::with_capacity(extent.send_count);
    for round in 0..SEND_WARM_UP + extent.send_count {
        let start = Instant::now();
        sender.send(&message, 1).await?;
        sender.flush().await?;
        if round >= SEND_WARM_UP {
            times.push(start.elapsed());
        }
    }
    Ok(Measured::Values([0.5, 0.99].map(|share| millis(&times, share)).to_vec()))
}

fn millis(times: &[Duration], share: f64) -> f64 {
    quantile(times, share).as_secs_f64() * 1e3
}

/// Sends at fixed times, whether or not earlier messages have arrived. The latency of a message starts at the time when it was due, so
/// that waiting in the sender counts.
async fn end_to_end<P: Peer>(peer: &P, extent: &Extent) -> Result<Measured> {
    let deliveries = Arc::new(Deliveries::with_latencies());
    let mut tasks = JoinSet::new();
    tasks.spawn(peer.receiver(vec![0]).await?.run(Arc::clone(&deliveries)));
    let sender = peer.sender(vec![0]).await?;
    let (due, runtime) = (Arc::clone(&deliveries), tokio::runtime::Handle::current());
    let time = extent.warm_up + extent.open_loop;
    // The timer of the runtime counts milliseconds, so the sender has a thread of its own.
    let sending =
        tokio::task::spawn_blocking(move || runtime.block_on(send_on_time::<P>(sender, &due, time)));
    tokio::time::sleep(extent.warm_up).await;
    deliveries.take_latencies();
    sending.await??;
    let times = deliveries.take_latencies();
    tasks.try_join_next().map_or(Ok(()), |ended| ended?)?;
    let expected = extent.open_loop.as_secs_f64() * f64::from(OPEN_LOOP_RATE);
    if (times.len() as f64) < expected * 0.9 {
        return Ok(Measured::GivenUp(format!(
            "delivers {:.0}/s",
            times.len() as f64 / extent.open_loop.as_secs_f64()
        )));
    }
    Ok(Measured::Values([0.5, 0.99, 0.999].map(|share| millis(&times, share)).to_vec()))
}

async fn send_on_time<P: Peer>(mut sender: P::Sender, deliveries: &Deliveries, time: Duration) -> Result<()> {
    // The default lets the kernel delay each sleep by 50 µs.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    let (start, mut body) = (Instant::now(), [b'x'; 1024]);
    for number in 0.. {
        let due = start + Duration::from_secs(1) * number / OPEN_LOOP_RATE;
        // A server that cannot keep up ends later by the length of its backlog; the rest is of no interest.
        if due - start >= time || start.elapsed() >= time + BEHIND_MAX {
            break;
        }
        // Sleeping here is correct: this thread runs nothing else.
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if let Some(end) = body.last_chunk_mut::<8>() {
            *end = deliveries.due(due);
        }
        sender.send(&P::encode(&body), 1).await?;
    }
    sender.flush().await
}

async fn waiting<P: Peer>(peer: P, extent: &Extent) -> Result<Measured> {
    if let Some(reason) = fill(&peer, extent.waiting_count).await? {
        return Ok(Measured::GivenUp(reason));
    }
    tokio::time::sleep(SETTLE).await;
    let resident_bytes = peer.process().resident_bytes()?;
    let (peer, started) = peer.restart().await?;
    let deliveries = Arc::new(Deliveries::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(peer.receiver(vec![0]).await?.run(Arc::clone(&deliveries)));
    let first = loop {
        if let Some(first) = deliveries.first() {
            break first;
        }
        if let Some(ended) = tasks.try_join_next() {
            ended??;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    Ok(Measured::Values(vec![resident_bytes as f64 / MIB, (first - started).as_secs_f64()]))
}

/// Sends that many messages of 256 B. Returns the reason if that would take too long.
async fn fill<P: Peer>(peer: &P, count: usize) -> Result<Option<String>> {
    let message = P::encode(&[b'x'; 256]);
    let (started, sent) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..load::SENDERS {
        let (mut sender, message, sent) = (peer.sender(vec![0]).await?, message.clone(), Arc::clone(&sent));
        tasks.spawn(async move {
            for _ in 0..count / load::SENDERS / 1000 {
                sender.send(&message, 1000).await?;
                sent.fetch_add(1000, Ordering::Relaxed);
            }
            sender.flush().await
        });
    }
    loop {
        match tokio::time::timeout(FILL_TRIAL, tasks.join_next()).await {
            Ok(Some(ended)) => ended.context("a sender ended")??,
            Ok(None) => return Ok(None),
            Err(_) => {
                let rate = sent.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
                let seconds = count as f64 / rate;
                if seconds > FILL_WITHIN.as_secs_f64() {
                    return Ok(Some(format!("stores {rate:.0}/s, so filling would take {seconds:.0} s")));
                }
            }
        }
    }
}
