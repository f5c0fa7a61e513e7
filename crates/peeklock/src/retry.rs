//! The retry policy of a processor. It has no clock and no random source: the caller passes the attempt and a random fraction.

use std::time::Duration;

use crate::error::Kind;
use crate::handler::{Class, Failure};

/// What happens to a message whose handler fails: so many immediate retries on the same lock, then delayed deliveries, then the dead-letter
/// queue.
///
/// An *attempt* is one delivery with its immediate retries. The default is 2 immediate retries and 9 delayed deliveries from 5 s to
/// 10 min with full jitter: 10 attempts over at most about 30 minutes.
///
/// ```
/// use std::time::Duration;
/// use peeklock::{Delayed, Retry};
///
/// let delayed = Delayed::exp(Duration::from_secs(5), Duration::from_secs(600), 9).full_jitter();
/// assert_eq!(Retry::immediate(2).then(delayed), Retry::default());
/// assert_eq!(Retry::default().attempts_max(), 10);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Retry {
    immediate_max: u32,
    delayed: Delayed,
}

/// The delays of the delayed retries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delayed {
    first: Duration,
    max: Duration,
    count: u32,
    has_jitter: bool,
}

impl Delayed {
    /// Returns `count` delays that double from `first` up to `max`.
    pub fn exp(first: Duration, max: Duration, count: u32) -> Self {
        Delayed { first, max: max.max(first), count, has_jitter: false }
    }

    /// Returns `count` equal delays.
    pub fn fixed(delay: Duration, count: u32) -> Self {
        Delayed::exp(delay, delay, count)
    }

    /// Replaces each delay by a random one between zero and that delay, so that messages that failed together do not come back together.
    #[must_use]
    pub fn full_jitter(self) -> Self {
        Delayed { has_jitter: true, ..self }
    }

    /// Returns the delay after attempt number `attempt`, from 1. `fraction` is random, from 0 to 1.
    fn delay(&self, attempt: u32, fraction: f64) -> Option<Duration> {
        if attempt > self.count {
            return None;
        }
        let factor = 2_u32.saturating_pow(attempt.saturating_sub(1).min(31));
        let whole = self.first.saturating_mul(factor).min(self.max);
        Some(if self.has_jitter { whole.mul_f64(fraction.clamp(0.0, 1.0)) } else { whole })
    }
}

/// What to do after an attempt has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Deliver the message again after this delay.
    Later(Duration),
    /// Dead-letter the message with this reason code.
    DeadLetter(&'static str),
    /// Release the message and stop the processor.
    Fail,
}

impl Retry {
    /// Retries so many times at once, on the same lock. After that, the message is dead-lettered unless [`Retry::then`] adds delayed retries.
    pub fn immediate(max: u32) -> Self {
        Retry { immediate_max: max, delayed: Delayed::exp(Duration::ZERO, Duration::ZERO, 0) }
    }

    /// Never retries: the first error dead-letters the message.
    pub fn never() -> Self {
        Retry::immediate(0)
    }

    /// Adds delayed retries.
    #[must_use]
    pub fn then(self, delayed: Delayed) -> Self {
        Retry { delayed, ..self }
    }

    /// Returns the number of deliveries after which a message is dead-lettered. It must not exceed the queue's maximum delivery count.
    pub fn attempts_max(&self) -> u32 {
        self.delayed.count.saturating_add(1)
    }

    /// Returns whether to call the handler again on the same lock, after `retried` such calls.
    pub(crate) fn is_immediate_due(&self, failure: &Failure, retried: u32) -> bool {
        failure.class == Class::Retry && retried < self.immediate_max
    }

    /// Decides about a message whose attempt number `attempt`, from 1, has failed.
    pub(crate) fn decide(&self, failure: &Failure, attempt: u32, fraction: f64) -> Decision {
        let delay = self.delayed.delay(attempt, fraction);
        match (failure.class, delay) {
            (Class::Fatal, _) => Decision::Fail,
            (Class::Poison, _) => Decision::DeadLetter(poison_reason(failure.kind)),
            (Class::RetryAfter(delay), Some(_)) => Decision::Later(delay),
            (Class::Retry, Some(delay)) => Decision::Later(delay),
            (Class::Retry | Class::RetryAfter(_), None) => Decision::DeadLetter(last_reason(failure.kind)),
        }
    }
}

