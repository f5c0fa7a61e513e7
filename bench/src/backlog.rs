//! Measures a long backlog: its memory, and its effect on throughput.

use std::time::Duration;

use anyhow::Result;
use peeklock_client::{Encode, Message};

use crate::Arguments;
use crate::broker::Broker;
use crate::load::{self, Load};
use crate::report::{Row, Target};

const BODY_BYTES: usize = 1024;
const SHORT: u64 = 1_000;

pub(crate) fn run(arguments: &Arguments) -> Result<Vec<Row>> {
    let long: u64 = if arguments.quick { 100_000 } else { 1_000_000 };
    let time = Duration::from_secs(if arguments.quick { 2 } else { 6 });
    let (mut short_rates, mut long_rates, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..arguments.repetitions {
        let runtime = load::runtime()?;
        let short = runtime.block_on(with_waiting(arguments, SHORT, time))?;
        let long = runtime.block_on(with_waiting(arguments, long, time))?;
        short_rates.push(short);
        long_rates.push(long);
        ratios.push(long / short);
    }
    let mut rows = vec![
        Row::new(format!("rate with {SHORT} waiting, 1 KiB"), "messages/s", short_rates),
        Row::new(format!("rate with {long} waiting, 1 KiB"), "messages/s", long_rates),
        Row::new(format!("rate with {long} waiting / with {SHORT} waiting"), "", ratios)
            .target(Target::AtLeast(0.9)),
    ];
    rows.push(memory(arguments)?);
    Ok(rows)
}

async fn with_waiting(arguments: &Arguments, count: u64, time: Duration) -> Result<f64> {
    let broker = Broker::start(&arguments.data)?;
    let payload = Message::data(vec![b'x'; BODY_BYTES]).to_bytes();
    load::fill(&broker, &payload, usize::try_from(count)?).await?;
    let load = Load::start(&broker, BODY_BYTES).await?;
    tokio::time::sleep(time / 4).await;
    let measured = load.measure(&broker, time).await?;
    load.stop().await?;
    Ok(measured.rate)
}

const SMALL_BODY_BYTES: usize = 256;

/// Measures the memory of waiting messages as the growth of the resident set from a fiftieth of them to all. Traffic allocates some
/// memory once, which the first fiftieth pays for.
fn memory(arguments: &Arguments) -> Result<Row> {
    let count = if arguments.quick { 1_000_000 } else { 10_000_000 };
    let first = count / 50;
    let payload = Message::data(vec![b'x'; SMALL_BODY_BYTES]).to_bytes();
    let mut values = Vec::new();
    for _ in 0..arguments.repetitions {
        let runtime = load::runtime()?;
        let broker = Broker::start(&arguments.data)?;
        runtime.block_on(load::fill(&broker, &payload, first))?;
        let before = broker.resident_bytes()?;
        runtime.block_on(load::fill(&broker, &payload, count - first))?;
        // The journal moves the last bodies out of memory shortly after the last send.
        std::thread::sleep(Duration::from_secs(2));
        let grown = broker.resident_bytes()?.saturating_sub(before);
        values.push(grown as f64 / (count - first) as f64);
    }
    let what = format!(
        "memory per waiting message, {count} × {SMALL_BODY_BYTES} B, bodies on disk, growth of the resident set"
    );
    Ok(Row::new(what, "B", values).target(Target::AtMost(24.0)))
}
