//! Numbers, locks, settlements, receivers and bodies.

use bytes::Bytes;
use peeklock_engine::{
    CloseReason, Closed, Drained, EntityId, Error, FACTS_PER_CALL_MAX, Fact, INTERRUPTIONS_MAX, MessageState,
    PATCH_SIZE_BYTES_MAX, PatchPart, ReceiveMode, ReceiverId, SessionWish, Settlement,
};
use peeklock_types::{
    BodyRange, BodyRef, CommitGroupNumber, EntityKind, LockToken, QueueSettings, SequenceNumber, limits,
};

use crate::story::{
    ABANDON, DEAD, DEAD_LETTER, DEFER, MAIN, Story, name, numbers, secs, segment, seq, settings, standalone,
};

#[test]
fn messages_are_numbered_from_one_and_delivered_in_order() {
    let mut story = Story::new();
    story.send(2);
    story.send(1);
    story.attach(MAIN, 1, ReceiveMode::PeekLock, 10);
    let deliveries = story.deliver();
    assert_eq!(numbers(&deliveries), [1, 2, 3]);
    assert_eq!(deliveries[0].message.locked_until, Some(story.now + secs(30)));
    assert_eq!(deliveries[0].message.delivery_count, 0);
    assert_eq!(story.engine.next_deadline(), Some(story.now + secs(30)));
}

#[test]
fn a_batch_may_have_any_number_of_messages_except_zero() {
    let mut story = Story::new();
    let (queue, now) = (story.queue, story.now);
    assert_eq!(story.engine.send(now, queue, [], &mut story.out), Err(Error::Nothing));
    let count = 2 * limits::BATCH_COUNT_MAX + 1;
    story.send(count);
    assert_eq!(story.counts().active_count, count as u64);
}

#[test]
fn a_body_from_an_earlier_group_than_older_messages_is_rejected_and_nothing_is_sent() {
    let mut story = Story::new();
    let early = story.batch(1);
    story.send(1);
    let mut batch = story.batch(1);
    batch.extend(early);
    let sent = story.engine.send(story.now, story.queue, batch, &mut story.out);
    assert!(matches!(sent, Err(Error::BodyOrder { .. })));
    assert_eq!(story.numbers(MAIN), [1]);
}

#[test]
fn a_completed_message_is_gone_and_its_token_invalid() {
    let mut story = Story::with_sent(1);
    let delivery = story.receive(MAIN).unwrap();
    assert_eq!(story.settle(&delivery, Settlement::Complete), Ok(()));
    assert_eq!(story.numbers(MAIN), [0; 0]);
    let error = story.settle(&delivery, Settlement::Complete).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the lock on message 1 in 'orders' is not held under this token: it ran out, or the message was settled; receive it again"
    );
}

#[test]
fn messages_are_completed_together_and_each_has_its_own_result() {
    let mut story = Story::with_sent(3);
    let [first, second, third] = [0; 3].map(|_| story.receive(MAIN).unwrap().token);
    let complete = |story: &mut Story, queue, tokens: &[LockToken]| {
        let (tokens, mut results) = (tokens.iter().copied().enumerate(), Vec::new());
        let (engine, out) = (&mut story.engine, &mut story.out);
        engine.complete_each(story.now, queue, MAIN, tokens, out, |key, result| results.push((key, result)));
        results
    };
    let queue = story.queue;
    let results = complete(&mut story, queue, &[first, third, first]);
    let is_lost = |result: &Result<(), Error>| matches!(result, Err(Error::LockLost { .. }));
    assert!(matches!(&results[..], [(0, Ok(())), (1, Ok(())), (2, last)] if is_lost(last)), "{results:?}");
    assert_eq!(story.numbers(MAIN), [2]);
    let results = complete(&mut story, EntityId(99), &[second, second]);
    let is_missing = |result: &Result<(), Error>| matches!(result, Err(Error::NoSuchEntity { .. }));
    assert!(
        matches!(&results[..], [(0, one), (1, two)] if is_missing(one) && is_missing(two)),
        "{results:?}"
    );
}

