//! New links: the checks of rights and of the entity, and the attach replies.

use std::time::Duration;

use peeklock_access::{Right, Scope};
use peeklock_amqp::connection::{AttachReply, LinkId, SessionId};
use peeklock_amqp::{
    Attach, Fields, Role, SenderSettleMode, Source, Symbol, Target, TargetNode, Text, Value,
};
use peeklock_broker::engine::{CloseReason, HeldSession, ReceiveMode};
use peeklock_broker::request::entities::Find;
use peeklock_broker::request::receiving::{self, Window};
use peeklock_broker::{Error, Found, Named, SessionAsk};
use peeklock_types::{EntityKind, EntityPath, SubQueue, Timestamp, limits};

use crate::access::{Access, Need};
use crate::connection::address::Node;
use crate::connection::context::Context;
use crate::connection::link::{
    EntityRef, Link, LinkKind, LinkNumber, PendingLink, ReceiverLink, Responses, SenderLink, Service,
};
use crate::connection::request::FindWaiter;
use crate::error::{Refusal, close_refusal, refusal};
use crate::hub::attach::{found_hub, start_hub};
use crate::incoming::needs_of;
use crate::management::response::ResponseLine;
use crate::queue_group::join::queue_group_of;
use crate::queue_group::{QueueGroups, takes_no_messages};
use crate::receiving::selection;
use crate::receiving::sessions::SessionFilter;
use crate::transaction::Transactions;

/// The limit on deliveries in flight from a sender on one link.
pub(crate) const SENDER_CREDIT: u32 = 1000;
/// The limit on requests in flight on one link to `$cbs` or `$management`.
pub(crate) const REQUEST_CREDIT: u32 = 100;
/// The largest request. A request that schedules a message of the usual limit adds an envelope to it and may contain
/// further messages.
const REQUEST_SIZE_BYTES_MAX: u64 = 2 * limits::MESSAGE_SIZE_BYTES_MAX as u64;
/// The limit on bytes of deliveries in flight from a shard to one link. Further messages stay in the queue.
pub(crate) const RECEIVER_WINDOW_BYTES: i64 = 1024 * 1024;

/// The max-message-size in attach replies to receivers. It exceeds every message and every response, with all
/// annotations.
// SDK quirk: .NET closes the link on a delivery above the size that the broker specifies for its own side.
pub(crate) const DELIVERY_SIZE_BYTES_MAX: u64 = 1 << 30;
const _: () = assert!(DELIVERY_SIZE_BYTES_MAX > 4 * limits::LARGE_MESSAGE_SIZE_BYTES_MAX as u64);

/// The property with the entity that receives the messages of a sender. The sender's target is then an intermediate
/// entity.
const TRANSFER_DESTINATION: &str = "com.microsoft:transfer-destination-address";
/// The property with the largest batch, for entities where a single message may be larger. Without it, Go fills a batch
/// up to the limit of a message.
const BATCH_SIZE_MAX: &str = "com.microsoft:max-message-batch-size";

/// The property with the broker's time in the attach reply of a receiver, for a peer that desires the capability of the same
/// name. The peer can then compute the ends of locks without a wall clock of its own.
const BROKER_TIME: &str = "peeklock:time";
/// The property beside it with the lock duration in milliseconds. The broker's clock may step forward later, and then a lock
/// lasts no longer than this.
const LOCK_DURATION: &str = "peeklock:lock-duration";
/// The extensions of this broker that a receiver may use. They are offered to a peer that desires them; a peer that is not offered them, on
/// another broker, does the same work in another way:
///
/// - `delayed-abandon`: an abandonment can delay the next delivery. Otherwise the peer schedules a copy of the message.
/// - `interrupted`: an abandonment can be marked as an interruption, which counts only after many times.
/// - `session-turns`: a session that was let go waits behind the others. Otherwise the peer takes the next one before.
const EXTENSIONS: [Symbol; 3] = [
    Symbol::from_static("peeklock:delayed-abandon"),
    Symbol::from_static("peeklock:interrupted"),
    Symbol::from_static("peeklock:session-turns"),
];

