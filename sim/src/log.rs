//! The observations of all clients, in order. The oracle has no other input.

mod blobs;
mod hub;
mod program;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use peeklock_client::{LockToken, Outcome};
use peeklock_types::OrderSettings;
use tokio::time::Instant;

use crate::scenario::Target;
pub use blobs::{BlobChange, BlobEvent, FoundBlob, LeaseWish};
pub use hub::{EventNumber, Fate, HubEvent, Numbered, Owned, ReadEnd, ReadEvent, Refusal, Stage};
pub use program::ProgramEvent;

/// The number by which a sender identifies a message; unique in a run. A message that is sent to a topic has a number,
/// and so has each copy of it.
pub type MessageNumber = u32;

/// The index of a queue in the scenario.
pub type QueueIndex = usize;

/// The sub-queue in which a message was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Main,
    DeadLetter,
}

/// The number of a session in its queue.
pub type SessionNumber = u32;

/// The sender's settings for a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    pub session: Option<SessionNumber>,
    pub time_to_live_ms: Option<u64>,
    /// The due time, in world time. The message is not delivered earlier.
    pub due_ms: Option<u64>,
    pub transaction: Option<u32>,
}

/// The outcome of a request for its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// The broker rejected it and changed nothing.
    Refused {
        lock_lost: bool,
        why: String,
    },
    /// There is no answer, and the request may have been executed.
    Unknown,
}

/// A delivery, or a message that was requested by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub queue: QueueIndex,
    pub part: Part,
    /// The message; `None` if no client has sent it.
    pub message: Option<MessageNumber>,
    pub sequence_number: u64,
    /// The lock token; `None` in mode receive-and-delete.
    pub token: Option<LockToken>,
    /// The end of the lock, by the broker's clock.
    pub locked_until_ms: u64,
    pub delivery_count: u32,
    /// The run of the broker that delivered it.
    pub run: u32,
    pub is_intact: bool,
    pub dead_letter_reason: Option<String>,
    /// Whether the message was requested by number instead of delivered on a link.
    pub by_number: bool,
    pub session: Option<SessionNumber>,
    /// The hold of a session under which it was delivered.
    pub hold: Option<u32>,
    /// The receiver; `None` for messages that were requested by number or drained at the end.
    pub link: Option<u32>,
    /// The enqueued time, by the broker's clock.
    pub enqueued_ms: u64,
    /// The class that the broker reports.
    pub class: Option<String>,
}

/// A peeked message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peeked {
    pub message: Option<MessageNumber>,
    pub session: Option<SessionNumber>,
    pub sequence_number: u64,
    pub is_deferred: bool,
}

/// The counts of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub active: u64,
    pub locked: u64,
    pub deferred: u64,
    pub dead_letter: u64,
    pub scheduled: u64,
    /// The number of messages in transfer to another queue, or rejected there.
    pub transfers: u64,
}

