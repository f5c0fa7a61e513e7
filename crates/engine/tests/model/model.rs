//! The rules, as plainly as possible. Slow on purpose: everything is a search through a `Vec`.

use bytes::Bytes;
use peeklock_engine::{
    Counts, EntityId, Message, MessageState, NewMessage, PATCH_SIZE_BYTES_MAX, Patch, PatchPart, ReceiveMode,
    ReceiverId, Settlement,
};
use peeklock_types::{
    BodyPlace, BodyRef, EntityName, GroupNumber, LockToken, QueueSettings, SequenceNumber, SubQueue,
    Timestamp,
};

/// What must survive a crash.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) queues: Vec<ModelQueue>,
    pub(crate) next_entity: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct ModelQueue {
    pub(crate) entity: EntityId,
    pub(crate) name: EntityName,
    pub(crate) settings: QueueSettings,
    pub(crate) next_number: u64,
    /// By sequence number, in both sub-queues.
    pub(crate) messages: Vec<ModelMessage>,
}

#[derive(Clone, Debug)]
pub(crate) struct ModelMessage {
    pub(crate) sub_queue: SubQueue,
    pub(crate) message: Message,
    pub(crate) nonce: Option<u64>,
}

/// What a crash takes away.
#[derive(Clone, Debug)]
pub(crate) struct ModelReceiver {
    pub(crate) id: ReceiverId,
    pub(crate) entity: EntityId,
    pub(crate) sub_queue: SubQueue,
    pub(crate) mode: ReceiveMode,
    pub(crate) credit: u32,
    pub(crate) window: i64,
    pub(crate) draining: bool,
    /// When it began to ask; the lowest is served first.
    pub(crate) asked: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    LockLost,
    PatchTooLarge,
    TextTooLong,
}

impl ModelMessage {
    pub(crate) fn is_waiting(&self) -> bool {
        self.nonce.is_none() && self.message.state == MessageState::Active
    }

    pub(crate) fn group(&self) -> Option<GroupNumber> {
        match self.message.body.place() {
            BodyPlace::Log { group, .. } => Some(group),
            BodyPlace::Cold { .. } => None,
        }
    }

    pub(crate) fn lock(&mut self, nonce: u64, until: Timestamp) {
        self.nonce = Some(nonce);
        self.message.locked_until = Some(until);
    }

    fn unlock(&mut self, failed: bool) {
        self.nonce = None;
        self.message.locked_until = None;
        self.message.delivery_count += u32::from(failed);
    }

    fn patch(&mut self, patch: Patch) {
        self.message.patch = merged(&self.message.patch, &patch);
    }

    fn dead_letter(&mut self, failed: bool, patch: Patch) {
        self.unlock(failed);
        self.sub_queue = SubQueue::DeadLetter;
        self.message.state = MessageState::Active;
        self.patch(patch);
    }

    fn fail(&mut self, max_delivery_count: u32, mut patch: Patch) {
        if self.sub_queue == SubQueue::Main && self.message.delivery_count + 1 >= max_delivery_count {
            let description =
                format!("Message could not be consumed after {max_delivery_count} delivery attempts.");
            let reason = Some("MaxDeliveryCountExceeded".to_owned());
            patch.parts.push(PatchPart::DeadLetter { reason, description: Some(description) });
            self.dead_letter(true, patch);
        } else {
            self.unlock(true);
            self.patch(patch);
        }
    }
}

fn merged(old: &Patch, new: &Patch) -> Patch {
    let mut parts = old.parts.clone();
    for part in &new.parts {
        let mut part = part.clone();
        if let PatchPart::DeadLetter { reason, description } = &mut part {
            let found = parts.iter().position(|part| matches!(part, PatchPart::DeadLetter { .. }));
            if let Some(PatchPart::DeadLetter { reason: r, description: d }) =
                found.map(|at| parts.remove(at))
            {
                *reason = reason.take().or(r);
                *description = description.take().or(d);
            }
        }
        parts.push(part);
    }
    Patch { parts }
}

impl ModelQueue {
    pub(crate) fn send(&mut self, now: Timestamp, messages: &[NewMessage]) {
        for &NewMessage { body, size_bytes } in messages {
            let message = Message {
                sequence_number: SequenceNumber(self.next_number),
                body,
                size_bytes,
                delivery_count: 0,
                enqueued_at: now,
                locked_until: None,
                state: MessageState::Active,
                patch: Patch::default(),
            };
            self.next_number += 1;
            self.messages.push(ModelMessage { sub_queue: SubQueue::Main, message, nonce: None });
        }
    }

