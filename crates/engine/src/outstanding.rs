//! The limit of unsettled messages of a receiver.

use peeklock_types::{Timestamp, limits};

/// Counts the settlements of a receiver, on which its limit of unsettled messages depends.
///
/// A receiver that prefetches keeps messages from others while more urgent ones arrive. So in a queue with an order, and
/// in a queue group, it holds no more messages than it settles soon.
#[derive(Clone, Copy, Debug, Default)]
pub struct SettlementPace {
    /// The current time window, the number of messages settled in it, and the number settled in the window before.
    window: u64,
    settled: u32,
    settled_before: u32,
}

impl SettlementPace {
    /// Ends time windows that are over, so that [`SettlementPace::limit`] is the limit at this time.
    pub fn turn_to(&mut self, now: Timestamp) {
        let window = now.as_millis() / limits::OUTSTANDING_HORIZON_MS;
        if window > self.window {
            self.settled_before = if window == self.window + 1 { self.settled } else { 0 };
            (self.window, self.settled) = (window, 0);
        }
    }

    /// Counts one settlement.
    pub fn count(&mut self, now: Timestamp) {
        self.turn_to(now);
        self.settled = self.settled.saturating_add(1);
    }

    /// Returns the limit of unsettled messages: `least`, or the number of recent settlements if that is larger.
    pub fn limit(&self, least: u32) -> u32 {
        self.settled.max(self.settled_before).min(limits::OUTSTANDING_MAX).max(least)
    }
}
