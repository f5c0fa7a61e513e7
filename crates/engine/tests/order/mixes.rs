//! Priorities, sessions, tenants and rates together: with any mix, all messages are delivered in the end.

use peeklock_engine::{ReceiveMode, ReceiverId, SessionWish, Settlement};
use peeklock_types::{LockToken, OrderPolicy, OrderSettings, QueueSettings, Rate};
use proptest::prelude::*;

use crate::world::{ABANDON, Dice, Job, World, classes, fair, millis, secs, settings};

const CLASS_COUNT: u8 = 3;

fn random_rate(dice: &mut Dice) -> Option<Rate> {
    let rate = Rate { per_second_milli: 500 + dice.below(30_000), burst: 1 + dice.below(4) as u32 };
    dice.chance(40).then_some(rate)
}

fn random_order(dice: &mut Dice) -> OrderSettings {
    use OrderPolicy::{Aged, Fifo, Strict, Weighted};
    let mut order = classes(dice.one_of(&[Fifo, Strict, Aged, Weighted]), CLASS_COUNT);
    order.classes.iter_mut().for_each(|class| class.rate = random_rate(dice));
    order.rate = random_rate(dice);
    if dice.chance(50) {
        let mut tenants = fair(&[1, 4]).tenants.unwrap();
        for class in &mut tenants.classes {
            class.rate = random_rate(dice);
            class.max_share_milli = dice.chance(40).then(|| 100 + dice.below(900) as u32);
            class.is_share_hard = dice.chance(50);
        }
        order.tenants = Some(tenants);
    }
    order
}

fn random_job(dice: &mut Dice, with_sessions: bool) -> Job {
    let tenant = dice.below(4) as u32;
    Job {
        priority: Some(dice.below(CLASS_COUNT.into()) as u8),
        session: with_sessions.then(|| dice.below(7) as u32),
        ahead: dice.chance(15).then(|| millis(dice.below(3000))),
        ..Job::by(tenant, tenant % 2)
    }
}

/// A worker that processes one session after the other.
struct Worker {
    receiver: ReceiverId,
    holding: Vec<LockToken>,
    idle_steps: u32,
}

const STEP_MS: u64 = 50;

/// Receives all messages with a few workers; returns `false` if that does not end.
fn work_off(world: &mut World, dice: &mut Dice, with_sessions: bool, worker_count: usize) -> bool {
    let hire = |world: &mut World| {
        let wish = match with_sessions {
            true => SessionWish::Next { give_up_at: world.now + secs(1_000_000) },
            false => SessionWish::None,
        };
        let receiver = world.attach_with(ReceiveMode::PeekLock, wish, 3);
        Worker { receiver, holding: Vec::new(), idle_steps: 0 }
    };
    let mut workers: Vec<_> = (0..worker_count).map(|_| hire(world)).collect();
    for _ in 0..40_000 {
        if world.message_count() == 0 {
            return true;
        }
        for handed in world.deliver() {
            let worker = workers.iter_mut().find(|worker| worker.receiver == handed.receiver).unwrap();
            worker.holding.push(handed.token);
            worker.idle_steps = 0;
        }
        for worker in &mut workers {
            if let Some(token) = worker.holding.pop() {
                let settlement = if dice.chance(15) { ABANDON } else { Settlement::Complete };
                world.settle(token, settlement);
                world.engine.set_credit(worker.receiver, 3 - worker.holding.len() as u32);
            } else {
                worker.idle_steps += 1;
            }
            // The session of the worker may be empty or limited, and another session may be neither.
            if with_sessions && worker.idle_steps > 20 {
                world.detach(worker.receiver);
                *worker = hire(world);
            }
        }
        world.wait(millis(STEP_MS));
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_mix_of_priorities_sessions_tenants_and_rates_gets_stuck(
        seed in any::<u64>(),
        with_sessions in any::<bool>(),
        worker_count in 1..=4usize,
    ) {
        let mut dice = Dice(seed);
        let order = random_order(&mut dice);
        let lock_duration = secs(30);
        let settings =
            QueueSettings { requires_session: with_sessions, lock_duration, ..settings(Some(order.clone())) };
        let mut world = World::with(settings);
        world.send_many(60, |_| random_job(&mut dice, with_sessions));
        let is_done = work_off(&mut world, &mut dice, with_sessions, worker_count);
        prop_assert!(is_done, "{} messages are stuck, {:?}", world.message_count(), order);
    }

    #[test]
    fn no_message_is_lost_when_settings_change_meanwhile(seed in any::<u64>(), with_sessions in any::<bool>()) {
        let mut dice = Dice(seed);
        let lock_duration = secs(30);
        let mut world =
            World::with(QueueSettings { requires_session: with_sessions, lock_duration, ..settings(None) });
        for _ in 0..6 {
            world.send_many(15, |_| random_job(&mut dice, with_sessions));
            let order = dice.chance(80).then(|| random_order(&mut dice));
            world.set_order(order);
            if !with_sessions {
                for handed in world.take(ReceiveMode::PeekLock, 1 + dice.below(6) as u32) {
                    world.settle(handed.token, dice.one_of(&[&ABANDON, &Settlement::Release]).clone());
                }
            }
            world.wait(millis(dice.below(500)));
        }
        prop_assert_eq!(world.message_count(), 90);
        prop_assert!(work_off(&mut world, &mut dice, with_sessions, 2), "{} are stuck", world.message_count());
    }
}
