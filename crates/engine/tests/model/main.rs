//! The engine against a naive model: a sorted `Vec` of messages per queue, and the rules written down as plainly as possible.
//!
//! Guards every rule at once, under random commands, times and receivers, with *crash and replay* as one of the commands: no message is
//! lost, none comes back after it was completed, none is locked twice, order holds, and all counts and indexes equal a recount.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod model;
mod world;

use std::time::Duration;

use peeklock_engine::{ReceiveMode, Settlement};
use peeklock_types::SubQueue;
use proptest::prelude::*;

use crate::world::World;

/// One thing that happens. Numbers called `pick` choose among what is there, modulo how much there is.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Create { queue: usize },
    Delete { queue: usize },
    Send { queue: usize, sizes: Vec<u32> },
    Settle { pick: usize, settlement: Settlement },
    Renew { picks: Vec<usize> },
    ReceiveDeferred { queue: usize, sub_queue: SubQueue, picks: Vec<usize>, mode: ReceiveMode },
    Attach { queue: usize, sub_queue: SubQueue, mode: ReceiveMode },
    Detach { pick: usize },
    Credit { pick: usize, credit: u32 },
    Window { pick: usize, bytes: i64 },
    Drain { pick: usize },
    Deliver,
    Tick,
    Wait { span: Duration },
    SetClockBack { span: Duration },
    EvacuateGroups { back: u64, max: usize, lose_every: usize },
    EvacuateCold { segment: u32, max: usize },
    Snapshot,
    Crash { lost_group_count: usize, from_snapshot: bool },
}

fn sub_queue() -> impl Strategy<Value = SubQueue> {
    prop_oneof![3 => Just(SubQueue::Main), 1 => Just(SubQueue::DeadLetter)]
}

fn mode() -> impl Strategy<Value = ReceiveMode> {
    prop_oneof![4 => Just(ReceiveMode::PeekLock), 1 => Just(ReceiveMode::ReceiveAndDelete)]
}

fn patch() -> impl Strategy<Value = Option<bytes::Bytes>> {
    let bytes = prop_oneof![9 => 0..20usize, 1 => 30_000..40_000usize].prop_map(|len| vec![7; len].into());
    prop_oneof![2 => Just(None), 1 => bytes.prop_map(Some)]
}

fn text() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        4 => Just(None),
        4 => Just(Some("bad address".to_owned())),
        1 => Just(Some("é".repeat(4096))),
        1 => Just(Some("x".repeat(4097))),
    ]
}

fn settlement() -> impl Strategy<Value = Settlement> {
    prop_oneof![
        3 => Just(Settlement::Complete),
        3 => patch().prop_map(|patch| Settlement::Abandon { patch }),
        2 => patch().prop_map(|patch| Settlement::Defer { patch }),
        2 => (text(), text(), patch())
            .prop_map(|(reason, description, patch)| Settlement::DeadLetter { reason, description, patch }),
        1 => Just(Settlement::Release),
    ]
}

fn command() -> impl Strategy<Value = Step> {
    let queue = || 0..2usize;
    let pick = any::<usize>;
    prop_oneof![
        1 => queue().prop_map(|queue| Step::Create { queue }),
        20 => (queue(), prop::collection::vec(0..200u32, 1..6)).prop_map(|(queue, sizes)| Step::Send { queue, sizes }),
        30 => (pick(), settlement()).prop_map(|(pick, settlement)| Step::Settle { pick, settlement }),
        5 => prop::collection::vec(pick(), 0..3).prop_map(|picks| Step::Renew { picks }),
        6 => (queue(), sub_queue(), prop::collection::vec(pick(), 1..3), mode())
            .prop_map(|(queue, sub_queue, picks, mode)| Step::ReceiveDeferred { queue, sub_queue, picks, mode }),
    ]
}

fn receiver_step() -> impl Strategy<Value = Step> {
    let pick = any::<usize>;
    prop_oneof![
        4 => (0..2usize, sub_queue(), mode())
            .prop_map(|(queue, sub_queue, mode)| Step::Attach { queue, sub_queue, mode }),
        1 => pick().prop_map(|pick| Step::Detach { pick }),
        8 => (pick(), 0..5u32).prop_map(|(pick, credit)| Step::Credit { pick, credit }),
        5 => (pick(), -50..500i64).prop_map(|(pick, bytes)| Step::Window { pick, bytes }),
        2 => pick().prop_map(|pick| Step::Drain { pick }),
        20 => Just(Step::Deliver),
    ]
}

fn surroundings() -> impl Strategy<Value = Step> {
    let millis = Duration::from_millis;
    prop_oneof![
        // Half seconds, so that a lock often runs out in the very moment of a command.
        8 => (0..4u64).prop_map(move |halves| Step::Wait { span: millis(halves * 500) }),
        1 => (0..1500u64).prop_map(move |span| Step::SetClockBack { span: millis(span) }),
        4 => Just(Step::Tick),
        3 => (0..10u64, 1..6usize, 2..5usize)
            .prop_map(|(back, max, lose_every)| Step::EvacuateGroups { back, max, lose_every }),
        3 => (0..3u32, 1..4usize).prop_map(|(segment, max)| Step::EvacuateCold { segment, max }),
        2 => Just(Step::Snapshot),
        3 => (0..3usize, any::<bool>())
            .prop_map(|(lost_group_count, from_snapshot)| Step::Crash { lost_group_count, from_snapshot }),
        1 => (0..2usize).prop_map(|queue| Step::Delete { queue }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![6 => command(), 5 => receiver_step(), 3 => surroundings()];
    prop::collection::vec(step, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_does_what_the_model_does(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            world.check();
        }
    }
}
