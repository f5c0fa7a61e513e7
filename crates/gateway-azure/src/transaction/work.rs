//! The steps of a transaction, held until its commit.

use bytes::Bytes;
use peeklock_broker::engine::{Attributes, EntityId, Settlement};
use peeklock_broker::{KeptBody, TransactionSettle, TransactionState, Upload};
use peeklock_types::{EntityName, SequenceNumber};

use crate::connection::link::EntityRef;
use crate::error::Refusal;

/// A message that waits for its transaction's commit, in its stored form.
#[derive(Debug)]
pub(crate) struct HeldMessage {
    pub(crate) body: HeldBody,
    pub(crate) attributes: Option<Box<Attributes>>,
}

#[derive(Debug)]
pub(crate) enum HeldBody {
    Whole(Bytes),
    /// A large body that was written and is not durable yet. The commit makes it durable; dropping it deletes it.
    Upload(Option<Upload>),
    Kept(KeptBody),
}

impl HeldMessage {
    /// Returns the reserved sequence number of the message.
    fn number(&self) -> Option<SequenceNumber> {
        let reserved = self.attributes.as_ref().and_then(|attributes| attributes.reserved);
        reserved.map(|reserved| reserved.sequence_number)
    }

    pub(super) fn size_bytes(&self) -> usize {
        let view = self.attributes.as_ref().and_then(|attributes| attributes.view.as_ref());
        let body = if let HeldBody::Whole(body) = &self.body { body.len() } else { 0 };
        body + view.map_or(0, Bytes::len)
    }
}

/// One transactional delivery: its messages are sent together.
#[derive(Debug)]
pub(crate) struct HeldSend {
    pub(crate) target: EntityName,
    pub(crate) entity: EntityRef,
    pub(crate) messages: Vec<HeldMessage>,
}

/// All steps of a commit.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// The one queue whose messages are settled.
    settled: Option<(EntityName, EntityRef)>,
    /// The queue, or the topic of subscriptions, that settlements, cancellations and states change, and its first
    /// entity. They share a shard.
    changed: Option<(EntityName, EntityRef)>,
    pub(crate) settles: Vec<TransactionSettle>,
    pub(crate) cancels: Vec<(EntityId, SequenceNumber)>,
    pub(crate) states: Vec<TransactionState>,
    pub(crate) sends: Vec<HeldSend>,
    pub(super) step_count: usize,
    pub(super) size_bytes: usize,
}

impl Work {
    /// Returns the entity whose shard commits: that of the settlements, else that of another change, else that of the
    /// first send. Returns `None` if the transaction has no steps.
    pub(crate) fn home(&self) -> Option<EntityRef> {
        let of_sends = || self.sends.first().map(|send| send.entity);
        let changed = self.settled.as_ref().or(self.changed.as_ref());
        changed.map(|(_, entity)| *entity).or_else(of_sends)
    }

    /// Stores the entity that a step changes. Rejects a second one: one shard commits the whole transaction.
    pub(super) fn change(&mut self, name: &EntityName, entity: EntityRef) -> Result<(), Refusal> {
        let root = name.topic().unwrap_or_else(|| name.clone());
        let (changed, _) = self.changed.get_or_insert_with(|| (root.clone(), entity));
        if *changed != root {
            return Err(other_queue(changed, name));
        }
        Ok(())
    }

    /// Adds settlements of messages of one queue. Rejects those of a second queue.
    pub(super) fn settle(
        &mut self,
        name: &EntityName,
        entity: EntityRef,
        settles: Vec<TransactionSettle>,
    ) -> Result<(), Refusal> {
        self.change(name, entity)?;
        let (settled, _) = self.settled.get_or_insert_with(|| (name.clone(), entity));
        if settled != name {
            return Err(other_queue(settled, name));
        }
        self.settles.extend(settles);
        Ok(())
    }

    fn bodies(&mut self) -> impl Iterator<Item = &mut HeldBody> {
        self.sends.iter_mut().flat_map(|send| &mut send.messages).map(|message| &mut message.body)
    }

    /// Removes and returns the large bodies that are not durable.
    pub(crate) fn take_uploads(&mut self) -> Vec<Upload> {
        let upload =
            |body: &mut HeldBody| if let HeldBody::Upload(upload) = body { upload.take() } else { None };
        self.bodies().filter_map(upload).collect()
    }

    /// Puts durable bodies in the places of those that were removed.
    pub(crate) fn put_kept(&mut self, kept: Vec<KeptBody>) {
        let awaited = self.bodies().filter(|body| matches!(body, HeldBody::Upload(None)));
        awaited.zip(kept).for_each(|(body, kept)| *body = HeldBody::Kept(kept));
    }

    /// Drops the listed messages that the transaction itself scheduled, and returns their size. `numbers` keeps the
    /// others.
    pub(super) fn drop_scheduled(&mut self, entity: EntityId, numbers: &mut Vec<SequenceNumber>) -> usize {
        let mut dropped_bytes = 0;
        for send in self.sends.iter_mut().filter(|send| send.entity.entity == entity) {
            send.messages.retain(|message| {
                let place = numbers.iter().position(|number| message.number() == Some(*number));
                if let Some(place) = place {
                    numbers.swap_remove(place);
                    dropped_bytes += message.size_bytes();
                }
                place.is_none()
            });
        }
        self.sends.retain(|send| !send.messages.is_empty());
        self.size_bytes = self.size_bytes.saturating_sub(dropped_bytes);
        dropped_bytes
    }
}

pub(super) fn size_of(settlement: &Settlement) -> usize {
    let bytes = |patch: &Option<Bytes>| patch.as_ref().map_or(0, Bytes::len);
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    match settlement {
        Settlement::Complete | Settlement::Release | Settlement::Interrupt => 0,
        Settlement::Abandon { patch, .. } | Settlement::Defer { patch } => bytes(patch),
        Settlement::DeadLetter { reason, description, patch } => {
            text(reason) + text(description) + bytes(patch)
        }
    }
}

fn other_queue(changed: &EntityName, name: &EntityName) -> Refusal {
    Refusal::not_allowed(format!(
        "the transaction changes messages of '{changed}' already, and cannot change those of '{name}' too; it may send to any queue. Use \
         one transaction for each"
    ))
}
