use std::collections::BTreeMap;

use peeklock_types::{EntityName, LockToken, SequenceNumber, SubQueue, Timestamp};

use crate::agenda::Agenda;
use crate::bodies::ColdScan;
use crate::error::{Error, ReplayError};
use crate::fact::Fact;
use crate::message::{EntityId, Message, NewMessage, ReceiveMode, Settlement};
use crate::number_map::NumberMap;
use crate::outbox::{ColdBody, Outbox, Received};
use crate::queue::Queue;
use crate::receivers::Receivers;

/// How many locks one call of [`Engine::tick`] releases and how many messages one call of [`Engine::deliver`] hands out at most, so that
/// the facts of one batch fit a journal group.
pub const FACTS_PER_CALL_MAX: usize = 4096;

/// All queues of one shard.
///
/// A command checks everything first: it is done whole, or refused with an [`Error`] and nothing has changed.
#[derive(Debug, Default)]
pub struct Engine {
    pub(crate) queues: NumberMap<EntityId, Queue>,
    pub(crate) names: BTreeMap<EntityName, EntityId>,
    /// The number that the next queue gets. Numbers are not used again, so a late command never meets a wrong queue.
    pub(crate) next_entity: EntityId,
    pub(crate) receivers: Receivers,
    pub(crate) agenda: Agenda,
    pub(crate) cold_scan: Option<ColdScan>,
}

impl Engine {
    /// Enqueues a batch, all or nothing. Returns the first message's sequence number; the others follow without a gap.
    ///
    /// Bodies lie in the log in the order of sequence numbers: a body's group is never before that of an earlier message of this queue.
    pub fn send(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        messages: &[NewMessage],
        out: &mut Outbox,
    ) -> Result<SequenceNumber, Error> {
        self.command(entity, |queue| queue.send(now, messages, out))
    }

    /// Settles a locked message. [`Error::LockLost`] if `token` does not hold it: the lock ran out by `now`, the message is gone, or
    /// somebody else holds it.
    pub fn settle(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        sub_queue: SubQueue,
        token: LockToken,
        settlement: Settlement,
        out: &mut Outbox,
    ) -> Result<(), Error> {
        self.command(entity, |queue| queue.settle(now, sub_queue, token, settlement, out))
    }

    /// Lets locks run for another lock duration from now, all of them or none. Returns when each runs out, in order.
    pub fn renew(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        sub_queue: SubQueue,
        tokens: &[LockToken],
        out: &mut Outbox,
    ) -> Result<Vec<Timestamp>, Error> {
        self.command(entity, |queue| queue.renew(now, sub_queue, tokens, out))
    }

    /// Hands out deferred messages by number, all of them or none. A message that is not deferred, or locked, is [`Error::NotFound`].
    #[expect(
        clippy::too_many_arguments,
        reason = "time and nonce are arguments, on top of what the receiver says"
    )]
    pub fn receive_deferred(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        sub_queue: SubQueue,
        numbers: &[SequenceNumber],
        mode: ReceiveMode,
        nonce: u64,
        out: &mut Outbox,
    ) -> Result<Vec<Received>, Error> {
        self.command(entity, |queue| queue.receive_deferred(now, sub_queue, numbers, mode, nonce, out))
    }

    /// Shows messages from `from` on, in order and in any state, without touching them. At most `max`, and never more than
    /// [`BATCH_COUNT_MAX`](peeklock_types::limits::BATCH_COUNT_MAX).
    pub fn peek(
        &self,
        entity: EntityId,
        sub_queue: SubQueue,
        from: SequenceNumber,
        max: usize,
    ) -> Result<Vec<Message>, Error> {
        let queue = self.queues.get(&entity).ok_or(Error::NoSuchEntity { entity })?;
        Ok(queue.peek(sub_queue, from, max))
    }

    /// Releases locks that ran out by `now`; the deliveries count as failed. If more than [`FACTS_PER_CALL_MAX`] ran out, the rest waits
    /// for the next call, and [`Engine::next_deadline`] says so by not being after `now`.
    pub fn tick(&mut self, now: Timestamp, out: &mut Outbox) {
        let mut budget = FACTS_PER_CALL_MAX;
        while budget > 0
            && let Some(address) = self.agenda.next_expired(now)
            && let Some(queue) = self.queues.get_mut(&address.entity)
        {
            budget -= queue.release_expired(now, address.sub_queue, budget, out);
            self.agenda.note(queue);
        }
    }

    /// When the next lock runs out.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.agenda.next_deadline()
    }

    /// Applies a fact that was read back from the journal. After an error the engine is not to be used further.
    pub fn apply(&mut self, fact: &Fact) -> Result<(), ReplayError> {
        // After replay the owner counts cold bodies afresh, so nobody needs to hear of freed ones.
        self.apply_fact(fact, &mut Vec::new())
    }

    pub(crate) fn apply_fact(&mut self, fact: &Fact, freed: &mut Vec<ColdBody>) -> Result<(), ReplayError> {
        match fact {
            Fact::QueueCreated { entity, name, settings, created_at } => {
                let expected = self.next_entity;
                if *entity != expected {
                    return Err(ReplayError::EntityOrder { entity: *entity, expected });
                }
                self.insert_queue(Queue::new(*entity, name.clone(), settings.clone(), *created_at))
            }
            Fact::QueueDeleted { entity } => self.remove_queue(*entity, freed),
            _ => {
                let entity = fact.entity();
                let queue = self.queues.get_mut(&entity).ok_or(ReplayError::NoSuchEntity { entity })?;
                queue.apply(fact, freed)?;
                self.agenda.note(queue);
                Ok(())
            }
        }
    }

    pub(crate) fn command<R>(
        &mut self,
        entity: EntityId,
        command: impl FnOnce(&mut Queue) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let queue = self.queues.get_mut(&entity).ok_or(Error::NoSuchEntity { entity })?;
        let done = command(queue);
        self.agenda.note(queue);
        done
    }
}
