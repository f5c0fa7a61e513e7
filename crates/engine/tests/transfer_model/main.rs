//! Two shards, queues that forward to each other, transactions across both, and a forwarder between them that may be
//! interrupted anywhere.
//!
//! Checks that every accepted message is in exactly one place when everything has arrived, that a received message is
//! never delivered again, and that the order is kept along the way; whatever crashes when, and however often a message
//! is transferred again.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod shard;
mod world;

use proptest::prelude::*;

use crate::world::{QUEUES, World};

/// One step of a test. Queues are numbers in [`QUEUES`], shards are 0 and 1.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Send {
        queue: usize,
        count: usize,
    },
    /// Receives and deletes a message.
    Take {
        queue: usize,
        is_dead_letter: bool,
    },
    DeadLetter {
        queue: usize,
    },
    /// Completes a message in a transaction, if there is one, and sends to two queues; the message to the second may be
    /// scheduled.
    Transact {
        queue: usize,
        targets: [usize; 2],
        schedules: bool,
    },
    /// Disables the sends of a queue, or enables them again.
    Toggle {
        queue: usize,
    },
    /// Delivers and forwards waiting messages.
    Deliver {
        shard: usize,
    },
    /// Makes the decided facts durable.
    Commit {
        shard: usize,
    },
    /// Transfers durable messages from one shard to a shard, and the confirmation back, unless one of them is lost.
    Bring {
        from: usize,
        to: usize,
        count: usize,
        target_crashes: bool,
        word_is_lost: bool,
    },
    /// Drops everything that is not durable.
    Crash {
        shard: usize,
        from_snapshot: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (queue, shard) = (|| 0..QUEUES.len(), || 0..2usize);
    prop_oneof![
        20 => (queue(), 1..4usize).prop_map(|(queue, count)| Step::Send { queue, count }),
        6 => (queue(), any::<bool>()).prop_map(|(queue, is_dead_letter)| Step::Take { queue, is_dead_letter }),
        6 => queue().prop_map(|queue| Step::DeadLetter { queue }),
        6 => (queue(), [queue(), queue()], any::<bool>())
            .prop_map(|(queue, targets, schedules)| Step::Transact { queue, targets, schedules }),
        2 => queue().prop_map(|queue| Step::Toggle { queue }),
        20 => shard().prop_map(|shard| Step::Deliver { shard }),
        10 => shard().prop_map(|shard| Step::Commit { shard }),
        30 => (shard(), shard(), 1..5usize, prop::bool::weighted(0.1), prop::bool::weighted(0.1)).prop_map(
            |(from, to, count, target_crashes, word_is_lost)| {
                Step::Bring { from, to, count, target_crashes, word_is_lost }
            }
        ),
        5 => (shard(), any::<bool>()).prop_map(|(shard, from_snapshot)| Step::Crash { shard, from_snapshot }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn every_message_arrives_once(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in steps {
            world.take(step);
            world.check();
        }
        world.finish();
    }
}
