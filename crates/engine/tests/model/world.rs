//! The engine and the model side by side, with a journal that loses unwritten facts, and clients that keep every token.

use std::collections::BTreeSet;
use std::time::Duration;

use peeklock_engine::{Engine, EntityId, Fact, Output, record};
use peeklock_types::{
    BodyRef, CommitGroupNumber, EntityName, LockToken, Placement, QueueSettings, RetryPolicy, SequenceNumber,
    SubQueue, Timestamp,
};

use crate::Step;
use crate::model::{Model, ModelReceiver};

pub(crate) const SUB_QUEUES: [SubQueue; 2] = [SubQueue::Main, SubQueue::DeadLetter];
pub(crate) const QUEUE_COUNT: usize = 4;

/// A lock that a client holds or once held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    pub(crate) entity: EntityId,
    pub(crate) sub_queue: SubQueue,
    pub(crate) token: LockToken,
}

/// A durable commit group, and the state after it.
struct CommitGroup {
    bytes: Vec<u8>,
    model: Model,
    snapshot: Option<Vec<u8>>,
}

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) model: Model,
    pub(crate) receivers: Vec<ModelReceiver>,
    pub(crate) now: Timestamp,
    pub(crate) out: Output,
    groups: Vec<CommitGroup>,
    /// Facts that wait for a commit group; a crash loses them.
    pending: Vec<Fact>,
    pub(crate) tickets: Vec<Ticket>,
    pub(crate) receipts: Vec<Ticket>,
    pub(crate) completed: BTreeSet<(EntityId, SequenceNumber)>,
    pub(crate) nonce: u64,
    pub(crate) next_receiver: u64,
    pub(crate) asked: u64,
    pub(crate) cold_offset: u64,
}

impl World {
    pub(crate) fn new() -> World {
        let mut world = World {
            engine: Engine::default(),
            model: Model::default(),
            receivers: Vec::new(),
            now: Timestamp::from_millis(1_000_000),
            out: Output::default(),
            groups: Vec::new(),
            pending: Vec::new(),
            tickets: Vec::new(),
            receipts: Vec::new(),
            completed: BTreeSet::new(),
            nonce: 0,
            next_receiver: 1,
            asked: 0,
            cold_offset: 0,
        };
        (0..QUEUE_COUNT).for_each(|queue| world.take(Step::Create { queue }));
        world
    }

    pub(crate) fn take(&mut self, step: Step) {
        match step {
            Step::Create { queue } => self.create(queue),
            Step::Delete { queue } => self.delete(queue),
            Step::SetStatus { queue, status } => self.set_status(queue, status),
            Step::Send { queue, messages } => self.send(queue, &messages),
            Step::CancelScheduled { queue, picks } => self.cancel_scheduled(queue, &picks),
            Step::Settle { pick, settlement } => self.settle(pick, settlement),
            Step::SettleAll { picks, settlement } => self.settle_all(&picks, &settlement),
            Step::Renew { picks } => self.renew(&picks),
            Step::ReceiveDeferred { queue, sub_queue, picks, mode } => {
                self.receive_deferred(queue, sub_queue, &picks, mode);
            }
            Step::Purge { queue, sub_queue, age, count_max } => self.purge(queue, sub_queue, age, count_max),
            Step::Put { queue, message, hidden_for } => self.put(queue, &message, hidden_for),
            Step::TakeMessages { queue, count_max, hidden_for } => {
                self.take_messages(queue, count_max, hidden_for);
            }
            Step::PeekWaiting { queue, count_max } => self.peek_waiting(queue, count_max),
            Step::Change { pick, hidden_for, size_bytes } => self.change(pick, hidden_for, size_bytes),
            Step::DeleteMessage { pick } => self.delete_message(pick),
            Step::Clear { queue } => self.clear(queue),
            Step::Attach { queue, sub_queue, mode } => self.attach(queue, sub_queue, mode),
            Step::Detach { pick } => self.detach(pick),
            Step::Credit { pick, credit } => self.change_receiver(pick, |engine, receiver| {
                receiver.credit = credit;
                engine.set_credit(receiver.id, credit);
            }),
            Step::Window { pick, bytes } => self.change_receiver(pick, |engine, receiver| {
                receiver.window += bytes;
                engine.add_window(receiver.id, bytes);
            }),
            Step::Drain { pick } => self.change_receiver(pick, |engine, receiver| {
                receiver.draining = true;
                engine.drain(receiver.id);
            }),
            Step::Deliver => self.deliver(),
            Step::Tick => self.tick(),
            Step::Wait { span } => self.now = self.now + span,
            Step::SetClockBack { span } => self.now = self.now - span,
            Step::EvacuateGroups { back, max, lose_every } => self.evacuate_groups(back, max, lose_every),
            Step::EvacuateCold { segment, max } => self.evacuate_cold(segment, max),
            Step::Snapshot => self.snapshot(),
            Step::Crash { lost_group_count, from_snapshot } => self.crash(lost_group_count, from_snapshot),
        }
        self.journal();
    }

