//! RabbitMQ: a quorum queue with publisher confirms, and a client for the part of AMQP 0.9.1 that this needs.
//!
//! A quorum queue confirms a message after it is in its log on disk. Acknowledgements of a consumer are not confirmed by the server.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use super::peer::{Deliveries, Peer, credit, free_port, queue_name, ready};
use super::wire::{Consume, Publish, Wire, WireReceiver, WireSender};
use crate::process::Process;

/// The program itself. The one of the same name in the path of Debian changes the user.
const PROGRAM: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const INSTALL: &str = "install it with `apt-get install rabbitmq-server`, or take it out with --peer";

pub(crate) struct RabbitMq {
    process: Process,
    /// The port mapper of Erlang, which RabbitMQ would start as a daemon.
    mapper: Process,
    ports: Ports,
    version: String,
    folder: TempDir,
}

#[derive(Clone, Copy)]
struct Ports {
    amqp: u16,
    distribution: u16,
    mapper: u16,
}

impl RabbitMq {
    async fn start_in(folder: TempDir, mapper: Process, ports: Ports) -> Result<Self> {
        let mut process = Process::spawn("RabbitMQ", &mut command(folder.path(), ports))?;
        let version = ready(&mut process, || async { Ok(connect(ports.amqp).await?.1) }).await?;
        Ok(RabbitMq { process, mapper, ports, version, folder })
    }
}

fn command(folder: &Path, ports: Ports) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .env("HOME", folder)
        .env("RABBITMQ_MNESIA_BASE", folder.join("mnesia"))
        .env("RABBITMQ_LOG_BASE", folder.join("log"))
        .env("RABBITMQ_PID_FILE", folder.join("pid"))
        .env("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq"))
        .env("RABBITMQ_CONF_ENV_FILE", folder.join("rabbitmq-env"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("plugins"))
        .env("RABBITMQ_NODENAME", "peeklock-bench@localhost")
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", ports.amqp.to_string())
        .env("RABBITMQ_DIST_PORT", ports.distribution.to_string())
        .env("ERL_EPMD_PORT", ports.mapper.to_string())
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        // The script then becomes the server, so that its process id is the one of the server.
        .env("RABBITMQ_ALLOW_INPUT", "1")
        .env(
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
            "-noinput -start_epmd false -kernel inet_dist_use_interface {127,0,0,1}",
        )
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

impl Peer for RabbitMq {
    type Sender = WireSender<Publisher>;
    type Receiver = WireReceiver<Consumer>;

    async fn start(data: PathBuf, queue_count: usize) -> Result<Self> {
        ensure!(Path::new(PROGRAM).exists(), "there is no {PROGRAM}; {INSTALL}");
        let folder = TempDir::with_prefix_in("peeklock-bench-rabbitmq-", data)?;
        let ports = Ports { amqp: free_port()?, distribution: free_port()?, mapper: free_port()? };
        let mut mapper = Command::new("epmd");
        mapper.args(["-address", "127.0.0.1", "-port", &ports.mapper.to_string()]);
        let mapper = Process::spawn("the port mapper of Erlang", &mut mapper).context(INSTALL)?;
        let rabbitmq = Self::start_in(folder, mapper, ports).await?;
        let (mut wire, _) = connect(rabbitmq.ports.amqp).await?;
        for queue in 0..queue_count {
            let mut declare = Method::new(50, 10).short(0).short_string(&queue_name(queue))?;
            // Durable.
            declare.0.push(2);
            let declare = declare.table(&[("x-queue-type", "quorum")])?;
            call(&mut wire, declare, (50, 11)).await?;
        }
        Ok(rabbitmq)
    }

    async fn restart(self) -> Result<(Self, Instant)> {
        let RabbitMq { mut process, mapper, ports, folder, .. } = self;
        process.stop()?;
        let started = Instant::now();
        Ok((Self::start_in(folder, mapper, ports).await?, started))
    }

    fn version(&self) -> Result<String> {
        Ok(self.version.clone())
    }

    fn process(&self) -> &Process {
        &self.process
    }

    async fn sender(&self, queues: Vec<usize>) -> Result<Self::Sender> {
        let (mut wire, _) = connect(self.ports.amqp).await?;
        call(&mut wire, Method::new(85, 10).byte(0), (85, 11)).await?;
        let mut heads = Vec::new();
        for queue in 0..queues.iter().max().map_or(0, |max| max + 1) {
            let mut head = Vec::new();
            Method::new(60, 40)
                .short(0)
                .short_string("")?
                .short_string(&queue_name(queue))?
                .byte(0)
                .write(&mut head)?;
            heads.push(head);
        }
        Ok(WireSender::new(wire, Publisher { heads, unconfirmed: VecDeque::new(), first: 1 }, queues))
    }

    async fn receiver(&self, queues: Vec<usize>) -> Result<Self::Receiver> {
        let (mut wire, _) = connect(self.ports.amqp).await?;
        let credit = u16::try_from(credit(queues.len()))?;
        // The limit applies to each consumer of the channel.
        call(&mut wire, Method::new(60, 10).long(0).short(credit).byte(0), (60, 11)).await?;
        let protocol = Consumer { tag: 0, left_bytes: 0 };
        for queue in queues {
            let name = queue_name(queue);
            // Deliveries may precede the answer for a later queue, so no answer is requested.
            let no_wait = 8;
            Method::new(60, 20)
                .short(0)
                .short_string(&name)?
                .short_string(&name)?
                .byte(no_wait)
                .table(&[])?
                .write(&mut wire.output)?;
        }
        Ok(WireReceiver { wire, protocol })
    }
}

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;
const FRAME_END: u8 = 0xce;
const FRAME_BYTES_MAX: u32 = 131_072;

struct Frame<'a> {
    kind: u8,
    payload: &'a [u8],
}

