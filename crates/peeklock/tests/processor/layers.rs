//! Layers of tower that hold messages back: limits of the rate and of the concurrency, and layers that fail.

use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use peeklock::handler::{HandlerError, Job, Text};
use peeklock::processor::State;
use peeklock::{Kind, Message, Retry};
use peeklock_types::QueueSettings;
use tokio::time::{Instant, sleep};
use tower::limit::{ConcurrencyLimitLayer, RateLimitLayer};
use tower::{BoxError, Layer, Service};

use crate::rig::{LOCK, Rig, a_moment, settings, until};

const SECOND: Duration = Duration::from_secs(1);

/// The moments at which calls began.
#[derive(Clone, Default)]
struct Starts {
    moments: Arc<Mutex<Vec<Instant>>>,
}

impl Starts {
    fn note(&self) {
        self.moments.lock().unwrap().push(Instant::now());
    }

    /// Returns the seconds since the first call.
    fn seconds(&self) -> Vec<u64> {
        let moments = self.moments.lock().unwrap();
        moments.iter().map(|moment| (*moment - moments[0]).as_secs()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_holds_for_all_calls_and_holds_no_message() {
    let rig = Rig::start().await;
    rig.send(0..6).await;
    let starts = Starts::default();
    let noted = starts.clone();
    let handle = move || {
        noted.note();
        std::future::ready(())
    };
    let builder = rig.client.processor("q").handler(handle).max_concurrent(4).prefetch(2);
    let processor = builder.layer(RateLimitLayer::new(2, 10 * SECOND)).start().await.unwrap();
    for waiting in [4, 2, 0] {
        sleep(5 * SECOND).await;
        rig.assert_unlocked(waiting).await;
        rig.assert_uncounted().await;
        sleep(5 * SECOND).await;
    }
    assert_eq!(starts.seconds(), [0, 0, 10, 10, 20, 20]);
    // The limit is known now, so no message is requested in vain.
    rig.send(0..4).await;
    until(&processor, |status| status.completed == 10).await;
    processor.stop(LOCK).await.unwrap();
    rig.assert_unlocked(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_the_concurrency_holds_no_message_that_cannot_start() {
    let rig = Rig::start().await;
    rig.send(0..6).await;
    let builder = rig.client.processor("q").handler(|| sleep(10 * SECOND)).max_concurrent(5);
    let processor = builder.layer(ConcurrencyLimitLayer::new(2)).start().await.unwrap();
    for waiting in [4, 2, 0] {
        sleep(5 * SECOND).await;
        let counts = rig.counts().await;
        assert_eq!((counts.locked_count, counts.active_count), (2, 2 + waiting), "(locked, all)");
        rig.assert_uncounted().await;
        sleep(5 * SECOND).await;
    }
    until(&processor, |status| status.completed == 6).await;
    processor.stop(LOCK).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rate_holds_for_all_sessions_of_a_processor() {
    let rig = Rig::with(QueueSettings { requires_session: true, ..settings() }).await;
    let sender = rig.client.sender("q").await.unwrap();
    for session in ["a", "b", "c"] {
        sender.send(Message::text("1").session_id(session)).await.unwrap();
    }
    let starts = Starts::default();
    let noted = starts.clone();
    let handle = move || {
        noted.note();
        std::future::ready(())
    };
    let builder = rig.client.session_processor("q").handler(handle).max_sessions(3).idle(LOCK);
    let processor = builder.layer(RateLimitLayer::new(1, 10 * SECOND)).start().await.unwrap();
    until(&processor, |status| status.completed == 3).await;
    assert_eq!(starts.seconds(), [0, 10, 20]);
    processor.stop(LOCK).await.unwrap();
    rig.assert_unlocked(0).await;
}

#[tokio::test(start_paused = true)]
async fn an_immediate_retry_is_a_call_within_the_limit() {
    let rig = Rig::start().await;
    rig.send(["fails", "good"]).await;
    let starts = Starts::default();
    let noted = starts.clone();
    let handle = move |Text(body): Text| {
        noted.note();
        let is_first = noted.seconds().len() == 1;
        async move { if body == "fails" && is_first { Err(HandlerError::retry("once")) } else { Ok(()) } }
    };
    let builder = rig.client.processor("q").handler(handle).retry(Retry::immediate(1));
    let processor = builder.layer(RateLimitLayer::new(1, 10 * SECOND)).start().await.unwrap();
    until(&processor, |status| status.completed == 2).await;
    assert_eq!((starts.seconds(), processor.status().borrow().failed), (vec![0, 10, 20], 0));
    processor.stop(LOCK).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_tower_is_a_failure() {
    let rig = Rig::start().await;
    rig.send(["1"]).await;
    let builder = rig.client.processor("q").handler(std::future::pending::<()>).retry(Retry::never());
    let processor = builder.layer(tower::timeout::TimeoutLayer::new(SECOND)).start().await.unwrap();
    until(&processor, |status| status.failed == 1).await;
    a_moment().await;
    assert_eq!(rig.dead_letters().await.len(), 1);
    processor.stop(LOCK).await.unwrap();
}

/// A layer whose service fails after some calls.
#[derive(Clone)]
struct FailsAfter {
    left: usize,
    panics: bool,
}

struct Failing<S> {
    inner: S,
    layer: FailsAfter,
}

impl<S> Layer<S> for FailsAfter {
    type Service = Failing<S>;

    fn layer(&self, inner: S) -> Failing<S> {
        Failing { inner, layer: self.clone() }
    }
}

impl<S: Service<Job, Error = BoxError>> Service<Job> for Failing<S> {
    type Response = S::Response;
    type Error = BoxError;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
        if self.layer.left > 0 {
            return self.inner.poll_ready(context);
        }
        assert!(!self.layer.panics, "the licence has expired");
        Poll::Ready(Err("the licence has expired".into()))
    }

    fn call(&mut self, job: Job) -> S::Future {
        self.layer.left -= 1;
        self.inner.call(job)
    }
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_fails_stops_the_processor() {
    for panics in [false, true] {
        let rig = Rig::start().await;
        rig.send(0..5).await;
        let layer = FailsAfter { left: 2, panics };
        let builder = rig.client.processor("q").handler(|| async {}).max_concurrent(3).layer(layer);
        let processor = builder.start().await.unwrap();
        let status = processor.ended().await;
        assert_eq!((status.state, status.completed), (State::Failed, 2));
        let error = status.last_error.unwrap();
        assert_eq!((error.code(), error.kind()), ("E-PROC-09", Kind::Handler));
        assert!(error.to_string().contains("the licence has expired"), "{error}");
        rig.assert_unlocked(3).await;
        rig.assert_uncounted().await;
    }
}
