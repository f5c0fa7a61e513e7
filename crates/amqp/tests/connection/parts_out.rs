//! Deliveries that are sent in parts: one delivery on the wire, for all parts, windows and other links.

use peeklock_amqp::connection::{AttachReply, Config, Event, LinkId, Outgoing, Part, SendError};
use peeklock_amqp::{Begin, Detach, Flow, Performative, Role, Transfer};
use proptest::prelude::*;

use super::support::{Pair, Script, link_flow, outgoing};

/// Returns a server that may send small frames to a peer with room for `window` of them.
fn server(window: u32) -> Script {
    let (mut script, _) = Script::server();
    script.send(1, Flow { incoming_window: window, ..link_flow_of_session() });
    script.events();
    script
}

fn link_flow_of_session() -> Flow {
    Flow { handle: None, delivery_count: None, link_credit: None, ..link_flow(0, 0, 0) }
}

fn sender(script: &mut Script, handle: u32) -> LinkId {
    let link = script.peer_attach(handle, Role::Receiver);
    script.machine.accept(link, AttachReply::default());
    script.sent();
    link
}

fn grant(script: &mut Script, handle: u32, window: u32) {
    script.send(1, Flow { incoming_window: window, ..link_flow(handle, 0, 10) });
    script.events();
}

/// Returns the transfers that left: handle, delivery-id, bytes, and how they end.
fn transfers(script: &mut Script) -> Vec<(u32, Option<u32>, usize, &'static str)> {
    let of = |sent: super::support::Sent| {
        let Performative::Transfer(Transfer { handle, delivery_id, more, aborted, .. }) = sent.performative
        else {
            panic!("{sent:?}")
        };
        let end = if aborted {
            "aborted"
        } else if more {
            "more"
        } else {
            "end"
        };
        (handle, delivery_id, sent.payload.len(), end)
    };
    script.sent().into_iter().map(of).collect()
}

const FIRST_ID: u32 = 65_536;

#[test]
fn parts_are_one_delivery_and_other_links_are_interleaved() {
    let mut script = server(100);
    let (a, b) = (sender(&mut script, 0), sender(&mut script, 1));
    grant(&mut script, 0, 100);
    grant(&mut script, 1, 100);
    let large = outgoing(1);
    script.machine.send_part(a, &large, &[&[0; 100], &[0; 50]], true).unwrap();
    script.machine.send(b, &outgoing(2), &[b"small"]).unwrap();
    script.machine.send_part(a, &large, &[], true).unwrap();
    assert_eq!(script.machine.send(a, &outgoing(3), &[b"x"]), Err(SendError::Incomplete));
    assert_eq!((script.machine.sendable(a), script.machine.sendable(b)), (0, 9));
    script.machine.send_part(a, &large, &[&[0; 7]], true).unwrap();
    script.machine.send_part(a, &large, &[], false).unwrap();
    script.machine.send(a, &outgoing(3), &[b"x"]).unwrap();
    let expected = [
        (0, Some(FIRST_ID), 150, "more"),
        (1, Some(FIRST_ID + 1), 5, "end"),
        (0, None, 7, "more"),
        (0, None, 0, "end"),
        (0, Some(FIRST_ID + 2), 1, "end"),
    ];
    assert_eq!(transfers(&mut script), expected);
    assert_eq!((script.machine.credit(a), script.machine.unsettled(a)), (8, 2));
}

