//! Calls that end at once: they need no task, and their settlements leave together.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock::Message;
use peeklock::admin::Queue;
use peeklock::handler::{Context, HandlerError, Text};
use peeklock::processor::Processor;
use peeklock::testing::TestBroker;
use tokio::task::Id;

use crate::rig::{LOCK, Rig, until};

/// The task of each call.
#[derive(Clone, Default)]
struct Tasks {
    ids: Arc<Mutex<Vec<Id>>>,
}

impl Tasks {
    fn note(&self) {
        self.ids.lock().unwrap().push(tokio::task::id());
    }

    /// Returns the number of different tasks since the last call, and forgets them.
    fn take_count(&self) -> usize {
        self.ids.lock().unwrap().drain(..).collect::<HashSet<_>>().len()
    }
}

async fn completed(processor: &Processor, count: u64) {
    until(processor, |status| status.completed == count).await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_wait_costs_no_task() {
    let rig = Rig::start().await;
    let tasks = Tasks::default();
    let calls = tasks.clone();
    let handle = move || {
        calls.note();
        std::future::ready(())
    };
    let processor = rig.client.processor("q").handler(handle).max_concurrent(10).start().await.unwrap();
    // The first call shows that the handler is quick.
    rig.send(0..1).await;
    completed(&processor, 1).await;
    tasks.take_count();
    rig.send(0..100).await;
    completed(&processor, 101).await;
    assert_eq!(tasks.take_count(), 1, "the task of the pump");
    processor.stop(LOCK).await.unwrap();
    rig.assert_unlocked(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_has_a_task_and_begins_only_once() {
    let rig = Rig::start().await;
    let tasks = Tasks::default();
    let calls = tasks.clone();
    let handle = move |Text(body): Text| {
        let calls = calls.clone();
        async move {
            if body == "waits" {
                tokio::task::yield_now().await;
            }
            calls.note();
        }
    };
    let processor = rig.client.processor("q").handler(handle).max_concurrent(10).start().await.unwrap();
    rig.send(["quick"]).await;
    completed(&processor, 1).await;
    tasks.take_count();
    rig.send(["waits"; 20]).await;
    completed(&processor, 21).await;
    assert_eq!(tasks.take_count(), 20);
    processor.stop(LOCK).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn errors_and_panics_of_quick_calls_are_those_of_others() {
    let rig = Rig::start().await;
    let handle = |Text(body): Text, context: Context| async move {
        match (body.as_str(), context.attempt()) {
            ("fails", 1) => Err(HandlerError::retry_after(Duration::from_secs(1))("once")),
            ("poison", _) => Err(HandlerError::poison("never")),
            ("panics", _) => panic!("it panics"),
            _ => Ok(()),
        }
    };
    let retry = peeklock::Retry::never().then(peeklock::Delayed::fixed(Duration::from_secs(1), 1));
    let builder = rig.client.processor("q").handler(handle).retry(retry).max_concurrent(3);
    let processor = builder.start().await.unwrap();
    rig.send(["good", "fails", "poison", "good", "panics", "good"]).await;
    until(&processor, |status| status.completed == 4 && status.failed == 4).await;
    let report = processor.stop(LOCK).await.unwrap();
    assert_eq!((report.completed, report.failed), (4, 4));
    let dead: Vec<_> = rig.dead_letters().await;
    let mut reasons: Vec<_> = dead.iter().filter_map(|message| message.dead_letter_reason()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["HandlerPoison", "Panic"]);
    rig.assert_unlocked(0).await;
}

#[tokio::test]
async fn a_slot_is_free_when_the_settlement_is_confirmed() {
    let broker = TestBroker::start().await;
    broker.create_queue("q", Queue::new()).await;
    let client = broker.client().await;
    let messages = (0..7).map(|number| Message::text(number.to_string()));
    client.sender("q").await.unwrap().send_batch(messages).await.unwrap();
    broker.delay_settlements(Duration::from_secs(10));
    let processor = client.processor("q").handler(|| async {}).max_concurrent(2).start().await.unwrap();
    for locked in [2, 2, 2, 1, 0] {
        broker.advance(Duration::from_secs(1)).await;
        assert_eq!(broker.held_locks("q").await, locked);
        broker.advance(Duration::from_secs(9)).await;
    }
    assert_eq!(broker.completed("q"), 7);
    processor.stop(Duration::ZERO).await.unwrap();
}

/// This test needs real threads, and so real time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_gets_tasks() {
    let rig = Rig::start().await;
    let tasks = Tasks::default();
    let calls = tasks.clone();
    let handle = move || {
        let calls = calls.clone();
        async move {
            calls.note();
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let processor = rig.client.processor("q").handler(handle).start().await.unwrap();
    rig.send(0..20).await;
    completed(&processor, 20).await;
    assert_eq!(tasks.take_count(), 20, "none of them kept the pump busy");
    processor.stop(LOCK).await.unwrap();
}
