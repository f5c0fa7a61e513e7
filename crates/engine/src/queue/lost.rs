//! Messages whose body is lost: the disk returns other bytes than were written.
//!
//! Such a message is neither dropped nor delivered as if nothing had happened: it is dead-lettered, with an empty body
//! and a reason that describes the damage. The space of the body is free then.

use peeklock_types::{BodyRef, EntityKind, SequenceNumber, StoredBody, SubQueue, Timestamp, limits};

use super::Queue;
use super::forward::reason;
use super::messages::{Misfit, Unlock};
use crate::engine::Engine;
use crate::fact::Fact;
use crate::message::{EntityId, MessageState};
use crate::output::Output;
use crate::patch::Patch;

const REASON_BODY_DAMAGED: &str = "BodyDamaged";

impl Engine {
    /// Journals that the body of a message is damaged at its place `from`, and that the message has an empty body at
    /// `instead` from now on, which must be in the next commit group. A lock on the message is lost. Returns `false`
    /// and changes nothing if the message is gone or its body is no longer at `from`.
    pub fn lose_body(
        &mut self,
        now: Timestamp,
        body: (EntityId, SequenceNumber, BodyRef),
        instead: BodyRef,
        why: &str,
        out: &mut Output,
    ) -> bool {
        let (entity, sequence_number, from) = body;
        let lost = self.command(now, entity, |queue| {
            let entry = queue.sub_queue_of(sequence_number);
            let entry = entry.and_then(|sub_queue| queue.part(sub_queue).messages.get(sequence_number));
            let is_new = instead.group().is_some_and(|group| group >= queue.newest_group);
            let fits = entry.is_some_and(|entry| entry.body == from) && is_new;
            if fits {
                let text = format!("The body of the message was damaged on the disk and is lost: {why}");
                let text = text.chars().take(limits::DEAD_LETTER_TEXT_CHARS_MAX).collect();
                let patch = reason(REASON_BODY_DAMAGED, text);
                queue.record_end(now, Fact::BodyLost { entity, sequence_number, body: instead, patch }, out);
            }
            Ok(fits)
        });
        lost.unwrap_or(false)
    }
}

impl Engine {
    /// Returns whether there is no such message in any sub-queue.
    pub fn message_is_gone(&self, entity: EntityId, sequence_number: SequenceNumber) -> bool {
        self.queues.get(&entity).is_none_or(|queue| queue.sub_queue_of(sequence_number).is_none())
    }
}

impl Queue {
    pub(super) fn apply_lost(
        &mut self,
        number: SequenceNumber,
        body: BodyRef,
        patch: &Patch,
        freed: &mut Vec<StoredBody>,
    ) -> Result<(), Misfit> {
        let from = self.sub_queue_of(number).ok_or(Misfit::Missing)?;
        self.uses_asides = true;
        freed.extend(self.part_mut(from).messages.replace_body(number, body, 0)?);
        let to = match from {
            // The target rejects the message for its empty body, and the source then dead-letters it.
            SubQueue::Transfer => return Ok(()),
            SubQueue::TransferDeadLetter => from,
            // A topic has no other dead-letter queue.
            SubQueue::Main if self.kind == EntityKind::Topic => SubQueue::TransferDeadLetter,
            SubQueue::Main | SubQueue::DeadLetter => SubQueue::DeadLetter,
        };
        if from == to {
            self.unlock_lost(from, number)?;
        } else {
            let mut moving = self.part_mut(from).messages.remove(number)?;
            self.set_aside(&mut moving);
            self.part_mut(to).messages.insert(number, moving)?;
        }
        let messages = &mut self.part_mut(to).messages;
        patch.parts.iter().try_for_each(|part| messages.add_patch(number, part.clone()))
    }

    /// Releases the lock. The holder may have the undamaged body, but must not settle a message whose body is gone.
    fn unlock_lost(&mut self, sub_queue: SubQueue, number: SequenceNumber) -> Result<(), Misfit> {
        let messages = &mut self.part_mut(sub_queue).messages;
        if messages.get(number).is_none_or(|entry| entry.lock.is_none()) {
            return Ok(());
        }
        messages.unlock(number, Unlock { state: Some(MessageState::Active), ..Unlock::default() })
    }
}
