//! Requests to `$management`: of an entity as Service Bus has them, and of the namespace for queues themselves.

mod answer;
mod body;
mod operation;
mod respond;
mod rules;
mod settings;

use bytes::Bytes;
use peeklock_access::Scope;
use peeklock_amqp::connection::{Delivery, SessionId};
use peeklock_amqp::{MessageId, Value};
use peeklock_broker::{Answer, EntityInfo, Error, Found, Request, SessionHold, TransactionSettle};
use peeklock_types::{self as types, EntityName, EntityPath};
use rustc_hash::FxHashMap;

use crate::conversation::Conversation;
use crate::coordinator::transaction_of;
use crate::error::{Refusal, refusal};
use crate::incoming::{self, Needs};
use crate::link::{EntityRef, LinkKind, LinkNumber, Place, Service};
use crate::message::RequestMessage;
use crate::request::Waiter;
use answer::AnswerKind;
use operation::{EntityOperation, NamespaceOperation, Operation};

/// Requests of one connection that wait for their shards.
const PENDING_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct Pending {
    requests: FxHashMap<u32, PendingRequest>,
    next: u32,
}

/// Where a response goes.
#[derive(Clone, Debug)]
pub(crate) struct ReplyTo {
    pub(crate) link: LinkNumber,
    pub(crate) place: Place,
    pub(crate) correlation: Option<MessageId>,
}

struct PendingRequest {
    reply_to: ReplyTo,
    path: Option<EntityPath>,
    transaction: Option<Bytes>,
    kind: AnswerKind,
    /// What to do once the first answer is there.
    todo: Option<Todo>,
    /// Answers still to come.
    remaining: usize,
    result: Result<Vec<Answer>, Refusal>,
}

enum Todo {
    /// When the entity is found.
    Entity(EntityOperation),
    /// When the settings are known that it changes.
    Update { name: EntityName, changes: Value },
}

