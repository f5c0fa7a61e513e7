//! `peeklock send`: messages from arguments, files or lines.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use peeklock::low_level::{Body, Message, MessageExt, MessageId, Pipeline, Text, Timestamp};
use peeklock_spec::{parse_duration, parse_time};
use peeklock_types::ClassName;
use serde_json::json;

use crate::connect::{CONFIRM_TIME_MAX, Connect};
use crate::property::{Property, amqp_value};
use crate::serve::plural;
use crate::time::now;

/// Send messages to a queue, topic or event hub; returns when all are on the broker's disk.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("source").required(true).args(["body", "file"]))]
pub(crate) struct Arguments {
    /// The queue, topic or event hub
    entity: String,
    /// The body, or '-' to send each line of stdin as a message
    body: Option<String>,
    /// Send the content of a file as one message
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The message id; with several messages they become ID-1, ID-2, …
    #[arg(long, value_name = "ID", visible_alias = "id")]
    message_id: Option<String>,
    /// The session that the message belongs to; queues with sessions need it
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// How long the message may wait before it expires
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    ttl: Option<Duration>,
    /// Make the message available at this time, such as 2026-01-31T18:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = parse_time)]
    at: Option<Timestamp>,
    /// Make the message available after so long
    #[arg(long = "in", value_name = "TIME", value_parser = parse_duration, conflicts_with = "at")]
    after: Option<Duration>,
    /// How urgent the message is, for queues with classes: a number from 0 to 255, or the name of a class
    #[arg(long, value_name = "P", value_parser = Priority::parse)]
    priority: Option<Priority>,
    /// Whose message it is, for queues that tell tenants apart
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// The application property that says the tenant
    #[arg(long, value_name = "KEY", default_value = "tenant", requires = "tenant")]
    tenant_property: String,
    /// For a hub: events with the same key go to the same partition, and keep their order
    #[arg(long, value_name = "KEY", conflicts_with = "partition")]
    partition_key: Option<String>,
    /// For a hub: the partition to send to
    #[arg(long, value_name = "NUMBER")]
    partition: Option<u32>,
    /// What the message is about
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
    /// The message that this one belongs to or answers
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// The queue or topic that an answer should go to
    #[arg(long, value_name = "ENTITY")]
    reply_to: Option<String>,
    /// The session that an answer should belong to
    #[arg(long, value_name = "ID")]
    reply_to_session: Option<String>,
    /// An application property, or KEY:=VALUE for a number, true or false; may be repeated
    #[arg(long = "property", value_name = "KEY=TEXT", value_parser = Property::parse)]
    properties: Vec<Property>,
    /// Send it this often
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    #[command(flatten)]
    connect: Connect,
}

const EXAMPLES: &str = "\
Examples:
  peeklock send orders 'hello'
  peeklock send orders --file order.json --message-id order-17 --property tier=gold
  seq 1000 | peeklock send orders -
  peeklock send orders test --count 100
  peeklock send orders 'one coffee' --session table-4 --ttl 10m
  peeklock send orders 'wake up' --in 30s
  peeklock send jobs 'now, please' --priority high --tenant shop-1
  peeklock send telemetry '21.5' --partition-key home-7
  peeklock send news 'it rains' --subject weather --property Priority=High";

/// The priority of a message, as a number or as the name of a class.
#[derive(Clone, Debug, PartialEq)]
enum Priority {
    Number(u8),
    Class(ClassName),
}

impl Priority {
    fn parse(text: &str) -> Result<Self> {
        if text.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
            let number = text.parse().with_context(|| format!("'{text}' is no priority from 0 to 255"))?;
            return Ok(Priority::Number(number));
        }
        Ok(Priority::Class(ClassName::parse(text)?))
    }
}

/// The limit of messages in flight.
const UNCONFIRMED_MAX: u32 = 256;

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let client = arguments.connect.open_low_level().await?;
    let mut sending = Sending {
        pipeline: client.pipeline(&arguments.address(), UNCONFIRMED_MAX).await?,
        sent_count: 0,
        template: arguments.template(),
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

impl Arguments {
    fn address(&self) -> String {
        match self.partition {
            Some(partition) => format!("{}/Partitions/{partition}", self.entity),
            None => self.entity.clone(),
        }
    }

    fn template(&self) -> Message {
        let mut message = Message::default();
        for Property { key, value } in &self.properties {
            message = message.with_property(key.clone(), amqp_value(value));
        }
        if let Some(span) = self.ttl {
            message = message.with_time_to_live(span);
        }
        if let Some(at) = self.at.or_else(|| self.after.map(|span| now() + span)) {
            message = message.with_scheduled_time(at);
        }
        message = match &self.priority {
            Some(Priority::Number(priority)) => message.with_priority(*priority),
            Some(Priority::Class(name)) => message.with_class(name.to_string()),
            None => message,
        };
        if let Some(tenant) = &self.tenant {
            message = message.with_property(self.tenant_property.clone(), tenant.clone());
        }
        if let Some(key) = &self.partition_key {
            message.message_annotations.insert("x-opt-partition-key", key.clone());
        }
        let text = |text: &Option<String>| text.clone().map(Text::from);
        let properties = &mut message.properties;
        properties.group_id = text(&self.session);
        properties.subject = text(&self.subject);
        properties.correlation_id = self.correlation_id.clone().map(MessageId::from);
        properties.reply_to = text(&self.reply_to);
        properties.reply_to_group_id = text(&self.reply_to_session);
        message
    }
}

struct Sending<'a> {
    pipeline: Pipeline,
    sent_count: u64,
    /// A message with everything but the body and the message id.
    template: Message,
    arguments: &'a Arguments,
}

impl Sending<'_> {
    async fn lines(&mut self) -> Result<()> {
        // Each line is sent as soon as it is read, so that the lines of a slow program are not delayed.
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
        let mut message = self.template.clone();
        message.body = Body::Data(vec![body.to_vec().into()]);
        if let Some(id) = &self.arguments.message_id {
            let id = if is_one_of_many { format!("{id}-{}", self.sent_count) } else { id.clone() };
            message = message.with_message_id(id);
        }
        in_time(self.pipeline.send(&message)).await
    }

    async fn finish(mut self) -> Result<u64> {
        in_time(self.pipeline.flush()).await?;
        Ok(self.sent_count)
    }
}

async fn in_time(step: impl Future<Output = Result<(), peeklock::low_level::PipelineError>>) -> Result<()> {
    let done = tokio::time::timeout(CONFIRM_TIME_MAX, step).await;
    Ok(done.with_context(|| format!("the broker confirmed nothing for {} s", CONFIRM_TIME_MAX.as_secs()))??)
}

fn report(arguments: &Arguments, sent_count: u64, started: Instant) -> Result<()> {
    let mut out = io::stdout().lock();
    let took = started.elapsed();
    if arguments.connect.json {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        writeln!(out, "{}", json!({ "entity": arguments.entity, "sent": sent_count, "tookMs": millis }))?;
    } else {
        let messages = plural(sent_count, "message");
        writeln!(out, "Sent {messages} to '{}' in {} ms", arguments.entity, took.as_millis())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_is_a_number_or_a_name() {
        assert_eq!(Priority::parse("7").unwrap(), Priority::Number(7));
        let high = ClassName::parse("high").unwrap();
        assert_eq!(Priority::parse("high").unwrap(), Priority::Class(high));
        for (bad, part) in [("256", "from 0 to 255"), ("-1", "from 0 to 255"), ("", "empty"), ("a b", "' '")]
        {
            let error = Priority::parse(bad).unwrap_err().to_string();
            assert!(error.contains(part), "{bad}: {error}");
        }
    }
}
