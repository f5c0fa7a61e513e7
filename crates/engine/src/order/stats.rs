//! The statistics of a class: rates, times, and the attainment of its target. They are kept only in memory.

use std::collections::VecDeque;
use std::time::Duration;

use peeklock_types::{Target, Timestamp};

use super::view::{TargetView, Window};

/// The upper bounds of the buckets in milliseconds, inclusive. One more bucket contains longer times.
pub const HISTOGRAM_BOUNDS_MS: [u64; 25] = [
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    30_000,
    60_000,
    120_000,
    300_000,
    600_000,
    1_800_000,
    3_600_000,
    7_200_000,
    21_600_000,
    86_400_000,
    604_800_000,
];

/// A histogram of durations. Histograms with the same bounds can be added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// The count of each bucket. There is one bucket more than there are bounds.
    pub counts: [u64; HISTOGRAM_BOUNDS_MS.len() + 1],
    pub sum_ms: u64,
}

impl Histogram {
    pub(crate) fn add(&mut self, span: Duration) {
        let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let place = HISTOGRAM_BOUNDS_MS.partition_point(|bound| *bound < span_ms);
        self.counts[place] += 1;
        self.sum_ms = self.sum_ms.saturating_add(span_ms);
    }

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the time within which this share of the values is, from 0 to 1, interpolated linearly inside a bucket.
    /// `None` if there is no value.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate that is shown with a few digits"
    )]
    pub fn percentile(&self, share: f64) -> Option<Duration> {
        let count = self.count();
        let wanted = share.clamp(0.0, 1.0) * count as f64;
        let mut below = 0.0;
        for (place, &here) in self.counts.iter().enumerate() {
            if here > 0 && below + here as f64 >= wanted {
                let from = place.checked_sub(1).map_or(0, |before| HISTOGRAM_BOUNDS_MS[before]);
                let to = HISTOGRAM_BOUNDS_MS.get(place).copied().unwrap_or(from * 2);
                let part = ((wanted - below) / here as f64).clamp(0.0, 1.0);
                let millis = from as f64 + (to - from) as f64 * part;
                return Some(Duration::from_micros((millis * 1000.0) as u64));
            }
            below += here as f64;
        }
        None
    }
}

const RATE_SLOT_MS: u64 = 5_000;
const RATE_SLOTS: usize = 7;

/// Events per second, over the last 30 seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    slot: u64,
    counts: [u32; RATE_SLOTS],
    total: u64,
}

impl Meter {
    #[inline]
    pub(crate) fn add(&mut self, now: Timestamp) {
        let slot = self.turn_to(now);
        self.counts[slot] += 1;
        self.total += 1;
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Clears slots that are too old, and returns the index of the current one.
    #[inline]
    fn turn_to(&mut self, now: Timestamp) -> usize {
        let slot = now.as_millis() / RATE_SLOT_MS;
        if slot > self.slot {
            for gone in self.slot.max(slot.saturating_sub(RATE_SLOTS as u64)) + 1..=slot {
                self.counts[place(gone)] = 0;
            }
            self.slot = slot;
        }
        place(self.slot)
    }

    /// Returns the rate over complete slots, so that a slot that has just begun does not count as empty.
    pub(crate) fn per_second(&self, now: Timestamp) -> f64 {
        let mut meter = self.clone();
        let current = meter.turn_to(now);
        let past = meter.counts.iter().enumerate().filter(|(slot, _)| *slot != current);
        let count: u64 = past.map(|(_, count)| u64::from(*count)).sum();
        #[expect(clippy::cast_precision_loss, reason = "a rate is shown with a few digits")]
        let rate = count as f64 / ((RATE_SLOTS as u64 - 1) * RATE_SLOT_MS) as f64 * 1000.0;
        rate
    }
}

fn place(slot: u64) -> usize {
    usize::try_from(slot % RATE_SLOTS as u64).unwrap_or_default()
}

/// The statistics of one class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) enqueued: Meter,
    pub(crate) settled: Meter,
    pub(crate) time_in_queue: Histogram,
    pub(crate) critical_time: Histogram,
}

/// The attainment of a class with a target.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attainment {
    good_count: u64,
    /// The number of bad messages that have started or are gone. Waiting messages are counted when a view is created.
    bad_count: u64,
    /// Earlier values, the newest last: fine steps for the last hour, and coarse ones before.
    fine: VecDeque<Sample>,
    coarse: VecDeque<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Timestamp,
    good_count: u64,
    bad_count: u64,
}

