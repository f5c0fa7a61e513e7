//! When to renew locks, and when they are lost. Time and random fractions are arguments.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

/// The renewal of locks while handlers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renew {
    /// Locks are not renewed.
    Off,
    /// Locks are renewed while the handler has run for less than this time.
    UpTo(Duration),
    /// Locks are renewed until the handler ends.
    UntilDone,
}

/// 5 minutes of running time.
impl Default for Renew {
    fn default() -> Self {
        Renew::UpTo(Duration::from_secs(300))
    }
}

/// The shortest pause between two tries to renew a lock.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The locks that a pump holds, each with its next step.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    locks: HashMap<u64, Lock>,
    steps: BTreeSet<(Instant, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Lock {
    deadline: Instant,
    /// No renewal starts after this moment.
    renew_until: Option<Instant>,
    is_renewing: bool,
    /// The place in the list of steps.
    next: Instant,
}

/// A step that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Renew(u64),
    /// The lock has passed. It is no longer in the schedule.
    Lost(u64),
}

impl Schedule {
    /// Adds a lock that lasts until `now + remaining`. `fraction` is random, from 0 to 1.
    pub(crate) fn add(&mut self, key: u64, now: Instant, remaining: Duration, renew: Renew, fraction: f64) {
        let renew_until = match renew {
            Renew::Off => Some(now),
            Renew::UpTo(span) => now.checked_add(span),
            Renew::UntilDone => None,
        };
        let deadline = now.checked_add(remaining).unwrap_or(now);
        let lock = Lock { deadline, renew_until, is_renewing: false, next: deadline };
        self.place(key, lock, half(remaining, fraction).and_then(|pause| now.checked_add(pause)));
    }

    /// Starts the running time of a lock, for a message that was buffered before.
    pub(crate) fn start(&mut self, key: u64, now: Instant, renew: Renew) {
        if let Some(lock) = self.locks.get_mut(&key) {
            lock.renew_until = match renew {
                Renew::Off => Some(now),
                Renew::UpTo(span) => now.checked_add(span),
                Renew::UntilDone => None,
            };
        }
    }

    /// Places a lock with a renewal at `renew_at`, or with its end if no renewal is due before.
    fn place(&mut self, key: u64, mut lock: Lock, renew_at: Option<Instant>) {
        let is_allowed =
            |at: &Instant| *at < lock.deadline && lock.renew_until.is_none_or(|until| *at < until);
        lock.next = renew_at.filter(is_allowed).unwrap_or(lock.deadline);
        self.steps.insert((lock.next, key));
        self.locks.insert(key, lock);
    }

    pub(crate) fn remove(&mut self, key: u64) {
        if let Some(lock) = self.locks.remove(&key) {
            self.steps.remove(&(lock.next, key));
        }
    }

    /// Returns the moment of the next step.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.steps.first().map(|(at, _)| *at)
    }

    /// Returns a step that is due.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Step> {
        let (at, key) = *self.steps.first()?;
        if at > now {
            return None;
        }
        self.steps.pop_first();
        let mut lock = self.locks.remove(&key)?;
        if now >= lock.deadline {
            return Some(Step::Lost(key));
        }
        lock.is_renewing = true;
        self.place(key, lock, None);
        Some(Step::Renew(key))
    }

    /// Extends a lock to `now + remaining`.
    pub(crate) fn renewed(
        &mut self,
        key: u64,
        now: Instant,
        remaining: Duration,
        fraction: f64,
    ) -> Option<Instant> {
        let mut lock = *self.locks.get(&key)?;
        self.remove(key);
        lock.is_renewing = false;
        lock.deadline = now.checked_add(remaining).unwrap_or(lock.deadline);
        let renew_at = half(remaining, fraction).and_then(|pause| now.checked_add(pause));
        self.place(key, lock, renew_at);
        Some(lock.deadline)
    }

    /// Tries again after a failure that may pass, at half of the rest.
    pub(crate) fn failed(&mut self, key: u64, now: Instant) {
        if let Some(mut lock) = self.locks.get(&key).copied() {
            self.remove(key);
            lock.is_renewing = false;
            let rest = lock.deadline.saturating_duration_since(now);
            self.place(key, lock, now.checked_add((rest / 2).max(PAUSE_MIN)));
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        assert_eq!(self.locks.len(), self.steps.len());
        self.locks.len()
    }
}

