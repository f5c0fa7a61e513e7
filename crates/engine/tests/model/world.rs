//! The engine and the model side by side, with a journal that forgets what was not written, and clients that remember every token.

use std::collections::BTreeSet;
use std::time::Duration;

use peeklock_engine::{
    Delivery, Engine, EntityId, Error, Evacuate, Fact, MessageState, NewMessage, Outbox, ReceiveMode,
    ReceiverId, Settlement, record,
};
use peeklock_types::{
    BodyPlace, BodyRef, EntityName, GroupNumber, LockToken, QueueSettings, SequenceNumber, SubQueue,
    Timestamp,
};

use crate::Step;
use crate::model::{Model, ModelQueue, ModelReceiver, Refusal};

const SUB_QUEUES: [SubQueue; 2] = [SubQueue::Main, SubQueue::DeadLetter];

/// A lock that some client holds or once held.
#[derive(Clone, Copy, Debug)]
struct Ticket {
    entity: EntityId,
    sub_queue: SubQueue,
    token: LockToken,
}

/// A durable group, and the state after it.
struct Group {
    bytes: Vec<u8>,
    model: Model,
    snapshot: Option<Vec<u8>>,
}

pub(crate) struct World {
    engine: Engine,
    model: Model,
    receivers: Vec<ModelReceiver>,
    now: Timestamp,
    out: Outbox,
    groups: Vec<Group>,
    /// Facts that wait for a group; a crash takes them.
    pending: Vec<Fact>,
    tickets: Vec<Ticket>,
    completed: BTreeSet<(EntityId, SequenceNumber)>,
    nonce: u64,
    next_receiver: u64,
    asked: u64,
    cold_offset: u64,
}

impl World {
    pub(crate) fn new() -> World {
        let mut world = World {
            engine: Engine::default(),
            model: Model::default(),
            receivers: Vec::new(),
            now: Timestamp::from_millis(1_000_000),
            out: Outbox::default(),
            groups: Vec::new(),
            pending: Vec::new(),
            tickets: Vec::new(),
            completed: BTreeSet::new(),
            nonce: 0,
            next_receiver: 1,
            asked: 0,
            cold_offset: 0,
        };
        world.take(Step::Create { queue: 0 });
        world.take(Step::Create { queue: 1 });
        world
    }

    pub(crate) fn take(&mut self, step: Step) {
        match step {
            Step::Create { queue } => self.create(queue),
            Step::Delete { queue } => self.delete(queue),
            Step::Send { queue, sizes } => self.send(queue, &sizes),
            Step::Settle { pick, settlement } => self.settle(pick, settlement),
            Step::Renew { picks } => self.renew(&picks),
            Step::ReceiveDeferred { queue, sub_queue, picks, mode } => {
                self.receive_deferred(queue, sub_queue, &picks, mode);
            }
            Step::Attach { queue, sub_queue, mode } => self.attach(queue, sub_queue, mode),
            Step::Detach { pick } => self.detach(pick),
            Step::Credit { pick, credit } => self.change_receiver(pick, |engine, receiver| {
                receiver.credit = credit;
                engine.set_credit(receiver.id, credit);
            }),
            Step::Window { pick, bytes } => self.change_receiver(pick, |engine, receiver| {
                receiver.window += bytes;
                engine.add_window(receiver.id, bytes);
            }),
            Step::Drain { pick } => self.change_receiver(pick, |engine, receiver| {
                receiver.draining = true;
                engine.drain(receiver.id);
            }),
            Step::Deliver => self.deliver(),
            Step::Tick => self.tick(),
            Step::Wait { span } => self.now = self.now + span,
            Step::SetClockBack { span } => self.now = self.now - span,
            Step::EvacuateGroups { back, max, lose_every } => self.evacuate_groups(back, max, lose_every),
            Step::EvacuateCold { segment, max } => self.evacuate_cold(segment, max),
            Step::Snapshot => self.snapshot(),
            Step::Crash { lost_group_count, from_snapshot } => self.crash(lost_group_count, from_snapshot),
        }
        self.journal();
    }

    fn next_group(&self) -> GroupNumber {
        GroupNumber(self.groups.len() as u64 + 1)
    }

    /// Writes what was decided.
    fn journal(&mut self) {
        assert!(
            self.out.deliveries.is_empty() && self.out.freed.is_empty(),
            "each step looks at its own effects"
        );
        self.pending.append(&mut self.out.facts);
        self.out.clear();
        if !self.pending.is_empty() {
            self.commit();
        }
    }

