//! Links as they come: who may have which, and what they are told.

use peeklock_amqp::connection::{AttachReply, LinkId, SessionId};
use peeklock_amqp::{Attach, Role, SenderSettleMode, Source, Target, TargetNode, Text};
use peeklock_broker::engine::ReceiveMode;
use peeklock_broker::{Answer, Error, Request};
use peeklock_types::{EntityPath, SubQueue, limits};

use crate::address::{Node, Scope};
use crate::conversation::Conversation;
use crate::error::{Refusal, refusal};
use crate::link::{
    EntityRef, Link, LinkKind, LinkNumber, PendingLink, ReceiverLink, Responses, SenderLink, Service,
};
use crate::request::Waiter;
use crate::sas::Right;

/// Deliveries that a sender may have under way on one link.
pub(crate) const SENDER_CREDIT: u32 = 1000;
/// Requests that may be under way on one link to `$cbs` or `$management`.
pub(crate) const REQUEST_CREDIT: u32 = 100;
/// Bytes of deliveries that may be under way from a shard to one link. What lies beyond stays in the queue.
pub(crate) const RECEIVER_WINDOW_BYTES: i64 = 1024 * 1024;

const SESSION_FILTER: &str = "com.microsoft:session-filter";

impl Conversation<'_> {
    pub(crate) fn on_attach(&mut self, session: SessionId, id: LinkId, attach: Box<Attach>) {
        if let Err(refusal) = self.start_link(session, id, attach) {
            self.connection.refuse(id, refusal.into());
        }
    }

    fn start_link(&mut self, session: SessionId, id: LinkId, attach: Box<Attach>) -> Result<(), Refusal> {
        match Node::parse(address(&attach)?)? {
            Node::Cbs => self.start_service(session, id, &attach, Service::Cbs),
            Node::Management(path) => self.start_service(session, id, &attach, Service::Management(path)),
            Node::Entity(path) => self.start_entity(session, id, attach, path),
        }
    }

    fn start_service(
        &mut self,
        session: SessionId,
        id: LinkId,
        attach: &Attach,
        service: Service,
    ) -> Result<(), Refusal> {
        let kind = match attach.role {
            Role::Sender => LinkKind::Requests(service.clone()),
            Role::Receiver => LinkKind::Responses(Box::new(Responses {
                service: service.clone(),
                name: attach.name.to_string(),
                address: attach.target.as_ref().and_then(Target::address).map(str::to_owned),
                settled: attach.snd_settle_mode == SenderSettleMode::Settled,
                next_tag: 0,
                waiting: std::collections::VecDeque::new(),
                waiting_bytes: 0,
            })),
        };
        self.insert(Link { id, session, kind })?;
        self.connection.accept(id, reply(attach));
        if attach.role == Role::Sender {
            self.connection.set_credit(id, REQUEST_CREDIT);
        }
        Ok(())
    }

    fn start_entity(
        &mut self,
        session: SessionId,
        id: LinkId,
        attach: Box<Attach>,
        path: EntityPath,
    ) -> Result<(), Refusal> {
        let right = match attach.role {
            Role::Sender => Right::Send,
            Role::Receiver => Right::Listen,
        };
        self.check_right(right, &Scope::parse(&path.to_string()))?;
        check_terminus(&attach, &path)?;
        let shard = self.gateway.broker.place(&path.name);
        let name = path.name.clone();
        let kind = LinkKind::Pending(Box::new(PendingLink { attach, path, entity: None }));
        let number = self.insert(Link { id, session, kind })?;
        self.push(shard, Request::Find { ticket: Waiter::Link(number).ticket(), name });
        Ok(())
    }

    fn insert(&mut self, link: Link) -> Result<LinkNumber, Refusal> {
        let full = "this connection has had too many links; open a new one";
        self.links
            .insert(link)
            .ok_or_else(|| Refusal::new(403, peeklock_amqp::condition::RESOURCE_LIMIT_EXCEEDED, full))
    }

    /// The shard has found the entity, or has attached the receiver.
    pub(crate) fn on_link_answer(&mut self, number: LinkNumber, result: Result<Answer, Error>) {
        let Some(link) = self.links.get_mut(number) else { return };
        let id = link.id;
        let LinkKind::Pending(pending) = &mut link.kind else { return };
        match result {
            Err(error) => {
                let refusal = refusal(&error, Some(&pending.path));
                self.links.remove(number);
                self.connection.refuse(id, refusal.into());
            }
            Ok(Answer::Found(entity)) => {
                let shard = self.gateway.broker.place(&pending.path.name);
                pending.entity = Some(EntityRef { shard, entity });
                match pending.attach.role {
                    Role::Sender => self.open_link(number),
                    Role::Receiver => self.attach_receiver(number),
                }
            }
            Ok(_) => self.open_link(number),
        }
    }

    fn attach_receiver(&mut self, number: LinkNumber) {
        let receiver = self.peer.id.receiver(number.0);
        let Some(LinkKind::Pending(pending)) = self.links.get_mut(number).map(|link| &link.kind) else {
            return;
        };
        let Some(entity) = pending.entity else { return };
        let sub_queue = pending.path.sub_queue;
        let mode = mode_of(&pending.attach);
        let ticket = Waiter::Link(number).ticket();
        self.push(entity.shard, Request::Attach { ticket, entity: entity.entity, sub_queue, receiver, mode });
        self.push(entity.shard, Request::Window { receiver, size_bytes: RECEIVER_WINDOW_BYTES });
    }

    /// Everything is settled with the shard: the peer gets its link.
    fn open_link(&mut self, number: LinkNumber) {
        let receiver = self.peer.id.receiver(number.0);
        let Some(link) = self.links.get_mut(number) else { return };
        let id = link.id;
        let LinkKind::Pending(pending) = &link.kind else { return };
        let (Some(entity), path) = (pending.entity, pending.path.clone()) else { return };
        let reply = reply(&pending.attach);
        let role = pending.attach.role;
        link.kind = match role {
            Role::Sender => LinkKind::Sender(SenderLink { entity, path, unconfirmed: 0, confirmed: 0 }),
            Role::Receiver => LinkKind::Receiver(ReceiverLink {
                entity,
                sub_queue: path.sub_queue,
                mode: mode_of(&pending.attach),
                path,
                receiver,
                passed_count: 0,
                limit: 0,
                passed_bytes: 0,
            }),
        };
        self.connection.accept(id, reply);
        if role == Role::Sender {
            self.connection.set_credit(id, SENDER_CREDIT);
        }
    }
}

