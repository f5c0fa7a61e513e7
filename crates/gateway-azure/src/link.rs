//! What the gateway remembers of each link.

use std::collections::VecDeque;

use bytes::Bytes;
use peeklock_amqp::Attach;
use peeklock_amqp::connection::{LinkId, SessionId};
use peeklock_broker::engine::{EntityId, ReceiveMode, ReceiverId};
use peeklock_types::{EntityPath, SubQueue};
use rustc_hash::FxHashMap;

/// A link's number within its connection, never used twice, so that a late answer cannot hit a later link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinkNumber(pub(crate) u32);

pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) session: SessionId,
    pub(crate) kind: LinkKind,
}

impl Link {
    /// The receiver behind it, if it is one.
    pub(crate) fn receiver(&self) -> Option<(EntityRef, ReceiverId)> {
        match &self.kind {
            LinkKind::Receiver(link) => Some((link.entity, link.receiver)),
            _ => None,
        }
    }
}

pub(crate) enum LinkKind {
    /// The shard is being asked about the entity.
    Pending(Box<PendingLink>),
    /// The peer sends requests here.
    Requests(Service),
    /// The peer waits for responses here.
    Responses(Box<Responses>),
    Sender(SenderLink),
    Receiver(ReceiverLink),
}

/// What answers requests: the token service, or the management of an entity or of the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Cbs,
    Management(Option<EntityPath>),
}

pub(crate) struct PendingLink {
    pub(crate) attach: Box<Attach>,
    pub(crate) path: EntityPath,
    pub(crate) entity: Option<EntityRef>,
}

pub(crate) struct Responses {
    pub(crate) service: Service,
    pub(crate) name: String,
    pub(crate) address: Option<String>,
    pub(crate) settled: bool,
    pub(crate) next_tag: u32,
    /// Responses that wait for credit.
    pub(crate) waiting: VecDeque<Bytes>,
    pub(crate) waiting_bytes: usize,
}

/// An entity and the shard that owns it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntityRef {
    pub(crate) shard: usize,
    pub(crate) entity: EntityId,
}

/// The peer sends messages to an entity.
pub(crate) struct SenderLink {
    pub(crate) entity: EntityRef,
    pub(crate) path: EntityPath,
    /// Deliveries that the shard has not answered yet.
    pub(crate) unconfirmed: u32,
    /// Deliveries answered since credit was given last.
    pub(crate) confirmed: u32,
}

/// The peer receives messages from an entity.
pub(crate) struct ReceiverLink {
    pub(crate) entity: EntityRef,
    pub(crate) sub_queue: SubQueue,
    pub(crate) path: EntityPath,
    pub(crate) mode: ReceiveMode,
    pub(crate) receiver: ReceiverId,
    /// Deliveries passed on to the link so far; the shard counts the same from its side.
    pub(crate) passed_count: u64,
    /// How far the shard may count.
    pub(crate) limit: u64,
    /// Bytes passed on that the shard has not been told about.
    pub(crate) passed_bytes: i64,
}

/// Links by the number we gave them and by the id that the AMQP engine knows.
#[derive(Default)]
pub(crate) struct Links {
    links: FxHashMap<u32, Link>,
    numbers: FxHashMap<LinkId, u32>,
    next: u32,
}

impl Links {
    /// `None` when the connection has used up its numbers.
    pub(crate) fn insert(&mut self, link: Link) -> Option<LinkNumber> {
        let number = self.next;
        if number >= peeklock_broker::PeerId::RECEIVERS_MAX {
            return None;
        }
        self.next += 1;
        self.numbers.insert(link.id, number);
        self.links.insert(number, link);
        Some(LinkNumber(number))
    }

    pub(crate) fn number(&self, id: LinkId) -> Option<LinkNumber> {
        self.numbers.get(&id).copied().map(LinkNumber)
    }

    pub(crate) fn get_mut(&mut self, number: LinkNumber) -> Option<&mut Link> {
        self.links.get_mut(&number.0)
    }

    pub(crate) fn remove(&mut self, number: LinkNumber) -> Option<Link> {
        let link = self.links.remove(&number.0)?;
        self.numbers.remove(&link.id);
        Some(link)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (LinkNumber, &Link)> {
        self.links.iter().map(|(number, link)| (LinkNumber(*number), link))
    }
}
