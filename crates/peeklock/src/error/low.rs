//! Maps the errors of the low-level client to kinds, codes and texts.

use std::time::Duration;

use peeklock_amqp::{AmqpError, condition};
use peeklock_client::{ConnectError, Error as Low};

use super::{Error, Kind};
use crate::connection::is_permanent;

impl Error {
    /// Returns the error of a broker that cannot be reached after `tries` attempts.
    pub(crate) fn not_dialled(address: &str, error: ConnectError, tries: u32, elapsed: Duration) -> Self {
        if is_permanent(&error) {
            return error.into();
        }
        let tries = match tries {
            1 => "1 try".to_owned(),
            count => format!("{count} tries in {:.1} s", elapsed.as_secs_f64()),
        };
        let (why, what) = match &error {
            ConnectError::Refused { .. } => (
                "connection refused".to_owned(),
                "Nothing listens there. Start it with \"peeklock serve\", or check the address.",
            ),
            ConnectError::Unreachable { source, .. } => {
                (source.to_string(), "Check the host name, the port and the network.")
            }
            ConnectError::NoAnswer { .. } => {
                ("no answer".to_owned(), "Check the address, and that no firewall drops the connection.")
            }
            other => (other.to_string(), "Check that the port is that of a broker's AMQP listener."),
        };
        let text = format!("Cannot reach {address} ({why} after {tries}). {what}");
        Error::new(Kind::Connection, "E-CONN-01", text).transient(None).caused_by(error)
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        let text = sentence(&error);
        let (kind, code) = match &error {
            ConnectError::Target(_) => (Kind::Target, "E-CONN-04"),
            ConnectError::Credentials { .. } => (Kind::Unauthorized, "E-AUTH-01"),
            ConnectError::Certificates { .. } => (Kind::Invalid, "E-TLS-02"),
            ConnectError::Tls { .. } => (Kind::Connection, "E-TLS-01"),
            _ => return Error::new(Kind::Connection, "E-CONN-01", text).transient(None).caused_by(error),
        };
        Error::new(kind, code, text).caused_by(error)
    }
}

impl From<Low> for Error {
    fn from(error: Low) -> Self {
        let mapped = match &error {
            Low::ConnectionLost { address, reason } => {
                let text = format!(
                    "The connection to {address} was lost ({reason}). The client connects again with the next call."
                );
                Error::new(Kind::Connection, "E-CONN-02", text).transient(None)
            }
            Low::Closed => Error::closed(),
            Low::NoAnswer { operation, entity, after } => {
                let text = format!(
                    "The broker did not answer {operation} for \"{entity}\" within {} s. The operation may have taken effect. Try again.",
                    after.as_secs()
                );
                Error::new(Kind::Connection, "E-CONN-05", text).transient(None)
            }
            Low::TooManyLinks => Error::new(
                Kind::Busy,
                "E-CONN-06",
                "This connection has no room for another link. Close receivers and senders that are not used, or connect a second client.",
            ),
            Low::NotFound { .. } => Error::new(Kind::NotFound, "E-ENT-04", sentence(&error)),
            Low::Unauthorized { entity, reason } => Error::new(
                Kind::Unauthorized,
                "E-AUTH-03",
                format!("Access to \"{entity}\" was refused: {reason}. Use a key with the right that is missing."),
            ),
            Low::LinkLost { entity, error } => link_lost(entity, error),
            Low::Rejected { entity, error } => rejected(entity, error),
            Low::Throttled { entity, reason, retry_after } => {
                let text = format!(
                    "\"{entity}\" does not accept the message now: {reason}. Send again after {} ms.",
                    retry_after.as_millis()
                );
                Error::new(Kind::Busy, "E-BUSY-01", text).transient(Some(*retry_after))
            }
            Low::TooLarge { entity, size_bytes, max } => Error::too_large(entity, *size_bytes, *max),
            Low::LockLost { entity, reason } => Error::new(
                Kind::LockLost,
                "E-LOCK-01",
                format!(
                    "The lock of the message in \"{entity}\" was lost: {}. The message will be delivered again, or was already. \
                     Renew the lock while the work runs, or raise the lock duration of the queue.",
                    reason.trim_end_matches('.')
                ),
            ),
            Low::SessionLockLost { entity, reason } => Error::session_lost(entity, reason),
            Low::SessionLocked { entity, reason } => Error::new(
                Kind::NoSession,
                "E-SESS-04",
                format!("The session in \"{entity}\" is not available: {reason}. Try again when its holder has released it."),
            )
            .transient(None),
            Low::NoSession { entity } => Error::new(
                Kind::NoSession,
                "E-SESS-05",
                format!("No session with messages became available in \"{entity}\" in time. Try again, or wait longer."),
            )
            .transient(None),
            Low::OtherConnection => Error::new(
                Kind::RolledBack,
                "E-TX-02",
                "The transaction was rolled back, because the connection on which it began was lost. Nothing of it was done. Begin it again.",
            )
            .transient(None),
            Low::RolledBack { reason } => Error::new(
                Kind::RolledBack,
                "E-TX-01",
                format!("The transaction was rolled back: {reason}. Nothing of it was done. Begin it again."),
            )
            .transient(None),
            Low::NotLocked { .. } | Low::OtherReceiver { .. } => {
                Error::new(Kind::Invalid, "E-LOCK-03", sentence(&error))
            }
            Low::NotSettled { entity, error } => Error::new(
                Kind::Rejected,
                "E-LOCK-04",
                format!("\"{entity}\" rejected the settlement: {}. The message stays locked until its lock expires.", reason_of(error)),
            ),
            Low::Refused { operation, entity, status, condition, reason } => {
                refused(operation, entity, *status, condition, reason)
            }
            Low::Malformed { .. } => Error::new(Kind::Malformed, "E-DATA-01", sentence(&error)),
        };
        mapped.caused_by(error)
    }
}

