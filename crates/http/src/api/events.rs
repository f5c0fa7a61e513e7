//! Events of a hub: shows them, and stores those of scripts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{Bytes, BytesMut};
use peeklock_access::Right;
use peeklock_amqp::{Encode, Message, Sections, Symbol, Value};
use peeklock_api::{EventInfo, EventsQuery, EventsSent, NewEvent, NewEvents, Page, events};
use peeklock_broker::hubs::StartAt;
use peeklock_broker::hubs::block::Event;
use peeklock_filter::Value as Property;
use peeklock_message::StoredEvent;
use peeklock_spec::{Named, PropertyValue, parse_time, show_time};
use peeklock_types::{limits, partition_of_key};

use super::call::{Answer, Call};
use super::messages::{body, property, system};
use super::route::{Route, route};
use crate::problem::Problem;

pub(super) fn routes() -> Vec<Route> {
    vec![
        route(&events::LIST, Right::Listen, Call::list_events),
        route(&events::SEND, Right::Send, Call::send_events),
    ]
}

impl Call<EventsQuery> {
    /// Returns a page of events. The `next` of a page is the `from` of the following one.
    async fn list_events(self) -> Result<Answer<Page<EventInfo>>, Problem> {
        let (hub, partition) = (self.hub().await?, self.partition()?);
        let top = self.page_count(self.query.max);
        let start = start(self.query.from.as_deref())?;
        let found = self.namespace.broker.read_events(&hub, partition, start, top).await?;
        let next = found.last().map(|event| event.sequence.saturating_add(1).to_string());
        let items = found.iter().map(|event| show(partition, event)).collect::<Result<_, _>>()?;
        Ok(Answer::ok(Page { items, next }))
    }
}

impl Call<(), NewEvents> {
    async fn send_events(self) -> Result<Answer<EventsSent>, Problem> {
        let (call, NewEvents { partition, partition_key, events }) = self.split();
        let hub = call.hub().await?;
        if events.is_empty() {
            return Err(Problem::bad("there are no events to store; give one or more in 'events'"));
        }
        let count = hub.settings.partition_count;
        let partition = match (partition, &partition_key) {
            (Some(_), Some(_)) => {
                return Err(Problem::bad(
                    "the key says which partition it is; leave partition or partitionKey out",
                ));
            }
            (Some(partition), None) => partition,
            (None, Some(key)) => {
                check_key(key)?;
                partition_of_key(key, count)
            }
            (None, None) => pick(call.namespace.now().as_millis(), count),
        };
        let stored = store_all(events, partition_key.as_deref())?;
        call.namespace.broker.append_events(&hub, partition, &stored).await?;
        Ok(Answer::created(EventsSent { partition, count: stored.len() as u64 }))
    }
}

/// Parses `earliest`, `latest`, a sequence number, or a time.
fn start(from: Option<&str>) -> Result<StartAt, Problem> {
    let Some(text) = from else { return Ok(StartAt::Earliest) };
    if let Ok(sequence) = text.parse() {
        return Ok(StartAt::Sequence { sequence, inclusive: true });
    }
    match text {
        "earliest" => Ok(StartAt::Earliest),
        "latest" => Ok(StartAt::Latest),
        text => parse_time(text).map(|at| StartAt::Time { at, inclusive: true }).map_err(|error| {
            Problem::bad(format!("the query's 'from': {error}, or earliest, latest, or a sequence number"))
        }),
    }
}

fn check_key(key: &str) -> Result<(), Problem> {
    let (count, max) = (key.chars().count(), limits::PARTITION_KEY_CHARS_MAX);
    if count > max {
        return Err(Problem::bad(format!(
            "the partition key has {count} characters; at most {max} are allowed"
        )));
    }
    Ok(())
}

/// Selects a partition by the clock. The distribution is sufficient for scripts.
fn pick(millis: u64, count: u32) -> u32 {
    u32::try_from(millis % u64::from(count.max(1))).unwrap_or(0)
}

