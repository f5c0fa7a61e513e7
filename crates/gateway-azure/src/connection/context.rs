//! The context that all parts of a connection share: the AMQP connection and its links, the time, the namespace, and
//! the requests for shards.

use bytes::BytesMut;
use peeklock_amqp::connection::{Connection, Millis};
use peeklock_broker::request::receiving::Detach;
use peeklock_broker::request::settling::Settle;
use peeklock_broker::{Ask, Asked, Batch, Peer, Request, Ticket};
use peeklock_types::Timestamp;

use super::conversation::Replies;
use super::link::{Link, LinkKind, LinkNumber, Links};
use super::request::{SettleWaiter, Waiter, numbered};
use crate::Gateway;
use crate::error::Refusal;
use crate::namespace::Namespace;
use crate::queue_group::Membership;

pub(crate) struct Context<'g> {
    pub(crate) gateway: &'g Gateway,
    /// The namespace that the peer uses; it may change until the peer has identified it.
    pub(crate) namespace: &'g Namespace,
    pub(crate) connection: Connection,
    pub(crate) links: Links,
    pub(crate) peer: Peer,
    /// The host that the peer named, for error texts about entities.
    pub(crate) host: String,
    /// The arrival time of the input that is being handled.
    pub(crate) now: Timestamp,
    /// The same moment by the connection's own clock.
    pub(crate) millis: Millis,
    /// Reused buffer for the rewritten part of a delivery.
    pub(crate) scratch: BytesMut,
    /// One batch per shard, with the requests of one round.
    batches: Vec<Batch>,
    /// Shards that have received a batch of this peer.
    known_to: Vec<bool>,
    /// Requests that shards have not answered yet.
    waiting_count: usize,
    /// Links that were removed, until all parts have dropped their state for them.
    removed: Vec<Removed>,
    is_closing: bool,
}

/// A link that was removed.
pub(crate) struct Removed {
    pub(crate) number: LinkNumber,
    /// The shard that has a receiver for the link.
    receives_from: Option<usize>,
}

impl<'g> Context<'g> {
    pub(crate) fn new(gateway: &'g Gateway, millis: Millis) -> (Self, Replies) {
        let namespace = &gateway.namespaces.first;
        let (peer, replies) = namespace.broker.peer();
        let shard_count = namespace.broker.shard_count();
        let context = Context {
            gateway,
            namespace,
            connection: Connection::server(gateway.limits.config(), millis),
            links: Links::new(gateway.limits.link_numbers_per_connection_max),
            peer,
            host: namespace.name.clone(),
            now: namespace.broker.clock().now(),
            millis,
            scratch: BytesMut::new(),
            batches: (0..shard_count).map(|_| Batch::default()).collect(),
            known_to: vec![false; shard_count],
            waiting_count: 0,
            removed: Vec::new(),
            is_closing: false,
        };
        (context, replies)
    }

    /// Becomes a peer of another namespace. No shard has received a batch yet, so no state is left behind.
    pub(crate) fn enter(&mut self, namespace: &'g Namespace) -> Replies {
        let (peer, replies) = namespace.broker.peer();
        let shard_count = namespace.broker.shard_count();
        (self.namespace, self.peer) = (namespace, peer);
        self.batches = (0..shard_count).map(|_| Batch::default()).collect();
        self.known_to = vec![false; shard_count];
        replies
    }

    pub(crate) fn now_s(&self) -> u64 {
        self.now.as_millis() / 1000
    }

    pub(crate) fn insert(&mut self, link: Link) -> Result<LinkNumber, Refusal> {
        self.links.insert(link).ok_or_else(Refusal::too_many_links)
    }

    /// Removes a link, and those of the members behind it. All parts drop their state for it once the event or the
    /// reply is handled.
    pub(crate) fn remove_link(&mut self, number: LinkNumber) -> Option<Link> {
        let link = self.links.remove(number)?;
        self.removed.push(Removed { number, receives_from: link.receives_from() });
        if let LinkKind::QueueGroup(group) = &link.kind {
            for member in group.members.iter().filter_map(Membership::link) {
                self.remove_link(member);
            }
        }
        Some(link)
    }

