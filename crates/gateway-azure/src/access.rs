//! The rights of a connection: its tokens, its claims, and the links that depend on them.

mod cbs;
mod claims;

use peeklock_amqp::connection::Millis;
use tokio::sync::watch;

use crate::connection::conversation::Replies;
use cbs::PendingTokens;
use claims::Claims;
pub(crate) use claims::Need;

/// The claims of a connection, and its tokens whose entities are being looked up.
pub(crate) struct Access {
    claims: Claims,
    tokens: PendingTokens,
    /// Whether the namespace of the peer is certain.
    is_at_home: bool,
    /// The replies and the policies of the namespace that the connection has moved to.
    moved: Option<(Replies, watch::Receiver<u64>)>,
}

impl Access {
    pub(crate) fn new(now: Millis) -> Self {
        Access { claims: Claims::new(now), tokens: PendingTokens::default(), is_at_home: false, moved: None }
    }
}
