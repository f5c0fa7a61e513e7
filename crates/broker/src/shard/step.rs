//! Steps of the clock. A step is not time that has passed for the holder of a lock, so what lasts for a span ends that much
//! later; `docs/design/time.md` lists what moves.

use std::time::Duration;

use peeklock_engine::FACTS_PER_CALL_MAX;
use peeklock_journal::Log;
use peeklock_types::Timestamp;

use crate::clock::Moment;
use crate::shard::Shard;

impl<L: Log> Shard<L> {
    /// Reads the clock. Every decision uses a time from here: before a step of the clock becomes visible to the state, the
    /// state follows it.
    pub(crate) fn read_clock(&mut self) -> Timestamp {
        let Moment { now, stepped } = self.clock.read();
        if stepped > self.stepped {
            let by = stepped - self.stepped;
            self.stepped = stepped;
            self.follow_step(now, by);
        }
        now
    }

    fn follow_step(&mut self, now: Timestamp, by: Duration) {
        let locks = self.state.engine.follow_step(now, by);
        for some in locks.chunks(FACTS_PER_CALL_MAX) {
            self.state.engine.extend_locks(some, by, &mut self.output);
            self.collect();
            self.end_large_group();
        }
        let mut facts = Vec::new();
        self.state.blobs.extend_leases(now - by, by, &mut facts);
        for fact in &facts {
            self.group.put_blob_fact(fact);
            self.end_large_group();
        }
    }
}
