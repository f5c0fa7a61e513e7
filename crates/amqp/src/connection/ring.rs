//! The unsettled deliveries of one session in one direction, found by delivery-id.
//!
//! Neighbouring ids are in a ring indexed by the distance from its oldest id, so the usual case needs no search and no
//! allocation. A delivery that stays unsettled while thousands pass it moves to a separate map, and the ring stays
//! short.

#[cfg(test)]
mod model;
mod shared;

use std::collections::{BTreeMap, VecDeque};

use self::shared::{Shared, find};
use super::{DeliveryId, LinkId};
use crate::{DeliveryState, DeliveryTag};

/// The ids in the ring before its oldest unsettled delivery moves to the map.
const SPAN_MAX: usize = 8_192;
/// The ids that a sender may skip before the ring's deliveries move to the map.
const GAP_MAX: u64 = 64;

#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) link: LinkId,
    pub(super) tag: DeliveryTag,
    /// The peer sent an outcome that we have not answered.
    pub(super) has_outcome: bool,
}

impl Slot {
    pub(super) fn new(link: LinkId, tag: DeliveryTag) -> Self {
        Self { link, tag, has_outcome: false }
    }
}

/// Ids are stored as `u64`: the low half is the id on the wire, the high half counts the wraps, so they can be compared
/// directly. An id on the wire means the nearest one, as RFC 1982 defines.
#[derive(Debug)]
pub(super) struct Ring {
    /// The id of the next delivery.
    next: u64,
    /// Ids `next - recent.len() .. next`; `None` where settled.
    recent: VecDeque<Option<Slot>>,
    /// Unsettled deliveries with ids before those of `recent`.
    old: BTreeMap<u64, Slot>,
    /// Further deliveries with ids of unsettled ones. Empty unless a peer repeats ids.
    shared: BTreeMap<u64, Shared>,
    unsettled: u32,
    /// The peer has chosen its first id.
    started: bool,
}

impl Ring {
    /// Far enough from 0 that the ids before the first one also exist.
    const START: u64 = 1 << 32;

    /// Creates a ring for deliveries that we send, numbered from `first`.
    pub(super) fn outgoing(first: u32) -> Self {
        Self::starting(first, true)
    }

    /// Creates a ring for deliveries that a peer sends; the peer chooses its first id.
    pub(super) fn incoming() -> Self {
        Self::starting(0, false)
    }

    fn starting(first: u32, started: bool) -> Self {
        let next = Self::START + u64::from(first);
        Self {
            next,
            recent: VecDeque::new(),
            old: BTreeMap::new(),
            shared: BTreeMap::new(),
            unsettled: 0,
            started,
        }
    }

    pub(super) fn unsettled(&self) -> u32 {
        self.unsettled
    }

    #[cfg(test)]
    pub(super) fn span(&self) -> usize {
        self.recent.len()
    }

    /// Assigns the next id to a delivery; `None` for one that is settled from the start.
    pub(super) fn push(&mut self, entry: Option<Slot>) -> DeliveryId {
        let id = wire(self.next);
        self.next += 1;
        match entry {
            Some(entry) => {
                self.unsettled += 1;
                self.recent.push_back(Some(entry));
            }
            None if self.recent.is_empty() => return id,
            None => self.recent.push_back(None),
        }
        if self.recent.len() > SPAN_MAX {
            self.set_oldest_aside();
        }
        id
    }

    /// Adds a delivery with an id that a peer chose.
    // SDK quirk: pyamqp numbers the sends of several threads without a lock, so ids are repeated and out of order.
    pub(super) fn push_at(&mut self, id: DeliveryId, entry: Option<Slot>) {
        let gap = id.0.wrapping_sub(wire(self.next).0);
        if gap != 0 {
            let place = self.place(id);
            if self.started && place < self.next {
                if let Some(entry) = entry {
                    self.push_again(place, entry);
                }
                return;
            }
            self.skip(gap);
        }
        self.started = true;
        self.push(entry);
    }

    #[cold]
    fn skip(&mut self, gap: u32) {
        let gap = u64::from(gap);
        if gap > GAP_MAX {
            while !self.recent.is_empty() {
                self.set_oldest_aside();
            }
        }
        if self.recent.is_empty() {
            self.next += gap;
        } else {
            for _ in 0..gap {
                self.push(None);
            }
        }
    }

