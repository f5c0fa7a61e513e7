//! Messages that are forwarded to another queue, each exactly once.

use bytes::Bytes;
use peeklock_engine::{
    Attributes, Error, Origin, PatchPart, ReceiveMode, ReceiverId, SessionWish, Settlement,
};
use peeklock_types::{EntityName, QueueSettings, SubQueue, limits};

use crate::story::{
    ABANDON, DEAD, DEAD_LETTER, MAIN, Story, far_away, here, id, in_session, name, neighbours, secs, seq,
    settings,
};

const ASIDE: SubQueue = SubQueue::TransferDeadLetter;

/// Returns a story in which "orders" forwards to a neighbour, and the neighbour's name.
fn forwarding() -> (Story, EntityName) {
    let target = neighbours().next().unwrap();
    let story = Story::with(QueueSettings { forward_to: Some(target.clone()), ..settings() });
    (story, target)
}

fn reason_of(parts: &[PatchPart]) -> Option<&str> {
    parts.iter().find_map(|part| match part {
        PatchPart::DeadLetter { reason, .. } => reason.as_deref(),
        PatchPart::Properties(_) | PatchPart::Changes(_) => None,
    })
}

#[test]
fn a_forwarded_message_leaves_once_and_contains_its_origin() {
    let (mut story, target) = forwarding();
    let target = story.create(&target, settings());
    story.send(2);
    story.deliver();
    assert_eq!((story.counts().transfer_count, story.counts().active_count), (2, 0));
    story.restart();
    story.forward();
    assert_eq!(story.counts().message_count(), 0);
    let arrived = story.peek_in(target, MAIN);
    assert_eq!(arrived.len(), 2);
    let origin = Origin { sequence_number: seq(2), hop_count: 1, ..Origin::default() };
    assert_eq!(arrived[1].details.as_ref().unwrap().origin, Some(origin));
    story.restart();
}

#[test]
fn a_queue_that_forwards_accepts_no_receivers() {
    let mut story = Story::with_sent(1);
    let receiver = story.attach(MAIN, 1, ReceiveMode::PeekLock, 0);
    let target = neighbours().next().unwrap();
    story.update(|settings| settings.forward_to = Some(target)).unwrap();
    assert_eq!(story.out.closed[0].receiver, receiver);
    let (mode, wish) = (ReceiveMode::PeekLock, SessionWish::None);
    let attached = story.engine.attach_receiver(story.now, story.queue, MAIN, ReceiverId(2), mode, wish);
    assert!(matches!(attached, Err(Error::Forwards { .. })));
    story.deliver();
    assert_eq!(story.counts().transfer_count, 1, "existing messages are forwarded too");
}

// The source crashes after the target has accepted the message and before the source receives the confirmation.
#[test]
fn a_message_that_is_transferred_twice_is_stored_once() {
    let (mut story, target) = forwarding();
    let target = story.create(&target, settings());
    story.send(1);
    story.deliver();
    let message = story.engine.outgoing(here(), 10, u64::MAX).remove(0);
    assert_eq!(story.arrive(&message), Ok(true));
    story.restart();
    assert_eq!(story.engine.outgoing(here(), 10, u64::MAX).first(), Some(&message));
    assert_eq!(story.arrive(&message), Ok(false));
    story.engine.transferred(here(), message.number, &mut story.out);
    story.engine.transferred(here(), message.number, &mut story.out);
    assert_eq!((story.counts().message_count(), story.peek_in(target, MAIN).len()), (0, 1));
}

