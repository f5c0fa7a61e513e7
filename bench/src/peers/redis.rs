//! Redis: a stream with a consumer group for each queue, and a client for the part of RESP that this needs.
//!
//! With `appendfsync always`, Redis replies after the commands are on disk. Acknowledged messages stay in the stream: removing them would
//! take another command.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::peer::{Deliveries, Peer, credit, free_port, queue_name, ready, unique_number, version_of};
use super::wire::{Consume, Publish, Wire, WireReceiver, WireSender};
use crate::process::Process;

const PROGRAM: &str = "redis-server";
const CONSUMER_GROUP: &str = "g";

pub(crate) struct Redis {
    process: Process,
    port: u16,
    folder: TempDir,
}

impl Redis {
    async fn start_in(folder: TempDir) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(PROGRAM);
        command
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--daemonize", "no", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut process = Process::spawn("Redis", &mut command)
            .context("install it with `apt-get install redis-server`, or take it out with --peer")?;
        ready(&mut process, || async {
            let mut wire = Wire::connect(port).await?;
            // Redis rejects commands while it loads its data.
            call(&mut wire, &["PING"]).await
        })
        .await?;
        Ok(Redis { process, port, folder })
    }
}

impl Peer for Redis {
    type Sender = WireSender<Add>;
    type Receiver = WireReceiver<StreamConsumer>;

    async fn start(data: PathBuf, queue_count: usize) -> Result<Self> {
        let redis = Self::start_in(TempDir::with_prefix_in("peeklock-bench-redis-", data)?).await?;
        let mut wire = Wire::connect(redis.port).await?;
        for queue in 0..queue_count {
            call(&mut wire, &["XGROUP", "CREATE", &queue_name(queue), CONSUMER_GROUP, "$", "MKSTREAM"])
                .await?;
        }
        Ok(redis)
    }

    async fn restart(self) -> Result<(Self, Instant)> {
        let Redis { mut process, folder, .. } = self;
        process.stop()?;
        let started = Instant::now();
        Ok((Self::start_in(folder).await?, started))
    }

    fn version(&self) -> Result<String> {
        version_of(PROGRAM, "v=")
    }

    fn process(&self) -> &Process {
        &self.process
    }

    async fn sender(&self, queues: Vec<usize>) -> Result<Self::Sender> {
        Ok(WireSender::new(Wire::connect(self.port).await?, Add, queues))
    }

    async fn receiver(&self, queues: Vec<usize>) -> Result<Self::Receiver> {
        let consumer = format!("c{}", unique_number());
        let protocol = StreamConsumer { read: read_command(&queues, &consumer), is_waiting: false };
        Ok(WireReceiver { wire: Wire::connect(self.port).await?, protocol })
    }
}

/// Appends a command: an array of strings.
fn write_command(words: &[&[u8]], output: &mut Vec<u8>) {
    write_head(b'*', words.len(), output);
    for word in words {
        write_head(b'$', word.len(), output);
        output.extend_from_slice(word);
        output.extend_from_slice(b"\r\n");
    }
}

fn write_head(kind: u8, length: usize, output: &mut Vec<u8>) {
    output.push(kind);
    // Writing into a vector does not fail.
    let _ = write!(output, "{length}\r\n");
}

async fn call(wire: &mut Wire, words: &[&str]) -> Result<()> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    write_command(&words, &mut wire.output);
    wire.flush().await?;
    wire.next(|input| Ok(end_of_reply(input, 0)?.map(|end| ((), end)))).await
}

/// Returns the end of the reply that starts at `at`, or `None` if it has not fully arrived.
fn end_of_reply(input: &[u8], at: usize) -> Result<Option<usize>> {
    let Some((line, next)) = line(input, at) else { return Ok(None) };
    match line.split_first() {
        Some((b'+' | b':', _)) => Ok(Some(next)),
        Some((b'$', length)) => {
            let end = next + length_of(length)? + 2;
            Ok((end <= input.len()).then_some(end))
        }
        Some((b'*', count)) => {
            let mut end = next;
            for _ in 0..length_of(count)? {
                let Some(next) = end_of_reply(input, end)? else { return Ok(None) };
                end = next;
            }
            Ok(Some(end))
        }
        _ => bail!("Redis replied {}", String::from_utf8_lossy(line)),
    }
}

/// Returns the line that starts at `at`, and the position after it.
fn line(input: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = input.get(at..)?;
    let length = rest.iter().position(|&byte| byte == b'\r')?;
    (rest.len() > length + 1).then(|| (&rest[..length], at + length + 2))
}

fn length_of(digits: &[u8]) -> Result<usize> {
    let text = std::str::from_utf8(digits)?;
    text.parse().with_context(|| format!("Redis replied the length {text:?}"))
}

