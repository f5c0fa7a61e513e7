use std::collections::VecDeque;

use peeklock_types::{OrderSettings, SubQueue, Timestamp, limits};

use crate::agenda::Address;
use crate::message::{ReceiveMode, ReceiverId};
use crate::number_map::NumberMap;
use crate::queue::SessionSlot;

const HORIZON_MS: u64 = limits::OUTSTANDING_HORIZON.as_millis() as u64;

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
    /// How much it may hold unsettled, where that is bounded.
    bound: Option<Bound>,
}

/// A receiver that fetches ahead takes messages from under the eyes of more urgent ones that come later. So where there is an order it holds no more
/// than it settles soon.
#[derive(Clone, Copy, Debug)]
struct Bound {
    /// What it may hold at least.
    least: u32,
    /// What it holds.
    held: u32,
    /// The window of time that began last, what was settled in it, and what was settled in the one before.
    window: u64,
    settled: u32,
    settled_before: u32,
}

impl Bound {
    fn turn_to(&mut self, now: Timestamp) {
        let window = now.as_millis() / HORIZON_MS;
        if window > self.window {
            self.settled_before = if window == self.window + 1 { self.settled } else { 0 };
            (self.window, self.settled) = (window, 0);
        }
    }

    fn has_room(&self) -> bool {
        let most = self.settled.max(self.settled_before).min(limits::OUTSTANDING_MAX).max(self.least);
        self.held < most
    }
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
        Receiver {
            address,
            mode,
            credit: 0,
            window_bytes: 0,
            not_after: None,
            asking: false,
            place,
            bound: None,
        }
    }

    /// Follows the order of its queue.
    pub(crate) fn set_bound(&mut self, order: Option<&OrderSettings>) {
        let is_bounded = self.mode == ReceiveMode::PeekLock
            && self.place == Place::Queue
            && self.address.sub_queue == SubQueue::Main;
        let least = order.filter(|_| is_bounded).map(|order| order.max_outstanding);
        let none = Bound { least: 0, held: 0, window: 0, settled: 0, settled_before: 0 };
        self.bound = least.map(|least| Bound { least, ..self.bound.unwrap_or(none) });
    }

    pub(crate) fn is_bounded(&self) -> bool {
        self.bound.is_some()
    }

    /// Whether it may hold one more.
    pub(crate) fn has_room(&self) -> bool {
        self.bound.is_none_or(|bound| bound.has_room())
    }

    pub(crate) fn can_take(&self) -> bool {
        self.credit > 0 && self.window_bytes > 0 && self.has_room()
    }

    /// It holds one more.
    pub(crate) fn hold(&mut self, now: Timestamp) {
        if let Some(bound) = &mut self.bound {
            bound.turn_to(now);
            bound.held += 1;
        }
    }

    /// It holds one less.
    pub(crate) fn give_back(&mut self, now: Timestamp) {
        if let Some(bound) = &mut self.bound {
            bound.turn_to(now);
            bound.held = bound.held.saturating_sub(1);
            bound.settled += 1;
        }
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
