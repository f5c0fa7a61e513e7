//! Creates, deletes and finds queues.

use std::ops::Bound;

use peeklock_filter::Rule;
use peeklock_types::{EntityKind, EntityName, QueueSettings, StoredBody, Timestamp};

use crate::engine::{Engine, FACTS_PER_CALL_MAX};
use crate::error::{Error, ReplayError};
use crate::fact::Fact;
use crate::message::{EntityId, Metadata, ReceiverId};
use crate::order::Classifier;
use crate::output::{CloseReason, Output};
use crate::queue::{Queue, standalone};
use crate::wire::kept;

/// The properties of a queue that are available without a visit to its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueView<'a> {
    pub entity: EntityId,
    pub name: &'a EntityName,
    pub kind: EntityKind,
    pub settings: &'a QueueSettings,
    pub created_at: Timestamp,
    /// The time of the last change of the settings.
    pub updated_at: Timestamp,
    /// The time of the last use, which is not before the start of the program.
    pub used_at: Timestamp,
    /// Increases with each change of the settings.
    pub revision: u64,
    pub metadata: &'a Metadata,
    pub counts: Counts,
    pub rule_count: usize,
}

/// A rule of a subscription.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RuleView<'a> {
    pub rule: &'a Rule,
    pub created_at: Timestamp,
}

/// The message counts of a queue, updated with every change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that are neither deferred nor scheduled nor dead-lettered, including locked and delayed ones.
    pub active_count: u64,
    /// Deferred messages, including locked ones, without dead-lettered ones.
    pub deferred_count: u64,
    /// Messages that are not due yet.
    pub scheduled_count: u64,
    /// Messages that are locked now, outside of the dead-letter queue.
    pub locked_count: u64,
    /// Messages in the dead-letter queue, in any state.
    pub dead_letter_count: u64,
    /// Messages in transit to another queue.
    pub transfer_count: u64,
    /// Messages that could not be transferred to another queue.
    pub transfer_dead_letter_count: u64,
    /// Bytes of all bodies, including dead-lettered ones.
    pub size_bytes: u64,
}

impl Counts {
    /// Returns the number of all messages in all sub-queues.
    pub fn message_count(&self) -> u64 {
        self.active_count
            + self.deferred_count
            + self.scheduled_count
            + self.dead_letter_count
            + self.transfer_count
            + self.transfer_dead_letter_count
    }
}

impl Engine {
    pub fn create_queue(
        &mut self,
        now: Timestamp,
        name: EntityName,
        settings: QueueSettings,
        out: &mut Output,
    ) -> Result<EntityId, Error> {
        self.create(now, name, EntityKind::Queue, settings, out)
    }

    /// Creates a queue or a topic. [`Engine::create_subscription`] creates a subscription.
    pub fn create(
        &mut self,
        now: Timestamp,
        name: EntityName,
        kind: EntityKind,
        settings: QueueSettings,
        out: &mut Output,
    ) -> Result<EntityId, Error> {
        if name.is_subscription() || kind == EntityKind::Subscription {
            return Err(Error::OtherKind { name, kind });
        }
        let settings = self.check_new(&name, kind, &settings)?;
        let entity = self.next_entity;
        self.record(Fact::QueueCreated { entity, name, kind, settings, created_at: now }, out);
        Ok(entity)
    }

    pub(crate) fn check_new(
        &self,
        name: &EntityName,
        kind: EntityKind,
        settings: &QueueSettings,
    ) -> Result<Box<QueueSettings>, Error> {
        if let Some(queue) = self.find(name).and_then(|entity| self.queues.get(&entity)) {
            let (kind, entity) = (queue.kind, queue.entity);
            return Err(Error::AlreadyExists { name: name.clone(), kind, entity });
        }
        let settings = Box::new(kept(settings));
        settings.check()?;
        settings.check_kind(kind)?;
        check_order(&settings)?;
        if self.next_entity.0 == u32::MAX {
            return Err(Error::NoEntityLeft);
        }
        Ok(settings)
    }

