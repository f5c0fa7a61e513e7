//! Classes that share by weights: no class waits longer than a round of the others, and an idle class earns nothing.

use peeklock_engine::ReceiveMode;
use peeklock_types::{OrderPolicy, OrderSettings};
use proptest::prelude::*;

use crate::world::{Dice, Job, World, classes};

/// Returns an order in which the class `c{n}` has the weight `weights[n]`.
fn weighted(weights: &[u32]) -> OrderSettings {
    let mut order = classes(OrderPolicy::Weighted, weights.len() as u8);
    for class in &mut order.classes {
        class.weight = Some(weights[usize::from(class.priorities.0)]);
    }
    order
}

/// Receives and deletes one message, and returns its class.
fn next_class(world: &mut World) -> Option<usize> {
    let handed = world.take(ReceiveMode::ReceiveAndDelete, 1).pop()?;
    Some(usize::from(world.jobs[&handed.id].priority.unwrap()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn classes_with_a_backlog_share_by_weight(weights in prop::collection::vec(1..=20u32, 2..=5)) {
        let rounds = 8;
        let mut world = World::new(weighted(&weights));
        for (class, weight) in weights.iter().enumerate() {
            world.send_many(weight * (rounds + 2), |_| Job::of(class as u8));
        }
        let sum: u32 = weights.iter().sum();
        let mut counts = vec![0u32; weights.len()];
        let mut gaps = vec![0u32; weights.len()];
        for _ in 0..rounds * sum {
            let served = next_class(&mut world).unwrap();
            counts[served] += 1;
            for (class, gap) in gaps.iter_mut().enumerate() {
                *gap = if class == served { 0 } else { *gap + 1 };
                prop_assert!(*gap <= sum - weights[class], "{} waits for {}, {:?}", class, gap, weights);
            }
            let parts: Vec<_> =
                counts.iter().zip(&weights).map(|(count, weight)| f64::from(*count) / f64::from(*weight)).collect();
            let most = parts.iter().copied().fold(0.0, f64::max);
            let least = parts.iter().copied().fold(f64::INFINITY, f64::min);
            prop_assert!(most - least <= 1.0 + 1e-9, "{:?} of {:?}", counts, weights);
        }
        let expected: Vec<_> = weights.iter().map(|weight| weight * rounds).collect();
        prop_assert_eq!(counts, expected);
    }

    #[test]
    fn classes_that_are_idle_at_times_earn_nothing(
        weights in prop::collection::vec(1..=9u32, 2..=5),
        seed in any::<u64>(),
    ) {
        let mut world = World::new(weighted(&weights));
        let mut dice = Dice(seed);
        let mut waiting = vec![0u32; weights.len()];
        let mut gaps = vec![0u32; weights.len()];
        for _ in 0..300 {
            for (class, waiting) in waiting.iter_mut().enumerate() {
                // Class 0 always has messages; the others get them in batches after long pauses.
                let count = if class == 0 { 2 } else if dice.chance(2) { 40 } else { 0 };
                world.send_many(count, |_| Job::of(class as u8));
                *waiting += count;
            }
            let served = next_class(&mut world).unwrap();
            waiting[served] -= 1;
            for (class, gap) in gaps.iter_mut().enumerate() {
                *gap = if class == served || waiting[class] == 0 { 0 } else { *gap + 1 };
                // One more for each class that just became active: it may start in the current round.
                let others = weights.len() as u32 - 1;
                let sum: u32 = weights.iter().sum();
                prop_assert!(*gap <= sum - weights[class] + others, "{} waits for {}, {:?}", class, gap, weights);
            }
        }
    }
}

#[test]
fn a_class_without_a_weight_has_weight_one() {
    let mut order = weighted(&[1, 3]);
    order.classes[1].weight = None;
    let mut world = World::new(order);
    world.send_many(40, |n| Job::of((n % 2) as u8));
    let served: Vec<_> = (0..16).map(|_| next_class(&mut world).unwrap()).collect();
    assert_eq!(served.iter().filter(|class| **class == 0).count(), 4, "{served:?}");
}
