//! Tests that the stored form of a large message does not depend on how the message is split.

#![allow(clippy::unwrap_used)] // A test that meets the unexpected fails.

#[path = "../../amqp/tests/strategy/mod.rs"]
mod strategy;

use bytes::{BufMut, Bytes, BytesMut};
use peeklock_amqp::{DecodeError, Encode, Message, Problem, Sections, Value};
use peeklock_message::{LargeMessage, Stamp, StoredMessage};
use proptest::collection::vec;
use proptest::prelude::*;

const NAMES: [&str; 9] = [
    "amqp:header:list",
    "amqp:delivery-annotations:map",
    "amqp:message-annotations:map",
    "amqp:properties:list",
    "amqp:application-properties:map",
    "amqp:data:binary",
    "amqp:amqp-sequence:list",
    "amqp:amqp-value:*",
    "amqp:footer:map",
];
const HEADER: u8 = 0x70;
const DATA: u8 = 0x75;
const FOOTER: u8 = 0x78;

fn section(code: u8, form: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![0];
    match form {
        0 => out.extend([0x53, code]),
        1 => {
            out.push(0x80);
            out.put_u64(code.into());
        }
        _ => {
            let name = NAMES[usize::from(code - HEADER)];
            out.extend([0xa3, u8::try_from(name.len()).unwrap()]);
            out.extend_from_slice(name.as_bytes());
        }
    }
    out.extend_from_slice(value);
    out
}

fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut out = BytesMut::new();
    value.encode(&mut out);
    out.to_vec()
}

/// Generates a value that usually fits the section.
fn content(code: u8) -> BoxedStrategy<Vec<u8>> {
    let text = |value: &str| Value::from(value.to_owned());
    let map = move |count: usize| {
        encoded(&Value::Map((0..count).map(|n| (text(&format!("key{n}")), text("value"))).collect()))
    };
    let list = |fields: Vec<Value>| encoded(&Value::List(fields));
    let fitting = match code {
        HEADER => any::<bool>().prop_map(move |durable| list(vec![Value::Boolean(durable)])).boxed(),
        0x73 => {
            any::<bool>().prop_map(move |has| list(if has { vec![text("an id")] } else { vec![] })).boxed()
        }
        0x71 | 0x72 | 0x74 | FOOTER => (0_usize..30).prop_map(map).boxed(),
        DATA => vec(any::<u8>(), 0..3_000).prop_map(|bytes| encoded(&Value::Binary(bytes.into()))).boxed(),
        0x76 => vec(strategy::value(), 0..4).prop_map(move |values| encoded(&Value::List(values))).boxed(),
        _ => strategy::value().prop_map(|value| encoded(&value)).boxed(),
    };
    prop_oneof![30 => fitting, 1 => strategy::value().prop_map(|value| encoded(&value))].boxed()
}

fn any_section() -> impl Strategy<Value = Vec<u8>> {
    let code = prop_oneof![4 => Just(DATA), 3 => HEADER..=FOOTER];
    (code, prop_oneof![6 => Just(0_u8), 1 => 1_u8..3])
        .prop_flat_map(|(code, form)| content(code).prop_map(move |value| section(code, form, &value)))
}

/// Generates sections in the usual order, and in any order.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let usual = (vec(any::<bool>(), 5), vec(content(DATA), 0..4), any::<bool>(), any::<bool>());
    let usual = usual.prop_flat_map(|(front, datas, has_footer, has_late)| {
        let codes = (HEADER..DATA).zip(front).filter_map(|(code, is_there)| is_there.then_some(code));
        let front: Vec<_> = codes.map(|code| content(code).prop_map(move |v| section(code, 0, &v))).collect();
        let datas: Vec<_> = datas.iter().map(|value| section(DATA, 0, value)).collect();
        let tail = [(has_footer, FOOTER), (has_late, 0x71)];
        let tail: Vec<_> = tail
            .into_iter()
            .filter_map(|(is_there, code)| is_there.then_some(code))
            .map(|code| content(code).prop_map(move |v| section(code, 0, &v)))
            .collect();
        (front, Just(datas), tail).prop_map(|(front, datas, tail)| [front, datas, tail].concat().concat())
    });
    prop_oneof![2 => usual, 1 => vec(any_section(), 0..6).prop_map(|sections| sections.concat())]
}