/// A link that the peer attaches.
pub(crate) struct NewLink {
    pub(crate) session: SessionId,
    pub(crate) id: LinkId,
    pub(crate) attach: Box<Attach>,
}

pub(crate) fn on_attach(
    context: &mut Context<'_>,
    access: &Access,
    queue_groups: &mut QueueGroups,
    transactions: &mut Transactions,
    link: NewLink,
) {
    let id = link.id;
    if let Err(refusal) = start_link(context, access, queue_groups, transactions, link) {
        context.connection.refuse(id, refusal.at(&context.host).into());
    }
}

fn start_link(
    context: &mut Context<'_>,
    access: &Access,
    queue_groups: &mut QueueGroups,
    transactions: &mut Transactions,
    link: NewLink,
) -> Result<(), Refusal> {
    let attach = &link.attach;
    if attach.role == Role::Sender && matches!(attach.target, Some(Target::Coordinator(_))) {
        return transactions.start_coordinator(context, &link);
    }
    match Node::parse(address(attach)?)? {
        Node::Cbs => start_service(context, &link, Service::Cbs),
        Node::Management(path) => start_service(context, &link, Service::Management(path)),
        Node::Entity(path) => start_entity(context, access, queue_groups, link, path),
        Node::Hub(address) => start_hub(context, access, link, address),
    }
}

fn start_service(
    context: &mut Context<'_>,
    NewLink { session, id, attach }: &NewLink,
    service: Service,
) -> Result<(), Refusal> {
    let (session, id) = (*session, *id);
    let kind = match attach.role {
        Role::Sender => LinkKind::Requests(service.clone()),
        Role::Receiver => LinkKind::Responses(Box::new(Responses {
            service: service.clone(),
            name: attach.name.to_string(),
            address: attach.target.as_ref().and_then(Target::address).map(str::to_owned),
            settled: attach.snd_settle_mode == SenderSettleMode::Settled,
            next_tag: 0,
            line: ResponseLine::default(),
        })),
    };
    context.insert(Link { id, session, kind, rests_on: Box::default() })?;
    let max_message_size = match attach.role {
        Role::Sender => REQUEST_SIZE_BYTES_MAX,
        Role::Receiver => DELIVERY_SIZE_BYTES_MAX,
    };
    let reply = AttachReply { takes_whole: true, ..reply(attach, max_message_size) };
    context.connection.accept(id, reply);
    if attach.role == Role::Sender {
        context.connection.set_credit(id, REQUEST_CREDIT);
    }
    Ok(())
}

fn start_entity(
    context: &mut Context<'_>,
    access: &Access,
    queue_groups: &mut QueueGroups,
    link: NewLink,
    path: EntityPath,
) -> Result<(), Refusal> {
    selection::check(&link.attach)?;
    if let Some(group) = queue_group_of(context, &path) {
        return queue_groups.start_queue_group(context, access, link, path, group);
    }
    let NewLink { session, id, attach } = link;
    let right = match attach.role {
        Role::Sender => Right::Send,
        Role::Receiver => Right::Listen,
    };
    let mut rests_on = vec![need(context, access, right, &path)?];
    check_terminus(attach.role, &path)?;
    let path = match transfer_destination(&attach)? {
        // The intermediate entity is skipped: a transaction may send to any entity, and the outbox carries messages
        // across shards.
        Some(destination) => {
            if let Some(group) = queue_group_of(context, &destination) {
                return Err(takes_no_messages(&destination, &group));
            }
            rests_on.push(need(context, access, right, &destination)?);
            check_terminus(attach.role, &destination)?;
            destination
        }
        None => path,
    };
    let session_filter = match attach.role {
        Role::Sender => None,
        Role::Receiver => SessionFilter::of(&attach)?,
    };
    let shard = context.namespace.broker.place(&path.name);
    let name = path.name.clone();
    let pending = PendingLink { attach, path, session: session_filter, entity: None, lock_duration: None };
    let number = context.insert(Link {
        id,
        session,
        kind: LinkKind::Pending(Box::new(pending)),
        rests_on: rests_on.into(),
    })?;
    context.ask(shard, FindWaiter::Link(number), Find { name });
    Ok(())
}

