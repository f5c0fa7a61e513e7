//! The delay of a message after a failed delivery.

use std::time::Duration;

use peeklock_types::{RetryPolicy, SequenceNumber, SubQueue, Timestamp, limits};

use super::Queue;
use crate::message::MessageState;

impl Queue {
    /// Returns the time at which a locked message whose delivery has failed becomes available again; `None` means at
    /// once. `wish` is the delay that the receiver requested.
    pub(crate) fn retry_at(
        &self,
        now: Timestamp,
        sub_queue: SubQueue,
        number: SequenceNumber,
        wish: Option<Duration>,
    ) -> Option<Timestamp> {
        let messages = &self.part(sub_queue).messages;
        let entry = messages.get(number)?;
        if entry.state == MessageState::Deferred {
            return None;
        }
        let failed_count = messages.delivery_count(number, &entry).saturating_add(1);
        let nonce = messages.lock_of(&entry).map_or(0, |lock| lock.nonce);
        let policy = || match sub_queue {
            SubQueue::Main => delay(self.settings.retry, failed_count, nonce),
            _ => Duration::ZERO,
        };
        let delay = wish.unwrap_or_else(policy).min(limits::SCHEDULE_AHEAD_MAX);
        (!delay.is_zero()).then(|| now + delay)
    }
}

/// Computes the delay. `nonce` is that of the failed lock: the driver of the engine chose it at random, so it can serve
/// for the jitter.
fn delay(policy: RetryPolicy, failed_count: u32, nonce: u64) -> Duration {
    match policy {
        RetryPolicy::Immediate => Duration::ZERO,
        RetryPolicy::Fixed { delay } => delay,
        RetryPolicy::Linear { step, cap } => step.saturating_mul(failed_count).min(cap),
        RetryPolicy::Exponential { base, cap, jitter } => {
            let doubled = 1_u32.checked_shl(failed_count.saturating_sub(1)).unwrap_or(u32::MAX);
            let whole = base.saturating_mul(doubled).min(cap);
            if jitter { part_of(whole, nonce) } else { whole }
        }
    }
}

/// Returns a value from zero to the whole, in milliseconds.
fn part_of(whole: Duration, nonce: u64) -> Duration {
    let millis = u64::try_from(whole.as_millis()).unwrap_or(u64::MAX - 1);
    // The nonce is part of a lock token, so its bits are mixed: the delay reveals nothing about it.
    let mixed = (nonce ^ (nonce >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Duration::from_millis((mixed ^ (mixed >> 29)) % (millis + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn delays_follow_the_policy_up_to_the_maximum() {
        let linear = RetryPolicy::Linear { step: secs(5), cap: secs(12) };
        assert_eq!([1, 2, 3].map(|count| delay(linear, count, 0)), [secs(5), secs(10), secs(12)]);
        let doubling = RetryPolicy::Exponential { base: secs(1), cap: secs(60), jitter: false };
        assert_eq!(
            [1, 2, 4, 99].map(|count| delay(doubling, count, 0)),
            [secs(1), secs(2), secs(8), secs(60)]
        );
        assert_eq!(delay(RetryPolicy::Immediate, 3, 0), Duration::ZERO);
    }

    #[test]
    fn jitter_spreads_delays_evenly() {
        let policy = RetryPolicy::Exponential { base: secs(10), cap: secs(10), jitter: true };
        let delays: Vec<_> =
            (0..4000_u64).map(|n| delay(policy, 1, n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
        assert!(delays.iter().all(|delay| *delay <= secs(10)));
        for quarter in 0..4 {
            let range = Duration::from_millis(2500 * quarter)..Duration::from_millis(2500 * (quarter + 1));
            let count = delays.iter().filter(|delay| range.contains(delay)).count();
            assert!((850..1150).contains(&count), "{count} of 1000 in quarter {quarter}");
        }
    }
}
