//! `peeklock send`: messages from arguments, files or lines.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};
use peeklock_client::{Message, Pipeline};
use serde_json::json;

use crate::connect::{CONFIRM_TIME_MAX, Connect};
use crate::serve::plural;
use crate::text::parse_property;

/// Send messages to a queue; returns when all are on the broker's disk.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("source").required(true).args(["body", "file"]))]
pub(crate) struct Arguments {
    /// The queue
    queue: String,
    /// The body, or '-' to send each line of stdin as a message
    body: Option<String>,
    /// Send the content of a file as one message
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The message id; with several messages they become ID-1, ID-2, …
    #[arg(long)]
    id: Option<String>,
    /// An application property; may be repeated
    #[arg(long = "property", value_name = "KEY=VALUE", value_parser = parse_property)]
    properties: Vec<(String, String)>,
    /// Send it this often
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    #[command(flatten)]
    connect: Connect,
}

const EXAMPLES: &str = "\
Examples:
  peeklock send orders 'hello'
  peeklock send orders --file order.json --id order-17 --property tier=gold
  seq 1000 | peeklock send orders -
  peeklock send orders test --count 100";

/// Messages under way at the same time.
const UNCONFIRMED_MAX: u32 = 256;

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let client = arguments.connect.open().await?;
    let mut sending = Sending {
        pipeline: client.pipeline(&arguments.queue, UNCONFIRMED_MAX).await?,
        sent_count: 0,
        arguments: &arguments,
    };
    let started = Instant::now();
    match (arguments.body.as_deref(), &arguments.file) {
        (Some("-"), _) => sending.lines().await?,
        (Some(body), _) => sending.repeat(body.as_bytes()).await?,
        (None, Some(file)) => {
            let body = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            sending.repeat(&body).await?;
        }
        (None, None) => {}
    }
    let sent_count = sending.finish().await?;
    client.close().await;
    report(&arguments, sent_count, started)
}

struct Sending<'a> {
    pipeline: Pipeline,
    sent_count: u64,
    arguments: &'a Arguments,
}

impl Sending<'_> {
    async fn lines(&mut self) -> Result<()> {
        // Read as it comes: a program that writes slowly sees its lines sent, not held back.
        for line in io::stdin().lock().lines() {
            let line = line.context("cannot read stdin")?;
            for _ in 0..self.arguments.count {
                self.send(line.as_bytes(), true).await?;
            }
        }
        Ok(())
    }

    async fn repeat(&mut self, body: &[u8]) -> Result<()> {
        for _ in 0..self.arguments.count {
            self.send(body, self.arguments.count > 1).await?;
        }
        Ok(())
    }

    async fn send(&mut self, body: &[u8], is_one_of_many: bool) -> Result<()> {
        self.sent_count += 1;
        let mut message = Message::data(body.to_vec());
        if let Some(id) = &self.arguments.id {
            let id = if is_one_of_many { format!("{id}-{}", self.sent_count) } else { id.clone() };
            message = message.with_message_id(id);
        }
        for (key, value) in &self.arguments.properties {
            message = message.with_property(key.clone(), value.clone());
        }
        in_time(self.pipeline.send(&message)).await
    }

    async fn finish(mut self) -> Result<u64> {
        in_time(self.pipeline.flush()).await?;
        Ok(self.sent_count)
    }
}

async fn in_time(step: impl Future<Output = Result<(), peeklock_client::PipelineError>>) -> Result<()> {
    let done = tokio::time::timeout(CONFIRM_TIME_MAX, step).await;
    Ok(done.with_context(|| format!("the broker confirmed nothing for {} s", CONFIRM_TIME_MAX.as_secs()))??)
}

fn report(arguments: &Arguments, sent_count: u64, started: Instant) -> Result<()> {
    let mut out = io::stdout().lock();
    let took = started.elapsed();
    if arguments.connect.json {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        writeln!(out, "{}", json!({ "queue": arguments.queue, "sent": sent_count, "tookMs": millis }))?;
    } else {
        let messages = plural(sent_count, "message");
        writeln!(out, "Sent {messages} to '{}' in {} ms", arguments.queue, took.as_millis())?;
    }
    Ok(())
}
