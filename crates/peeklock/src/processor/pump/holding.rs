//! The locks of a pump: renewal, loss, and the lock of a session.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Held, Phase, Pump, PumpEnd, SessionLimits};
use crate::error::{Error, Kind};
use crate::handler::Work;
use crate::lock::LockEnd;
use crate::processor::errors::ErrorSource;
use crate::processor::locks::Lock;
use crate::processor::renewal::Renew;
use crate::receiver::Receiver;

/// The key of the session's lock. Messages have larger keys.
const SESSION_KEY: u64 = 0;

impl Pump {
    /// Adds the lock of a message to the schedule.
    pub(super) fn guard(&mut self, held: &mut Held) {
        if held.is_guarded {
            return;
        }
        let Some(deadline) = held.work.deadline() else { return };
        held.is_guarded = true;
        let lock = deadline.saturating_duration_since(self.now);
        self.schedule.add(held.key, self.now, lock, self.settings.renew, fastrand::f64());
        self.locks.insert(held.key, Lock::Message(Arc::clone(&held.work)));
    }

    /// Adds the locks of messages that wait for a slot to the schedule. A call that ends in the turn of its message needs no schedule.
    pub(super) fn guard_buffered(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.iter_mut().rev().take_while(|held| !held.is_guarded).for_each(|held| self.guard(held));
        self.buffer = buffer;
    }

    /// Requests the renewal of a lock.
    pub(super) fn renew(&mut self, key: u64) {
        let Some(lock) = self.locks.get(&key) else { return };
        // A handler may settle its message and go on.
        let Some(renewal) = lock.renewal() else { return self.forget_lock(key) };
        self.renewals.spawn(async move { (key, renewal.renew().await) });
    }

    /// Handles the answer to a renewal.
    pub(super) fn renewed(&mut self, key: u64, result: Result<LockEnd, Error>) {
        match result {
            Ok(end) => {
                let remaining = end.at.saturating_duration_since(self.now);
                self.schedule.renewed(key, self.now, remaining, fastrand::f64());
                if let Some(Lock::Message(work)) = self.locks.get(&key) {
                    work.renewed(end);
                }
            }
            Err(error) if is_final(&error) => self.lose_lock(key, Some(error)),
            Err(error) => {
                tracing::debug!(queue = %self.runner.entity, "the renewal of a lock failed and is tried again: {error}");
                self.schedule.failed(key, self.now);
            }
        }
    }

    /// Handles the loss of a lock: the handler is told, and the message is not settled.
    pub(super) fn lose_lock(&mut self, key: u64, error: Option<Error>) {
        self.schedule.remove(key);
        let work = match self.locks.remove(&key) {
            Some(Lock::Message(work)) => work,
            Some(Lock::Session(session)) => {
                let error = error.unwrap_or_else(|| self.session_passed());
                self.runner.reporter.report_session(ErrorSource::RenewLock, error, session.id());
                return self.lose_session();
            }
            None => return,
        };
        if work.is_settled() {
            // A settled message has no lock that could be lost.
            return;
        }
        work.lock_lost.fire();
        if let Some(at) = self.buffer.iter().position(|held| held.key == key) {
            self.buffer.remove(at);
            self.slots.buffered -= 1;
            work.leave();
        }
        let error = error.unwrap_or_else(|| self.passed(&work));
        self.runner.reporter.report_work(ErrorSource::RenewLock, error, &work);
    }

    /// Drops a buffered message whose lock has passed. Another receiver may have it.
    pub(super) fn drop_passed(&mut self, held: &Held) {
        self.forget_lock(held.key);
        held.work.lock_lost.fire();
        held.work.leave();
        self.runner.reporter.report_work(ErrorSource::RenewLock, self.passed(&held.work), &held.work);
    }

    pub(super) fn forget_lock(&mut self, key: u64) {
        self.schedule.remove(key);
        self.locks.remove(&key);
    }