#[test]
fn parts_wait_for_the_window_in_order_and_the_driver_gets_an_event() {
    let mut script = server(2);
    let (a, b) = (sender(&mut script, 0), sender(&mut script, 1));
    grant(&mut script, 0, 2);
    grant(&mut script, 1, 2);
    assert!(script.machine.part_room(a) > 512);
    let large = outgoing(1);
    script.machine.send_part(a, &large, &[&[0; 10]], true).unwrap();
    script.machine.send_part(a, &large, &[&[0; 11]], true).unwrap();
    assert_eq!(script.machine.part_room(a), 0);
    script.machine.send_part(a, &large, &[&[0; 12]], true).unwrap();
    script.machine.send(b, &outgoing(2), &[b"small"]).unwrap();
    script.machine.send_part(a, &large, &[&[0; 13]], false).unwrap();
    script.machine.send(a, &outgoing(3), &[b"next"]).unwrap();
    let expected = [(0, Some(FIRST_ID), 10, "more"), (0, None, 11, "more")];
    assert_eq!(transfers(&mut script), expected);
    script.send(1, Flow { next_incoming_id: Some(3), incoming_window: 10, ..link_flow_of_session() });
    let events = script.events();
    assert!(matches!(events[..], [Event::Unblocked { .. }]), "{events:?}");
    let expected = [
        (0, None, 12, "more"),
        (1, Some(FIRST_ID + 1), 5, "end"),
        (0, None, 13, "end"),
        (0, Some(FIRST_ID + 2), 4, "end"),
    ];
    assert_eq!(transfers(&mut script), expected);
    assert!(script.machine.part_room(a) > 0 && script.machine.blocked_len() == 0);
}

/// Many unsettled deliveries block new ones, but not the rest of one that has begun.
#[test]
fn the_window_alone_limits_further_parts() {
    let mut config = Config::server("s");
    config.limits.unsettled_outgoing_max = 1;
    let (mut script, _) = Script::server_with(config);
    let link = sender(&mut script, 0);
    grant(&mut script, 0, 1);
    let large = outgoing(1);
    script.machine.send_part(link, &large, &[&[0; 10]], true).unwrap();
    assert_eq!(script.machine.part_room(link), 0);
    grant_without_taking(&mut script);
    let events = script.events();
    assert!(matches!(events[..], [Event::Unblocked { .. }]), "{events:?}");
    script.machine.send_part(link, &large, &[&[0; 10]], false).unwrap();
    assert_eq!(script.machine.send_part(link, &outgoing(2), &[b"x"], true), Err(SendError::TooManyUnsettled));
}

fn grant_without_taking(script: &mut Script) {
    script.send(1, Flow { next_incoming_id: Some(2), incoming_window: 5, ..link_flow_of_session() });
}

#[test]
fn an_aborted_delivery_is_aborted_on_the_wire() {
    let mut script = server(100);
    let link = sender(&mut script, 0);
    grant(&mut script, 0, 100);
    script.machine.abort(link);
    script.machine.send_part(link, &outgoing(1), &[&[0; 10]], true).unwrap();
    script.machine.abort(link);
    script.machine.abort(link);
    script.machine.send(link, &outgoing(2), &[b"next"]).unwrap();
    let expected =
        [(0, Some(FIRST_ID), 10, "more"), (0, None, 0, "aborted"), (0, Some(FIRST_ID + 1), 4, "end")];
    assert_eq!(transfers(&mut script), expected);
    assert_eq!((script.machine.credit(link), script.machine.unsettled(link)), (8, 1));
}

#[test]
fn a_delivery_that_is_aborted_while_it_waits_loses_its_parts() {
    let mut script = server(1);
    let link = sender(&mut script, 0);
    grant(&mut script, 0, 1);
    // The delivery has begun, so the abort has to wait.
    script.machine.send_part(link, &outgoing(1), &[&[0; 10]], true).unwrap();
    script.machine.send_part(link, &outgoing(1), &[&[0; 1000]], true).unwrap();
    script.machine.abort(link);
    assert!(script.machine.blocked_len() < 1000);
    assert!(matches!(script.events()[..], [Event::Unblocked { .. }]));
    // The delivery has not begun, so no frame of it is ever sent.
    script.machine.send_part(link, &outgoing(2), &[&[0; 20]], true).unwrap();
    script.machine.send_part(link, &outgoing(2), &[&[0; 20]], true).unwrap();
    assert_eq!(script.machine.credit(link), 8);
    script.machine.abort(link);
    assert_eq!(script.machine.credit(link), 9);
    script.machine.send(link, &outgoing(3), &[b"next"]).unwrap();
    script.send(1, Flow { next_incoming_id: Some(2), incoming_window: 10, ..link_flow_of_session() });
    let expected =
        [(0, Some(FIRST_ID), 10, "more"), (0, None, 0, "aborted"), (0, Some(FIRST_ID + 1), 4, "end")];
    assert_eq!(transfers(&mut script), expected);
    assert_eq!((script.machine.blocked_len(), script.machine.unsettled(link)), (0, 1));
}

