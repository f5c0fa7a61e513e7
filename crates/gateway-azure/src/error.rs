//! Maps internal errors to the AMQP errors that a peer receives.

use std::time::Duration;

use peeklock_amqp::{AmqpError, condition};
use peeklock_broker::engine::{self, CloseReason};
use peeklock_broker::{BEHIND_RETRY_AFTER, Error};
use peeklock_message::{PatchError, StoreError};
use peeklock_types::{EntityName, EntityPath, NameError, SessionIdError};

use crate::hub::hub_refusal;

const DESCRIPTION_CHARS_MAX: usize = 1000;

/// An error for the peer: the condition that SDKs map to their exceptions, and the status of management responses.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: i32,
    pub(crate) condition: &'static str,
    pub(crate) description: String,
    /// The time after which a retry may succeed.
    pub(crate) retry_after: Option<Duration>,
}

/// The start of the service's error texts about entities.
pub(crate) const ENTITY: &str = "The messaging entity '";

/// The key for the milliseconds until a retry, in the info of an error and in the properties of a management response.
pub(crate) const RETRY_AFTER_MS: &str = "retry-after-ms";

impl Refusal {
    pub(crate) fn new(status: i32, condition: &'static str, description: impl Into<String>) -> Self {
        Refusal { status, condition, description: description.into(), retry_after: None }
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

    /// Returns the error for a missing entity.
    /// SDK quirk: JavaScript and .NET identify a missing entity by this text, whatever the condition, so no other error
    /// uses it.
    pub(crate) fn no_such_entity(name: &EntityName) -> Self {
        let command = match name.topic_and_subscription() {
            Some((topic, subscription)) => format!("peeklock subscription create {topic} {subscription}"),
            None => format!(
                "peeklock queue create {name}, or peeklock topic create {name}, or peeklock hub create {name}"
            ),
        };
        let text = format!("{ENTITY}{name}' could not be found. Create it with: {command}");
        Refusal::new(404, condition::NOT_FOUND, text)
    }

    /// Returns the error for an entity that already exists. Programs search for "already exists" in the service's text.
    fn already_exists(entity: &dyn std::fmt::Display, hint: &str) -> Self {
        Refusal::new(
            409,
            condition::ENTITY_ALREADY_EXISTS,
            format!("{ENTITY}{entity}' already exists. {hint}"),
        )
    }

    /// Puts the host in front of the name in an error text about an entity, as the service does.
    pub(crate) fn at(mut self, host: &str) -> Self {
        if let Some(rest) = self.description.strip_prefix(ENTITY) {
            self.description = format!("{ENTITY}sb://{host}/{rest}");
        }
        self
    }

    pub(crate) fn too_many_links() -> Self {
        let text = "this connection has too many links; detach some, or open another connection";
        Refusal::new(403, condition::RESOURCE_LIMIT_EXCEEDED, text)
    }

    /// Returns the error for a request without a readable reply address.
    pub(crate) fn unreadable(error: &dyn std::fmt::Display) -> Self {
        Refusal::new(400, condition::DECODE_ERROR, format!("the request cannot be read: {error}"))
    }

    pub(crate) fn no_way_back(reply_to: Option<&str>) -> Self {
        let reply_to = reply_to.unwrap_or("(not given)");
        let text = format!(
            "no link takes the response: its reply-to is {reply_to}; attach a receiver with that target address first"
        );
        Refusal::new(400, condition::INVALID_FIELD, text)
    }

    pub(crate) fn session_lock_lost(path: &EntityPath) -> Self {
        let text = format!("the lock on the session of '{path}' is not held; accept the session again");
        Refusal::new(410, condition::SESSION_LOCK_LOST, text)
    }

    pub(crate) fn stopped(reason: &str) -> Self {
        let text = format!("this part of the broker has stopped and must be restarted: {reason}");
        Refusal::new(500, condition::INTERNAL_ERROR, text)
    }
}

impl From<Refusal> for AmqpError {
    fn from(refusal: Refusal) -> Self {
        // The description contains texts that peers chose, and must fit into one frame.
        let end = refusal.description.char_indices().nth(DESCRIPTION_CHARS_MAX).map(|(at, _)| at);
        let mut description = refusal.description;
        description.truncate(end.unwrap_or(usize::MAX));
        let error = AmqpError::new(refusal.condition, description);
        match refusal.retry_after {
            Some(span) => error.with_info(RETRY_AFTER_MS, in_millis(span)),
            None => error,
        }
    }
}

/// Returns the span in milliseconds, rounded up, so that a peer that waits this long does not retry too early.
pub(crate) fn in_millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl From<NameError> for Refusal {
    fn from(error: NameError) -> Self {
        Refusal::new(404, condition::NOT_FOUND, error.to_string())
    }
}

/// Maps the reason why a message was not stored.
impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let condition = match error {
            StoreError::Unreadable(_) => condition::DECODE_ERROR,
            StoreError::Session(error) => return error.into(),
            StoreError::LongMessageId { .. } => condition::ARGUMENT_OUT_OF_RANGE,
            StoreError::ScheduledTime => condition::INVALID_FIELD,
            StoreError::LargeView { .. } => condition::MESSAGE_SIZE_EXCEEDED,
        };
        Refusal::new(400, condition, error.to_string())
    }
}

impl From<PatchError> for Refusal {
    fn from(error: PatchError) -> Self {
        Refusal::bad_request(error.to_string())
    }
}

impl From<SessionIdError> for Refusal {
    fn from(error: SessionIdError) -> Self {
        Refusal::new(400, condition::ARGUMENT_OUT_OF_RANGE, error.to_string())
    }
}

