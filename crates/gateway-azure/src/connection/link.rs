//! The state of each link.

use std::time::Duration;

use peeklock_amqp::connection::{self, LinkId};
use peeklock_amqp::{Attach, Role};
use peeklock_broker::engine::{EntityId, ReceiveMode, ReceiverId};
use peeklock_message::Needs;
use peeklock_types::{EntityPath, SessionId, SubQueue};
use rustc_hash::FxHashMap;

use crate::access::Need;
use crate::hub::{PendingHub, Publisher, ReaderLink};
use crate::management::response::ResponseLine;
use crate::queue_group::{JoiningLink, MemberOf, QueueGroupLink};
use crate::receiving::sessions::SessionFilter;

/// A link's number within its connection. A number is reused only after all others: millions of links later, so that a
/// late answer cannot reach a later link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinkNumber(pub(crate) u32);

pub(crate) struct Link {
    pub(crate) id: LinkId,
    pub(crate) session: connection::SessionId,
    pub(crate) kind: LinkKind,
    /// The rights that the link requires.
    pub(crate) rests_on: Box<[Need]>,
}

impl Link {
    /// Returns the shard that has a receiver for this link: the link receives, or waits for a session.
    pub(crate) fn receives_from(&self) -> Option<usize> {
        match &self.kind {
            LinkKind::Receiver(link) => Some(link.entity.shard),
            LinkKind::Pending(link) if link.attach.role == Role::Receiver => {
                link.entity.map(|entity| entity.shard)
            }
            LinkKind::Joining(link) => link.entity.map(|entity| entity.shard),
            LinkKind::Reader(link) => Some(link.shard),
            LinkKind::PendingHub(link) => link.reads_from(),
            _ => None,
        }
    }
}

pub(crate) enum LinkKind {
    /// The lookup of the entity is in flight.
    Pending(Box<PendingLink>),
    /// The peer sends requests on this link.
    Requests(Service),
    /// The peer receives responses on this link.
    Responses(Box<Responses>),
    Sender(SenderLink),
    Receiver(ReceiverLink),
    /// The peer receives from several entities. A receiver at each of them is a link of its own, with the same id.
    QueueGroup(Box<QueueGroupLink>),
    /// A receiver behind a queue group link, while its shard is attaching it.
    Joining(JoiningLink),
    /// A request to a hub or a partition is in flight.
    PendingHub(Box<PendingHub>),
    /// The peer sends events.
    Publisher(Box<Publisher>),
    /// The peer reads events.
    Reader(Box<ReaderLink>),
    /// The peer begins and ends transactions on this link.
    Coordinator,
}

/// The service that answers requests: the token service, or the management of an entity or of the namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Cbs,
    Management(Option<EntityPath>),
}

pub(crate) struct PendingLink {
    pub(crate) attach: Box<Attach>,
    /// The source or destination of the messages.
    pub(crate) path: EntityPath,
    pub(crate) session: Option<SessionFilter>,
    pub(crate) entity: Option<EntityRef>,
    /// The lock duration of the entity, once it is known.
    pub(crate) lock_duration: Option<Duration>,
}

pub(crate) struct Responses {
    pub(crate) service: Service,
    pub(crate) name: String,
    pub(crate) address: Option<String>,
    pub(crate) settled: bool,
    pub(crate) next_tag: u32,
    pub(crate) line: ResponseLine,
}

/// An entity and the shard that owns it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntityRef {
    pub(crate) shard: usize,
    pub(crate) entity: EntityId,
}

/// A link on which the peer sends messages to an entity.
pub(crate) struct SenderLink {
    pub(crate) entity: EntityRef,
    pub(crate) path: EntityPath,
    pub(crate) needs: Needs,
    pub(crate) max_message_size_bytes: u32,
    /// Deliveries that the shard has not answered yet.
    pub(crate) unconfirmed: u32,
    /// Deliveries answered since the last grant of credit.
    pub(crate) confirmed: u32,
}

/// A link on which the peer receives messages from an entity.
pub(crate) struct ReceiverLink {
    /// The name that requests use for the link. Empty for a member of a queue group.
    pub(crate) name: Box<str>,
    pub(crate) entity: EntityRef,
    pub(crate) sub_queue: SubQueue,
    pub(crate) path: EntityPath,
    pub(crate) mode: ReceiveMode,
    pub(crate) receiver: ReceiverId,
    /// The session that the link holds.
    pub(crate) session: Option<SessionId>,
    /// Deliveries passed to the link so far; the shard has the same count.
    pub(crate) passed_count: u64,
    /// The number of deliveries up to which the shard may send.
    pub(crate) limit: u64,
    /// Bytes passed to the link that were not yet reported to the shard.
    pub(crate) passed_bytes: i64,
    /// The queue group link, if this is one of its receivers.
    pub(crate) member_of: Option<MemberOf>,
    /// For a member: the count of passed deliveries at the start of its last run.
    pub(crate) run_from: u64,
}

