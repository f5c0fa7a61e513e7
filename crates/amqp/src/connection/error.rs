//! Errors of calls on a connection.

use super::{LinkId, SessionId};
use crate::{AmqpError, SaslCode, Text};

/// The connection cannot be used any more. Take the remaining events, write the output, then drop it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// The peer violated the protocol. The output contains a close with the reason, unless the peer was not ready for
    /// one.
    #[error("the peer broke the protocol: {0}")]
    Protocol(AmqpError),
    /// The stream does not start with a supported protocol header. Our header is in the output.
    #[error("the peer does not start with an AMQP 1.0 header but with {found:02x?}")]
    Header { found: [u8; 8] },
    #[error("the peer sent nothing for {silent_ms} ms, longer than twice the idle time-out")]
    Idle { silent_ms: u64 },
    #[error("the peer did not open the connection within {waited_ms} ms")]
    Handshake { waited_ms: u64 },
    #[error("the peer did not answer our close in time")]
    Close,
    #[error("the server does not offer SASL mechanism {wanted}")]
    Mechanism { wanted: String },
    #[error("SASL ended with {code:?}")]
    Sasl { code: SaslCode },
}

/// The reason why a send was not possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("the link is not attached, or is being detached")]
    NotAttached,
    #[error("the receiver gave no credit")]
    NoCredit,
    /// Wait for [`Event::Unblocked`](super::Event::Unblocked), then try again.
    #[error("the peer's session window is closed and enough sends wait for it already")]
    Blocked,
    /// Wait for [`Event::Unblocked`](super::Event::Unblocked), then try again.
    #[error("too many deliveries of the session are unsettled")]
    TooManyUnsettled,
    #[error("a delivery in parts is under way on the link")]
    Incomplete,
}

/// A peer's mistake, and the part of the connection that it ends.
#[derive(Debug)]
pub(super) enum Fault {
    Connection(Box<AmqpError>),
    Session(SessionId, Box<AmqpError>),
    Link(LinkId, Box<AmqpError>),
}

impl Fault {
    pub(super) fn connection(condition: &'static str, description: impl Into<Text>) -> Self {
        Self::Connection(Box::new(AmqpError::new(condition, description)))
    }

    pub(super) fn session(session: SessionId, condition: &'static str, description: impl Into<Text>) -> Self {
        Self::Session(session, Box::new(AmqpError::new(condition, description)))
    }

    pub(super) fn link(link: LinkId, condition: &'static str, description: impl Into<Text>) -> Self {
        Self::Link(link, Box::new(AmqpError::new(condition, description)))
    }
}
