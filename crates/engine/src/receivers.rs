use std::collections::VecDeque;

use peeklock_types::Timestamp;

use crate::agenda::Address;
use crate::message::{ReceiveMode, ReceiverId};
use crate::number_map::NumberMap;
use crate::queue::SessionSlot;

/// Who takes messages. Lives only in memory: after a restart receivers attach again.
#[derive(Debug, Default)]
pub(crate) struct Receivers {
    pub(crate) by_id: NumberMap<ReceiverId, Receiver>,
    /// Those that wait for the end of a drain.
    pub(crate) draining: Vec<ReceiverId>,
}

#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) address: Address,
    pub(crate) mode: ReceiveMode,
    /// How many messages it will still take.
    pub(crate) credit: u32,
    /// How many bytes it will still take. The last message may go beyond.
    pub(crate) window_bytes: i64,
    /// It takes no message that is less urgent than this.
    pub(crate) not_after: Option<Timestamp>,
    /// Whether it stands in the row of those that ask.
    pub(crate) asking: bool,
    pub(crate) place: Place,
}

/// What a receiver receives from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The whole sub-queue.
    Queue,
    /// One session, which it holds.
    Session(SessionSlot),
    /// Nothing yet: it waits for a session.
    Nowhere,
}

impl Receiver {
    pub(crate) fn new(address: Address, mode: ReceiveMode, place: Place) -> Receiver {
        Receiver { address, mode, credit: 0, window_bytes: 0, not_after: None, asking: false, place }
    }

    pub(crate) fn can_take(&self) -> bool {
        self.credit > 0 && self.window_bytes > 0
    }

    /// Joins the row at its end, stays where it is, or leaves it.
    pub(crate) fn queue_up(&mut self, id: ReceiverId, asking: &mut VecDeque<ReceiverId>) {
        match (self.asking, self.can_take()) {
            (false, true) => asking.push_back(id),
            (true, false) => asking.retain(|&other| other != id),
            (false, false) | (true, true) => {}
        }
        self.asking = self.can_take();
    }

    pub(crate) fn charge(&mut self, size_bytes: u32) {
        self.credit = self.credit.saturating_sub(1);
        self.window_bytes = self.window_bytes.saturating_sub(size_bytes.into());
    }
}
