//! Runs the writer: in a thread of its own, or in the thread of an owner that only waits for its group.
//!
//! An owner that waits for its group wakes the writer's thread, sleeps, and is woken again. With a fast disk these two
//! switches take as long as the write, so the writer's thread lends the writer to such an owner. There are rules,
//! because the owner blocks a thread of the runtime meanwhile:
//!
//! - Only one shard uses the log: its last groups came one at a time, each while the writer slept.
//! - The last write of an owner was fast.
//! - The writer's thread watches. If a write lasts, it makes another thread of the runtime serve the sockets.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use peeklock_types::ShardId;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::locked;
use crate::shared::{Shared, StopOnPanic};
use crate::writer::{Step, Writer};

/// The number of groups in a row after which a shard counts as the only one that uses the log.
const ALONE_MIN: u32 = 16;
/// The time of a write from which it no longer matters that the writer's thread must be woken.
const SLOW: Duration = Duration::from_millis(1);
/// The interval at which the writer's thread looks at the owner that writes.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The number of looks without a new write after which the writer's thread stops looking.
const IDLE_LOOKS_MAX: u32 = 100;

pub(crate) struct Desk {
    shared: Arc<Shared>,
    writer: Mutex<Writer>,
    /// The runtime of the owners, if it has other threads than the one that an owner blocks.
    runtime: Option<Handle>,
}

impl Desk {
    /// Creates a desk for owners in the current runtime.
    pub(crate) fn new(shared: Arc<Shared>, writer: Writer) -> Self {
        let has_others = |runtime: &Handle| {
            runtime.runtime_flavor() == RuntimeFlavor::MultiThread && runtime.metrics().num_workers() > 1
        };
        Desk { shared, writer: Mutex::new(writer), runtime: Handle::try_current().ok().filter(has_others) }
    }

    /// Writes until the journal closes and no group waits.
    pub(crate) fn run(&self) {
        let _alarm = self.alarm("the writer");
        let queue = &self.shared.queue;
        loop {
            let step = locked(&self.writer).step();
            let go_on = match step {
                Step::Committed => true,
                Step::Idle => queue.wait_for_group(|| self.wake_runtime()),
                Step::Stalled => queue.wait_for_segment(),
                Step::Stopped => false,
            };
            if !go_on {
                return self.give_up_rest();
            }
        }
    }

    /// Returns whether owners may write.
    pub(crate) fn can_lend(&self) -> bool {
        self.runtime.is_some()
    }

    /// Writes one commit in this thread. Wakes the writer's thread if there is more to do.
    pub(crate) fn write_here(&self) {
        let start = Instant::now();
        self.write_once();
        if self.shared.queue.owner_wrote(start.elapsed() >= SLOW) {
            self.shared.queue.wake_writer();
        }
    }

    /// Writes nothing if no segment is available or the writer's thread is at work. It then writes the group.
    fn write_once(&self) {
        let Ok(mut writer) = self.writer.try_lock() else { return };
        let _alarm = self.alarm("an owner that wrote its group");
        writer.step();
    }

    /// Makes a sleeping thread of the runtime run: a thread that finds no more work waits for the sockets if no other
    /// thread does.
    fn wake_runtime(&self) {
        if let Some(runtime) = &self.runtime {
            drop(runtime.spawn(async {}));
        }
    }

    /// Waits until no thread writes. After the queue was closed, none starts again.
    pub(crate) fn wait_until_free(&self) {
        drop(locked(&self.writer));
    }

    fn alarm(&self, who: &'static str) -> StopOnPanic {
        StopOnPanic { shared: Arc::clone(&self.shared), who }
    }

    /// Stops the journal if groups are left that were never written, so that their owners do not wait for them.
    fn give_up_rest(&self) {
        if !locked(&self.shared.queue.state).waiting.is_empty() {
            self.shared.stop("the journal was closed before everything could be written".to_owned());
        }
    }
}

/// Decides whether an owner may write, and watches it. A part of the queue, whose lock protects it.
#[derive(Debug, Default)]
pub(crate) struct Lending {
    /// The shard of the last groups that came one at a time while the writer slept, and their number.
    shard: Option<ShardId>,
    group_count: u32,
    /// Whether the writer's thread looks at regular intervals.
    watches: bool,
    is_writing: bool,
    /// The number of writes that were lent, as of now and as of the last look.
    write_count: u64,
    seen_count: u64,
    idle_looks: u32,
}