#[test]
fn the_token_of_an_earlier_lock_does_not_match_a_later_one() {
    let mut story = Story::with_sent(1);
    let first = story.receive(MAIN).unwrap();
    story.settle(&first, Settlement::Release).unwrap();
    let second = story.receive(MAIN).unwrap();
    assert!(matches!(story.settle(&first, Settlement::Complete), Err(Error::LockLost { .. })));
    assert_eq!(story.settle(&second, Settlement::Complete), Ok(()));
}

#[test]
fn an_expired_lock_is_lost_even_before_the_tick() {
    let mut story = Story::with_sent(1);
    let delivery = story.receive(MAIN).unwrap();
    story.now = story.now + secs(30);
    assert!(matches!(story.settle(&delivery, Settlement::Complete), Err(Error::LockLost { .. })));
    assert!(story.out.is_empty());
}

#[test]
fn an_abandoned_message_returns_to_its_place_and_counts() {
    let mut story = Story::with_sent(3);
    let first = story.receive(MAIN).unwrap();
    story.settle(&first, ABANDON).unwrap();
    story.attach(MAIN, 1, ReceiveMode::PeekLock, 10);
    let deliveries = story.deliver();
    assert_eq!(numbers(&deliveries), [1, 2, 3]);
    assert_eq!(deliveries[0].message.delivery_count, 1);
    assert_eq!(deliveries[1].message.delivery_count, 0);
}

#[test]
fn a_release_does_not_count_and_a_deferral_does() {
    let mut story = Story::with_sent(1);
    for _ in 0..5 {
        let delivery = story.receive(MAIN).unwrap();
        story.settle(&delivery, Settlement::Release).unwrap();
    }
    let delivery = story.receive(MAIN).unwrap();
    assert_eq!(delivery.message.delivery_count, 0);
    let until = delivery.message.locked_until;
    let mut token = delivery.token;
    // These are more deliveries than the queue permits failed ones.
    for count in 1..=5 {
        story.settle_token(MAIN, token, DEFER).unwrap();
        let seen = story.engine.peek(story.queue, MAIN, seq(1), 1).unwrap().remove(0);
        assert_eq!((seen.delivery_count, seen.state), (count, MessageState::Deferred));
        assert_eq!((seen.locked_until, seen.details.unwrap().was_locked_until), (None, until));
        story.restart();
        token = story.receive_deferred(&[1], ReceiveMode::PeekLock).unwrap().remove(0);
    }
    story.settle_token(MAIN, token, ABANDON).unwrap();
    assert_eq!(story.numbers(DEAD), [1]);
}

#[test]
fn a_message_that_fails_too_often_is_dead_lettered_with_the_reason() {
    let mut story = Story::with_sent(2);
    let first = story.receive(MAIN).unwrap();
    story.settle(&first, ABANDON).unwrap();
    story.receive(MAIN).unwrap();
    story.wait(secs(30));
    let third = story.receive(MAIN).unwrap();
    assert_eq!((third.message.sequence_number, third.message.delivery_count), (seq(1), 2));
    story.settle(&third, ABANDON).unwrap();
    assert_eq!((story.numbers(MAIN), story.numbers(DEAD)), (vec![2], vec![1]));

    let dead = story.receive(DEAD).unwrap().message;
    assert_eq!((dead.delivery_count, dead.enqueued_at), (3, first.message.enqueued_at));
    let reason = Some("MaxDeliveryCountExceeded".to_owned());
    let description = Some("Message could not be consumed after 3 delivery attempts.".to_owned());
    assert_eq!(dead.patch.parts, [PatchPart::DeadLetter { reason, description }]);
}

