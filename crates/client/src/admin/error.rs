//! What can go wrong with a management request.

use std::time::Duration;

use crate::ConnectError;

/// Why a management request failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(
        "the request cannot be written ({reason}); check the host and the token of the connection string"
    )]
    Request { reason: String },
    #[error(
        "the connection to {address} ended before an answer came ({reason}); whether the request was carried out is not known"
    )]
    ConnectionLost { address: String, reason: String },
    #[error("{address} did not answer within {} s; whether the request was carried out is not known", after.as_secs())]
    NoAnswer { address: String, after: Duration },
    #[error("{address} does not answer as a broker's management would: {reason}")]
    Malformed { address: String, reason: String },
    #[error("there is no {subject}; {remedy}")]
    NotFound { subject: String, remedy: String },
    /// In the broker's own words, where only it knows which part is missing.
    #[error("{reason}")]
    Missing { reason: String },
    #[error("there is already a {subject}; {remedy}")]
    Exists { subject: String, remedy: String },
    #[error("{subject} was changed by somebody else meanwhile; look at it, and try again")]
    Changed { subject: String },
    #[error("access to {subject} is refused: {reason}")]
    Unauthorized { subject: String, reason: String },
    #[error("the broker refused this for {subject} with status {status}: {reason}")]
    Refused { subject: String, status: u16, code: String, reason: String },
}
