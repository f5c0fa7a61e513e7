//! Attempts of a hostile or careless peer: each is bounded and affects only its owner.

use peeklock_amqp::connection::{Config, Error, Event, LinkId, SessionId};
use peeklock_amqp::{
    Begin, DeliveryState, Detach, Disposition, End, Performative, Role, Transfer, condition,
};

use super::support::{Script, attach, outgoing, transfer};

fn end_condition(script: &mut Script) -> String {
    match script.sent_performatives().pop() {
        Some(Performative::End(End { error: Some(error) })) => error.condition.to_string(),
        other => panic!("{other:?}"),
    }
}

fn detach_condition(script: &mut Script) -> String {
    match script.sent_performatives().pop() {
        Some(Performative::Detach(Detach { error: Some(error), closed: true, .. })) => {
            error.condition.to_string()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn channels_and_handles_stop_at_their_maxima() {
    let (mut script, _) = Script::server_with(Config { channel_max: 3, ..Config::server("s") });
    script.send(3, Begin::new(0, 1, 1));
    let result = script.try_send(4, Begin::new(0, 1, 1), &[]);
    assert!(matches!(result, Err(Error::Protocol(e)) if e.condition == condition::FRAMING_ERROR));

    let (mut script, _) = Script::server_with(Config { handle_max: 3, ..Config::server("s") });
    script.send(1, attach("a", 3, Role::Sender));
    let result = script.try_send(1, attach("b", 4, Role::Sender), &[]);
    assert!(matches!(result, Err(Error::Protocol(e)) if e.condition == condition::FRAMING_ERROR));

    let (mut script, _) = Script::server_with(Config { handle_max: u32::MAX, ..Config::server("s") });
    let result = script.try_send(1, attach("b", u32::MAX, Role::Sender), &[]);
    assert!(result.is_err(), "however large the configured maximum, the table stays small");
}

#[test]
fn a_channel_is_begun_once() {
    let (mut script, _) = Script::server();
    let result = script.try_send(1, Begin::new(0, 1, 1), &[]);
    assert!(matches!(result, Err(Error::Protocol(e)) if e.condition == condition::NOT_ALLOWED));
}

#[test]
fn a_begin_that_answers_nothing_is_rejected() {
    let (mut script, _) = Script::server();
    assert!(script.try_send(2, Begin { remote_channel: Some(0), ..Begin::new(0, 1, 1) }, &[]).is_err());
}

#[test]
fn links_of_a_connection_are_bounded() {
    let mut config = Config::server("s");
    config.limits.links_max = 2;
    let (mut script, _) = Script::server_with(config);
    for handle in 0..3 {
        script.send(1, attach(&format!("l{handle}"), handle, Role::Sender));
    }
    assert_eq!(end_condition(&mut script), condition::RESOURCE_LIMIT_EXCEEDED);
}

#[test]
fn incomplete_deliveries_of_all_links_together_are_bounded() {
    let mut config = Config::server("s");
    config.limits.incomplete_bytes_max = 100;
    let (mut script, _) = Script::server_with(config);
    for handle in 0..3 {
        script.receiving_link(handle, 10);
    }
    script.transfer(Transfer { more: true, ..transfer(0, 0) }, &[0; 60]);
    script.transfer(Transfer { more: true, ..transfer(1, 1) }, &[0; 60]);
    assert_eq!(detach_condition(&mut script), condition::RESOURCE_LIMIT_EXCEEDED);
    // Complete, aborted and detached deliveries make room.
    script.transfer(Transfer { handle: 0, ..Transfer::default() }, &[0; 40]);
    script.transfer(Transfer { more: true, ..transfer(2, 2) }, &[0; 100]);
    assert_eq!(script.sent(), []);
}

/// pyamqp sends without regard to credit.
#[test]
fn some_deliveries_beyond_the_credit_are_accepted() {
    let mut config = Config::server("s");
    config.limits.overrun_max = 3;
    let (mut script, _) = Script::server_with(config);
    let link = script.receiving_link(0, 1);
    for id in 0..4 {
        script.transfer(transfer(0, id), b"x");
    }
    assert_eq!(script.events().len(), 4);
    script.machine.set_credit(link, 1);
    let Performative::Flow(flow) = script.sent_performatives().remove(0) else { panic!("a flow") };
    assert_eq!((flow.delivery_count, flow.link_credit), (Some(4), Some(1)));
    for id in 4..9 {
        script.transfer(transfer(0, id), b"x");
    }
    assert_eq!(detach_condition(&mut script), condition::TRANSFER_LIMIT_EXCEEDED);
}

#[test]
fn unsettled_deliveries_of_a_peer_that_ignores_the_window_are_bounded() {
    let mut config = Config { incoming_window: 10, ..Config::server("s") };
    config.limits.unsettled_incoming_max = 20;
    let (mut script, _) = Script::server_with(config);
    script.receiving_link(0, 1_000);
    for id in 0..31 {
        script.transfer(transfer(0, id), b"x");
    }
    assert_eq!(end_condition(&mut script), condition::RESOURCE_LIMIT_EXCEEDED);
}

#[test]
fn unsettled_deliveries_that_share_an_id_are_bounded() {
    let mut config = Config { incoming_window: 10, ..Config::server("s") };
    config.limits.unsettled_incoming_max = 20;
    let (mut script, _) = Script::server_with(config);
    script.receiving_link(0, 1_000);
    for _ in 0..31 {
        script.transfer(transfer(0, 7), b"x");
    }
    assert_eq!(end_condition(&mut script), condition::RESOURCE_LIMIT_EXCEEDED);
}

#[test]
fn a_delivery_needs_an_id_and_a_tag() {
    for missing in
        [Transfer { delivery_id: None, ..transfer(0, 0) }, Transfer { delivery_tag: None, ..transfer(0, 0) }]
    {
        let (mut script, _) = Script::server();
        script.receiving_link(0, 10);
        script.transfer(missing, b"x");
        assert_eq!(end_condition(&mut script), condition::INVALID_FIELD);
    }
}

#[test]
fn a_delivery_inside_another_ends_the_session() {
    let (mut script, _) = Script::server();
    script.receiving_link(0, 10);
    script.transfer(Transfer { more: true, ..transfer(0, 0) }, b"x");
    script.transfer(transfer(0, 1), b"x");
    assert_eq!(end_condition(&mut script), condition::NOT_ALLOWED);
}

#[test]
fn a_transfer_against_the_direction_of_its_link_ends_the_session() {
    let (mut script, _) = Script::server();
    script.sending_link(0);
    script.transfer(transfer(0, 0), b"x");
    assert_eq!(end_condition(&mut script), condition::NOT_ALLOWED);
}

#[test]
fn a_transfer_before_the_link_is_accepted_ends_the_session() {
    let (mut script, _) = Script::server();
    script.peer_attach(0, Role::Sender);
    script.transfer(transfer(0, 0), b"x");
    assert_eq!(end_condition(&mut script), condition::ILLEGAL_STATE);
}

#[test]
fn repeated_ranges_do_not_multiply_events() {
    let (mut script, _) = Script::server();
    let link = script.sending_link(0);
    script.grant(0, 1_000);
    for tag in 0..1_000 {
        script.machine.send(link, &outgoing(tag), &[b"x"]).unwrap();
    }
    for _ in 0..50 {
        let everything = Disposition {
            role: Role::Receiver,
            first: 1,
            last: Some(1 << 31),
            settled: false,
            state: Some(DeliveryState::Released),
            batchable: false,
        };
        script.send(1, everything);
    }
    assert_eq!(script.events().len(), 1_000);
}

#[test]
fn unsettled_sends_are_bounded() {
    let mut config = Config::server("s");
    config.limits.unsettled_outgoing_max = 2;
    let (mut script, _) = Script::server_with(config);
    let link = script.sending_link(0);
    script.grant(0, 10);
    script.machine.send(link, &outgoing(0), &[]).unwrap();
    script.machine.send(link, &outgoing(1), &[]).unwrap();
    let refused = script.machine.send(link, &outgoing(2), &[]);
    assert_eq!(refused, Err(peeklock_amqp::connection::SendError::TooManyUnsettled));
}

/// Returns two links of a session with a limit of two unsettled sends, both of which the first link has made.
fn with_two_unsettled() -> (Script, SessionId, LinkId, LinkId) {
    let mut config = Config::server("s");
    config.limits.unsettled_outgoing_max = 2;
    let (mut script, session) = Script::server_with(config);
    let (first, second) = (script.sending_link(0), script.sending_link(1));
    script.grant(0, 10);
    script.grant(1, 10);
    for tag in 0..2 {
        assert_eq!(script.machine.sendable(second), 2 - tag);
        script.machine.send(first, &outgoing(tag), &[]).unwrap();
    }
    assert_eq!((script.machine.sendable(first), script.machine.sendable(second)), (0, 0));
    script.sent();
    (script, session, first, second)
}

fn completed(first: u32, settled: bool) -> Disposition {
    let state = Some(DeliveryState::Accepted);
    Disposition { role: Role::Receiver, first, last: None, settled, state, batchable: false }
}

#[test]
fn a_driver_can_respect_the_unsettled_limit_and_gets_an_event_when_the_peer_settles() {
    let (mut script, session, first, second) = with_two_unsettled();
    script.send(1, completed(65_536, true));
    let events = script.events();
    assert!(
        matches!(events[..], [Event::Disposition { .. }, Event::Unblocked { session: s }] if s == session),
        "{events:?}"
    );
    assert_eq!((script.machine.sendable(first), script.machine.sendable(second)), (1, 1));
    script.send(1, completed(65_537, true));
    assert!(matches!(script.events()[..], [Event::Disposition { .. }]), "there was room already");
    assert_eq!(script.machine.sendable(first), 2);
}

/// Peek-lock: the driver settles, and still gets an event.
#[test]
fn settling_deliveries_that_the_peer_completed_makes_room_too() {
    let (mut script, session, first, _) = with_two_unsettled();
    script.send(1, completed(65_536, false));
    let events = script.events();
    let [Event::Disposition { id, .. }] = events[..] else { panic!("{events:?}") };
    assert_eq!(script.machine.sendable(first), 0);
    script.machine.settle(first, id, DeliveryState::Accepted);
    assert!(matches!(script.events()[..], [Event::Unblocked { session: s }] if s == session));
    assert_eq!(script.machine.sendable(first), 1);
}

#[test]
fn the_unsettled_sends_of_a_detached_link_make_room() {
    let (mut script, session, _, second) = with_two_unsettled();
    script.send(1, Detach { handle: 0, closed: true, error: None });
    let events = script.events();
    assert!(
        matches!(events[..], [Event::Detached { .. }, Event::Unblocked { session: s }] if s == session),
        "{events:?}"
    );
    assert_eq!(script.machine.sendable(second), 2);
}

#[test]
fn more_links_than_the_peers_own_maximum_end_the_session() {
    let (mut script, _) = Script::server();
    script.send(2, Begin { handle_max: 0, ..Begin::new(0, 10, 10) });
    script.send(2, attach("a", 0, Role::Sender));
    script.send(2, attach("b", 1, Role::Sender));
    script.sent();
    for event in script.events() {
        if let Event::Attach { link, .. } = event {
            script.machine.accept(link, Default::default());
        }
    }
    assert_eq!(end_condition(&mut script), condition::RESOURCE_LIMIT_EXCEEDED);
}

#[test]
fn a_flood_of_refused_attaches_leaves_no_state() {
    let (mut script, _) = Script::server();
    for round in 0..200_u32 {
        let link = script.peer_attach(round % 7, Role::Sender);
        script.machine.detach(link, None);
        script.send(1, Detach { handle: round % 7, closed: true, error: None });
    }
    let handles: Vec<u32> = script
        .sent_performatives()
        .iter()
        .filter_map(|p| match p {
            Performative::Attach(attach) => Some(attach.handle),
            _ => None,
        })
        .collect();
    assert_eq!(handles.len(), 200);
    assert!(handles.iter().all(|handle| *handle == 0), "our handle is free again each time");
    assert!(script.events().is_empty());
}