#[derive(Clone, Debug, PartialEq)]
#[rustfmt::skip]
pub enum Event {
    /// The broker is ready, and its clock shows `wall_ms`.
    Started { run: u32, wall_ms: u64 },
    /// The clock of the machine was set, and now shows `wall_ms`.
    Stepped { run: u32, wall_ms: u64 },
    /// The broker was asked to stop.
    Stopping { run: u32 },
    /// The broker is gone.
    Ended { run: u32, how: String },
    /// Something that must never happen.
    Trouble { what: String },
    Sending { request: u32, target: Target, messages: Vec<MessageNumber>, terms: Terms },
    Sent { request: u32, answer: Answer },
    /// Scheduled messages are cancelled.
    Cancelling { request: u32, messages: Vec<MessageNumber> },
    Cancelled { request: u32, answer: Answer },
    /// A receiver is opened; from here on the broker may lock messages for it, until its connection ends.
    Attaching { link: u32, queue: QueueIndex, part: Part, run: u32, connection: u32 },
    Received(Seen),
    Settling { request: u32, token: LockToken, outcome: Outcome, transaction: Option<u32> },
    Settled { request: u32, answer: Answer },
    Renewing { request: u32, token: LockToken },
    /// A lock is renewed. `until_ms` is its new end, by the broker's clock.
    Renewed { request: u32, answer: Answer, until_ms: u64 },
    /// A transaction is committed. A transaction that is never committed must have no effect.
    Committing { transaction: u32 },
    Committed { transaction: u32, answer: Answer },
    /// A session is held, until a time by the broker's clock.
    Holding { hold: u32, queue: QueueIndex, session: SessionNumber, until_ms: u64, run: u32, connection: u32 },
    HoldRenewed { hold: u32, until_ms: u64 },
    /// From here on the broker may give the session to another client.
    HoldEnding { hold: u32 },
    StateSetting { request: u32, hold: u32, value: u64 },
    StateSet { request: u32, answer: Answer },
    StateReading { request: u32, hold: u32 },
    StateRead { request: u32, value: Option<u64> },
    /// A connection is cut, or is silent from now on.
    Broken { connection: u32 },
    Purging { request: u32, queue: QueueIndex },
    Purged { request: u32, answer: Answer, count: u64 },
    /// The number of messages that a receiver in mode receive-and-delete may miss.
    Deleting { request: u32, queue: QueueIndex, credit: u32 },
    /// The receiver has taken everything that was sent to it.
    DeletingEnded { request: u32 },
    Peeking { request: u32, queue: QueueIndex, part: Part },
    Peeked { request: u32, messages: Vec<Peeked> },
    /// The order of a queue is changed.
    Ordering { request: u32, queue: QueueIndex, order: Option<Box<OrderSettings>> },
    Ordered { request: u32, answer: Answer },
    Hub(HubEvent),
    Blob(BlobEvent),
    Program(ProgramEvent),
    /// All is at rest, and from here on the auditor drains the queues.
    Resting,
    Counted { queue: QueueIndex, counts: Counted },
    /// The queue delivers nothing more.
    Emptied { queue: QueueIndex, counts: Counted },
}

#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    pub at_ms: u64,
    pub party: Arc<str>,
    pub event: Event,
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LogLine { at_ms, party, event } = self;
        write!(f, "{at_ms:>9} {party:<12} {event:?}")
    }
}

/// Collects the entries of a run. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Log {
    start: Instant,
    state: Arc<Mutex<LogState>>,
}

#[derive(Default)]
struct LogState {
    entries: Vec<LogLine>,
    /// The time at which each run started.
    starts: Vec<(u64, u32)>,
    request_count: u32,
    message_count: u32,
}

impl Log {
    pub(crate) fn start() -> Self {
        Log { start: Instant::now(), state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn add(&self, party: &Arc<str>, event: Event) {
        let entry = LogLine { at_ms: self.now_ms(), party: Arc::clone(party), event };
        let mut state = self.state();
        if let Event::Started { run, .. } = entry.event {
            state.starts.push((entry.at_ms, run));
        }
        state.entries.push(entry);
    }

    /// Returns the run of the broker at a time, or the last one before it.
    pub(crate) fn run_at(&self, at_ms: u64) -> u32 {
        self.state().starts.iter().rfind(|(start_ms, _)| *start_ms <= at_ms).map_or(0, |(_, run)| *run)
    }

    pub(crate) fn next_request(&self) -> u32 {
        let mut state = self.state();
        state.request_count += 1;
        state.request_count
    }

    /// Reserves consecutive numbers and returns the first.
    pub(crate) fn next_message(&self, count: u32) -> MessageNumber {
        let mut state = self.state();
        let first = state.message_count + 1;
        state.message_count += count;
        first
    }

    pub(crate) fn take(&self) -> Vec<LogLine> {
        std::mem::take(&mut self.state().entries)
    }
}
