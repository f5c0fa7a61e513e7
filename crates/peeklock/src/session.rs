//! A held session.

use bytes::Bytes;

use crate::error::Error;

/// A session that a [`Receiver`](crate::Receiver) holds. It is cheap to clone.
#[derive(Clone)]
pub struct Session {
    held: peeklock_client::Session,
}

impl Session {
    pub(crate) fn new(held: peeklock_client::Session) -> Self {
        Session { held }
    }

    /// Returns the id of the session.
    pub fn id(&self) -> &str {
        self.held.id()
    }

    /// Extends the lock.
    pub async fn renew(&self) -> Result<(), Error> {
        self.held.renew().await?;
        Ok(())
    }

    /// Returns the state of the session.
    pub async fn state(&self) -> Result<Option<Bytes>, Error> {
        Ok(self.held.state().await?)
    }

    /// Stores bytes as the state of the session for its next holder; `None` removes the state.
    pub async fn set_state(&self, state: Option<Bytes>) -> Result<(), Error> {
        Ok(self.held.set_state(state).await?)
    }
}
