//! Measures one durable send at a time against one bare durable write and one loopback round trip.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Result;
use peeklock_client::{Message, Sender};
use tempfile::TempDir;

use crate::Arguments;
use crate::broker::{Broker, QUEUE};
use crate::disk::Raw;
use crate::report::{Row, Target};

/// The size of a bare write: the journal's block with one such message.
const BLOCK_BYTES: usize = 4096;
const BODY_BYTES: usize = 1024;
const SLICE: usize = 50;
const WARM_UP: usize = 200;

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
        Row::new("send p50 / (bare write p50 + round trip)", "", ratio).target(Target::AtMost(1.35)),
    ])
}

struct Once {
    p50: Duration,
    p99: Duration,
    p999: Duration,
    disk: Duration,
    loopback: Duration,
}

/// Measures the three in turn in short slices: on a shared machine the disk and the scheduler change every second.
async fn once(arguments: &Arguments, rounds: usize) -> Result<Once> {
    let folder = TempDir::with_prefix_in("peeklock-bench-raw-", &arguments.data)?;
    let raw = Raw::new(folder.path())?;
    let mut echo = Echo::start()?;
    let broker = Broker::start(&arguments.data)?;
    let client = broker.connect().await?;
    let sender = client.sender(QUEUE).await?;
    send_slice(&sender, WARM_UP).await?;
    let (mut sends, mut disk, mut loopback) = (Vec::new(), Vec::new(), Vec::new());
    while sends.len() < rounds {
        sends.extend(send_slice(&sender, SLICE).await?);
        disk.extend(raw.latencies(BLOCK_BYTES, SLICE)?);
        loopback.extend(echo.latencies(SLICE)?);
    }
    client.close().await;
    Ok(Once {
        p50: quantile(&sends, 0.5),
        p99: quantile(&sends, 0.99),
        p999: quantile(&sends, 0.999),
        disk: quantile(&disk, 0.5),
        loopback: quantile(&loopback, 0.5),
    })
}

async fn send_slice(sender: &Sender, rounds: usize) -> Result<Vec<Duration>> {
    let message = Message::data(vec![b'x'; BODY_BYTES]);
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        sender.send(&message).await?;
        times.push(start.elapsed());
    }
    Ok(times)
}

/// A request and a response between two threads over TCP.
struct Echo(TcpStream);

impl Echo {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        stream.set_nodelay(true)?;
        let (mut other, _) = listener.accept()?;
        other.set_nodelay(true)?;
        // The thread ends when this side is dropped.
        std::thread::spawn(move || {
            let mut block = [0; BODY_BYTES];
            while other.read_exact(&mut block).and_then(|()| other.write_all(&block)).is_ok() {}
        });
        Ok(Echo(stream))
    }

    fn latencies(&mut self, rounds: usize) -> Result<Vec<Duration>> {
        let mut block = [0; BODY_BYTES];
        (0..rounds)
            .map(|_| {
                let start = Instant::now();
                self.0.write_all(&block)?;
                self.0.read_exact(&mut block)?;
                Ok(start.elapsed())
            })
            .collect()
    }
}

pub(crate) fn quantile(times: &[Duration], share: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index below the length")]
    let index = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or_default()
}
