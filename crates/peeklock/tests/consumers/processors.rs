//! Processors: concurrency, settlement, pause and stop, retries, dead letters, renewal, batches.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock::admin::Queue;
use peeklock::handler::{Context, HandlerError, Json, Text};
use peeklock::processor::{Batch, ErrorContext, ErrorSource, Processor, State};
use peeklock::{Delayed, Kind, Outcome, ReceivedMessage, Retry};
use tokio::sync::Semaphore;

use crate::world::{SHORT_LOCK, World, take, take_many, text, until};

const LONG: Duration = Duration::from_secs(30);

on_every_transport!(
    a_processor_completes_everything_side_by_side,
    without_auto_complete_the_handler_settles,
    a_pause_holds_only_what_runs_and_a_resume_goes_on,
    a_stop_cancels_at_its_deadline_and_leaves_no_lock,
    failed_messages_are_retried_and_then_dead_lettered_with_details,
    bad_messages_are_dead_lettered_at_once,
    a_lock_is_renewed_for_as_long_as_its_handler_runs,
    a_batch_is_settled_message_by_message,
    pools_of_two_clients_share_a_queue,
);

type Errors = Arc<Mutex<Vec<ErrorContext>>>;

fn noting(errors: &Errors) -> impl Fn(ErrorContext) -> std::future::Ready<()> + Send + Sync + 'static {
    let errors = Arc::clone(errors);
    move |error| {
        errors.lock().unwrap().push(error);
        std::future::ready(())
    }
}

fn numbers(count: u32) -> Vec<String> {
    (0..count).map(|number| number.to_string()).collect()
}

