//! Bytes that are dangerous for an implementation: sizes, counts and depths that a peer chooses, and unusual but legal
//! forms.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use bytes::{BufMut, BytesMut};
use peeklock_amqp::{
    AmqpError, Attach, Close, DEPTH_MAX, Decode, DecodeError, DeliveryState, DeliveryTag, Disposition,
    EMPTY_FRAME, Encode, Fields, Flow, Frame, FrameError, Open, Performative, Problem, Protocol,
    ProtocolHeader, Role, SenderSettleMode, Source, Symbol, Target, Text, Transfer, VALUES_MAX, Value,
    ZERO_WIDTH_ELEMENTS_MAX, condition, decode_frame,
};

fn problem<T: std::fmt::Debug>(result: Result<T, DecodeError>) -> Problem {
    result.unwrap_err().problem()
}

fn performative(encoded: &[u8]) -> Performative {
    Performative::decode_all(encoded).unwrap()
}

/// Writes a list32 with a chosen count, whatever its content.
fn list32(count: u32, content: &[u8]) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_u8(0xd0);
    out.put_u32(u32::try_from(content.len() + 4).unwrap());
    out.put_u32(count);
    out.put_slice(content);
    out
}

fn nested_lists(depth: usize) -> Vec<u8> {
    let mut encoded = vec![0x40];
    for _ in 0..depth {
        let mut outer = list32(1, &encoded).to_vec();
        std::mem::swap(&mut outer, &mut encoded);
    }
    encoded
}

#[test]
fn depth_is_bounded_for_every_kind_of_nesting() {
    let depth_max = usize::from(DEPTH_MAX);
    assert!(Value::decode_all(&nested_lists(depth_max)).is_ok());
    assert_eq!(problem(Value::decode_all(&nested_lists(depth_max + 1))), Problem::TooDeep);

    let described = [[0x00, 0x40].repeat(depth_max + 1), vec![0x40]].concat();
    assert_eq!(problem(Value::decode_all(&described)), Problem::TooDeep);
    let descriptors = [[0x00].repeat(100_000), vec![0x40]].concat();
    assert_eq!(problem(Value::decode_all(&descriptors)), Problem::TooDeep);

    let mut arrays = vec![0x40];
    for _ in 0..=depth_max {
        let mut outer = vec![0xf0];
        outer.extend(u32::try_from(arrays.len() + 4).unwrap().to_be_bytes());
        outer.extend(1u32.to_be_bytes());
        outer.extend(&arrays);
        arrays = outer;
    }
    assert_eq!(problem(Value::decode_all(&arrays)), Problem::TooDeep);
}

#[test]
fn the_depth_of_nested_transactional_states_is_bounded() {
    let mut state = DeliveryState::Accepted;
    for _ in 0..100 {
        state = DeliveryState::Transactional { txn_id: "t".into(), outcome: Some(Box::new(state)) };
    }
    assert_eq!(problem(DeliveryState::decode_all(&state.to_bytes())), Problem::TooDeep);
}

#[test]
fn an_announced_count_reserves_no_memory_before_it_is_checked() {
    let huge = problem(Value::decode_all(&list32(u32::MAX, &[0x40])));
    assert_eq!(huge, Problem::TooMany { count: u32::MAX, limit: 1 });

    let nulls = vec![0x40; VALUES_MAX + 1];
    let count = u32::try_from(nulls.len()).unwrap();
    assert!(matches!(problem(Value::decode_all(&list32(count, &nulls))), Problem::TooMany { .. }));
}

#[test]
fn elements_without_bytes_are_bounded() {
    for code in [0x40, 0x41, 0x43, 0x44, 0x45] {
        let array = |count: usize| {
            let mut out = vec![0xf0, 0, 0, 0, 5];
            out.extend(u32::try_from(count).unwrap().to_be_bytes());
            out.push(code);
            out
        };
        let fits = Value::decode_all(&array(ZERO_WIDTH_ELEMENTS_MAX)).unwrap();
        assert_eq!(fits.as_array().unwrap().elements().len(), ZERO_WIDTH_ELEMENTS_MAX);
        let count = ZERO_WIDTH_ELEMENTS_MAX + 1;
        assert!(matches!(problem(Value::decode_all(&array(count))), Problem::TooMany { .. }));
    }
}

#[test]
fn many_small_arrays_together_are_bounded_too() {
    // Four bytes that become 255 values, as often as a frame can hold them.
    let content = [0xe0, 2, 255, 0x40].repeat(1000);
    assert!(matches!(problem(Value::decode_all(&list32(1000, &content))), Problem::TooMany { .. }));
}