#[test]
fn messages_travel_in_order_and_within_the_requested_limits() {
    let (mut story, _) = forwarding();
    story.send(5);
    story.deliver();
    let travel = |count_max, size| story.engine.outgoing(here(), count_max, size).len();
    assert_eq!((travel(2, u64::MAX), travel(9, 250), travel(9, 1)), (2, 2, 1));
    assert_eq!(story.engine.transfer_targets().collect::<Vec<_>>(), [here()]);
    let numbers: Vec<_> = story.engine.outgoing(here(), 9, u64::MAX).iter().map(|out| out.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
}

#[test]
fn a_rejected_transfer_is_dead_lettered_and_later_messages_continue() {
    let (mut story, target) = forwarding();
    story.send(1);
    story.forward();
    let aside = &story.peek(ASIDE)[0];
    let text = format!("there is no queue or topic '{target}'; create it first");
    let part = PatchPart::DeadLetter { reason: Some("TransferFailed".to_owned()), description: Some(text) };
    assert_eq!((aside.sequence_number, &aside.patch.parts), (seq(1), &vec![part]));
    let target = story.create(&target, settings());
    story.send(1);
    story.forward();
    assert_eq!((story.counts().transfer_dead_letter_count, story.peek_in(target, MAIN).len()), (1, 1));
    story.restart();
    let aside = story.receive(ASIDE).unwrap();
    story.settle(&aside, Settlement::Complete).unwrap();
    assert_eq!(story.counts().message_count(), 0);
}

// A longer reason does not fit in a record, so a journal with it could not be decoded.
#[test]
fn the_reason_of_a_rejection_is_truncated_to_fit_a_record() {
    let (mut story, _) = forwarding();
    story.send(1);
    story.deliver();
    story.engine.transfer_refused(here(), 1, "é".repeat(100_000), &mut story.out);
    story.restart();
    let PatchPart::DeadLetter { description, .. } = &story.peek(ASIDE)[0].patch.parts[0] else { panic!() };
    assert_eq!(description.as_ref().unwrap().chars().count(), limits::DEAD_LETTER_TEXT_CHARS_MAX);
}

#[test]
fn the_attributes_of_a_message_are_forwarded_with_it() {
    let (mut story, target) = forwarding();
    let requires_session = true;
    let target = story.create(&target, QueueSettings { requires_session, ..settings() });
    let said = Attributes {
        time_to_live: Some(secs(77)),
        message_id: Some(Bytes::from_static(b"id")),
        ..in_session("a")
    };
    story.send_with(said.clone()).unwrap();
    story.send(1);
    story.deliver();
    let told = story.engine.outgoing(here(), 1, 1).remove(0).attributes;
    assert_eq!(Attributes { origin: None, ..*told }, said);
    story.forward();
    assert_eq!(story.engine.list_sessions(story.now, target, None, 0, 9).unwrap().len(), 1);
    assert_eq!(story.counts().transfer_dead_letter_count, 1, "the other message has no session");
}

#[test]
fn a_scheduled_message_is_forwarded_when_due_and_an_expired_one_is_not() {
    let (mut story, target) = forwarding();
    let target = story.create(&target, settings());
    let later = Attributes { scheduled_for: Some(story.now + secs(5)), ..Attributes::default() };
    story.send_with(later).unwrap();
    story.forward();
    assert!(story.peek_in(target, MAIN).is_empty());
    story.wait(secs(5));
    story.forward();
    assert_eq!(story.peek_in(target, MAIN).len(), 1);
}

#[test]
fn dead_letters_are_forwarded_with_their_reason_and_their_source() {
    let target = neighbours().next().unwrap();
    let mut story =
        Story::with(QueueSettings { forward_dead_letters_to: Some(target.clone()), ..settings() });
    let target = story.create(&target, settings());
    story.send(2);
    for _ in 0..3 {
        let delivery = story.receive(MAIN).unwrap();
        story.settle(&delivery, ABANDON).unwrap();
    }
    story.forward();
    assert_eq!(story.numbers(MAIN), [2]);
    let dead = story.peek_in(target, MAIN).remove(0);
    assert_eq!(reason_of(&dead.patch.parts), Some("MaxDeliveryCountExceeded"));
    let origin = dead.details.unwrap().origin.unwrap();
    assert_eq!((origin.dead_letter_source, origin.hop_count), (Some(name("orders")), 1));
    assert_eq!(dead.delivery_count, 0);
    story.restart();
}

#[test]
fn a_dead_letter_keeps_its_session() {
    let target = neighbours().next().unwrap();
    let sessions = QueueSettings { requires_session: true, ..settings() };
    let mut story =
        Story::with(QueueSettings { forward_dead_letters_to: Some(target.clone()), ..sessions.clone() });
    let target = story.create(&target, sessions);
    story.send_in_session("a", 1);
    story.accept_named(1, "a").unwrap();
    let delivery = story.deliver().remove(0);
    story.settle(&delivery, DEAD_LETTER).unwrap();
    story.forward();
    assert_eq!(story.engine.list_sessions(story.now, target, None, 0, 9).unwrap().len(), 1);
    story.restart();
}

#[test]
fn a_circle_of_queues_ends_after_four_hops() {
    for dead_letters_go_on in [false, true] {
        let names: Vec<_> = std::iter::once(name("orders")).chain(neighbours().take(1)).collect();
        let to = |n: usize| QueueSettings {
            forward_to: Some(names[n].clone()),
            forward_dead_letters_to: dead_letters_go_on.then(|| names[n].clone()),
            ..settings()
        };
        let mut story = Story::with(to(1));
        let other = story.create(&names[1], to(0));
        story.send(1);
        story.forward();
        // Four hops lead back to "orders". If dead letters are forwarded too, the message must not become one.
        let (here, there) = if dead_letters_go_on { (ASIDE, DEAD) } else { (DEAD, ASIDE) };
        let found = story.peek(here).remove(0);
        assert_eq!(reason_of(&found.patch.parts), Some("MaxTransferHopCountExceeded"));
        assert!(story.peek(there).is_empty() && story.peek_in(other, MAIN).is_empty());
        assert_eq!(found.details.unwrap().origin.unwrap().hop_count, 4);
        story.restart();
    }
}

#[test]
fn a_queue_that_forwards_to_itself_ends_with_dead_letters() {
    for (duplicate_window, hops) in [(None, 4), (Some(secs(60)), 0)] {
        let forward_to = Some(name("orders"));
        let mut story = Story::with(QueueSettings { forward_to, duplicate_window, ..settings() });
        story.send_with(id("one")).unwrap();
        story.forward();
        let dead = story.peek(DEAD).remove(0);
        assert_eq!(reason_of(&dead.patch.parts), Some("MaxTransferHopCountExceeded"));
        assert_eq!(
            dead.details.and_then(|details| details.origin).map_or(0, |origin| origin.hop_count),
            hops
        );
        assert_eq!(story.counts().message_count(), 1, "a message is not a duplicate of itself");
        story.restart();
    }
}

#[test]
fn a_queue_with_sessions_forwards_each_session_in_order() {
    let target = neighbours().next().unwrap();
    let sessions = QueueSettings { requires_session: true, ..settings() };
    let mut story = Story::with(sessions.clone());
    let target_queue = story.create(&target, sessions);
    for session in ["a", "b", "a"] {
        story.send_in_session(session, 1);
    }
    story.accept_named(1, "b").unwrap();
    story.update(|settings| settings.forward_to = Some(target)).unwrap();
    story.detach(1);
    story.forward();
    story.restart();
    assert_eq!(story.counts().message_count(), 0);
    let arrived: Vec<u64> = story
        .peek_in(target_queue, MAIN)
        .into_iter()
        .map(|message| message.details.unwrap().origin.unwrap().sequence_number.0)
        .collect();
    // The session that was held last goes last; each session keeps its order.
    assert_eq!(arrived, [1, 3, 2]);
    assert_eq!(story.engine.list_sessions(story.now, target_queue, None, 0, 9).unwrap().len(), 2);
    story.send_in_session("c", 1);
    story.forward();
    assert_eq!(story.peek_in(target_queue, MAIN).len(), 4);
}

#[test]
fn an_idle_queue_stays_until_its_outbox_is_empty() {
    let target = far_away();
    let idle = Some(secs(60));
    let mut story =
        Story::with(QueueSettings { forward_to: Some(target), auto_delete_on_idle: idle, ..settings() });
    story.send(1);
    story.deliver();
    story.wait(secs(600));
    let shard = story.engine.transfer_targets().next().unwrap();
    story.engine.transferred(shard, 1, &mut story.out);
    story.wait(secs(0));
    assert_eq!(story.engine.find(&name("orders")), None);
}

#[test]
fn a_queue_is_deleted_with_its_outbox_and_numbers_are_not_reused() {
    let (mut story, target) = forwarding();
    story.send(2);
    story.deliver();
    story.engine.delete_queue(story.now, &name("orders"), &mut story.out).unwrap();
    assert_eq!(story.engine.transfer_targets().count(), 0);
    story.engine.transferred(here(), 2, &mut story.out);
    story.restart();
    story.queue = story.create(&name("orders"), QueueSettings { forward_to: Some(target), ..settings() });
    story.group = peeklock_types::CommitGroupNumber(50);
    story.send(1);
    story.deliver();
    assert_eq!(story.engine.outgoing(here(), 9, u64::MAX)[0].number, 3);
}
