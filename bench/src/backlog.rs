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
    let time = Duration::from_secs(if arguments.quick { 2 } else { 8 });
    let (mut short_rates, mut long_rates, mut ratios, mut memory) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..arguments.repetitions {
        let runtime = load::runtime()?;
        let short = runtime.block_on(with_waiting(arguments, SHORT, time))?;
        let long = runtime.block_on(with_waiting(arguments, long, time))?;
        short_rates.push(short.rate);
        long_rates.push(long.rate);
        ratios.push(long.rate / short.rate);
        memory.push(long.bytes_per_message);
    }
    Ok(vec![
        Row::new(format!("rate with {SHORT} waiting, 1 KiB"), "messages/s", short_rates),
        Row::new(format!("rate with {long} waiting, 1 KiB"), "messages/s", long_rates),
        Row::new(format!("rate with {long} waiting / with {SHORT} waiting"), "", ratios)
            .target(Target::AtLeast(0.9)),
        Row::new(
            format!("memory per waiting message, {long} × 1 KiB, growth of the resident set"),
            "B",
            memory,
        )
        .target(Target::AtMost(64.0)),
    ])
}

struct Waiting {
    rate: f64,
    bytes_per_message: f64,
}

async fn with_waiting(arguments: &Arguments, count: u64, time: Duration) -> Result<Waiting> {
    let broker = Broker::start(&arguments.data)?;
    // The memory that any traffic allocates once does not count for the backlog.
    let payload = Message::data(vec![b'x'; BODY_BYTES]).to_bytes();
    load::fill(&broker, &payload, usize::try_from(SHORT)?).await?;
    let before = broker.resident_bytes()?;
    load::fill(&broker, &payload, usize::try_from(count)?).await?;
    let after = broker.resident_bytes()?;
    let load = Load::start(&broker, BODY_BYTES).await?;
    tokio::time::sleep(time / 4).await;
    let measured = load.measure(&broker, time).await?;
    load.stop().await?;
    Ok(Waiting { rate: measured.rate, bytes_per_message: (after as f64 - before as f64) / count as f64 })
}
