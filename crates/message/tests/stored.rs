//! The stored form of a message, and the delivery written from it.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

#[path = "../../amqp/tests/recorded/mod.rs"]
mod recorded;
#[path = "../../amqp/tests/strategy/mod.rs"]
mod strategy;

use bytes::{BufMut, BytesMut};
use peeklock_amqp::{
    DecodeError, Encode, Fields, Header, Message, MessageId, Problem, Properties, Sections, Text, Value,
};
use peeklock_message::{Lifetime, Stamp, StoredMessage};
use proptest::collection::vec;
use proptest::prelude::*;
use recorded::{listed_messages, sent_messages};

fn store(message: &[u8], id: Option<&str>) -> Result<BytesMut, DecodeError> {
    let mut stored = BytesMut::new();
    StoredMessage::encode(&mut stored, &Sections::scan(message)?, id)?;
    Ok(stored)
}

fn deliver(stored: &[u8], stamp: &Stamp<'_>) -> Message {
    let mut out = BytesMut::new();
    StoredMessage::parse(stored).unwrap().write_delivery(&mut out, stamp).unwrap();
    Message::decode(&out).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_delivery_contains_the_senders_values(message in strategy::message::message()) {
        let stored = store(&message.to_bytes(), None).unwrap();
        let delivered = deliver(&stored, &Stamp::default());
        prop_assert_eq!(&delivered.properties, &message.properties);
        prop_assert_eq!(&delivered.application_properties, &message.application_properties);
        prop_assert_eq!(&delivered.body, &message.body);
        prop_assert_eq!(&delivered.footer, &message.footer);
        let senders: Fields = delivered.message_annotations.into_iter().skip(2).collect();
        prop_assert_eq!(&senders, &message.message_annotations);
        let (header, sent) = (delivered.header.unwrap(), message.header.unwrap_or_default());
        prop_assert_eq!(header, Header { delivery_count: Some(0), ..sent });
        prop_assert_eq!(&delivered.delivery_annotations, &message.delivery_annotations);
    }

    #[test]
    fn a_message_without_an_id_gets_one_and_keeps_the_rest(message in strategy::message::message()) {
        let delivered = deliver(&store(&message.to_bytes(), Some("given")).unwrap(), &Stamp::default());
        let id = message.properties.message_id.clone().unwrap_or_else(|| "given".into());
        prop_assert_eq!(delivered.properties, Properties { message_id: Some(id), ..message.properties });
        prop_assert_eq!(delivered.body, message.body);
    }

    #[test]
    fn any_bytes_are_stored_or_rejected(bytes in vec(any::<u8>(), 0..120)) {
        let _ = store(&bytes, Some("id"));
        let _ = StoredMessage::parse(&bytes);
    }
}

#[test]
fn a_delivery_is_stamped_byte_for_byte() {
    let stored = store(b"\x00\x53\x75\xa0\x02hi", Some("0123456789abcdef0123456789abcdef")).unwrap();
    let stamp = Stamp {
        delivery_count: 2,
        sequence_number: 7,
        enqueued_at_ms: 1000,
        locked_until_ms: Some(2000),
        message_state: 1,
        enqueue_sequence_number: 3,
        lock_token: Some([9; 16]),
        ..Stamp::default()
    };
    let mut out = BytesMut::new();
    StoredMessage::parse(&stored).unwrap().write_delivery(&mut out, &stamp).unwrap();
    let mut expected = BytesMut::new();
    expected.put_slice(b"\x00\x53\x70\xc0\x07\x05\x40\x40\x40\x40\x52\x02");
    expected.put_slice(b"\x00\x53\x71\xc1\x24\x02\xa3\x10x-opt-lock-token\x98");
    expected.put_slice(&[9; 16]);
    expected.put_slice(b"\x00\x53\x72\xc1\x9b\x0a\xa3\x15x-opt-sequence-number\x81\0\0\0\0\0\0\0\x07");
    expected.put_slice(b"\xa3\x13x-opt-enqueued-time\x83\0\0\0\0\0\0\x03\xe8");
    expected.put_slice(b"\xa3\x12x-opt-locked-until\x83\0\0\0\0\0\0\x07\xd0");
    expected.put_slice(b"\xa3\x13x-opt-message-state\x54\x01");
    expected.put_slice(b"\xa3\x1dx-opt-enqueue-sequence-number\x81\0\0\0\0\0\0\0\x03");
    expected.put_slice(b"\x00\x53\x73\xc0\x23\x01\xa1\x200123456789abcdef0123456789abcdef");
    expected.put_slice(b"\x00\x53\x75\xa0\x02hi");
    assert_eq!(out, expected);
}