fn address(attach: &Attach) -> Result<&str, Refusal> {
    let address = match attach.role {
        Role::Sender => match &attach.target {
            Some(Target::Coordinator(_)) => {
                return Err(Refusal::not_implemented("transactions are not supported yet"));
            }
            target => target.as_ref().and_then(Target::address),
        },
        Role::Receiver => attach.source.as_ref().and_then(|source| source.address.as_ref()).map(Text::as_str),
    };
    address.ok_or_else(|| {
        let text = "the link names no address; give the name of a queue (dynamic nodes are not supported)";
        Refusal::new(400, peeklock_amqp::condition::INVALID_FIELD, text)
    })
}

fn check_terminus(attach: &Attach, path: &EntityPath) -> Result<(), Refusal> {
    if attach.role == Role::Sender && path.sub_queue == SubQueue::DeadLetter {
        let text = format!("'{path}' takes no messages from senders; send to '{}'", path.name);
        return Err(Refusal::not_allowed(text));
    }
    let filter = attach.source.as_ref().and_then(|source| source.filter.as_ref());
    if attach.role == Role::Receiver && filter.is_some_and(|filter| filter.get(SESSION_FILTER).is_some()) {
        let text = format!("'{path}' does not have sessions; receive from it without a session id");
        return Err(Refusal::not_allowed(text));
    }
    Ok(())
}

fn mode_of(attach: &Attach) -> ReceiveMode {
    match attach.snd_settle_mode {
        SenderSettleMode::Settled => ReceiveMode::ReceiveAndDelete,
        SenderSettleMode::Unsettled | SenderSettleMode::Mixed => ReceiveMode::PeekLock,
    }
}

/// Echoes what the peer asked for.
// SDK quirk: Python takes a source or target without any field for a refusal.
fn reply(attach: &Attach) -> AttachReply {
    let mut source = attach.source.clone().unwrap_or_default();
    let mut target = attach.target.clone().unwrap_or_else(|| Target::Node(TargetNode::default()));
    let name = || Some(attach.name.clone());
    // The reply names the filters that are in place, and there are none.
    source.filter = None;
    fill(&mut source, name);
    if let Target::Node(node) = &mut target {
        node.address = node.address.take().or_else(name);
    }
    AttachReply {
        source: Some(source),
        target: Some(target),
        max_message_size: Some(limits::MESSAGE_SIZE_BYTES_MAX as u64),
        ..AttachReply::default()
    }
}

fn fill(source: &mut Source, name: impl FnOnce() -> Option<Text>) {
    source.address = source.address.take().or_else(name);
}
