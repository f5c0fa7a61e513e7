use std::collections::{BTreeSet, VecDeque};

use peeklock_types::{SubQueue, Timestamp};

use crate::message::EntityId;
use crate::queue::{Part, Queue};
use crate::watch::Changed;

/// One sub-queue of the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(crate) entity: EntityId,
    pub(crate) sub_queue: SubQueue,
}

/// Which sub-queues have something to do, so that nobody looks through all of them.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// Those with both a waiting message and somebody who takes it; perhaps some that have neither any more, or are gone.
    ready: VecDeque<Address>,
    /// When something next happens by itself in each.
    deadlines: BTreeSet<(Timestamp, Address)>,
    /// Those whose watchers may have something to hear.
    pub(crate) changed: Changed,
}

impl Agenda {
    /// Takes note of what a command has changed in `queue`.
    pub(crate) fn note(&mut self, queue: &mut Queue) {
        let idle_at = queue.idle_at();
        self.note_part(queue, SubQueue::Main, idle_at);
        if queue.uses_asides {
            for sub_queue in [SubQueue::DeadLetter, SubQueue::Transfer, SubQueue::TransferDeadLetter] {
                self.note_part(queue, sub_queue, None);
            }
            let asides = [&queue.dead_letter, &queue.transfer, &queue.transfer_dead_letter];
            queue.uses_asides = asides.iter().any(|part| part.messages.count() > 0);
        }
    }

    #[inline]
    fn note_part(&mut self, queue: &mut Queue, sub_queue: SubQueue, idle_at: Option<Timestamp>) {
        self.changed.note(queue, sub_queue);
        let has_work = has_work(queue, sub_queue);
        let address = Address { entity: queue.entity, sub_queue };
        let part = queue.part_mut(sub_queue);
        if has_work && !part.noted.ready {
            part.noted.ready = true;
            self.ready.push_back(address);
        }
        let deadline = earlier(part.messages.next_deadline(), idle_at);
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
        for sub_queue in SubQueue::ALL {
            self.note_deadline(Address { entity, sub_queue }, queue.part_mut(sub_queue), None);
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// The sub-queue in which something is due first, if that is by `now`.
    pub(crate) fn next_due(&self, now: Timestamp) -> Option<Address> {
        self.deadlines.first().filter(|&&(deadline, _)| deadline <= now).map(|&(_, address)| address)
    }

    /// Takes a sub-queue off the list of ready ones.
    pub(crate) fn next_ready(&mut self) -> Option<Address> {
        self.ready.pop_front()
    }
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, None) => one,
        (None, other) => other,
    }
}

/// Whether something can be handed out or on.
#[inline]
fn has_work(queue: &Queue, sub_queue: SubQueue) -> bool {
    let part = queue.part(sub_queue);
    (part.messages.has_ready() && !part.asking.is_empty())
        || part.messages.has_session_work()
        || queue.has_to_forward(sub_queue)
}
