//! Counts how often the handling of each message was interrupted.
//!
//! An interruption is not a failure, so it does not count as a delivery. But a message that interrupts its handler each time, for example
//! because it makes the program stop, must end in the dead-letter queue some day. The counts are kept only in memory: a restart of the broker
//! gives each message the same number of interruptions again.

use peeklock_types::SequenceNumber;

use super::Queue;
use crate::number_map::NumberMap;

/// The number of interruptions of a message that do not count as deliveries.
pub const INTERRUPTIONS_MAX: u8 = 20;
/// The number of counts from which on those of removed messages are searched.
const SWEEP_MIN: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Interrupted {
    counts: NumberMap<u64, u8>,
    sweep_at: usize,
}

impl Interrupted {
    /// Returns whether one more interruption counts as a delivery.
    fn is_spent(&self, number: SequenceNumber) -> bool {
        self.counts.get(&number.0).is_some_and(|count| *count >= INTERRUPTIONS_MAX)
    }

    /// Counts an interruption. `exists` returns whether a message is still in the queue.
    fn note(&mut self, number: SequenceNumber, exists: impl Fn(SequenceNumber) -> bool) {
        let count = self.counts.entry(number.0).or_default();
        *count = count.saturating_add(1);
        if self.counts.len() > self.sweep_at.max(SWEEP_MIN) {
            self.counts.retain(|number, _| exists(SequenceNumber(*number)));
            self.sweep_at = self.counts.len() * 2;
        }
    }
}

impl Queue {
    pub(super) fn counts_interruption(&self, number: SequenceNumber) -> bool {
        self.interrupted.is_spent(number)
    }

    pub(super) fn note_interruption(&mut self, number: SequenceNumber) {
        let messages = &self.main.messages;
        self.interrupted.note(number, |number| messages.get(number).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_removed_messages_are_dropped() {
        let mut interrupted = Interrupted::default();
        let is_kept = |number: SequenceNumber| number.0.is_multiple_of(100);
        for number in 0..10_000 {
            interrupted.note(SequenceNumber(number), is_kept);
        }
        assert!(interrupted.counts.len() < 300, "{}", interrupted.counts.len());
        for _ in 1..INTERRUPTIONS_MAX {
            interrupted.note(SequenceNumber(0), is_kept);
        }
        assert!(interrupted.is_spent(SequenceNumber(0)) && !interrupted.is_spent(SequenceNumber(100)));
    }
}
