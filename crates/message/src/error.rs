//! Reasons to reject a message or a patch.

use peeklock_amqp::DecodeError;
use peeklock_types::{SessionIdError, limits};

use crate::changes::PATCH_PROPERTIES_MAX;
use crate::incoming::SCHEDULED_TIME;

/// The reason why a sender's message is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The bytes are not a message that a delivery could decode.
    #[error("the message is not valid AMQP: {0}")]
    Unreadable(#[from] DecodeError),
    /// The session id is not valid.
    #[error(transparent)]
    Session(#[from] SessionIdError),
    /// The message id exceeds its limit.
    #[error(
        "the message id has {char_count} characters; at most {} are allowed",
        limits::MESSAGE_ID_CHARS_MAX
    )]
    LongMessageId { char_count: usize },
    /// The time of a scheduled message has another type. Delivering the message at once would ignore the sender's
    /// request.
    #[error("the annotation {SCHEDULED_TIME} is not a time")]
    ScheduledTime,
    /// The properties exceed the size of a view.
    #[error(
        "the properties of the message have {size_bytes} bytes; a topic, or a queue with an order, takes at most {}. Put large values into the body",
        limits::VIEW_SIZE_BYTES_MAX
    )]
    LargeView { size_bytes: usize },
}

/// The reason why the properties of a settlement are rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The settlement sets more properties than permitted.
    #[error("{count} properties to modify; at most {PATCH_PROPERTIES_MAX} are allowed")]
    TooManyProperties { count: usize },
}