#[test]
fn a_message_can_fail_more_than_65535_times() {
    let max = u32::from(u16::MAX) + 3;
    let mut story = Story::with(QueueSettings { max_delivery_count: max, ..QueueSettings::default() });
    story.send(1);
    for count in 0..max {
        let delivery = story.receive(MAIN).unwrap();
        assert_eq!(delivery.message.delivery_count, count);
        story.settle(&delivery, ABANDON).unwrap();
        if count == max - 2 {
            story.restart();
        }
    }
    assert_eq!((story.numbers(MAIN), story.peek(DEAD)[0].delivery_count), (vec![], max));
}

#[test]
fn dead_letters_can_always_fail_again_and_it_does_not_count() {
    let mut story = Story::with_sent(1);
    let delivery = story.receive(MAIN).unwrap();
    story.settle(&delivery, ABANDON).unwrap();
    let delivery = story.receive(MAIN).unwrap();
    story.settle(&delivery, DEAD_LETTER).unwrap();
    for _ in 0..10 {
        let dead = story.receive(DEAD).unwrap();
        assert_eq!(dead.message.delivery_count, 1);
        story.settle(&dead, ABANDON).unwrap();
    }
    assert_eq!(story.numbers(DEAD), [1]);
}

#[test]
fn a_dead_letter_can_be_completed_and_deferred_but_not_dead_lettered_again() {
    let mut story = Story::with_sent(2);
    let settlement = |reason: &str, description: Option<&str>| Settlement::DeadLetter {
        reason: Some(reason.to_owned()),
        description: description.map(str::to_owned),
        patch: None,
    };
    let delivery = story.receive(MAIN).unwrap();
    story.settle(&delivery, settlement("bad address", Some("no such street"))).unwrap();
    let dead = story.receive(DEAD).unwrap();
    let again = story.settle(&dead, settlement("bad customer", None));
    assert!(matches!(again, Err(Error::DeadLetteredAlready { .. })));
    let (reason, description) = (Some("bad address".to_owned()), Some("no such street".to_owned()));
    assert_eq!(dead.message.patch.parts, [PatchPart::DeadLetter { reason, description }]);
    story.settle(&dead, DEFER).unwrap();
    assert!(story.receive(DEAD).is_none());
    let (now, queue) = (story.now, story.queue);
    let taken = story
        .engine
        .receive_deferred(now, queue, DEAD, &[seq(1)], ReceiveMode::ReceiveAndDelete, None, 9, &mut story.out)
        .unwrap();
    assert_eq!(taken[0].message.locked_until, None);
    assert_eq!(story.numbers(DEAD), [0; 0]);
}

#[test]
fn a_token_is_valid_only_in_the_sub_queue_of_its_message() {
    let mut story = Story::with_sent(1);
    let delivery = story.receive(MAIN).unwrap();
    let elsewhere = story.settle_token(DEAD, delivery.token, Settlement::Complete);
    assert!(matches!(elsewhere, Err(Error::LockLost { .. })));
}

#[test]
fn a_renewed_lock_and_its_deadline_are_extended() {
    let mut story = Story::with_sent(2);
    story.attach(MAIN, 1, ReceiveMode::PeekLock, 2);
    let deliveries = story.deliver();
    story.wait(secs(20));
    let (now, queue) = (story.now, story.queue);
    let renewed = story.engine.renew(now, queue, MAIN, &[deliveries[0].token], &mut story.out);
    assert_eq!(renewed, Ok(vec![now + secs(30)]));
    assert_eq!(story.engine.next_deadline(), Some(now + secs(10)));
    story.wait(secs(10));
    assert_eq!(story.engine.next_deadline(), Some(now + secs(30)));
    // One of the two is lost, so neither is renewed.
    let tokens = [deliveries[0].token, deliveries[1].token];
    let renewed = story.engine.renew(story.now, queue, MAIN, &tokens, &mut story.out);
    assert!(matches!(renewed, Err(Error::LockLost { sequence_number: SequenceNumber(2), .. })));
    assert_eq!(story.engine.next_deadline(), Some(now + secs(30)));
}

#[test]
fn expired_locks_are_released_before_new_deliveries() {
    let mut story = Story::with_sent(2);
    story.receive(MAIN).unwrap();
    story.now = story.now + secs(31);
    let again = story.receive(MAIN).unwrap();
    assert_eq!((again.message.sequence_number, again.message.delivery_count), (seq(1), 1));
}