#[test]
fn the_broker_overrides_annotations_of_a_sender() {
    let message = Message {
        delivery_annotations: Fields::new()
            .with("x-opt-lock-token", Value::Uuid([1; 16]))
            .with("mine", "for the receiver"),
        message_annotations: Fields::new()
            .with("x-opt-sequence-number", Value::Long(999))
            .with("x-opt-partition-key", "pk")
            .with("x-opt-peeklock-class", "high")
            .with("x-opt-peeklock-tenant", "somebody else")
            .with("x-opt-locked-until", Value::Timestamp(1)),
        header: Some(Header {
            ttl: Some(5),
            delivery_count: Some(42),
            durable: Some(false),
            ..Header::default()
        }),
        ..Message::data("x")
    };
    let stored = store(&message.to_bytes(), None).unwrap();
    let parsed = StoredMessage::parse(&stored).unwrap();
    assert_eq!(parsed.annotations().get_str("x-opt-partition-key").unwrap(), Some("pk"));
    assert_eq!(parsed.annotations().entry_count(), 1);

    let stamp = Stamp {
        sequence_number: 1,
        lock_token: Some([9; 16]),
        lifetime: Some(Lifetime { time_to_live_ms: 3, from_ms: 1, until_ms: 4 }),
        dead_letter_source: Some("orders"),
        class: Some("low"),
        ..Stamp::default()
    };
    let delivered = deliver(&stored, &stamp);
    let header = delivered.header.unwrap();
    assert_eq!((header.durable, header.ttl, header.delivery_count), (Some(false), Some(3), Some(0)));
    let expected =
        Fields::new().with("x-opt-lock-token", Value::Uuid([9; 16])).with("mine", "for the receiver");
    assert_eq!(delivered.delivery_annotations, expected, "a sender's lock token is dropped");
    let annotations = delivered.message_annotations;
    assert_eq!(annotations.get("x-opt-sequence-number"), Some(&Value::Long(1)));
    assert_eq!(annotations.get("x-opt-locked-until"), None, "omitted for a message that is not locked");
    assert_eq!(annotations.get("x-opt-deadletter-source"), Some(&Value::from("orders")));
    assert_eq!(annotations.get("x-opt-partition-key"), Some(&Value::from("pk")));
    assert_eq!(annotations.get("x-opt-peeklock-class"), Some(&Value::from("low")));
    assert_eq!(annotations.get("x-opt-peeklock-tenant"), None);
    assert_eq!(annotations.get("x-opt-message-state"), None, "omitted for an active message");
    assert_eq!(annotations.len(), 5);
}

#[test]
fn a_patch_is_merged_into_the_application_properties() {
    let message = Message::data("x").with_property("kept", 1).with_property("DeadLetterReason", "old");
    let stored = store(&message.to_bytes(), Some("id")).unwrap();
    let patch =
        Value::Map(vec![("DeadLetterReason".into(), "new".into()), ("added".into(), true.into())]).to_bytes();
    let delivered = deliver(&stored, &Stamp { patch: Some(&patch), ..Stamp::default() });
    let expected: Vec<(Text, Value)> = vec![
        ("kept".into(), 1.into()),
        ("DeadLetterReason".into(), "new".into()),
        ("added".into(), true.into()),
    ];
    assert_eq!(delivered.application_properties, expected);
    assert_eq!(delivered.body, message.body);
    assert_eq!(delivered.properties.message_id, Some("id".into()));

    let bare = store(b"", None).unwrap();
    let delivered = deliver(&bare, &Stamp { patch: Some(&patch), ..Stamp::default() });
    assert_eq!(
        delivered.application_properties.len(),
        2,
        "also without application properties in the message"
    );
}

