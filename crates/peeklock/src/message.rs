//! Messages to send.

use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::{Message as AmqpMessage, MessageId, Text, Value};
use peeklock_client::MessageExt;
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
        self.amqp.with_message_id(id).into()
    }

    /// Sets the session of the message.
    #[must_use]
    pub fn session_id(self, id: impl Into<Text>) -> Self {
        self.amqp.with_session_id(id).into()
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
        self.amqp.with_subject(subject).into()
    }

    /// Sets the media type of the body.
    #[must_use]
    pub fn content_type(mut self, media_type: &'static str) -> Self {
        self.amqp.properties.content_type = Some(media_type.into());
        self
    }

    /// Sets the queue for replies.
    #[must_use]
    pub fn reply_to(self, entity: impl Into<Text>) -> Self {
        self.amqp.with_reply_to(entity).into()
    }

    /// Sets the session for replies.
    #[must_use]
    pub fn reply_to_session_id(self, id: impl Into<Text>) -> Self {
        self.amqp.with_reply_to_session_id(id).into()
    }

    /// Sets the time after which the message expires.
    #[must_use]
    pub fn time_to_live(self, span: Duration) -> Self {
        self.amqp.with_time_to_live(span).into()
    }

    /// Sets the priority, for a queue with classes.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Self {
        match priority {
            Priority::High => self.amqp.with_class("high"),
            Priority::Normal => self.amqp.with_class("normal"),
            Priority::Low => self.amqp.with_class("low"),
            Priority::Class(name) => self.amqp.with_class(name),
            Priority::Level(level) => self.amqp.with_priority(level),
        }
        .into()
    }

    /// Sets the tenant, for a queue that identifies tenants by the property `tenant`.
    #[must_use]
    pub fn tenant(self, tenant: impl Into<Text>) -> Self {
        self.amqp.with_tenant(tenant).into()
    }

    /// Sets an application property.
    #[must_use]
    pub fn property(self, name: impl Into<Text>, value: impl Into<Value>) -> Self {
        self.amqp.with_property(name, value).into()
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
        Message { amqp }
    }
}
