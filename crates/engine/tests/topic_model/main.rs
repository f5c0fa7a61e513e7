//! Two topics whose subscriptions and rules change, beside a model in the simplest form.
//!
//! Checks that each subscription gets exactly the copies that its rules specify, whenever its messages are due; that
//! all copies share their body, and a standalone body is freed once, with its last copy; and that a crash at any
//! point restores the same bytes.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod model;
mod world;

use proptest::prelude::*;

use crate::model::{RULE_COUNT, RuleKind, SUBSCRIPTION_COUNT, TOPIC_COUNT};
use crate::world::World;

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) p: Option<i64>,
    pub(crate) session: Option<u8>,
    /// One of a few message ids.
    pub(crate) message_id: Option<u8>,
    pub(crate) ahead_s: Option<u64>,
    pub(crate) is_cold: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    Complete,
    Abandon,
    DeadLetter,
    /// The lock stays.
    Leave,
}

/// A subscription, by the numbers of its topic and of itself.
pub(crate) type At = (usize, usize);

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Subscribe {
        at: At,
        rule: Option<RuleKind>,
    },
    Unsubscribe {
        at: At,
    },
    /// Deletes a topic with all its subscriptions, and creates it again.
    Renew {
        topic: usize,
    },
    PutRule {
        at: At,
        rule: usize,
        kind: RuleKind,
    },
    RemoveRule {
        at: At,
        rule: Option<usize>,
    },
    Send {
        topic: usize,
        messages: Vec<Sent>,
    },
    Cancel {
        topic: usize,
        pick: usize,
    },
    Take {
        at: At,
        is_dead: bool,
        how: How,
    },
    /// Settles a message that an earlier step left locked.
    Settle {
        at: At,
        pick: usize,
        how: How,
    },
    /// Completes a message, if there is one, and sends another, in one transaction.
    Transact {
        at: At,
        topic: usize,
        message: Sent,
    },
    Purge {
        at: At,
        is_dead: bool,
        count_max: u64,
    },
    /// Moves up to `max` bodies, out of commit groups or from one standalone place to another.
    Move {
        segment: Option<u32>,
        max: usize,
    },
    Wait {
        seconds: u64,
    },
    Crash {
        lost_group_count: usize,
        from_snapshot: bool,
    },
}

fn at() -> impl Strategy<Value = At> {
    (0..TOPIC_COUNT, 0..SUBSCRIPTION_COUNT)
}

fn kind() -> impl Strategy<Value = RuleKind> {
    prop_oneof![
        2 => Just(RuleKind::True),
        1 => Just(RuleKind::False),
        1 => Just(RuleKind::Fails),
        3 => (0..3i64).prop_map(|p| RuleKind::Equals { p }),
        3 => (0..3i64).prop_map(|p| RuleKind::Above { p }),
        3 => (0..3i64).prop_map(|p| RuleKind::Marks { p }),
        1 => Just(RuleKind::Groups),
    ]
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![3 => Just(How::Complete), 1 => Just(How::Abandon), 1 => Just(How::DeadLetter), 1 => Just(How::Leave)]
}

fn sent() -> impl Strategy<Value = Sent> {
    use prop::option::weighted as maybe;
    let parts =
        (maybe(0.8, 0..4i64), maybe(0.5, 0..2u8), maybe(0.4, 0..3u8), maybe(0.2, 1..9u64), any::<bool>());
    parts.prop_map(|(p, session, message_id, ahead_s, is_cold)| Sent {
        p,
        session,
        message_id,
        ahead_s,
        is_cold,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let topic = || 0..TOPIC_COUNT;
    prop_oneof![
        8 => (at(), prop::option::of(kind())).prop_map(|(at, rule)| Step::Subscribe { at, rule }),
        1 => at().prop_map(|at| Step::Unsubscribe { at }),
        1 => topic().prop_map(|topic| Step::Renew { topic }),
        6 => (at(), 0..RULE_COUNT, kind()).prop_map(|(at, rule, kind)| Step::PutRule { at, rule, kind }),
        3 => (at(), prop::option::of(0..RULE_COUNT)).prop_map(|(at, rule)| Step::RemoveRule { at, rule }),
        20 => (topic(), prop::collection::vec(sent(), 1..4))
            .prop_map(|(topic, messages)| Step::Send { topic, messages }),
        1 => (topic(), 0..9usize).prop_map(|(topic, pick)| Step::Cancel { topic, pick }),
        16 => (at(), prop::bool::weighted(0.3), how())
            .prop_map(|(at, is_dead, how)| Step::Take { at, is_dead, how }),
        4 => (at(), 0..9usize, how()).prop_map(|(at, pick, how)| Step::Settle { at, pick, how }),
        4 => (at(), topic(), sent()).prop_map(|(at, topic, message)| Step::Transact { at, topic, message }),
        3 => (at(), any::<bool>(), 0..4u64)
            .prop_map(|(at, is_dead, count_max)| Step::Purge { at, is_dead, count_max }),
        6 => (prop::option::of(1..4u32), 1..6usize).prop_map(|(segment, max)| Step::Move { segment, max }),
        5 => (1..4u64).prop_map(|seconds| Step::Wait { seconds }),
        4 => (0..3usize, any::<bool>())
            .prop_map(|(lost_group_count, from_snapshot)| Step::Crash { lost_group_count, from_snapshot }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_subscription_gets_its_copies(steps in prop::collection::vec(step(), 1..90)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            world.check();
        }
        world.finish();
    }
}
