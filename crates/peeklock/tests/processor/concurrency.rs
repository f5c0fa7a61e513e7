//! Changes of the number of concurrent calls, and many processors in one process.

use std::time::Duration;

use peeklock::handler::{Context, Text};
use peeklock::processor::Processor;

use crate::rig::{Gate, LOCK, Rig, a_moment, until};

async fn gated(rig: &Rig, gate: &Gate, max: u32, prefetch: u32) -> Processor {
    let gate = gate.clone();
    let handle = move |Text(body): Text| {
        let gate = gate.clone();
        async move { gate.pass(body).await }
    };
    let builder = rig.client.processor("q").handler(handle).max_concurrent(max).prefetch(prefetch);
    builder.start().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn growing_is_immediate() {
    let rig = Rig::start().await;
    rig.send(0..10).await;
    let gate = Gate::new();
    let processor = gated(&rig, &gate, 1, 0).await;
    until(&processor, |status| status.running == 1).await;
    processor.set_max_concurrent(4).await.unwrap();
    until(&processor, |status| status.running == 4).await;
    gate.open(100);
    processor.stop(LOCK).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn shrinking_is_by_attrition_and_never_cancels() {
    let rig = Rig::start().await;
    rig.send(0..20).await;
    let gate = Gate::new();
    let processor = gated(&rig, &gate, 6, 4).await;
    until(&processor, |status| status.held == 10).await;
    processor.set_max_concurrent(2).await.unwrap();
    a_moment().await;
    assert_eq!(rig.counts().await.locked_count, 6, "running messages stay, the others went back");
    gate.open(4);
    until(&processor, |status| status.completed == 4).await;
    a_moment().await;
    assert_eq!(gate.started().len(), 6, "four have ended and none was started in their place");
    gate.open(1);
    until(&processor, |status| status.completed == 5).await;
    a_moment().await;
    assert_eq!(gate.started().len(), 7);
    let report = tokio::join!(processor.stop(LOCK), async { gate.open(100) }).0.unwrap();
    assert_eq!((report.completed, report.cancelled), (7, 0));
    rig.assert_unlocked(13).await;
    rig.assert_uncounted().await;
}

#[tokio::test(start_paused = true)]
async fn shrinking_takes_back_credit_that_was_granted() {
    let rig = Rig::start().await;
    let gate = Gate::new();
    let processor = gated(&rig, &gate, 8, 0).await;
    a_moment().await;
    processor.set_max_concurrent(1).await.unwrap();
    a_moment().await;
    rig.send(0..5).await;
    a_moment().await;
    assert_eq!((rig.counts().await.locked_count, gate.started().len()), (1, 1));
    gate.open(100);
    processor.stop(LOCK).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn set_max_concurrent_now_cancels_the_newest() {
    let rig = Rig::start().await;
    rig.send(0..3).await;
    let gate = Gate::new();
    let passing = gate.clone();
    let handle = move |Text(body): Text, context: Context| {
        let gate = passing.clone();
        async move {
            tokio::select! {
                () = gate.pass(body) => Ok(()),
                () = context.cancelled() => Err(std::io::Error::other("cancelled")),
            }
        }
    };
    let processor = rig.client.processor("q").handler(handle).max_concurrent(3).start().await.unwrap();
    until(&processor, |status| status.running == 3).await;
    processor.set_max_concurrent_now(1).await.unwrap();
    until(&processor, |status| status.running == 1).await;
    a_moment().await;
    let counts = rig.counts().await;
    assert_eq!((counts.locked_count, counts.active_count), (1, 3));
    assert_eq!(processor.status().borrow().failed, 0, "a cancelled handler has not failed");
    rig.assert_uncounted().await;
    gate.open(1);
    until(&processor, |status| status.completed == 1).await;
    processor.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_client_carries_a_thousand_idle_processors_without_timers() {
    let rig = Rig::start().await;
    let mut processors = Vec::new();
    for _ in 0..1000 {
        processors.push(rig.client.processor("q").handler(|| async {}).start().await.unwrap());
    }
    a_moment().await;
    let mut statuses: Vec<_> = processors.iter().map(Processor::status).collect();
    statuses.iter_mut().for_each(|status| drop(status.borrow_and_update()));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(statuses.iter().all(|status| !status.has_changed().unwrap()));
    rig.send(0..1).await;
    a_moment().await;
    assert_eq!(processors.iter().map(|processor| processor.status().borrow().completed).sum::<u64>(), 1);
}
