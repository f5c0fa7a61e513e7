//! New links to hubs.

use peeklock_access::Right;
use peeklock_amqp::connection::AttachReply;
use peeklock_amqp::{Attach, Fields, Role, SenderSettleMode, Symbol, Value, condition};
use peeklock_broker::hubs::{Error as HubError, HubView, Producer, ReaderSpec};
use peeklock_broker::request::entities::Find;
use peeklock_broker::request::events::AttachReader;
use peeklock_broker::request::hubs::{ShowHub, ShowProducer};
use peeklock_broker::request::receiving::Window;
use peeklock_broker::{Error, Fence, Partition};
use peeklock_types::{ConsumerGroup, EntityName, EntityPath, HubId, SubQueue, limits};

use super::address::{HubAddress, HubPart};
use super::error::{is_hub, no_such_partition, not_found, refusal_of};
use super::position::start_of;
use super::producer::{self, Numbered, Wish};
use super::publication::check_length;
use super::read::{READER_WINDOW_BYTES, ReaderLink};
use super::{Destination, PartitionRef, PendingHub, Publisher, Reading, Step};
use crate::access::{Access, Need};
use crate::connection::attach::{DELIVERY_SIZE_BYTES_MAX, NewLink, SENDER_CREDIT, reply};
use crate::connection::context::Context;
use crate::connection::link::{Link, LinkKind, LinkNumber, PendingLink};
use crate::connection::request::{FindWaiter, HubWaiter};
use crate::error::Refusal;

const EPOCH: &str = "com.microsoft:epoch";
/// The property with the name of a receiver. SDK quirk: the SDK for Rust misspells it.
const RECEIVER_NAMES: [&str; 2] = ["com.microsoft:receiver-name", "com.microsoft.com:receiver-name"];
const RUNTIME_METRIC: &str = "com.microsoft:enable-receiver-runtime-metric";

pub(crate) fn start_hub(
    context: &mut Context<'_>,
    access: &Access,
    NewLink { session, id, attach }: NewLink,
    address: HubAddress,
) -> Result<(), Refusal> {
    let right = match attach.role {
        Role::Sender => Right::Send,
        Role::Receiver => Right::Listen,
    };
    let scope = address.scope();
    access.check_right(context, right, &scope)?;
    let name = address.hub.clone();
    let shard = context.namespace.broker.place(&name);
    let kind = LinkKind::PendingHub(Box::new(PendingHub { attach, address, step: Step::Find }));
    let rests_on = Box::new([Need { right, scope }]);
    let number = context.insert(Link { id, session, kind, rests_on })?;
    context.ask(shard, HubWaiter::Link(number), ShowHub { name });
    Ok(())
}

/// Continues with the hub after the lookup of a plain name has found one.
pub(crate) fn found_hub(context: &mut Context<'_>, number: LinkNumber, view: &HubView) {
    let Some(link) = context.links.get_mut(number) else { return };
    let LinkKind::Pending(pending) = &mut link.kind else { return };
    let PendingLink { attach, path, .. } = &mut **pending;
    let refused = check_plain(attach.role, path);
    let attach = std::mem::replace(attach, Box::new(Attach::new("", 0, Role::Sender)));
    let address = HubAddress::whole(path.name.clone());
    link.kind = LinkKind::PendingHub(Box::new(PendingHub { attach, address, step: Step::Find }));
    let result = refused.and_then(|()| enter_hub(context, number, view));
    refuse_if(context, number, result);
}

/// Handles the shard's lookup of the hub of a link.
pub(crate) fn on_link_hub(context: &mut Context<'_>, number: LinkNumber, result: Result<HubView, Error>) {
    let Some(pending) = pending_hub(context, number) else { return };
    let next = match result {
        Ok(view) => enter_hub(context, number, &view),
        Err(Error::Hub(error)) if matches!(*error, HubError::NoSuchHub { .. }) => {
            try_entity(context, number, &Error::Hub(error))
        }
        Err(error) => Err(refusal_of(&error, &pending.address)),
    };
    refuse_if(context, number, next);
}

/// Handles the partition's lookup of the producer of a link.
pub(crate) fn on_link_producer(
    context: &mut Context<'_>,
    number: LinkNumber,
    result: Result<Option<Producer>, Error>,
) {
    let Some(pending) = pending_hub(context, number) else { return };
    let Step::Producer { at, wish } = &pending.step else { return };
    let next = match result {
        Ok(known) => {
            let (at, wish) = (*at, *wish);
            open_numbered(context, number, at, wish, known)
        }
        Err(error) => Err(refusal_of(&error, &pending.address)),
    };
    refuse_if(context, number, next);
}

