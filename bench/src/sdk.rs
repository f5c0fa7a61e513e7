//! Measures the Rust SDK: a processor against the client below it, the embedded broker against a server over loopback, and idle processors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use peeklock::admin::Queue;
use peeklock::handler::Handler;
use peeklock::low_level;
use peeklock::{Client, Message};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::Arguments;
use crate::broker::{Broker, QUEUE};
use crate::load::{fill, runtime};
use crate::machine;
use crate::report::{Row, Target};

const BODY_BYTES: usize = 256;
/// The messages in flight of the client and of the processor.
const AT_ONCE: u32 = 100;
/// The concurrent senders of the comparison with the embedded broker.
const SENDERS: usize = 64;
const RECEIVERS: usize = 2;
/// The idle processors of one client.
const IDLE_PROCESSORS: usize = 1000;

pub(crate) fn run(arguments: &Arguments) -> Result<Vec<Row>> {
    // Once and first: later, the processors would use memory that this process has freed.
    let [memory, cpu] = runtime()?.block_on(idle(arguments))?;
    let mut rows: [Vec<f64>; 7] = Default::default();
    for _ in 0..arguments.repetitions {
        let pump = runtime()?.block_on(pump(arguments))?;
        let speed = runtime()?.block_on(places(arguments))?;
        for (row, value) in rows.iter_mut().zip(pump.into_iter().chain(speed)) {
            row.push(value);
        }
    }
    let [client, processor, more, yielding, embedded, server, ratio] = rows;
    Ok(vec![
        Row::new(
            "receive and complete, 256 B, 100 at a time: CPU of the low-level client per message",
            "µs",
            client,
        ),
        Row::new("the same with a processor of the SDK, 100 calls at a time", "µs", processor),
        Row::new("processor: CPU per message beyond the low-level client", "µs", more)
            .target(Target::AtMost(1.0)),
        Row::new("processor whose handler yields once: CPU per message", "µs", yielding),
        Row::new(
            "embedded, durable, 64 senders, 2 receivers: sent, received, completed",
            "messages/s",
            embedded,
        ),
        Row::new("the same with a server over loopback", "messages/s", server),
        Row::new("embedded / server over loopback", "", ratio).target(Target::AtLeast(2.0)),
        Row::new("1,000 idle processors of one client: memory of each", "KiB", vec![memory]),
        Row::new("1,000 idle processors: CPU of the process", "ms/s", vec![cpu]),
    ])
}

/// Returns the CPU time of this process per message: with the low-level client, with a processor, the difference, and with a processor whose
/// handler yields once.
async fn pump(arguments: &Arguments) -> Result<[f64; 4]> {
    let count: u64 = if arguments.quick { 50_000 } else { 400_000 };
    let broker = Broker::start(&arguments.data)?;
    let payload = low_level::Encode::to_bytes(&low_level::Message::data(vec![b'x'; BODY_BYTES]));
    let total = usize::try_from(count)?;
    fill(&broker, &payload, total).await?;
    let client = cpu_per_message(count, receive_low_level(&broker, count)).await?;
    fill(&broker, &payload, total).await?;
    let processor = cpu_per_message(count, Box::pin(process(&broker, count, async || {}))).await?;
    fill(&broker, &payload, total).await?;
    let yields = async || tokio::task::yield_now().await;
    let yielding = cpu_per_message(count, Box::pin(process(&broker, count, yields))).await?;
    Ok([client, processor, processor - client, yielding])
}

async fn cpu_per_message(count: u64, work: impl Future<Output = Result<()>>) -> Result<f64> {
    let before = machine::process_time();
    work.await?;
    Ok(machine::process_time().saturating_sub(before).as_secs_f64() * 1e6 / count as f64)
}

