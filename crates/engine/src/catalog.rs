//! Creating, deleting and finding queues.

use peeklock_types::{EntityName, QueueSettings, Timestamp};

use crate::engine::Engine;
use crate::error::{Error, ReplayError};
use crate::fact::Fact;
use crate::message::{EntityId, ReceiverId};
use crate::outbox::{ColdBody, Outbox};
use crate::queue::{Queue, cold};

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
    /// Neither deferred nor dead-lettered; locked ones included.
    pub active_count: u64,
    /// Set aside; locked ones included, dead-lettered ones not.
    pub deferred_count: u64,
    /// Locked right now, outside of the dead-letter queue.
    pub locked_count: u64,
    /// In the dead-letter queue, whatever their state.
    pub dead_letter_count: u64,
    /// Bytes of all bodies, dead-lettered ones included.
    pub size_bytes: u64,
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
        settings.check()?;
        let entity = self.next_entity;
        if entity.0 == u32::MAX {
            return Err(Error::NoEntityLeft);
        }
        self.record(Fact::QueueCreated { entity, name, settings, created_at: now }, out);
        Ok(entity)
    }

    /// Deletes a queue with all its messages. Its receivers are detached and listed in [`Outbox::closed`].
    pub fn delete_queue(&mut self, name: &EntityName, out: &mut Outbox) -> Result<EntityId, Error> {
        let entity = self.find(name).ok_or_else(|| Error::NoSuchQueue { name: name.clone() })?;
        let closed = self.receivers_of(entity);
        closed.iter().for_each(|&receiver| self.detach_receiver(receiver));
        out.closed.extend(closed);
        self.record(Fact::QueueDeleted { entity }, out);
        Ok(entity)
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

    fn record(&mut self, fact: Fact, out: &mut Outbox) {
        self.apply_fact(&fact, &mut out.freed).expect("a fact fits the state on which it was decided");
        out.facts.push(fact);
    }

    pub(crate) fn insert_queue(&mut self, queue: Queue) -> Result<(), ReplayError> {
        let (entity, expected) = (queue.entity, self.next_entity);
        if entity < expected || entity.0 == u32::MAX {
            return Err(ReplayError::EntityOrder { entity, expected });
        }
        queue.settings.check().map_err(|reason| ReplayError::Settings { entity, reason })?;
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
        for part in [&queue.main, &queue.dead_letter] {
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
