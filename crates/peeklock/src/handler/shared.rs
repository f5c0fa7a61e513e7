//! One service for all who call it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, Wake, Waker};

use futures_util::future::BoxFuture;
use tower::{BoxError, Service, ServiceExt};

use super::job::Job;
use crate::Outcome;

/// Shares one service among its clones, so that a limit of a layer holds for the whole processor: for the calls of all its sessions, and for
/// immediate retries.
///
/// Readiness belongs to the service and not to a clone. A clone whose turn another one has taken calls as soon as the service is ready again.
pub(crate) struct Shared<S> {
    inner: Arc<Inner<S>>,
}

struct Inner<S> {
    service: Mutex<S>,
    /// The service has one waker, so it wakes all who wait for it.
    waiting: Arc<Waiting>,
}

#[derive(Default)]
struct Waiting {
    wakers: Mutex<Vec<Waker>>,
}

impl Waiting {
    fn add(&self, waker: &Waker) {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        if !wakers.iter().any(|waiting| waiting.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    fn remove(&self, waker: &Waker) {
        let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.retain(|waiting| !waiting.will_wake(waker));
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let wakers = std::mem::take(&mut *self.wakers.lock().unwrap_or_else(PoisonError::into_inner));
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl<S> Shared<S> {
    pub(crate) fn new(service: S) -> Self {
        let (service, waiting) = (Mutex::new(service), Arc::default());
        Shared { inner: Arc::new(Inner { service, waiting }) }
    }

    fn lock(&self) -> MutexGuard<'_, S> {
        // A layer that has panicked keeps its own state.
        self.inner.service.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Clone for Shared<S> {
    fn clone(&self) -> Self {
        Shared { inner: Arc::clone(&self.inner) }
    }
}

impl<S> Shared<S>
where
    S: Service<Job, Response = Outcome>,
    S::Error: Into<BoxError>,
{
    fn poll(&self, service: &mut S) -> Poll<Result<(), BoxError>> {
        let waker = Waker::from(Arc::clone(&self.inner.waiting));
        service.poll_ready(&mut TaskContext::from_waker(&waker)).map_err(Into::into)
    }
}

impl<S> Service<Job> for Shared<S>
where
    S: Service<Job, Response = Outcome> + Send + 'static,
    S::Error: Into<BoxError> + 'static,
    S::Future: Send + 'static,
{
    type Response = Outcome;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Outcome, BoxError>>;

    fn poll_ready(&mut self, context: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
        // The waker is added first, so that the service cannot become ready unnoticed in between.
        self.inner.waiting.add(context.waker());
        let ready = self.poll(&mut self.lock());
        if ready.is_ready() {
            self.inner.waiting.remove(context.waker());
        }
        ready
    }

    fn call(&mut self, job: Job) -> Self::Future {
        let mut service = self.lock();
        match self.poll(&mut service) {
            Poll::Ready(Ok(())) => {
                let call = service.call(job);
                Box::pin(async move { call.await.map_err(Into::into) })
            }
            Poll::Ready(Err(error)) => Box::pin(std::future::ready(Err(error))),
            // Another clone has called in between.
            Poll::Pending => Box::pin(self.clone().oneshot(job)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, sleep};
    use tower::ServiceBuilder;

    use super::*;
    use crate::ReceivedMessage;

    const SECOND: Duration = Duration::from_secs(1);

    fn job() -> Job {
        Job::detached(ReceivedMessage { message: peeklock_amqp::Message::default(), lock_token: None })
    }

    fn service() -> impl Service<Job, Response = Outcome, Error = BoxError, Future: Send + 'static> + Send {
        tower::service_fn(|_: Job| async {
            sleep(SECOND).await;
            Ok::<_, BoxError>(Outcome::Complete)
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_holds_for_all_clones() {
        let limited = Shared::new(ServiceBuilder::new().rate_limit(2, 10 * SECOND).service(service()));
        let start = Instant::now();
        let calls = (0..5).map(|_| limited.clone().oneshot(job()));
        futures_util::future::try_join_all(calls).await.unwrap();
        assert_eq!(start.elapsed().as_secs(), 21, "two at once, two after 10 s, one after 20 s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_clone_whose_turn_was_taken_waits_for_the_next() {
        let limited = Shared::new(ServiceBuilder::new().concurrency_limit(1).service(service()));
        let (mut one, mut two) = (limited.clone(), limited);
        one.ready().await.unwrap();
        two.ready().await.unwrap();
        let start = Instant::now();
        let (first, second) = tokio::join!(one.call(job()), two.call(job()));
        assert!(first.is_ok() && second.is_ok());
        assert_eq!(start.elapsed().as_secs(), 2, "one after the other");
    }
}