/// Returns the first frame and its size, or `None` if it has not fully arrived.
fn parse(input: &[u8]) -> Result<Option<(Frame<'_>, usize)>> {
    let Some((head, rest)) = input.split_first_chunk::<7>() else { return Ok(None) };
    let size = usize::try_from(u32::from_be_bytes([head[3], head[4], head[5], head[6]]))?;
    let Some(payload) = rest.get(..size) else { return Ok(None) };
    match rest.get(size) {
        None => Ok(None),
        Some(&FRAME_END) => Ok(Some((Frame { kind: head[0], payload }, size + 8))),
        Some(_) => bail!("RabbitMQ sent a frame without an end: {}", String::from_utf8_lossy(input)),
    }
}

fn write_frame(kind: u8, channel: u16, payload: &[&[u8]], output: &mut Vec<u8>) -> Result<()> {
    let size: usize = payload.iter().map(|part| part.len()).sum();
    output.push(kind);
    output.extend_from_slice(&channel.to_be_bytes());
    output.extend_from_slice(&u32::try_from(size)?.to_be_bytes());
    payload.iter().for_each(|part| output.extend_from_slice(part));
    output.push(FRAME_END);
    Ok(())
}

/// The class, the method and the arguments.
struct Method(Vec<u8>);

impl Method {
    fn new(class: u16, method: u16) -> Self {
        Method([class.to_be_bytes(), method.to_be_bytes()].concat())
    }

