//! Reports the state of a queue with an order, and explains why a message waits.

use peeklock_types::{OrderPolicy, Timestamp};

use super::view::{ClassView, OrderView, TENANTS_SHOWN_MAX, TenantView};
use super::{Lane, LaneSlot, Order};

/// The properties of a waiting message that an order needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) number: u64,
    pub(crate) lane: LaneSlot,
    pub(crate) came: Timestamp,
}

impl Order {
    pub(crate) fn view(&self, now: Timestamp, came: &impl Fn(u64) -> Timestamp) -> OrderView {
        let oldest = |belongs: &dyn Fn(&Lane) -> bool| {
            let lanes = self.lanes.iter().flatten().filter(|lane| belongs(lane));
            lanes.filter_map(|lane| lane.row.first()).map(came).min()
        };
        let classes = self.class_names.iter().zip(&self.classes).enumerate();
        let classes = classes.map(|(place, (name, class))| ClassView {
            name: name.clone(),
            waiting_count: class.waiting_count,
            locked_count: class.locked_count,
            oldest: oldest(&|lane| usize::from(lane.key.class) == place),
            enqueued_count: class.stats.enqueued.total(),
            started_count: class.stats.time_in_queue.count(),
            settled_count: class.stats.settled.total(),
            enqueued_per_second: class.stats.enqueued.per_second(now),
            settled_per_second: class.stats.settled.per_second(now),
            time_in_queue: class.stats.time_in_queue.clone(),
            critical_time: class.stats.critical_time.clone(),
            target: self
                .settings
                .classes
                .get(place)
                .and_then(|class| class.target)
                .map(|target| class.attainment.view(target, now, self.late_count(now, place, came))),
        });
        let classes = classes.collect();
        let ranks = self.rank_names.iter().zip(&self.tenant_classes).enumerate();
        let ranks = ranks.map(|(place, (name, rank))| ClassView {
            name: name.clone(),
            waiting_count: rank.waiting_count,
            locked_count: rank.locked_count,
            oldest: oldest(&|lane| usize::from(lane.key.tenant_class) == place),
            enqueued_count: rank.stats.enqueued.total(),
            started_count: rank.stats.time_in_queue.count(),
            settled_count: rank.stats.settled.total(),
            enqueued_per_second: rank.stats.enqueued.per_second(now),
            settled_per_second: rank.stats.settled.per_second(now),
            time_in_queue: rank.stats.time_in_queue.clone(),
            critical_time: rank.stats.critical_time.clone(),
            target: None,
        });
        let has_tenants = self.settings.tenants.is_some();
        OrderView {
            classes,
            tenant_classes: ranks.filter(|_| has_tenants).collect(),
            tenants: if has_tenants { self.busiest() } else { Vec::new() },
            lane_count: self.lanes.iter().flatten().filter(|lane| lane.message_count > 0).count(),
            misfit_count: self.misfit_count,
            crowded_count: self.crowded_count,
            throttled_count: self.throttled_count,
            limited_until: self.blocked.flatten(),
        }
    }

    fn busiest(&self) -> Vec<TenantView> {
        let (classes, ranks) = (&self.class_names, &self.rank_names);
        let mut lanes: Vec<_> = self.lanes.iter().flatten().filter(|lane| !lane.is_idle()).collect();
        lanes.sort_by_key(|lane| std::cmp::Reverse(lane.waiting_count + lane.locked_count));
        let view = |lane: &&Lane| {
            Some(TenantView {
                tenant: lane.key.tenant.as_deref().map(str::to_owned),
                class: classes.get(usize::from(lane.key.class))?.clone(),
                tenant_class: ranks.get(usize::from(lane.key.tenant_class))?.clone(),
                waiting_count: lane.waiting_count,
                locked_count: lane.locked_count,
            })
        };
        lanes.iter().take(TENANTS_SHOWN_MAX).filter_map(view).collect()
    }

    /// Counts the messages of each class that would be delivered before this one if no other arrived. With tenants and
    /// weights it counts the certain ones: the messages before it in its own lane, and those in other lanes that were
    /// enqueued earlier.
    pub(crate) fn ahead(&self, message: Candidate, came: &impl Fn(u64) -> Timestamp) -> Vec<(usize, u64)> {
        let Some(own) = self.lane(message.lane) else { return Vec::new() };
        let own_class = usize::from(own.key.class);
        let policy = match self.ranking.policy() {
            OrderPolicy::Weighted => OrderPolicy::Fifo,
            policy => policy,
        };
        let rank = |class: usize, number: u64, came: &dyn Fn() -> Timestamp| {
            self.ranking.rank_under(policy, class, number, came)
        };
        let own_rank = rank(own_class, message.number, &|| message.came);
        let mut counts = vec![0; self.classes.len()];
        for lane in self.lanes.iter().flatten() {
            let class = usize::from(lane.key.class);
            let is_before = |number: u64| rank(class, number, &|| came(number)) < own_rank;
            counts[class] += lane.row.count_until(|number| !is_before(number));
        }
        counts.into_iter().enumerate().filter(|(_, count)| *count > 0).collect()
    }

    pub(crate) fn policy(&self) -> OrderPolicy {
        self.settings.policy
    }
}
