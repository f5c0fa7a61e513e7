//! The part of a delivery that settles it. The message itself can be shared meanwhile.

use std::sync::{Arc, Mutex, PoisonError};

use peeklock_amqp::Fields;
use peeklock_client::{INTERRUPTED_PROPERTY, LockToken, ReceivedMessage, SequenceNumber, Settler};
use tokio::time::Instant;

use super::settle::{self, Sent, by_token};
use super::{Hold, Source, copy};
use crate::Outcome;
use crate::error::Error;
use crate::lock::LockEnd;

/// A message that is to be settled. If it is dropped, the message is abandoned.
pub(crate) struct Unsettled {
    /// `None` once it is settled, and without a lock.
    pub(super) hold: Option<Hold>,
    pub(super) source: Arc<Source>,
    lock: Mutex<LockEnd>,
    /// When the message was received, if the time of the broker has to be estimated.
    pub(super) received_at: Option<Instant>,
    /// For the log.
    number: Option<SequenceNumber>,
}

impl Unsettled {
    pub(super) fn new(message: &ReceivedMessage, hold: Option<Hold>, source: Arc<Source>) -> Self {
        let lock = Mutex::new(LockEnd::of_message(source.clock, message));
        let received_at = source.clock.is_none().then(Instant::now);
        Unsettled { hold, source, lock, received_at, number: message.sequence_number() }
    }

    pub(super) fn entity(&self) -> &str {
        &self.source.entity
    }

    fn token(&self) -> Option<LockToken> {
        self.hold.as_ref().and_then(Hold::token)
    }

    /// Returns the end of the lock, which is that of the session if there is one.
    pub(crate) fn lock_end(&self) -> LockEnd {
        match &self.source.session {
            Some(session) => session.lock_end(),
            None => *self.lock.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Stores the end of the lock after a renewal.
    pub(crate) fn set_lock_end(&self, end: LockEnd) {
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }

    /// Extends the lock of the message or of its session.
    pub(super) async fn renew(&self) -> Result<(), Error> {
        if let Some(session) = &self.source.session {
            return session.renew().await;
        }
        let Some(renewal) = self.renewal() else { return Ok(()) };
        let mut attempts = self.source.connection.attempts();
        loop {
            match renewal.renew().await {
                Ok(end) => {
                    self.set_lock_end(end);
                    return Ok(());
                }
                Err(error) => attempts.retry_after(error).await?,
            }
        }
    }

    /// Returns what renews the lock while another task may settle the message. `None` if the message has no lock of its own.
    pub(crate) fn renewal(&self) -> Option<Renewal> {
        let token = self.token().filter(|_| self.source.session.is_none())?;
        Some(Renewal { source: Arc::clone(&self.source), token, end: self.lock_end() })
    }

    /// Returns whether the message has a lock of its own.
    pub(crate) fn has_lock(&self) -> bool {
        self.source.session.is_none() && self.token().is_some()
    }

    /// Gives the message up without settling it. Its lock is lost, or expires by itself.
    pub(crate) fn leave(mut self) {
        self.hold = None;
    }

    /// Returns the outcome of a message whose handler was interrupted. A broker that counts interruptions counts the delivery only after many
    /// of them; another one never does.
    pub(crate) fn interruption(&self) -> Outcome {
        if !self.source.extensions.counts_interruptions {
            return Outcome::Release;
        }
        let properties = Fields::new().with(INTERRUPTED_PROPERTY, true);
        Outcome::AbandonWith { properties, delay: None }
    }

    /// Settles the message and waits for the broker's confirmation.
    pub(crate) async fn settle(mut self, message: &ReceivedMessage, outcome: Outcome) -> Result<(), Error> {
        if self.needs_copy(&outcome)
            && let Outcome::AbandonWith { properties, delay: Some(delay) } = outcome
        {
            return copy::abandon_after(self, message, properties, delay).await;
        }
        let Some(hold) = self.hold.take() else { return settle::without_lock(&self.source, &outcome) };
        let lock_end = self.lock_end();
        settle::settle(&self.source, hold, outcome, lock_end).await
    }

    /// Adds the settlement to those that a settler sends. The result has the key. Returns the parts if the link is lost, or if the settlement has
    /// several steps.
    pub(crate) fn send(
        mut self,
        outcome: Outcome,
        key: u64,
        settler: &mut Settler,
    ) -> Result<Sent, Box<(Unsettled, Outcome)>> {
        if self.needs_copy(&outcome) {
            return Err(Box::new((self, outcome)));
        }
        match self.hold.take() {
            Some(Hold::Link(link)) if !link.is_cut_off() => {
                let sent = Sent::new(&self.source, link.lock_token(), outcome.clone(), self.lock_end());
                settler.push(key, link, outcome);
                Ok(sent)
            }
            hold => {
                self.hold = hold;
                Err(Box::new((self, outcome)))
            }
        }
    }

    /// Returns whether only a copy of the message can be delivered after the delay of this outcome.
    fn needs_copy(&self, outcome: &Outcome) -> bool {
        let is_delayed = matches!(outcome, Outcome::AbandonWith { delay: Some(_), .. });
        is_delayed && !self.source.extensions.delays_abandoned
    }

    /// Returns what is needed to settle the message. `None` if it has no lock.
    pub(super) fn into_hold(mut self) -> Option<(Arc<Source>, Hold)> {
        let hold = self.hold.take()?;
        Some((Arc::clone(&self.source), hold))
    }

    /// Returns whether a delay before the next delivery has to pass while the message is held: the broker cannot delay it, and a copy would lose
    /// its place in the session.
    pub(crate) fn waits_while_held(&self) -> bool {
        self.source.session.is_some() && !self.source.extensions.delays_abandoned
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        let Some(token) = hold.token() else { return };
        let number = self.number.unwrap_or_default();
        tracing::warn!(
            queue = &*self.source.entity,
            seq = number.0,
            "a delivery was dropped without a settlement; the message is abandoned"
        );
        let is_done = match hold {
            // The messages of a session return with its hold.
            Hold::Link(link) => link.settle_unawaited(Outcome::Abandon) || self.source.session.is_some(),
            Hold::Token(_) => false,
        };
        // Without a runtime the message stays locked until its lock expires.
        if !is_done && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (source, lock_end) = (Arc::clone(&self.source), self.lock_end());
            runtime.spawn(async move {
                if let Err(error) = by_token(&source, token, Outcome::Abandon, Some(lock_end), false).await {
                    tracing::debug!(%error, "a dropped delivery could not be abandoned");
                }
            });
        }
    }
}

/// Renews the lock of a message that another task may settle meanwhile.
#[derive(Clone)]
pub(crate) struct Renewal {
    source: Arc<Source>,
    token: LockToken,
    end: LockEnd,
}

impl Renewal {
    /// Requests one renewal and returns the new end of the lock.
    pub(crate) async fn renew(&self) -> Result<LockEnd, Error> {
        let asked_at = Instant::now();
        let until = self.source.try_renew(self.token).await?;
        Ok(self.end.renewed(self.source.clock, asked_at, until))
    }
}
