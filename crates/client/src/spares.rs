//! Transactions that have begun in advance, so that a new transaction needs no round trip.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

/// The maximum number of transactions that have begun in advance.
const SPARES_MAX: usize = 16;
/// The age up to which a transaction is used. It is below the time after which brokers roll back an idle transaction.
const AGE_MAX: Duration = Duration::from_secs(60);

/// A transaction that the broker has begun.
pub(crate) struct Declared {
    pub(crate) id: Bytes,
    /// Whether the broker compares the number of steps at the commit.
    pub(crate) counts_steps: bool,
    at: Instant,
}

impl Declared {
    pub(crate) fn now(id: Bytes, counts_steps: bool) -> Self {
        Declared { id, counts_steps, at: Instant::now() }
    }
}

/// The driver adds transactions, and new handles take them without a command to the driver.
#[derive(Default)]
pub(crate) struct Spares {
    declared: Mutex<Vec<Declared>>,
}

impl Spares {
    pub(crate) fn take(&self) -> Option<Declared> {
        let newest = self.declared.lock().unwrap_or_else(PoisonError::into_inner).pop();
        // The broker rolls back an old one by itself, and all others are older still.
        newest.filter(|newest| newest.at.elapsed() < AGE_MAX)
    }

    pub(crate) fn put(&self, declared: Declared) {
        let mut spares = self.declared.lock().unwrap_or_else(PoisonError::into_inner);
        spares.retain(|spare| spare.at.elapsed() < AGE_MAX);
        if spares.len() < SPARES_MAX {
            spares.push(declared);
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner).len() < SPARES_MAX
    }

    pub(crate) fn clear(&self) {
        self.declared.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(id: &'static [u8]) -> Declared {
        Declared::now(Bytes::from_static(id), true)
    }

    #[test]
    fn an_old_spare_is_not_used() {
        let Some(long_ago) = Instant::now().checked_sub(AGE_MAX) else { return };
        let old = || Declared { at: long_ago, ..declared(b"old") };
        let spares = Spares::default();
        spares.put(old());
        spares.put(declared(b"new"));
        assert_eq!(spares.take().unwrap().id, "new");
        assert!(spares.take().is_none());
        spares.put(old());
        assert!(spares.take().is_none());
    }

    #[test]
    fn spares_have_a_limit() {
        let spares = Spares::default();
        for _ in 0..SPARES_MAX {
            assert!(spares.has_room());
            spares.put(declared(b"1"));
        }
        assert!(!spares.has_room());
        spares.put(declared(b"2"));
        assert_eq!(spares.take().unwrap().id, "1");
        spares.clear();
        assert!(spares.take().is_none());
    }
}
