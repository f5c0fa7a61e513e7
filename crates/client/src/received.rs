//! A message from the broker, with the fields that the broker has added.

use std::borrow::Cow;
use std::sync::Arc;

use peeklock_amqp::{Body, Message, MessageId, Text, Value};
use peeklock_types::{LockToken, SequenceNumber, Timestamp};
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::message::SCHEDULED_TIME;

/// The application property with the number of deliveries before this copy of a message was made, for a delayed retry with a broker that
/// counts the deliveries of the copy anew.
pub const ATTEMPT: &str = "x-attempt";
/// The application property with the id of the message from which this copy was made, for a delayed retry. The copy has an id of its own,
/// because a queue that detects duplicates would drop a second message with the id.
pub const ORIGINAL_MESSAGE_ID: &str = "x-original-message-id";

/// A decoded message. [`ReceivedMessage::message`] is the message itself; the methods read the fields that the broker has added.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedMessage {
    /// The message with all its sections.
    pub message: Message,
    /// The lock on the message. `None` if it was peeked, or deleted when it was received.
    pub lock_token: Option<LockToken>,
}

/// The state of a message in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageState {
    /// Available, or locked by a receiver.
    Active,
    /// Available only by its sequence number.
    Deferred,
    /// Not available before its time.
    Scheduled,
}

impl ReceivedMessage {
    pub(crate) fn decode(
        entity: &Arc<str>,
        payload: &[u8],
        lock_token: Option<LockToken>,
    ) -> Result<Self, Error> {
        let message = Message::decode(payload).map_err(|error| Error::malformed(entity, error))?;
        Ok(Self { message, lock_token })
    }

    /// Returns the sequence number in the queue.
    pub fn sequence_number(&self) -> Option<SequenceNumber> {
        self.annotation("x-opt-sequence-number")?.as_u64().map(SequenceNumber)
    }

    /// Returns the time when the message was enqueued.
    pub fn enqueued_at(&self) -> Option<Timestamp> {
        self.time("x-opt-enqueued-time")
    }

    /// Returns the expiry of the lock at the time of the delivery.
    pub fn locked_until(&self) -> Option<Timestamp> {
        self.time("x-opt-locked-until")
    }

    /// Returns the time when a scheduled message becomes available.
    pub fn scheduled_for(&self) -> Option<Timestamp> {
        self.time(SCHEDULED_TIME)
    }

    /// Returns the time when the message expires, or `None` if it does not.
    pub fn expires_at(&self) -> Option<Timestamp> {
        millis(self.message.properties.absolute_expiry_time?)
    }

    /// Returns the session of the message.
    pub fn session_id(&self) -> Option<&str> {
        self.message.properties.group_id.as_ref().map(Text::as_str)
    }

    /// Returns the subject of the message.
    pub fn subject(&self) -> Option<&str> {
        self.message.properties.subject.as_ref().map(Text::as_str)
    }

    /// Returns the queue for replies.
    pub fn reply_to(&self) -> Option<&str> {
        self.message.properties.reply_to.as_ref().map(Text::as_str)
    }

    /// Returns the session for replies.
    pub fn reply_to_session_id(&self) -> Option<&str> {
        self.message.properties.reply_to_group_id.as_ref().map(Text::as_str)
    }

    /// Returns the priority that the sender set.
    pub fn priority(&self) -> Option<u8> {
        self.message.header.and_then(|header| header.priority)
    }

    /// Returns the class of the message, if the queue has an order.
    pub fn class(&self) -> Option<&str> {
        self.annotation("x-opt-peeklock-class")?.as_str()
    }

    /// Returns the tenant of the message, if the queue distinguishes tenants.
    pub fn tenant(&self) -> Option<&str> {
        self.annotation("x-opt-peeklock-tenant")?.as_str()
    }

