//! Measures two senders and two receivers of one queue: the throughput from end to end, and the CPU time of the broker and of the
//! client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use peeklock_client::{Client, Encode, Message, Outcome};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Arguments;
use crate::broker::{Broker, QUEUE};
use crate::disk::Raw;
use crate::machine;
use crate::process::Process;
use crate::report::{Row, Target};

pub(crate) const SENDERS: usize = 2;
pub(crate) const RECEIVERS: usize = 2;
pub(crate) const UNCONFIRMED_MAX: u32 = 256;
const CREDIT: u32 = 1000;
const RECEIVED_AT_ONCE: usize = 256;

/// The result of a period of load.
pub(crate) struct Measured {
    /// Messages completed and confirmed, per second.
    pub(crate) rate: f64,
    /// CPU time of the broker.
    pub(crate) cpu_per_message: Duration,
    /// CPU time of this process: the senders and receivers.
    pub(crate) client_cpu_per_message: Duration,
}

/// The tasks that run during the measurement.
pub(crate) struct Load {
    tasks: JoinSet<Result<()>>,
    completed: Arc<AtomicU64>,
    stopping: Arc<AtomicBool>,
}

impl Load {
    pub(crate) fn new() -> Self {
        Load { tasks: JoinSet::new(), completed: Arc::default(), stopping: Arc::default() }
    }

    /// Starts a task, which gets the count of completed messages and the sign to stop.
    pub(crate) fn spawn<F>(&mut self, task: impl FnOnce(Arc<AtomicU64>, Arc<AtomicBool>) -> F)
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        self.tasks.spawn(task(Arc::clone(&self.completed), Arc::clone(&self.stopping)));
    }

    /// Starts senders, which send until they are stopped, and receivers, which complete every message.
    pub(crate) async fn start(broker: &Broker, body_bytes: usize) -> Result<Self> {
        Self::start_with(broker, vec![Message::data(vec![b'x'; body_bytes]).to_bytes()]).await
    }

    /// Starts the same senders and receivers with these messages, which are sent repeatedly.
    pub(crate) async fn start_with(broker: &Broker, payloads: Vec<Bytes>) -> Result<Self> {
        let mut load = Load::new();
        for _ in 0..RECEIVERS {
            let client = broker.connect().await?;
            load.spawn(|completed, _| receive(client, completed));
        }
        for _ in 0..SENDERS {
            let (client, payloads) = (broker.connect().await?, payloads.clone());
            load.spawn(|_, stopping| send(client, payloads, stopping));
        }
        Ok(load)
    }

    /// Starts the same senders and receivers with a limit for the messages that are sent and not yet received. Receivers then keep up
    /// with senders, also if a body is large.
    pub(crate) async fn start_limited(broker: &Broker, body_bytes: usize, limit: usize) -> Result<Self> {
        let mut load = Load::new();
        let limit = limit.max(SENDERS);
        let room = Arc::new(Semaphore::new(limit));
        for _ in 0..RECEIVERS {
            let (client, room) = (broker.connect().await?, Arc::clone(&room));
            load.spawn(|completed, _| receive_limited(client, completed, room));
        }
        let payload = Message::data(vec![b'x'; body_bytes]).to_bytes();
        for _ in 0..SENDERS {
            let (client, room, payload) = (broker.connect().await?, Arc::clone(&room), payload.clone());
            load.spawn(|_, stopping| send_limited(client, payload, limit / SENDERS, room, stopping));
        }
        Ok(load)
    }

    pub(crate) async fn measure(&self, broker: &Broker, time: Duration) -> Result<Measured> {
        measure(broker.process(), time, || self.completed.load(Ordering::Relaxed)).await
    }

    /// Ends all tasks and returns the error of a task that failed.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.stopping.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.try_join_next() {
            ended??;
        }
        self.tasks.shutdown().await;
        Ok(())
    }
}

/// Measures for that time. `completed` returns the number of completed messages so far.
pub(crate) async fn measure(
    process: &Process,
    time: Duration,
    completed: impl Fn() -> u64,
) -> Result<Measured> {
    let (start, count) = (Instant::now(), completed());
    let (broker_cpu, client_cpu) = (process.cpu_time()?, machine::process_time());
    tokio::time::sleep(time).await;
    let elapsed = start.elapsed();
    let count = completed() - count;
    let per_message = |cpu: Duration| Duration::from_secs_f64(cpu.as_secs_f64() / count.max(1) as f64);
    Ok(Measured {
        rate: count as f64 / elapsed.as_secs_f64(),
        cpu_per_message: per_message(process.cpu_time()?.saturating_sub(broker_cpu)),
        client_cpu_per_message: per_message(machine::process_time().saturating_sub(client_cpu)),
    })
}

async fn send(client: Client, payloads: Vec<Bytes>, stopping: Arc<AtomicBool>) -> Result<()> {
    let mut pipeline = client.pipeline(QUEUE, UNCONFIRMED_MAX).await?;
    let mut endless = payloads.iter().cycle().cloned();
    while !stopping.load(Ordering::Relaxed) {
        pipeline.send_many_encoded(endless.by_ref().take(64)).await?;
    }
    Ok(pipeline.flush().await?)
}

async fn receive(client: Client, completed: Arc<AtomicU64>) -> Result<()> {
    let mut receiver = client.receiver(QUEUE).credit(CREDIT).open().await?;
    let mut deliveries = Vec::new();
    let mut counted = 0;
    loop {
        receiver.next_many(&mut deliveries, RECEIVED_AT_ONCE).await?;
        receiver.settle_many(deliveries.drain(..), Outcome::Complete).await?;
        // Only confirmed messages count.
        let confirmed = receiver.confirmed_count();
        completed.fetch_add(confirmed - counted, Ordering::Relaxed);
        counted = confirmed;
    }
}

