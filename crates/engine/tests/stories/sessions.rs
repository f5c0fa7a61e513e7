//! Sessions: one holder, first in first out, and the failure of a holder.

use bytes::Bytes;
use peeklock_engine::{
    Accepted, Attached, CloseReason, Closed, Error, FACTS_PER_CALL_MAX, HeldSession, MessageState,
    ReceiveMode, ReceiverId, SessionWish, Settlement,
};
use peeklock_types::{PoisonSession, QueueSettings, RetryPolicy, Timestamp, limits};

use crate::story::{
    ABANDON, DEAD, DEFER, MAIN, Story, in_session, name, numbers, secs, seq, session, settings,
};

fn with_sessions() -> QueueSettings {
    QueueSettings { requires_session: true, ..settings() }
}

fn story() -> Story {
    Story::with(with_sessions())
}

fn held(id: &str, locked_until: Timestamp) -> HeldSession {
    HeldSession { session: session(id), locked_until }
}

#[test]
fn every_message_and_every_receiver_requires_a_session() {
    let mut story = story();
    let batch = story.batch(1);
    let refused = story.engine.send(story.now, story.queue, batch, &mut story.out);
    assert!(matches!(refused, Err(Error::SessionRequired { .. })));
    assert!(matches!(story.accept(1, SessionWish::None), Err(Error::SessionRequired { .. })));
    // The dead-letter queue and an ordinary queue have no sessions.
    story.attach(DEAD, 2, ReceiveMode::PeekLock, 1);
    let mut plain = Story::new();
    assert!(matches!(plain.accept_named(1, "a"), Err(Error::NoSessions { .. })));
    plain.send_with(in_session("a")).unwrap();
    assert_eq!(plain.receive(MAIN).unwrap().message.sequence_number, seq(1));
}

#[test]
fn a_session_has_one_holder_which_gets_its_messages_in_order() {
    let mut story = story();
    story.send_in_session("a", 2);
    story.send_in_session("b", 1);
    story.send_in_session("a", 1);
    let until = story.now + secs(30);
    assert_eq!(story.accept_named(1, "a"), Ok(Attached::Session(held("a", until))));
    assert!(matches!(story.accept_named(2, "a"), Err(Error::SessionLocked { .. })));
    let deliveries = story.deliver();
    assert_eq!(numbers(&deliveries), [1, 2, 4]);
    assert_eq!(deliveries[0].message.locked_until, Some(until));
    story.settle(&deliveries[0], Settlement::Complete).unwrap();
    assert_eq!(story.counts().locked_count, 2);
}

#[test]
fn an_empty_session_can_be_held_and_is_removed_afterwards() {
    let mut story = story();
    let before = story.engine.snapshot();
    story.accept_named(1, "").unwrap();
    story.send_in_session("", 1);
    let delivery = story.deliver().remove(0);
    story.settle(&delivery, Settlement::Complete).unwrap();
    story.detach(1);
    story.restart();
    assert_eq!(story.engine.list_sessions(story.now, story.queue, None, 0, 10), Ok(vec![]));
    assert_eq!(story.engine.snapshot().len(), before.len());
}

#[test]
fn the_next_session_is_the_one_that_has_waited_longest() {
    let mut story = story();
    story.send_in_session("b", 1);
    story.send_in_session("a", 2);
    (1..=3).for_each(|receiver| story.accept_next(receiver));
    let deliveries = story.deliver();
    let until = story.now + secs(30);
    let accepted = [(1, "b"), (2, "a")]
        .map(|(receiver, id)| Accepted { receiver: ReceiverId(receiver), held: held(id, until) });
    assert_eq!(story.out.accepted, accepted);
    assert_eq!(numbers(&deliveries), [1, 2, 3]);
    // The third receiver waits until another session is available, here one that is freed.
    story.detach(1);
    assert_eq!(numbers(&story.deliver()), [1]);
    assert_eq!(story.out.accepted[0].receiver, ReceiverId(3));
}

