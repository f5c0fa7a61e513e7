//! What a handler can ask and do beside its result.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::signal::Signal;
use crate::delivery::{Delivery, Renewal, Unsettled};
use crate::error::{Error, Kind};
use crate::lock::LockEnd;
use crate::session::Session;
use crate::{Outcome, ReceivedMessage};

/// The context of a delivery: its lock, the signals of the processor, and settlements by the handler itself. It is cheap to clone.
#[derive(Clone)]
pub struct Context {
    work: Arc<Work>,
}

/// One delivery that a processor holds.
pub(crate) struct Work {
    message: ReceivedMessage,
    entity: Arc<str>,
    session: Option<Session>,
    /// What settles the message, until somebody does.
    unsettled: Mutex<Option<Unsettled>>,
    /// The end of the message's own lock, as of the last renewal.
    lock: Mutex<Option<Instant>>,
    received_at: Instant,
    pub(crate) cancelled: Signal,
    pub(crate) lock_lost: Signal,
}

impl Work {
    /// Returns the work of a delivery that was received at this moment.
    pub(crate) fn new(
        delivery: Delivery,
        entity: Arc<str>,
        session: Option<Session>,
        received_at: Instant,
    ) -> Self {
        let (message, unsettled) = delivery.into_parts();
        let lock = Mutex::new(unsettled.has_lock().then(|| unsettled.lock_end().at));
        let (cancelled, lock_lost) = (Signal::default(), Signal::default());
        let unsettled = Mutex::new(Some(unsettled));
        Work { message, entity, session, unsettled, lock, received_at, cancelled, lock_lost }
    }

    fn unsettled(&self) -> MutexGuard<'_, Option<Unsettled>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what settles the message. Returns `None` if the message is settled.
    pub(crate) fn take(&self) -> Option<Unsettled> {
        self.unsettled().take()
    }

    /// Gives the delivery up without settling it: its lock is lost, or must expire by itself.
    pub(crate) fn leave(&self) {
        if let Some(unsettled) = self.take() {
            unsettled.leave();
        }
    }

    /// Returns whether a delay before the next delivery has to pass while the message is held.
    pub(crate) fn waits_while_held(&self) -> bool {
        self.unsettled().as_ref().is_some_and(Unsettled::waits_while_held)
    }

    /// Returns the outcome if the handler is interrupted. Returns `None` if the message is settled.
    pub(crate) fn interruption(&self) -> Option<Outcome> {
        self.unsettled().as_ref().map(Unsettled::interruption)
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.unsettled().is_none()
    }

    /// Returns what renews the lock. `None` if the message is settled or has no lock of its own.
    pub(crate) fn renewal(&self) -> Option<Renewal> {
        self.unsettled().as_ref().and_then(Unsettled::renewal)
    }

    /// Stores the end of the lock after a renewal.
    pub(crate) fn renewed(&self, end: LockEnd) {
        if let Some(unsettled) = &*self.unsettled() {
            unsettled.set_lock_end(end);
        }
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = Some(end.at);
    }

    pub(crate) fn message(&self) -> &ReceivedMessage {
        &self.message
    }

    pub(crate) fn received_at(&self) -> Instant {
        self.received_at
    }

    pub(crate) fn attempt(&self) -> u32 {
        self.message.attempt()
    }

    /// Returns the end of the message's own lock.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Context {
    pub(crate) fn new(work: Arc<Work>) -> Self {
        Context { work }
    }

    pub(crate) fn detached(message: ReceivedMessage) -> Self {
        let (cancelled, lock_lost) = (Signal::default(), Signal::default());
        let (unsettled, lock) = (Mutex::new(None), Mutex::new(None));
        let entity = Arc::from("detached");
        let received_at = Instant::now();
        let session = None;
        Context {
            work: Arc::new(Work {
                message,
                entity,
                session,
                unsettled,
                lock,
                received_at,
                cancelled,
                lock_lost,
            }),
        }
    }

    /// Returns the message.
    pub fn message(&self) -> &ReceivedMessage {
        &self.work.message
    }

    /// Returns the queue or subscription that the message is from.
    pub fn entity(&self) -> &str {
        &self.work.entity
    }

    /// Returns the number of this delivery of the message, from 1. See [`ReceivedMessage::attempt`].
    pub fn attempt(&self) -> u32 {
        self.work.attempt()
    }

    /// Returns the session of the message, in a session processor.
    pub fn session(&self) -> Option<&Session> {
        self.work.session.as_ref()
    }

    /// Returns when the processor asks the handler to end early. A handler that ignores it is dropped after a grace period.
    pub async fn cancelled(&self) {
        self.work.cancelled.fired().await;
    }

    /// Returns whether the processor asks the handler to end early.
    pub fn is_cancelled(&self) -> bool {
        self.work.cancelled.has_fired()
    }

    /// Returns when the lock on the message is lost. Another receiver may have the message then, and its outcome here is ignored.
    pub async fn lock_lost(&self) {
        self.work.lock_lost.fired().await;
    }

    /// Returns whether the lock on the message is lost.
    pub fn is_lock_lost(&self) -> bool {
        self.work.lock_lost.has_fired()
    }

    /// Returns the rest of the lock, as of the last renewal. `None` if it is unknown.
    pub fn lock_remaining(&self) -> Option<Duration> {
        self.work.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Returns whether the message is settled.
    pub fn is_settled(&self) -> bool {
        self.work.is_settled()
    }

    /// Settles the message before the handler ends. The processor does not settle it again.
    pub async fn settle(&self, outcome: Outcome) -> Result<(), Error> {
        if self.is_lock_lost() {
            let text =
                format!("The lock of the message in \"{}\" is lost; it cannot be settled.", self.entity());
            return Err(Error::new(Kind::LockLost, "E-LOCK-01", text));
        }
        match self.work.take() {
            Some(unsettled) => unsettled.settle(&self.work.message, outcome).await,
            None => {
                let text =
                    format!("The message in \"{}\" is settled already. Settle it once.", self.entity());
                Err(Error::new(Kind::Invalid, "E-PROC-03", text))
            }
        }
    }

    /// Completes the message.
    pub async fn complete(&self) -> Result<(), Error> {
        self.settle(Outcome::Complete).await
    }

    /// Makes the message available again and increases its delivery count.
    pub async fn abandon(&self) -> Result<(), Error> {
        self.settle(Outcome::Abandon).await
    }

    /// Makes the message available again after a delay. See [`Delivery::abandon_after`].
    pub async fn abandon_after(&self, delay: Duration) -> Result<(), Error> {
        self.settle(Outcome::AbandonWith { properties: Default::default(), delay: Some(delay) }).await
    }

    /// Defers the message.
    pub async fn defer(&self) -> Result<(), Error> {
        self.settle(Outcome::Defer).await
    }

    /// Moves the message to the dead-letter queue.
    pub async fn dead_letter(&self, reason: &str, description: &str) -> Result<(), Error> {
        let (reason, description) = (reason.to_owned(), description.to_owned());
        self.settle(Outcome::DeadLetter { reason, description }).await
    }
}
