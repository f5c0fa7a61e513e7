//! Measures the time from the intended send of a message to its receipt, in an open loop with a fixed rate.
//!
//! One connection sends and another receives and completes; each has a thread and a runtime of its own. The sender is paced by a timer of
//! the kernel (`timerfd`) that its runtime polls like a socket: tokio's timers have a granularity of one millisecond, and a thread that
//! spins would take a core from the broker. A message is due at a multiple of the interval after the start, and its time counts from
//! then, however late it was sent. The lateness of the sender is a row of its own.
//!
//! The bare reference has the same pace: a thread receives the records over one loopback connection, writes and syncs all that have
//! arrived, and sends them over a second one.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use bytes::{Bytes, BytesMut};
use peeklock_client::{Encode, Message, Outcome};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tempfile::TempDir;
use tokio::io::unix::AsyncFd;

use crate::Arguments;
use crate::broker::{Broker, QUEUE};
use crate::latency::quantile;
use crate::report::{Row, Target};

const BODY_BYTES: usize = 1024;
const PER_SECOND: u32 = 5_000;
const INTERVAL: Duration = Duration::from_micros(1_000_000 / PER_SECOND as u64);
const WARM_UP: usize = PER_SECOND as usize;
/// The sender may have a second of messages in flight. A full window delays it, and the delay counts.
const UNCONFIRMED_MAX: u32 = PER_SECOND;
const CREDIT: u32 = 1_000;
/// The time after the last intended send in which all messages must have arrived.
const PATIENCE: Duration = Duration::from_secs(30);
/// The journal writes whole blocks of this size.
const BLOCK_BYTES: usize = 4096;
const FILE_BYTES: u64 = 64 << 20;

const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("worst", 1.0)];
/// The values of each quantile, one of each repetition.
type Quantiles = [Vec<f64>; 4];

const TARGETS_MS: [Option<f64>; 4] = [Some(0.3), Some(1.0), Some(3.0), None];

pub(crate) fn run(arguments: &Arguments) -> Result<Vec<Row>> {
    let seconds = if arguments.quick { 3 } else { 10 };
    let count = PER_SECOND as usize * seconds;
    let (mut broker, mut late, mut bare) = (Quantiles::default(), Quantiles::default(), Quantiles::default());
    for _ in 0..arguments.repetitions {
        let times = through_broker(arguments, count)?;
        add(&mut broker, &times.received);
        add(&mut late, &times.late);
        add(&mut bare, &through_bare(arguments, count)?);
    }
    let what = "end to end at 5,000 messages/s, 1 KiB, durable, from the intended send to the receipt";
    let mut rows = rows(what, broker);
    for (row, target) in rows.iter_mut().zip(TARGETS_MS) {
        row.target = target.map(Target::AtMost);
    }
    rows.extend(self::rows("… of which the sender was late by", late));
    rows.extend(self::rows("bare at the same pace: loopback, write + fdatasync, loopback", bare));
    Ok(rows)
}

fn add(rows: &mut Quantiles, times: &[Duration]) {
    for (row, (_, share)) in rows.iter_mut().zip(QUANTILES) {
        row.push(quantile(times, share).as_secs_f64() * 1e3);
    }
}

fn rows(what: &str, values: Quantiles) -> Vec<Row> {
    let named = QUANTILES.into_iter().zip(values);
    named.map(|((quantile, _), values)| Row::new(format!("{what}, {quantile}"), "ms", values)).collect()
}

/// A timer of the kernel that expires at each multiple of the interval.
struct Ticks {
    timer: OwnedFd,
    epoch: Instant,
    started: Instant,
    sent_count: u32,
}