fn need(context: &Context<'_>, access: &Access, right: Right, path: &EntityPath) -> Result<Need, Refusal> {
    let scope = Scope::from(path);
    access.check_right(context, right, &scope)?;
    Ok(Need { right, scope })
}

/// Handles the shard's lookup of the entity of a link.
pub(crate) fn on_link_found(
    context: &mut Context<'_>,
    queue_groups: &mut QueueGroups,
    number: LinkNumber,
    result: Result<Named, Error>,
) {
    let Some(link) = context.links.get_mut(number) else { return };
    let id = link.id;
    let pending = match &mut link.kind {
        LinkKind::Pending(pending) => pending,
        LinkKind::Joining(_) => return queue_groups.on_member_found(context, number, result),
        _ => return,
    };
    let found = match result {
        Err(error) => return refuse_pending(context, number, &error),
        Ok(Named::Hub(view)) => return found_hub(context, number, &view),
        Ok(Named::Entity(found)) => found,
    };
    let shard = context.namespace.broker.place(&pending.path.name);
    pending.entity = Some(EntityRef { shard, entity: found.entity });
    pending.lock_duration = Some(found.lock_duration);
    match pending.attach.role {
        Role::Receiver if found.kind == EntityKind::Topic => {
            let refusal = receives_from_topic(&pending.path);
            context.links.remove(number);
            context.connection.refuse(id, refusal.into());
        }
        Role::Sender => open_sender(context, number, found),
        Role::Receiver => attach_receiver(context, number),
    }
}

/// Handles the shard's answer to the attach of a receiver.
pub(crate) fn on_link_attached(
    context: &mut Context<'_>,
    queue_groups: &mut QueueGroups,
    number: LinkNumber,
    result: Result<Option<HeldSession>, Error>,
) {
    match context.links.get(number).map(|link| &link.kind) {
        Some(LinkKind::Joining(_)) => queue_groups.on_member_attached(context, number, result),
        Some(LinkKind::Pending(_)) => match result {
            Ok(held) => open_receiver(context, number, held),
            Err(error) => refuse_pending(context, number, &error),
        },
        _ => {}
    }
}

fn refuse_pending(context: &mut Context<'_>, number: LinkNumber, error: &Error) {
    let Some(link) = context.links.get(number) else { return };
    let LinkKind::Pending(pending) = &link.kind else { return };
    let (id, refusal) = (link.id, refusal(error, Some(&pending.path)).at(&context.host));
    context.links.remove(number);
    context.connection.refuse(id, refusal.into());
}

fn attach_receiver(context: &mut Context<'_>, number: LinkNumber) {
    let receiver = context.peer.id.receiver(number.0);
    let Some(LinkKind::Pending(pending)) = context.links.get_mut(number).map(|link| &link.kind) else {
        return;
    };
    let Some(EntityRef { shard, entity }) = pending.entity else { return };
    let sub_queue = pending.path.sub_queue;
    let mode = mode_of(&pending.attach);
    let session = pending.session.as_ref().map_or(SessionAsk::None, |filter| filter.ask.clone());
    context.ask(shard, number, receiving::Attach { entity, sub_queue, receiver, mode, session });
    context.push(shard, Window { receiver, size_bytes: RECEIVER_WINDOW_BYTES });
}