fn whole(message: &[u8], id: Option<&str>) -> Result<Vec<u8>, DecodeError> {
    let mut out = BytesMut::new();
    StoredMessage::encode(&mut out, &Sections::scan(message)?, id)?;
    Ok(out.to_vec())
}

fn in_parts(message: &[u8], cuts: &[usize], id: Option<&str>) -> Result<Vec<u8>, DecodeError> {
    let mut large = LargeMessage::new(1 << 20, id.map(str::to_owned));
    let mut stored = Vec::new();
    let mut rest = message;
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (now, later) = rest.split_at(rest.len().min(*cut));
        large.push(Bytes::copy_from_slice(now), &mut stored)?;
        rest = later;
    }
    large.finish(&mut stored)?;
    Ok(stored.concat())
}

/// Compares two stored forms. Delivery annotations after the body are too late to be stored, and decimals in the body
/// are not converted.
fn is_same(whole: &[u8], parts: &[u8]) -> bool {
    let (whole, parts) = (StoredMessage::parse(whole).unwrap(), StoredMessage::parse(parts).unwrap());
    let header =
        |stored: &StoredMessage<'_>| (stored.durable, stored.priority, stored.ttl_ms, stored.first_acquirer);
    let is_same_byte =
        |(whole, parts): (&u8, &u8)| whole == parts || matches!((whole, parts), (0x0c, 0x30) | (0x8c, 0xb0));
    header(&whole) == header(&parts)
        && whole.annotations().content() == parts.annotations().content()
        && whole.bare().len() == parts.bare().len()
        && whole.bare().iter().zip(parts.bare()).all(is_same_byte)
}

