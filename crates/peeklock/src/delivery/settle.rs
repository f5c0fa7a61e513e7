//! Settlements: over the link of the delivery, or by the lock token when the link is lost.

use std::sync::Arc;

use peeklock_client::{Error as Low, LockToken, Timestamp};
use tokio::time::Instant;

use super::{Hold, Source};
use crate::Outcome;
use crate::error::{Error, Kind};
use crate::lock::LockEnd;

/// Settles a delivery and waits for the confirmation.
pub(super) async fn settle(
    source: &Arc<Source>,
    hold: Hold,
    outcome: Outcome,
    lock_end: LockEnd,
) -> Result<(), Error> {
    let token = hold.token();
    match hold {
        Hold::Link(link) if !link.is_cut_off() || token.is_none() => {
            let sent = Sent::new(source, token, outcome.clone(), lock_end);
            match link.settle(outcome).await {
                Ok(()) => {
                    sent.confirmed();
                    Ok(())
                }
                Err(error) => sent.recover(error).await,
            }
        }
        Hold::Link(_) if source.session.is_some() => {
            Err(Error::session_lost(&source.entity, lost_session(false)))
        }
        Hold::Link(_) | Hold::Token(_) => match token {
            Some(token) => {
                by_token(source, token, outcome.clone(), Some(lock_end), false).await?;
                note(source, &outcome);
                Ok(())
            }
            None => without_lock(source, &outcome),
        },
    }
}

/// A settlement that was sent over the link of its delivery.
pub(crate) struct Sent {
    source: Arc<Source>,
    token: Option<LockToken>,
    outcome: Outcome,
    lock_end: LockEnd,
}

impl Sent {
    pub(super) fn new(
        source: &Arc<Source>,
        token: Option<LockToken>,
        outcome: Outcome,
        lock_end: LockEnd,
    ) -> Self {
        Sent { source: Arc::clone(source), token, outcome, lock_end }
    }

    /// Handles the confirmation of the broker.
    pub(crate) fn confirmed(&self) {
        note(&self.source, &self.outcome);
    }

    /// Handles the failure of the settlement. If the link was lost, the settlement is repeated with the lock token: it may have left before.
    pub(crate) async fn recover(self, error: Low) -> Result<(), Error> {
        let source = &self.source;
        let is_uncertain = matches!(error, Low::ConnectionLost { .. } | Low::LinkLost { .. } | Low::Closed);
        let Some(token) = self.token.filter(|_| is_uncertain && !source.connection.is_closed()) else {
            return Err(error.into());
        };
        if source.session.is_some() {
            return Err(Error::session_lost(&source.entity, lost_session(true)));
        }
        by_token(source, token, self.outcome.clone(), Some(self.lock_end), true).await?;
        self.confirmed();
        Ok(())
    }
}

/// Tells the test kit of a completed message.
fn note(source: &Source, outcome: &Outcome) {
    if *outcome == Outcome::Complete
        && let Some(observer) = source.connection.observer()
    {
        observer.completed(&source.entity);
    }
}

/// Settles a message that the broker deleted when it was received.
pub(super) fn without_lock(source: &Source, outcome: &Outcome) -> Result<(), Error> {
    match outcome {
        Outcome::Complete => Ok(()),
        _ => Err(Low::NotLocked { entity: source.entity.clone() }.into()),
    }
}

fn lost_session(is_uncertain: bool) -> &'static str {
    if is_uncertain {
        "the connection was lost before the settlement of a message was confirmed, so its result is unknown"
    } else {
        "the connection on which it was accepted was lost"
    }
}

/// Settles a message by its lock token. `is_uncertain` means that an earlier attempt may have taken effect.
pub(crate) async fn by_token(
    source: &Source,
    token: LockToken,
    outcome: Outcome,
    lock_end: Option<LockEnd>,
    mut is_uncertain: bool,
) -> Result<(), Error> {
    let mut attempts = source.connection.attempts();
    loop {
        let error = match source.try_settle(token, outcome.clone()).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if error.kind() == Kind::LockLost && is_uncertain {
            return judge(source, lock_end, error);
        }
        // A request without an answer may have taken effect.
        is_uncertain |= matches!(error.code(), "E-CONN-02" | "E-CONN-05" | "E-CONN-07");
        attempts.retry_after(error).await?;
    }
}

/// Decides about a lock that is gone after a settlement without an answer. If the lock cannot have expired, only the settlement can have ended it.
fn judge(source: &Source, lock_end: Option<LockEnd>, error: Error) -> Result<(), Error> {
    if lock_end.is_some_and(|end| end.is_exact && Instant::now() < end.at) {
        return Ok(());
    }
    let text = format!(
        "The result of the settlement of a message in \"{}\" is unknown: the connection was lost before the answer, and the lock has ended since. \
         The message may be delivered again. Make the work repeatable, or raise the lock duration of the queue.",
        source.entity
    );
    Err(Error::new(Kind::LockLost, "E-LOCK-02", text).caused_by(error))
}

impl Source {
    async fn try_settle(&self, token: LockToken, outcome: Outcome) -> Result<(), Error> {
        match &self.session {
            Some(session) => session.settle(token, outcome).await,
            None => Ok(self.connection.live().await?.settle(&self.entity, &[token], outcome).await?),
        }
    }

    pub(super) async fn try_renew(&self, token: LockToken) -> Result<Timestamp, Error> {
        let until = self.connection.live().await?.renew(&self.entity, &[token]).await?;
        // The response has one time for each token.
        until.first().copied().ok_or_else(|| {
            Error::new(Kind::Malformed, "E-DATA-01", "The response to a renewal has no expiry.")
        })
    }
}
