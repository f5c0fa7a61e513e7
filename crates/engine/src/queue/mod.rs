//! One queue with its dead-letter queue.

mod locks;
mod messages;
mod receive;
mod send;
mod settle;
mod table;

use std::collections::VecDeque;

use peeklock_types::{
    BodyPlace, EntityName, EntityPath, GroupNumber, QueueSettings, SequenceNumber, SubQueue, Timestamp,
};

pub(crate) use messages::Messages;
pub(crate) use table::Entry;

use self::messages::{Misfit, Unlock};
use self::table::Table;
use crate::catalog::Counts;
use crate::error::ReplayError;
use crate::fact::Fact;
use crate::message::{EntityId, MessageState, ReceiverId};
use crate::outbox::{ColdBody, Outbox};
use crate::patch::{Patch, PatchPart};

/// Sequence numbers go over the wire as signed 64-bit numbers.
pub(crate) const SEQUENCE_NUMBER_MAX: SequenceNumber = SequenceNumber(i64::MAX as u64);

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) entity: EntityId,
    pub(crate) name: EntityName,
    pub(crate) settings: QueueSettings,
    pub(crate) created_at: Timestamp,
    /// The number that the next message gets.
    pub(crate) next_number: SequenceNumber,
    /// The newest group that a body was put in: bodies rise with sequence numbers.
    pub(crate) newest_group: GroupNumber,
    pub(crate) main: Part,
    pub(crate) dead_letter: Part,
}

/// One of a queue's two sub-queues: its messages, and who asks for them.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) messages: Messages,
    /// Receivers that would take a message now, in the order in which they asked.
    pub(crate) asking: VecDeque<ReceiverId>,
    /// What the agenda has noted about this part.
    pub(crate) noted: Noted,
}

#[derive(Debug, Default)]
pub(crate) struct Noted {
    pub(crate) ready: bool,
    pub(crate) deadline: Option<Timestamp>,
}

impl Part {
    fn new(table: Table) -> Part {
        Part { messages: Messages::new(table), asking: VecDeque::new(), noted: Noted::default() }
    }
}

impl Queue {
    pub(crate) fn new(
        entity: EntityId,
        name: EntityName,
        settings: QueueSettings,
        created_at: Timestamp,
    ) -> Queue {
        Queue {
            entity,
            name,
            settings,
            created_at,
            next_number: SequenceNumber::FIRST,
            newest_group: GroupNumber::NONE,
            main: Part::new(Table::dense()),
            dead_letter: Part::new(Table::sparse()),
        }
    }

    pub(crate) fn part(&self, sub_queue: SubQueue) -> &Part {
        match sub_queue {
            SubQueue::Main => &self.main,
            SubQueue::DeadLetter => &self.dead_letter,
        }
    }

    pub(crate) fn part_mut(&mut self, sub_queue: SubQueue) -> &mut Part {
        match sub_queue {
            SubQueue::Main => &mut self.main,
            SubQueue::DeadLetter => &mut self.dead_letter,
        }
    }

    pub(crate) fn path(&self, sub_queue: SubQueue) -> EntityPath {
        EntityPath { name: self.name.clone(), sub_queue }
    }

    pub(crate) fn counts(&self) -> Counts {
        let (main, dead_letter) = (&self.main.messages, &self.dead_letter.messages);
        Counts {
            active_count: main.count() - main.deferred_count(),
            deferred_count: main.deferred_count(),
            locked_count: main.locked_count(),
            dead_letter_count: dead_letter.count(),
            size_bytes: main.size_bytes() + dead_letter.size_bytes(),
        }
    }

    /// Applies a fact that was just decided on this very state, and hands it to the journal.
    pub(crate) fn record(&mut self, fact: Fact, out: &mut Outbox) {
        self.apply(&fact, &mut out.freed).expect("a fact fits the state on which it was decided");
        out.facts.push(fact);
    }

