//! Requests to the `$management` of an entity, as in Service Bus. Entities themselves are managed over HTTP.

mod answer;
mod body;
mod operation;
mod queue_group;
pub(crate) mod respond;
pub(crate) mod response;
mod rules;
mod steps;
mod streamed;

use bytes::Bytes;
use peeklock_access::Scope;
use peeklock_amqp::connection::{Delivery, SessionId};
use peeklock_amqp::{MessageId, Value};
use peeklock_broker::request::entities::Find;
use peeklock_broker::{Error, Found, Named, SessionHold};
use peeklock_types::{self as types, EntityPath, SequenceNumber, SubQueue};
use rustc_hash::FxHashMap;

use crate::access::Access;
use crate::connection::context::Context;
use crate::connection::link::{EntityRef, LinkKind, LinkNumber, Service};
use crate::connection::request::{FindWaiter, numbered};
use crate::error::{Refusal, refusal};
use crate::hub::is_hub;
use crate::incoming;
use crate::management::respond::{respond_found, respond_refused, response_link, take_place};
use crate::management::response::Place;
use crate::message::RequestMessage;
use crate::queue_group::join::queue_group_of;
use crate::transaction::coordinator::transaction_of;
use crate::transaction::{HeldSend, Transactions};
pub(crate) use answer::{Content, Form};
use operation::Operation;
use queue_group::QueueGroupRequest;
use steps::Step;

/// The limit on requests of one connection that wait for their shards.
const PENDING_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct Management {
    requests: FxHashMap<u32, PendingRequest>,
    next: u32,
}

/// The destination of a response.
#[derive(Clone, Debug)]
pub(crate) struct ReplyTo {
    pub(crate) link: LinkNumber,
    pub(crate) place: Place,
    pub(crate) correlation: Option<MessageId>,
}

/// A request to `$management` with a valid reply address.
pub(crate) struct Received {
    pub(crate) reply_to: ReplyTo,
    pub(crate) path: Option<EntityPath>,
    pub(crate) request: RequestMessage,
    /// The transaction that contains the request.
    pub(crate) transaction: Option<Bytes>,
}

impl Received {
    pub(crate) fn read(
        context: &mut Context<'_>,
        session: SessionId,
        path: Option<EntityPath>,
        delivery: &Delivery,
    ) -> Result<Self, Refusal> {
        let request =
            RequestMessage::decode(&delivery.payload).map_err(|error| Refusal::unreadable(&error))?;
        let service = Service::Management(path.clone());
        let link = response_link(context, session, &service, request.reply_to.as_deref());
        let Some((link, place)) = link.and_then(|link| Some((link, take_place(context, link)?))) else {
            return Err(Refusal::no_way_back(request.reply_to.as_deref()));
        };
        let reply_to = ReplyTo { link, place, correlation: request.message_id.clone() };
        // All other requests are performed outside the transaction that they name.
        let transaction = transaction_of(delivery).filter(|_| operation::is_step(&request)).cloned();
        Ok(Received { reply_to, path, request, transaction })
    }
}

struct PendingRequest {
    reply_to: ReplyTo,
    path: EntityPath,
    transaction: Option<Bytes>,
    form: Form,
    /// The operation to perform once the entity is found.
    todo: Option<Operation>,
    /// The number of outstanding answers.
    remaining: usize,
    result: Result<Content, Refusal>,
    /// The state of a request to a queue group.
    group: Option<QueueGroupRequest>,
    /// Messages that a transaction schedules, until their sequence numbers are reserved.
    held: Option<HeldSend>,
}

impl Management {
    /// Starts a request to an entity, or rejects it.
    pub(crate) fn start(
        &mut self,
        context: &mut Context<'_>,
        access: &Access,
        transactions: &mut Transactions,
        received: Received,
    ) {
        let (reply_to, transaction) = (received.reply_to.clone(), received.transaction.clone());
        if let Err(refusal) = self.start_request(context, access, transactions, received) {
            if let Some(txn_id) = transaction {
                transactions.doom(&txn_id, &refusal.description);
            }
            respond_refused(context, reply_to, refusal);
        }
    }

