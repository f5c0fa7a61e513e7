//! A lane: the messages of one class and tenant, first in, first out.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU16;
use std::sync::Arc;

use peeklock_types::Timestamp;

use super::bucket::Bucket;
use crate::queue::{SessionSlot, Turn};

/// The index of a lane. Counts from one, so that a message of a queue without an order needs no extra byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneSlot(NonZeroU16);

impl LaneSlot {
    pub(super) fn of(index: usize) -> Option<LaneSlot> {
        u16::try_from(index + 1).ok().and_then(NonZeroU16::new).map(LaneSlot)
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0.get()) - 1
    }
}

/// The class and tenant of a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneKey {
    /// The index of the class in the queue's order.
    pub class: u8,
    pub tenant_class: u8,
    /// `None` for messages without a tenant.
    pub tenant: Option<Arc<str>>,
}

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) key: LaneKey,
    pub(super) row: Row,
    /// The available sessions, in a queue with sessions.
    pub(super) sessions: Option<BTreeSet<(Turn, SessionSlot)>>,
    /// Messages of the lane, in any state.
    pub(super) message_count: u64,
    /// Messages that wait, including those in sessions.
    pub(super) waiting_count: u64,
    pub(super) locked_count: u64,
    /// The virtual time at which the tenant's next message starts.
    pub(super) tag: u64,
    /// The estimated processing time of the tenant's messages.
    pub(super) estimate_ms: u32,
    /// The position of the lane among the lanes of its class, if it has an available message.
    pub(super) listed: Option<Listed>,
    /// The used rates of the tenant; kept only in memory.
    pub(super) starts: Bucket,
    pub(super) sends: Bucket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// The lane is sorted by its tag, if tenants share, and then by its head: among tenants with the same tag, the
    /// oldest message goes first.
    Ready(u64, u64),
    /// The lane is over its rate until this time.
    Limited(Timestamp),
}

impl Lane {
    pub(super) fn new(key: LaneKey, has_sessions: bool, tag: u64, estimate_ms: u32) -> Lane {
        Lane {
            key,
            row: Row::default(),
            sessions: has_sessions.then(BTreeSet::new),
            message_count: 0,
            waiting_count: 0,
            locked_count: 0,
            tag,
            estimate_ms,
            listed: None,
            starts: Bucket::default(),
            sends: Bucket::default(),
        }
    }

    /// Returns the first available message. In a queue with sessions, it is the first message of the session that has
    /// waited longest.
    #[inline]
    pub(crate) fn head(&self) -> Option<u64> {
        match &self.sessions {
            Some(sessions) => sessions.first().map(|(turn, _)| turn.head),
            None => self.row.first(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting_count == 0 && self.locked_count == 0
    }
}

/// The capacity that an empty row may keep.
const SPARE_MAX: usize = 4096;

/// Waiting messages in the order of their numbers. Nearly all join at the end and leave at the front.
#[derive(Debug, Default)]
pub(super) struct Row {
    numbers: VecDeque<u64>,
    /// Numbers that left from the middle. At most half of `numbers`, and never the first of them.
    gone: BTreeSet<u64>,
    /// Numbers that returned to places before or between `numbers`.
    returned: BTreeSet<u64>,
}

impl Row {
    #[cfg(test)]
    fn len(&self) -> usize {
        self.numbers.len() - self.gone.len() + self.returned.len()
    }

    #[inline]
    pub(super) fn first(&self) -> Option<u64> {
        let first = self.numbers.front().copied();
        match self.returned.first() {
            Some(&returned) => Some(first.map_or(returned, |first| first.min(returned))),
            None => first,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, number: u64) {
        if self.numbers.back().is_none_or(|last| *last < number) {
            self.numbers.push_back(number);
        } else if !self.gone.remove(&number) {
            self.returned.insert(number);
        }
    }

    /// Adds a message that was delivered before: it is counted separately from new ones.
    pub(super) fn add_returned(&mut self, number: u64) {
        self.returned.insert(number);
    }

    #[inline]
    pub(super) fn remove(&mut self, number: u64) {
        if self.numbers.front() == Some(&number) {
            self.numbers.pop_front();
        } else if !self.returned.remove(&number) {
            self.gone.insert(number);
        }
        if !self.gone.is_empty() {
            self.tidy();
        }
        // The memory of a former backlog is freed.
        if self.numbers.capacity() > SPARE_MAX && self.numbers.len() < self.numbers.capacity() / 8 {
            self.numbers.shrink_to(self.numbers.len() * 2);
        }
    }

    /// Ensures that the first number has not left, and that numbers that left are a minority.
    fn tidy(&mut self) {
        while let Some(first) = self.numbers.front()
            && self.gone.remove(first)
        {
            self.numbers.pop_front();
        }
        if self.gone.len() * 2 > self.numbers.len() {
            self.numbers.retain(|number| !self.gone.contains(number));
            self.gone.clear();
        }
    }

    /// Counts the waiting messages before the first for which `reached` is true; it must stay true from there on.
    pub(super) fn count_until(&self, reached: impl Fn(u64) -> bool) -> u64 {
        let end = self.numbers.partition_point(|number| !reached(*number));
        let before = end.checked_sub(1).and_then(|last| self.numbers.get(last));
        let gone = before.map_or(0, |last| self.gone.range(..=last).count());
        let returned = self.returned.iter().take_while(|number| !reached(**number)).count();
        (end - gone + returned) as u64
    }

    /// Like `count_until`, for messages that were never delivered.
    pub(super) fn count_new_until(&self, reached: impl Fn(u64) -> bool) -> u64 {
        let returned = self.returned.iter().take_while(|number| !reached(**number)).count() as u64;
        self.count_until(&reached) - returned
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push,
        Pop,
        Leave { nth: usize },
        Return { nth: usize },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => Just(Step::Push),
            2 => Just(Step::Pop),
            2 => any::<usize>().prop_map(|nth| Step::Leave { nth }),
            2 => any::<usize>().prop_map(|nth| Step::Return { nth }),
        ];
        prop::collection::vec(step, 1..300)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_row_is_a_sorted_set(steps in steps()) {
            let (mut row, mut model, mut away) = (Row::default(), BTreeSet::new(), Vec::new());
            for (number, step) in (1u64..).zip(steps) {
                match step {
                    Step::Push => {
                        row.add(number);
                        model.insert(number);
                    }
                    Step::Pop => {
                        if let Some(first) = model.pop_first() {
                            row.remove(first);
                            away.push(first);
                        }
                    }
                    Step::Leave { nth } if !model.is_empty() => {
                        let left = *model.iter().nth(nth % model.len()).unwrap();
                        model.remove(&left);
                        row.remove(left);
                        away.push(left);
                    }
                    Step::Return { nth } if !away.is_empty() => {
                        let back = away.swap_remove(nth % away.len());
                        model.insert(back);
                        row.add(back);
                    }
                    Step::Leave { .. } | Step::Return { .. } => {}
                }
                prop_assert_eq!(row.first(), model.first().copied());
                prop_assert_eq!(row.len(), model.len());
                let half = number / 2;
                let before = row.count_until(|number| number >= half);
                prop_assert_eq!(before, model.range(..half).count() as u64);
                prop_assert!(row.gone.len() * 2 <= row.numbers.len());
            }
        }
    }
}
