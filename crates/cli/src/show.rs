//! Messages as text and as JSON.

use std::io::{self, Write};

use peeklock::low_level::{MessageState, ReceivedMessage, Timestamp, Value};
use serde_json::{Map, json};

use peeklock_spec::show_time as time;

/// Prints one message, as text or as one line of JSON.
pub(crate) fn message(message: &ReceivedMessage, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json { writeln!(out, "{}", to_json(message)) } else { out.write_all(to_text(message).as_bytes()) }
}

fn to_text(message: &ReceivedMessage) -> String {
    let mut head =
        vec![format!("#{}", message.sequence_number().map_or_else(|| "?".to_owned(), |n| n.to_string()))];
    head.extend(message.message_id());
    head.extend(message.enqueued_at().map(|at| format!("enqueued {}", time(at))));
    head.push(format!("delivered {} before", times(message.delivery_count())));
    if message.state() != MessageState::Active {
        head.push(state(message).to_owned());
    }
    head.extend(
        message.scheduled_for().filter(|_| is_scheduled(message)).map(|at| format!("for {}", time(at))),
    );
    // A scheduled message starts to age when it becomes available.
    head.extend(
        message.expires_at().filter(|_| !is_scheduled(message)).map(|at| format!("expires {}", time(at))),
    );
    head.extend(message.session_id().map(|id| format!("session {id}")));
    head.extend(message.class().map(|class| format!("class {class}")));
    head.extend(message.tenant().map(|tenant| format!("tenant {tenant}")));
    let mut text = head.join("  ");
    for (key, value) in &message.message.application_properties {
        text.push_str(&format!("\n  {key} = {}", plain(value)));
    }
    text.push('\n');
    text.push_str(&message.body_text());
    text.push('\n');
    text
}

fn times(count: u32) -> String {
    match count {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

fn is_scheduled(message: &ReceivedMessage) -> bool {
    message.state() == MessageState::Scheduled
}

fn state(message: &ReceivedMessage) -> &'static str {
    match message.state() {
        MessageState::Active => "active",
        MessageState::Deferred => "deferred",
        MessageState::Scheduled => "scheduled",
    }
}

fn to_json(message: &ReceivedMessage) -> serde_json::Value {
    let properties: Map<_, _> = message
        .message
        .application_properties
        .iter()
        .map(|(key, value)| (key.to_string(), value_json(value)))
        .collect();
    let mut object = json!({
        "sequenceNumber": message.sequence_number().map(|number| number.0),
        "messageId": message.message_id(),
        "enqueuedAt": message.enqueued_at().map(time),
        "deliveryCount": message.delivery_count(),
        "state": state(message),
        "properties": properties,
    });
    if let Some(object) = object.as_object_mut() {
        optional(object, "lockedUntil", message.locked_until().map(time));
        optional(object, "lockToken", message.lock_token.map(|token| token.to_string()));
        optional(object, "correlationId", message.correlation_id());
        optional(object, "subject", message.subject().map(str::to_owned));
        optional(object, "sessionId", message.session_id().map(str::to_owned));
        optional(object, "class", message.class().map(str::to_owned));
        optional(object, "tenant", message.tenant().map(str::to_owned));
        if let Some(priority) = message.priority() {
            object.insert("priority".to_owned(), priority.into());
        }
        optional(object, "replyTo", message.reply_to().map(str::to_owned));
        optional(object, "replyToSessionId", message.reply_to_session_id().map(str::to_owned));
        optional(object, "scheduledFor", message.scheduled_for().map(time));
        optional(object, "expiresAt", message.expires_at().map(time));
        optional(object, "deadLetterSource", message.dead_letter_source().map(str::to_owned));
        let body = match message.body_bytes() {
            Some(bytes) => bytes_json(&bytes),
            None => json!({ "body": message.body_text() }),
        };
        if let serde_json::Value::Object(body) = body {
            object.extend(body);
        }
    }
    object
}

fn optional(object: &mut Map<String, serde_json::Value>, key: &str, value: Option<String>) {
    if let Some(value) = value {
        object.insert(key.to_owned(), value.into());
    }
}

/// Returns the bytes as text if they are UTF-8, else as hexadecimal digits under another key, so that the two are not confused.
fn bytes_json(bytes: &[u8]) -> serde_json::Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "body": text }),
        Err(_) => json!({ "bodyHex": hex(bytes) }),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn plain(value: &Value) -> String {
    match value_json(value) {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    }
}

pub(crate) fn value_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Boolean(value) => (*value).into(),
        Value::Float(value) => f64::from(*value).into(),
        Value::Double(value) => (*value).into(),
        Value::Timestamp(millis) => match u64::try_from(*millis) {
            Ok(millis) => time(Timestamp::from_millis(millis)).into(),
            Err(_) => (*millis).into(),
        },
        Value::Binary(bytes) => hex(bytes).into(),
        Value::Ulong(value) => (*value).into(),
        other => match (other.as_i64(), other.as_str()) {
            (Some(number), _) => number.into(),
            (_, Some(text)) => text.into(),
            _ => format!("{other:?}").into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use peeklock::low_level::{Body, Message, MessageExt};

    fn received(message: Message) -> ReceivedMessage {
        ReceivedMessage { message, lock_token: None }
    }

    fn example() -> ReceivedMessage {
        let mut message = Message::data("hello").with_message_id("order-17").with_property("tier", "gold");
        message.message_annotations.insert("x-opt-sequence-number", 7_i64);
        message.message_annotations.insert("x-opt-enqueued-time", Value::Timestamp(1_700_000_000_123));
        received(message.with_property("size", 5_u32))
    }

    #[test]
    fn a_message_is_shown_as_text() {
        assert_eq!(
            to_text(&example()),
            "#7  order-17  enqueued 2023-11-14T22:13:20.123Z  delivered never before\n  tier = gold\n  size = 5\nhello\n"
        );
    }

    #[test]
    fn the_special_properties_of_a_message_are_shown() {
        let mut message = example();
        message.message = message
            .message
            .with_session_id("table-4")
            .with_reply_to("served")
            .with_priority(7)
            .with_scheduled_time(Timestamp::from_millis(1_800_000_000_000));
        message.message.message_annotations.insert("x-opt-message-state", 2);
        message.message.message_annotations.insert("x-opt-peeklock-class", "high");
        message.message.message_annotations.insert("x-opt-peeklock-tenant", "shop-1");
        let text = to_text(&message);
        assert!(
            text.contains(
                "  scheduled  for 2027-01-15T08:00:00.000Z  session table-4  class high  tenant shop-1\n"
            ),
            "{text}"
        );
        let object = to_json(&message);
        assert_eq!(object["sessionId"], "table-4");
        assert_eq!(object["replyTo"], "served");
        assert_eq!((&object["class"], &object["tenant"]), (&json!("high"), &json!("shop-1")));
        assert_eq!(object["priority"], 7);
        assert_eq!(object["scheduledFor"], "2027-01-15T08:00:00.000Z");
    }

    #[test]
    fn a_message_is_shown_as_json() {
        let object = to_json(&example());
        assert_eq!(object["sequenceNumber"], 7);
        assert_eq!(object["messageId"], "order-17");
        assert_eq!(object["properties"]["size"], 5);
        assert_eq!(object["body"], "hello");
        let binary = Message { body: Body::Data(vec![vec![0xff, 0].into()]), ..Message::default() };
        let object = to_json(&received(binary));
        assert_eq!(object["bodyHex"], "ff00");
        assert!(object.get("body").is_none());
    }
}