const FINE_STEP: Duration = Duration::from_secs(10);
const FINE_COUNT: usize = 361;
const COARSE_STEP: Duration = Duration::from_secs(300);
const COARSE_COUNT: usize = 865;
const WINDOWS: [Duration; 5] = [
    Duration::from_secs(300),
    Duration::from_secs(1800),
    Duration::from_secs(3600),
    Duration::from_secs(6 * 3600),
    Duration::from_secs(3 * 86_400),
];

impl Attainment {
    pub(crate) fn add(&mut self, is_good: bool) {
        if is_good {
            self.good_count += 1;
        } else {
            self.bad_count += 1;
        }
    }

    pub(crate) fn add_bad(&mut self, count: u64) {
        self.bad_count += count;
    }

    /// Stores a sample of the current values; `late_count` waiting messages are already late.
    pub(crate) fn sample(&mut self, now: Timestamp, late_count: u64) {
        let sample = Sample { at: now, good_count: self.good_count, bad_count: self.bad_count + late_count };
        for (samples, step, max) in
            [(&mut self.fine, FINE_STEP, FINE_COUNT), (&mut self.coarse, COARSE_STEP, COARSE_COUNT)]
        {
            // A class without changes needs no samples: the last one is still valid.
            let is_other =
                |last: &Sample| (last.good_count, last.bad_count) != (sample.good_count, sample.bad_count);
            if samples.back().is_none_or(|last| now >= last.at + step && is_other(last)) {
                samples.push_back(sample);
            }
            if samples.len() > max {
                samples.pop_front();
            }
        }
    }

    pub(crate) fn view(&self, target: Target, now: Timestamp, late_count: u64) -> TargetView {
        let (good_count, bad_count) = (self.good_count, self.bad_count + late_count);
        let window = |span: Duration| {
            let before = self.before(now - span);
            Window {
                span,
                good_count: good_count - before.map_or(0, |sample| sample.good_count),
                bad_count: bad_count.saturating_sub(before.map_or(0, |sample| sample.bad_count)),
            }
        };
        TargetView { target, good_count, bad_count, windows: WINDOWS.map(window).to_vec() }
    }

    /// Returns the last sample that is not after `at`; `None` if everything happened later.
    fn before(&self, at: Timestamp) -> Option<&Sample> {
        let last =
            |samples: &VecDeque<Sample>| samples.partition_point(|sample| sample.at <= at).checked_sub(1);
        let fine = last(&self.fine).and_then(|place| self.fine.get(place));
        fine.or_else(|| last(&self.coarse).and_then(|place| self.coarse.get(place)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + seconds * 1000)
    }

    #[test]
    fn a_histogram_interpolates_percentiles_within_a_bucket() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.percentile(0.5), None);
        (0..99).for_each(|_| histogram.add(Duration::from_millis(3)));
        histogram.add(Duration::from_secs(70));
        assert_eq!(histogram.count(), 100);
        let median = histogram.percentile(0.5).unwrap();
        assert!((2..=5).contains(&median.as_millis()), "{median:?}");
        assert!(histogram.percentile(1.0).unwrap() > Duration::from_secs(60));
        histogram.add(Duration::MAX);
        assert_eq!(histogram.count(), 101, "every value has a bucket");
    }

    #[test]
    fn a_meter_reports_the_rate_of_the_last_half_minute() {
        let mut meter = Meter::default();
        for second in 0..60 {
            (0..10).for_each(|_| meter.add(at(second)));
        }
        assert!((9.0..=11.0).contains(&meter.per_second(at(60))));
        assert!(meter.per_second(at(70)) < 9.0);
        assert!(meter.per_second(at(200)).abs() < 1e-9);
        assert_eq!(meter.total(), 600);
    }

    #[test]
    fn a_window_contains_only_its_own_messages_and_late_ones_at_once() {
        let target = Target { within: Duration::from_secs(10), objective_ppm: 990_000 };
        let mut attainment = Attainment::default();
        for second in 0..7200u64 {
            attainment.add(second >= 3600);
            attainment.sample(at(second), 0);
        }
        let view = attainment.view(target, at(7200), 36);
        assert_eq!((view.good_count, view.bad_count), (3600, 3636));
        let five_minutes = view.windows[0];
        assert_eq!((five_minutes.good_count, five_minutes.bad_count), (300 - 1, 36));
        let burn = view.burn(&five_minutes).unwrap();
        assert!((10.0..12.0).contains(&burn), "{burn}");
        assert_eq!(view.windows[4].good_count, 3600, "the window is longer than the whole history");
    }
}