/// Handles the partition's answer to the attach of a reader.
pub(crate) fn on_link_reader(context: &mut Context<'_>, number: LinkNumber, result: Result<(), Error>) {
    let Some(pending) = pending_hub(context, number) else { return };
    let next = match result {
        Ok(()) => {
            open_reader(context, number);
            Ok(())
        }
        Err(error) => Err(refusal_of(&error, &pending.address)),
    };
    refuse_if(context, number, next);
}

fn pending_hub<'c>(context: &'c Context<'_>, number: LinkNumber) -> Option<&'c PendingHub> {
    match &context.links.get(number)?.kind {
        LinkKind::PendingHub(pending) => Some(pending),
        _ => None,
    }
}

fn refuse_if(context: &mut Context<'_>, number: LinkNumber, result: Result<(), Refusal>) {
    if let Err(refusal) = result
        && let Some(link) = context.links.remove(number)
    {
        context.connection.refuse(link.id, refusal.at(&context.host).into());
    }
}

/// Looks up an entity when there is no such hub, because the name of a queue may have the same form.
fn try_entity(context: &mut Context<'_>, number: LinkNumber, error: &Error) -> Result<(), Refusal> {
    let Some(link) = context.links.get_mut(number) else { return Ok(()) };
    let LinkKind::PendingHub(pending) = &mut link.kind else { return Ok(()) };
    let missing = refusal_of(error, &pending.address);
    let Ok(path) = EntityPath::parse(&pending.address.to_string()) else { return Err(missing) };
    let attach = std::mem::replace(&mut pending.attach, Box::new(Attach::new("", 0, Role::Sender)));
    let name = path.name.clone();
    let pending = PendingLink { attach, path, session: None, entity: None, lock_duration: None };
    link.kind = LinkKind::Pending(Box::new(pending));
    let shard = context.namespace.broker.place(&name);
    context.ask(shard, FindWaiter::Link(number), Find { name });
    Ok(())
}

/// Continues with the part of the hub that the link names.
fn enter_hub(context: &mut Context<'_>, number: LinkNumber, view: &HubView) -> Result<(), Refusal> {
    let Some(link) = context.links.get_mut(number) else { return Ok(()) };
    let LinkKind::PendingHub(pending) = &mut link.kind else { return Ok(()) };
    check_direction(pending.attach.role, &pending.address)?;
    check_status(pending.attach.role, view)?;
    let partition_count = view.settings.partition_count;
    match &pending.address.part {
        HubPart::Whole => {
            let next = fastrand::u32(..);
            let destination = Destination::Any { partition_count, next, looked_at: context.millis };
            open_publisher(context, number, view.id, destination, None);
        }
        HubPart::Publisher(name) => {
            check_length(name)?;
            let key = name.as_str().into();
            let destination = Destination::Key { key, partition_count, looked_at: context.millis };
            open_publisher(context, number, view.id, destination, None);
        }
        HubPart::Partition(partition) => {
            let partition = partition_of(partition, view)?;
            match Wish::of(&pending.attach)? {
                Some(wish) => return settle_producer(context, number, view, partition, wish),
                None => open_publisher(context, number, view.id, Destination::Partition(partition), None),
            }
        }
        HubPart::ConsumerGroup { group, partition } => {
            let group = consumer_group_of(group, &pending.address, view)?;
            let partition = partition_of(partition, view)?;
            let reader = Box::new(Reading::of(&pending.attach, group)?);
            ask_reader(context, number, view, partition, reader);
        }
    }
    Ok(())
}

fn partition_ref(context: &Context<'_>, view: &HubView, number: u32) -> PartitionRef {
    let shard = context.namespace.broker.place_partition(&view.name, number);
    PartitionRef { shard, partition: Partition { hub: view.id, number } }
}

/// Requests the state of a named producer from the partition.
fn settle_producer(
    context: &mut Context<'_>,
    number: LinkNumber,
    view: &HubView,
    partition: u32,
    wish: Wish,
) -> Result<(), Refusal> {
    let at = partition_ref(context, view, partition);
    let Some(LinkKind::PendingHub(pending)) = context.links.get_mut(number).map(|link| &mut link.kind) else {
        return Ok(());
    };
    pending.step = Step::Producer { at, wish };
    match wish.id {
        Some(id) => {
            context.ask(at.shard, number, ShowProducer { partition: at.partition, id });
            Ok(())
        }
        None => open_numbered(context, number, at, wish, None),
    }
}

