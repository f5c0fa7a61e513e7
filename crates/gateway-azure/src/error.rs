//! The one table from what went wrong inside to what a peer is told.

use peeklock_amqp::{AmqpError, condition};
use peeklock_broker::{Error, engine};
use peeklock_types::{EntityPath, NameError};

/// A refusal on its way to the peer: the condition that SDKs map to their exceptions, and the status that management answers with.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: i32,
    pub(crate) condition: &'static str,
    pub(crate) description: String,
}

impl Refusal {
    pub(crate) fn new(status: i32, condition: &'static str, description: impl Into<String>) -> Self {
        Refusal { status, condition, description: description.into() }
    }

    pub(crate) fn bad_request(description: impl Into<String>) -> Self {
        Refusal::new(400, condition::ARGUMENT_ERROR, description)
    }

    pub(crate) fn unauthorized(description: impl Into<String>) -> Self {
        Refusal::new(401, condition::UNAUTHORIZED_ACCESS, description)
    }

    pub(crate) fn not_implemented(description: impl Into<String>) -> Self {
        Refusal::new(501, condition::NOT_IMPLEMENTED, description)
    }

    pub(crate) fn not_allowed(description: impl Into<String>) -> Self {
        Refusal::new(400, condition::NOT_ALLOWED, description)
    }

    /// SDK quirk: JavaScript knows a missing entity only by this sentence, whatever the condition. Used for nothing else.
    pub(crate) fn no_such_entity(name: impl std::fmt::Display) -> Self {
        let text = format!(
            "The messaging entity '{name}' could not be found. Create it with: peeklock queue create {name}"
        );
        Refusal::new(404, condition::NOT_FOUND, text)
    }

    pub(crate) fn stopped(reason: &str) -> Self {
        let text = format!("this part of the broker has stopped and must be restarted: {reason}");
        Refusal::new(500, condition::INTERNAL_ERROR, text)
    }
}

impl From<Refusal> for AmqpError {
    fn from(refusal: Refusal) -> Self {
        AmqpError::new(refusal.condition, refusal.description)
    }
}

impl From<NameError> for Refusal {
    fn from(error: NameError) -> Self {
        Refusal::new(404, condition::NOT_FOUND, error.to_string())
    }
}

/// `path` is what the peer was talking to.
pub(crate) fn refusal(error: &Error, path: Option<&EntityPath>) -> Refusal {
    let text = error.to_string();
    match error {
        Error::DiskFull => Refusal::new(403, condition::RESOURCE_LIMIT_EXCEEDED, text),
        Error::TooLarge { .. } => Refusal::new(400, condition::MESSAGE_SIZE_EXCEEDED, text),
        Error::Engine(error) => engine_refusal(error, path, text),
    }
}

fn engine_refusal(error: &engine::Error, path: Option<&EntityPath>, text: String) -> Refusal {
    use engine::Error as E;
    match error {
        E::NoSuchQueue { name } => Refusal::no_such_entity(name),
        E::NoSuchEntity { .. } => match path {
            Some(path) => Refusal::no_such_entity(path),
            None => Refusal::new(404, condition::NOT_FOUND, text),
        },
        E::AlreadyExists { .. } => Refusal::new(409, condition::ENTITY_ALREADY_EXISTS, text),
        E::LockLost { .. } => Refusal::new(410, condition::MESSAGE_LOCK_LOST, text),
        E::NotFound { .. } => Refusal::new(404, condition::MESSAGE_NOT_FOUND, text),
        E::NoEntityLeft | E::NoSequenceNumberLeft { .. } => {
            Refusal::new(403, condition::RESOURCE_LIMIT_EXCEEDED, text)
        }
        E::Settings(_)
        | E::Nothing
        | E::TooMany { .. }
        | E::TooMuch { .. }
        | E::Repeated { .. }
        | E::PatchTooLarge { .. }
        | E::TextTooLong { .. } => Refusal::new(400, condition::ARGUMENT_OUT_OF_RANGE, text),
        E::ReceiverExists { .. } | E::BodyOrder { .. } => Refusal::new(500, condition::INTERNAL_ERROR, text),
    }
}
