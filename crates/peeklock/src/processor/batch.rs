//! Handlers that work on several messages at a time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::runner::{Ended, Runner};
use crate::error::{Error, Kind};
use crate::handler::{Context, HandlerError, IntoOutcome, States, Work, catch_panic};
use crate::{Outcome, ReceivedMessage};

/// Messages that a batch handler works on together.
#[derive(Clone)]
pub struct Batch {
    contexts: Vec<Context>,
    states: States,
}

impl Batch {
    /// Returns the messages, in the order in which they were received.
    pub fn messages(&self) -> impl ExactSizeIterator<Item = &ReceivedMessage> {
        self.contexts.iter().map(Context::message)
    }

    /// Returns the contexts of the messages, in the same order.
    pub fn contexts(&self) -> &[Context] {
        &self.contexts
    }

    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.contexts.len()
    }

    /// Returns whether there are no messages. A batch handler never gets such a batch.
    pub fn is_empty(&self) -> bool {
        self.contexts.is_empty()
    }

    /// Returns the state of this type.
    pub fn state<S: Send + Sync + 'static>(&self) -> Option<&S> {
        self.states.get()
    }
}

/// A result of a batch handler: one for each message in the order of the batch, or one for all.
pub trait IntoOutcomes {
    /// Returns a result for each of `count` messages.
    fn into_outcomes(self, count: usize) -> Vec<Result<Outcome, HandlerError>>;
}

/// Completes all messages.
impl IntoOutcomes for () {
    fn into_outcomes(self, count: usize) -> Vec<Result<Outcome, HandlerError>> {
        (0..count).map(|_| Ok(Outcome::Complete)).collect()
    }
}

impl<T: IntoOutcome> IntoOutcomes for Vec<T> {
    fn into_outcomes(self, count: usize) -> Vec<Result<Outcome, HandlerError>> {
        if self.len() == count {
            return self.into_iter().map(T::into_outcome).collect();
        }
        let text = format!("the handler returned {} results for {count} messages", self.len());
        (0..count).map(|_| Err(HandlerError::retry(text.clone()))).collect()
    }
}

impl<T: IntoOutcomes, E: Into<HandlerError>> IntoOutcomes for Result<T, E> {
    fn into_outcomes(self, count: usize) -> Vec<Result<Outcome, HandlerError>> {
        match self {
            Ok(outcomes) => outcomes.into_outcomes(count),
            Err(error) => error.into().copies(count).into_iter().map(Err).collect(),
        }
    }
}

/// A handler of batches, without its type.
pub type BatchHandler =
    Arc<dyn Fn(Batch) -> BoxFuture<'static, Vec<Result<Outcome, HandlerError>>> + Send + Sync>;

/// The limits of a batch, and its handler.
#[derive(Clone)]
pub(crate) struct Batching {
    pub(crate) count_max: u32,
    pub(crate) wait: Duration,
    pub(crate) handler: BatchHandler,
}

impl Batching {
    pub(crate) fn new<F, Fut>(count_max: u32, wait: Duration, handler: F) -> Self
    where
        F: Fn(Batch) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: IntoOutcomes,
    {
        let handler: BatchHandler = Arc::new(move |batch| {
            let count = batch.len();
            let call = handler(batch);
            Box::pin(async move { call.await.into_outcomes(count) })
        });
        Batching { count_max, wait, handler }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.count_max > 0 {
            return Ok(());
        }
        Err(Error::new(
            Kind::Invalid,
            "E-PROC-05",
            "A batch of at most 0 messages was requested. Use 1 or more.",
        ))
    }

    /// Runs the handler for a batch, and settles each message by its own result. Batches have no immediate retries.
    pub(super) async fn run(self, runner: Arc<Runner>, works: Vec<Arc<Work>>) -> Vec<Ended> {
        let contexts: Vec<_> = works.iter().map(|work| Context::new(Arc::clone(work))).collect();
        let batch = Batch { contexts, states: runner.states.clone() };
        let call = async { Ok((self.handler)(batch).await) };
        let results = match catch_panic(call).await {
            Ok(results) => results,
            Err(error) => error.copies(works.len()).into_iter().map(Err).collect(),
        };
        let settlements = works.iter().zip(results).map(|(work, result)| {
            let runner = &runner;
            async move {
                let conclusion = runner.conclude(work, result).await;
                runner.settle(work, conclusion).await
            }
        });
        futures_util::future::join_all(settlements).await
    }
}
