use std::time::Duration;

use bytes::Bytes;
use peeklock_types::{LockToken, PoisonSession, SequenceNumber, SessionId, SubQueue, Timestamp, limits};

use super::receive::check_distinct;
use super::{Queue, SessionSlot};
use crate::error::Error;
use crate::fact::Fact;
use crate::message::{ReceiverId, Settlement, check_count};
use crate::output::Output;
use crate::patch::{PATCH_SIZE_BYTES_MAX, Patch, PatchPart};
use crate::sessions::held;

const REASON_TOO_MANY_DELIVERIES: &str = "MaxDeliveryCountExceeded";

impl Queue {
    /// Decides the fact of a settlement, or the reason why it is rejected. Changes nothing.
    pub(crate) fn decide_settle(
        &self,
        now: Timestamp,
        sub_queue: SubQueue,
        token: LockToken,
        settlement: Settlement,
    ) -> Result<Fact, Error> {
        self.check_held(now, sub_queue, token)?;
        let (entity, sequence_number) = (self.entity, token.sequence_number());
        Ok(match settlement {
            Settlement::Complete => Fact::Completed { entity, sub_queue, sequence_number },
            Settlement::Release => Fact::Released { entity, sub_queue, sequence_number },
            Settlement::Interrupt if !self.counts_interruption(sequence_number) => {
                Fact::Released { entity, sub_queue, sequence_number }
            }
            Settlement::Interrupt => {
                let abandon = Settlement::Abandon { patch: None, delay: Some(Duration::ZERO) };
                return self.decide_settle(now, sub_queue, token, abandon);
            }
            Settlement::Abandon { patch, delay } => {
                self.check_patch(sub_queue, sequence_number, &properties(patch.as_ref()))?;
                if self.failed_too_often(sub_queue, sequence_number) {
                    self.give_up(sub_queue, sequence_number, properties(patch.as_ref()))
                } else {
                    let due = self.retry_at(now, sub_queue, sequence_number, delay);
                    Fact::Abandoned { entity, sub_queue, sequence_number, patch, due }
                }
            }
            Settlement::Defer { patch } => {
                self.check_patch(sub_queue, sequence_number, &properties(patch.as_ref()))?;
                let locked_until = self.locked_until(sub_queue, sequence_number).unwrap_or(now);
                Fact::Deferred { entity, sub_queue, sequence_number, locked_until, patch }
            }
            Settlement::DeadLetter { .. } if sub_queue != SubQueue::Main => {
                return Err(Error::DeadLetteredAlready { path: self.path(sub_queue), sequence_number });
            }
            Settlement::DeadLetter { reason, description, patch } => {
                check_text(reason.as_deref())?;
                check_text(description.as_deref())?;
                let mut patch = properties(patch.as_ref());
                if reason.is_some() || description.is_some() {
                    patch.add(PatchPart::DeadLetter { reason, description });
                }
                self.check_patch(sub_queue, sequence_number, &patch)?;
                Fact::DeadLettered { entity, sub_queue, sequence_number, failed: false, patch }
            }
        })
    }

    #[inline]
    pub(crate) fn settle(
        &mut self,
        now: Timestamp,
        sub_queue: SubQueue,
        token: LockToken,
        settlement: Settlement,
        out: &mut Output,
    ) -> Result<(), Error> {
        let is_interruption = matches!(settlement, Settlement::Interrupt);
        let fact = if matches!(settlement, Settlement::Complete) {
            self.check_held(now, sub_queue, token)?;
            Fact::Completed { entity: self.entity, sub_queue, sequence_number: token.sequence_number() }
        } else {
            self.decide_settle(now, sub_queue, token, settlement)?
        };
        self.record_end(now, fact, out);
        if is_interruption {
            self.note_interruption(token.sequence_number());
        }
        Ok(())
    }

    /// Settles several messages, all or none. With a session, all must belong to it, and the receiver must hold it.
    pub(crate) fn settle_all(
        &mut self,
        now: Timestamp,
        sub_queue: SubQueue,
        tokens: &[LockToken],
        settlement: &Settlement,
        hold: Option<(&SessionId, ReceiverId)>,
        out: &mut Output,
    ) -> Result<(), Error> {
        check_count(tokens.len())?;
        let held = self.held_slot(now, sub_queue, hold)?;
        let numbers: Vec<_> = tokens.iter().map(|token| token.sequence_number()).collect();
        check_distinct(&numbers)?;
        // Each message has its own copy of the settlement, and all of them go into one commit group.
        let size_bytes = settlement.size_bytes().saturating_mul(tokens.len());
        if tokens.len() > 1 && size_bytes > limits::ANSWER_SIZE_BYTES_MAX {
            return Err(Error::TooMuch { size_bytes });
        }
        let mut facts = Vec::with_capacity(tokens.len());
        for &token in tokens {
            if held.is_some() {
                self.check_session_of(sub_queue, token.sequence_number(), held)?;
            }
            facts.push(self.decide_settle(now, sub_queue, token, settlement.clone())?);
        }
        facts.into_iter().for_each(|fact| self.record_end(now, fact, out));
        if matches!(settlement, Settlement::Interrupt) {
            numbers.into_iter().for_each(|number| self.note_interruption(number));
        }
        Ok(())
    }