/// The result of a look at the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Fine,
    /// The owner has been writing since the last look.
    Overdue,
}

impl Lending {
    /// Notes a new group. `is_alone` means that its owner may write and that the writer slept. Returns whether the owner
    /// writes.
    pub(crate) fn note(&mut self, shard: ShardId, is_alone: bool) -> bool {
        if !is_alone || self.shard != Some(shard) {
            self.group_count = 0;
        }
        self.shard = is_alone.then_some(shard);
        self.group_count = self.group_count.saturating_add(u32::from(is_alone));
        let writes = self.watches && self.is_lasting();
        self.is_writing |= writes;
        self.write_count += u64::from(writes);
        writes
    }

    pub(crate) fn is_writing(&self) -> bool {
        self.is_writing
    }

    /// Notes that the owner no longer writes.
    pub(crate) fn ended(&mut self, was_slow: bool) {
        self.is_writing = false;
        if was_slow {
            self.group_count = 0;
        }
    }

    /// Starts or ends the watch of the writer's thread before it sleeps. Returns the time until the next look.
    pub(crate) fn start_watch(&mut self) -> Option<Duration> {
        if !self.watches {
            self.idle_looks = 0;
        }
        self.watches = self.is_lasting() || self.is_writing;
        self.watches.then_some(LOOK_EVERY)
    }

    pub(crate) fn look(&mut self) -> Look {
        let is_same = self.write_count == self.seen_count;
        self.seen_count = self.write_count;
        self.idle_looks = if is_same { self.idle_looks + 1 } else { 0 };
        if self.idle_looks >= IDLE_LOOKS_MAX && !self.is_writing {
            self.group_count = 0;
        }
        // One call is enough for a write: the thread that it wakes goes on serving the sockets.
        if is_same && self.is_writing && self.idle_looks == 1 { Look::Overdue } else { Look::Fine }
    }

    fn is_lasting(&self) -> bool {
        self.group_count >= ALONE_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARD: ShardId = ShardId(3);

    fn lent() -> Lending {
        let mut lending = Lending::default();
        for _ in 0..ALONE_MIN {
            assert!(!lending.note(SHARD, true));
            assert!(!lending.is_writing());
        }
        assert_eq!(lending.start_watch(), Some(LOOK_EVERY));
        lending
    }

    #[test]
    fn a_shard_that_is_alone_for_some_time_writes_while_the_thread_watches() {
        let mut lending = lent();
        assert!(lending.note(SHARD, true));
        assert!(lending.is_writing());
        lending.ended(false);
        assert!(lending.note(SHARD, true));
    }

    #[test]
    fn another_shard_or_a_busy_writer_or_a_slow_write_ends_it() {
        let mut lending = lent();
        assert!(!lending.note(ShardId(4), true));
        assert!(!lending.note(SHARD, true));
        let mut lending = lent();
        assert!(!lending.note(SHARD, false));
        assert!(!lending.note(SHARD, true));
        let mut lending = lent();
        assert!(lending.note(SHARD, true));
        lending.ended(true);
        assert!(!lending.note(SHARD, true));
        assert_eq!(lending.start_watch(), None);
    }

    #[test]
    fn a_write_that_lasts_is_overdue_once() {
        let mut lending = lent();
        assert!(lending.note(SHARD, true));
        assert_eq!(lending.look(), Look::Fine);
        assert_eq!(lending.look(), Look::Overdue);
        for _ in 0..2 * IDLE_LOOKS_MAX {
            assert_eq!(lending.start_watch(), Some(LOOK_EVERY));
            assert_eq!(lending.look(), Look::Fine);
        }
        lending.ended(true);
        assert_eq!(lending.start_watch(), None);
    }

    #[test]
    fn the_watch_ends_when_nothing_is_written() {
        let mut lending = lent();
        assert!(lending.note(SHARD, true));
        lending.ended(false);
        for _ in 0..IDLE_LOOKS_MAX {
            assert_eq!(lending.start_watch(), Some(LOOK_EVERY));
            assert_eq!(lending.look(), Look::Fine);
        }
        // The first look saw a new write.
        assert_eq!(lending.look(), Look::Fine);
        assert_eq!(lending.start_watch(), None);
        assert!(!lending.note(SHARD, true));
    }
}