fn check(message: &[u8], cuts: &[usize], id: Option<&str>) -> Result<(), TestCaseError> {
    match (whole(message, id), in_parts(message, cuts, id)) {
        (Ok(whole), Ok(parts)) => prop_assert!(is_same(&whole, &parts), "{:02x?}\n{:02x?}", whole, parts),
        (Err(_), Err(_)) => {}
        (Ok(_), Err(error)) => {
            prop_assert!(matches!(error.problem(), Problem::LateSection { .. }), "{}", error);
        }
        (Err(error), Ok(_)) => prop_assert!(false, "stored, although {}", error),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_message_in_parts_is_stored_like_the_whole_message(
        message in message(),
        cuts in vec(1_usize..900, 1..5),
        has_id in any::<bool>(),
    ) {
        check(&message, &cuts, has_id.then_some("given"))?;
    }

    #[test]
    fn damage_is_rejected_as_in_the_whole_message(
        message in message(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        is_cut in any::<bool>(),
        cuts in vec(1_usize..900, 1..5),
    ) {
        let mut message = message;
        if !message.is_empty() {
            let at = at.index(message.len());
            message[at] = byte;
            message.truncate(if is_cut { at } else { message.len() });
        }
        check(&message, &cuts, None)?;
    }

    #[test]
    fn any_bytes_are_stored_like_the_whole_message_or_rejected(
        bytes in vec(prop_oneof![Just(0_u8), Just(0x53), HEADER..=FOOTER, any::<u8>()], 0..60),
        cuts in vec(1_usize..9, 1..4),
    ) {
        check(&bytes, &cuts, None)?;
    }
}

#[test]
fn delivery_annotations_before_the_body_are_stored() {
    let annotations = encoded(&Value::Map(vec![(Value::symbol("mine"), Value::from("note"))]));
    let body = section(DATA, 0, &encoded(&Value::Binary(vec![1; 5].into())));
    let message = [section(0x71, 0, &annotations), body].concat();
    assert_eq!(in_parts(&message, &[7], None).unwrap(), whole(&message, None).unwrap());
}

#[test]
fn a_body_with_a_declared_size_above_the_limit_is_rejected_before_its_content() {
    let mut head = section(DATA, 0, &[0xb0]);
    head.put_u32(1_000);
    let mut large = LargeMessage::new(1_007, None);
    let error =
        large.push(head.clone().into(), &mut Vec::new()).expect_err("8 bytes of head and 1000 of body");
    assert_eq!(error.problem(), Problem::Oversized { size: 1_008, limit: 1_007 });
    let mut large = LargeMessage::new(1_008, None);
    assert!(large.push(head.into(), &mut Vec::new()).is_ok());
}

#[test]
fn the_sections_around_the_body_are_limited() {
    let long = |code, len: usize| {
        let value = Value::Map(vec![(Value::from("key"), Value::Binary(vec![0; len].into()))]);
        section(code, 0, &encoded(&value))
    };
    let body = section(DATA, 0, &encoded(&Value::Binary(vec![1; 5].into())));
    let result =
        |message: &[u8], cut: usize| in_parts(message, &[cut], None).map_err(|error| error.problem());
    let (front_max, tail_max) = (LargeMessage::FRONT_BYTES_MAX, LargeMessage::TAIL_BYTES_MAX);
    let overhead = long(0x72, 1_000).len() - 1_000;
    let (fits, too_long) = (long(0x72, front_max - overhead), long(0x72, front_max - overhead + 1));
    for cut in [1_000, 4_096, usize::MAX] {
        let stored = result(&[fits.clone(), body.clone()].concat(), cut).unwrap();
        assert!(stored.len() <= LargeMessage::STORED_FRONT_BYTES_MAX + body.len());
        let problem = result(&[too_long.clone(), body.clone()].concat(), cut).unwrap_err();
        assert!(matches!(problem, Problem::LongSections { part: "in front of", .. }), "{problem:?}");
        let overhead = long(FOOTER, 1_000).len() - 1_000;
        assert!(result(&[body.clone(), long(FOOTER, tail_max - overhead)].concat(), cut).is_ok());
        let problem = result(&[body.clone(), long(FOOTER, tail_max)].concat(), cut).unwrap_err();
        assert!(matches!(problem, Problem::LongSections { part: "behind", .. }), "{problem:?}");
    }
}

#[test]
fn the_front_is_available_once_the_body_has_begun() {
    let message = encoded(&Message::data(vec![7; 5_000]));
    let mut large = LargeMessage::new(1 << 20, None);
    assert_eq!(large.front(), None);
    let properties = section(0x73, 0, &encoded(&Value::List(vec![Value::from("an id")])));
    large.push(properties.clone().into(), &mut Vec::new()).unwrap();
    assert_eq!(large.front(), None, "the front may continue");
    large.push(Bytes::copy_from_slice(&message[..100]), &mut Vec::new()).unwrap();
    let front = Sections::scan(large.front().unwrap()).unwrap();
    assert!(front.properties().unwrap().message_id.is_some());
}

/// A delivery needs only the front of the stored form; the rest follows unchanged.
#[test]
fn a_delivery_is_written_from_the_front_alone() {
    let sections = [
        section(0x72, 0, &encoded(&Value::Map(vec![(Value::from("note"), Value::from("mine"))]))),
        section(0x74, 0, &encoded(&Value::Map(vec![(Value::from("a"), Value::from("old"))]))),
        section(DATA, 0, &encoded(&Value::Binary(vec![9; 10_000].into()))),
        section(FOOTER, 0, &encoded(&Value::Map(vec![]))),
    ];
    let stored = in_parts(&sections.concat(), &[777], Some("id")).unwrap();
    let patch = encoded(&Value::Map(vec![(Value::from("a"), Value::from("new"))]));
    for patch in [None, Some(&patch[..])] {
        let stamp = Stamp { patch, ..Stamp::default() };
        let mut expected = BytesMut::new();
        StoredMessage::parse(&stored).unwrap().write_delivery(&mut expected, &stamp).unwrap();
        let (front, rest) = stored.split_at(500);
        let mut out = BytesMut::new();
        let follows = StoredMessage::parse(front).unwrap().write_front(&mut out, &stamp).unwrap();
        assert_eq!([&out[..], follows, rest].concat(), expected);
        let delivered = Message::decode(&expected).unwrap();
        assert_eq!(delivered.application_properties.len(), 1);
    }
}

#[test]
fn small_pieces_are_collected_and_large_pieces_are_not_copied() {
    let datas: Vec<u8> = (0..500).flat_map(|_| section(DATA, 0, &[0xa0, 2, 1, 1])).collect();
    let mut stored = Vec::new();
    let mut large = LargeMessage::new(1 << 20, None);
    large.push(datas.into(), &mut stored).unwrap();
    assert!(stored.len() <= 2);
    let body = Bytes::from(section(DATA, 0, &encoded(&Value::Binary(vec![9; 10_000].into()))));
    let mut large = LargeMessage::new(1 << 20, None);
    large.push(body.slice(..100), &mut Vec::new()).unwrap();
    let mut stored = Vec::new();
    large.push(body.slice(100..), &mut stored).unwrap();
    assert!(stored.iter().any(|piece| piece.as_ptr() == body[100..].as_ptr()));
}