    pub(crate) fn renew(
        &mut self,
        now: Timestamp,
        sub_queue: SubQueue,
        tokens: &[LockToken],
        out: &mut Output,
    ) -> Result<Vec<Timestamp>, Error> {
        check_count(tokens.len())?;
        for &token in tokens {
            self.check_held(now, sub_queue, token)?;
            let entry = self.part(sub_queue).messages.get(token.sequence_number());
            if entry.is_some_and(|entry| entry.session.is_some()) {
                return Err(Error::RenewSession { path: self.path(sub_queue) });
            }
        }
        let (entity, until) = (self.entity, now + self.settings.lock_duration);
        for token in tokens {
            let sequence_number = token.sequence_number();
            self.record(Fact::Renewed { entity, sub_queue, sequence_number, until }, out);
        }
        Ok(vec![until; tokens.len()])
    }

    /// Returns whether one more failed delivery is the last one. Dead letters can fail without a limit: there is no
    /// queue to move them to. A deferral is never the last delivery, because its receiver requires that the message is
    /// kept.
    pub(super) fn failed_too_often(&self, sub_queue: SubQueue, sequence_number: SequenceNumber) -> bool {
        let messages = &self.part(sub_queue).messages;
        let Some(entry) = messages.get(sequence_number) else { return false };
        let failed_count = messages.delivery_count(sequence_number, &entry).saturating_add(1);
        // In a session the order may be more important than the removal of the message.
        let stays = entry.session.is_some() && self.settings.poison_session != PoisonSession::DeadLetter;
        sub_queue == SubQueue::Main && failed_count >= self.settings.max_delivery_count && !stays
    }

    // The reason is the broker's own and short, so it does not count against the limit of the message's patch.
    pub(super) fn give_up(
        &self,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        mut patch: Patch,
    ) -> Fact {
        let count = self.settings.max_delivery_count;
        patch.add(PatchPart::DeadLetter {
            reason: Some(REASON_TOO_MANY_DELIVERIES.to_owned()),
            description: Some(format!("Message could not be consumed after {count} delivery attempts.")),
        });
        Fact::DeadLettered { entity: self.entity, sub_queue, sequence_number, failed: true, patch }
    }

    #[inline]
    pub(crate) fn check_held(
        &self,
        now: Timestamp,
        sub_queue: SubQueue,
        token: LockToken,
    ) -> Result<(), Error> {
        let messages = &self.part(sub_queue).messages;
        if messages.is_held(now, token) {
            return Ok(());
        }
        let (path, sequence_number) = (self.path(sub_queue), token.sequence_number());
        let slot = messages.get(sequence_number).and_then(|entry| entry.session);
        match slot.and_then(|slot| messages.sessions().get(slot)) {
            // The session has no holder, so the receiver that had locked the message has lost the whole session.
            Some(session) if !session.is_held(now) => {
                Err(Error::SessionLockLost { path, session: session.id.clone() })
            }
            _ => Err(Error::LockLost { path, sequence_number }),
        }
    }

    /// Returns the expiry of the message's lock, which is its own or that of its session.
    fn locked_until(&self, sub_queue: SubQueue, number: SequenceNumber) -> Option<Timestamp> {
        let messages = &self.part(sub_queue).messages;
        messages.get(number).and_then(|entry| messages.locked_until(&entry))
    }

    /// Returns the session that the receiver claims to hold. `None` if it names no session, or if the queue has no
    /// sessions: the session ids of messages then have no meaning.
    pub(crate) fn held_slot(
        &self,
        now: Timestamp,
        sub_queue: SubQueue,
        hold: Option<(&SessionId, ReceiverId)>,
    ) -> Result<Option<SessionSlot>, Error> {
        let hold = hold.filter(|_| self.settings.requires_session && sub_queue == SubQueue::Main);
        hold.map(|(session, receiver)| held(now, self, session, receiver).map(|(slot, _)| slot)).transpose()
    }

    fn check_session_of(
        &self,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        held: Option<SessionSlot>,
    ) -> Result<(), Error> {
        let entry = self.part(sub_queue).messages.get(sequence_number);
        if entry.is_some_and(|entry| entry.session == held) {
            return Ok(());
        }
        // The session is held, so only the message is lost: it was settled, or is in another session.
        Err(Error::LockLost { path: self.path(sub_queue), sequence_number })
    }

    fn check_patch(
        &self,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        more: &Patch,
    ) -> Result<(), Error> {
        if more.is_empty() {
            return Ok(());
        }
        let mut patch = self.part(sub_queue).messages.patch_of(sequence_number).cloned().unwrap_or_default();
        more.parts.iter().for_each(|part| patch.add(part.clone()));
        let size_bytes = patch.settled_size_bytes();
        if size_bytes > PATCH_SIZE_BYTES_MAX {
            return Err(Error::PatchTooLarge { path: self.path(sub_queue), sequence_number, size_bytes });
        }
        Ok(())
    }
}

fn properties(map: Option<&Bytes>) -> Patch {
    Patch { parts: map.map(|map| PatchPart::Properties(map.clone())).into_iter().collect() }
}

fn check_text(text: Option<&str>) -> Result<(), Error> {
    let count = text.map_or(0, |text| text.chars().count());
    if count > limits::DEAD_LETTER_TEXT_CHARS_MAX {
        return Err(Error::TextTooLong { count });
    }
    Ok(())
}
