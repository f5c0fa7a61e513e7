//! The commands of clients and operators.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use peeklock_engine::{
    Attributes, CloseReason, Closed, EntityId, Error, MessageState, NewMessage, ReceiveMode, Settlement,
};
use peeklock_types::{BodyRef, LockToken, QueueStatus, SequenceNumber, SubQueue, Timestamp};

use crate::Sent;
use crate::model::{ModelQueue, Refusal};
use crate::world::{Ticket, World, name, settings, sorted};

impl World {
    pub(crate) fn create(&mut self, queue: usize) {
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
            created_at: self.now,
            next_number: 1,
            newest_group: Default::default(),
            messages: Vec::new(),
            history: Vec::new(),
            used_at: self.now,
        });
    }

    pub(crate) fn delete(&mut self, queue: usize) {
        let entity = self.entity(queue);
        let deleted = self.engine.delete_queue(self.now, &name(queue), &mut self.out);
        let Some(at) = self.model.queues.iter().position(|q| q.entity == entity) else {
            assert!(matches!(deleted, Err(Error::NoSuchQueue { .. })));
            return;
        };
        let gone = self.model.queues.remove(at);
        let standalone = gone.messages.iter().map(|m| m.message.body).filter(|body| body.is_standalone());
        assert_eq!(sorted(self.take_freed()), sorted(standalone.collect()));
        self.check_closed(entity, CloseReason::Deleted);
    }

    pub(crate) fn set_status(&mut self, queue: usize, status: QueueStatus) {
        let (entity, now) = (self.entity(queue), self.now);
        let mut settings = settings(queue);
        settings.status = status;
        let updated = self.engine.update_queue(now, &name(queue), settings, &mut self.out);
        let Some(model) = self.model.queue(entity) else {
            assert!(matches!(updated, Err(Error::NoSuchQueue { .. })));
            return;
        };
        assert_eq!(updated, Ok(entity));
        model.settings.status = status;
        if !status.can_receive() {
            self.check_closed(entity, CloseReason::Disabled);
        }
        self.touch(entity);
    }

    /// Checks that every receiver of the queue was closed with this reason, and removes them.
    fn check_closed(&mut self, entity: EntityId, reason: CloseReason) {
        let closed: Vec<_> = self.receivers.extract_if(.., |receiver| receiver.entity == entity).collect();
        let expected: Vec<_> =
            closed.iter().map(|receiver| Closed { receiver: receiver.id, reason }).collect();
        assert_eq!(self.out.closed, expected);
    }

    pub(crate) fn send(&mut self, queue: usize, messages: &[Sent]) {
        let (entity, group, now) = (self.entity(queue), self.next_group(), self.now);
        let place = |offset: u32| BodyRef::in_group(group, offset * 8).unwrap();
        let new = |(n, sent): (u32, &Sent)| NewMessage {
            body: place(n),
            size_bytes: sent.size_bytes,
            attributes: attributes(now, sent),
        };
        let batch: Vec<_> = (0..).zip(messages).map(new).collect();
        let sent = self.engine.schedule(now, entity, batch.clone(), &mut self.out);
        self.touch(entity);
        let Some(model) = self.model.queue(entity) else {
            assert_eq!(sent, Err(Error::NoSuchEntity { entity }));
            return;
        };
        match model.send(now, &batch) {
            Ok(numbers) => assert_eq!(sent, Ok(numbers.into_iter().map(SequenceNumber).collect())),
            Err(refusal) => self.check_refused(sent, refusal),
        }
    }

    pub(crate) fn cancel_scheduled(&mut self, queue: usize, picks: &[usize]) {
        let entity = self.entity(queue);
        let Some(model) = self.model.queue(entity) else { return };
        let scheduled: Vec<_> = model
            .of(SubQueue::Main)
            .filter(|m| m.message.state == MessageState::Scheduled)
            .map(|m| m.message.sequence_number)
            .collect();
        let numbers = choose(&scheduled, picks);
        let cancelled = self.engine.cancel_scheduled(self.now, entity, &numbers, &mut self.out);
        if distinct(&numbers) && numbers.iter().all(|number| scheduled.contains(number)) {
            assert_eq!(cancelled, Ok(()));
            let freed: Vec<_> = numbers.iter().flat_map(|number| model.remove(*number)).collect();
            assert_eq!(self.take_freed(), freed);
        } else {
            assert!(matches!(cancelled, Err(Error::NotScheduled { .. } | Error::Repeated { .. })));
            assert!(self.out.is_empty(), "all or nothing");
        }
        self.touch(entity);
    }

    pub(crate) fn settle(&mut self, pick: usize, settlement: Settlement) {
        if self.tickets.is_empty() {
            return;
        }
        let at = pick % self.tickets.len();
        let Ticket { entity, sub_queue, token } = self.tickets[at];
        let settled =
            self.engine.settle(self.now, entity, sub_queue, token, settlement.clone(), &mut self.out);
        self.touch(entity);
        self.check_settled(entity, sub_queue, &[token], &settlement, settled);
        // Old tokens are kept for a while: none of them may ever be accepted again.
        if self.tickets.len() > 30 {
            self.tickets.swap_remove(at);
        }
    }

    pub(crate) fn settle_all(&mut self, picks: &[usize], settlement: &Settlement) {
        let Some((Ticket { entity, sub_queue, .. }, tokens)) = self.pick_tokens(picks) else { return };
        let out = &mut self.out;
        let settled = self.engine.settle_all(self.now, entity, sub_queue, &tokens, settlement, None, out);
        self.touch(entity);
        let numbers: Vec<_> = tokens.iter().map(|token| token.sequence_number()).collect();
        if tokens.is_empty() || !distinct(&numbers) {
            assert!(settled.is_err() && self.out.is_empty());
            return;
        }
        self.check_settled(entity, sub_queue, &tokens, settlement, settled);
    }

    /// Settles in the model, all or none, and compares.
    fn check_settled(
        &mut self,
        entity: EntityId,
        sub_queue: SubQueue,
        tokens: &[LockToken],
        settlement: &Settlement,
        settled: Result<(), Error>,
    ) {
        let now = self.now;
        let Some(model) = self.model.queue(entity) else {
            assert_eq!(settled, Err(Error::NoSuchEntity { entity }));
            return;
        };
        let mut tried = model.clone();
        let settle = |token: &LockToken| tried.settle(now, sub_queue, *token, settlement.clone());
        match tokens.iter().map(settle).collect::<Result<Vec<_>, _>>() {
            Ok(freed) => {
                *model = tried;
                assert_eq!(settled, Ok(()));
                assert_eq!(self.take_freed(), freed.concat());
                if *settlement == Settlement::Complete {
                    self.completed.extend(tokens.iter().map(|token| (entity, token.sequence_number())));
                }
            }
            Err(refusal) => self.check_refused(settled, refusal),
        }
    }

    pub(crate) fn check_refused<T: std::fmt::Debug>(&self, result: Result<T, Error>, refusal: Refusal) {
        assert_eq!(refusal_of(&result.unwrap_err()), Some(refusal));
        assert!(self.out.is_empty(), "a rejected command decides nothing");
    }

    /// Returns tokens of one sub-queue, and one of their tickets.
    fn pick_tokens(&self, picks: &[usize]) -> Option<(Ticket, Vec<LockToken>)> {
        let count = self.tickets.len().max(1);
        let first = *self.tickets.get(picks.first().copied().unwrap_or(0) % count)?;
        let is_mate = |t: &&Ticket| (t.entity, t.sub_queue) == (first.entity, first.sub_queue);
        let mates: Vec<_> = self.tickets.iter().filter(is_mate).collect();
        Some((first, picks.iter().map(|pick| mates[pick % mates.len()].token).collect()))
    }

    pub(crate) fn renew(&mut self, picks: &[usize]) {
        let Some((Ticket { entity, sub_queue, .. }, tokens)) = self.pick_tokens(picks) else { return };
        let now = self.now;
        let renewed = self.engine.renew(now, entity, sub_queue, &tokens, &mut self.out);
        self.touch(entity);
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

    pub(crate) fn receive_deferred(
        &mut self,
        queue: usize,
        sub_queue: SubQueue,
        picks: &[usize],
        mode: ReceiveMode,
    ) {
        let (entity, now) = (self.entity(queue), self.now);
        self.touch(entity);
        let Some(model) = self.model.queue(entity) else { return };
        let deferred: Vec<_> = model
            .of(sub_queue)
            .filter(|m| m.message.state == MessageState::Deferred)
            .map(|m| m.message.sequence_number)
            .collect();
        let numbers = choose(&deferred, picks);
        self.nonce += 1;
        let nonce = self.nonce;
        let received =
            self.engine.receive_deferred(now, entity, sub_queue, &numbers, mode, None, nonce, &mut self.out);
        let mut free = |number: &SequenceNumber| {
            let found = model.find(sub_queue, *number);
            let free = found.filter(|m| m.message.state == MessageState::Deferred && m.nonce.is_none());
            free.is_some_and(|m| m.expires_at().is_none_or(|at| at > now))
        };
        if !distinct(&numbers) || !numbers.iter().all(&mut free) {
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
                    found.set_receipt(None);
                    assert_eq!(received.message, found.message);
                    freed.extend(model.remove(number));
                    self.completed.insert((entity, number));
                }
            }
        }
        assert_eq!(self.take_freed(), freed);
    }

    pub(crate) fn purge(&mut self, queue: usize, sub_queue: SubQueue, age: Duration, count_max: u64) {
        let (entity, now) = (self.entity(queue), self.now);
        let purged = self.engine.purge(now, entity, sub_queue, now - age, count_max, &mut self.out);
        self.touch(entity);
        let Some(model) = self.model.queue(entity) else { return };
        let gone = model.purge(sub_queue, now - age, count_max);
        assert_eq!(purged, Ok(gone.len() as u64));
        let standalone: Vec<_> =
            gone.iter().map(|message| message.body).filter(|body| body.is_standalone()).collect();
        assert_eq!(self.take_freed(), standalone);
        self.completed.extend(gone.iter().map(|message| (entity, message.sequence_number)));
        assert!(self.out.facts.len() <= 1, "there is one fact, however many messages there are");
    }
}

