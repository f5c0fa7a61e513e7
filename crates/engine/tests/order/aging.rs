//! The longest wait of a message of a low class under the aged policy. Strict has no such limit, and with targets the
//! policy is earliest deadline first.

use peeklock_types::{OrderPolicy, OrderSettings, Target};
use proptest::prelude::*;

use crate::shop::{Arrival, Shop, Start};
use crate::world::{Dice, Job, World, classes, millis};

const HIGH: u8 = 1;
const LOW: u8 = 0;

/// The load of two classes, of which the high one uses a share of the shop's capacity.
#[derive(Clone, Debug)]
struct Load {
    slots: u64,
    service_ms: u64,
    high_of_hundred: u64,
    offset_ms: u64,
    seed: u64,
}

const END_MS: u64 = 20_000;

impl Load {
    fn order(&self, policy: OrderPolicy) -> OrderSettings {
        let mut order = classes(policy, 2);
        order.classes[0].offset = Some(millis(0));
        order.classes[1].offset = Some(millis(self.offset_ms));
        order
    }

    /// Returns high jobs at an even rate, behind a backlog that keeps all slots busy, and some low ones.
    fn arrivals(&self) -> Vec<Arrival> {
        let of = |at_ms, priority| Arrival { at_ms, job: Job::of(priority), service_ms: self.service_ms };
        let mut all: Vec<_> = (0..self.slots * 3).map(|_| of(0, HIGH)).collect();
        let high_count = END_MS * self.slots * self.high_of_hundred / (100 * self.service_ms);
        all.extend((0..high_count).map(|n| of(n * END_MS / high_count, HIGH)));
        let mut dice = Dice(self.seed);
        let mut at_ms = 0.0;
        while at_ms < END_MS as f64 {
            all.extend((0..=dice.below(3)).map(|_| of(at_ms as u64, LOW)));
            at_ms += dice.exponential(40.0 * self.service_ms as f64 / self.slots as f64);
        }
        all.sort_by_key(|arrival| arrival.at_ms);
        all
    }

    fn run(&self, policy: OrderPolicy) -> Vec<Start> {
        let world = World::new(self.order(policy));
        let mut shop = Shop::open(world, self.slots as usize, self.arrivals());
        shop.run_until(END_MS);
        shop.starts
    }

    /// Returns `(B + λ·Δ)·s / S + s` for a message that arrives now: with `ahead` smaller keys in the queue, and the
    /// high ones that arrive within the offset.
    fn bound_ms(&self, ahead: usize) -> f64 {
        let rate = self.slots as f64 * self.high_of_hundred as f64 / (100.0 * self.service_ms as f64);
        // With even spacing a window can contain one more than its length gives.
        let overtaking = rate * self.offset_ms as f64 + 1.0;
        let work_ms = (ahead as f64 + overtaking) * self.service_ms as f64;
        work_ms / self.slots as f64 + self.service_ms as f64
    }

    /// Returns the number of low jobs that were checked to have started in time. Ids count arrivals.
    fn check_bound(&self, starts: &[Start]) -> usize {
        let arrivals = self.arrivals();
        let started_ms = |place: usize| {
            let id = place as u64 + 1;
            starts.iter().find(|start| start.id == id).map(|start| start.at_ms)
        };
        let all_starts: Vec<_> = (0..arrivals.len()).map(started_ms).collect();
        let mut checked_count = 0;
        for (place, low) in arrivals.iter().enumerate().filter(|(_, arrival)| arrival.job == Job::of(LOW)) {
            let before = &all_starts[..place];
            let ahead = before.iter().filter(|at| at.is_none_or(|at| at >= low.at_ms)).count();
            // High jobs of the same instant have smaller keys too.
            let same = arrivals[place..]
                .iter()
                .filter(|other| other.at_ms == low.at_ms && other.job == Job::of(HIGH));
            let bound_ms = self.bound_ms(ahead + same.count());
            let latest_ms = low.at_ms as f64 + bound_ms;
            if latest_ms >= END_MS as f64 {
                continue;
            }
            let at_ms = all_starts[place];
            assert!(
                at_ms.is_some_and(|at| at as f64 <= latest_ms),
                "{low:?} with {ahead} ahead started at {at_ms:?}, not by {latest_ms}, {self:?}"
            );
            checked_count += 1;
        }
        checked_count
    }
}

