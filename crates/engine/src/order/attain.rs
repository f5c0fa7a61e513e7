//! The measurements of each class, and the send rates. Both are kept only in memory.

use std::time::Duration;

use peeklock_types::{Rate, Timestamp};

use super::stats::Stats;
use super::{LaneKey, LaneSlot, Order};

/// The error of a sender that exceeds a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Throttled {
    pub(crate) what: String,
    pub(crate) retry_after: Duration,
}

impl Order {
    /// Records the first delivery of a message.
    pub(crate) fn note_started(&mut self, now: Timestamp, slot: LaneSlot, came: Timestamp) {
        let waited = now.since(came);
        let Some(key) = self.lane(slot).map(|lane| (lane.key.class, lane.key.tenant_class)) else { return };
        self.note_target(key.0, waited);
        let class = &mut self.classes[usize::from(key.0)];
        class.stats.time_in_queue.add(waited);
        if self.settings.tenants.is_some() {
            self.tenant_classes[usize::from(key.1)].stats.time_in_queue.add(waited);
        }
    }

    /// Records a message that left the queue before its first delivery: it counts as bad if it was already late.
    pub(crate) fn note_unstarted(&mut self, now: Timestamp, slot: LaneSlot, came: Timestamp) {
        let Some(class) = self.lane(slot).map(|lane| lane.key.class) else { return };
        let target = self.settings.classes.get(usize::from(class)).and_then(|class| class.target);
        if target.is_some_and(|target| now.since(came) > target.within) {
            self.note_target(class, now.since(came));
        }
    }

    fn note_target(&mut self, class: u8, waited: Duration) {
        let class = usize::from(class);
        if let Some(target) = self.settings.classes.get(class).and_then(|class| class.target) {
            self.classes[class].attainment.add(waited <= target.within);
        }
    }

    /// Records that a receiver settled the message.
    pub(crate) fn note_settled(&mut self, now: Timestamp, slot: LaneSlot, came: Timestamp) {
        let Some(key) = self.lane(slot).map(|lane| (lane.key.class, lane.key.tenant_class)) else { return };
        let note = |stats: &mut Stats| {
            stats.settled.add(now);
            stats.critical_time.add(now.since(came));
        };
        note(&mut self.classes[usize::from(key.0)].stats);
        if self.settings.tenants.is_some() {
            note(&mut self.tenant_classes[usize::from(key.1)].stats);
        }
    }

    /// Counts the messages of a class that have waited longer than its target and were never delivered. `came` returns
    /// the time at which a message was enqueued.
    pub(super) fn late_count(&self, now: Timestamp, class: usize, came: &impl Fn(u64) -> Timestamp) -> u64 {
        let target = self.settings.classes.get(class).and_then(|class| class.target);
        let Some(target) = target else { return 0 };
        let is_in_time = |number: u64| now.since(came(number)) <= target.within;
        let lanes = self.lanes.iter().flatten().filter(|lane| usize::from(lane.key.class) == class);
        lanes.map(|lane| lane.row.count_new_until(is_in_time)).sum()
    }

    /// Counts the messages of each class that are late and were never delivered.
    pub(crate) fn late_counts(&self, now: Timestamp, came: &impl Fn(u64) -> Timestamp) -> Vec<u64> {
        (0..self.classes.len()).map(|class| self.late_count(now, class, came)).collect()
    }

    /// Counts late messages as bad that have left the queue since `before`, for whatever reason.
    pub(crate) fn note_late_gone(&mut self, before: &[u64], after: &[u64]) {
        for ((class, before), after) in self.classes.iter_mut().zip(before).zip(after) {
            class.attainment.add_bad(before.saturating_sub(*after));
        }
    }

    /// Samples how the classes meet their targets.
    pub(crate) fn sample(&mut self, now: Timestamp, came: &impl Fn(u64) -> Timestamp) {
        for place in 0..self.settings.classes.len() {
            if self.settings.classes[place].target.is_some() {
                let late_count = self.late_count(now, place, came);
                self.classes[place].attainment.sample(now, late_count);
            }
        }
    }

    /// Checks that the rates permit one more message for this lane now.
    pub(crate) fn check_send(&self, now: Timestamp, key: &LaneKey) -> Result<(), Throttled> {
        let class = self.settings.classes.get(usize::from(key.class));
        let rank = self
            .settings
            .tenants
            .as_ref()
            .and_then(|tenants| tenants.classes.get(usize::from(key.tenant_class)));
        let lane = |key: &LaneKey| Some(self.lane(*self.by_key.get(key)?)?.sends);
        let rested = || self.rested.get(key).map(|(_, sends)| *sends);
        let shared = || lane(&LaneKey { tenant: None, ..key.clone() }).filter(|_| self.is_full());
        let sends = lane(key).or_else(rested).or_else(shared);
        let tenant = rank.and_then(|rank| rank.send_rate).zip(sends);
        let over =
            |rate: Option<Rate>, until: Option<Timestamp>, what: &dyn Fn() -> String| match (rate, until) {
                (Some(rate), Some(until)) => {
                    Err(Throttled { what: format!("{} ({rate})", what()), retry_after: until.since(now) })
                }
                _ => Ok(()),
            };
        let queue_rate = self.settings.send_rate;
        over(queue_rate, self.sends.ready_at(now, queue_rate), &|| "the send rate of the queue".to_owned())?;
        if let Some(class) = class {
            let until = self.classes.get(usize::from(key.class));
            let until = until.and_then(|own| own.sends.ready_at(now, class.send_rate));
            over(class.send_rate, until, &|| format!("the send rate of the class '{}'", class.name))?;
        }
        if let Some((rate, sends)) = tenant {
            let name = key.tenant.as_deref().unwrap_or_default();
            let until = sends.ready_at(now, Some(rate));
            over(Some(rate), until, &|| format!("the send rate of the tenant '{name}'"))?;
        }
        Ok(())
    }

    pub(crate) fn note_throttled(&mut self, count: usize) {
        self.throttled_count += count as u64;
    }

    /// Records a sent message.
    pub(crate) fn take_send(&mut self, now: Timestamp, slot: LaneSlot) {
        let Some(lane) = self.lanes.get_mut(slot.index()).and_then(Option::as_mut) else { return };
        let tenants = self.settings.tenants.as_ref();
        let rank = tenants.and_then(|tenants| tenants.classes.get(usize::from(lane.key.tenant_class)));
        lane.sends.take(now, rank.and_then(|rank| rank.send_rate));
        let place = usize::from(lane.key.class);
        let rate = self.settings.classes.get(place).and_then(|class| class.send_rate);
        self.classes[place].sends.take(now, rate);
        self.sends.take(now, self.settings.send_rate);
    }
}
