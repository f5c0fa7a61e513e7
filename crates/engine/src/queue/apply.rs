//! The only code that changes a queue's durable state, live and in replay.

use bytes::Bytes;
use peeklock_types::{
    BodyRef, EntityKind, EntityName, PoisonSession, SequenceNumber, StoredBody, SubQueue, Timestamp,
};

use super::messages::{Misfit, Moving, Unlock};
use super::table::{Marks, MessageRow};
use super::{Messages, NUMBERS_PER_MESSAGE, Queue, SEQUENCE_NUMBER_MAX};
use crate::error::ReplayError;
use crate::fact::Fact;
use crate::message::{Attributes, Details, EntityId, MessageState, Transfer, TransferReason};
use crate::patch::{Patch, PatchPart};

impl Queue {
    pub(crate) fn apply(&mut self, fact: &Fact, freed: &mut Vec<StoredBody>) -> Result<(), ReplayError> {
        let entity = self.entity;
        match *fact {
            // Most facts are of these kinds, so they are matched first.
            Fact::Enqueued { sequence_number, enqueued_at, body, size_bytes, ref attributes, .. } => {
                let entry = MessageRow::new(body, size_bytes, enqueued_at);
                self.enqueue(sequence_number, entry, attributes.as_deref())
            }
            Fact::Locked { sub_queue, sequence_number, nonce, until, .. }
                if sub_queue != SubQueue::Transfer =>
            {
                let messages = self.messages(sub_queue);
                messages.lock(sequence_number, nonce, until).map_err(at(entity, sequence_number))?;
                messages.end_receipt(sequence_number);
                Ok(())
            }
            Fact::Completed { sub_queue, sequence_number, .. } => {
                let gone = self.messages(sub_queue).discard(sequence_number);
                gone.map(|body| freed.extend(body)).map_err(at(entity, sequence_number))
            }
            Fact::QueueCreated { .. }
            | Fact::QueueDeleted { .. }
            | Fact::Arrived { .. }
            | Fact::FannedOut { .. }
            | Fact::RuleSet { .. }
            | Fact::RuleRemoved { .. } => unreachable!("the engine applies these"),
            Fact::Charged { sequence_number, cost_ms, .. } => {
                self.charge(sequence_number, cost_ms).map_err(at(entity, sequence_number))
            }
            Fact::QueueUpdated { ref settings, at, .. } => self.update(settings, at),
            Fact::Seen { ref message_id, at, .. } => {
                if let Some(window) = self.settings.duplicate_window {
                    self.history.add(at, window, message_id, SequenceNumber::default());
                }
                Ok(())
            }
            Fact::SentOn {
                sequence_number,
                enqueued_at,
                body,
                size_bytes,
                ref attributes,
                ref target,
                number,
                ..
            } => {
                let entry = MessageRow::new(body, size_bytes, enqueued_at);
                let why = TransferReason::Transaction;
                let reserved = attributes.as_ref().and_then(|attributes| attributes.reserved);
                let transfer = Transfer { target: target.as_ref().clone(), number, why, reserved };
                self.send_on(sequence_number, entry, attributes.as_deref(), transfer)
            }
            Fact::Activated { sequence_number, new_number, at, .. } => {
                self.activate(sequence_number, new_number, at)
            }
            Fact::Purged { sub_queue: SubQueue::Transfer, .. } => {
                Err(at(entity, SequenceNumber::default())(Misfit::OtherState))
            }
            Fact::Purged { sub_queue, before, count_max, .. } => {
                self.apply_purge(sub_queue, before, count_max, freed);
                Ok(())
            }
            Fact::Cleared { .. } => {
                self.apply_clear(freed);
                Ok(())
            }
            Fact::NumbersReserved { next, .. } => self.reserve(next),
            Fact::MetadataSet { ref metadata, .. } => {
                self.metadata = metadata.as_ref().clone();
                Ok(())
            }
            Fact::Replaced { sequence_number, body, size_bytes, .. } => {
                self.replace(sequence_number, body, size_bytes).map(|old| freed.extend(old))
            }
            Fact::BodyLost { sequence_number, body, ref patch, .. } => {
                self.note_later_body(sequence_number, body)?;
                self.apply_lost(sequence_number, body, patch, freed).map_err(at(entity, sequence_number))
            }
            Fact::SessionStateSet { ref session, ref state, at, .. } => {
                self.main.messages.set_session_state(session, state.clone(), at);
                Ok(())
            }
            _ => self.apply_step(fact, freed).map_err(|(misfit, number)| at(entity, number)(misfit)),
        }
    }

