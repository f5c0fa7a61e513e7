//! Layers around handlers.

use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tower::{BoxError, Layer, Service};
use tracing::Instrument;

use super::failure::HandlerError;
use super::job::Job;

/// Limits the running time of one call of the handler. A call that exceeds it is dropped, and the retry policy decides about the message.
#[derive(Clone, Copy, Debug)]
pub struct TimeoutLayer {
    limit: Duration,
}

impl TimeoutLayer {
    /// Returns a layer with this limit.
    pub fn new(limit: Duration) -> Self {
        TimeoutLayer { limit }
    }
}

impl<S> Layer<S> for TimeoutLayer {
    type Service = Timeout<S>;

    fn layer(&self, inner: S) -> Timeout<S> {
        Timeout { inner, limit: self.limit }
    }
}

/// The service of [`TimeoutLayer`].
#[derive(Clone, Copy, Debug)]
pub struct Timeout<S> {
    inner: S,
    limit: Duration,
}

impl<S> Service<Job> for Timeout<S>
where
    S: Service<Job>,
    S::Future: Send + 'static,
    S::Response: 'static,
    S::Error: Into<BoxError> + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, job: Job) -> Self::Future {
        let (call, limit) = (self.inner.call(job), self.limit);
        Box::pin(async move {
            match tokio::time::timeout(limit, call).await {
                Ok(result) => result.map_err(Into::into),
                Err(_) => Err(HandlerError::timeout(limit).into()),
            }
        })
    }
}

/// Puts each call into a span of `tracing` with the message's id, sequence number and attempt. Bodies are never logged.
#[derive(Clone, Copy, Debug, Default)]
pub struct TraceLayer;

impl<S> Layer<S> for TraceLayer {
    type Service = Trace<S>;

    fn layer(&self, inner: S) -> Trace<S> {
        Trace { inner }
    }
}

/// The service of [`TraceLayer`].
#[derive(Clone, Copy, Debug)]
pub struct Trace<S> {
    inner: S,
}

impl<S> Service<Job> for Trace<S>
where
    S: Service<Job>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = tracing::instrument::Instrumented<S::Future>;

    fn poll_ready(&mut self, context: &mut TaskContext<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, job: Job) -> Self::Future {
        let message = job.message();
        let span = tracing::info_span!(
            "process",
            queue = job.context().entity(),
            message_id = message.message_id(),
            seq = message.sequence_number().map(|number| number.0),
            attempt = job.context().attempt(),
            class = message.class(),
        );
        self.inner.call(job).instrument(span)
    }
}
