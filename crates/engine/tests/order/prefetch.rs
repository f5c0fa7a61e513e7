//! A receiver with much credit holds few messages: a more urgent one that arrives later still goes first.

use std::collections::VecDeque;

use peeklock_engine::ReceiveMode;
use peeklock_types::{OrderPolicy, OrderSettings, Timestamp, limits};
use proptest::prelude::*;

use crate::world::{Dice, Handed, Job, World, classes, millis};

const BOUND: usize = OrderSettings::MAX_OUTSTANDING as usize;

#[test]
fn a_high_message_goes_to_a_receiver_with_credit_300_as_soon_as_it_settles_one() {
    for policy in [OrderPolicy::Strict, OrderPolicy::Aged] {
        let mut world = World::new(classes(policy, 2));
        world.send_many(1000, |_| Job::of(0));
        let receiver = world.attach(ReceiveMode::PeekLock, 300);
        let low = world.deliver();
        assert_eq!(low.len(), BOUND);
        assert!(world.deliver().is_empty());
        world.wait(millis(1000));
        let high = world.send(Job::of(1));
        assert!(world.deliver().is_empty(), "the receiver is at its limit");
        world.complete(&low[0]);
        let next = world.deliver();
        assert_eq!(next.iter().map(|handed| handed.id).collect::<Vec<_>>(), [high]);
        assert_eq!(world.engine.credit(receiver), 300 - BOUND as u32 - 1, "the rest of the credit stays");
    }
}

#[test]
fn every_receiver_has_its_own_limit_and_plain_queues_have_none() {
    let mut world = World::new(classes(OrderPolicy::Strict, 2));
    world.send_many(2000, |_| Job::of(0));
    for _ in 0..3 {
        world.attach(ReceiveMode::PeekLock, 300);
    }
    assert_eq!(world.deliver().len(), 3 * BOUND);
    world.attach(ReceiveMode::ReceiveAndDelete, 300);
    assert_eq!(world.deliver().len(), 300, "a deleted message is not held");
    world.set_order(None);
    assert_eq!(world.deliver().len(), 3 * (300 - BOUND), "without an order the remaining credit is used");
}

#[test]
fn a_drain_ends_at_the_limit() {
    let mut world = World::new(classes(OrderPolicy::Aged, 2));
    world.send_many(100, |_| Job::of(0));
    let receiver = world.attach(ReceiveMode::PeekLock, 50);
    world.engine.drain(receiver);
    let handed = world.deliver();
    let drained = world.out.drained.clone();
    assert_eq!(handed.len(), BOUND);
    assert_eq!(drained.len(), 1, "a client that waits for the drain gets its end");
    assert_eq!(drained[0].unused_credit, 50 - BOUND as u32);
}

#[test]
fn expired_locks_no_longer_count_as_held() {
    let mut world = World::new(classes(OrderPolicy::Aged, 2));
    world.send_many(100, |_| Job::of(0));
    world.attach(ReceiveMode::PeekLock, 300);
    assert_eq!(world.deliver().len(), BOUND);
    world.wait(millis(300_000));
    assert_eq!(world.deliver().len(), BOUND, "all locks have expired");
}

/// Returns the largest number of messages settled within one horizon, at any time in the last two.
fn fastest(settled: &[Timestamp], now: Timestamp) -> usize {
    let horizon = limits::OUTSTANDING_HORIZON;
    let recent: Vec<_> = settled.iter().copied().filter(|at| *at + horizon * 2 > now).collect();
    let within = |from: Timestamp| recent.iter().filter(|at| (from..from + horizon).contains(at)).count();
    let mut starts = recent.clone();
    starts.dedup();
    starts.into_iter().map(within).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn no_receiver_holds_more_than_its_limit_or_its_recent_settlements(seed in any::<u64>()) {
        let (mut world, mut dice) = (World::new(classes(OrderPolicy::Aged, 2)), Dice(seed));
        world.send_many(3000, |_| Job::of(0));
        let receiver = world.attach(ReceiveMode::PeekLock, 100_000);
        let mut holding: VecDeque<Handed> = VecDeque::new();
        let mut settled: Vec<Timestamp> = Vec::new();
        for _ in 0..120 {
            let handed = world.deliver();
            if !handed.is_empty() {
                prop_assert!(handed.iter().all(|handed| handed.receiver == receiver));
                holding.extend(handed);
                let fast_count = fastest(&settled, world.now);
                prop_assert!(
                    holding.len() <= BOUND.max(fast_count),
                    "holds {} and has settled {}", holding.len(), fast_count
                );
            }
            prop_assert!(!holding.is_empty() || world.message_count() == 0, "the remaining credit is used");
            let count = dice.below(holding.len() as u64 + 1) as usize;
            for handed in holding.drain(..count) {
                world.complete(&handed);
                settled.push(world.now);
            }
            world.wait(millis(dice.below(30)));
        }
    }
}