    /// Applies a fact about one message.
    fn apply_step(
        &mut self,
        fact: &Fact,
        freed: &mut Vec<StoredBody>,
    ) -> Result<(), (Misfit, SequenceNumber)> {
        let number = number_of(fact);
        // Only these facts and transfers can put a message outside of the main queue.
        self.uses_asides = true;
        self.check_step(fact, number).map_err(|misfit| (misfit, number))?;
        let step = match *fact {
            Fact::Renewed { sub_queue, until, .. } => self.messages(sub_queue).renew(number, until),
            Fact::Abandoned { sub_queue, ref patch, due, .. } => {
                self.unlock(sub_queue, number, self.failed(sub_queue, due), patch.as_ref())
            }
            Fact::LockExpired { sub_queue, due, .. } => {
                self.unlock(sub_queue, number, self.failed(sub_queue, due), None)
            }
            Fact::Released { sub_queue, .. } => self.unlock(sub_queue, number, Unlock::default(), None),
            Fact::Deferred { sub_queue, locked_until, ref patch, .. } => {
                let how = Unlock {
                    counts: counts_deliveries(sub_queue),
                    state: Some(MessageState::Deferred),
                    was_locked_until: Some(locked_until),
                    ..Unlock::default()
                };
                self.unlock(sub_queue, number, how, patch.as_ref())
            }
            Fact::DelayEnded { sub_queue, .. } => self.messages(sub_queue).end_delay(number),
            Fact::DeadLettered { sub_queue, failed, ref patch, .. } => {
                self.dead_letter(sub_queue, number, failed, patch)
            }
            Fact::TransferStarted { sub_queue, ref target, number: out, .. } => {
                self.start_transfer(sub_queue, number, target, out)
            }
            Fact::TransferFailed { sub_queue, ref patch, .. } => self.fail_transfer(sub_queue, number, patch),
            Fact::Moved { from, to, .. } => {
                let sub_queue = self.sub_queue_of(number).ok_or((Misfit::Missing, number))?;
                self.messages(sub_queue).move_body(number, from, to).map(|old| freed.extend(old))
            }
            Fact::Receipted { nonce, until, .. } => self.main.messages.give_receipt(number, nonce, until),
            _ => unreachable!("the caller applies the others"),
        };
        step.map_err(|misfit| (misfit, number))
    }

    /// Checks that a fact fits the message's state. A message in transit leaves only by arrival or rejection, and only
    /// a waiting message starts a transfer.
    fn check_step(&self, fact: &Fact, number: SequenceNumber) -> Result<(), Misfit> {
        let fits = match *fact {
            Fact::Moved { .. } => true,
            Fact::TransferFailed { sub_queue: SubQueue::Transfer, .. } => true,
            Fact::TransferStarted { sub_queue, .. } | Fact::TransferFailed { sub_queue, .. } => {
                let entry = self.part(sub_queue).messages.get(number).ok_or(Misfit::Missing)?;
                let waits = entry.lock.is_none() && entry.state == MessageState::Active;
                waits && matches!(sub_queue, SubQueue::Main | SubQueue::DeadLetter)
            }
            Fact::DeadLettered { sub_queue, .. } => sub_queue == SubQueue::Main,
            // Locks outside of the transfer queue are applied in `apply`.
            Fact::Locked { .. } => false,
            // All others unlock a message, and no message in transit is locked.
            _ => true,
        };
        fits.then_some(()).ok_or(Misfit::OtherState)
    }

