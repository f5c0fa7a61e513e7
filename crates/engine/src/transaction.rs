//! Several settlements and sends as one command.
//!
//! A message that a transaction schedules gets its sequence number before it is stored, because the client may cancel
//! it by that number. The number is reserved durably with the step. It stays unused if the transaction is rolled back.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use peeklock_types::{
    EntityName, LockToken, SequenceNumber, SessionId, ShardId, SubQueue, Timestamp, limits,
};

use crate::engine::Engine;
use crate::error::Error;
use crate::fact::Fact;
use crate::message::{Attributes, EntityId, NewMessage, ReceiverId, Settlement, check_count};
use crate::output::Output;
use crate::plan::{Plan, check_copies};

/// The operations of a transaction, all or nothing.
#[derive(Debug, Default)]
pub struct Transaction {
    /// Settlements of messages of one queue.
    pub settles: Vec<(SubQueue, LockToken, Settlement)>,
    /// Scheduled messages of queues and topics of this shard to delete.
    pub cancels: Vec<(EntityId, SequenceNumber)>,
    pub states: Vec<NewState>,
    /// Messages to any queues.
    pub sends: Vec<(EntityName, NewMessage)>,
}

/// A new state for a session of a queue of this shard.
#[derive(Debug)]
pub struct NewState {
    pub entity: EntityId,
    pub session: SessionId,
    /// The receiver that must hold the session.
    pub receiver: ReceiverId,
    pub state: Option<Bytes>,
}

/// Messages to entities of this shard, and the plans of the messages to topics, in the same order.
type Local = (Vec<(EntityId, NewMessage)>, BTreeMap<EntityId, VecDeque<Plan>>);

impl Engine {
    /// Reserves sequence numbers for messages that a transaction schedules.
    pub fn reserve_numbers(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        count: usize,
        out: &mut Output,
    ) -> Result<Vec<SequenceNumber>, Error> {
        self.command(now, entity, |queue| {
            queue.check_open()?;
            check_count(count)?;
            queue.check_numbers(count)?;
            let first = queue.next_number.0;
            let next = first + count as u64;
            queue.record(Fact::NumbersReserved { entity, next: SequenceNumber(next) }, out);
            Ok((first..next).map(SequenceNumber).collect())
        })
    }

    /// Commits a transaction of the queue `entity` in the shard `here`. Messages for other shards go through the
    /// queue's outbox: they are part of the transaction, and are transferred to their targets afterwards.
    pub fn commit(
        &mut self,
        now: Timestamp,
        here: ShardId,
        entity: EntityId,
        transaction: Transaction,
        out: &mut Output,
    ) -> Result<(), Error> {
        check_size(&transaction)?;
        let Transaction { settles, cancels, states, sends } = transaction;
        let settled = self.decide_settles(now, entity, settles)?;
        let cancelled = self.decide_cancels(now, cancels)?;
        for NewState { entity, session, receiver, state } in &states {
            self.check_session_state(now, *entity, session, *receiver, state.as_ref())?;
        }
        let placement = self.transfers.placement;
        let (local, remote): (Vec<_>, Vec<_>) =
            sends.into_iter().partition(|(to, _)| placement.of(to) == here);
        let (local, mut plans) = self.check_local(now, local)?;
        self.command(now, entity, |queue| {
            queue.check_numbers(remote.len() + local.len())?;
            // Messages for this queue itself come first.
            let bodies = local.iter().filter(|(target, _)| *target == entity).map(|(_, message)| message);
            queue.check_bodies(bodies.chain(remote.iter().map(|(_, message)| message)))
        })?;
        // Nothing can fail from here on.
        self.command(now, entity, |queue| {
            settled.into_iter().for_each(|fact| queue.record_end(now, fact, out));
            Ok(())
        })?;
        for (entity, numbers) in cancelled {
            self.command(now, entity, |queue| queue.cancel_scheduled(&numbers, out))?;
        }
        for NewState { entity, session, receiver, state } in states {
            self.set_session_state(now, entity, &session, receiver, state, out)?;
        }
        for (target, message) in local {
            match plans.get_mut(&target).and_then(VecDeque::pop_front) {
                Some(plan) => self.put(now, target, message, plan, out),
                None => self.command(now, target, |queue| Ok(queue.store_sent(now, message, out)))?,
            };
        }
        for (target, message) in remote {
            self.send_on(now, entity, target, message, out);
        }
        Ok(())
    }