/// 2 immediate retries and 9 delayed deliveries from 5 s to 10 min with full jitter.
impl Default for Retry {
    fn default() -> Self {
        let delayed = Delayed::exp(Duration::from_secs(5), Duration::from_secs(600), 9);
        Retry::immediate(2).then(delayed.full_jitter())
    }
}

fn poison_reason(kind: Kind) -> &'static str {
    if kind == Kind::Malformed { "DeserializeFailed" } else { "HandlerPoison" }
}

/// Returns the reason code for the last error of a message without further attempts.
fn last_reason(kind: Kind) -> &'static str {
    match kind {
        Kind::Panic => "Panic",
        Kind::Timeout => "HandlerTimeout",
        _ => "MaxAttempts",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::HandlerError;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn decide(retry: &Retry, error: &HandlerError, attempt: u32, fraction: f64) -> Decision {
        retry.decide(error.failure(), attempt, fraction)
    }

    #[test]
    fn the_default_ladder_takes_at_most_half_an_hour() {
        let retry = Retry::default();
        let error = HandlerError::retry("busy");
        let delays = (1..10).map(|attempt| match decide(&retry, &error, attempt, 1.0) {
            Decision::Later(delay) => delay,
            other => panic!("attempt {attempt}: {other:?}"),
        });
        assert_eq!(delays.sum::<Duration>(), 1835 * SECOND);
        assert_eq!(decide(&retry, &error, 1, 1.0), Decision::Later(5 * SECOND));
        assert_eq!(decide(&retry, &error, 10, 1.0), Decision::DeadLetter("MaxAttempts"));
    }

    #[test]
    fn the_class_of_the_error_decides() {
        let retry = Retry::immediate(2).then(Delayed::fixed(SECOND, 1));
        let later = HandlerError::retry_after(7 * SECOND)("busy");
        assert_eq!(decide(&retry, &later, 1, 0.0), Decision::Later(7 * SECOND));
        assert_eq!(decide(&retry, &later, 2, 0.0), Decision::DeadLetter("MaxAttempts"));
        assert_eq!(decide(&retry, &HandlerError::poison("x"), 1, 0.0), Decision::DeadLetter("HandlerPoison"));
        let malformed = HandlerError::deserialize("x");
        assert_eq!(decide(&retry, &malformed, 1, 0.0), Decision::DeadLetter("DeserializeFailed"));
        assert_eq!(decide(&retry, &HandlerError::fatal("x"), 1, 0.0), Decision::Fail);
        let panic = HandlerError::of_panic(&"x");
        assert_eq!(decide(&retry, &panic, 2, 0.0), Decision::DeadLetter("Panic"));
        let timeout = HandlerError::timeout(SECOND);
        assert_eq!(decide(&retry, &timeout, 2, 0.0), Decision::DeadLetter("HandlerTimeout"));
    }

    #[test]
    fn only_transient_errors_are_retried_at_once() {
        let retry = Retry::immediate(2);
        assert!(retry.is_immediate_due(HandlerError::retry("x").failure(), 1));
        assert!(!retry.is_immediate_due(HandlerError::retry("x").failure(), 2));
        assert!(!retry.is_immediate_due(HandlerError::poison("x").failure(), 0));
        assert!(!retry.is_immediate_due(HandlerError::retry_after(SECOND)("x").failure(), 0));
    }

    proptest! {
        #[test]
        fn a_message_has_exactly_the_attempts_of_the_policy(count in 0_u32..50, fraction in 0.0..=1.0_f64) {
            let delayed = Delayed::exp(SECOND, 60 * SECOND, count).full_jitter();
            let retry = Retry::never().then(delayed);
            let error = HandlerError::retry("busy");
            for attempt in 1..=count {
                let Decision::Later(delay) = decide(&retry, &error, attempt, fraction) else {
                    return Err(TestCaseError::fail("dead-lettered too early"));
                };
                prop_assert!(delay <= 60 * SECOND);
            }
            prop_assert_eq!(decide(&retry, &error, retry.attempts_max(), fraction), Decision::DeadLetter("MaxAttempts"));
            prop_assert_eq!(decide(&retry, &error, u32::MAX, fraction), Decision::DeadLetter("MaxAttempts"));
        }
    }
}
