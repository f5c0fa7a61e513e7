//! Runs the handler for one delivery and settles by its result.

use std::sync::Arc;
use std::time::Duration;

use tower::ServiceExt;

use super::dead_letter;
use super::errors::{ErrorSource, Reporter};
use crate::Outcome;
use crate::error::{Error, Kind};
use crate::handler::{Call, Context, HandlerError, Job, JobService, States, Work};
use crate::retry::{Decision, Retry};

/// What all deliveries of a processor share.
pub(crate) struct Runner {
    pub(crate) entity: Arc<str>,
    pub(crate) service: JobService,
    /// Whether the service has layers, which may hold calls back.
    pub(crate) is_gated: bool,
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

/// The end of a call, before its message is settled.
#[derive(Debug)]
pub(crate) struct Conclusion {
    /// `None` if the message is settled, or if its lock is lost.
    pub(crate) outcome: Option<Outcome>,
    /// The end of the delivery, if the settlement succeeds.
    pub(crate) ended: Ended,
}

impl Conclusion {
    fn new(outcome: Option<Outcome>, ended: Ended) -> Self {
        Conclusion { outcome, ended }
    }
}

impl Runner {
    /// Returns a call of the handler. The service must be ready.
    pub(crate) fn call(&self, service: &mut JobService, work: &Arc<Work>) -> Call {
        Call::start(service, Job::new(Context::new(Arc::clone(work)), self.states.clone()))
    }

    /// Runs a call to its end, with the immediate retries, and returns how to settle the message.
    pub(crate) async fn run(&self, work: &Arc<Work>, call: Call) -> Conclusion {
        let result = self.attempt(work, call).await;
        self.conclude(work, result).await
    }

    async fn attempt(&self, work: &Arc<Work>, mut call: Call) -> Result<Outcome, HandlerError> {
        let mut retried = 0;
        loop {
            let error = match call.await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            };
            let is_held = !work.is_settled() && !work.lock_lost.has_fired() && !work.cancelled.has_fired();
            if !is_held || !self.retry.is_immediate_due(error.failure(), retried) {
                return Err(error);
            }
            retried += 1;
            self.report_failure(work, error, "It is called again at once.");
            let mut service = self.service.clone();
            call = match service.ready().await {
                Ok(service) => self.call(service, work),
                Err(error) => Call::failed(HandlerError::from_box(error)),
            };
        }
    }

    /// Returns how to settle a message by the result of its handler.
    pub(super) async fn conclude(
        &self,
        work: &Arc<Work>,
        result: Result<Outcome, HandlerError>,
    ) -> Conclusion {
        match result {
            Ok(outcome) => self.succeed(work, outcome),
            Err(error) if !work.lock_lost.has_fired() => self.fail(work, error).await,
            Err(_) => leave(work),
        }
    }

    /// Returns how to settle a message whose handler has succeeded.
    pub(super) fn succeed(&self, work: &Work, outcome: Outcome) -> Conclusion {
        if work.lock_lost.has_fired() {
            return leave(work);
        }
        if self.auto_complete {
            return Conclusion::new(Some(outcome), Ended::Completed);
        }
        if work.is_settled() {
            return Conclusion::new(None, Ended::Completed);
        }
        let text = format!(
            "The handler of \"{}\" has returned without settling the message, and auto-complete is off. The message was abandoned. Settle it through the context, or turn on auto_complete.",
            self.entity
        );
        let error = Error::new(Kind::NotSettled, "E-PROC-04", text);
        self.reporter.report_work(ErrorSource::Handler, error, work);
        Conclusion::new(Some(Outcome::Abandon), Ended::Failed)
    }

    async fn fail(&self, work: &Work, error: HandlerError) -> Conclusion {
        if work.cancelled.has_fired() && !matches!(error.kind(), Kind::Malformed) {
            // A handler that ends because it was asked to has not failed.
            return Conclusion::new(work.interruption(), Ended::Released);
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
                return Conclusion::new(work.interruption(), Ended::Fatal);
            }
        };
        self.report_failure(work, error, &consequence);
        let outcome = match outcome {
            Outcome::AbandonWith { properties, delay: Some(delay) } if work.waits_while_held() => {
                if !self.wait_while_held(work, delay).await {
                    return Conclusion::new(None, Ended::Failed);
                }
                Outcome::AbandonWith { properties, delay: None }
            }
            outcome => outcome,
        };
        Conclusion::new(Some(outcome), Ended::Failed)
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

    /// Settles the message of a conclusion, unless the handler has done it.
    pub(super) async fn settle(&self, work: &Work, conclusion: Conclusion) -> Ended {
        match (conclusion.outcome, work.take()) {
            (Some(outcome), Some(unsettled)) => {
                let result = unsettled.settle(work.message(), outcome).await;
                self.settled(work, result, conclusion.ended)
            }
            // The handler has settled it.
            (_, None) => conclusion.ended,
            (None, Some(unsettled)) => {
                unsettled.leave();
                conclusion.ended
            }
        }
    }

    /// Reports a settlement that has failed. Returns the end of the delivery.
    pub(super) fn settled(&self, work: &Work, result: Result<(), Error>, ended: Ended) -> Ended {
        match result {
            Ok(()) => ended,
            Err(error) => {
                self.reporter.report_work(ErrorSource::Settle, error, work);
                if matches!(ended, Ended::Fatal) { ended } else { Ended::Failed }
            }
        }
    }
}

/// Returns the end of a message whose lock is lost: another receiver may have it. The loss was reported when it happened.
fn leave(work: &Work) -> Conclusion {
    work.leave();
    Conclusion::new(None, Ended::Failed)
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