    fn messages(&mut self, sub_queue: SubQueue) -> &mut Messages {
        &mut self.part_mut(sub_queue).messages
    }

    fn update(&mut self, settings: &peeklock_types::QueueSettings, at: Timestamp) -> Result<(), ReplayError> {
        let checked = settings.check().and_then(|()| settings.check_kind(self.kind));
        let checked = checked.and_then(|()| self.settings.check_change(settings));
        checked.map_err(|reason| ReplayError::Settings { entity: self.entity, reason })?;
        self.settings = settings.clone();
        let order = self.follow_order();
        order.map_err(|reason| ReplayError::Order { entity: self.entity, reason: reason.to_string() })?;
        self.updated_at = at;
        self.revision = self.revision.saturating_add(1);
        Ok(())
    }

    pub(crate) fn enqueue(
        &mut self,
        number: SequenceNumber,
        mut entry: MessageRow,
        attributes: Option<&Attributes>,
    ) -> Result<(), ReplayError> {
        let entity = self.entity;
        match attributes.filter(|attributes| attributes.reserved.is_some()) {
            None => self.take_number(number, &mut entry)?,
            Some(attributes) => self.take_reserved(number, &mut entry, attributes)?,
        }
        let has_order = self.settings.order.is_some();
        if has_order {
            self.main.messages.enter(&mut entry, attributes.and_then(|attributes| attributes.lane.as_ref()));
        }
        let is_plain = attributes.is_none_or(|attributes| self.is_plain(attributes));
        if is_plain && self.settings.default_time_to_live.is_none() {
            if let Some(attributes) = attributes {
                self.remember(number, entry.enqueued_at(), attributes);
            }
            return self.main.messages.insert_plain(number, entry).map_err(at(entity, number));
        }
        let none = Attributes::default();
        let attributes = attributes.unwrap_or(&none);
        let patch = attributes.patch.clone();
        let details = self.details_of(entry.enqueued_at(), attributes);
        self.remember(number, entry.enqueued_at(), attributes);
        if let Some(session) = attributes.session.as_ref().filter(|_| self.settings.requires_session) {
            entry.session = Some(self.main.messages.open_session_to_keep(session));
        }
        if details.due.is_some() {
            entry.state = MessageState::Scheduled;
        }
        // The scheduled time is past but still present: the message has waited for it in its topic.
        let is_activated = attributes.scheduled_for.is_some_and(|due| due <= entry.enqueued_at());
        entry.marks.set(Marks::ACTIVATED, is_activated);
        let moving = Moving { entry, patch, details: Some(Box::new(details)), session: None };
        self.main.messages.insert(number, moving).map_err(at(entity, number))
    }

    /// Stores a message of a transaction directly in the transfer queue.
    fn send_on(
        &mut self,
        number: SequenceNumber,
        mut entry: MessageRow,
        attributes: Option<&Attributes>,
        transfer: Transfer,
    ) -> Result<(), ReplayError> {
        let entity = self.entity;
        self.uses_asides = true;
        self.take_number(number, &mut entry)?;
        let attributes = attributes.cloned().unwrap_or_default();
        let details = Details {
            time_to_live: attributes.time_to_live,
            due: attributes.scheduled_for,
            message_id: attributes.message_id,
            session: attributes.session,
            origin: None,
            transfer: Some(transfer),
            view: None,
            receipt: None,
            delivery_count_high: 0,
            was_locked_until: None,
        };
        let moving =
            Moving { entry, patch: Patch::default(), details: Some(Box::new(details)), session: None };
        self.transfer.messages.insert(number, moving).map_err(at(entity, number))
    }

