//! Bytes that real clients wrote are understood, frame by frame and message by message. See `fixtures/README.md`.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use bytes::BytesMut;
use peeklock_amqp::{
    Batch, Body, Decode, DeliveryState, Disposition, Encode, Fields, Frame, Message, MessageId, Performative,
    ProtocolHeader, SaslFrame, Sections, Stamp, StoredMessage, Text, Transfer, Value, decode_frame, is_batch,
};

const STREAMS: [(&str, &[u8]); 6] = [
    ("js-servicebus", include_bytes!("fixtures/streams/js-servicebus.bin")),
    ("python-servicebus-send", include_bytes!("fixtures/streams/python-servicebus-send.bin")),
    ("python-servicebus-receive", include_bytes!("fixtures/streams/python-servicebus-receive.bin")),
    ("python-eventhub", include_bytes!("fixtures/streams/python-eventhub.bin")),
    ("python-proton", include_bytes!("fixtures/streams/python-proton.bin")),
    ("rhea-server", include_bytes!("fixtures/streams/rhea-server.bin")),
];

/// Everything one side said, in order.
#[derive(Default)]
struct Said {
    sasl: Vec<SaslFrame>,
    performatives: Vec<Performative>,
    deliveries: Vec<(Transfer, Vec<u8>)>,
}

fn read(name: &str) -> Said {
    let (_, mut rest) = *STREAMS.iter().find(|(known, _)| *known == name).unwrap();
    let mut said = Said::default();
    while !rest.is_empty() {
        if rest.starts_with(b"AMQP") {
            ProtocolHeader::decode(rest).unwrap().unwrap();
            rest = &rest[ProtocolHeader::LEN..];
            continue;
        }
        let (frame, len) =
            decode_frame(rest, 1 << 20).unwrap_or_else(|error| panic!("{name}: {error}")).unwrap();
        rest = &rest[len..];
        match frame {
            Frame::Empty => {}
            Frame::Sasl(frame) => said.sasl.push(frame),
            Frame::Amqp { performative, payload, .. } => {
                if let Performative::Transfer(transfer) = &performative {
                    said.deliveries.push((transfer.clone(), payload.to_vec()));
                }
                said.performatives.push(performative);
            }
        }
    }
    said
}

/// The messages a client sent to an entity, batches taken apart; not those to `$cbs`.
fn sent_messages(name: &str) -> Vec<Vec<u8>> {
    let is_request = |message: &[u8]| Message::decode(message).unwrap().property("operation").is_some();
    let mut messages = Vec::new();
    for (transfer, payload) in read(name).deliveries {
        if is_batch(transfer.message_format.unwrap_or(0)) {
            messages.extend(Batch::new(&payload).map(|message| message.unwrap().to_vec()));
        } else if !is_request(&payload) {
            messages.push(payload);
        }
    }
    messages
}

fn dispositions(name: &str) -> Vec<Disposition> {
    let performatives = read(name).performatives.into_iter();
    performatives
        .filter_map(|it| if let Performative::Disposition(it) = it { Some(it) } else { None })
        .collect()
}

#[test]
fn every_performative_survives_our_own_encoding() {
    for (name, _) in STREAMS {
        let said = read(name);
        assert!(said.performatives.len() >= 4, "{name} opens, begins and attaches");
        for performative in said.performatives {
            assert_eq!(Performative::decode_all(&performative.to_bytes()).unwrap(), performative);
        }
    }
}

#[test]
fn python_and_js_say_hello() {
    for name in ["python-servicebus-send", "python-eventhub", "js-servicebus"] {
        let said = read(name);
        let [SaslFrame::Init(init)] = &said.sasl[..] else { panic!("{name}: one sasl-init") };
        assert_eq!(init.mechanism, "ANONYMOUS");
        let Performative::Open(open) = &said.performatives[0] else { panic!("{name}: open comes first") };
        assert!(open.properties.as_ref().unwrap().get("user-agent").is_some());
    }
}

#[test]
fn python_messages_have_their_properties() {
    let messages = sent_messages("python-servicebus-send");
    assert_eq!(messages.len(), 6);
    let first = Message::decode(&messages[0]).unwrap();
    assert_eq!(first.properties.message_id, Some(MessageId::from("id-1")));
    assert_eq!(first.properties.group_id, Some(Text::from("s1")));
    assert_eq!(first.header.unwrap().ttl, Some(60_000));
    assert_eq!(first.property("i"), Some(&Value::Int(1)));
    assert_eq!(first.property("neg"), Some(&Value::Int(-5)));
    assert_eq!(first.property("f"), Some(&Value::Double(1.5)));
    assert_eq!(first.property("b"), Some(&Value::Boolean(true)));
    assert_eq!(first.message_annotations.get("x-opt-partition-key"), Some(&Value::from("s1")));
    assert_eq!(first.body, Body::Data(vec!["hello".into()]));

    let sequence = Message::decode(&messages[2]).unwrap();
    assert!(matches!(sequence.body, Body::Sequence(lists) if lists.len() == 2));
    assert_eq!(Message::decode(&messages[3]).unwrap().body, Body::Data(vec!["one".into(), "two".into()]));
    assert_eq!(Message::decode(&messages[5]).unwrap().body, Body::Data(vec!["b2".repeat(200).into()]));
}

