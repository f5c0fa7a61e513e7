//! Messages without receivers, as in storage queues.

use std::ops::Range;
use std::time::Duration;

use peeklock_engine::{EntityId, NewBody, Received};
use peeklock_journal::Log;
use peeklock_types::{EntityKind, EntityName, LockToken, SubQueue, Timestamp, limits};

use super::entities::show;
use super::sending::New;
use super::{first_of, received, shown};
use crate::batch::{Batch, PeerId};
use crate::reply::{EntityInfo, Error};
use crate::request::entities::Create;
use crate::request::receipts::{
    ChangeMessage, ClearMessages, CreateWithMetadata, DeleteMessage, PeekWaiting, PutMessage, ReceiptRequest,
    SetMetadata, TakeMessages,
};
use crate::shard::{Shard, nonce};

impl<L: Log> Shard<L> {
    pub(super) fn execute_receipt(
        &mut self,
        now: Timestamp,
        peer: PeerId,
        batch: &mut Batch,
        request: ReceiptRequest,
    ) {
        match request {
            ReceiptRequest::CreateWithMetadata(asked) => {
                self.answer(peer, asked, |shard, request| shard.create_with_metadata(now, request))
            }
            ReceiptRequest::SetMetadata(asked) => {
                self.answer(peer, asked, |shard, SetMetadata { name, metadata }| {
                    shard.state.engine.set_metadata(now, &name, metadata, &mut shard.output)?;
                    show(&shard.state.engine, name)
                });
            }
            ReceiptRequest::PutMessage(asked) => {
                self.answer(peer, asked, |shard, PutMessage { name, message, hidden_for }| {
                    shard.put(now, name, batch, message, hidden_for)
                });
            }
            ReceiptRequest::ChangeMessage(asked) => self.answer(peer, asked, |shard, request| {
                let ChangeMessage { name, token, hidden_for, body } = request;
                shard.change(now, name, batch, token, hidden_for, body)
            }),
            ReceiptRequest::TakeMessages(asked) => self.answer_messages(peer, asked, |shard, request| {
                let TakeMessages { name, count_max, hidden_for } = request;
                let entity = shard.entity(name)?;
                let (engine, out) = (&mut shard.state.engine, &mut shard.output);
                let taken = engine.take_messages(now, entity, count_max, hidden_for, &mut nonce, out)?;
                Ok((entity, taken.into_iter().map(received(SubQueue::Main)).collect()))
            }),
            ReceiptRequest::PeekWaiting(asked) => {
                self.answer_messages(peer, asked, |shard, PeekWaiting { name, count_max }| {
                    let entity = shard.entity(name)?;
                    let found = shard.state.engine.peek_waiting(now, entity, count_max)?;
                    Ok((entity, first_of(found).map(shown).collect()))
                });
            }
            ReceiptRequest::DeleteMessage(asked) => {
                self.answer(peer, asked, |shard, DeleteMessage { name, token }| {
                    let entity = shard.entity(name)?;
                    Ok(shard.state.engine.delete_message(now, entity, token, &mut shard.output)?)
                });
            }
            ReceiptRequest::ClearMessages(asked) => {
                self.answer(peer, asked, |shard, ClearMessages { name }| {
                    let entity = shard.entity(name)?;
                    Ok(shard.state.engine.clear(now, entity, &mut shard.output)?)
                });
            }
        }
    }

    fn create_with_metadata(
        &mut self,
        now: Timestamp,
        request: CreateWithMetadata,
    ) -> Result<EntityInfo, Error> {
        let CreateWithMetadata { name, settings, metadata } = request;
        metadata.check()?;
        self.create(now, Create { name: name.clone(), kind: EntityKind::Queue, settings, rule: None })?;
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
        self.with_body(Some(entity), batch, message, |shard, mut new| {
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
        self.with_body(None, batch, body, |shard, mut new| {
            let new = new.pop().ok_or(peeklock_engine::Error::Nothing)?;
            let body = Some(NewBody { body: new.body, size_bytes: new.size_bytes });
            let (engine, out) = (&mut shard.state.engine, &mut shard.output);
            Ok(engine.change_message(now, entity, token, hidden_for, body, nonce(), out)?)
        })
    }

    /// Runs a step with messages whose bodies are in the group, and removes the bodies if it fails.
    fn with_body<T>(
        &mut self,
        target: Option<EntityId>,
        batch: &mut Batch,
        messages: Range<usize>,
        todo: impl FnOnce(&mut Self, New) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let limit_bytes = limits::MESSAGE_SIZE_BYTES_MAX;
        self.check_room(batch, messages.clone(), 2 * limit_bytes, limit_bytes)?;
        self.in_group(|shard| {
            let new = shard.put_messages(target, batch, messages)?;
            todo(shard, new)
        })
    }
}
