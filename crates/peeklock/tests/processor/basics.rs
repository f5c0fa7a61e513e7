//! Handlers, extractors, outcomes, layers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock::handler::{
    Bytes, Context, Json, Property, PropertyName, State as Shared, Text, TimeoutLayer, TraceLayer,
};
use peeklock::processor::State;
use peeklock::{Message, Outcome, ReceivedMessage, Retry};

use crate::rig::{Errors, Gate, Rig, a_moment, until};

type Log = Arc<Mutex<Vec<String>>>;

#[tokio::test(start_paused = true)]
async fn a_handler_gets_what_its_arguments_extract() {
    struct Region;
    impl PropertyName for Region {
        const NAME: &'static str = "region";
    }
    async fn handle(
        Json(numbers): Json<Vec<u32>>,
        Text(text): Text,
        Bytes(bytes): Bytes,
        message: ReceivedMessage,
        region: Property<Region>,
        Shared(log): Shared<Log>,
        context: Context,
    ) {
        let seen = format!(
            "{numbers:?} {text} {} {:?} {:?} {} {}",
            bytes.len(),
            message.message_id(),
            region.text,
            context.entity(),
            context.attempt()
        );
        log.lock().unwrap().push(seen);
    }
    let rig = Rig::start().await;
    let message = Message::json(&[1, 2]).unwrap().message_id("m1").property("region", "north");
    rig.client.sender("q").await.unwrap().send(message).await.unwrap();
    let log = Log::default();
    let processor = rig.client.processor("q").handler(handle).state(Arc::clone(&log)).start().await.unwrap();
    until(&processor, |status| status.completed == 1).await;
    assert_eq!(
        *log.lock().unwrap(),
        ["[1,2]".replace(',', ", ") + " [1,2] 5 Some(\"m1\") Some(\"north\") q 1"]
    );
    rig.assert_unlocked(0).await;
    processor.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_handler_is_the_outcome() {
    let rig = Rig::start().await;
    rig.send(["complete", "defer", "dead"]).await;
    let handle = |Text(body): Text| async move {
        match body.as_str() {
            "defer" => Outcome::Defer,
            "dead" => Outcome::DeadLetter { reason: "Street".into(), description: "it is empty".into() },
            _ => Outcome::Complete,
        }
    };
    let processor = rig.client.processor("q").handler(handle).start().await.unwrap();
    until(&processor, |status| status.completed == 3).await;
    a_moment().await;
    let counts = rig.counts().await;
    assert_eq!((counts.active_count, counts.deferred_count, counts.dead_letter_count), (0, 1, 1));
    assert_eq!(rig.dead_letters().await[0].dead_letter_reason(), Some("Street"));
    processor.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn layers_of_tower_wrap_the_handler() {
    let rig = Rig::start().await;
    rig.send(["fast", "slow"]).await;
    let handle = |Text(body): Text| async move {
        let time = if body == "slow" { 100 } else { 1 };
        tokio::time::sleep(Duration::from_secs(time)).await;
    };
    let errors = Errors::default();
    let processor = rig
        .client
        .processor("q")
        .handler(handle)
        .layer(TraceLayer)
        .layer(tower::util::MapRequestLayer::new(|job: peeklock::handler::Job| job))
        .layer(TimeoutLayer::new(Duration::from_secs(10)))
        .retry(Retry::immediate(1))
        .on_error(errors.handler())
        .start()
        .await
        .unwrap();
    until(&processor, |status| status.failed == 1).await;
    let status = processor.status().borrow().clone();
    assert_eq!((status.completed, status.failed, status.state), (1, 1, State::Running));
    a_moment().await;
    let dead = rig.dead_letters().await;
    assert_eq!(dead[0].dead_letter_reason(), Some("HandlerTimeout"));
    assert_eq!(errors.seen().len(), 2, "one for each call");
    assert!(errors.seen()[0].error.to_string().contains("within 10s"), "{}", errors.seen()[0].error);
    processor.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn auto_complete_off_needs_a_settlement_by_the_handler() {
    let rig = Rig::start().await;
    rig.send(["settles", "forgets"]).await;
    let handle = |Text(body): Text, context: Context| async move {
        if body == "settles" || context.attempt() > 1 {
            context.complete().await.unwrap();
            assert!(context.complete().await.is_err(), "a message is settled once");
        }
    };
    let errors = Errors::default();
    let builder = rig.client.processor("q").handler(handle).auto_complete(false).on_error(errors.handler());
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.completed == 2).await;
    assert_eq!(processor.status().borrow().failed, 1);
    a_moment().await;
    let [error] = &errors.seen()[..] else { panic!("{:?}", errors.seen()) };
    assert_eq!((error.error.kind(), error.error.code()), (peeklock::Kind::NotSettled, "E-PROC-04"));
    rig.assert_unlocked(0).await;
    processor.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_processor_that_cannot_work_does_not_start() {
    let rig = Rig::start().await;
    let code = |result: Result<_, peeklock::Error>| {
        result.map(|_: peeklock::processor::Processor| ()).unwrap_err().code()
    };
    assert_eq!(code(rig.client.processor("q").start().await), "E-PROC-06");
    let handle = |Shared(_): Shared<Log>| async {};
    assert_eq!(code(rig.client.processor("q").handler(handle).start().await), "E-PROC-02");
    let builder = rig.client.processor("q").handler(|| async {}).max_concurrent(0);
    assert_eq!(code(builder.start().await), "E-PROC-07");
    let missing = rig.client.processor("nowhere").handler(|| async {}).start().await;
    assert_eq!(code(missing), "E-ENT-04");
}

#[tokio::test(start_paused = true)]
async fn a_batch_handler_settles_each_message_by_its_own_outcome() {
    let rig = Rig::start().await;
    let sizes = Arc::<Mutex<Vec<usize>>>::default();
    let log = Arc::clone(&sizes);
    let handler = move |batch: peeklock::processor::Batch| {
        log.lock().unwrap().push(batch.len());
        async move {
            let bad = |message: &ReceivedMessage| message.body_text() == "bad";
            let outcome = |message| if bad(message) { Outcome::Defer } else { Outcome::Complete };
            batch.messages().map(outcome).collect::<Vec<_>>()
        }
    };
    let wait = Duration::from_secs(5);
    let processor = rig.client.processor("q").batch(3, wait, handler).start().await.unwrap();
    rig.send(["1", "2", "bad", "4"]).await;
    until(&processor, |status| status.completed == 4).await;
    assert_eq!(*sizes.lock().unwrap(), [3, 1], "the second batch starts when its message has waited");
    a_moment().await;
    assert_eq!(rig.counts().await.deferred_count, 1);
    processor.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_processor_stops_and_leaves_no_lock() {
    let rig = Rig::start().await;
    rig.send(0..3).await;
    let gate = Gate::new();
    let passing = gate.clone();
    let handle = move |Text(body): Text| {
        let gate = passing.clone();
        async move { gate.pass(body).await }
    };
    let processor = rig.client.processor("q").handler(handle).start().await.unwrap();
    until(&processor, |status| status.running == 1).await;
    let mut status = processor.status();
    drop(processor);
    gate.open(1);
    status.wait_for(|status| status.state == State::Stopped).await.unwrap();
    rig.assert_unlocked(2).await;
    rig.assert_uncounted().await;
}