#[test]
fn python_writes_delivery_annotations_behind_the_body() {
    let messages = sent_messages("python-servicebus-send");
    let message = Message::decode(&messages[1]).unwrap();
    assert_eq!(message.header.unwrap().priority, Some(7));
    assert!(message.delivery_annotations.get("da").is_some());
    assert!(message.message_annotations.get("an").is_some());
    assert!(message.footer.get("foot").is_some());
    assert!(matches!(message.body, Body::Value(Value::Map(_))));
}

#[test]
fn js_messages_have_their_properties() {
    let messages = sent_messages("js-servicebus");
    assert_eq!(messages.len(), 5);
    let first = Message::decode(&messages[0]).unwrap();
    assert_eq!(first.properties.message_id, Some(MessageId::from("id-1")));
    assert_eq!(first.property("t"), Some(&Value::from("text")));
    assert_eq!(first.property("neg").and_then(Value::as_i64), Some(-5));
    assert_eq!(first.property("d"), Some(&Value::Timestamp(1_700_000_000_000)));
    assert_eq!(first.body, Body::Data(vec![r#"{"a":1}"#.into()]));
    assert_eq!(Message::decode(&messages[2]).unwrap().body, Body::Data(vec![vec![1, 2, 3].into()]));
}

#[test]
fn settlements_are_told_apart() {
    let python: Vec<_> =
        dispositions("python-servicebus-receive").into_iter().filter_map(|it| it.state).collect();
    assert!(python.contains(&DeliveryState::Accepted));
    let abandon = |state: &DeliveryState| {
        matches!(
            state,
            DeliveryState::Modified { delivery_failed: Some(true), undeliverable_here: Some(false), .. }
        )
    };
    assert!(python.iter().any(abandon), "{python:?}");
    assert!(python.iter().any(is_dead_letter));

    let js: Vec<_> = dispositions("js-servicebus").into_iter().filter_map(|it| it.state).collect();
    assert!(js.contains(&DeliveryState::Accepted));
    let why = Fields::new().with("why", "because");
    let abandoned = DeliveryState::Modified {
        delivery_failed: None,
        undeliverable_here: Some(false),
        message_annotations: Some(why),
    };
    assert!(js.contains(&abandoned), "{js:?}");
    assert!(js.iter().any(is_dead_letter));
}

fn is_dead_letter(state: &DeliveryState) -> bool {
    let DeliveryState::Rejected { error: Some(error) } = state else { return false };
    let info = error.info.as_ref().unwrap();
    error.condition == "com.microsoft:dead-letter"
        && info.get("DeadLetterReason") == Some(&Value::from("bad"))
}

#[test]
fn every_message_survives_storage_and_delivery() {
    let names = ["js-servicebus", "python-servicebus-send", "rhea-server"];
    let sent =
        names.into_iter().flat_map(sent_messages).chain(listed_messages().into_iter().map(|(_, it)| it));
    for mut message in sent {
        let mut stored = BytesMut::new();
        StoredMessage::encode(&mut stored, &Sections::scan(&message).unwrap(), Some("generated")).unwrap();
        let mut delivered = BytesMut::new();
        StoredMessage::parse(&stored).unwrap().write_delivery(&mut delivered, &Stamp::default()).unwrap();
        // Decimals come back in the form that everybody reads.
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

fn listed_messages() -> Vec<(&'static str, Vec<u8>)> {
    let lines = include_str!("fixtures/messages.hex").lines();
    lines.map(|line| line.split_once(' ').map(|(name, hex)| (name, unhex(hex))).unwrap()).collect()
}

fn listed(name: &str) -> Message {
    let messages = listed_messages();
    Message::decode(&messages.iter().find(|(known, _)| *known == name).unwrap().1).unwrap()
}

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn messages_of_the_real_service_and_of_proton() {
    let reply = listed("service-cbs-reply");
    assert!(matches!(reply.properties.correlation_id, Some(MessageId::Uuid(_))));
    assert_eq!(reply.property("status-code"), Some(&Value::Int(202)));
    assert_eq!(listed("eventhub-event").body, Body::Data(vec!["Event Number 0".into()]));

    let text = listed("proton-text");
    assert_eq!(text.properties.correlation_id, Some(MessageId::Ulong(9)));
    assert_eq!(text.header.unwrap().ttl, Some(5000));
    let Body::Value(Value::List(values)) = listed("proton-every-type").body else { panic!("a list") };
    assert_eq!(values.len(), 15);
    assert_eq!(values[10].as_array().unwrap().descriptors(), [Value::from("desc")]);
    assert_eq!(listed("proton-data").body, Body::Data(vec!["inferred".into()]));
}