async fn send_limited(
    client: Client,
    payload: Bytes,
    limit: usize,
    room: Arc<Semaphore>,
    stopping: Arc<AtomicBool>,
) -> Result<()> {
    let mut pipeline = client.pipeline(QUEUE, u32::try_from(limit)?).await?;
    let at_once = (limit / 4).clamp(1, 64);
    while !stopping.load(Ordering::Relaxed) {
        // A received message gives its place back.
        room.acquire_many(u32::try_from(at_once)?).await?.forget();
        pipeline.send_many_encoded(std::iter::repeat_n(payload.clone(), at_once)).await?;
    }
    Ok(pipeline.flush().await?)
}

async fn receive_limited(client: Client, completed: Arc<AtomicU64>, room: Arc<Semaphore>) -> Result<()> {
    let mut receiver = client.receiver(QUEUE).credit(CREDIT).open().await?;
    let mut deliveries = Vec::new();
    let mut counted = 0;
    loop {
        room.add_permits(receiver.next_many(&mut deliveries, RECEIVED_AT_ONCE).await?);
        receiver.settle_many(deliveries.drain(..), Outcome::Complete).await?;
        let confirmed = receiver.confirmed_count();
        completed.fetch_add(confirmed - counted, Ordering::Relaxed);
        counted = confirmed;
    }
}

pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

pub(crate) struct Times {
    warm_up: Duration,
    measure: Duration,
    disk: Duration,
}

impl Times {
    pub(crate) fn of(arguments: &Arguments) -> Self {
        let seconds = |quick, full| Duration::from_secs(if arguments.quick { quick } else { full });
        Times { warm_up: seconds(1, 3), measure: seconds(2, 10), disk: seconds(1, 2) }
    }
}

/// Measures the durable throughput at 1 KiB against the bare disk.
pub(crate) fn run(arguments: &Arguments) -> Result<Vec<Row>> {
    let (mut rates, mut bare, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..arguments.repetitions {
        let (rate, disk) = runtime()?.block_on(against_disk(arguments))?;
        rates.push(rate);
        bare.push(disk);
        ratios.push(rate / disk);
    }
    Ok(vec![
        Row::new(
            "whole broker, 1 KiB, 2 senders × 256 unconfirmed, 2 receivers completing",
            "messages/s",
            rates,
        ),
        Row::new("bare disk, 256 × 1 KiB per fdatasync: P(256)", "records/s", bare),
        Row::new("whole broker / P(256)", "", ratios).target(Target::AtLeast(0.35)),
    ])
}

/// Returns the throughput of the broker and of the bare disk. The disk is measured before and after the load, because disks of shared
/// machines change every minute.
async fn against_disk(arguments: &Arguments) -> Result<(f64, f64)> {
    let times = Times::of(arguments);
    let folder = TempDir::with_prefix_in("peeklock-bench-raw-", &arguments.data)?;
    let raw = Raw::new(folder.path())?;
    let before = raw.rate(256, 1024, times.disk)?;
    let broker = Broker::start(&arguments.data)?;
    let load = Load::start(&broker, 1024).await?;
    tokio::time::sleep(times.warm_up).await;
    let measured = load.measure(&broker, times.measure).await?;
    load.stop().await?;
    drop(broker);
    let after = raw.rate(256, 1024, times.disk)?;
    Ok((measured.rate, f64::midpoint(before, after)))
}

/// Measures the CPU time of the broker and of the client per message at 256 B.
pub(crate) fn run_cpu(arguments: &Arguments) -> Result<Vec<Row>> {
    let (mut rates, mut cpu, mut client_cpu) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..arguments.repetitions {
        let measured = runtime()?.block_on(small(arguments))?;
        rates.push(measured.rate);
        cpu.push(measured.cpu_per_message.as_secs_f64() * 1e6);
        client_cpu.push(measured.client_cpu_per_message.as_secs_f64() * 1e6);
    }
    Ok(vec![
        Row::new("the same at 256 B", "messages/s", rates),
        Row::new("the same at 256 B: broker CPU per message (send, deliver, complete)", "µs", cpu)
            .target(Target::AtMost(1.2)),
        Row::new("client CPU per message (send, receive, complete), 256 B", "µs", client_cpu)
            .target(Target::AtMost(1.2)),
    ])
}

async fn small(arguments: &Arguments) -> Result<Measured> {
    let times = Times::of(arguments);
    let broker = Broker::start(&arguments.data)?;
    let load = Load::start(&broker, 256).await?;
    tokio::time::sleep(times.warm_up).await;
    let measured = load.measure(&broker, times.measure).await?;
    load.stop().await?;
    Ok(measured)
}

/// The messages in flight while the queue is filled.
pub(crate) const FILL_UNCONFIRMED_MAX: u32 = 2_000;

/// Sends that many copies of a message to the queue.
pub(crate) async fn fill(broker: &Broker, payload: &Bytes, count: usize) -> Result<()> {
    let mut tasks = JoinSet::new();
    for _ in 0..SENDERS {
        let (client, payload) = (broker.connect().await?, payload.clone());
        tasks.spawn(async move {
            let mut pipeline = client.pipeline(QUEUE, FILL_UNCONFIRMED_MAX).await?;
            pipeline.send_many_encoded(std::iter::repeat_n(payload, count / SENDERS)).await?;
            pipeline.flush().await?;
            client.close().await;
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}
