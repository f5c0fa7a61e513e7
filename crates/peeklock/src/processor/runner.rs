//! Runs the handler for one delivery and settles by its result.

use std::sync::Arc;
use std::time::Duration;

use tower::ServiceExt;

use super::dead_letter;
use super::errors::{ErrorSource, Reporter};
use crate::Outcome;
use crate::error::{Error, Kind};
use crate::handler::{Context, HandlerError, Job, JobService, States, Work, catch_panic};
use crate::retry::{Decision, Retry};

/// What all deliveries of a processor share.
pub(crate) struct Runner {
    pub(crate) entity: Arc<str>,
    pub(crate) service: JobService,
    pub(crate) states: States,
    pub(crate) retry: Retry,
    pub(crate) auto_complete: bool,
    pub(crate) reporter: Reporter,
}

/// The end of one delivery in a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The handler has succeeded, and the message is settled.
    Completed,
    /// The handler has failed, or the message could not be settled.
    Failed,
    /// The message was handed back because the processor stops.
    Released,
    /// The handler asks for the end of the processor.
    Fatal,
}

impl Runner {
    pub(crate) async fn run(self: Arc<Self>, work: Arc<Work>) -> Ended {
        let result = self.attempt(&work).await;
        self.conclude(&work, result).await
    }

    /// Settles by the result of the handler.
    pub(super) async fn conclude(&self, work: &Arc<Work>, result: Result<Outcome, HandlerError>) -> Ended {
        if work.lock_lost.has_fired() {
            // Another receiver may have the message. The loss was reported when it happened.
            work.leave();
            return Ended::Failed;
        }
        match result {
            Ok(outcome) => self.succeed(work, outcome).await,
            Err(error) => self.fail(work, error).await,
        }
    }

    /// Calls the handler, with the immediate retries.
    async fn attempt(&self, work: &Arc<Work>) -> Result<Outcome, HandlerError> {
        let mut retried = 0;
        loop {
            let job = Job::new(Context::new(Arc::clone(work)), self.states.clone());
            let service = self.service.clone();
            let call = async { service.oneshot(job).await.map_err(HandlerError::from_box) };
            let error = match catch_panic(call).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            let is_held = !work.is_settled() && !work.lock_lost.has_fired() && !work.cancelled.has_fired();
            if !is_held || !self.retry.is_immediate_due(error.failure(), retried) {
                return Err(error);
            }
            retried += 1;
            self.report_failure(work, error, "It is called again at once.");
        }
    }

    async fn succeed(&self, work: &Work, outcome: Outcome) -> Ended {
        if self.auto_complete {
            return self.settle(work, outcome, Ended::Completed).await;
        }
        if work.is_settled() {
            return Ended::Completed;
        }
        let text = format!(
            "The handler of \"{}\" has returned without settling the message, and auto-complete is off. The message was abandoned. Settle it through the context, or turn on auto_complete.",
            self.entity
        );
        let error = Error::new(Kind::NotSettled, "E-PROC-04", text);
        self.reporter.report_work(ErrorSource::Handler, error, work);
        self.settle(work, Outcome::Abandon, Ended::Failed).await
    }

    async fn fail(&self, work: &Work, error: HandlerError) -> Ended {
        if work.cancelled.has_fired() && !matches!(error.kind(), Kind::Malformed) {
            // A handler that ends because it was asked to has not failed.
            return self.interrupt(work, Ended::Released).await;
        }
        let decision = self.retry.decide(error.failure(), work.attempt(), fastrand::f64());
        let consequence = consequence(decision, error.kind());
        let outcome = match decision {
            Decision::Later(delay) => Outcome::AbandonWith {
                properties: dead_letter::retry_properties(work.message()),
                delay: Some(delay.max(Duration::from_millis(1))),
            },
            Decision::DeadLetter(reason) => {
                dead_letter::outcome(reason, error.failure(), work, self.reporter.processor())
            }
            Decision::Fail => {
                self.report_failure(work, error, &consequence);
                return self.interrupt(work, Ended::Fatal).await;
            }
        };
        self.report_failure(work, error, &consequence);
        let outcome = match outcome {
            Outcome::AbandonWith { properties, delay: Some(delay) } if work.waits_while_held() => {
                if !self.wait_while_held(work, delay).await {
                    return Ended::Failed;
                }
                Outcome::AbandonWith { properties, delay: None }
            }
            outcome => outcome,
        };
        self.settle(work, outcome, Ended::Failed).await
    }

