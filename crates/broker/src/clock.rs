use std::time::{Duration, SystemTime, UNIX_EPOCH};

use peeklock_types::Timestamp;
use tokio::time::Instant;

use crate::shift::{self, Moves};

/// Wall time that moves forward only: read once at start and then advanced by the monotonic clock, so that a stepped wall clock neither
/// releases a lock early nor holds it for hours.
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

    /// A clock that shows `wall` now, for simulations and tests with a time of their own.
    pub fn start_at(wall: Timestamp) -> Self {
        Clock { start: Instant::now(), start_wall: wall }
    }

    pub fn now(&self) -> Timestamp {
        self.start_wall + self.start.elapsed() + shift::current()
    }

    /// The moment at which [`Clock::now`] reaches `at`, if no test moves the clock.
    pub fn instant(&self, at: Timestamp) -> Instant {
        let until = at.since(self.start_wall).saturating_sub(shift::current());
        // Rounded up by one: `now` truncates to milliseconds, and waking early would spin until the rest has passed.
        self.start + until + Duration::from_millis(1)
    }

    /// The moves of the clock from now on. A task that sleeps until a [`Clock::instant`] computes it again after each.
    pub fn moves(&self) -> Moves {
        Moves::from_now_on()
    }
}
