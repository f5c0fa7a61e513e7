//! Delayed outcomes, for peers that lose an outcome that arrives too early.

use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::connection::{Config, DeliveryId, Millis};
use peeklock_amqp::{AmqpError, DeliveryState, Performative, Transfer, condition};

use super::support::{Script, T0, transfer};

const SPAN: Duration = Duration::from_millis(2);

fn after(ms: u64) -> Millis {
    Millis(T0.0 + ms)
}

fn refused() -> DeliveryState {
    DeliveryState::rejected(AmqpError::new(condition::NOT_ALLOWED, "no"))
}

fn in_transaction(outcome: DeliveryState) -> DeliveryState {
    DeliveryState::Transactional { txn_id: Bytes::from_static(b"t"), outcome: Some(Box::new(outcome)) }
}

/// Returns the ids of the dispositions, and whether a link was detached.
fn told(script: &mut Script) -> Vec<String> {
    let name = |performative: Performative| match performative {
        Performative::Disposition(disposition) => disposition.first.to_string(),
        Performative::Detach(_) => "detach".to_owned(),
        Performative::Close(_) => "close".to_owned(),
        other => panic!("{other:?}"),
    };
    script.sent_performatives().into_iter().map(name).collect()
}

#[test]
fn only_outcomes_other_than_accepted_are_delayed() {
    let (mut script, _) = Script::server();
    let link = script.receiving_link(0, 100);
    let declared = DeliveryState::Declared { txn_id: Bytes::from_static(b"t") };
    let early = [refused(), declared, DeliveryState::Released, in_transaction(refused())];
    let accepted = [DeliveryState::Accepted, in_transaction(DeliveryState::Accepted)];
    for (id, state) in (0..).zip(early.iter().chain(&accepted)) {
        script.transfer(transfer(0, id), b"x");
        script.machine.settle(link, DeliveryId(id), state.clone());
    }
    assert_eq!(told(&mut script), ["0", "1", "2", "3", "4", "5"], "an ordinary peer");

    script.machine.hold_outcomes(SPAN);
    for (id, state) in (10..).zip(early) {
        script.transfer(transfer(0, id), b"x");
        script.machine.settle(link, DeliveryId(id), state);
        assert_eq!(script.machine.poll_timeout(), Some(after(2)));
        script.machine.handle_timeout(after(1)).unwrap();
        assert!(told(&mut script).is_empty());
        script.machine.handle_timeout(after(2)).unwrap();
        assert_eq!(told(&mut script), [id.to_string()]);
        script.now = T0;
    }
    for (id, state) in (20..).zip(accepted) {
        script.transfer(transfer(0, id), b"x");
        script.machine.settle(link, DeliveryId(id), state);
        assert_eq!(told(&mut script), [id.to_string()]);
    }
}

#[test]
fn a_link_keeps_its_order_and_others_do_not_wait() {
    let (mut script, _) = Script::server();
    let (slow, other) = (script.receiving_link(0, 100), script.receiving_link(1, 100));
    script.machine.hold_outcomes(SPAN);
    for (link, id) in [(0, 0), (0, 1), (1, 2), (0, 3)] {
        script.transfer(transfer(link, id), b"x");
    }
    script.machine.settle(slow, DeliveryId(0), refused());
    script.machine.settle(slow, DeliveryId(1), DeliveryState::Accepted);
    script.machine.settle(other, DeliveryId(2), DeliveryState::Accepted);
    assert_eq!(told(&mut script), ["2"]);
    // A later outcome does not delay those before it.
    script.now = after(1);
    script.bytes(&peeklock_amqp::EMPTY_FRAME).unwrap();
    script.machine.settle(slow, DeliveryId(3), refused());
    script.machine.detach(slow, Some(AmqpError::new(condition::NOT_FOUND, "gone")));
    script.machine.handle_timeout(after(2)).unwrap();
    assert_eq!(told(&mut script), ["0", "1"]);
    script.machine.handle_timeout(after(3)).unwrap();
    assert_eq!(told(&mut script), ["3", "detach"]);
}

#[test]
fn oversized_messages_and_messages_in_parts_are_delayed_from_their_last_frame() {
    let mut config = Config::server("s");
    config.limits.whole_size_bytes_max = 4;
    config.limits.message_size_bytes_max = 16;
    let (mut script, _) = Script::server_with(config);
    let link = script.receiving_link(0, 100);
    script.machine.hold_outcomes(SPAN);
    script.transfer(Transfer { more: true, ..transfer(0, 0) }, b"12345");
    script.machine.settle(link, DeliveryId(0), refused());
    script.now = after(10);
    script.transfer(transfer(0, 0), b"6");
    script.transfer(transfer(0, 1), b"more than the link takes");
    let is_flow = |performative: &Performative| matches!(performative, Performative::Flow(_));
    assert!(script.sent_performatives().iter().all(is_flow), "credit is returned at once");
    script.machine.handle_timeout(after(12)).unwrap();
    assert_eq!(told(&mut script), ["0", "1"]);
}

#[test]
fn a_close_does_not_drop_delayed_outcomes() {
    let (mut script, _) = Script::server();
    let (link, gone) = (script.receiving_link(0, 100), script.receiving_link(1, 100));
    script.machine.hold_outcomes(SPAN);
    script.transfer(transfer(0, 0), b"x");
    script.transfer(transfer(1, 1), b"x");
    script.machine.settle(gone, DeliveryId(1), refused());
    script.send(1, peeklock_amqp::Detach { handle: 1, closed: true, error: None });
    assert_eq!(told(&mut script), ["detach"], "a detached link needs no outcome");
    script.machine.settle(link, DeliveryId(0), refused());
    script.machine.close(None);
    assert_eq!(told(&mut script), ["0", "close"]);
}
