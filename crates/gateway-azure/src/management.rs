//! Requests to `$management`: of an entity as Service Bus has them, and of the namespace for queues themselves.

mod operation;
mod respond;

use bytes::Bytes;
use peeklock_amqp::MessageId;
use peeklock_amqp::connection::SessionId;
use peeklock_broker::engine::EntityId;
use peeklock_broker::{Answer, Error, Message, QueueInfo, Request};
use peeklock_types::{EntityPath, Timestamp};
use rustc_hash::FxHashMap;

use crate::address::Scope;
use crate::conversation::Conversation;
use crate::error::{Refusal, refusal};
use crate::link::{LinkNumber, Service};
use crate::message::RequestMessage;
use crate::request::Waiter;
use operation::{EntityOperation, NamespaceOperation, Operation};

/// Requests of one connection that wait for their shards.
const PENDING_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct Pending {
    requests: FxHashMap<u32, PendingRequest>,
    next: u32,
}

struct PendingRequest {
    link: LinkNumber,
    correlation: Option<MessageId>,
    path: Option<EntityPath>,
    /// What to do once the entity is found.
    todo: Option<EntityOperation>,
    /// Answers still to come.
    remaining: usize,
    result: Result<Findings, Refusal>,
}

/// What the answers to a request have brought so far.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) kind: ResponseKind,
    pub(crate) expirations: Vec<Timestamp>,
    pub(crate) messages: Vec<Message>,
    pub(crate) queues: Vec<QueueInfo>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ResponseKind {
    #[default]
    Done,
    Expirations,
    Peeked,
    Received,
    Queues,
    Created,
}

impl Conversation<'_> {
    pub(crate) fn on_management(&mut self, session: SessionId, path: Option<EntityPath>, payload: &Bytes) {
        let request = match RequestMessage::decode(payload) {
            Ok(request) => request,
            Err(error) => return tracing::info!("a management request cannot be read: {error}"),
        };
        let service = Service::Management(path);
        let Some(link) = self.response_link(session, &service, request.reply_to.as_deref()) else {
            return tracing::info!("a management request has no link for its response");
        };
        let Service::Management(path) = service else { return };
        if let Err(refusal) = self.start_request(link, path, &request) {
            self.respond_refused(link, request.message_id, &refusal);
        }
    }

    fn start_request(
        &mut self,
        link: LinkNumber,
        path: Option<EntityPath>,
        request: &RequestMessage,
    ) -> Result<(), Refusal> {
        if self.pending.requests.len() >= PENDING_MAX {
            let text = format!("{PENDING_MAX} requests of this connection wait for their answers already");
            return Err(Refusal::new(503, peeklock_amqp::condition::SERVER_BUSY, text));
        }
        let operation = Operation::parse(request, path.is_some())?;
        let scope = path.as_ref().map_or(Scope::NAMESPACE, |path| Scope::parse(&path.to_string()));
        self.check_right(operation.right(), &scope)?;
        let pending = PendingRequest {
            link,
            correlation: request.message_id.clone(),
            path: path.clone(),
            todo: None,
            remaining: 1,
            result: Ok(Findings { kind: operation.response_kind(), ..Findings::default() }),
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
        pending.todo = Some(operation);
        let shard = self.gateway.broker.place(&path.name);
        let number = self.pending.insert(pending);
        self.push(shard, Request::Find { ticket: Waiter::Management(number).ticket(), name: path.name });
    }

    fn ask_namespace(&mut self, mut pending: PendingRequest, operation: NamespaceOperation) {
        let shards = match operation.name() {
            Some(name) => {
                let shard = self.gateway.broker.place(name);
                shard..shard + 1
            }
            None => 0..self.gateway.broker.shard_count(),
        };
        pending.remaining = shards.len();
        let ticket = Waiter::Management(self.pending.insert(pending)).ticket();
        for shard in shards {
            self.push(shard, operation.request(ticket));
        }
    }

    /// A shard has answered a management request, or a part of it.
    pub(crate) fn on_management_answer(&mut self, number: u32, result: Result<Answer, Error>) {
        let Some(pending) = self.pending.requests.get_mut(&number) else { return };
        if let (Some(todo), Ok(Answer::Found(entity))) = (pending.todo.take(), &result) {
            let entity = *entity;
            return self.ask_entity(number, todo, entity);
        }
        pending.take(result);
        if pending.remaining == 0
            && let Some(done) = self.pending.requests.remove(&number)
        {
            match done.result {
                Ok(findings) => self.respond_found(done.link, done.correlation, findings),
                Err(refusal) => self.respond_refused(done.link, done.correlation, &refusal),
            }
        }
    }

    fn ask_entity(&mut self, number: u32, operation: EntityOperation, entity: EntityId) {
        let Some(pending) = self.pending.requests.get_mut(&number) else { return };
        let Some(path) = pending.path.clone() else { return };
        let ticket = Waiter::Management(number).ticket();
        let requests = operation.requests(ticket, entity, path.sub_queue);
        pending.remaining = requests.len();
        let shard = self.gateway.broker.place(&path.name);
        for request in requests {
            self.push(shard, request);
        }
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
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => {
                self.result = Err(refusal(&error, self.path.as_ref()));
                return;
            }
        };
        let Ok(findings) = &mut self.result else { return };
        match answer {
            Answer::Done | Answer::Found(_) => {}
            Answer::Renewed(expirations) => findings.expirations.extend(expirations),
            Answer::Messages(messages) => findings.messages.extend(messages),
            Answer::Queues(queues) => findings.queues.extend(queues),
        }
    }
}