    fn set_oldest_aside(&mut self) {
        let id = self.base();
        if let Some(Some(entry)) = self.recent.pop_front() {
            self.old.insert(id, entry);
        }
        self.trim();
    }

    fn base(&self) -> u64 {
        self.next - self.recent.len() as u64
    }

    fn trim(&mut self) {
        while let Some(None) = self.recent.front() {
            self.recent.pop_front();
        }
    }

    /// Returns the full id for `id` on the wire: the one nearest to the next id.
    fn place(&self, id: DeliveryId) -> u64 {
        // Reinterpreted as signed, the difference is the RFC 1982 distance: future ids are negative.
        let behind = wire(self.next).0.wrapping_sub(id.0).cast_signed();
        self.next.saturating_add_signed(-i64::from(behind))
    }

    pub(super) fn get_mut(&mut self, id: DeliveryId) -> Option<&mut Slot> {
        let (place, base) = (self.place(id), self.base());
        find(&mut self.recent, &mut self.old, base, place)
    }

    /// Forgets one delivery of `link`. Returns `None` when the link has none with that id.
    pub(super) fn take(&mut self, id: DeliveryId, link: LinkId) -> Option<Slot> {
        let place = self.place(id);
        if !self.shared.is_empty()
            && let Some(entry) = self.take_shared(place, link)
        {
            return Some(entry);
        }
        let entry = match place.checked_sub(self.base()) {
            Some(index) => {
                self.recent.get_mut(usize::try_from(index).ok()?)?.take_if(|entry| entry.link == link)?
            }
            None if self.old.get(&place)?.link == link => self.old.remove(&place)?,
            None => return None,
        };
        self.unsettled -= 1;
        self.trim();
        Some(entry)
    }

    /// Forgets the deliveries of `link` from `first` to `last` and returns their number. Returns `None` and forgets none
    /// unless each of these ids has one delivery, which is recent and of this link.
    pub(super) fn take_run(&mut self, first: DeliveryId, last: DeliveryId, link: LinkId) -> Option<u32> {
        if !self.shared.is_empty() {
            return None;
        }
        let count = last.0.wrapping_sub(first.0).checked_add(1)?;
        let start = usize::try_from(self.place(first).checked_sub(self.base())?).ok()?;
        let end = start.checked_add(usize::try_from(count).ok()?)?;
        if end > self.recent.len() {
            return None;
        }
        let is_of_link = |slot: &Option<Slot>| slot.as_ref().is_some_and(|entry| entry.link == link);
        if !self.recent.range(start..end).all(is_of_link) {
            return None;
        }
        self.recent.range_mut(start..end).for_each(|slot| *slot = None);
        self.unsettled -= count;
        self.trim();
        Some(count)
    }

    /// Visits the unsettled deliveries from `first` to `last`, and forgets those for which `keep` is false.
    ///
    /// A peer chooses the range, which may be absurd: the work is limited by the number of unsettled deliveries.
    pub(super) fn visit(
        &mut self,
        first: DeliveryId,
        last: DeliveryId,
        mut keep: impl FnMut(DeliveryId, &mut Slot) -> bool,
    ) {
        let span = last.0.wrapping_sub(first.0);
        if span > i32::MAX.unsigned_abs() {
            return;
        }
        let low = self.place(first);
        let high = (low + u64::from(span)).min(self.next - 1);
        if low > high {
            return;
        }
        if !self.old.is_empty() {
            self.visit_old(low, high, &mut keep);
        }
        self.visit_recent(low, high, &mut keep);
        if !self.shared.is_empty() {
            self.visit_shared(low, high, &mut keep);
        }
    }

    #[inline]
    fn visit_recent(&mut self, low: u64, high: u64, keep: &mut impl FnMut(DeliveryId, &mut Slot) -> bool) {
        let base = self.base();
        let Some(end) = (high + 1).checked_sub(base) else { return };
        let start = low.saturating_sub(base);
        for index in start..end {
            let Some(slot) = usize::try_from(index).ok().and_then(|index| self.recent.get_mut(index)) else {
                break;
            };
            if let Some(entry) = slot
                && !keep(wire(base + index), entry)
            {
                *slot = None;
                self.unsettled -= 1;
            }
        }
        self.trim();
    }

    #[cold]
    fn visit_old(&mut self, low: u64, high: u64, keep: &mut impl FnMut(DeliveryId, &mut Slot) -> bool) {
        let mut settled = Vec::new();
        for (id, entry) in self.old.range_mut(low..=high) {
            if !keep(wire(*id), entry) {
                settled.push(*id);
            }
        }
        for id in settled {
            self.old.remove(&id);
            self.unsettled -= 1;
        }
    }

