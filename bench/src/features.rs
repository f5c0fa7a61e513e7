//! Measures the cost of each feature of a queue against the plain path, in the same repetition.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use peeklock_client::{
    Client, Encode, EntityName, Error, Message, MessageExt, Outcome, QueueSettings, QueueSpec, Timestamp,
};
use tokio::task::JoinSet;

use crate::Arguments;
use crate::broker::Broker;
use crate::load::{self, SENDERS};
use crate::report::{Row, Target};

const BODY_BYTES: usize = 256;
const SESSIONS_ACTIVE: usize = 64;
const MESSAGES_PER_SESSION: usize = 20;
/// The time that a receiver waits for another session before it concludes that there is none.
const SESSION_WAIT: Duration = Duration::from_millis(200);

pub(crate) fn run(arguments: &Arguments) -> Result<Vec<Row>> {
    let runtime = load::runtime()?;
    let mut rows = Vec::new();
    for part in [
        Feature::Sessions,
        Feature::Duplicates,
        Feature::Scheduled,
        Feature::Transactions,
        Feature::Purge,
        Feature::Large,
    ] {
        let mut values: Vec<Vec<f64>> = Vec::new();
        for _ in 0..arguments.repetitions {
            let once = runtime.block_on(part.measure(arguments)).with_context(|| format!("{part:?}"))?;
            values.resize(once.len(), Vec::new());
            values.iter_mut().zip(once).for_each(|(row, value)| row.push(value));
        }
        rows.extend(part.rows(arguments, values));
    }
    Ok(rows)
}

#[derive(Clone, Copy, Debug)]
enum Feature {
    Sessions,
    Duplicates,
    Scheduled,
    Transactions,
    Purge,
    Large,
}

/// Returns the count for this run: a quick run has a tenth of each count.
fn count(arguments: &Arguments, full: usize) -> usize {
    if arguments.quick { full / 10 } else { full }
}

impl Feature {
    async fn measure(self, arguments: &Arguments) -> Result<Vec<f64>> {
        match self {
            Feature::Sessions => sessions(arguments).await,
            Feature::Duplicates => duplicates(arguments).await,
            Feature::Scheduled => scheduled(arguments).await,
            Feature::Transactions => transactions(arguments).await,
            Feature::Purge => purge(arguments).await,
            Feature::Large => large(arguments).await,
        }
    }

    fn rows(self, arguments: &Arguments, values: Vec<Vec<f64>>) -> Vec<Row> {
        let session_count = count(arguments, 10_000);
        let million = count(arguments, 1_000_000);
        let named: Vec<(String, &'static str, Option<Target>)> = match self {
            Feature::Sessions => vec![
                (
                    format!(
                        "{session_count} sessions × {MESSAGES_PER_SESSION}, {SESSIONS_ACTIVE} receivers taking one after the other"
                    ),
                    "messages/s",
                    None,
                ),
                ("the same messages without sessions, as many receivers".into(), "messages/s", None),
                ("with sessions / without".into(), "", Some(Target::AtLeast(0.6))),
            ],
            Feature::Duplicates => vec![
                ("sends with message ids, duplicates detected".into(), "messages/s", None),
                ("the same, not detected".into(), "messages/s", None),
                ("detected / not".into(), "", Some(Target::AtLeast(0.9))),
            ],
            Feature::Scheduled => vec![
                (format!("scheduling {million} messages for tomorrow"), "messages/s", None),
                ("the same messages for now".into(), "messages/s", None),
                ("scheduled / plain".into(), "", Some(Target::AtLeast(0.85))),
                (
                    format!("sends beside {million} scheduled ones / beside none"),
                    "",
                    Some(Target::AtLeast(0.9)),
                ),
            ],
            Feature::Transactions => vec![
                (
                    "receive, send, complete, commit as one, 16 at a time".into(),
                    "transactions/s",
                    Some(Target::AtLeast(20_000.0)),
                ),
                ("receive, send, complete without a transaction, 16 at a time".into(), "rounds/s", None),
                ("with / without".into(), "", None),
                (
                    format!("receive, send, complete, commit as one, 16 at a time, {CREDIT} messages ahead"),
                    "transactions/s",
                    None,
                ),
            ],
            Feature::Purge => {
                vec![(format!("purge of {million} waiting messages"), "ms", Some(Target::AtMost(1000.0)))]
            }
            Feature::Large => vec![(
                "a message of 100 MB sent, stored, received and completed: growth of the broker's peak memory".into(),
                "MiB",
                Some(Target::AtMost(16.0)),
            )],
        };
        let rows = named.into_iter().zip(values);
        rows.map(|((what, unit, target), values)| Row { target, ..Row::new(what, unit, values) }).collect()
    }
}

async fn create(broker: &Broker, name: &str, settings: QueueSettings) -> Result<()> {
    broker.admin()?.create_queue(&EntityName::parse(name)?, &QueueSpec::of(&settings)).await?;
    Ok(())
}

fn settings() -> QueueSettings {
    QueueSettings { lock_duration: Duration::from_secs(300), ..QueueSettings::default() }
}

fn body() -> Message {
    Message::data(vec![b'x'; BODY_BYTES])
}

