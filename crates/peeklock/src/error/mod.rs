//! The errors of the SDK. Each has a kind for programs and a code to search for; its text says what happened, why, and what to do.

mod codes;
mod low;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use codes::{CODES, Code};

/// The error of an operation. It is cheap to clone.
#[derive(Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    kind: Kind,
    code: &'static str,
    text: String,
    is_transient: bool,
    retry_after: Option<Duration>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The connection string cannot be used.
    Target,
    /// The broker cannot be reached, or the connection was lost for longer than the retries allow.
    Connection,
    /// The credentials are wrong or lack a right.
    Unauthorized,
    /// The entity does not exist.
    NotFound,
    /// The entity exists already.
    Exists,
    /// The entity was changed by another request in the meantime.
    Changed,
    /// The entity is disabled or of another kind than the operation needs, such as a queue with sessions.
    WrongEntity,
    /// The lock on a message or session is lost.
    LockLost,
    /// No session was available in time.
    NoSession,
    /// The message or batch exceeds a limit.
    TooLarge,
    /// The broker limits the rate, or is full.
    Busy,
    /// The broker rejected the message or the request.
    Rejected,
    /// A transaction was rolled back.
    RolledBack,
    /// A body or a response cannot be decoded.
    Malformed,
    /// An option is invalid.
    Invalid,
    /// The handle, the client or the processor is closed.
    Closed,
    /// A handler failed.
    Handler,
    /// A handler panicked.
    Panic,
    /// A handler exceeded its time.
    Timeout,
    /// A handler returned without settling its message, although auto-complete is off.
    NotSettled,
    /// The embedded broker failed, or its data directory is in use.
    Embedded,
}

impl Error {
    pub(crate) fn new(kind: Kind, code: &'static str, text: impl Into<String>) -> Self {
        let (is_transient, retry_after, source) = (false, None, None);
        Error { inner: Arc::new(Inner { kind, code, text: text.into(), is_transient, retry_after, source }) }
    }

    /// Marks the error as one that may pass, after `retry_after` if the broker named a time.
    pub(crate) fn transient(self, retry_after: Option<Duration>) -> Self {
        self.changed(|inner| Inner { is_transient: true, retry_after, ..inner })
    }

    /// Adds the cause, for [`std::error::Error::source`].
    pub(crate) fn caused_by(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.changed(|inner| Inner { source: Some(Arc::new(source)), ..inner })
    }

    fn changed(self, change: impl FnOnce(Inner) -> Inner) -> Self {
        let inner = Arc::unwrap_or_clone(self.inner);
        Error { inner: Arc::new(change(inner)) }
    }

    /// Returns the error of every call after [`Client::close`](crate::Client::close).
    pub(crate) fn closed() -> Self {
        Error::new(Kind::Closed, "E-CONN-03", "The client was closed. Connect again with Client::connect.")
    }

    /// Returns the error of a receiver without a session on a queue with sessions.
    pub(crate) fn needs_session(entity: &str) -> Self {
        let text = format!(
            "Queue \"{entity}\" requires sessions but this receiver has none. Use session_processor(\"{entity}\") or \
             receiver(\"{entity}\").session(id)."
        );
        Error::new(Kind::WrongEntity, "E-SESS-02", text)
    }

    /// Returns the error of a session whose hold has ended.
    pub(crate) fn session_lost(entity: &str, reason: &str) -> Self {
        let reason = reason.trim_end_matches('.');
        let text = format!(
            "The lock of the session in \"{entity}\" was lost: {reason}. Messages of the session that were not settled will be delivered \
             again. Accept the session again."
        );
        Error::new(Kind::LockLost, "E-SESS-03", text)
    }

    /// Returns the error of a message or batch that exceeds the limit of its entity.
    pub(crate) fn too_large(entity: &str, size_bytes: usize, max: u64) -> Self {
        let text = format!(
            "Message of {} bytes exceeds the limit of {} for \"{entity}\". Send the content as a file and pass a reference, split the \
             batch, or raise max-message-size.",
            grouped(size_bytes as u64),
            grouped(max)
        );
        Error::new(Kind::TooLarge, "E-SIZE-01", text)
    }

    /// Returns whether the SDK retries the call by itself. An error of a connection that could not be dialled comes after its own retries, and a
    /// transaction must be begun again by its owner.
    pub(crate) fn is_retried(&self) -> bool {
        let has_passed_retries = self.code() == "E-CONN-01";
        self.is_transient() && !has_passed_retries && matches!(self.kind(), Kind::Connection | Kind::Busy)
    }

    /// Returns the kind, for programs.
    pub fn kind(&self) -> Kind {
        self.inner.kind
    }

    /// Returns the stable code, such as `E-CONN-01`. Each code has an entry in the documentation.
    pub fn code(&self) -> &'static str {
        self.inner.code
    }

    /// Returns whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        self.inner.is_transient
    }

    /// Returns the delay after which the broker accepts the call, if it named one.
    pub fn retry_after(&self) -> Option<Duration> {
        self.inner.retry_after
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.inner.code, self.inner.text)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}, {self})", self.inner.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.inner.source.as_deref().map(|source| source as _)
    }
}

/// Writes a number with commas between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_code_in_front_of_its_text() {
        let error = Error::too_large("orders", 1_310_720, 1_048_576);
        assert_eq!(
            error.to_string(),
            "E-SIZE-01 Message of 1,310,720 bytes exceeds the limit of 1,048,576 for \"orders\". Send the content as a file and pass a \
             reference, split the batch, or raise max-message-size."
        );
        assert_eq!((error.kind(), error.is_transient()), (Kind::TooLarge, false));
        assert_eq!((grouped(0), grouped(999), grouped(1000)), ("0".into(), "999".into(), "1,000".into()));
    }

    #[test]
    fn a_queue_with_sessions_is_named_with_the_remedy() {
        let text = Error::needs_session("chat").to_string();
        assert_eq!(
            text,
            "E-SESS-02 Queue \"chat\" requires sessions but this receiver has none. Use session_processor(\"chat\") or \
             receiver(\"chat\").session(id)."
        );
    }
}