#[test]
fn a_deferred_message_is_received_only_by_its_number_and_stays_deferred_when_it_fails() {
    let mut story = Story::with(QueueSettings { max_delivery_count: 4, ..settings() });
    story.send(2);
    let delivery = story.receive(MAIN).unwrap();
    story.settle(&delivery, DEFER).unwrap();
    assert_eq!(story.receive(MAIN).unwrap().message.sequence_number, seq(2));
    assert!(story.receive(MAIN).is_none());

    let token = story.receive_deferred(&[1], ReceiveMode::PeekLock).unwrap()[0];
    assert!(matches!(story.receive_deferred(&[1], ReceiveMode::PeekLock), Err(Error::NotFound { .. })));
    story.settle_token(MAIN, token, ABANDON).unwrap();
    assert!(story.receive(MAIN).is_none());
    story.receive_deferred(&[1], ReceiveMode::PeekLock).unwrap();
    story.wait(secs(30));
    // Only message 2, whose lock expired as well, waits again.
    assert_eq!(story.receive(MAIN).unwrap().message.sequence_number, seq(2));
    assert!(story.receive(MAIN).is_none());
    let token = story.receive_deferred(&[1], ReceiveMode::PeekLock).unwrap()[0];
    story.settle_token(MAIN, token, Settlement::Complete).unwrap();
    assert_eq!(story.numbers(MAIN), [2]);
}

#[test]
fn deferred_messages_are_received_all_or_none() {
    let mut story = Story::with_sent(3);
    for _ in 0..2 {
        let delivery = story.receive(MAIN).unwrap();
        story.settle(&delivery, DEFER).unwrap();
    }
    let refused = story.receive_deferred(&[1, 3], ReceiveMode::PeekLock);
    assert!(matches!(refused, Err(Error::NotFound { sequence_number: SequenceNumber(3), .. })));
    let refused = story.receive_deferred(&[1, 2, 1], ReceiveMode::PeekLock);
    assert_eq!(refused, Err(Error::Repeated { sequence_number: seq(1) }));
    assert_eq!(story.receive_deferred(&[2, 1], ReceiveMode::PeekLock).unwrap().len(), 2);
}

#[test]
fn receive_and_delete_leaves_no_message() {
    let mut story = Story::with_sent(2);
    story.attach(MAIN, 1, ReceiveMode::ReceiveAndDelete, 5);
    let deliveries = story.deliver();
    assert_eq!(numbers(&deliveries), [1, 2]);
    assert_eq!(deliveries[0].message.locked_until, None);
    assert!(story.out.facts.iter().all(|fact| matches!(fact, Fact::Completed { .. })));
    assert_eq!(story.counts(), Default::default());
    assert_eq!(story.engine.next_deadline(), None);
}

#[test]
fn receivers_share_evenly_in_the_order_of_their_requests() {
    let mut story = Story::new();
    let second = story.attach(MAIN, 2, ReceiveMode::PeekLock, 3);
    let first = story.attach(MAIN, 1, ReceiveMode::PeekLock, 3);
    story.send(5);
    let who: Vec<_> = story.deliver().iter().map(|delivery| delivery.receiver).collect();
    assert_eq!(who, [second, first, second, first, second]);
    // `first` has had credit since its last message; `second` has none left and gets new credit later.
    story.engine.set_credit(second, 1);
    story.send(2);
    let who: Vec<_> = story.deliver().iter().map(|delivery| delivery.receiver).collect();
    assert_eq!(who, [first, second]);
}

#[test]
fn a_detached_receiver_gets_no_message_and_its_locks_stay() {
    let mut story = Story::with_sent(2);
    let receiver = story.attach(MAIN, 1, ReceiveMode::PeekLock, 1);
    let delivery = story.deliver().remove(0);
    story.engine.set_credit(receiver, 5);
    story.detach(receiver.0);
    assert!(story.deliver().is_empty());
    assert_eq!(story.settle(&delivery, Settlement::Complete), Ok(()));
}