    /// The only way in which durable state changes, live and in replay.
    pub(crate) fn apply(&mut self, fact: &Fact, freed: &mut Vec<ColdBody>) -> Result<(), ReplayError> {
        const BACK: Unlock = Unlock { failed: false, state: None };
        const FAILED: Unlock = Unlock { failed: true, state: None };
        const SET_ASIDE: Unlock = Unlock { failed: false, state: Some(MessageState::Deferred) };
        let entity = self.entity;
        match *fact {
            Fact::QueueCreated { .. } | Fact::QueueDeleted { .. } => {
                unreachable!("the catalog applies these")
            }
            Fact::Enqueued { sequence_number, enqueued_at, body, size_bytes, .. } => {
                let state = MessageState::Active;
                let entry = Entry {
                    body,
                    enqueued_at,
                    size_bytes,
                    delivery_count: 0,
                    lock: None,
                    state,
                    patched: false,
                };
                self.enqueue(sequence_number, entry)
            }
            Fact::Locked { sub_queue, sequence_number: number, nonce, until, .. } => {
                self.messages(sub_queue).lock(number, nonce, until).map_err(at(entity, number))
            }
            Fact::Renewed { sub_queue, sequence_number: number, until, .. } => {
                self.messages(sub_queue).renew(number, until).map_err(at(entity, number))
            }
            Fact::Completed { sub_queue, sequence_number: number, .. } => {
                let (entry, _) = self.messages(sub_queue).remove(number).map_err(at(entity, number))?;
                freed.extend(cold(&entry));
                Ok(())
            }
            Fact::Abandoned { sub_queue, sequence_number, ref patch, .. } => {
                self.unlock(sub_queue, sequence_number, FAILED, patch.as_ref())
            }
            Fact::LockExpired { sub_queue, sequence_number, .. } => {
                self.unlock(sub_queue, sequence_number, FAILED, None)
            }
            Fact::Released { sub_queue, sequence_number, .. } => {
                self.unlock(sub_queue, sequence_number, BACK, None)
            }
            Fact::Deferred { sub_queue, sequence_number, ref patch, .. } => {
                self.unlock(sub_queue, sequence_number, SET_ASIDE, patch.as_ref())
            }
            Fact::DeadLettered { sub_queue, sequence_number: number, failed, ref patch, .. } => {
                self.dead_letter(sub_queue, number, failed, patch).map_err(at(entity, number))
            }
            Fact::Moved { sequence_number: number, from, to, .. } => {
                let sub_queue =
                    self.sub_queue_of(number).ok_or_else(|| at(entity, number)(Misfit::Missing))?;
                freed.extend(
                    self.messages(sub_queue).move_body(number, from, to).map_err(at(entity, number))?,
                );
                Ok(())
            }
        }
    }

    fn messages(&mut self, sub_queue: SubQueue) -> &mut Messages {
        &mut self.part_mut(sub_queue).messages
    }

    /// A message keeps its number for life, so it is in one sub-queue at most.
    pub(crate) fn sub_queue_of(&self, number: SequenceNumber) -> Option<SubQueue> {
        let is_in = |sub_queue: &SubQueue| self.part(*sub_queue).messages.get(number).is_some();
        [SubQueue::Main, SubQueue::DeadLetter].into_iter().find(is_in)
    }

    fn enqueue(&mut self, number: SequenceNumber, entry: Entry) -> Result<(), ReplayError> {
        let (entity, expected, newest) = (self.entity, self.next_number, self.newest_group);
        if number != expected || number >= SEQUENCE_NUMBER_MAX {
            return Err(ReplayError::SequenceOrder { entity, found: number, expected });
        }
        if let BodyPlace::Log { group, .. } = entry.body.place() {
            if group < newest {
                return Err(ReplayError::BodyOrder { entity, sequence_number: number, group, newest });
            }
            self.newest_group = group;
        }
        self.next_number = number.next();
        self.main.messages.insert(number, entry, Patch::default()).map_err(at(entity, number))
    }

    fn unlock(
        &mut self,
        sub_queue: SubQueue,
        number: SequenceNumber,
        how: Unlock,
        patch: Option<&bytes::Bytes>,
    ) -> Result<(), ReplayError> {
        let entity = self.entity;
        let messages = self.messages(sub_queue);
        messages.unlock(number, how).map_err(at(entity, number))?;
        match patch {
            Some(map) => {
                messages.add_patch(number, PatchPart::Properties(map.clone())).map_err(at(entity, number))
            }
            None => Ok(()),
        }
    }

    fn dead_letter(
        &mut self,
        sub_queue: SubQueue,
        number: SequenceNumber,
        failed: bool,
        patch: &Patch,
    ) -> Result<(), Misfit> {
        // A deferred message waits again once it is dead-lettered: whoever reads the dead letters does not know its number.
        self.messages(sub_queue).unlock(number, Unlock { failed, state: Some(MessageState::Active) })?;
        if sub_queue == SubQueue::Main {
            let (entry, patch) = self.main.messages.remove(number)?;
            self.dead_letter.messages.insert(number, entry, patch)?;
        }
        for part in &patch.parts {
            self.dead_letter.messages.add_patch(number, part.clone())?;
        }
        Ok(())
    }
}

/// The body of `entry` if it lies in a cold segment.
pub(crate) fn cold(entry: &Entry) -> Option<ColdBody> {
    entry.body.is_cold().then_some(ColdBody { place: entry.body, size_bytes: entry.size_bytes })
}

fn at(entity: EntityId, sequence_number: SequenceNumber) -> impl Fn(Misfit) -> ReplayError {
    move |misfit| match misfit {
        Misfit::Missing => ReplayError::NoSuchMessage { entity, sequence_number },
        Misfit::Present => ReplayError::TwiceThere { entity, sequence_number },
        Misfit::LockedTwice => ReplayError::LockedTwice { entity, sequence_number },
        Misfit::NotLocked => ReplayError::NotLocked { entity, sequence_number },
        Misfit::OtherBody => ReplayError::BodyMoved { entity, sequence_number },
    }
}
