//! The form in which the broker stores an event of a hub.
//!
//! As for messages, the sender's annotations are stored separately, so that a delivery consists of new annotations
//! followed by unchanged bytes. The header of an event belongs to the sender and is stored unchanged.
//!
//! ```text
//! 0        1           3              5              9
//! version  header      annotation     annotations    header, annotations, delivery annotations, bare message
//!          bytes, u16  pairs, u16     bytes, u32
//! ```
//!
//! An event with delivery annotations, which is rare, has another version; the annotations are preceded by their length
//! and number, as in a message.

use bytes::{BufMut, BytesMut};

use peeklock_amqp::codec::{
    CompoundWriter, STRING8, length_u32, mend_decimals, put_counted, put_descriptor, section,
};
use peeklock_amqp::{DecodeError, Problem, RawMap, Sections};

use crate::stored::{Annotations, put_body, put_delivery_annotations, put_mended, put_raw};

const VERSION: u8 = 2;
const VERSION_ANNOTATED: u8 = 3;
const PREFIX_LEN: usize = 9;
/// Capacity for all bytes before the bare message, apart from the sender's annotations.
const FRONT_LEN_MAX: usize = 128;

const PARTITION_KEY: &str = "x-opt-partition-key";

/// Annotations that are not copied from the sender: those that only the broker writes, and those addressed to the
/// broker. The partition key is written separately.
const LEFT_OUT: [&[u8]; 7] = [
    PARTITION_KEY.as_bytes(),
    b"x-opt-sequence-number",
    b"x-opt-offset",
    b"x-opt-enqueued-time",
    b"com.microsoft:producer-id",
    b"com.microsoft:producer-epoch",
    b"com.microsoft:producer-sequence-number",
];

/// Delivery annotations that describe the partition's last event. Only the broker writes them.
const OWNED_OF_DELIVERY: [&[u8]; 4] = [
    b"last_enqueued_sequence_number",
    b"last_enqueued_offset",
    b"last_enqueued_time_utc",
    b"runtime_info_retrieval_time_utc",
];

// Keys as encoded symbols, each with the format code of the value that follows it.
const SEQUENCE_NUMBER: &[u8] = b"\xa3\x15x-opt-sequence-number\x81";
const OFFSET: &[u8] = b"\xa3\x0cx-opt-offset";
const ENQUEUED_TIME: &[u8] = b"\xa3\x13x-opt-enqueued-time\x83";
const ENCODED_PARTITION_KEY: &[u8] = b"\xa3\x13x-opt-partition-key";

/// A stored event, parsed.
#[derive(Debug, Clone, Copy)]
pub struct StoredEvent<'a> {
    header: &'a [u8],
    annotations: Annotations<'a>,
    delivery_annotations: Annotations<'a>,
    bare: &'a [u8],
}

/// The values that the broker adds to an event.
#[derive(Debug, Clone, Copy)]
pub struct EventStamp<'a> {
    pub sequence: u64,
    pub enqueued_at_ms: i64,
    /// The broker's delivery annotations: the content of an encoded map, see [`RawMap::content`].
    pub delivery_annotations: RawMap<'a>,
}

impl<'a> StoredEvent<'a> {
    /// Appends the stored form of a sender's event, with `partition_key` in place of the sender's partition key. After
    /// an error, the appended bytes are unusable.
    pub fn encode(
        out: &mut BytesMut,
        sections: &Sections<'_>,
        partition_key: Option<&str>,
    ) -> Result<(), DecodeError> {
        let start = out.len();
        out.put_slice(&[0; PREFIX_LEN]);
        sections.header()?;
        put_raw(out, section::HEADER, sections.raw_header());
        let header_len = out.len() - start - PREFIX_LEN;
        let count = put_annotations(out, sections.message_annotations()?, partition_key)?;
        let annotations = start + PREFIX_LEN + header_len;
        let annotations_len = out.len() - annotations;
        mend_decimals(&mut out[annotations..]);
        let is_annotated =
            put_delivery_annotations(out, sections.delivery_annotations()?, &OWNED_OF_DELIVERY)?;
        let prefix = prefix(is_annotated, header_len, count, annotations_len)?;
        out[start..start + PREFIX_LEN].copy_from_slice(&prefix);
        put_raw(out, section::PROPERTIES, sections.raw_properties());
        put_mended(out, section::APPLICATION_PROPERTIES, sections.raw_application_properties());
        put_body(out, sections);
        put_raw(out, section::FOOTER, sections.raw_footer());
        Ok(())
    }

