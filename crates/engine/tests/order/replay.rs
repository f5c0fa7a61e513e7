//! After a crash the order is the same: facts give the same order as before, from the first one on or from a snapshot.

use peeklock_engine::{ReceiveMode, SessionWish, Settlement};
use peeklock_types::{LockToken, OrderPolicy, OrderSettings, Placement, QueueSettings};
use proptest::prelude::*;

use crate::world::{ABANDON, Dice, Job, JobId, World, classes, fair, millis, secs, settings};

fn order(policy: OrderPolicy, with_tenants: bool) -> OrderSettings {
    let mut order = classes(policy, 3);
    if policy == OrderPolicy::Weighted {
        order.classes.iter_mut().zip([5, 3, 2]).for_each(|(class, weight)| class.weight = Some(weight));
    }
    order.classes[2].offset = Some(millis(1500));
    if with_tenants {
        order.tenants = fair(&[1, 4]).tenants;
    }
    order
}

fn random_job(dice: &mut Dice) -> Job {
    let tenant = dice.below(6) as u32;
    Job {
        priority: Some(dice.below(3) as u8),
        ahead: dice.chance(10).then(|| millis(dice.below(2000))),
        ..Job::by(tenant, tenant % 2)
    }
}

fn live_a_little(world: &mut World, dice: &mut Dice, held: &mut Vec<LockToken>) {
    for _ in 0..80 {
        match dice.below(8) {
            0..=3 => drop(world.send(random_job(dice))),
            4 | 5 => {
                let mode = dice.one_of(&[
                    ReceiveMode::PeekLock,
                    ReceiveMode::PeekLock,
                    ReceiveMode::ReceiveAndDelete,
                ]);
                let handed = world.take(mode, 1 + dice.below(3) as u32);
                if mode == ReceiveMode::PeekLock {
                    held.extend(handed.iter().map(|handed| handed.token));
                }
            }
            6 if !held.is_empty() => {
                let token = held.swap_remove(dice.below(held.len() as u64) as usize);
                let settlement = match dice.below(5) {
                    0 => ABANDON,
                    1 => Settlement::Release,
                    _ => Settlement::Complete,
                };
                world.settle(token, settlement);
            }
            _ => world.wait(millis(dice.below(400))),
        }
    }
}

/// Receives all unlocked messages, one after the other, each for a time that depends on its number.
fn hand_out_all(world: &mut World) -> Vec<JobId> {
    let mut order = Vec::new();
    let mut idle_count = 0;
    loop {
        let handed = world.take(ReceiveMode::PeekLock, 1);
        let Some(handed) = handed.first() else {
            // The last scheduled messages are due by then, and no lock has expired yet.
            if idle_count == 5 {
                return order;
            }
            idle_count += 1;
            world.wait(secs(1));
            continue;
        };
        order.push(handed.id);
        world.wait(millis(handed.id * 37 % 500));
        world.complete(handed);
    }
}

fn policies() -> impl Strategy<Value = OrderPolicy> {
    use OrderPolicy::{Aged, Fifo, Strict, Weighted};
    prop::sample::select(vec![Fifo, Strict, Aged, Weighted])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_replay_delivers_in_the_same_order(
        policy in policies(),
        with_tenants in any::<bool>(),
        changed in prop::option::of(policies()),
        seed in any::<u64>(),
    ) {
        let mut dice = Dice(seed);
        let mut world = World::new(order(policy, with_tenants));
        let mut held = Vec::new();
        live_a_little(&mut world, &mut dice, &mut held);
        let (snapshot, done) = (world.engine.snapshot(), world.journal.len());
        if let Some(policy) = changed {
            world.set_order(Some(order(policy, !with_tenants)));
        }
        live_a_little(&mut world, &mut dice, &mut held);

        let bytes = world.engine.snapshot();
        let from_facts = world.replay(None);
        prop_assert!(from_facts.snapshot() == bytes, "the facts alone give the same state");
        let from_snapshot = world.replay(Some((&snapshot, done)));
        prop_assert!(from_snapshot.snapshot() == bytes, "a snapshot and later facts give the same state");
        let restored = peeklock_engine::Engine::restore(&bytes, Placement::default()).unwrap();
        prop_assert!(restored.snapshot() == bytes, "a snapshot alone gives the same state");

        let mut others = [from_facts, from_snapshot, restored].map(|engine| world.continued_by(engine));
        let expected = hand_out_all(&mut world);
        for other in &mut others {
            prop_assert_eq!(&hand_out_all(other), &expected);
        }
    }

    #[test]
    fn a_replay_gives_sessions_in_the_same_order(policy in policies(), seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let settings = QueueSettings { requires_session: true, ..settings(Some(order(policy, true))) };
        let mut world = World::with(settings);
        for _ in 0..80 {
            let session = Some(dice.below(20) as u32);
            world.send(Job { session, ..random_job(&mut dice) });
            world.wait(millis(dice.below(60)));
        }
        let _some = sessions_in_order(&mut world, 5);
        let bytes = world.engine.snapshot();
        // Both forget which sessions were let go, as they forget who holds one.
        let restored = peeklock_engine::Engine::restore(&bytes, Placement::default()).unwrap();
        let mut both = [world.replay(None), restored].map(|engine| world.continued_by(engine));
        let mut orders = Vec::new();
        for world in &mut both {
            prop_assert!(world.engine.snapshot() == bytes);
            world.wait(secs(5));
            orders.push(sessions_in_order(world, usize::MAX));
        }
        prop_assert_eq!(&orders[0], &orders[1]);
        prop_assert!(!orders[0].is_empty());
    }
}

/// Accepts the next session, receives one message and detaches, again and again.
fn sessions_in_order(world: &mut World, count_max: usize) -> Vec<JobId> {
    let mut order = Vec::new();
    while order.len() < count_max {
        let give_up_at = world.now + secs(1);
        let receiver = world.attach_with(ReceiveMode::PeekLock, SessionWish::Next { give_up_at }, 1);
        let handed = world.deliver();
        if let Some(handed) = handed.first() {
            order.push(handed.id);
            world.wait(millis(handed.id * 37 % 500));
            world.complete(handed);
        }
        world.detach(receiver);
        if handed.is_empty() {
            break;
        }
    }
    order
}
