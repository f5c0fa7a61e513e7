//! The errors of the client. Each message names what failed, why, and what to do.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use peeklock_amqp::{AmqpError, DecodeError, condition};
use peeklock_types::EntityName;

use crate::TargetError;

/// The reason why a connection could not be opened.
#[expect(missing_docs, reason = "every variant is documented, and its message has its fields")]
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The target could not be parsed.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// No process listens at the address.
    #[error(
        "nothing listens at {address} (connection refused). Is a broker running there? Start one with `peeklock serve`"
    )]
    Refused { address: String },
    /// The address could not be reached.
    #[error("cannot reach {address}: {source}")]
    Unreachable { address: String, source: std::io::Error },
    /// The peer did not answer in time.
    #[error("{address} did not answer within {} s; check the address, and that nothing in between drops the connection", after.as_secs())]
    NoAnswer { address: String, after: Duration },
    /// The file with trusted certificates could not be read.
    #[error("cannot read certificates from {}: {reason}", path.display())]
    Certificates { path: PathBuf, reason: String },
    /// The TLS handshake failed.
    #[error(
        "TLS with {address} failed: {reason}. If the broker made its own certificate, trust it with `--ca FILE` \
         (`certificates` in code); `peeklock serve` prints the file"
    )]
    Tls { address: String, reason: String },
    /// The broker rejected the credentials.
    #[error("{address} refuses the credentials of '{name}'; check the key's name and its secret")]
    Credentials { address: String, name: String },
    /// The peer does not follow the AMQP protocol as expected.
    #[error("{address} does not speak AMQP 1.0 as expected: {reason}")]
    Protocol { address: String, reason: String },
}

/// The reason why an operation on a connection failed. It is cheap to clone, because all pending calls of a lost connection get the same
/// error.
#[expect(missing_docs, reason = "every variant is documented, and its message has its fields")]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// The connection is lost; the client does not reconnect.
    #[error("the connection to {address} is lost: {reason}. Connect again")]
    ConnectionLost { address: Arc<str>, reason: Arc<str> },
    /// The client was closed.
    #[error("the client was closed")]
    Closed,
    /// The entity does not exist.
    #[error("{}", missing(entity))]
    NotFound { entity: Arc<str> },
    /// The credentials do not allow the operation.
    #[error("access to '{entity}' is refused: {reason}")]
    Unauthorized { entity: Arc<str>, reason: Arc<str> },
    /// The broker detached the link.
    #[error("the broker ended the link to '{entity}': {error}")]
    LinkLost { entity: Arc<str>, error: Box<AmqpError> },
    /// The connection has reached its limit of links.
    #[error("this connection has no room for another link; use a second connection")]
    TooManyLinks,
    /// The broker rejected the message.
    #[error("'{entity}' did not take the message: {error}")]
    Rejected { entity: Arc<str>, error: Box<AmqpError> },
    /// The send rate of the queue is exceeded. The same send may succeed after `retry_after`.
    #[error("'{entity}' did not take the message: {reason}")]
    Throttled { entity: Arc<str>, reason: Arc<str>, retry_after: Duration },
    /// The message exceeds the limit of the entity.
    #[error("the message has {size_bytes} bytes, but '{entity}' takes at most {max}")]
    TooLarge { entity: Arc<str>, size_bytes: usize, max: u64 },
    /// The lock on the message has expired or was released.
    #[error("the lock on the message in '{entity}' is gone ({reason}); it will be, or was, delivered again")]
    LockLost { entity: Arc<str>, reason: Arc<str> },
    /// The lock on the session has expired or was released.
    #[error("the lock on the session in '{entity}' is gone ({reason}); accept the session again")]
    SessionLockLost { entity: Arc<str>, reason: Arc<str> },
    /// Another receiver holds the session.
    #[error("the session in '{entity}' cannot be had: {reason}")]
    SessionLocked { entity: Arc<str>, reason: Arc<str> },
    /// No session became available in time.
    #[error("no session with messages became free in '{entity}' in time")]
    NoSession { entity: Arc<str> },
    /// The transaction belongs to another connection.
    #[error(
        "a transaction belongs to one connection; what is part of it must have been opened by the same client"
    )]
    OtherConnection,
    /// The transaction was rolled back.
    #[error("the transaction is rolled back, nothing of it was done: {reason}")]
    RolledBack { reason: Arc<str> },
    /// The message has no lock, so it cannot be settled.
    #[error("the message from '{entity}' was received and deleted at once, so there is nothing to settle")]
    NotLocked { entity: Arc<str> },
    /// The delivery belongs to another receiver.
    #[error("the delivery does not belong to this receiver of '{entity}'; settle it by itself")]
    OtherReceiver { entity: Arc<str> },
    /// The broker rejected the settlement.
    #[error("'{entity}' did not settle the message: {error}")]
    NotSettled { entity: Arc<str>, error: Box<AmqpError> },
    /// The broker rejected a management operation.
    #[error("the broker refused {operation} on '{entity}' with status {status}: {reason}")]
    Refused { operation: Arc<str>, entity: Arc<str>, status: i32, condition: Arc<str>, reason: Arc<str> },
    /// The broker did not answer in time.
    #[error("no answer to {operation} on '{entity}' within {} s", after.as_secs())]
    NoAnswer { operation: Arc<str>, entity: Arc<str>, after: Duration },
    /// The broker sent bytes that cannot be decoded.
    #[error("what '{entity}' sent cannot be understood: {reason}")]
    Malformed { entity: Arc<str>, reason: MalformedReason },
}