    /// Decodes the prefix. The rest is not checked again, because `encode` has checked it.
    pub fn parse(stored: &'a [u8]) -> Result<Self, DecodeError> {
        let bad = || DecodeError::new(0, Problem::BadStoredForm);
        let (prefix, rest) = stored.split_first_chunk::<PREFIX_LEN>().ok_or_else(bad)?;
        let [version, h0, h1, c0, c1, a0, a1, a2, a3] = *prefix;
        if version != VERSION && version != VERSION_ANNOTATED {
            return Err(bad());
        }
        let header_len = usize::from(u16::from_be_bytes([h0, h1]));
        let annotations_len = usize::try_from(u32::from_be_bytes([a0, a1, a2, a3])).map_err(|_| bad())?;
        let (header, rest) = rest.split_at_checked(header_len).ok_or_else(bad)?;
        let (entries, rest) = rest.split_at_checked(annotations_len).ok_or_else(bad)?;
        let (delivery_annotations, bare) = match version {
            VERSION_ANNOTATED => Annotations::split_from(rest).ok_or_else(bad)?,
            _ => (Annotations::default(), rest),
        };
        let annotations = Annotations { count: u16::from_be_bytes([c0, c1]), entries };
        Ok(Self { header, annotations, delivery_annotations, bare })
    }

    /// Returns the properties, application properties, body and footer, in this order.
    pub fn bare(&self) -> &'a [u8] {
        self.bare
    }

    /// Returns the sender's annotations and the partition key.
    pub fn annotations(&self) -> RawMap<'a> {
        RawMap::from_content(u32::from(self.annotations.count) * 2, self.annotations.entries)
    }

    /// Returns the partition key of the event.
    pub fn partition_key(&self) -> Option<&'a str> {
        self.annotations().get_str(PARTITION_KEY).ok().flatten()
    }

    /// Appends the sections that precede the bare message in a delivery to a reader, and returns the bare message.
    pub fn write_front(&self, out: &mut BytesMut, stamp: &EventStamp<'_>) -> &'a [u8] {
        let annotations_len = self.annotations.entries.len() + self.delivery_annotations.entries.len();
        let sender_len = self.header.len() + annotations_len;
        out.reserve(FRONT_LEN_MAX + sender_len + stamp.delivery_annotations.content().len());
        out.put_slice(self.header);
        self.put_delivery_annotations(out, stamp.delivery_annotations);
        put_descriptor(out, section::MESSAGE_ANNOTATIONS);
        let map = CompoundWriter::map(out);
        out.put_slice(SEQUENCE_NUMBER);
        out.put_u64(stamp.sequence);
        out.put_slice(OFFSET);
        let mut digits = [0; DIGITS_MAX];
        put_counted(out, STRING8, decimal(stamp.sequence, &mut digits));
        out.put_slice(ENQUEUED_TIME);
        out.put_i64(stamp.enqueued_at_ms);
        out.put_slice(self.annotations.entries);
        map.finish(out, (usize::from(self.annotations.count) + 3) * 2);
        self.bare
    }

    /// Appends the delivery annotations of the broker and the sender as one section; omits the section if there are
    /// none.
    fn put_delivery_annotations(&self, out: &mut BytesMut, brokers: RawMap<'_>) {
        let senders = self.delivery_annotations;
        if brokers.is_empty() && senders.count == 0 {
            return;
        }
        put_descriptor(out, section::DELIVERY_ANNOTATIONS);
        let map = CompoundWriter::map(out);
        out.put_slice(brokers.content());
        out.put_slice(senders.entries);
        map.finish(out, (brokers.entry_count() + usize::from(senders.count)) * 2);
    }
}

fn prefix(
    is_annotated: bool,
    header_len: usize,
    annotation_count: u16,
    annotations_len: usize,
) -> Result<[u8; PREFIX_LEN], DecodeError> {
    let limit = u16::MAX.into();
    let too_long = |len| DecodeError::new(0, Problem::TooMany { count: length_u32(len), limit });
    let [h0, h1] = u16::try_from(header_len).map_err(|_| too_long(header_len))?.to_be_bytes();
    let [c0, c1] = annotation_count.to_be_bytes();
    let [a0, a1, a2, a3] = length_u32(annotations_len).to_be_bytes();
    let version = if is_annotated { VERSION_ANNOTATED } else { VERSION };
    Ok([version, h0, h1, c0, c1, a0, a1, a2, a3])
}

