//! Large deliveries that arrive in parts: the driver sees each byte once and in order, small ones stay whole, and the
//! link continues, however a delivery ends.

use peeklock_amqp::connection::{AttachReply, Config, Event, LinkId, Part};
use peeklock_amqp::{AmqpError, DeliveryState, Detach, Flow, Performative, Role, Transfer, condition};

use super::support::{Script, Sent, transfer};

const WHOLE_MAX: u64 = 10;

/// Returns a server whose links accept messages of a hundred bytes and hand up those of more than ten in parts.
fn server() -> (Script, LinkId) {
    let mut config = Config::server("s");
    config.limits.whole_size_bytes_max = WHOLE_MAX;
    config.limits.incomplete_bytes_max = 20;
    let (mut script, _) = Script::server_with(config);
    let link = large_link(&mut script, 0);
    (script, link)
}

fn large_link(script: &mut Script, handle: u32) -> LinkId {
    let link = script.peer_attach(handle, Role::Sender);
    let reply = AttachReply { max_message_size: Some(100), ..AttachReply::default() };
    script.machine.accept(link, reply);
    script.machine.set_credit(link, 10);
    script.sent();
    link
}

fn first(id: u32) -> Transfer {
    Transfer { more: true, ..transfer(0, id) }
}

fn middle() -> Transfer {
    Transfer { handle: 0, more: true, ..Transfer::default() }
}

fn last() -> Transfer {
    Transfer { handle: 0, ..Transfer::default() }
}

/// Describes each event in a few words.
fn story(script: &mut Script) -> Vec<String> {
    script.events().into_iter().map(describe).collect()
}

fn describe(event: Event) -> String {
    match event {
        Event::Delivery { delivery, .. } => format!("{} whole {}", delivery.id.0, delivery.payload.len()),
        Event::Part { id, part, .. } => match part {
            Part::First(delivery) => format!("{} first {}", id.0, delivery.payload.len()),
            Part::More(payload) => format!("{} more {}", id.0, payload.len()),
            Part::Last { settled, .. } => format!("{} last, settled {settled}", id.0),
            Part::Dropped => format!("{} dropped", id.0),
        },
        other => panic!("{other:?}"),
    }
}

fn rejections(sent: Vec<Sent>) -> Vec<u32> {
    let of = |sent: Sent| match sent.performative {
        Performative::Disposition(disposition) => {
            assert!(disposition.settled && matches!(disposition.state, Some(DeliveryState::Rejected { .. })));
            Some(disposition.first)
        }
        Performative::Flow(Flow { handle: Some(_), .. }) => None,
        other => panic!("{other:?}"),
    };
    sent.into_iter().filter_map(of).collect()
}

#[test]
fn a_large_delivery_arrives_in_parts_and_small_ones_stay_whole() {
    let (mut script, link) = server();
    script.transfer(first(0), &[0; 6]);
    script.transfer(last(), &[0; 4]);
    assert_eq!(story(&mut script), ["0 whole 10"]);
    script.transfer(first(1), &[0; 6]);
    assert_eq!(story(&mut script), [""; 0], "the delivery may still be small");
    script.transfer(middle(), &[0; 5]);
    assert_eq!(story(&mut script), ["1 first 6", "1 more 5"]);
    script.transfer(middle(), &[]);
    script.transfer(middle(), &[0; 70]);
    assert_eq!(story(&mut script), ["1 more 70"]);
    script.transfer(last(), &[0; 19]);
    assert_eq!(story(&mut script), ["1 more 19", "1 last, settled false"]);
    script.machine.settle(link, peeklock_amqp::connection::DeliveryId(1), DeliveryState::Accepted);
    assert_eq!(script.machine.unsettled(link), 1);
    assert_eq!(script.sent().len(), 1, "a disposition, and no unrequested credit");
    script.transfer(transfer(0, 2), &[0; 10]);
    assert_eq!(story(&mut script), ["2 whole 10"]);
}

#[test]
fn the_first_part_has_all_fields_of_a_delivery() {
    let (mut script, _) = server();
    script.transfer(Transfer { message_format: Some(7), ..first(0) }, &[1; 11]);
    let events = script.events();
    let [Event::Part { part: Part::First(delivery), .. }, Event::Part { part: Part::More(_), .. }] =
        &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((delivery.id.0, delivery.message_format, delivery.settled), (0, 7, false));
    assert_eq!(Some(delivery.tag), transfer(0, 0).delivery_tag);
    script.transfer(Transfer { settled: Some(true), ..last() }, &[]);
    assert_eq!(story(&mut script), ["0 last, settled true"]);
}

