//! Flow: link credit, drain, echo and session windows.

use peeklock_amqp::connection::{AttachReply, Config, Event, SendError};
use peeklock_amqp::{Begin, Detach, End, Flow, Performative, Role};

use super::support::{Pair, Script, Sent, attach, link_flow, outgoing, transfer};

fn session_flow(next_incoming_id: Option<u32>, incoming_window: u32) -> Flow {
    Flow { next_incoming_id, incoming_window, outgoing_window: 10, ..Flow::default() }
}

fn flows(sent: Vec<Sent>) -> Vec<Flow> {
    sent.into_iter()
        .map(|sent| match sent.performative {
            Performative::Flow(flow) => flow,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn every_flow_contains_the_next_incoming_id_and_both_numbers_of_the_link() {
    let (mut script, _) = Script::server();
    let link = script.receiving_link(0, 10);
    script.transfer(transfer(0, 0), b"x");
    script.machine.set_credit(link, 20);
    let flow = flows(script.sent()).remove(0);
    assert_eq!((flow.next_incoming_id, flow.incoming_window), (Some(1), 5_000));
    assert_eq!((flow.delivery_count, flow.link_credit), (Some(1), Some(20)));
    assert_eq!(script.machine.credit(link), 20);
}

#[test]
fn credit_follows_the_receivers_count() {
    let (mut script, _) = Script::server();
    let link = script.sending_link(3);
    assert_eq!(script.machine.send(link, &outgoing(0), &[]), Err(SendError::NoCredit));
    script.grant(3, 3);
    script.machine.send(link, &outgoing(0), &[b"x"]).unwrap();
    script.machine.send(link, &outgoing(1), &[b"x"]).unwrap();
    assert_eq!(script.machine.credit(link), 1);
    // The receiver has seen one of the two when it sends its flow.
    script.send(1, link_flow(3, 1, 5));
    assert_eq!(script.machine.credit(link), 4);
    // A flow without a count refers to the initial one.
    script.send(1, Flow { delivery_count: None, ..link_flow(3, 0, 10) });
    assert_eq!(script.machine.credit(link), 8);
    let events = script.events();
    assert!(
        matches!(events[..], [Event::Flow { credit: 4, .. }, Event::Flow { credit: 8, drain: false, .. }]),
        "{events:?}"
    );
}

#[test]
fn a_flow_before_the_attach_reply_counts_once_the_link_is_accepted() {
    let (mut script, _) = Script::server();
    let link = script.peer_attach(0, Role::Receiver);
    script.send(1, link_flow(0, 0, 25));
    assert!(script.events().is_empty());
    script.machine.accept(link, AttachReply::default());
    let events = script.events();
    assert!(matches!(events[..], [Event::Flow { credit: 25, drain: false, .. }]), "{events:?}");
    script.machine.send(link, &outgoing(0), &[b"x"]).unwrap();
    let sent = script.sent_performatives();
    assert!(matches!(sent[..], [Performative::Attach(_), Performative::Transfer(_)]), "{sent:?}");
}

#[test]
fn an_echo_is_answered_for_the_link_or_the_session() {
    let (mut script, _) = Script::server();
    script.sending_link(0);
    script.send(1, Flow { echo: true, ..link_flow(0, 0, 5) });
    let flow = flows(script.sent()).remove(0);
    assert_eq!((flow.handle, flow.delivery_count, flow.link_credit), (Some(0), Some(0), Some(5)));
    assert!(!flow.echo, "an echo of an echo never ends");
    script.send(1, Flow { echo: true, ..session_flow(Some(1), 100) });
    let flow = flows(script.sent()).remove(0);
    assert_eq!((flow.handle, flow.next_incoming_id), (None, Some(0)));
}

#[test]
fn a_drain_is_answered_with_the_credit_used_up() {
    let (mut script, _) = Script::server();
    let link = script.sending_link(0);
    script.send(1, Flow { drain: true, ..link_flow(0, 0, 10) });
    assert!(matches!(script.events()[..], [Event::Flow { credit: 10, drain: true, .. }]));
    script.machine.send(link, &outgoing(0), &[b"x"]).unwrap();
    script.machine.drained(link);
    script.machine.drained(link);
    let sent = script.sent();
    assert_eq!(sent.len(), 2, "the transfer, then one answer");
    let flow = flows(vec![sent.into_iter().nth(1).unwrap()]).remove(0);
    assert!(flow.drain);
    assert_eq!((flow.delivery_count, flow.link_credit, flow.next_outgoing_id), (Some(10), Some(0), 2));
    assert_eq!(script.machine.credit(link), 0);
    script.send(1, link_flow(0, 10, 2));
    assert_eq!(script.machine.credit(link), 2, "credit counts on from the drained count");
}

#[test]
fn a_drain_without_credit_is_answered_all_the_same() {
    let (mut script, _) = Script::server();
    let link = script.sending_link(0);
    script.send(1, Flow { drain: true, ..link_flow(0, 0, 0) });
    assert!(matches!(script.events()[..], [Event::Flow { credit: 0, drain: true, .. }]));
    script.machine.drained(link);
    let flow = flows(script.sent()).remove(0);
    assert!(flow.drain && flow.link_credit == Some(0));
}

#[test]
fn a_cancelled_drain_needs_no_answer() {
    let (mut script, _) = Script::server();
    let link = script.sending_link(0);
    script.send(1, Flow { drain: true, ..link_flow(0, 0, 10) });
    script.send(1, link_flow(0, 0, 10));
    script.machine.drained(link);
    assert_eq!(script.sent(), []);
    assert_eq!(script.machine.credit(link), 10);
}

#[test]
fn a_drain_waits_for_sends_that_wait_for_the_window() {
    let (mut script, _) = Script::server();
    let link = script.sending_link(0);
    script.send(1, Flow { drain: true, incoming_window: 1, ..link_flow(0, 0, 10) });
    for tag in 0..3 {
        script.machine.send(link, &outgoing(tag), &[b"x"]).unwrap();
    }
    assert_eq!(script.machine.credit(link), 7);
    script.machine.drained(link);
    assert!(matches!(script.sent_performatives()[..], [Performative::Transfer(_)]));
    script.send(1, session_flow(Some(2), 100));
    let sent = script.sent_performatives();
    let [Performative::Transfer(_), Performative::Transfer(_), Performative::Flow(flow)] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!((flow.delivery_count, flow.link_credit, flow.drain), (Some(10), Some(0), true));
}

/// rhea takes the answer as the end of the messages, also if it arrives between two frames of the last one.
#[test]
fn a_drain_waits_for_the_rest_of_a_delivery_that_has_begun() {
    let (mut script, _) = Script::server();
    let link = script.sending_link(0);
    script.send(1, Flow { drain: true, incoming_window: 1, ..link_flow(0, 0, 1) });
    let body = vec![b'x'; 3 * 1024 * 1024];
    script.machine.send(link, &outgoing(0), &[&body]).unwrap();
    script.machine.drained(link);
    let sent = script.sent_performatives();
    assert!(matches!(&sent[..], [Performative::Transfer(first)] if first.more), "{sent:?}");
    script.send(1, session_flow(Some(2), 1000));
    let sent = script.sent_performatives();
    let (Some(Performative::Flow(flow)), others) = (sent.last(), sent.len() - 1) else { panic!("{sent:?}") };
    assert!(flow.drain && others > 0);
    assert!(sent.iter().take(others).all(|frame| matches!(frame, Performative::Transfer(_))), "{sent:?}");
}

#[test]
fn a_receiver_gets_an_event_when_its_drain_is_complete() {
    let (mut script, session) = Script::client();
    let link = script.machine.attach(session, attach("x", 0, Role::Receiver)).unwrap();
    script.machine.set_credit(link, 5);
    script.sent();
    script.send(5, attach("x", 0, Role::Sender));
    let flow = flows(script.sent()).remove(0);
    assert_eq!((flow.delivery_count, flow.link_credit), (Some(0), Some(5)), "the early credit is sent now");
    script.machine.drain(link);
    assert!(flows(script.sent()).remove(0).drain);
    script.try_send(5, transfer(0, 0), b"x").unwrap();
    script.send(5, Flow { drain: true, ..link_flow(0, 5, 0) });
    let events = script.events();
    assert!(
        matches!(
            events[..],
            [Event::Attached { .. }, Event::Delivery { .. }, Event::Flow { credit: 0, drain: true, .. }]
        ),
        "{events:?}"
    );
    assert_eq!(script.machine.credit(link), 0);
    script.machine.drain(link);
    assert_eq!(script.sent(), [], "nothing to drain");
    assert!(matches!(script.events()[..], [Event::Flow { drain: true, .. }]));
    script.machine.set_credit(link, 1);
    assert_eq!(flows(script.sent()).remove(0).delivery_count, Some(5));
}

#[test]
fn deliveries_that_use_up_the_credit_complete_a_drain_too() {
    let (mut script, session) = Script::client();
    let link = script.machine.attach(session, attach("x", 0, Role::Receiver)).unwrap();
    script.send(5, attach("x", 0, Role::Sender));
    script.machine.set_credit(link, 1);
    script.machine.drain(link);
    script.events();
    script.try_send(5, transfer(0, 0), b"x").unwrap();
    let events = script.events();
    assert!(
        matches!(events[..], [Event::Delivery { .. }, Event::Flow { credit: 0, drain: true, .. }]),
        "{events:?}"
    );
}

/// pyamqp announces 10000 credits on links it sends on.
#[test]
fn credit_from_a_sender_is_ignored() {
    let (mut script, _) = Script::server();
    let link = script.receiving_link(0, 10);
    script.send(1, link_flow(0, 0, 10_000));
    assert!(script.events().is_empty());
    assert_eq!(script.sent(), []);
    assert_eq!(script.machine.credit(link), 10);
}

#[test]
fn sends_wait_for_the_peers_window_in_order() {
    let (mut script, session) = Script::server();
    let link = script.sending_link(0);
    script.send(1, Flow { incoming_window: 2, ..link_flow(0, 0, 100) });
    script.events();
    for tag in 0..5 {
        script.machine.send(link, &outgoing(tag), &[&tag.to_be_bytes()]).unwrap();
    }
    assert_eq!(script.sent().len(), 2);
    assert!(script.machine.blocked_len() > 0);
    // The peer has seen one of the two, and has room for two from there: one more fits.
    script.send(1, session_flow(Some(2), 2));
    assert_eq!(script.sent().len(), 1);
    assert!(script.events().is_empty());
    // A shrinking window, like rhea's while deliveries stay unsettled, is respected.
    script.send(1, session_flow(Some(4), 0));
    assert_eq!(script.sent(), []);
    script.send(1, session_flow(Some(4), 50));
    let ids: Vec<u32> = script
        .sent()
        .into_iter()
        .map(|sent| match sent.performative {
            Performative::Transfer(transfer) => transfer.delivery_id.unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, [65_539, 65_540]);
    assert_eq!(script.machine.blocked_len(), 0);
    let events = script.events();
    assert!(matches!(events[..], [Event::Unblocked { session: s }] if s == session), "{events:?}");
}

/// With a driver that sends no more than leaves at once, a drain is answered at once, however small the window.
#[test]
fn a_driver_can_respect_the_window_and_gets_an_event_when_it_opens() {
    let (mut script, session) = Script::server();
    let link = script.sending_link(0);
    script.send(1, Flow { incoming_window: 2, ..link_flow(0, 0, 100) });
    script.events();
    assert_eq!((script.machine.credit(link), script.machine.sendable(link)), (100, 2));
    for tag in 0..2 {
        script.machine.send(link, &outgoing(tag), &[b"x"]).unwrap();
    }
    assert_eq!(script.machine.sendable(link), 0);
    script
        .send(1, Flow { drain: true, next_incoming_id: Some(3), incoming_window: 0, ..link_flow(0, 2, 98) });
    script.machine.drained(link);
    let sent = script.sent_performatives();
    assert!(
        matches!(&sent[2..], [Performative::Flow(flow)] if flow.drain && flow.link_credit == Some(0)),
        "{sent:?}"
    );
    script.events();
    script.send(1, Flow { next_incoming_id: Some(3), incoming_window: 0, ..link_flow(0, 100, 7) });
    assert!(matches!(script.events()[..], [Event::Flow { credit: 7, .. }]));
    script.send(1, session_flow(Some(3), 5));
    assert!(matches!(script.events()[..], [Event::Unblocked { session: s }] if s == session));
    assert_eq!(script.machine.sendable(link), 5);
}

#[test]
fn a_window_without_id_counts_from_the_first() {
    let (mut script, _) = Script::server();
    let link = script.sending_link(0);
    script.send(1, Flow { next_incoming_id: None, incoming_window: 1, ..link_flow(0, 0, 100) });
    script.machine.send(link, &outgoing(0), &[]).unwrap();
    script.machine.send(link, &outgoing(1), &[]).unwrap();
    assert_eq!(script.sent().len(), 1);
    script.send(1, session_flow(None, 2));
    assert_eq!(script.sent().len(), 1);
}

#[test]
fn a_blocked_link_can_be_detached_and_leaves_no_gap_in_the_ids() {
    let (mut script, _) = Script::server();
    let (a, b) = (script.sending_link(0), script.sending_link(1));
    script.send(1, Flow { incoming_window: 1, ..link_flow(0, 0, 100) });
    script.send(1, Flow { incoming_window: 1, ..link_flow(1, 0, 100) });
    script.machine.send(a, &outgoing(0), &[b"a"]).unwrap();
    script.machine.send(a, &outgoing(1), &[b"a"]).unwrap();
    script.machine.send(b, &outgoing(2), &[b"b"]).unwrap();
    script.sent();
    script.send(1, Detach { handle: 0, closed: true, error: None });
    assert!(matches!(script.sent_performatives()[..], [Performative::Detach(_)]));
    script.send(1, session_flow(Some(2), 100));
    let sent = script.sent_performatives();
    assert!(
        matches!(&sent[..], [Performative::Transfer(t)] if t.delivery_id == Some(65_537) && t.handle == 1),
        "{sent:?}"
    );
    assert_eq!(script.machine.blocked_len(), 0);
}

/// A driver that waits for room gets an event when sends are dropped, whatever the cause.
#[test]
fn dropped_sends_make_room_and_emit_an_event() {
    for cause in ["detached by the peer", "detached by us", "ended by the peer", "ended by us"] {
        let (mut script, session) = Script::server();
        let (a, b) = (script.sending_link(0), script.sending_link(1));
        script.send(1, Flow { incoming_window: 0, ..link_flow(0, 0, 100) });
        script.send(1, Flow { incoming_window: 0, ..link_flow(1, 0, 100) });
        script.machine.send(a, &outgoing(0), &[b"a"]).unwrap();
        let of_one = script.machine.blocked_len();
        script.machine.send(b, &outgoing(1), &[b"b"]).unwrap();
        script.events();
        let is_end = match cause {
            "detached by the peer" => {
                script.send(1, Detach { handle: 0, closed: true, error: None });
                false
            }
            "detached by us" => {
                script.machine.detach(a, None);
                false
            }
            "ended by the peer" => {
                script.send(1, End::default());
                true
            }
            _ => {
                script.machine.end(session, None);
                true
            }
        };
        let events = script.events();
        let is_unblocked = |event: &&Event| matches!(event, Event::Unblocked { session: s } if *s == session);
        assert_eq!(events.iter().filter(is_unblocked).count(), 1, "{cause}: {events:?}");
        assert_eq!(script.machine.blocked_len(), if is_end { 0 } else { of_one }, "{cause}");
    }
}

#[test]
fn a_link_without_waiting_sends_detaches_without_an_event_about_room() {
    let (mut script, _) = Script::server();
    let (a, _) = (script.sending_link(0), script.sending_link(1));
    script.send(1, Flow { incoming_window: 0, ..link_flow(0, 0, 100) });
    script.machine.send(a, &outgoing(0), &[b"a"]).unwrap();
    script.events();
    script.send(1, Detach { handle: 1, closed: true, error: None });
    assert!(matches!(script.events()[..], [Event::Detached { .. }]));
}

#[test]
fn sends_that_wait_are_bounded() {
    let mut config = Config::server("s");
    config.limits.blocked_bytes_max = 1_000;
    let (mut script, _) = Script::server_with(config);
    let link = script.sending_link(0);
    script.send(1, Flow { incoming_window: 0, ..link_flow(0, 0, u32::MAX) });
    let accepted =
        (0..10_000).take_while(|tag| script.machine.send(link, &outgoing(*tag), &[]).is_ok()).count();
    assert!((1..100).contains(&accepted), "{accepted} sends without payload were queued");
    assert_eq!(script.machine.send(link, &outgoing(0), &[b"x"]), Err(SendError::Blocked));
}

#[test]
fn our_window_is_renewed_when_half_of_it_is_used() {
    let config = Config { incoming_window: 10, ..Config::server("s") };
    let (mut script, _) = Script::server_with(config);
    let link = script.receiving_link(0, 100);
    for id in 0..4 {
        script.transfer(transfer(0, id), b"x");
    }
    assert_eq!(script.sent(), []);
    script.transfer(transfer(0, 4), b"x");
    let flow = flows(script.sent()).remove(0);
    assert_eq!((flow.handle, flow.next_incoming_id, flow.incoming_window), (None, Some(5), 10));
    assert_eq!(script.machine.credit(link), 95);
}

#[test]
fn our_window_shrinks_with_unsettled_deliveries_and_grows_with_settlements() {
    let mut config = Config { incoming_window: 10, ..Config::server("s") };
    config.limits.unsettled_incoming_max = 12;
    let (mut script, _) = Script::server_with(config);
    let link = script.receiving_link(0, 100);
    let mut windows = Vec::new();
    for id in 0..12 {
        script.transfer(transfer(0, id), b"x");
        windows.extend(flows(script.sent()).into_iter().map(|flow| flow.incoming_window));
    }
    assert_eq!(windows, [7], "after five deliveries there is room for seven more, and that is all");
    for event in script.events() {
        let Event::Delivery { delivery, .. } = event else { panic!("{event:?}") };
        script.machine.settle(link, delivery.id, peeklock_amqp::DeliveryState::Accepted);
    }
    let sent = script.sent_performatives();
    let [Performative::Disposition(_), Performative::Flow(flow)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(flow.incoming_window, 10);
}

#[test]
fn windows_and_credit_survive_the_wrap_of_every_counter() {
    let client = Config {
        next_outgoing_id: u32::MAX - 3,
        first_delivery_id: u32::MAX - 2,
        incoming_window: 4,
        ..Config::client("c", "h")
    };
    let server = Config { incoming_window: 4, ..Config::server("s") };
    let (mut pair, near, far) = Pair::linked(client, server, Role::Sender);
    let mut received = Vec::new();
    for round in 0..8_u32 {
        pair.server.set_credit(far, 3);
        pair.run();
        for tag in 0..3 {
            pair.client.send(near, &outgoing(round * 3 + tag), &[b"payload"]).unwrap();
        }
        pair.run();
        for event in pair.server_events() {
            if let Event::Delivery { link, delivery } = event {
                received.push(delivery.id.0);
                pair.server.settle(link, delivery.id, peeklock_amqp::DeliveryState::Accepted);
            }
        }
        pair.run();
        let settled = pair
            .client_events()
            .iter()
            .filter(|e| matches!(e, Event::Disposition { settled: true, .. }))
            .count();
        assert_eq!(settled, 3);
    }
    let expected: Vec<u32> = (0..24).map(|i| (u32::MAX - 2).wrapping_add(i)).collect();
    assert_eq!(received, expected);
}

#[test]
fn the_window_of_a_begin_limits_the_first_sends() {
    let (mut script, _) = Script::server();
    script.send(2, Begin::new(0, 1, 1));
    script.sent();
    script.events();
    script.send(2, attach("x", 0, Role::Receiver));
    let Event::Attach { link, .. } = script.events().remove(0) else { panic!("an attach") };
    script.machine.accept(link, AttachReply::default());
    script.send(2, Flow { incoming_window: 1, ..link_flow(0, 0, 9) });
    script.sent();
    script.machine.send(link, &outgoing(0), &[]).unwrap();
    script.machine.send(link, &outgoing(1), &[]).unwrap();
    assert_eq!(script.sent().len(), 1);
}