#[test]
fn wrong_sizes_are_rejected() {
    assert_eq!(problem(Value::decode_all(&[0xa1, 5, b'x'])), Problem::Truncated { needed: 5, found: 1 });
    assert!(matches!(problem(Value::decode_all(&[0xb0, 0xff, 0xff, 0xff, 0xff])), Problem::Truncated { .. }));
    // An element that exceeds its list does not read the bytes after the list.
    assert!(matches!(
        problem(Value::decode_all(&[0xc0, 3, 1, 0xa1, 2, b'a', b'b'])),
        Problem::Truncated { .. }
    ));
    assert_eq!(problem(Value::decode_all(&[0xc0, 3, 1, 0x40, 0x40])), Problem::Excess { excess: 1 });
    assert_eq!(problem(Value::decode_all(&[0xc1, 4, 3, 0x40, 0x40, 0x40])), Problem::OddMap { count: 3 });
    assert!(
        matches!(problem(Value::decode_all(&[0xc0, 0])), Problem::Truncated { .. }),
        "no room for the count"
    );
}

#[test]
fn an_error_states_where_and_why() {
    let error = Value::decode_all(&[0xc0, 3, 2, 0x40, 0x3f]).unwrap_err();
    assert_eq!((error.offset(), error.problem()), (4, Problem::UnknownConstructor { code: 0x3f }));
    assert_eq!(error.to_string(), "0x3f is no AMQP type (at byte 4)");
}

#[test]
fn text_is_checked() {
    assert_eq!(problem(Value::decode_all(&[0xa1, 1, 0xff])), Problem::NotUtf8);
    assert_eq!(problem(Value::decode_all(&[0xa3, 2, 0xc3, 0xa4])), Problem::NotAscii);
    assert_eq!(problem(Value::decode_all(&[0x73, 0, 0, 0xd8, 0])), Problem::NotChar { value: 0xd800 });
    assert!(matches!(problem(Value::decode_all(&[0x56, 2])), Problem::OutOfRange { .. }));
}

#[test]
fn a_missing_mandatory_field_is_named() {
    let missing = problem(Performative::decode_all(&[0x00, 0x53, 0x10, 0x45]));
    assert_eq!(missing, Problem::MissingField { composite: "Open", field: "container_id" });
    let missing = problem(Performative::decode_all(&[0x00, 0x53, 0x14, 0xc0, 2, 1, 0x40]));
    assert_eq!(missing, Problem::MissingField { composite: "Transfer", field: "handle" });
    let missing = problem(Performative::decode_all(&[0x00, 0x53, 0x15, 0xc0, 2, 1, 0x41]));
    assert_eq!(missing, Problem::MissingField { composite: "Disposition", field: "first" });
}

#[test]
fn a_flow_may_have_nulls_in_its_optional_fields() {
    // Before the peer's begin, next-incoming-id is null; a session flow has no link fields.
    let flow = performative(&[0x00, 0x53, 0x13, 0xc0, 8, 4, 0x40, 0x52, 9, 0x43, 0x52, 7, 0x40]);
    assert_eq!(flow, Flow { incoming_window: 9, outgoing_window: 7, ..Flow::default() }.into());
}

#[test]
fn absent_fields_have_the_defaults_of_the_standard() {
    let open = performative(&[0x00, 0x53, 0x10, 0xc0, 4, 1, 0xa1, 1, b'c']);
    assert_eq!(open, Open::new("c").into());
    let attach = performative(&[0x00, 0x53, 0x12, 0xc0, 6, 3, 0xa1, 1, b'n', 0x43, 0x41]);
    let expected = Attach { snd_settle_mode: SenderSettleMode::Mixed, ..Attach::new("n", 0, Role::Receiver) };
    assert_eq!(attach, expected.into());
}

#[test]
fn descriptor_zero_and_unknown_descriptors_are_errors_that_contain_the_code() {
    let expected = "a performative";
    let zero = problem(Performative::decode_all(&[0x00, 0x44, 0x45]));
    assert_eq!(zero, Problem::UnknownDescriptor { expected, code: 0 });
    let unknown = problem(Performative::decode_all(&[0x00, 0x80, 0, 0, 0, 0x13, 0x70, 0, 0, 0x0c, 0x45]));
    assert_eq!(unknown, Problem::UnknownDescriptor { expected, code: 0x13_7000_000c });
    let symbol = problem(Performative::decode_all(&[0x00, 0xa3, 1, b'x', 0x45]));
    assert_eq!(symbol, Problem::UnknownSymbol { expected });
    // A code that is valid only when truncated to eight bits.
    let wide = problem(DeliveryState::decode_all(&[0x00, 0x80, 0, 0, 0, 0, 0, 0, 1, 0x24, 0x45]));
    assert!(matches!(wide, Problem::UnknownDescriptor { code: 0x124, .. }));
}

