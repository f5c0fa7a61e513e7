use bytes::Bytes;
use peeklock_types::{LockToken, SequenceNumber, SubQueue, Timestamp, limits};

use super::Queue;
use crate::error::Error;
use crate::fact::Fact;
use crate::message::{Settlement, check_count};
use crate::outbox::Outbox;
use crate::patch::{PATCH_SIZE_BYTES_MAX, Patch, PatchPart};

const REASON_TOO_MANY_DELIVERIES: &str = "MaxDeliveryCountExceeded";

impl Queue {
    pub(crate) fn settle(
        &mut self,
        now: Timestamp,
        sub_queue: SubQueue,
        token: LockToken,
        settlement: Settlement,
        out: &mut Outbox,
    ) -> Result<(), Error> {
        self.check_held(now, sub_queue, token)?;
        let (entity, sequence_number) = (self.entity, token.sequence_number());
        let fact = match settlement {
            Settlement::Complete => Fact::Completed { entity, sub_queue, sequence_number },
            Settlement::Release => Fact::Released { entity, sub_queue, sequence_number },
            Settlement::Abandon { patch } => {
                self.check_patch(sub_queue, sequence_number, &properties(patch.as_ref()))?;
                self.abandon(sub_queue, sequence_number, patch)
            }
            Settlement::Defer { patch } => {
                self.check_patch(sub_queue, sequence_number, &properties(patch.as_ref()))?;
                Fact::Deferred { entity, sub_queue, sequence_number, patch }
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
        };
        self.record(fact, out);
        Ok(())
    }

    pub(crate) fn renew(
        &mut self,
        now: Timestamp,
        sub_queue: SubQueue,
        tokens: &[LockToken],
        out: &mut Outbox,
    ) -> Result<Vec<Timestamp>, Error> {
        check_count(tokens.len())?;
        for &token in tokens {
            self.check_held(now, sub_queue, token)?;
        }
        let (entity, until) = (self.entity, now + self.settings.lock_duration);
        for token in tokens {
            let sequence_number = token.sequence_number();
            self.record(Fact::Renewed { entity, sub_queue, sequence_number, until }, out);
        }
        Ok(vec![until; tokens.len()])
    }

    /// Releases locks that ran out by `now`, at most `max` of them; tells how many.
    pub(crate) fn release_expired(
        &mut self,
        now: Timestamp,
        sub_queue: SubQueue,
        max: usize,
        out: &mut Outbox,
    ) -> usize {
        for released in 0..max {
            let Some(sequence_number) = self.part(sub_queue).messages.next_expired(now) else {
                return released;
            };
            let fact = if self.failed_too_often(sub_queue, sequence_number) {
                self.give_up(sub_queue, sequence_number, Patch::default())
            } else {
                Fact::LockExpired { entity: self.entity, sub_queue, sequence_number }
            };
            self.record(fact, out);
        }
        max
    }

    fn abandon(&self, sub_queue: SubQueue, sequence_number: SequenceNumber, patch: Option<Bytes>) -> Fact {
        if self.failed_too_often(sub_queue, sequence_number) {
            self.give_up(sub_queue, sequence_number, properties(patch.as_ref()))
        } else {
            Fact::Abandoned { entity: self.entity, sub_queue, sequence_number, patch }
        }
    }

    /// Whether one more failed delivery is the last one. Dead letters can fail for ever: there is no place to move them to.
    fn failed_too_often(&self, sub_queue: SubQueue, sequence_number: SequenceNumber) -> bool {
        let entry = self.part(sub_queue).messages.get(sequence_number);
        let failed_count = entry.map_or(0, |entry| entry.delivery_count.saturating_add(1));
        sub_queue == SubQueue::Main && failed_count >= self.settings.max_delivery_count
    }

    // The reason is the broker's own and short, so it does not count against the limit of the message's patch.
    fn give_up(&self, sub_queue: SubQueue, sequence_number: SequenceNumber, mut patch: Patch) -> Fact {
        let count = self.settings.max_delivery_count;
        patch.add(PatchPart::DeadLetter {
            reason: Some(REASON_TOO_MANY_DELIVERIES.to_owned()),
            description: Some(format!("Message could not be consumed after {count} delivery attempts.")),
        });
        Fact::DeadLettered { entity: self.entity, sub_queue, sequence_number, failed: true, patch }
    }

    fn check_held(&self, now: Timestamp, sub_queue: SubQueue, token: LockToken) -> Result<(), Error> {
        if self.part(sub_queue).messages.is_held(now, token) {
            return Ok(());
        }
        Err(Error::LockLost { path: self.path(sub_queue), sequence_number: token.sequence_number() })
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
        let size_bytes = patch.size_bytes();
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