    /// Checks that the entity still has the revision that the caller has read. `None` accepts any revision.
    pub fn check_revision(&self, name: &EntityName, expected: Option<u64>) -> Result<(), Error> {
        let queue = self.find(name).and_then(|entity| self.queues.get(&entity));
        match (queue, expected) {
            (Some(queue), Some(expected)) if queue.revision != expected => {
                Err(Error::RevisionChanged { name: name.clone(), expected, found: queue.revision })
            }
            _ => Ok(()),
        }
    }

    /// Changes a queue's settings. If the queue no longer permits receives, its receivers are detached.
    pub fn update_queue(
        &mut self,
        now: Timestamp,
        name: &EntityName,
        settings: QueueSettings,
        out: &mut Output,
    ) -> Result<EntityId, Error> {
        let entity = self.find(name).ok_or_else(|| Error::NoSuchQueue { name: name.clone() })?;
        let settings = kept(&settings);
        self.command(now, entity, |queue| {
            settings.check()?;
            settings.check_kind(queue.kind)?;
            check_order(&settings)?;
            Ok(queue.settings.check_change(&settings)?)
        })?;
        self.record(Fact::QueueUpdated { entity, settings: Box::new(settings), at: now }, out);
        let mut left = FACTS_PER_CALL_MAX;
        for receiver in self.receivers_of(entity) {
            self.follow_bound(entity, receiver);
            if !self.can_receive(entity, receiver) {
                left -= self.close_receiver(now, receiver, CloseReason::Disabled, left, out);
            }
        }
        Ok(entity)
    }

    /// Replaces the metadata of a queue.
    pub fn set_metadata(
        &mut self,
        now: Timestamp,
        name: &EntityName,
        metadata: Metadata,
        out: &mut Output,
    ) -> Result<EntityId, Error> {
        let entity = self.find(name).ok_or_else(|| Error::NoSuchQueue { name: name.clone() })?;
        metadata.check()?;
        self.touch(now, entity);
        self.record(Fact::MetadataSet { entity, metadata: Box::new(metadata) }, out);
        Ok(entity)
    }

    /// Deletes a queue with all its messages, or a topic with all its subscriptions. Their receivers are detached and
    /// listed in [`Output::closed`]. The deletion is rejected while messages of a transaction are in transit from here
    /// to other queues: they were confirmed to the client and must not be lost.
    pub fn delete_queue(
        &mut self,
        now: Timestamp,
        name: &EntityName,
        out: &mut Output,
    ) -> Result<EntityId, Error> {
        let entity = self.find(name).ok_or_else(|| Error::NoSuchQueue { name: name.clone() })?;
        let all = self.with_subscriptions(entity);
        let owing = all.iter().filter_map(|entity| self.queues.get(entity)).find(|queue| queue.owes_sends());
        if let Some(queue) = owing {
            return Err(Error::StillSending { name: queue.name.clone() });
        }
        for entity in all {
            for receiver in self.receivers_of(entity) {
                // Locked messages are deleted with the queue and need not be released first.
                self.close_receiver(now, receiver, CloseReason::Deleted, 0, out);
            }
            self.record(Fact::QueueDeleted { entity }, out);
        }
        Ok(entity)
    }

    pub(crate) fn delete_if_idle(&mut self, now: Timestamp, entity: EntityId, out: &mut Output) {
        let Some(queue) = self.queues.get(&entity) else { return };
        if queue.idle_at().is_none_or(|at| at > now) {
            return;
        }
        let all = self.with_subscriptions(entity);
        if let Some(used_at) = self.last_use(now, &all).filter(|used_at| *used_at > queue.used_at) {
            // A topic is in use as long as one of its subscriptions is.
            return self.touch(used_at, entity);
        }
        for entity in all {
            self.record(Fact::QueueDeleted { entity }, out);
        }
    }

    /// Returns the last use of any of these entities: `now` if one has a receiver or a message in transit to another
    /// queue.
    fn last_use(&self, now: Timestamp, entities: &[EntityId]) -> Option<Timestamp> {
        let queues = entities.iter().filter_map(|entity| self.queues.get(entity));
        let used_at = |queue: &Queue| match queue.receiver_count == 0 && queue.transfer.messages.count() == 0
        {
            true => queue.used_at,
            false => now,
        };
        queues.map(|queue| used_at(queue)).max()
    }