    fn start_request(
        &mut self,
        context: &mut Context<'_>,
        access: &Access,
        transactions: &mut Transactions,
        received: Received,
    ) -> Result<(), Refusal> {
        let Received { reply_to, path, request, transaction } = received;
        if self.requests.len() >= PENDING_MAX {
            let text = format!("{PENDING_MAX} requests of this connection wait for their answers already");
            return Err(Refusal::new(503, peeklock_amqp::condition::SERVER_BUSY, text));
        }
        let Some(path) = path else {
            let text = "the namespace itself has no operations over AMQP; its entities are managed over HTTP, on the same port";
            return Err(Refusal::not_implemented(text));
        };
        let mut operation = Operation::read(&request)?;
        if let Some(session) = self.session_of_link(context, &path, &request) {
            operation.take_session(session);
        }
        let mut pending = PendingRequest {
            reply_to,
            path,
            transaction,
            form: operation.form(),
            todo: None,
            remaining: 1,
            result: Ok(Content::done()),
            group: None,
            held: None,
        };
        if let Some(group) = queue_group_of(context, &pending.path) {
            return self.start_queue_group_request(
                context,
                access,
                transactions,
                pending,
                (&group, operation),
            );
        }
        access.check_right(context, operation.right(), &Scope::from(&pending.path))?;
        if let Some(txn_id) = &pending.transaction {
            transactions.start_request(txn_id)?;
        }
        pending.todo = Some(operation);
        let name = pending.path.name.clone();
        let shard = context.namespace.broker.place(&name);
        let number = self.insert(pending);
        context.ask(shard, FindWaiter::Management(number), Find { name });
        Ok(())
    }

    /// Handles a shard's lookup of the entity of a management request.
    pub(crate) fn on_management_found(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        number: u32,
        result: Result<Named, Error>,
    ) {
        let Some(pending) = self.requests.get_mut(&number) else { return };
        if pending.group.is_some() {
            return self.on_queue_group_found(context, transactions, number, result);
        }
        let next = match (result, pending.todo.take()) {
            (Ok(Named::Entity(found)), Some(operation)) => {
                self.ask_entity(context, transactions, number, operation, found)
            }
            (Ok(Named::Entity(_)), None) => Ok(()),
            (Ok(Named::Hub(_)), _) => {
                let what = "and what was asked for is an operation of queues, topics and subscriptions";
                Err(is_hub(&pending.path.name, what))
            }
            (Err(error), _) => Err(refusal(&error, Some(&pending.path))),
        };
        self.go_on(context, transactions, number, next);
    }

    /// Handles the reserved sequence numbers of messages that a transaction schedules.
    pub(crate) fn on_reserved(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        number: u32,
        result: Result<Vec<SequenceNumber>, Error>,
    ) {
        let next = match result {
            Ok(numbers) => self.hold_scheduled(context, transactions, number, numbers),
            Err(error) => {
                self.take_answer::<()>(number, Err(error), |_, ()| Content::done());
                Ok(())
            }
        };
        self.go_on(context, transactions, number, next);
    }

    /// Handles a shard's answer to a management request, or to a part of it.
    pub(crate) fn on_management_answer<T>(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        number: u32,
        result: Result<T, Error>,
        describe: impl FnOnce(Form, T) -> Content,
    ) {
        self.take_answer(number, result, describe);
        self.finish_request(context, transactions, number);
    }

    fn take_answer<T>(
        &mut self,
        number: u32,
        result: Result<T, Error>,
        describe: impl FnOnce(Form, T) -> Content,
    ) {
        let Some(pending) = self.requests.get_mut(&number) else { return };
        pending.remaining = pending.remaining.saturating_sub(1);
        match result {
            Ok(answer) if pending.result.is_ok() => pending.result = Ok(describe(pending.form, answer)),
            Ok(_) => {}
            Err(error) => pending.result = Err(refusal(&error, Some(&pending.path))),
        }
    }

    /// Records a rejection of the next step, and sends the response if no answer is outstanding.
    fn go_on(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        number: u32,
        next: Result<(), Refusal>,
    ) {
        if let Err(refusal) = next
            && let Some(pending) = self.requests.get_mut(&number)
        {
            pending.remaining = 0;
            pending.result = Err(refusal);
        }
        self.finish_request(context, transactions, number);
    }

