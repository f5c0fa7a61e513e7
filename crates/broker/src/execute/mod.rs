//! Executes requests, one file for each subject.

mod blob_budget;
mod blobs;
mod entities;
mod events;
mod hubs;
mod outbox;
mod receipts;
mod receiving;
mod rules;
mod sending;
mod sessions;
mod settling;
mod transactions;

use peeklock_engine::{EntityId, Received};
use peeklock_journal::Log;
use peeklock_types::{EntityName, SubQueue, Timestamp, limits};

use crate::batch::{Batch, PeerId};
use crate::reply::{Error, Message};
use crate::request::{Answered, Ask, Asked, Request, Ticket};
use crate::shard::outgoing::{Effect, FoundMessage};
use crate::shard::{Failure, Shard};

pub use blob_budget::BLOB_BYTES_MAX;
pub(crate) use blob_budget::{BlobBudget, BlobShare};
pub(crate) use entities::missing;

/// Messages for one answer.
type FoundMessages = Vec<FoundMessage>;

impl<L: Log> Shard<L> {
    pub(crate) fn execute(
        &mut self,
        now: Timestamp,
        peer: PeerId,
        batch: &mut Batch,
        request: Request,
    ) -> Result<(), Failure> {
        match request {
            Request::Send(run) => self.execute_sends(now, peer, batch, run)?,
            Request::Settle(run) => self.execute_settles(now, peer, run)?,
            Request::Sending(request) => self.execute_sending(now, peer, batch, request),
            Request::Settling(request) => self.execute_settling(now, peer, request),
            Request::Receiving(request) => self.execute_receiving(now, peer, request),
            Request::Sessions(request) => self.execute_session(now, peer, request),
            Request::Transactions(request) => self.execute_transaction(now, peer, batch, *request),
            Request::Entities(request) => self.execute_entity(now, peer, *request),
            Request::Rules(request) => self.execute_rule(now, peer, *request),
            Request::Events(request) => self.execute_event(now, peer, request),
            Request::Hubs(request) => self.execute_hub(now, peer, *request),
            Request::Blobs(request) => self.execute_blob(now, peer, *request),
            Request::Receipts(request) => self.execute_receipt(now, peer, batch, *request),
            Request::Outbox(request) => self.execute_outbox(now, peer, batch, request),
            Request::Gone => self.forget(now, peer),
        }
        self.collect();
        self.collect_hubs();
        Ok(())
    }

    /// Executes a request and holds its answer until its facts are durable.
    fn answer<R: Ask>(
        &mut self,
        peer: PeerId,
        Asked { ticket, request }: Asked<R>,
        execute: impl FnOnce(&mut Self, R) -> Result<R::Answer, Error>,
    ) {
        let result = execute(self, request);
        self.collect();
        self.collect_hubs();
        self.hold_answer(peer, ticket, result);
    }

    pub(crate) fn hold_answer<R: Ask>(
        &mut self,
        peer: PeerId,
        ticket: Ticket<R>,
        result: Result<R::Answer, Error>,
    ) {
        self.held.push(Effect::Answer { peer, answer: R::answer(Answered { ticket, result }) });
    }

    /// Executes a request for messages. Their bodies are read after the facts are durable.
    fn answer_messages<R: Ask<Answer = Vec<Message>>>(
        &mut self,
        peer: PeerId,
        Asked { ticket, request }: Asked<R>,
        execute: impl FnOnce(&mut Self, R) -> Result<(EntityId, FoundMessages), Error>,
    ) {
        let found = execute(self, request);
        self.collect();
        self.collect_hubs();
        match found {
            Ok((entity, messages)) => {
                let answer = |ticket, messages| {
                    R::answer(Answered { ticket: Ticket::new(ticket), result: Ok(messages) })
                };
                let ticket = ticket.number();
                self.held.push(Effect::Messages { peer, ticket, entity, messages, answer });
            }
            Err(error) => self.hold_answer(peer, ticket, Err(error)),
        }
    }

    fn entity(&self, name: EntityName) -> Result<EntityId, Error> {
        self.state.engine.find(&name).ok_or_else(|| missing(name))
    }
}

/// Returns a message of an answer, without a lock.
fn shown(message: peeklock_engine::Message) -> FoundMessage {
    FoundMessage { token: None, sub_queue: SubQueue::Main, message, removes_later: false }
}

/// Returns a message of an answer that was received from a sub-queue.
fn received(sub_queue: SubQueue) -> impl Fn(Received) -> FoundMessage {
    move |Received { token, message, removes_later }| FoundMessage {
        token: Some(token),
        sub_queue,
        message,
        removes_later,
    }
}

/// Returns as many messages as fit one answer, and at least one.
fn first_of(messages: Vec<peeklock_engine::Message>) -> impl Iterator<Item = peeklock_engine::Message> {
    let mut size_bytes = 0;
    messages.into_iter().take_while(move |message| {
        let is_first = size_bytes == 0;
        size_bytes += message.size_bytes as usize + message.patch.size_bytes();
        is_first || size_bytes <= limits::ANSWER_SIZE_BYTES_MAX
    })
}