    fn commit(&mut self) {
        let (group, mut bytes) = (self.next_group(), Vec::new());
        self.pending.drain(..).for_each(|fact| record::encode(&fact, group, &mut bytes));
        self.groups.push(Group { bytes, model: self.model.clone(), snapshot: None });
    }

    fn entity(&self, queue: usize) -> EntityId {
        self.engine.find(&name(queue)).unwrap_or(EntityId(u32::MAX))
    }

    fn take_freed(&mut self) -> Vec<BodyRef> {
        self.out.freed.drain(..).map(|freed| freed.place).collect()
    }

    fn create(&mut self, queue: usize) {
        let settings = settings(queue);
        let created = self.engine.create_queue(self.now, name(queue), settings.clone(), &mut self.out);
        if self.model.queues.iter().any(|q| q.name == name(queue)) {
            assert!(matches!(created, Err(Error::AlreadyExists { .. })));
            return;
        }
        let entity = EntityId(self.model.next_entity);
        assert_eq!(created, Ok(entity));
        self.model.next_entity += 1;
        self.model.queues.push(ModelQueue {
            entity,
            name: name(queue),
            settings,
            next_number: 1,
            messages: Vec::new(),
        });
    }

    fn delete(&mut self, queue: usize) {
        let entity = self.entity(queue);
        let deleted = self.engine.delete_queue(&name(queue), &mut self.out);
        let Some(at) = self.model.queues.iter().position(|q| q.entity == entity) else {
            assert!(matches!(deleted, Err(Error::NoSuchQueue { .. })));
            return;
        };
        let gone = self.model.queues.remove(at);
        let cold = gone.messages.iter().map(|m| m.message.body).filter(|body| body.is_cold());
        assert_eq!(sorted(self.take_freed()), sorted(cold.collect()));
        let closed: Vec<_> = self.receivers.extract_if(.., |receiver| receiver.entity == entity).collect();
        assert!(self.out.closed.iter().copied().eq(closed.iter().map(|receiver| receiver.id)));
    }

    fn send(&mut self, queue: usize, sizes: &[u32]) {
        let (entity, group) = (self.entity(queue), self.next_group());
        let place = |offset: u32| BodyRef::in_log(group, offset * 8).unwrap();
        let batch: Vec<_> =
            (0..).zip(sizes).map(|(n, &size_bytes)| NewMessage { body: place(n), size_bytes }).collect();
        let sent = self.engine.send(self.now, entity, &batch, &mut self.out);
        let Some(model) = self.model.queue(entity) else {
            assert_eq!(sent, Err(Error::NoSuchEntity { entity }));
            return;
        };
        assert_eq!(sent, Ok(SequenceNumber(model.next_number)));
        model.send(self.now, &batch);
    }

    fn settle(&mut self, pick: usize, settlement: Settlement) {
        if self.tickets.is_empty() {
            return;
        }
        let at = pick % self.tickets.len();
        let Ticket { entity, sub_queue, token } = self.tickets[at];
        let settled =
            self.engine.settle(self.now, entity, sub_queue, token, settlement.clone(), &mut self.out);
        let Some(model) = self.model.queue(entity) else {
            assert_eq!(settled, Err(Error::NoSuchEntity { entity }));
            return;
        };
        let is_complete = settlement == Settlement::Complete;
        match model.settle(self.now, sub_queue, token, settlement) {
            Ok(freed) => {
                assert_eq!(settled, Ok(()));
                assert_eq!(self.take_freed(), freed);
                if is_complete {
                    self.completed.insert((entity, token.sequence_number()));
                }
            }
            Err(refusal) => {
                assert_eq!(settled.map_err(|error| refusal_of(&error)), Err(Some(refusal)));
                assert!(self.out.is_empty(), "a refused command decides nothing");
            }
        }
        // Old tokens stay in play for a while: none of them may ever work again.
        if self.tickets.len() > 30 {
            self.tickets.swap_remove(at);
        }
    }

