//! Measures the cost of an order against a plain queue, the time of an urgent message behind a long backlog, and the waits of each class
//! under overload.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use peeklock_client::{
    Client, Encode, EntityName, Header, Message, QueueSettings, QueueSpec, Receiver, Value,
};
use peeklock_types::{ClassName, ClassSettings, OrderPolicy, OrderSettings, TenantSettings};
use tokio::task::JoinSet;

use crate::Arguments;
use crate::broker::{Broker, QUEUE};
use crate::latency::quantile;
use crate::load::{self, Load, SENDERS};
use crate::report::{Row, Target};

pub(crate) fn run(arguments: &Arguments) -> Result<Vec<Row>> {
    let runtime = load::runtime()?;
    let mut rows = runtime.block_on(rates(arguments)).context("rates")?;
    rows.extend(runtime.block_on(first_high(arguments)).context("behind a backlog")?);
    for policy in [OrderPolicy::Aged, OrderPolicy::Strict] {
        rows.extend(
            runtime.block_on(waits(arguments, policy)).with_context(|| format!("waits, {policy:?}"))?,
        );
    }
    Ok(rows)
}

const CLASSES: [(&str, u8); 3] = [("high", 9), ("normal", 5), ("low", 1)];
const TENANTS: usize = 1_000;

fn order(policy: OrderPolicy) -> Result<OrderSettings> {
    let class = |(name, priority): (&str, u8)| -> Result<ClassSettings> {
        Ok(ClassSettings::new(ClassName::parse(name)?, (priority - 1, priority)))
    };
    let mut classes = CLASSES.into_iter().map(class).collect::<Result<Vec<_>>>()?;
    if policy == OrderPolicy::Weighted {
        classes.iter_mut().zip([6, 3, 1]).for_each(|(class, weight)| class.weight = Some(weight));
    }
    Ok(OrderSettings { policy, classes, ..OrderSettings::default() })
}

fn fair() -> OrderSettings {
    let tenants = TenantSettings { key: "tenant".to_owned(), classes: Vec::new(), default_class: None };
    OrderSettings { tenants: Some(tenants), ..OrderSettings::default() }
}

/// Starts a broker with one queue of this order.
async fn broker(arguments: &Arguments, order: Option<OrderSettings>) -> Result<Broker> {
    let broker = Broker::start_with(&arguments.data, &[])?;
    let settings = QueueSettings {
        lock_duration: Duration::from_secs(300),
        order: order.map(Box::new),
        ..QueueSettings::default()
    };
    broker.admin()?.create_queue(&EntityName::parse(QUEUE)?, &QueueSpec::of(&settings)).await?;
    Ok(broker)
}

fn message(body_bytes: usize, priority: u8) -> Message {
    let mut message = Message::data(vec![b'x'; body_bytes]);
    message.header = Some(Header { priority: Some(priority), ..Header::default() });
    message
}

/// Returns messages that all have a priority and a tenant, also where the order does not use them.
fn payloads() -> Vec<Bytes> {
    let payload = |number: usize| {
        let (_, priority) = CLASSES[number % CLASSES.len()];
        let tenant = Value::from(format!("tenant-{number}"));
        message(256, priority).with_property("tenant", tenant).to_bytes()
    };
    (0..TENANTS).map(payload).collect()
}

async fn rate(arguments: &Arguments, order: Option<OrderSettings>) -> Result<f64> {
    let seconds = |quick, full| Duration::from_secs(if arguments.quick { quick } else { full });
    let broker = broker(arguments, order).await?;
    let load = Load::start_with(&broker, payloads()).await?;
    tokio::time::sleep(seconds(1, 1)).await;
    let measured = load.measure(&broker, seconds(2, 5)).await?;
    load.stop().await?;
    Ok(measured.rate)
}

/// Measures the throughput from end to end with each order against a plain queue. The plain queue is measured before and after each:
/// disks of shared machines change every minute.
async fn rates(arguments: &Arguments) -> Result<Vec<Row>> {
    let kinds: [(&str, OrderSettings, f64); 4] = [
        ("strict, 3 classes", order(OrderPolicy::Strict)?, 0.95),
        ("aged, 3 classes", order(OrderPolicy::Aged)?, 0.95),
        ("weighted 6:3:1", order(OrderPolicy::Weighted)?, 0.95),
        ("1,000 tenants sharing fairly", fair(), 0.9),
    ];
    let (mut plain_rates, mut rates, mut ratios) = (Vec::new(), vec![vec![]; 4], vec![vec![]; 4]);
    for _ in 0..arguments.repetitions {
        let mut before = rate(arguments, None).await?;
        for (index, (_, order, _)) in kinds.iter().enumerate() {
            let with = rate(arguments, Some(order.clone())).await?;
            let after = rate(arguments, None).await?;
            let plain = f64::midpoint(before, after);
            before = after;
            plain_rates.push(plain);
            rates[index].push(with);
            ratios[index].push(with / plain);
        }
    }
    let mut rows = vec![Row::new(
        "plain queue, 256 B with priority and tenant, sent and completed",
        "messages/s",
        plain_rates,
    )];
    for ((what, _, target), (rates, ratios)) in kinds.iter().zip(rates.into_iter().zip(ratios)) {
        rows.push(Row::new(format!("the same, {what}"), "messages/s", rates));
        rows.push(Row::new(format!("{what} / plain"), "", ratios).target(Target::AtLeast(*target)));
    }
    Ok(rows)
}

