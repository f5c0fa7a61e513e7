//! Pauses a processor whose handler fails too often. Time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// The number of parts in which a window is counted.
const PARTS: usize = 12;

/// Pauses the processor when too many handlers fail, so that a broken downstream does not drive all messages into the dead-letter queue.
///
/// After the pause, one message is tried at a time: a success resumes, a failure pauses again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KillSwitch {
    failed_share: f64,
    results_min: u32,
    window: Duration,
    pause: Duration,
}

impl KillSwitch {
    /// Trips when more than `failed_share` of at least `results_min` results within `window` are failures, and pauses for the same time.
    pub fn ratio(failed_share: f64, results_min: u32, window: Duration) -> Self {
        KillSwitch { failed_share, results_min: results_min.max(1), window, pause: window }
    }

    /// Sets the length of the pause.
    #[must_use]
    pub fn pause(self, pause: Duration) -> Self {
        KillSwitch { pause, ..self }
    }
}

/// 15 % failures among at least 10 results in a minute, and a pause of a minute.
impl Default for KillSwitch {
    fn default() -> Self {
        KillSwitch::ratio(0.15, 10, Duration::from_secs(60))
    }
}

/// The state of a kill switch.
#[derive(Debug)]
pub(crate) struct Switch {
    rule: KillSwitch,
    phase: Phase,
    parts: [Part; PARTS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Closed,
    Open { until: Instant },
    HalfOpen,
}

/// The results in one part of the window.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    ends: Option<Instant>,
    succeeded: u32,
    failed: u32,
}

impl Switch {
    pub(crate) fn new(rule: KillSwitch) -> Self {
        Switch { rule, phase: Phase::Closed, parts: Default::default() }
    }

    /// Returns how many messages may run, if the switch limits them.
    pub(crate) fn limit(&self) -> Option<u32> {
        match self.phase {
            Phase::Closed => None,
            Phase::Open { .. } => Some(0),
            Phase::HalfOpen => Some(1),
        }
    }

    /// Returns the moment at which the pause ends.
    pub(crate) fn next(&self) -> Option<Instant> {
        if let Phase::Open { until } = self.phase { Some(until) } else { None }
    }

    /// Ends the pause if it is over.
    pub(crate) fn tick(&mut self, now: Instant) {
        if self.next().is_some_and(|until| until <= now) {
            self.phase = Phase::HalfOpen;
        }
    }

    /// Counts a result. Returns whether the switch has tripped because of it.
    pub(crate) fn record(&mut self, now: Instant, has_failed: bool) -> bool {
        match (self.phase, has_failed) {
            // The result of a message that was running when the switch tripped.
            (Phase::Open { .. }, _) => return false,
            (Phase::HalfOpen, true) => return self.trip(now),
            (Phase::HalfOpen, false) => self.phase = Phase::Closed,
            (Phase::Closed, _) => self.count(now, has_failed),
        }
        let is_tripping = self.phase == Phase::Closed && has_failed && self.is_over(now);
        is_tripping && self.trip(now)
    }

    fn trip(&mut self, now: Instant) -> bool {
        self.parts = Default::default();
        self.phase = Phase::Open { until: now.checked_add(self.rule.pause).unwrap_or(now) };
        true
    }

    fn count(&mut self, now: Instant, has_failed: bool) {
        let length = self.rule.window / u32::try_from(PARTS).unwrap_or(1);
        let newest = self.parts.iter_mut().find(|part| part.ends.is_some_and(|ends| ends > now));
        let part = match newest {
            Some(part) => part,
            None => {
                // The oldest part is the one that ended first, or an unused one.
                let Some(oldest) = self.parts.iter_mut().min_by_key(|part| part.ends) else { return };
                *oldest = Part { ends: now.checked_add(length), ..Part::default() };
                oldest
            }
        };
        let count = if has_failed { &mut part.failed } else { &mut part.succeeded };
        *count = count.saturating_add(1);
    }

    fn is_over(&self, now: Instant) -> bool {
        let is_recent = |part: &&Part| part.ends.is_some_and(|ends| ends + self.rule.window > now);
        let (mut failed, mut total) = (0_u64, 0_u64);
        for part in self.parts.iter().filter(is_recent) {
            failed += u64::from(part.failed);
            total += u64::from(part.failed) + u64::from(part.succeeded);
        }
        // Counts stay far below the precision of a float.
        #[allow(clippy::cast_precision_loss, reason = "a share needs no precision")]
        let share = failed as f64 / total.max(1) as f64;
        total >= u64::from(self.rule.results_min) && share > self.rule.failed_share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn too_many_failures_in_a_minute_pause_for_a_minute() {
        let (mut switch, now) = (Switch::new(KillSwitch::default()), Instant::now());
        for second in 0..9 {
            assert!(!switch.record(now + second * SECOND, second % 2 == 0), "fewer than ten results");
        }
        assert!(switch.record(now + 9 * SECOND, true));
        assert_eq!((switch.limit(), switch.next()), (Some(0), Some(now + 69 * SECOND)));
        switch.tick(now + 68 * SECOND);
        assert_eq!(switch.limit(), Some(0));
        switch.tick(now + 69 * SECOND);
        assert_eq!(switch.limit(), Some(1), "half-open with one slot");
    }

    #[test]
    fn the_first_result_after_the_pause_decides() {
        let (mut switch, now) = (Switch::new(KillSwitch::ratio(0.5, 1, SECOND)), Instant::now());
        assert!(switch.record(now, true));
        assert!(!switch.record(now, true), "a message that was running is not counted");
        switch.tick(now + SECOND);
        assert!(switch.record(now + SECOND, true));
        switch.tick(now + 2 * SECOND);
        assert!(!switch.record(now + 2 * SECOND, false));
        assert_eq!((switch.limit(), switch.next()), (None, None));
    }

    #[test]
    fn old_results_do_not_count() {
        let (mut switch, now) = (Switch::new(KillSwitch::default()), Instant::now());
        (0..9).for_each(|_| assert!(!switch.record(now, true)));
        assert!(!switch.record(now + 120 * SECOND, true));
        assert_eq!(switch.limit(), None);
    }

    proptest! {
        #[test]
        fn a_share_below_the_limit_never_trips(pauses in proptest::collection::vec(0_u64..5_000, 1..300)) {
            let (mut switch, mut now) = (Switch::new(KillSwitch::default()), Instant::now());
            // 20 successes before each failure stay below 15 %, whatever the times.
            for pause in pauses {
                for _ in 0..20 {
                    prop_assert!(!switch.record(now, false));
                }
                prop_assert!(!switch.record(now, true));
                now += Duration::from_millis(pause);
            }
        }
    }
}