    pub(crate) fn find(&mut self, sub_queue: SubQueue, number: SequenceNumber) -> Option<&mut ModelMessage> {
        let is_it = |m: &&mut ModelMessage| m.message.sequence_number == number && m.sub_queue == sub_queue;
        self.messages.iter_mut().find(is_it)
    }

    pub(crate) fn held(
        &mut self,
        now: Timestamp,
        sub_queue: SubQueue,
        token: LockToken,
    ) -> Option<&mut ModelMessage> {
        let found = self.find(sub_queue, token.sequence_number())?;
        let runs = found.message.locked_until.is_some_and(|until| until > now);
        (runs && found.nonce == Some(token.nonce())).then_some(found)
    }

    pub(crate) fn settle(
        &mut self,
        now: Timestamp,
        sub_queue: SubQueue,
        token: LockToken,
        settlement: Settlement,
    ) -> Result<Vec<BodyRef>, Refusal> {
        let max_delivery_count = self.settings.max_delivery_count;
        let held = self.held(now, sub_queue, token).ok_or(Refusal::LockLost)?;
        let allowed = |held: &ModelMessage, more: &Patch| {
            let fits =
                more.is_empty() || merged(&held.message.patch, more).size_bytes() <= PATCH_SIZE_BYTES_MAX;
            fits.then_some(()).ok_or(Refusal::PatchTooLarge)
        };
        match settlement {
            Settlement::Complete => return Ok(self.remove(token.sequence_number())),
            Settlement::Release => held.unlock(false),
            Settlement::Abandon { patch } => {
                allowed(held, &properties(patch.clone()))?;
                held.fail(max_delivery_count, properties(patch));
            }
            Settlement::Defer { patch } => {
                allowed(held, &properties(patch.clone()))?;
                held.unlock(false);
                held.message.state = MessageState::Deferred;
                held.patch(properties(patch));
            }
            Settlement::DeadLetter { reason, description, patch } => {
                let is_long =
                    |text: &Option<String>| text.as_ref().is_some_and(|text| text.chars().count() > 4096);
                if is_long(&reason) || is_long(&description) {
                    return Err(Refusal::TextTooLong);
                }
                let mut patch = properties(patch);
                if reason.is_some() || description.is_some() {
                    patch.parts.push(PatchPart::DeadLetter { reason, description });
                }
                allowed(held, &patch)?;
                held.dead_letter(false, patch);
            }
        }
        Ok(Vec::new())
    }

    /// Returns the body if it was in a cold segment.
    pub(crate) fn remove(&mut self, number: SequenceNumber) -> Vec<BodyRef> {
        let at = self.messages.iter().position(|m| m.message.sequence_number == number).unwrap();
        let body = self.messages.remove(at).message.body;
        Some(body).filter(|body| body.is_cold()).into_iter().collect()
    }

    pub(crate) fn expire(&mut self, now: Timestamp) {
        for held in &mut self.messages {
            if held.message.locked_until.is_some_and(|until| until <= now) {
                held.fail(self.settings.max_delivery_count, Patch::default());
            }
        }
    }

    pub(crate) fn of(&self, sub_queue: SubQueue) -> impl Iterator<Item = &ModelMessage> {
        self.messages.iter().filter(move |m| m.sub_queue == sub_queue)
    }

    pub(crate) fn counts(&self) -> Counts {
        let main =
            |wanted: MessageState| self.of(SubQueue::Main).filter(|m| m.message.state == wanted).count();
        Counts {
            active_count: main(MessageState::Active) as u64,
            deferred_count: main(MessageState::Deferred) as u64,
            locked_count: self.of(SubQueue::Main).filter(|m| m.nonce.is_some()).count() as u64,
            dead_letter_count: self.of(SubQueue::DeadLetter).count() as u64,
            size_bytes: self.messages.iter().map(|m| u64::from(m.message.size_bytes)).sum(),
        }
    }
}

fn properties(map: Option<Bytes>) -> Patch {
    Patch { parts: map.map(PatchPart::Properties).into_iter().collect() }
}

impl Model {
    pub(crate) fn queue(&mut self, entity: EntityId) -> Option<&mut ModelQueue> {
        self.queues.iter_mut().find(|queue| queue.entity == entity)
    }

    pub(crate) fn messages(&self) -> impl Iterator<Item = (EntityId, &ModelMessage)> {
        self.queues.iter().flat_map(|queue| queue.messages.iter().map(|m| (queue.entity, m)))
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.messages().filter_map(|(_, m)| m.message.locked_until).min()
    }

    pub(crate) fn oldest_log_body(&self) -> Option<GroupNumber> {
        self.messages().filter_map(|(_, m)| m.group()).min()
    }
}
