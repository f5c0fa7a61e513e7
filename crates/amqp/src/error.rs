//! The error of AMQP, and the names of its conditions.

use std::fmt;

use crate::codec::composite;
use crate::text::{Symbol, Text};
use crate::value::{Fields, Value};

composite! {
    /// The reason why a link, session, connection or delivery failed.
    pub struct AmqpError: 0x1d {
        pub condition: Symbol,
        pub description: Option<Text>,
        pub info: Option<Fields>,
    }
}

impl AmqpError {
    pub fn new(condition: &'static str, description: impl Into<Text>) -> Self {
        Self { condition: condition.into(), description: Some(description.into()), info: None }
    }

    #[must_use]
    pub fn with_info(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.info.get_or_insert_default().insert(key, value);
        self
    }
}

impl fmt::Display for AmqpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.description {
            Some(description) => write!(f, "{}: {description}", self.condition),
            None => write!(f, "{}", self.condition),
        }
    }
}

impl std::error::Error for AmqpError {}

/// Error conditions: those of the standard, and those of Service Bus and Event Hubs.
pub mod condition {
    pub const INTERNAL_ERROR: &str = "amqp:internal-error";
    pub const NOT_FOUND: &str = "amqp:not-found";
    pub const UNAUTHORIZED_ACCESS: &str = "amqp:unauthorized-access";
    pub const DECODE_ERROR: &str = "amqp:decode-error";
    pub const RESOURCE_LIMIT_EXCEEDED: &str = "amqp:resource-limit-exceeded";
    pub const NOT_ALLOWED: &str = "amqp:not-allowed";
    pub const INVALID_FIELD: &str = "amqp:invalid-field";
    pub const NOT_IMPLEMENTED: &str = "amqp:not-implemented";
    pub const RESOURCE_LOCKED: &str = "amqp:resource-locked";
    pub const PRECONDITION_FAILED: &str = "amqp:precondition-failed";
    pub const RESOURCE_DELETED: &str = "amqp:resource-deleted";
    pub const ILLEGAL_STATE: &str = "amqp:illegal-state";
    pub const FRAME_SIZE_TOO_SMALL: &str = "amqp:frame-size-too-small";

    pub const CONNECTION_FORCED: &str = "amqp:connection:forced";
    pub const FRAMING_ERROR: &str = "amqp:connection:framing-error";
    pub const CONNECTION_REDIRECT: &str = "amqp:connection:redirect";

    pub const WINDOW_VIOLATION: &str = "amqp:session:window-violation";
    pub const ERRANT_LINK: &str = "amqp:session:errant-link";
    pub const HANDLE_IN_USE: &str = "amqp:session:handle-in-use";
    pub const UNATTACHED_HANDLE: &str = "amqp:session:unattached-handle";

    pub const DETACH_FORCED: &str = "amqp:link:detach-forced";
    pub const TRANSFER_LIMIT_EXCEEDED: &str = "amqp:link:transfer-limit-exceeded";
    pub const MESSAGE_SIZE_EXCEEDED: &str = "amqp:link:message-size-exceeded";
    pub const LINK_REDIRECT: &str = "amqp:link:redirect";
    pub const STOLEN: &str = "amqp:link:stolen";

    pub const TRANSACTION_UNKNOWN_ID: &str = "amqp:transaction:unknown-id";
    pub const TRANSACTION_ROLLBACK: &str = "amqp:transaction:rollback";
    pub const TRANSACTION_TIMEOUT: &str = "amqp:transaction:timeout";

    pub const TIMEOUT: &str = "com.microsoft:timeout";
    pub const SERVER_BUSY: &str = "com.microsoft:server-busy";
    pub const CONTAINER_CLOSE: &str = "com.microsoft:container-close";
    pub const OPERATION_CANCELLED: &str = "com.microsoft:operation-cancelled";
    pub const MESSAGE_LOCK_LOST: &str = "com.microsoft:message-lock-lost";
    pub const SESSION_LOCK_LOST: &str = "com.microsoft:session-lock-lost";
    pub const SESSION_CANNOT_BE_LOCKED: &str = "com.microsoft:session-cannot-be-locked";
    pub const MESSAGE_NOT_FOUND: &str = "com.microsoft:message-not-found";
    pub const ENTITY_DISABLED: &str = "com.microsoft:entity-disabled";
    pub const ENTITY_ALREADY_EXISTS: &str = "com.microsoft:entity-already-exists";
    pub const AUTH_FAILED: &str = "com.microsoft:auth-failed";
    pub const ARGUMENT_ERROR: &str = "com.microsoft:argument-error";
    pub const ARGUMENT_OUT_OF_RANGE: &str = "com.microsoft:argument-out-of-range";
    pub const MICROSOFT_PRECONDITION_FAILED: &str = "com.microsoft:precondition-failed";
    pub const NO_MATCHING_SUBSCRIPTION: &str = "com.microsoft:no-matching-subscription";
    pub const PARTITION_NOT_OWNED: &str = "com.microsoft:partition-not-owned";
    pub const DEAD_LETTER: &str = "com.microsoft:dead-letter";
    pub const OUT_OF_ORDER_SEQUENCE: &str = "com.microsoft:out-of-order-sequence";
    pub const PRODUCER_EPOCH_STOLEN: &str = "com.microsoft:producer-epoch-stolen";
}
