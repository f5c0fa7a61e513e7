use std::collections::{BTreeSet, VecDeque};

use peeklock_types::{SubQueue, Timestamp};

use crate::message::EntityId;
use crate::queue::{Part, Queue};

/// One sub-queue of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(crate) entity: EntityId,
    pub(crate) sub_queue: SubQueue,
}

/// Which sub-queues have something to do, so that nobody looks through all of them.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// Those with both a waiting message and a receiver that asks; perhaps some that have neither any more, or are gone.
    ready: VecDeque<Address>,
    /// When the next lock of each runs out.
    deadlines: BTreeSet<(Timestamp, Address)>,
}

impl Agenda {
    /// Takes note of what a command has changed in `queue`.
    pub(crate) fn note(&mut self, queue: &mut Queue) {
        let entity = queue.entity;
        self.note_part(Address { entity, sub_queue: SubQueue::Main }, &mut queue.main);
        self.note_part(Address { entity, sub_queue: SubQueue::DeadLetter }, &mut queue.dead_letter);
    }

    fn note_part(&mut self, address: Address, part: &mut Part) {
        if !part.noted.ready && part.messages.waiting_count() > 0 && !part.asking.is_empty() {
            part.noted.ready = true;
            self.ready.push_back(address);
        }
        let deadline = part.messages.next_deadline();
        if deadline != part.noted.deadline {
            self.note_deadline(address, part, deadline);
        }
    }

    fn note_deadline(&mut self, address: Address, part: &mut Part, deadline: Option<Timestamp>) {
        if let Some(old) = part.noted.deadline {
            self.deadlines.remove(&(old, address));
        }
        if let Some(new) = deadline {
            self.deadlines.insert((new, address));
        }
        part.noted.deadline = deadline;
    }

    /// Takes note that `queue` goes away.
    pub(crate) fn forget(&mut self, queue: &mut Queue) {
        let entity = queue.entity;
        self.note_deadline(Address { entity, sub_queue: SubQueue::Main }, &mut queue.main, None);
        self.note_deadline(Address { entity, sub_queue: SubQueue::DeadLetter }, &mut queue.dead_letter, None);
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// The sub-queue whose lock runs out first, if that is by `now`.
    pub(crate) fn next_expired(&self, now: Timestamp) -> Option<Address> {
        self.deadlines.first().filter(|&&(deadline, _)| deadline <= now).map(|&(_, address)| address)
    }

    /// Takes a sub-queue off the list of ready ones.
    pub(crate) fn next_ready(&mut self) -> Option<Address> {
        self.ready.pop_front()
    }
}
