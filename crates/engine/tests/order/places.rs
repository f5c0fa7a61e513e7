//! Every message keeps its place, whatever happens to it: strict, aged and fifo against a full search of the waiting
//! messages, also when the order changes meanwhile.

use std::collections::HashMap;

use peeklock_engine::{MessageState, ReceiveMode, SessionWish, Settlement};
use peeklock_types::{OrderPolicy, OrderSettings, QueueSettings};
use proptest::prelude::*;

use crate::reference::{Reference, waiting};
use crate::world::{ABANDON, Dice, Handed, Job, MAIN, World, classes, id_of, millis, secs, settings};

const PEEK_LOCK: ReceiveMode = ReceiveMode::PeekLock;

/// A queue under random commands, and the reference for its next message.
struct Play {
    world: World,
    reference: Reference,
    dice: Dice,
    held: Vec<Handed>,
    sent_count: u64,
    completed_count: u64,
}

impl Play {
    fn new(order: Option<OrderSettings>, seed: u64) -> Play {
        let settings = QueueSettings { lock_duration: secs(5), ..settings(order.clone()) };
        Play {
            world: World::with(settings),
            reference: Reference::new(order),
            dice: Dice(seed),
            held: Vec::new(),
            sent_count: 0,
            completed_count: 0,
        }
    }

    fn step(&mut self) {
        match self.dice.below(12) {
            0..=4 => self.send(),
            5..=7 => {
                let count = 1 + self.dice.below(4) as u32;
                self.take(count);
            }
            8 | 9 => self.settle(),
            10 => {
                let span = millis(self.dice.below(2500));
                self.world.wait(span);
            }
            _ => self.complete_deferred(),
        }
    }

    fn send(&mut self) {
        let ahead = self.dice.chance(20).then(|| millis(self.dice.below(4000)));
        // One priority more than there are classes.
        let priority = self.dice.chance(90).then(|| self.dice.below(4) as u8);
        let tenant = Some(self.dice.below(3) as u32);
        let job = Job { priority, ahead, tenant, ..Job::default() };
        let id = self.world.send(job.clone());
        self.reference.note_sent(id, &job);
        self.sent_count += 1;
    }

    fn take(&mut self, count: u32) {
        self.world.wait(millis(0));
        let mut all = waiting(&self.world);
        let expected = all.len().min(count as usize);
        let handed = self.world.take(PEEK_LOCK, count);
        assert_eq!(handed.len(), expected, "a receiver had credit while a message waited");
        handed.iter().for_each(|handed| self.reference.check(&self.world, &mut all, handed));
        self.held.extend(handed);
    }

    fn settle(&mut self) {
        let now = self.world.now;
        self.held.retain(|handed| handed.message.locked_until.unwrap() > now);
        if self.held.is_empty() {
            return;
        }
        let place = self.dice.below(self.held.len() as u64) as usize;
        let handed = self.held.remove(place);
        let delay = Some(millis(self.dice.below(3000)));
        let settlement = match self.dice.below(6) {
            0 | 1 => Settlement::Complete,
            2 => ABANDON,
            3 => Settlement::Release,
            4 => Settlement::Abandon { patch: None, delay },
            _ => Settlement::Defer { patch: None },
        };
        self.completed_count += u64::from(settlement == Settlement::Complete);
        self.world.settle(handed.token, settlement);
    }

    fn complete_deferred(&mut self) {
        let is_free = |message: &&peeklock_engine::Message| {
            message.state == MessageState::Deferred && message.locked_until.is_none()
        };
        let Some(number) = self.world.peek().iter().find(is_free).map(|message| message.sequence_number)
        else {
            return;
        };
        self.world.nonce += 1;
        let World { engine, now, queue, nonce, out, .. } = &mut self.world;
        let mode = ReceiveMode::ReceiveAndDelete;
        engine.receive_deferred(*now, *queue, MAIN, &[number], mode, None, *nonce, out).unwrap();
        self.completed_count += 1;
    }

    /// Receives all remaining messages: none was lost.
    fn finish(mut self) {
        self.world.wait(secs(30));
        self.held.clear();
        loop {
            let before = self.held.len();
            self.take(7);
            if self.held.len() == before {
                break;
            }
        }
        let deferred_count =
            self.world.peek().iter().filter(|message| message.state == MessageState::Deferred).count();
        let taken_count = self.held.len() + deferred_count;
        assert_eq!(taken_count as u64 + self.completed_count, self.sent_count);
    }

    fn change(&mut self) {
        let order = self.dice.chance(90).then(|| random_order(&mut self.dice));
        self.world.set_order(order.clone());
        self.reference.change(&self.world, order);
    }
}

