//! One call of the handler.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, CatchUnwind};
use tower::{BoxError, Service};

use super::JobService;
use super::failure::HandlerError;
use super::job::Job;
use crate::Outcome;

/// A call of the service. A panic in it is an error of kind [`Kind::Panic`](crate::Kind::Panic).
pub(crate) enum Call {
    Running(CatchUnwind<AssertUnwindSafe<BoxFuture<'static, Result<Outcome, BoxError>>>>),
    /// It has ended before; the result is returned once.
    Ended(Option<Result<Outcome, HandlerError>>),
}

impl Call {
    /// Calls a service that is ready.
    pub(crate) fn start(service: &mut JobService, job: Job) -> Self {
        // After a panic, a layer may be in any state. It is the layer's own: the processor shares nothing with it.
        match catch_unwind(AssertUnwindSafe(|| service.call(job))) {
            Ok(future) => Call::Running(AssertUnwindSafe(future).catch_unwind()),
            Err(panic) => Call::failed(HandlerError::of_panic(&*panic)),
        }
    }

    /// Returns a call that has ended with this result.
    pub(crate) fn ended(result: Result<Outcome, HandlerError>) -> Self {
        Call::Ended(Some(result))
    }

    /// Returns a call that fails with this error.
    pub(crate) fn failed(error: HandlerError) -> Self {
        Call::ended(Err(error))
    }
}

impl Future for Call {
    type Output = Result<Outcome, HandlerError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Call::Running(call) => Poll::Ready(match ready!(call.poll_unpin(cx)) {
                Ok(result) => result.map_err(HandlerError::from_box),
                Err(panic) => Err(HandlerError::of_panic(&*panic)),
            }),
            Call::Ended(result) => result.take().map_or(Poll::Pending, Poll::Ready),
        }
    }
}