#[test]
fn delivery_stops_after_the_message_that_exceeds_the_window() {
    let mut story = Story::with_sent(5);
    let receiver = ReceiverId(1);
    let (now, mode) = (story.now, ReceiveMode::PeekLock);
    story.engine.attach_receiver(now, story.queue, MAIN, receiver, mode, SessionWish::None).unwrap();
    story.engine.set_credit(receiver, 10);
    assert!(story.deliver().is_empty());
    story.engine.add_window(receiver, 150);
    assert_eq!(numbers(&story.deliver()), [1, 2]);
    story.engine.add_window(receiver, 50);
    assert!(story.deliver().is_empty());
    story.engine.add_window(receiver, 1);
    assert_eq!(numbers(&story.deliver()), [3]);
    assert_eq!(story.engine.credit(receiver), 7);
}

#[test]
fn a_drain_delivers_available_messages_and_returns_the_rest_of_the_credit() {
    let mut story = Story::with_sent(2);
    let receiver = story.attach(MAIN, 1, ReceiveMode::PeekLock, 5);
    story.engine.drain(receiver);
    assert_eq!(story.deliver().len(), 2);
    assert_eq!(story.out.drained, [Drained { receiver, unused_credit: 3 }]);
    story.send(1);
    assert!(story.deliver().is_empty());
    // A drain ends with its receiver: the next one under the same number does not inherit it.
    story.engine.drain(receiver);
    story.detach(receiver.0);
    story.attach(MAIN, receiver.0, ReceiveMode::PeekLock, 5);
    assert_eq!(story.deliver().len(), 1);
    assert_eq!(story.out.drained, []);
}

#[test]
fn one_call_delivers_a_limited_number_of_messages() {
    let mut story = Story::with_sent(4000);
    story.send(4000);
    story.attach(MAIN, 1, ReceiveMode::PeekLock, u32::MAX);
    let mut nonces = || 1;
    assert!(story.engine.deliver(story.now, &mut nonces, &mut story.out));
    assert_eq!(story.out.deliveries.len(), FACTS_PER_CALL_MAX);
    assert!(!story.engine.deliver(story.now, &mut nonces, &mut story.out));
    assert_eq!(story.out.deliveries.len(), 8000);
    // The same limit applies to locks that expire all at once.
    story.out.clear();
    story.wait(secs(30));
    assert_eq!(story.out.facts.len(), FACTS_PER_CALL_MAX);
    assert_eq!(story.engine.next_deadline(), Some(story.now));
    story.wait(secs(0));
    assert_eq!((story.out.facts.len(), story.engine.next_deadline()), (8000, None));
}

#[test]
fn peek_shows_every_state_from_a_number_on() {
    let mut story = Story::with_sent(4);
    let first = story.receive(MAIN).unwrap();
    story.settle(&first, DEFER).unwrap();
    let second = story.receive(MAIN).unwrap();
    let third = story.receive(MAIN).unwrap();
    story.settle(&third, Settlement::Complete).unwrap();
    let seen = story.engine.peek(story.queue, MAIN, seq(1), 10).unwrap();
    assert_eq!(seen.iter().map(|m| m.sequence_number.0).collect::<Vec<_>>(), [1, 2, 4]);
    assert_eq!(seen[0].state, MessageState::Deferred);
    assert_eq!(seen[1].locked_until, second.message.locked_until);
    let seen = story.engine.peek(story.queue, MAIN, seq(2), 1).unwrap();
    assert_eq!(seen[0].sequence_number, seq(2));
}

