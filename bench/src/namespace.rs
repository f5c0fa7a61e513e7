//! Measures a namespace with many entities and with many connections.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use peeklock_client::{Admin, Client, EntityName, QueueSpec, SubscriptionSpec, TopicSpec};

use crate::Arguments;
use crate::broker::Broker;
use crate::load;
use crate::report::{Row, Target};

const SUBSCRIPTIONS_PER_TOPIC: usize = 8;
/// The number of entities of which one is a topic with its subscriptions.
const GROUP: usize = 20;
const PAGE_COUNT: usize = 100;
const LOOK_FOR: Duration = Duration::from_secs(3);

pub(crate) fn run(arguments: &Arguments) -> Result<Vec<Row>> {
    let runtime = load::runtime()?;
    let mut rows = runtime.block_on(entities(arguments))?;
    rows.extend(runtime.block_on(connections(arguments))?);
    Ok(rows)
}

async fn entities(arguments: &Arguments) -> Result<Vec<Row>> {
    let count = if arguments.quick { 1_000 } else { 10_000 };
    let mut values: [Vec<f64>; 6] = Default::default();
    for _ in 0..arguments.repetitions {
        let broker = Broker::start_with(&arguments.data, &[])?;
        std::thread::sleep(Duration::from_secs(1));
        let empty = broker.resident_bytes()?;
        let started = Instant::now();
        create(&mut broker.admin()?, count).await?;
        values[0].push(count as f64 / started.elapsed().as_secs_f64());
        values[1].push(rate(&mut broker.admin()?, Call::Get).await?);
        values[2].push(rate(&mut broker.admin()?, Call::Update).await?);
        values[3].push(rate(&mut broker.admin()?, Call::List).await?);
        let broker = broker.restart(&[])?;
        values[4].push(broker.ready_after.as_secs_f64() * 1e3);
        std::thread::sleep(Duration::from_secs(1));
        let full = broker.resident_bytes()?;
        values[5].push(full.saturating_sub(empty) as f64 / count as f64);
    }
    let [created, shown, updated, listed, ready, bytes] = values;
    Ok(vec![
        Row::new(
            format!("creating {count} entities one after the other, each durable"),
            "entities/s",
            created,
        ),
        Row::new(format!("looking at one of {count} queues, one after the other"), "calls/s", shown),
        Row::new("changing one of them, each durable".to_owned(), "calls/s", updated),
        Row::new("a page of 100 queues".to_owned(), "calls/s", listed),
        Row::new(format!("ready after a restart with {count} entities"), "ms", ready)
            .target(Target::AtMost(1000.0)),
        Row::new(format!("memory for each of {count} idle entities"), "B", bytes)
            .target(Target::AtMost(4096.0)),
    ])
}

/// Creates queues, and sometimes a topic with its subscriptions.
async fn create(admin: &mut Admin, count: usize) -> Result<()> {
    let mut done = 0;
    while done < count {
        if done % GROUP == 0 && count - done > SUBSCRIPTIONS_PER_TOPIC {
            let topic = EntityName::parse(&format!("topic-{done}"))?;
            admin.create_topic(&topic, &TopicSpec::default()).await?;
            for number in 0..SUBSCRIPTIONS_PER_TOPIC {
                let name = format!("s{number}");
                admin.create_subscription(&topic, &name, &SubscriptionSpec::default()).await?;
            }
            done += 1 + SUBSCRIPTIONS_PER_TOPIC;
            continue;
        }
        admin.create_queue(&EntityName::parse(&format!("queue-{done}"))?, &QueueSpec::default()).await?;
        done += 1;
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Call {
    Get,
    Update,
    List,
}

async fn rate(admin: &mut Admin, call: Call) -> Result<f64> {
    let name = EntityName::parse("queue-10")?;
    let (started, mut count) = (Instant::now(), 0_u32);
    while started.elapsed() < LOOK_FOR {
        match call {
            Call::Get => drop(admin.queue(&name).await?),
            Call::Update => drop(admin.update_queue(&name, &QueueSpec::default()).await?),
            Call::List => {
                ensure!(admin.first_queues(PAGE_COUNT).await?.len() == PAGE_COUNT, "a page is not full")
            }
        }
        count += 1;
    }
    Ok(f64::from(count) / started.elapsed().as_secs_f64())
}

async fn connections(arguments: &Arguments) -> Result<Vec<Row>> {
    let count = if arguments.quick { 500 } else { 10_000 };
    let (mut bytes, mut rates, mut cpus) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..arguments.repetitions.min(2) {
        let broker = Broker::start_with(&arguments.data, &["--queue", "work"])?;
        std::thread::sleep(Duration::from_secs(1));
        let empty = broker.resident_bytes()?;
        let started = Instant::now();
        let mut clients: Vec<Client> = Vec::with_capacity(count);
        let mut senders = Vec::with_capacity(count);
        for _ in 0..count {
            let client = broker.connect().await?;
            senders.push(client.sender("work").await?);
            clients.push(client);
        }
        rates.push(count as f64 / started.elapsed().as_secs_f64());
        std::thread::sleep(Duration::from_secs(1));
        bytes.push(broker.resident_bytes()?.saturating_sub(empty) as f64 / count as f64 / 1024.0);
        let cpu = broker.cpu_time()?;
        std::thread::sleep(Duration::from_secs(5));
        cpus.push(broker.cpu_time()?.saturating_sub(cpu).as_secs_f64() / 5.0 * 1e3);
    }
    Ok(vec![
        Row::new(
            format!("{count} connections, each with a token and a sender: opened"),
            "connections/s",
            rates,
        ),
        Row::new("… memory for each when idle".to_owned(), "KiB", bytes),
        Row::new("… CPU of all when idle".to_owned(), "ms/s", cpus),
    ])
}
