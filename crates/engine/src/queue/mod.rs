//! One queue with its sub-queues.

mod apply;
mod aside;
mod former;
mod forward;
mod history;
mod interrupted;
mod locks;
mod lost;
mod messages;
mod order;
mod purge;
mod receipt;
mod receive;
mod retry;
mod send;
mod sessions;
mod settle;
mod table;
mod time;
mod waiting;

use std::collections::VecDeque;

use peeklock_filter::{Rule, RuleName};
use peeklock_types::{
    CommitGroupNumber, EntityKind, EntityName, EntityPath, QueueSettings, SequenceNumber, StoredBody,
    SubQueue, Timestamp,
};

use aside::Aside;
pub(crate) use forward::reason;
pub(crate) use history::History;
pub use interrupted::INTERRUPTIONS_MAX;
use interrupted::Interrupted;
pub(crate) use messages::{Messages, Moving};
pub use receipt::NewBody;
pub(crate) use sessions::{Holder, SessionSlot, Turn};
pub(crate) use table::{Marks, MessageRow, Row};

use self::table::Table;
use crate::catalog::Counts;
use crate::error::Error;
use crate::fact::Fact;
use crate::message::{EntityId, Metadata, ReceiverId};
use crate::output::Output;

/// The largest sequence number, because sequence numbers are signed 64-bit numbers on the wire.
pub(crate) const SEQUENCE_NUMBER_MAX: SequenceNumber = SequenceNumber(i64::MAX as u64);

/// The sequence numbers that a message may use: a scheduled message gets a second number when it is due.
pub(crate) const NUMBERS_PER_MESSAGE: u64 = 2;

/// A rule of a subscription.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoredRule {
    pub(crate) rule: Rule,
    pub(crate) created_at: Timestamp,
}

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) entity: EntityId,
    pub(crate) name: EntityName,
    pub(crate) kind: EntityKind,
    pub(crate) settings: QueueSettings,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    /// Increases with each change of the settings.
    pub(crate) revision: u64,
    pub(crate) metadata: Metadata,
    /// The rules that select the messages of a subscription, by name.
    pub(crate) rules: Vec<StoredRule>,
    /// The number that the next message gets.
    pub(crate) next_number: SequenceNumber,
    /// The newest commit group that contains a body: bodies are in the order of sequence numbers, except strays.
    pub(crate) newest_group: CommitGroupNumber,
    pub(crate) main: Part,
    pub(crate) dead_letter: Aside,
    pub(crate) transfer: Aside,
    pub(crate) transfer_dead_letter: Aside,
    /// Whether there may be messages outside of the main part. Usually there are none, and the search is skipped.
    pub(crate) uses_asides: bool,
    /// The message ids seen, if duplicates are detected.
    pub(crate) history: History,
    /// The time of the last use, and the number of receivers. Both are kept only in memory.
    pub(crate) used_at: Timestamp,
    pub(crate) receiver_count: usize,
    /// How often the handling of messages was interrupted. Kept only in memory.
    interrupted: Interrupted,
}

/// One sub-queue: its messages, and the receivers that request them.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) messages: Messages,
    /// Receivers that can take a message now, in the order of their requests.
    pub(crate) asking: VecDeque<ReceiverId>,
    /// The notes of the agenda about this part.
    pub(crate) noted: Noted,
}

#[derive(Debug, Default)]
pub(crate) struct Noted {
    pub(crate) ready: bool,
    /// Whether the part has watchers, and whether its head may have changed.
    pub(crate) is_watched: bool,
    pub(crate) has_changed: bool,
    pub(crate) deadline: Option<Timestamp>,
}

impl Part {
    fn new(messages: Messages) -> Part {
        Part { messages, asking: VecDeque::new(), noted: Noted::default() }
    }
}

impl Queue {
    pub(crate) fn new(
        entity: EntityId,
        name: EntityName,
        kind: EntityKind,
        settings: QueueSettings,
        created_at: Timestamp,
    ) -> Queue {
        Queue {
            entity,
            name,
            kind,
            settings,
            created_at,
            updated_at: created_at,
            revision: 0,
            metadata: Metadata::default(),
            rules: Vec::new(),
            next_number: SequenceNumber::FIRST,
            newest_group: CommitGroupNumber::NONE,
            main: Part::new(Messages::new(Table::dense(), true)),
            dead_letter: Aside::default(),
            transfer: Aside::default(),
            transfer_dead_letter: Aside::default(),
            uses_asides: true,
            history: History::default(),
            used_at: created_at,
            receiver_count: 0,
            interrupted: Interrupted::default(),
        }
    }

    /// Applies the order in the settings to the messages.
    pub(crate) fn follow_order(&mut self) -> Result<(), Error> {
        self.main.messages.set_order(self.settings.order.as_deref(), self.settings.requires_session)
    }

