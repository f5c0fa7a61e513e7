//! Whether calls begin in the task of the pump. Time is an argument.

use std::time::Duration;

/// The time for which the first part of a call, up to its first wait, may keep a thread busy in the task of the pump. A task of its own costs a
/// tenth of it.
const BUSY_MAX: Duration = Duration::from_micros(50);
/// The number of quick calls after a slow one until calls begin in the pump again.
const QUICK_COUNT: u32 = 64;

/// Judges the calls of a handler by the time until they first wait.
///
/// A quick handler needs no task: the pump polls each call once, and most are done then. A handler that computes or blocks gets tasks, so that
/// its calls use all threads and the pump goes on with renewals. It has to prove that it is quick before the pump ever calls it.
#[derive(Debug)]
pub(super) struct Pace {
    /// The number of quick calls in tasks that are required.
    required: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { required: 1 }
    }
}

impl Pace {
    pub(super) fn is_quick(&self) -> bool {
        self.required == 0
    }

    /// Counts a call that has kept its thread busy for this time.
    pub(super) fn count(&mut self, busy: Duration) {
        self.required = if busy > BUSY_MAX { QUICK_COUNT } else { self.required.saturating_sub(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_has_to_prove_that_it_is_quick() {
        let mut pace = Pace::default();
        assert!(!pace.is_quick());
        pace.count(BUSY_MAX);
        assert!(pace.is_quick());
        pace.count(BUSY_MAX * 2);
        for _ in 0..QUICK_COUNT {
            assert!(!pace.is_quick());
            pace.count(Duration::ZERO);
        }
        assert!(pace.is_quick());
    }
}
