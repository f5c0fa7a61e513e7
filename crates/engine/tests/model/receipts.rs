//! Messages that are put, taken, changed and deleted under receipts.

use std::time::Duration;

use peeklock_engine::{EntityId, Error, MessageState, NewBody, NewMessage};
use peeklock_types::{BodyRef, LockToken, SequenceNumber, SubQueue, Timestamp};

use crate::Sent;
use crate::commands::attributes;
use crate::model::{ModelQueue, Refusal};
use crate::world::{Ticket, World};

impl World {
    fn next_nonce(&mut self) -> u64 {
        self.nonce += 1;
        self.nonce
    }

    fn note_receipt(&mut self, entity: EntityId, token: LockToken) {
        let ticket = Ticket { entity, sub_queue: SubQueue::Main, token };
        self.receipts.push(ticket);
        // The receipt of a locked message is also its lock token.
        self.tickets.push(ticket);
    }

    pub(crate) fn put(&mut self, queue: usize, sent: &Sent, hidden_for: Duration) {
        let (entity, now, nonce) = (self.entity(queue), self.now, self.next_nonce());
        let body = BodyRef::in_group(self.next_group(), 0).unwrap();
        let mut new = NewMessage { body, size_bytes: sent.size_bytes, attributes: attributes(now, sent) };
        let put = self.engine.put_message(now, entity, new.clone(), hidden_for, nonce, &mut self.out);
        self.touch(entity);
        let Some(model) = self.model.queue(entity) else {
            assert_eq!(put, Err(Error::NoSuchEntity { entity }));
            return;
        };
        if let Some(attributes) = &mut new.attributes {
            (attributes.message_id, attributes.scheduled_for) = (None, None);
        }
        let number = match model.send(now, std::slice::from_ref(&new)) {
            Ok(numbers) => SequenceNumber(numbers[0]),
            Err(refusal) => return self.check_refused(put, refusal),
        };
        let settings = model.settings.clone();
        let stored = model.find(SubQueue::Main, number).unwrap();
        stored.hide(&settings, now, until(now, hidden_for), nonce);
        let put = put.unwrap();
        assert_eq!((put.token, &put.message), (LockToken::new(number, nonce), &stored.message));
        self.note_receipt(entity, put.token);
    }

    pub(crate) fn take_messages(&mut self, queue: usize, count_max: usize, hidden_for: Duration) {
        // A shard does the same at the start of each round.
        self.tick();
        self.journal();
        let (entity, now, first) = (self.entity(queue), self.now, self.nonce + 1);
        let nonce = &mut self.nonce;
        let mut nonces = || {
            *nonce += 1;
            *nonce
        };
        let taken = self.engine.take_messages(now, entity, count_max, hidden_for, &mut nonces, &mut self.out);
        self.touch(entity);
        let Some(model) = self.model.queue(entity) else {
            assert_eq!(taken, Err(Error::NoSuchEntity { entity }));
            return;
        };
        if !model.settings.status.can_receive() {
            return self.check_refused(taken, Refusal::Disabled);
        }
        let waiting = model.messages.iter_mut().filter(|m| m.is_waiting() && m.sub_queue == SubQueue::Main);
        let mut expected = Vec::new();
        for (found, nonce) in waiting.take(count_max).zip(first..) {
            found.lock(nonce, now + hidden_for);
            let mut details = found.message.details.take().unwrap_or_default();
            details.receipt = Some(nonce);
            found.message.details = Some(details);
            let token = LockToken::new(found.message.sequence_number, nonce);
            expected.push((token, found.message.clone()));
        }
        let taken: Vec<_> = taken.unwrap().into_iter().map(|taken| (taken.token, taken.message)).collect();
        assert_eq!(taken, expected);
        for (token, _) in taken {
            assert!(!self.completed.contains(&(entity, token.sequence_number())));
            self.note_receipt(entity, token);
        }
    }

    pub(crate) fn peek_waiting(&mut self, queue: usize, count_max: usize) {
        let (entity, now) = (self.entity(queue), self.now);
        let seen = self.engine.peek_waiting(now, entity, count_max);
        self.touch(entity);
        let Some(model) = self.model.queue(entity) else { return };
        let visible = model.of(SubQueue::Main).filter(|m| m.is_waiting());
        let visible = visible.filter(|m| m.expires_at().is_none_or(|at| at > now));
        let expected: Vec<_> = visible.take(count_max).map(|m| m.message.clone()).collect();
        assert_eq!(seen, Ok(expected));
    }