#[test]
fn deliveries_of_other_links_are_interleaved() {
    let (mut script, _) = server();
    large_link(&mut script, 1);
    script.transfer(first(0), &[0; 11]);
    script.transfer(Transfer { more: true, ..transfer(1, 1) }, &[0; 12]);
    script.transfer(middle(), &[0; 1]);
    script.transfer(Transfer { handle: 1, ..Transfer::default() }, &[0; 2]);
    script.transfer(last(), &[0; 3]);
    let expected = [
        "0 first 0",
        "0 more 11",
        "1 first 0",
        "1 more 12",
        "0 more 1",
        "1 more 2",
        "1 last, settled false",
        "0 more 3",
        "0 last, settled false",
    ];
    assert_eq!(story(&mut script), expected);
}

#[test]
fn a_delivery_that_exceeds_the_limit_is_dropped_at_once_and_rejected_at_its_end() {
    let (mut script, link) = server();
    script.transfer(first(0), &[0; 60]);
    script.transfer(middle(), &[0; 60]);
    assert_eq!(story(&mut script), ["0 first 0", "0 more 60", "0 dropped"]);
    script.transfer(middle(), &[0; 60]);
    assert_eq!(script.sent(), [], "the end of the delivery has not arrived");
    script.transfer(last(), &[0; 60]);
    assert_eq!(rejections(script.sent()), [0]);
    assert_eq!((script.machine.credit(link), script.machine.unsettled(link)), (10, 0));
    script.transfer(transfer(0, 1), &[0; 5]);
    assert_eq!(story(&mut script), ["1 whole 5"]);
}

#[test]
fn an_aborted_delivery_is_dropped_and_costs_no_credit() {
    let (mut script, link) = server();
    script.transfer(first(0), &[0; 60]);
    script.transfer(Transfer { aborted: true, ..last() }, &[]);
    assert_eq!(story(&mut script), ["0 first 0", "0 more 60", "0 dropped"]);
    assert_eq!(rejections(script.sent()), [0; 0]);
    assert_eq!((script.machine.credit(link), script.machine.unsettled(link)), (10, 0));
}

#[test]
fn a_delivery_that_is_settled_early_is_dropped_and_answered_after_its_last_frame() {
    let (mut script, link) = server();
    script.transfer(first(0), &[0; 60]);
    story(&mut script);
    let refusal = DeliveryState::rejected(AmqpError::new(condition::NOT_ALLOWED, "no"));
    script.machine.settle(link, peeklock_amqp::connection::DeliveryId(0), refusal.clone());
    assert_eq!(script.sent(), []);
    for _ in 0..50 {
        script.transfer(middle(), &[0; 60]);
    }
    assert_eq!(script.sent(), [], "the end of the delivery has not arrived");
    script.transfer(last(), &[0; 60]);
    let sent = script.sent_performatives();
    assert!(
        matches!(&sent[..], [Performative::Disposition(answer)] if answer.state.as_ref() == Some(&refusal)),
        "{sent:?}"
    );
    assert_eq!((script.machine.credit(link), script.machine.unsettled(link)), (9, 0));
    assert_eq!(story(&mut script), [""; 0]);

    // The sender aborts the delivery: no answer is expected, and the driver that settled it renews the credit.
    script.transfer(first(1), &[0; 60]);
    story(&mut script);
    script.machine.settle(link, peeklock_amqp::connection::DeliveryId(1), refusal);
    script.transfer(Transfer { aborted: true, ..last() }, &[]);
    assert_eq!((rejections(script.sent()), story(&mut script)), (vec![], vec![]));
    assert_eq!((script.machine.credit(link), script.machine.unsettled(link)), (8, 0));
}

#[test]
fn a_link_that_detaches_in_the_middle_of_a_delivery_leaves_no_state() {
    let (mut script, _) = server();
    script.transfer(first(0), &[0; 11]);
    story(&mut script);
    script.send(1, Detach { handle: 0, closed: true, error: None });
    assert!(matches!(script.events()[..], [Event::Detached { .. }]));
    script.sent();
    large_link(&mut script, 0);
    script.transfer(transfer(0, 1), b"next");
    assert_eq!(story(&mut script), ["1 whole 4"]);
}

/// Parts are not kept, so they do not count as incomplete bytes.
#[test]
fn many_large_deliveries_at_once_need_no_memory() {
    let (mut script, _) = server();
    for handle in 1..8 {
        large_link(&mut script, handle);
    }
    for handle in 0..8 {
        script.transfer(Transfer { more: true, ..transfer(handle, handle) }, &[0; 10]);
        script.transfer(Transfer { handle, more: true, ..Transfer::default() }, &[0; 80]);
    }
    assert_eq!(story(&mut script).len(), 16);
}