    pub(crate) fn next_group(&self) -> CommitGroupNumber {
        CommitGroupNumber(self.groups.len() as u64 + 1)
    }

    /// Writes the decided facts.
    pub(crate) fn journal(&mut self) {
        assert!(
            self.out.deliveries.is_empty() && self.out.freed.is_empty(),
            "each step checks its own effects"
        );
        self.pending.append(&mut self.out.facts);
        self.out.clear();
        if !self.pending.is_empty() {
            self.commit();
        }
    }

    fn commit(&mut self) {
        let (group, mut bytes) = (self.next_group(), Vec::new());
        self.pending.drain(..).for_each(|fact| record::encode(&fact, group, &mut bytes));
        self.groups.push(CommitGroup { bytes, model: self.model.clone(), snapshot: None });
    }

    pub(crate) fn entity(&self, queue: usize) -> EntityId {
        self.engine.find(&name(queue)).unwrap_or(EntityId(u32::MAX))
    }

    /// Records a use of the queue.
    pub(crate) fn touch(&mut self, entity: EntityId) {
        let now = self.now;
        if let Some(queue) = self.model.queue(entity) {
            queue.used_at = queue.used_at.max(now);
        }
    }

    pub(crate) fn take_freed(&mut self) -> Vec<BodyRef> {
        self.out.freed.drain(..).map(|freed| freed.place).collect()
    }

    pub(crate) fn tick(&mut self) {
        self.engine.tick(self.now, &mut self.out);
        let freed = self.model_tick();
        assert_eq!(sorted(self.take_freed()), sorted(freed));
    }

    /// Executes the timers of the model. Returns freed bodies.
    pub(crate) fn model_tick(&mut self) -> Vec<BodyRef> {
        let (now, receivers) = (self.now, &self.receivers);
        let mut freed: Vec<_> = self.model.queues.iter_mut().flat_map(|queue| queue.tick(now)).collect();
        let is_idle =
            |queue: &mut crate::model::ModelQueue| queue.idle_at(receivers).is_some_and(|at| at <= now);
        for gone in self.model.queues.extract_if(.., is_idle) {
            freed.extend(gone.messages.iter().map(|m| m.message.body).filter(|body| body.is_standalone()));
        }
        freed
    }

    fn snapshot(&mut self) {
        // A snapshot is the state at the end of a commit group.
        self.commit();
        let snapshot = self.engine.snapshot();
        self.groups.last_mut().unwrap().snapshot = Some(snapshot);
    }

    /// Drops unwritten facts, and perhaps the last commit groups too, and restores the rest.
    fn crash(&mut self, lost_group_count: usize, from_snapshot: bool) {
        self.pending.clear();
        // The first groups create the queues.
        let kept = self.groups.len().saturating_sub(lost_group_count).max(QUEUE_COUNT);
        self.groups.truncate(kept);
        self.model = self.groups.last().unwrap().model.clone();
        self.receivers.clear();
        let mut live = BTreeSet::new();
        live.extend(self.model.messages().map(|(entity, m)| (entity, m.message.sequence_number)));
        // A completion in a lost group was never confirmed to a client.
        self.completed.retain(|gone| !live.contains(gone));
        let (next, model) = (self.model.next_entity, &self.model);
        self.completed.retain(|(entity, number)| {
            let queue = model.queues.iter().find(|queue| queue.entity == *entity);
            entity.0 < next && queue.is_none_or(|queue| number.0 < queue.next_number)
        });
        let standalone =
            self.model.messages().map(|(_, m)| m.message.body).filter(|body| body.is_standalone());
        let standalone: Vec<_> = standalone.collect();
        self.engine = self.replay(from_snapshot);
        assert_eq!(self.engine.snapshot(), self.replay(!from_snapshot).snapshot());
        let told = self.engine.standalone_bodies().map(|body| body.place).collect();
        assert_eq!(sorted(told), sorted(standalone));
        self.wake();
    }