/// Opens the link of a sender after its queue was found.
fn open_sender(context: &mut Context<'_>, number: LinkNumber, found: Found) {
    let Some(link) = context.links.get_mut(number) else { return };
    let LinkKind::Pending(pending) = &link.kind else { return };
    let (Some(entity), path) = (pending.entity, pending.path.clone()) else { return };
    // The only place that sets the largest message of the link; the AMQP engine rejects a larger one.
    let max_message_size_bytes =
        found.max_message_size_bytes.min(context.gateway.limits.message_size_bytes_max);
    let mut reply = reply(&pending.attach, max_message_size_bytes.into());
    let mut properties = Fields::new();
    if let Some(destination) = property(&pending.attach, TRANSFER_DESTINATION) {
        properties = properties.with(TRANSFER_DESTINATION, destination.clone());
    }
    if max_message_size_bytes as usize > limits::MESSAGE_SIZE_BYTES_MAX {
        properties = properties.with(BATCH_SIZE_MAX, limits::MESSAGE_SIZE_BYTES_MAX as u64);
    }
    reply.properties = Some(properties).filter(|properties| !properties.is_empty());
    link.kind = LinkKind::Sender(SenderLink {
        entity,
        path,
        needs: needs_of(&found),
        max_message_size_bytes,
        unconfirmed: 0,
        confirmed: 0,
    });
    let id = link.id;
    context.connection.accept(id, reply);
    context.connection.set_credit(id, SENDER_CREDIT);
}

/// Opens the link of a receiver. The shard has attached the receiver and, if requested, locked a session for it.
fn open_receiver(context: &mut Context<'_>, number: LinkNumber, held: Option<HeldSession>) {
    let receiver = context.peer.id.receiver(number.0);
    let Some(link) = context.links.get_mut(number) else { return };
    let LinkKind::Pending(pending) = &link.kind else { return };
    let (Some(entity), path) = (pending.entity, pending.path.clone()) else { return };
    let mut reply = reply(&pending.attach, DELIVERY_SIZE_BYTES_MAX);
    if let (Some(filter), Some(held)) = (&pending.session, &held) {
        filter.fill(held, &mut reply);
    }
    fill_extensions(&mut reply, &pending.attach, context.now, pending.lock_duration);
    link.kind = LinkKind::Receiver(ReceiverLink {
        name: pending.attach.name.as_str().into(),
        entity,
        sub_queue: path.sub_queue,
        mode: mode_of(&pending.attach),
        path,
        receiver,
        session: held.map(|held| held.session),
        passed_count: 0,
        limit: 0,
        passed_bytes: 0,
        member_of: None,
        run_from: 0,
    });
    context.connection.accept(link.id, reply);
}

/// Handles a receiver that the shard has detached by itself.
pub(crate) fn on_closed(
    context: &mut Context<'_>,
    queue_groups: &mut QueueGroups,
    number: LinkNumber,
    reason: CloseReason,
) {
    let Some(link) = context.links.get_mut(number) else { return };
    let id = link.id;
    match &link.kind {
        LinkKind::Receiver(ReceiverLink { member_of: Some(_), .. }) | LinkKind::Joining(_) => {
            queue_groups.on_member_closed(context, number, reason);
        }
        LinkKind::Receiver(receiver) => {
            let refusal = close_refusal(reason, &receiver.path).at(&context.host);
            context.connection.detach(id, Some(refusal.into()));
        }
        LinkKind::Pending(pending) => {
            let refusal = close_refusal(reason, &pending.path).at(&context.host);
            context.links.remove(number);
            context.connection.refuse(id, refusal.into());
        }
        _ => {}
    }
}

fn address(attach: &Attach) -> Result<&str, Refusal> {
    let address = match attach.role {
        Role::Sender => attach.target.as_ref().and_then(Target::address),
        Role::Receiver => attach.source.as_ref().and_then(|source| source.address.as_ref()).map(Text::as_str),
    };
    address.ok_or_else(|| {
        let text = "the link names no address; give the name of a queue (dynamic nodes are not supported)";
        Refusal::new(400, peeklock_amqp::condition::INVALID_FIELD, text)
    })
}

