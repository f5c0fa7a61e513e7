//! A received message with its lock.

mod copy;
mod settle;
mod unsettled;

use std::sync::Arc;
use std::time::Duration;

use peeklock_amqp::Fields;
use peeklock_client::{BrokerClock, Extensions, LockToken, ReceivedMessage};
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use crate::Outcome;
use crate::connection::Connection;
use crate::error::{Error, Kind};
use crate::sender::Sender;
use crate::session::Session;
pub(crate) use settle::{Sent, by_token};
pub(crate) use unsettled::{Renewal, Unsettled};

/// A received message. In mode [`ReceiveMode::PeekLock`](crate::ReceiveMode::PeekLock) it is locked until it is settled.
///
/// It stays usable when its link or connection is lost: the lock belongs to the message, and the settlement then goes to the broker by the lock
/// token. A dropped delivery is abandoned at once, which counts as a failed delivery.
///
/// # When the answer to a settlement is lost
///
/// The settlement is sent again with the lock token. If the broker then answers that the lock is gone, the first settlement has either taken
/// effect, or the lock has expired. The call succeeds only if the lock cannot have expired yet by the broker's own clock: the token is known to
/// this delivery alone, so nothing else can have ended the lock. Otherwise it fails with `E-LOCK-02`, and the message may be delivered again.
#[must_use = "settle it; a dropped delivery is abandoned"]
pub struct Delivery {
    message: ReceivedMessage,
    unsettled: Unsettled,
}

/// The way to settle a message.
pub(crate) enum Hold {
    /// Over the link that delivered it.
    Link(peeklock_client::Delivery),
    /// By its lock token: the message was not received over a link.
    Token(LockToken),
}

impl Hold {
    pub(crate) fn token(&self) -> Option<LockToken> {
        match self {
            Hold::Link(link) => link.lock_token(),
            Hold::Token(token) => Some(*token),
        }
    }
}

/// The link that a delivery is from.
pub(crate) struct Source {
    pub(crate) connection: Connection,
    pub(crate) entity: Arc<str>,
    pub(crate) session: Option<Session>,
    pub(crate) clock: Option<BrokerClock>,
    pub(crate) extensions: Extensions,
    /// Sends the copies that replace messages, if the broker does not delay them.
    copies: OnceCell<Sender>,
}

impl Source {
    pub(crate) fn new(
        connection: Connection,
        entity: Arc<str>,
        clock: Option<BrokerClock>,
        extensions: Extensions,
    ) -> Self {
        Source { connection, entity, session: None, clock, extensions, copies: OnceCell::new() }
    }

    pub(crate) fn in_session(self, session: Option<Session>) -> Self {
        Source { session, ..self }
    }

    /// Returns the source of deferred messages that are fetched without a link.
    pub(crate) fn of_request(connection: Connection, entity: Arc<str>) -> Self {
        Source::new(connection, entity, None, Extensions::default())
    }

    /// Removes a delay that the broker does not support. It would store it as a property of the message.
    pub(crate) fn without_unknown_delay(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::AbandonWith { properties, .. } if !self.extensions.delays_abandoned => {
                Outcome::AbandonWith { properties, delay: None }
            }
            outcome => outcome,
        }
    }
}

impl Delivery {
    pub(crate) fn new(link: peeklock_client::Delivery, source: &Arc<Source>) -> Result<Self, Error> {
        let message = match link.message() {
            Ok(message) => message,
            Err(error) => {
                // The deliveries count, so the message ends in the dead-letter queue.
                link.settle_unawaited(Outcome::Abandon);
                return Err(error.into());
            }
        };
        Ok(Self::with(message, Some(Hold::Link(link)), source))
    }

    /// Returns the delivery of a message that was fetched by its sequence number.
    pub(crate) fn fetched(message: ReceivedMessage, source: &Arc<Source>) -> Self {
        let hold = message.lock_token.map(Hold::Token);
        Self::with(message, hold, source)
    }