#[test]
fn a_tag_may_have_32_bytes_and_no_more() {
    let transfer = |len: u8| {
        let mut fields = vec![0x43, 0x43, 0xa0, len];
        fields.extend(vec![7; len.into()]);
        [&[0x00, 0x53, 0x14, 0xc0, u8::try_from(fields.len() + 1).unwrap(), 3][..], &fields].concat()
    };
    let Performative::Transfer(decoded) = performative(&transfer(32)) else { panic!("a transfer") };
    assert_eq!(decoded.delivery_tag.unwrap().as_slice(), [7; 32]);
    assert_eq!(problem(Performative::decode_all(&transfer(33))), Problem::TagTooLong { len: 33 });
    assert!(DeliveryTag::new(&[0; 33]).is_err());
}

#[test]
fn several_symbols_are_null_one_symbol_or_an_array() {
    let open = |locales: &[u8]| {
        let fields = [&[0xa1, 1, b'c', 0x40, 0x40, 0x40, 0x40][..], locales].concat();
        let encoded =
            [&[0x00, 0x53, 0x10, 0xc0, u8::try_from(fields.len() + 1).unwrap(), 6][..], &fields].concat();
        let Performative::Open(open) = performative(&encoded) else { panic!("an open") };
        open.outgoing_locales
    };
    assert_eq!(open(&[0x40]), Vec::<Symbol>::new());
    assert_eq!(open(&[0xa3, 2, b'e', b'n']), [Symbol::from("en")]);
    assert_eq!(open(&[0xe0, 7, 2, 0xa3, 2, b'e', b'n', 1, b'x']), [Symbol::from("en"), Symbol::from("x")]);
}

#[test]
fn symbols_are_written_as_an_array_even_when_there_is_one() {
    let source = Source { capabilities: vec!["queue".into()], ..Source::default() };
    let encoded = source.to_bytes();
    assert!(encoded.ends_with(&[0xe0, 8, 1, 0xa3, 5, b'q', b'u', b'e', b'u', b'e']), "{encoded:02x?}");
}

#[test]
fn an_error_always_has_three_fields() {
    let close = Close { error: Some(AmqpError { condition: "c".into(), description: None, info: None }) };
    let error = [0x00, 0x53, 0x1d, 0xc0, 6, 3, 0xa3, 1, b'c', 0x40, 0x40];
    assert_eq!(close.to_bytes()[..], [&[0x00, 0x53, 0x18, 0xc0, 12, 1][..], &error].concat());
}

#[test]
fn smallest_forms_are_written() {
    let disposition = Disposition {
        role: Role::Receiver,
        first: 0,
        last: None,
        settled: true,
        state: Some(DeliveryState::Accepted),
        batchable: false,
    };
    let expected = [0x00, 0x53, 0x15, 0xc0, 10, 6, 0x41, 0x43, 0x40, 0x41, 0x00, 0x53, 0x24, 0x45, 0x40];
    assert_eq!(disposition.to_bytes()[..], expected);
    let transfer = Transfer { handle: 1, delivery_id: Some(300), ..Transfer::default() };
    let front = [0x00, 0x53, 0x14, 0xc0, 17, 11, 0x52, 1, 0x70, 0, 0, 1, 44];
    assert_eq!(transfer.to_bytes()[..], [&front[..], &[0x40; 9]].concat());
    assert_eq!(Value::Long(-1).to_bytes()[..], [0x55, 0xff]);
    assert_eq!(Value::List(vec![]).to_bytes()[..], [0x45]);
}

/// pyamqp reads fields by position and the payload of a transfer as field 11.
#[test]
fn every_field_is_written_and_no_performative_is_an_empty_list() {
    let count = |encoded: &[u8]| (encoded[3], encoded[5]);
    assert_eq!(count(&Open::new("c").to_bytes()), (0xc0, 10));
    assert_eq!(count(&peeklock_amqp::Begin::new(0, 1, 1).to_bytes()), (0xc0, 8));
    assert_eq!(count(&Attach::new("n", 0, Role::Sender).to_bytes()), (0xc0, 14));
    assert_eq!(count(&Flow::default().to_bytes()), (0xc0, 11));
    assert_eq!(count(&Transfer::default().to_bytes()), (0xc0, 11));
    assert_eq!(count(&Close { error: None }.to_bytes()), (0xc0, 1));
    assert_eq!(count(&Source::default().to_bytes()), (0xc0, 11), "an empty list would count as no source");
}

#[test]
fn a_long_list_takes_the_wide_form_and_keeps_its_content() {
    let values: Vec<Value> = (0..300).map(Value::Int).collect();
    let encoded = Value::List(values.clone()).to_bytes();
    assert_eq!(encoded[0], 0xd0);
    assert_eq!(Value::decode_all(&encoded).unwrap(), Value::List(values));
}

#[test]
fn keys_of_fields_may_be_strings() {
    let fields = Fields::decode_all(&[0xc1, 6, 2, 0xa1, 1, b'k', 0x54, 5]).unwrap();
    assert_eq!(fields.get("k"), Some(&Value::Int(5)));
}