    /// Forgets every delivery of a detached link. Returns outcomes of other links that waited only for these.
    pub(super) fn forget_link(&mut self, link: LinkId) -> Vec<(DeliveryId, DeliveryState)> {
        let mut gone = 0;
        for slot in &mut self.recent {
            if slot.as_ref().is_some_and(|entry| entry.link == link) {
                *slot = None;
                gone += 1;
            }
        }
        let old_count = self.old.len();
        self.old.retain(|_, entry| entry.link != link);
        let old_gone = u32::try_from(old_count - self.old.len()).unwrap_or(u32::MAX);
        self.unsettled = self.unsettled.saturating_sub(gone).saturating_sub(old_gone);
        let concluded = if self.shared.is_empty() { Vec::new() } else { self.forget_shared(link) };
        self.trim();
        concluded
    }
}

/// Returns the low half: the id on the wire.
#[allow(clippy::cast_possible_truncation)] // Dropping the wrap count is the purpose.
fn wire(id: u64) -> DeliveryId {
    DeliveryId(id as u32)
}

#[cfg(test)]
mod tests {
    use super::super::id::Arena;
    use super::*;

    fn links(count: usize) -> Vec<LinkId> {
        let mut arena = Arena::new();
        (0..count).map(|_| arena.insert(())).collect()
    }

    fn entry(link: LinkId) -> Option<Slot> {
        Some(Slot::new(link, DeliveryTag::from(7)))
    }

    fn ids(ring: &mut Ring, first: u32, last: u32) -> Vec<u32> {
        let mut seen = Vec::new();
        ring.visit(DeliveryId(first), DeliveryId(last), |id, _| {
            seen.push(id.0);
            true
        });
        seen
    }

    #[test]
    fn ids_wrap_and_stay_in_order() {
        let link = links(1)[0];
        let mut ring = Ring::outgoing(u32::MAX - 1);
        let given: Vec<u32> = (0..4).map(|_| ring.push(entry(link)).0).collect();
        assert_eq!(given, [u32::MAX - 1, u32::MAX, 0, 1]);
        assert_eq!(ids(&mut ring, u32::MAX, 0), [u32::MAX, 0]);
        assert!(ring.take(DeliveryId(u32::MAX - 1), link).is_some());
        assert!(ring.take(DeliveryId(u32::MAX - 1), link).is_none(), "settled twice");
        assert_eq!(ids(&mut ring, u32::MAX - 5, 7), [u32::MAX, 0, 1]);
    }

    #[test]
    fn a_run_is_taken_as_a_whole_or_not_at_all() {
        let [a, b] = links(2)[..] else { panic!("two links") };
        let mut ring = Ring::outgoing(u32::MAX - 1);
        for link in [a, a, a, a, b] {
            ring.push(entry(link));
        }
        let mut take = |first, last| ring.take_run(DeliveryId(first), DeliveryId(last), a);
        assert_eq!(take(1, 2), None, "a delivery of another link");
        assert_eq!(take(1, 9), None, "ids that were never sent");
        assert_eq!(take(7, 1), None, "the range ends before it begins");
        assert_eq!(take(u32::MAX, 0), Some(2), "over the wrap, behind an older delivery");
        assert_eq!(take(u32::MAX - 1, 1), None, "settled deliveries");
        assert_eq!(ids(&mut ring, u32::MAX - 5, 7), [u32::MAX - 1, 1, 2]);
        assert_eq!(ring.unsettled(), 3);
        ring.push_again(ring.place(DeliveryId(1)), Slot::new(a, DeliveryTag::from(7)));
        assert_eq!(ring.take_run(DeliveryId(1), DeliveryId(1), a), None, "an id of two deliveries");
    }

    #[test]
    fn absurd_ranges_are_clipped() {
        let link = links(1)[0];
        let mut ring = Ring::outgoing(65_536);
        for _ in 0..3 {
            ring.push(entry(link));
        }
        assert_eq!(ids(&mut ring, 0, i32::MAX.unsigned_abs()), [65_536, 65_537, 65_538]);
        assert_eq!(ids(&mut ring, 0, u32::MAX), [0_u32; 0], "the range ends before it begins");
        assert_eq!(ids(&mut ring, 70_000, 80_000), [0_u32; 0], "these ids were never sent");
        assert_eq!(ids(&mut ring, 65_538, 65_536), [0_u32; 0]);
    }

