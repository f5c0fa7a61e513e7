//! Stop: quiet, wait, cancel, drop, report.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use peeklock::Kind;
use peeklock::handler::{Context, HandlerError};
use peeklock::processor::State;

use crate::rig::{Errors, LOCK, Rig, until};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_handlers_and_leaves_no_lock() {
    let rig = Rig::start().await;
    rig.send(0..10).await;
    let handle = || tokio::time::sleep(10 * SECOND);
    let builder = rig.client.processor("q").handler(handle).max_concurrent(2).prefetch(3);
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.held == 5).await;
    let report = processor.stop(30 * SECOND).await.unwrap();
    assert_eq!((report.completed, report.released, report.cancelled, report.stuck), (2, 3, 0, 0));
    let counts = rig.counts().await;
    assert_eq!((counts.locked_count, counts.active_count), (0, 8), "at the moment when stop returns");
    rig.assert_uncounted().await;
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_stop_fires_cancelled() {
    let rig = Rig::start().await;
    rig.send(0..1).await;
    let handle = |context: Context| async move {
        context.cancelled().await;
        Err::<(), _>(HandlerError::retry("the work was interrupted"))
    };
    let errors = Errors::default();
    let processor =
        rig.client.processor("q").handler(handle).on_error(errors.handler()).start().await.unwrap();
    until(&processor, |status| status.running == 1).await;
    let asked = tokio::time::Instant::now();
    let report = processor.stop(30 * SECOND).await.unwrap();
    assert_eq!(asked.elapsed().as_secs(), 30);
    assert_eq!((report.completed, report.failed, report.released, report.cancelled), (0, 0, 1, 0));
    let counts = rig.counts().await;
    assert_eq!((counts.locked_count, counts.active_count), (0, 1));
    rig.assert_uncounted().await;
    assert!(errors.seen().is_empty(), "an interruption by a stop is no failure");
}

#[tokio::test(start_paused = true)]
async fn after_the_grace_a_handler_is_dropped_and_its_message_released() {
    struct Guard(Arc<AtomicBool>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let rig = Rig::start().await;
    rig.send(0..1).await;
    let is_dropped = Arc::<AtomicBool>::default();
    let guard = Arc::clone(&is_dropped);
    let handle = move || {
        let guard = Guard(Arc::clone(&guard));
        async move {
            std::future::pending::<()>().await;
            drop(guard);
        }
    };
    let processor = rig.client.processor("q").handler(handle).start().await.unwrap();
    until(&processor, |status| status.running == 1).await;
    let asked = tokio::time::Instant::now();
    let report = processor.stop(30 * SECOND).await.unwrap();
    assert_eq!(asked.elapsed().as_secs(), 35, "the deadline and the grace");
    assert_eq!((report.completed, report.cancelled, report.stuck), (0, 1, 0));
    assert!(is_dropped.load(Ordering::SeqCst));
    let counts = rig.counts().await;
    assert_eq!((counts.locked_count, counts.active_count), (0, 1));
    rig.assert_uncounted().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_stop_with_a_shorter_deadline_shortens_the_first() {
    let rig = Rig::start().await;
    rig.send(0..1).await;
    let builder = rig.client.processor("q").handler(std::future::pending::<()>).cancel_grace(SECOND);
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.running == 1).await;
    let first = tokio::spawn({
        let processor = processor.clone();
        async move { processor.stop(1000 * SECOND).await }
    });
    until(&processor, |status| status.state == State::Draining).await;
    let asked = tokio::time::Instant::now();
    assert_eq!(processor.stop(Duration::ZERO).await.unwrap().cancelled, 1);
    assert_eq!(asked.elapsed().as_secs(), 1);
    assert_eq!(first.await.unwrap().unwrap().cancelled, 1);
    rig.assert_unlocked(1).await;
}

/// A handler that blocks its thread cannot be dropped. This test needs real threads, and so real time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_is_reported_as_stuck_and_keeps_its_lock() {
    let rig = Rig::start().await;
    rig.send(0..1).await;
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(std::sync::Mutex::new(blocked));
    let handle = move || {
        let blocked = Arc::clone(&blocked);
        async move {
            let _ = blocked.lock().unwrap().recv();
        }
    };
    let builder = rig.client.processor("q").handler(handle).cancel_grace(Duration::from_millis(10));
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.running == 1).await;
    let report = processor.stop(Duration::ZERO).await.unwrap();
    assert_eq!((report.stuck, report.cancelled), (1, 0));
    assert_eq!(rig.counts().await.locked_count, 1, "the work still goes on, so nobody else gets the message");
    drop(release);
}

#[tokio::test(start_paused = true)]
async fn a_fatal_error_releases_the_message_and_fails_the_processor() {
    let rig = Rig::start().await;
    rig.send(0..3).await;
    let handle = || async { Err::<(), _>(HandlerError::fatal("the configuration is missing")) };
    let processor = rig.client.processor("q").handler(handle).start().await.unwrap();
    let status = processor.ended().await;
    assert_eq!(status.state, State::Failed);
    let error = status.last_error.unwrap();
    assert_eq!(error.kind(), Kind::Handler);
    assert!(error.to_string().contains("the configuration is missing"), "{error}");
    rig.assert_unlocked(3).await;
    rig.assert_uncounted().await;
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_all_messages_are_back_after_one_lock() {
    let rig = Rig::start().await;
    rig.send(0..5).await;
    let (client, plug) = rig.other_client().await;
    let builder = client.processor("q").handler(std::future::pending::<()>).max_concurrent(2).prefetch(1);
    let processor = builder.start().await.unwrap();
    until(&processor, |status| status.held == 3).await;
    assert_eq!(rig.counts().await.locked_count, 3);
    plug.pull();
    tokio::time::sleep(LOCK + SECOND).await;
    rig.assert_unlocked(5).await;
}
