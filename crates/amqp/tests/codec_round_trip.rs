//! Encoded values can be decoded again, in every form that the standard permits a peer to write.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod strategy;

use bytes::{BufMut, BytesMut};
use peeklock_amqp::{
    Declare, Decode, Discharge, Encode, Frame, FrameWriter, Kind, Performative, Value, decode_frame,
    encode_frame,
};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_value_survives_a_round_trip(value in strategy::value()) {
        prop_assert_eq!(Value::decode_all(&value.to_bytes()).unwrap(), value);
    }

    #[test]
    fn a_value_in_another_encoding_is_the_same_value(value in strategy::value(), choices in any::<u64>()) {
        let mut out = BytesMut::new();
        Alternate { choices }.put(&mut out, &value);
        prop_assert_eq!(Value::decode_all(&out).unwrap(), value);
    }

    #[test]
    fn an_encoding_is_skipped_exactly(value in strategy::value()) {
        let mut out = BytesMut::from(&value.to_bytes()[..]);
        let len = out.len();
        out.put_slice(b"rest");
        let mut decoder = peeklock_amqp::Decoder::new(&out);
        decoder.skip().unwrap();
        prop_assert_eq!(decoder.position(), len);
    }

    #[test]
    fn a_cut_value_is_an_error(value in strategy::value(), cut in any::<prop::sample::Index>()) {
        let encoded = value.to_bytes();
        let cut = cut.index(encoded.len());
        prop_assert!(Value::decode_all(&encoded[..cut]).is_err());
    }

    #[test]
    fn a_performative_survives_a_round_trip_with_its_payload(
        performative in strategy::performative(),
        channel in any::<u16>(),
        payload in strategy::bytes(),
    ) {
        let mut out = BytesMut::new();
        let payload = if matches!(performative, Performative::Transfer(_)) { &payload[..] } else { &[] };
        encode_frame(&mut out, channel, &performative, payload);
        let (frame, len) = decode_frame(&out, u32::MAX).unwrap().unwrap();
        prop_assert_eq!(len, out.len());
        prop_assert_eq!(frame, Frame::Amqp { channel, performative, payload });
    }

    #[test]
    fn a_performative_in_another_form_is_the_same_performative(
        performative in strategy::performative(),
        form in form(),
    ) {
        let bytes = form.rewrite(&performative.to_bytes());
        prop_assert_eq!(Performative::decode_all(&bytes).unwrap(), performative);
    }

    #[test]
    fn an_incomplete_frame_is_not_an_error(
        performative in strategy::performative(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut out = BytesMut::new();
        encode_frame(&mut out, 0, &performative, &[]);
        let cut = cut.index(out.len());
        prop_assert_eq!(decode_frame(&out[..cut], u32::MAX).unwrap(), None);
    }

    #[test]
    fn a_sasl_frame_survives_a_round_trip(frame in strategy::sasl_frame()) {
        let mut out = BytesMut::new();
        FrameWriter::sasl(&mut out, &frame).finish();
        prop_assert_eq!(decode_frame(&out, 512 * 8).unwrap(), Some((Frame::Sasl(frame), out.len())));
    }

    #[test]
    fn any_bytes_decode_or_fail_but_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Value::decode_all(&bytes);
        let _ = Performative::decode_all(&bytes);
        let _ = decode_frame(&bytes, 512);
    }

    #[test]
    fn declare_and_discharge_survive_a_round_trip(global_id in proptest::option::of(strategy::value()), txn_id in strategy::bytes(), fail in any::<Option<bool>>()) {
        let declare = Declare { global_id: global_id.filter(|id| !id.is_null()) };
        prop_assert_eq!(&Declare::decode_all(&declare.to_bytes()).unwrap(), &declare);
        let discharge = Discharge { txn_id, fail };
        prop_assert_eq!(&Discharge::decode_all(&discharge.to_bytes()).unwrap(), &discharge);
    }
}

/// Another form in which a peer may write a performative's descriptor and list.
#[derive(Debug, Clone)]
struct Form {
    descriptor: DescriptorForm,
    wide: bool,
    trimmed: bool,
    extra_fields: u8,
}

#[derive(Debug, Clone, Copy)]
enum DescriptorForm {
    Small,
    Full,
    Symbolic,
    SymbolicWide,
}

fn form() -> impl Strategy<Value = Form> {
    let descriptors =
        [DescriptorForm::Small, DescriptorForm::Full, DescriptorForm::Symbolic, DescriptorForm::SymbolicWide];
    (proptest::sample::select(descriptors.to_vec()), any::<bool>(), any::<bool>(), 0..4u8).prop_map(
        |(descriptor, wide, trimmed, extra_fields)| Form { descriptor, wide, trimmed, extra_fields },
    )
}

impl Form {
    fn rewrite(&self, encoded: &[u8]) -> BytesMut {
        let code = encoded[2];
        let (count, content) = list_content(&encoded[3..]);
        // Trailing nulls may be omitted.
        let (count, content) = if self.trimmed { trim(count, content) } else { (count, content) };
        let missing = field_count(code) - count;
        let mut content = content.to_vec();
        // Fields after the last one of the standard are for later versions, and ignored.
        if self.extra_fields > 0 {
            content.extend(std::iter::repeat_n(0x40, missing));
            content.extend(std::iter::repeat_n(0x41, self.extra_fields.into()));
        }
        let count =
            if self.extra_fields > 0 { field_count(code) + usize::from(self.extra_fields) } else { count };
        let mut out = BytesMut::new();
        self.put_descriptor(&mut out, code);
        put_compound(&mut out, 0xc0, self.wide, count, &content);
        out
    }

