use std::collections::BTreeMap;

use peeklock_filter::Cost;
use peeklock_types::{
    CommitGroupNumber, EntityKind, EntityName, LockToken, Placement, SequenceNumber, SessionId, StoredBody,
    SubQueue, Timestamp,
};

use crate::agenda::Agenda;
use crate::bodies::StandaloneScan;
use crate::delivery::settle_up;
use crate::error::{Error, ReplayError};
use crate::fact::Fact;
use crate::message::{EntityId, Message, NewMessage, ReceiverId, Settlement};
use crate::number_map::NumberMap;
use crate::output::Output;
use crate::queue::{MessageRow, Queue};
use crate::receivers::Receivers;
use crate::shared::Shared;
use crate::topics::Topic;
use crate::transfers::Transfers;
use crate::watch::Watchers;

/// The maximum number of locks that one call of [`Engine::tick`] releases and of messages that one call of
/// [`Engine::deliver`] delivers, so that the facts of one batch fit in a commit group. No other command decides more
/// facts in one call.
pub const FACTS_PER_CALL_MAX: usize = 4096;

/// All queues, topics and subscriptions of one shard.
///
/// A command checks everything first: it is either executed completely or rejected with an [`Error`], without any
/// change.
#[derive(Debug, Default)]
pub struct Engine {
    /// The queues are boxed, because the table has many more slots than queues, and a queue is large.
    pub(crate) queues: NumberMap<EntityId, Box<Queue>>,
    pub(crate) names: BTreeMap<EntityName, EntityId>,
    /// The id of the next queue. Ids are not reused, so a late command never reaches a wrong queue.
    pub(crate) next_entity: EntityId,
    pub(crate) receivers: Receivers,
    pub(crate) watchers: Watchers,
    pub(crate) agenda: Agenda,
    pub(crate) transfers: Transfers,
    /// The subscriptions of each topic, with their rules.
    pub(crate) topics: NumberMap<EntityId, Topic>,
    pub(crate) filter_cost: Cost,
    pub(crate) shared: Shared,
    pub(crate) standalone_scan: Option<StandaloneScan>,
    /// The first commit group whose bodies are certainly in memory; `None` if all bodies are.
    pub(crate) near_from: Option<CommitGroupNumber>,
}

impl Engine {
    /// Creates a shard without entities, in a broker of this placement.
    pub fn new(placement: Placement) -> Self {
        let transfers = Transfers { placement, ..Transfers::default() };
        Engine { transfers, ..Engine::default() }
    }

    /// Notes that the bodies in the commit groups from `group` on are in memory, and others may not be. A message that a
    /// receiver deletes must not be gone before its body was read, so the delivery of another one only locks it: see
    /// [`Delivery::removes_later`](crate::Delivery::removes_later).
    pub fn set_near_from(&mut self, group: CommitGroupNumber) {
        self.near_from = Some(group);
    }

    /// Enqueues a batch, all or nothing. Duplicates are dropped if the queue detects them.
    ///
    /// Bodies are in the log in the order of sequence numbers: the commit group of a body is never before that of an
    /// earlier message of this queue.
    pub fn send(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        messages: impl AsRef<[NewMessage]> + IntoIterator<Item = NewMessage>,
        out: &mut Output,
    ) -> Result<(), Error> {
        if self.topics.contains_key(&entity) {
            return self.publish(now, entity, messages, out).map(|_| ());
        }
        self.command(now, entity, |queue| {
            queue.check_send(now, messages.as_ref())?;
            queue.check_rates(now, messages.as_ref())?;
            for message in messages {
                queue.store_sent(now, message, out);
            }
            Ok(())
        })
    }

    /// Like [`Engine::send`], and returns each message's sequence number, with which a scheduled message can be
    /// cancelled. For a duplicate it is the number of the first message.
    pub fn schedule(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        messages: impl AsRef<[NewMessage]> + IntoIterator<Item = NewMessage>,
        out: &mut Output,
    ) -> Result<Vec<SequenceNumber>, Error> {
        if self.topics.contains_key(&entity) {
            return self.publish(now, entity, messages, out);
        }
        self.command(now, entity, |queue| {
            queue.check_send(now, messages.as_ref())?;
            queue.check_rates(now, messages.as_ref())?;
            Ok(messages.into_iter().map(|message| queue.store_sent(now, message, out)).collect())
        })
    }

