//! Reports errors: to the log, to the status, and to the error handler of the user. An error handler decides nothing.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::repeat::RepeatLimit;
use super::status::Status;
use crate::SequenceNumber;
use crate::error::{Error, Kind};
use crate::handler::Work;

/// The number of errors that wait for a slow error handler. Further errors are only logged.
const WAITING_MAX: usize = 1000;
/// How long a stop waits for the error handler.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(5);

/// What a processor was doing when an error occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorSource {
    /// It connected, or attached its link.
    Connect,
    /// It received messages.
    Receive,
    /// It renewed the lock of a message or session.
    RenewLock,
    /// It waited for a session.
    AcceptSession,
    /// It ran the handler.
    Handler,
    /// It settled a message.
    Settle,
    /// It stored a checkpoint.
    Checkpoint,
}

impl fmt::Display for ErrorSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ErrorSource::Connect => "connect",
            ErrorSource::Receive => "receive",
            ErrorSource::RenewLock => "renew lock",
            ErrorSource::AcceptSession => "accept session",
            ErrorSource::Handler => "handler",
            ErrorSource::Settle => "settle",
            ErrorSource::Checkpoint => "checkpoint",
        })
    }
}

/// An error of a processor, for the error handler.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ErrorContext {
    /// What the processor was doing.
    pub source: ErrorSource,
    /// The error.
    pub error: Error,
    /// The queue or subscription.
    pub entity: Arc<str>,
    /// The name of the processor.
    pub processor: Arc<str>,
    /// The id of the message.
    pub message_id: Option<String>,
    /// The sequence number of the message.
    pub sequence_number: Option<SequenceNumber>,
    /// The session of the message, or the session whose lock is lost.
    pub session_id: Option<String>,
    /// The number of the delivery, from 1.
    pub attempt: Option<u32>,
}

/// The error handler of the user.
pub(crate) type OnError = Arc<dyn Fn(ErrorContext) -> BoxFuture<'static, ()> + Send + Sync>;

/// Reports the errors of one processor.
pub(crate) struct Reporter {
    entity: Arc<str>,
    processor: Arc<str>,
    status: Arc<watch::Sender<Status>>,
    limit: Mutex<RepeatLimit<(ErrorSource, Kind)>>,
    handler: Mutex<Option<mpsc::Sender<ErrorContext>>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Reporter {
    pub(crate) fn start(
        entity: Arc<str>,
        processor: Arc<str>,
        status: Arc<watch::Sender<Status>>,
        on_error: Option<OnError>,
    ) -> Self {
        let (handler, task) = match on_error {
            Some(on_error) => {
                let (sender, errors) = mpsc::channel(WAITING_MAX);
                (Some(sender), Some(tokio::spawn(call(on_error, errors))))
            }
            None => (None, None),
        };
        let (handler, task) = (Mutex::new(handler), Mutex::new(task));
        Reporter { entity, processor, status, limit: Mutex::default(), handler, task }
    }

    pub(crate) fn processor(&self) -> &str {
        &self.processor
    }

    pub(crate) fn entity(&self) -> &str {
        &self.entity
    }

    /// Reports an error that concerns no message.
    pub(crate) fn report(&self, source: ErrorSource, error: Error) {
        self.tell(self.context(source, error));
    }

    pub(crate) fn report_session(&self, source: ErrorSource, error: Error, session: &str) {
        self.tell(ErrorContext { session_id: Some(session.to_owned()), ..self.context(source, error) });
    }

    /// Reports an error that concerns a message.
    pub(crate) fn report_work(&self, source: ErrorSource, error: Error, work: &Work) {
        let message = work.message();
        self.tell(ErrorContext {
            message_id: message.message_id(),
            sequence_number: message.sequence_number(),
            session_id: message.session_id().map(str::to_owned),
            attempt: Some(work.attempt()),
            ..self.context(source, error)
        });
    }

    fn context(&self, source: ErrorSource, error: Error) -> ErrorContext {
        ErrorContext {
            source,
            error,
            entity: Arc::clone(&self.entity),
            processor: Arc::clone(&self.processor),
            message_id: None,
            sequence_number: None,
            session_id: None,
            attempt: None,
        }
    }

    fn tell(&self, context: ErrorContext) {
        self.log(&context);
        self.status.send_modify(|status| status.last_error = Some(context.error.clone()));
        if let Some(handler) = &*self.handler.lock().unwrap_or_else(PoisonError::into_inner)
            && handler.try_send(context).is_err()
        {
            tracing::warn!(queue = %self.entity, "the error handler is too slow; an error was only logged");
        }
    }

    fn log(&self, context: &ErrorContext) {
        let key = (context.source, context.error.kind());
        let admitted = self.limit.lock().unwrap_or_else(PoisonError::into_inner).admit(key, Instant::now());
        if let Some(left_out) = admitted {
            tracing::error!(
                queue = %self.entity,
                processor = %self.processor,
                source = %context.source,
                message_id = context.message_id,
                seq = context.sequence_number.map(|number| number.0),
                session = context.session_id,
                attempt = context.attempt,
                left_out,
                "{}",
                context.error
            );
        }
    }

    /// Waits until the error handler has seen all errors.
    pub(crate) async fn close(&self) {
        drop(self.handler.lock().unwrap_or_else(PoisonError::into_inner).take());
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut task) = task
            && tokio::time::timeout(CLOSE_TIME_MAX, &mut task).await.is_err()
        {
            task.abort();
        }
    }
}

async fn call(on_error: OnError, mut errors: mpsc::Receiver<ErrorContext>) {
    while let Some(context) = errors.recv().await {
        let call = AssertUnwindSafe(async { on_error(context).await });
        if call.catch_unwind().await.is_err() {
            tracing::error!("the error handler has panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn a_panic_in_the_error_handler_is_swallowed() {
        let seen = Arc::<AtomicU32>::default();
        let counter = Arc::clone(&seen);
        let on_error: OnError = Arc::new(move |context| {
            let count = counter.fetch_add(1, Ordering::SeqCst);
            assert!(count > 0, "the first call panics: {}", context.error);
            Box::pin(async {})
        });
        let status = Arc::new(watch::channel(Status::default()).0);
        let reporter = Reporter::start("q".into(), "p".into(), Arc::clone(&status), Some(on_error));
        for _ in 0..3 {
            reporter.report(ErrorSource::Receive, Error::new(Kind::Connection, "E-CONN-02", "gone"));
        }
        reporter.close().await;
        assert_eq!(seen.load(Ordering::SeqCst), 3);
        assert!(status.borrow().last_error.as_ref().is_some_and(|error| error.code() == "E-CONN-02"));
    }
}
