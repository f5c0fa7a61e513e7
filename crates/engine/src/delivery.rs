//! Receivers and the delivery of messages to them.

use peeklock_types::{CommitGroupNumber, SequenceNumber, SubQueue, Timestamp, limits};

use crate::agenda::Address;
use crate::engine::{Engine, FACTS_PER_CALL_MAX};
use crate::message::{ReceiveMode, ReceiverId};
use crate::output::{Delivery, Drained, Output, Received};
use crate::queue::{Holder, Queue, SessionSlot};
use crate::receivers::{Place, Receiver, Receivers};
use crate::watch::{note_room, urgency};

impl Engine {
    /// Sets the receiver's credit. Unknown receivers are ignored: they may just have been closed.
    pub fn set_credit(&mut self, receiver: ReceiverId, credit: u32) {
        self.change_receiver(receiver, |receiver| receiver.credit = credit);
    }

    /// Returns the remaining credit.
    pub fn credit(&self, receiver: ReceiverId) -> u32 {
        self.receivers.by_id.get(&receiver).map_or(0, |receiver| receiver.credit)
    }

    /// Enlarges the receiver's window by `bytes`, or reduces it if negative. Each delivery uses its size of the window.
    /// A receiver is served while both its credit and its window are above zero, so the last message may exceed the
    /// window.
    pub fn add_window(&mut self, receiver: ReceiverId, bytes: i64) {
        self.change_receiver(receiver, |receiver| {
            receiver.window_bytes = receiver.window_bytes.saturating_add(bytes);
        });
    }

    /// Delivers the available messages to the receiver, up to its credit, and then revokes the rest of the credit. A
    /// later [`Engine::deliver`] reports the end in [`Output::drained`]; it is delayed only while the window is closed.
    pub fn drain(&mut self, receiver: ReceiverId) {
        let draining = &mut self.receivers.draining;
        if self.receivers.by_id.contains_key(&receiver) && !draining.contains(&receiver) {
            draining.push(receiver);
        }
    }

    /// Cancels a [`Engine::drain`] that has not finished: the receiver keeps its credit.
    pub fn cancel_drain(&mut self, receiver: ReceiverId) {
        self.receivers.draining.retain(|&other| other != receiver);
    }

    /// Notes that a delivery with [`Delivery::removes_later`] and a body that is loaded whole has ended: its message was
    /// removed or returned.
    pub fn end_removal(&mut self, receiver: ReceiverId) {
        if let Some(receiver) = self.receivers.by_id.get_mut(&receiver) {
            receiver.removing_count = receiver.removing_count.saturating_sub(1);
        }
    }

    pub(crate) fn set_not_after(&mut self, receiver: ReceiverId, not_after: Option<Timestamp>) {
        self.change_receiver(receiver, |receiver| receiver.not_after = not_after);
    }

    fn change_receiver(&mut self, id: ReceiverId, change: impl FnOnce(&mut Receiver)) {
        let Some(receiver) = self.receivers.by_id.get_mut(&id) else { return };
        change(receiver);
        let Some(queue) = self.queues.get_mut(&receiver.address.entity) else { return };
        queue_up(queue, id, receiver);
        self.agenda.note(queue);
    }

    /// Delivers waiting messages to receivers with credit; called once per batch, after its commands. Expired locks are
    /// released first, so a message cannot be locked twice at one time.
    ///
    /// Returns whether it stopped at [`FACTS_PER_CALL_MAX`] deliveries with messages left: the caller calls it again
    /// for the next commit group.
    #[must_use = "more may wait to be handed out"]
    pub fn deliver(&mut self, now: Timestamp, nonces: &mut dyn FnMut() -> u64, out: &mut Output) -> bool {
        self.tick(now, out);
        let (mut budget, near_from) = (FACTS_PER_CALL_MAX, self.near_from);
        while budget > 0
            && let Some(address) = self.agenda.next_ready()
        {
            let Some(queue) = self.queues.get_mut(&address.entity) else { continue };
            queue.part_mut(address.sub_queue).noted.ready = false;
            let mut server = Server { now, address, nonces: &mut *nonces, near_from, budget };
            server.serve(queue, &mut self.receivers, out);
            settle_up(now, queue, &mut self.receivers);
            if address.sub_queue == SubQueue::Main && queue.settings.requires_session {
                server.serve_sessions(queue, &mut self.receivers, out);
            }
            budget = server.budget;
            self.agenda.note(queue);
            if queue.has_to_forward(address.sub_queue) {
                budget -= self.forward(address.entity, address.sub_queue, budget, out);
            }
        }
        self.finish_drains(now, out);
        self.tell_heads(now, out);
        budget == 0
    }

