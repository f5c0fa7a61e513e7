//! The rights of a connection: tokens, claims, and the links that rest on them.

mod cbs;
mod claims;

use peeklock_amqp::connection::Millis;
use tokio::sync::watch;

use crate::connection::conversation::Replies;
use cbs::PendingTokens;
use claims::Claims;
pub(crate) use claims::Need;

/// The claims of a connection, and its tokens whose entities are looked for.
pub(crate) struct Access {
    claims: Claims,
    tokens: PendingTokens,
    /// Whether it is certain which namespace the peer uses.
    is_at_home: bool,
    /// The replies and the policies of another namespace that the peer has turned out to use.
    moved: Option<(Replies, watch::Receiver<u64>)>,
}

impl Access {
    pub(crate) fn new(now: Millis) -> Self {
        Access { claims: Claims::new(now), tokens: PendingTokens::default(), is_at_home: false, moved: None }
    }
}
