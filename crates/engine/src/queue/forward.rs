//! Forwards messages to other queues.

use peeklock_types::{EntityName, SequenceNumber, SubQueue, limits};

use super::Queue;
use crate::fact::Fact;
use crate::message::{Attributes, Origin, TransferReason};
use crate::patch::{Patch, PatchPart};

const REASON_TOO_MANY_HOPS: &str = "MaxTransferHopCountExceeded";

impl Queue {
    /// Returns the target to which a sub-queue forwards its messages, if it does.
    pub(crate) fn forwards_to(&self, sub_queue: SubQueue) -> Option<&EntityName> {
        match sub_queue {
            SubQueue::Main => self.settings.forward_to.as_ref(),
            SubQueue::DeadLetter => self.settings.forward_dead_letters_to.as_ref(),
            SubQueue::Transfer | SubQueue::TransferDeadLetter => None,
        }
    }

    /// Returns whether the sub-queue has messages to forward.
    pub(crate) fn has_to_forward(&self, sub_queue: SubQueue) -> bool {
        self.forwards_to(sub_queue).is_some() && self.part(sub_queue).messages.can_forward()
    }

    /// Decides the fact for a message to forward, as number `number` of the route to the target's shard. `is_dropped`
    /// is set if the target has had the message and would drop it as a duplicate of itself.
    pub(crate) fn forward(
        &self,
        sub_queue: SubQueue,
        sequence_number: SequenceNumber,
        target: &EntityName,
        number: u64,
        is_dropped: bool,
    ) -> Fact {
        let entity = self.entity;
        let details = self.part(sub_queue).messages.details_of(sequence_number);
        let hop_count =
            details.and_then(|details| details.origin.as_ref()).map_or(0, |origin| origin.hop_count);
        if hop_count < limits::FORWARD_HOPS_MAX && !is_dropped {
            return Fact::TransferStarted {
                entity,
                sub_queue,
                sequence_number,
                target: target.clone(),
                number,
            };
        }
        let text = format!(
            "The message was forwarded {hop_count} times and was not forwarded to '{target}'; look for a cycle."
        );
        let patch = reason(REASON_TOO_MANY_HOPS, text);
        match sub_queue {
            SubQueue::Main if self.settings.forward_dead_letters_to.is_none() => {
                Fact::DeadLettered { entity, sub_queue, sequence_number, failed: false, patch }
            }
            // The dead-letter queue would forward the message too.
            _ => Fact::TransferFailed { entity, sub_queue, sequence_number, patch },
        }
    }

    /// Returns whether messages that a transaction has sent are in transit from here.
    pub(crate) fn owes_sends(&self) -> bool {
        let messages = &self.transfer.messages;
        let why = |number| Some(messages.details_of(number)?.transfer.as_ref()?.why);
        messages
            .iter_from(SequenceNumber(0))
            .any(|(number, _)| why(number) == Some(TransferReason::Transaction))
    }

    /// Returns the attributes of a message in transit for its target.
    pub(crate) fn attributes_of(&self, sequence_number: SequenceNumber) -> Attributes {
        let messages = &self.transfer.messages;
        let details = messages.details_of(sequence_number).cloned().unwrap_or_default();
        let mut attributes = Attributes {
            session: details.session,
            time_to_live: details.time_to_live,
            scheduled_for: details.due,
            message_id: details.message_id,
            ..Attributes::default()
        };
        attributes.reserved = details.transfer.as_ref().and_then(|transfer| transfer.reserved);
        let why = details.transfer.map_or(TransferReason::Forward, |transfer| transfer.why);
        if why != TransferReason::Transaction {
            let mut origin =
                details.origin.unwrap_or_else(|| Origin { sequence_number, ..Origin::default() });
            origin.hop_count = origin.hop_count.saturating_add(1);
            attributes.patch = messages.patch_of(sequence_number).cloned().unwrap_or_default();
            if why == TransferReason::DeadLetter {
                origin.dead_letter_source = Some(self.name.clone());
                // Dead letters do not expire. An expired one would be deleted as soon as it arrives.
                attributes.time_to_live = None;
            }
            attributes.origin = Some(origin);
        }
        attributes
    }
}

/// Creates a patch with the reason for dead-lettering.
pub(crate) fn reason(reason: &str, description: String) -> Patch {
    let mut patch = Patch::default();
    patch.add(PatchPart::DeadLetter { reason: Some(reason.to_owned()), description: Some(description) });
    patch
}
