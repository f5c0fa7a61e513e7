//! One shard: an engine, and a journal that loses unwritten facts.

use std::collections::BTreeSet;

use peeklock_engine::{Engine, EntityId, MessageState, Output, record};
use peeklock_types::{
    BodyRef, CommitGroupNumber, EntityName, Placement, SequenceNumber, ShardId, SubQueue, Timestamp,
};

/// Identifies a message by its size, which is unique here.
pub(crate) type Id = u32;

pub(crate) struct Shard {
    pub(crate) id: ShardId,
    pub(crate) engine: Engine,
    pub(crate) out: Output,
    groups: Vec<Vec<u8>>,
    /// The number of commit groups before the snapshot, and its bytes.
    snapshot: (usize, Vec<u8>),
    /// The messages sent and received since the last commit.
    pub(crate) sent: BTreeSet<Id>,
    pub(crate) taken: BTreeSet<Id>,
}

impl Shard {
    pub(crate) fn new(id: ShardId) -> Shard {
        let engine = Engine::default();
        let snapshot = (0, engine.snapshot());
        let (out, groups) = (Output::default(), Vec::new());
        Shard { id, engine, out, groups, snapshot, sent: BTreeSet::new(), taken: BTreeSet::new() }
    }

    pub(crate) fn queue(&self, name: &EntityName) -> EntityId {
        self.engine.find(name).unwrap()
    }

    fn group(&self) -> CommitGroupNumber {
        CommitGroupNumber(self.groups.len() as u64 + 1)
    }

    pub(crate) fn body(&self, n: u32) -> BodyRef {
        BodyRef::in_group(self.group(), n * 8).unwrap()
    }

    pub(crate) fn commit(&mut self) {
        let (group, mut bytes) = (self.group(), Vec::new());
        self.out.facts.drain(..).for_each(|fact| record::encode(&fact, group, &mut bytes));
        self.out.clear();
        self.groups.push(bytes);
        if self.groups.len().is_multiple_of(5) {
            self.snapshot = (self.groups.len(), self.engine.snapshot());
        }
        self.sent.clear();
        self.taken.clear();
    }

    pub(crate) fn crash(&mut self, now: Timestamp, from_snapshot: bool) {
        self.out.clear();
        self.sent.clear();
        self.taken.clear();
        self.engine = self.replay(from_snapshot);
        assert_eq!(self.engine.snapshot(), self.replay(!from_snapshot).snapshot());
        self.engine.wake(now, &mut self.out);
    }

    fn replay(&self, from_snapshot: bool) -> Engine {
        let (from, mut engine) = match &self.snapshot {
            (at, bytes) if from_snapshot => (*at, Engine::restore(bytes, Placement::default()).unwrap()),
            _ => (0, Engine::default()),
        };
        for (bytes, number) in self.groups.iter().zip(1..).skip(from) {
            let mut bytes = bytes.as_slice();
            while !bytes.is_empty() {
                engine.apply(&record::decode(&mut bytes, CommitGroupNumber(number)).unwrap()).unwrap();
            }
        }
        engine
    }

    pub(crate) fn deliver(&mut self, now: Timestamp) {
        assert!(!self.engine.deliver(now, &mut || 7, &mut self.out));
    }

    /// Returns all messages of a sub-queue, in order.
    pub(crate) fn ids(&self, entity: EntityId, sub_queue: SubQueue) -> Vec<Id> {
        let seen = self.engine.peek(entity, sub_queue, SequenceNumber(0), 4000).unwrap();
        seen.iter().map(|message| message.size_bytes).collect()
    }

    /// Returns the scheduled messages of all queues, and their numbers.
    pub(crate) fn scheduled(&self) -> Vec<(Id, SequenceNumber)> {
        let queues: Vec<_> = self.engine.queues().map(|queue| queue.entity).collect();
        let peek = |queue| self.engine.peek(queue, SubQueue::Main, SequenceNumber(0), 4000).unwrap();
        let messages = queues.into_iter().flat_map(peek);
        let scheduled = messages.filter(|message| message.state == MessageState::Scheduled);
        scheduled.map(|message| (message.size_bytes, message.sequence_number)).collect()
    }

    /// Returns all messages in these sub-queues of all queues.
    pub(crate) fn all_ids(&self, sub_queues: &[SubQueue]) -> Vec<Id> {
        let queues: Vec<_> = self.engine.queues().map(|queue| queue.entity).collect();
        let parts = queues.iter().flat_map(|queue| sub_queues.iter().map(move |part| (*queue, *part)));
        parts.flat_map(|(queue, part)| self.ids(queue, part)).collect()
    }
}
