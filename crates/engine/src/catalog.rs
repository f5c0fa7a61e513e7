//! Creating, deleting and finding queues.

use peeklock_types::{EntityName, QueueSettings, Timestamp};

use crate::engine::{Engine, FACTS_PER_CALL_MAX};
use crate::error::{Error, ReplayError};
use crate::fact::Fact;
use crate::message::{EntityId, ReceiverId};
use crate::outbox::{CloseReason, ColdBody, Outbox};
use crate::queue::{Queue, cold};
use crate::wire_settings::kept;

/// What can be told about a queue without looking at its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueView<'a> {
    pub entity: EntityId,
    pub name: &'a EntityName,
    pub settings: &'a QueueSettings,
    pub created_at: Timestamp,
    pub counts: Counts,
}

/// How many messages a queue holds, kept as they come and go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Neither deferred nor scheduled nor dead-lettered; locked and delayed ones included.
    pub active_count: u64,
    /// Set aside; locked ones included, dead-lettered ones not.
    pub deferred_count: u64,
    /// Not due yet.
    pub scheduled_count: u64,
    /// Locked right now, outside of the dead-letter queue.
    pub locked_count: u64,
    /// In the dead-letter queue, whatever their state.
    pub dead_letter_count: u64,
    /// On the way to another queue.
    pub transfer_count: u64,
    /// Could not be brought to another queue.
    pub transfer_dead_letter_count: u64,
    /// Bytes of all bodies, dead-lettered ones included.
    pub size_bytes: u64,
}

impl Counts {
    /// All messages, wherever they are.
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
        out: &mut Outbox,
    ) -> Result<EntityId, Error> {
        if let Some(entity) = self.find(&name) {
            return Err(Error::AlreadyExists { name, entity });
        }
        let settings = Box::new(kept(&settings));
        settings.check(&name)?;
        let entity = self.next_entity;
        if entity.0 == u32::MAX {
            return Err(Error::NoEntityLeft);
        }
        self.record(Fact::QueueCreated { entity, name, settings, created_at: now }, out);
        Ok(entity)
    }

    /// Changes a queue's settings. Whoever receives from a queue that hands out nothing any more is detached.
    pub fn update_queue(
        &mut self,
        now: Timestamp,
        name: &EntityName,
        settings: QueueSettings,
        out: &mut Outbox,
    ) -> Result<EntityId, Error> {
        let entity = self.find(name).ok_or_else(|| Error::NoSuchQueue { name: name.clone() })?;
        let settings = kept(&settings);
        self.command(now, entity, |queue| {
            settings.check(&queue.name)?;
            Ok(queue.settings.check_change(&settings)?)
        })?;
        self.record(Fact::QueueUpdated { entity, settings: Box::new(settings) }, out);
        let mut left = FACTS_PER_CALL_MAX;
        for receiver in self.receivers_of(entity) {
            if !self.can_receive(entity, receiver) {
                left -= self.close_receiver(now, receiver, CloseReason::Disabled, left, out);
            }
        }
        Ok(entity)
    }

    /// Deletes a queue with all its messages. Its receivers are detached and listed in [`Outbox::closed`]. Refused while messages of a
    /// transaction are on their way from here to other queues: they were confirmed, and are not this queue's to lose.
    pub fn delete_queue(
        &mut self,
        now: Timestamp,
        name: &EntityName,
        out: &mut Outbox,
    ) -> Result<EntityId, Error> {
        let entity = self.find(name).ok_or_else(|| Error::NoSuchQueue { name: name.clone() })?;
        if self.queues.get(&entity).is_some_and(Queue::owes_sends) {
            return Err(Error::StillSending { name: name.clone() });
        }
        for receiver in self.receivers_of(entity) {
            // What is locked goes with the queue and need not return first.
            self.close_receiver(now, receiver, CloseReason::Deleted, 0, out);
        }
        self.record(Fact::QueueDeleted { entity }, out);
        Ok(entity)
    }

    pub(crate) fn delete_if_idle(&mut self, now: Timestamp, entity: EntityId, out: &mut Outbox) {
        let Some(queue) = self.queues.get(&entity) else { return };
        if queue.idle_at().is_some_and(|at| at <= now) {
            self.record(Fact::QueueDeleted { entity }, out);
        }
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
        self.queues.get(&entity).map(view)
    }

    /// All queues, by name.
    pub fn queues(&self) -> impl Iterator<Item = QueueView<'_>> {
        self.names.values().filter_map(|&entity| self.queue(entity))
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
        queue.settings.check(&queue.name).map_err(|reason| ReplayError::Settings { entity, reason })?;
        if self.names.contains_key(&queue.name) {
            return Err(ReplayError::NameTaken { entity, name: queue.name });
        }
        self.next_entity = EntityId(entity.0 + 1);
        self.names.insert(queue.name.clone(), entity);
        self.queues.insert(entity, queue);
        Ok(())
    }

    pub(crate) fn remove_queue(
        &mut self,
        entity: EntityId,
        freed: &mut Vec<ColdBody>,
    ) -> Result<(), ReplayError> {
        let mut queue = self.queues.remove(&entity).ok_or(ReplayError::NoSuchEntity { entity })?;
        self.names.remove(&queue.name);
        self.agenda.forget(&mut queue);
        self.transfers.forget(entity);
        for part in queue.parts() {
            if part.messages.cold_count() > 0 {
                freed
                    .extend(part.messages.iter_from(Default::default()).filter_map(|(_, entry)| cold(entry)));
            }
        }
        Ok(())
    }
}

fn view(queue: &Queue) -> QueueView<'_> {
    QueueView {
        entity: queue.entity,
        name: &queue.name,
        settings: &queue.settings,
        created_at: queue.created_at,
        counts: queue.counts(),
    }
}
