//! Messages to send.

use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::{Message as AmqpMessage, MessageId, Symbol, Text, Value};
use peeklock_client::{MessageExt, Timestamp};
use serde::Serialize;

use crate::error::{Error, Kind};

/// A message to send, built step by step.
///
/// ```
/// use std::time::Duration;
/// use peeklock::{Message, Priority};
///
/// let message = Message::json(&vec![1, 2])?
///     .message_id("order-17")
///     .priority(Priority::High)
///     .tenant("acme")
///     .property("region", "north")
///     .time_to_live(Duration::from_secs(600));
/// # Ok::<(), peeklock::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    pub(crate) amqp: AmqpMessage,
    /// The first invalid field. The send reports it, so that the methods can be chained.
    defect: Option<String>,
}

/// The priority of a message, as a number or as the name of a class of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Priority {
    /// The class `high`.
    High,
    /// The class `normal`.
    Normal,
    /// The class `low`.
    Low,
    /// Another class of the queue.
    Class(String),
    /// A number from 0 to 255; larger is more urgent.
    Level(u8),
}

impl Message {
    /// Creates a message with these bytes as its body.
    pub fn new(body: impl Into<Bytes>) -> Self {
        AmqpMessage::data(body).into()
    }

    /// Creates a message with a text as its body.
    pub fn text(body: impl Into<String>) -> Self {
        Message::new(body.into().into_bytes()).content_type("text/plain; charset=utf-8")
    }

    /// Creates a message with a value as JSON in its body.
    pub fn json<T: Serialize + ?Sized>(body: &T) -> Result<Self, Error> {
        let body = serde_json::to_vec(body).map_err(|error| {
            Error::new(Kind::Invalid, "E-DATA-02", format!("The body has no JSON form: {error}."))
        })?;
        Ok(Message::new(body).content_type("application/json"))
    }

    /// Sets the id of the message. A queue with duplicate detection stores an id once.
    #[must_use]
    pub fn message_id(self, id: impl Into<MessageId>) -> Self {
        self.map(|amqp| amqp.with_message_id(id))
    }

    /// Sets the session of the message.
    #[must_use]
    pub fn session_id(self, id: impl Into<Text>) -> Self {
        self.map(|amqp| amqp.with_session_id(id))
    }

    /// Sets the id of the request that the message answers.
    #[must_use]
    pub fn correlation_id(mut self, id: impl Into<MessageId>) -> Self {
        self.amqp.properties.correlation_id = Some(id.into());
        self
    }

    /// Sets the subject of the message.
    #[must_use]
    pub fn subject(self, subject: impl Into<Text>) -> Self {
        self.map(|amqp| amqp.with_subject(subject))
    }

    /// Sets the media type of the body. It may contain ASCII characters only; otherwise the send fails with `E-DATA-05`.
    #[must_use]
    pub fn content_type(mut self, media_type: impl Into<String>) -> Self {
        let media_type = media_type.into();
        match Symbol::parse(&media_type) {
            Ok(symbol) => self.amqp.properties.content_type = Some(symbol),
            Err(_) => drop(self.defect.get_or_insert_with(|| {
                format!("The content type \"{media_type}\" contains characters that are not ASCII. Write it as \"type/subtype\".")
            })),
        }
        self
    }

    /// Sets the time when the message becomes available. [`Sender::send`](crate::Sender::send) then returns at once, and
    /// [`Sender::schedule`](crate::Sender::schedule) also returns a number to cancel it.
    #[must_use]
    pub fn scheduled_for(self, at: impl Into<Timestamp>) -> Self {
        self.map(|amqp| amqp.with_scheduled_time(at.into()))
    }

    /// Sets the partition key, for brokers with partitioned entities and for hubs. Messages with the same key stay together.
    #[must_use]
    pub fn partition_key(mut self, key: impl Into<String>) -> Self {
        self.amqp.message_annotations.insert("x-opt-partition-key", key.into());
        self
    }

    /// Sets the address that the sender intends. The broker stores it and does not interpret it.
    #[must_use]
    pub fn to(mut self, address: impl Into<Text>) -> Self {
        self.amqp.properties.to = Some(address.into());
        self
    }

    /// Sets the queue for replies.
    #[must_use]
    pub fn reply_to(self, entity: impl Into<Text>) -> Self {
        self.map(|amqp| amqp.with_reply_to(entity))
    }

    /// Sets the session for replies.
    #[must_use]
    pub fn reply_to_session_id(self, id: impl Into<Text>) -> Self {
        self.map(|amqp| amqp.with_reply_to_session_id(id))
    }

    /// Sets the time after which the message expires.
    #[must_use]
    pub fn time_to_live(self, span: Duration) -> Self {
        self.map(|amqp| amqp.with_time_to_live(span))
    }

    /// Sets the priority, for a queue with classes.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Self {
        self.map(|amqp| match priority {
            Priority::High => amqp.with_class("high"),
            Priority::Normal => amqp.with_class("normal"),
            Priority::Low => amqp.with_class("low"),
            Priority::Class(name) => amqp.with_class(name),
            Priority::Level(level) => amqp.with_priority(level),
        })
    }

    /// Sets the tenant, for a queue that identifies tenants by the property `tenant`.
    #[must_use]
    pub fn tenant(self, tenant: impl Into<Text>) -> Self {
        self.map(|amqp| amqp.with_tenant(tenant))
    }

    /// Sets an application property.
    #[must_use]
    pub fn property(self, name: impl Into<Text>, value: impl Into<Value>) -> Self {
        self.map(|amqp| amqp.with_property(name, value))
    }

    fn map(self, change: impl FnOnce(AmqpMessage) -> AmqpMessage) -> Self {
        Message { amqp: change(self.amqp), ..self }
    }

    /// Returns the message with an id, ready to be sent, or the error of its first invalid field.
    pub(crate) fn ready(self) -> Result<AmqpMessage, Error> {
        match self.defect {
            Some(defect) => Err(Error::new(Kind::Invalid, "E-DATA-05", defect)),
            None => Ok(self.with_id().amqp),
        }
    }

    /// Sets a random id unless the message has one, so that a queue with duplicate detection stores a repeated send once.
    pub(crate) fn with_id(mut self) -> Self {
        self.amqp
            .properties
            .message_id
            .get_or_insert_with(|| MessageId::String(format!("{:032x}", fastrand::u128(..)).into()));
        self
    }

    /// Returns the AMQP message with all its sections.
    pub fn into_amqp(self) -> AmqpMessage {
        self.amqp
    }
}

impl From<AmqpMessage> for Message {
    fn from(amqp: AmqpMessage) -> Self {
        Message { amqp, defect: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_set() {
        let message = Message::text("x")
            .content_type(format!("text/{}", "csv"))
            .scheduled_for(Timestamp::from_millis(5))
            .partition_key("shop-1")
            .to("here")
            .priority(Priority::Level(7))
            .ready()
            .unwrap();
        assert_eq!(message.properties.content_type.unwrap(), "text/csv");
        assert_eq!(message.properties.to.unwrap(), "here");
        assert_eq!(message.message_annotations.get("x-opt-partition-key"), Some(&"shop-1".into()));
        assert_eq!(message.header.unwrap().priority, Some(7));
        assert!(message.properties.message_id.is_some());
    }

    #[test]
    fn an_invalid_content_type_is_an_error_of_the_send() {
        let error = Message::text("x").content_type("text/überraschung").subject("s").ready().unwrap_err();
        assert_eq!(error.code(), "E-DATA-05");
        assert!(error.to_string().contains("text/überraschung"), "{error}");
    }
}
