//! One durable send at a time against one bare durable write and one loopback round trip.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Result;
use peeklock_client::Message;
use tempfile::TempDir;

use crate::Arguments;
use crate::broker::{Broker, QUEUE};
use crate::disk::Raw;
use crate::report::{Row, Target};

/// What the bare side writes: the journal's block with one such message.
const BLOCK_BYTES: usize = 4096;
const BODY_BYTES: usize = 1024;

pub(crate) fn run(arguments: &Arguments) -> Result<Vec<Row>> {
    let rounds = if arguments.quick { 300 } else { 2000 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut rows: [Vec<f64>; 6] = Default::default();
    for _ in 0..arguments.repetitions {
        let once = runtime.block_on(once(arguments, rounds))?;
        let bare = once.disk + once.loopback;
        let values =
            [once.p50, once.p99, once.p999, once.disk, once.loopback].map(|time| time.as_secs_f64() * 1e6);
        let ratio = once.p50.as_secs_f64() / bare.as_secs_f64();
        for (row, value) in rows.iter_mut().zip(values.into_iter().chain([ratio])) {
            row.push(value);
        }
    }
    let [p50, p99, p999, disk, loopback, ratio] = rows;
    Ok(vec![
        Row::new("one durable send at a time, 1 KiB, p50", "µs", p50),
        Row::new("the same, p99", "µs", p99),
        Row::new("the same, p99.9", "µs", p999),
        Row::new("bare pwrite + fdatasync of 4 KiB, p50", "µs", disk),
        Row::new("bare loopback round trip of 1 KiB, p50", "µs", loopback),
        Row::new("send p50 / (bare write p50 + round trip)", "", ratio).target(Target::AtMost(1.5)),
    ])
}

struct Once {
    p50: Duration,
    p99: Duration,
    p999: Duration,
    disk: Duration,
    loopback: Duration,
}

async fn once(arguments: &Arguments, rounds: usize) -> Result<Once> {
    let folder = TempDir::with_prefix_in("peeklock-bench-raw-", &arguments.data)?;
    let mut raw = Raw::new(folder.path())?;
    let mut disk = raw.latencies(BLOCK_BYTES, rounds / 2)?;
    let sends = sends(arguments, rounds).await?;
    disk.extend(raw.latencies(BLOCK_BYTES, rounds / 2)?);
    let loopback = loopback(rounds)?;
    Ok(Once {
        p50: quantile(&sends, 0.5),
        p99: quantile(&sends, 0.99),
        p999: quantile(&sends, 0.999),
        disk: quantile(&disk, 0.5),
        loopback: quantile(&loopback, 0.5),
    })
}

async fn sends(arguments: &Arguments, rounds: usize) -> Result<Vec<Duration>> {
    let broker = Broker::start(&arguments.data)?;
    let client = broker.connect().await?;
    let sender = client.sender(QUEUE).await?;
    let message = Message::data(vec![b'x'; BODY_BYTES]);
    let mut times = Vec::with_capacity(rounds);
    for round in 0..rounds + rounds / 10 {
        let start = Instant::now();
        sender.send(&message).await?;
        // The first tenth warms up.
        if round >= rounds / 10 {
            times.push(start.elapsed());
        }
    }
    client.close().await;
    Ok(times)
}

/// A question and an answer between two threads over TCP.
fn loopback(rounds: usize) -> Result<Vec<Duration>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let echo = std::thread::spawn(move || -> Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut block = [0; BODY_BYTES];
        while stream.read_exact(&mut block).is_ok() {
            stream.write_all(&block)?;
        }
        Ok(())
    });
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut block = [0; BODY_BYTES];
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        stream.write_all(&block)?;
        stream.read_exact(&mut block)?;
        times.push(start.elapsed());
    }
    drop(stream);
    match echo.join() {
        Ok(result) => result?,
        Err(_) => anyhow::bail!("the echo thread failed"),
    }
    Ok(times)
}

fn quantile(times: &[Duration], share: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index below the length")]
    let index = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or_default()
}
