//! The broker's wall clock, as one link has learned it.

use std::time::Duration;

use peeklock_types::Timestamp;
use tokio::time::Instant;

/// The property with the broker's time in its attach response, for clients that desire the capability of the same name.
pub(crate) const BROKER_TIME: &str = "peeklock:time";

/// The broker's wall clock. It advances with the monotonic clock of this machine, whose own wall clock may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerClock {
    read_at: Instant,
    time: Timestamp,
}

impl BrokerClock {
    /// Creates a clock that showed `time` at the moment `read_at` or later.
    pub fn new(read_at: Instant, time: Timestamp) -> Self {
        BrokerClock { read_at, time }
    }

    /// Returns the moment at which the broker's clock reaches `until`, or an earlier one by at most the time that the broker took to open the
    /// link.
    pub fn instant(&self, until: Timestamp) -> Instant {
        let after = Duration::from_millis(until.as_millis().saturating_sub(self.time.as_millis()));
        self.read_at.checked_add(after).unwrap_or(self.read_at)
    }

    /// Returns what the broker's clock shows now, or a later time by at most the time that the broker took to open the link.
    pub fn now(&self) -> Timestamp {
        self.time + self.read_at.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_the_broker_becomes_a_local_moment() {
        let now = Instant::now();
        let clock = BrokerClock::new(now, Timestamp::from_millis(10_000));
        assert_eq!(clock.instant(Timestamp::from_millis(70_000)), now + Duration::from_secs(60));
        assert_eq!(clock.instant(Timestamp::from_millis(9_000)), now);
        assert_eq!(
            clock.instant(Timestamp::from_millis(u64::MAX)),
            clock.instant(Timestamp::from_millis(u64::MAX))
        );
    }
}