impl Conversation<'_> {
    pub(crate) fn on_management(
        &mut self,
        session: SessionId,
        path: Option<EntityPath>,
        delivery: &Delivery,
    ) {
        let request = match RequestMessage::decode(&delivery.payload) {
            Ok(request) => request,
            Err(error) => return tracing::info!("a management request cannot be read: {error}"),
        };
        let service = Service::Management(path);
        let link = self.response_link(session, &service, request.reply_to.as_deref());
        let Some((link, place)) = link.and_then(|link| Some((link, self.take_place(link)?))) else {
            return tracing::info!("a management request has no link for its response");
        };
        let Service::Management(path) = service else { return };
        let reply_to = ReplyTo { link, place, correlation: request.message_id.clone() };
        let transaction = transaction_of(delivery).cloned();
        if let Err(refusal) = self.start_request(reply_to.clone(), path, &request, transaction.clone()) {
            if let Some(txn_id) = transaction {
                self.transactions.doom(&txn_id, &refusal.description);
            }
            self.respond_refused(reply_to, &refusal);
        }
    }

    fn start_request(
        &mut self,
        reply_to: ReplyTo,
        path: Option<EntityPath>,
        request: &RequestMessage,
        transaction: Option<Bytes>,
    ) -> Result<(), Refusal> {
        if self.pending.requests.len() >= PENDING_MAX {
            let text = format!("{PENDING_MAX} requests of this connection wait for their answers already");
            return Err(Refusal::new(503, peeklock_amqp::condition::SERVER_BUSY, text));
        }
        let operation = Operation::parse(request, path.is_some())?;
        let scope = path.as_ref().map_or(Scope::NAMESPACE, Scope::from);
        self.check_right(operation.right(), &scope)?;
        if transaction.is_some() && !operation.is_settlement() {
            let text = "of management requests only update-disposition can be part of a transaction; send the message with its \
                        scheduled time over a link instead, or leave the transaction";
            return Err(Refusal::not_implemented(text));
        }
        let kind = operation.answer_kind();
        let result = Ok(Vec::new());
        let pending = PendingRequest {
            reply_to,
            path: path.clone(),
            transaction,
            kind,
            todo: None,
            remaining: 1,
            result,
        };
        match (operation, path) {
            (Operation::Entity(operation), Some(path)) => self.find_entity(pending, operation, path),
            (Operation::Namespace(operation), _) => self.ask_namespace(pending, operation),
            (Operation::Entity(_), None) => {
                return Err(Refusal::bad_request("this operation needs an entity"));
            }
        }
        Ok(())
    }

    fn find_entity(&mut self, mut pending: PendingRequest, operation: EntityOperation, path: EntityPath) {
        pending.todo = Some(Todo::Entity(operation));
        let shard = self.namespace.broker.place(&path.name);
        let number = self.pending.insert(pending);
        self.push(shard, Request::Find { ticket: Waiter::Management(number).ticket(), name: path.name });
    }

    fn ask_namespace(&mut self, mut pending: PendingRequest, operation: NamespaceOperation) {
        let shards = match operation.name() {
            Some(name) => {
                let shard = self.namespace.broker.place(name);
                shard..shard + 1
            }
            None => 0..self.namespace.broker.shard_count(),
        };
        pending.remaining = shards.len();
        if let NamespaceOperation::UpdateQueue { name, changes } = &operation {
            pending.todo = Some(Todo::Update { name: name.clone(), changes: changes.clone() });
        }
        let ticket = Waiter::Management(self.pending.insert(pending)).ticket();
        for shard in shards {
            self.push(shard, operation.request(ticket));
        }
    }

    /// A shard has answered a management request, or a part of it.
    pub(crate) fn on_management_answer(&mut self, number: u32, result: Result<Answer, Error>) {
        let Some(pending) = self.pending.requests.get_mut(&number) else { return };
        let next = match (pending.todo.take(), result) {
            (Some(Todo::Entity(operation)), Ok(Answer::Found(found))) => {
                self.ask_entity(number, operation, found)
            }
            (Some(Todo::Update { name, changes }), Ok(Answer::Entities(queues))) => {
                self.ask_update(number, name, &changes, queues)
            }
            (_, result) => {
                pending.take(result);
                Ok(())
            }
        };
        if let Err(refusal) = next
            && let Some(pending) = self.pending.requests.get_mut(&number)
        {
            pending.remaining = 0;
            pending.result = Err(refusal);
        }
        self.finish_request(number);
    }

    /// Responds if all answers are there.
    fn finish_request(&mut self, number: u32) {
        if self.pending.requests.get(&number).is_none_or(|pending| pending.remaining > 0) {
            return;
        }
        let Some(done) = self.pending.requests.remove(&number) else { return };
        match done.result {
            Ok(answers) => self.respond_found(done.reply_to, done.kind, answers),
            Err(refusal) => {
                if let Some(txn_id) = done.transaction {
                    self.transactions.doom(&txn_id, &refusal.description);
                }
                self.respond_refused(done.reply_to, &refusal);
            }
        }
    }

    /// The entity is there: now for what was asked of it.
    fn ask_entity(&mut self, number: u32, operation: EntityOperation, found: Found) -> Result<(), Refusal> {
        let Some(pending) = self.pending.requests.get_mut(&number) else { return Ok(()) };
        let Some(path) = pending.path.clone() else { return Ok(()) };
        let transaction = pending.transaction.clone();
        let entity = EntityRef { shard: self.namespace.broker.place(&path.name), entity: found.entity };
        let ticket = Waiter::Management(number).ticket();
        let hold = match operation.held_session() {
            Some(session) => Some(self.hold_of(&path, session)?),
            None => None,
        };
        match (operation, transaction) {
            (EntityOperation::Schedule { messages }, _) => self.schedule(ticket, entity, &messages, found),
            (operation @ EntityOperation::Settle { .. }, Some(txn_id)) => {
                self.settle_in_transaction(number, &txn_id, &path, entity, operation)
            }
            (operation, _) => {
                let request = operation.request(ticket, found.entity, &path, hold);
                request.into_iter().for_each(|request| self.push(entity.shard, request));
                Ok(())
            }
        }
    }

    fn schedule(
        &mut self,
        ticket: peeklock_broker::Ticket,
        entity: EntityRef,
        payloads: &[Bytes],
        found: Found,
    ) -> Result<(), Refusal> {
        let now = self.now;
        let Some(batch) = self.batch(entity.shard) else { return Ok(()) };
        let mut messages = batch.messages();
        for payload in payloads {
            messages.add(|out| incoming::store(payload, now, Needs::from(&found), out))?;
        }
        messages.schedule(ticket, entity.entity);
        Ok(())
    }

    /// Each settlement becomes a step of the transaction, and each lock is looked at.
    fn settle_in_transaction(
        &mut self,
        number: u32,
        txn_id: &Bytes,
        path: &EntityPath,
        entity: EntityRef,
        operation: EntityOperation,
    ) -> Result<(), Refusal> {
        let EntityOperation::Settle { tokens, settlement, .. } = operation else { return Ok(()) };
        let sub_queue = path.sub_queue;
        let step = |token| TransactionSettle { sub_queue, token, settlement: settlement.clone() };
        let steps = tokens.iter().copied().map(step).collect();
        self.add_settles(txn_id, path, entity, steps)?;
        if let Some(pending) = self.pending.requests.get_mut(&number) {
            pending.remaining = tokens.len();
        }
        let ticket = Waiter::Management(number).ticket();
        for token in tokens {
            let entity_id = entity.entity;
            self.push(entity.shard, Request::CheckLock { ticket, entity: entity_id, sub_queue, token });
        }
        Ok(())
    }

    /// The receiver on this connection that holds the session.
    fn hold_of(&self, path: &EntityPath, session: &types::SessionId) -> Result<SessionHold, Refusal> {
        let held = self.links.iter().filter_map(|(_, link)| match &link.kind {
            LinkKind::Receiver(link) if link.path == *path && link.session.as_ref() == Some(session) => {
                Some(link.receiver)
            }
            _ => None,
        });
        // A link that has lost the session may still be there when a newer one has it.
        let held = held.max();
        let receiver = held.ok_or_else(|| Refusal::session_lock_lost(path))?;
        Ok(SessionHold { session: session.clone(), receiver })
    }

    /// The settings are known: now they are changed.
    fn ask_update(
        &mut self,
        number: u32,
        name: EntityName,
        changes: &Value,
        queues: Vec<EntityInfo>,
    ) -> Result<(), Refusal> {
        let queue = queues.into_iter().next().ok_or_else(|| Refusal::no_such_entity(&name))?;
        let (mut settings, expected) = (queue.settings, Some(queue.revision));
        settings::change(&mut settings, changes)?;
        let shard = self.namespace.broker.place(&name);
        let ticket = Waiter::Management(number).ticket();
        self.push(shard, Request::Update { ticket, name, settings, expected });
        Ok(())
    }
}

impl Pending {
    fn insert(&mut self, request: PendingRequest) -> u32 {
        let number = self.next;
        // Far fewer than 2^32 are open at a time, so a number that comes round again is free.
        self.next = self.next.wrapping_add(1);
        self.requests.insert(number, request);
        number
    }
}

impl PendingRequest {
    fn take(&mut self, result: Result<Answer, Error>) {
        self.remaining = self.remaining.saturating_sub(1);
        match result {
            Ok(answer) => {
                if let Ok(answers) = &mut self.result {
                    answers.push(answer);
                }
            }
            Err(error) => self.result = Err(refusal(&error, self.path.as_ref())),
        }
    }
}
