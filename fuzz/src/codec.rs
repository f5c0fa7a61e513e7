//! Runs every decoder on the same bytes. A decoded value must survive encoding and decoding; a stored message must be deliverable.

use bytes::BytesMut;
use peeklock_amqp::{
    Batch, Decode, Encode, Frame, Message, Performative, ProtocolHeader, SaslFrame, Sections, Value,
    decode_frame,
};
use peeklock_message::{Lifetime, Stamp, StoredMessage};

const FRAME_SIZE_BYTES_MAX: u32 = 1 << 20;

pub fn fuzz_codec(input: &[u8]) {
    survives_encoding::<Value>(input);
    survives_encoding::<Performative>(input);
    survives_encoding::<SaslFrame>(input);
    let _ = ProtocolHeader::decode(input);
    fuzz_frames(input);
    fuzz_message(input);
    for message in Batch::new(input).flatten() {
        fuzz_message(message);
    }
    if let Ok(stored) = StoredMessage::parse(input) {
        let _ = stored.annotations().decode();
        let _ = stored.write_delivery(&mut BytesMut::new(), &Stamp::default());
    }
}

/// Checks that a value survives encoding and decoding. Compares bytes, because a NaN is not equal to itself.
fn survives_encoding<T: Decode + Encode>(input: &[u8]) {
    let Ok(value) = T::decode_all(input) else { return };
    let encoded = value.to_bytes();
    let again = T::decode_all(&encoded).expect("the encoder writes legal bytes");
    assert_eq!(again.to_bytes(), encoded, "encoding and decoding changed a value");
}

fn fuzz_frames(mut input: &[u8]) {
    while let Ok(Some((frame, len))) = decode_frame(input, FRAME_SIZE_BYTES_MAX) {
        if let Frame::Amqp { payload, .. } = frame {
            fuzz_message(payload);
        }
        input = input.get(len..).expect("a frame ends inside its input");
    }
}

fn fuzz_message(input: &[u8]) {
    let Ok(sections) = Sections::scan(input) else { return };
    if let Ok(message) = Message::decode(input) {
        let encoded = message.to_bytes();
        let again = Message::decode(&encoded).expect("the encoder writes legal bytes");
        assert_eq!(again.to_bytes(), encoded, "encoding and decoding changed a message");
    }
    for map in [sections.message_annotations(), sections.application_properties()].into_iter().flatten() {
        let _ = map.get("x-opt-partition-key");
        let _ = map.decode();
    }
    fuzz_storage(&sections);
}

fn fuzz_storage(sections: &Sections<'_>) {
    let mut stored = BytesMut::new();
    if StoredMessage::encode(&mut stored, sections, Some("0123456789abcdef0123456789abcdef")).is_err() {
        assert!(stored.is_empty(), "a rejected message left bytes in the buffer");
        return;
    }
    let patch = Value::Map(vec![("DeadLetterReason".into(), "fuzz".into())]).to_bytes();
    for patch in [None, Some(&patch[..])] {
        let stamp = Stamp {
            lock_token: Some([1; 16]),
            locked_until_ms: Some(5),
            lifetime: Some(Lifetime { time_to_live_ms: 2, from_ms: 5, until_ms: 7 }),
            class: Some("high"),
            tenant: Some("fuzz"),
            patch,
            ..Stamp::default()
        };
        let mut delivery = BytesMut::new();
        let stored = StoredMessage::parse(&stored).expect("the stored form was just written");
        stored.write_delivery(&mut delivery, &stamp).expect("a stored message can be delivered");
        let delivered = Sections::scan(&delivery).expect("a delivery is a message");
        assert!(delivered.properties().expect("checked before storing").message_id.is_some());
        assert_eq!(delivered.body_kind(), sections.body_kind());
    }
}
