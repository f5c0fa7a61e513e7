//! Measures the AMQP machine on loopback TCP, each side on a thread of its own, against fe2o3-amqp.
//!
//! Both sides settle every message, with 1000 credits. The result is the CPU time of each thread, including the kernel.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use peeklock_amqp::connection::{AttachReply, Config, Connection, Event, LinkId, Millis, Outgoing};
use peeklock_amqp::{Attach, DeliveryState, DeliveryTag, Encode, Message, Role, Source, Target as Address};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::report::{Row, Target};
use crate::{Arguments, protocol_fe2o3};

pub(crate) const CREDIT: u32 = 1000;
pub(crate) const BODY_BYTES: usize = 256;
const READ_BYTES: usize = 64 * 1024;

/// CPU time per message of each side.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) sender: Duration,
    pub(crate) receiver: Duration,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Vec<Row>> {
    let (ours_count, theirs_count) = if arguments.quick { (300_000, 20_000) } else { (3_000_000, 100_000) };
    let mut rows: [Vec<f64>; 6] = Default::default();
    for _ in 0..arguments.repetitions {
        let ours = measure(ours_count)?;
        let theirs = protocol_fe2o3::measure(theirs_count)?;
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let values = [
            micros(ours.sender),
            micros(ours.receiver),
            micros(theirs.sender),
            micros(theirs.receiver),
            micros(ours.sender) / micros(theirs.sender),
            micros(ours.receiver) / micros(theirs.receiver),
        ];
        rows.iter_mut().zip(values).for_each(|(row, value)| row.push(value));
    }
    let [sender, receiver, their_sender, their_receiver, sender_ratio, receiver_ratio] = rows;
    Ok(vec![
        Row::new("AMQP engine, 256 B, credit 1000, CPU per message, sender", "µs", sender),
        Row::new("AMQP engine, the same, receiver", "µs", receiver),
        Row::new("fe2o3-amqp 0.18, the same, sender", "µs", their_sender),
        Row::new("fe2o3-amqp 0.18, the same, receiver", "µs", their_receiver),
        Row::new("engine / fe2o3, sender", "", sender_ratio).target(Target::AtMost(0.1)),
        Row::new("engine / fe2o3, receiver", "", receiver_ratio).target(Target::AtMost(0.1)),
    ])
}

/// CPU time of this thread.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Runs both sides, each on a thread with a runtime of its own, and returns their CPU time per message.
pub(crate) fn on_two_threads<S, R>(
    count: u32,
    sender: impl FnOnce(std::net::SocketAddr) -> S + Send + 'static,
    receiver: impl FnOnce(TcpListener) -> R + Send + 'static,
) -> Result<Cost>
where
    S: Future<Output = Result<()>>,
    R: Future<Output = Result<()>>,
{
    let (told, address) = oneshot::channel();
    let receiving = std::thread::spawn(move || {
        timed(async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            told.send(listener.local_addr()?).ok().context("nobody wants the address")?;
            receiver(listener).await
        })
    });
    let sending = std::thread::spawn(move || timed(async { sender(address.await?).await }));
    let join = |thread: std::thread::JoinHandle<Result<Duration>>| match thread.join() {
        Ok(result) => result,
        Err(_) => bail!("a thread of the benchmark failed"),
    };
    Ok(Cost { sender: join(sending)? / count, receiver: join(receiving)? / count })
}

fn timed(side: impl Future<Output = Result<()>>) -> Result<Duration> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let start = thread_time();
    runtime.block_on(side)?;
    Ok(thread_time() - start)
}

fn measure(count: u32) -> Result<Cost> {
    let send = move |address| async move {
        let connection = Connection::client(Config::client("bench", "bench"), None, Millis(0));
        drive(TcpStream::connect(address).await?, connection, Sending::new(count)).await
    };
    let receive = move |listener: TcpListener| async move {
        let (stream, _) = listener.accept().await?;
        let connection = Connection::server(Config::server("bench"), Millis(0));
        drive(stream, connection, Receiving).await
    };
    on_two_threads(count, send, receive)
}

/// One side of the connection.
trait Side {
    fn start(&mut self, connection: &mut Connection) -> Result<()>;
    fn handle(&mut self, connection: &mut Connection, event: Event) -> ControlFlow<()>;
}

/// Reads the available bytes, handles all of them, and writes once.
async fn drive(mut stream: TcpStream, mut connection: Connection, mut side: impl Side) -> Result<()> {
    stream.set_nodelay(true)?;
    side.start(&mut connection)?;
    let mut input = BytesMut::new();
    let mut is_done = false;
    loop {
        while !connection.output().is_empty() {
            if stream.write_buf(connection.output()).await? == 0 {
                bail!("nothing more can be written");
            }
        }
        if is_done || connection.is_closed() {
            return Ok(());
        }
        input.reserve(READ_BYTES);
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
        connection.handle_input(Millis(0), &mut input)?;
        while let Some(event) = connection.poll_event() {
            is_done |= side.handle(&mut connection, event).is_break();
        }
    }
}

struct Sending {
    link: Option<LinkId>,
    sent: u32,
    settled: u32,
    count: u32,
    payload: bytes::Bytes,
}

impl Sending {
    fn new(count: u32) -> Self {
        let payload = Message::data(vec![b'x'; BODY_BYTES]).to_bytes();
        Sending { link: None, sent: 0, settled: 0, count, payload }
    }

    fn send(&mut self, connection: &mut Connection) {
        let Some(link) = self.link else { return };
        while self.sent < self.count {
            let delivery = Outgoing {
                tag: DeliveryTag::from(self.sent),
                message_format: 0,
                settled: false,
                state: None,
            };
            if connection.send(link, &delivery, &[&self.payload]).is_err() {
                return;
            }
            self.sent += 1;
        }
    }
}

impl Side for Sending {
    fn start(&mut self, connection: &mut Connection) -> Result<()> {
        let session = connection.begin().context("no session")?;
        let mut attach = Attach::new("bench", 0, Role::Sender);
        attach.source = Some(Source::with_address("here"));
        attach.target = Some(Address::with_address("there"));
        attach.initial_delivery_count = Some(0);
        self.link = connection.attach(session, attach);
        Ok(())
    }

    fn handle(&mut self, connection: &mut Connection, event: Event) -> ControlFlow<()> {
        match event {
            Event::Flow { .. } | Event::Unblocked { .. } => self.send(connection),
            Event::Disposition { settled: true, .. } => {
                self.settled += 1;
                if self.settled == self.count {
                    connection.close(None);
                    return ControlFlow::Break(());
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

struct Receiving;

impl Side for Receiving {
    fn start(&mut self, _connection: &mut Connection) -> Result<()> {
        Ok(())
    }

    fn handle(&mut self, connection: &mut Connection, event: Event) -> ControlFlow<()> {
        match event {
            Event::Attach { link, .. } => {
                connection.accept(link, AttachReply::default());
                connection.set_credit(link, CREDIT);
            }
            Event::Delivery { link, delivery } => {
                connection.settle(link, delivery.id, DeliveryState::Accepted);
                if connection.credit(link) <= CREDIT / 2 {
                    connection.set_credit(link, CREDIT);
                }
            }
            Event::Closed { .. } => return ControlFlow::Break(()),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