/// Copies the annotations that a sender is permitted to write, adds the key, and returns the number of annotations.
fn put_annotations(out: &mut BytesMut, map: RawMap<'_>, key: Option<&str>) -> Result<u16, DecodeError> {
    let mut count: usize = 0;
    for entry in map.entries() {
        let entry = entry?;
        if !LEFT_OUT.contains(&entry.key.decode_str()?.as_bytes()) {
            out.put_slice(entry.as_encoded());
            count += 1;
        }
    }
    if let Some(key) = key {
        out.put_slice(ENCODED_PARTITION_KEY);
        put_counted(out, STRING8, key.as_bytes());
        count += 1;
    }
    let limit = u16::MAX.into();
    u16::try_from(count)
        .map_err(|_| DecodeError::new(0, Problem::TooMany { count: length_u32(count), limit }))
}

const DIGITS_MAX: usize = 20;

/// Writes a decimal number. The standard formatter would take as long as the rest of a small event.
fn decimal(mut number: u64, digits: &mut [u8; DIGITS_MAX]) -> &[u8] {
    let mut at = DIGITS_MAX;
    for digit in digits.iter_mut().rev() {
        let rest = (number % 10) as u8;
        *digit = b'0' + rest;
        number /= 10;
        at -= 1;
        if number == 0 {
            break;
        }
    }
    digits.get(at..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use peeklock_amqp::{Encode, Fields, Header, Message, Value};

    use super::*;

    fn stored(message: &Message, key: Option<&str>) -> BytesMut {
        let mut out = BytesMut::new();
        StoredEvent::encode(&mut out, &Sections::scan(&message.to_bytes()).unwrap(), key).unwrap();
        out
    }

    fn delivered(stored: &[u8], brokers: &Fields) -> Message {
        let mut out = BytesMut::new();
        let event = StoredEvent::parse(stored).unwrap();
        let encoded = brokers.to_bytes();
        let delivery_annotations = RawMap::parse(&encoded).unwrap();
        let stamp = EventStamp { sequence: 1234, enqueued_at_ms: 5, delivery_annotations };
        let rest = event.write_front(&mut out, &stamp);
        out.put_slice(rest);
        Message::decode(&out).unwrap()
    }

    fn stamps() -> Fields {
        Fields::new()
            .with("x-opt-sequence-number", 1234_i64)
            .with("x-opt-offset", "1234")
            .with("x-opt-enqueued-time", Value::Timestamp(5))
    }

    #[test]
    fn an_event_is_delivered_unchanged_apart_from_the_brokers_annotations() {
        let sent = Message {
            header: Some(Header { durable: Some(true), ttl: Some(7), ..Header::default() }),
            message_annotations: Fields::new()
                .with("x-opt-partition-key", "forged")
                .with("x-opt-offset", "forged")
                .with("com.microsoft:producer-id", 5_i64)
                .with("mine", 3),
            delivery_annotations: Fields::new().with("for-the-reader", "note"),
            ..Message::data("body").with_message_id("id").with_property("p", 1)
        };
        let found = delivered(&stored(&sent, Some("key")), &Fields::new());
        let expected = stamps().with("mine", 3).with("x-opt-partition-key", "key");
        assert_eq!(found, Message { message_annotations: expected, ..sent });
    }

    #[test]
    fn a_plain_event_gets_three_annotations_and_those_of_the_delivery() {
        let stored = stored(&Message::data("body"), None);
        assert_eq!(stored.len(), PREFIX_LEN + 9);
        let fields = Fields::new().with("last_enqueued_offset", "9");
        let found = delivered(&stored, &fields);
        assert_eq!(found.message_annotations, stamps());
        assert_eq!(found.delivery_annotations, fields);
        assert_eq!(found.header, None);
    }

    #[test]
    fn the_brokers_delivery_annotations_take_precedence() {
        let forged = Fields::new().with("last_enqueued_offset", "1").with("mine", 3);
        let sent = Message { delivery_annotations: forged, ..Message::data("body") };
        let brokers = Fields::new().with("last_enqueued_offset", "9");
        let found = delivered(&stored(&sent, None), &brokers);
        assert_eq!(found.delivery_annotations, brokers.with("mine", 3));
        let forged = Fields::new().with("last_enqueued_offset", "1");
        let sent = Message { delivery_annotations: forged, ..Message::data("body") };
        assert_eq!(delivered(&stored(&sent, None), &Fields::new()).delivery_annotations, Fields::new());
    }

    #[test]
    fn a_damaged_event_is_an_error() {
        let stored = stored(&Message::data("body"), Some("key"));
        for len in 0..PREFIX_LEN + 10 {
            assert!(StoredEvent::parse(&stored[..len]).is_err(), "{len}");
        }
        assert!(StoredEvent::parse(&[9; 40]).is_err());
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 9, 10, 12_345, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; DIGITS_MAX]), number.to_string().as_bytes());
        }
    }
}
