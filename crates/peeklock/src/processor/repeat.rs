//! Limits how often the same kind of error is logged. Time is an argument.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// The time between two logged errors of one kind.
const PAUSE: Duration = Duration::from_secs(10);

/// Lets one error of each kind through in ten seconds, with the number of errors that were left out before it.
#[derive(Debug)]
pub(crate) struct RepeatLimit<K> {
    logged: HashMap<K, (Instant, u64)>,
}

impl<K> Default for RepeatLimit<K> {
    fn default() -> Self {
        RepeatLimit { logged: HashMap::new() }
    }
}

impl<K: Eq + Hash> RepeatLimit<K> {
    /// Returns the number of errors of this kind that were left out since the last logged one, or `None` if this one is left out too.
    pub(crate) fn admit(&mut self, kind: K, now: Instant) -> Option<u64> {
        let Some((at, left_out)) = self.logged.get_mut(&kind) else {
            self.logged.insert(kind, (now, 0));
            return Some(0);
        };
        if now.saturating_duration_since(*at) < PAUSE {
            *left_out += 1;
            return None;
        }
        *at = now;
        Some(std::mem::take(left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_error_of_a_kind_is_logged_in_ten_seconds() {
        let (mut limit, now) = (RepeatLimit::default(), Instant::now());
        assert_eq!(limit.admit("a", now), Some(0));
        assert_eq!(limit.admit("a", now + PAUSE / 2), None);
        assert_eq!(limit.admit("b", now + PAUSE / 2), Some(0));
        assert_eq!(limit.admit("a", now + PAUSE), Some(1));
        assert_eq!(limit.admit("a", now + 3 * PAUSE), Some(0));
    }
}