fn receives_from_topic(path: &EntityPath) -> Refusal {
    let name = &path.name;
    Refusal::not_allowed(format!(
        "'{name}' is a topic; receive from one of its subscriptions, '{name}/Subscriptions/…'"
    ))
}

fn check_terminus(role: Role, path: &EntityPath) -> Result<(), Refusal> {
    if role == Role::Sender
        && let Some(topic) = path.name.topic()
    {
        let text = format!("'{path}' gets its messages from its topic; send to '{topic}'");
        return Err(Refusal::not_allowed(text));
    }
    if role == Role::Sender && path.sub_queue != SubQueue::Main {
        let text = format!("'{path}' takes no messages from senders; send to '{}'", path.name);
        return Err(Refusal::not_allowed(text));
    }
    Ok(())
}

fn property<'a>(attach: &'a Attach, key: &str) -> Option<&'a Value> {
    attach.properties.as_ref().and_then(|properties| properties.get(key))
}

fn transfer_destination(attach: &Attach) -> Result<Option<EntityPath>, Refusal> {
    let destination = property(attach, TRANSFER_DESTINATION).filter(|_| attach.role == Role::Sender);
    let Some(destination) = destination.filter(|destination| !destination.is_null()) else { return Ok(None) };
    match destination.as_str().map(Node::parse).transpose()? {
        Some(Node::Entity(path)) => Ok(Some(path)),
        _ => {
            let text = format!("the property {TRANSFER_DESTINATION} does not name a queue");
            Err(Refusal::new(400, peeklock_amqp::condition::INVALID_FIELD, text))
        }
    }
}

pub(crate) fn mode_of(attach: &Attach) -> ReceiveMode {
    match attach.snd_settle_mode {
        SenderSettleMode::Settled => ReceiveMode::ReceiveAndDelete,
        SenderSettleMode::Unsettled | SenderSettleMode::Mixed => ReceiveMode::PeekLock,
    }
}

/// Returns an attach reply that echoes the peer's terms.
// SDK quirk: Python treats a source or target without any field as a refusal.
pub(crate) fn reply(attach: &Attach, max_message_size: u64) -> AttachReply {
    let mut source = attach.source.clone().unwrap_or_default();
    let mut target = attach.target.clone().unwrap_or_else(|| Target::Node(TargetNode::default()));
    // The reply lists the filters that are in effect: none.
    source.filter = None;
    fill_source(&mut source, attach);
    if let Target::Node(node) = &mut target {
        node.address = node.address.take().or_else(|| Some(attach.name.clone()));
    }
    AttachReply {
        source: Some(source),
        target: Some(target),
        max_message_size: Some(max_message_size),
        ..AttachReply::default()
    }
}

/// Adds the extensions of this broker to the attach reply of a receiver that desires them, and the broker's time.
pub(crate) fn fill_extensions(
    reply: &mut AttachReply,
    attach: &Attach,
    now: Timestamp,
    lock_duration: Option<Duration>,
) {
    let is_desired = |extension: &Symbol| attach.desired_capabilities.contains(extension);
    reply.offered_capabilities.extend(EXTENSIONS.into_iter().filter(is_desired));
    if attach.desired_capabilities.iter().any(|capability| *capability == BROKER_TIME) {
        let millis = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let properties = reply.properties.get_or_insert_default();
        properties.insert(BROKER_TIME, Value::Timestamp(millis));
        if let Some(lock_duration) = lock_duration {
            let millis = u32::try_from(lock_duration.as_millis()).unwrap_or(u32::MAX);
            properties.insert(LOCK_DURATION, Value::Uint(millis));
        }
    }
}

pub(crate) fn fill_source(source: &mut Source, attach: &Attach) {
    source.address = source.address.take().or_else(|| Some(attach.name.clone()));
}
