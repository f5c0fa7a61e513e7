//! The receivers and their deliveries.

use peeklock_engine::{Attached, Delivery, Engine, Error, ReceiveMode, ReceiverId, SessionWish};
use peeklock_types::{BodyRef, SubQueue};

use crate::model::ModelReceiver;
use crate::world::{Ticket, World, sorted};

impl World {
    pub(crate) fn attach(&mut self, queue: usize, sub_queue: SubQueue, mode: ReceiveMode) {
        let (entity, id, now) = (self.entity(queue), ReceiverId(self.next_receiver), self.now);
        let mut attach = || self.engine.attach_receiver(now, entity, sub_queue, id, mode, SessionWish::None);
        let attached = attach();
        let Some(model) = self.model.queue(entity) else {
            assert_eq!(attached, Err(Error::NoSuchEntity { entity }));
            return;
        };
        if model.settings.status.can_receive() {
            assert_eq!(attached, Ok(Attached::Queue));
            assert!(attach().is_err());
            self.next_receiver += 1;
            self.engine.add_window(id, 300);
            let (credit, window, draining, asked) = (0, 300, false, None);
            let receiver = ModelReceiver { id, entity, sub_queue, mode, credit, window, draining, asked };
            self.receivers.push(receiver);
        } else {
            assert!(matches!(attached, Err(Error::Disabled { .. })));
        }
        self.touch(entity);
    }

    pub(crate) fn detach(&mut self, pick: usize) {
        if !self.receivers.is_empty() {
            let receiver = self.receivers.remove(pick % self.receivers.len());
            self.engine.detach_receiver(self.now, receiver.id, &mut self.out);
            assert!(self.out.is_empty(), "the locks of the receiver stay");
            self.touch(receiver.entity);
        }
    }

    pub(crate) fn change_receiver(
        &mut self,
        pick: usize,
        change: impl FnOnce(&mut Engine, &mut ModelReceiver),
    ) {
        let count = self.receivers.len();
        if count > 0 {
            let receiver = &mut self.receivers[pick % count];
            change(&mut self.engine, receiver);
            ask(receiver, &mut self.asked);
        }
    }

    /// Delivers with the engine, and checks each delivery against the only correct choice in the model.
    pub(crate) fn deliver(&mut self) {
        let nonce = &mut self.nonce;
        let mut nonces = || {
            *nonce += 1;
            *nonce
        };
        assert!(!self.engine.deliver(self.now, &mut nonces, &mut self.out), "few messages need one call");
        let mut freed = self.model_tick();
        for delivery in std::mem::take(&mut self.out.deliveries) {
            freed.extend(self.check_delivery(&delivery));
        }
        assert_eq!(sorted(self.take_freed()), sorted(freed));
        for receiver in &mut self.receivers {
            let queue = self.model.queues.iter().find(|queue| queue.entity == receiver.entity).unwrap();
            let waits = queue.of(receiver.sub_queue).any(|m| m.is_waiting());
            assert!(
                receiver.asked.is_none() || !waits,
                "no receiver with credit is left while a message waits"
            );
            let drained = self.out.drained.iter().find(|drained| drained.receiver == receiver.id);
            if receiver.draining && (receiver.credit == 0 || !waits) {
                assert_eq!(drained.map(|drained| drained.unused_credit), Some(receiver.credit));
                receiver.credit = 0;
                receiver.draining = false;
                ask(receiver, &mut self.asked);
            } else {
                assert_eq!(drained, None);
            }
        }
    }

    fn check_delivery(&mut self, delivery: &Delivery) -> Vec<BodyRef> {
        let &Delivery { entity, sub_queue, token, ref message, .. } = delivery;
        let number = message.sequence_number;
        assert_eq!(token.sequence_number(), number);
        assert!(!self.completed.contains(&(entity, number)), "a completed message was delivered again");
        let here =
            |r: &&mut ModelReceiver| r.entity == entity && r.sub_queue == sub_queue && r.asked.is_some();
        let receiver = self.receivers.iter_mut().filter(here).min_by_key(|r| r.asked).unwrap();
        assert_eq!(receiver.id, delivery.receiver, "receivers take turns");
        receiver.credit -= 1;
        receiver.window -= i64::from(message.size_bytes);
        receiver.asked = None;
        ask(receiver, &mut self.asked);

        let mode = receiver.mode;
        let queue = self.model.queue(entity).unwrap();
        let until = self.now + queue.settings.lock_duration;
        let is_next = |m: &&mut crate::model::ModelMessage| m.sub_queue == sub_queue && m.is_waiting();
        let next = queue.messages.iter_mut().find(is_next).unwrap();
        assert_eq!(next.message.sequence_number, number, "first in, first out");
        if mode == ReceiveMode::PeekLock {
            next.lock(token.nonce(), until);
            assert_eq!(next.message, *message);
            self.tickets.push(Ticket { entity, sub_queue, token });
            return Vec::new();
        }
        next.set_receipt(None);
        assert_eq!(next.message, *message);
        self.completed.insert((entity, number));
        queue.remove(number)
    }
}

/// Keeps the place of a receiver that already requests messages; a new one joins at the end.
fn ask(receiver: &mut ModelReceiver, clock: &mut u64) {
    let can_take = receiver.credit > 0 && receiver.window > 0;
    *clock += 1;
    receiver.asked = can_take.then(|| receiver.asked.unwrap_or(*clock));
}
