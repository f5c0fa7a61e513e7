//! `peeklock events`: look at the events of a hub, and follow them.

use std::io::{self, Write};

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use peeklock::admin::Admin;
use peeklock::low_level::{
    Client, EntityName, EventInfo, MessageBody, ReceiveMode, ReceivedMessage, Receiver,
};
use peeklock_spec::{parse_time, show_time};
use peeklock_types::ConsumerGroup;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::connect::Connect;
use crate::show::value_json;

/// Look at the events of a hub without changing anything; with --follow, go on as they come.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The hub
    #[arg(value_parser = EntityName::parse)]
    hub: EntityName,
    /// Only this partition
    #[arg(long, value_name = "NUMBER")]
    partition: Option<u32>,
    /// Where to start: earliest, latest, a sequence number, or a time such as 2026-01-31T18:00:00Z. Unless said, earliest, and with --follow
    /// latest
    #[arg(long, value_name = "WHERE", value_parser = From::parse)]
    from: Option<From>,
    /// At most this many events in all; 100 unless said, and with --follow no limit
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Wait for more, as a reader of a consumer group without owner level
    #[arg(long)]
    follow: bool,
    /// The consumer group to follow in
    #[arg(long, value_name = "GROUP", default_value = ConsumerGroup::DEFAULT, requires = "follow")]
    group: String,
    #[command(flatten)]
    connect: Connect,
}

const EXAMPLES: &str = "\
Examples:
  peeklock events telemetry
  peeklock events telemetry --partition 3 --from 184220 --count 10 --json
  peeklock events telemetry --from 2026-01-31T18:00:00Z
  peeklock events telemetry --follow
Without --follow it disturbs no reader. With it, it is one of the five readers without owner level that a consumer group may have in each
partition; where processors read, give it a group of its own.";

const COUNT_DEFAULT: u64 = 100;
/// The number of events that one request specifies; a broker may return fewer.
const PAGE_COUNT_MAX: usize = 250;
/// The limit of events that wait to be printed, of all partitions together.
const WAITING_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
enum From {
    Earliest,
    Latest,
    Sequence(u64),
    /// A time in milliseconds, with its original text.
    Time(u64, String),
}

impl From {
    fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "earliest" => From::Earliest,
            "latest" => From::Latest,
            text => match text.parse() {
                Ok(sequence) => From::Sequence(sequence),
                Err(_) => match parse_time(text) {
                    Ok(at) => From::Time(at.as_millis(), text.to_owned()),
                    Err(error) => anyhow::bail!("{error}, or earliest, latest, or a sequence number"),
                },
            },
        })
    }

    /// Returns the query of the JSON API.
    fn query(&self) -> String {
        match self {
            From::Earliest => "earliest".to_owned(),
            From::Latest => "latest".to_owned(),
            From::Sequence(sequence) => sequence.to_string(),
            From::Time(_, text) => text.clone(),
        }
    }

    /// Returns the selector of AMQP readers.
    fn selector(&self) -> String {
        match self {
            From::Earliest => "amqp.annotation.x-opt-offset > '-1'".to_owned(),
            From::Latest => "amqp.annotation.x-opt-offset > '@latest'".to_owned(),
            From::Sequence(sequence) => format!("amqp.annotation.x-opt-sequence-number >= '{sequence}'"),
            From::Time(millis, _) => format!("amqp.annotation.x-opt-enqueued-time >= '{millis}'"),
        }
    }
}

/// An event from the JSON API or from AMQP.
struct Seen {
    partition: u32,
    sequence: u64,
    enqueued_at: String,
    partition_key: Option<String>,
    message_id: Option<String>,
    properties: Map<String, Value>,
    body: Content,
}

