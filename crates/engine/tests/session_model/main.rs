//! A queue with sessions against a naive model.
//!
//! Checks under random commands, times, receivers and crashes: a session has one holder, which gets its messages in
//! order, and nothing overtakes a delayed one; the next session is the one that has waited longest; messages locked by
//! a lost or closed receiver return and have failed; a receiver that lost its session is closed a second later, or as
//! soon as another receiver has it; poison messages are handled as the queue's settings specify; a crash removes the
//! holders and nothing else.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod model;
mod world;

use std::time::Duration;

use peeklock_engine::Settlement;
use peeklock_types::{PoisonSession, RetryPolicy};
use proptest::prelude::*;

use crate::world::World;

/// One step of a test. Numbers called `pick` choose among the existing items, modulo their number.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Send { session: usize, is_loud: bool, time_to_live: Option<Duration>, ahead: Option<Duration> },
    AcceptNamed { session: usize },
    AcceptNext { patience: Duration },
    Detach { pick: usize },
    Credit { pick: usize, credit: u32 },
    Settle { pick: usize, settlement: Settlement },
    RenewSession { pick: usize },
    SetState { pick: usize, state: Option<u8> },
    ReceiveDeferred { pick: usize, number_pick: usize },
    Purge { age: Duration, count_max: u64 },
    PurgeSession { pick: usize, age: Duration, count_max: u64 },
    Deliver,
    Tick,
    Wait { span: Duration },
    Snapshot,
    Crash { lost_group_count: usize, from_snapshot: bool },
}

fn halves(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
    // Half seconds, so that deadlines often coincide with a command.
    range.prop_map(|halves| Duration::from_millis(halves * 500))
}

fn rarely(range: std::ops::Range<u64>) -> impl Strategy<Value = Option<Duration>> {
    prop_oneof![4 => Just(None), 1 => halves(range).prop_map(Some)]
}

fn settlement() -> impl Strategy<Value = Settlement> {
    let dead_letter = Settlement::DeadLetter { reason: None, description: None, patch: None };
    prop_oneof![
        3 => Just(Settlement::Complete),
        5 => rarely(0..5).prop_map(|delay| Settlement::Abandon { patch: None, delay }),
        2 => Just(Settlement::Defer { patch: None }),
        1 => Just(dead_letter),
        1 => Just(Settlement::Release),
        1 => Just(Settlement::Interrupt),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let (pick, session) = (any::<usize>, || 0..3usize);
    prop_oneof![
        20 => (session(), any::<bool>(), rarely(1..8), rarely(0..6)).prop_map(
            |(session, is_loud, time_to_live, ahead)| Step::Send { session, is_loud, time_to_live, ahead }
        ),
        6 => session().prop_map(|session| Step::AcceptNamed { session }),
        6 => halves(1..6).prop_map(|patience| Step::AcceptNext { patience }),
        4 => pick().prop_map(|pick| Step::Detach { pick }),
        10 => (pick(), 0..4u32).prop_map(|(pick, credit)| Step::Credit { pick, credit }),
        20 => (pick(), settlement()).prop_map(|(pick, settlement)| Step::Settle { pick, settlement }),
        4 => pick().prop_map(|pick| Step::RenewSession { pick }),
        4 => (pick(), prop::option::of(any::<u8>())).prop_map(|(pick, state)| Step::SetState { pick, state }),
        4 => (pick(), pick()).prop_map(|(pick, number_pick)| Step::ReceiveDeferred { pick, number_pick }),
        1 => (halves(0..6), 0..4u64).prop_map(|(age, count_max)| Step::Purge { age, count_max }),
        1 => (pick(), halves(0..6), 0..4u64)
            .prop_map(|(pick, age, count_max)| Step::PurgeSession { pick, age, count_max }),
        20 => Just(Step::Deliver),
        4 => Just(Step::Tick),
        8 => halves(0..4).prop_map(|span| Step::Wait { span }),
        2 => Just(Step::Snapshot),
        3 => (0..3usize, any::<bool>())
            .prop_map(|(lost_group_count, from_snapshot)| Step::Crash { lost_group_count, from_snapshot }),
    ]
}

fn poison() -> impl Strategy<Value = PoisonSession> {
    prop_oneof![Just(PoisonSession::DeadLetter), Just(PoisonSession::Block), Just(PoisonSession::SetAside),]
}

fn retry() -> impl Strategy<Value = RetryPolicy> {
    prop_oneof![Just(RetryPolicy::Immediate), Just(RetryPolicy::Fixed { delay: Duration::from_millis(1000) }),]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn sessions_agree_with_the_model(
        steps in prop::collection::vec(step(), 1..150),
        poison in poison(),
        retry in retry(),
    ) {
        let mut world = World::new(poison, retry);
        for step in steps {
            world.take(step);
            world.check();
        }
    }
}