    /// Sends the response if all answers have arrived.
    fn finish_request(&mut self, context: &mut Context<'_>, transactions: &mut Transactions, number: u32) {
        if self.requests.get(&number).is_none_or(|pending| pending.remaining > 0) {
            return;
        }
        let Some(done) = self.requests.remove(&number) else { return };
        if let Some(txn_id) = &done.transaction {
            transactions.end_request(context.millis, txn_id);
        }
        match done.result {
            Ok(content) => respond_found(context, done.reply_to, content),
            Err(refusal) => {
                if let Some(txn_id) = done.transaction {
                    transactions.doom(&txn_id, &refusal.description);
                }
                respond_refused(context, done.reply_to, refusal);
            }
        }
    }

    /// Performs the operation after the entity was found.
    fn ask_entity(
        &mut self,
        context: &mut Context<'_>,
        transactions: &mut Transactions,
        number: u32,
        operation: Operation,
        found: Found,
    ) -> Result<(), Refusal> {
        let Some(pending) = self.requests.get_mut(&number) else { return Ok(()) };
        let (path, transaction) = (pending.path.clone(), pending.transaction.clone());
        let entity = EntityRef { shard: context.namespace.broker.place(&path.name), entity: found.entity };
        let has_sessions = found.requires_session && path.sub_queue == SubQueue::Main;
        let hold = match operation.held_session(has_sessions) {
            Some(session) => Some(self.hold_of(context, &path, session)?),
            None => None,
        };
        match (operation, transaction) {
            (operation, Some(txn_id)) => {
                let step = Step { number, txn_id, path, entity, hold };
                self.take_step(context, transactions, step, operation, &found)
            }
            (Operation::Schedule { messages }, None) => {
                self.schedule(context, number, entity, &messages, found)
            }
            (operation, None) => {
                let request = operation.request(number, found.entity, &path, hold);
                request.into_iter().for_each(|request| context.push(entity.shard, request));
                Ok(())
            }
        }
    }

    fn schedule(
        &mut self,
        context: &mut Context<'_>,
        number: u32,
        entity: EntityRef,
        payloads: &[Bytes],
        found: Found,
    ) -> Result<(), Refusal> {
        let now = context.now;
        let Some(batch) = context.batch(entity.shard) else { return Ok(()) };
        let mut messages = batch.messages();
        for payload in payloads {
            messages.add(|out| incoming::store(payload, now, incoming::needs_of(&found), out))?;
        }
        messages.schedule(numbered(number), entity.entity);
        Ok(())
    }

    /// Returns the session of the link that a request names.
    fn session_of_link<'c>(
        &self,
        context: &'c Context<'_>,
        path: &EntityPath,
        request: &RequestMessage,
    ) -> Option<&'c types::SessionId> {
        let name = request.property("associated-link-name").and_then(Value::as_str)?;
        context.links.iter().find_map(|(_, link)| match &link.kind {
            LinkKind::Receiver(link) if *link.name == *name && link.path == *path => link.session.as_ref(),
            _ => None,
        })
    }

    /// Returns the receiver on this connection that holds the session.
    fn hold_of(
        &self,
        context: &Context<'_>,
        path: &EntityPath,
        session: &types::SessionId,
    ) -> Result<SessionHold, Refusal> {
        let held = context.links.iter().filter_map(|(_, link)| match &link.kind {
            LinkKind::Receiver(link) if link.path == *path && link.session.as_ref() == Some(session) => {
                Some(link.receiver)
            }
            _ => None,
        });
        // A link that has lost the session may still exist when a newer one holds it.
        let held = held.max();
        let receiver = held.ok_or_else(|| Refusal::session_lock_lost(path))?;
        Ok(SessionHold { session: session.clone(), receiver })
    }
}

impl Management {
    fn insert(&mut self, request: PendingRequest) -> u32 {
        let number = self.next;
        // Far fewer than 2^32 requests are in flight at a time, so a number is free again when the counter wraps
        // around.
        self.next = self.next.wrapping_add(1);
        self.requests.insert(number, request);
        number
    }
}