async fn queue_of(world: &World, count: u32) {
    let texts = numbers(count);
    world.queue_with("orders", Queue::new(), &texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

async fn stop(processor: &Processor) {
    let report = processor.stop(LONG).await.unwrap();
    assert_eq!((report.cancelled, report.stuck), (0, 0), "{report}");
    assert_eq!(processor.status().borrow().state, State::Stopped);
}

async fn a_processor_completes_everything_side_by_side(world: World) {
    queue_of(&world, 30).await;
    let (running, most) = (Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
    let (now, highest) = (Arc::clone(&running), Arc::clone(&most));
    let handle = move || {
        let now = Arc::clone(&now);
        highest.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        async move {
            tokio::task::yield_now().await;
            now.fetch_sub(1, Ordering::SeqCst);
        }
    };
    let builder = world.client.processor("orders").handler(handle).max_concurrent(4);
    let processor = builder.start().await.unwrap();
    let status = until(&processor, |status| status.completed == 30).await;
    assert_eq!(status.failed, 0);
    assert!((1..=4).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    stop(&processor).await;
    world.assert_empty("orders").await;
}

async fn without_auto_complete_the_handler_settles(world: World) {
    world.queue_with("orders", Queue::new(), &["complete", "forget"]).await;
    let handle = |Text(body): Text, context: Context| async move {
        if body == "complete" || context.attempt() == 2 {
            context.complete().await?;
        }
        Ok::<_, HandlerError>(())
    };
    let errors = Errors::default();
    let builder = world.client.processor("orders").handler(handle).auto_complete(false);
    let processor = builder.on_error(noting(&errors)).start().await.unwrap();
    until(&processor, |status| (status.completed, status.failed) == (2, 1)).await;
    stop(&processor).await;
    world.assert_empty("orders").await;
    let errors = errors.lock().unwrap();
    assert_eq!((errors.len(), errors[0].error.code()), (1, "E-PROC-04"));
}

/// A handler that runs until the test lets it end.
fn gated() -> (Arc<Semaphore>, impl peeklock::handler::Handler<()>) {
    let gate = Arc::new(Semaphore::new(0));
    let passing = Arc::clone(&gate);
    let handle = move || {
        let passing = Arc::clone(&passing);
        async move { passing.acquire().await.unwrap().forget() }
    };
    (gate, handle)
}

async fn a_pause_holds_only_what_runs_and_a_resume_goes_on(world: World) {
    queue_of(&world, 10).await;
    let (gate, handle) = gated();
    let builder = world.client.processor("orders").handler(handle).max_concurrent(2).prefetch(4);
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.running == 2).await;
    processor.pause().await.unwrap();
    assert_eq!(processor.status().borrow().state, State::Paused);
    let counts = world.counts("orders").await;
    assert_eq!((counts.locked_count, counts.message_count), (2, 10), "the prefetched ones went back");
    gate.add_permits(2);
    processor.pause_and_drain().await.unwrap();
    let counts = world.counts("orders").await;
    assert_eq!((counts.locked_count, counts.message_count), (0, 8));
    gate.add_permits(8);
    processor.resume().await.unwrap();
    let status = until(&processor, |status| status.completed == 10).await;
    assert_eq!((status.state, status.failed), (State::Running, 0));
    stop(&processor).await;
    world.assert_empty("orders").await;
}

async fn a_stop_cancels_at_its_deadline_and_leaves_no_lock(world: World) {
    queue_of(&world, 5).await;
    let handle = |Text(body): Text, context: Context| async move {
        context.cancelled().await;
        if body == "0" {
            // It ignores the cancellation.
            std::future::pending::<()>().await;
        }
        Err::<(), _>(HandlerError::retry("cancelled"))
    };
    let builder = world.client.processor("orders").handler(handle).max_concurrent(2).prefetch(2);
    let processor = builder.cancel_grace(Duration::from_millis(50)).start().await.unwrap();
    until(&processor, |status| status.running == 2).await;
    let report = processor.stop(Duration::ZERO).await.unwrap();
    assert_eq!((report.cancelled, report.stuck), (1, 0), "{report}");
    let counts = world.counts("orders").await;
    assert_eq!((counts.locked_count, counts.message_count), (0, 5));
    for delivery in take_many(&mut world.receiver("orders").await, 5).await {
        assert_eq!(delivery.message().delivery_count(), 0, "a stop is not a failure of {}", text(&delivery));
        delivery.complete().await.unwrap();
    }
    let ended = processor.pause().await.unwrap_err();
    assert_eq!((ended.kind(), ended.code()), (Kind::Closed, "E-PROC-01"));
}

async fn failed_messages_are_retried_and_then_dead_lettered_with_details(world: World) {
    #[derive(Debug, thiserror::Error)]
    #[error("pool timed out after 5 s")]
    struct DbTimeout;

    world.queue_with("orders", Queue::new(), &["heals", "fails"]).await;
    let calls = Arc::<Mutex<Vec<(String, u32)>>>::default();
    let log = Arc::clone(&calls);
    let handle = move |Text(body): Text, context: Context| {
        let calls = {
            let mut calls = log.lock().unwrap();
            calls.push((body.clone(), context.attempt()));
            calls.iter().filter(|(other, _)| *other == body).count()
        };
        async move { if body == "heals" && calls == 4 { Ok(()) } else { Err(HandlerError::retry(DbTimeout)) } }
    };
    let errors = Errors::default();
    let retry = Retry::immediate(1).then(Delayed::fixed(Duration::from_millis(20), 2));
    let builder = world.client.processor("orders").name("billing").handler(handle).retry(retry);
    let processor = builder.on_error(noting(&errors)).start().await.unwrap();
    let status = until(&processor, |status| status.completed == 1 && status.failed == 4).await;
    assert_eq!(status.last_error.unwrap().code(), "E-HAND-01");
    stop(&processor).await;
    let of = |name: &str| -> Vec<u32> {
        calls.lock().unwrap().iter().filter(|(body, _)| body == name).map(|(_, attempt)| *attempt).collect()
    };
    assert_eq!(of("heals"), [1, 1, 2, 2], "each delivery has one immediate retry");
    assert_eq!(of("fails"), [1, 1, 2, 2, 3, 3]);
    let dead = take(&mut world.dead_letters("orders").await).await;
    let message = dead.message();
    assert_eq!((text(&dead).as_str(), message.dead_letter_reason()), ("fails", Some("MaxAttempts")));
    assert_eq!(message.dead_letter_description(), Some("pool timed out after 5 s"));
    let property = |name: &str| message.message.property(name).unwrap();
    assert_eq!(property("x-dl-error-type").as_str(), Some("DbTimeout"));
    assert_eq!(property("x-dl-processor").as_str(), Some("billing"));
    assert_eq!(property("x-dl-attempts").as_u64(), Some(3));
    dead.complete().await.unwrap();
    world.assert_empty("orders").await;
    let errors = errors.lock().unwrap();
    assert_eq!(errors.len(), 9, "one for each call that failed");
    assert!(errors.iter().all(|error| error.source == ErrorSource::Handler), "{errors:?}");
}

async fn bad_messages_are_dead_lettered_at_once(world: World) {
    world.queue_with("orders", Queue::new(), &["\"poison\"", "\"panic\"", "no JSON", "\"good\""]).await;
    let handle = |Json(body): Json<String>| async move {
        assert_ne!(body, "panic", "the handler panics");
        if body == "poison" { Err(HandlerError::poison("street is empty")) } else { Ok(()) }
    };
    let builder = world.client.processor("orders").handler(handle).retry(Retry::never());
    let processor = builder.start().await.unwrap();
    until(&processor, |status| (status.completed, status.failed) == (1, 3)).await;
    stop(&processor).await;
    let mut reasons: Vec<_> = Vec::new();
    for delivery in take_many(&mut world.dead_letters("orders").await, 3).await {
        let reason = delivery.message().dead_letter_reason().unwrap_or_default().to_owned();
        reasons.push((reason, text(&delivery)));
        delivery.complete().await.unwrap();
    }
    reasons.sort_unstable();
    let expected =
        [("DeserializeFailed", "no JSON"), ("HandlerPoison", "\"poison\""), ("Panic", "\"panic\"")];
    assert_eq!(reasons, expected.map(|(reason, text)| (reason.to_owned(), text.to_owned())));
    world.assert_empty("orders").await;
}

async fn a_lock_is_renewed_for_as_long_as_its_handler_runs(world: World) {
    world.queue_with("orders", Queue::new().lock_duration(SHORT_LOCK), &["handled"]).await;
    let (gate, handle) = gated();
    let processor = world.client.processor("orders").handler(handle).start().await.unwrap();
    until(&processor, |status| status.running == 1).await;
    // The lock of this message is younger and nobody renews it. When it has ended, the other one would have ended as well.
    world.send("orders", &["lost"]).await;
    let lost = take(&mut world.receiver("orders").await).await;
    let again = take(&mut world.receiver("orders").await).await;
    assert_eq!((text(&again).as_str(), again.message().delivery_count()), ("lost", 1));
    again.complete().await.unwrap();
    assert!(lost.complete().await.is_err());
    gate.add_permits(1);
    let status = until(&processor, |status| status.completed + status.failed == 1).await;
    assert_eq!((status.completed, status.last_error.map(|error| error.to_string())), (1, None));
    stop(&processor).await;
    world.assert_empty("orders").await;
}

async fn a_batch_is_settled_message_by_message(world: World) {
    world.queue_with("orders", Queue::new(), &["a", "bad", "c"]).await;
    let handle = |batch: Batch| async move {
        let outcome = |message: &ReceivedMessage| match message.body_text().as_ref() {
            "bad" => Outcome::Defer,
            _ => Outcome::Complete,
        };
        batch.messages().map(outcome).collect::<Vec<_>>()
    };
    let builder = world.client.processor("orders").batch(2, Duration::from_millis(100), handle);
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.completed == 3).await;
    stop(&processor).await;
    let counts = world.counts("orders").await;
    assert_eq!((counts.message_count, counts.deferred_count, counts.locked_count), (1, 1, 0));
}

async fn pools_of_two_clients_share_a_queue(world: World) {
    queue_of(&world, 40).await;
    let other = world.other_client().await;
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let mut pools = Vec::new();
    for client in [&world.client, &other] {
        let log = Arc::clone(&seen);
        let handle = move |Text(body): Text| {
            log.lock().unwrap().push(body);
            tokio::task::yield_now()
        };
        pools.push(client.processor("orders").handler(handle).max_concurrent(3).start().await.unwrap());
    }
    let completed = || pools.iter().map(|pool| pool.status().borrow().completed).sum::<u64>();
    let (mut first, mut second) = (pools[0].status(), pools[1].status());
    while completed() < 40 {
        tokio::select! {
            changed = first.changed() => changed.unwrap(),
            changed = second.changed() => changed.unwrap(),
        }
    }
    for pool in &pools {
        stop(pool).await;
    }
    let mut seen = seen.lock().unwrap().clone();
    seen.sort_unstable();
    let mut expected = numbers(40);
    expected.sort_unstable();
    assert_eq!(seen, expected, "each message once");
    world.assert_empty("orders").await;
}
