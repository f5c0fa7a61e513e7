//! The locks of a queue group link: the member of each lock, and the limit on their number.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use peeklock_broker::engine::{Settlement, SettlementPace};
use peeklock_types::{LockToken, Timestamp};
use rustc_hash::FxHashMap;

use crate::connection::link::EntityRef;

/// The limit on expired locks whose member is still stored, so that a late settlement receives the error of its queue.
const RUN_OUT_COUNT_MAX: usize = 1024;

/// A locked message that was sent on the link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldLock {
    /// The member of the queue group that delivered it.
    pub(crate) member: usize,
    pub(crate) entity: EntityRef,
    until: Timestamp,
}

/// The way in which a peer ends a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockEnd {
    Settled,
    /// The message is released as if it had not been delivered.
    Released,
}

impl LockEnd {
    pub(crate) fn of(settlement: &Settlement) -> Self {
        match settlement {
            Settlement::Release | Settlement::Interrupt => LockEnd::Released,
            _ => LockEnd::Settled,
        }
    }
}

/// The deliveries of a link that its peer has not settled.
#[derive(Default)]
pub(crate) struct HeldLocks {
    locks: FxHashMap<LockToken, HeldLock>,
    /// The locks that count: neither settled nor expired.
    live: BTreeSet<(Timestamp, [u8; 16])>,
    /// The expired locks, oldest first. May contain some that were settled or renewed.
    run_out: VecDeque<LockToken>,
    pace: SettlementPace,
}

impl HeldLocks {
    pub(crate) fn insert(&mut self, token: LockToken, member: usize, entity: EntityRef, until: Timestamp) {
        self.locks.insert(token, HeldLock { member, entity, until });
        self.live.insert((until, token.to_bytes()));
    }

    pub(crate) fn get(&self, token: LockToken) -> Option<HeldLock> {
        self.locks.get(&token).copied()
    }

    /// Removes a lock that the peer settles. A release does not count as a fast settlement.
    pub(crate) fn remove(&mut self, now: Timestamp, token: LockToken, end: LockEnd) -> Option<HeldLock> {
        let lock = self.locks.remove(&token)?;
        if self.live.remove(&(lock.until, token.to_bytes())) && end == LockEnd::Settled {
            self.pace.count(now);
        }
        Some(lock)
    }

    /// Extends a lock.
    pub(crate) fn renew(&mut self, token: LockToken, until: Timestamp) {
        let Some(lock) = self.locks.get_mut(&token) else { return };
        self.live.remove(&(lock.until, token.to_bytes()));
        // A lock that seems to have expired counts again, too: the report of its renewal arrived late.
        self.live.insert((until, token.to_bytes()));
        lock.until = until;
    }

    /// Returns how many more locks the peer may hold. `least` is the smallest value of the limit.
    pub(crate) fn room(&mut self, now: Timestamp, least: u32) -> u32 {
        while let Some((_, token)) = self.live.first().filter(|(until, _)| *until <= now) {
            self.run_out.push_back(LockToken::from_bytes(*token));
            self.live.pop_first();
        }
        self.forget_run_out();
        let held = u32::try_from(self.live.len()).unwrap_or(u32::MAX);
        self.pace.turn_to(now);
        self.pace.limit(least).saturating_sub(held)
    }

    /// Drops the oldest expired locks above the limit, because a peer may never settle them.
    fn forget_run_out(&mut self) {
        while self.run_out.len() > RUN_OUT_COUNT_MAX
            && let Some(token) = self.run_out.pop_front()
        {
            if let Some(lock) = self.locks.get(&token)
                && !self.live.contains(&(lock.until, token.to_bytes()))
            {
                self.locks.remove(&token);
            }
        }
    }

    /// Lets running locks last longer by `by`, because the clock has stepped to `now`.
    pub(crate) fn follow_step(&mut self, now: Timestamp, by: Duration) {
        let before = now - by;
        for (until, token) in std::mem::take(&mut self.live) {
            let until = if until > before { until + by } else { until };
            if let Some(lock) = self.locks.get_mut(&LockToken::from_bytes(token)) {
                lock.until = until;
            }
            self.live.insert((until, token));
        }
    }

    /// Returns the time at which the next lock expires.
    pub(crate) fn next_end(&self) -> Option<Timestamp> {
        self.live.first().map(|(until, _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use peeklock_broker::engine::EntityId;
    use peeklock_types::SequenceNumber;

    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    fn token(number: u64) -> LockToken {
        LockToken::new(SequenceNumber(number), number)
    }

    fn held(count: u64) -> HeldLocks {
        let mut held = HeldLocks::default();
        let entity = EntityRef { shard: 0, entity: EntityId(1) };
        (0..count).for_each(|n| held.insert(token(n), 0, entity, at(1000 + n)));
        held
    }

    #[test]
    fn settled_and_expired_locks_make_room() {
        let mut held = held(3);
        assert_eq!(held.room(at(0), 3), 0);
        assert_eq!(held.next_end(), Some(at(1000)));
        let mut remove = || held.remove(at(0), token(1), LockEnd::Settled);
        assert!(remove().is_some() && remove().is_none());
        assert_eq!(held.room(at(0), 3), 1);
        assert_eq!(held.room(at(1000), 3), 2);
        held.renew(token(2), at(5000));
        assert_eq!(held.room(at(4999), 3), 2);
        assert!(held.get(token(0)).is_some(), "the member of the lock is still stored");
    }

    #[test]
    fn a_late_renewal_counts_again() {
        let mut held = held(1);
        assert_eq!(held.room(at(1000), 1), 1);
        held.renew(token(0), at(2000));
        assert_eq!((held.room(at(1001), 1), held.room(at(2000), 1)), (0, 1));
    }

    #[test]
    fn running_locks_last_longer_after_a_step_of_the_clock() {
        let mut held = held(3);
        // The first lock has expired before the step.
        held.follow_step(at(601_000), Duration::from_secs(600));
        assert_eq!((held.room(at(601_000), 3), held.next_end()), (1, Some(at(601_001))));
        assert!(held.remove(at(601_000), token(2), LockEnd::Settled).is_some());
        assert_eq!(held.room(at(601_001), 3), 3);
    }

    #[test]
    fn a_peer_that_never_settles_uses_limited_memory() {
        let count = 3 * RUN_OUT_COUNT_MAX as u64;
        let mut held = held(count);
        held.room(at(999), 1);
        assert!(held.get(token(0)).is_some(), "no lock has expired");
        held.renew(token(0), at(100_000));
        held.room(at(1000 + count), 1);
        assert_eq!((held.locks.len(), held.run_out.len()), (RUN_OUT_COUNT_MAX + 1, RUN_OUT_COUNT_MAX));
        assert!(held.get(token(0)).is_some(), "the lock has not expired");
        assert!(held.get(token(1)).is_none() && held.get(token(count - 1)).is_some());
    }

    #[test]
    fn a_peer_that_settles_fast_may_hold_more() {
        let mut held = held(50);
        for n in 0..40 {
            held.remove(at(n), token(n), LockEnd::Settled);
        }
        assert_eq!(held.room(at(50), 16), 30);
        assert_eq!(held.room(at(120), 16), 30);
        assert_eq!(held.room(at(400), 16), 6);
    }

    #[test]
    fn a_peer_that_releases_fast_may_not_hold_more() {
        let mut held = held(50);
        for n in 0..40 {
            held.remove(at(n), token(n), LockEnd::of(&Settlement::Release));
        }
        assert_eq!(held.room(at(50), 16), 6);
    }
}
