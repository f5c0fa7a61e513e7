//! A message larger than its link's limit is rejected by itself: the link, its credit and its other messages continue,
//! and no bytes of it are kept.

use peeklock_amqp::connection::{AttachReply, Config, Event, LinkId};
use peeklock_amqp::{
    DeliveryState, Detach, Disposition, Flow, Performative, Role, Transfer, Value, condition,
};

use super::support::{Script, deliveries, link_flow, transfer};

/// Returns a link that accepts messages of ten bytes, with credit.
fn small_link(script: &mut Script, handle: u32, credit: u32) -> LinkId {
    let link = script.peer_attach(handle, Role::Sender);
    let reply = AttachReply { max_message_size: Some(10), ..AttachReply::default() };
    script.machine.accept(link, reply);
    script.machine.set_credit(link, credit);
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

/// Returns the ids that were rejected for their size, and the announced credit.
fn answers(script: &mut Script) -> (Vec<u32>, Vec<u32>) {
    let (mut rejected, mut credits) = (Vec::new(), Vec::new());
    for performative in script.sent_performatives() {
        match performative {
            Performative::Disposition(disposition) => rejected.push(rejected_id(&disposition)),
            Performative::Flow(Flow { handle: Some(_), link_credit: Some(credit), .. }) => {
                credits.push(credit);
            }
            other => panic!("{other:?}"),
        }
    }
    (rejected, credits)
}

fn rejected_id(disposition: &Disposition) -> u32 {
    let Disposition { role: Role::Receiver, first, last, settled: true, state, .. } = disposition else {
        panic!("{disposition:?}")
    };
    assert!(last.is_none_or(|last| last == *first));
    let Some(DeliveryState::Rejected { error: Some(error) }) = state else { panic!("{state:?}") };
    assert_eq!(error.condition, condition::MESSAGE_SIZE_EXCEEDED);
    let text = error.description.as_ref().unwrap().as_str();
    let begin = format!("The received message (delivery-id:{first}, size:");
    assert!(text.starts_with(&begin) && text.ends_with("bytes) currently allowed on the link."), "{text}");
    *first
}

#[test]
fn a_message_of_several_frames_is_rejected_after_its_last_one() {
    let (mut script, _) = Script::server();
    let link = small_link(&mut script, 0, 10);
    script.transfer(transfer(0, 0), &[0; 10]);
    script.transfer(first(1), &[0; 6]);
    script.transfer(middle(), &[0; 5]);
    script.transfer(middle(), &[0; 500]);
    assert_eq!(script.sent(), [], "the end of the message has not arrived");
    script.transfer(last(), &[0; 5]);
    assert_eq!(answers(&mut script), (vec![1], vec![9]));
    assert_eq!(script.machine.unsettled(link), 1);
    script.transfer(transfer(0, 2), b"small");
    let ids: Vec<u32> = deliveries(script.events()).iter().map(|delivery| delivery.id.0).collect();
    assert_eq!(ids, [0, 2]);
}

#[test]
fn a_message_of_one_frame_is_rejected_too_and_the_answer_contains_both_sizes() {
    let mut config = Config::server("s");
    config.limits.message_size_bytes_max = 10;
    let (mut script, _) = Script::server_with(config);
    script.receiving_link(0, 10);
    script.transfer(transfer(0, 7), &[0; 11]);
    let mut sent = script.sent_performatives();
    sent.retain(|performative| !matches!(performative, Performative::Flow(_)));
    let [Performative::Disposition(disposition)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!(rejected_id(disposition), 7);
    let Some(DeliveryState::Rejected { error: Some(error) }) = &disposition.state else { panic!("an error") };
    let info = error.info.as_ref().unwrap();
    assert_eq!(info.get("message-size"), Some(&Value::from(11_u64)));
    assert_eq!(info.get("max-message-size"), Some(&Value::from(10_u64)));
    let text = error.description.as_ref().unwrap().to_string();
    assert!(text.contains("11") && text.contains("10"), "{text}");
    assert!(script.events().is_empty());
}

#[test]
fn the_buffered_bytes_of_an_oversized_message_make_room_for_others_at_once() {
    let mut config = Config::server("s");
    config.limits.incomplete_bytes_max = 16;
    let (mut script, _) = Script::server_with(config);
    small_link(&mut script, 0, 10);
    small_link(&mut script, 1, 10);
    script.transfer(first(0), &[0; 10]);
    for _ in 0..100 {
        script.transfer(middle(), &[0; 1_000]);
    }
    script.transfer(Transfer { more: true, ..transfer(1, 1) }, &[0; 10]);
    script.transfer(Transfer { handle: 1, ..Transfer::default() }, &[]);
    assert_eq!(deliveries(script.events()).len(), 1);
    script.transfer(last(), &[]);
    assert_eq!(answers(&mut script).0, [0]);
}

#[test]
fn a_settled_oversized_message_gets_no_answer_and_returns_its_credit() {
    let (mut script, _) = Script::server();
    small_link(&mut script, 0, 10);
    script.transfer(Transfer { settled: Some(true), ..transfer(0, 0) }, &[0; 11]);
    assert_eq!(answers(&mut script), (vec![], vec![10]));
    script.transfer(first(1), &[0; 11]);
    script.transfer(Transfer { settled: Some(true), ..last() }, &[]);
    assert_eq!(answers(&mut script), (vec![], vec![10]));
    assert!(script.events().is_empty());
}

#[test]
fn an_aborted_oversized_message_gets_no_answer_and_returns_its_credit() {
    let (mut script, _) = Script::server();
    let link = small_link(&mut script, 0, 10);
    script.transfer(first(0), &[0; 11]);
    script.transfer(Transfer { aborted: true, ..last() }, &[]);
    assert_eq!(answers(&mut script), (vec![], vec![10]));
    assert_eq!(script.machine.unsettled(link), 0);
    assert!(script.events().is_empty());
}

#[test]
fn credit_and_window_do_not_run_out_for_any_number_of_oversized_messages() {
    let config = Config { incoming_window: 10, ..Config::server("s") };
    let (mut script, _) = Script::server_with(config);
    let link = small_link(&mut script, 0, 2);
    for id in 0..100 {
        script.transfer(first(id), &[0; 8]);
        script.transfer(last(), &[0; 8]);
        let sent = script.sent_performatives();
        let [Performative::Flow(flow), Performative::Disposition(_)] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!((flow.delivery_count, flow.link_credit), (Some(id + 1), Some(2)));
        assert_eq!((flow.next_incoming_id, flow.incoming_window), (Some(2 * id + 2), 10));
    }
    assert_eq!((script.machine.credit(link), script.machine.unsettled(link)), (2, 0));
    assert!(script.events().is_empty());
}

/// A peer that ignores credit must not gain credit.
#[test]
fn an_oversized_message_beyond_the_credit_returns_no_credit() {
    let mut config = Config::server("s");
    config.limits.overrun_max = 2;
    let (mut script, _) = Script::server_with(config);
    let link = small_link(&mut script, 0, 0);
    script.transfer(transfer(0, 0), &[0; 11]);
    script.transfer(transfer(0, 1), &[0; 12]);
    assert_eq!(answers(&mut script), (vec![0, 1], vec![]));
    assert_eq!(script.machine.credit(link), 0);
    script.transfer(transfer(0, 2), &[0; 11]);
    assert!(matches!(&script.events()[..], [Event::Detached { error: Some(error), .. }]
        if error.condition == condition::TRANSFER_LIMIT_EXCEEDED));
}

#[test]
fn credit_that_is_set_while_an_oversized_message_arrives_is_exact() {
    let (mut script, _) = Script::server();
    let link = small_link(&mut script, 0, 10);
    script.transfer(first(0), &[0; 11]);
    script.machine.set_credit(link, 5);
    script.sent();
    script.transfer(last(), &[]);
    assert_eq!(answers(&mut script), (vec![0], vec![]));
    assert_eq!(script.machine.credit(link), 5);
}

#[test]
fn an_oversized_message_leaves_a_drain_complete() {
    // All credit is used when the drain begins, so it is complete at once.
    let (mut script, _) = Script::server();
    let link = small_link(&mut script, 0, 1);
    script.transfer(first(0), &[0; 11]);
    script.machine.drain(link);
    assert!(matches!(script.events()[..], [Event::Flow { credit: 0, drain: true, .. }]));
    script.transfer(last(), &[]);
    assert_eq!(answers(&mut script), (vec![0], vec![]));

    // The message takes the last credit of a drain.
    script.machine.set_credit(link, 1);
    script.machine.drain(link);
    script.sent();
    script.transfer(transfer(0, 1), &[0; 11]);
    assert!(matches!(script.events()[..], [Event::Flow { credit: 0, drain: true, .. }]));
    assert_eq!(answers(&mut script), (vec![1], vec![]));

    // The peer returns the rest while the message arrives.
    script.machine.set_credit(link, 3);
    script.transfer(first(2), &[0; 11]);
    script.machine.drain(link);
    script.sent();
    script.send(1, link_flow(0, 5, 0));
    assert!(matches!(script.events()[..], [Event::Flow { credit: 0, drain: true, .. }]));
    script.transfer(last(), &[]);
    assert_eq!(answers(&mut script), (vec![2], vec![]));
    assert_eq!(script.machine.credit(link), 0);
}

#[test]
fn a_link_that_detaches_in_the_middle_of_a_message_leaves_no_state() {
    let (mut script, _) = Script::server();
    small_link(&mut script, 0, 10);
    script.transfer(first(0), &[0; 11]);
    script.send(1, Detach { handle: 0, closed: true, error: None });
    assert!(matches!(script.sent_performatives()[..], [Performative::Detach(_)]));
    assert!(matches!(script.events()[..], [Event::Detached { .. }]));
    small_link(&mut script, 0, 10);
    script.transfer(transfer(0, 1), b"next");
    assert_eq!(deliveries(script.events()).len(), 1);
}