/// Encodes the events. All of them contain the key, so their stored size can be much larger than the request; encoding
/// stops at the size limit.
fn store_all(events: Vec<NewEvent>, key: Option<&str>) -> Result<Vec<Bytes>, Problem> {
    let limit_bytes = limits::PUBLICATION_SIZE_BYTES_MAX;
    let (mut stored, mut size_bytes) = (Vec::with_capacity(events.len()), 0);
    for (at, event) in events.into_iter().enumerate() {
        let event = store(at, event, key)?;
        size_bytes += event.len();
        if size_bytes > limit_bytes {
            return Err(Problem::TooLarge { limit_bytes });
        }
        stored.push(event);
    }
    Ok(stored)
}

fn store(at: usize, event: NewEvent, key: Option<&str>) -> Result<Bytes, Problem> {
    let (bytes, content_type) = match (event.body, event.base64) {
        (Some(_), Some(_)) => {
            return Err(Problem::bad(format!("event {at} has both body and base64; leave one out")));
        }
        (None, None) => (Vec::new(), None),
        (None, Some(text)) => {
            let wrong = |error| Problem::bad(format!("the base64 of event {at} cannot be read: {error}"));
            (BASE64.decode(text).map_err(wrong)?, None)
        }
        (Some(serde_json::Value::String(text)), None) => (text.into_bytes(), None),
        (Some(value), None) => (value.to_string().into_bytes(), Some("application/json".to_owned())),
    };
    let mut message = Message::data(bytes);
    message.properties.message_id = event.message_id.map(Into::into);
    message.properties.correlation_id = event.correlation_id.map(Into::into);
    let content_type = event.content_type.or(content_type).map(|kind| {
        let wrong = |_| Problem::bad(format!("the contentType of event {at} is not ASCII"));
        Symbol::parse(&kind).map_err(wrong)
    });
    message.properties.content_type = content_type.transpose()?;
    for (name, value) in event.properties.0 {
        message = message.with_property(name, amqp(value));
    }
    let encoded = message.to_bytes();
    let mut out = BytesMut::new();
    let stored = Sections::scan(&encoded).and_then(|sections| StoredEvent::encode(&mut out, &sections, key));
    stored.map_err(|error| Problem::bad(format!("event {at} cannot be stored: {error}")))?;
    Ok(out.freeze())
}

fn amqp(PropertyValue(value): PropertyValue) -> Value {
    match value {
        Property::Null => Value::Null,
        Property::Bool(value) => value.into(),
        Property::Long(value) => value.into(),
        Property::Double(value) => Value::Double(value),
        Property::Text(text) => text.to_string().into(),
        Property::Binary(bytes) => Value::Binary(bytes),
        Property::Uuid(bytes) => Value::Uuid(bytes),
        Property::Time(millis) => Value::Timestamp(millis),
        // AMQP has no type for time spans.
        Property::Span(ticks) => ticks.into(),
    }
}

fn show(partition: u32, event: &Event) -> Result<EventInfo, Problem> {
    let sequence = event.sequence;
    let unreadable = |error: peeklock_amqp::DecodeError| {
        Problem::Unavailable(format!("event {sequence} of partition {partition} cannot be shown: {error}"))
    };
    let stored = StoredEvent::parse(&event.bytes).map_err(unreadable)?;
    let content = stored.content().map_err(unreadable)?;
    let properties = content.application_properties.into_iter();
    Ok(EventInfo {
        partition,
        sequence_number: sequence,
        offset: sequence.to_string(),
        enqueued_at: show_time(event.enqueued_at),
        partition_key: stored.partition_key().map(str::to_owned),
        size_bytes: event.bytes.len() as u64,
        system: system(&content.properties),
        properties: Named(
            properties.map(|(name, value)| (name.as_str().to_owned(), property(value))).collect(),
        ),
        body: body(content.body),
    })
}