    fn finish_drains(&mut self, now: Timestamp, out: &mut Output) {
        if self.receivers.draining.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.receivers.draining) {
            let Some(receiver) = self.receivers.by_id.get(&id) else { continue };
            let Some(queue) = self.queues.get(&receiver.address.entity) else { continue };
            let is_removing = receiver.removing_count > 0;
            if is_removing || (receiver.credit > 0 && waits_for(now, queue, receiver)) {
                self.receivers.draining.push(id);
            } else {
                out.drained.push(Drained { receiver: id, unused_credit: receiver.credit });
                self.set_credit(id, 0);
            }
        }
    }
}

/// Lets receivers that hold fewer messages than before take messages again.
pub(crate) fn settle_up(now: Timestamp, queue: &mut Queue, receivers: &mut Receivers) {
    let Some(order) = queue.main.messages.order_mut().filter(|order| !order.freed.is_empty()) else { return };
    for (id, is_returned) in std::mem::take(&mut order.freed) {
        if let Some(receiver) = receivers.by_id.get_mut(&id) {
            if receiver.give_back(now, is_returned) {
                note_room(queue, id, receiver.address, &mut receivers.made_room);
            }
            queue_up(queue, id, receiver);
        }
    }
}

/// Adds the receiver to the list of receivers that request messages, or removes it.
pub(crate) fn queue_up(queue: &mut Queue, id: ReceiverId, receiver: &mut Receiver) {
    match receiver.place {
        Place::Queue => receiver.queue_up(id, &mut queue.part_mut(receiver.address.sub_queue).asking),
        Place::Session(slot) => {
            let messages = &mut queue.main.messages;
            let is_asking = receiver.can_take();
            if let Some(holder) = messages.holder(slot).filter(|holder| holder.receiver == Some(id)) {
                messages.set_holder(slot, Some(Holder { is_asking, ..holder }));
            }
        }
        Place::Nowhere | Place::Former(_) => {}
    }
}

/// Returns whether there is a message that the receiver could get.
fn waits_for(now: Timestamp, queue: &Queue, receiver: &Receiver) -> bool {
    match receiver.place {
        Place::Queue => receiver.has_room() && queue.part(receiver.address.sub_queue).messages.has_ready(),
        Place::Session(slot) => {
            let head = queue.main.messages.sessions().get(slot).and_then(|session| session.head());
            head.is_some_and(|number| !queue.main.messages.is_held_up(now, SequenceNumber(number)))
        }
        Place::Nowhere | Place::Former(_) => false,
    }
}

/// Serves the receivers of one sub-queue in turn, one message each, so that they share evenly.
struct Server<'a> {
    now: Timestamp,
    address: Address,
    nonces: &'a mut dyn FnMut() -> u64,
    near_from: Option<CommitGroupNumber>,
    /// The number of messages that may still be delivered.
    budget: usize,
}