#[test]
fn a_coordinator_is_a_target() {
    let target = Target::decode_all(&[0x00, 0x53, 0x30, 0x45]).unwrap();
    assert!(matches!(target, Target::Coordinator(_)));
    assert_eq!(target.address(), None);
}

#[test]
fn rejected_may_have_no_error_and_no_list_content() {
    assert_eq!(
        DeliveryState::decode_all(&[0x00, 0x53, 0x25, 0x45]).unwrap(),
        DeliveryState::Rejected { error: None }
    );
    // rhea writes wide empty lists.
    let wide = [0x00, 0x53, 0x24, 0xd0, 0, 0, 0, 4, 0, 0, 0, 0];
    assert_eq!(DeliveryState::decode_all(&wide).unwrap(), DeliveryState::Accepted);
}

#[test]
fn frame_sizes_are_checked_before_the_frame_is_complete() {
    let too_large = decode_frame(&[0, 1, 0, 1], 65_536).unwrap_err();
    assert_eq!(too_large, FrameError::TooLarge { size: 65_537, size_max: 65_536 });
    assert_eq!(too_large.condition(), condition::FRAMING_ERROR);
    assert_eq!(decode_frame(&[0, 0, 0, 7], 512).unwrap_err(), FrameError::TooSmall { size: 7 });
    assert_eq!(decode_frame(&[0, 0, 1], 512), Ok(None));
}

#[test]
fn data_offsets_are_checked_and_extended_headers_skipped() {
    assert!(matches!(
        decode_frame(&[0, 0, 0, 8, 1, 0, 0, 0], 512),
        Err(FrameError::BadOffset { doff: 1, size: 8 })
    ));
    assert!(matches!(
        decode_frame(&[0, 0, 0, 8, 3, 0, 0, 0], 512),
        Err(FrameError::BadOffset { doff: 3, size: 8 })
    ));
    let extended = [0, 0, 0, 16, 3, 0, 0, 9, 1, 2, 3, 4, 0x00, 0x53, 0x18, 0x45];
    let expected = Frame::Amqp { channel: 9, performative: Close { error: None }.into(), payload: &[] };
    assert_eq!(decode_frame(&extended, 512), Ok(Some((expected, 16))));
}

#[test]
fn an_empty_frame_is_a_heartbeat_and_the_next_frame_follows() {
    let two = [EMPTY_FRAME, EMPTY_FRAME].concat();
    assert_eq!(decode_frame(&two, 512), Ok(Some((Frame::Empty, 8))));
    assert!(matches!(decode_frame(&[0, 0, 0, 8, 2, 1, 0, 0], 512), Err(FrameError::EmptySasl)));
    assert!(matches!(decode_frame(&[0, 0, 0, 8, 2, 2, 0, 0], 512), Err(FrameError::UnknownType { kind: 2 })));
}

#[test]
fn only_a_transfer_has_a_payload() {
    let close_and_more = [0, 0, 0, 13, 2, 0, 0, 0, 0x00, 0x53, 0x18, 0x45, 1];
    let error = decode_frame(&close_and_more, 512).unwrap_err();
    assert_eq!(error, FrameError::StrayPayload { performative: "close", len: 1 });
}

#[test]
fn protocol_headers_are_distinguished() {
    for (protocol, id) in [(Protocol::Amqp, 0), (Protocol::Tls, 2), (Protocol::Sasl, 3)] {
        let header = ProtocolHeader { protocol };
        assert_eq!(header.to_bytes(), [b'A', b'M', b'Q', b'P', id, 1, 0, 0]);
        assert_eq!(ProtocolHeader::decode(&header.to_bytes()), Ok(Some(header)));
    }
    assert_eq!(ProtocolHeader::decode(b""), Ok(None));
    assert_eq!(ProtocolHeader::decode(b"AM"), Ok(None));
    assert_eq!(ProtocolHeader::decode(b"AMQP\x00\x01"), Ok(None));
    assert!(ProtocolHeader::decode(b"GET").is_err());
    assert!(ProtocolHeader::decode(b"AMQP\x00\x00\x09\x01").is_err(), "AMQP 0-9-1");
}

#[test]
fn strings_and_symbols_compare_with_text() {
    assert_eq!(Symbol::from("amqp:not-found"), condition::NOT_FOUND);
    assert_eq!(Text::from("ä"), "ä");
    assert!(Symbol::parse("ä").is_err());
    assert_eq!(Value::from("x").as_str(), Some("x"));
    assert_eq!(Value::Ubyte(7).as_i64(), Some(7));
    assert_eq!(Value::Ulong(u64::MAX).as_i64(), None);
    assert_eq!(Value::Long(-1).as_u64(), None);
}