    fn with(message: ReceivedMessage, hold: Option<Hold>, source: &Arc<Source>) -> Self {
        if let Some(observer) = source.connection.observer() {
            observer.received(&source.entity, &message);
        }
        let unsettled = Unsettled::new(&message, hold, Arc::clone(source));
        Delivery { message, unsettled }
    }

    /// Returns the message, and what settles it.
    pub(crate) fn into_parts(self) -> (ReceivedMessage, Unsettled) {
        (self.message, self.unsettled)
    }

    /// Returns the message.
    pub fn message(&self) -> &ReceivedMessage {
        &self.message
    }

    /// Deserialises the body from JSON.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Error> {
        self.message.json().map_err(|error| {
            let number = self.message.sequence_number().unwrap_or_default();
            let text = format!(
                "The body of message {number} in \"{}\" does not deserialise from JSON as {}: {error}. Dead-letter it, or correct the type.",
                self.entity(),
                std::any::type_name::<T>()
            );
            Error::new(Kind::Malformed, "E-DATA-04", text).caused_by(error)
        })
    }

    /// Returns the name of the queue or subscription.
    pub fn entity(&self) -> &str {
        self.unsettled.entity()
    }

    /// Returns the token of the lock. `None` in mode [`ReceiveMode::ReceiveAndDelete`](crate::ReceiveMode::ReceiveAndDelete).
    pub fn lock_token(&self) -> Option<LockToken> {
        self.message.lock_token
    }

    /// Returns the time until the lock expires, by the monotonic clock. It does not depend on the wall clock of this machine if the broker sends
    /// its own time, as Peeklock does; otherwise it is a careful estimate. `None` if the message has no lock.
    pub fn lock_remaining(&self) -> Option<Duration> {
        self.message.lock_token?;
        Some(self.unsettled.lock_end().remaining())
    }

    /// Extends the lock by its duration. For a message of a session, extends the lock of the session.
    pub async fn renew(&self) -> Result<(), Error> {
        self.unsettled.renew().await
    }

    /// Completes the message: it is removed. The removal is on stable storage when this returns.
    pub async fn complete(self) -> Result<(), Error> {
        self.settle(Outcome::Complete).await
    }

    /// Makes the message available again and increases its delivery count.
    pub async fn abandon(self) -> Result<(), Error> {
        self.settle(Outcome::Abandon).await
    }

    /// Makes the message available again after a delay.
    ///
    /// Other brokers than Peeklock cannot delay it. There, one transaction sends a scheduled copy and completes the original. The copy has an id of
    /// its own, because a queue that detects duplicates would drop it otherwise; see [`ReceivedMessage::original_message_id`] and
    /// [`ReceivedMessage::attempt`]. A message of a session or subscription, and one that cannot be copied in a transaction, is abandoned without
    /// a delay: a copy would lose its place in the session, or reach all subscriptions.
    pub async fn abandon_after(self, delay: Duration) -> Result<(), Error> {
        self.settle(Outcome::AbandonWith { properties: Fields::new(), delay: Some(delay) }).await
    }

    /// Defers the message: it stays in the queue until a receiver fetches it by its sequence number.
    pub async fn defer(self) -> Result<(), Error> {
        self.settle(Outcome::Defer).await
    }

    /// Moves the message to the dead-letter queue with a reason.
    pub async fn dead_letter(self, reason: &str, description: &str) -> Result<(), Error> {
        let (reason, description) = (reason.to_owned(), description.to_owned());
        self.settle(Outcome::DeadLetter { reason, description }).await
    }

    /// Returns the message without increasing its delivery count. Over a lost link, the delivery counts.
    pub async fn release(self) -> Result<(), Error> {
        self.settle(Outcome::Release).await
    }

    /// Settles the message and waits for the broker's confirmation.
    pub async fn settle(self, outcome: Outcome) -> Result<(), Error> {
        self.unsettled.settle(&self.message, outcome).await
    }

    /// Returns what is needed to settle the message. `None` if it has no lock.
    pub(crate) fn into_hold(self) -> Option<(Arc<Source>, Hold)> {
        self.unsettled.into_hold()
    }
}