    fn byte(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    fn short(mut self, value: u16) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn long(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    fn short_string(mut self, value: &str) -> Result<Self> {
        self.0.push(u8::try_from(value.len())?);
        self.0.extend_from_slice(value.as_bytes());
        Ok(self)
    }

    fn long_string(mut self, value: &str) -> Result<Self> {
        self = self.long(u32::try_from(value.len())?);
        self.0.extend_from_slice(value.as_bytes());
        Ok(self)
    }

    fn table(self, fields: &[(&str, &str)]) -> Result<Self> {
        let mut content = Method(Vec::new());
        for (name, value) in fields {
            content = content.short_string(name)?.byte(b'S').long_string(value)?;
        }
        let mut method = self.long(u32::try_from(content.0.len())?);
        method.0.extend_from_slice(&content.0);
        Ok(method)
    }

    fn write(&self, output: &mut Vec<u8>) -> Result<()> {
        // Methods of class 10 concern the connection; all others use the only channel.
        write_frame(METHOD, u16::from(!self.0.starts_with(&[0, 10])), &[&self.0], output)
    }
}

/// Returns the class and number of a method, and its arguments.
fn method(payload: &[u8]) -> Result<((u16, u16), &[u8])> {
    let (head, arguments) = payload.split_first_chunk::<4>().context("RabbitMQ sent a short method")?;
    Ok(((u16::from_be_bytes([head[0], head[1]]), u16::from_be_bytes([head[2], head[3]])), arguments))
}

/// Opens a connection with one channel. Returns the version of the server as well.
async fn connect(port: u16) -> Result<(Wire, String)> {
    let mut wire = Wire::connect(port).await?;
    wire.output.extend_from_slice(b"AMQP\0\0\x09\x01");
    let start = expect(&mut wire, (10, 10)).await?;
    let ok = Method::new(10, 11)
        .table(&[])?
        .short_string("PLAIN")?
        .long_string("\0guest\0guest")?
        .short_string("en_US")?;
    call(&mut wire, ok, (10, 30)).await?;
    let no_heartbeat = 0;
    Method::new(10, 31).short(1).long(FRAME_BYTES_MAX).short(no_heartbeat).write(&mut wire.output)?;
    call(&mut wire, Method::new(10, 40).short_string("/")?.short_string("")?.byte(0), (10, 41)).await?;
    call(&mut wire, Method::new(20, 10).short_string("")?, (20, 11)).await?;
    Ok((wire, version(&start)))
}

/// Finds the version among the properties of the server.
fn version(start: &[u8]) -> String {
    let text = String::from_utf8_lossy(start);
    let rest = text.split_once("\u{7}versionS").map_or("", |(_, rest)| rest);
    rest.chars().skip(4).take_while(|&letter| letter.is_ascii_digit() || letter == '.').collect()
}

async fn call(wire: &mut Wire, request: Method, answer: (u16, u16)) -> Result<()> {
    request.write(&mut wire.output)?;
    expect(wire, answer).await.map(drop)
}

/// Waits for this method and returns its arguments.
async fn expect(wire: &mut Wire, expected: (u16, u16)) -> Result<Vec<u8>> {
    wire.flush().await?;
    wire.next(|input| {
        let Some((frame, end)) = parse(input)? else { return Ok(None) };
        let (id, arguments) = method(frame.payload)?;
        ensure!(id == expected, "RabbitMQ sent {id:?} {}", String::from_utf8_lossy(arguments));
        Ok(Some((arguments.to_vec(), end)))
    })
    .await
}

fn tag(bytes: &[u8]) -> Result<u64> {
    Ok(u64::from_be_bytes(*bytes.first_chunk::<8>().context("RabbitMQ sent no delivery tag")?))
}

/// Publishes persistent messages on a channel in confirm mode.
pub(crate) struct Publisher {
    /// The frame with the method for each queue.
    heads: Vec<Vec<u8>>,
    /// Whether each message since `first` is confirmed: confirmations of several queues come in any order.
    unconfirmed: VecDeque<bool>,
    first: u64,
}

impl Publisher {
    /// Returns the number of messages that this confirms.
    fn confirm(&mut self, tag: u64, is_multiple: bool) -> Result<usize> {
        let index =
            usize::try_from(tag.checked_sub(self.first).context("RabbitMQ confirmed a message twice")?)?;
        ensure!(index < self.unconfirmed.len(), "RabbitMQ confirmed message {tag}, which was not sent");
        if is_multiple {
            self.first = tag + 1;
            return Ok(self.unconfirmed.drain(..=index).filter(|is_confirmed| !is_confirmed).count());
        }
        self.unconfirmed[index] = true;
        while self.unconfirmed.front() == Some(&true) {
            self.unconfirmed.pop_front();
            self.first += 1;
        }
        Ok(1)
    }
}

impl Publish for Publisher {
    fn write(&mut self, queue: usize, message: &[u8], output: &mut Vec<u8>) -> Result<()> {
        output.extend_from_slice(self.heads.get(queue).context("a queue without a sender")?);
        let (class_and_weight, persistent) = ([0, 60, 0, 0], [0x10, 0, 2]);
        let size = (message.len() as u64).to_be_bytes();
        write_frame(HEADER, 1, &[&class_and_weight, &size, &persistent], output)?;
        write_frame(BODY, 1, &[message], output)?;
        self.unconfirmed.push_back(false);
        Ok(())
    }

    fn read(&mut self, input: &[u8], _output: &mut Vec<u8>) -> Result<(usize, usize)> {
        let (mut count, mut at) = (0, 0);
        while let Some((frame, end)) = parse(&input[at..])? {
            at += end;
            if frame.kind == HEARTBEAT {
                continue;
            }
            let (id, arguments) = method(frame.payload)?;
            ensure!(id == (60, 80), "RabbitMQ sent {id:?} {}", String::from_utf8_lossy(arguments));
            count += self.confirm(tag(arguments)?, arguments.get(8) == Some(&1))?;
        }
        Ok((count, at))
    }
}

/// Consumes with acknowledgements. One acknowledgement covers everything that arrived together.
pub(crate) struct Consumer {
    /// The delivery whose body arrives.
    tag: u64,
    left_bytes: u64,
}

impl Consume for Consumer {
    fn read(&mut self, input: &[u8], output: &mut Vec<u8>, deliveries: &Deliveries) -> Result<usize> {
        let (mut count, mut last, mut at) = (0, 0, 0);
        while let Some((frame, end)) = parse(&input[at..])? {
            at += end;
            match frame.kind {
                METHOD => {
                    let (id, arguments) = method(frame.payload)?;
                    ensure!(id == (60, 60), "RabbitMQ sent {id:?} {}", String::from_utf8_lossy(arguments));
                    // The tag of the consumer comes first.
                    let skipped = 1 + usize::from(arguments.first().copied().unwrap_or_default());
                    self.tag = tag(arguments.get(skipped..).unwrap_or_default())?;
                }
                HEADER => self.left_bytes = tag(frame.payload.get(4..).unwrap_or_default())?,
                BODY => {
                    self.left_bytes = self.left_bytes.saturating_sub(frame.payload.len() as u64);
                    if self.left_bytes == 0 {
                        deliveries.delivered(frame.payload);
                        (count, last) = (count + 1, self.tag);
                    }
                }
                _ => {}
            }
        }
        if count > 0 {
            let mut acknowledge = Method::new(60, 80);
            acknowledge.0.extend_from_slice(&last.to_be_bytes());
            let all_before = 1;
            acknowledge.byte(all_before).write(output)?;
            deliveries.acknowledged(count);
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confirmations_count_each_message_once() {
        let mut publisher = Publisher { heads: vec![Vec::new()], unconfirmed: VecDeque::new(), first: 1 };
        for _ in 0..5 {
            publisher.write(0, b"hi", &mut Vec::new()).unwrap();
        }
        assert_eq!(publisher.confirm(2, false).unwrap(), 1);
        assert_eq!(publisher.confirm(3, true).unwrap(), 2);
        assert_eq!(publisher.confirm(4, false).unwrap(), 1);
        assert_eq!(publisher.confirm(5, false).unwrap(), 1);
        publisher.confirm(5, false).unwrap_err();
        publisher.confirm(6, true).unwrap_err();
    }

    #[test]
    fn a_delivery_is_acknowledged_once_its_body_is_complete() {
        let mut input = Vec::new();
        let mut deliver = Method::new(60, 60).short_string("q0").unwrap();
        deliver.0.extend_from_slice(&7_u64.to_be_bytes());
        deliver.write(&mut input).unwrap();
        write_frame(HEADER, 1, &[&[0, 60, 0, 0], &2_u64.to_be_bytes(), &[0, 0]], &mut input).unwrap();
        let head_bytes = input.len();
        write_frame(BODY, 1, &[b"hi"], &mut input).unwrap();
        let (deliveries, mut output) = (Deliveries::new(), Vec::new());
        let mut consumer = Consumer { tag: 0, left_bytes: 0 };
        let cut = input.len() - 1;
        assert_eq!(consumer.read(&input[..cut], &mut output, &deliveries).unwrap(), head_bytes);
        assert!(output.is_empty());
        consumer.read(&input[head_bytes..], &mut output, &deliveries).unwrap();
        let (frame, _) = parse(&output).unwrap().unwrap();
        assert_eq!(method(frame.payload).unwrap(), ((60, 80), [0, 0, 0, 0, 0, 0, 0, 7, 1].as_slice()));
        assert_eq!(deliveries.acknowledged_count(), 1);
    }
}
