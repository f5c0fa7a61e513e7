//! What a handler can ask and do beside its result.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::signal::Signal;
use crate::delivery::Delivery;
use crate::error::{Error, Kind};
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
    /// The delivery until somebody settles it.
    delivery: Mutex<Option<Delivery>>,
    lock: Mutex<Option<Instant>>,
    received_at: Instant,
    pub(crate) cancelled: Signal,
    pub(crate) lock_lost: Signal,
}

impl Work {
    pub(crate) fn new(
        delivery: Delivery,
        entity: Arc<str>,
        session: Option<Session>,
        deadline: Option<Instant>,
    ) -> Self {
        let (message, delivery) = (delivery.message().clone(), Mutex::new(Some(delivery)));
        let (cancelled, lock_lost) = (Signal::default(), Signal::default());
        let (lock, received_at) = (Mutex::new(deadline), Instant::now());
        Work { message, entity, session, delivery, lock, received_at, cancelled, lock_lost }
    }

    /// Takes the delivery, to settle it. Returns `None` if it is settled.
    pub(crate) fn take(&self) -> Option<Delivery> {
        self.delivery.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Gives the delivery up without settling it: its lock is lost, or must expire by itself.
    pub(crate) fn leave(&self) {
        if let Some(delivery) = self.take() {
            delivery.leave();
        }
    }

    /// Returns whether a delay before the next delivery has to pass while the message is held.
    pub(crate) fn waits_while_held(&self) -> bool {
        let delivery = self.delivery.lock().unwrap_or_else(PoisonError::into_inner);
        delivery.as_ref().is_some_and(Delivery::waits_while_held)
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.delivery.lock().unwrap_or_else(PoisonError::into_inner).is_none()
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

    pub(crate) fn deadline(&self) -> Option<Instant> {
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_deadline(&self, deadline: Instant) {
        *self.lock.lock().unwrap_or_else(PoisonError::into_inner) = Some(deadline);
    }
}

impl Context {
    pub(crate) fn new(work: Arc<Work>) -> Self {
        Context { work }
    }

    pub(crate) fn detached(message: ReceivedMessage) -> Self {
        let (cancelled, lock_lost) = (Signal::default(), Signal::default());
        let (delivery, lock) = (Mutex::new(None), Mutex::new(None));
        let entity = Arc::from("detached");
        let received_at = Instant::now();
        let session = None;
        Context {
            work: Arc::new(Work {
                message,
                entity,
                session,
                delivery,
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
            Some(delivery) => delivery.settle(outcome).await,
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