#[test]
fn patches_accumulate_up_to_a_limit() {
    let mut story = Story::with_sent(1);
    let patch = |len: usize| Some(Bytes::from(vec![1; len]));
    let delivery = story.receive(MAIN).unwrap();
    story.settle(&delivery, Settlement::Abandon { patch: patch(10), delay: None }).unwrap();
    let delivery = story.receive(MAIN).unwrap();
    let huge = story.settle(&delivery, Settlement::Defer { patch: patch(PATCH_SIZE_BYTES_MAX - 40) });
    assert!(matches!(huge, Err(Error::PatchTooLarge { .. })));
    let long = "x".repeat(limits::DEAD_LETTER_TEXT_CHARS_MAX + 1);
    let settlement = Settlement::DeadLetter { reason: Some(long), description: None, patch: None };
    assert!(matches!(story.settle(&delivery, settlement), Err(Error::TextTooLong { .. })));
    let reason = Some("bad".to_owned());
    let settlement = Settlement::DeadLetter { reason: reason.clone(), description: None, patch: patch(20) };
    story.settle(&delivery, settlement).unwrap();
    let dead = story.receive(DEAD).unwrap().message;
    let parts = [
        PatchPart::Properties(patch(10).unwrap()),
        PatchPart::Properties(patch(20).unwrap()),
        PatchPart::DeadLetter { reason, description: None },
    ];
    assert_eq!(dead.patch.parts, parts);
}

#[test]
fn a_deleted_queue_is_gone_with_its_receivers_and_its_number_is_not_reused() {
    let mut story = Story::with_sent(1);
    story.receive(MAIN).unwrap();
    let receiver = story.attach(MAIN, 1, ReceiveMode::PeekLock, 5);
    let (now, queue) = (story.now, story.queue);
    assert!(story.engine.move_body(
        queue,
        seq(1),
        BodyRef::in_group(story.group, 0).unwrap(),
        standalone(1, 0),
        &mut story.out
    ));
    story.out.clear();
    assert_eq!(story.engine.delete_queue(now, &name("ORDERS"), &mut story.out), Ok(queue));
    assert_eq!(story.out.closed, [Closed { receiver, reason: CloseReason::Deleted }]);
    assert_eq!(story.out.freed.iter().map(|freed| freed.place).collect::<Vec<_>>(), [standalone(1, 0)]);
    assert_eq!((story.engine.find(&name("orders")), story.engine.next_deadline()), (None, None));
    let again = story.engine.create_queue(now, name("orders"), QueueSettings::default(), &mut story.out);
    assert_eq!(again, Ok(EntityId(queue.0 + 1)));
    let sent = story.engine.send(now, queue, [], &mut story.out);
    assert_eq!(sent, Err(Error::NoSuchEntity { entity: queue }));
}

#[test]
fn a_queue_is_created_once_and_only_with_valid_settings() {
    let mut story = Story::new();
    let (now, queue) = (story.now, story.queue);
    let again = story.engine.create_queue(now, name("Orders"), QueueSettings::default(), &mut story.out);
    assert_eq!(
        again,
        Err(Error::AlreadyExists { name: name("orders"), kind: EntityKind::Queue, entity: queue })
    );
    let settings = QueueSettings { max_delivery_count: 0, ..QueueSettings::default() };
    let refused = story.engine.create_queue(now, name("bills"), settings, &mut story.out);
    assert!(matches!(refused, Err(Error::Settings(_))));
}

#[test]
fn a_moved_body_frees_the_log_and_a_settled_one_its_cold_segment() {
    let mut story = Story::with_sent(1);
    story.send(1);
    assert_eq!(story.engine.oldest_log_body(), Some(CommitGroupNumber(1)));
    let found = story.engine.bodies_in(BodyRange::groups_upto(CommitGroupNumber(1)), 10);
    assert_eq!((found.len(), found[0].sequence_number), (1, seq(1)));
    let (queue, from) = (story.queue, found[0].place);
    assert!(story.engine.move_body(queue, seq(1), from, standalone(4, 0), &mut story.out));
    assert!(
        !story.engine.move_body(queue, seq(1), from, standalone(4, 1), &mut story.out),
        "the body is at another place by now"
    );
    assert_eq!(story.engine.oldest_log_body(), Some(CommitGroupNumber(2)));
    assert!(story.out.freed.is_empty());
    let delivery = story.receive(MAIN).unwrap();
    assert_eq!(delivery.message.body, standalone(4, 0));
    story.settle(&delivery, Settlement::Complete).unwrap();
    assert_eq!((story.out.freed[0].place, story.out.freed[0].size_bytes), (standalone(4, 0), 100));
}

