//! Rates: a number per second, and a burst after a pause. Buckets are kept only in memory; after a restart every bucket
//! is full.

use std::time::Duration;

use peeklock_types::{Rate, Timestamp};

/// The used part of a rate, in millionths of a token, so that even a slow rate adds some in each millisecond.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    /// The missing tokens at `at`. A bucket that was never used is full.
    used: u64,
    at: Timestamp,
}

const TOKEN: u64 = 1_000_000;

impl Bucket {
    /// Returns the missing tokens at `now`.
    fn used_at(&self, now: Timestamp, rate: Rate) -> u64 {
        let passed_ms = now.as_millis().saturating_sub(self.at.as_millis());
        // A thousandth per second is a millionth per millisecond.
        self.used.saturating_sub(passed_ms.saturating_mul(rate.per_second_milli))
    }

    pub(super) fn is_used(&self) -> bool {
        self.used > 0
    }

    pub(super) fn used_last(&self) -> Timestamp {
        self.at
    }

    /// Returns the time at which the next message may start; `None` means now. A batch may leave the bucket in debt.
    pub(super) fn ready_at(&self, now: Timestamp, rate: Option<Rate>) -> Option<Timestamp> {
        let rate = rate?;
        let most = u64::from(rate.burst) * TOKEN - TOKEN;
        let missing = self.used_at(now, rate).checked_sub(most).filter(|missing| *missing > 0)?;
        Some(now + Duration::from_millis(missing.div_ceil(rate.per_second_milli)))
    }

    pub(super) fn take(&mut self, now: Timestamp, rate: Option<Rate>) {
        let Some(rate) = rate else { return };
        self.used = self.used_at(now, rate).saturating_add(TOKEN);
        self.at = self.at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let rate = Some(Rate { per_second_milli: 2_000, burst: 3 });
        let mut bucket = Bucket::default();
        for _ in 0..3 {
            assert_eq!(bucket.ready_at(at(0), rate), None);
            bucket.take(at(0), rate);
        }
        assert_eq!(bucket.ready_at(at(0), rate), Some(at(500)));
        assert_eq!(bucket.ready_at(at(499), rate), Some(at(500)));
        assert_eq!(bucket.ready_at(at(500), rate), None);
        bucket.take(at(500), rate);
        assert_eq!(bucket.ready_at(at(500), rate), Some(at(1000)));
        assert_eq!(bucket.ready_at(at(0), None), None, "without a rate there is no limit");
    }

    #[test]
    fn a_window_never_exceeds_burst_plus_rate() {
        let rate = Rate { per_second_milli: 700, burst: 2 };
        let (mut bucket, mut taken) = (Bucket::default(), Vec::new());
        for millis in 0..60_000 {
            while bucket.ready_at(at(millis), Some(rate)).is_none() {
                bucket.take(at(millis), Some(rate));
                taken.push(millis);
            }
        }
        assert_eq!(taken.len(), 2 + 41);
        for (place, start) in taken.iter().enumerate() {
            for (count, end) in (1u64..).zip(&taken[place..]) {
                assert!(count * 1_000_000 <= 2_000_000 + (end - start + 1) * 700, "{start} {end} {count}");
            }
        }
    }

    #[test]
    fn a_clock_that_goes_back_adds_no_tokens() {
        let rate = Some(Rate { per_second_milli: 1_000, burst: 1 });
        let mut bucket = Bucket::default();
        bucket.take(at(5_000), rate);
        assert!(bucket.ready_at(at(0), rate).is_some());
        bucket.take(at(0), rate);
        assert_eq!(bucket.ready_at(at(5_500), rate), Some(at(7_000)));
    }
}