enum Content {
    Text(String),
    Base64(String),
    Value(Value),
}

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let admin = arguments.connect.admin().await?;
    // This request also reports a missing hub clearly.
    let partitions = admin.partitions(arguments.hub.as_str()).await?;
    let partitions: Vec<u32> = match arguments.partition {
        Some(partition) => vec![partition],
        None => partitions.into_iter().map(|partition| partition.partition).collect(),
    };
    if arguments.follow {
        return follow(&arguments, &partitions).await;
    }
    look(&arguments, &admin, &partitions).await
}

/// Prints the existing events, partition by partition.
async fn look(arguments: &Arguments, admin: &Admin, partitions: &[u32]) -> Result<()> {
    let mut left = arguments.count.unwrap_or(COUNT_DEFAULT);
    let asked = left;
    for partition in partitions {
        let mut from = arguments.from.clone().unwrap_or(From::Earliest).query();
        while left > 0 {
            let max = usize::try_from(left).unwrap_or(usize::MAX).min(PAGE_COUNT_MAX);
            let page = admin.events(arguments.hub.as_str(), *partition, &from, max).await?;
            left = left.saturating_sub(page.items.len() as u64);
            for event in page.items {
                print(&seen(event), arguments.connect.json)?;
            }
            let Some(next) = page.next else { break };
            // There are no events after the last one yet.
            if admin.partition(arguments.hub.as_str(), *partition).await?.last_sequence_number
                < next.parse().unwrap_or(0)
            {
                break;
            }
            from = next;
        }
    }
    if left == asked {
        eprintln!("nothing to see in '{}' there", arguments.hub);
    }
    Ok(())
}

fn seen(event: EventInfo) -> Seen {
    let properties = event.properties.0.into_iter().map(|(key, value)| {
        let value = serde_json::to_value(value).unwrap_or_default();
        (key, value)
    });
    let body = match event.body {
        MessageBody::Text(text) => Content::Text(text),
        MessageBody::Base64(text) => Content::Base64(text),
        MessageBody::Value(value) => Content::Value(value),
        MessageBody::None | MessageBody::Omitted => Content::Text(String::new()),
    };
    Seen {
        partition: event.partition,
        sequence: event.sequence_number,
        enqueued_at: event.enqueued_at,
        partition_key: event.partition_key,
        message_id: event.system.message_id,
        properties: properties.collect(),
        body,
    }
}

/// Prints the events of all partitions until the count is reached or the command is stopped.
async fn follow(arguments: &Arguments, partitions: &[u32]) -> Result<()> {
    let client = arguments.connect.open_low_level().await?;
    let selector = arguments.from.as_ref().unwrap_or(&From::Latest).selector();
    let (events, mut arrived) = mpsc::channel(WAITING_MAX);
    let mut readers = JoinSet::new();
    for partition in partitions {
        let reader = open(&client, arguments, *partition, &selector).await?;
        readers.spawn(read(reader, *partition, events.clone()));
    }
    drop(events);
    let mut left = arguments.count;
    while left != Some(0) {
        let event = tokio::select! {
            event = arrived.recv() => event,
            _ = tokio::signal::ctrl_c() => None,
        };
        let Some(event) = event else { break };
        print(&event, arguments.connect.json)?;
        io::stdout().flush()?;
        left = left.map(|left| left.saturating_sub(1));
    }
    // A reader that ended by itself has an error.
    while let Some(Ok(ended)) = readers.try_join_next() {
        ended?;
    }
    readers.shutdown().await;
    client.close().await;
    Ok(())
}

async fn open(client: &Client, arguments: &Arguments, partition: u32, selector: &str) -> Result<Receiver> {
    let Arguments { hub, group, .. } = arguments;
    let address = format!("{hub}/ConsumerGroups/{group}/Partitions/{partition}");
    let builder = client.receiver(&address).mode(ReceiveMode::ReceiveAndDelete).selector(selector);
    Ok(builder.open().await?)
}

async fn read(mut reader: Receiver, partition: u32, events: mpsc::Sender<Seen>) -> Result<()> {
    while let Some(delivery) = reader.next().await? {
        if events.send(received(partition, &delivery.message()?)).await.is_err() {
            break;
        }
    }
    Ok(())
}