impl Ticks {
    /// Starts the timer. Intended times are in nanoseconds since `epoch`.
    fn start(epoch: Instant, flags: TimerfdFlags) -> Result<Self> {
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let interval = Timespec { tv_sec: 0, tv_nsec: i64::from(INTERVAL.subsec_nanos()) };
        // The timer is set after the start was read, so a tick never precedes its intended time.
        let started = Instant::now();
        let each = Itimerspec { it_interval: interval, it_value: interval };
        rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &each)?;
        Ok(Ticks { timer, epoch, started, sent_count: 0 })
    }

    /// Clears the expirations. Returns whether there were any.
    fn clear(timer: &OwnedFd) -> Result<bool> {
        match rustix::io::read(timer, &mut [0; 8]) {
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the intended time of the next message if it has come.
    fn next_due(&mut self) -> Option<Instant> {
        let intended = self.started + INTERVAL * (self.sent_count + 1);
        let is_due = intended <= Instant::now();
        self.sent_count += u32::from(is_due);
        is_due.then_some(intended)
    }
}

/// Writes the intended time into the first bytes of the body, which is the end of the message.
fn stamp(message: &mut [u8], intended: Duration) {
    let at = message.len() - BODY_BYTES;
    let nanos = u64::try_from(intended.as_nanos()).unwrap_or(u64::MAX);
    message[at..at + 8].copy_from_slice(&nanos.to_be_bytes());
}

fn stamped(message: &[u8]) -> Result<Duration> {
    let body = message.len().checked_sub(BODY_BYTES).context("a message came back shorter")?;
    let bytes = message.get(body..body + 8).context("a message has no time")?;
    Ok(Duration::from_nanos(u64::from_be_bytes(bytes.try_into()?)))
}

struct Times {
    received: Vec<Duration>,
    late: Vec<Duration>,
}

fn through_broker(arguments: &Arguments, count: usize) -> Result<Times> {
    let broker = &Broker::start(&arguments.data)?;
    let epoch = Instant::now();
    let (opened, is_open) = mpsc::channel();
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || {
            let limit = INTERVAL * u32::try_from(WARM_UP + count)? + PATIENCE;
            runtime()?.block_on(async {
                let received = tokio::time::timeout(limit, receive(broker, epoch, count, opened)).await;
                received.context("not all messages have arrived")?
            })
        });
        let sender = scope.spawn(move || {
            is_open.recv().context("the receiver has failed")?;
            runtime()?.block_on(send(broker, epoch, count))
        });
        // A failed sender is the reason why the receiver waits in vain, so its error comes first.
        let late = sender.join().map_err(|_| anyhow!("the sender has panicked"))??;
        let received = receiver.join().map_err(|_| anyhow!("the receiver has panicked"))??;
        Ok(Times { received, late })
    })
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// Sends the messages at their times and returns by how much each was late, without those of the warm-up.
async fn send(broker: &Broker, epoch: Instant, count: usize) -> Result<Vec<Duration>> {
    let client = broker.connect().await?;
    let mut pipeline = client.pipeline(QUEUE, UNCONFIRMED_MAX).await?;
    let template = Message::data(vec![b'x'; BODY_BYTES]).to_bytes();
    let mut late = Vec::with_capacity(WARM_UP + count);
    let mut ticks = Ticks::start(epoch, TimerfdFlags::NONBLOCK)?;
    #[expect(deprecated, reason = "the descriptor is owned and stays valid; the replacement is unsafe")]
    let timer = AsyncFd::new(ticks.timer.try_clone()?)?;
    while late.len() < WARM_UP + count {
        let mut ready = timer.readable().await?;
        if !Ticks::clear(timer.get_ref())? {
            ready.clear_ready();
            continue;
        }
        while let Some(intended) = ticks.next_due() {
            let mut message = BytesMut::from(&template[..]);
            stamp(&mut message, intended - ticks.epoch);
            let message: Bytes = message.freeze();
            pipeline.send_encoded(message).await?;
            late.push(intended.elapsed());
        }
    }
    pipeline.flush().await?;
    client.close().await;
    late.truncate(WARM_UP + count);
    Ok(late.split_off(WARM_UP))
}

