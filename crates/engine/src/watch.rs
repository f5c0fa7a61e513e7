//! Receivers that are notified of the message that their sub-queue would deliver next.
//!
//! A client that receives from several queues as from one compares their heads, and then takes a *run* from the queue
//! with the most urgent head. A notification locks nothing, and without watchers there is no cost.

use std::collections::{BTreeMap, VecDeque};

use peeklock_types::{SequenceNumber, SubQueue, Timestamp};

use crate::agenda::Address;
use crate::engine::Engine;
use crate::message::ReceiverId;
use crate::output::Output;
use crate::queue::Queue;

/// The message that a sub-queue would deliver next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub sequence_number: SequenceNumber,
    /// The value by which heads of several queues compare: the time of enqueueing, plus the offset of the message's
    /// class if the queue orders by age.
    pub urgency: Timestamp,
}

/// Reports to a watching receiver that its sub-queue has another head, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadChange {
    pub receiver: ReceiverId,
    /// The serial of the receiver's request.
    pub serial: u32,
    pub head: Option<Head>,
}

/// The watchers of each sub-queue. They are kept only in memory, like receivers.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    by_address: BTreeMap<Address, Vec<Watcher>>,
}

#[derive(Debug)]
struct Watcher {
    receiver: ReceiverId,
    serial: u32,
    /// The last head that was reported to the receiver. The outer `None` means that none was reported yet.
    told: Option<Option<Head>>,
}

/// Watched sub-queues with changes.
#[derive(Debug, Default)]
pub(crate) struct Changed(VecDeque<Address>);

impl Changed {
    /// Notes a change.
    #[inline]
    pub(crate) fn note(&mut self, queue: &mut Queue, sub_queue: SubQueue) {
        let noted = &mut queue.part_mut(sub_queue).noted;
        if noted.is_watched && !noted.has_changed {
            noted.has_changed = true;
            self.0.push_back(Address { entity: queue.entity, sub_queue });
        }
    }
}

impl Engine {
    /// Starts to report the next message of the receiver's sub-queue in [`Output::heads`] of each [`Engine::deliver`],
    /// whenever it has changed; a serial of `None` stops the reports. The head is reported again after the receiver was
    /// at its limit and settles a message. A new request repeats the report. The reports are meant for receivers of a
    /// whole sub-queue; those to a receiver of a session include messages that it does not get.
    pub fn watch(&mut self, receiver: ReceiverId, serial: Option<u32>) {
        let Some(address) = self.receivers.by_id.get(&receiver).map(|receiver| receiver.address) else {
            return;
        };
        let here = self.watchers.by_address.entry(address).or_default();
        here.retain(|watcher| watcher.receiver != receiver);
        if let Some(serial) = serial {
            here.push(Watcher { receiver, serial, told: None });
        }
        let is_watched = !here.is_empty();
        if !is_watched {
            self.watchers.by_address.remove(&address);
        }
        let Some(queue) = self.queues.get_mut(&address.entity) else { return };
        queue.part_mut(address.sub_queue).noted.is_watched = is_watched;
        self.agenda.changed.note(queue, address.sub_queue);
    }

    /// Grants the receiver up to `credit` messages, none less urgent than `not_after`, and then revokes the rest of the
    /// credit: the same as a drain, and reported in the same way.
    pub fn take_run(&mut self, receiver: ReceiverId, credit: u32, not_after: Option<Timestamp>) {
        self.set_not_after(receiver, not_after);
        self.set_credit(receiver, credit);
        self.drain(receiver);
    }

    /// Repeats the head for receivers that could not take it because of their limit, and now can.
    fn repeat_heads(&mut self) {
        for id in std::mem::take(&mut self.receivers.made_room) {
            let Some(address) = self.receivers.by_id.get(&id).map(|receiver| receiver.address) else {
                continue;
            };
            let Some(queue) = self.queues.get_mut(&address.entity) else { continue };
            let mut here = self.watchers.by_address.get_mut(&address).into_iter().flatten();
            if let Some(watcher) = here.find(|watcher| watcher.receiver == id) {
                watcher.told = None;
                self.agenda.changed.note(queue, address.sub_queue);
            }
        }
    }

    /// Reports changed heads. The caller calls it when all commands of a batch are decided.
    pub(crate) fn tell_heads(&mut self, now: Timestamp, out: &mut Output) {
        self.repeat_heads();
        while let Some(address) = self.agenda.changed.0.pop_front() {
            let Some(queue) = self.queues.get_mut(&address.entity) else {
                self.watchers.by_address.remove(&address);
                continue;
            };
            let head = head(now, queue, address.sub_queue);
            // The search for a head may find that all classes are over their rates, which changes the next deadline.
            self.agenda.note(queue);
            queue.part_mut(address.sub_queue).noted.has_changed = false;
            for watcher in self.watchers.by_address.get_mut(&address).into_iter().flatten() {
                if watcher.told != Some(head) {
                    watcher.told = Some(head);
                    let Watcher { receiver, serial, .. } = *watcher;
                    out.heads.push(HeadChange { receiver, serial, head });
                }
            }
        }
    }
}

/// Notes that a receiver may hold more messages, if its sub-queue has watchers.
pub(crate) fn note_room(queue: &Queue, id: ReceiverId, at: Address, made_room: &mut Vec<ReceiverId>) {
    if queue.part(at.sub_queue).noted.is_watched {
        made_room.push(id);
    }
}

fn head(now: Timestamp, queue: &mut Queue, sub_queue: SubQueue) -> Option<Head> {
    let sequence_number = queue.part_mut(sub_queue).messages.next_waiting(now)?;
    Some(Head { sequence_number, urgency: urgency(queue, sub_queue, sequence_number) })
}

/// Returns the value by which a message compares with those of other queues.
pub(crate) fn urgency(queue: &Queue, sub_queue: SubQueue, number: SequenceNumber) -> Timestamp {
    let messages = &queue.part(sub_queue).messages;
    let Some(entry) = messages.get(number) else { return Timestamp::MAX };
    let offset = messages.order().zip(entry.lane).map(|(order, lane)| order.offset_of(lane));
    entry.enqueued_at() + offset.unwrap_or_default()
}
