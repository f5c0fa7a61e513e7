//! Tenants share the time of workers, not counts of messages: more sends, long jobs or an absence give no tenant a
//! larger share.

use peeklock_types::{OrderPolicy, OrderSettings};
use proptest::prelude::*;

use crate::shop::{Arrival, Shop};
use crate::world::{Dice, Job, World, classes, fair};

/// A tenant that always has work waiting.
#[derive(Clone, Copy, Debug)]
struct Busy {
    tier: u32,
    weight: u32,
    cost_ms: u64,
}

fn shop(weights: &[u32], slots: usize) -> Shop {
    Shop::open(World::new(fair(weights)), slots, Vec::new())
}

fn is_of(tenant: u32) -> impl Fn(&Job) -> bool {
    move |job| job.tenant == Some(tenant)
}

/// Checks `|T_i/w_i − T_j/w_j| ≤ (S + 1)(c_i/w_i + c_j/w_j)` for the worker time since `from_ms`.
fn check_pairs(shop: &Shop, tenants: &[Busy], slots: usize, from_ms: u64, to_ms: u64) {
    let part = |n: usize, tenant: &Busy| {
        shop.worked_ms(is_of(n as u32), from_ms, to_ms) as f64 / f64::from(tenant.weight)
    };
    let parts: Vec<_> = tenants.iter().enumerate().map(|(n, tenant)| part(n, tenant)).collect();
    let cost = |tenant: &Busy| tenant.cost_ms as f64 / f64::from(tenant.weight);
    for (i, one) in tenants.iter().enumerate() {
        for (j, other) in tenants.iter().enumerate().skip(i + 1) {
            let bound = (slots + 1) as f64 * (cost(one) + cost(other));
            let difference = (parts[i] - parts[j]).abs();
            assert!(
                difference <= bound,
                "{one:?} and {other:?} differ by {difference} and not by {bound} from {from_ms} to {to_ms}"
            );
        }
    }
}

const WEIGHTS: [u32; 3] = [1, 2, 4];

