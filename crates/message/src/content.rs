//! The decoded values of a stored message or event, for callers that need no delivery.

use peeklock_amqp::{Body, DecodeError, Properties, Sections, Text, Value};
use peeklock_engine::Patch;

use crate::changes;
use crate::delivery::Rewritten;
use crate::event::StoredEvent;
use crate::stored::StoredMessage;

/// The sender's part of a message, with every change since the message was stored.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Content {
    /// The properties section.
    pub properties: Properties,
    /// The application properties, in the order of a delivery.
    pub application_properties: Vec<(Text, Value)>,
    /// The body sections.
    pub body: Body,
}

impl Content {
    fn new(front: Rewritten, body: Body) -> Self {
        let text = |key: Value| key.as_str().map(|key| Text::from(key.to_owned()));
        let named = |(key, value)| Some((text(key)?, value));
        Content {
            properties: front.properties,
            // `StoredMessage::encode` rejects keys that are not text.
            application_properties: front.application_properties.into_iter().filter_map(named).collect(),
            body,
        }
    }
}

impl StoredMessage<'_> {
    /// Decodes the message with the changes of its patch. For a large message, call
    /// [`without_body`](Self::without_body) first.
    pub fn content(&self, patch: &Patch) -> Result<Content, DecodeError> {
        let sections = Sections::scan(self.bare())?;
        let mut front = Rewritten::of(&sections)?;
        changes::apply(patch, &mut front);
        Ok(Content::new(front, sections.owned_body()?))
    }
}

impl StoredEvent<'_> {
    /// Decodes the event.
    pub fn content(&self) -> Result<Content, DecodeError> {
        let sections = Sections::scan(self.bare())?;
        Ok(Content::new(Rewritten::of(&sections)?, sections.owned_body()?))
    }
}

#[cfg(test)]
mod tests {
    use bytes::{BufMut, BytesMut};
    use peeklock_amqp::{Encode, Fields, Message, Sections};
    use peeklock_engine::{MessageState, PatchPart};
    use peeklock_filter::{self as filter, Change, Changes};
    use peeklock_types::{BodyRef, SequenceNumber, Timestamp};

    use super::*;
    use crate::outgoing::encode_whole;

    fn stored(message: &Message) -> BytesMut {
        let mut out = BytesMut::new();
        StoredMessage::encode(&mut out, &Sections::scan(&message.to_bytes()).unwrap(), None).unwrap();
        out
    }

    fn message_with(patch: Patch) -> peeklock_engine::Message {
        peeklock_engine::Message {
            sequence_number: SequenceNumber(1),
            body: BodyRef::from_raw(0),
            size_bytes: 1,
            delivery_count: 0,
            enqueued_at: Timestamp::from_millis(5),
            locked_until: None,
            state: MessageState::Active,
            is_activated: false,
            class: None,
            tenant: None,
            patch,
            details: None,
        }
    }

    fn of_message(message: Message) -> Content {
        let Message { properties, application_properties, body, .. } = message;
        Content { properties, application_properties, body }
    }

    fn patches() -> Vec<Patch> {
        let properties = |entries: Vec<(Value, Value)>| PatchPart::Properties(Value::Map(entries).to_bytes());
        let settled = properties(vec![("colour".into(), "blue".into()), ("new".into(), 1.into())]);
        let again = properties(vec![("new".into(), 2.into())]);
        let dead = PatchPart::DeadLetter { reason: Some("late".to_owned()), description: None };
        let set = Change::SetUser { name: "COLOUR".to_owned(), value: filter::Value::text("green") };
        let action = PatchPart::Changes(Changes::encode(&[set]));
        [
            vec![],
            vec![settled.clone()],
            vec![settled.clone(), again, dead.clone()],
            vec![settled, action, dead],
        ]
        .into_iter()
        .map(|parts| Patch { parts })
        .collect()
    }

    #[test]
    fn the_content_equals_the_content_of_a_delivery() {
        let named = || Message::data("body").with_message_id("id").with_property("size", 7);
        let messages = [
            named().with_property("colour", "red"),
            Message { footer: Fields::new().with("sum", 3), ..named() },
            Message::value(Value::List(vec![Value::Null, "x".into()])).with_message_id("id"),
            Message { body: Body::Sequence(vec![vec![1.into()], vec![]]), ..named() },
            Message::default(),
        ];
        for message in messages {
            let stored = stored(&message);
            for patch in patches() {
                let found = StoredMessage::parse(&stored).unwrap().content(&patch).unwrap();
                let delivered = encode_whole(&message_with(patch), None, &stored, false).unwrap();
                assert_eq!(found, of_message(Message::decode(&delivered).unwrap()));
            }
        }
    }

    #[test]
    fn the_content_of_an_event_equals_the_message_of_its_sender() {
        let sent = Message::data("body").with_message_id("id").with_property("p", 1);
        let mut out = BytesMut::new();
        let encoded = sent.to_bytes();
        StoredEvent::encode(&mut out, &Sections::scan(&encoded).unwrap(), Some("key")).unwrap();
        let event = StoredEvent::parse(&out).unwrap();
        assert_eq!(event.content().unwrap(), of_message(sent));
        assert_eq!(event.partition_key(), Some("key"));
        out.put_u8(0);
        assert!(StoredEvent::parse(&out).unwrap().content().is_err());
    }
}