    /// Checks that all these messages are scheduled, so that [`Engine::cancel_scheduled`] would delete them.
    pub fn check_scheduled(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        numbers: &[SequenceNumber],
    ) -> Result<(), Error> {
        self.command(now, entity, |queue| queue.check_scheduled(numbers))
    }

    /// Deletes scheduled messages, all of them or none.
    pub fn cancel_scheduled(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        numbers: &[SequenceNumber],
        out: &mut Output,
    ) -> Result<(), Error> {
        self.command(now, entity, |queue| queue.cancel_scheduled(numbers, out))
    }

    /// Settles a locked message. Returns [`Error::LockLost`] if `token` does not hold it: the lock has expired by
    /// `now`, the message is gone, or another receiver holds it.
    pub fn settle(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        sub_queue: SubQueue,
        token: LockToken,
        settlement: Settlement,
        out: &mut Output,
    ) -> Result<(), Error> {
        self.command(now, entity, |queue| queue.settle(now, sub_queue, token, settlement, out))
    }

    /// Completes locked messages, each as [`Engine::settle`] does, and passes the results to `done`, in order, with the
    /// caller's own key of each. The queue is found once, and the agenda is updated once.
    pub fn complete_each<K>(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        sub_queue: SubQueue,
        tokens: impl IntoIterator<Item = (K, LockToken)>,
        out: &mut Output,
        mut done: impl FnMut(K, Result<(), Error>),
    ) {
        let mut tokens = tokens.into_iter();
        let found = self.command(now, entity, |queue| {
            for (key, token) in tokens.by_ref() {
                done(key, queue.settle(now, sub_queue, token, Settlement::Complete, out));
            }
            Ok(())
        });
        if found.is_err() {
            tokens.for_each(|(key, _)| done(key, Err(Error::NoSuchEntity { entity })));
        }
    }

    /// Settles several messages in the same way, all or none. With a `hold`, in a queue with sessions, all must belong
    /// to that session, which the receiver must hold: [`Error::SessionLockLost`] if it does not, [`Error::LockLost`]
    /// for a message that it has not locked.
    #[expect(clippy::too_many_arguments, reason = "time is an argument, beside those of the receiver")]
    pub fn settle_all(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        sub_queue: SubQueue,
        tokens: &[LockToken],
        settlement: &Settlement,
        hold: Option<(&SessionId, ReceiverId)>,
        out: &mut Output,
    ) -> Result<(), Error> {
        self.command(now, entity, |queue| queue.settle_all(now, sub_queue, tokens, settlement, hold, out))
    }

    /// Checks that `token` holds its message now.
    pub fn check_lock(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        sub_queue: SubQueue,
        token: LockToken,
    ) -> Result<(), Error> {
        self.command(now, entity, |queue| queue.check_held(now, sub_queue, token))
    }

    /// Renews locks for another lock duration from now, all or none. Returns the new expiry of each, in order.
    pub fn renew(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        sub_queue: SubQueue,
        tokens: &[LockToken],
        out: &mut Output,
    ) -> Result<Vec<Timestamp>, Error> {
        self.command(now, entity, |queue| queue.renew(now, sub_queue, tokens, out))
    }

    /// Returns messages from `from` on, in order and in any state, without changing them. At most `max`, and never more
    /// than [`BATCH_COUNT_MAX`](peeklock_types::limits::BATCH_COUNT_MAX).
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

    /// Deletes the first `count_max` messages that were enqueued before `before` and are neither locked nor scheduled.
    /// Returns their number. Records one fact, however many messages there are.
    pub fn purge(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        sub_queue: SubQueue,
        before: Timestamp,
        count_max: u64,
        out: &mut Output,
    ) -> Result<u64, Error> {
        self.command(now, entity, |queue| {
            queue.check_address(sub_queue)?;
            Ok(queue.purge(now, sub_queue, before, count_max, out))
        })
    }

    /// Executes everything that is due by `now`: locks expire, messages become due or expire, sessions are lost, idle
    /// queues are deleted. If more than [`FACTS_PER_CALL_MAX`] steps are due, the rest waits for the next call, and
    /// [`Engine::next_deadline`] then returns a time that is not after `now`.
    pub fn tick(&mut self, now: Timestamp, out: &mut Output) {
        let mut budget = FACTS_PER_CALL_MAX;
        while budget > 0
            && let Some(address) = self.agenda.next_due(now)
            && let Some(queue) = self.queues.get_mut(&address.entity)
        {
            if queue.kind == EntityKind::Topic && address.sub_queue == SubQueue::Main {
                budget -= self.tick_topic(now, address.entity, budget, out).min(budget);
                continue;
            }
            budget -= queue.tick(now, address.sub_queue, budget, out).min(budget);
            settle_up(now, queue, &mut self.receivers);
            self.agenda.note(queue);
            if address.sub_queue == SubQueue::Main {
                budget -= self.end_sessions(now, address.entity, budget, out);
                self.delete_if_idle(now, address.entity, out);
            }
        }
    }

