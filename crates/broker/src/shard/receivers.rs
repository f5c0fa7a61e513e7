//! The receivers and readers that peers have attached to a shard.

use peeklock_engine::{Delivery, ReceiverId};
use rustc_hash::FxHashMap;

use crate::batch::PeerId;
use crate::hub::Fence;
use crate::request::Ticket;
use crate::request::receiving::Attach;

#[derive(Default)]
pub(crate) struct Receivers {
    /// The receivers of each peer. They are detached when the peer is gone.
    of_peer: FxHashMap<PeerId, Vec<ReceiverId>>,
    /// The deliveries to each receiver.
    delivered: FxHashMap<ReceiverId, Delivered>,
    /// The receivers with a run under construction, in the order of their first delivery.
    in_runs: Vec<ReceiverId>,
    /// Receivers that wait for a session, with the request to answer.
    waiting: FxHashMap<ReceiverId, (PeerId, Ticket<Attach>)>,
    /// The fence of each reader. It is closed when the reader has lost its partition.
    fences: FxHashMap<ReceiverId, Fence>,
}

/// The deliveries to one receiver.
#[derive(Default)]
struct Delivered {
    /// The number of deliveries so far.
    count: u64,
    /// The run under construction.
    run: Vec<Delivery>,
    /// The length of the previous run, which is the best guess for the next one.
    last_run_len: usize,
}

impl Receivers {
    pub(crate) fn attach(&mut self, peer: PeerId, receiver: ReceiverId) {
        self.of_peer.entry(peer).or_default().push(receiver);
    }

    pub(crate) fn attach_reader(&mut self, peer: PeerId, reader: ReceiverId, fence: Fence) {
        self.attach(peer, reader);
        self.fences.insert(reader, fence);
    }

    /// Notes that an attached receiver has no session yet.
    pub(crate) fn wait(&mut self, receiver: ReceiverId, peer: PeerId, ticket: Ticket<Attach>) {
        self.waiting.insert(receiver, (peer, ticket));
    }

    /// Returns the request of a receiver that has waited for a session.
    pub(crate) fn end_wait(&mut self, receiver: ReceiverId) -> Option<(PeerId, Ticket<Attach>)> {
        self.waiting.remove(&receiver)
    }

    /// Removes a receiver from its peer. A connection may request sessions in vain for weeks, so closed receivers must
    /// not accumulate.
    pub(crate) fn leave(&mut self, receiver: ReceiverId) {
        if let Some(receivers) = self.of_peer.get_mut(&PeerId::of(receiver)) {
            receivers.retain(|other| *other != receiver);
        }
    }

    /// Removes a peer and returns its receivers.
    pub(crate) fn leave_all(&mut self, peer: PeerId) -> Vec<ReceiverId> {
        self.of_peer.remove(&peer).unwrap_or_default()
    }

    /// Drops the count of deliveries and the fence of a receiver that is detached.
    pub(crate) fn forget(&mut self, receiver: ReceiverId) {
        self.delivered.remove(&receiver);
        self.fences.remove(&receiver);
    }

    /// Closes the fence of a reader that has lost its partition.
    pub(crate) fn close_fence(&mut self, reader: ReceiverId) {
        if let Some(fence) = self.fences.remove(&reader) {
            fence.close();
        }
    }

    /// Counts deliveries, and combines those to each receiver into one run. Within a run they keep their order.
    pub(crate) fn runs(
        &mut self,
        deliveries: impl Iterator<Item = Delivery>,
    ) -> impl Iterator<Item = Vec<Delivery>> {
        for delivery in deliveries {
            let delivered = self.delivered.entry(delivery.receiver).or_default();
            delivered.count += 1;
            if delivered.run.is_empty() {
                self.in_runs.push(delivery.receiver);
                delivered.run.reserve(delivered.last_run_len);
            }
            delivered.run.push(delivery);
        }
        self.in_runs.drain(..).filter_map(|receiver| {
            let delivered = self.delivered.get_mut(&receiver)?;
            delivered.last_run_len = delivered.run.len();
            Some(std::mem::take(&mut delivered.run))
        })
    }

    /// Removes a failed delivery from the count. Returns whether the receiver is attached.
    pub(crate) fn uncount_delivery(&mut self, receiver: ReceiverId) -> bool {
        let delivered = self.delivered.get_mut(&receiver);
        delivered.map(|delivered| delivered.count = delivered.count.saturating_sub(1)).is_some()
    }

    /// Returns whether the receiver of a delivery is still attached.
    pub(crate) fn is_attached(&self, receiver: ReceiverId) -> bool {
        self.delivered.contains_key(&receiver)
    }

    /// Returns the remaining credit of a running limit.
    pub(crate) fn credit_upto(&self, receiver: ReceiverId, limit: u64) -> u32 {
        let delivered = self.delivered.get(&receiver).map_or(0, |delivered| delivered.count);
        u32::try_from(limit.saturating_sub(delivered)).unwrap_or(u32::MAX)
    }
}
