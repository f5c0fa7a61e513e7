//! Streams and their readers against a naive model.
//!
//! Guards these rules under random sends, retention, gathering, crashes and readers: numbers have no gap and times
//! never fall; a repeated send is stored once; only events beyond retention are retired; replay and snapshots restore
//! the durable state; a reader gets each event once and in order, whatever moves or is retired meanwhile, unless it
//! gets an error that events are gone; credit, window and owner level are respected; no reader is forgotten, and none
//! is starved by others.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod model;
mod readers;
mod world;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::readers::Start;
use crate::world::World;

/// One step. Numbers called `pick` select among the existing items, modulo their count.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send { stream: usize, count: u32, size_bytes: u32, by: Option<(i64, i16, i32)> },
    Wait { ms: u64 },
    ClockBack { ms: u64 },
    Configure { stream: usize, age: Option<u64>, size: Option<u64>, is_moved_on: bool },
    Retire,
    StartGather { back: u64, bytes_max: u64, run_bytes_max: u32 },
    EndGather,
    EndGroup { with_snapshot: bool },
    Crash,
    Attach { stream: usize, group: usize, start: Start, level: Option<i64> },
    Detach { pick: usize },
    Limit { pick: usize, more: i64 },
    Window { pick: usize, size_bytes: i64 },
    Drain { pick: usize, drain: bool },
    NextRun { bytes_max: u32 },
    RunDone { pick: usize },
    RunFailed { pick: usize },
}

fn start() -> impl Strategy<Value = Start> {
    prop_oneof![
        3 => Just(Start::Earliest),
        1 => Just(Start::Latest),
        2 => (0..12_u64, any::<bool>()).prop_map(|(back, inclusive)| Start::Sequence(back, inclusive)),
        3 => (0..12_usize, -1..2_i64, any::<bool>())
            .prop_map(|(back, off_ms, inclusive)| Start::Time(back, off_ms, inclusive)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let pick = || any::<usize>();
    let stream = || 0..2_usize;
    let by = option::weighted(0.3, (0..2_i64, 0..2_i16, prop_oneof![4 => Just(0), 1 => -4..3_i32]));
    prop_oneof![
        12 => (stream(), 1..6_u32, 20..400_u32, by)
            .prop_map(|(stream, count, size_bytes, by)| Step::Send { stream, count, size_bytes, by }),
        4 => (0..2000_u64).prop_map(|ms| Step::Wait { ms }),
        1 => (0..500_u64).prop_map(|ms| Step::ClockBack { ms }),
        1 => (stream(), option::of(1000..9000_u64), option::of(100..3000_u64), any::<bool>())
            .prop_map(|(stream, age, size, is_moved_on)| Step::Configure { stream, age, size, is_moved_on }),
        3 => Just(Step::Retire),
        2 => (0..4_u64, prop_oneof![Just(u64::MAX), 0..1500_u64], 100..1500_u32)
            .prop_map(|(back, bytes_max, run_bytes_max)| Step::StartGather { back, bytes_max, run_bytes_max }),
        2 => Just(Step::EndGather),
        4 => any::<bool>().prop_map(|with_snapshot| Step::EndGroup { with_snapshot }),
        1 => Just(Step::Crash),
        4 => (stream(), 0..2_usize, start(), option::weighted(0.2, 0..3_i64))
            .prop_map(|(stream, group, start, level)| Step::Attach { stream, group, start, level }),
        1 => pick().prop_map(|pick| Step::Detach { pick }),
        6 => (pick(), -2..15_i64).prop_map(|(pick, more)| Step::Limit { pick, more }),
        6 => (pick(), 1..1500_i64).prop_map(|(pick, size_bytes)| Step::Window { pick, size_bytes }),
        2 => (pick(), prop::bool::weighted(0.8)).prop_map(|(pick, drain)| Step::Drain { pick, drain }),
        10 => (1..1500_u32).prop_map(|bytes_max| Step::NextRun { bytes_max }),
        8 => pick().prop_map(|pick| Step::RunDone { pick }),
        2 => pick().prop_map(|pick| Step::RunFailed { pick }),
    ]
}

fn take(world: &mut World, step: Step) {
    match step {
        Step::Send { stream, count, size_bytes, by } => world.send(stream, count, size_bytes, by),
        Step::Wait { ms } => world.now += ms,
        Step::ClockBack { ms } => world.now -= ms,
        Step::Configure { stream, age, size, is_moved_on } => world.configure(stream, age, size, is_moved_on),
        Step::Retire => world.retire(),
        Step::StartGather { back, bytes_max, run_bytes_max } => {
            world.start_gather(back, bytes_max, run_bytes_max);
        }
        Step::EndGather => world.end_gather(),
        Step::EndGroup { with_snapshot } => world.end_group(with_snapshot),
        Step::Crash => world.crash(),
        Step::Attach { stream, group, start, level } => world.attach(stream, group, start, level),
        Step::Detach { pick } => world.detach(pick),
        Step::Limit { pick, more } => world.limit(pick, more),
        Step::Window { pick, size_bytes } => world.window(pick, size_bytes),
        Step::Drain { pick, drain } => world.drain(pick, drain),
        Step::NextRun { bytes_max } => drop(world.next_run(bytes_max)),
        Step::RunDone { pick } => world.run_done(pick),
        Step::RunFailed { pick } => world.run_failed(pick),
    }
    world.check();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn streams_and_readers_match_the_model(steps in vec(step(), 1..150)) {
        let mut world = World::new();
        steps.into_iter().for_each(|step| take(&mut world, step));
        world.finish();
    }
}
