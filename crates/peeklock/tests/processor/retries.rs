//! Errors of handlers: the error handler, retries, dead letters, the kill switch.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock::handler::{Context, HandlerError, Json, Text};
use peeklock::processor::{ErrorSource, KillSwitch};
use peeklock::{Delayed, Kind, Message, Outcome, Retry};
use tokio::time::Instant;

use crate::rig::{Errors, Rig, a_moment, until};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
#[error("pool timed out after 5 s")]
pub(crate) struct DbTimeout;

#[tokio::test(start_paused = true)]
async fn the_error_handler_is_told_about_everything_and_decides_nothing() {
    let rig = Rig::start().await;
    rig.client.sender("q").await.unwrap().send(Message::text("1").message_id("m1")).await.unwrap();
    let handle = || async { Err::<(), _>(HandlerError::retry(DbTimeout)) };
    let errors = Errors::default();
    let builder = rig.client.processor("q").name("billing").handler(handle).on_error(errors.handler());
    let processor = builder.retry(Retry::immediate(2)).start().await.unwrap();
    until(&processor, |status| status.failed == 1).await;
    a_moment().await;
    assert_eq!(errors.seen().len(), 3, "one for each call of the handler");
    let error = &errors.seen()[0];
    assert_eq!((error.source, error.error.kind()), (ErrorSource::Handler, Kind::Handler));
    assert_eq!((&*error.entity, &*error.processor), ("q", "billing"));
    assert_eq!((error.message_id.as_deref(), error.attempt), (Some("m1"), Some(1)));
    let text = error.error.to_string();
    assert_eq!(
        text,
        "E-HAND-01 The handler of \"q\" failed on message m1, attempt 1: pool timed out after 5 s. It is called again at once."
    );
    assert_eq!(rig.counts().await.dead_letter_count, 1, "the retry policy has decided");
    processor.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_handler_is_an_error_of_kind_panic() {
    let rig = Rig::start().await;
    rig.send(["bad", "good"]).await;
    let handle = |Text(body): Text| async move { assert_ne!(body, "bad", "the body is wrong") };
    let errors = Errors::default();
    let builder = rig.client.processor("q").handler(handle).retry(Retry::never()).on_error(errors.handler());
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.completed == 1 && status.failed == 1).await;
    a_moment().await;
    assert_eq!(errors.seen()[0].error.kind(), Kind::Panic);
    assert!(errors.seen()[0].error.to_string().contains("the body is wrong"));
    assert_eq!(rig.dead_letters().await[0].dead_letter_reason(), Some("Panic"));
    processor.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_error_handler_is_swallowed() {
    let rig = Rig::start().await;
    rig.send(["bad", "good"]).await;
    let handle = |Text(body): Text| async move {
        if body == "bad" { Err(HandlerError::poison("bad")) } else { Ok(()) }
    };
    let on_error = |_| async { panic!("in the error handler") };
    let processor = rig.client.processor("q").handler(handle).on_error(on_error).start().await.unwrap();
    until(&processor, |status| status.completed == 1 && status.failed == 1).await;
    processor.stop(Duration::ZERO).await.unwrap();
    rig.assert_unlocked(0).await;
}

#[tokio::test(start_paused = true)]
async fn immediate_retries_stay_in_the_process_on_the_same_lock() {
    let rig = Rig::start().await;
    rig.send(["1"]).await;
    let calls = Arc::<Mutex<u32>>::default();
    let counter = Arc::clone(&calls);
    let handle = move |context: Context| {
        let call = {
            let mut calls = counter.lock().unwrap();
            *calls += 1;
            *calls
        };
        async move {
            assert_eq!(context.attempt(), 1, "one delivery");
            if call < 3 { Err(HandlerError::retry(DbTimeout)) } else { Ok(()) }
        }
    };
    let processor = rig.client.processor("q").handler(handle).start().await.unwrap();
    let status = until(&processor, |status| status.completed == 1).await;
    assert_eq!((status.failed, *calls.lock().unwrap()), (0, 3));
    processor.stop(Duration::ZERO).await.unwrap();
}

/// Runs messages that always fail, and returns the times of the attempts.
pub(crate) async fn attempts(rig: &Rig, retry: Retry, error: fn() -> HandlerError) -> Vec<(u32, Duration)> {
    let (log, start) = (Arc::<Mutex<Vec<_>>>::default(), Instant::now());
    let times = Arc::clone(&log);
    let handle = move |context: Context| {
        times.lock().unwrap().push((context.attempt(), start.elapsed()));
        async move { Err::<(), _>(error()) }
    };
    let processor = rig.client.processor("q").handler(handle).retry(retry).start().await.unwrap();
    rig.send(["1"]).await;
    tokio::time::sleep(3 * 3600 * SECOND).await;
    processor.stop(Duration::ZERO).await.unwrap();
    log.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn delayed_retries_count_as_deliveries_and_end_in_the_dead_letter_queue() {
    let rig = Rig::start().await;
    let retry = Retry::never().then(Delayed::exp(5 * SECOND, 600 * SECOND, 9));
    let attempts = attempts(&rig, retry, || HandlerError::retry(DbTimeout)).await;
    let numbers: Vec<_> = attempts.iter().map(|(attempt, _)| *attempt).collect();
    assert_eq!(numbers, (1..=10).collect::<Vec<_>>());
    let last = attempts[9].1.as_secs();
    assert!((1835..1840).contains(&last), "about half an hour: {last} s");
    let dead = &rig.dead_letters().await[0];
    assert_eq!(dead.dead_letter_reason(), Some("MaxAttempts"));
    assert_eq!(dead.dead_letter_description(), Some("pool timed out after 5 s"));
}

#[tokio::test(start_paused = true)]
async fn retry_after_has_its_own_delay() {
    let rig = Rig::start().await;
    let retry = Retry::immediate(2).then(Delayed::fixed(SECOND, 1));
    let attempts = attempts(&rig, retry, || HandlerError::retry_after(100 * SECOND)(DbTimeout)).await;
    assert_eq!(attempts.len(), 2);
    let pause = attempts[1].1 - attempts[0].1;
    assert!((100..102).contains(&pause.as_secs()), "{attempts:?}");
}

#[tokio::test(start_paused = true)]
async fn poison_goes_straight_to_the_dead_letter_queue() {
    let rig = Rig::start().await;
    let attempts = attempts(&rig, Retry::default(), || HandlerError::poison("street is empty")).await;
    assert_eq!(attempts.len(), 1);
    let dead = &rig.dead_letters().await[0];
    assert_eq!(dead.dead_letter_reason(), Some("HandlerPoison"));
    assert_eq!(dead.dead_letter_description(), Some("street is empty"));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_deserialise_is_dead_lettered_at_once() {
    let rig = Rig::start().await;
    rig.send(["no JSON"]).await;
    let handle = |Json(_): Json<Vec<u32>>| async { Outcome::Complete };
    let processor = rig.client.processor("q").handler(handle).start().await.unwrap();
    until(&processor, |status| status.failed == 1).await;
    a_moment().await;
    let dead = &rig.dead_letters().await[0];
    assert_eq!((dead.dead_letter_reason(), dead.delivery_count()), (Some("DeserializeFailed"), 0));
    processor.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn dead_letters_have_diagnostics() {
    let rig = Rig::start().await;
    rig.send(["1", "2"]).await;
    let handle = || async { Err::<(), _>(HandlerError::retry(DbTimeout)) };
    let retry = Retry::never().then(Delayed::fixed(SECOND, 2));
    let builder = rig.client.processor("q").name("billing").handler(handle).retry(retry);
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.failed == 6).await;
    a_moment().await;
    let dead = rig.dead_letters().await;
    let text = |at: usize, name: &str| {
        let value = dead[at].message.property(name);
        value.unwrap_or_else(|| panic!("{name}: {:?}", dead[at])).as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(text(0, "x-dl-error-type"), "DbTimeout");
    assert_eq!(text(0, "x-dl-processor"), "billing");
    assert_eq!(text(0, "x-dl-fingerprint").len(), 16);
    assert_eq!(text(0, "x-dl-fingerprint"), text(1, "x-dl-fingerprint"), "equal failures form a group");
    assert_eq!(dead[0].message.property("x-dl-attempts").and_then(|value| value.as_u64()), Some(3));
    assert!(dead[0].message.property("x-dl-first-failed").and_then(|value| value.as_timestamp()).is_some());
    processor.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_kill_switch_pauses_and_then_tries_one_message() {
    let rig = Rig::start().await;
    rig.send(0..100).await;
    let is_broken = Arc::new(Mutex::new(true));
    let (broken, started) = (Arc::clone(&is_broken), Arc::<Mutex<u32>>::default());
    let counter = Arc::clone(&started);
    let handle = move || {
        *counter.lock().unwrap() += 1;
        let is_broken = *broken.lock().unwrap();
        async move {
            tokio::time::sleep(SECOND).await;
            if is_broken { Err(HandlerError::retry(DbTimeout)) } else { Ok(()) }
        }
    };
    let retry = Retry::never().then(Delayed::fixed(3600 * SECOND, 9));
    let builder = rig.client.processor("q").handler(handle).retry(retry).max_concurrent(5);
    let processor = builder.kill_switch(KillSwitch::default()).start().await.unwrap();
    until(&processor, |status| status.is_tripped).await;
    a_moment().await;
    assert!((10..=15).contains(&*started.lock().unwrap()));
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(rig.counts().await.locked_count, 0, "nothing is held while paused");
    let before = *started.lock().unwrap();
    tokio::time::sleep(50 * SECOND).await;
    assert_eq!(*started.lock().unwrap(), before, "a minute of pause");
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(*started.lock().unwrap(), before + 1, "half-open with one slot, and paused again");
    *is_broken.lock().unwrap() = false;
    tokio::time::sleep(62 * SECOND).await;
    until(&processor, |status| !status.is_tripped && status.completed > 5).await;
    processor.stop(60 * SECOND).await.unwrap();
}