#[test]
fn the_broker_states_the_expiry_of_a_message() {
    let full = Properties {
        absolute_expiry_time: Some(1),
        creation_time: Some(2),
        group_id: Some("g".into()),
        ..Properties::default()
    };
    let short = Properties { to: Some("t".into()), ..Properties::default() };
    let patch = Value::Map(vec![("added".into(), true.into())]).to_bytes();
    for properties in [full, short, Properties::default()] {
        let message = Message { properties, ..Message::data("x").with_property("kept", 1) };
        let stored = store(&message.to_bytes(), Some("id")).unwrap();
        for patch in [None, Some(&patch[..])] {
            let lifetime = Some(Lifetime { time_to_live_ms: 7, from_ms: 70, until_ms: 77 });
            let delivered = deliver(&stored, &Stamp { lifetime, patch, ..Stamp::default() });
            let expected = Properties {
                message_id: Some("id".into()),
                absolute_expiry_time: Some(77),
                creation_time: Some(70),
                ..message.properties.clone()
            };
            assert_eq!(delivered.properties, expected);
            assert_eq!(delivered.body, message.body);
            assert_eq!(delivered.application_properties.len(), 1 + usize::from(patch.is_some()));
        }
    }
    let bare = store(b"\x00\x53\x75\xa0\x01x", None).unwrap();
    let lifetime = Some(Lifetime { time_to_live_ms: 7, from_ms: 70, until_ms: 77 });
    let delivered = deliver(&bare, &Stamp { lifetime, ..Stamp::default() });
    assert_eq!(delivered.properties.absolute_expiry_time, Some(77), "also without properties in the message");
    assert_eq!(delivered.body, Message::data("x").body);
}

/// SDKs compute the time to live as the difference of the two times.
#[test]
fn expiry_and_creation_are_delivered_as_sent_if_both_are_present_and_match_the_time_to_live() {
    const DAY_MS: i64 = 86_400_000;
    let times_of = |header_ttl: u32, sent: (Option<i64>, Option<i64>), time_to_live_ms: i64| {
        let properties =
            Properties { absolute_expiry_time: sent.0, creation_time: sent.1, ..Properties::default() };
        let header = Some(Header { ttl: Some(header_ttl), ..Header::default() });
        let stored = store(&Message { header, properties, ..Message::data("x") }.to_bytes(), None).unwrap();
        let (from_ms, until_ms) = (1000, 1000 + time_to_live_ms);
        let time_to_live_ms = time_to_live_ms.try_into().unwrap();
        let lifetime = Some(Lifetime { time_to_live_ms, from_ms, until_ms });
        let delivered = deliver(&stored, &Stamp { lifetime, ..Stamp::default() });
        let times = (delivered.properties.absolute_expiry_time, delivered.properties.creation_time);
        (delivered.header.unwrap().ttl.unwrap(), times)
    };
    let both = (Some(62), Some(2));
    assert_eq!(times_of(60, both, 60), (60, both));
    assert_eq!(times_of(60, both, 50), (50, (Some(1050), Some(1000))), "the queue permits less");
    assert_eq!(times_of(60, (Some(62), None), 60), (60, (Some(1060), Some(1000))));
    assert_eq!(times_of(60, (None, Some(2)), 60), (60, (Some(1060), Some(1000))));
    let hundred_days = (Some(100 * DAY_MS + 2), Some(2));
    assert_eq!(times_of(u32::MAX, hundred_days, 100 * DAY_MS), (u32::MAX, hundred_days));
    let ninety_days = (Some(90 * DAY_MS + 1000), Some(1000));
    assert_eq!(times_of(u32::MAX, hundred_days, 90 * DAY_MS), (u32::MAX, ninety_days));
}

#[test]
fn an_invalid_patch_leaves_the_output_unchanged() {
    let stored = store(&Message::data("x").to_bytes(), None).unwrap();
    let mut out = BytesMut::from(&b"before"[..]);
    let stamp = Stamp { patch: Some(&[0x45]), ..Stamp::default() };
    assert!(StoredMessage::parse(&stored).unwrap().write_delivery(&mut out, &stamp).is_err());
    assert_eq!(out, b"before"[..]);
}