    fn put_descriptor(&self, out: &mut BytesMut, code: u8) {
        let name = NAMES.iter().find(|(known, _, _)| *known == code).unwrap().1;
        out.put_u8(0);
        match self.descriptor {
            DescriptorForm::Small => out.put_slice(&[0x53, code]),
            DescriptorForm::Full => {
                out.put_u8(0x80);
                out.put_u64(code.into());
            }
            DescriptorForm::Symbolic => {
                out.put_slice(&[0xa3, u8::try_from(name.len()).unwrap()]);
                out.put_slice(name.as_bytes());
            }
            DescriptorForm::SymbolicWide => {
                out.put_u8(0xb3);
                out.put_u32(u32::try_from(name.len()).unwrap());
                out.put_slice(name.as_bytes());
            }
        }
    }
}

const NAMES: [(u8, &str, usize); 9] = [
    (0x10, "amqp:open:list", 10),
    (0x11, "amqp:begin:list", 8),
    (0x12, "amqp:attach:list", 14),
    (0x13, "amqp:flow:list", 11),
    (0x14, "amqp:transfer:list", 11),
    (0x15, "amqp:disposition:list", 6),
    (0x16, "amqp:detach:list", 3),
    (0x17, "amqp:end:list", 1),
    (0x18, "amqp:close:list", 1),
];

fn trim(count: usize, content: &[u8]) -> (usize, &[u8]) {
    let mut decoder = peeklock_amqp::Decoder::new(content);
    let mut kept = (0, 0);
    for field in 1..=count {
        let start = decoder.position();
        decoder.skip().unwrap();
        if content[start] != 0x40 {
            kept = (field, decoder.position());
        }
    }
    (kept.0, &content[..kept.1])
}

fn field_count(code: u8) -> usize {
    NAMES.iter().find(|(known, _, _)| *known == code).unwrap().2
}

fn list_content(list: &[u8]) -> (usize, &[u8]) {
    match list[0] {
        0x45 => (0, &[]),
        0xc0 => (list[2].into(), &list[3..]),
        _ => (u32::from_be_bytes(list[5..9].try_into().unwrap()) as usize, &list[9..]),
    }
}

fn put_compound(out: &mut BytesMut, code8: u8, wide: bool, count: usize, content: &[u8]) {
    match (u8::try_from(content.len() + 1), u8::try_from(count)) {
        (Ok(size), Ok(count)) if !wide => out.put_slice(&[code8, size, count]),
        _ => {
            out.put_u8(code8 + 0x10);
            out.put_u32(u32::try_from(content.len() + 4).unwrap());
            out.put_u32(u32::try_from(count).unwrap());
        }
    }
    out.put_slice(content);
}

/// Writes values in encodings other than the smallest, chosen by bits.
struct Alternate {
    choices: u64,
}

impl Alternate {
    fn choose(&mut self) -> bool {
        self.choices = self.choices.rotate_left(1);
        self.choices & 1 == 1
    }

    fn put(&mut self, out: &mut BytesMut, value: &Value) {
        match value {
            Value::Boolean(value) if self.choose() => out.put_slice(&[0x56, (*value).into()]),
            Value::Uint(value) if self.choose() => {
                out.put_u8(0x70);
                out.put_u32(*value);
            }
            Value::Uint(0) => out.put_slice(&[0x52, 0]),
            Value::Ulong(value) if self.choose() => {
                out.put_u8(0x80);
                out.put_u64(*value);
            }
            Value::Ulong(0) => out.put_slice(&[0x53, 0]),
            Value::Int(value) => {
                out.put_u8(0x71);
                out.put_i32(*value);
            }
            Value::Long(value) => {
                out.put_u8(0x81);
                out.put_i64(*value);
            }
            Value::Binary(bytes) => self.put_wide(out, 0xb0, bytes),
            Value::String(text) => self.put_wide(out, 0xb1, text.as_bytes()),
            Value::Symbol(symbol) => self.put_wide(out, 0xb3, symbol.as_bytes()),
            Value::List(values) => self.put_list(out, values),
            Value::Map(entries) => self.put_map(out, entries),
            Value::Array(array) if array.elements().iter().all(|element| element.kind() == Kind::Boolean) => {
                self.put_boolean_array(out, value);
            }
            Value::Described(described) => {
                out.put_u8(0);
                self.put(out, &described.descriptor);
                self.put(out, &described.value);
            }
            other => other.encode(out),
        }
    }

    fn put_wide(&mut self, out: &mut BytesMut, code32: u8, bytes: &[u8]) {
        out.put_u8(code32);
        out.put_u32(u32::try_from(bytes.len()).unwrap());
        out.put_slice(bytes);
    }

    fn put_list(&mut self, out: &mut BytesMut, values: &[Value]) {
        let mut content = BytesMut::new();
        values.iter().for_each(|value| self.put(&mut content, value));
        put_compound(out, 0xc0, self.choose(), values.len(), &content);
    }

    fn put_map(&mut self, out: &mut BytesMut, entries: &[(Value, Value)]) {
        let mut content = BytesMut::new();
        for (key, value) in entries {
            self.put(&mut content, key);
            self.put(&mut content, value);
        }
        put_compound(out, 0xc1, self.choose(), entries.len() * 2, &content);
    }

    /// Booleans of one kind need no bytes at all in an array.
    fn put_boolean_array(&mut self, out: &mut BytesMut, value: &Value) {
        let array = value.as_array().unwrap();
        let all = |wanted| array.elements().iter().all(|element| *element == Value::Boolean(wanted));
        if array.kind() != Kind::Boolean || !array.descriptors().is_empty() || !(all(true) || all(false)) {
            return value.encode(out);
        }
        put_compound(
            out,
            0xe0,
            self.choose(),
            array.elements().len(),
            &[if all(true) { 0x41 } else { 0x42 }],
        );
    }
}
