//! Messages without receivers, as storage queues have them: one question, one answer, and a receipt for each message.

use std::ops::Range;
use std::time::Duration;

use bytes::BytesMut;
use peeklock_engine::{Attributes, EntityId, Metadata, NewBody, Received};
use peeklock_journal::Log;
use peeklock_types::{EntityKind, EntityName, LockToken, QueueSettings, Timestamp, limits};

use crate::admin::{missing, show};
use crate::batch::{Batch, PeerId, Ticket};
use crate::broker::{Broker, ShardStopped};
use crate::execute::{Answered, New, done, first_of};
use crate::manage::AdminError;
use crate::reply::{Answer, EntityInfo, Error, Message};
use crate::request::Request;
use crate::shard::{Shard, nonce};

/// What can be asked about a queue and its messages without being a receiver.
#[derive(Debug)]
pub enum ReceiptRequest {
    Create {
        name: EntityName,
        settings: Box<QueueSettings>,
        metadata: Metadata,
    },
    SetMetadata {
        name: EntityName,
        metadata: Metadata,
    },
    /// Store the message that was written to the batch; nobody gets it before `hidden_for` is over.
    Put {
        name: EntityName,
        message: Range<usize>,
        hidden_for: Duration,
    },
    /// Hand out up to `count_max` messages, each for `hidden_for`.
    Take {
        name: EntityName,
        count_max: usize,
        hidden_for: Duration,
    },
    /// Show the first messages that could be taken.
    Peek {
        name: EntityName,
        count_max: usize,
    },
    /// Let a message stay away for `hidden_for` from now, with the body that was written to the batch, if one was.
    Change {
        name: EntityName,
        token: LockToken,
        hidden_for: Duration,
        body: Option<Range<usize>>,
    },
    Delete {
        name: EntityName,
        token: LockToken,
    },
    /// Delete all messages, held ones too.
    Clear {
        name: EntityName,
    },
}

impl<L: Log> Shard<L> {
    pub(crate) fn execute_receipt(
        &mut self,
        now: Timestamp,
        peer: PeerId,
        batch: &mut Batch,
        ticket: Ticket,
        request: ReceiptRequest,
    ) -> Answered {
        let result = match request {
            ReceiptRequest::Create { name, settings, metadata } => {
                self.create_with(now, ticket, name, settings, metadata)
            }
            ReceiptRequest::SetMetadata { name, metadata } => {
                let set = self.state.engine.set_metadata(now, &name, metadata, &mut self.output);
                set.map_err(Error::from).and_then(|_| show(&self.state.engine, name))
            }
            ReceiptRequest::Put { name, message, hidden_for } => self
                .put(now, name, batch, message, hidden_for)
                .map(|put| Answer::Receipt(Some(Box::new(put)))),
            ReceiptRequest::Change { name, token, hidden_for, body } => {
                let changed = self.change(now, name, batch, token, hidden_for, body);
                changed.map(|changed| Answer::Receipt(changed.map(Box::new)))
            }
            ReceiptRequest::Take { name, count_max, hidden_for } => match self.entity(name) {
                Ok(entity) => return self.take(now, peer, ticket, entity, count_max, hidden_for),
                Err(error) => Err(error),
            },
            ReceiptRequest::Peek { name, count_max } => match self.entity(name) {
                Ok(entity) => return self.peek_waiting(now, peer, ticket, entity, count_max),
                Err(error) => Err(error),
            },
            ReceiptRequest::Delete { name, token } => self.entity(name).and_then(|entity| {
                done(self.state.engine.delete_message(now, entity, token, &mut self.output))
            }),
            ReceiptRequest::Clear { name } => self.entity(name).and_then(|entity| {
                Ok(Answer::Count(self.state.engine.clear(now, entity, &mut self.output)?))
            }),
        };
        Some((ticket, result))
    }

    fn entity(&self, name: EntityName) -> Result<EntityId, Error> {
        self.state.engine.find(&name).ok_or_else(|| missing(name))
    }

    fn create_with(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        name: EntityName,
        settings: Box<QueueSettings>,
        metadata: Metadata,
    ) -> Result<Answer, Error> {
        metadata.check()?;
        let create =
            Request::Create { ticket, name: name.clone(), kind: EntityKind::Queue, settings, rule: None };
        if let Some((_, Err(error))) = self.execute_catalog(now, create) {
            return Err(error);
        }
        if !metadata.0.is_empty() {
            self.state.engine.set_metadata(now, &name, metadata, &mut self.output)?;
        }
        show(&self.state.engine, name)
    }

    fn put(
        &mut self,
        now: Timestamp,
        name: EntityName,
        batch: &mut Batch,
        message: Range<usize>,
        hidden_for: Duration,
    ) -> Result<Received, Error> {
        let entity = self.entity(name)?;
        self.with_body(batch, message.clone(), |shard, batch, mut new| {
            shard.add_views(Some(entity), batch, message, &mut new);
            let message = new.pop().ok_or(peeklock_engine::Error::Nothing)?;
            Ok(shard.state.engine.put_message(
                now,
                entity,
                message,
                hidden_for,
                nonce(),
                &mut shard.output,
            )?)
        })
    }

    fn change(
        &mut self,
        now: Timestamp,
        name: EntityName,
        batch: &mut Batch,
        token: LockToken,
        hidden_for: Duration,
        body: Option<Range<usize>>,
    ) -> Result<Option<Received>, Error> {
        let entity = self.entity(name)?;
        let Some(body) = body else {
            let (engine, out) = (&mut self.state.engine, &mut self.output);
            return Ok(engine.change_message(now, entity, token, hidden_for, None, nonce(), out)?);
        };
        self.with_body(batch, body, |shard, _, mut new| {
            let new = new.pop().ok_or(peeklock_engine::Error::Nothing)?;
            let body = Some(NewBody { body: new.body, size_bytes: new.size_bytes });
            let (engine, out) = (&mut shard.state.engine, &mut shard.output);
            Ok(engine.change_message(now, entity, token, hidden_for, body, nonce(), out)?)
        })
    }