/// Sends `count` messages, which `make` encodes from their numbers, and returns the messages per second.
async fn fill(
    broker: &Broker,
    queue: &'static str,
    count: usize,
    make: impl Fn(usize) -> Bytes + Clone + Send + 'static,
) -> Result<f64> {
    let mut pipelines = Vec::new();
    for _ in 0..SENDERS {
        let client = broker.connect().await?;
        let pipeline = client.pipeline(queue, load::FILL_UNCONFIRMED_MAX).await?;
        pipelines.push((client, pipeline));
    }
    let mut tasks = JoinSet::new();
    let started = Instant::now();
    for (sender, (client, mut pipeline)) in pipelines.into_iter().enumerate() {
        let make = make.clone();
        tasks.spawn(async move {
            pipeline.send_many_encoded((sender..count).step_by(SENDERS).map(make)).await?;
            pipeline.flush().await?;
            client.close().await;
            anyhow::Ok(())
        });
    }
    join(tasks).await?;
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

async fn join(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

async fn sessions(arguments: &Arguments) -> Result<Vec<f64>> {
    let session_count = count(arguments, 10_000);
    let total = session_count * MESSAGES_PER_SESSION;
    let broker = Broker::start(&arguments.data)?;
    create(&broker, "sessions", QueueSettings { requires_session: true, ..settings() }).await?;
    create(&broker, "plain", settings()).await?;
    let make = move |number| body().with_session_id(format!("s{}", number % session_count)).to_bytes();
    fill(&broker, "sessions", total, make).await?;
    fill(&broker, "plain", total, make).await?;
    let with = drained(&broker, total, |client| take_sessions(client, session_count)).await?;
    let share = total / SESSIONS_ACTIVE;
    let without = drained(&broker, share * SESSIONS_ACTIVE, |client| take(client, share)).await?;
    Ok(vec![with, without, with / without])
}

/// Returns the messages per second of all receivers together, until the last of them has completed its last message.
async fn drained<F>(broker: &Broker, total: usize, taker: impl Fn(Client) -> F) -> Result<f64>
where
    F: Future<Output = Result<Instant>> + Send + 'static,
{
    let mut clients = Vec::new();
    for _ in 0..SESSIONS_ACTIVE {
        clients.push(broker.connect().await?);
    }
    let mut tasks = JoinSet::new();
    let started = Instant::now();
    for client in clients {
        tasks.spawn(taker(client));
    }
    let mut last = started;
    while let Some(ended) = tasks.join_next().await {
        last = last.max(ended??);
    }
    Ok(total as f64 / (last - started).as_secs_f64())
}

/// Takes sessions until none is left. Returns the time after the last of them, because the wait for a further one does not count.
async fn take_sessions(client: Client, session_count: usize) -> Result<Instant> {
    let mut last = Instant::now();
    for _ in 0..session_count {
        let builder = client
            .receiver("sessions")
            .next_session(SESSION_WAIT)
            .credit(u32::try_from(MESSAGES_PER_SESSION)?);
        let mut receiver = match builder.open().await {
            Ok(receiver) => receiver,
            Err(Error::NoSession { .. }) => break,
            Err(error) => return Err(error.into()),
        };
        let mut deliveries = Vec::new();
        let mut taken = 0;
        while taken < MESSAGES_PER_SESSION {
            receiver.next_many(&mut deliveries, MESSAGES_PER_SESSION).await?;
            taken += deliveries.len();
            receiver.settle_many(deliveries.drain(..), Outcome::Complete).await?;
        }
        receiver.flush().await?;
        receiver.close().await?;
        last = Instant::now();
    }
    client.close().await;
    Ok(last)
}

async fn take(client: Client, count: usize) -> Result<Instant> {
    let mut receiver = client.receiver("plain").manual_credit().open().await?;
    receiver.add_credit(u32::try_from(count)?).await?;
    let mut deliveries = Vec::new();
    let mut taken = 0;
    while taken < count {
        receiver.next_many(&mut deliveries, MESSAGES_PER_SESSION).await?;
        taken += deliveries.len();
        receiver.settle_many(deliveries.drain(..), Outcome::Complete).await?;
    }
    receiver.flush().await?;
    let last = Instant::now();
    client.close().await;
    Ok(last)
}

/// Measures the plain queue before and after the other: disks of shared machines change every minute.
async fn duplicates(arguments: &Arguments) -> Result<Vec<f64>> {
    let total = count(arguments, 500_000);
    let broker = Broker::start(&arguments.data)?;
    let window = Some(Duration::from_secs(600));
    create(&broker, "dedup", QueueSettings { duplicate_window: window, ..settings() }).await?;
    create(&broker, "plain", settings()).await?;
    let make = |number| body().with_message_id(format!("id-{number}")).to_bytes();
    let before = fill(&broker, "plain", total, make).await?;
    let with = fill(&broker, "dedup", total, make).await?;
    let without = f64::midpoint(before, fill(&broker, "plain", total, make).await?);
    Ok(vec![with, without, with / without])
}

/// The due time of every message of the run: tomorrow.
fn tomorrow() -> Timestamp {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(now.as_millis()).unwrap_or(u64::MAX)) + Duration::from_secs(86_400)
}

/// Measures the plain queue before and after the others. All messages of a queue are the same, so that their encoding does not count.
async fn scheduled(arguments: &Arguments) -> Result<Vec<f64>> {
    let total = count(arguments, 1_000_000);
    let broker = Broker::start(&arguments.data)?;
    for queue in ["later", "plain"] {
        create(&broker, queue, settings()).await?;
    }
    let (due, now) = (body().with_scheduled_time(tomorrow()).to_bytes(), body().to_bytes());
    let make = move |_| now.clone();
    let before = fill(&broker, "plain", total, make.clone()).await?;
    let later = fill(&broker, "later", total, move |_| due.clone()).await?;
    let beside = fill(&broker, "later", total, make.clone()).await?;
    let plain = f64::midpoint(before, fill(&broker, "plain", total, make).await?);
    Ok(vec![later, plain, later / plain, beside / plain])
}

const LANES: usize = 16;
/// The credit of a receiver that gets messages ahead.
const CREDIT: u32 = 20;

async fn transactions(arguments: &Arguments) -> Result<Vec<f64>> {
    let rounds = count(arguments, 1_000);
    let broker = Broker::start(&arguments.data)?;
    for queue in ["in", "out"] {
        create(&broker, queue, settings()).await?;
    }
    // The receivers of the last loop hold messages ahead.
    let ahead = LANES * CREDIT as usize;
    fill(&broker, "in", 3 * rounds * LANES + ahead, |_| body().to_bytes()).await?;
    let without = in_lanes(&broker, rounds, |client| loop_plainly(client, rounds)).await?;
    let with = in_lanes(&broker, rounds, |client| loop_in_transactions(client, rounds, 1)).await?;
    let ahead = in_lanes(&broker, rounds, |client| loop_in_transactions(client, rounds, CREDIT)).await?;
    Ok(vec![with, without, with / without, ahead])
}

async fn in_lanes<F>(broker: &Broker, rounds: usize, lane: impl Fn(Client) -> F) -> Result<f64>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut clients = Vec::new();
    for _ in 0..LANES {
        clients.push(broker.connect().await?);
    }
    let mut tasks = JoinSet::new();
    let started = Instant::now();
    for client in clients {
        tasks.spawn(lane(client));
    }
    join(tasks).await?;
    Ok((rounds * LANES) as f64 / started.elapsed().as_secs_f64())
}

