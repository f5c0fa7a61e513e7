//! A held session.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use peeklock_client::{BrokerClock, Error as Low, LockToken, ReceivedMessage, SequenceNumber};
use tokio::time::Instant;

use crate::error::Error;
use crate::lock::LockEnd;
use crate::{Outcome, ReceiveMode};

/// A session that a [`Receiver`](crate::Receiver) holds. It is cheap to clone, so that one task can renew the lock while another one receives.
///
/// The hold ends when the lock expires, when the receiver is closed, and when its connection is lost: a broker gives the session to another
/// receiver then. Every call fails with [`Kind::LockLost`](crate::Kind::LockLost) from then on, also after the receiver has accepted the session
/// again, so that work of the former hold cannot overwrite state. [`Receiver::session`](crate::Receiver::session) returns the new hold.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

struct Inner {
    held: peeklock_client::Session,
    entity: Arc<str>,
    clock: Option<BrokerClock>,
    lock: Mutex<LockEnd>,
}

impl Session {
    pub(crate) fn new(held: peeklock_client::Session, entity: Arc<str>, clock: Option<BrokerClock>) -> Self {
        let until = Some(held.locked_until()).filter(|until| until.as_millis() > 0);
        let lock = Mutex::new(LockEnd::new(clock, until, None));
        Session { inner: Arc::new(Inner { held, entity, clock, lock }) }
    }

    /// Returns the id of the session.
    pub fn id(&self) -> &str {
        self.inner.held.id()
    }

    /// Returns the time until the lock expires, by the monotonic clock.
    pub fn lock_remaining(&self) -> Duration {
        self.lock_end().remaining()
    }

    /// Extends the lock by its duration.
    pub async fn renew(&self) -> Result<(), Error> {
        let asked_at = Instant::now();
        let until = self.inner.held.renew().await.map_err(|error| self.explain(error))?;
        let mut lock = self.inner.lock.lock().unwrap_or_else(PoisonError::into_inner);
        *lock = lock.renewed(self.inner.clock, asked_at, until);
        Ok(())
    }

    /// Returns the state of the session.
    pub async fn state(&self) -> Result<Option<Bytes>, Error> {
        self.inner.held.state().await.map_err(|error| self.explain(error))
    }

    /// Stores bytes as the state of the session for its next holder; `None` removes the state.
    pub async fn set_state(&self, state: Option<Bytes>) -> Result<(), Error> {
        self.inner.held.set_state(state).await.map_err(|error| self.explain(error))
    }

    /// Fetches deferred messages of the session by their sequence numbers.
    pub(crate) async fn receive_deferred(
        &self,
        numbers: &[SequenceNumber],
        mode: ReceiveMode,
    ) -> Result<Vec<ReceivedMessage>, Error> {
        self.inner.held.receive_deferred(numbers, mode).await.map_err(|error| self.explain(error))
    }

    /// Settles a message that was not received over a link.
    pub(crate) async fn settle(&self, token: LockToken, outcome: Outcome) -> Result<(), Error> {
        self.inner.held.settle(&[token], outcome).await.map_err(|error| self.explain(error))
    }

    pub(crate) fn lock_end(&self) -> LockEnd {
        *self.inner.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the error for a failed call. The hold ends with its connection.
    pub(crate) fn explain(&self, error: Low) -> Error {
        match &error {
            Low::ConnectionLost { reason, .. } => {
                let reason = format!("the connection was lost ({reason})");
                Error::session_lost(&self.inner.entity, &reason).caused_by(error)
            }
            Low::Closed => {
                Error::session_lost(&self.inner.entity, "the receiver was closed").caused_by(error)
            }
            _ => error.into(),
        }
    }
}