    pub(crate) fn part(&self, sub_queue: SubQueue) -> &Part {
        match sub_queue {
            SubQueue::Main => &self.main,
            SubQueue::DeadLetter => &self.dead_letter,
            SubQueue::Transfer => &self.transfer,
            SubQueue::TransferDeadLetter => &self.transfer_dead_letter,
        }
    }

    pub(crate) fn part_mut(&mut self, sub_queue: SubQueue) -> &mut Part {
        match sub_queue {
            SubQueue::Main => &mut self.main,
            SubQueue::DeadLetter => &mut self.dead_letter,
            SubQueue::Transfer => &mut self.transfer,
            SubQueue::TransferDeadLetter => &mut self.transfer_dead_letter,
        }
    }

    pub(crate) fn parts(&self) -> [&Part; 4] {
        SubQueue::ALL.map(|sub_queue| self.part(sub_queue))
    }

    /// Returns the parts that were ever used.
    pub(crate) fn used_parts_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        let asides = [&mut self.dead_letter, &mut self.transfer, &mut self.transfer_dead_letter];
        std::iter::once(&mut self.main).chain(asides.into_iter().filter_map(Aside::used_mut))
    }

    /// Returns whether the part was ever used. Another one has no messages, receivers or notes.
    pub(crate) fn uses(&self, sub_queue: SubQueue) -> bool {
        match sub_queue {
            SubQueue::Main => true,
            SubQueue::DeadLetter => self.dead_letter.is_used(),
            SubQueue::Transfer => self.transfer.is_used(),
            SubQueue::TransferDeadLetter => self.transfer_dead_letter.is_used(),
        }
    }

    pub(crate) fn path(&self, sub_queue: SubQueue) -> EntityPath {
        EntityPath { name: self.name.clone(), sub_queue }
    }

    pub(crate) fn counts(&self) -> Counts {
        let main = &self.main.messages;
        Counts {
            active_count: main.count() - main.deferred_count() - main.scheduled_count(),
            deferred_count: main.deferred_count(),
            scheduled_count: main.scheduled_count(),
            locked_count: main.locked_count(),
            dead_letter_count: self.dead_letter.messages.count(),
            transfer_count: self.transfer.messages.count(),
            transfer_dead_letter_count: self.transfer_dead_letter.messages.count(),
            size_bytes: self.size_bytes(),
        }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.parts().into_iter().map(|part| part.messages.size_bytes()).sum()
    }

    /// Returns the sub-queue of a message. A message keeps its number while it is in the queue, so it is in at most one
    /// sub-queue.
    pub(crate) fn sub_queue_of(&self, number: SequenceNumber) -> Option<SubQueue> {
        let is_in = |sub_queue: &SubQueue| self.part(*sub_queue).messages.get(number).is_some();
        SubQueue::ALL.into_iter().find(is_in)
    }

    /// Returns the index of a rule of the subscription, or the index at which it would be inserted.
    pub(crate) fn find_rule(&self, name: &RuleName) -> Result<usize, usize> {
        self.rules.binary_search_by(|stored| stored.rule.name.cmp(name))
    }

    /// Returns how many numbers are neither assigned nor kept for scheduled messages.
    pub(crate) fn numbers_left(&self) -> u64 {
        (SEQUENCE_NUMBER_MAX.0 - self.next_number.0).saturating_sub(self.main.messages.scheduled_count())
    }

    /// Rejects the transfer queue: messages in transit belong to the outbox, and cannot be received or deleted.
    pub(crate) fn check_address(&self, sub_queue: SubQueue) -> Result<(), Error> {
        match sub_queue {
            SubQueue::Transfer => Err(Error::NoAddress { path: self.path(sub_queue) }),
            SubQueue::Main | SubQueue::DeadLetter | SubQueue::TransferDeadLetter => Ok(()),
        }
    }

    /// Applies a fact that was just decided on this very state, and adds it to the output.
    pub(crate) fn record(&mut self, fact: Fact, out: &mut Output) {
        self.apply(&fact, &mut out.freed).expect("a fact fits the state on which it was decided");
        out.facts.push(fact);
    }

    /// Returns the time at which the queue is deleted if it stays unused. A queue with messages in transit to other
    /// queues is not deleted: they may be part of a transaction that was confirmed.
    pub(crate) fn idle_at(&self) -> Option<Timestamp> {
        let idle = self.settings.auto_delete_on_idle?;
        (self.receiver_count == 0 && self.transfer.messages.count() == 0).then(|| self.used_at + idle)
    }
}

/// Returns the body of `entry` if it is standalone.
pub(crate) fn standalone(entry: &MessageRow) -> Option<StoredBody> {
    entry.body.is_standalone().then_some(StoredBody { place: entry.body, size_bytes: entry.size_bytes })
}
