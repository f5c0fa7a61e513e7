//! The ends of locks on the monotonic clock of this machine.
//!
//! A broker sends the end of a lock in its own wall time, and the wall clock of this machine may be wrong. Peeklock also sends its time when a
//! link is opened, so the end becomes an exact local moment ([`peeklock_client::BrokerClock`]). Another broker does not. Then the duration of the
//! lock is estimated from the wall clock of this machine and bounded by facts: a lock starts after its message was enqueued, and an implausible
//! duration is replaced with the shortest one, so that a wrong clock causes more renewals and not a lost lock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use peeklock_client::{BrokerClock, ReceivedMessage, Timestamp};
use tokio::time::Instant;

/// The shortest lock duration of Service Bus.
const DURATION_MIN: Duration = Duration::from_secs(5);
/// The longest lock duration of Service Bus.
const DURATION_MAX: Duration = Duration::from_secs(5 * 60);

/// The end of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockEnd {
    pub(crate) at: Instant,
    /// Whether the moment is derived from the broker's clock. Otherwise it is an estimate.
    pub(crate) is_exact: bool,
    /// The duration after each renewal, if the moment is an estimate.
    duration: Duration,
}

impl LockEnd {
    /// Returns the end of a lock that the broker granted just now, `until` its own wall time.
    pub(crate) fn new(
        clock: Option<BrokerClock>,
        until: Option<Timestamp>,
        enqueued_at: Option<Timestamp>,
    ) -> Self {
        match (clock, until) {
            (Some(clock), Some(until)) => {
                LockEnd { at: clock.instant(until), is_exact: true, duration: DURATION_MIN }
            }
            (_, until) => {
                let duration = until.map_or(DURATION_MIN, |until| estimate(until, enqueued_at, wall_now()));
                LockEnd { at: Instant::now() + duration, is_exact: false, duration }
            }
        }
    }

    pub(crate) fn of_message(clock: Option<BrokerClock>, message: &ReceivedMessage) -> Self {
        let enqueued_at = if clock.is_none() { message.enqueued_at() } else { None };
        Self::new(clock, message.locked_until(), enqueued_at)
    }

    /// Returns the end after a renewal that was requested at `asked_at` and that the broker extended to `until`.
    pub(crate) fn renewed(self, clock: Option<BrokerClock>, asked_at: Instant, until: Timestamp) -> Self {
        match clock {
            Some(clock) => LockEnd { at: clock.instant(until), is_exact: true, ..self },
            None => LockEnd { at: asked_at + self.duration, ..self },
        }
    }

    /// Returns the time until the end.
    pub(crate) fn remaining(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }
}

/// Returns the time of a broker that does not send it: that of this machine, unless a message that was received `elapsed` ago shows that it is
/// wrong. When the message was delivered, it had been enqueued, and its lock, which lasts for at most the longest duration, had not ended.
pub(crate) fn broker_now(message: &ReceivedMessage, elapsed: Duration) -> Option<Timestamp> {
    let (locked_until, enqueued_at) = (message.locked_until()?, message.enqueued_at());
    Some(plausible(wall_now(), locked_until, enqueued_at.unwrap_or_default(), elapsed))
}

fn plausible(
    wall_now: Timestamp,
    locked_until: Timestamp,
    enqueued_at: Timestamp,
    elapsed: Duration,
) -> Timestamp {
    let earliest = (locked_until - DURATION_MAX).max(enqueued_at).min(locked_until);
    wall_now.clamp(earliest + elapsed, locked_until + elapsed)
}

fn wall_now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Estimates the duration of a lock from a wall clock that may be wrong.
fn estimate(until: Timestamp, enqueued_at: Option<Timestamp>, wall_now: Timestamp) -> Duration {
    let longest = enqueued_at.map_or(DURATION_MAX, |enqueued_at| until.since(enqueued_at));
    let apparent = until.since(wall_now);
    if apparent > DURATION_MAX {
        DURATION_MIN
    } else {
        apparent.clamp(DURATION_MIN, longest.max(DURATION_MIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000_000 + millis)
    }

    #[test]
    fn an_estimate_is_the_duration_if_the_clock_is_right() {
        assert_eq!(estimate(at(MINUTE), None, at(0)), Duration::from_secs(60));
    }

    #[test]
    fn a_wrong_clock_makes_the_estimate_short() {
        assert_eq!(estimate(at(MINUTE), None, at(60 * MINUTE)), DURATION_MIN);
        assert_eq!(estimate(at(60 * MINUTE), None, at(0)), DURATION_MIN);
    }

    #[test]
    fn a_wrong_clock_differs_from_the_broker_by_a_lock_at_most() {
        let elapsed = Duration::from_secs(20);
        assert_eq!(plausible(at(40_000), at(MINUTE), at(0), elapsed), at(40_000));
        assert_eq!(plausible(at(60 * MINUTE), at(MINUTE), at(0), elapsed), at(MINUTE + 20_000));
        assert_eq!(plausible(at(0), at(60 * MINUTE), at(0), elapsed), at(55 * MINUTE + 20_000));
        assert_eq!(plausible(at(0), at(60 * MINUTE), at(59 * MINUTE), elapsed), at(59 * MINUTE + 20_000));
        // Times that contradict each other.
        assert_eq!(plausible(at(0), Timestamp::ZERO, at(5), Duration::ZERO), Timestamp::ZERO);
    }

    #[test]
    fn a_lock_starts_after_its_message_was_enqueued() {
        assert_eq!(estimate(at(4 * MINUTE), Some(at(3 * MINUTE)), at(0)), Duration::from_secs(60));
        assert_eq!(estimate(at(4 * MINUTE), Some(at(4 * MINUTE)), at(0)), DURATION_MIN);
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_of_the_broker_takes_precedence() {
        let now = Instant::now();
        let clock = BrokerClock::new(now, Timestamp::from_millis(5));
        let end = LockEnd::new(Some(clock), Some(Timestamp::from_millis(30_005)), None);
        assert_eq!((end.at, end.is_exact), (now + Duration::from_secs(30), true));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(end.remaining(), Duration::from_secs(20));
        let renewed = end.renewed(Some(clock), Instant::now(), Timestamp::from_millis(40_005));
        assert_eq!(renewed.remaining(), Duration::from_secs(30));
    }
}