    /// Does something with messages whose bodies are put into the group, and taken out again if it fails.
    fn with_body<T>(
        &mut self,
        batch: &mut Batch,
        messages: Range<usize>,
        todo: impl FnOnce(&mut Self, &Batch, New) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let limit_bytes = limits::MESSAGE_SIZE_BYTES_MAX;
        self.check_room(batch, messages.clone(), 2 * limit_bytes, limit_bytes)?;
        self.in_group(|shard| {
            let new = shard.put_bodies(batch, messages)?;
            todo(shard, batch, new)
        })
    }

    fn take(
        &mut self,
        now: Timestamp,
        peer: PeerId,
        ticket: Ticket,
        entity: EntityId,
        count_max: usize,
        hidden_for: Duration,
    ) -> Answered {
        let (engine, out) = (&mut self.state.engine, &mut self.output);
        let taken = engine.take_messages(now, entity, count_max, hidden_for, &mut nonce, out);
        self.collect();
        let taken =
            taken.map(|taken| taken.into_iter().map(|taken| (Some(taken.token), taken.message)).collect());
        self.answer_messages(peer, ticket, entity, taken)
    }

    fn peek_waiting(
        &mut self,
        now: Timestamp,
        peer: PeerId,
        ticket: Ticket,
        entity: EntityId,
        count_max: usize,
    ) -> Answered {
        let found = self.state.engine.peek_waiting(now, entity, count_max);
        let found = found.map(|found| first_of(found).map(|message| (None, message)).collect());
        self.answer_messages(peer, ticket, entity, found)
    }
}

/// One queue, as those see it that have no receivers.
impl Broker {
    /// Creates a queue that carries names and values for its owner.
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
        let (at, settings) = (name.clone(), Box::new(settings));
        self.entity_of(&at, ReceiptRequest::Create { name, settings, metadata }).await
    }

    pub async fn set_metadata(&self, name: EntityName, metadata: Metadata) -> Result<EntityInfo, AdminError> {
        let at = name.clone();
        self.entity_of(&at, ReceiptRequest::SetMetadata { name, metadata }).await
    }

    async fn entity_of(&self, at: &EntityName, request: ReceiptRequest) -> Result<EntityInfo, AdminError> {
        match self.ask_receipt(at, Batch::default(), request).await? {
            Answer::Entities(mut entities) => entities.pop().ok_or_else(|| ShardStopped.into()),
            _ => Err(ShardStopped.into()),
        }
    }

    /// Stores a message in its stored form, as `write` writes it, and returns it with its receipt. Nobody gets it before `hidden_for` is over.
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
        let request = ReceiptRequest::Put { name, message, hidden_for };
        match self.ask_receipt(&at, batch, request).await? {
            Answer::Receipt(Some(received)) => Ok(*received),
            _ => Err(AdminError::from(ShardStopped).into()),
        }
    }

    /// Hands out up to `count_max` messages that wait, each hidden from others for `hidden_for`.
    pub async fn take_messages(
        &self,
        name: EntityName,
        count_max: usize,
        hidden_for: Duration,
    ) -> Result<Vec<Message>, AdminError> {
        let at = name.clone();
        self.messages_of(&at, ReceiptRequest::Take { name, count_max, hidden_for }).await
    }

    /// Shows the first messages that could be taken.
    pub async fn peek_waiting(&self, name: EntityName, count_max: usize) -> Result<Vec<Message>, AdminError> {
        let at = name.clone();
        self.messages_of(&at, ReceiptRequest::Peek { name, count_max }).await
    }

    async fn messages_of(
        &self,
        at: &EntityName,
        request: ReceiptRequest,
    ) -> Result<Vec<Message>, AdminError> {
        match self.ask_receipt(at, Batch::default(), request).await? {
            Answer::Messages(messages) => Ok(messages),
            _ => Err(ShardStopped.into()),
        }
    }

    /// Lets a message stay away for `hidden_for` from now, or come back at once for zero, with another stored form if there is one. Returns the
    /// new receipt; `None` if the message has failed too often and went to the dead letters.
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
        match self.ask_receipt(&at, batch, ReceiptRequest::Change { name, token, hidden_for, body }).await? {
            Answer::Receipt(received) => Ok(received.map(|received| *received)),
            _ => Err(ShardStopped.into()),
        }
    }

    pub async fn delete_message(&self, name: EntityName, token: LockToken) -> Result<(), AdminError> {
        let at = name.clone();
        self.ask_receipt(&at, Batch::default(), ReceiptRequest::Delete { name, token }).await.map(|_| ())
    }

    /// Deletes all messages of a queue but its dead letters, held ones too, and tells how many.
    pub async fn clear_messages(&self, name: EntityName) -> Result<u64, AdminError> {
        let at = name.clone();
        match self.ask_receipt(&at, Batch::default(), ReceiptRequest::Clear { name }).await? {
            Answer::Count(count) => Ok(count),
            _ => Err(ShardStopped.into()),
        }
    }

    async fn ask_receipt(
        &self,
        at: &EntityName,
        mut batch: Batch,
        request: ReceiptRequest,
    ) -> Result<Answer, AdminError> {
        batch.push(Request::Receipt { ticket: Ticket(0), request: Box::new(request) });
        self.ask_batch(self.place(at), batch).await
    }
}
