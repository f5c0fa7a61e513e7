//! The errors of the SDK. Each has a kind for programs and a code to search for; its text says what happened, why, and what to do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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

impl Error {
    fn with_source(
        kind: Kind,
        code: &'static str,
        is_transient: bool,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        let error = Error::new(kind, code, source.to_string());
        let error = if is_transient { error.transient(None) } else { error };
        error.caused_by(source)
    }
}

impl From<peeklock_client::Error> for Error {
    fn from(error: peeklock_client::Error) -> Self {
        use peeklock_client::Error as Low;
        let (kind, code, is_transient) = match &error {
            Low::ConnectionLost { .. } | Low::NoAnswer { .. } => (Kind::Connection, "E-CONN-02", true),
            Low::Closed => (Kind::Closed, "E-CONN-03", false),
            Low::NotFound { .. } => (Kind::NotFound, "E-ENT-04", false),
            Low::Unauthorized { .. } => (Kind::Unauthorized, "E-AUTH-03", false),
            Low::LockLost { .. } => (Kind::LockLost, "E-LOCK-01", false),
            Low::SessionLockLost { .. } => (Kind::LockLost, "E-SESS-03", false),
            Low::SessionLocked { .. } => (Kind::NoSession, "E-SESS-04", true),
            Low::NoSession { .. } => (Kind::NoSession, "E-SESS-05", true),
            Low::TooLarge { .. } => (Kind::TooLarge, "E-SIZE-01", false),
            Low::Throttled { .. } => (Kind::Busy, "E-BUSY-01", true),
            Low::RolledBack { .. } => (Kind::RolledBack, "E-TX-01", true),
            Low::Malformed { .. } => (Kind::Malformed, "E-DATA-01", false),
            _ => (Kind::Rejected, "E-REJ-01", false),
        };
        Error::with_source(kind, code, is_transient, error)
    }
}

impl From<peeklock_client::ConnectError> for Error {
    fn from(error: peeklock_client::ConnectError) -> Self {
        use peeklock_client::ConnectError as Low;
        let (kind, code, is_transient) = match &error {
            Low::Target(_) => (Kind::Target, "E-CONN-04", false),
            Low::Credentials { .. } => (Kind::Unauthorized, "E-AUTH-01", false),
            Low::Certificates { .. } => (Kind::Invalid, "E-TLS-02", false),
            Low::Tls { .. } => (Kind::Connection, "E-TLS-01", false),
            _ => (Kind::Connection, "E-CONN-01", true),
        };
        Error::with_source(kind, code, is_transient, error)
    }
}