#[test]
fn a_link_that_detaches_in_the_middle_of_a_delivery_drops_its_parts() {
    let mut script = server(1);
    let link = sender(&mut script, 0);
    grant(&mut script, 0, 1);
    script.machine.send_part(link, &outgoing(1), &[&[0; 10]], true).unwrap();
    script.machine.send_part(link, &outgoing(1), &[&[0; 10]], true).unwrap();
    script.send(1, Detach { handle: 0, closed: true, error: None });
    assert_eq!(script.machine.blocked_len(), 0);
    assert_eq!(script.machine.send_part(link, &outgoing(1), &[&[0; 10]], false), Err(SendError::NotAttached));
    let sent = script.sent_performatives();
    assert!(matches!(sent[..], [Performative::Transfer(_), Performative::Detach(_)]), "{sent:?}");
}

/// A receiver's view of one delivery.
#[derive(Default)]
struct Received {
    payload: Vec<u8>,
    is_complete: bool,
    part_count: usize,
}

impl Received {
    fn take(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Delivery { delivery, .. } => {
                    self.payload.extend_from_slice(&delivery.payload);
                    self.is_complete = true;
                }
                Event::Part { part: Part::First(delivery), .. } => {
                    self.payload.extend_from_slice(&delivery.payload);
                    self.part_count += 1;
                }
                Event::Part { part: Part::More(payload), .. } => self.payload.extend_from_slice(&payload),
                Event::Part { part: Part::Last { .. }, .. } => self.is_complete = true,
                Event::Unblocked { .. } | Event::Flow { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Both machines together: the bytes of all parts arrive in order, once.
    #[test]
    fn parts_arrive_complete(
        parts in prop::collection::vec(0_usize..2_000, 1..12),
        frame_size in 512_u32..1_500,
        window in 1_u32..8,
        step in 1_usize..3_000,
    ) {
        let mut receiving = Config { max_frame_size_bytes: frame_size, incoming_window: window, ..Config::server("s") };
        receiving.limits.whole_size_bytes_max = 1_500;
        let (mut pair, near, far) = Pair::linked(Config::client("c", "h"), receiving, Role::Sender);
        pair.server.set_credit(far, 1);
        pair.run();
        let mut received = Received::default();
        let mut sent = Vec::new();
        let delivery: Outgoing = outgoing(9);
        for (at, len) in parts.iter().enumerate() {
            let bytes: Vec<u8> = (0..*len).map(|i| u8::try_from((i * 7 + at) % 251).expect("below 251")).collect();
            pair.client.send_part(near, &delivery, &[&bytes], at + 1 < parts.len()).expect("credit");
            sent.extend(bytes);
            pair.step(step);
            received.take(pair.server_events());
        }
        while pair.step(step) {
            received.take(pair.server_events());
        }
        received.take(pair.server_events());
        prop_assert!(received.is_complete && pair.client.blocked_len() == 0);
        prop_assert_eq!(received.part_count, usize::from(sent.len() > 1_500));
        prop_assert_eq!(received.payload, sent);
    }
}

/// The window of the peer is closed from the start.
#[test]
fn nothing_leaves_before_there_is_a_window() {
    let (mut script, _) = Script::server();
    script.send(2, Begin::new(0, 0, 100));
    script.events();
    script.sent();
    script.send(2, super::support::attach("l", 0, Role::Receiver));
    let events = script.events();
    let [Event::Attach { link, .. }] = events[..] else { panic!("{events:?}") };
    script.machine.accept(link, AttachReply::default());
    script.sent();
    script.send(2, Flow { incoming_window: 0, ..link_flow(0, 0, 1) });
    assert_eq!(script.machine.part_room(link), 0);
    script.machine.send_part(link, &outgoing(1), &[b"abc"], false).unwrap();
    assert_eq!(script.sent(), []);
    script.send(2, Flow { incoming_window: 1, ..link_flow(0, 0, 1) });
    assert_eq!(transfers(&mut script), [(0, Some(FIRST_ID), 3, "end")]);
}
