//! Both shards, with the accepted and the received messages.

use std::collections::{BTreeMap, BTreeSet};

use peeklock_engine::{
    Attributes, NewMessage, OutMessage, ReceiveMode, ReceiverId, Reserved, SessionWish, Settlement,
    Transaction,
};
use peeklock_types::{
    EntityName, Placement, QueueSettings, QueueStatus, SequenceNumber, ShardId, SubQueue, Timestamp,
};

use crate::Step;
use crate::shard::{Id, Shard};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const LATER: Timestamp = Timestamp::from_millis(2_000_000);
const RECEIVER: ReceiverId = ReceiverId(1);
const MAIN: SubQueue = SubQueue::Main;
const DEAD: SubQueue = SubQueue::DeadLetter;

/// A queue with its shard, and the targets of its messages and its dead letters.
pub(crate) struct Plan {
    shard: usize,
    forward_to: Option<usize>,
    dead_letters_to: Option<usize>,
}

/// The queues: 0 forwards to 1 in the other shard, which forwards back to 2; 3 and 4 are a circle; the dead letters of
/// 2, 4 and 5 are forwarded.
pub(crate) const QUEUES: [Plan; 6] = [
    Plan { shard: 0, forward_to: Some(1), dead_letters_to: None },
    Plan { shard: 1, forward_to: Some(2), dead_letters_to: None },
    Plan { shard: 0, forward_to: None, dead_letters_to: Some(5) },
    Plan { shard: 0, forward_to: Some(4), dead_letters_to: None },
    Plan { shard: 1, forward_to: Some(3), dead_letters_to: Some(5) },
    Plan { shard: 1, forward_to: None, dead_letters_to: Some(2) },
];

pub(crate) struct World {
    shards: [Shard; 2],
    /// Messages that are durably stored, and those that are durably received.
    accepted: BTreeSet<Id>,
    taken: BTreeSet<Id>,
    /// Messages that were sent to queue 0 and never dead-lettered, in order.
    path: Vec<Id>,
    /// The numbers of messages that a transaction has scheduled.
    scheduled: BTreeMap<Id, SequenceNumber>,
    next_id: Id,
}

/// Returns a name that belongs to the shard of the plan.
fn name(queue: usize) -> EntityName {
    let shard = shard_id(QUEUES[queue].shard);
    let names = (0..).map(|n| EntityName::parse(&format!("q{queue}-{n}")).unwrap());
    names.into_iter().find(|name| Placement::default().of(name) == shard).unwrap()
}

fn shard_id(shard: usize) -> ShardId {
    ShardId([2, 5][shard])
}

fn settings(queue: usize) -> QueueSettings {
    QueueSettings {
        forward_to: QUEUES[queue].forward_to.map(name),
        forward_dead_letters_to: QUEUES[queue].dead_letters_to.map(name),
        ..QueueSettings::default()
    }
}

impl World {
    pub(crate) fn new() -> World {
        let mut shards = [0, 1].map(|shard| Shard::new(shard_id(shard)));
        for (queue, plan) in QUEUES.iter().enumerate() {
            let Shard { engine, out, .. } = &mut shards[plan.shard];
            engine.create_queue(NOW, name(queue), settings(queue), out).unwrap();
        }
        shards.iter_mut().for_each(Shard::commit);
        let (accepted, taken, path) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        World { shards, accepted, taken, path, scheduled: BTreeMap::new(), next_id: 1 }
    }

    pub(crate) fn take(&mut self, step: Step) {
        match step {
            Step::Send { queue, count } => self.send(queue, count),
            Step::Take { queue, is_dead_letter } => {
                self.receive(queue, if is_dead_letter { DEAD } else { MAIN }, ReceiveMode::ReceiveAndDelete);
            }
            Step::DeadLetter { queue } => self.dead_letter(queue),
            Step::Transact { queue, targets, schedules } => self.transact(queue, targets, schedules),
            Step::Toggle { queue } => self.toggle(queue),
            Step::Deliver { shard } => self.shards[shard].deliver(NOW),
            Step::Commit { shard } => self.commit(shard),
            Step::Bring { from, to, count, target_crashes, word_is_lost } => {
                self.bring(from, to, count, target_crashes, word_is_lost);
            }
            Step::Crash { shard, from_snapshot } => self.crash(shard, from_snapshot),
        }
    }

    fn new_message(&mut self, shard: usize, n: u32) -> NewMessage {
        let id = self.next_id;
        self.next_id += 1;
        NewMessage { body: self.shards[shard].body(n), size_bytes: id, attributes: None }
    }

