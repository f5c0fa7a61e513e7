//! Shows messages without locking or changing them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use peeklock_access::Right;
use peeklock_amqp::{Body, MessageId, Value};
use peeklock_api::messages::SessionInfo;
use peeklock_api::{
    MessageBody, MessageInfo, MessageState as State, MessagesQuery, Page, PageQuery, SystemProperties,
    messages,
};
use peeklock_broker::engine::MessageState;
use peeklock_broker::request::entities::Find;
use peeklock_broker::request::sessions::ListSessions;
use peeklock_broker::{Message, Named, WHOLE_BODY_BYTES_MAX};
use peeklock_filter::Value as Property;
use peeklock_message::StoredMessage;
use peeklock_spec::{Named as Table, PropertyValue, show_time};
use peeklock_types::{EntityPath, SequenceNumber, SubQueue, Timestamp, limits};

use super::call::{Answer, Call};
use super::route::{Route, route};
use crate::problem::Problem;

pub(super) fn routes() -> Vec<Route> {
    vec![
        route(&messages::LIST, Right::Listen, Call::list_messages),
        route(&messages::SESSIONS, Right::Listen, Call::list_sessions),
    ]
}

impl Call<MessagesQuery> {
    async fn list_messages(self) -> Result<Answer<Page<MessageInfo>>, Problem> {
        self.check_entity().await?;
        if self.is_topic() && self.query.sub_queue.is_some() {
            return Err(Problem::bad("a topic has no sub-queues; look at those of its subscriptions"));
        }
        let sub_queue = self.query.sub_queue.unwrap_or(SubQueue::Main);
        let from = SequenceNumber(self.query.from.unwrap_or(0));
        let top = self.page_count(self.query.top);
        let path = EntityPath { name: self.entity()?, sub_queue };
        let found = self.namespace.broker.peek(path, from, top).await?;
        let size_bytes: usize = found.iter().map(|message| message.message.size_bytes as usize).sum();
        // The broker returns fewer messages than requested if they are large.
        let may_be_more = found.len() == top || size_bytes > limits::ANSWER_SIZE_BYTES_MAX / 2;
        let last = found.last().map(|message| message.message.sequence_number);
        let next = last.filter(|_| may_be_more).map(|last| last.next().to_string());
        let items = found.iter().map(show).collect::<Result<_, _>>()?;
        Ok(Answer::ok(Page { items, next }))
    }
}

impl Call<PageQuery> {
    async fn list_sessions(self) -> Result<Answer<Page<SessionInfo>>, Problem> {
        self.check_entity().await?;
        let wrong = |_| Problem::bad("the query's 'after' is not the 'next' of a page of sessions");
        let skip = self.query.after.as_deref().map_or(Ok(0), |after| after.parse().map_err(wrong))?;
        let top = self.page_count(self.query.top);
        let (broker, name) = (&self.namespace.broker, self.entity()?);
        let Named::Entity(found) = broker.ask_at(&name, Find { name: name.clone() }).await? else {
            return Err(Problem::NotFound(format!("'{name}' has no sessions")));
        };
        // One item more than the page shows whether there is a next page.
        let list =
            ListSessions { entity: found.entity, updated_since: None, skip, top: top.saturating_add(1) };
        let sessions = broker.ask_at(&name, list).await?;
        let next = (sessions.len() > top).then(|| skip.saturating_add(top).to_string());
        let items = sessions.iter().take(top).map(|id| SessionInfo { session_id: id.to_string() }).collect();
        Ok(Answer::ok(Page { items, next }))
    }
}

fn show(found: &Message) -> Result<MessageInfo, Problem> {
    let number = found.message.sequence_number.0;
    let unreadable = |error: peeklock_amqp::DecodeError| {
        Problem::Unavailable(format!("message {number} cannot be shown: {error}"))
    };
    let is_whole = found.message.size_bytes <= WHOLE_BODY_BYTES_MAX;
    let stored = StoredMessage::parse(&found.body).map_err(unreadable)?;
    let stored = if is_whole { stored } else { stored.without_body().map_err(unreadable)? };
    let content = stored.content(&found.message.patch).map_err(unreadable)?;
    let properties = content.application_properties.into_iter();
    let details = found.message.details.as_deref();
    let due =
        details.and_then(|details| details.due).filter(|_| found.message.state == MessageState::Scheduled);
    let time_to_live = details.and_then(|details| details.time_to_live);
    Ok(MessageInfo {
        sequence_number: number,
        state: match found.message.state {
            MessageState::Active => State::Active,
            MessageState::Delayed => State::Delayed,
            MessageState::Deferred => State::Deferred,
            MessageState::Scheduled => State::Scheduled,
        },
        enqueued_at: show_time(found.message.enqueued_at),
        delivery_count: found.message.delivery_count,
        size_bytes: found.message.size_bytes,
        priority: stored.priority,
        class: found.message.class.as_ref().map(ToString::to_string),
        tenant: found.message.tenant.as_deref().map(str::to_owned),
        locked_until: found.message.locked_until.map(show_time),
        scheduled_for: due.map(show_time),
        expires_at: time_to_live.map(|span| show_time(due.unwrap_or(found.message.enqueued_at) + span)),
        system: system(&content.properties),
        properties: Table(
            properties.map(|(name, value)| (name.as_str().to_owned(), property(value))).collect(),
        ),
        body: if is_whole { body(content.body) } else { MessageBody::Omitted },
    })
}