/// Completes the messages and returns the time of each since its intended send, without those of the warm-up.
async fn receive(
    broker: &Broker,
    epoch: Instant,
    count: usize,
    opened: mpsc::Sender<()>,
) -> Result<Vec<Duration>> {
    let client = broker.connect().await?;
    let mut receiver = client.receiver(QUEUE).credit(CREDIT).open().await?;
    opened.send(())?;
    let mut times = Vec::with_capacity(WARM_UP + count);
    let mut deliveries = Vec::new();
    while times.len() < WARM_UP + count {
        let arrived = receiver.next_many(&mut deliveries, CREDIT as usize).await?;
        anyhow::ensure!(arrived > 0, "the link ended");
        let now = epoch.elapsed();
        for delivery in &deliveries {
            times.push(now.saturating_sub(stamped(delivery.payload())?));
        }
        receiver.settle_many(deliveries.drain(..), Outcome::Complete).await?;
    }
    receiver.flush().await?;
    client.close().await;
    times.truncate(WARM_UP + count);
    Ok(times.split_off(WARM_UP))
}

/// Measures the same records without a broker.
fn through_bare(arguments: &Arguments, count: usize) -> Result<Vec<Duration>> {
    let folder = TempDir::with_prefix_in("peeklock-bench-raw-", &arguments.data)?;
    let file = written_file(folder.path())?;
    let (mut to_writer, from_sender) = pair()?;
    let (to_receiver, mut from_writer) = pair()?;
    let epoch = Instant::now();
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || relay(&file, from_sender, to_receiver));
        let sender = scope.spawn(move || -> Result<()> {
            let mut ticks = Ticks::start(epoch, TimerfdFlags::empty())?;
            let mut record = [b'x'; BODY_BYTES];
            let mut sent = 0;
            while sent < WARM_UP + count {
                Ticks::clear(&ticks.timer)?;
                while let Some(intended) = ticks.next_due() {
                    stamp(&mut record, intended - epoch);
                    to_writer.write_all(&record)?;
                    sent += 1;
                }
            }
            Ok(())
        });
        let mut times = Vec::with_capacity(WARM_UP + count);
        let mut record = [0; BODY_BYTES];
        for _ in 0..WARM_UP + count {
            from_writer.read_exact(&mut record)?;
            times.push(epoch.elapsed().saturating_sub(stamped(&record)?));
        }
        sender.join().map_err(|_| anyhow!("the sender has panicked"))??;
        writer.join().map_err(|_| anyhow!("the writer has panicked"))??;
        Ok(times.split_off(WARM_UP))
    })
}

/// Writes, syncs and passes on all records that have arrived, until the sender closes the connection.
fn relay(file: &File, mut from: TcpStream, mut to: TcpStream) -> Result<()> {
    const AT_ONCE_BYTES: usize = 256 * 1024;
    let mut buffer = vec![0; AT_ONCE_BYTES];
    let (mut waiting, mut at) = (0, 0);
    loop {
        let count = from.read(&mut buffer[waiting..])?;
        if count == 0 {
            return Ok(());
        }
        waiting += count;
        let whole = waiting - waiting % BODY_BYTES;
        if whole == 0 {
            continue;
        }
        let block = whole.next_multiple_of(BLOCK_BYTES);
        if at + block as u64 > FILE_BYTES {
            at = 0;
        }
        file.write_all_at(&buffer[..block], at)?;
        file.sync_data()?;
        at += block as u64;
        to.write_all(&buffer[..whole])?;
        buffer.copy_within(whole..waiting, 0);
        waiting -= whole;
    }
}

/// Creates a file that was written and synced once, so that later writes change no metadata.
fn written_file(folder: &std::path::Path) -> Result<File> {
    let file = File::create(folder.join("bare"))?;
    let block = vec![0x5a; 1 << 20];
    for at in (0..FILE_BYTES).step_by(block.len()) {
        file.write_all_at(&block, at)?;
    }
    file.sync_all()?;
    Ok(file)
}

/// Returns the two ends of a loopback connection.
fn pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    let (other, _) = listener.accept()?;
    one.set_nodelay(true)?;
    other.set_nodelay(true)?;
    Ok((one, other))
}
