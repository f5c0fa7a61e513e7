//! Several settlements and sends as one.

use std::collections::{BTreeMap, VecDeque};

use peeklock_types::{EntityName, LockToken, SequenceNumber, ShardId, SubQueue, Timestamp, limits};

use crate::engine::Engine;
use crate::error::Error;
use crate::fact::Fact;
use crate::message::{Attributes, EntityId, NewMessage, Settlement};
use crate::outbox::Outbox;
use crate::plan::{Plan, check_copies};

/// What a transaction does, all or nothing.
#[derive(Debug, Default)]
pub struct Transaction {
    /// Settlements of messages of one queue.
    pub settles: Vec<(SubQueue, LockToken, Settlement)>,
    /// Messages to any queues.
    pub sends: Vec<(EntityName, NewMessage)>,
}

/// Messages to queues of this shard, and what becomes of those to topics, in the same order.
type Local = (Vec<(EntityId, NewMessage)>, BTreeMap<EntityId, VecDeque<Plan>>);

impl Engine {
    /// Commits a transaction of the queue `entity` in the shard `here`. Messages for other shards go by way of the queue: they are part of the
    /// transaction, and are brought to their targets afterwards.
    pub fn commit(
        &mut self,
        now: Timestamp,
        here: ShardId,
        entity: EntityId,
        transaction: Transaction,
        out: &mut Outbox,
    ) -> Result<(), Error> {
        check_size(&transaction)?;
        let Transaction { settles, sends } = transaction;
        let settled = self.decide_settles(now, entity, settles)?;
        let (local, remote): (Vec<_>, Vec<_>) =
            sends.into_iter().partition(|(to, _)| ShardId::of(to) == here);
        let (local, mut plans) = self.check_local(now, local)?;
        self.command(now, entity, |queue| {
            queue.check_numbers(remote.len() + local.len())?;
            // Those for this queue itself come first.
            let bodies = local.iter().filter(|(target, _)| *target == entity).map(|(_, message)| message);
            queue.check_bodies(bodies.chain(remote.iter().map(|(_, message)| message)))
        })?;
        // Nothing can fail from here on.
        self.command(now, entity, |queue| {
            settled.into_iter().for_each(|fact| queue.record_end(now, fact, out));
            Ok(())
        })?;
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

    /// Whether the queues and topics of this shard would take their messages; with their numbers in place of their names, and with what
    /// becomes of those to topics.
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
        out: &mut Outbox,
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

/// All facts of a transaction, and the bodies that they speak of, share one group of the journal.
fn check_size(transaction: &Transaction) -> Result<(), Error> {
    let sent = transaction.sends.iter().map(|(_, message)| message.size_bytes as usize);
    let changed = transaction.settles.iter().map(|(.., settlement)| settlement.size_bytes());
    let size_bytes: usize = sent.chain(changed).sum();
    if size_bytes > limits::TRANSACTION_SIZE_BYTES_MAX {
        return Err(Error::TooMuch { size_bytes });
    }
    Ok(())
}