#[test]
fn a_dead_letter_keeps_its_group_even_when_younger_bodies_have_moved() {
    let mut story = Story::with_sent(1);
    story.send(1);
    let delivery = story.receive(MAIN).unwrap();
    let young = story.engine.peek(story.queue, MAIN, seq(2), 1).unwrap()[0].body;
    assert!(story.engine.move_body(story.queue, seq(2), young, standalone(1, 0), &mut story.out));
    assert_eq!(story.engine.oldest_log_body(), Some(CommitGroupNumber(1)));
    story.settle(&delivery, DEAD_LETTER).unwrap();
    assert_eq!(story.engine.oldest_log_body(), Some(CommitGroupNumber(1)));
}

#[test]
fn one_pass_over_a_cold_segment_finds_each_body_once() {
    let mut story = Story::with_sent(20);
    for _ in 0..5 {
        let delivery = story.receive(MAIN).unwrap();
        story.settle(&delivery, DEAD_LETTER).unwrap();
    }
    let upto = story.group;
    for (body, n) in story.engine.bodies_in(BodyRange::groups_upto(upto), 100).into_iter().zip(0..) {
        let to = standalone(if n % 2 == 0 { 1 } else { 2 }, n);
        assert!(story.engine.move_body(body.entity, body.sequence_number, body.place, to, &mut story.out));
    }
    let what = segment(1);
    let mut found = Vec::new();
    for _ in 0..4 {
        found.extend(story.engine.bodies_in(what, 3).into_iter().map(|body| body.sequence_number));
    }
    assert_eq!(found.len(), 10);
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 10);
    // None of them was moved, so the next pass finds all of them again.
    assert_eq!(story.engine.bodies_in(what, 100).len(), 10);
    assert!(story.engine.bodies_in(segment(3), 100).is_empty());
}

#[test]
fn an_interruption_counts_after_twenty_and_a_release_never() {
    let mut story = Story::with_sent(1);
    let interrupt = |story: &mut Story| {
        let delivery = story.receive(MAIN).unwrap();
        story.settle(&delivery, Settlement::Interrupt).unwrap();
        story.peek(MAIN).first().map(|message| message.delivery_count)
    };
    for _ in 0..INTERRUPTIONS_MAX {
        assert_eq!(interrupt(&mut story), Some(0));
        // A message that was prefetched and handed back was not worked on.
        let delivery = story.receive(MAIN).unwrap();
        story.settle(&delivery, Settlement::Release).unwrap();
    }
    assert_eq!([interrupt(&mut story), interrupt(&mut story)], [Some(1), Some(2)]);
    let delivery = story.receive(MAIN).unwrap();
    story.settle(&delivery, Settlement::Release).unwrap();
    assert_eq!(story.peek(MAIN)[0].delivery_count, 2);
    assert_eq!(interrupt(&mut story), None, "the third failure is the last one");
    assert_eq!(story.peek(DEAD)[0].delivery_count, 3);
}

#[test]
fn a_restart_forgets_interruptions_and_keeps_what_was_counted() {
    let mut story = Story::with_sent(1);
    for count in 0..=u32::from(INTERRUPTIONS_MAX) {
        let delivery = story.receive(MAIN).unwrap();
        story.settle(&delivery, Settlement::Interrupt).unwrap();
        assert_eq!(story.peek(MAIN)[0].delivery_count, u32::from(count == u32::from(INTERRUPTIONS_MAX)));
    }
    story.restart();
    let delivery = story.receive(MAIN).unwrap();
    story.settle(&delivery, Settlement::Interrupt).unwrap();
    assert_eq!(story.peek(MAIN)[0].delivery_count, 1);
}
