//! Rates count starts: no window contains more than burst plus rate, no lane is held up by the limit of another, and
//! everything starts in the end.

use peeklock_engine::Error;
use peeklock_types::{OrderPolicy, OrderSettings, Rate};
use proptest::prelude::*;

use crate::reference::waiting;
use crate::shop::{Arrival, Shop, Start};
use crate::world::{Dice, Job, World, classes, fair, id_of, millis};

fn rate() -> impl Strategy<Value = Rate> {
    (500..=50_000u64, 1..=8u32).prop_map(|(per_second_milli, burst)| Rate { per_second_milli, burst })
}

/// The limits of the queue, of classes and of tenants of a tier.
#[derive(Clone, Debug)]
struct Limits {
    policy: OrderPolicy,
    queue: Option<Rate>,
    classes: [Option<Rate>; 3],
    tiers: [Option<Rate>; 2],
    seed: u64,
}

fn policy() -> impl Strategy<Value = OrderPolicy> {
    use OrderPolicy::{Aged, Fifo, Strict, Weighted};
    prop::sample::select(vec![Fifo, Strict, Aged, Weighted])
}

fn limits(queue: impl Strategy<Value = Option<Rate>>) -> impl Strategy<Value = Limits> {
    let some = || prop::option::of(rate());
    (policy(), queue, [some(), some(), some()], [some(), some()], any::<u64>())
        .prop_map(|(policy, queue, classes, tiers, seed)| Limits { policy, queue, classes, tiers, seed })
}

impl Limits {
    fn order(&self) -> OrderSettings {
        let mut order = classes(self.policy, 3);
        for class in &mut order.classes {
            class.rate = self.classes[usize::from(class.priorities.0)];
        }
        let mut tenants = fair(&[1, 3]).tenants.unwrap();
        for (class, rate) in tenants.classes.iter_mut().zip(self.tiers) {
            class.rate = rate;
        }
        OrderSettings { tenants: Some(tenants), rate: self.queue, ..order }
    }

    fn arrivals(&self) -> Vec<Arrival> {
        let mut dice = Dice(self.seed);
        let mut at_ms = 0;
        let mut one = || {
            at_ms += dice.below(40);
            let tenant = dice.below(4) as u32;
            let priority = Some(dice.below(3) as u8);
            Arrival {
                at_ms,
                job: Job { priority, ..Job::by(tenant, tenant % 2) },
                service_ms: 1 + dice.below(30),
            }
        };
        (0..150).map(|_| one()).collect()
    }

    /// Returns whether no limit applies to such a job.
    fn is_free(&self, job: &Job) -> bool {
        let class = self.classes[usize::from(job.priority.unwrap())];
        let tier = self.tiers[job.tier.unwrap() as usize];
        self.queue.is_none() && class.is_none() && tier.is_none()
    }

    fn check(&self, starts: &[Start]) {
        let at = |is_meant: &dyn Fn(&Job) -> bool| -> Vec<u64> {
            starts.iter().filter(|start| is_meant(&start.job)).map(|start| start.at_ms).collect()
        };
        check_windows(&at(&|_| true), self.queue);
        for (priority, rate) in (0..).zip(self.classes) {
            check_windows(&at(&|job| job.priority == Some(priority)), rate);
        }
        for tenant in 0..4u32 {
            // A tenant has a lane, and so a limit, in each class.
            for priority in 0..3 {
                let is_meant = |job: &Job| job.tenant == Some(tenant) && job.priority == Some(priority);
                check_windows(&at(&is_meant), self.tiers[tenant as usize % 2]);
            }
        }
    }
}

