//! Receives messages.

use std::sync::Arc;
use std::time::Duration;

use crate::connection::Connection;
use crate::delivery::{Delivery, Source};
use crate::error::Error;
use crate::session::Session;
use crate::{Outcome, ReceiveMode};

/// The settings of a receiver, from [`Client::receiver`](crate::Client::receiver).
#[must_use = "call open"]
pub struct ReceiverBuilder {
    connection: Connection,
    entity: String,
    mode: ReceiveMode,
    session: SessionWish,
    prefetch: Option<u32>,
}

#[derive(Clone, Debug)]
enum SessionWish {
    None,
    Named(String),
    Next(Duration),
}

impl ReceiverBuilder {
    pub(crate) fn new(connection: Connection, entity: &str) -> Self {
        let (mode, session) = (ReceiveMode::PeekLock, SessionWish::None);
        ReceiverBuilder { connection, entity: entity.to_owned(), mode, session, prefetch: Some(100) }
    }

    /// Sets the effect of a receive on the message.
    pub fn mode(self, mode: ReceiveMode) -> Self {
        ReceiverBuilder { mode, ..self }
    }

    /// Receives from the dead-letter queue of the queue or subscription.
    pub fn dead_letter(mut self) -> Self {
        self.entity.push_str("/$DeadLetterQueue");
        self
    }

    /// Receives the messages of this session and locks the session.
    pub fn session(self, id: impl Into<String>) -> Self {
        ReceiverBuilder { session: SessionWish::Named(id.into()), ..self }
    }

    /// Receives the messages of any unlocked session that has messages. Opening fails with [`Kind::NoSession`](crate::Kind::NoSession) if
    /// no session becomes available within `wait`.
    pub fn next_session(self, wait: Duration) -> Self {
        ReceiverBuilder { session: SessionWish::Next(wait), ..self }
    }

    /// Sets how many messages the broker may send in advance. The receiver renews the credit as messages are taken.
    pub fn prefetch(self, count: u32) -> Self {
        ReceiverBuilder { prefetch: Some(count), ..self }
    }

    /// Receives no messages until [`Receiver::add_credit`] is called, and at most as many as it requests.
    pub fn manual_credit(self) -> Self {
        ReceiverBuilder { prefetch: None, ..self }
    }

    /// Attaches the link.
    pub async fn open(self) -> Result<Receiver, Error> {
        let builder = self.connection.live().await?.receiver(&self.entity).mode(self.mode);
        let builder = match self.session {
            SessionWish::None => builder,
            SessionWish::Named(id) => builder.session(id),
            SessionWish::Next(wait) => builder.next_session(wait),
        };
        let builder = match self.prefetch {
            Some(count) => builder.credit(count),
            None => builder.manual_credit(),
        };
        let link = builder.open().await?;
        let session = link.session().cloned().map(Session::new);
        let source = Arc::new(Source { connection: self.connection, entity: self.entity });
        Ok(Receiver { link, session, source })
    }
}

/// Receives messages from one queue or subscription.
pub struct Receiver {
    link: peeklock_client::Receiver,
    session: Option<Session>,
    source: Arc<Source>,
}

impl Receiver {
    /// Returns the next message, or `None` after [`Receiver::stop`] once all messages in flight were returned.
    ///
    /// The future can be dropped without losing a message.
    pub async fn next(&mut self) -> Result<Option<Delivery>, Error> {
        match self.link.next().await? {
            Some(delivery) => Ok(Some(Delivery::new(delivery, &self.source)?)),
            None => Ok(None),
        }
    }

    /// Returns the session that this receiver holds, if it was opened for one.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// Requests `count` more messages, for receivers with manual credit.
    pub async fn add_credit(&self, count: u32) -> Result<(), Error> {
        Ok(self.link.add_credit(count).await?)
    }

    /// Takes back the credit, for receivers with manual credit. When this returns, [`Receiver::try_next`] returns the messages that were in
    /// flight, and no more follow until [`Receiver::add_credit`]. The link stays open.
    pub async fn drain(&mut self) -> Result<(), Error> {
        Ok(self.link.drain().await?)
    }

    /// Returns a message that has arrived already, without waiting.
    pub fn try_next(&mut self) -> Result<Option<Delivery>, Error> {
        self.link.try_next().map(|delivery| Delivery::new(delivery, &self.source)).transpose()
    }

    /// Stops the broker from sending more messages. [`Receiver::next`] returns the messages in flight, and then `None`.
    pub async fn stop(&mut self) -> Result<(), Error> {
        Ok(self.link.stop().await?)
    }

    /// Releases the messages that were not taken, and detaches. Deliveries that are still held can be settled.
    pub async fn close(self) -> Result<(), Error> {
        Ok(self.link.close().await?)
    }

    /// Settles many messages with the same outcome.
    pub async fn settle_many(
        &self,
        deliveries: impl IntoIterator<Item = Delivery>,
        outcome: Outcome,
    ) -> Result<(), Error> {
        for delivery in deliveries {
            delivery.settle(outcome.clone()).await?;
        }
        Ok(())
    }
}