    fn send(&mut self, queue: usize, count: usize) {
        let at = QUEUES[queue].shard;
        let batch: Vec<_> = (0..).take(count).map(|n| self.new_message(at, n)).collect();
        let ids: Vec<_> = batch.iter().map(|message| message.size_bytes).collect();
        let shard = &mut self.shards[at];
        let entity = shard.queue(&name(queue));
        if shard.engine.send(NOW, entity, batch, &mut shard.out).is_ok() {
            shard.sent.extend(&ids);
            if queue == 0 {
                self.path.extend(&ids);
            }
        }
    }

    /// Receives one message; a deleted one is recorded as taken.
    fn receive(
        &mut self,
        queue: usize,
        sub_queue: SubQueue,
        mode: ReceiveMode,
    ) -> Option<peeklock_engine::Delivery> {
        let shard = &mut self.shards[QUEUES[queue].shard];
        let entity = shard.queue(&name(queue));
        let wish = SessionWish::None;
        // A queue that forwards accepts no receivers.
        shard.engine.attach_receiver(NOW, entity, sub_queue, RECEIVER, mode, wish).ok()?;
        shard.engine.add_window(RECEIVER, i64::MAX);
        shard.engine.set_credit(RECEIVER, 1);
        shard.deliver(NOW);
        shard.engine.detach_receiver(NOW, RECEIVER, &mut shard.out);
        let delivery = shard.out.deliveries.pop()?;
        let id = delivery.message.size_bytes;
        assert!(
            !self.taken.contains(&id) && !shard.taken.contains(&id),
            "a received message was delivered again"
        );
        if mode == ReceiveMode::ReceiveAndDelete {
            shard.taken.insert(id);
        }
        Some(delivery)
    }

    fn dead_letter(&mut self, queue: usize) {
        let Some(delivery) = self.receive(queue, MAIN, ReceiveMode::PeekLock) else { return };
        // The message may return by another route, behind others.
        self.path.retain(|id| *id != delivery.message.size_bytes);
        let shard = &mut self.shards[QUEUES[queue].shard];
        let settlement =
            Settlement::DeadLetter { reason: Some("bad".to_owned()), description: None, patch: None };
        let entity = delivery.entity;
        shard.engine.settle(NOW, entity, MAIN, delivery.token, settlement, &mut shard.out).unwrap();
    }

    /// Reserves a number of a queue. The client receives it only when it is durable.
    fn reserve(&mut self, queue: usize) -> Option<Reserved> {
        let at = QUEUES[queue].shard;
        let shard = &mut self.shards[at];
        let entity = shard.queue(&name(queue));
        let numbers = shard.engine.reserve_numbers(NOW, entity, 1, &mut shard.out).ok()?;
        self.commit(at);
        Some(Reserved { entity, sequence_number: numbers[0] })
    }

    fn transact(&mut self, queue: usize, targets: [usize; 2], schedules: bool) {
        let at = QUEUES[queue].shard;
        let reserved = if schedules { self.reserve(targets[1]) } else { None };
        let held = self.receive(queue, MAIN, ReceiveMode::PeekLock);
        let settle = |delivery: &peeklock_engine::Delivery| (MAIN, delivery.token, Settlement::Complete);
        let settles = held.iter().map(settle).collect();
        let mut new = [0, 1].map(|n| self.new_message(at, n));
        new[1].attributes = reserved.map(|reserved| {
            let (scheduled_for, reserved) = (Some(LATER), Some(reserved));
            Box::new(Attributes { scheduled_for, reserved, ..Attributes::default() })
        });
        let ids = new.each_ref().map(|message| message.size_bytes);
        let sends = targets.map(name).into_iter().zip(new).collect();
        let shard = &mut self.shards[at];
        let entity = shard.queue(&name(queue));
        let before = (shard.engine.snapshot(), shard.out.facts.len());
        let transaction = Transaction { settles, sends, ..Transaction::default() };
        if shard.engine.commit(NOW, shard.id, entity, transaction, &mut shard.out).is_ok() {
            self.scheduled.extend(reserved.map(|reserved| (ids[1], reserved.sequence_number)));
            shard.sent.extend(ids);
            shard.taken.extend(held.map(|delivery| delivery.message.size_bytes));
        } else {
            assert_eq!((shard.engine.snapshot(), shard.out.facts.len()), before, "all or nothing");
        }
    }

    fn toggle(&mut self, queue: usize) {
        let shard = &mut self.shards[QUEUES[queue].shard];
        let mut settings = shard.engine.queue(shard.queue(&name(queue))).unwrap().settings.clone();
        settings.status = match settings.status {
            QueueStatus::Active => QueueStatus::SendDisabled,
            _ => QueueStatus::Active,
        };
        shard.engine.update_queue(NOW, &name(queue), settings, &mut shard.out).unwrap();
    }

