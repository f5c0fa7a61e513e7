//! Settlements: over the link of the delivery, or by the lock token when the link is lost.

use peeklock_client::{Error as Low, LockToken, Timestamp};
use tokio::time::Instant;

use super::{Hold, Source};
use crate::Outcome;
use crate::error::{Error, Kind};
use crate::lock::LockEnd;

/// Settles a delivery and waits for the confirmation.
pub(super) async fn settle(
    source: &Source,
    hold: Hold,
    outcome: Outcome,
    lock_end: LockEnd,
) -> Result<(), Error> {
    let observer = source.connection.observer().filter(|_| outcome == Outcome::Complete);
    settle_somehow(source, hold, outcome, lock_end).await?;
    if let Some(observer) = observer {
        observer.completed(&source.entity);
    }
    Ok(())
}

/// Settles over the link, or by the lock token.
async fn settle_somehow(
    source: &Source,
    hold: Hold,
    outcome: Outcome,
    lock_end: LockEnd,
) -> Result<(), Error> {
    let token = hold.token();
    let mut is_uncertain = false;
    if let Hold::Link(link) = hold {
        if !link.is_cut_off() || token.is_none() {
            let error = match link.settle(outcome.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            // The settlement may have left before the link ended.
            is_uncertain = matches!(error, Low::ConnectionLost { .. } | Low::LinkLost { .. } | Low::Closed);
            if !is_uncertain || token.is_none() || source.connection.is_closed() {
                return Err(error.into());
            }
        }
        if source.session.is_some() {
            return Err(Error::session_lost(&source.entity, lost_session(is_uncertain)));
        }
    }
    match token {
        Some(token) => by_token(source, token, outcome, Some(lock_end), is_uncertain).await,
        None => without_lock(source, &outcome),
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