/// Receives with the low-level client in one task, as a processor does: each message is decoded, and its completion confirmed, before another is
/// requested.
async fn receive_low_level(broker: &Broker, count: u64) -> Result<()> {
    let client = broker.connect().await?;
    let mut receiver = client.receiver(QUEUE).manual_credit().open().await?;
    receiver.add_credit(AT_ONCE).await?;
    let (mut settling, mut done) = (FuturesUnordered::new(), 0);
    while done < count {
        let mut free = 0;
        tokio::select! {
            biased;
            Some(settled) = settling.next() => {
                settled?;
                free += 1;
                while let Some(Some(settled)) = settling.next().now_or_never() {
                    settled?;
                    free += 1;
                }
            }
            delivery = receiver.next() => {
                let mut next = Some(delivery?.context("the receiver was stopped")?);
                while let Some(delivery) = next {
                    std::hint::black_box(delivery.message()?.body_bytes().map(|body| body.len()));
                    settling.push(delivery.complete());
                    next = receiver.try_next();
                }
            }
        }
        if free > 0 {
            done += u64::from(free);
            receiver.add_credit(free).await?;
        }
    }
    Ok(())
}

async fn process<A: 'static>(broker: &Broker, count: u64, handler: impl Handler<A>) -> Result<()> {
    let client = Client::connect(&broker.target()?).await?;
    let processor = client.processor(QUEUE).handler(handler).max_concurrent(AT_ONCE).start().await?;
    processor.status().wait_for(|status| status.completed >= count).await?;
    processor.stop(Duration::from_secs(5)).await?;
    client.close().await;
    Ok(())
}

/// Returns the rate with the embedded broker, the rate with a server over loopback, and their ratio. Both are durable.
async fn places(arguments: &Arguments) -> Result<[f64; 3]> {
    let time = Duration::from_secs(if arguments.quick { 2 } else { 5 });
    let folder = TempDir::with_prefix_in("peeklock-bench-", &arguments.data)?;
    let client = Client::connect(&format!("embedded:{}", folder.path().display())).await?;
    client.admin().create_queue(QUEUE, Queue::new()).await?;
    let embedded = rate(&client, time).await?;
    client.close().await;
    let broker = Broker::start(&arguments.data)?;
    let client = Client::connect(&broker.target()?).await?;
    let server = rate(&client, time).await?;
    client.close().await;
    Ok([embedded, server, embedded / server])
}

/// Returns the completed messages per second.
async fn rate(client: &Client, time: Duration) -> Result<f64> {
    let (start, completed) = (Instant::now(), Arc::<AtomicU64>::default());
    let sender = client.sender(QUEUE).await?;
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    for _ in 0..SENDERS {
        let sender = sender.clone();
        tasks.spawn(async move {
            while start.elapsed() < time {
                sender.send(Message::new(vec![b'x'; BODY_BYTES])).await?;
            }
            Ok(())
        });
    }
    for _ in 0..RECEIVERS {
        let (client, completed) = (client.clone(), Arc::clone(&completed));
        tasks.spawn(async move {
            let counted = Arc::clone(&completed);
            let handler = move || {
                counted.fetch_add(1, Ordering::Relaxed);
                std::future::ready(())
            };
            let pump = client.processor(QUEUE).handler(handler).max_concurrent(AT_ONCE).start().await?;
            tokio::time::sleep(time.saturating_sub(start.elapsed())).await;
            pump.stop(Duration::from_secs(5)).await?;
            Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(completed.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64())
}

/// Returns the memory of each idle processor and the CPU time of all of them per second.
async fn idle(arguments: &Arguments) -> Result<[f64; 2]> {
    let broker = Broker::start(&arguments.data)?;
    let (before, mut kept) = (resident_kib()?, Vec::new());
    let client = Client::connect(&broker.target()?).await?;
    for _ in 0..IDLE_PROCESSORS {
        kept.push(client.processor(QUEUE).handler(async || {}).start().await?);
    }
    let memory = resident_kib()?.saturating_sub(before) as f64 / kept.len() as f64;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (start, time) = (machine::process_time(), Duration::from_secs(5));
    tokio::time::sleep(time).await;
    let cpu = machine::process_time().saturating_sub(start).as_secs_f64() * 1e3 / time.as_secs_f64();
    Ok([memory, cpu])
}

fn resident_kib() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no such line")?;
    line.trim().trim_end_matches(" kB").parse().context("no number")
}
