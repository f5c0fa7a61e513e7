//! Measures topics: the cost of a message for many subscriptions, and the cost of filters.

use std::time::Instant;

use anyhow::{Context, Result};
use bytes::Bytes;
use peeklock_client::{
    Admin, CorrelationSpec, Encode, EntityName, Message, RuleSpec, SubscriptionSpec, TopicSpec,
};
use tokio::task::JoinSet;

use crate::Arguments;
use crate::broker::Broker;
use crate::load::{self, SENDERS};
use crate::report::{Row, Target};

pub(crate) const TOPIC: &str = "news";
const BODY_BYTES: usize = 256;
const UNCONFIRMED_MAX: u32 = 2_000;
const SUBSCRIPTIONS: [usize; 3] = [1, 10, 100];
const FILTERS: [usize; 3] = [1, 100, 1_000];
/// The largest number of subscriptions over which the filters of a topic are spread.
const FILTERED_SUBSCRIPTIONS: usize = 10;

/// The result of a series of sends to the topic.
pub(crate) struct Measured {
    /// Messages confirmed per second.
    pub(crate) rate: f64,
    /// CPU time of the broker per message.
    pub(crate) cpu_us: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Vec<Row>> {
    let runtime = load::runtime()?;
    let mut rows = runtime.block_on(fan_out(arguments))?;
    for kind in [Kind::Correlation, Kind::Sql] {
        rows.extend(runtime.block_on(filters(arguments, kind)).with_context(|| format!("{kind:?} filters"))?);
    }
    Ok(rows)
}

async fn fan_out(arguments: &Arguments) -> Result<Vec<Row>> {
    let (mut rates, mut copies, mut cpus) = (vec![vec![]; 3], vec![vec![]; 3], vec![vec![]; 3]);
    for _ in 0..arguments.repetitions {
        for (index, count) in SUBSCRIPTIONS.into_iter().enumerate() {
            let broker = Broker::start_with(&arguments.data, &[])?;
            let mut admin = topic(&broker).await?;
            for number in 0..count {
                let name = format!("s{number}");
                admin.create_subscription(&name_of(TOPIC)?, &name, &SubscriptionSpec::default()).await?;
            }
            // The same number of copies for each, so that each writes the same amount.
            let total = message_count(arguments, 300_000) / count.min(10);
            let measured = send(&broker, total, |_| plain()).await?;
            rates[index].push(measured.rate);
            copies[index].push(measured.rate * count as f64);
            cpus[index].push(measured.cpu_us / count as f64);
        }
    }
    let mut rows = Vec::new();
    for (index, count) in SUBSCRIPTIONS.into_iter().enumerate() {
        let (rates, copies) = (std::mem::take(&mut rates[index]), std::mem::take(&mut copies[index]));
        rows.push(Row::new(format!("sends to a topic with {count} subscription(s)"), "messages/s", rates));
        rows.push(Row::new(format!("… copies into {count} subscription(s)"), "copies/s", copies));
        let cpu = std::mem::take(&mut cpus[index]);
        rows.push(Row::new(format!("… CPU of the broker for one copy of {count}"), "µs", cpu));
    }
    Ok(rows)
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Correlation,
    Sql,
}

/// Measures sends to a topic with 1, 100 and 1000 filters, of which exactly one matches each message.
async fn filters(arguments: &Arguments, kind: Kind) -> Result<Vec<Row>> {
    let (mut rates, mut cpus) = (vec![vec![]; 3], vec![vec![]; 3]);
    for _ in 0..arguments.repetitions {
        for (index, count) in FILTERS.into_iter().enumerate() {
            let broker = Broker::start_with(&arguments.data, &[])?;
            let mut admin = topic(&broker).await?;
            add_filters(&mut admin, kind, count).await?;
            let total = message_count(arguments, 400_000);
            let measured = send(&broker, total, move |number| colored(number % count)).await?;
            rates[index].push(measured.rate);
            cpus[index].push(measured.cpu_us);
        }
    }
    let ratio = rates[2].iter().zip(&rates[0]).map(|(thousand, one)| thousand / one).collect();
    let mut rows = Vec::new();
    for (index, count) in FILTERS.into_iter().enumerate() {
        let (rates, cpus) = (std::mem::take(&mut rates[index]), std::mem::take(&mut cpus[index]));
        rows.push(Row::new(format!("{kind:?} filters, {count}: sends"), "messages/s", rates));
        rows.push(Row::new(format!("{kind:?} filters, {count}: CPU of the broker"), "µs/message", cpus));
    }
    let target = Target::AtLeast(match kind {
        Kind::Correlation => 0.95,
        Kind::Sql => 0.9,
    });
    rows.push(Row::new(format!("{kind:?} filters: rate with 1,000 / with 1"), "", ratio).target(target));
    Ok(rows)
}

async fn add_filters(admin: &mut Admin, kind: Kind, count: usize) -> Result<()> {
    let topic = name_of(TOPIC)?;
    for number in 0..FILTERED_SUBSCRIPTIONS.min(count) {
        let name = format!("s{number}");
        admin.create_subscription(&topic, &name, &SubscriptionSpec::default()).await?;
        admin.remove_rule(&topic, &name, "$Default").await?;
    }
    for number in 0..count {
        let rule = match kind {
            Kind::Correlation => {
                let label = Some(format!("color-{number}"));
                let correlation = Some(CorrelationSpec { label, ..CorrelationSpec::default() });
                RuleSpec { correlation, ..RuleSpec::default() }
            }
            Kind::Sql => {
                RuleSpec { sql: Some(format!("sys.Label = 'color-{number}'")), ..RuleSpec::default() }
            }
        };
        let subscription = format!("s{}", number % FILTERED_SUBSCRIPTIONS);
        admin.add_rule(&topic, &subscription, &format!("r{number}"), &rule).await?;
    }
    Ok(())
}

pub(crate) async fn topic(broker: &Broker) -> Result<Admin> {
    let mut admin = broker.admin()?;
    admin.create_topic(&name_of(TOPIC)?, &TopicSpec::default()).await?;
    Ok(admin)
}

pub(crate) fn name_of(text: &str) -> Result<EntityName> {
    Ok(EntityName::parse(text)?)
}

fn message_count(arguments: &Arguments, full: usize) -> usize {
    if arguments.quick { full / 10 } else { full }
}

pub(crate) fn plain() -> Message {
    Message::data(vec![b'x'; BODY_BYTES])
}

pub(crate) fn colored(color: usize) -> Message {
    let mut message = plain();
    message.properties.subject = Some(format!("color-{color}").into());
    message
}

/// Sends that many messages to the topic.
pub(crate) async fn send(
    broker: &Broker,
    count: usize,
    make: impl Fn(usize) -> Message + Copy + Send + Sync + 'static,
) -> Result<Measured> {
    let mut tasks = JoinSet::new();
    let (started, cpu) = (Instant::now(), broker.cpu_time()?);
    for sender in 0..SENDERS {
        let client = broker.connect().await?;
        tasks.spawn(async move {
            let mut pipeline = client.pipeline(TOPIC, UNCONFIRMED_MAX).await?;
            let numbers = (sender..count).step_by(SENDERS);
            pipeline.send_many_encoded(numbers.map(|number| -> Bytes { make(number).to_bytes() })).await?;
            pipeline.flush().await?;
            client.close().await;
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    let cpu = broker.cpu_time()?.saturating_sub(cpu);
    Ok(Measured {
        rate: count as f64 / started.elapsed().as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / count as f64,
    })
}
