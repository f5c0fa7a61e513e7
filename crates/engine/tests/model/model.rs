//! The rules in their simplest form. The model is slow on purpose: everything is a search in a `Vec`.

use std::time::Duration;

use bytes::Bytes;
use peeklock_engine::{
    Counts, Details, EntityId, Message, MessageState, NewMessage, PATCH_SIZE_BYTES_MAX, Patch, PatchPart,
    ReceiveMode, ReceiverId, Settlement,
};
use peeklock_types::{
    BodyRef, CommitGroupNumber, EntityName, LockToken, QueueSettings, RetryPolicy, SequenceNumber, SubQueue,
    Timestamp,
};

/// The state that must survive a crash.
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
    pub(crate) created_at: Timestamp,
    pub(crate) next_number: u64,
    pub(crate) newest_group: CommitGroupNumber,
    /// The messages of both sub-queues, by sequence number.
    pub(crate) messages: Vec<ModelMessage>,
    /// Message ids in the order of arrival.
    pub(crate) history: Vec<(Timestamp, Bytes, SequenceNumber)>,
    /// The time of the last use, since the last restart.
    pub(crate) used_at: Timestamp,
}

#[derive(Clone, Debug)]
pub(crate) struct ModelMessage {
    pub(crate) sub_queue: SubQueue,
    pub(crate) message: Message,
    pub(crate) nonce: Option<u64>,
    /// Whether the body is before that of an earlier message.
    pub(crate) is_stray: bool,
}

/// A receiver. A crash removes it.
#[derive(Clone, Debug)]
pub(crate) struct ModelReceiver {
    pub(crate) id: ReceiverId,
    pub(crate) entity: EntityId,
    pub(crate) sub_queue: SubQueue,
    pub(crate) mode: ReceiveMode,
    pub(crate) credit: u32,
    pub(crate) window: i64,
    pub(crate) draining: bool,
    /// The time of the receiver's request; the receiver with the earliest request is served first.
    pub(crate) asked: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    LockLost,
    DeadLetteredAlready,
    PatchTooLarge,
    TextTooLong,
    Disabled,
    QueueFull,
    NoSuchMessage,
    ReceiptLost,
}

impl ModelMessage {
    pub(crate) fn is_waiting(&self) -> bool {
        self.nonce.is_none() && self.message.state == MessageState::Active
    }

    pub(crate) fn group(&self) -> Option<CommitGroupNumber> {
        self.message.body.group()
    }

    pub(crate) fn receipt(&self) -> Option<u64> {
        self.message.details.as_ref().and_then(|details| details.receipt)
    }

    pub(crate) fn lock(&mut self, nonce: u64, until: Timestamp) {
        self.set_receipt(None);
        self.nonce = Some(nonce);
        self.message.locked_until = Some(until);
    }

    /// Releases the lock. Dead letters keep their delivery count.
    fn unlock(&mut self, counts: bool) {
        self.nonce = None;
        self.message.locked_until = None;
        self.message.delivery_count += u32::from(counts && self.sub_queue == SubQueue::Main);
    }

    fn defer(&mut self) {
        let mut details = self.message.details.take().map(|details| *details).unwrap_or_default();
        details.was_locked_until = self.message.locked_until;
        self.message.details = Some(Box::new(details));
        self.unlock(true);
        self.message.state = MessageState::Deferred;
    }

    fn patch(&mut self, patch: Patch) {
        self.message.patch = merged(&self.message.patch, &patch);
    }

    pub(crate) fn set_receipt(&mut self, nonce: Option<u64>) {
        let mut details = self.message.details.take().map(|details| *details).unwrap_or_default();
        details.receipt = nonce;
        self.message.details = (details != Details::default()).then(|| Box::new(details));
    }

