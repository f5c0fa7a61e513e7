//! The outbox: messages in transit to other queues, which may be in other shards.
//!
//! Each shard numbers its messages for each other shard. Messages of one such route travel in the order of their
//! numbers, and the target stores the newest number that it has accepted, so a message that is transferred twice is
//! stored once. A route has one batch in flight at a time. A message that the target rejects ends the batch, and is
//! dead-lettered here before any later message travels.

use std::collections::BTreeMap;

use peeklock_types::{BodyRef, EntityName, Placement, SequenceNumber, ShardId, SubQueue, Timestamp, limits};

use crate::engine::Engine;
use crate::error::{Error, ReplayError};
use crate::fact::Fact;
use crate::message::{Attributes, EntityId, NewMessage, Transfer};
use crate::output::Output;
use crate::queue::Queue;

const REASON_REFUSED: &str = "TransferFailed";

/// The largest number of a message on a route. No shard reaches it without damage.
pub(crate) const OUT_NUMBER_MAX: u64 = u64::MAX / 2;

#[derive(Debug, Default)]
pub(crate) struct Transfers {
    /// Maps a name to its shard.
    pub(crate) placement: Placement,
    /// The messages for each shard.
    pub(crate) routes: BTreeMap<ShardId, Route>,
    /// The newest number accepted from each shard.
    pub(crate) arrived: BTreeMap<ShardId, u64>,
}

#[derive(Debug, Default)]
pub(crate) struct Route {
    /// The newest assigned number.
    pub(crate) newest: u64,
    pub(crate) pending: BTreeMap<u64, (EntityId, SequenceNumber)>,
}

/// A message to transfer to another queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutMessage {
    pub number: u64,
    pub target: EntityName,
    pub body: BodyRef,
    pub size_bytes: u32,
    pub attributes: Box<Attributes>,
}

impl Transfers {
    /// Returns the number that the next message for `target` gets.
    pub(crate) fn next_number(&self, target: &EntityName) -> u64 {
        self.routes.get(&self.placement.of(target)).map_or(0, |route| route.newest) + 1
    }

    /// Returns the transfer that a fact is about to end, if there is one.
    pub(crate) fn leaving(queue: &Queue, fact: &Fact) -> Option<Transfer> {
        let (Fact::Completed { sub_queue: SubQueue::Transfer, sequence_number, .. }
        | Fact::TransferFailed { sub_queue: SubQueue::Transfer, sequence_number, .. }) = fact
        else {
            return None;
        };
        queue.transfer.messages.details_of(*sequence_number).and_then(|details| details.transfer.clone())
    }

    /// Checks that a message that a fact sends off is the next of its route.
    pub(crate) fn check(&self, fact: &Fact) -> Result<(), ReplayError> {
        let Some((target, number)) = sent_off(fact) else { return Ok(()) };
        let shard = self.placement.of(target);
        let newest = self.routes.get(&shard).map_or(0, |route| route.newest);
        if number <= newest || number > OUT_NUMBER_MAX {
            return Err(ReplayError::TransferOrder { shard, number });
        }
        Ok(())
    }

    /// Updates the routes after a fact changed a queue.
    pub(crate) fn follow(&mut self, fact: &Fact, leaving: Option<Transfer>) {
        if let Some(transfer) = leaving
            && let Some(route) = self.routes.get_mut(&self.placement.of(&transfer.target))
        {
            route.pending.remove(&transfer.number);
        }
        if let Fact::TransferStarted { entity, sequence_number, .. }
        | Fact::SentOn { entity, sequence_number, .. } = fact
            && let Some((target, number)) = sent_off(fact)
        {
            let route = self.routes.entry(self.placement.of(target)).or_default();
            route.newest = number;
            route.pending.insert(number, (*entity, *sequence_number));
        }
    }

    pub(crate) fn arrive(&mut self, shard: ShardId, number: u64) -> Result<(), ReplayError> {
        let newest = self.arrived.entry(shard).or_default();
        if number <= *newest || number > OUT_NUMBER_MAX {
            return Err(ReplayError::TransferOrder { shard, number });
        }
        *newest = number;
        Ok(())
    }

    pub(crate) fn forget(&mut self, gone: EntityId) {
        for route in self.routes.values_mut() {
            route.pending.retain(|_, (entity, _)| *entity != gone);
        }
    }
}

/// Returns the target to which a fact sends a message, and its number on the route.
fn sent_off(fact: &Fact) -> Option<(&EntityName, u64)> {
    match fact {
        Fact::TransferStarted { target, number, .. } => Some((target, *number)),
        Fact::SentOn { target, number, .. } => Some((target, *number)),
        _ => None,
    }
}

impl Engine {
    /// Returns the shards with messages in the outbox.
    pub fn transfer_targets(&self) -> impl Iterator<Item = ShardId> {
        self.transfers.routes.iter().filter(|(_, route)| !route.pending.is_empty()).map(|(shard, _)| *shard)
    }