    fn can_receive(&self, entity: EntityId, receiver: ReceiverId) -> bool {
        let sub_queue = self.receivers.by_id.get(&receiver).map(|receiver| receiver.address.sub_queue);
        let queue = self.queues.get(&entity);
        queue.zip(sub_queue).is_some_and(|(queue, sub_queue)| {
            queue.settings.status.can_receive() && queue.forwards_to(sub_queue).is_none()
        })
    }

    pub fn find(&self, name: &EntityName) -> Option<EntityId> {
        self.names.get(name).copied()
    }

    pub fn queue(&self, entity: EntityId) -> Option<QueueView<'_>> {
        self.queues.get(&entity).map(|queue| view(queue))
    }

    /// Returns whether messages for this entity must have views: the filters of a topic or the order of a queue
    /// evaluate them.
    pub fn needs_view(&self, entity: EntityId) -> bool {
        let queue = self.queues.get(&entity);
        queue.is_some_and(|queue| queue.kind == EntityKind::Topic || queue.settings.order.is_some())
    }

    /// Returns all queues, by name.
    pub fn queues(&self) -> impl Iterator<Item = QueueView<'_>> {
        self.queues_after(None)
    }

    /// Returns the queues whose names sort after this one.
    pub fn queues_after(&self, after: Option<&EntityName>) -> impl Iterator<Item = QueueView<'_>> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.names.range::<EntityName, _>((start, Bound::Unbounded));
        names.filter_map(|(_, &entity)| self.queue(entity))
    }

    fn receivers_of(&self, entity: EntityId) -> Vec<ReceiverId> {
        let here = self.receivers.by_id.iter().filter(|(_, receiver)| receiver.address.entity == entity);
        let mut found: Vec<_> = here.map(|(&id, _)| id).collect();
        found.sort_unstable();
        found
    }

    pub(crate) fn insert_queue(&mut self, queue: Queue) -> Result<(), ReplayError> {
        let (entity, expected) = (queue.entity, self.next_entity);
        if entity < expected || entity.0 == u32::MAX {
            return Err(ReplayError::EntityOrder { entity, expected });
        }
        let checked = queue.settings.check().and_then(|()| queue.settings.check_kind(queue.kind));
        checked.map_err(|reason| ReplayError::Settings { entity, reason })?;
        if self.names.contains_key(&queue.name) {
            return Err(ReplayError::NameTaken { entity, name: queue.name });
        }
        self.insert_topic(&queue)?;
        self.next_entity = EntityId(entity.0 + 1);
        self.names.insert(queue.name.clone(), entity);
        self.queues.insert(entity, Box::new(queue));
        Ok(())
    }

    pub(crate) fn remove_queue(
        &mut self,
        entity: EntityId,
        freed: &mut Vec<StoredBody>,
    ) -> Result<(), ReplayError> {
        let mut queue = self.queues.remove(&entity).ok_or(ReplayError::NoSuchEntity { entity })?;
        self.names.remove(&queue.name);
        self.remove_topic(&queue);
        self.agenda.forget(&mut queue);
        self.transfers.forget(entity);
        for part in queue.parts() {
            if part.messages.standalone_count() > 0 {
                freed.extend(
                    part.messages.iter_from(Default::default()).filter_map(|(_, entry)| standalone(&entry)),
                );
            }
        }
        Ok(())
    }
}

/// Checks that the conditions of an order can be parsed.
fn check_order(settings: &QueueSettings) -> Result<(), Error> {
    settings.order.as_ref().map_or(Ok(()), |order| Classifier::new(order).map(|_| ()))
}

fn view(queue: &Queue) -> QueueView<'_> {
    QueueView {
        entity: queue.entity,
        name: &queue.name,
        kind: queue.kind,
        settings: &queue.settings,
        created_at: queue.created_at,
        updated_at: queue.updated_at,
        used_at: queue.used_at,
        revision: queue.revision,
        metadata: &queue.metadata,
        counts: queue.counts(),
        rule_count: queue.rules.len(),
    }
}
