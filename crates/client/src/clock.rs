//! The broker's wall clock, as one link has learned it.

use std::time::Duration;

use peeklock_types::Timestamp;
use tokio::time::Instant;

/// The property with the broker's time in its attach response, for clients that desire the capability of the same name.
pub(crate) const BROKER_TIME: &str = "peeklock:time";

/// The property with the duration of locks, in milliseconds.
pub(crate) const LOCK_DURATION: &str = "peeklock:lock-duration";

/// The longest lock duration of a broker.
const LOCK_DURATION_MAX: Duration = Duration::from_secs(5 * 60);

/// The broker's wall clock. It advances with the monotonic clock of this machine, whose own wall clock may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerClock {
    read_at: Instant,
    time: Timestamp,
    lock_duration: Duration,
}

impl BrokerClock {
    /// Creates a clock that showed `time` at the moment `read_at` or later.
    pub fn new(read_at: Instant, time: Timestamp) -> Self {
        BrokerClock { read_at, time, lock_duration: LOCK_DURATION_MAX }
    }

    /// Returns the clock for an entity with this lock duration.
    #[must_use]
    pub fn with_lock_duration(self, lock_duration: Duration) -> Self {
        BrokerClock { lock_duration, ..self }
    }

    /// Returns the moment at which a lock ends that was granted or renewed just now, and lasts until the broker's clock shows `until`. The
    /// moment may be too early by at most the time that the broker took to open the link. The broker's clock may have stepped forward since,
    /// so a lock does not last longer than its duration from now.
    pub fn instant(&self, until: Timestamp) -> Instant {
        let after = Duration::from_millis(until.as_millis().saturating_sub(self.time.as_millis()));
        let longest = Instant::now() + self.lock_duration;
        self.read_at.checked_add(after).unwrap_or(self.read_at).min(longest)
    }

    /// Returns what the broker's clock shows now, or a later time by at most the time that the broker took to open the link.
    pub fn now(&self) -> Timestamp {
        self.time + self.read_at.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_time_of_the_broker_becomes_a_local_moment() {
        let now = Instant::now();
        let clock = BrokerClock::new(now, at(10_000));
        assert_eq!(clock.instant(at(70_000)), now + Duration::from_secs(60));
        assert_eq!(clock.instant(at(9_000)), now);
        assert!(clock.instant(at(u64::MAX)) <= Instant::now() + LOCK_DURATION_MAX);
    }

    #[test]
    fn a_lock_lasts_no_longer_than_its_duration() {
        let now = Instant::now();
        let clock = BrokerClock::new(now, at(10_000)).with_lock_duration(Duration::from_secs(30));
        assert_eq!(clock.instant(at(30_000)), now + Duration::from_secs(20));
        // The broker's clock has stepped by ten minutes since.
        let end = clock.instant(at(640_000));
        assert!(end >= now + Duration::from_secs(30) && end <= Instant::now() + Duration::from_secs(30));
    }
}