    /// Assigns the number of a new message, and checks that its body is not before those of earlier messages.
    fn take_number(&mut self, number: SequenceNumber, entry: &mut MessageRow) -> Result<(), ReplayError> {
        let entity = self.entity;
        self.check_number(number)?;
        if self.numbers_left() < NUMBERS_PER_MESSAGE {
            return Err(ReplayError::SequenceOrder { entity, found: number, expected: SEQUENCE_NUMBER_MAX });
        }
        if let Some(group) = entry.body.group() {
            let newest = self.newest_group;
            // A message that was scheduled in the topic was written when it was sent, long before its copy.
            let is_stray = group < newest && self.kind == EntityKind::Subscription;
            if group < newest && !is_stray {
                return Err(ReplayError::BodyOrder { entity, sequence_number: number, group, newest });
            }
            entry.marks.set(Marks::STRAY, is_stray);
            self.newest_group = group.max(newest);
        }
        self.next_number = number.next();
        Ok(())
    }

    /// Reserves the numbers before `next`.
    fn reserve(&mut self, next: SequenceNumber) -> Result<(), ReplayError> {
        let (entity, expected) = (self.entity, self.next_number);
        let count = next.0.saturating_sub(expected.0);
        if count == 0 || self.numbers_left() < count {
            return Err(ReplayError::SequenceOrder { entity, found: next, expected });
        }
        self.next_number = next;
        Ok(())
    }

    /// Gives a scheduled message its reserved number. Its body is newer than those of higher numbers, so it is marked
    /// as out of order.
    fn take_reserved(
        &mut self,
        number: SequenceNumber,
        entry: &mut MessageRow,
        attributes: &Attributes,
    ) -> Result<(), ReplayError> {
        let (entity, expected) = (self.entity, self.next_number);
        let fits = self.reserved_for(entry.enqueued_at(), attributes) == Some(number);
        if !fits || self.numbers_left() < NUMBERS_PER_MESSAGE {
            return Err(ReplayError::SequenceOrder { entity, found: number, expected });
        }
        self.note_later_body(number, entry.body)?;
        entry.marks.set(Marks::STRAY, !entry.body.is_standalone());
        Ok(())
    }

    /// Returns the reserved number of a message if it is scheduled, and the number was reserved here and is unused.
    pub(super) fn reserved_for(&self, now: Timestamp, attributes: &Attributes) -> Option<SequenceNumber> {
        let reserved = attributes.reserved.filter(|reserved| reserved.entity == self.entity)?;
        let number = reserved.sequence_number;
        let is_scheduled = attributes.scheduled_for.is_some_and(|due| due > now);
        let is_assigned = (SequenceNumber::FIRST..self.next_number).contains(&number);
        let is_free = is_assigned && self.sub_queue_of(number).is_none();
        (is_scheduled && is_free).then_some(number)
    }

    /// Replaces the body of a message. The new body is behind those of later messages, so it is out of order.
    fn replace(
        &mut self,
        number: SequenceNumber,
        body: BodyRef,
        size_bytes: u32,
    ) -> Result<Option<StoredBody>, ReplayError> {
        self.note_later_body(number, body)?;
        self.main.messages.replace_body(number, body, size_bytes).map_err(at(self.entity, number))
    }

    /// Checks that a replacement body is not before any earlier body.
    fn note_later_body(&mut self, number: SequenceNumber, body: BodyRef) -> Result<(), ReplayError> {
        let (entity, newest) = (self.entity, self.newest_group);
        if let Some(group) = body.group() {
            if group < newest {
                return Err(ReplayError::BodyOrder { entity, sequence_number: number, group, newest });
            }
            self.newest_group = group;
        }
        Ok(())
    }

    fn check_number(&self, number: SequenceNumber) -> Result<(), ReplayError> {
        let (entity, expected) = (self.entity, self.next_number);
        if number != expected || number >= SEQUENCE_NUMBER_MAX {
            return Err(ReplayError::SequenceOrder { entity, found: number, expected });
        }
        Ok(())
    }