    /// Returns the next messages for a shard, in order: at most `count_max`, and at most `size_bytes_max` together
    /// unless there is only one.
    pub fn outgoing(&self, shard: ShardId, count_max: usize, size_bytes_max: u64) -> Vec<OutMessage> {
        let Some(route) = self.transfers.routes.get(&shard) else { return Vec::new() };
        let mut size_bytes = 0;
        let messages = route.pending.iter().filter_map(|(&number, &place)| self.out_message(number, place));
        let fits = messages.take(count_max).take_while(|message| {
            let is_first = size_bytes == 0;
            size_bytes += u64::from(message.size_bytes).max(1);
            is_first || size_bytes <= size_bytes_max
        });
        fits.collect()
    }

    fn out_message(
        &self,
        number: u64,
        (entity, sequence_number): (EntityId, SequenceNumber),
    ) -> Option<OutMessage> {
        let queue = self.queues.get(&entity)?;
        let entry = queue.transfer.messages.get(sequence_number)?;
        let target = queue.transfer.messages.details_of(sequence_number)?.transfer.as_ref()?.target.clone();
        let attributes = Box::new(queue.attributes_of(sequence_number));
        Some(OutMessage { number, target, body: entry.body, size_bytes: entry.size_bytes, attributes })
    }

    /// Removes the messages up to number `upto`, which the shard has accepted.
    pub fn transferred(&mut self, shard: ShardId, upto: u64, out: &mut Output) {
        let Some(route) = self.transfers.routes.get(&shard) else { return };
        let done: Vec<_> = route.pending.range(..=upto).map(|(_, &place)| place).collect();
        for (entity, sequence_number) in done {
            self.record(Fact::Completed { entity, sub_queue: SubQueue::Transfer, sequence_number }, out);
        }
    }

    /// Moves a message that the shard rejected to the transfer dead-letter queue, with the reason.
    pub fn transfer_refused(&mut self, shard: ShardId, number: u64, reason: String, out: &mut Output) {
        let route = self.transfers.routes.get(&shard);
        let Some(&(entity, sequence_number)) = route.and_then(|route| route.pending.get(&number)) else {
            return;
        };
        let text = reason.chars().take(limits::DEAD_LETTER_TEXT_CHARS_MAX).collect();
        let patch = crate::queue::reason(REASON_REFUSED, text);
        let sub_queue = SubQueue::Transfer;
        self.record(Fact::TransferFailed { entity, sub_queue, sequence_number, patch }, out);
    }

    /// Stores a message from another shard, or from this one to itself. Returns whether it was stored: a message that
    /// was accepted before is not stored again.
    pub fn arrive(
        &mut self,
        now: Timestamp,
        source: ShardId,
        number: u64,
        target: &EntityName,
        message: NewMessage,
        out: &mut Output,
    ) -> Result<bool, Error> {
        if self.transfers.arrived.get(&source).is_some_and(|newest| *newest >= number) {
            return Ok(false);
        }
        let entity = self.find(target).ok_or_else(|| Error::NoSuchQueue { name: target.clone() })?;
        let plan = if self.topics.contains_key(&entity) {
            self.plan(now, entity, std::slice::from_ref(&message))?.pop()
        } else {
            self.command(now, entity, |queue| queue.check_send(now, std::slice::from_ref(&message)))?;
            None
        };
        self.record(Fact::Arrived { source, number }, out);
        let fact_count = out.facts.len();
        match plan {
            Some(plan) => self.put(now, entity, message, plan, out),
            None => self.command(now, entity, |queue| Ok(queue.store(now, message, out)))?,
        };
        Ok(out.facts.len() > fact_count)
    }

    /// Forwards at most `max` waiting messages of a sub-queue that forwards. Returns their number.
    pub(crate) fn forward(
        &mut self,
        entity: EntityId,
        sub_queue: SubQueue,
        max: usize,
        out: &mut Output,
    ) -> usize {
        for done in 0..max {
            let Some(queue) = self.queues.get_mut(&entity) else { return done };
            let Some(target) = queue.forwards_to(sub_queue).cloned() else { return done };
            let Some(sequence_number) = queue.part_mut(sub_queue).messages.next_to_forward() else {
                return done;
            };
            let number = self.transfers.next_number(&target);
            let Some(queue) = self.queues.get(&entity) else { return done };
            let is_dropped = self.comes_back_as_duplicate(queue, &target);
            let fact = queue.forward(sub_queue, sequence_number, &target, number, is_dropped);
            self.record(fact, out);
        }
        max
    }

    /// Returns whether `target` would drop messages of a queue as duplicates because they came from `target`: it is the
    /// queue itself or the subscription's own topic, and detects duplicates.
    fn comes_back_as_duplicate(&self, queue: &Queue, target: &EntityName) -> bool {
        let is_own = queue.name == *target || queue.name.topic().is_some_and(|topic| topic == *target);
        let target = self.find(target).filter(|_| is_own).and_then(|entity| self.queues.get(&entity));
        target.is_some_and(|target| target.settings.duplicate_window.is_some())
    }
}