pub(crate) fn attributes(now: Timestamp, sent: &Sent) -> Option<Box<Attributes>> {
    let attributes = Attributes {
        time_to_live: sent.time_to_live,
        scheduled_for: sent.ahead.map(|ahead| now + ahead),
        message_id: sent.id.map(|id| Bytes::from(vec![id])),
        ..Attributes::default()
    };
    (!attributes.is_empty()).then(|| Box::new(attributes))
}

/// Returns some of these numbers, and sometimes another one.
fn choose(numbers: &[SequenceNumber], picks: &[usize]) -> Vec<SequenceNumber> {
    let choose = |&pick: &usize| match numbers.len() {
        0 => SequenceNumber(pick as u64 % 20),
        count if pick % 8 != 0 => numbers[pick % count],
        _ => SequenceNumber(pick as u64 % 20),
    };
    picks.iter().map(choose).collect()
}

fn distinct(numbers: &[SequenceNumber]) -> bool {
    numbers.iter().collect::<BTreeSet<_>>().len() == numbers.len()
}

fn refusal_of(error: &Error) -> Option<Refusal> {
    match error {
        Error::LockLost { .. } => Some(Refusal::LockLost),
        Error::DeadLetteredAlready { .. } => Some(Refusal::DeadLetteredAlready),
        Error::PatchTooLarge { .. } => Some(Refusal::PatchTooLarge),
        Error::TextTooLong { .. } => Some(Refusal::TextTooLong),
        Error::Disabled { .. } => Some(Refusal::Disabled),
        Error::QueueFull { .. } => Some(Refusal::QueueFull),
        Error::NoSuchMessage { .. } => Some(Refusal::NoSuchMessage),
        Error::ReceiptLost { .. } => Some(Refusal::ReceiptLost),
        _ => None,
    }
}