    /// Returns whether the queue keeps none of the attributes with the message.
    fn is_plain(&self, attributes: &Attributes) -> bool {
        let fits_lane = self.settings.order.is_some() || attributes.lane.is_none();
        fits_lane && attributes.is_only_named() && (attributes.message_id.is_none() || !self.hands_on())
    }

    /// Returns whether another entity may get the messages of this one.
    fn hands_on(&self) -> bool {
        let settings = &self.settings;
        let forwards = settings.forward_to.is_some() || settings.forward_dead_letters_to.is_some();
        forwards || self.kind == EntityKind::Topic
    }

    /// Returns the attributes of a message that are kept.
    fn details_of(&self, enqueued_at: Timestamp, attributes: &Attributes) -> Details {
        let settings = &self.settings;
        let is_topic = self.kind == EntityKind::Topic;
        let hands_on = self.hands_on();
        let own = attributes.time_to_live;
        Details {
            time_to_live: own.into_iter().chain(settings.default_time_to_live).min(),
            due: attributes.scheduled_for.filter(|due| *due > enqueued_at),
            message_id: attributes.message_id.clone().filter(|_| hands_on),
            // The session is kept even if the queue does not forward: it may do so later, to a queue that requires
            // sessions.
            session: attributes.session.clone().filter(|_| !settings.requires_session),
            origin: attributes.origin.clone(),
            transfer: None,
            view: attributes.view.clone().filter(|_| is_topic),
            receipt: None,
            delivery_count_high: 0,
            was_locked_until: None,
        }
    }

    fn remember(&mut self, number: SequenceNumber, at: Timestamp, attributes: &Attributes) {
        if let (Some(window), Some(id)) = (self.settings.duplicate_window, &attributes.message_id) {
            self.history.add(at, window, id, number);
        }
    }

    fn activate(
        &mut self,
        number: SequenceNumber,
        new_number: SequenceNumber,
        now: Timestamp,
    ) -> Result<(), ReplayError> {
        let entity = self.entity;
        self.check_number(new_number)?;
        let is_scheduled =
            self.main.messages.get(number).is_some_and(|entry| entry.state == MessageState::Scheduled);
        if !is_scheduled {
            return Err(at(entity, number)(Misfit::OtherState));
        }
        let mut moving = self.main.messages.remove(number).map_err(at(entity, number))?;
        moving.entry.session = moving.session.as_ref().map(|id| self.main.messages.open_session_to_keep(id));
        moving.entry.state = MessageState::Active;
        moving.entry.marks.set(Marks::ACTIVATED, true);
        moving.entry.set_enqueued_at(now);
        if let Some(details) = &mut moving.details {
            details.due = None;
        }
        if let Some(group) = moving.entry.body.group() {
            moving.entry.marks.set(Marks::STRAY, group < self.newest_group);
        }
        self.next_number = new_number.next();
        self.main.messages.insert(new_number, moving).map_err(at(entity, new_number))
    }

    /// Returns the change that returns a message to its place after a failure.
    fn failed(&self, sub_queue: SubQueue, due: Option<Timestamp>) -> Unlock {
        let sets_aside =
            self.settings.requires_session && self.settings.poison_session == PoisonSession::SetAside;
        Unlock {
            counts: counts_deliveries(sub_queue),
            state: due.map(|_| MessageState::Delayed),
            due,
            poison_from: sets_aside.then_some(self.settings.max_delivery_count),
            was_locked_until: None,
        }
    }

    fn unlock(
        &mut self,
        sub_queue: SubQueue,
        number: SequenceNumber,
        how: Unlock,
        patch: Option<&Bytes>,
    ) -> Result<(), Misfit> {
        let messages = self.messages(sub_queue);
        messages.unlock(number, how)?;
        match patch {
            Some(map) => messages.add_patch(number, PatchPart::Properties(map.clone())),
            None => Ok(()),
        }
    }

