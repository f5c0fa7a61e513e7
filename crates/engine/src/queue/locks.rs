//! The locks that are held, in the order of their expiry.
//!
//! Locks are in slots, which are reused. A list in the order of expiry links the slots, so the next deadline is always
//! exact, and a settled lock is removed at once, without a search.

use std::num::NonZeroU32;

use peeklock_types::{SequenceNumber, Timestamp};

/// The index of a lock. Counts from one, so that a message without a lock needs no extra byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockSlot(NonZeroU32);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lock {
    pub(crate) sequence_number: SequenceNumber,
    pub(crate) nonce: u64,
    pub(crate) until: Timestamp,
    /// The lock that expires before this one.
    before: Option<LockSlot>,
    /// The lock that expires after this one; in a free slot, the next free slot.
    after: Option<LockSlot>,
}

#[derive(Debug, Default)]
pub(crate) struct Locks {
    slots: Vec<Lock>,
    free: Option<LockSlot>,
    first: Option<LockSlot>,
    /// The lock that was placed last. The next one nearly always belongs directly after it, even if the clock was set
    /// back or the lock duration changed and neither belongs at the end.
    placed: Option<LockSlot>,
    count: u64,
}

impl Locks {
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn get(&self, slot: LockSlot) -> &Lock {
        &self.slots[slot.index()]
    }

    /// Returns the lock that expires first.
    pub(crate) fn first(&self) -> Option<&Lock> {
        self.first.map(|slot| self.get(slot))
    }

    /// Returns all locks in the order of expiry.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Lock> {
        std::iter::successors(self.first(), |lock| lock.after.map(|slot| self.get(slot)))
    }

    #[inline]
    pub(crate) fn add(&mut self, sequence_number: SequenceNumber, nonce: u64, until: Timestamp) -> LockSlot {
        let lock = Lock { sequence_number, nonce, until, before: None, after: None };
        let slot = if let Some(slot) = self.free {
            self.free = self.get(slot).after;
            self.slots[slot.index()] = lock;
            slot
        } else {
            self.slots.push(lock);
            let number = u32::try_from(self.slots.len()).ok().and_then(NonZeroU32::new);
            LockSlot(number.expect("four billion locks would take 128 GiB of memory"))
        };
        self.count += 1;
        self.link(slot);
        slot
    }

    #[inline]
    pub(crate) fn remove(&mut self, slot: LockSlot) {
        self.unlink(slot);
        self.slots[slot.index()].after = self.free.replace(slot);
        self.count -= 1;
    }

    pub(crate) fn renew(&mut self, slot: LockSlot, until: Timestamp) {
        self.unlink(slot);
        self.slots[slot.index()].until = until;
        self.link(slot);
    }

    /// Sets the nonce of the lock.
    pub(crate) fn rename(&mut self, slot: LockSlot, nonce: u64) {
        self.slots[slot.index()].nonce = nonce;
    }

    /// Inserts the lock after all locks that expire no later.
    #[inline]
    fn link(&mut self, slot: LockSlot) {
        let until = self.get(slot).until;
        let mut before = self.placed;
        while let Some(candidate) = before.filter(|&candidate| self.get(candidate).until > until) {
            before = self.get(candidate).before;
        }
        let mut after = self.behind(before);
        while let Some(candidate) = after.filter(|&candidate| self.get(candidate).until <= until) {
            before = Some(candidate);
            after = self.behind(before);
        }
        self.join(before, Some(slot));
        self.join(Some(slot), after);
        self.placed = Some(slot);
    }

    #[inline]
    fn unlink(&mut self, slot: LockSlot) {
        let &Lock { before, after, .. } = self.get(slot);
        self.join(before, after);
        if self.placed == Some(slot) {
            self.placed = before.or(after);
        }
    }

    fn behind(&self, slot: Option<LockSlot>) -> Option<LockSlot> {
        slot.map_or(self.first, |slot| self.get(slot).after)
    }

    fn join(&mut self, before: Option<LockSlot>, after: Option<LockSlot>) {
        match before {
            Some(slot) => self.slots[slot.index()].after = after,
            None => self.first = after,
        }
        if let Some(slot) = after {
            self.slots[slot.index()].before = before;
        }
    }
}

impl LockSlot {
    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Add { until: u64 },
        Renew { nth: usize, until: u64 },
        Remove { nth: usize },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..50u64).prop_map(|until| Step::Add { until }),
            2 => (any::<usize>(), 0..50u64).prop_map(|(nth, until)| Step::Renew { nth, until }),
            3 => any::<usize>().prop_map(|nth| Step::Remove { nth }),
        ];
        prop::collection::vec(step, 1..200)
    }

    fn in_order(locks: &Locks) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        let mut next = locks.first;
        while let Some(slot) = next {
            let lock = locks.get(slot);
            found.push((lock.until.as_millis(), lock.sequence_number.0));
            next = lock.after;
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        // The times are random, so every position in the list is tested, not only its end.
        #[test]
        fn locks_expire_in_order(steps in steps()) {
            let mut locks = Locks::default();
            let mut held: Vec<(LockSlot, u64, u64)> = Vec::new();
            for (number, step) in (1..).zip(steps) {
                match step {
                    Step::Add { until } => {
                        let slot = locks.add(SequenceNumber(number), 0, Timestamp::from_millis(until));
                        held.push((slot, until, number));
                    }
                    Step::Renew { nth, until } if !held.is_empty() => {
                        let nth = nth % held.len();
                        held[nth].1 = until;
                        locks.renew(held[nth].0, Timestamp::from_millis(until));
                    }
                    Step::Remove { nth } if !held.is_empty() => {
                        let (slot, ..) = held.swap_remove(nth % held.len());
                        locks.remove(slot);
                    }
                    Step::Renew { .. } | Step::Remove { .. } => {}
                }
                let found = in_order(&locks);
                prop_assert!(found.is_sorted_by_key(|&(until, _)| until));
                let sorted = |mut pairs: Vec<(u64, u64)>| { pairs.sort_unstable(); pairs };
                let expected = held.iter().map(|&(_, until, number)| (until, number)).collect();
                prop_assert_eq!(sorted(found), sorted(expected));
                prop_assert_eq!(locks.count(), held.len() as u64);
            }
            prop_assert!(locks.slots.len() <= 200);
        }
    }
}
