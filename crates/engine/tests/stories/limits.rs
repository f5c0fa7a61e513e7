//! The limits of a queue: duplicates, sizes, status, purges.

use bytes::Bytes;
use peeklock_engine::{
    Attributes, CloseReason, Closed, Error, Fact, ReceiveMode, ReceiverId, SessionWish, Settlement,
};
use peeklock_types::{QueueSettings, QueueStatus, SequenceNumber, SubQueue, Timestamp};

use crate::story::{DEAD, DEAD_LETTER, DEFER, MAIN, Story, id, secs, seq, settings};

fn with_window() -> Story {
    Story::with(QueueSettings { duplicate_window: Some(secs(60)), ..settings() })
}

#[test]
fn a_message_id_that_was_seen_within_the_window_is_dropped() {
    let mut story = with_window();
    assert_eq!(story.send_with(id("a")), Ok(seq(1)));
    assert_eq!(story.send_with(id("b")), Ok(seq(2)));
    assert_eq!(story.send_with(id("a")), Ok(seq(1)), "a duplicate is accepted, without effect");
    let delivery = story.receive(MAIN).unwrap();
    story.settle(&delivery, Settlement::Complete).unwrap();
    story.restart();
    story.now = story.now + secs(59);
    assert_eq!(story.send_with(id("a")), Ok(seq(1)), "a duplicate is detected even when the message is gone");
    story.now = story.now + secs(1);
    assert_eq!(story.send_with(id("a")), Ok(seq(3)));
    assert_eq!(story.send_with(Attributes::default()), Ok(seq(4)));
    assert_eq!(story.send_with(Attributes::default()), Ok(seq(5)), "without an id there is no duplicate");
    story.restart();
}

#[test]
fn of_equal_ids_in_a_batch_only_the_first_message_is_kept() {
    let mut story = with_window();
    let mut batch = story.batch(3);
    for message in &mut batch[..2] {
        message.attributes = Some(Box::new(id("a")));
    }
    let sent = story.engine.schedule(story.now, story.queue, batch, &mut story.out);
    assert_eq!(sent, Ok(vec![seq(1), seq(1), seq(2)]));
}

// An oversized id does not fit in a record, so a journal with it could not be decoded.
#[test]
fn an_oversized_message_id_is_rejected() {
    let mut story = with_window();
    let long = |len| Attributes { message_id: Some(Bytes::from(vec![1; len])), ..Attributes::default() };
    assert_eq!(story.send_with(long(529)), Err(Error::MessageIdTooLong { size_bytes: 529 }));
    story.send_with(long(528)).unwrap();
    story.restart();
}

#[test]
fn duplicate_detection_and_required_sessions_cannot_be_changed_later() {
    let mut story = with_window();
    assert!(story.update(|settings| settings.duplicate_window = Some(secs(5))).is_ok());
    let changed = story.update(|settings| settings.duplicate_window = None);
    assert!(matches!(changed, Err(Error::Settings(_))));
    let changed = story.update(|settings| settings.requires_session = true);
    assert!(matches!(changed, Err(Error::Settings(_))));
}

#[test]
fn a_full_queue_rejects_messages_until_there_is_room() {
    let mut story = Story::with(QueueSettings { max_size_bytes: Some(250), ..settings() });
    story.send(2);
    let batch = story.batch(1);
    let refused = story.engine.send(story.now, story.queue, batch, &mut story.out);
    assert!(matches!(refused, Err(Error::QueueFull { taken: 200, max: 250, .. })));
    let delivery = story.receive(MAIN).unwrap();
    story.settle(&delivery, DEAD_LETTER).unwrap();
    let batch = story.batch(1);
    assert!(story.engine.send(story.now, story.queue, batch, &mut story.out).is_err(), "dead letters count");
    let dead = story.receive(DEAD).unwrap();
    story.settle(&dead, Settlement::Complete).unwrap();
    story.send(1);
}

#[test]
fn a_queue_at_its_max_count_rejects_messages_until_one_is_removed() {
    let mut story = Story::with(QueueSettings { max_count: Some(3), ..settings() });
    story.send(2);
    let batch = story.batch(2);
    let refused = story.engine.send(story.now, story.queue, batch, &mut story.out);
    assert!(matches!(refused, Err(Error::QueueFull { taken: 2, max: 3, unit: "messages", .. })));
    assert_eq!(story.counts().message_count(), 2, "all or nothing");
    story.send(1);
    let delivery = story.receive(MAIN).unwrap();
    story.settle(&delivery, DEAD_LETTER).unwrap();
    let batch = story.batch(1);
    assert!(story.engine.send(story.now, story.queue, batch, &mut story.out).is_err(), "dead letters count");
    let dead = story.receive(DEAD).unwrap();
    story.settle(&dead, Settlement::Complete).unwrap();
    story.send(1);
}

#[test]
fn a_message_above_the_size_limit_is_rejected() {
    let mut story = Story::with(QueueSettings { max_message_size_bytes: 1000, ..settings() });
    let mut batch = story.batch(2);
    batch[1].size_bytes = 2025;
    let refused = story.engine.send(story.now, story.queue, batch, &mut story.out);
    assert!(matches!(refused, Err(Error::MessageTooLarge { size_bytes: 2025, max: 1000, .. })));
    assert_eq!(story.counts().message_count(), 0, "all or nothing");
    let mut batch = story.batch(1);
    // The stored form may be slightly larger than the sent one.
    batch[0].size_bytes = 2024;
    story.engine.send(story.now, story.queue, batch, &mut story.out).unwrap();
}