    /// Returns the state of the message in its queue. A scheduled message whose time has passed is active, although the service and this
    /// broker still mark it as scheduled.
    pub fn state(&self) -> MessageState {
        let is_due = self.scheduled_for().is_some_and(|due| self.enqueued_at().is_some_and(|at| at >= due));
        match self.annotation("x-opt-message-state").and_then(Value::as_i32) {
            Some(1) => MessageState::Deferred,
            Some(2) if !is_due => MessageState::Scheduled,
            _ => MessageState::Active,
        }
    }

    /// Returns the number of earlier deliveries.
    pub fn delivery_count(&self) -> u32 {
        self.message.header.map_or(0, |header| header.delivery_count())
    }

    /// Returns the message id as text, for any type of id.
    pub fn message_id(&self) -> Option<String> {
        self.message.properties.message_id.as_ref().map(id_text)
    }

    /// Returns the id that the message had before it became the copy for a delayed retry ([`ORIGINAL_MESSAGE_ID`]), or its id.
    pub fn original_message_id(&self) -> Option<String> {
        match self.message.property(ORIGINAL_MESSAGE_ID) {
            Some(Value::Ulong(id)) => Some(id_text(&MessageId::Ulong(*id))),
            Some(Value::Uuid(id)) => Some(id_text(&MessageId::Uuid(*id))),
            Some(Value::Binary(id)) => Some(id_text(&MessageId::Binary(id.clone()))),
            Some(Value::String(id)) => Some(id.to_string()),
            _ => self.message_id(),
        }
    }

    /// Returns the number of this delivery, from 1. A copy for a delayed retry continues the count of its original ([`ATTEMPT`]).
    pub fn attempt(&self) -> u32 {
        let is_copy = self.message.property(ORIGINAL_MESSAGE_ID).is_some();
        let before = self.message.property(ATTEMPT).filter(|_| is_copy).and_then(Value::as_u64).unwrap_or(0);
        let before = u32::try_from(before).unwrap_or(u32::MAX);
        before.saturating_add(self.delivery_count()).saturating_add(1)
    }

    /// Returns the correlation id as text, for any type of id.
    pub fn correlation_id(&self) -> Option<String> {
        self.message.properties.correlation_id.as_ref().map(id_text)
    }

    /// Returns the reason why the message is in the dead-letter queue.
    pub fn dead_letter_reason(&self) -> Option<&str> {
        self.message.property("DeadLetterReason")?.as_str()
    }

    /// Returns the queue in whose dead-letter queue the message was before it was forwarded.
    pub fn dead_letter_source(&self) -> Option<&str> {
        self.annotation("x-opt-deadletter-source")?.as_str()
    }

    /// Returns the description that was given with the dead-letter reason.
    pub fn dead_letter_description(&self) -> Option<&str> {
        self.message.property("DeadLetterErrorDescription")?.as_str()
    }

    /// Returns the concatenated data sections of the body, or `None` for other kinds of body.
    pub fn body_bytes(&self) -> Option<Cow<'_, [u8]>> {
        match &self.message.body {
            Body::None => Some(Cow::Borrowed(&[])),
            Body::Data(parts) => match parts.as_slice() {
                [single] => Some(Cow::Borrowed(single)),
                parts => Some(Cow::Owned(parts.concat())),
            },
            Body::Sequence(_) | Body::Value(_) => None,
        }
    }

    /// Returns the body for display: text as it is, other bytes with replacement characters, values in debug notation.
    pub fn body_text(&self) -> Cow<'_, str> {
        match &self.message.body {
            Body::Value(Value::String(text)) => Cow::Borrowed(text.as_str()),
            Body::Value(value) => Cow::Owned(format!("{value:?}")),
            Body::Sequence(lists) => Cow::Owned(format!("{lists:?}")),
            Body::None | Body::Data(_) => match self.body_bytes() {
                Some(Cow::Borrowed(bytes)) => String::from_utf8_lossy(bytes),
                Some(Cow::Owned(bytes)) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
                None => Cow::Borrowed(""),
            },
        }
    }

    /// Deserialises the body from JSON. A body without data sections, such as an AMQP value, is not JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body_bytes().unwrap_or_default())
    }

    fn annotation(&self, key: &str) -> Option<&Value> {
        self.message.message_annotations.get(key)
    }

    fn time(&self, key: &str) -> Option<Timestamp> {
        millis(self.annotation(key)?.as_timestamp()?)
    }
}

