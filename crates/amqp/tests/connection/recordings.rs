//! Feeds the bytes of real clients on a connection (see `fixtures/README.md`) to a server that accepts everything. The
//! clients used another server, so their dispositions name ids that ours never issued: those are ignored.

use bytes::BytesMut;
use peeklock_amqp::connection::{AttachReply, Config, Connection, Event};
use peeklock_amqp::{DeliveryState, SaslCode};

use super::support::{T0, outgoing};

/// The actions of a client that the machine reported.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    opens: u32,
    sessions: u32,
    links: u32,
    deliveries: u32,
    detached: u32,
    closes: u32,
}

fn replay(recording: &[u8], chunk_len: usize) -> Seen {
    let mut server = Connection::server(Config::server("server"), T0);
    let mut seen = Seen::default();
    let mut input = BytesMut::new();
    for chunk in recording.chunks(chunk_len) {
        input.extend_from_slice(chunk);
        server.handle_input(T0, &mut input).unwrap();
        while let Some(event) = server.poll_event() {
            answer(&mut server, event, &mut seen, &mut input);
        }
        server.output().clear();
    }
    assert!(input.is_empty(), "{} bytes are left", input.len());
    seen
}

fn answer(server: &mut Connection, event: Event, seen: &mut Seen, input: &mut BytesMut) {
    match event {
        Event::SaslInit { .. } => {
            server.sasl_outcome(SaslCode::Ok, None);
            server.handle_input(T0, input).unwrap();
        }
        Event::Opened { sasl, .. } => {
            assert!(sasl);
            seen.opens += 1;
        }
        Event::SessionBegun { .. } => seen.sessions += 1,
        Event::Attach { link, .. } => {
            seen.links += 1;
            server.accept(link, AttachReply::default());
            server.set_credit(link, 100);
        }
        Event::Flow { link, credit, .. } if credit > 0 => {
            server.send(link, &outgoing(1), &[b"message"]).unwrap()
        }
        Event::Delivery { link, delivery } => {
            seen.deliveries += 1;
            server.settle(link, delivery.id, DeliveryState::Accepted);
        }
        Event::Detached { .. } => seen.detached += 1,
        Event::Closed { .. } => seen.closes += 1,
        _ => {}
    }
}

#[track_caller]
fn check(recording: &[u8], [sessions, links, deliveries, detached]: [u32; 4]) {
    let expected = Seen { opens: 1, sessions, links, deliveries, detached, closes: 1 };
    // Chunks shorter than a frame: a client waits for answers between its frames.
    for chunk_len in [1, 7] {
        assert_eq!(replay(recording, chunk_len), expected);
    }
}

#[test]
fn the_javascript_sdk_is_understood() {
    check(include_bytes!("../fixtures/streams/js-servicebus.bin"), [3, 4, 5, 4]);
}

#[test]
fn the_python_sdks_are_understood() {
    check(include_bytes!("../fixtures/streams/python-servicebus-send.bin"), [1, 3, 6, 3]);
    check(include_bytes!("../fixtures/streams/python-servicebus-receive.bin"), [1, 3, 1, 3]);
    check(include_bytes!("../fixtures/streams/python-eventhub.bin"), [1, 2, 0, 2]);
}

#[test]
fn proton_closes_without_detaching() {
    check(include_bytes!("../fixtures/streams/python-proton.bin"), [1, 2, 0, 0]);
}