    #[test]
    fn a_straggler_does_not_make_the_ring_grow() {
        let link = links(1)[0];
        let mut ring = Ring::outgoing(0);
        let straggler = ring.push(entry(link));
        for _ in 0..3 * SPAN_MAX {
            let id = ring.push(entry(link));
            ring.take(id, link).expect("just sent");
        }
        assert_eq!(ring.unsettled(), 1);
        assert!(ring.span() <= SPAN_MAX);
        assert_eq!(ids(&mut ring, 0, 5), [0]);
        assert!(ring.take(straggler, link).is_some());
        assert_eq!(ring.unsettled(), 0);
    }

    #[test]
    fn settled_deliveries_leave_no_trace() {
        let mut ring = Ring::outgoing(5);
        for _ in 0..1000 {
            ring.push(None);
        }
        assert_eq!((ring.span(), ring.unsettled()), (0, 0));
    }

    #[test]
    fn a_peer_may_start_at_any_id_skip_ids_and_go_back() {
        let link = links(1)[0];
        let mut ring = Ring::incoming();
        // Any first id, a small gap, a large gap over the wrap, and lower ones.
        let given = [4_000_000_000, 4_000_000_003, 5, 4, 4_000_000_001, 3_999_999_999];
        for id in given {
            ring.push_at(DeliveryId(id), entry(link));
        }
        assert_eq!(ring.unsettled(), 6);
        for id in given {
            assert!(ring.take(DeliveryId(id), link).is_some(), "{id}");
            assert!(ring.take(DeliveryId(id), link).is_none(), "{id} twice");
        }
        let farthest = DeliveryId(6 + (1 << 31));
        ring.push_at(farthest, entry(link));
        assert!(ring.take(farthest, link).is_some());
        assert_eq!((ring.span(), ring.unsettled()), (0, 0));
    }

    #[test]
    fn an_id_of_several_deliveries_is_answered_once() {
        let [a, b] = links(2)[..] else { panic!("two links") };
        let mut ring = Ring::incoming();
        for link in [a, b, b] {
            ring.push_at(DeliveryId(7), entry(link));
        }
        assert_eq!((ring.unsettled(), ring.count(DeliveryId(7), b)), (3, 2));
        let mut settle = |link, state| {
            ring.take(DeliveryId(7), link).expect("unsettled");
            ring.conclude(DeliveryId(7), Some(state))
        };
        assert_eq!(settle(a, DeliveryState::Accepted), None);
        assert_eq!(settle(b, DeliveryState::Released), None);
        assert_eq!(settle(b, DeliveryState::Accepted), Some(DeliveryState::Released));
        assert_eq!((ring.span(), ring.unsettled(), ring.shared.len()), (0, 0, 0));
    }

    #[test]
    fn an_answer_does_not_wait_for_a_detached_link() {
        let [a, b] = links(2)[..] else { panic!("two links") };
        let mut ring = Ring::incoming();
        for (id, link) in [(7, a), (7, b), (8, a), (8, b), (8, a)] {
            ring.push_at(DeliveryId(id), entry(link));
        }
        ring.take(DeliveryId(7), a).expect("unsettled");
        assert_eq!(ring.conclude(DeliveryId(7), Some(DeliveryState::Accepted)), None);
        assert_eq!(ring.forget_link(b), [(DeliveryId(7), DeliveryState::Accepted)]);
        assert_eq!((ring.unsettled(), ring.count(DeliveryId(8), a)), (2, 2));
        assert_eq!(ids(&mut ring, 0, 100), [8, 8]);
        ring.visit(DeliveryId(0), DeliveryId(9), |_, _| false);
        assert_eq!((ring.span(), ring.unsettled(), ring.shared.len()), (0, 0, 0));
    }

    #[test]
    fn a_link_settles_only_its_own_deliveries_and_they_are_forgotten_with_it() {
        let [a, b] = links(2)[..] else { panic!("two links") };
        let mut ring = Ring::outgoing(0);
        let of_a = ring.push(entry(a));
        let of_b = ring.push(entry(b));
        assert!(ring.take(of_a, b).is_none());
        ring.forget_link(a);
        assert_eq!(ring.unsettled(), 1);
        assert!(ring.get_mut(of_a).is_none());
        assert!(ring.get_mut(of_b).is_some());
    }
}
