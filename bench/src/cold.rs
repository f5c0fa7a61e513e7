//! Measures the start with 10 GB of waiting messages, most of which the journal has moved from its log to cold segments.
//!
//! The backlog is written once, and the broker is started again once for each repetition: after it was stopped, and after it was killed
//! with 100 MB of new messages in the log. A quick run has 1 GB, which the journal keeps in its log. The files are in the page cache as
//! far as the memory suffices, as after a crash of the program; after a crash of the machine the log must be read from the disk.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use peeklock_client::{Encode, Message};

use crate::Arguments;
use crate::broker::{self, Broker, QUEUE};
use crate::load;
use crate::report::{Row, Target};

const BODY_BYTES: usize = 1024;
/// The messages in the log when the broker is killed: 100 MB.
const BEFORE_KILL: usize = 100_000;
/// The backlog is sent in such parts, each as soon as the log is smaller than the limit. The journal rejects messages above 4 GiB.
const CHUNKS_PER_GIGABYTE: usize = 4;
const LOG_BYTES_MAX: u64 = 3 << 30;
/// The time that the journal may take to move the backlog after the last send.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(arguments: &Arguments) -> Result<Vec<Row>> {
    let gigabytes = if arguments.quick { 1 } else { 10 };
    let runtime = load::runtime()?;
    let payload = Message::data(vec![b'x'; BODY_BYTES]).to_bytes();
    let mut broker = Broker::start(&arguments.data)?;
    for _ in 0..gigabytes * CHUNKS_PER_GIGABYTE {
        runtime.block_on(load::fill(&broker, &payload, 1_000_000_000 / CHUNKS_PER_GIGABYTE / BODY_BYTES))?;
        wait_for_log(&broker)?;
    }
    let cold_share = settled_cold_share(&broker)?;
    let mut values: [Vec<f64>; 4] = Default::default();
    for _ in 0..arguments.repetitions {
        broker = broker.restart(&[])?;
        let stopped = start_times(&runtime, &broker)?;
        broker = runtime.block_on(killed(broker, &payload))?;
        let killed = start_times(&runtime, &broker)?;
        let all = stopped.into_iter().chain(killed);
        values.iter_mut().zip(all).for_each(|(row, time)| row.push(time.as_secs_f64() * 1e3));
    }
    let whats = [
        format!("start with {gigabytes} GB of log and cold bodies, stopped before: ready after"),
        "… first message delivered after".to_owned(),
        "the same, killed with 100 MB of new messages: ready after".to_owned(),
        "… first message delivered after".to_owned(),
    ];
    let rows = whats.into_iter().zip(values);
    let rows = rows.map(|(what, values)| Row::new(what, "ms", values).target(Target::AtMost(1000.0)));
    let share = Row::new(
        format!("{gigabytes} GB of waiting messages of 1 KiB: share in cold segments"),
        "%",
        vec![cold_share * 100.0],
    );
    Ok(std::iter::once(share).chain(rows).collect())
}

/// Waits until the journal has moved so much that the next messages do not exceed the limit of its log, above which it rejects them.
fn wait_for_log(broker: &Broker) -> Result<()> {
    let folder = broker.folder.path().join("data").join("wal");
    let started = Instant::now();
    while broker::disk_bytes(&folder)? > LOG_BYTES_MAX && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Waits until the journal moves no more bodies. Returns the share of the disk space that cold segments have.
fn settled_cold_share(broker: &Broker) -> Result<f64> {
    let folder = broker.folder.path().join("data").join("cold");
    let mut cold = broker::disk_bytes(&folder)?;
    let started = Instant::now();
    loop {
        std::thread::sleep(Duration::from_secs(2));
        let now = broker::disk_bytes(&folder)?;
        if now == cold || started.elapsed() > PATIENCE {
            return Ok(now as f64 / broker.disk_bytes()? as f64);
        }
        cold = now;
    }
}

/// Returns the times from the start of the process until it was ready, and until it has delivered a message.
fn start_times(runtime: &tokio::runtime::Runtime, broker: &Broker) -> Result<[Duration; 2]> {
    let delivered = runtime.block_on(async {
        let client = broker.connect().await?;
        let mut receiver = client.receiver(QUEUE).credit(1).open().await?;
        let delivery = receiver.next().await?.context("the link ended")?;
        let after = broker.started.elapsed();
        delivery.complete().await?;
        client.close().await;
        anyhow::Ok(after)
    })?;
    Ok([broker.ready_after, delivered])
}

/// Sends further messages, kills the broker, and starts it again.
async fn killed(broker: Broker, payload: &Bytes) -> Result<Broker> {
    load::fill(&broker, payload, BEFORE_KILL).await?;
    broker.restart_after_kill(&[])
}