    fn wake(&mut self) {
        self.engine.wake(self.now, &mut self.out);
        let mut shortened_count = 0;
        for queue in &mut self.model.queues {
            queue.used_at = queue.created_at.max(self.now);
            // The clock may have been set back while the broker was stopped.
            let longest = self.now + queue.settings.lock_duration;
            // The holder of a receipt has chosen the time; no test uses the maximum.
            let others = queue.messages.iter_mut().filter(|m| m.receipt().is_none());
            for until in others.filter_map(|m| m.message.locked_until.as_mut()) {
                shortened_count += usize::from(*until > longest);
                *until = longest.min(*until);
            }
        }
        assert_eq!(self.out.facts.len(), shortened_count, "nothing else happens without sessions");
    }

    fn replay(&self, from_snapshot: bool) -> Engine {
        let last = self.groups.iter().rposition(|group| group.snapshot.is_some()).filter(|_| from_snapshot);
        let mut engine = match last {
            Some(at) => {
                Engine::restore(self.groups[at].snapshot.as_ref().unwrap(), Placement::default()).unwrap()
            }
            None => Engine::default(),
        };
        for (group, number) in self.groups.iter().zip(1..).skip(last.map_or(0, |at| at + 1)) {
            let mut bytes = group.bytes.as_slice();
            while !bytes.is_empty() {
                engine.apply(&record::decode(&mut bytes, CommitGroupNumber(number)).unwrap()).unwrap();
            }
        }
        engine
    }

    /// Checks that everything observable in the engine equals a recount of the model.
    pub(crate) fn check(&mut self) {
        assert_eq!(self.engine.next_deadline(), self.model.next_deadline(&self.receivers));
        assert_eq!(self.engine.oldest_log_body(), self.model.oldest_log_body());
        assert_eq!(self.engine.queues().count(), self.model.queues.len());
        for queue in &self.model.queues {
            let view = self.engine.queue(queue.entity).unwrap();
            assert_eq!((view.name, view.settings), (&queue.name, &queue.settings));
            assert_eq!(view.counts, queue.counts());
            for sub_queue in SUB_QUEUES {
                let seen = self.engine.peek(queue.entity, sub_queue, SequenceNumber(0), 1000).unwrap();
                let expected: Vec<_> = queue.of(sub_queue).map(|m| m.message.clone()).collect();
                assert_eq!(seen, expected);
            }
        }
        for receiver in &self.receivers {
            assert_eq!(self.engine.credit(receiver.id), receiver.credit);
        }
    }
}

pub(crate) fn name(queue: usize) -> EntityName {
    EntityName::parse(["orders", "bills", "mail", "jobs"][queue]).unwrap()
}

/// Returns the settings of a queue; each queue has different rules.
pub(crate) fn settings(queue: usize) -> QueueSettings {
    let millis = Duration::from_millis;
    let lock_duration = Duration::from_secs([2, 5, 2, 3][queue]);
    let plain =
        QueueSettings { lock_duration, max_delivery_count: [3, 1, 4, 3][queue], ..QueueSettings::default() };
    match queue {
        2 => QueueSettings {
            default_time_to_live: Some(millis(3000)),
            dead_letter_on_expiration: true,
            duplicate_window: Some(millis(2000)),
            retry: RetryPolicy::Linear { step: millis(500), cap: millis(1000) },
            ..plain
        },
        3 => QueueSettings {
            auto_delete_on_idle: Some(millis(6000)),
            max_size_bytes: Some(1500),
            max_count: Some(12),
            retry: RetryPolicy::Exponential { base: millis(500), cap: millis(1500), jitter: false },
            ..plain
        },
        _ => plain,
    }
}

pub(crate) fn sorted(mut bodies: Vec<BodyRef>) -> Vec<BodyRef> {
    bodies.sort_unstable();
    bodies
}
