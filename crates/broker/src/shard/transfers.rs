//! Messages of the outbox in flight to other shards: one batch per shard at a time.

use std::collections::BTreeSet;

use peeklock_engine::Engine;
use peeklock_types::ShardId;

use crate::shard::outgoing::Effect;

/// The maximum number of messages, and of their bytes, in flight to another shard.
const COUNT_MAX: usize = 256;
const BYTES_MAX: u64 = 1024 * 1024;

#[derive(Default)]
pub(crate) struct Transfers {
    /// Shards with a batch in flight to them.
    bringing: BTreeSet<ShardId>,
}

impl Transfers {
    /// Returns a batch for each shard that has messages in the outbox and no batch in flight.
    pub(crate) fn start(&mut self, engine: &Engine) -> Vec<Effect> {
        let idle: Vec<_> = engine.transfer_targets().filter(|shard| !self.bringing.contains(shard)).collect();
        let mut started = Vec::new();
        for target in idle {
            let messages = engine.outgoing(target, COUNT_MAX, BYTES_MAX);
            if !messages.is_empty() {
                self.bringing.insert(target);
                started.push(Effect::Transfer { target, messages });
            }
        }
        started
    }

    /// Notes that the target has answered.
    pub(crate) fn end(&mut self, target: ShardId) {
        self.bringing.remove(&target);
    }
}