#[test]
fn the_status_permits_or_rejects_sends_and_receives() {
    let mut story = Story::with_sent(1);
    let receiver = story.attach(MAIN, 1, ReceiveMode::PeekLock, 1);
    story.update(|settings| settings.status = QueueStatus::SendDisabled).unwrap();
    assert!(matches!(story.send_with(Attributes::default()), Err(Error::Disabled { what: "sending", .. })));
    let delivery = story.deliver().remove(0);
    story.update(|settings| settings.status = QueueStatus::Disabled).unwrap();
    assert_eq!(story.out.closed, [Closed { receiver, reason: CloseReason::Disabled }]);
    let (mode, wish) = (ReceiveMode::PeekLock, SessionWish::None);
    let attached = story.engine.attach_receiver(story.now, story.queue, MAIN, ReceiverId(2), mode, wish);
    assert!(matches!(attached, Err(Error::Disabled { what: "receiving", .. })));
    // A receiver that holds a message may still settle it.
    assert_eq!(story.settle(&delivery, Settlement::Complete), Ok(()));
    story.restart();
    story.update(|settings| settings.status = QueueStatus::Active).unwrap();
    story.send(1);
    assert!(story.receive(MAIN).is_some());
}

#[test]
fn a_purge_deletes_old_unlocked_messages_in_one_fact() {
    let mut story = Story::with_sent(4);
    let later = Attributes { scheduled_for: Some(story.now + secs(99)), ..Attributes::default() };
    story.send_with(later).unwrap();
    story.receive(MAIN).unwrap();
    let second = story.receive(MAIN).unwrap();
    story.settle(&second, DEFER).unwrap();
    story.wait(secs(1));
    story.send(1);
    story.forget_effects();
    let (now, queue) = (story.now, story.queue);
    let mut purge =
        |before, count_max| story.engine.purge(now, queue, MAIN, before, count_max, &mut story.out).unwrap();
    assert_eq!((purge(now, 0), purge(now - secs(1), 9)), (0, 0));
    assert_eq!((purge(now, 1), purge(now, 9)), (1, 2));
    assert!(story.out.facts.iter().all(|fact| matches!(fact, Fact::Purged { .. })));
    assert_eq!((story.out.facts.len(), story.numbers(MAIN)), (2, vec![1, 5, 6]));
    story.restart();
    assert_eq!(story.engine.purge(now, queue, MAIN, Timestamp::MAX, u64::MAX, &mut story.out), Ok(1));
    assert_eq!(story.counts().size_bytes, 200);
}

#[test]
fn messages_in_transit_cannot_be_received_or_deleted() {
    let mut story = Story::new();
    let (now, queue, way) = (story.now, story.queue, SubQueue::Transfer);
    let (mode, wish) = (ReceiveMode::PeekLock, SessionWish::None);
    let attached = story.engine.attach_receiver(now, queue, way, ReceiverId(1), mode, wish);
    assert!(matches!(attached, Err(Error::NoAddress { .. })));
    let purged = story.engine.purge(now, queue, way, Timestamp::MAX, 9, &mut story.out);
    assert!(matches!(purged, Err(Error::NoAddress { .. })));
    let received = story.engine.receive_deferred(now, queue, way, &[seq(1)], mode, None, 1, &mut story.out);
    assert!(matches!(received, Err(Error::NoAddress { .. })));
}

// Each message would have its own copy of the changed properties, and all of them would have to fit in one commit
// group.
#[test]
fn many_settlements_at_once_with_many_properties_are_rejected() {
    let mut story = Story::with_sent(100);
    story.attach(MAIN, 1, ReceiveMode::PeekLock, 100);
    let tokens: Vec<_> = story.deliver().iter().map(|delivery| delivery.token).collect();
    let settlement = Settlement::Defer { patch: Some(Bytes::from(vec![1; 60_000])) };
    let (now, queue) = (story.now, story.queue);
    let mut settle =
        |tokens: &[_]| story.engine.settle_all(now, queue, MAIN, tokens, &settlement, None, &mut story.out);
    assert_eq!(settle(&tokens), Err(Error::TooMuch { size_bytes: 6_000_000 }));
    assert_eq!(settle(&tokens[..50]), Ok(()));
}

#[test]
fn large_messages_are_deferred_and_received_by_number_in_portions() {
    let mut story = Story::with(QueueSettings { max_message_size_bytes: 50_000_000, ..settings() });
    let mut batch = story.batch(9);
    batch.iter_mut().for_each(|message| message.size_bytes = 50_000_000);
    story.engine.send(story.now, story.queue, batch, &mut story.out).unwrap();
    for _ in 0..9 {
        let delivery = story.receive(MAIN).unwrap();
        story.settle(&delivery, DEFER).unwrap();
    }
    let numbers: Vec<_> = (1..10).map(SequenceNumber).collect();
    let mut receive = |numbers: &[_]| {
        let (now, queue, mode) = (story.now, story.queue, ReceiveMode::PeekLock);
        story.engine.receive_deferred(now, queue, MAIN, numbers, mode, None, 7, &mut story.out)
    };
    assert!(
        matches!(receive(&numbers), Err(Error::TooMuch { .. })),
        "the fronts of all messages are loaded at once"
    );
    assert_eq!(receive(&numbers[..8]).unwrap().len(), 8);
}
