//! Calls about messages without receivers, as in storage queues: each message has a receipt.

use std::time::Duration;

use bytes::BytesMut;
use peeklock_engine::{Attributes, Metadata, Received};
use peeklock_types::{EntityKind, EntityName, LockToken, QueueSettings};

use super::AdminError;
use crate::batch::Batch;
use crate::broker::Broker;
use crate::reply::{EntityInfo, Error, Message};
use crate::request::receipts::{
    ChangeMessage, ClearMessages, CreateWithMetadata, DeleteMessage, PeekWaiting, PutMessage, SetMetadata,
    TakeMessages,
};

impl Broker {
    /// Creates a queue with key-value pairs for its owner.
    pub async fn create_with_metadata(
        &self,
        name: EntityName,
        settings: QueueSettings,
        metadata: Metadata,
    ) -> Result<EntityInfo, AdminError> {
        if self.queue_groups().contains_key(&name) {
            return Err(Error::NameOfQueueGroup { name }.into());
        }
        let _turn = self.quota_turn().await;
        self.check_entity_count(&name, EntityKind::Queue).await?;
        let settings = Box::new(settings);
        self.ask_at(&name.clone(), CreateWithMetadata { name, settings, metadata }).await
    }

    pub async fn set_metadata(&self, name: EntityName, metadata: Metadata) -> Result<EntityInfo, AdminError> {
        self.ask_at(&name.clone(), SetMetadata { name, metadata }).await
    }

    /// Stores a message, whose stored form `write` writes, and returns it with its receipt. The message is hidden for
    /// `hidden_for`.
    pub async fn put_message<E: From<AdminError>>(
        &self,
        name: EntityName,
        hidden_for: Duration,
        write: impl FnOnce(&mut BytesMut) -> Result<Option<Box<Attributes>>, E>,
    ) -> Result<Received, E> {
        let (mut batch, at) = (Batch::default(), name.clone());
        let mut messages = batch.messages();
        messages.add(write)?;
        let message = messages.keep();
        Ok(self.ask_with(self.place(&at), batch, PutMessage { name, message, hidden_for }).await?)
    }

    /// Takes up to `count_max` available messages and hides each for `hidden_for`.
    pub async fn take_messages(
        &self,
        name: EntityName,
        count_max: usize,
        hidden_for: Duration,
    ) -> Result<Vec<Message>, AdminError> {
        self.ask_at(&name.clone(), TakeMessages { name, count_max, hidden_for }).await
    }

    /// Returns the first available messages without taking them.
    pub async fn peek_waiting(&self, name: EntityName, count_max: usize) -> Result<Vec<Message>, AdminError> {
        self.ask_at(&name.clone(), PeekWaiting { name, count_max }).await
    }

    /// Hides a message for `hidden_for` from now (zero makes it available at once), with a new stored form if there is
    /// one. Returns the new receipt; `None` if the message exceeded its delivery count and was dead-lettered.
    pub async fn change_message(
        &self,
        name: EntityName,
        token: LockToken,
        hidden_for: Duration,
        stored: Option<&[u8]>,
    ) -> Result<Option<Received>, AdminError> {
        let (mut batch, at) = (Batch::default(), name.clone());
        let body = match stored {
            Some(stored) => {
                let mut messages = batch.messages();
                messages.add(|out| {
                    out.extend_from_slice(stored);
                    Ok::<_, AdminError>(None)
                })?;
                Some(messages.keep())
            }
            None => None,
        };
        self.ask_with(self.place(&at), batch, ChangeMessage { name, token, hidden_for, body }).await
    }

    pub async fn delete_message(&self, name: EntityName, token: LockToken) -> Result<(), AdminError> {
        self.ask_at(&name.clone(), DeleteMessage { name, token }).await
    }

    /// Deletes all messages of a queue except its dead letters, including locked ones, and returns their number.
    pub async fn clear_messages(&self, name: EntityName) -> Result<u64, AdminError> {
        self.ask_at(&name.clone(), ClearMessages { name }).await
    }
}