    fn dead_letter(
        &mut self,
        sub_queue: SubQueue,
        number: SequenceNumber,
        failed: bool,
        patch: &Patch,
    ) -> Result<(), Misfit> {
        let mut moving = self.messages(sub_queue).remove(number)?;
        if failed {
            moving.count_failure();
        }
        self.set_aside(&mut moving);
        self.dead_letter.messages.insert(number, moving)?;
        patch.parts.iter().try_for_each(|part| self.dead_letter.messages.add_patch(number, part.clone()))
    }

    /// Resets the state of a message that leaves the main queue. A deferred message waits again, because receivers of
    /// the dead-letter queue do not have its number.
    pub(super) fn set_aside(&self, moving: &mut Moving) {
        moving.entry.state = MessageState::Active;
        moving.entry.marks.set(Marks::ACTIVATED, false);
        if let Some(details) = &mut moving.details {
            details.due = None;
        }
        if let (Some(session), true) =
            (moving.session.take(), self.settings.forward_dead_letters_to.is_some())
        {
            moving.details.get_or_insert_default().session = Some(session);
        }
    }

    fn start_transfer(
        &mut self,
        sub_queue: SubQueue,
        number: SequenceNumber,
        target: &EntityName,
        out: u64,
    ) -> Result<(), Misfit> {
        let mut moving = self.messages(sub_queue).remove(number)?;
        let is_dead_letter = sub_queue == SubQueue::DeadLetter;
        let why = if is_dead_letter { TransferReason::DeadLetter } else { TransferReason::Forward };
        let details = moving.details.get_or_insert_default();
        details.session = moving.session.take().or_else(|| details.session.take());
        details.transfer = Some(Transfer { target: target.clone(), number: out, why, reserved: None });
        self.transfer.messages.insert(number, moving)
    }

    fn fail_transfer(
        &mut self,
        sub_queue: SubQueue,
        number: SequenceNumber,
        patch: &Patch,
    ) -> Result<(), Misfit> {
        let mut moving = self.messages(sub_queue).remove(number)?;
        if let Some(details) = &mut moving.details {
            details.transfer = None;
        }
        let aside = &mut self.transfer_dead_letter.messages;
        aside.insert(number, moving)?;
        patch.parts.iter().try_for_each(|part| aside.add_patch(number, part.clone()))
    }
}

/// Returns whether deliveries are counted in the sub-queue. A dead letter keeps its count, because no decision depends
/// on it any more.
fn counts_deliveries(sub_queue: SubQueue) -> bool {
    sub_queue == SubQueue::Main
}

/// Returns the message of a step.
fn number_of(fact: &Fact) -> SequenceNumber {
    match *fact {
        Fact::Locked { sequence_number, .. }
        | Fact::Renewed { sequence_number, .. }
        | Fact::Abandoned { sequence_number, .. }
        | Fact::LockExpired { sequence_number, .. }
        | Fact::DelayEnded { sequence_number, .. }
        | Fact::Released { sequence_number, .. }
        | Fact::Deferred { sequence_number, .. }
        | Fact::DeadLettered { sequence_number, .. }
        | Fact::TransferStarted { sequence_number, .. }
        | Fact::TransferFailed { sequence_number, .. }
        | Fact::Receipted { sequence_number, .. }
        | Fact::Moved { sequence_number, .. } => sequence_number,
        _ => unreachable!("the caller applies the others"),
    }
}

fn at(entity: EntityId, sequence_number: SequenceNumber) -> impl Fn(Misfit) -> ReplayError {
    move |misfit| match misfit {
        Misfit::Missing => ReplayError::NoSuchMessage { entity, sequence_number },
        Misfit::Present => ReplayError::TwiceThere { entity, sequence_number },
        Misfit::LockedTwice => ReplayError::LockedTwice { entity, sequence_number },
        Misfit::NotLocked => ReplayError::NotLocked { entity, sequence_number },
        Misfit::OtherBody => ReplayError::BodyMoved { entity, sequence_number },
        Misfit::OtherState => ReplayError::OtherState { entity, sequence_number },
    }
}