/// Returns half of a lock's duration, ± 10 %, so that locks taken together are not renewed together.
fn half(duration: Duration, fraction: f64) -> Option<Duration> {
    let half = (duration / 2).mul_f64(0.9 + 0.2 * fraction.clamp(0.0, 1.0));
    (half > Duration::ZERO).then_some(half)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LOCK: Duration = Duration::from_secs(60);

    fn with_lock(renew: Renew) -> (Schedule, Instant) {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.add(7, now, LOCK, renew, 0.5);
        (schedule, now)
    }

    #[test]
    fn a_lock_is_renewed_at_half_of_its_duration() {
        let (mut schedule, now) = with_lock(Renew::UntilDone);
        assert_eq!(schedule.next(), Some(now + 30 * SECOND));
        assert_eq!(schedule.poll(now + 29 * SECOND), None);
        assert_eq!(schedule.poll(now + 30 * SECOND), Some(Step::Renew(7)));
        assert_eq!(
            schedule.next(),
            Some(now + LOCK),
            "while the renewal is in flight, the lock ends as before"
        );
        assert_eq!(schedule.renewed(7, now + 30 * SECOND, LOCK, 0.5), Some(now + 90 * SECOND));
        assert_eq!(schedule.next(), Some(now + 60 * SECOND));
        schedule.remove(7);
        assert_eq!((schedule.len(), schedule.next()), (0, None));
    }

    #[test]
    fn a_lock_without_renewal_is_lost_at_its_end() {
        let (mut schedule, now) = with_lock(Renew::Off);
        assert_eq!(schedule.poll(now + 59 * SECOND), None);
        assert_eq!(schedule.poll(now + LOCK), Some(Step::Lost(7)));
        assert_eq!(schedule.len(), 0);
    }

    #[test]
    fn renewal_ends_after_the_allowed_running_time() {
        let (mut schedule, now) = with_lock(Renew::UpTo(45 * SECOND));
        assert_eq!(schedule.poll(now + 30 * SECOND), Some(Step::Renew(7)));
        schedule.renewed(7, now + 30 * SECOND, LOCK, 0.5);
        assert_eq!(schedule.next(), Some(now + 90 * SECOND));
        assert_eq!(schedule.poll(now + 90 * SECOND), Some(Step::Lost(7)));
    }

    #[test]
    fn a_failed_renewal_is_tried_again_before_the_end() {
        let (mut schedule, now) = with_lock(Renew::UntilDone);
        schedule.poll(now + 30 * SECOND);
        schedule.failed(7, now + 40 * SECOND);
        assert_eq!(schedule.next(), Some(now + 50 * SECOND));
        schedule.poll(now + 50 * SECOND);
        schedule.failed(7, now + 61 * SECOND);
        assert_eq!(schedule.poll(now + 61 * SECOND), Some(Step::Lost(7)));
        assert_eq!(schedule.renewed(7, now + 50 * SECOND, LOCK, 0.5), None, "a late answer changes nothing");
    }

    proptest! {
        /// Polls at random moments: a renewal is never requested for a lock that has passed, and a lock that has passed is reported once.
        #[test]
        fn no_passed_lock_is_renewed(
            pauses in proptest::collection::vec((0_u64..20_000, 0.0..1.0_f64, 0_u8..3), 1..100),
            duration in 1_u64..30_000,
        ) {
            let duration = Duration::from_millis(duration);
            let (mut schedule, mut now) = (Schedule::default(), Instant::now());
            schedule.add(1, now, duration, Renew::UntilDone, 0.5);
            let mut deadline = now + duration;
            let mut is_lost = false;
            for (pause, fraction, result) in pauses {
                now += Duration::from_millis(pause);
                while let Some(step) = schedule.poll(now) {
                    prop_assert!(!is_lost);
                    match step {
                        Step::Renew(_) => {
                            prop_assert!(now < deadline);
                            match result {
                                0 => deadline = schedule.renewed(1, now, duration, fraction).unwrap(),
                                1 => schedule.failed(1, now),
                                _ => {}
                            }
                        }
                        Step::Lost(_) => {
                            prop_assert!(now >= deadline);
                            is_lost = true;
                        }
                    }
                }
                prop_assert_eq!(schedule.len(), usize::from(!is_lost));
                prop_assert_eq!(is_lost, now >= deadline);
            }
        }
    }
}