fn received(partition: u32, message: &ReceivedMessage) -> Seen {
    let properties = message.message.application_properties.iter();
    let key = message.message.message_annotations.get("x-opt-partition-key");
    let body = match message.body_bytes() {
        Some(bytes) => match String::from_utf8(bytes.into_owned()) {
            Ok(text) => Content::Text(text),
            Err(error) => Content::Base64(BASE64.encode(error.as_bytes())),
        },
        None => Content::Text(message.body_text().into_owned()),
    };
    Seen {
        partition,
        sequence: message.sequence_number().map_or(0, |number| number.0),
        enqueued_at: message.enqueued_at().map_or_else(String::new, show_time),
        partition_key: key.and_then(|key| key.as_str()).map(str::to_owned),
        message_id: message.message_id(),
        properties: properties.map(|(key, value)| (key.to_string(), value_json(value))).collect(),
        body,
    }
}

fn print(event: &Seen, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json { writeln!(out, "{}", to_json(event)) } else { out.write_all(to_text(event).as_bytes()) }
}

fn to_text(event: &Seen) -> String {
    let mut head = vec![format!("{}#{}", event.partition, event.sequence)];
    head.extend(event.message_id.clone());
    head.push(format!("enqueued {}", event.enqueued_at));
    head.extend(event.partition_key.as_ref().map(|key| format!("key {key}")));
    let mut text = head.join("  ");
    for (key, value) in &event.properties {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.push_str(&format!("\n  {key} = {value}"));
    }
    text.push('\n');
    match &event.body {
        Content::Text(body) | Content::Base64(body) => text.push_str(body),
        Content::Value(value) => text.push_str(&value.to_string()),
    }
    text.push('\n');
    text
}

fn to_json(event: &Seen) -> Value {
    let mut object = json!({
        "partition": event.partition,
        "sequenceNumber": event.sequence,
        "offset": event.sequence.to_string(),
        "enqueuedAt": event.enqueued_at,
        "messageId": event.message_id,
        "partitionKey": event.partition_key,
        "properties": event.properties,
    });
    let (key, body) = match &event.body {
        Content::Text(text) => ("body", Value::from(text.clone())),
        Content::Base64(text) => ("bodyBase64", Value::from(text.clone())),
        Content::Value(value) => ("body", value.clone()),
    };
    if let Some(object) = object.as_object_mut() {
        object.insert(key.to_owned(), body);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_has_several_forms() {
        let parse = |text| From::parse(text).unwrap();
        assert_eq!(parse("7").selector(), "amqp.annotation.x-opt-sequence-number >= '7'");
        assert_eq!(parse("latest").selector(), "amqp.annotation.x-opt-offset > '@latest'");
        let time = parse("1970-01-01T00:00:01Z");
        assert_eq!(time.selector(), "amqp.annotation.x-opt-enqueued-time >= '1000'");
        assert_eq!(time.query(), "1970-01-01T00:00:01Z");
        assert!(From::parse("soon").unwrap_err().to_string().contains("'soon'"));
    }

    #[test]
    fn an_event_is_shown_in_both_forms() {
        let event = Seen {
            partition: 3,
            sequence: 17,
            enqueued_at: "2026-01-31T18:00:00.000Z".to_owned(),
            partition_key: Some("home-7".to_owned()),
            message_id: None,
            properties: [("room".to_owned(), json!("kitchen"))].into_iter().collect(),
            body: Content::Text("warm".to_owned()),
        };
        assert_eq!(
            to_text(&event),
            "3#17  enqueued 2026-01-31T18:00:00.000Z  key home-7\n  room = kitchen\nwarm\n"
        );
        let object = to_json(&event);
        assert_eq!(
            (&object["partition"], &object["offset"], &object["body"]),
            (&json!(3), &json!("17"), &json!("warm"))
        );
    }
}
