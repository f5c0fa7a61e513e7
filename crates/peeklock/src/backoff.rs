//! The pauses between attempts.

use std::time::Duration;

/// Pauses that double from a first one up to a maximum, with full jitter, and a limit of time or of attempts.
///
/// It has no clock and no random source: the caller passes the number of the attempt and a random fraction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    attempts_max: Option<u32>,
    time_max: Option<Duration>,
}

impl Backoff {
    /// Returns pauses from `first`, doubling up to `max`, without a limit of attempts.
    pub fn exponential(first: Duration, max: Duration) -> Self {
        Backoff { first, max: max.max(first), attempts_max: None, time_max: None }
    }

    /// Limits the number of attempts.
    #[must_use]
    pub fn attempts(self, max: u32) -> Self {
        Backoff { attempts_max: Some(max), ..self }
    }

    /// Limits the number of attempts, unless it is lower already.
    pub(crate) fn attempts_at_most(self, max: u32) -> Self {
        self.attempts(self.attempts_max.map_or(max, |own| own.min(max)))
    }

    /// Limits the time from the first failure to the last attempt.
    #[must_use]
    pub fn within(self, time: Duration) -> Self {
        Backoff { time_max: Some(time), ..self }
    }

    /// Returns the pause after `failed_count` failed attempts, or `None` if no further attempt is due. `fraction` is random, from 0 to 1:
    /// the pause lies between half of the exponential value and the value itself.
    pub fn pause(&self, failed_count: u32, elapsed: Duration, fraction: f64) -> Option<Duration> {
        if self.attempts_max.is_some_and(|max| failed_count >= max) {
            return None;
        }
        let factor = 2_u32.saturating_pow(failed_count.saturating_sub(1).min(31));
        let whole = self.first.saturating_mul(factor).min(self.max);
        let pause = whole.mul_f64(0.5 + fraction.clamp(0.0, 1.0) / 2.0);
        let is_late = self.time_max.is_some_and(|max| elapsed.saturating_add(pause) > max);
        (!is_late).then_some(pause)
    }
}

/// Retries for a minute, with pauses from 0.1 s to 10 s.
impl Default for Backoff {
    fn default() -> Self {
        Backoff::exponential(Duration::from_millis(100), Duration::from_secs(10))
            .within(Duration::from_secs(60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_double_up_to_the_maximum() {
        let backoff = Backoff::exponential(SECOND, 5 * SECOND);
        let pauses: Vec<_> = (1..=5).filter_map(|count| backoff.pause(count, Duration::ZERO, 1.0)).collect();
        assert_eq!(pauses, [SECOND, 2 * SECOND, 4 * SECOND, 5 * SECOND, 5 * SECOND]);
        assert_eq!(backoff.pause(2, Duration::ZERO, 0.0), Some(SECOND));
        assert_eq!(backoff.pause(u32::MAX, Duration::ZERO, 1.0), Some(5 * SECOND));
    }

    #[test]
    fn attempts_and_time_are_limited() {
        let backoff = Backoff::exponential(SECOND, SECOND).attempts(3).within(10 * SECOND);
        assert!(backoff.pause(2, 9 * SECOND, 1.0).is_some());
        assert_eq!(backoff.pause(3, Duration::ZERO, 1.0), None);
        assert_eq!(backoff.pause(1, 10 * SECOND, 1.0), None);
    }
}