    /// Returns the time at which [`Engine::tick`] next has work.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.agenda.next_deadline()
    }

    /// Applies a fact that was read from the journal. After an error the engine must not be used further.
    pub fn apply(&mut self, fact: &Fact) -> Result<(), ReplayError> {
        // After replay the owner counts the standalone bodies again, so the freed ones are not reported.
        let mut freed = Vec::new();
        self.apply_fact(fact, &mut freed)?;
        self.shared.release(&mut freed);
        Ok(())
    }

    /// Reduces a list of released bodies to those that no other message uses. The caller passes all of
    /// [`Output::freed`], once.
    pub fn unshare(&mut self, freed: &mut Vec<StoredBody>) {
        self.shared.release(freed);
    }

    pub(crate) fn apply_fact(&mut self, fact: &Fact, freed: &mut Vec<StoredBody>) -> Result<(), ReplayError> {
        match fact {
            Fact::QueueCreated { entity, name, kind, settings, created_at } => {
                let expected = self.next_entity;
                if *entity != expected {
                    return Err(ReplayError::EntityOrder { entity: *entity, expected });
                }
                let settings = settings.as_ref().clone();
                let mut queue = Queue::new(*entity, name.clone(), *kind, settings, *created_at);
                let order = queue.follow_order();
                order.map_err(|reason| ReplayError::Order { entity: *entity, reason: reason.to_string() })?;
                self.insert_queue(queue)?;
                self.note(*entity);
                Ok(())
            }
            Fact::QueueDeleted { entity } => self.remove_queue(*entity, freed),
            Fact::Arrived { source, number } => self.transfers.arrive(*source, *number),
            Fact::FannedOut { copies, enqueued_at, body, size_bytes, attributes, again } => {
                let entry = MessageRow::new(*body, *size_bytes, *enqueued_at);
                self.fan_out(copies, entry, attributes.as_deref(), *again)
            }
            Fact::RuleSet { entity, rule, at } => self.set_rule(*entity, rule, *at),
            Fact::RuleRemoved { entity, name } => self.drop_rule(*entity, name),
            _ => self.apply_to_queue(fact, freed),
        }
    }

    fn apply_to_queue(&mut self, fact: &Fact, freed: &mut Vec<StoredBody>) -> Result<(), ReplayError> {
        let entity = fact.entity().unwrap_or_default();
        let queue = self.queues.get_mut(&entity).ok_or(ReplayError::NoSuchEntity { entity })?;
        self.transfers.check(fact)?;
        let leaving = Transfers::leaving(queue, fact);
        queue.apply(fact, freed)?;
        self.agenda.note(queue);
        self.transfers.follow(fact, leaving);
        if let Fact::Moved { to, again: true, .. } = fact {
            self.shared.add(*to, 1);
        }
        Ok(())
    }

    pub(crate) fn note(&mut self, entity: EntityId) {
        if let Some(queue) = self.queues.get_mut(&entity) {
            self.agenda.note(queue);
        }
    }

    /// Records a use of the queue, which postpones its deletion for idleness.
    pub fn touch(&mut self, now: Timestamp, entity: EntityId) {
        if let Some(queue) = self.queues.get_mut(&entity) {
            queue.used_at = queue.used_at.max(now);
            self.agenda.note(queue);
        }
    }

    pub(crate) fn command<R>(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        command: impl FnOnce(&mut Queue) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let Some(queue) = self.queues.get_mut(&entity) else { return Err(Error::NoSuchEntity { entity }) };
        queue.used_at = queue.used_at.max(now);
        let done = command(queue);
        settle_up(now, queue, &mut self.receivers);
        self.agenda.note(queue);
        done
    }

    /// Records a fact that may affect more than one queue.
    pub(crate) fn record(&mut self, fact: Fact, out: &mut Output) {
        self.apply_fact(&fact, &mut out.freed).expect("a fact fits the state on which it was decided");
        out.facts.push(fact);
    }
}