async fn loop_plainly(client: Client, rounds: usize) -> Result<()> {
    let sender = client.sender("out").await?;
    let mut receiver = client.receiver("in").credit(1).open().await?;
    for _ in 0..rounds {
        let delivery = receiver.next().await?.context("the link ended")?;
        sender.send(&body()).await?;
        delivery.complete().await?;
    }
    client.close().await;
    Ok(())
}

async fn loop_in_transactions(client: Client, rounds: usize, credit: u32) -> Result<()> {
    let sender = client.sender("out").await?;
    let mut receiver = client.receiver("in").credit(credit).open().await?;
    for _ in 0..rounds {
        let delivery = receiver.next().await?.context("the link ended")?;
        let transaction = client.transaction().await?;
        transaction.send(&sender, &body()).await?;
        transaction.complete(delivery).await?;
        transaction.commit().await?;
    }
    client.close().await;
    Ok(())
}

async fn purge(arguments: &Arguments) -> Result<Vec<f64>> {
    let total = count(arguments, 1_000_000);
    let broker = Broker::start(&arguments.data)?;
    create(&broker, "plain", settings()).await?;
    fill(&broker, "plain", total, |_| body().to_bytes()).await?;
    let client = broker.connect().await?;
    let started = Instant::now();
    let deleted = client.purge("plain", None).await?;
    let elapsed = started.elapsed();
    anyhow::ensure!(deleted == total as u64, "{deleted} of {total} messages were deleted");
    Ok(vec![elapsed.as_secs_f64() * 1e3])
}

/// The body of the largest message that leaves room for the other sections.
const LARGE_BYTES: usize = 100 * 1024 * 1024 - 4096;

async fn large(arguments: &Arguments) -> Result<Vec<f64>> {
    let broker = Broker::start(&arguments.data)?;
    let max_message_size_bytes = 100 * 1024 * 1024;
    create(&broker, "large", QueueSettings { max_message_size_bytes, ..settings() }).await?;
    let client = broker.connect().await?;
    let sender = client.sender("large").await?;
    sender.send(&body()).await?;
    let before = broker.resident_bytes()?;
    broker.forget_peak()?;
    sender.send(&Message::data(vec![b'x'; LARGE_BYTES])).await?;
    let mut receiver = client.receiver("large").credit(1).open().await?;
    for size_bytes in [BODY_BYTES, LARGE_BYTES] {
        let delivery = receiver.next().await?.context("the link ended")?;
        anyhow::ensure!(delivery.payload().len() > size_bytes, "the message came back shorter");
        delivery.complete().await?;
    }
    Ok(vec![broker.peak_bytes()?.saturating_sub(before) as f64 / f64::from(1 << 20)])
}
