//! A queue without sessions against a naive model: a sorted `Vec` of messages per queue, and the rules in their
//! simplest form.
//!
//! Checks every rule at once, under random commands, times and receivers, with *crash and replay* as one of the
//! commands: no message is lost, none is delivered after it was completed, none is locked twice, the order is kept, and
//! all counts and indexes equal a recount.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod bodies;
mod commands;
mod model;
mod receipts;
mod receivers;
mod world;

use std::time::Duration;

use peeklock_engine::{ReceiveMode, Settlement};
use peeklock_types::{QueueStatus, SubQueue};
use proptest::prelude::*;

use crate::world::{QUEUE_COUNT, World};

/// One step of a test. Numbers called `pick` choose among the existing items, modulo their number.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Create { queue: usize },
    Delete { queue: usize },
    SetStatus { queue: usize, status: QueueStatus },
    Send { queue: usize, messages: Vec<Sent> },
    CancelScheduled { queue: usize, picks: Vec<usize> },
    Settle { pick: usize, settlement: Settlement },
    SettleAll { picks: Vec<usize>, settlement: Settlement },
    Renew { picks: Vec<usize> },
    ReceiveDeferred { queue: usize, sub_queue: SubQueue, picks: Vec<usize>, mode: ReceiveMode },
    Purge { queue: usize, sub_queue: SubQueue, age: Duration, count_max: u64 },
    Put { queue: usize, message: Sent, hidden_for: Duration },
    TakeMessages { queue: usize, count_max: usize, hidden_for: Duration },
    PeekWaiting { queue: usize, count_max: usize },
    Change { pick: usize, hidden_for: Duration, size_bytes: Option<u32> },
    DeleteMessage { pick: usize },
    Clear { queue: usize },
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
    EvacuateCold { segment: u64, max: usize },
    Snapshot,
    Crash { lost_group_count: usize, from_snapshot: bool },
}

/// A message to send.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) size_bytes: u32,
    pub(crate) time_to_live: Option<Duration>,
    /// The time until the message is due, if it is scheduled.
    pub(crate) ahead: Option<Duration>,
    pub(crate) id: Option<u8>,
}

fn queue() -> impl Strategy<Value = usize> {
    0..QUEUE_COUNT
}

fn halves(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
    // Half seconds, so that deadlines often coincide with a command.
    range.prop_map(|halves| Duration::from_millis(halves * 500))
}

fn sent() -> impl Strategy<Value = Sent> {
    let time_to_live = prop_oneof![3 => Just(None), 1 => halves(1..8).prop_map(Some)];
    let ahead = prop_oneof![3 => Just(None), 1 => halves(0..8).prop_map(Some)];
    (0..200u32, time_to_live, ahead, prop::option::of(0..4u8))
        .prop_map(|(size_bytes, time_to_live, ahead, id)| Sent { size_bytes, time_to_live, ahead, id })
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
    let delay = prop_oneof![3 => Just(None), 1 => halves(0..6).prop_map(Some)];
    prop_oneof![
        3 => Just(Settlement::Complete),
        4 => (patch(), delay).prop_map(|(patch, delay)| Settlement::Abandon { patch, delay }),
        2 => patch().prop_map(|patch| Settlement::Defer { patch }),
        2 => (text(), text(), patch())
            .prop_map(|(reason, description, patch)| Settlement::DeadLetter { reason, description, patch }),
        1 => Just(Settlement::Release),
        1 => Just(Settlement::Interrupt),
    ]
}

fn status() -> impl Strategy<Value = QueueStatus> {
    prop_oneof![
        6 => Just(QueueStatus::Active),
        1 => Just(QueueStatus::SendDisabled),
        1 => Just(QueueStatus::ReceiveDisabled),
        1 => Just(QueueStatus::Disabled),
    ]
}

