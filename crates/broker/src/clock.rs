use std::time::{Duration, SystemTime, UNIX_EPOCH};

use peeklock_types::Timestamp;
use tokio::time::Instant;

use crate::shift::{self, Moves};

/// A clock of wall time that only moves forward: the wall time is read once at start and then advanced by the monotonic
/// clock. A step of the system clock therefore neither releases a lock early nor holds it for hours.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    start_wall: Timestamp,
}

impl Clock {
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        Self::start_at(Timestamp::from_millis(millis))
    }

    /// Returns a clock that now shows `wall`, for simulations and tests with a time of their own.
    pub fn start_at(wall: Timestamp) -> Self {
        Clock { start: Instant::now(), start_wall: wall }
    }

    pub fn now(&self) -> Timestamp {
        self.start_wall + self.start.elapsed() + shift::current()
    }

    /// Returns the moment at which [`Clock::now`] reaches `at`, if no test moves the clock.
    pub fn instant(&self, at: Timestamp) -> Instant {
        let until = at.since(self.start_wall).saturating_sub(shift::current());
        // The result is rounded up by 1 ms: `now` truncates to milliseconds, and a task that wakes early would spin for
        // the rest of the millisecond.
        self.start + until + Duration::from_millis(1)
    }

    /// Returns the moves of the clock from now on. A task that sleeps until a [`Clock::instant`] computes it again
    /// after each move.
    pub fn moves(&self) -> Moves {
        Moves::from_now_on()
    }
}
