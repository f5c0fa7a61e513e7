//! Decodes bytes that real clients wrote, frame by frame and message by message. See `fixtures/README.md`.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod recorded;

use peeklock_amqp::{
    Body, Decode, DeliveryState, Disposition, Encode, Fields, Message, MessageId, Performative, SaslFrame,
    Text, Value,
};
use recorded::{STREAMS, listed_messages, read, sent_messages};

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
fn python_and_js_open_a_connection() {
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
fn settlements_are_distinguished() {
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

fn listed(name: &str) -> Message {
    let messages = listed_messages();
    Message::decode(&messages.iter().find(|(known, _)| *known == name).unwrap().1).unwrap()
}

#[test]
fn messages_of_the_real_service_and_of_proton_are_decoded() {
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
