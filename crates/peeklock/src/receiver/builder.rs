//! The settings of a receiver.

use std::sync::Arc;
use std::time::Duration;

use super::Receiver;
use super::attach::{Plan, SessionWish};
use crate::ReceiveMode;
use crate::connection::Connection;
use crate::error::{Error, Kind};

/// The default number of messages that a broker may send in advance.
const PREFETCH_DEFAULT: u32 = 100;
/// The largest number of messages that a broker may send in advance.
const PREFETCH_MAX: u32 = 10_000;

/// The settings of a receiver, from [`Client::receiver`](crate::Client::receiver).
#[must_use = "call open"]
pub struct ReceiverBuilder {
    connection: Connection,
    entity: String,
    mode: ReceiveMode,
    session: SessionWish,
    prefetch: Option<u32>,
}

impl ReceiverBuilder {
    pub(crate) fn new(connection: Connection, entity: &str) -> Self {
        let (mode, session) = (ReceiveMode::PeekLock, SessionWish::None);
        let prefetch = Some(PREFETCH_DEFAULT);
        ReceiverBuilder { connection, entity: entity.to_owned(), mode, session, prefetch }
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

    /// Receives from the queue of messages that could not be forwarded.
    pub fn transfer_dead_letter(mut self) -> Self {
        self.entity.push_str("/$Transfer/$DeadLetterQueue");
        self
    }

    /// Receives the messages of this session and locks the session.
    pub fn session(self, id: impl Into<String>) -> Self {
        ReceiverBuilder { session: SessionWish::Named(id.into()), ..self }
    }

    /// Receives the messages of any unlocked session that has messages. Opening fails with [`Kind::NoSession`] if
    /// no session becomes available within `wait`.
    pub fn next_session(self, wait: Duration) -> Self {
        ReceiverBuilder { session: SessionWish::Next(wait), ..self }
    }

    /// Sets how many messages the broker may send in advance, from 1 to 10,000; 100 is the default. The receiver renews the credit as messages
    /// are taken.
    pub fn prefetch(self, count: u32) -> Self {
        ReceiverBuilder { prefetch: Some(count), ..self }
    }

    /// Receives no messages until [`Receiver::add_credit`] is called, and at most as many as it requests.
    pub fn manual_credit(self) -> Self {
        ReceiverBuilder { prefetch: None, ..self }
    }

    /// Attaches the link.
    pub async fn open(self) -> Result<Receiver, Error> {
        if let Some(count) = self.prefetch
            && !(1..=PREFETCH_MAX).contains(&count)
        {
            let text = format!(
                "Prefetch {count} of the receiver of \"{}\" is not from 1 to {PREFETCH_MAX}. Use manual_credit() to receive nothing in advance.",
                self.entity
            );
            return Err(Error::new(Kind::Invalid, "E-REJ-01", text));
        }
        let (entity, connection) = (Arc::from(self.entity), self.connection);
        let plan =
            Plan { connection, entity, mode: self.mode, session: self.session, prefetch: self.prefetch };
        let link = plan.clone().attach().await?;
        Ok(Receiver::new(plan, link))
    }
}