/// The defect in bytes that a broker sent.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MalformedReason {
    /// The bytes are not valid AMQP.
    #[error(transparent)]
    Encoding(#[from] DecodeError),
    /// A required part is missing or has another type.
    #[error("{0} is missing or of an unexpected type")]
    Missing(&'static str),
}

impl Error {
    /// Returns the error for a detached link. Without an error from the peer, the peer closed the link.
    pub(crate) fn link_ended(entity: &Arc<str>, error: Option<AmqpError>) -> Self {
        let entity = Arc::clone(entity);
        match error {
            Some(error) if error.condition == condition::NOT_FOUND => Error::not_found(&entity),
            Some(error) if error.condition == condition::UNAUTHORIZED_ACCESS => {
                Error::Unauthorized { entity, reason: description(&error) }
            }
            Some(error) if error.condition == condition::SESSION_LOCK_LOST => {
                Error::SessionLockLost { entity, reason: description(&error) }
            }
            Some(error) if error.condition == condition::SESSION_CANNOT_BE_LOCKED => {
                Error::SessionLocked { entity, reason: description(&error) }
            }
            // Service Bus uses this condition only for a link that waited for a session.
            Some(error) if error.condition == condition::TIMEOUT => Error::NoSession { entity },
            Some(error) => Error::LinkLost { entity, error: Box::new(error) },
            None => Error::LinkLost { entity, error: Box::new(closed_without_reason()) },
        }
    }

    /// Returns an error that names the queue, even if the request was for a part of it, such as its dead-letter queue.
    pub(crate) fn not_found(entity: &str) -> Self {
        Error::NotFound { entity: entity.split("/$").next().unwrap_or(entity).into() }
    }

    pub(crate) fn rejected(entity: &Arc<str>, error: Option<AmqpError>) -> Self {
        let error = error.unwrap_or_else(closed_without_reason);
        let entity = Arc::clone(entity);
        match retry_after(&error) {
            Some(retry_after) => Error::Throttled { entity, reason: description(&error), retry_after },
            None => Error::Rejected { entity, error: Box::new(error) },
        }
    }

    pub(crate) fn not_settled(entity: &Arc<str>, error: AmqpError) -> Self {
        let entity = Arc::clone(entity);
        match error.condition.as_str() {
            condition::MESSAGE_LOCK_LOST => Error::LockLost { entity, reason: description(&error) },
            condition::SESSION_LOCK_LOST => Error::SessionLockLost { entity, reason: description(&error) },
            _ => Error::NotSettled { entity, error: Box::new(error) },
        }
    }

    /// Returns the error for a request that the transaction coordinator rejected.
    pub(crate) fn not_committed(error: Option<AmqpError>) -> Self {
        let error = error.unwrap_or_else(closed_without_reason);
        match error.condition.as_str() {
            condition::TRANSACTION_ROLLBACK
            | condition::TRANSACTION_TIMEOUT
            | condition::TRANSACTION_UNKNOWN_ID => Error::RolledBack { reason: description(&error) },
            _ => Error::Rejected { entity: "$coordinator".into(), error: Box::new(error) },
        }
    }

    pub(crate) fn malformed(entity: &Arc<str>, reason: impl Into<MalformedReason>) -> Self {
        Error::Malformed { entity: Arc::clone(entity), reason: reason.into() }
    }
}

/// Describes the missing entity and the command that creates it.
fn missing(entity: &str) -> String {
    if let Some((hub, partition)) = entity.rsplit_once("/Partitions/") {
        return format!(
            "there is no hub '{hub}', or it has no partition {partition}; `peeklock hub show {hub}` tells"
        );
    }
    match EntityName::parse(entity).ok().as_ref().and_then(EntityName::topic_and_subscription) {
        Some((topic, name)) => format!(
            "there is no subscription '{name}' of a topic '{topic}'; create it with `peeklock subscription create {topic} {name}`, or check \
             the names"
        ),
        None => format!(
            "there is no queue, topic or hub '{entity}'; create it with `peeklock queue create {entity}`, `peeklock topic create {entity}` or \
             `peeklock hub create {entity}`, or check the name"
        ),
    }
}

fn description(error: &AmqpError) -> Arc<str> {
    match &error.description {
        Some(description) => description.as_str().into(),
        None => error.condition.as_str().into(),
    }
}

/// Returns the delay after which a busy broker accepts the message.
fn retry_after(error: &AmqpError) -> Option<Duration> {
    let info = error.info.as_ref().filter(|_| error.condition == condition::SERVER_BUSY)?;
    info.get("retry-after-ms")?.as_u64().map(Duration::from_millis)
}

fn closed_without_reason() -> AmqpError {
    AmqpError::new(condition::DETACH_FORCED, "no reason was given")
}

/// The reason why a link or a connection ended. It is set once, before pending calls are woken.
pub(crate) type Ending = Arc<OnceLock<Error>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_become_errors_with_a_remedy() {
        let entity: Arc<str> = "orders".into();
        let ended = |condition| Error::link_ended(&entity, Some(AmqpError::new(condition, "because")));
        assert_eq!(ended(condition::NOT_FOUND), Error::NotFound { entity: "orders".into() });
        assert!(ended(condition::NOT_FOUND).to_string().contains("peeklock queue create orders"));
        let missing = Error::not_found("orders/Subscriptions/audit/$DeadLetterQueue").to_string();
        assert!(missing.contains("peeklock subscription create orders audit"), "{missing}");
        assert_eq!(Error::not_found("orders/$DeadLetterQueue"), Error::NotFound { entity: "orders".into() });
        assert!(ended(condition::UNAUTHORIZED_ACCESS).to_string().ends_with("because"));
        assert!(matches!(ended(condition::INTERNAL_ERROR), Error::LinkLost { .. }));
        assert!(matches!(ended(condition::SESSION_LOCK_LOST), Error::SessionLockLost { .. }));
        assert!(matches!(ended(condition::SESSION_CANNOT_BE_LOCKED), Error::SessionLocked { .. }));
        assert!(matches!(ended(condition::TIMEOUT), Error::NoSession { .. }));
        let busy = AmqpError::new(condition::SERVER_BUSY, "over its rate");
        assert!(matches!(Error::rejected(&entity, Some(busy.clone())), Error::Rejected { .. }));
        let throttled = Error::rejected(&entity, Some(busy.with_info("retry-after-ms", 250_u64)));
        let Error::Throttled { retry_after, .. } = &throttled else { panic!("{throttled}") };
        assert_eq!(*retry_after, Duration::from_millis(250));
        assert_eq!(throttled.to_string(), "'orders' did not take the message: over its rate");
        let lost = Error::not_settled(&entity, AmqpError::new(condition::MESSAGE_LOCK_LOST, "expired"));
        assert!(lost.to_string().contains("delivered again"), "{lost}");
    }

    #[test]
    fn a_refused_connection_suggests_to_start_a_broker() {
        let text = ConnectError::Refused { address: "127.0.0.1:5672".into() }.to_string();
        assert!(text.contains("127.0.0.1:5672") && text.contains("peeklock serve"), "{text}");
    }
}
