//! Steps of the clock, forward. A lock is promised for a span, so it ends as much later as the clock has stepped; times that
//! someone named, such as that of a scheduled message, stay.

use std::time::Duration;

use peeklock_types::{SequenceNumber, SubQueue, Timestamp};

use crate::engine::Engine;
use crate::fact::Fact;
use crate::message::EntityId;
use crate::output::Output;

/// The lock of a message that was running when the clock stepped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningLock {
    entity: EntityId,
    sub_queue: SubQueue,
    sequence_number: SequenceNumber,
    until: Timestamp,
}

impl Engine {
    /// Follows a step of the clock by `by` to `now`, before any command with a time after the step: locks on sessions, waits
    /// for a session, idle times and the measured work on messages are moved. Returns the locks on messages, which the
    /// caller moves with [`Engine::extend_locks`].
    pub fn follow_step(&mut self, now: Timestamp, by: Duration) -> Vec<RunningLock> {
        let before = now - by;
        let mut running = Vec::new();
        for &entity in self.names.values() {
            let Some(queue) = self.queues.get_mut(&entity) else { continue };
            queue.used_at = (queue.used_at + by).min(now);
            queue.main.messages.follow_step(before, by);
            for sub_queue in SubQueue::ALL {
                let locks = queue.part(sub_queue).messages.locked_beyond(before);
                running.extend(locks.map(|(sequence_number, until)| RunningLock {
                    entity,
                    sub_queue,
                    sequence_number,
                    until,
                }));
            }
            self.agenda.note(queue);
        }
        // The last lock to expire is moved first: then each one is linked next to the one before.
        running.reverse();
        running
    }

    /// Lets locks last longer by `by`. The caller passes all of [`Engine::follow_step`], in pieces of at most
    /// [`FACTS_PER_CALL_MAX`](crate::FACTS_PER_CALL_MAX), and no command comes in between.
    pub fn extend_locks(&mut self, locks: &[RunningLock], by: Duration, out: &mut Output) {
        for &RunningLock { entity, sub_queue, sequence_number, until } in locks {
            let Some(queue) = self.queues.get_mut(&entity) else { continue };
            let until = until + by;
            queue.record(Fact::Renewed { entity, sub_queue, sequence_number, until }, out);
            self.agenda.note(queue);
        }
    }
}
