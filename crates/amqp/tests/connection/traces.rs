//! Replays the frames of Microsoft's Python SDK in recorded conversations with the real Event Hubs service, and checks
//! that our side answers with the frames of the service, in an order that the SDK accepts.

use bytes::{Bytes, BytesMut};
use peeklock_amqp::connection::{AttachReply, Config, Connection, DeliveryId, Event, LinkId};
use peeklock_amqp::{
    AmqpError, Attach, Begin, Close, DeliveryState, DeliveryTag, Described, Detach, End, Fields, Flow,
    FrameWriter, Open, Performative, Protocol, ReceiverSettleMode, Role, SaslCode, SaslFrame, SaslInit,
    Source, Symbol, Target, TargetNode, Transfer, Value, condition, decode_frame,
};

use super::support::{Script, T0, frames, outgoing};

const SESSION_END: Symbol = Symbol::from_static("session-end");

fn source(address: &'static str) -> Option<Source> {
    Some(Source { expiry_policy: Some(SESSION_END), ..Source::with_address(address) })
}

fn target(address: &'static str) -> Option<Target> {
    let node =
        TargetNode { address: Some(address.into()), expiry_policy: Some(SESSION_END), ..Default::default() };
    Some(Target::Node(node))
}

fn cbs(name: &'static str, handle: u32, role: Role) -> Attach {
    Attach {
        source: source("$cbs"),
        target: target("$cbs"),
        initial_delivery_count: (role == Role::Sender).then_some(0),
        max_message_size: Some(0),
        ..Attach::new(name, handle, role)
    }
}

fn flow(handle: u32, next_incoming_id: u32, next_outgoing_id: u32, credit: u32) -> Flow {
    Flow {
        next_incoming_id: Some(next_incoming_id),
        incoming_window: 65_536,
        next_outgoing_id,
        outgoing_window: 65_536,
        handle: Some(handle),
        delivery_count: Some(0),
        link_credit: Some(credit),
        ..Flow::default()
    }
}

fn transfer(handle: u32, id: u32) -> Transfer {
    Transfer {
        handle,
        delivery_id: Some(id),
        delivery_tag: Some(DeliveryTag::from(id)),
        message_format: Some(0),
        settled: Some(false),
        ..Transfer::default()
    }
}

/// Describes the frames of the service in short.
fn kinds(sent: &[super::support::Sent]) -> Vec<&'static str> {
    sent.iter()
        .map(|sent| match sent.performative {
            Performative::Open(_) => "open",
            Performative::Begin(_) => "begin",
            Performative::Attach(_) => "attach",
            Performative::Flow(_) => "flow",
            Performative::Transfer(_) => "transfer",
            Performative::Disposition(_) => "disposition",
            Performative::Detach(_) => "detach",
            Performative::End(_) => "end",
            Performative::Close(_) => "close",
        })
        .collect()
}