fn load(high_of_hundred: u64) -> impl Strategy<Value = Load> {
    (1..=8u64, 20..=100u64, 500..=4000u64, any::<u64>()).prop_map(
        move |(slots, service_ms, offset_ms, seed)| Load {
            slots,
            service_ms,
            high_of_hundred,
            offset_ms,
            seed,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn an_aged_low_message_starts_within_the_limit_at_95_percent(load in load(95)) {
        prop_assert!(load.check_bound(&load.run(OrderPolicy::Aged)) > 0);
    }

    #[test]
    fn an_aged_low_message_starts_within_the_limit_at_100_percent(load in load(100)) {
        prop_assert!(load.check_bound(&load.run(OrderPolicy::Aged)) > 0);
    }

    #[test]
    fn at_150_percent_aged_keeps_the_limit_and_strict_starves(load in load(150)) {
        let low_count = |starts: &[Start]| starts.iter().filter(|start| start.job == Job::of(LOW)).count();
        let aged = load.run(OrderPolicy::Aged);
        prop_assert!(load.check_bound(&aged) > 0);
        prop_assert!(low_count(&aged) > 0);
        prop_assert_eq!(low_count(&load.run(OrderPolicy::Strict)), 0);
    }

    #[test]
    fn aged_by_targets_is_earliest_deadline_first(seed in any::<u64>(), slots in 1..=4u64) {
        let arrivals = mixed(seed);
        let mut order = classes(OrderPolicy::Aged, 3);
        for (class, within_ms) in order.classes.iter_mut().zip(TARGETS_MS) {
            class.target = Some(Target { within: millis(within_ms), objective_ppm: 990_000 });
        }
        let mut shop = Shop::open(World::new(order), slots as usize, arrivals.clone());
        prop_assert!(!shop.run_until(u64::MAX / 4), "all jobs end");
        let seen: Vec<_> = shop.starts.iter().map(|start| (start.at_ms, start.id)).collect();
        prop_assert_eq!(seen, earliest_deadline_first(&arrivals, slots as usize));
    }
}

/// The targets, that of the most urgent class first. With arrivals at multiples of ten no two deadlines are the same.
const TARGETS_MS: [u64; 3] = [203, 1007, 5001];

fn deadline_ms(arrival: &Arrival) -> u64 {
    arrival.at_ms + TARGETS_MS[2 - usize::from(arrival.job.priority.unwrap())]
}

fn mixed(seed: u64) -> Vec<Arrival> {
    let mut dice = Dice(seed);
    let mut at_ms = 0;
    let mut one = || {
        at_ms += 10 * (1 + dice.below(4));
        Arrival { at_ms, job: Job::of(dice.below(3) as u8), service_ms: 1 + dice.below(120) }
    };
    (0..300).map(|_| one()).collect()
}

/// The simplest scheduler: a free slot takes the waiting job with the earliest deadline. Returns the time at which each
/// job was started.
fn earliest_deadline_first(arrivals: &[Arrival], slots: usize) -> Vec<(u64, u64)> {
    let mut free_at = vec![0; slots];
    let mut left: Vec<_> = arrivals.iter().zip(1..).collect();
    let mut starts = Vec::new();
    while !left.is_empty() {
        let first_ms = left.iter().map(|(arrival, _)| arrival.at_ms).min().unwrap();
        let slot = free_at.iter_mut().min().unwrap();
        let now_ms = first_ms.max(*slot);
        let here = left.iter().enumerate().filter(|(_, (arrival, _))| arrival.at_ms <= now_ms);
        let (place, _) = here.min_by_key(|(_, (arrival, _))| deadline_ms(arrival)).unwrap();
        let (arrival, id) = left.remove(place);
        *slot = now_ms + arrival.service_ms;
        starts.push((now_ms, id));
    }
    starts
}
