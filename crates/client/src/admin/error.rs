//! The errors of management requests.

use std::time::Duration;

use crate::ConnectError;

/// The reason why a management request failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The client could not connect.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The request could not be written.
    #[error(
        "the request cannot be written ({reason}); check the host and the token of the connection string"
    )]
    Request {
        /// The cause.
        reason: String,
    },
    /// The connection ended before the answer was complete.
    #[error(
        "the connection to {address} ended before an answer came ({reason}); whether the request was carried out is not known"
    )]
    ConnectionLost {
        /// The address of the broker.
        address: String,
        /// The cause.
        reason: String,
    },
    /// The broker did not answer in time.
    #[error("{address} did not answer within {} s; whether the request was carried out is not known", after.as_secs())]
    NoAnswer {
        /// The address of the broker.
        address: String,
        /// The time that the client waited.
        after: Duration,
    },
    /// The answer is not one of the JSON API.
    #[error("{address} does not answer as a broker's management would: {reason}")]
    Malformed {
        /// The address of the broker.
        address: String,
        /// The cause.
        reason: String,
    },
    /// The subject of the request does not exist.
    #[error("there is no {subject}; {remedy}")]
    NotFound {
        /// The missing entity, rule, key or message.
        subject: String,
        /// What to do about it.
        remedy: String,
    },
    /// A part of the request does not exist. The reason is the message of the broker, because the request does not show which part it is.
    #[error("{reason}")]
    Missing {
        /// The message of the broker.
        reason: String,
    },
    /// The name is taken.
    #[error("there is already a {subject}; {remedy}")]
    Exists {
        /// The entity, rule or key with that name.
        subject: String,
        /// What to do about it.
        remedy: String,
    },
    /// The entity has another revision than the request expects.
    #[error("{subject} was changed by somebody else meanwhile; look at it, and try again")]
    Changed {
        /// The entity.
        subject: String,
    },
    /// The key does not allow the request.
    #[error("access to {subject} is refused: {reason}")]
    Unauthorized {
        /// The entity of the request.
        subject: String,
        /// The message of the broker.
        reason: String,
    },
    /// The broker rejected the request for another reason.
    #[error("the broker refused this for {subject} with status {status}: {reason}")]
    Refused {
        /// The entity of the request.
        subject: String,
        /// The HTTP status.
        status: u16,
        /// The broker's code of the error.
        code: String,
        /// The message of the broker.
        reason: String,
    },
}