/// Maps the end of a link.
fn link_lost(entity: &str, error: &AmqpError) -> Error {
    let reason = reason_of(error);
    match error.condition.as_str() {
        condition::ENTITY_DISABLED => disabled(entity, &reason),
        condition::NOT_ALLOWED if needs_session(&reason) => Error::needs_session(entity),
        condition::NOT_ALLOWED | condition::NOT_IMPLEMENTED => Error::new(
            Kind::WrongEntity,
            "E-ENT-06",
            format!("\"{entity}\" does not support this: {reason}. Use an entity of the right kind."),
        ),
        condition::RESOURCE_DELETED => Error::new(
            Kind::NotFound,
            "E-ENT-04",
            format!("\"{entity}\" was deleted. Create it with \"peeklock queue create {entity}\", or check the name."),
        ),
        condition::RESOURCE_LIMIT_EXCEEDED => limit_reached(entity, &reason),
        condition::STOLEN => Error::new(
            Kind::Closed,
            "E-CONN-08",
            format!("Another receiver took over the link to \"{entity}\": {reason}. Use one exclusive receiver at a time."),
        ),
        condition::ARGUMENT_ERROR | condition::ARGUMENT_OUT_OF_RANGE | condition::INVALID_FIELD => {
            Error::new(Kind::Invalid, "E-REJ-01", format!("\"{entity}\" rejected the link: {reason}. Check the options."))
        }
        condition::MESSAGE_SIZE_EXCEEDED => Error::new(
            Kind::TooLarge,
            "E-SIZE-01",
            format!("A message exceeds the limit of \"{entity}\": {reason}. Send smaller messages, or raise the limit."),
        ),
        _ => Error::new(
            Kind::Connection,
            "E-CONN-07",
            format!("The broker ended the link to \"{entity}\": {reason}. The client attaches again with the next call."),
        )
        .transient(None),
    }
}

fn rejected(entity: &str, error: &AmqpError) -> Error {
    let reason = reason_of(error);
    match error.condition.as_str() {
        condition::SERVER_BUSY
        | condition::TIMEOUT
        | condition::INTERNAL_ERROR
        | condition::OPERATION_CANCELLED => {
            let text = format!("\"{entity}\" does not accept the message now: {reason}. Send it again.");
            Error::new(Kind::Busy, "E-BUSY-01", text).transient(None)
        }
        condition::RESOURCE_LIMIT_EXCEEDED => limit_reached(entity, &reason),
        condition::ENTITY_DISABLED => disabled(entity, &reason),
        condition::UNAUTHORIZED_ACCESS => Error::new(
            Kind::Unauthorized,
            "E-AUTH-03",
            format!(
                "Access to \"{entity}\" was refused: {reason}. Use a key with the right that is missing."
            ),
        ),
        condition::MESSAGE_SIZE_EXCEEDED => Error::new(
            Kind::TooLarge,
            "E-SIZE-01",
            format!(
                "The message exceeds the limit of \"{entity}\": {reason}. Send a smaller message, or raise the limit."
            ),
        ),
        _ => Error::new(
            Kind::Rejected,
            "E-REJ-02",
            format!(
                "\"{entity}\" rejected the message: {reason}. Change the message, or the settings of the entity."
            ),
        ),
    }
}

fn refused(operation: &str, entity: &str, status: i32, condition: &str, reason: &str) -> Error {
    match condition {
        condition::SERVER_BUSY | condition::TIMEOUT | condition::INTERNAL_ERROR => {
            let text =
                format!("The broker did not execute {operation} for \"{entity}\": {reason}. Try again.");
            Error::new(Kind::Busy, "E-BUSY-01", text).transient(None)
        }
        condition::MESSAGE_NOT_FOUND => Error::new(
            Kind::NotFound,
            "E-DATA-03",
            format!(
                "The message does not exist in \"{entity}\": {reason}. It may be settled, or have expired. Check the sequence number."
            ),
        ),
        condition::RESOURCE_LIMIT_EXCEEDED => limit_reached(entity, reason),
        condition::ENTITY_DISABLED => disabled(entity, reason),
        condition::NOT_ALLOWED if needs_session(reason) => Error::needs_session(entity),
        _ => Error::new(
            Kind::Rejected,
            "E-REJ-03",
            format!("The broker refused {operation} for \"{entity}\" with status {status}: {reason}."),
        ),
    }
}

fn disabled(entity: &str, reason: &str) -> Error {
    let text =
        format!("\"{entity}\" is disabled: {reason}. Set its status to active, or wait until somebody does.");
    Error::new(Kind::WrongEntity, "E-ENT-05", text)
}

fn limit_reached(entity: &str, reason: &str) -> Error {
    let text =
        format!("\"{entity}\" has reached a limit: {reason}. Receive messages from it, or raise the limit.");
    Error::new(Kind::Busy, "E-BUSY-02", text)
}

/// Returns whether an error text is that of a receiver without a session on a queue with sessions, from Peeklock or Service Bus.
fn needs_session(reason: &str) -> bool {
    reason.contains("requires sessions") || reason.contains("non-sessionful")
}

fn reason_of(error: &AmqpError) -> String {
    let text = error.description.as_ref().map_or(error.condition.as_str(), |text| text.as_str());
    text.trim_end_matches('.').to_owned()
}

/// Writes a text of the low-level client as a sentence.
fn sentence(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    let mut chars = text.chars();
    let first = chars.next().map(char::to_uppercase);
    let end = if text.ends_with('.') { "" } else { "." };
    first.into_iter().flatten().chain(chars).chain(end.chars()).collect()
}