impl Server<'_> {
    fn serve(&mut self, queue: &mut Queue, receivers: &mut Receivers, out: &mut Output) {
        let sub_queue = self.address.sub_queue;
        while self.budget > 0 {
            let part = queue.part_mut(sub_queue);
            let Some(&id) = part.asking.front() else { return };
            let Some(number) = part.messages.next_waiting(self.now) else { return };
            if self.expire(queue, number, out) {
                continue;
            }
            queue.part_mut(sub_queue).asking.pop_front();
            let Some(receiver) = receivers.by_id.get_mut(&id) else { continue };
            receiver.asking = false;
            if !receiver.has_room_at(self.now) {
                // The limit of the receiver has shrunk since it joined the list. It joins again when it holds fewer
                // messages.
                continue;
            }
            if receiver.not_after.is_some_and(|last| urgency(queue, sub_queue, number) > last) {
                // The run of the receiver ends here: the message is less urgent than the limit of the run.
                receiver.credit = 0;
                continue;
            }
            self.hand_out(queue, id, receiver, number, out);
        }
    }

    /// Assigns sessions to waiting receivers, and delivers the messages of sessions to their holders.
    fn serve_sessions(&mut self, queue: &mut Queue, receivers: &mut Receivers, out: &mut Output) {
        crate::sessions::match_waiters(self.now, queue, receivers, out);
        while self.budget > 0 {
            let Some(slot) = queue.main.messages.sessions_mut().next_ready() else { return };
            self.serve_session(queue, slot, receivers, out);
        }
    }

    fn serve_session(
        &mut self,
        queue: &mut Queue,
        slot: SessionSlot,
        receivers: &mut Receivers,
        out: &mut Output,
    ) {
        while self.budget > 0 {
            let Some(session) = queue.main.messages.sessions().get(slot) else { return };
            let (Some(holder), Some(number)) = (session.holder(), session.head()) else { return };
            let Some(id) = holder.receiver else { return };
            let Some(receiver) = receivers.by_id.get_mut(&id) else { return };
            if !receiver.can_take() {
                return;
            }
            let number = SequenceNumber(number);
            if !self.expire(queue, number, out) {
                if queue.main.messages.hold_up(self.now, slot, number) {
                    return;
                }
                if let Some(order) = queue.main.messages.order_mut() {
                    order.end_turn(slot);
                }
                self.hand_out(queue, id, receiver, number, out);
            }
        }
    }

    /// Removes a message that has expired. An expired message is never delivered, even if the expiry is found late.
    #[inline]
    fn expire(&mut self, queue: &mut Queue, number: SequenceNumber, out: &mut Output) -> bool {
        let sub_queue = self.address.sub_queue;
        let has_expired = queue.part(sub_queue).messages.has_expired(self.now, number);
        if has_expired {
            let fact = queue.expire(sub_queue, number);
            queue.record_end(self.now, fact, out);
            self.budget -= 1;
        }
        has_expired
    }

    #[inline]
    fn hand_out(
        &mut self,
        queue: &mut Queue,
        id: ReceiverId,
        receiver: &mut Receiver,
        number: SequenceNumber,
        out: &mut Output,
    ) {
        let Address { entity, sub_queue } = self.address;
        let nonce = (self.nonces)();
        let has_order = sub_queue == SubQueue::Main && queue.settings.order.is_some();
        let lane =
            if has_order { queue.main.messages.get(number).and_then(|entry| entry.lane) } else { None };
        let mode = receiver.mode;
        // A message whose body is in memory must not arrive before an earlier one whose body is not.
        let removes_later = mode == ReceiveMode::ReceiveAndDelete
            && (receiver.removing_count > 0 || queue.removes_later(sub_queue, number, self.near_from));
        let Received { token, message, removes_later } =
            queue.hand_out(self.now, sub_queue, number, mode, removes_later, nonce, out);
        if removes_later && message.size_bytes <= limits::WHOLE_BODY_BYTES_MAX {
            receiver.removing_count += 1;
        }
        receiver.charge(message.size_bytes);
        if has_order {
            receiver.hold(self.now);
            queue.note_delivery(self.now, number, lane, receiver.is_bounded().then_some(id));
        }
        queue_up(queue, id, receiver);
        let in_session = matches!(receiver.place, Place::Session(_));
        let receiver = id;
        out.deliveries.push(Delivery {
            entity,
            sub_queue,
            receiver,
            token,
            message,
            removes_later,
            in_session,
        });
        self.budget -= 1;
    }
}
