//! A message as it comes from the broker, with what the broker wrote on it.

use std::borrow::Cow;
use std::sync::Arc;

use peeklock_amqp::{Body, Message, MessageId, Text, Value};
use peeklock_types::{LockToken, SequenceNumber, Timestamp};

use crate::error::Error;
use crate::message::SCHEDULED_TIME;

/// A decoded message. The message itself is in [`ReceivedMessage::message`]; the methods read what the broker added.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedMessage {
    pub message: Message,
    /// `None` for messages that are only looked at, or gone from the queue already.
    pub lock_token: Option<LockToken>,
}

/// Where a message stands in its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageState {
    Active,
    Deferred,
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

    /// The message's place in its queue.
    pub fn sequence_number(&self) -> Option<SequenceNumber> {
        self.annotation("x-opt-sequence-number")?.as_u64().map(SequenceNumber)
    }

    pub fn enqueued_at(&self) -> Option<Timestamp> {
        self.time("x-opt-enqueued-time")
    }

    /// When the lock runs out, as told with this delivery.
    pub fn locked_until(&self) -> Option<Timestamp> {
        self.time("x-opt-locked-until")
    }

    /// When a scheduled message becomes available.
    pub fn scheduled_for(&self) -> Option<Timestamp> {
        self.time(SCHEDULED_TIME)
    }

    /// When the message expires; `None` if it does not.
    pub fn expires_at(&self) -> Option<Timestamp> {
        millis(self.message.properties.absolute_expiry_time?)
    }

    pub fn session_id(&self) -> Option<&str> {
        self.message.properties.group_id.as_ref().map(Text::as_str)
    }

    pub fn subject(&self) -> Option<&str> {
        self.message.properties.subject.as_ref().map(Text::as_str)
    }

    /// The queue that an answer should go to.
    pub fn reply_to(&self) -> Option<&str> {
        self.message.properties.reply_to.as_ref().map(Text::as_str)
    }

    /// The session that an answer should belong to.
    pub fn reply_to_session_id(&self) -> Option<&str> {
        self.message.properties.reply_to_group_id.as_ref().map(Text::as_str)
    }

    /// The priority that the sender gave the message, if it gave one.
    pub fn priority(&self) -> Option<u8> {
        self.message.header.and_then(|header| header.priority)
    }

    /// The class that its queue has put the message into, where the queue has an order.
    pub fn class(&self) -> Option<&str> {
        self.annotation("x-opt-peeklock-class")?.as_str()
    }

    /// Whose message it is, where the queue tells tenants apart.
    pub fn tenant(&self) -> Option<&str> {
        self.annotation("x-opt-peeklock-tenant")?.as_str()
    }

    /// Returns where the message stands in its queue. On the wire a message that was scheduled is shown as scheduled also after its time has
    /// come, as the service does it; it is active then.
    pub fn state(&self) -> MessageState {
        let is_due = self.scheduled_for().is_some_and(|due| self.enqueued_at().is_some_and(|at| at >= due));
        match self.annotation("x-opt-message-state").and_then(Value::as_i32) {
            Some(1) => MessageState::Deferred,
            Some(2) if !is_due => MessageState::Scheduled,
            _ => MessageState::Active,
        }
    }

    /// How often the message was delivered before.
    pub fn delivery_count(&self) -> u32 {
        self.message.header.map_or(0, |header| header.delivery_count())
    }

    /// The message id as text, whatever type it has.
    pub fn message_id(&self) -> Option<String> {
        self.message.properties.message_id.as_ref().map(id_text)
    }

    /// The correlation id as text, whatever type it has.
    pub fn correlation_id(&self) -> Option<String> {
        self.message.properties.correlation_id.as_ref().map(id_text)
    }

    /// Why the message is in the dead-letter queue.
    pub fn dead_letter_reason(&self) -> Option<&str> {
        self.message.property("DeadLetterReason")?.as_str()
    }

    /// The queue whose dead-letter queue the message was in before it was forwarded.
    pub fn dead_letter_source(&self) -> Option<&str> {
        self.annotation("x-opt-deadletter-source")?.as_str()
    }

    pub fn dead_letter_description(&self) -> Option<&str> {
        self.message.property("DeadLetterErrorDescription")?.as_str()
    }

    /// The bytes of a body of data sections, one after the other; `None` for other kinds of body.
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

    /// The body for a human to read: text as it is, bytes that are no text with marks in their place, values in a notation of their own.
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
    fn what_the_broker_wrote_is_found_again() {
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
    fn a_body_of_any_kind_can_be_shown() {
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
    fn ids_of_any_type_can_be_shown() {
        let with = |id| received(Message { ..Message::default().with_message_id(id) }).message_id();
        assert_eq!(with(MessageId::Ulong(5)).as_deref(), Some("5"));
        assert_eq!(with(MessageId::Binary(Bytes::from_static(&[1, 255]))).as_deref(), Some("01ff"));
        assert_eq!(with(MessageId::Uuid([0; 16])).as_deref(), Some("00000000-0000-0000-0000-000000000000"));
    }
}
