//! Creates and removes lanes.

use peeklock_types::limits;

use super::lane::Lane;
use super::{LaneKey, LaneSlot, Limits, Order, SWEEP_MIN};

impl Order {
    /// Returns the lane of this class and tenant, and creates it if necessary. If there are too many lanes, new tenants
    /// share one with messages without a tenant.
    pub(crate) fn open(&mut self, key: &LaneKey) -> LaneSlot {
        if let Some(&slot) = self.by_key.get(key) {
            return slot;
        }
        self.sweep();
        let is_full = self.is_full() && key.tenant.is_some();
        let mut key = if is_full { LaneKey { tenant: None, ..key.clone() } } else { key.clone() };
        // A journal that is damaged, or was written for other settings, cannot lead to an index out of range.
        key.class = key.class.min(u8::try_from(self.classes.len() - 1).unwrap_or_default());
        key.tenant_class =
            key.tenant_class.min(u8::try_from(self.tenant_classes.len() - 1).unwrap_or_default());
        if let Some(&slot) = self.by_key.get(&key) {
            return slot;
        }
        let index = self.free.pop_first().map_or(self.lanes.len(), usize::from);
        let tag = self.classes[usize::from(key.class)].virtual_time;
        let mut lane = Lane::new(key.clone(), self.has_sessions, tag, self.estimate_ms);
        (lane.starts, lane.sends) = self.rested.remove(&key).unwrap_or_default();
        self.empty_count += 1;
        let slot = LaneSlot::of(index).expect("the limit of lanes is far below the largest slot");
        if index == self.lanes.len() {
            self.lanes.push(None);
        }
        self.lanes[index] = Some(lane);
        self.by_key.insert(key, slot);
        slot
    }

    /// Returns the number of lanes. It exceeds the number of keys if classes were merged: a tenant then has several
    /// lanes with the same key.
    fn lane_count(&self) -> usize {
        self.lanes.len() - self.free.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.lane_count() >= limits::LANES_MAX
    }

    /// Removes lanes without messages. Lanes of tenants ahead of their share are removed last, because a removed lane
    /// loses its tag.
    fn sweep(&mut self) {
        if self.lane_count() < self.sweep_at {
            return;
        }
        let needs_room = self.is_full();
        for pass in [false, true] {
            // Without empty lanes there is nothing to search, so a sender that invents new tenants does not cause a
            // search for each message.
            if self.empty_count == 0 || (pass && (!needs_room || !self.is_full())) {
                break;
            }
            (0..self.lanes.len()).for_each(|index| self.give_up(index, pass));
        }
        self.sweep_at = (self.lane_count() * 2).clamp(SWEEP_MIN, limits::LANES_MAX);
    }

    /// Removes a lane if it has no messages and is not ahead of others. `has_to` removes it even if it is ahead.
    fn give_up(&mut self, index: usize, has_to: bool) {
        let is_ahead = |lane: &Lane| lane.tag > self.classes[usize::from(lane.key.class)].virtual_time;
        let can_go = |lane: &mut Lane| lane.message_count == 0 && (has_to || !is_ahead(lane));
        let Some(lane) = self.lanes.get_mut(index).and_then(|lane| lane.take_if(|lane| can_go(lane))) else {
            return;
        };
        if self.by_key.get(&lane.key).copied() == LaneSlot::of(index) {
            self.by_key.remove(&lane.key);
        }
        self.free.extend(u16::try_from(index));
        self.empty_count -= 1;
        self.rest(lane);
    }

    fn rest(&mut self, lane: Lane) {
        if !lane.starts.is_used() && !lane.sends.is_used() {
            return;
        }
        if self.rested.len() >= limits::LANES_MAX {
            let last_use = |(starts, sends): &Limits| starts.used_last().max(sends.used_last());
            let mut uses: Vec<_> = self.rested.values().map(last_use).collect();
            let half = uses.len() / 2;
            let (_, &mut middle, _) = uses.select_nth_unstable(half);
            self.rested.retain(|_, limits| last_use(limits) > middle);
        }
        self.rested.insert(lane.key, (lane.starts, lane.sends));
    }

    pub(crate) fn join(&mut self, slot: LaneSlot) {
        if let Some(lane) = self.lanes.get_mut(slot.index()).and_then(Option::as_mut) {
            lane.message_count += 1;
            self.empty_count -= usize::from(lane.message_count == 1);
        }
    }

    pub(crate) fn leave(&mut self, slot: LaneSlot) {
        if let Some(lane) = self.lanes.get_mut(slot.index()).and_then(Option::as_mut) {
            lane.message_count = lane.message_count.saturating_sub(1);
            self.empty_count += usize::from(lane.message_count == 0);
        }
    }
}