    /// Hides the message until `until`, or makes it visible at once.
    pub(crate) fn hide(
        &mut self,
        settings: &QueueSettings,
        now: Timestamp,
        until: Option<Timestamp>,
        nonce: u64,
    ) {
        match (until, self.nonce.is_some()) {
            (Some(_), true) => (self.nonce, self.message.locked_until) = (Some(nonce), until),
            (Some(_), false) => {
                self.message.state = MessageState::Delayed;
                self.set_due(until);
            }
            (None, true) => self.fail(settings, now, Some(Duration::ZERO), Patch::default()),
            (None, false) => {
                self.message.state = MessageState::Active;
                self.set_due(None);
            }
        }
        self.set_receipt(Some(nonce).filter(|_| self.sub_queue == SubQueue::Main));
    }

    fn set_due(&mut self, due: Option<Timestamp>) {
        let mut details = self.message.details.take().map(|details| *details).unwrap_or_default();
        details.due = due;
        self.message.details = (details != Details::default()).then(|| Box::new(details));
    }

    /// Returns the time at which the message is due, if it waits for a time.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let waits = matches!(self.message.state, MessageState::Scheduled | MessageState::Delayed);
        self.message.details.as_ref().filter(|_| waits).and_then(|details| details.due)
    }

    /// Returns the time at which the message expires, unless it is locked before.
    pub(crate) fn expires_at(&self) -> Option<Timestamp> {
        let counts = self.sub_queue == SubQueue::Main
            && self.nonce.is_none()
            && self.message.state != MessageState::Scheduled;
        let ttl = self.message.details.as_ref().filter(|_| counts).and_then(|details| details.time_to_live);
        ttl.map(|ttl| self.message.enqueued_at + ttl)
    }

    fn dead_letter(&mut self, failed: bool, patch: Patch) {
        self.unlock(failed);
        self.sub_queue = SubQueue::DeadLetter;
        (self.message.state, self.message.is_activated) = (MessageState::Active, false);
        if let Some(details) = &mut self.message.details {
            details.was_locked_until = None;
        }
        self.set_due(None);
        self.set_receipt(None);
        self.patch(patch);
    }

    fn fail(&mut self, settings: &QueueSettings, now: Timestamp, wish: Option<Duration>, mut patch: Patch) {
        let max = settings.max_delivery_count;
        if self.sub_queue == SubQueue::Main && self.message.delivery_count + 1 >= max {
            let text = format!("Message could not be consumed after {max} delivery attempts.");
            patch.parts.push(reason("MaxDeliveryCountExceeded", &text));
            self.dead_letter(true, patch);
            return;
        }
        self.unlock(true);
        self.patch(patch);
        let policy = if self.sub_queue == SubQueue::Main { settings.retry } else { RetryPolicy::Immediate };
        let delay = wish.unwrap_or_else(|| delay_of(policy, self.message.delivery_count));
        if self.message.state != MessageState::Deferred && !delay.is_zero() {
            self.message.state = MessageState::Delayed;
            self.set_due(Some(now + delay));
        }
    }
}

fn delay_of(policy: RetryPolicy, failed_count: u32) -> Duration {
    match policy {
        RetryPolicy::Immediate => Duration::ZERO,
        RetryPolicy::Fixed { delay } => delay,
        RetryPolicy::Linear { step, cap } => (step * failed_count).min(cap),
        RetryPolicy::Exponential { base, cap, .. } => (base * 2_u32.pow(failed_count - 1)).min(cap),
    }
}