fn open_numbered(
    context: &mut Context<'_>,
    number: LinkNumber,
    at: PartitionRef,
    wish: Wish,
    known: Option<Producer>,
) -> Result<(), Refusal> {
    let producer = wish.settle(known)?;
    let destination = Destination::Partition(at.partition.number);
    open_publisher(context, number, at.partition.hub, destination, Some(producer));
    Ok(())
}

fn open_publisher(
    context: &mut Context<'_>,
    number: LinkNumber,
    hub: HubId,
    destination: Destination,
    producer: Option<Producer>,
) {
    let Some(link) = context.links.get_mut(number) else { return };
    let LinkKind::PendingHub(pending) = &link.kind else { return };
    let mut reply = reply(&pending.attach, limits::PUBLICATION_SIZE_BYTES_MAX as u64);
    if let Some(producer) = producer {
        producer::fill(producer, &mut reply);
    }
    let numbered = producer.map(|producer| Numbered { id: producer.id, epoch: producer.epoch });
    let address = pending.address.clone();
    let publisher = Publisher { address, hub, destination, numbered, unconfirmed: 0, confirmed: 0 };
    link.kind = LinkKind::Publisher(Box::new(publisher));
    let id = link.id;
    context.connection.accept(id, reply);
    context.connection.set_credit(id, SENDER_CREDIT);
}

fn ask_reader(
    context: &mut Context<'_>,
    number: LinkNumber,
    view: &HubView,
    partition: u32,
    reader: Box<Reading>,
) {
    let at = partition_ref(context, view, partition);
    let receiver = context.peer.id.receiver(number.0);
    let spec = ReaderSpec {
        group: reader.group.clone(),
        start: reader.start,
        owner_level: reader.owner_level,
        hub_revision: view.revision,
        name: reader.name.clone(),
    };
    let fence = reader.fence.clone();
    let Some(LinkKind::PendingHub(pending)) = context.links.get_mut(number).map(|link| &mut link.kind) else {
        return;
    };
    pending.step = Step::Reader { at, reader };
    let (partition, spec) = (at.partition, Box::new(spec));
    context.ask(at.shard, number, AttachReader { partition, receiver, spec, fence });
    context.push(at.shard, Window { receiver, size_bytes: READER_WINDOW_BYTES });
}

/// Opens the link after the partition has attached the reader.
fn open_reader(context: &mut Context<'_>, number: LinkNumber) {
    let receiver = context.peer.id.receiver(number.0);
    let Some(link) = context.links.get_mut(number) else { return };
    let LinkKind::PendingHub(pending) = &link.kind else { return };
    let Step::Reader { at, reader } = &pending.step else { return };
    let reply = reader_reply(&pending.attach, reader);
    let address = pending.address.clone();
    let opened = ReaderLink::new(address, at.shard, receiver, reader.fence.clone(), reader.wants_metrics);
    link.kind = LinkKind::Reader(Box::new(opened));
    context.connection.accept(link.id, reply);
}

impl Reading {
    fn of(attach: &Attach, group: ConsumerGroup) -> Result<Self, Refusal> {
        let name = RECEIVER_NAMES.iter().find_map(|key| property(attach, key)).and_then(Value::as_str);
        let wants = |capability: &str| attach.desired_capabilities.iter().any(|wish| *wish == capability);
        Ok(Reading {
            group,
            start: start_of(attach)?,
            owner_level: owner_level(attach)?,
            name: name.map(str::to_owned),
            wants_metrics: wants(RUNTIME_METRIC),
            fence: Fence::default(),
        })
    }
}

fn property<'a>(attach: &'a Attach, key: &str) -> Option<&'a Value> {
    attach.properties.as_ref()?.get(key).filter(|value| !value.is_null())
}

fn owner_level(attach: &Attach) -> Result<Option<i64>, Refusal> {
    let Some(value) = property(attach, EPOCH) else { return Ok(None) };
    let level = value.as_i64().filter(|level| *level >= 0);
    level.map(Some).ok_or_else(|| {
        let text = format!("the link's property {EPOCH} is not a number from zero up; an owner level is one");
        Refusal::new(400, condition::ARGUMENT_OUT_OF_RANGE, text)
    })
}

