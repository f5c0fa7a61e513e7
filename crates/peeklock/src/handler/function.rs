//! Async functions as handlers.

use std::task::{Context as TaskContext, Poll};

use futures_util::future::BoxFuture;
use tower::{BoxError, Service};

use super::JobService;
use super::extract::{FromDelivery, Registered};
use super::failure::HandlerError;
use super::job::Job;
use super::outcome::IntoOutcome;
use crate::Outcome;
use crate::error::Error;

/// A function that works on one message. Do not implement it: every async function of up to eight arguments that implement
/// [`FromDelivery`], with a result that implements [`IntoOutcome`], is one.
#[diagnostic::on_unimplemented(
    message = "this is not a handler",
    note = "a handler is an async function whose arguments implement `FromDelivery` and whose result implements `IntoOutcome`"
)]
pub trait Handler<Arguments>: Clone + Send + Sync + 'static {
    /// Extracts the arguments and calls the function.
    fn call(self, job: Job) -> impl Future<Output = Result<Outcome, HandlerError>> + Send;

    /// Checks the arguments at the start of the processor.
    #[doc(hidden)]
    fn check(states: &Registered<'_>) -> Result<(), Error>;
}

macro_rules! handler {
    ($($argument:ident),*) => {
        impl<F, Fut, $($argument,)*> Handler<($($argument,)*)> for F
        where
            F: FnOnce($($argument),*) -> Fut + Clone + Send + Sync + 'static,
            Fut: Future + Send,
            Fut::Output: IntoOutcome,
            $($argument: FromDelivery,)*
        {
            #[allow(unused_variables, non_snake_case, reason = "a handler without arguments uses none")]
            async fn call(self, job: Job) -> Result<Outcome, HandlerError> {
                $(let $argument = $argument::from_delivery(&job)?;)*
                // The function may keep the job's parts; the job itself is not needed any more.
                drop(job);
                self($($argument),*).await.into_outcome()
            }

            #[allow(unused_variables, reason = "a handler without arguments uses none")]
            fn check(states: &Registered<'_>) -> Result<(), Error> {
                $($argument::check(states)?;)*
                Ok(())
            }
        }
    };
}

handler!();
handler!(A);
handler!(A, B);
handler!(A, B, C);
handler!(A, B, C, D);
handler!(A, B, C, D, E);
handler!(A, B, C, D, E, G);
handler!(A, B, C, D, E, G, H);
handler!(A, B, C, D, E, G, H, I);

/// A handler as a service.
struct HandlerService<H, A> {
    handler: H,
    arguments: std::marker::PhantomData<fn() -> A>,
}

impl<H: Clone, A> Clone for HandlerService<H, A> {
    fn clone(&self) -> Self {
        HandlerService { handler: self.handler.clone(), arguments: std::marker::PhantomData }
    }
}

impl<H: Handler<A>, A: 'static> Service<Job> for HandlerService<H, A> {
    type Response = Outcome;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Outcome, BoxError>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, job: Job) -> Self::Future {
        let handler = self.handler.clone();
        Box::pin(async move { handler.call(job).await.map_err(BoxError::from) })
    }
}

pub(crate) fn service_of<H: Handler<A>, A: 'static>(handler: H) -> JobService {
    JobService::new(HandlerService { handler, arguments: std::marker::PhantomData })
}