#[test]
fn a_receiver_that_waits_too_long_for_a_session_is_closed() {
    let mut story = story();
    story.accept_next(1);
    assert_eq!(story.engine.next_deadline(), Some(story.now + secs(60)));
    story.wait(secs(60));
    let reason = CloseReason::NoSession;
    assert_eq!(story.out.closed, [Closed { receiver: ReceiverId(1), reason }]);
    story.send_in_session("a", 1);
    assert!(story.deliver().is_empty() && story.out.accepted.is_empty());
    assert_eq!(story.engine.next_deadline(), None);
}

#[test]
fn a_receiver_that_stops_waiting_gets_no_session() {
    let mut story = story();
    story.accept_next(1);
    story.accept_next(2);
    story.detach(1);
    story.send_in_session("a", 1);
    assert_eq!(story.deliver()[0].receiver, ReceiverId(2));
}

#[test]
fn a_renewal_extends_a_session_and_the_locks_of_its_messages() {
    let mut story = story();
    story.send_in_session("a", 1);
    story.accept_named(1, "a").unwrap();
    let delivery = story.deliver().remove(0);
    story.wait(secs(20));
    let (now, queue) = (story.now, story.queue);
    let until = story.engine.renew_session(now, queue, &session("a"), ReceiverId(1));
    assert_eq!(until, Ok(now + secs(30)));
    let renewed = story.engine.renew(now, queue, MAIN, &[delivery.token], &mut story.out);
    assert!(matches!(renewed, Err(Error::RenewSession { .. })));
    story.wait(secs(29));
    assert_eq!(story.peek(MAIN)[0].locked_until, Some(now + secs(30)));
    assert_eq!(story.settle(&delivery, Settlement::Complete), Ok(()));
    let other = story.engine.renew_session(now, queue, &session("a"), ReceiverId(2));
    assert!(matches!(other, Err(Error::SessionLockLost { .. })));
}

#[test]
fn a_session_with_an_expired_lock_is_lost_and_its_messages_return() {
    let mut story = story();
    story.send_in_session("a", 3);
    story.accept_named(1, "a").unwrap();
    let deliveries = story.deliver();
    story.settle(&deliveries[0], Settlement::Complete).unwrap();
    assert_eq!(story.engine.next_deadline(), Some(story.now + secs(30)));
    story.now = story.now + secs(30);
    let (now, queue, id) = (story.now, story.queue, session("a"));
    let late = story.settle(&deliveries[1], Settlement::Complete);
    assert!(matches!(late, Err(Error::SessionLockLost { .. })), "the lock is lost even before the tick");
    let late = story.engine.session_state(now, queue, &id, ReceiverId(1));
    assert!(matches!(late, Err(Error::SessionLockLost { .. })));
    story.wait(secs(0));
    assert_eq!(story.out.closed, [], "no other receiver waits for the session");
    assert_eq!((story.counts().locked_count, story.deliver().len()), (0, 0), "the session has no holder");
    let late = story.settle(&deliveries[1], Settlement::Complete);
    assert!(matches!(late, Err(Error::SessionLockLost { .. })));
    story.wait(secs(1));
    let reason = CloseReason::SessionLockLost;
    assert_eq!(story.out.closed, [Closed { receiver: ReceiverId(1), reason }]);
    assert_eq!(story.engine.next_deadline(), None);
    story.accept_named(2, "a").unwrap();
    let again = story.deliver();
    assert_eq!(numbers(&again), [2, 3]);
    assert_eq!(again[0].message.delivery_count, 1);
}

#[test]
fn a_receiver_that_lost_its_session_is_closed_as_soon_as_another_gets_it() {
    for wants_any in [false, true] {
        let mut story = story();
        story.send_in_session("a", 1);
        story.accept_named(1, "a").unwrap();
        story.deliver();
        if wants_any {
            story.accept_next(2);
        }
        story.wait(secs(30));
        if !wants_any {
            story.accept_named(2, "A").unwrap();
        }
        assert_eq!(numbers(&story.deliver()), [1]);
        story.wait(secs(0));
        let reason = CloseReason::SessionLockLost;
        assert_eq!(story.out.closed, [Closed { receiver: ReceiverId(1), reason }]);
        assert_eq!(story.engine.next_deadline(), Some(story.now + secs(30)));
    }
}