/// Reads a reply that has fully arrived.
struct Reply<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Reply<'a> {
    /// Reads the length of an array or the value of a number.
    fn number(&mut self) -> Result<usize> {
        let (line, next) = line(self.input, self.at).context("a reply of Redis is too short")?;
        self.at = next;
        length_of(line.get(1..).unwrap_or_default())
    }

    fn string(&mut self) -> Result<&'a [u8]> {
        let length = self.number()?;
        let string = self.input.get(self.at..self.at + length).context("a reply of Redis is too short")?;
        self.at += length + 2;
        Ok(string)
    }
}

/// Sends with `XADD`.
pub(crate) struct Add;

impl Publish for Add {
    fn write(&mut self, queue: usize, message: &[u8], output: &mut Vec<u8>) -> Result<()> {
        write_command(&[b"XADD", queue_name(queue).as_bytes(), b"*", b"b", message], output);
        Ok(())
    }

    fn read(&mut self, input: &[u8], _output: &mut Vec<u8>) -> Result<(usize, usize)> {
        let (mut count, mut at) = (0, 0);
        while let Some(end) = end_of_reply(input, at)? {
            (count, at) = (count + 1, end);
        }
        Ok((count, at))
    }
}

fn read_command(queues: &[usize], consumer: &str) -> Vec<u8> {
    let count = credit(queues.len()).to_string();
    let head = ["XREADGROUP", "GROUP", CONSUMER_GROUP, consumer, "COUNT", &count, "BLOCK", "0", "STREAMS"];
    let names: Vec<String> = queues.iter().map(|&queue| queue_name(queue)).collect();
    let words = head.into_iter().chain(names.iter().map(String::as_str)).chain(names.iter().map(|_| ">"));
    let words: Vec<&[u8]> = words.map(str::as_bytes).collect();
    let mut command = Vec::new();
    write_command(&words, &mut command);
    command
}

/// Receives with `XREADGROUP`, and acknowledges each reply with one `XACK` for each of its streams.
pub(crate) struct StreamConsumer {
    read: Vec<u8>,
    is_waiting: bool,
}

impl Consume for StreamConsumer {
    fn read(&mut self, input: &[u8], output: &mut Vec<u8>, deliveries: &Deliveries) -> Result<usize> {
        let mut at = 0;
        while let Some(end) = end_of_reply(input, at)? {
            let mut reply = Reply { input, at };
            if input.get(at) == Some(&b':') {
                deliveries.acknowledged(reply.number()? as u64);
            } else {
                self.is_waiting = false;
                handle_streams(&mut reply, output, deliveries)?;
            }
            at = end;
        }
        if !self.is_waiting {
            output.extend_from_slice(&self.read);
            self.is_waiting = true;
        }
        Ok(at)
    }
}

fn handle_streams(reply: &mut Reply<'_>, output: &mut Vec<u8>, deliveries: &Deliveries) -> Result<()> {
    for _ in 0..reply.number()? {
        reply.number()?;
        let stream = reply.string()?;
        let mut words = vec![b"XACK".as_slice(), stream, CONSUMER_GROUP.as_bytes()];
        for _ in 0..reply.number()? {
            reply.number()?;
            words.push(reply.string()?);
            // The fields: the name and the value of one.
            reply.number()?;
            reply.string()?;
            deliveries.delivered(reply.string()?);
        }
        write_command(&words, output);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_handled_once_it_is_complete() {
        let reply = b"*1\r\n*2\r\n$2\r\nq0\r\n*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nb\r\n$2\r\nhi\r\n";
        for cut in 0..reply.len() {
            assert_eq!(end_of_reply(&reply[..cut], 0).unwrap(), None, "cut at {cut}");
        }
        let (deliveries, mut output) = (Deliveries::new(), Vec::new());
        let mut group = StreamConsumer { read: b"again".to_vec(), is_waiting: true };
        assert_eq!(group.read(reply, &mut output, &deliveries).unwrap(), reply.len());
        assert_eq!(output, b"*4\r\n$4\r\nXACK\r\n$2\r\nq0\r\n$1\r\ng\r\n$3\r\n1-0\r\nagain");
        assert!(deliveries.first().is_some());
        assert_eq!(group.read(b":1\r\n", &mut output, &deliveries).unwrap(), 4);
        assert_eq!(deliveries.acknowledged_count(), 1);
    }

    #[test]
    fn an_error_is_not_a_confirmation() {
        assert_eq!(Add.read(b"$3\r\n1-0\r\n$3\r\n2-", &mut Vec::new()).unwrap(), (1, 9));
        Add.read(b"-LOADING\r\n", &mut Vec::new()).unwrap_err();
    }
}
