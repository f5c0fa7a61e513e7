//! Conversion between the stored form of a message and the text of the service. Messages sent over AMQP have a text and
//! an id here, too.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{Bytes, BytesMut};
use peeklock_amqp::{Body, DecodeError, Encode, Fields, Message, MessageId, Sections, Value};
use peeklock_message::StoredMessage;
use peeklock_types::SequenceNumber;
use ring::digest::{SHA256, digest};
use uuid::fmt::Hyphenated;
use uuid::{Builder, Uuid};

/// The id of a message in the format of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Guid(pub(super) Uuid);

impl Guid {
    /// Returns a random id, version 4.
    pub(super) fn new() -> Self {
        Guid(Builder::from_random_bytes(peeklock_broker::random::u128().to_be_bytes()).into_uuid())
    }

    /// Returns an id that depends only on the input: version 8, whose bits the application defines.
    fn derived(kind: &str, of: &[u8]) -> Self {
        let hash = digest(&SHA256, &[kind.as_bytes(), of].concat());
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(hash.as_ref()).for_each(|(to, from)| *to = *from);
        Guid(Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// Parses the form with hyphens only.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let has_hyphens = text.len() == Hyphenated::LENGTH;
        has_hyphens.then(|| Uuid::try_parse(text).ok())?.map(Guid)
    }

    /// Returns the message's own id if it is a GUID, otherwise one derived from it.
    fn of(number: SequenceNumber, id: Option<&MessageId>) -> Self {
        match id {
            Some(MessageId::Uuid(bytes)) => Guid(Uuid::from_bytes(*bytes)),
            Some(MessageId::String(text)) => {
                Guid::parse(text.as_str()).unwrap_or_else(|| Guid::derived("text", text.as_str().as_bytes()))
            }
            Some(MessageId::Binary(bytes)) => Guid::derived("binary", bytes),
            Some(MessageId::Ulong(id)) => Guid::derived("ulong", &id.to_be_bytes()),
            None => Guid::derived("number", &number.0.to_be_bytes()),
        }
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Writes the stored form of a new message.
pub(super) fn store(id: Guid, text: String, out: &mut BytesMut) -> Result<(), DecodeError> {
    let message = Message::data(text).with_message_id(id.to_string()).to_bytes();
    StoredMessage::encode(out, &Sections::scan(&message)?, None)
}

/// Returns the stored form with another text. The other sections are retained, apart from a footer, which describes the
/// old body.
pub(super) fn replace(stored: &[u8], text: String) -> Result<Vec<u8>, DecodeError> {
    let bare = StoredMessage::parse(stored)?.bare();
    let mut message = Message::decode(bare)?;
    message.body = Body::Data(vec![text.into()]);
    message.footer = Fields::default();
    let front = stored.len() - bare.len();
    Ok([stored.get(..front).unwrap_or_default(), &message.to_bytes()].concat())
}

/// The values of a stored message that the service returns.
pub(super) struct Shown {
    pub(super) id: Guid,
    pub(super) text: String,
}

pub(super) fn show(number: SequenceNumber, stored: &[u8]) -> Result<Shown, DecodeError> {
    let bare = StoredMessage::parse(stored)?.bare();
    let sections = Sections::scan(bare)?;
    let id = sections.owned_properties()?.message_id;
    let text = match sections.owned_body()? {
        Body::None => String::new(),
        Body::Data(parts) => text_of(parts.concat().into()),
        Body::Value(Value::String(text)) => text_of(text.as_str().to_owned().into()),
        Body::Value(Value::Binary(bytes)) => text_of(bytes),
        Body::Value(_) | Body::Sequence(_) => BASE64.encode(sections.raw_body()),
    };
    Ok(Shown { id: Guid::of(number, id.as_ref()), text })
}

/// Returns the bytes as text if XML can contain it, otherwise in base64.
fn text_of(bytes: Bytes) -> String {
    match std::str::from_utf8(&bytes) {
        Ok(text) if text.chars().all(is_xml) => text.to_owned(),
        _ => BASE64.encode(&bytes),
    }
}

pub(super) fn is_xml(char: char) -> bool {
    matches!(char, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: SequenceNumber = SequenceNumber(7);

    fn stored(message: Message) -> Vec<u8> {
        let (bytes, mut out) = (message.to_bytes(), BytesMut::new());
        StoredMessage::encode(&mut out, &Sections::scan(&bytes).unwrap(), None).unwrap();
        out.to_vec()
    }

    fn text(message: Message) -> String {
        show(NUMBER, &stored(message)).unwrap().text
    }

    #[test]
    fn a_stored_message_is_shown() {
        let (id, mut out) = (Guid::new(), BytesMut::new());
        store(id, "häuser & <höfe>".to_owned(), &mut out).unwrap();
        let shown = show(NUMBER, &out).unwrap();
        assert_eq!((shown.id, shown.text.as_str()), (id, "häuser & <höfe>"));
        assert_eq!(Guid::parse(&id.to_string()), Some(id));
    }

    #[test]
    fn bodies_that_are_not_text_are_shown_in_base64() {
        assert_eq!(text(Message::data("plain")), "plain");
        assert_eq!(text(Message::data(vec![0xff, 0xfe])), "//4=");
        assert_eq!(text(Message::data("a\u{0}b")), BASE64.encode("a\u{0}b"));
        assert_eq!(text(Message::value("text")), "text");
        assert_eq!(text(Message::value(Value::Binary(Bytes::from_static(b"bytes")))), "bytes");
        assert_eq!(
            text(Message { body: Body::Data(vec!["a".into(), "b".into()]), ..Message::default() }),
            "ab"
        );
        assert_eq!(text(Message::default()), "");
        assert!(BASE64.decode(text(Message::value(7_u32))).is_ok());
    }

    #[test]
    fn every_message_has_a_stable_id() {
        let id = |message: Message| show(NUMBER, &stored(message)).unwrap().id;
        let guid = "c8847220-5552-4956-b654-0a7c845e0ff9";
        assert_eq!(id(Message::data("x").with_message_id(guid)).to_string(), guid);
        assert_eq!(id(Message::data("x").with_message_id(guid.to_uppercase())).to_string(), guid);
        let named = || id(Message::data("x").with_message_id("order 17"));
        assert_eq!(named(), named());
        assert_ne!(named(), id(Message::data("x").with_message_id("order 18")));
        assert_ne!(id(Message::data("x")), named());
        assert_ne!(Guid::new(), Guid::new());
        for wrong in
            ["", "c8847220", "c8847220-5552-4956-b654-0a7c845e0ffg", "c884722005552-4956-b654-0a7c845e0ff9"]
        {
            assert_eq!(Guid::parse(wrong), None);
        }
    }

    #[test]
    fn a_new_text_leaves_the_other_values_unchanged() {
        let message = Message::data("old").with_message_id("order 17").with_property("colour", "red");
        let before = stored(message);
        let after = replace(&before, "new".to_owned()).unwrap();
        let (old, new) = (show(NUMBER, &before).unwrap(), show(NUMBER, &after).unwrap());
        assert_eq!((new.id, new.text.as_str()), (old.id, "new"));
        let kept = Message::decode(StoredMessage::parse(&after).unwrap().bare()).unwrap();
        assert_eq!(kept.property("colour"), Some(&Value::from("red")));
    }
}