    pub(crate) fn change(&mut self, pick: usize, hidden_for: Duration, size_bytes: Option<u32>) {
        let Some(Ticket { entity, token, .. }) = self.pick_receipt(pick) else { return };
        let (now, nonce) = (self.now, self.next_nonce());
        let place = BodyRef::in_group(self.next_group(), 8).unwrap();
        let body = size_bytes.map(|size_bytes| NewBody { body: place, size_bytes });
        let out = &mut self.out;
        let changed = self.engine.change_message(now, entity, token, hidden_for, body, nonce, out);
        self.touch(entity);
        let Some(model) = self.model.queue(entity) else {
            assert_eq!(changed, Err(Error::NoSuchEntity { entity }));
            return;
        };
        if let Err(refusal) = model.check_receipt(now, token) {
            return self.check_refused(changed, refusal);
        }
        let (number, settings) = (token.sequence_number(), model.settings.clone());
        let mut freed = Vec::new();
        if let Some(NewBody { body, size_bytes }) = body {
            let total: u64 = model.messages.iter().map(|m| u64::from(m.message.size_bytes)).sum();
            let old = model.find(SubQueue::Main, number).unwrap();
            let more = i64::from(size_bytes) - i64::from(old.message.size_bytes);
            let after = total.checked_add_signed(more).unwrap();
            if more > 0 && settings.max_size_bytes.is_some_and(|max| after > max) {
                return self.check_refused(changed, Refusal::QueueFull);
            }
            freed.extend(Some(old.message.body).filter(|body| body.is_standalone()));
            (old.message.body, old.message.size_bytes, old.is_stray) = (body, size_bytes, true);
            model.newest_group =
                model.newest_group.max(model.find(SubQueue::Main, number).unwrap().group().unwrap());
        }
        let found = model.find(SubQueue::Main, number).unwrap();
        found.hide(&settings, now, until(now, hidden_for), nonce);
        let expected = (found.sub_queue == SubQueue::Main)
            .then(|| (LockToken::new(number, nonce), found.message.clone()));
        let changed = changed.unwrap().map(|changed| (changed.token, changed.message));
        assert_eq!(changed, expected);
        assert_eq!(self.take_freed(), freed);
        if let Some((token, _)) = changed {
            self.note_receipt(entity, token);
        }
    }

    pub(crate) fn delete_message(&mut self, pick: usize) {
        let Some(Ticket { entity, token, .. }) = self.pick_receipt(pick) else { return };
        let now = self.now;
        let deleted = self.engine.delete_message(now, entity, token, &mut self.out);
        self.touch(entity);
        let Some(model) = self.model.queue(entity) else {
            assert_eq!(deleted, Err(Error::NoSuchEntity { entity }));
            return;
        };
        if let Err(refusal) = model.check_receipt(now, token) {
            return self.check_refused(deleted, refusal);
        }
        assert_eq!(deleted, Ok(()));
        let freed = model.remove(token.sequence_number());
        assert_eq!(self.take_freed(), freed);
        self.completed.insert((entity, token.sequence_number()));
    }

    pub(crate) fn clear(&mut self, queue: usize) {
        let entity = self.entity(queue);
        let cleared = self.engine.clear(self.now, entity, &mut self.out);
        self.touch(entity);
        let Some(model) = self.model.queue(entity) else { return };
        let gone: Vec<_> =
            model.messages.extract_if(.., |m| m.sub_queue == SubQueue::Main).map(|m| m.message).collect();
        assert_eq!(cleared, Ok(gone.len() as u64));
        let standalone: Vec<_> =
            gone.iter().map(|message| message.body).filter(|body| body.is_standalone()).collect();
        assert_eq!(self.take_freed(), standalone);
        self.completed.extend(gone.iter().map(|message| (entity, message.sequence_number)));
        assert!(self.out.facts.len() <= 1, "there is one fact, however many messages there are");
    }

    fn pick_receipt(&mut self, pick: usize) -> Option<Ticket> {
        let count = self.receipts.len().max(1);
        let picked = *self.receipts.get(pick % count)?;
        // Old receipts are kept for a while: none of them may ever be accepted again.
        if count > 30 {
            self.receipts.swap_remove(pick % count);
        }
        Some(picked)
    }
}

impl ModelQueue {
    fn check_receipt(&mut self, now: Timestamp, token: LockToken) -> Result<(), Refusal> {
        let found = self.find(SubQueue::Main, token.sequence_number());
        let found =
            found.filter(|m| m.expires_at().is_none_or(|at| at > now)).ok_or(Refusal::NoSuchMessage)?;
        let is_in_row = matches!(found.message.state, MessageState::Active | MessageState::Delayed);
        (is_in_row && found.receipt() == Some(token.nonce())).then_some(()).ok_or(Refusal::ReceiptLost)
    }
}

fn until(now: Timestamp, hidden_for: Duration) -> Option<Timestamp> {
    (!hidden_for.is_zero()).then(|| now + hidden_for)
}
