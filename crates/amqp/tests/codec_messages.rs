//! Messages: sections in any order, and batches.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod strategy;

use bytes::Bytes;
use peeklock_amqp::{
    BATCH_FORMAT, Batch, BatchBuilder, Body, BodyKind, Encode, Message, MessageId, MessageIdRef, Problem,
    Properties, Sections, Text, Value, is_batch,
};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_message_survives_a_round_trip(message in strategy::message::message()) {
        prop_assert_eq!(Message::decode(&message.to_bytes()).unwrap(), message);
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in vec(any::<u8>(), 0..120)) {
        let _ = Message::decode(&bytes);
        let _ = Batch::new(&bytes).count();
    }

    #[test]
    fn a_batch_is_split_into_its_messages(messages in vec(strategy::bytes(), 0..6)) {
        let mut batch = BatchBuilder::with_partition_key(1 << 20, &Text::from("key"));
        prop_assert!(messages.iter().all(|message| batch.try_add(message)));
        prop_assert_eq!(batch.message_count(), messages.len());
        let payload = batch.finish();
        let split: Vec<&[u8]> = Batch::new(&payload).collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(split, messages);
        let envelope = Sections::scan(&payload).unwrap().message_annotations().unwrap();
        prop_assert_eq!(envelope.get_str("x-opt-partition-key").unwrap(), Some("key"));
    }
}

/// SDK quirk: JavaScript sends the null body of an event in this form.
#[test]
fn a_null_in_a_body_section_is_an_empty_part() {
    assert_eq!(Message::decode(b"\x00\x53\x75\x40").unwrap().body, Body::Data(vec![Bytes::new()]));
    assert_eq!(Message::decode(b"\x00\x53\x76\x40").unwrap().body, Body::Sequence(vec![Vec::new()]));
}

#[test]
fn empty_and_null_sections_mean_nothing() {
    let empty = b"\x00\x53\x70\x45\x00\x53\x72\xd1\0\0\0\x04\0\0\0\0\x00\x53\x73\x45\x00\x53\x75\xa0\x00";
    let message = Message::decode(empty).unwrap();
    assert_eq!(message, Message::data(Bytes::new()));
    let nulls =
        b"\x00\x53\x70\x40\x00\x53\x71\x40\x00\x53\x72\x40\x00\x53\x73\x40\x00\x53\x74\x40\x00\x53\x78\x40";
    assert_eq!(Message::decode(nulls).unwrap(), Message::default());
    assert_eq!(Sections::scan(b"").unwrap().body_kind(), BodyKind::None);
}

#[test]
fn impossible_messages_are_rejected_by_name() {
    let problem = |message: &[u8]| Sections::scan(message).unwrap_err().problem();
    assert_eq!(problem(b"\x00\x53\x70\x45\x00\x53\x70\x45"), Problem::DuplicateSection { section: "header" });
    assert_eq!(
        problem(b"\x00\x53\x77\x40\x00\x53\x77\x40"),
        Problem::DuplicateSection { section: "amqp-value" }
    );
    assert_eq!(problem(b"\x00\x53\x75\xa0\x00\x00\x53\x77\x40"), Problem::MixedBody);
    assert_eq!(problem(b"\x00\x53\x75\xa0\x00\x00\x53\x70\x45\x00\x53\x75\xa0\x00"), Problem::SplitBody);
    assert!(matches!(problem(b"\x00\x53\x79\x40"), Problem::UnknownDescriptor { code: 0x79, .. }));
    assert!(matches!(problem(b"\x00\x53\x75\xa1\x00"), Problem::Unexpected { code: 0xa1, .. }));
    assert!(matches!(problem(b"\x00\x53\x76\xa0\x00"), Problem::Unexpected { code: 0xa0, .. }));
    assert!(matches!(problem(b"\x00\x53\x75\xa0\x05x"), Problem::Truncated { .. }));
    assert!(matches!(problem(b"\x40"), Problem::Unexpected { .. }));
}

#[test]
fn properties_are_read_in_place() {
    let message = Message {
        properties: Properties {
            message_id: Some(MessageId::Uuid([1; 16])),
            group_id: Some("session".into()),
            creation_time: Some(5),
            ..Properties::default()
        },
        ..Message::value("v")
    };
    let encoded = message.to_bytes();
    let sections = Sections::scan(&encoded).unwrap();
    let properties = sections.properties().unwrap();
    assert_eq!(properties.message_id, Some(MessageIdRef::Uuid([1; 16])));
    assert_eq!(properties.group_id, Some("session"));
    assert_eq!(properties.creation_time, Some(5));
    assert_eq!(sections.value().unwrap().as_str(), Some("v"));
}

#[test]
fn application_properties_are_found_without_decoding_the_others() {
    let message = Message::data("x")
        .with_property("first", Value::List(vec![Value::Null; 3]))
        .with_property("wanted", 5);
    let encoded = message.to_bytes();
    let map = Sections::scan(&encoded).unwrap().application_properties().unwrap();
    assert_eq!(map.get("wanted").unwrap().unwrap().as_i64(), Some(5));
    assert!(map.get("missing").unwrap().is_none());
    assert_eq!(map.decode().unwrap().len(), 2);
}

#[test]
fn a_batch_fills_exactly_to_its_limit() {
    assert!(is_batch(BATCH_FORMAT) && !is_batch(0));
    let mut batch = BatchBuilder::new(5 + 255 + 8 + 256);
    assert!(batch.try_add(&[1; 255]), "five bytes around a short message");
    assert!(!batch.try_add(&[2; 257]));
    assert!(batch.try_add(&[2; 256]), "eight bytes around a longer one");
    assert_eq!(batch.size_bytes(), 524);
    assert!(!batch.try_add(&[]));
}

#[test]
fn a_batch_skips_its_envelope_and_ends_after_an_error() {
    let enveloped = b"\x00\x53\x70\x45\x00\x53\x73\x45\x00\x53\x75\xa0\x01a\x00\x53\x75\xa0\x01b";
    let messages: Vec<&[u8]> = Batch::new(enveloped).collect::<Result<_, _>>().unwrap();
    assert_eq!(messages, [b"a", b"b"]);
    assert_eq!(Batch::new(b"").count(), 0);

    let mut broken = Batch::new(b"\x00\x53\x75\xa0\x01a\x00\x53\x77\x40\x00\x53\x75\xa0\x01b");
    assert_eq!(broken.next(), Some(Ok(&b"a"[..])));
    assert_eq!(broken.next().unwrap().unwrap_err().problem(), Problem::MixedBody);
    assert_eq!(broken.next(), None, "nothing follows an error");
}
