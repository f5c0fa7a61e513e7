//! Requests about the messages of an entity, without a link: peek, deferred messages, sessions, purge.

use std::sync::Arc;

use peeklock_client::{ReceivedMessage, SequenceNumber, Timestamp};

use crate::ReceiveMode;
use crate::client::Client;
use crate::connection::Connection;
use crate::delivery::{Delivery, Source};
use crate::error::Error;
use crate::transaction::Transaction;

/// Fetches deferred messages by their sequence numbers.
pub(crate) async fn receive_deferred(
    connection: &Connection,
    entity: &Arc<str>,
    numbers: &[SequenceNumber],
    mode: ReceiveMode,
) -> Result<Vec<ReceivedMessage>, Error> {
    let numbers: Arc<[SequenceNumber]> = numbers.into();
    let receive = |live: peeklock_client::Client| {
        let (entity, numbers) = (Arc::clone(entity), Arc::clone(&numbers));
        Box::pin(async move { live.receive_deferred(&entity, &numbers, mode).await }) as _
    };
    connection.repeat(receive).await
}

impl Client {
    /// Begins a transaction on the current connection.
    pub async fn transaction(&self) -> Result<Transaction, Error> {
        Transaction::begin(&self.connection).await
    }

    /// Fetches deferred messages by their sequence numbers, and locks them. A receiver of a session fetches those of its session.
    pub async fn receive_deferred(
        &self,
        entity: &str,
        numbers: &[SequenceNumber],
    ) -> Result<Vec<Delivery>, Error> {
        let (connection, entity) = (self.connection.clone(), Arc::from(entity));
        let messages = receive_deferred(&connection, &entity, numbers, ReceiveMode::PeekLock).await?;
        let source = Arc::new(Source::of_request(connection, entity));
        Ok(messages.into_iter().map(|message| Delivery::fetched(message, &source)).collect())
    }

    /// Returns up to `count` messages in order, starting at a sequence number, without locking them.
    pub async fn peek(
        &self,
        entity: &str,
        from: SequenceNumber,
        count: u32,
    ) -> Result<Vec<ReceivedMessage>, Error> {
        let entity: Arc<str> = entity.into();
        let peek = |live: peeklock_client::Client| {
            let entity = Arc::clone(&entity);
            Box::pin(async move { live.peek(&entity, from, count).await }) as _
        };
        self.connection.repeat(peek).await
    }

    /// Returns messages of one session, without locking the messages or the session.
    pub async fn peek_session(
        &self,
        entity: &str,
        session: &str,
        from: SequenceNumber,
        count: u32,
    ) -> Result<Vec<ReceivedMessage>, Error> {
        let (entity, session): (Arc<str>, Arc<str>) = (entity.into(), session.into());
        let peek = |live: peeklock_client::Client| {
            let (entity, session) = (Arc::clone(&entity), Arc::clone(&session));
            Box::pin(async move { live.peek_session(&entity, &session, from, count).await }) as _
        };
        self.connection.repeat(peek).await
    }

    /// Returns the ids of all sessions that have messages. With a time, returns the sessions whose state was set since then.
    pub async fn list_sessions(
        &self,
        entity: &str,
        updated_since: Option<Timestamp>,
    ) -> Result<Vec<String>, Error> {
        let entity: Arc<str> = entity.into();
        let list = |live: peeklock_client::Client| {
            let entity = Arc::clone(&entity);
            Box::pin(async move { live.list_sessions(&entity, updated_since).await }) as _
        };
        self.connection.repeat(list).await
    }

    /// Removes all messages of a queue, subscription or sub-queue (`orders/$DeadLetterQueue`), or those that were enqueued before a time.
    /// Locked and scheduled messages stay. Returns the number of removed messages; after a repeat over another connection, that of the repeat.
    pub async fn purge(&self, entity: &str, before: Option<Timestamp>) -> Result<u64, Error> {
        let entity: Arc<str> = entity.into();
        let purge = |live: peeklock_client::Client| {
            let entity = Arc::clone(&entity);
            Box::pin(async move { live.purge(&entity, before).await }) as _
        };
        self.connection.repeat(purge).await
    }
}
