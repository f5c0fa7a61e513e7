use std::time::{SystemTime, UNIX_EPOCH};

use peeklock_types::Timestamp;
use tokio::time::Instant;

/// Wall time that only moves forward: read once at start, then carried on by the monotonic clock, so that a stepped wall clock neither
/// frees a lock early nor holds it for hours.
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

    /// A clock that says `wall` now: for runs that bring their own time.
    pub fn start_at(wall: Timestamp) -> Self {
        Clock { start: Instant::now(), start_wall: wall }
    }

    pub fn now(&self) -> Timestamp {
        self.start_wall + self.start.elapsed()
    }

    /// The moment at which [`Clock::now`] reaches `at`.
    pub fn instant(&self, at: Timestamp) -> Instant {
        // Rounded up by one: `now` cuts off parts of a millisecond, and waking early would spin until the rest has passed.
        self.start + at.since(self.start_wall) + std::time::Duration::from_millis(1)
    }
}