    fn decide_settles(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        settles: Vec<(SubQueue, LockToken, Settlement)>,
    ) -> Result<Vec<Fact>, Error> {
        let mut seen: BTreeMap<SequenceNumber, ()> = BTreeMap::new();
        self.command(now, entity, |queue| {
            let decide = |(sub_queue, token, settlement): (SubQueue, LockToken, Settlement)| {
                let sequence_number = token.sequence_number();
                if seen.insert(sequence_number, ()).is_some() {
                    return Err(Error::Repeated { sequence_number });
                }
                queue.decide_settle(now, sub_queue, token, settlement)
            };
            settles.into_iter().map(decide).collect()
        })
    }

    /// Groups the scheduled messages to delete by entity, and checks that all exist.
    fn decide_cancels(
        &mut self,
        now: Timestamp,
        cancels: Vec<(EntityId, SequenceNumber)>,
    ) -> Result<BTreeMap<EntityId, Vec<SequenceNumber>>, Error> {
        let mut by_entity: BTreeMap<EntityId, Vec<SequenceNumber>> = BTreeMap::new();
        for (entity, number) in cancels {
            by_entity.entry(entity).or_default().push(number);
        }
        for (&entity, numbers) in &by_entity {
            self.check_scheduled(now, entity, numbers)?;
        }
        Ok(by_entity)
    }

    /// Checks that the queues and topics of this shard accept their messages. Returns the messages with ids in place of
    /// names, and the plans of the messages to topics.
    fn check_local(&mut self, now: Timestamp, sends: Vec<(EntityName, NewMessage)>) -> Result<Local, Error> {
        let mut by_queue: BTreeMap<EntityId, Vec<NewMessage>> = BTreeMap::new();
        let mut found = Vec::with_capacity(sends.len());
        for (name, message) in sends {
            let entity = self.find(&name).ok_or(Error::NoSuchQueue { name })?;
            by_queue.entry(entity).or_default().push(message.clone());
            found.push((entity, message));
        }
        let mut plans = BTreeMap::new();
        for (entity, messages) in by_queue {
            if self.topics.contains_key(&entity) {
                plans.insert(entity, self.plan(now, entity, &messages)?.into());
            } else {
                self.command(now, entity, |queue| {
                    queue.check_send(now, &messages)?;
                    queue.check_rates(now, &messages)
                })?;
            }
        }
        check_copies(plans.values().flatten())?;
        Ok((found, plans))
    }

    fn send_on(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        target: EntityName,
        message: NewMessage,
        out: &mut Output,
    ) {
        let Some(queue) = self.queues.get(&entity) else { return };
        let NewMessage { body, size_bytes, attributes } = message;
        let attributes = Attributes::kept(attributes, false);
        let (sequence_number, number) = (queue.next_number, self.transfers.next_number(&target));
        let enqueued_at = now;
        let fact = Fact::SentOn {
            entity,
            sequence_number,
            enqueued_at,
            body,
            size_bytes,
            attributes,
            target: Box::new(target),
            number,
        };
        self.record(fact, out);
    }
}

/// Limits the bytes that a transaction adds to its commit group. Large bodies are not part of the group.
fn check_size(transaction: &Transaction) -> Result<(), Error> {
    let in_group = transaction.sends.iter().filter(|(_, message)| !message.body.is_standalone());
    let sent = in_group.map(|(_, message)| message.size_bytes as usize);
    let changed = transaction.settles.iter().map(|(.., settlement)| settlement.size_bytes());
    let states = transaction.states.iter().map(|state| state.state.as_ref().map_or(0, Bytes::len));
    let size_bytes: usize = sent.chain(changed).chain(states).sum();
    if size_bytes > limits::TRANSACTION_SIZE_BYTES_MAX {
        return Err(Error::TooMuch { size_bytes });
    }
    Ok(())
}