fn command() -> impl Strategy<Value = Step> {
    let pick = any::<usize>;
    let picks = |range| prop::collection::vec(any::<usize>(), range);
    prop_oneof![
        2 => queue().prop_map(|queue| Step::Create { queue }),
        2 => (queue(), status()).prop_map(|(queue, status)| Step::SetStatus { queue, status }),
        20 => (queue(), prop::collection::vec(sent(), 1..6))
            .prop_map(|(queue, messages)| Step::Send { queue, messages }),
        2 => (queue(), picks(1..3)).prop_map(|(queue, picks)| Step::CancelScheduled { queue, picks }),
        30 => (pick(), settlement()).prop_map(|(pick, settlement)| Step::Settle { pick, settlement }),
        3 => (picks(0..3), settlement())
            .prop_map(|(picks, settlement)| Step::SettleAll { picks, settlement }),
        5 => picks(0..3).prop_map(|picks| Step::Renew { picks }),
        6 => (queue(), sub_queue(), picks(1..3), mode())
            .prop_map(|(queue, sub_queue, picks, mode)| Step::ReceiveDeferred { queue, sub_queue, picks, mode }),
        1 => (queue(), sub_queue(), halves(0..6), 0..6u64).prop_map(|(queue, sub_queue, age, count_max)| {
            Step::Purge { queue, sub_queue, age, count_max }
        }),
    ]
}

fn receipt_step() -> impl Strategy<Value = Step> {
    let pick = any::<usize>;
    let hidden_for = || prop_oneof![1 => Just(Duration::ZERO), 2 => halves(0..16)];
    prop_oneof![
        6 => (queue(), sent(), hidden_for())
            .prop_map(|(queue, message, hidden_for)| Step::Put { queue, message, hidden_for }),
        6 => (queue(), 0..4usize, hidden_for())
            .prop_map(|(queue, count_max, hidden_for)| Step::TakeMessages { queue, count_max, hidden_for }),
        2 => (queue(), 0..4usize).prop_map(|(queue, count_max)| Step::PeekWaiting { queue, count_max }),
        8 => (pick(), hidden_for(), prop::option::of(0..200u32))
            .prop_map(|(pick, hidden_for, size_bytes)| Step::Change { pick, hidden_for, size_bytes }),
        4 => pick().prop_map(|pick| Step::DeleteMessage { pick }),
        1 => queue().prop_map(|queue| Step::Clear { queue }),
    ]
}

fn receiver_step() -> impl Strategy<Value = Step> {
    let pick = any::<usize>;
    prop_oneof![
        4 => (queue(), sub_queue(), mode())
            .prop_map(|(queue, sub_queue, mode)| Step::Attach { queue, sub_queue, mode }),
        1 => pick().prop_map(|pick| Step::Detach { pick }),
        8 => (pick(), 0..5u32).prop_map(|(pick, credit)| Step::Credit { pick, credit }),
        5 => (pick(), -50..500i64).prop_map(|(pick, bytes)| Step::Window { pick, bytes }),
        2 => pick().prop_map(|pick| Step::Drain { pick }),
        20 => Just(Step::Deliver),
    ]
}

fn surroundings() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => halves(0..4).prop_map(|span| Step::Wait { span }),
        1 => (0..1500u64).prop_map(|span| Step::SetClockBack { span: Duration::from_millis(span) }),
        4 => Just(Step::Tick),
        3 => (0..10u64, 1..6usize, 2..5usize)
            .prop_map(|(back, max, lose_every)| Step::EvacuateGroups { back, max, lose_every }),
        3 => (0..3u64, 1..4usize).prop_map(|(segment, max)| Step::EvacuateCold { segment, max }),
        2 => Just(Step::Snapshot),
        3 => (0..3usize, any::<bool>())
            .prop_map(|(lost_group_count, from_snapshot)| Step::Crash { lost_group_count, from_snapshot }),
        1 => queue().prop_map(|queue| Step::Delete { queue }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![6 => command(), 3 => receipt_step(), 5 => receiver_step(), 3 => surroundings()];
    prop::collection::vec(step, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_agrees_with_the_model(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            world.check();
        }
    }
}
