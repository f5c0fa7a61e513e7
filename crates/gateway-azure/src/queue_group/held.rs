//! What a link of a group holds: whose message each lock is, and how many there may be.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use peeklock_broker::engine::Settlement;
use peeklock_types::{LockToken, Timestamp, limits};
use rustc_hash::FxHashMap;

use crate::connection::link::EntityRef;

/// Locks that ran out and whose messages' whereabouts are still known, so that the queue itself tells a late peer what became of them.
const RUN_OUT_COUNT_MAX: usize = 1024;

/// A locked message that went out over the link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldLock {
    /// Which of the group's members it came from.
    pub(crate) member: usize,
    pub(crate) entity: EntityRef,
    until: Timestamp,
}

/// How a peer parts with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockEnd {
    Settled,
    /// It lets the message go as if it had never had it.
    Released,
}

impl LockEnd {
    pub(crate) fn of(settlement: &Settlement) -> Self {
        match settlement {
            Settlement::Release => LockEnd::Released,
            _ => LockEnd::Settled,
        }
    }
}

/// The deliveries of a link that its peer has not settled.
#[derive(Default)]
pub(crate) struct HeldLocks {
    locks: FxHashMap<LockToken, HeldLock>,
    /// Those that count: not settled, and not run out.
    live: BTreeSet<(Timestamp, [u8; 16])>,
    /// Those that have run out, oldest first, and perhaps some that are settled or renewed.
    run_out: VecDeque<LockToken>,
    pace: Pace,
}

/// How many were settled in the last while.
#[derive(Default)]
struct Pace {
    since: Timestamp,
    count: u32,
    before: u32,
}

impl HeldLocks {
    pub(crate) fn insert(&mut self, token: LockToken, member: usize, entity: EntityRef, until: Timestamp) {
        self.locks.insert(token, HeldLock { member, entity, until });
        self.live.insert((until, token.to_bytes()));
    }

    pub(crate) fn get(&self, token: LockToken) -> Option<HeldLock> {
        self.locks.get(&token).copied()
    }

    /// The peer settles it: it counts no more, and is not heard of again. What was only let go is no sign of being fast.
    pub(crate) fn remove(&mut self, now: Timestamp, token: LockToken, end: LockEnd) -> Option<HeldLock> {
        let lock = self.locks.remove(&token)?;
        if self.live.remove(&(lock.until, token.to_bytes())) && end == LockEnd::Settled {
            self.pace.count(now);
        }
        Some(lock)
    }

    /// The lock runs longer than was known.
    pub(crate) fn renew(&mut self, token: LockToken, until: Timestamp) {
        let Some(lock) = self.locks.get_mut(&token) else { return };
        self.live.remove(&(lock.until, token.to_bytes()));
        // Also one that seems to have run out: the word came late.
        self.live.insert((until, token.to_bytes()));
        lock.until = until;
    }

    /// How many more it may hold, if that is `max` or what it settled lately.
    pub(crate) fn room(&mut self, now: Timestamp, max: u32) -> u32 {
        while let Some((_, token)) = self.live.first().filter(|(until, _)| *until <= now) {
            self.run_out.push_back(LockToken::from_bytes(*token));
            self.live.pop_first();
        }
        self.forget_run_out();
        let held = u32::try_from(self.live.len()).unwrap_or(u32::MAX);
        max.max(self.pace.of(now)).saturating_sub(held)
    }

    /// A peer may never say a word about them.
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

    /// When the next lock runs out.
    pub(crate) fn next_end(&self) -> Option<Timestamp> {
        self.live.first().map(|(until, _)| *until)
    }
}

impl Pace {
    const SPAN: Duration = limits::OUTSTANDING_HORIZON;

    fn roll(&mut self, now: Timestamp) {
        let passed = now.since(self.since);
        if passed >= Self::SPAN {
            self.before = if passed < 2 * Self::SPAN { self.count } else { 0 };
            (self.since, self.count) = (now, 0);
        }
    }

    fn count(&mut self, now: Timestamp) {
        self.roll(now);
        self.count = self.count.saturating_add(1);
    }

    fn of(&mut self, now: Timestamp) -> u32 {
        self.roll(now);
        self.before.max(self.count)
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
    fn what_is_settled_or_has_run_out_makes_room() {
        let mut held = held(3);
        assert_eq!(held.room(at(0), 3), 0);
        assert_eq!(held.next_end(), Some(at(1000)));
        let mut remove = || held.remove(at(0), token(1), LockEnd::Settled);
        assert!(remove().is_some() && remove().is_none());
        assert_eq!(held.room(at(0), 3), 1);
        assert_eq!(held.room(at(1000), 3), 2);
        held.renew(token(2), at(5000));
        assert_eq!(held.room(at(4999), 3), 2);
        assert!(held.get(token(0)).is_some(), "whose it was is still known");
    }

    #[test]
    fn a_late_renewal_counts_again() {
        let mut held = held(1);
        assert_eq!(held.room(at(1000), 1), 1);
        held.renew(token(0), at(2000));
        assert_eq!((held.room(at(1001), 1), held.room(at(2000), 1)), (0, 1));
    }

    #[test]
    fn a_peer_that_never_settles_fills_nothing() {
        let count = 3 * RUN_OUT_COUNT_MAX as u64;
        let mut held = held(count);
        held.room(at(999), 1);
        assert!(held.get(token(0)).is_some(), "none has run out");
        held.renew(token(0), at(100_000));
        held.room(at(1000 + count), 1);
        assert_eq!((held.locks.len(), held.run_out.len()), (RUN_OUT_COUNT_MAX + 1, RUN_OUT_COUNT_MAX));
        assert!(held.get(token(0)).is_some(), "it has not run out");
        assert!(held.get(token(1)).is_none() && held.get(token(count - 1)).is_some());
    }

    #[test]
    fn who_settles_fast_may_hold_more() {
        let mut held = held(50);
        for n in 0..40 {
            held.remove(at(n), token(n), LockEnd::Settled);
        }
        assert_eq!(held.room(at(50), 16), 30);
        assert_eq!(held.room(at(120), 16), 30);
        assert_eq!(held.room(at(400), 16), 6);
    }

    #[test]
    fn who_lets_go_fast_may_not() {
        let mut held = held(50);
        for n in 0..40 {
            held.remove(at(n), token(n), LockEnd::of(&Settlement::Release));
        }
        assert_eq!(held.room(at(50), 16), 6);
    }
}