/// Generates any policy whose next message is predictable, with any three of five classes.
fn random_order(dice: &mut Dice) -> OrderSettings {
    let policy = dice.one_of(&[OrderPolicy::Fifo, OrderPolicy::Strict, OrderPolicy::Aged]);
    let mut order = classes(policy, 5);
    order.classes.remove(dice.below(5) as usize);
    order.classes.remove(dice.below(4) as usize);
    for class in &mut order.classes {
        class.offset = dice.chance(80).then(|| millis(dice.below(4000)));
    }
    order.default_class = dice.chance(50).then(|| order.classes[dice.below(3) as usize].name.clone());
    order
}

fn policy() -> impl Strategy<Value = OrderPolicy> {
    prop::sample::select(vec![OrderPolicy::Fifo, OrderPolicy::Strict, OrderPolicy::Aged])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn the_most_urgent_goes_first_and_a_returned_message_keeps_its_place(policy in policy(), seed in any::<u64>()) {
        let mut play = Play::new(Some(classes(policy, 3)), seed);
        (0..150).for_each(|_| play.step());
        play.finish();
    }

    #[test]
    fn a_changed_order_applies_to_the_backlog_at_once(seed in any::<u64>()) {
        let mut dice = Dice(seed);
        let order = dice.chance(80).then(|| random_order(&mut dice));
        let mut play = Play::new(order, seed);
        for _ in 0..8 {
            (0..20).for_each(|_| play.step());
            play.change();
        }
        play.finish();
    }

    #[test]
    fn the_next_session_is_the_most_urgent_of_those_that_are_next_in_their_lane(policy in policy(), seed in any::<u64>()) {
        let mut order = classes(policy, 3);
        order.classes[1].offset = Some(millis(300));
        order.classes[2].offset = Some(millis(900));
        sessions(order, seed);
    }
}

fn sessions(order: OrderSettings, seed: u64) {
    let mut dice = Dice(seed);
    let settings = QueueSettings { requires_session: true, ..settings(Some(order.clone())) };
    let mut world = World::with(settings);
    let mut reference = Reference::new(Some(order));
    for _ in 0..60 {
        let session = Some(dice.below(12) as u32);
        let job = Job { priority: Some(dice.below(3) as u8), session, ..Job::default() };
        let id = world.send(job.clone());
        reference.note_sent(id, &job);
        world.wait(millis(dice.below(100)));
    }
    let newest = waiting(&world).iter().map(|message| message.sequence_number.0).max().unwrap_or_default();
    let (mut holders, mut last_holds) = (Vec::new(), HashMap::<u32, u64>::new());
    while world.message_count() > 0 {
        if holders.len() > 3 || dice.chance(30) {
            holders.pop().into_iter().for_each(|(receiver, _)| world.detach(receiver));
            continue;
        }
        // Only heads of sessions without a holder are candidates.
        let held: Vec<u32> = holders.iter().map(|(_, session)| *session).collect();
        let session_of = |world: &World, id| world.jobs[&id].session.unwrap();
        let mut heads = waiting(&world);
        let mut seen = held;
        heads.retain(|message| {
            let session = session_of(&world, id_of(message));
            let is_head = !seen.contains(&session);
            seen.push(session);
            is_head
        });
        // In each lane, a session that was let go waits behind the others.
        heads.sort_by_key(|message| {
            let head = message.sequence_number.0;
            let hold = last_holds.get(&session_of(&world, id_of(message)));
            hold.map_or((head, 0, head), |hold| (newest, *hold, head))
        });
        let mut lanes = Vec::new();
        heads.retain(|message| {
            let lane = reference.rank(id_of(message));
            let is_next = !lanes.contains(&lane);
            lanes.push(lane);
            is_next
        });
        let give_up_at = world.now + secs(1);
        let receiver = world.attach_with(PEEK_LOCK, SessionWish::Next { give_up_at }, 1);
        let handed = world.deliver();
        if heads.is_empty() {
            assert!(handed.is_empty());
            world.detach(receiver);
            holders.drain(..).for_each(|(receiver, _)| world.detach(receiver));
            continue;
        }
        assert_eq!(handed.len(), 1);
        reference.check(&world, &mut heads, &handed[0]);
        let session = session_of(&world, handed[0].id);
        let hold_count = last_holds.values().max().copied().unwrap_or_default();
        last_holds.insert(session, hold_count + 1);
        holders.push((receiver, session));
        if dice.chance(80) {
            world.complete(&handed[0]);
        }
    }
}

#[test]
fn a_message_reports_its_class_and_its_tenant() {
    let mut order = classes(OrderPolicy::Strict, 2);
    order.tenants = crate::world::fair(&[1]).tenants;
    let mut world = World::new(order);
    world.send(Job { priority: Some(1), ..Job::by(7, 0) });
    let peeked = world.peek().remove(0);
    let handed = world.take(PEEK_LOCK, 1).remove(0).message;
    for message in [peeked, handed] {
        assert_eq!(message.class.unwrap().as_str(), "c1");
        assert_eq!(message.tenant.as_deref(), Some("t7"));
    }
}