/// Links by their number and by their id in the AMQP engine.
pub(crate) struct Links {
    links: FxHashMap<u32, Link>,
    numbers: FxHashMap<LinkId, u32>,
    next: u32,
    numbers_max: u32,
}

impl Links {
    pub(crate) fn new(numbers_max: u32) -> Self {
        let numbers_max = numbers_max.min(peeklock_broker::PeerId::RECEIVERS_MAX);
        Links { links: FxHashMap::default(), numbers: FxHashMap::default(), next: 0, numbers_max }
    }

    /// Adds a link. Returns `None` when all link numbers are in use.
    pub(crate) fn insert(&mut self, link: Link) -> Option<LinkNumber> {
        let id = link.id;
        let number = self.insert_member(link)?;
        self.numbers.insert(id, number.0);
        Some(number)
    }

    /// Does the same for a member behind another link. Input for the shared id goes to that other link.
    pub(crate) fn insert_member(&mut self, link: Link) -> Option<LinkNumber> {
        if self.links.len() >= usize::try_from(self.numbers_max).unwrap_or(usize::MAX) {
            return None;
        }
        let mut number = self.next;
        while self.links.contains_key(&number) {
            number = self.after(number);
        }
        self.next = self.after(number);
        self.links.insert(number, link);
        Some(LinkNumber(number))
    }

    /// Returns the next number. After the last one follows the first.
    fn after(&self, number: u32) -> u32 {
        let next = number + 1;
        if next < self.numbers_max { next } else { 0 }
    }

    pub(crate) fn number(&self, id: LinkId) -> Option<LinkNumber> {
        self.numbers.get(&id).copied().map(LinkNumber)
    }

    pub(crate) fn get(&self, number: LinkNumber) -> Option<&Link> {
        self.links.get(&number.0)
    }

    pub(crate) fn get_mut(&mut self, number: LinkNumber) -> Option<&mut Link> {
        self.links.get_mut(&number.0)
    }

    pub(crate) fn remove(&mut self, number: LinkNumber) -> Option<Link> {
        let link = self.links.remove(&number.0)?;
        if self.numbers.get(&link.id) == Some(&number.0) {
            self.numbers.remove(&link.id);
        }
        Some(link)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.links.values_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (LinkNumber, &Link)> {
        self.links.iter().map(|(number, link)| (LinkNumber(*number), link))
    }
}

#[cfg(test)]
mod tests {
    use peeklock_amqp::connection::{Config, Connection, Millis};
    use peeklock_broker::PeerId;

    use super::*;

    fn link(id: LinkId, session: connection::SessionId) -> Link {
        Link { id, session, kind: LinkKind::Coordinator, rests_on: Box::default() }
    }

    /// Returns ids of links of some connection.
    fn ids(count: usize) -> (Vec<LinkId>, connection::SessionId) {
        let mut connection = Connection::client(Config::client("test", "localhost"), None, Millis(0));
        let session = connection.begin().unwrap();
        let attach = |n: usize| Attach::new(format!("link-{n}"), 0, Role::Sender);
        ((0..count).map(|n| connection.attach(session, attach(n)).unwrap()).collect(), session)
    }

    #[test]
    fn numbers_start_again_after_the_last_one() {
        let max = PeerId::RECEIVERS_MAX;
        let (ids, session) = ids(4);
        let mut links = Links::new(u32::MAX);
        let kept = links.insert(link(ids[0], session)).unwrap();
        links.next = max - 2;
        for (id, expected) in [(ids[1], max - 2), (ids[2], max - 1), (ids[3], 1)] {
            let number = links.insert(link(id, session)).unwrap();
            assert_eq!((number, links.number(id)), (LinkNumber(expected), Some(number)));
            links.remove(number).unwrap();
        }
        assert_eq!(links.number(ids[0]), Some(kept), "a number in use is skipped");
    }

    #[test]
    fn a_number_is_reused_only_after_all_others() {
        let (ids, session) = ids(1);
        let mut links = Links::new(5);
        let numbers = (0..10).map(|_| {
            let number = links.insert(link(ids[0], session)).unwrap();
            links.remove(number);
            number.0
        });
        assert_eq!(numbers.collect::<Vec<_>>(), [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn links_beyond_the_numbers_are_refused_until_one_is_free() {
        let (ids, session) = ids(4);
        let mut links = Links::new(3);
        let numbers: Vec<_> = ids[..3].iter().map(|id| links.insert(link(*id, session)).unwrap()).collect();
        assert_eq!(links.insert(link(ids[3], session)), None);
        links.remove(numbers[1]);
        assert_eq!(links.insert(link(ids[3], session)), Some(numbers[1]));
    }
}
