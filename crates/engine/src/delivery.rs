//! Receivers, and handing out messages to them.

use peeklock_types::{SubQueue, Timestamp};

use crate::agenda::Address;
use crate::engine::{Engine, FACTS_PER_CALL_MAX};
use crate::error::Error;
use crate::message::{EntityId, ReceiveMode, ReceiverId};
use crate::outbox::{Delivery, Drained, Outbox, Received};
use crate::queue::Queue;
use crate::receivers::{Receiver, Receivers};

impl Engine {
    /// Adds a receiver, without credit and with an empty window.
    pub fn attach_receiver(
        &mut self,
        entity: EntityId,
        sub_queue: SubQueue,
        receiver: ReceiverId,
        mode: ReceiveMode,
    ) -> Result<(), Error> {
        if !self.queues.contains_key(&entity) {
            return Err(Error::NoSuchEntity { entity });
        }
        if self.receivers.by_id.contains_key(&receiver) {
            return Err(Error::ReceiverExists { receiver });
        }
        self.receivers.by_id.insert(receiver, Receiver::new(Address { entity, sub_queue }, mode));
        Ok(())
    }

    /// Takes a receiver away: it gets nothing from now on. Its locks stay until they are settled or run out.
    pub fn detach_receiver(&mut self, receiver: ReceiverId) {
        self.set_credit(receiver, 0);
        self.receivers.by_id.remove(&receiver);
        self.cancel_drain(receiver);
    }

    /// Says how many messages the receiver will still take. Unknown receivers are ignored: they may just have been closed.
    pub fn set_credit(&mut self, receiver: ReceiverId, credit: u32) {
        self.change_receiver(receiver, |receiver| receiver.credit = credit);
    }

    /// What is left of the credit.
    pub fn credit(&self, receiver: ReceiverId) -> u32 {
        self.receivers.by_id.get(&receiver).map_or(0, |receiver| receiver.credit)
    }

    /// Opens the receiver's window by so many bytes, or closes it when negative. Each message handed out takes its size from the window; a
    /// receiver is served while both its credit and its window are above zero, so the last message may go beyond.
    pub fn add_window(&mut self, receiver: ReceiverId, bytes: i64) {
        self.change_receiver(receiver, |receiver| {
            receiver.window_bytes = receiver.window_bytes.saturating_add(bytes);
        });
    }

    /// Gives the receiver what there is, up to its credit, and then takes the rest of the credit back. [`Outbox::drained`] of a later
    /// [`Engine::deliver`] tells when that is done; it takes longer only while the window is closed.
    pub fn drain(&mut self, receiver: ReceiverId) {
        let draining = &mut self.receivers.draining;
        if self.receivers.by_id.contains_key(&receiver) && !draining.contains(&receiver) {
            draining.push(receiver);
        }
    }

    /// Takes back a [`Engine::drain`] that is not done yet: the credit stands.
    pub fn cancel_drain(&mut self, receiver: ReceiverId) {
        self.receivers.draining.retain(|&other| other != receiver);
    }

    fn change_receiver(&mut self, id: ReceiverId, change: impl FnOnce(&mut Receiver)) {
        let Some(receiver) = self.receivers.by_id.get_mut(&id) else { return };
        change(receiver);
        let Some(queue) = self.queues.get_mut(&receiver.address.entity) else { return };
        receiver.queue_up(id, &mut queue.part_mut(receiver.address.sub_queue).asking);
        self.agenda.note(queue);
    }

    /// Hands out waiting messages to receivers that ask; called once per batch, after its commands. Locks that have run out are released
    /// first, so a message cannot be locked twice at one time.
    ///
    /// Returns whether it stopped at [`FACTS_PER_CALL_MAX`] deliveries with more to hand out: call it again for the next group.
    #[must_use = "more may wait to be handed out"]
    pub fn deliver(&mut self, now: Timestamp, nonces: &mut dyn FnMut() -> u64, out: &mut Outbox) -> bool {
        self.tick(now, out);
        let mut budget = FACTS_PER_CALL_MAX;
        while budget > 0
            && let Some(address) = self.agenda.next_ready()
        {
            let Some(queue) = self.queues.get_mut(&address.entity) else { continue };
            queue.part_mut(address.sub_queue).noted.ready = false;
            let server = Server { now, address, nonces: &mut *nonces };
            budget -= server.serve(queue, &mut self.receivers, budget, out);
            self.agenda.note(queue);
        }
        self.finish_drains(out);
        budget == 0
    }

    fn finish_drains(&mut self, out: &mut Outbox) {
        if self.receivers.draining.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.receivers.draining) {
            let Some(receiver) = self.receivers.by_id.get(&id) else { continue };
            let Some(queue) = self.queues.get(&receiver.address.entity) else { continue };
            let waiting_count = queue.part(receiver.address.sub_queue).messages.waiting_count();
            if receiver.credit > 0 && waiting_count > 0 {
                self.receivers.draining.push(id);
            } else {
                out.drained.push(Drained { receiver: id, unused_credit: receiver.credit });
                self.set_credit(id, 0);
            }
        }
    }
}

/// Serves the receivers of one sub-queue in turn, one message each, so that they share evenly.
struct Server<'a> {
    now: Timestamp,
    address: Address,
    nonces: &'a mut dyn FnMut() -> u64,
}

impl Server<'_> {
    /// Returns how many messages were handed out.
    fn serve(self, queue: &mut Queue, receivers: &mut Receivers, max: usize, out: &mut Outbox) -> usize {
        let Address { entity, sub_queue } = self.address;
        for served in 0..max {
            let part = queue.part_mut(sub_queue);
            let Some(&id) = part.asking.front() else { return served };
            let Some(number) = part.messages.next_waiting() else { return served };
            part.asking.pop_front();
            let Some(receiver) = receivers.by_id.get_mut(&id) else { continue };
            let nonce = (self.nonces)();
            let Received { token, message } =
                queue.hand_out(self.now, sub_queue, number, receiver.mode, nonce, out);
            receiver.charge(message.size_bytes);
            receiver.asking = false;
            receiver.queue_up(id, &mut queue.part_mut(sub_queue).asking);
            out.deliveries.push(Delivery { entity, sub_queue, receiver: id, token, message });
        }
        max
    }
}
