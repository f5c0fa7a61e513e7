//! Measures event hubs: publishing against the bare disk, reading against the page cache and the loopback, and the effect of readers on
//! queues.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use peeklock_amqp::Body;
use peeklock_client::{Client, Encode, Message, ReceiveMode};
use peeklock_types::EntityName;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::Arguments;
use crate::broker::Broker;
use crate::disk::Raw;
use crate::load::{self, Load};
use crate::report::{Row, Target};

const HUB: &str = "homes";
/// The consumer groups. Each allows five readers of a partition without owner levels, so eight readers need two.
const GROUPS: [&str; 2] = ["$Default", SECOND];
const SECOND: &str = "second";
const EARLIEST: &str = "amqp.annotation.x-opt-offset > '-1'";
const EVENT_BYTES: usize = 1024;
const PER_BATCH: usize = 128;
const BATCHES_UNCONFIRMED: u32 = 32;
const CREDIT: u32 = 10_000;
const TAKEN_AT_ONCE: usize = 1024;
/// The size of one write to the bare disk, as for a journal under load.
const BLOCK_BYTES: usize = 1 << 20;
const MIB: f64 = (1 << 20) as f64;

/// The amounts to write and to read.
struct Sizes {
    events: u64,
    replayed: u64,
    time: Duration,
    latencies: usize,
}