/// Returns the error for a receiver that the shard has detached.
pub(crate) fn close_refusal(reason: CloseReason, path: &EntityPath) -> Refusal {
    match reason {
        CloseReason::Deleted => Refusal::no_such_entity(&path.name),
        CloseReason::Disabled => {
            let text = format!("'{path}' is disabled for receiving; set its status to active");
            Refusal::new(403, condition::ENTITY_DISABLED, text)
        }
        CloseReason::SessionLockLost => Refusal::session_lock_lost(path),
        CloseReason::NoSession => refusal(&Error::NoSession, Some(path)),
    }
}

/// Returns the error for the peer. `path` is the entity of the link or request.
pub(crate) fn refusal(error: &Error, path: Option<&EntityPath>) -> Refusal {
    let text = error.to_string();
    match error {
        Error::DiskFull | Error::Quota(_) => Refusal::new(403, condition::RESOURCE_LIMIT_EXCEEDED, text),
        Error::Behind => {
            let refusal = Refusal::new(503, condition::SERVER_BUSY, text);
            Refusal { retry_after: Some(BEHIND_RETRY_AFTER), ..refusal }
        }
        Error::TooLarge { .. } => Refusal::new(400, condition::MESSAGE_SIZE_EXCEEDED, text),
        Error::NameOfQueueGroup { .. } | Error::NameTaken { .. } => {
            Refusal::new(409, condition::ENTITY_ALREADY_EXISTS, text)
        }
        Error::NotKept(_) => Refusal::new(500, condition::INTERNAL_ERROR, text),
        // SDKs treat this as "no session yet" and retry.
        Error::NoSession => Refusal::new(408, condition::TIMEOUT, text),
        // SDKs retry after this, and then receive the current error of the queue.
        Error::Gone { .. } => Refusal::new(410, condition::DETACH_FORCED, text),
        Error::Engine(error) => engine_refusal(error, path, text),
        Error::Hub(error) => hub_refusal(error, None),
        // AMQP clients do not use blobs, create no entities and do not set the size of messages.
        Error::Blob(_) | Error::Name(_) | Error::StandardTier { .. } => {
            Refusal::new(400, condition::ARGUMENT_ERROR, text)
        }
    }
}

fn engine_refusal(error: &engine::Error, path: Option<&EntityPath>, text: String) -> Refusal {
    use engine::Error as E;
    let (status, condition) = match error {
        E::NoSuchQueue { name } => return Refusal::no_such_entity(name),
        E::NoSuchEntity { .. } => match path {
            Some(path) => return Refusal::no_such_entity(&path.name),
            None => (404, condition::NOT_FOUND),
        },
        E::NoSuchTopic { name } => return Refusal::no_such_entity(name),
        E::NoSuchRule { .. } => (404, condition::NOT_FOUND),
        E::RuleExists { name, rule } => {
            let hint = "Remove the rule first, or give another name";
            return Refusal::already_exists(&format_args!("{name}/Rules/{rule}"), hint);
        }
        E::RevisionChanged { .. } => (412, condition::PRECONDITION_FAILED),
        E::TopicFull { .. } | E::TooManyCopies { .. } | E::TooManyEvaluations { .. } => {
            (403, condition::RESOURCE_LIMIT_EXCEEDED)
        }
        E::Rule(_) | E::OrderExpression { .. } => (400, condition::ARGUMENT_ERROR),
        E::StillSending { .. } => (503, condition::SERVER_BUSY),
        // SDKs wait briefly after this condition and then retry by themselves.
        E::Throttled { retry_after, .. } => {
            let refusal = Refusal::new(503, condition::SERVER_BUSY, text);
            return Refusal { retry_after: Some(*retry_after), ..refusal };
        }
        E::AlreadyExists { name, kind, .. } => {
            return Refusal::already_exists(name, &format!("It is a {kind}"));
        }
        E::LockLost { .. } | E::ReceiptLost { .. } => (410, condition::MESSAGE_LOCK_LOST),
        E::SessionLockLost { .. } => (410, condition::SESSION_LOCK_LOST),
        E::SessionLocked { .. } => (409, condition::SESSION_CANNOT_BE_LOCKED),
        E::NotFound { .. } | E::NotScheduled { .. } | E::NoSuchMessage { .. } => {
            (404, condition::MESSAGE_NOT_FOUND)
        }
        E::QueueFull { .. } | E::NoEntityLeft | E::NoSequenceNumberLeft { .. } => {
            (403, condition::RESOURCE_LIMIT_EXCEEDED)
        }
        E::MessageTooLarge { .. } | E::PropertiesTooLarge { .. } => (400, condition::MESSAGE_SIZE_EXCEEDED),
        E::Disabled { .. } => (403, condition::ENTITY_DISABLED),
        E::Forwards { .. }
        | E::OtherKind { .. }
        | E::IsTopic { .. }
        | E::IsSubscription { .. }
        | E::NoRules { .. }
        | E::TooLargeToTake { .. }
        | E::DeadLetteredAlready { .. }
        | E::NoAddress { .. }
        | E::SessionRequired { .. }
        | E::NoSessions { .. }
        | E::RenewSession { .. } => (400, condition::NOT_ALLOWED),
        E::Settings(_)
        | E::Nothing
        | E::TooMany { .. }
        | E::TooMuch { .. }
        | E::Repeated { .. }
        | E::PatchTooLarge { .. }
        | E::TextTooLong { .. }
        | E::StateTooLarge { .. }
        | E::MessageIdTooLong { .. }
        | E::NoTimeToLive
        | E::HiddenTooLong { .. }
        | E::MetadataTooLarge { .. }
        | E::TooFarAhead => (400, condition::ARGUMENT_OUT_OF_RANGE),
        E::ReceiverExists { .. } | E::BodyOrder { .. } => (500, condition::INTERNAL_ERROR),
    };
    Refusal::new(status, condition, text)
}
