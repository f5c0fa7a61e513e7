//! Start-time fair queueing for the tenants of a class, by the time that workers spend on their messages. The
//! [`Ranking`](super::Ranking) does the same for classes that share by weight.
//!
//! Each tenant has a *tag*, the virtual time at which its next message starts; the tenant with the smallest tag goes
//! first. A start adds the cost, divided by the weight: first the estimate, and later the difference from the true
//! cost. A tenant that was idle starts at the virtual time of the others, so idleness earns nothing; and a tenant that
//! was not idle is never moved, so it keeps its due share.

use std::time::Duration;

use peeklock_types::{OrderPolicy, Timestamp};

use super::{LaneSlot, Order};
use crate::message::ReceiverId;

/// A message that a receiver has locked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// The cost that was charged for the message so far.
    pub(crate) charged_ms: u32,
    /// The time of the delivery; unknown after a restart.
    pub(crate) since: Option<Timestamp>,
    /// The holder of the message, if it has a limit of unsettled messages.
    pub(crate) receiver: Option<ReceiverId>,
    /// Whether the message is returned unprocessed.
    is_returned: bool,
}

/// The cost of a millisecond for a tenant of weight 1000 thousandths.
const TENANT_COST: u64 = 1_000_000;
/// The limit at which tags restart.
const TAG_MAX: u64 = 1 << 62;

impl Order {
    /// Returns whether the processing times of messages are charged.
    pub(crate) fn charges(&self) -> bool {
        self.settings.tenants.is_some()
    }

    /// Returns whether a delivery without a lock is charged.
    pub(crate) fn charges_starts(&self) -> bool {
        self.charges() || self.ranking.policy() == OrderPolicy::Weighted
    }

    /// Moves the tag of an idle lane or class to the virtual time, before a message begins to wait: idleness earns
    /// nothing.
    pub(super) fn become_active(&mut self, slot: LaneSlot) {
        let Some(lane) = self.lanes.get_mut(slot.index()).and_then(Option::as_mut) else { return };
        let class = &mut self.classes[usize::from(lane.key.class)];
        if lane.waiting_count == 0 {
            lane.tag = lane.tag.max(class.virtual_time);
        }
        if class.waiting_count == 0 {
            self.ranking.activate(lane.key.class.into());
        }
    }

    /// Charges the start of a message of the lane.
    pub(crate) fn start(&mut self, slot: LaneSlot) -> u32 {
        let charges = self.charges();
        let Some(lane) = self.lanes.get_mut(slot.index()).and_then(Option::as_mut) else { return 0 };
        let place = usize::from(lane.key.class);
        let class = &mut self.classes[place];
        let mut charged_ms = 0;
        if charges {
            class.virtual_time = class.virtual_time.max(lane.tag);
            charged_ms = lane.estimate_ms.max(1);
        }
        self.ranking.start(place);
        if charges {
            self.charge(slot, charged_ms.into());
        }
        charged_ms
    }

    /// Records that a message is locked: its processing starts.
    pub(crate) fn lock(&mut self, slot: LaneSlot, number: u64, starts: bool) {
        let charged_ms = if starts { self.start(slot) } else { 0 };
        self.works.insert(number, Work { charged_ms, ..Work::default() });
        self.count_locked(slot, 1);
        self.list(slot);
    }

    /// Records that the lock is gone, whatever happened to the message.
    pub(crate) fn unlock(&mut self, slot: LaneSlot, number: u64) {
        if let Some(Work { receiver: Some(receiver), is_returned, .. }) = self.works.remove(&number) {
            self.freed.push((receiver, is_returned));
        }
        self.count_locked(slot, -1);
        // A share of the messages in flight may be free again.
        self.blocked = None;
    }

    pub(crate) fn work(&self, number: u64) -> Option<&Work> {
        self.works.get(&number)
    }

    /// Records the holder of a message and the time. Both are volatile, so this is not a step of a fact.
    pub(crate) fn note_work(&mut self, number: u64, since: Timestamp, receiver: Option<ReceiverId>) {
        if let Some(work) = self.works.get_mut(&number) {
            (work.since, work.receiver) = (Some(since), receiver);
        }
    }

    /// Follows a step of the clock by `by`, in which nobody worked.
    pub(crate) fn follow_step(&mut self, by: Duration) {
        for since in self.works.values_mut().filter_map(|work| work.since.as_mut()) {
            *since = *since + by;
        }
    }

    /// Records that the message is about to be returned without a settlement.
    pub(crate) fn note_return(&mut self, number: u64) {
        if let Some(work) = self.works.get_mut(&number) {
            work.is_returned = true;
        }
    }

    /// Restores the charged cost of a message after a restart.
    pub(crate) fn restore_work(&mut self, number: u64, charged_ms: u32) {
        if let Some(work) = self.works.get_mut(&number) {
            work.charged_ms = charged_ms;
        }
    }

    /// Replaces the estimated cost of a locked message by the true one.
    pub(crate) fn correct(&mut self, slot: LaneSlot, number: u64, cost_ms: u32) {
        let Some(work) = self.works.get_mut(&number) else { return };
        let difference = i64::from(cost_ms) - i64::from(work.charged_ms);
        work.charged_ms = cost_ms;
        let Some(lane) = self.lanes.get_mut(slot.index()).and_then(Option::as_mut) else { return };
        lane.estimate_ms = blend(lane.estimate_ms, cost_ms);
        self.estimate_ms = blend(self.estimate_ms, cost_ms);
        self.charge(slot, difference);
    }

    fn charge(&mut self, slot: LaneSlot, cost_ms: i64) {
        let Some(lane) = self.lanes.get_mut(slot.index()).and_then(Option::as_mut) else { return };
        let tenants = self.settings.tenants.as_ref();
        let class = tenants.and_then(|tenants| tenants.classes.get(usize::from(lane.key.tenant_class)));
        let weight = u64::from(class.map_or(1000, |class| class.weight_milli)).max(1);
        let cost = cost_ms.unsigned_abs().saturating_mul(TENANT_COST) / weight;
        lane.tag = if cost_ms < 0 { lane.tag.saturating_sub(cost) } else { lane.tag.saturating_add(cost) };
        let (tag, place) = (lane.tag, lane.key.class);
        self.list(slot);
        if tag > TAG_MAX {
            self.rebase_tenants(place);
        }
    }

    fn rebase_tenants(&mut self, place: u8) {
        let base = std::mem::take(&mut self.classes[usize::from(place)].virtual_time);
        for index in 0..self.lanes.len() {
            let Some(lane) = self.lanes[index].as_mut().filter(|lane| lane.key.class == place) else {
                continue;
            };
            lane.tag = lane.tag.saturating_sub(base);
            if let Some(slot) = LaneSlot::of(index) {
                self.list(slot);
            }
        }
    }
}

/// Moves a quarter of the way from the old value to the new one.
fn blend(old: u32, new: u32) -> u32 {
    let blended = (u64::from(old) * 3 + u64::from(new)).div_ceil(4);
    u32::try_from(blended).unwrap_or(u32::MAX)
}