    fn commit(&mut self, shard: usize) {
        let shard = &mut self.shards[shard];
        self.accepted.extend(&shard.sent);
        self.taken.extend(&shard.taken);
        shard.commit();
    }

    fn crash(&mut self, shard: usize, from_snapshot: bool) {
        self.shards[shard].crash(NOW, from_snapshot);
    }

    /// Transfers messages. Nothing leaves a shard before it is durable: neither a message nor its confirmation.
    fn bring(&mut self, from: usize, to: usize, count: usize, target_crashes: bool, word_is_lost: bool) {
        self.commit(from);
        let (source, target) = (shard_id(from), shard_id(to));
        let batch = self.shards[from].engine.outgoing(target, count, u64::MAX);
        let (mut upto, mut refused) = (0, None);
        for (message, n) in batch.iter().zip(0..) {
            match self.arrive(source, to, message, n) {
                Ok(()) => upto = message.number,
                Err(error) => {
                    refused = Some((message.number, error.to_string()));
                    break;
                }
            }
        }
        if target_crashes {
            return self.crash(to, upto % 2 == 0);
        }
        self.commit(to);
        if !word_is_lost {
            let Shard { engine, out, .. } = &mut self.shards[from];
            engine.transferred(target, upto, out);
            if let Some((number, reason)) = refused {
                engine.transfer_refused(target, number, reason, out);
            }
        }
    }

    fn arrive(
        &mut self,
        source: ShardId,
        to: usize,
        message: &OutMessage,
        n: u32,
    ) -> Result<(), peeklock_engine::Error> {
        let shard = &mut self.shards[to];
        let attributes = Some(message.attributes.clone());
        let new = NewMessage { body: shard.body(n), size_bytes: message.size_bytes, attributes };
        shard.engine.arrive(NOW, source, message.number, &message.target, new, &mut shard.out)?;
        Ok(())
    }

    /// Checks at any time that no message is in two places, except those in transit that may have arrived already.
    pub(crate) fn check(&mut self) {
        let arrived = [MAIN, DEAD, SubQueue::TransferDeadLetter];
        let mut seen = BTreeSet::new();
        for shard in &self.shards {
            for id in shard.all_ids(&arrived) {
                assert!(seen.insert(id), "message {id} is in two places");
                assert!(!self.taken.contains(&id), "message {id} was received and is still there");
            }
        }
        let on_the_way: BTreeSet<_> =
            self.shards.iter().flat_map(|shard| shard.all_ids(&[SubQueue::Transfer])).collect();
        for id in self.accepted.difference(&self.taken) {
            let is_pending = self.shards.iter().any(|shard| shard.taken.contains(id));
            assert!(seen.contains(id) || on_the_way.contains(id) || is_pending, "message {id} is lost");
        }
        for shard in &mut self.shards {
            for (id, number) in shard.scheduled() {
                assert_eq!(
                    self.scheduled.get(&id),
                    Some(&number),
                    "a message got another number than was reserved"
                );
            }
            for queue in shard.engine.queues() {
                let counted = SubQueue::ALL.map(|part| shard.ids(queue.entity, part).len() as u64);
                assert_eq!(queue.counts.message_count(), counted.iter().sum::<u64>());
                assert_eq!(queue.counts.transfer_count, counted[2]);
            }
        }
    }

    /// Lets everything arrive, and checks that each message is in its place, in order.
    pub(crate) fn finish(mut self) {
        while self.shards.iter().any(|shard| shard.engine.transfer_targets().next().is_some())
            || self.has_work()
        {
            for (from, to) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                self.bring(from, to, 100, false, false);
            }
        }
        self.check();
        let there: Vec<_> = self.shards.iter().flat_map(|shard| shard.all_ids(&SubQueue::ALL)).collect();
        let expected: BTreeSet<_> = self.accepted.difference(&self.taken).copied().collect();
        assert_eq!(there.len(), expected.len());
        assert_eq!(there.into_iter().collect::<BTreeSet<_>>(), expected);
        let end = &self.shards[QUEUES[2].shard];
        let mut ids = end.ids(end.queue(&name(2)), MAIN);
        ids.retain(|id| self.path.contains(id));
        assert!(ids.is_sorted(), "the order is kept along the way");
    }

    /// Delivers and commits in both shards, and returns whether transfers are left.
    fn has_work(&mut self) -> bool {
        for shard in 0..2 {
            self.shards[shard].deliver(NOW);
            self.commit(shard);
        }
        self.shards.iter().any(|shard| shard.engine.transfer_targets().next().is_some())
    }
}