impl Sizes {
    fn of(arguments: &Arguments) -> Sizes {
        let mib = |mib: u64| mib * (1 << 20) / EVENT_BYTES as u64;
        if arguments.quick {
            return Sizes {
                events: mib(512),
                replayed: mib(1024),
                time: Duration::from_secs(3),
                latencies: 500,
            };
        }
        Sizes { events: mib(3072), replayed: mib(5120), time: Duration::from_secs(10), latencies: 3000 }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<Vec<Row>> {
    let mut rows = Rows::default();
    for _ in 0..arguments.repetitions {
        load::runtime()?.block_on(once(arguments, &mut rows))?;
    }
    Ok(rows.finish())
}

async fn once(arguments: &Arguments, rows: &mut Rows) -> Result<()> {
    let sizes = Sizes::of(arguments);
    through(arguments, &sizes, rows).await?;
    many_partitions(arguments, &sizes, rows).await?;
    latency(arguments, &sizes, rows).await?;
    beside_queues(arguments, &sizes, rows).await
}

/// Values by row, in the order of their first appearance.
#[derive(Default)]
struct Rows(Vec<(String, &'static str, Option<Target>, Vec<f64>)>);

impl Rows {
    fn add(&mut self, what: &str, unit: &'static str, target: Option<Target>, value: f64) {
        match self.0.iter_mut().find(|(known, ..)| known == what) {
            Some((.., values)) => values.push(value),
            None => self.0.push((what.to_owned(), unit, target, vec![value])),
        }
    }

    fn finish(self) -> Vec<Row> {
        let row = |(what, unit, target, values): (String, _, Option<Target>, _)| {
            let row = Row::new(&what, unit, values);
            match target {
                Some(target) => row.target(target),
                None => row,
            }
        };
        self.0.into_iter().map(row).collect()
    }
}

/// Creates a hub with that many partitions beside the queue of every scenario.
async fn broker(arguments: &Arguments, partitions: u32) -> Result<Broker> {
    let broker = Broker::start(&arguments.data)?;
    let spec =
        serde_json::json!({ "partitionCount": partitions, "retentionHours": 24, "consumerGroups": [SECOND] });
    let spec = serde_json::from_value(spec).context("the settings of a hub have another form")?;
    broker.admin()?.create_hub(&EntityName::parse(HUB)?, &spec).await?;
    Ok(broker)
}

/// A batch of events of [`EVENT_BYTES`] each.
fn batch() -> Bytes {
    let event = Message::data(vec![b'x'; EVENT_BYTES]).to_bytes();
    Message { body: Body::Data(vec![event; PER_BATCH]), ..Message::default() }.to_bytes()
}

/// Publishes that many events over two connections and returns the events per second, all durable and confirmed.
async fn publish(broker: &Broker, address: impl Fn(u32) -> String, events: u64) -> Result<f64> {
    let left = Arc::new(AtomicU64::new(events / PER_BATCH as u64));
    let mut senders = JoinSet::new();
    let start = Instant::now();
    for number in 0..2 {
        let (client, address, left) = (broker.connect().await?, address(number), Arc::clone(&left));
        senders.spawn(send(client, address, left));
    }
    while let Some(ended) = senders.join_next().await {
        ended??;
    }
    Ok(events as f64 / start.elapsed().as_secs_f64())
}

async fn send(client: Client, address: String, left: Arc<AtomicU64>) -> Result<()> {
    let mut pipeline = client.pipeline(&address, BATCHES_UNCONFIRMED).await?;
    let batch = batch();
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        pipeline.send_encoded_batch(batch.clone()).await?;
    }
    Ok(pipeline.flush().await?)
}

/// Reads partitions from the start until that many events have arrived in all.
async fn read(broker: &Broker, partitions: impl Iterator<Item = u32>, events: u64) -> Result<f64> {
    let seen = Arc::new(AtomicU64::new(0));
    let mut readers = JoinSet::new();
    let start = Instant::now();
    for (partition, group) in partitions.zip(GROUPS.into_iter().cycle()) {
        let (client, seen) = (broker.connect().await?, Arc::clone(&seen));
        readers.spawn(follow(client, group, partition, seen));
    }
    while seen.load(Ordering::Relaxed) < events {
        tokio::time::sleep(Duration::from_millis(2)).await;
        if let Some(ended) = readers.try_join_next() {
            ended??;
        }
    }
    let rate = seen.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    readers.shutdown().await;
    Ok(rate)
}

async fn follow(client: Client, group: &str, partition: u32, seen: Arc<AtomicU64>) -> Result<()> {
    let address = format!("{HUB}/ConsumerGroups/{group}/Partitions/{partition}");
    let receiver = client.receiver(&address).mode(ReceiveMode::ReceiveAndDelete).selector(EARLIEST);
    let mut receiver = receiver.credit(CREDIT).open().await?;
    let mut events = Vec::new();
    loop {
        receiver.next_many(&mut events, TAKEN_AT_ONCE).await?;
        seen.fetch_add(events.drain(..).count() as u64, Ordering::Relaxed);
    }
}

async fn through(arguments: &Arguments, sizes: &Sizes, rows: &mut Rows) -> Result<()> {
    let folder = TempDir::with_prefix_in("peeklock-bench-raw-", &arguments.data)?;
    let raw = Raw::new(folder.path())?;
    let short = Duration::from_secs(2);
    let before = raw.rate(BLOCK_BYTES / EVENT_BYTES, EVENT_BYTES, short)?;
    let broker = broker(arguments, 16).await?;
    let cpu = broker.cpu_time()?;
    let published = publish(&broker, |_| HUB.to_owned(), sizes.events).await?;
    let published_cpu = (broker.cpu_time()? - cpu).as_secs_f64() * 1e6 / sizes.events as f64;
    let disk = (before + raw.rate(BLOCK_BYTES / EVENT_BYTES, EVENT_BYTES, short)?) / 2.0;
    rows.add("publish, 1 KiB, batches of 128, 16 partitions, durable", "events/s", None, published);
    rows.add("bare disk, 1 MiB per fdatasync, as records of 1 KiB", "records/s", None, disk);
    rows.add("publish / bare disk", "", Some(Target::AtLeast(0.6)), published / disk);
    rows.add("publish: broker CPU per event", "µs", None, published_cpu);
    let new_file = raw.new_rate(sizes.events * EVENT_BYTES as u64)? / EVENT_BYTES as f64;
    rows.add("bare disk, the same in a new file of the size of all events", "records/s", None, new_file);
    rows.add("publish / bare disk with a new file", "", None, published / new_file);

    let bare = cached_rate(folder.path())?.min(loopback_rate()?);
    let cpu = broker.cpu_time()?;
    let caught_up = read(&broker, 0..16, sizes.events).await?;
    let read_cpu = (broker.cpu_time()? - cpu).as_secs_f64() * 1e6 / sizes.events as f64;
    rows.add("catch-up, 16 readers of 16 partitions, 1 KiB", "events/s", None, caught_up);
    rows.add(
        "bare loopback or page cache, whichever is slower, as records of 1 KiB",
        "records/s",
        None,
        bare,
    );
    rows.add("catch-up / bare", "", Some(Target::AtLeast(0.7)), caught_up / bare);
    rows.add("catch-up: broker CPU per event", "µs", None, read_cpu);

    // A little less than the share of one partition: batches rotate, but not every partition has the same number of events.
    let in_one = sizes.events / 16 / 10 * 9;
    let one = read(&broker, std::iter::once(3), in_one).await?;
    let eight = read(&broker, std::iter::repeat_n(3, 8), in_one * 8).await?;
    rows.add("1 reader of one partition", "events/s", None, one);
    rows.add("8 readers of the same partition, in all", "events/s", None, eight);
    rows.add("8 readers / 1", "", None, eight / one);
    Ok(())
}

async fn many_partitions(arguments: &Arguments, sizes: &Sizes, rows: &mut Rows) -> Result<()> {
    let few = broker(arguments, 16).await?;
    let events = sizes.events / 4;
    let rate_few = publish(&few, |_| HUB.to_owned(), events).await?;
    drop(few);
    let many = broker(arguments, 1024).await?;
    let rate_many = publish(&many, |_| HUB.to_owned(), events).await?;
    rows.add("publish to 1,024 partitions, 1 KiB, batches of 128", "events/s", None, rate_many);
    rows.add("1,024 partitions / 16 partitions", "", None, rate_many / rate_few);
    let memory = many.resident_bytes()? as f64 / MIB;
    rows.add("resident memory with 1,024 partitions in use", "MiB", None, memory);
    Ok(())
}

/// Measures the time from the send of an event until a waiting reader has it, with one event every two milliseconds.
async fn latency(arguments: &Arguments, sizes: &Sizes, rows: &mut Rows) -> Result<()> {
    let broker = broker(arguments, 1).await?;
    let reader = broker.connect().await?;
    let address = format!("{HUB}/ConsumerGroups/$Default/Partitions/0");
    let mut receiver = reader
        .receiver(&address)
        .mode(ReceiveMode::ReceiveAndDelete)
        .selector(EARLIEST)
        .credit(CREDIT)
        .open()
        .await?;
    let client = broker.connect().await?;
    let mut pipeline = client.pipeline(HUB, 256).await?;
    let mut times = Vec::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(2));
    for _ in 0..sizes.latencies {
        ticks.tick().await;
        let start = Instant::now();
        pipeline.send(&Message::data(vec![b'x'; EVENT_BYTES])).await?;
        let _event = receiver.next().await?.context("the reader has ended")?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let at = |percent: usize| {
        let index = (times.len() - 1) * percent / 100;
        times.get(index).copied().unwrap_or_default().as_secs_f64() * 1e6
    };
    rows.add("event to a waiting reader at 500 events/s, durable, p50", "µs", None, at(50));
    rows.add("the same event, p99", "µs", None, at(99));
    Ok(())
}

/// Measures the queue of other scenarios, alone and during the replay of a hub.
async fn beside_queues(arguments: &Arguments, sizes: &Sizes, rows: &mut Rows) -> Result<()> {
    let broker = broker(arguments, 16).await?;
    publish(&broker, |_| HUB.to_owned(), sizes.replayed).await?;
    let load = Load::start(&broker, EVENT_BYTES).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let alone = load.measure(&broker, sizes.time).await?;
    let seen = Arc::new(AtomicU64::new(0));
    let mut readers = JoinSet::new();
    let client = broker.connect().await?;
    // One reader reads partition after partition, as in a replay.
    let counted = Arc::clone(&seen);
    readers.spawn(async move {
        let seen = counted;
        for partition in (0..16).cycle() {
            let share = Duration::from_secs(2);
            let _ =
                tokio::time::timeout(share, follow(client.clone(), GROUPS[0], partition, Arc::clone(&seen)))
                    .await;
        }
        anyhow::Ok(())
    });
    let beside = load.measure(&broker, sizes.time).await?;
    readers.shutdown().await;
    load.stop().await?;
    let replayed = seen.load(Ordering::Relaxed) as f64 / sizes.time.as_secs_f64();
    rows.add("a queue at 1 KiB while a hub is replayed", "messages/s", None, beside.rate);
    rows.add("the replay meanwhile", "events/s", None, replayed);
    rows.add("the queue beside a replay / alone", "", Some(Target::AtLeast(0.8)), beside.rate / alone.rate);
    Ok(())
}

/// Returns the records per second when a file in the page cache is read.
fn cached_rate(folder: &std::path::Path) -> Result<f64> {
    let file = File::open(folder.join("raw"))?;
    let size = file.metadata()?.len();
    let mut block = vec![0; BLOCK_BYTES];
    let (start, mut read) = (Instant::now(), 0_u64);
    while start.elapsed() < Duration::from_secs(1) {
        file.read_exact_at(&mut block, read % (size - size % BLOCK_BYTES as u64))?;
        read += BLOCK_BYTES as u64;
    }
    Ok(read as f64 / start.elapsed().as_secs_f64() / EVENT_BYTES as f64)
}

/// Returns the records per second of one loopback connection without work on either side.
fn loopback_rate() -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut stream = TcpStream::connect(listener.local_addr()?)?;
    let writer = std::thread::spawn(move || -> Result<()> {
        let (mut peer, _) = listener.accept()?;
        let block = vec![0; 256 * 1024];
        // The thread ends when the other side closes the connection.
        while peer.write_all(&block).is_ok() {}
        Ok(())
    });
    let mut block = vec![0; 256 * 1024];
    let (start, mut read) = (Instant::now(), 0_u64);
    while start.elapsed() < Duration::from_secs(1) {
        read += stream.read(&mut block)? as u64;
    }
    let rate = read as f64 / start.elapsed().as_secs_f64() / EVENT_BYTES as f64;
    drop(stream);
    writer.join().map_err(|_| anyhow::anyhow!("the writing thread has panicked"))??;
    Ok(rate)
}
