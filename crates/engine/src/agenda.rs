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

/// The sub-queues that have work to do, so that no call has to search all of them.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    /// Sub-queues with a waiting message and a receiver for it. Some may have lost the message or the receiver since,
    /// or may be deleted.
    ready: VecDeque<Address>,
    /// The next deadline of each sub-queue.
    deadlines: BTreeSet<(Timestamp, Address)>,
    /// Sub-queues whose watchers may need a new head.
    pub(crate) changed: Changed,
}

impl Agenda {
    /// Updates the agenda after a command changed `queue`.
    pub(crate) fn note(&mut self, queue: &mut Queue) {
        let idle_at = queue.idle_at();
        self.note_part(queue, SubQueue::Main, idle_at);
        if queue.uses_asides {
            for sub_queue in [SubQueue::DeadLetter, SubQueue::Transfer, SubQueue::TransferDeadLetter] {
                if queue.uses(sub_queue) {
                    self.note_part(queue, sub_queue, None);
                }
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

    /// Removes a deleted queue.
    pub(crate) fn forget(&mut self, queue: &mut Queue) {
        let entity = queue.entity;
        for sub_queue in SubQueue::ALL {
            if queue.uses(sub_queue) {
                self.note_deadline(Address { entity, sub_queue }, queue.part_mut(sub_queue), None);
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// Returns the sub-queue with the earliest deadline, if the deadline is not after `now`.
    pub(crate) fn next_due(&self, now: Timestamp) -> Option<Address> {
        self.deadlines.first().filter(|&&(deadline, _)| deadline <= now).map(|&(_, address)| address)
    }

    /// Removes and returns the first ready sub-queue.
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

/// Returns whether a message can be delivered or forwarded.
#[inline]
fn has_work(queue: &Queue, sub_queue: SubQueue) -> bool {
    let part = queue.part(sub_queue);
    (part.messages.has_ready() && !part.asking.is_empty())
        || part.messages.has_session_work()
        || queue.has_to_forward(sub_queue)
}