/// Returns the attach reply. Events are sent settled: readers record their progress in their own checkpoints.
fn reader_reply(attach: &Attach, reader: &Reading) -> AttachReply {
    let mut reply = reply(attach, DELIVERY_SIZE_BYTES_MAX);
    reply.snd_settle_mode = Some(SenderSettleMode::Settled);
    if let (Some(source), Some(wish)) = (&mut reply.source, &attach.source) {
        source.filter.clone_from(&wish.filter);
    }
    if let Some(level) = reader.owner_level {
        reply.properties = Some(Fields::new().with(EPOCH, level));
    }
    if reader.wants_metrics {
        reply.offered_capabilities.push(Symbol::from_static(RUNTIME_METRIC));
    }
    reply
}

fn check_direction(role: Role, address: &HubAddress) -> Result<(), Refusal> {
    let hub = &address.hub;
    match (role, &address.part) {
        (Role::Sender, HubPart::ConsumerGroup { partition, .. }) => Err(Refusal::not_allowed(format!(
            "'{address}' is where a consumer group reads; send to '{hub}' or '{hub}/Partitions/{partition}'"
        ))),
        (Role::Receiver, HubPart::Partition(partition)) => Err(Refusal::not_allowed(format!(
            "'{address}' is where events are sent to; read from '{hub}/ConsumerGroups/$Default/Partitions/{partition}', or from \
             another consumer group"
        ))),
        (Role::Receiver, HubPart::Publisher(_) | HubPart::Whole) => Err(read_from_partition(hub)),
        _ => Ok(()),
    }
}

fn read_from_partition(hub: &EntityName) -> Refusal {
    is_hub(
        hub,
        &format!(
            "which is read by partition; read from '{hub}/ConsumerGroups/$Default/Partitions/0' and so on"
        ),
    )
}

/// Checks a link that names no part of the hub.
fn check_plain(role: Role, path: &EntityPath) -> Result<(), Refusal> {
    if path.sub_queue != SubQueue::Main {
        return Err(not_found(path, &format!("'{}' is an event hub, which has no sub-queues", path.name)));
    }
    match role {
        Role::Sender => Ok(()),
        Role::Receiver => Err(read_from_partition(&path.name)),
    }
}

fn check_status(role: Role, view: &HubView) -> Result<(), Refusal> {
    let (is_open, what) = match role {
        Role::Sender => (view.settings.status.can_send(), "senders"),
        Role::Receiver => (view.settings.status.can_receive(), "readers"),
    };
    if is_open {
        return Ok(());
    }
    let text = format!("the hub '{}' is disabled for {what}; set its status to active", view.name);
    Err(Refusal::new(403, condition::ENTITY_DISABLED, text))
}

fn partition_of(text: &str, view: &HubView) -> Result<u32, Refusal> {
    let count = view.settings.partition_count;
    parse_partition(text).filter(|number| *number < count).ok_or_else(|| no_such_partition(count))
}

/// Parses a partition number in the form that the broker writes: '07' is not a partition.
pub(super) fn parse_partition(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number: &u32| number.to_string() == text)
}

fn consumer_group_of(text: &str, address: &HubAddress, view: &HubView) -> Result<ConsumerGroup, Refusal> {
    let group = ConsumerGroup::parse(text).map_err(|error| not_found(address, &error))?;
    if view.groups.iter().any(|known| known.name == group) {
        return Ok(group);
    }
    let error = HubError::NoSuchGroup { name: view.name.clone(), group };
    Err(not_found(address, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_identify_themselves_in_properties() {
        let attach =
            |properties| Attach { properties: Some(properties), ..Attach::new("l", 0, Role::Receiver) };
        let read = |properties| Reading::of(&attach(properties), ConsumerGroup::default_group());
        let plain = read(Fields::new()).unwrap();
        assert_eq!((plain.owner_level, plain.name, plain.wants_metrics), (None, None, false));
        for key in RECEIVER_NAMES {
            let named = read(Fields::new().with(key, "me").with(EPOCH, 3_i64)).unwrap();
            assert_eq!((named.owner_level, named.name.as_deref()), (Some(3), Some("me")));
        }
        for bad in [Value::Long(-1), "one".into()] {
            let refused = read(Fields::new().with(EPOCH, bad)).err().unwrap();
            assert_eq!(refused.condition, condition::ARGUMENT_OUT_OF_RANGE);
        }
    }

    #[test]
    fn a_partition_has_one_spelling() {
        assert_eq!(parse_partition("0"), Some(0));
        assert_eq!(parse_partition("1023"), Some(1023));
        for text in ["", "-1", "+1", "01", "a", "99999999999"] {
            assert_eq!(parse_partition(text), None, "{text}");
        }
    }
}