const TINY_BYTES: usize = 8;
const FEW: usize = 1_000;
const ROUNDS: usize = 50;
/// The repetitions of the parts that take long and have no target.
const REPETITIONS_MAX: usize = 2;

/// Measures the time from the credit of a receiver to the urgent message, with that many low ones before it.
async fn first_high(arguments: &Arguments) -> Result<Vec<Row>> {
    let many = if arguments.quick { 200_000 } else { 10_000_000 };
    let (mut short, mut long, mut worst) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..arguments.repetitions.min(REPETITIONS_MAX) {
        short.push(millis(quantile(&behind(arguments, FEW).await?, 0.5)));
        let behind_many = behind(arguments, many).await?;
        long.push(millis(quantile(&behind_many, 0.5)));
        worst.push(millis(quantile(&behind_many, 1.0)));
    }
    let ratio = long.iter().zip(&short).map(|(long, short)| long / short).collect();
    Ok(vec![
        Row::new(format!("strict: time to the first high delivery behind {FEW} low ones, p50"), "ms", short),
        Row::new(format!("… behind {many} low ones, p50"), "ms", long),
        Row::new(format!("… behind {many} low ones, the slowest of {ROUNDS}"), "ms", worst),
        Row::new(format!("… behind {many} / behind {FEW}"), "", ratio),
    ])
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

async fn behind(arguments: &Arguments, low_count: usize) -> Result<Vec<Duration>> {
    let broker = broker(arguments, Some(order(OrderPolicy::Strict)?)).await?;
    load::fill(&broker, &message(TINY_BYTES, 1).to_bytes(), low_count).await?;
    let client = broker.connect().await?;
    let sender = client.sender(QUEUE).await?;
    let mut receiver = client.receiver(QUEUE).manual_credit().open().await?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        sender.send(&message(TINY_BYTES, 9)).await?;
        let started = Instant::now();
        receiver.add_credit(1).await?;
        let delivery = receiver.next().await?.context("the link ended")?;
        times.push(started.elapsed());
        anyhow::ensure!(priority_of(&delivery.message()?.message) == 9, "a low message went first");
        delivery.complete().await?;
    }
    client.close().await;
    Ok(times)
}

fn priority_of(message: &Message) -> u8 {
    message.header.as_ref().and_then(|header| header.priority).unwrap_or(4)
}

const WORKERS: usize = 8;
const WORK: Duration = Duration::from_millis(5);
/// The load of each class in percent of the workers' capacity; 120 % in total.
const SHARES: [f64; 3] = [30.0, 40.0, 50.0];
const OFFSETS_MS: [u64; 3] = [0, 1_000, 4_000];
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// Measures how long messages of each class wait during 20 % of overload. All messages are received in the end, so the longest waits count
/// as well.
async fn waits(arguments: &Arguments, policy: OrderPolicy) -> Result<Vec<Row>> {
    let time = Duration::from_secs(if arguments.quick { 4 } else { 20 });
    let mut values = vec![vec![vec![]; QUANTILES.len()]; CLASSES.len()];
    for _ in 0..arguments.repetitions.min(REPETITIONS_MAX) {
        for (class, waits) in overload(arguments, policy, time).await?.iter().enumerate() {
            for (index, (_, share)) in QUANTILES.iter().enumerate() {
                values[class][index].push(millis(quantile(waits, *share)));
            }
        }
    }
    let name = if policy == OrderPolicy::Strict { "strict" } else { "aged 0/1/4 s" };
    let mut rows = Vec::new();
    for ((class, _), of_class) in CLASSES.iter().zip(values) {
        for ((quantile, _), values) in QUANTILES.iter().zip(of_class) {
            let what =
                format!("{name}, 120 % load for {} s, wait in class {class}, {quantile}", time.as_secs());
            rows.push(Row::new(what, "ms", values));
        }
    }
    Ok(rows)
}

/// The waits by class that workers have measured.
type Waits = [Vec<Duration>; 3];

async fn overload(arguments: &Arguments, policy: OrderPolicy, time: Duration) -> Result<Waits> {
    let mut order = order(policy)?;
    for (class, offset_ms) in order.classes.iter_mut().zip(OFFSETS_MS) {
        class.offset = Some(Duration::from_millis(offset_ms));
    }
    let broker = broker(arguments, Some(order)).await?;
    let crew = Crew::hire(&broker).await?;
    let per_second = crew.capacity(&broker).await?;
    let client = broker.connect().await?;
    let sent_count = send_paced(&client, per_second, time, crew.opened).await?;
    crew.finish(sent_count).await
}

