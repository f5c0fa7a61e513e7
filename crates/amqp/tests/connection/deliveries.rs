//! Transfers and dispositions: numbering, frames, aborts, settlement, order.

use peeklock_amqp::connection::{AttachReply, Config, DeliveryId, Event};
use peeklock_amqp::{
    AmqpError, Begin, DeliveryState, DeliveryTag, Disposition, Flow, Open, Performative, Protocol, Role,
    Transfer, condition,
};

use super::support::{Pair, Script, T0, attach, deliveries, link_flow, outgoing, transfer};
use peeklock_amqp::connection::Connection;

fn disposition(role: Role, first: u32, last: Option<u32>, settled: bool) -> Disposition {
    Disposition { role, first, last, settled, state: Some(DeliveryState::Accepted), batchable: false }
}

fn sent_dispositions(script: &mut Script) -> Vec<(Role, u32, Option<u32>, bool)> {
    script
        .sent_performatives()
        .into_iter()
        .map(|performative| match performative {
            Performative::Disposition(d) => (d.role, d.first, d.last, d.settled),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn ids_are_contiguous_across_the_links_of_a_session_and_start_high() {
    let (mut script, _) = Script::server();
    let (a, b) = (script.sending_link(0), script.sending_link(1));
    script.grant(0, 10);
    script.grant(1, 10);
    for link in [a, b, b, a] {
        script.machine.send(link, &outgoing(1), &[b"x"]).unwrap();
    }
    let ids: Vec<_> = script
        .sent_performatives()
        .into_iter()
        .map(|p| match p {
            Performative::Transfer(transfer) => (transfer.handle, transfer.delivery_id.unwrap()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, [(0, 65_536), (1, 65_537), (1, 65_538), (0, 65_539)]);
}

#[test]
fn a_first_transfer_has_all_fields() {
    let (mut script, _) = Script::server();
    let link = script.sending_link(0);
    script.grant(0, 1);
    let tag = DeliveryTag::from([7; 16]);
    let delivery =
        peeklock_amqp::connection::Outgoing { tag, message_format: 0x8001_3700, settled: true, state: None };
    script.machine.send(link, &delivery, &[b"ab", b"", b"c"]).unwrap();
    let sent = script.sent().remove(0);
    assert_eq!(sent.payload, b"abc");
    let Performative::Transfer(transfer) = sent.performative else { panic!("a transfer") };
    assert_eq!((transfer.delivery_tag, transfer.message_format), (Some(tag), Some(0x8001_3700)));
    assert_eq!((transfer.settled, transfer.more), (Some(true), false));
}

#[test]
fn frames_have_the_peers_size_and_each_counts_against_the_window() {
    let mut script = Script::new(Connection::server(Config::server("s"), T0));
    script.header(Protocol::Amqp).unwrap();
    script.send(0, Open { max_frame_size: 600, ..Open::new("peer") });
    script.send(1, Begin::new(0, 100, 100));
    script.take_header();
    script.sent();
    script.events();
    let link = script.sending_link(0);
    script.send(1, Flow { incoming_window: 3, ..link_flow(0, 0, 10) });
    script.machine.send(link, &outgoing(0), &[&[1; 2_000]]).unwrap();
    script.machine.send(link, &outgoing(1), &[b"next"]).unwrap();
    let first = script.sent();
    assert_eq!(first.len(), 3, "the window has room for three frames");
    script.send(1, Flow { next_incoming_id: Some(4), incoming_window: 10, ..Flow::default() });
    let rest = script.sent();
    assert_eq!(rest.len(), 2);
    let payload_len: usize = first.iter().chain(&rest[..1]).map(|sent| sent.payload.len()).sum();
    assert_eq!(payload_len, 2_000);
    let Performative::Transfer(next) = &rest[1].performative else { panic!("a transfer") };
    assert_eq!(next.delivery_id, Some(65_537), "four frames are one delivery");
    script.send(1, Flow { echo: true, ..link_flow(0, 0, 10) });
    let Performative::Flow(flow) = script.sent_performatives().remove(0) else { panic!("a flow") };
    assert_eq!(flow.next_outgoing_id, 6, "five frames were sent from id 1 on");
}

#[test]
fn a_peer_may_accept_smaller_frames_than_it_sends() {
    let (mut pair, near, far) = Pair::linked(
        Config { max_frame_size_bytes: 512, ..Config::client("c", "h") },
        Config { max_frame_size_bytes: 4_096, ..Config::server("s") },
        Role::Sender,
    );
    pair.server.set_credit(far, 1);
    pair.run();
    pair.client.send(near, &outgoing(0), &[&[5; 10_000]]).unwrap();
    pair.run();
    let delivery = deliveries(pair.server_events()).remove(0);
    assert_eq!(delivery.payload, vec![5; 10_000]);
}

#[test]
fn continuations_may_omit_or_repeat_the_fields_of_the_first_frame() {
    let (mut script, _) = Script::server();
    script.receiving_link(0, 10);
    script.receiving_link(1, 10);
    script.transfer(Transfer { more: true, ..transfer(0, 0) }, b"one ");
    // pyamqp repeats, and another link interleaves.
    script.transfer(transfer(1, 1), b"other");
    script.transfer(Transfer { more: true, ..transfer(0, 0) }, b"two ");
    script.transfer(Transfer { handle: 0, ..Transfer::default() }, b"three");
    let received = deliveries(script.events());
    let payloads: Vec<_> = received.iter().map(|d| (d.id.0, &d.payload[..])).collect();
    assert_eq!(payloads, [(1, &b"other"[..]), (0, b"one two three")]);
    assert_eq!(received[1].tag, DeliveryTag::from(0));
    script.send(1, Flow { echo: true, ..Flow::default() });
    let Performative::Flow(flow) = script.sent_performatives().remove(0) else { panic!("a flow") };
    assert_eq!(flow.next_incoming_id, Some(4), "transfer-ids count frames");
}

#[test]
fn one_settled_frame_settles_the_delivery() {
    let (mut script, _) = Script::server();
    let link = script.receiving_link(0, 10);
    script.transfer(Transfer { more: true, settled: None, ..transfer(0, 0) }, b"a");
    script.transfer(Transfer { handle: 0, settled: Some(true), more: true, ..Transfer::default() }, b"b");
    script.transfer(Transfer { handle: 0, settled: Some(false), ..Transfer::default() }, b"c");
    let delivery = deliveries(script.events()).remove(0);
    assert!(delivery.settled);
    script.machine.settle(link, delivery.id, DeliveryState::Accepted);
    assert_eq!(script.sent(), [], "nothing to settle");
}

#[test]
fn aborted_deliveries_vanish_but_their_ids_are_used() {
    let (mut script, _) = Script::server();
    let link = script.receiving_link(0, 10);
    script.transfer(Transfer { more: true, ..transfer(0, 0) }, b"lost");
    script.transfer(Transfer { handle: 0, aborted: true, more: true, ..Transfer::default() }, b"");
    script.transfer(Transfer { aborted: true, ..transfer(0, 1) }, b"lost too");
    script.transfer(transfer(0, 2), b"kept");
    let delivery = deliveries(script.events()).remove(0);
    assert_eq!((delivery.id.0, &delivery.payload[..]), (2, &b"kept"[..]));
    assert_eq!(script.machine.credit(link), 9, "only reported deliveries cost credit");
    script.sent();
    script.machine.settle(link, DeliveryId(0), DeliveryState::Accepted);
    script.machine.settle(link, DeliveryId(1), DeliveryState::Accepted);
    assert_eq!(script.sent(), []);
}

#[test]
fn the_state_of_a_transfer_is_reported() {
    let (mut script, _) = Script::server();
    script.receiving_link(0, 10);
    let state = DeliveryState::Transactional { txn_id: b"t1"[..].into(), outcome: None };
    script.transfer(Transfer { state: Some(state.clone()), ..transfer(0, 0) }, b"x");
    assert_eq!(deliveries(script.events()).remove(0).state.as_deref(), Some(&state));
}

#[test]
fn repeated_and_lower_ids_are_accepted() {
    let (mut script, _) = Script::server();
    let link = script.receiving_link(0, 100);
    for id in [5, 5, 3, 5, 6] {
        script.transfer(Transfer { settled: Some(true), ..transfer(0, id) }, b"x");
    }
    for id in [6, 4, 7] {
        script.transfer(transfer(0, id), b"x");
    }
    let ids: Vec<_> = deliveries(script.events()).iter().map(|delivery| delivery.id.0).collect();
    assert_eq!(ids, [5, 5, 3, 5, 6, 6, 4, 7]);
    for id in [6, 4, 7] {
        script.machine.settle(link, DeliveryId(id), DeliveryState::Accepted);
    }
    let expected = [6, 4, 7].map(|id| (Role::Receiver, id, None, true));
    assert_eq!(sent_dispositions(&mut script), expected);
}

#[test]
fn a_settled_delivery_does_not_answer_another_one_with_its_id() {
    let mut config = Config::server("s");
    config.limits.whole_size_bytes_max = 4;
    config.limits.message_size_bytes_max = 16;
    let (mut script, _) = Script::server_with(config);
    let link = script.receiving_link(0, 100);
    script.transfer(transfer(0, 5), b"x");
    let settled = |more| Transfer { settled: Some(true), more, ..transfer(0, 5) };
    script.transfer(settled(false), b"more than the link takes");
    script.transfer(settled(true), b"more than");
    script.transfer(settled(false), b" the link takes");
    let flows = script.sent_performatives();
    assert!(flows.iter().all(|sent| matches!(sent, Performative::Flow(_))), "{flows:?}");
    script.machine.settle(link, DeliveryId(5), DeliveryState::Accepted);
    assert_eq!(sent_dispositions(&mut script), [(Role::Receiver, 5, None, true)]);
}

#[test]
fn unsettled_deliveries_that_share_an_id_are_answered_once_and_with_the_worst_outcome() {
    let (mut script, _) = Script::server();
    let [a, b] = [0, 1].map(|handle| script.receiving_link(handle, 10));
    for handle in [0, 1, 1] {
        script.transfer(transfer(handle, 5), b"x");
    }
    assert_eq!(deliveries(script.events()).len(), 3);
    let rejected = DeliveryState::rejected(AmqpError::new(condition::NOT_ALLOWED, "no"));
    script.machine.settle(b, DeliveryId(5), rejected.clone());
    script.machine.settle(a, DeliveryId(5), DeliveryState::Accepted);
    assert_eq!(script.sent(), [], "the third one is not decided");
    script.machine.settle(b, DeliveryId(5), DeliveryState::Accepted);
    let sent = script.sent_performatives();
    let [Performative::Disposition(Disposition { first: 5, state: Some(state), .. })] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!(*state, rejected);
    assert_eq!([a, b].map(|link| script.machine.unsettled(link)), [0, 0]);
}

#[test]
fn settlements_of_neighbours_leave_as_one_range() {
    let (mut script, _) = Script::server();
    let link = script.receiving_link(0, 100);
    for id in 0..6 {
        script.transfer(transfer(0, id), b"x");
    }
    for id in [0, 1, 2] {
        script.machine.settle(link, DeliveryId(id), DeliveryState::Accepted);
    }
    script.machine.settle(link, DeliveryId(1), DeliveryState::Accepted);
    let rejected = DeliveryState::rejected(AmqpError::new(condition::NOT_ALLOWED, "no"));
    script.machine.settle(link, DeliveryId(3), rejected);
    script.machine.settle(link, DeliveryId(5), DeliveryState::Accepted);
    let expected = [
        (Role::Receiver, 0, Some(2), true),
        (Role::Receiver, 3, None, true),
        (Role::Receiver, 5, None, true),
    ];
    assert_eq!(sent_dispositions(&mut script), expected);
    script.machine.settle(link, DeliveryId(99), DeliveryState::Accepted);
    assert_eq!(script.sent(), [], "unknown ids are ignored");
}

#[test]
fn a_run_is_settled_like_its_deliveries_one_after_the_other() {
    let (mut script, _) = Script::server();
    let [a, b] = [0, 1].map(|handle| script.receiving_link(handle, 100));
    for (handle, id) in [(0, 0), (0, 1), (0, 2), (0, 3), (1, 4), (0, 5)] {
        script.transfer(transfer(handle, id), b"x");
    }
    let accepted = || DeliveryState::Accepted;
    script.machine.settle_run(a, DeliveryId(0), DeliveryId(1), accepted());
    script.machine.settle_run(a, DeliveryId(2), DeliveryId(3), accepted());
    script.machine.settle_run(b, DeliveryId(3), DeliveryId(5), accepted());
    script.machine.settle_run(a, DeliveryId(1), DeliveryId(99), accepted());
    assert_eq!(sent_dispositions(&mut script), [(Role::Receiver, 0, Some(5), true)]);
    assert_eq!([a, b].map(|link| script.machine.unsettled(link)), [0, 0]);
}

#[test]
fn settlements_leave_before_later_sends_and_ends() {
    for end in ["send", "detach", "end", "close"] {
        let (mut script, session) = Script::server();
        let receiving = script.receiving_link(0, 10);
        let sending = script.sending_link(1);
        script.grant(1, 10);
        script.transfer(transfer(0, 0), b"x");
        script.machine.settle(receiving, DeliveryId(0), DeliveryState::Accepted);
        match end {
            "send" => script.machine.send(sending, &outgoing(0), &[b"x"]).unwrap(),
            "detach" => script.machine.detach(receiving, None),
            "end" => script.machine.end(session, None),
            _ => script.machine.close(None),
        }
        let sent = script.sent_performatives();
        assert!(matches!(&sent[..], [Performative::Disposition(_), _]), "{end}: {sent:?}");
    }
}

#[test]
fn a_peer_that_detaches_still_gets_settlements_made_before() {
    let (mut script, _) = Script::server();
    let link = script.receiving_link(0, 10);
    script.transfer(transfer(0, 0), b"x");
    script.machine.settle(link, DeliveryId(0), DeliveryState::Accepted);
    script.send(1, peeklock_amqp::Detach { handle: 0, closed: true, error: None });
    let sent = script.sent_performatives();
    assert!(matches!(&sent[..], [Performative::Disposition(_), Performative::Detach(_)]), "{sent:?}");
}

/// Peek-lock: the receiver proposes, the sender settles.
#[test]
fn an_unsettled_outcome_is_reported_once_and_answered_by_settling() {
    let (mut script, _) = Script::server();
    let link = script.sending_link(0);
    script.grant(0, 10);
    for tag in 0..3 {
        script.machine.send(link, &outgoing(tag), &[b"x"]).unwrap();
    }
    script.sent();
    script.send(1, disposition(Role::Receiver, 65_536, Some(65_537), false));
    script.send(1, disposition(Role::Receiver, 65_536, Some(65_537), false));
    let events = script.events();
    let [Event::Disposition { id: a, tag, settled: false, .. }, Event::Disposition { id: b, .. }] =
        events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((a.0, b.0, tag), (65_536, 65_537, DeliveryTag::from(0)));
    script.machine.settle(link, a, DeliveryState::Accepted);
    script.machine.settle(link, b, DeliveryState::Accepted);
    script.machine.settle(link, b, DeliveryState::Accepted);
    assert_eq!(sent_dispositions(&mut script), [(Role::Sender, 65_536, Some(65_537), true)]);
    script.send(1, disposition(Role::Receiver, 65_538, None, true));
    assert!(matches!(script.events()[..], [Event::Disposition { settled: true, .. }]));
    script.machine.settle(link, DeliveryId(65_538), DeliveryState::Accepted);
    assert_eq!(script.sent(), [], "a settled delivery needs no answer");
}

#[test]
fn dispositions_concern_the_direction_of_their_role() {
    let (mut script, _) = Script::server();
    let receiving = script.receiving_link(0, 10);
    let sending = script.sending_link(1);
    script.grant(1, 10);
    script.transfer(transfer(0, 65_536), b"same number as ours");
    script.machine.send(sending, &outgoing(0), &[b"x"]).unwrap();
    script.sent();
    script.events();
    script.send(1, disposition(Role::Receiver, 65_536, None, true));
    assert!(matches!(script.events()[..], [Event::Disposition { link, .. }] if link == sending));
    script.send(1, disposition(Role::Sender, 65_536, None, true));
    assert!(matches!(script.events()[..], [Event::Disposition { link, .. }] if link == receiving));
}

#[test]
fn progress_reports_are_not_outcomes() {
    let (mut script, _) = Script::server();
    let link = script.sending_link(0);
    script.grant(0, 1);
    script.machine.send(link, &outgoing(0), &[b"x"]).unwrap();
    let state = Some(DeliveryState::Received { section_number: 0, section_offset: 0 });
    script.send(1, Disposition { state, ..disposition(Role::Receiver, 65_536, None, false) });
    script.send(1, Disposition { state: None, ..disposition(Role::Receiver, 65_536, None, false) });
    assert!(script.events().is_empty());
    script.send(1, disposition(Role::Receiver, 65_536, None, false));
    assert_eq!(script.events().len(), 1);
}

#[test]
fn absurd_ranges_affect_only_unsettled_deliveries() {
    let (mut script, _) = Script::server();
    let link = script.sending_link(0);
    script.grant(0, 100);
    for tag in 0..3 {
        script.machine.send(link, &outgoing(tag), &[b"x"]).unwrap();
    }
    script.send(1, disposition(Role::Receiver, 0, Some(u32::MAX), true));
    script.send(1, disposition(Role::Receiver, 70_000, Some(80_000), true));
    assert!(script.events().is_empty());
    script.send(1, disposition(Role::Receiver, 0, Some(i32::MAX.unsigned_abs()), false));
    assert_eq!(script.events().len(), 3);
    script.send(1, disposition(Role::Receiver, 65_530, Some(90_000), true));
    assert_eq!(script.events().len(), 3);
}

#[test]
fn a_client_completes_in_two_steps() {
    let (mut pair, near, far) = Pair::linked(Config::client("c", "h"), Config::server("s"), Role::Receiver);
    pair.client.set_credit(near, 2);
    pair.run();
    pair.server.send(far, &outgoing(1), &[b"one"]).unwrap();
    pair.server.send(far, &outgoing(2), &[b"two"]).unwrap();
    pair.run();
    let received = deliveries(pair.client_events());
    for delivery in &received {
        pair.client.set_outcome(near, delivery.id, DeliveryState::Accepted);
    }
    pair.run();
    for event in pair.server_events() {
        if let Event::Disposition { link, id, state, settled, .. } = event {
            assert_eq!((settled, state), (false, Some(DeliveryState::Accepted)));
            pair.server.settle(link, id, DeliveryState::Accepted);
        }
    }
    pair.run();
    let events = pair.client_events();
    assert!(
        matches!(
            events[..],
            [Event::Disposition { settled: true, id: a, .. }, Event::Disposition { settled: true, id: b, .. }]
                if a == received[0].id && b == received[1].id
        ),
        "{events:?}"
    );
}

/// A step of a transaction: the sender answers without settling, and the receiver may propose again.
#[test]
fn an_answer_may_leave_the_delivery_unsettled() {
    let (mut pair, near, far) = Pair::linked(Config::client("c", "h"), Config::server("s"), Role::Receiver);
    pair.client.set_credit(near, 2);
    pair.run();
    for tag in 1..3 {
        pair.server.send(far, &outgoing(tag), &[b"x"]).unwrap();
    }
    pair.run();
    let received = deliveries(pair.client_events());
    pair.server_events();
    for _ in 0..2 {
        pair.client.set_outcome(near, received[0].id, DeliveryState::Released);
        pair.run();
        let events = pair.server_events();
        let [Event::Disposition { link, id, settled: false, .. }] = events[..] else { panic!("{events:?}") };
        pair.server.set_outcome(link, id, DeliveryState::Released);
        pair.run();
        let events = pair.client_events();
        assert!(matches!(events[..], [Event::Disposition { settled: false, .. }]), "{events:?}");
        assert_eq!((pair.client.unsettled(near), pair.server.unsettled(far)), (2, 2));
    }
    pair.server.settle(far, received[0].id, DeliveryState::Released);
    pair.client.forget(near, received[1].id);
    pair.server.settle(far, received[1].id, DeliveryState::Released);
    pair.run();
    let events = pair.client_events();
    assert!(matches!(events[..], [Event::Disposition { settled: true, id, .. }] if id == received[0].id));
    assert_eq!((pair.client.unsettled(near), pair.server.unsettled(far)), (0, 0));
}

#[test]
fn a_detached_links_deliveries_are_forgotten() {
    let (mut script, _) = Script::server();
    let link = script.sending_link(0);
    script.grant(0, 10);
    script.machine.send(link, &outgoing(0), &[b"x"]).unwrap();
    script.send(1, peeklock_amqp::Detach { handle: 0, closed: true, error: None });
    script.events();
    script.send(1, disposition(Role::Receiver, 65_536, None, true));
    assert!(script.events().is_empty());
}

#[test]
fn deliveries_in_flight_at_our_detach_are_dropped() {
    let (mut script, _) = Script::server();
    let doomed = script.receiving_link(0, 10);
    script.receiving_link(1, 10);
    script.transfer(Transfer { more: true, ..transfer(0, 0) }, b"half");
    script.machine.detach(doomed, None);
    script.transfer(transfer(0, 0), b"rest");
    script.transfer(transfer(0, 1), b"more");
    script.transfer(transfer(1, 2), b"kept");
    let received = deliveries(script.events());
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].payload, "kept");
}

#[test]
fn a_receiver_may_settle_after_our_detach() {
    let (mut script, _) = Script::server();
    let link = script.sending_link(0);
    script.grant(0, 10);
    script.machine.send(link, &outgoing(0), &[b"x"]).unwrap();
    script.machine.detach(link, Some(AmqpError::new(condition::STOLEN, "a higher epoch came")));
    script.send(1, disposition(Role::Receiver, 65_536, None, true));
    assert!(matches!(script.events()[..], [Event::Disposition { settled: true, .. }]));
}

#[test]
fn a_peer_that_attaches_with_unsettled_deliveries_is_answered_normally() {
    let (mut script, _) = Script::server();
    let request = peeklock_amqp::Attach { unsettled: Some(Vec::new()), ..attach("x", 0, Role::Receiver) };
    script.send(1, request);
    let Event::Attach { link, .. } = script.events().remove(0) else { panic!("an attach") };
    script.machine.accept(link, AttachReply::default());
    let Performative::Attach(reply) = script.sent_performatives().remove(0) else { panic!("an attach") };
    assert_eq!(reply.unsettled, None);
}
