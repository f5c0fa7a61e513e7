//! A lock that a pump keeps alive.

use std::sync::Arc;

use crate::delivery;
use crate::error::Error;
use crate::handler::Work;
use crate::lock::LockEnd;
use crate::session::Session;

/// The owner of a lock.
#[derive(Clone)]
pub(crate) enum Lock {
    Message(Arc<Work>),
    Session(Session),
}

impl Lock {
    /// Returns what renews the lock. It is independent of the message, which the handler may settle at any time. `None` if the message is settled.
    pub(crate) fn renewal(&self) -> Option<Renewal> {
        match self {
            Lock::Message(work) => work.renewal().map(Renewal::Message),
            Lock::Session(session) => Some(Renewal::Session(session.clone())),
        }
    }
}

/// Renews one lock.
pub(crate) enum Renewal {
    Message(delivery::Renewal),
    Session(Session),
}

impl Renewal {
    /// Requests one renewal and returns the new end of the lock.
    pub(crate) async fn renew(self) -> Result<LockEnd, Error> {
        match self {
            Renewal::Message(renewal) => renewal.renew().await,
            Renewal::Session(session) => {
                session.renew().await?;
                Ok(session.lock_end())
            }
        }
    }
}