pub(super) fn system(properties: &peeklock_amqp::Properties) -> SystemProperties {
    let text = |text: &Option<peeklock_amqp::Text>| text.as_ref().map(|text| text.as_str().to_owned());
    SystemProperties {
        message_id: properties.message_id.as_ref().map(id),
        correlation_id: properties.correlation_id.as_ref().map(id),
        session_id: text(&properties.group_id),
        reply_to_session_id: text(&properties.reply_to_group_id),
        to: text(&properties.to),
        reply_to: text(&properties.reply_to),
        subject: text(&properties.subject),
        content_type: properties.content_type.as_ref().map(|kind| kind.as_str().to_owned()),
    }
}

fn id(id: &MessageId) -> String {
    match id {
        MessageId::Ulong(id) => id.to_string(),
        MessageId::Uuid(bytes) => show_uuid(bytes),
        MessageId::Binary(bytes) => BASE64.encode(bytes),
        MessageId::String(id) => id.as_str().to_owned(),
    }
}

pub(super) fn body(body: Body) -> MessageBody {
    match body {
        Body::None => MessageBody::None,
        Body::Data(parts) => match String::from_utf8(parts.concat()) {
            Ok(text) => MessageBody::Text(text),
            Err(error) => MessageBody::Base64(BASE64.encode(error.as_bytes())),
        },
        Body::Sequence(lists) => {
            MessageBody::Value(lists.into_iter().map(|list| plain(Value::List(list))).collect())
        }
        Body::Value(Value::String(text)) => MessageBody::Text(text.as_str().to_owned()),
        Body::Value(Value::Binary(bytes)) => MessageBody::Base64(BASE64.encode(bytes)),
        Body::Value(value) => MessageBody::Value(plain(value)),
    }
}

/// Converts a property. A value that filters cannot represent becomes JSON text.
pub(super) fn property(value: Value) -> PropertyValue {
    PropertyValue(match value {
        Value::Null => Property::Null,
        Value::Boolean(value) => Property::Bool(value),
        Value::Float(value) => Property::Double(value.into()),
        Value::Double(value) => Property::Double(value),
        Value::Timestamp(millis) => Property::Time(millis),
        Value::Uuid(bytes) => Property::Uuid(bytes),
        Value::Binary(bytes) => Property::Binary(bytes),
        Value::String(text) => Property::text(text.as_str()),
        Value::Symbol(text) => Property::text(text.as_str()),
        other => match plain(other) {
            serde_json::Value::Number(number) if number.is_i64() => {
                Property::Long(number.as_i64().unwrap_or_default())
            }
            serde_json::Value::String(text) => Property::text(text),
            other => Property::text(other.to_string()),
        },
    })
}

/// Converts any AMQP value to the closest JSON value. The codec limits the nesting depth.
fn plain(value: Value) -> serde_json::Value {
    use serde_json::Value as Json;
    match value {
        Value::Null => Json::Null,
        Value::Boolean(value) => value.into(),
        Value::Ubyte(number) => number.into(),
        Value::Ushort(number) => number.into(),
        Value::Uint(number) => number.into(),
        Value::Ulong(number) => number.into(),
        Value::Byte(number) => number.into(),
        Value::Short(number) => number.into(),
        Value::Int(number) => number.into(),
        Value::Long(number) => number.into(),
        Value::Float(number) => number.into(),
        Value::Double(number) => number.into(),
        Value::Decimal32(bytes) => BASE64.encode(bytes).into(),
        Value::Decimal64(bytes) => BASE64.encode(bytes).into(),
        Value::Decimal128(bytes) => BASE64.encode(bytes).into(),
        Value::Char(char) => char.to_string().into(),
        Value::Timestamp(millis) => {
            show_time(Timestamp::from_millis(u64::try_from(millis).unwrap_or(0))).into()
        }
        Value::Uuid(bytes) => show_uuid(&bytes).into(),
        Value::Binary(bytes) => BASE64.encode(bytes).into(),
        Value::String(text) => text.as_str().into(),
        Value::Symbol(text) => text.as_str().into(),
        Value::List(values) => values.into_iter().map(plain).collect(),
        Value::Map(entries) => {
            let key = |key: Value| match plain(key) {
                Json::String(text) => text,
                other => other.to_string(),
            };
            entries.into_iter().map(|(name, value)| (key(name), plain(value))).collect()
        }
        Value::Array(array) => array.elements().iter().cloned().map(plain).collect(),
        Value::Described(described) => plain(described.value),
    }
}

fn show_uuid(bytes: &[u8; 16]) -> String {
    peeklock_types::LockToken::from_bytes(*bytes).to_string()
}
