//! Delayed retries with a broker that cannot delay: scheduled copies, or waits while a session is held.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock::handler::{Context, HandlerError, Text};
use peeklock::{Delayed, Message, Retry};
use peeklock_types::QueueSettings;
use tokio::time::Instant;

use crate::retries::{DbTimeout, attempts};
use crate::rig::{LOCK, Rig, a_moment, settings, until};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn copies_continue_the_count_and_end_in_the_dead_letter_queue() {
    for duplicate_window in [None, Some(86_400 * SECOND)] {
        let rig = Rig::elsewhere(QueueSettings { duplicate_window, ..settings() }).await;
        let retry = Retry::never().then(Delayed::exp(5 * SECOND, 600 * SECOND, 9));
        let attempts = attempts(&rig, retry, || HandlerError::retry(DbTimeout)).await;
        let numbers: Vec<_> = attempts.iter().map(|(attempt, _)| *attempt).collect();
        assert_eq!(numbers, (1..=10).collect::<Vec<_>>(), "{duplicate_window:?}");
        let last = attempts[9].1.as_secs();
        assert!((1835..1840).contains(&last), "about half an hour: {last} s");
        let dead = rig.dead_letters().await;
        assert_eq!((dead.len(), rig.waiting().await.len()), (1, 0));
        assert_eq!(dead[0].dead_letter_reason(), Some("MaxAttempts"));
        assert_eq!(dead[0].message.property("x-dl-attempts").and_then(|value| value.as_u64()), Some(10));
        assert!(dead[0].message.property("x-dl-first-failed").is_some(), "it travels with the copies");
        assert_eq!(dead[0].delivery_count(), 0, "the broker counts a copy anew");
        let original = dead[0].original_message_id().unwrap();
        assert!(dead[0].message_id().unwrap().starts_with(&format!("{original}~9-")), "{dead:?}");
        assert!(dead[0].message.property("peeklock-retry-after-ms").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_scheduled_and_the_original_is_gone() {
    let rig = Rig::elsewhere(settings()).await;
    let sender = rig.client.sender("q").await.unwrap();
    let message = Message::text("1").message_id("m1").time_to_live(600 * SECOND).property("step", 1);
    sender.send(message).await.unwrap();
    let mut receiver = rig.client.receiver("q").open().await.unwrap();
    let delivery = receiver.next().await.unwrap().unwrap();
    delivery.abandon_after(100 * SECOND).await.unwrap();
    let counts = rig.counts().await;
    assert_eq!((counts.active_count, counts.locked_count, counts.scheduled_count), (0, 0, 1));
    let sent = Instant::now();
    let copy = receiver.next().await.unwrap().unwrap();
    assert!((99..101).contains(&sent.elapsed().as_secs()), "{:?}", sent.elapsed());
    assert_eq!(copy.message().original_message_id().as_deref(), Some("m1"));
    assert_eq!((copy.message().attempt(), copy.message().delivery_count()), (2, 0));
    let ttl = copy.message().message.header.unwrap().ttl.unwrap();
    assert!((499_000..501_000).contains(&ttl), "it expires when the original would have: {ttl}");
    copy.complete().await.unwrap();
    rig.assert_unlocked(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_in_a_session_keeps_the_order() {
    let rig = Rig::elsewhere(QueueSettings { requires_session: true, ..settings() }).await;
    let sender = rig.client.sender("q").await.unwrap();
    for body in ["1", "2"] {
        sender.send(Message::text(body).session_id("a".to_owned())).await.unwrap();
    }
    let (log, start) = (Arc::<Mutex<Vec<_>>>::default(), Instant::now());
    let lines = Arc::clone(&log);
    let handle = move |Text(body): Text, context: Context| {
        let attempt = context.attempt();
        let fails = body == "1" && attempt < 3;
        lines.lock().unwrap().push((body, attempt, start.elapsed().as_secs() / 15));
        async move { if fails { Err(HandlerError::retry(DbTimeout)) } else { Ok(()) } }
    };
    let retry = Retry::never().then(Delayed::fixed(15 * SECOND, 5));
    let builder = rig.client.session_processor("q").handler(handle).retry(retry);
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.completed == 2).await;
    let text = |body: &str, attempt, delays| (body.to_owned(), attempt, delays);
    let expected = [text("1", 1, 0), text("1", 2, 1), text("1", 3, 2), text("2", 1, 2)];
    assert_eq!(*log.lock().unwrap(), expected, "(body, attempt, number of delays before it)");
    processor.stop(LOCK).await.unwrap();
    rig.assert_unlocked(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_wait_of_a_retry_in_a_session() {
    let rig = Rig::elsewhere(QueueSettings { requires_session: true, ..settings() }).await;
    let sender = rig.client.sender("q").await.unwrap();
    sender.send(Message::text("1").session_id("a".to_owned())).await.unwrap();
    let handle = || async { Err::<(), _>(HandlerError::retry(DbTimeout)) };
    let retry = Retry::never().then(Delayed::fixed(3600 * SECOND, 5));
    let builder = rig.client.session_processor("q").handler(handle).retry(retry);
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.running == 1).await;
    a_moment().await;
    processor.stop(SECOND).await.unwrap();
    rig.assert_unlocked(1).await;
    assert_eq!(rig.waiting().await[0].delivery_count(), 1, "the attempt has failed");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_copied_is_abandoned_at_once() {
    let rig = Rig::elsewhere(settings()).await;
    // The copy has more properties than the original, and exceeds the limit.
    let sender = rig.client.sender("q").await.unwrap();
    sender.send(Message::new(vec![7; (1 << 20) - 60]).message_id("m1")).await.unwrap();
    let mut receiver = rig.client.receiver("q").open().await.unwrap();
    let delivery = receiver.next().await.unwrap().unwrap();
    let start = Instant::now();
    delivery.abandon_after(1000 * SECOND).await.unwrap();
    let delivery = receiver.next().await.unwrap().unwrap();
    assert!(start.elapsed() < SECOND, "{:?}", start.elapsed());
    assert_eq!((delivery.message().message_id().as_deref(), delivery.message().attempt()), (Some("m1"), 2));
    delivery.dead_letter("Bad", "it is dead").await.unwrap();
    // Nobody can send to a dead-letter queue.
    let mut dead = rig.client.receiver("q/$DeadLetterQueue").open().await.unwrap();
    dead.next().await.unwrap().unwrap().abandon_after(1000 * SECOND).await.unwrap();
    let delivery = dead.next().await.unwrap().unwrap();
    assert!(delivery.message().message.property("peeklock-retry-after-ms").is_none());
    delivery.complete().await.unwrap();
    rig.assert_unlocked(0).await;
    assert_eq!(rig.dead_letters().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn our_broker_delays_by_itself() {
    let rig = Rig::with(settings()).await;
    rig.client.sender("q").await.unwrap().send(Message::text("1").message_id("m1")).await.unwrap();
    let mut receiver = rig.client.receiver("q").open().await.unwrap();
    receiver.next().await.unwrap().unwrap().abandon_after(100 * SECOND).await.unwrap();
    let delivery = receiver.next().await.unwrap().unwrap();
    let message = delivery.message();
    assert_eq!(
        (message.message_id().as_deref(), message.delivery_count(), message.attempt()),
        (Some("m1"), 1, 2)
    );
    delivery.complete().await.unwrap();
}