    /// Hands the message back because the processor ends before its handler.
    async fn interrupt(&self, work: &Work, ended: Ended) -> Ended {
        let Some(delivery) = work.take() else { return ended };
        self.settled(work, delivery.interrupt().await, ended)
    }

    /// Waits before a message of a session is given back, for a broker that cannot delay it. The messages behind it have to wait in any case.
    /// Returns whether the lock is still held; a processor that stops ends the wait.
    async fn wait_while_held(&self, work: &Work, delay: Duration) -> bool {
        tokio::select! {
            // A lost lock comes first: the message must not be settled then.
            biased;
            () = work.lock_lost.fired() => {
                work.leave();
                false
            }
            () = work.cancelled.fired() => true,
            () = tokio::time::sleep(delay) => true,
        }
    }

    fn report_failure(&self, work: &Work, error: HandlerError, consequence: &str) {
        let error = handler_error(&self.entity, work, error, consequence);
        self.reporter.report_work(ErrorSource::Handler, error, work);
    }

    /// Settles the message unless the handler has done it.
    async fn settle(&self, work: &Work, outcome: Outcome, ended: Ended) -> Ended {
        let Some(delivery) = work.take() else { return ended };
        self.settled(work, delivery.settle(outcome).await, ended)
    }

    /// Reports a settlement that has failed.
    fn settled(&self, work: &Work, result: Result<(), Error>, ended: Ended) -> Ended {
        match result {
            Ok(()) => ended,
            Err(error) => {
                self.reporter.report_work(ErrorSource::Settle, error, work);
                if matches!(ended, Ended::Fatal) { ended } else { Ended::Failed }
            }
        }
    }
}

/// Returns the sentences about what happens to the message, and what to do if nothing happens by itself.
fn consequence(decision: Decision, kind: Kind) -> String {
    match decision {
        Decision::Later(delay) => format!("The message is delivered again after {delay:.1?}."),
        Decision::DeadLetter(reason) if kind == Kind::Malformed => format!(
            "The message was dead-lettered with reason {reason}. Correct the sender, or the type of the handler's argument."
        ),
        Decision::DeadLetter(reason) => {
            format!(
                "The message was dead-lettered with reason {reason}. Correct the cause, and send it again."
            )
        }
        Decision::Fail => {
            "The message was handed back, and the processor stops. Correct the cause, and start it again."
                .to_owned()
        }
    }
}

/// Returns the error for the error handler and the log.
fn handler_error(entity: &str, work: &Work, error: HandlerError, consequence: &str) -> Error {
    let (kind, failure) = (error.kind(), error.into_failure());
    let message = work.message();
    let id = message.message_id().or_else(|| message.sequence_number().map(|number| number.to_string()));
    let id = id.unwrap_or_else(|| "without id".to_owned());
    let (code, what) = match kind {
        Kind::Panic => ("E-HAND-02", "panicked on"),
        Kind::Timeout => ("E-HAND-03", "exceeded its time on"),
        Kind::Malformed => ("E-HAND-04", "cannot read the body of"),
        _ => ("E-HAND-01", "failed on"),
    };
    let attempt = work.attempt();
    let text = format!(
        "The handler of \"{entity}\" {what} message {id}, attempt {attempt}: {failure}. {consequence}"
    );
    Error::new(kind, code, text).caused_by(failure)
}