    fn renew(&mut self, picks: &[usize]) {
        let Some(&first) = self.tickets.get(picks.first().copied().unwrap_or(0) % self.tickets.len().max(1))
        else {
            return;
        };
        let Ticket { entity, sub_queue, .. } = first;
        let mates: Vec<_> =
            self.tickets.iter().filter(|t| (t.entity, t.sub_queue) == (entity, sub_queue)).copied().collect();
        let tokens: Vec<_> = picks.iter().map(|pick| mates[pick % mates.len()].token).collect();
        let renewed = self.engine.renew(self.now, entity, sub_queue, &tokens, &mut self.out);
        let now = self.now;
        let Some(model) = self.model.queue(entity) else {
            assert_eq!(renewed, Err(Error::NoSuchEntity { entity }));
            return;
        };
        if tokens.is_empty() {
            assert_eq!(renewed, Err(Error::Nothing));
        } else if tokens.iter().all(|&token| model.held(now, sub_queue, token).is_some()) {
            let until = now + model.settings.lock_duration;
            assert_eq!(renewed, Ok(vec![until; tokens.len()]));
            for &token in &tokens {
                model.held(now, sub_queue, token).unwrap().message.locked_until = Some(until);
            }
        } else {
            assert!(matches!(renewed, Err(Error::LockLost { .. })));
            assert!(self.out.is_empty(), "all or nothing");
        }
    }

    fn receive_deferred(&mut self, queue: usize, sub_queue: SubQueue, picks: &[usize], mode: ReceiveMode) {
        let (entity, now) = (self.entity(queue), self.now);
        let Some(model) = self.model.queue(entity) else { return };
        let deferred: Vec<_> = model
            .of(sub_queue)
            .filter(|m| m.message.state == MessageState::Deferred)
            .map(|m| m.message.sequence_number)
            .collect();
        // Mostly deferred ones, sometimes one that was never there or is not deferred.
        let choose = |&pick: &usize| match deferred.len() {
            0 => SequenceNumber(pick as u64 % 20),
            count if pick % 8 != 0 => deferred[pick % count],
            _ => SequenceNumber(pick as u64 % 20),
        };
        let numbers: Vec<_> = picks.iter().map(choose).collect();
        self.nonce += 1;
        let nonce = self.nonce;
        let received =
            self.engine.receive_deferred(now, entity, sub_queue, &numbers, mode, nonce, &mut self.out);
        let distinct = numbers.iter().collect::<BTreeSet<_>>().len() == numbers.len();
        let mut free = |number: &SequenceNumber| {
            let found = model.find(sub_queue, *number);
            found.is_some_and(|m| m.message.state == MessageState::Deferred && m.nonce.is_none())
        };
        if !distinct || !numbers.iter().all(&mut free) {
            assert!(matches!(received, Err(Error::NotFound { .. } | Error::Repeated { .. })));
            assert!(self.out.is_empty(), "all or nothing");
            return;
        }
        let received = received.unwrap();
        assert_eq!(received.len(), numbers.len());
        let until = now + model.settings.lock_duration;
        let mut freed = Vec::new();
        for (received, number) in received.into_iter().zip(numbers) {
            assert_eq!(received.token, LockToken::new(number, nonce));
            let found = model.find(sub_queue, number).unwrap();
            match mode {
                ReceiveMode::PeekLock => {
                    found.lock(nonce, until);
                    assert_eq!(received.message, found.message);
                    self.tickets.push(Ticket { entity, sub_queue, token: received.token });
                }
                ReceiveMode::ReceiveAndDelete => {
                    assert_eq!(received.message, found.message);
                    freed.extend(model.remove(number));
                    self.completed.insert((entity, number));
                }
            }
        }
        assert_eq!(self.take_freed(), freed);
    }

    fn attach(&mut self, queue: usize, sub_queue: SubQueue, mode: ReceiveMode) {
        let (entity, id) = (self.entity(queue), ReceiverId(self.next_receiver));
        let attached = self.engine.attach_receiver(entity, sub_queue, id, mode);
        if self.model.queue(entity).is_none() {
            assert_eq!(attached, Err(Error::NoSuchEntity { entity }));
            return;
        }
        assert_eq!(attached, Ok(()));
        assert!(self.engine.attach_receiver(entity, sub_queue, id, mode).is_err());
        self.next_receiver += 1;
        self.engine.add_window(id, 300);
        let (credit, window, draining, asked) = (0, 300, false, None);
        self.receivers.push(ModelReceiver { id, entity, sub_queue, mode, credit, window, draining, asked });
    }

    fn detach(&mut self, pick: usize) {
        if !self.receivers.is_empty() {
            let receiver = self.receivers.remove(pick % self.receivers.len());
            self.engine.detach_receiver(receiver.id);
        }
    }