// The holder of a session may spell its id differently without a lasting effect; the first message decides the
// spelling.
#[test]
fn session_ids_are_compared_without_case_and_shown_as_first_sent() {
    let mut story = story();
    let until = story.now + secs(30);
    let Ok(Attached::Session(held)) = story.accept_named(1, "ORDER 7") else { panic!("the session is free") };
    assert_eq!(
        (held.session.as_str(), held.locked_until),
        ("ORDER 7", until),
        "the id is in the spelling of the holder"
    );
    story.send_in_session("Order 7", 1);
    story.send_in_session("order 7", 1);
    assert_eq!(numbers(&story.deliver()), [1, 2]);
    let listed = |story: &mut Story| {
        let found = story.engine.list_sessions(story.now, story.queue, None, 0, 10).unwrap();
        found.iter().map(|id| id.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed(&mut story), ["Order 7"]);
    assert!(matches!(story.accept_named(2, "oRDER 7"), Err(Error::SessionLocked { .. })));
    assert_eq!(story.engine.peek_session(story.queue, &session("ORDER 7"), seq(0), 9).unwrap().len(), 2);
    story.restart();
    assert_eq!(listed(&mut story), ["Order 7"]);
}

#[test]
fn messages_of_a_held_session_can_be_deleted_at_once() {
    let mut story = story();
    story.send_in_session("a", 3);
    story.send_in_session("b", 1);
    story.accept_named(1, "a").unwrap();
    story.engine.set_credit(ReceiverId(1), 1);
    assert_eq!(numbers(&story.deliver()), [1]);
    let (now, queue) = (story.now, story.queue);
    let purge = |story: &mut Story, id, receiver, count_max| {
        let (id, receiver, out) = (session(id), ReceiverId(receiver), &mut story.out);
        story.engine.purge_session(now, queue, &id, receiver, Timestamp::MAX, count_max, out)
    };
    assert!(matches!(purge(&mut story, "b", 1, 9), Err(Error::SessionLockLost { .. })));
    assert_eq!((purge(&mut story, "A", 1, 1), purge(&mut story, "a", 1, 9)), (Ok(1), Ok(1)));
    assert_eq!(story.numbers(MAIN), [1, 4], "locked messages and other sessions stay");
    story.restart();
}

#[test]
fn a_closed_receiver_frees_its_session_at_once() {
    let mut story = story();
    story.send_in_session("a", 2);
    story.accept_named(1, "a").unwrap();
    let first = story.deliver();
    story.detach(1);
    assert!(matches!(story.settle(&first[0], Settlement::Complete), Err(Error::SessionLockLost { .. })));
    story.accept_named(2, "a").unwrap();
    let again = story.deliver();
    assert_eq!((numbers(&again), again[0].message.delivery_count), (vec![1, 2], 1));
}

#[test]
fn after_a_restart_sessions_are_free_and_locked_messages_have_failed() {
    let mut story = story();
    story.send_in_session("a", 2);
    story.accept_named(1, "a").unwrap();
    let before = story.deliver();
    story.restart();
    assert_eq!(story.counts().locked_count, 0);
    assert!(matches!(story.settle(&before[0], Settlement::Complete), Err(Error::SessionLockLost { .. })));
    story.accept_next(1);
    let again = story.deliver();
    assert_eq!((numbers(&again), again[0].message.delivery_count), (vec![1, 2], 1));
    story.restart();
}

#[test]
fn an_abandoned_message_is_delivered_before_later_ones() {
    let mut story = story();
    story.send_in_session("a", 8);
    story.accept_named(1, "a").unwrap();
    let deliveries = story.deliver();
    story.settle(&deliveries[1], ABANDON).unwrap();
    story.engine.set_credit(ReceiverId(1), 5);
    assert_eq!(numbers(&story.deliver()), [2, 6, 7, 8]);
}

#[test]
fn nothing_overtakes_a_delayed_message_of_its_session() {
    let retry = RetryPolicy::Fixed { delay: secs(5) };
    let mut story = Story::with(QueueSettings { retry, ..with_sessions() });
    story.send_in_session("a", 2);
    story.send_in_session("b", 1);
    story.accept_named(1, "a").unwrap();
    story.engine.set_credit(ReceiverId(1), 1);
    let first = story.deliver();
    story.settle(&first[0], ABANDON).unwrap();
    story.engine.set_credit(ReceiverId(1), 5);
    assert!(story.deliver().is_empty());
    // The session is not available before that: the next one is another.
    story.detach(1);
    story.accept_next(2);
    assert_eq!(numbers(&story.deliver()), [3]);
    story.accept_named(3, "a").unwrap();
    assert!(story.deliver().is_empty());
    story.restart();
    story.wait(secs(5));
    story.accept_named(3, "a").unwrap();
    assert_eq!(numbers(&story.deliver()), [1, 2]);
}

#[test]
fn a_session_continues_without_a_message_that_failed_too_often() {
    let mut story = story();
    story.send_in_session("a", 2);
    for receiver in 1..=3 {
        story.accept_named(receiver, "a").unwrap();
        assert_eq!(story.deliver().len(), 2);
        story.detach(receiver);
    }
    assert_eq!(story.numbers(DEAD), [1, 2]);
    assert_eq!(story.receive(DEAD).unwrap().message.delivery_count, 3);
    story.restart();
}

#[test]
fn a_blocked_session_delivers_its_poison_message_again_and_again() {
    let mut story = Story::with(QueueSettings { poison_session: PoisonSession::Block, ..with_sessions() });
    story.send_in_session("a", 2);
    story.accept_named(1, "a").unwrap();
    story.engine.set_credit(ReceiverId(1), 0);
    for failed_count in 0..6 {
        story.engine.set_credit(ReceiverId(1), 1);
        let delivery = story.deliver().remove(0);
        assert_eq!(
            (delivery.message.sequence_number, delivery.message.delivery_count),
            (seq(1), failed_count)
        );
        story.settle(&delivery, ABANDON).unwrap();
    }
    assert_eq!(story.counts().dead_letter_count, 0);
}

#[test]
fn a_session_that_is_set_aside_is_available_only_by_its_name() {
    let mut story = Story::with(QueueSettings { poison_session: PoisonSession::SetAside, ..with_sessions() });
    story.send_in_session("a", 2);
    story.send_in_session("b", 1);
    for receiver in 1..=3 {
        story.accept_named(receiver, "a").unwrap();
        story.engine.set_credit(ReceiverId(receiver), 1);
        let delivery = story.deliver().remove(0);
        story.settle(&delivery, ABANDON).unwrap();
        story.detach(receiver);
    }
    story.restart();
    story.accept_next(4);
    story.accept_next(5);
    assert_eq!(numbers(&story.deliver()), [3]);
    story.accept_named(6, "a").unwrap();
    let deliveries = story.deliver();
    assert_eq!(numbers(&deliveries), [1, 2]);
    // Without its poison message it is a session like others.
    story.settle(&deliveries[0], Settlement::Complete).unwrap();
    story.detach(6);
    let deliveries = story.deliver();
    assert_eq!((numbers(&deliveries), deliveries[0].receiver), (vec![2], ReceiverId(5)));
}

#[test]
fn a_deferred_message_is_received_by_the_holder_of_its_session() {
    let mut story = story();
    story.send_in_session("a", 1);
    story.send_in_session("b", 1);
    story.accept_named(1, "a").unwrap();
    story.accept_named(2, "b").unwrap();
    let deliveries = story.deliver();
    story.settle(&deliveries[0], DEFER).unwrap();
    let refused = story.receive_deferred(&[1], ReceiveMode::PeekLock);
    assert!(matches!(refused, Err(Error::SessionRequired { .. })));
    let (now, queue, mode) = (story.now, story.queue, ReceiveMode::PeekLock);
    let (a, b) = (session("a"), session("b"));
    let mut receive = |hold| {
        story.engine.receive_deferred(now, queue, MAIN, &[seq(1)], mode, Some(hold), 99, &mut story.out)
    };
    assert!(matches!(receive((&b, ReceiverId(2))), Err(Error::NotFound { .. })));
    assert!(matches!(receive((&a, ReceiverId(2))), Err(Error::SessionLockLost { .. })));
    let received = receive((&a, ReceiverId(1))).unwrap();
    assert_eq!(received[0].message.locked_until, Some(now + secs(30)));
    story.settle_token(MAIN, received[0].token, ABANDON).unwrap();
    assert_eq!(story.peek(MAIN)[0].state, MessageState::Deferred);
    story.restart();
}

#[test]
fn settlements_can_be_bound_to_a_session() {
    let mut story = story();
    story.send_in_session("a", 1);
    story.send_in_session("b", 1);
    story.accept_named(1, "a").unwrap();
    story.accept_named(2, "b").unwrap();
    let tokens: Vec<_> = story.deliver().iter().map(|delivery| delivery.token).collect();
    let (now, queue, complete) = (story.now, story.queue, Settlement::Complete);
    let mut settle = |id, tokens: &[_]| {
        let hold = (&session(id), ReceiverId(1));
        story.engine.settle_all(now, queue, MAIN, tokens, &complete, Some(hold), &mut story.out)
    };
    assert!(
        matches!(settle("b", &tokens[1..]), Err(Error::SessionLockLost { .. })),
        "another receiver holds the session"
    );
    assert!(matches!(settle("a", &tokens), Err(Error::LockLost { .. })));
    assert_eq!(settle("a", &tokens[..1]), Ok(()));
    assert!(matches!(settle("a", &tokens[..1]), Err(Error::LockLost { .. })), "the session is still held");
    assert_eq!(story.numbers(MAIN), [2]);
}

#[test]
fn the_state_of_a_session_outlives_its_messages_and_restarts() {
    let mut story = story();
    let (now, queue, id) = (story.now, story.queue, session("a"));
    story.accept_named(1, "a").unwrap();
    let state = Some(Bytes::from_static(b"step 2"));
    let mut set = |state, receiver| {
        story.engine.set_session_state(now, queue, &id, ReceiverId(receiver), state, &mut story.out)
    };
    assert!(matches!(set(state.clone(), 2), Err(Error::SessionLockLost { .. })));
    let huge = Some(Bytes::from(vec![0; limits::SESSION_STATE_BYTES_MAX + 1]));
    assert!(matches!(set(huge, 1), Err(Error::StateTooLarge { .. })));
    assert_eq!(set(state.clone(), 1), Ok(()));
    story.restart();
    story.accept_named(1, "a").unwrap();
    assert_eq!(story.engine.session_state(now, queue, &id, ReceiverId(1)), Ok(state));
    // A session is listed for its messages or its state; with a time, only for a state that was set later.
    let long_ago = Some(now - secs(1));
    assert_eq!(story.engine.list_sessions(now, queue, None, 0, 10), Ok(vec![id.clone()]));
    assert_eq!(story.engine.list_sessions(now, queue, long_ago, 0, 10), Ok(vec![id.clone()]));
    assert_eq!(story.engine.list_sessions(now, queue, Some(now), 0, 10), Ok(vec![]));
    story.engine.set_session_state(now, queue, &id, ReceiverId(1), None, &mut story.out).unwrap();
    assert_eq!(story.engine.list_sessions(now, queue, long_ago, 0, 10), Ok(vec![]));
    story.restart();
}

// A session that is held but has neither messages nor a state is not in the snapshot, so it must not keep the time at
// which its state was cleared.
#[test]
fn a_cleared_state_leaves_no_trace_in_a_session_that_continues() {
    let mut story = story();
    let (now, queue, id, holder) = (story.now, story.queue, session("a"), ReceiverId(1));
    story.accept_named(1, "a").unwrap();
    for state in [Some(Bytes::from_static(b"1")), None] {
        story.engine.set_session_state(now, queue, &id, holder, state, &mut story.out).unwrap();
    }
    story.send_in_session("a", 1);
    story.restart();
}

#[test]
fn sessions_are_listed_by_name_page_by_page() {
    let mut story = story();
    ["c", "a", "d", "b"].iter().for_each(|id| story.send_in_session(id, 1));
    let mut page = |skip, top| {
        let found = story.engine.list_sessions(story.now, story.queue, None, skip, top).unwrap();
        found.iter().map(|id| id.as_str().to_owned()).collect::<String>()
    };
    assert_eq!((page(0, 3), page(3, 3), page(4, 3)), ("abc".to_owned(), "d".to_owned(), String::new()));
    let mut plain = Story::new();
    let refused = plain.engine.list_sessions(plain.now, plain.queue, None, 0, 1);
    assert!(matches!(refused, Err(Error::NoSessions { .. })));
}

#[test]
fn a_peek_in_a_session_returns_only_its_messages() {
    let mut story = story();
    ["a", "b", "a"].iter().for_each(|id| story.send_in_session(id, 1));
    let peek = |from, max| {
        let seen = story.engine.peek_session(story.queue, &session("a"), seq(from), max).unwrap();
        seen.iter().map(|message| message.sequence_number.0).collect::<Vec<_>>()
    };
    assert_eq!((peek(0, 10), peek(2, 10), peek(0, 1)), (vec![1, 3], vec![3], vec![1]));
}

#[test]
fn a_disabled_queue_frees_its_sessions() {
    let mut story = story();
    story.send_in_session("a", 1);
    story.accept_named(1, "a").unwrap();
    story.accept_next(2);
    story.deliver();
    story.update(|settings| settings.status = peeklock_types::QueueStatus::ReceiveDisabled).unwrap();
    let reason = CloseReason::Disabled;
    assert_eq!(story.out.closed, [1, 2].map(|id| Closed { receiver: ReceiverId(id), reason }));
    assert_eq!(story.counts().locked_count, 0);
    assert_eq!(story.peek(MAIN)[0].delivery_count, 1);
    story.restart();
}

#[test]
fn a_queue_is_deleted_with_its_sessions() {
    let mut story = story();
    story.send_in_session("a", 2);
    story.accept_named(1, "a").unwrap();
    story.deliver();
    story.out.clear();
    story.engine.delete_queue(story.now, &name("orders"), &mut story.out).unwrap();
    assert_eq!(story.out.facts.len(), 1, "locked messages need not be released first");
    assert_eq!(story.engine.next_deadline(), None);
}

// One receiver may have locked more messages than fit in one commit group.
#[test]
fn a_session_with_very_many_locks_is_freed_in_steps() {
    let mut story = story();
    let count = 2 * FACTS_PER_CALL_MAX + 10;
    story.send_in_session("a", count);
    let lock_all = |story: &mut Story| {
        story.accept_named(1, "a").unwrap();
        story.engine.set_credit(ReceiverId(1), u32::MAX);
        while story.counts().locked_count < count as u64 {
            story.deliver();
        }
        story.forget_effects();
    };
    lock_all(&mut story);
    story.detach(1);
    assert_eq!(story.out.facts.len(), FACTS_PER_CALL_MAX);
    assert!(matches!(story.accept_named(2, "a"), Err(Error::SessionLocked { .. })));
    assert!(story.engine.next_deadline() <= Some(story.now));
    story.wait(secs(0));
    assert_eq!(story.out.facts.len(), 2 * FACTS_PER_CALL_MAX);
    story.wait(secs(0));
    assert_eq!((story.out.facts.len(), story.engine.next_deadline()), (count, None));

    lock_all(&mut story);
    story.wait(secs(30));
    assert_eq!(story.out.facts.len(), FACTS_PER_CALL_MAX);
    story.restart();
    assert_eq!(story.out.facts.len(), FACTS_PER_CALL_MAX);
    story.wait(secs(0));
    assert_eq!((story.counts().locked_count, story.counts().message_count()), (0, count as u64));
    story.restart();
}
