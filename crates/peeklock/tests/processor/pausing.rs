//! Pause, resume, and their states.

use std::time::Duration;

use peeklock::handler::Text;
use peeklock::processor::{Processor, State};

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
async fn states_change_with_each_command() {
    let rig = Rig::start().await;
    let gate = Gate::new();
    let processor = gated(&rig, &gate, 1, 0).await;
    let state = |processor: &Processor| processor.status().borrow().state;
    until(&processor, |status| status.state == State::Running).await;
    processor.pause().await.unwrap();
    assert_eq!(state(&processor), State::Paused);
    processor.resume().await.unwrap();
    until(&processor, |status| status.state == State::Running).await;
    rig.send(["1"]).await;
    until(&processor, |status| status.running == 1).await;
    let stopping = tokio::spawn({
        let processor = processor.clone();
        async move { processor.stop(LOCK).await }
    });
    until(&processor, |status| status.state == State::Draining).await;
    gate.open(1);
    assert_eq!(stopping.await.unwrap().unwrap().completed, 1);
    assert_eq!(state(&processor), State::Stopped);
    assert_eq!(processor.pause().await.unwrap_err().code(), "E-PROC-01");
}

#[tokio::test(start_paused = true)]
async fn credit_equals_free_slots() {
    let rig = Rig::start().await;
    rig.send(0..10).await;
    let gate = Gate::new();
    let processor = gated(&rig, &gate, 3, 0).await;
    until(&processor, |status| status.running == 3).await;
    a_moment().await;
    assert_eq!(rig.counts().await.locked_count, 3, "nothing is locked that cannot start now");
    gate.open(2);
    until(&processor, |status| status.completed == 2).await;
    a_moment().await;
    assert_eq!((rig.counts().await.locked_count, gate.started().len()), (3, 5));
    gate.open(100);
    processor.stop(LOCK).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_pause_hands_back_what_is_not_running_and_uncounted() {
    let rig = Rig::start().await;
    rig.send(0..10).await;
    let gate = Gate::new();
    let processor = gated(&rig, &gate, 2, 4).await;
    until(&processor, |status| status.held == 6).await;
    assert_eq!(rig.counts().await.locked_count, 6);
    processor.pause().await.unwrap();
    assert_eq!(rig.counts().await.locked_count, 2, "when pause returns, only running messages are held");
    assert_eq!(processor.status().borrow().held, 2);
    gate.open(2);
    until(&processor, |status| status.completed == 2).await;
    rig.assert_unlocked(8).await;
    rig.assert_uncounted().await;
    rig.send(["while paused"]).await;
    a_moment().await;
    rig.assert_unlocked(9).await;
    processor.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn running_handlers_continue_in_a_pause_and_keep_their_locks() {
    let rig = Rig::start().await;
    rig.send(["1"]).await;
    let gate = Gate::new();
    let processor = gated(&rig, &gate, 1, 0).await;
    until(&processor, |status| status.running == 1).await;
    processor.pause().await.unwrap();
    // Three locks pass.
    tokio::time::sleep(3 * LOCK).await;
    assert_eq!(rig.counts().await.locked_count, 1);
    gate.open(1);
    until(&processor, |status| status.completed == 1).await;
    rig.assert_unlocked(0).await;
    assert_eq!(gate.started(), ["1"], "the message was never delivered to another receiver");
    processor.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn pause_and_drain_waits_for_handlers() {
    let rig = Rig::start().await;
    rig.send(0..2).await;
    let gate = Gate::new();
    let processor = gated(&rig, &gate, 1, 0).await;
    until(&processor, |status| status.running == 1).await;
    let draining = tokio::spawn({
        let processor = processor.clone();
        async move { processor.pause_and_drain().await }
    });
    a_moment().await;
    assert!(!draining.is_finished());
    gate.open(1);
    draining.await.unwrap().unwrap();
    rig.assert_unlocked(1).await;
    processor.stop(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_resume_uses_the_link_that_stayed_open() {
    let rig = Rig::start().await;
    let gate = Gate::new();
    gate.open(100);
    let processor = gated(&rig, &gate, 4, 0).await;
    for round in 1..=5 {
        processor.pause().await.unwrap();
        rig.send(["1"]).await;
        a_moment().await;
        rig.assert_unlocked(1).await;
        processor.resume().await.unwrap();
        until(&processor, |status| status.completed == round).await;
    }
    processor.stop(Duration::ZERO).await.unwrap();
}
