//! The groups that wait for the writer. A push holds one lock, and wakes the writer only if it sleeps.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use peeklock_journal::{GroupHead, Payload};
use tokio::sync::Notify;

use crate::desk::{Lending, Look};
use crate::frame::frame_bytes;
use crate::locked;
use crate::shard::Shard;

pub(crate) struct Pending {
    pub(crate) shard: Arc<Shard>,
    pub(crate) head: GroupHead,
    pub(crate) payload: Payload,
}

impl Pending {
    pub(crate) fn frame_bytes(&self) -> u64 {
        frame_bytes(self.payload.len())
    }
}

#[derive(Default)]
pub(crate) struct Queue {
    pub(crate) state: Mutex<QueueState>,
    changed: Condvar,
    /// Wakes a driver that runs without a thread.
    arrived: Notify,
    backlog_bytes: AtomicU64,
    /// Whether the writer waits for a segment.
    pub(crate) stalled: AtomicBool,
}

#[derive(Default)]
pub(crate) struct QueueState {
    pub(crate) waiting: VecDeque<Pending>,
    pub(crate) closing: bool,
    /// Whether the writer waits for a group. Waking it costs a system call, so this is done only if needed.
    asleep: bool,
    /// Whether a segment was added.
    poked: bool,
    lending: Lending,
}

/// The thread that writes a queued group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A thread that writes already, and takes the group after that.
    Busy,
    /// The writer's thread, which the caller must wake.
    Writer,
    /// The caller.
    Owner,
}

impl Queue {
    /// Returns whether a group of this size may wait as well.
    pub(crate) fn has_room(&self, frame_bytes: u64, backlog_bytes_max: usize) -> bool {
        let after = self.backlog_bytes.load(Ordering::Relaxed).saturating_add(frame_bytes);
        !self.stalled.load(Ordering::Relaxed) && after <= backlog_bytes_max as u64
    }

    /// Adds a group. The caller holds the lock of `state`, so that its checks are still valid. With `may_block`, the
    /// caller can write it.
    #[must_use]
    pub(crate) fn push(&self, state: &mut QueueState, pending: Pending, may_block: bool) -> Turn {
        self.backlog_bytes.fetch_add(pending.frame_bytes(), Ordering::Relaxed);
        let shard = pending.shard.id;
        state.waiting.push_back(pending);
        let was_asleep = std::mem::take(&mut state.asleep);
        if state.lending.note(shard, may_block && was_asleep) {
            Turn::Owner
        } else if was_asleep {
            Turn::Writer
        } else {
            Turn::Busy
        }
    }

    pub(crate) fn wake_writer(&self) {
        self.changed.notify_one();
        self.arrived.notify_one();
    }

    /// Notes that an owner no longer writes. Returns whether groups wait, so that the writer must be woken.
    pub(crate) fn owner_wrote(&self, was_slow: bool) -> bool {
        let mut state = locked(&self.state);
        state.lending.ended(was_slow);
        state.asleep = state.waiting.is_empty() && !state.closing;
        !state.asleep
    }

    pub(crate) fn landed(&self, bytes: u64) {
        self.backlog_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Wakes a stalled writer after a segment was added.
    pub(crate) fn poke(&self) {
        locked(&self.state).poked = true;
        self.changed.notify_one();
    }

    pub(crate) fn close(&self) {
        locked(&self.state).closing = true;
        self.changed.notify_all();
    }

    /// Sleeps until a group waits. Returns `false` if no group waits and the journal closes. Calls `on_overdue` when an
    /// owner writes for a long time.
    pub(crate) fn wait_for_group(&self, on_overdue: impl Fn()) -> bool {
        let mut state = locked(&self.state);
        // An owner that writes wakes this thread afterwards if groups wait.
        while (state.waiting.is_empty() || state.lending.is_writing()) && !state.closing {
            state.asleep = !state.lending.is_writing();
            let look_after = state.lending.start_watch();
            let timed_out;
            (state, timed_out) = self.wait(state, look_after);
            if timed_out && state.lending.look() == Look::Overdue {
                on_overdue();
            }
        }
        !state.waiting.is_empty()
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, QueueState>,
        at_most: Option<Duration>,
    ) -> (MutexGuard<'a, QueueState>, bool) {
        let Some(at_most) = at_most else {
            return (self.changed.wait(state).unwrap_or_else(PoisonError::into_inner), false);
        };
        let waited = self.changed.wait_timeout(state, at_most);
        let (state, result) = waited.unwrap_or_else(PoisonError::into_inner);
        (state, result.timed_out())
    }

    /// Like [`Queue::wait_for_group`], for a writer without a thread.
    pub(crate) async fn group_arrived(&self) {
        loop {
            {
                let mut state = locked(&self.state);
                if !state.waiting.is_empty() {
                    return;
                }
                state.asleep = true;
            }
            self.arrived.notified().await;
        }
    }

    /// Sleeps until a segment may be available. Returns `false` if the journal closes.
    pub(crate) fn wait_for_segment(&self) -> bool {
        let mut state = locked(&self.state);
        while !state.poked && !state.closing {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.poked = false;
        !state.closing
    }
}