    fn passed(&self, work: &Arc<Work>) -> Error {
        let message = work.message();
        let id = message.message_id().unwrap_or_else(|| "without id".to_owned());
        let ran = self.now.saturating_duration_since(work.received_at());
        let (entity, ran) = (&self.runner.entity, Duration::from_secs(ran.as_secs()));
        let renewal = match self.settings.renew {
            Renew::Off => "auto renewal is off".to_owned(),
            Renew::UpTo(limit) => format!("auto renewal is limited to {limit:?} or did not succeed"),
            Renew::UntilDone => "auto renewal did not succeed".to_owned(),
        };
        let text = format!(
            "The lock of message {id} in \"{entity}\" was lost: the message was held for {ran:?} and {renewal}. It will be delivered again. Raise auto_renew, or raise the lock with \"peeklock queue update {entity} --lock 5m\"."
        );
        Error::new(Kind::LockLost, "E-LOCK-01", text)
    }

    fn session_passed(&self) -> Error {
        let entity = &self.runner.entity;
        let text = format!(
            "The lock of a session of \"{entity}\" was lost: its renewal did not succeed in time. The session will be delivered again. Raise the lock with \"peeklock queue update {entity} --lock 5m\"."
        );
        Error::new(Kind::LockLost, "E-SESS-03", text)
    }

    /// Adds the lock of the receiver's session to the schedule.
    pub(super) fn hold_session(&mut self, now: Instant) {
        let Some(session) = self.receiver.as_ref().and_then(Receiver::session).cloned() else { return };
        let lock = session.lock_remaining();
        self.schedule.add(SESSION_KEY, now, lock, Renew::UntilDone, fastrand::f64());
        self.locks.insert(SESSION_KEY, Lock::Session(session));
    }

    /// Handles the loss of the session's lock: all its handlers are told, and nothing of it is settled.
    pub(super) fn lose_session(&mut self) {
        if self.session.is_lost {
            return;
        }
        self.session.is_lost = true;
        self.forget_lock(SESSION_KEY);
        for held in self.buffer.drain(..) {
            held.work.lock_lost.fire();
            held.work.leave();
        }
        self.slots.buffered = 0;
        for running in self.running.values() {
            running.held.iter().for_each(|held| held.work.lock_lost.fire());
        }
        if !matches!(self.phase, Phase::Draining { .. }) {
            self.end = PumpEnd::SessionLost;
            self.drain_until(super::STOP_DEADLINE);
        }
    }

    /// Returns whether the session was held for long enough.
    pub(super) fn is_session_over(&self) -> bool {
        let Some(limits) = self.settings.session else { return false };
        self.session.count >= limits.count_max
            || self.now.saturating_duration_since(self.session.opened_at) >= limits.time_max
    }

    /// Returns whether no message is held.
    fn is_quiet(&self) -> bool {
        self.running.is_empty() && self.settling.is_empty() && self.buffer.is_empty()
    }

    /// Lets the session go when it is idle or was held for long enough.
    pub(super) fn tick_session(&mut self, now: Instant) {
        let Some(SessionLimits { idle, .. }) = self.settings.session else { return };
        let is_idle = self.is_quiet() && now.saturating_duration_since(self.session.idle_since) >= idle;
        if self.phase == Phase::Running && (is_idle || self.is_session_over()) {
            self.end = PumpEnd::LetGo;
            self.drain_until(Duration::MAX);
        }
    }

    /// Returns the moment of the next decision about the session.
    pub(super) fn session_due(&self) -> Option<Instant> {
        let limits = self.settings.session?;
        if self.phase != Phase::Running {
            return None;
        }
        let over = self.session.opened_at.checked_add(limits.time_max);
        let idle = self.session.idle_since.checked_add(limits.idle).filter(|_| self.is_quiet());
        [over, idle].into_iter().flatten().min()
    }
}

/// Returns whether a renewal can never succeed.
fn is_final(error: &Error) -> bool {
    matches!(error.kind(), Kind::LockLost | Kind::NotFound)
}