fn busy() -> impl Strategy<Value = Busy> {
    // Costs with a ratio of 1:100.
    (0..3u32, prop::sample::select(vec![10u64, 1000])).prop_map(|(tier, cost_ms)| Busy {
        tier,
        weight: WEIGHTS[tier as usize],
        cost_ms,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn busy_tenants_get_their_shares_within_the_limit(
        tenants in prop::collection::vec(busy(), 2..=4),
        slots in prop::sample::select(vec![1usize, 8]),
    ) {
        let mut shop = shop(&WEIGHTS, slots);
        for (n, tenant) in (0..).zip(&tenants) {
            shop.keep_waiting(&Job::by(n, tenant.tier), tenant.cost_ms, slots + 1);
        }
        for until_ms in (0..20_000).step_by(370) {
            shop.run_until(until_ms);
            check_pairs(&shop, &tenants, slots, 0, until_ms);
        }
    }

    #[test]
    fn an_absent_tenant_earns_nothing(
        costs in prop::collection::vec(prop::sample::select(vec![10u64, 200]), 2),
        slots in prop::sample::select(vec![1usize, 8]),
    ) {
        let tenants: Vec<_> = costs.iter().map(|&cost_ms| Busy { tier: 0, weight: 1, cost_ms }).collect();
        // Both tenants have a lane from the start; one then has no jobs for a long time.
        let once = Arrival { at_ms: 0, job: Job::by(1, 0), service_ms: tenants[1].cost_ms };
        let mut shop = Shop::open(World::new(fair(&WEIGHTS)), slots, vec![once]);
        shop.keep_waiting(&Job::by(0, 0), tenants[0].cost_ms, slots + 1);
        shop.run_until(30_000);
        shop.keep_waiting(&Job::by(1, 0), tenants[1].cost_ms, slots + 1);
        for until_ms in (30_000..36_000).step_by(170) {
            shop.run_until(until_ms);
            check_pairs(&shop, &tenants, slots, 30_000, until_ms);
        }
    }
}

#[test]
fn weights_of_four_to_one_give_80_to_20_percent_of_the_time_whatever_the_jobs_take() {
    for slots in [1, 8] {
        for (one_ms, other_ms) in [(1_000, 10_000), (10_000, 1_000), (1_000, 1_000)] {
            let mut shop = shop(&[4, 1], slots);
            shop.keep_waiting(&Job::by(0, 0), one_ms, slots + 1);
            shop.keep_waiting(&Job::by(1, 1), other_ms, slots + 1);
            let end_ms = 6_000_000;
            shop.run_until(end_ms);
            let all = shop.worked_ms(|_| true, 0, end_ms) as f64;
            let share = shop.worked_ms(is_of(0), 0, end_ms) as f64 / all * 100.0;
            assert!(
                (79.0..=81.0).contains(&share),
                "{share} % with {slots} slots, {one_ms} and {other_ms} ms"
            );
            assert!(all > (slots as u64 * end_ms) as f64 * 0.99, "no slot is idle");
        }
    }
}

const SERVICE_MS: u64 = 50;
const QUIET_END_MS: u64 = 100_000;

/// Returns the jobs of 99 tenants that arrive at random times, with four fifths of the shop's capacity.
fn scattered(seed: u64, slots: usize) -> Vec<Arrival> {
    let mut dice = Dice(seed);
    let mean_ms = SERVICE_MS as f64 / slots as f64 / 0.8;
    let mut at_ms = 0.0;
    let mut all = Vec::new();
    while at_ms < QUIET_END_MS as f64 {
        at_ms += dice.exponential(mean_ms);
        all.push((at_ms as u64, 1 + dice.below(99) as u32));
    }
    arrivals(all)
}

/// Returns as much work as [`scattered`], but all jobs arrive within a second, followed by a pause: they wait for each
/// other.
fn in_waves(seed: u64, slots: usize) -> Vec<Arrival> {
    let mut dice = Dice(seed);
    let period_ms = 99 * 4 * SERVICE_MS / slots as u64 * 5 / 4;
    let mut all = Vec::new();
    for wave in 0..QUIET_END_MS / period_ms {
        let jobs = (1..=99).flat_map(|tenant| [tenant; 4]);
        all.extend(jobs.map(|tenant| (wave * period_ms + dice.below(1000), tenant)));
    }
    arrivals(all)
}

fn arrivals(mut all: Vec<(u64, u32)>) -> Vec<Arrival> {
    all.sort_unstable();
    let arrival = |(at_ms, tenant)| Arrival { at_ms, job: Job::by(tenant, 0), service_ms: SERVICE_MS };
    all.into_iter().map(arrival).collect()
}

/// Returns the mean and the 99th percentile of the time until the end of a quiet tenant's job, alone and beside a
/// tenant that always has 500 jobs waiting.
fn quiet_waits(order: &OrderSettings, slots: usize, quiet: &[Arrival]) -> [(f64, f64); 2] {
    [false, true].map(|with_noisy| {
        let mut shop = Shop::open(World::new(order.clone()), slots, quiet.to_vec());
        if with_noisy {
            shop.keep_waiting(&Job::by(0, 0), SERVICE_MS, 500);
        }
        shop.run_until(QUIET_END_MS);
        let quiet = shop.starts.iter().filter(|start| start.job.tenant != Some(0));
        let mut waits: Vec<_> = quiet.map(|start| start.end_ms - start.arrived_ms).collect();
        waits.sort_unstable();
        let mean = waits.iter().sum::<u64>() as f64 / waits.len() as f64;
        (mean, waits[waits.len() * 99 / 100] as f64)
    })
}

#[test]
fn one_noisy_tenant_hardly_delays_ninety_nine_quiet_ones() {
    for seed in 1..=3 {
        // Beside a tenant that always has work no slot is ever idle. If a slot is nearly always idle without that
        // tenant, most of the wait is for a free slot, whatever the order; so several slots are tested in waves.
        for (slots, quiet) in [(1, scattered(seed, 1)), (1, in_waves(seed, 1)), (8, in_waves(seed, 8))] {
            let [alone, beside] = quiet_waits(&fair(&[1]), slots, &quiet);
            let what = format!("{beside:?} ms and alone {alone:?} ms, {slots} slots, seed {seed}");
            assert!(beside.0 <= 1.5 * alone.0 && beside.1 <= 1.5 * alone.1, "{what}");
        }
    }
    let [alone, beside] = quiet_waits(&classes(OrderPolicy::Fifo, 1), 8, &in_waves(1, 8));
    assert!(beside.0 > 1.5 * alone.0, "the noise has a measurable effect: {beside:?} and {alone:?}");
}

/// Creates a shop with two tier-0 tenants and one of tier 1 whose class may have a quarter of the messages in flight.
fn shared(is_hard: bool) -> Shop {
    let mut order = fair(&[1, 1]);
    let class = &mut order.tenants.as_mut().unwrap().classes[1];
    class.max_share_milli = Some(250);
    class.is_share_hard = is_hard;
    Shop::open(World::new(order), 8, Vec::new())
}

/// Returns how many messages of the limited class and of all were in flight after each start of the limited class
/// between two times.
fn in_flight_at_starts(shop: &Shop, from_ms: u64, to_ms: u64) -> Vec<(usize, usize)> {
    let limited = |job: &Job| job.tier == Some(1);
    let starts = shop.starts.iter().enumerate();
    let meant = starts.filter(|(_, start)| limited(&start.job) && (from_ms..to_ms).contains(&start.at_ms));
    meant
        .map(|(place, start)| {
            let running: Vec<_> =
                shop.starts[..=place].iter().filter(|other| other.end_ms > start.at_ms).collect();
            (running.iter().filter(|other| limited(&other.job)).count(), running.len())
        })
        .collect()
}

#[test]
fn a_soft_share_applies_while_others_wait_and_a_hard_one_always() {
    for is_hard in [false, true] {
        let mut shop = shared(is_hard);
        shop.keep_waiting(&Job::by(0, 1), 100, 20);
        shop.run_until(5_000);
        let alone = in_flight_at_starts(&shop, 1_000, 5_000);
        let most = alone.iter().map(|(own, _)| *own).max().unwrap();
        assert_eq!(
            most,
            if is_hard { 1 } else { 8 },
            "a soft share does not limit a class that is alone, and a hard one permits one message"
        );
        shop.keep_waiting(&Job::by(1, 0), 70, 20);
        shop.keep_waiting(&Job::by(2, 0), 130, 20);
        shop.run_until(30_000);
        for (own, all) in in_flight_at_starts(&shop, 5_200, 30_000) {
            assert!(own == 1 || own * 4 <= all, "{own} of {all}");
        }
        let worked = |tier: u32| shop.worked_ms(move |job| job.tier == Some(tier), 6_000, 30_000) as f64;
        let share = worked(1) / (worked(0) + worked(1));
        assert!((0.2..=0.26).contains(&share), "{share}; without a limit it would be a third");
    }
}
