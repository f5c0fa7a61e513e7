//! The renewal of one lock, of a message or of a session.

use std::time::Duration;

use crate::delivery;
use crate::error::Error;
use crate::session::Session;

/// Renews one lock. It is independent of the delivery, which the handler may settle at any time.
#[derive(Clone)]
pub(crate) enum Renewal {
    Message(delivery::Renewal),
    Session(Session),
}

impl Renewal {
    /// Renews the lock and returns how long it lasts from now.
    pub(crate) async fn renew(&self) -> Result<Duration, Error> {
        match self {
            Renewal::Message(renewal) => renewal.renew().await,
            Renewal::Session(session) => {
                session.renew().await?;
                Ok(session.lock_remaining())
            }
        }
    }
}
