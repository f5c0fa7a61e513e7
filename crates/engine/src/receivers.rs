use std::collections::VecDeque;

use peeklock_types::{OrderSettings, SubQueue, Timestamp};

use crate::agenda::Address;
use crate::message::{ReceiveMode, ReceiverId};
use crate::number_map::NumberMap;
use crate::outstanding::SettlementPace;
use crate::queue::SessionSlot;

/// The receivers of a shard. They are kept only in memory: after a restart receivers attach again.
#[derive(Debug, Default)]
pub(crate) struct Receivers {
    pub(crate) by_id: NumberMap<ReceiverId, Receiver>,
    /// Receivers with an unfinished drain.
    pub(crate) draining: Vec<ReceiverId>,
    /// Watching receivers that were at their limit and may now hold more. They get the head again that they could not
    /// take.
    pub(crate) made_room: Vec<ReceiverId>,
}

#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) address: Address,
    pub(crate) mode: ReceiveMode,
    /// The number of messages that the receiver still accepts.
    pub(crate) credit: u32,
    /// The number of bytes that the receiver still accepts. The last message may exceed it.
    pub(crate) window_bytes: i64,
    /// The receiver accepts no message that is less urgent than this.
    pub(crate) not_after: Option<Timestamp>,
    /// Whether the receiver is in the list of receivers that request messages.
    pub(crate) asking: bool,
    /// Deliveries that will remove their message when its body was read.
    pub(crate) removing_count: u32,
    pub(crate) place: Place,
    /// The limit of unsettled messages, if there is one.
    bound: Option<Bound>,
}

/// The limit of unsettled messages of a receiver.
#[derive(Clone, Copy, Debug)]
struct Bound {
    /// The smallest value of the limit.
    least: u32,
    /// The number of messages that the receiver holds.
    held: u32,
    pace: SettlementPace,
}

impl Bound {
    fn has_room(&self) -> bool {
        self.held < self.pace.limit(self.least)
    }
}

/// The source of a receiver's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The whole sub-queue.
    Queue,
    /// One session, which the receiver holds.
    Session(SessionSlot),
    /// No source yet: the receiver waits for a session.
    Nowhere,
    /// No source any more: the lock on the session has expired. The receiver is closed at this time, or as soon as
    /// another receiver has the session.
    Former(Timestamp),
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
            removing_count: 0,
            place,
            bound: None,
        }
    }

    /// Sets the limit that the order of the queue requires.
    pub(crate) fn set_bound(&mut self, order: Option<&OrderSettings>) {
        let is_bounded = self.mode == ReceiveMode::PeekLock
            && self.place == Place::Queue
            && self.address.sub_queue == SubQueue::Main;
        let least = order.filter(|_| is_bounded).map(|order| order.max_outstanding);
        let none = Bound { least: 0, held: 0, pace: SettlementPace::default() };
        self.bound = least.map(|least| Bound { least, ..self.bound.unwrap_or(none) });
    }

    pub(crate) fn is_bounded(&self) -> bool {
        self.bound.is_some()
    }

    /// Returns whether the receiver may hold one more message.
    pub(crate) fn has_room(&self) -> bool {
        self.bound.is_none_or(|bound| bound.has_room())
    }

    /// Like `has_room`, at a time that may be long after the last settlement.
    pub(crate) fn has_room_at(&mut self, now: Timestamp) -> bool {
        if let Some(bound) = &mut self.bound {
            bound.pace.turn_to(now);
        }
        self.has_room()
    }

    pub(crate) fn can_take(&self) -> bool {
        self.credit > 0 && self.window_bytes > 0 && self.has_room()
    }

    /// Counts one more held message.
    pub(crate) fn hold(&mut self, now: Timestamp) {
        if let Some(bound) = &mut self.bound {
            bound.pace.turn_to(now);
            bound.held += 1;
        }
    }

    /// Counts one held message less. A released message does not count as settled: SDKs release messages that arrive
    /// while no receive is pending.
    ///
    /// Returns whether that makes room where there was none.
    pub(crate) fn give_back(&mut self, now: Timestamp, is_returned: bool) -> bool {
        let had_room = self.has_room_at(now);
        if let Some(bound) = &mut self.bound {
            bound.held = bound.held.saturating_sub(1);
            if !is_returned {
                bound.pace.count(now);
            }
        }
        !had_room && self.has_room()
    }

    /// Adds the receiver at the end of the list, keeps its position, or removes it.
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

#[cfg(test)]
mod tests {
    use crate::EntityId;

    use super::*;

    /// Returns a receiver that holds `least` messages, which is its limit.
    fn full(least: u32, now: Timestamp) -> Receiver {
        let address = Address { entity: EntityId(1), sub_queue: SubQueue::Main };
        let mut receiver = Receiver::new(address, ReceiveMode::PeekLock, Place::Queue);
        receiver.set_bound(Some(&OrderSettings { max_outstanding: least, ..OrderSettings::default() }));
        (0..least).for_each(|_| receiver.hold(now));
        receiver
    }

    #[test]
    fn a_receiver_that_settles_fast_may_hold_more_for_a_while() {
        let at = Timestamp::from_millis;
        let mut receiver = full(2, at(1000));
        assert!(!receiver.has_room());
        for _ in 0..5 {
            receiver.give_back(at(1000), false);
            receiver.hold(at(1000));
        }
        (0..3).for_each(|_| receiver.hold(at(1150)));
        assert!(!receiver.has_room(), "the limit is five, as many as the receiver settled");
        receiver.give_back(at(1400), false);
        assert!(!receiver.has_room(), "the settlements were long ago");
    }

    #[test]
    fn an_old_settlement_rate_does_not_raise_the_limit() {
        let at = Timestamp::from_millis;
        let mut receiver = full(1, at(1000));
        for _ in 0..5 {
            receiver.give_back(at(1000), false);
            receiver.hold(at(1000));
        }
        assert!(receiver.has_room_at(at(1150)));
        assert!(!receiver.has_room_at(at(5000)));
        assert!(!receiver.has_room(), "a drain uses the current limit too");
    }

    #[test]
    fn released_messages_do_not_raise_the_limit() {
        let at = Timestamp::from_millis;
        let mut receiver = full(2, at(1000));
        for _ in 0..5 {
            receiver.give_back(at(1000), true);
            receiver.hold(at(1000));
        }
        assert!(!receiver.has_room());
        receiver.give_back(at(1000), true);
        assert!(receiver.has_room());
    }
}