#[test]
fn a_message_that_a_delivery_could_not_decode_is_rejected() {
    let mut out = BytesMut::from(&b"before"[..]);
    let bad: [&[u8]; 5] = [
        b"\x00\x53\x74\xc1\x03\x02\x43\x43", // a key that is a number
        b"\x00\x53\x74\xc1\x02\x02\x40",     // a missing value
        b"\x00\x53\x72\xc1\x03\x02\x43\x43", // a numeric key in annotations
        b"\x00\x53\x73\xc0\x02\x01\x41",     // a message-id that is a boolean
        b"\x00\x53\x70\xc0\x03\x02\x41\x41", // a priority that is a boolean
    ];
    for message in bad {
        let sections = Sections::scan(message).unwrap();
        assert!(StoredMessage::encode(&mut out, &sections, Some("id")).is_err(), "{message:02x?}");
        assert_eq!(out, b"before"[..]);
    }
}

#[test]
fn a_stored_form_that_is_truncated_or_of_another_version_is_rejected() {
    let mut stored = store(&Message::data("x").to_bytes(), None).unwrap();
    assert!(StoredMessage::parse(&stored[..12]).is_err());
    stored[0] = 9;
    assert_eq!(StoredMessage::parse(&stored).unwrap_err().problem(), Problem::BadStoredForm);
}

#[test]
fn sections_with_symbolic_descriptors_are_stored_with_numeric_ones() {
    let mut message = BytesMut::new();
    for (name, value) in [("amqp:data:binary", &b"\xa0\x01a"[..]), ("amqp:data:binary", b"\xa0\x01b")] {
        message.put_slice(&[0x00, 0xa3, u8::try_from(name.len()).unwrap()]);
        message.put_slice(name.as_bytes());
        message.put_slice(value);
    }
    let stored = store(&message, None).unwrap();
    assert_eq!(StoredMessage::parse(&stored).unwrap().bare(), b"\x00\x53\x75\xa0\x01a\x00\x53\x75\xa0\x01b");
}

#[test]
fn many_annotations_use_the_wide_map_encoding() {
    let mut message = Message::data("x");
    for number in 0..200 {
        message
            .message_annotations
            .insert(peeklock_amqp::Symbol::parse(&format!("key-{number}")).unwrap(), Value::Int(number));
    }
    let delivered = deliver(&store(&message.to_bytes(), None).unwrap(), &Stamp::default());
    assert_eq!(delivered.message_annotations.len(), 202);
}

/// SDK quirk: JavaScript sends the null body of an event this way.
#[test]
fn a_null_in_a_body_section_is_stored() {
    for message in [&b"\x00\x53\x75\x40"[..], b"\x00\x53\x76\x40"] {
        let stored = store(message, None).unwrap();
        assert_eq!(StoredMessage::parse(&stored).unwrap().bare(), message);
    }
}

#[test]
fn null_sections_are_stored_like_missing_ones() {
    let nulls =
        b"\x00\x53\x70\x40\x00\x53\x71\x40\x00\x53\x72\x40\x00\x53\x73\x40\x00\x53\x74\x40\x00\x53\x78\x40";
    let delivered = deliver(&store(nulls, Some("id")).unwrap(), &Stamp::default());
    assert_eq!(delivered.properties.message_id, Some("id".into()));
}

#[test]
fn every_message_is_unchanged_by_storage_and_delivery() {
    let names = ["js-servicebus", "python-servicebus-send", "rhea-server"];
    let sent =
        names.into_iter().flat_map(sent_messages).chain(listed_messages().into_iter().map(|(_, it)| it));
    for mut message in sent {
        let mut stored = BytesMut::new();
        StoredMessage::encode(&mut stored, &Sections::scan(&message).unwrap(), Some("generated")).unwrap();
        let mut delivered = BytesMut::new();
        StoredMessage::parse(&stored).unwrap().write_delivery(&mut delivered, &Stamp::default()).unwrap();
        // Decimals are delivered in the encoding that all SDKs decode.
        if let Some(at) = message.windows(2).position(|bytes| bytes == [0x94, 0x30]) {
            message[at + 1] = 0x0c;
        }
        let (before, after) = (Message::decode(&message).unwrap(), Message::decode(&delivered).unwrap());
        assert_eq!(after.body, before.body);
        assert_eq!(after.application_properties, before.application_properties);
        assert_eq!(after.footer, before.footer);
        let id = before.properties.message_id.unwrap_or_else(|| MessageId::from("generated"));
        assert_eq!(after.properties.message_id, Some(id));
    }
}