    fn change_receiver(&mut self, pick: usize, change: impl FnOnce(&mut Engine, &mut ModelReceiver)) {
        let count = self.receivers.len();
        if count > 0 {
            let receiver = &mut self.receivers[pick % count];
            change(&mut self.engine, receiver);
            ask(receiver, &mut self.asked);
        }
    }

    fn tick(&mut self) {
        self.engine.tick(self.now, &mut self.out);
        self.expire();
    }

    fn expire(&mut self) {
        self.model.queues.iter_mut().for_each(|queue| queue.expire(self.now));
    }

    /// The engine says who gets what; the model says whether each of these was the one right choice at its turn.
    fn deliver(&mut self) {
        let nonce = &mut self.nonce;
        let mut nonces = || {
            *nonce += 1;
            *nonce
        };
        assert!(!self.engine.deliver(self.now, &mut nonces, &mut self.out), "few messages need one call");
        self.expire();
        let mut freed = Vec::new();
        for delivery in std::mem::take(&mut self.out.deliveries) {
            freed.extend(self.check_delivery(&delivery));
        }
        assert_eq!(self.take_freed(), freed);
        for receiver in &mut self.receivers {
            let queue = self.model.queues.iter().find(|queue| queue.entity == receiver.entity).unwrap();
            let waits = queue.of(receiver.sub_queue).any(|m| m.is_waiting());
            assert!(receiver.asked.is_none() || !waits, "nobody asks while something waits");
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
        assert!(!self.completed.contains(&(entity, number)), "a completed message came back");
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
        assert_eq!(next.message, *message);
        self.completed.insert((entity, number));
        queue.remove(number)
    }

    fn evacuate_groups(&mut self, back: u64, max: usize, lose_every: usize) {
        let upto = GroupNumber(self.next_group().0.saturating_sub(back));
        let found = self.engine.bodies_in(Evacuate::Groups { upto }, max);
        let is_old = |m: &&crate::model::ModelMessage| m.group().is_some_and(|group| group <= upto);
        let mut by_name: Vec<_> = self.model.queues.iter().collect();
        by_name.sort_by(|a, b| a.name.cmp(&b.name));
        let places = by_name.into_iter().flat_map(|queue| {
            let parts = SUB_QUEUES.into_iter().flat_map(|sub_queue| queue.of(sub_queue));
            parts.filter(is_old).map(|m| (queue.entity, m.message.sequence_number, m.message.body))
        });
        let expected: Vec<_> = places.take(max).collect();
        let told: Vec<_> = found.iter().map(|body| (body.entity, body.sequence_number, body.place)).collect();
        assert_eq!(told, expected);
        for (n, (entity, number, from)) in expected.into_iter().enumerate() {
            if n % lose_every != lose_every - 1 {
                self.move_body(entity, number, from);
            }
        }
        assert_eq!(self.take_freed(), []);
    }

    fn evacuate_cold(&mut self, segment: u32, max: usize) {
        let is_there =
            |body: BodyRef| matches!(body.place(), BodyPlace::Cold { segment: s, .. } if s == segment);
        let found = self.engine.bodies_in(Evacuate::Cold { segment }, max);
        let expected: BTreeSet<_> = self
            .model
            .messages()
            .filter(|(_, m)| is_there(m.message.body))
            .map(|(entity, m)| (entity, m.message.sequence_number, m.message.body))
            .collect();
        assert!(found.len() <= max && found.is_empty() == expected.is_empty());
        let mut freed = Vec::new();
        for body in found {
            let told = (body.entity, body.sequence_number, body.place);
            assert!(expected.contains(&told));
            self.move_body(body.entity, body.sequence_number, body.place);
            freed.push(body.place);
        }
        assert_eq!(self.take_freed(), freed);
    }

    fn move_body(&mut self, entity: EntityId, number: SequenceNumber, from: BodyRef) {
        self.cold_offset += 8;
        let segment = u32::try_from(self.cold_offset / 8 % 3).unwrap();
        let to = BodyRef::in_cold(segment, self.cold_offset).unwrap();
        let wrong = BodyRef::in_cold(7, 0).unwrap();
        assert!(!self.engine.move_body(entity, number, wrong, to, &mut self.out), "the body is not there");
        assert!(
            !self.engine.move_body(entity, SequenceNumber(999), from, to, &mut self.out),
            "no such message"
        );
        assert!(self.engine.move_body(entity, number, from, to, &mut self.out));
        let queue = self.model.queue(entity).unwrap();
        let moved = queue.messages.iter_mut().find(|m| m.message.sequence_number == number).unwrap();
        moved.message.body = to;
    }

    fn snapshot(&mut self) {
        // A snapshot is the state at the end of a group.
        self.commit();
        let snapshot = self.engine.snapshot();
        self.groups.last_mut().unwrap().snapshot = Some(snapshot);
    }

    /// Takes away what was not written, and perhaps the last groups too, and opens what is left.
    fn crash(&mut self, lost_group_count: usize, from_snapshot: bool) {
        self.pending.clear();
        // The first two groups create the queues.
        let kept = self.groups.len().saturating_sub(lost_group_count).max(2);
        self.groups.truncate(kept);
        self.model = self.groups.last().unwrap().model.clone();
        self.receivers.clear();
        let mut live = BTreeSet::new();
        live.extend(self.model.messages().map(|(entity, m)| (entity, m.message.sequence_number)));
        // A completion in a lost group was never confirmed to anybody.
        self.completed.retain(|gone| !live.contains(gone));
        let (next, model) = (self.model.next_entity, &self.model);
        self.completed.retain(|(entity, number)| {
            let queue = model.queues.iter().find(|queue| queue.entity == *entity);
            entity.0 < next && queue.is_none_or(|queue| number.0 < queue.next_number)
        });
        let cold = self.model.messages().map(|(_, m)| m.message.body).filter(|body| body.is_cold());
        let cold: Vec<_> = cold.collect();
        self.engine = self.replay(from_snapshot);
        assert_eq!(self.engine.snapshot(), self.replay(!from_snapshot).snapshot());
        let told = self.engine.cold_bodies().map(|body| body.place).collect();
        assert_eq!(sorted(told), sorted(cold));
    }

    fn replay(&self, from_snapshot: bool) -> Engine {
        let last = self.groups.iter().rposition(|group| group.snapshot.is_some()).filter(|_| from_snapshot);
        let mut engine = match last {
            Some(at) => Engine::restore(self.groups[at].snapshot.as_ref().unwrap()).unwrap(),
            None => Engine::default(),
        };
        for (group, number) in self.groups.iter().zip(1..).skip(last.map_or(0, |at| at + 1)) {
            let mut bytes = group.bytes.as_slice();
            while !bytes.is_empty() {
                engine.apply(&record::decode(&mut bytes, GroupNumber(number)).unwrap()).unwrap();
            }
        }
        engine
    }

    /// Everything that can be seen of the engine equals a recount of the model.
    pub(crate) fn check(&mut self) {
        assert_eq!(self.engine.next_deadline(), self.model.next_deadline());
        assert_eq!(self.engine.oldest_log_body(), self.model.oldest_log_body());
        assert_eq!(self.engine.queues().count(), self.model.queues.len());
        for queue in &self.model.queues {
            let view = self.engine.queue(queue.entity).unwrap();
            assert_eq!((view.name, view.settings), (&queue.name, &queue.settings));
            assert_eq!(view.counts, queue.counts());
            for sub_queue in SUB_QUEUES {
                let seen = self.engine.peek(queue.entity, sub_queue, SequenceNumber(0), 1000).unwrap();
                assert!(seen.iter().eq(queue.of(sub_queue).map(|m| &m.message)));
            }
        }
        for receiver in &self.receivers {
            assert_eq!(self.engine.credit(receiver.id), receiver.credit);
        }
    }
}

/// Keeps the place of a receiver that already asks; whoever begins to ask joins at the end.
fn ask(receiver: &mut ModelReceiver, clock: &mut u64) {
    let can_take = receiver.credit > 0 && receiver.window > 0;
    *clock += 1;
    receiver.asked = can_take.then(|| receiver.asked.unwrap_or(*clock));
}

fn refusal_of(error: &Error) -> Option<Refusal> {
    match error {
        Error::LockLost { .. } => Some(Refusal::LockLost),
        Error::PatchTooLarge { .. } => Some(Refusal::PatchTooLarge),
        Error::TextTooLong { .. } => Some(Refusal::TextTooLong),
        _ => None,
    }
}

fn name(queue: usize) -> EntityName {
    EntityName::parse(["orders", "bills"][queue]).unwrap()
}

fn settings(queue: usize) -> QueueSettings {
    let lock_duration = Duration::from_secs([2, 5][queue]);
    QueueSettings { lock_duration, max_delivery_count: [3, 1][queue] }
}

fn sorted(mut bodies: Vec<BodyRef>) -> Vec<BodyRef> {
    bodies.sort_unstable();
    bodies
}