/// Checks that from any start to any later one there are at most `burst + rate · t` starts.
fn check_windows(starts_ms: &[u64], rate: Option<Rate>) {
    let Some(rate) = rate else { return };
    for (place, from_ms) in starts_ms.iter().enumerate() {
        for (count, to_ms) in (1u64..).zip(&starts_ms[place..]) {
            let allowed_millionths =
                u64::from(rate.burst) * 1_000_000 + (to_ms - from_ms) * rate.per_second_milli;
            assert!(
                count * 1_000_000 <= allowed_millionths,
                "{count} from {from_ms} to {to_ms} ms with {rate}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn no_window_exceeds_the_rate_and_all_start_in_the_end(
        limits in limits(prop::option::of(rate())),
        slots in 1..=8usize,
    ) {
        let arrivals = limits.arrivals();
        let mut shop = Shop::open(World::new(limits.order()), slots, arrivals.clone());
        prop_assert!(!shop.run_until(u64::MAX / 4));
        prop_assert_eq!(shop.starts.len(), arrivals.len(), "{} are left", shop.world.message_count());
        limits.check(&shop.starts);
    }

    #[test]
    fn a_limited_lane_holds_up_no_other(limits in limits(Just(None)), slots in 1..=8usize) {
        let mut shop = Shop::open(World::new(limits.order()), slots, limits.arrivals());
        for until_ms in (0..6000).step_by(53) {
            shop.run_until(until_ms);
            if shop.free_slots() > 0 {
                let left = waiting(&shop.world);
                let free = left.iter().find(|message| limits.is_free(&shop.world.jobs[&id_of(message)]));
                prop_assert!(free.is_none(), "{:?} waits for a limit that is not its own", free);
            }
        }
    }

    #[test]
    fn redeliveries_count_as_starts(rate in rate(), seed in any::<u64>()) {
        let mut order = classes(OrderPolicy::Aged, 1);
        order.classes[0].rate = Some(rate);
        let (mut world, mut dice) = (World::new(order), Dice(seed));
        world.send_many(5, |_| Job::of(0));
        let (opened, mut starts_ms) = (world.now, Vec::new());
        for _ in 0..100 {
            for handed in world.take(peeklock_engine::ReceiveMode::PeekLock, 5) {
                starts_ms.push(world.now.since(opened).as_millis() as u64);
                world.settle(handed.token, crate::world::ABANDON);
            }
            world.wait(millis(dice.below(300)));
        }
        check_windows(&starts_ms, Some(rate));
    }
}

#[test]
fn a_tenant_keeps_its_limit_while_it_has_no_messages() {
    let mut order = fair(&[1, 1]);
    order.tenants.as_mut().unwrap().classes[1].rate = Some(Rate { per_second_milli: 100, burst: 1 });
    let (mut dice, mut arrivals) = (Dice(7), Vec::new());
    let arrival = |at_ms, tenant, tier| Arrival { at_ms, job: Job::by(tenant, tier), service_ms: 1 };
    for tenant in 0..30 {
        // The second job arrives long after the end of the first, but before the rate permits it.
        arrivals.push(arrival(dice.below(1000), tenant, 1));
        arrivals.push(arrival(2000 + dice.below(8000), tenant, 1));
    }
    // One tenant has many jobs, and so many others appear and disappear that no lane is kept for long.
    arrivals.extend((0..5000).map(|n| arrival(n * 2, 999, 0)));
    arrivals.extend((0..1000).map(|n| arrival(u64::from(n) * 10, 1000 + n, 0)));
    arrivals.sort_by_key(|arrival| arrival.at_ms);
    let mut shop = Shop::open(World::new(order), 4, arrivals.clone());
    assert!(!shop.run_until(u64::MAX / 4));
    assert_eq!(shop.starts.len(), arrivals.len());
    for tenant in 0..30 {
        let own = shop.starts.iter().filter(|start| start.job.tenant == Some(tenant));
        let starts_ms: Vec<_> = own.map(|start| start.at_ms).collect();
        check_windows(&starts_ms, Some(Rate { per_second_milli: 100, burst: 1 }));
    }
}

#[test]
fn a_sender_over_its_rate_gets_a_retry_time_and_nothing_is_stored() {
    let mut order = classes(OrderPolicy::Aged, 2);
    let rate = Some(Rate { per_second_milli: 10_000, burst: 5 });
    order.classes[0].send_rate = rate;
    let mut world = World::new(order);
    world.send_many(5, |_| Job::of(1));
    let refused = world.try_send(Job::of(1));
    let Err(Error::Throttled { retry_after, .. }) = refused else { panic!("{refused:?}") };
    assert!(retry_after > millis(0) && retry_after <= millis(100), "{retry_after:?}");
    assert_eq!(world.message_count(), 5);
    world.send(Job::of(0));
    assert!(world.view().throttled_count > 0);
    world.wait(retry_after);
    world.send(Job::of(1));
}