/// Workers that receive one message at a time and work on it for a fixed time.
struct Crew {
    tasks: JoinSet<Result<Waits>>,
    done_count: Arc<AtomicUsize>,
    stopping: Arc<AtomicBool>,
    opened: Instant,
}

impl Crew {
    async fn hire(broker: &Broker) -> Result<Self> {
        let mut crew = Crew {
            tasks: JoinSet::new(),
            done_count: Arc::default(),
            stopping: Arc::default(),
            opened: Instant::now(),
        };
        for _ in 0..WORKERS {
            let client = broker.connect().await?;
            let receiver = client.receiver(QUEUE).manual_credit().open().await?;
            let (done_count, stopping) = (Arc::clone(&crew.done_count), Arc::clone(&crew.stopping));
            crew.tasks.spawn(work(client, receiver, crew.opened, done_count, stopping));
        }
        Ok(crew)
    }

    /// Returns the messages per second of the workers when messages always wait.
    async fn capacity(&self, broker: &Broker) -> Result<f64> {
        let time = Duration::from_secs(1);
        let enough = whole(WORKERS as f64 * 2.0 * time.as_secs_f64() / WORK.as_secs_f64());
        load::fill(broker, &message(TINY_BYTES, 1).to_bytes(), enough).await?;
        let (started, before) = (Instant::now(), self.done_count.load(Ordering::Relaxed));
        tokio::time::sleep(time).await;
        let done = self.done_count.load(Ordering::Relaxed) - before;
        let rate = done as f64 / started.elapsed().as_secs_f64();
        self.wait_for(enough / SENDERS * SENDERS).await;
        self.done_count.store(0, Ordering::Relaxed);
        Ok(rate)
    }

    async fn wait_for(&self, count: usize) {
        while self.done_count.load(Ordering::Relaxed) < count && !self.tasks.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn finish(mut self, sent_count: usize) -> Result<Waits> {
        self.wait_for(sent_count).await;
        self.stopping.store(true, Ordering::Relaxed);
        let mut all = Waits::default();
        while let Some(ended) = self.tasks.join_next().await {
            all.iter_mut().zip(ended??).for_each(|(all, some)| all.extend(some));
        }
        let count: usize = all.iter().map(Vec::len).sum();
        anyhow::ensure!(count == sent_count, "{count} of {sent_count} messages were received");
        Ok(all)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
fn whole(count: f64) -> usize {
    count as usize
}

const SENT_AT: &str = "sent-at";

async fn work(
    client: Client,
    mut receiver: Receiver,
    opened: Instant,
    done_count: Arc<AtomicUsize>,
    stopping: Arc<AtomicBool>,
) -> Result<Waits> {
    let mut waits = Waits::default();
    receiver.add_credit(1).await?;
    while !stopping.load(Ordering::Relaxed) {
        let Ok(next) = tokio::time::timeout(Duration::from_millis(100), receiver.next()).await else {
            continue;
        };
        let delivery = next?.context("the link ended")?;
        let now = opened.elapsed();
        let message = delivery.message()?.message;
        // Messages that measure the capacity of the workers have no send time.
        if let Some(Value::Long(sent_us)) = message.property(SENT_AT) {
            let wait = now.saturating_sub(Duration::from_micros(u64::try_from(*sent_us)?));
            let class = CLASSES.iter().position(|(_, priority)| *priority == priority_of(&message));
            waits.get_mut(class.context("a priority that nobody sent")?).context("no such class")?.push(wait);
        }
        tokio::time::sleep(WORK).await;
        delivery.complete().await?;
        done_count.fetch_add(1, Ordering::Relaxed);
        receiver.add_credit(1).await?;
    }
    client.close().await;
    Ok(waits)
}

/// Sends each class at its share of the workers' capacity and returns the number of messages.
async fn send_paced(client: &Client, per_second: f64, time: Duration, opened: Instant) -> Result<usize> {
    let mut pipeline = client.pipeline(QUEUE, load::FILL_UNCONFIRMED_MAX).await?;
    let (started, mut sent) = (Instant::now(), [0usize; 3]);
    loop {
        let elapsed = started.elapsed().min(time);
        for (class, (_, priority)) in CLASSES.into_iter().enumerate() {
            let wanted = whole(elapsed.as_secs_f64() * per_second * SHARES[class] / 100.0);
            while sent[class] < wanted {
                let sent_at = i64::try_from(opened.elapsed().as_micros())?;
                pipeline
                    .send(&message(TINY_BYTES, priority).with_property(SENT_AT, Value::Long(sent_at)))
                    .await?;
                sent[class] += 1;
            }
        }
        if elapsed == time {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    pipeline.flush().await?;
    Ok(sent.iter().sum())
}