fn millis(millis: i64) -> Option<Timestamp> {
    u64::try_from(millis).ok().map(Timestamp::from_millis)
}

fn id_text(id: &MessageId) -> String {
    match id {
        MessageId::Ulong(id) => id.to_string(),
        MessageId::Uuid(id) => LockToken::from_bytes(*id).to_string(),
        MessageId::Binary(id) => id.iter().map(|byte| format!("{byte:02x}")).collect(),
        MessageId::String(id) => id.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn received(message: Message) -> ReceivedMessage {
        ReceivedMessage { message, lock_token: None }
    }

    #[test]
    fn the_fields_of_the_broker_are_read() {
        let mut message = Message::data("hello");
        message.message_annotations.insert("x-opt-sequence-number", 7_i64);
        message.message_annotations.insert("x-opt-enqueued-time", Value::Timestamp(1000));
        message.message_annotations.insert("x-opt-message-state", 1_i32);
        message.message_annotations.insert("x-opt-peeklock-class", "high");
        message.message_annotations.insert("x-opt-peeklock-tenant", "shop-1");
        let message = received(message.with_property("DeadLetterReason", "bad"));
        assert_eq!(message.sequence_number(), Some(SequenceNumber(7)));
        assert_eq!(message.enqueued_at(), Some(Timestamp::from_millis(1000)));
        assert_eq!(message.locked_until(), None);
        assert_eq!(message.state(), MessageState::Deferred);
        assert_eq!(message.dead_letter_reason(), Some("bad"));
        assert_eq!(message.delivery_count(), 0);
        assert_eq!((message.class(), message.tenant()), (Some("high"), Some("shop-1")));
        assert_eq!(message.priority(), None);
    }

    #[test]
    fn a_copy_continues_the_count_of_its_original() {
        let mut message = Message::data("hello").with_message_id("order-17~3").with_property(ATTEMPT, 3);
        assert_eq!(received(message.clone()).attempt(), 1, "a property of the sender's own");
        message = message.with_property(ORIGINAL_MESSAGE_ID, "order-17");
        assert_eq!(received(message.clone()).attempt(), 4);
        assert_eq!(received(message.clone()).original_message_id().as_deref(), Some("order-17"));
        assert_eq!(received(message).message_id().as_deref(), Some("order-17~3"));
        let hostile =
            Message::data("").with_property(ATTEMPT, u64::MAX).with_property(ORIGINAL_MESSAGE_ID, 1_u64);
        assert_eq!(received(hostile).attempt(), u32::MAX);
        assert_eq!(
            received(Message::data("").with_message_id("a")).original_message_id().as_deref(),
            Some("a")
        );
    }

    #[test]
    fn a_body_of_any_kind_is_shown() {
        let parts = vec![Bytes::from_static(b"one "), Bytes::from_static(b"two")];
        assert_eq!(
            received(Message { body: Body::Data(parts), ..Message::default() }).body_text(),
            "one two"
        );
        assert_eq!(received(Message::value("text")).body_text(), "text");
        assert_eq!(received(Message::value(5_u32)).body_text(), "Uint(5)");
        assert_eq!(received(Message::default()).body_text(), "");
        assert!(received(Message::value(5_u32)).body_bytes().is_none());
    }

    #[test]
    fn an_id_of_any_type_is_shown() {
        let with = |id| received(Message { ..Message::default().with_message_id(id) }).message_id();
        assert_eq!(with(MessageId::Ulong(5)).as_deref(), Some("5"));
        assert_eq!(with(MessageId::Binary(Bytes::from_static(&[1, 255]))).as_deref(), Some("01ff"));
        assert_eq!(with(MessageId::Uuid([0; 16])).as_deref(), Some("00000000-0000-0000-0000-000000000000"));
    }
}