fn reason(reason: &str, description: &str) -> PatchPart {
    PatchPart::DeadLetter { reason: Some(reason.to_owned()), description: Some(description.to_owned()) }
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
    /// Stores the batch, and returns the number of each message.
    pub(crate) fn send(&mut self, now: Timestamp, batch: &[NewMessage]) -> Result<Vec<u64>, Refusal> {
        if !self.settings.status.can_send() {
            return Err(Refusal::Disabled);
        }
        let size: u64 = self.messages.iter().map(|m| u64::from(m.message.size_bytes)).sum();
        let more: u64 = batch.iter().map(|message| u64::from(message.size_bytes)).sum();
        if self.settings.max_size_bytes.is_some_and(|max| size + more > max) {
            return Err(Refusal::QueueFull);
        }
        let count = self.messages.len() + batch.len();
        if self.settings.max_count.is_some_and(|max| count > max as usize) {
            return Err(Refusal::QueueFull);
        }
        Ok(batch.iter().map(|message| self.store(now, message)).collect())
    }

    fn store(&mut self, now: Timestamp, new: &NewMessage) -> u64 {
        let attributes = new.attributes.as_deref().cloned().unwrap_or_default();
        let number = SequenceNumber(self.next_number);
        if let (Some(window), Some(id)) = (self.settings.duplicate_window, attributes.message_id) {
            let seen = self.history.iter().rfind(|(_, seen, _)| *seen == id);
            if let Some((.., first)) = seen.filter(|(at, ..)| *at > now - window) {
                return first.0;
            }
            while self.history.first().is_some_and(|(at, ..)| *at <= now - window) {
                self.history.remove(0);
            }
            self.history.push((now, id, number));
        }
        let own = attributes.time_to_live;
        let details = Details {
            time_to_live: own.into_iter().chain(self.settings.default_time_to_live).min(),
            due: attributes.scheduled_for.filter(|due| *due > now),
            ..Details::default()
        };
        let state = if details.due.is_some() { MessageState::Scheduled } else { MessageState::Active };
        let message = Message {
            class: None,
            tenant: None,
            sequence_number: number,
            body: new.body,
            size_bytes: new.size_bytes,
            delivery_count: 0,
            enqueued_at: now,
            locked_until: None,
            state,
            is_activated: false,
            patch: Patch::default(),
            details: (details != Details::default()).then(|| Box::new(details)),
        };
        let sub_queue = SubQueue::Main;
        let new = ModelMessage { sub_queue, message, nonce: None, is_stray: false };
        self.newest_group = self.newest_group.max(new.group().unwrap());
        self.next_number += 1;
        self.messages.push(new);
        number.0
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
        let settings = self.settings.clone();
        let held = self.held(now, sub_queue, token).ok_or(Refusal::LockLost)?;
        let allowed = |held: &ModelMessage, more: &Patch| {
            let fits =
                more.is_empty() || merged(&held.message.patch, more).size_bytes() <= PATCH_SIZE_BYTES_MAX;
            fits.then_some(()).ok_or(Refusal::PatchTooLarge)
        };
        match settlement {
            Settlement::Complete => return Ok(self.remove(token.sequence_number())),
            // No message of a test is interrupted so often that it counts.
            Settlement::Release | Settlement::Interrupt => held.unlock(false),
            Settlement::Abandon { patch, delay } => {
                allowed(held, &properties(patch.clone()))?;
                held.fail(&settings, now, delay, properties(patch));
            }
            Settlement::Defer { patch } => {
                allowed(held, &properties(patch.clone()))?;
                held.defer();
                held.patch(properties(patch));
            }
            Settlement::DeadLetter { .. } if held.sub_queue == SubQueue::DeadLetter => {
                return Err(Refusal::DeadLetteredAlready);
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

    /// Removes a message. Returns the body if it was standalone.
    pub(crate) fn remove(&mut self, number: SequenceNumber) -> Vec<BodyRef> {
        let at = self.messages.iter().position(|m| m.message.sequence_number == number).unwrap();
        let body = self.messages.remove(at).message.body;
        Some(body).filter(|body| body.is_standalone()).into_iter().collect()
    }

    pub(crate) fn purge(&mut self, sub_queue: SubQueue, before: Timestamp, count_max: u64) -> Vec<Message> {
        let mut left = count_max;
        let mut is_purged = |m: &mut ModelMessage| {
            let is_meant = m.sub_queue == sub_queue
                && m.nonce.is_none()
                && m.message.state != MessageState::Scheduled
                && m.message.enqueued_at < before
                && left > 0;
            left -= u64::from(is_meant);
            is_meant
        };
        self.messages.extract_if(.., |m| is_purged(m)).map(|m| m.message).collect()
    }

    /// Executes the timers: locks expire, messages become due, messages expire. Returns freed bodies.
    pub(crate) fn tick(&mut self, now: Timestamp) -> Vec<BodyRef> {
        let settings = self.settings.clone();
        for held in &mut self.messages {
            if held.message.locked_until.is_some_and(|until| until <= now) {
                held.fail(&settings, now, None, Patch::default());
            }
        }
        while let Some(at) = self.next_due(now) {
            self.come_due(now, at);
        }
        let mut freed = Vec::new();
        let expired = |m: &&mut ModelMessage| m.expires_at().is_some_and(|at| at <= now);
        while let Some(expired) = self.messages.iter_mut().filter(expired).min_by_key(|m| m.expires_at()) {
            if settings.dead_letter_on_expiration {
                let part = reason("TTLExpiredException", "The message expired and was dead lettered.");
                expired.dead_letter(false, Patch { parts: vec![part] });
            } else {
                let number = expired.message.sequence_number;
                freed.extend(self.remove(number));
            }
        }
        freed
    }

    fn next_due(&self, now: Timestamp) -> Option<usize> {
        let due = self.messages.iter().enumerate().filter(|(_, m)| m.due().is_some_and(|due| due <= now));
        due.min_by_key(|(at, m)| (m.due(), *at)).map(|(at, _)| at)
    }

    /// Makes a message available: a scheduled one moves to the end, a delayed one keeps its place.
    fn come_due(&mut self, now: Timestamp, at: usize) {
        let is_scheduled = self.messages[at].message.state == MessageState::Scheduled;
        self.messages[at].message.state = MessageState::Active;
        self.messages[at].set_due(None);
        if is_scheduled {
            let mut moved = self.messages.remove(at);
            moved.message.sequence_number = SequenceNumber(self.next_number);
            (moved.message.enqueued_at, moved.message.is_activated) = (now, true);
            moved.is_stray = moved.group().is_some_and(|group| group < self.newest_group);
            self.next_number += 1;
            self.messages.push(moved);
        }
    }

    pub(crate) fn of(&self, sub_queue: SubQueue) -> impl Iterator<Item = &ModelMessage> {
        self.messages.iter().filter(move |m| m.sub_queue == sub_queue)
    }

    pub(crate) fn counts(&self) -> Counts {
        let main = |is_it: &dyn Fn(&ModelMessage) -> bool| {
            self.of(SubQueue::Main).filter(|m| is_it(m)).count() as u64
        };
        let is_active =
            |m: &ModelMessage| !matches!(m.message.state, MessageState::Deferred | MessageState::Scheduled);
        Counts {
            active_count: main(&is_active),
            deferred_count: main(&|m| m.message.state == MessageState::Deferred),
            scheduled_count: main(&|m| m.message.state == MessageState::Scheduled),
            locked_count: main(&|m| m.nonce.is_some()),
            dead_letter_count: self.of(SubQueue::DeadLetter).count() as u64,
            transfer_count: 0,
            transfer_dead_letter_count: 0,
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

    pub(crate) fn next_deadline(&self, receivers: &[ModelReceiver]) -> Option<Timestamp> {
        let of_message = |m: &ModelMessage| [m.message.locked_until, m.due(), m.expires_at()];
        let messages = self.messages().flat_map(|(_, m)| of_message(m)).flatten();
        messages.chain(self.queues.iter().filter_map(|queue| queue.idle_at(receivers))).min()
    }

    pub(crate) fn oldest_log_body(&self) -> Option<CommitGroupNumber> {
        self.messages().filter_map(|(_, m)| m.group()).min()
    }
}

impl ModelQueue {
    /// Returns the time at which the queue is deleted for idleness.
    pub(crate) fn idle_at(&self, receivers: &[ModelReceiver]) -> Option<Timestamp> {
        let is_free = receivers.iter().all(|receiver| receiver.entity != self.entity);
        self.settings.auto_delete_on_idle.filter(|_| is_free).map(|idle| self.used_at + idle)
    }
}