    /// Removes a link whose receiver the shard has detached.
    pub(crate) fn remove_detached(&mut self, number: LinkNumber) {
        if self.links.remove(number).is_some() {
            self.removed.push(Removed { number, receives_from: None });
        }
    }

    pub(crate) fn take_removed(&mut self) -> Vec<Removed> {
        std::mem::take(&mut self.removed)
    }

    /// Detaches the receiver of a link that was removed.
    pub(crate) fn detach_removed(&mut self, removed: &Removed) {
        if let Some(shard) = removed.receives_from {
            self.detach_receiver(removed.number, shard);
        }
    }

    pub(crate) fn detach_receiver(&mut self, number: LinkNumber, shard: usize) {
        let receiver = self.peer.id.receiver(number.0);
        // The gateway does not use the answer.
        self.push(shard, Asked { ticket: Ticket::new(0), request: Detach { receiver } });
    }

    /// Closes the connection, once.
    pub(crate) fn close(&mut self, refusal: Refusal) {
        if !std::mem::replace(&mut self.is_closing, true) {
            self.connection.close(Some(refusal.into()));
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing
    }

    pub(crate) fn push(&mut self, shard: usize, request: impl Into<Request>) {
        if let Some(batch) = self.batch(shard) {
            batch.push(request);
        }
    }

    pub(crate) fn ask<R: Ask>(&mut self, shard: usize, waiter: impl Waiter<R>, request: R) {
        self.push(shard, Asked { ticket: waiter.ticket(), request });
    }

    /// Sends a request whose waiter is stored under a number.
    pub(crate) fn ask_numbered<R: Ask>(&mut self, shard: usize, number: u32, request: R) {
        self.push(shard, Asked { ticket: numbered(number), request });
    }

    pub(crate) fn settle(&mut self, shard: usize, waiter: SettleWaiter, settle: Settle) {
        if let Some(batch) = self.batch(shard) {
            batch.settle(waiter.ticket(), settle);
        }
    }

    pub(crate) fn batch(&mut self, shard: usize) -> Option<&mut Batch> {
        self.batches.get_mut(shard)
    }

    /// Counts an answer that does not belong to a batch.
    pub(crate) fn expect_answer(&mut self) {
        self.waiting_count += 1;
    }

    pub(crate) fn count_answers(&mut self, count: usize) {
        self.waiting_count = self.waiting_count.saturating_sub(count);
    }

    /// Returns whether the peer waits for answers.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting_count > 0
    }

    /// Returns whether more than one shard has received a batch.
    pub(crate) fn has_several_shards(&self) -> bool {
        self.known_to.iter().filter(|known| **known).nth(1).is_some()
    }

    /// Sends every shard the requests of this round.
    pub(crate) async fn send_batches(&mut self) {
        for shard in 0..self.batches.len() {
            let Some(batch) = self.batches.get_mut(shard).filter(|batch| !batch.is_empty()) else { continue };
            let batch = batch.take();
            self.waiting_count += batch.answer_count();
            let Some(handle) = self.namespace.broker.shard(shard) else { continue };
            if handle.send(self.peer.clone(), batch).await.is_err() {
                let refusal = Refusal::stopped("its journal has failed");
                self.connection.close(Some(refusal.into()));
            }
            if let Some(known) = self.known_to.get_mut(shard) {
                *known = true;
            }
        }
    }

    /// Notifies every shard that has received a batch that the peer has disconnected.
    pub(crate) fn say_goodbye(&mut self) {
        for shard in 0..self.known_to.len() {
            if self.known_to.get(shard).is_some_and(|known| *known) {
                self.push(shard, Request::Gone);
            }
        }
    }
}