/// Sends SASL, open, begin and the attaches to `$cbs`, pipelined like the SDK, and then a token. Returns the `$cbs`
/// links.
fn until_token(container_id: &'static str) -> (Script, [LinkId; 2]) {
    let mut script = Script::new(Connection::server(Config::server("service"), T0));
    script.header(Protocol::Sasl).unwrap();
    let mut init = BytesMut::new();
    let sasl = SaslInit {
        mechanism: "ANONYMOUS".into(),
        initial_response: Some(Bytes::new()),
        hostname: Some("localhost".into()),
    };
    FrameWriter::sasl(&mut init, &SaslFrame::Init(sasl)).finish();
    script.bytes(&init).unwrap();
    script.events();
    script.machine.sasl_outcome(SaslCode::Ok, Some(Bytes::from_static(b"Welcome!")));
    script.take_header();
    for _ in 0..2 {
        let out = script.machine.output();
        let (_, len) = decode_frame(out, 512).unwrap().unwrap();
        let _ = out.split_to(len);
    }

    script.header(Protocol::Amqp).unwrap();
    let open = Open {
        hostname: Some("example-ns.servicebus.windows.net".into()),
        max_frame_size: 1_048_576,
        channel_max: 65_535,
        properties: Some(Fields::new().with("product", "azsdk-python-eventhubs")),
        ..Open::new(container_id)
    };
    script.send(0, open);
    script.send(1, Begin { handle_max: u32::MAX, ..Begin::new(0, 65_536, 65_536) });
    script.send(1, cbs("reply", 2, Role::Receiver));
    script.send(1, cbs("request", 1, Role::Sender));
    let events = script.events();
    let [
        Event::Opened { .. },
        Event::SessionBegun { .. },
        Event::Attach { link: reply, .. },
        Event::Attach { link: request, .. },
    ] = events[..]
    else {
        panic!("{events:?}")
    };
    for link in [reply, request] {
        script
            .machine
            .accept(link, AttachReply { max_message_size: Some(u64::MAX), ..AttachReply::default() });
    }
    script.machine.set_credit(request, 100);
    script.take_header();
    let sent = script.sent();
    assert_eq!(kinds(&sent), ["open", "begin", "attach", "attach", "flow"]);

    script.send(1, flow(2, 1, 0, 10_000));
    script.send(1, flow(1, 1, 0, 10_000));
    script.transfer(transfer(1, 0), b"put-token");
    let events = script.events();
    let [Event::Flow { link, credit: 10_000, .. }, Event::Delivery { delivery, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(*link, reply);
    script.machine.settle(request, delivery.id, DeliveryState::Accepted);
    script.machine.send(reply, &outgoing(1), &[b"202"]).unwrap();
    assert_eq!(kinds(&script.sent()), ["disposition", "transfer"]);
    (script, [reply, request])
}

/// Detaches all links, ends and closes without waiting, like the SDK. Returns the answers.
fn farewell(script: &mut Script, handles: &[u32]) -> Vec<&'static str> {
    let mut bytes = BytesMut::new();
    for handle in handles {
        let detach = Detach { handle: *handle, closed: true, error: None };
        FrameWriter::amqp(&mut bytes, 1, &detach).finish();
    }
    FrameWriter::amqp(&mut bytes, 1, &End::default()).finish();
    FrameWriter::amqp(&mut bytes, 0, &Close::default()).finish();
    script.bytes(&bytes).unwrap();
    assert!(script.machine.is_closed());
    kinds(&frames(&script.machine.output().split()))
}

#[test]
fn sends_to_a_partition_are_answered_as_by_the_service() {
    let (mut script, _) = until_token("EHProducer");
    let attach = Attach {
        rcv_settle_mode: ReceiverSettleMode::Second,
        source: source("sender-link-11c0fea1"),
        target: target("amqps://example-ns.servicebus.windows.net/hub/Partitions/0"),
        initial_delivery_count: Some(0),
        max_message_size: Some(1_048_576),
        properties: Some(Fields::new().with("com.microsoft:timeout", 60_u32)),
        ..Attach::new("11c0fea1", 3, Role::Sender)
    };
    script.send(1, attach);
    let Event::Attach { link, .. } = script.events().remove(0) else { panic!("an attach") };
    script.machine.accept(link, AttachReply { max_message_size: Some(1_048_576), ..AttachReply::default() });
    script.machine.set_credit(link, 1_000);
    let sent = script.sent();
    assert_eq!(kinds(&sent), ["attach", "flow"]);
    let Performative::Flow(granted) = &sent[1].performative else { panic!("a flow") };
    assert_eq!(
        (granted.next_incoming_id, granted.incoming_window, granted.next_outgoing_id),
        (Some(1), 5_000, 2)
    );
    assert_eq!((granted.link_credit, granted.delivery_count), (Some(1_000), Some(0)));

    script.send(1, flow(3, 2, 1, 10_000));
    for id in 1..=10 {
        script.transfer(transfer(3, id), b"event");
        let events = script.events();
        assert!(
            matches!(&events[..], [Event::Delivery { delivery, .. }] if delivery.id == DeliveryId(id)),
            "{events:?}"
        );
        script.machine.settle(link, DeliveryId(id), DeliveryState::Accepted);
        let sent = script.sent();
        assert_eq!(kinds(&sent), ["disposition"]);
    }
    assert_eq!(farewell(&mut script, &[3, 2, 1]), ["detach", "detach", "detach", "end", "close"]);
}

#[test]
fn a_receiver_gets_events_until_its_link_is_stolen() {
    let (mut script, _) = until_token("EHReceiver");
    let name = Symbol::from_static("apache.org:selector-filter:string");
    let selector = Described {
        descriptor: Value::Symbol(name.clone()),
        value: Value::from("amqp.annotation.x-opt-offset > '-1'"),
    };
    let address = "amqps://example-ns.servicebus.windows.net/hub/ConsumerGroups/$default/Partitions/0";
    let attach = Attach {
        source: source(address).map(|source| Source {
            filter: Some(Fields::new().with(name, Value::Described(Box::new(selector)))),
            ..source
        }),
        target: target("receiver-link-77321920"),
        max_message_size: Some(1_048_576),
        desired_capabilities: vec!["com.microsoft:georeplication".into()],
        ..Attach::new("77321920", 3, Role::Receiver)
    };
    script.send(1, attach.clone());
    let Event::Attach { link, .. } = script.events().remove(0) else { panic!("an attach") };
    script.machine.accept(link, AttachReply::default());
    let Performative::Attach(reply) = script.sent_performatives().remove(0) else { panic!("an attach") };
    assert_eq!(reply.source, attach.source, "the filter is echoed");

    // First a flow without credit, then the prefetch.
    script.send(1, flow(3, 2, 1, 0));
    script.send(1, flow(3, 2, 1, 300));
    let events = script.events();
    assert!(
        matches!(events[..], [Event::Flow { credit: 0, .. }, Event::Flow { credit: 300, .. }]),
        "{events:?}"
    );
    for tag in 0..10 {
        let settled = peeklock_amqp::connection::Outgoing { settled: true, ..outgoing(tag) };
        script.machine.send(link, &settled, &[b"event"]).unwrap();
    }
    let ids: Vec<_> = script
        .sent_performatives()
        .into_iter()
        .map(|p| match p {
            Performative::Transfer(transfer) => transfer.delivery_id.unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, (65_537..65_547).collect::<Vec<u32>>(), "contiguous with the answer on $cbs");

    script
        .machine
        .detach(link, Some(AmqpError::new(condition::STOLEN, "a receiver with a higher epoch came")));
    assert_eq!(kinds(&script.sent()), ["detach"]);
    assert_eq!(
        farewell(&mut script, &[3, 2, 1]),
        ["detach", "detach", "end", "close"],
        "the stolen link's detach was sent before"
    );
}

#[test]
fn an_unknown_partition_is_refused() {
    let (mut script, _) = until_token("EHProducer");
    script.send(1, Attach { target: target("hub/Partitions/99"), ..cbs("x", 3, Role::Sender) });
    let Event::Attach { link, .. } = script.events().remove(0) else { panic!("an attach") };
    script.machine.refuse(link, AmqpError::new(condition::ARGUMENT_OUT_OF_RANGE, "no partition 99"));
    assert_eq!(kinds(&script.sent()), ["attach", "detach"]);
    assert_eq!(farewell(&mut script, &[3, 2, 1]), ["detach", "detach", "end", "close"]);
}
