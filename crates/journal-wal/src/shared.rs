//! The state that all threads of an open journal share.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use peeklock_journal::{Poisoned, Space};
use peeklock_types::ShardId;

use crate::buffers::Buffers;
use crate::cold::{ColdStore, Dead};
use crate::config::WalConfig;
use crate::disk::Disk;
use crate::layout::Layout;
use crate::locked;
use crate::queue::Queue;
use crate::ring::Ring;
use crate::shard::Shard;

pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) layout: Layout,
    pub(crate) config: WalConfig,
    pub(crate) queue: Queue,
    pub(crate) ring: Mutex<Ring>,
    pub(crate) shards: Mutex<BTreeMap<ShardId, Arc<Shard>>>,
    pub(crate) usage: Usage,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) bell: Bell,
    pub(crate) commit_count: AtomicU64,
    pub(crate) group_count: AtomicU64,
    space: AtomicU8,
    stopped: OnceLock<Poisoned>,
    /// Cold segments without live bodies. The keeper removes them, because removing a large file takes time.
    doomed: Mutex<Vec<PathBuf>>,
}

/// The space that the directory uses in addition to the log.
#[derive(Default)]
pub(crate) struct Usage {
    pub(crate) cold_bytes: AtomicU64,
    pub(crate) snapshot_bytes: AtomicU64,
    pub(crate) reserve_bytes: AtomicU64,
}

impl Usage {
    pub(crate) fn total_bytes(&self) -> u64 {
        let parts = [&self.cold_bytes, &self.snapshot_bytes, &self.reserve_bytes];
        parts.iter().map(|part| part.load(Ordering::Relaxed)).sum()
    }
}

/// Subtracts without going below zero. The figures only guide decisions, so they need not be exact.
pub(crate) fn lower(figure: &AtomicU64, by: u64) {
    let _ = figure.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| Some(now.saturating_sub(by)));
}

impl Shared {
    pub(crate) fn new(disk: Arc<dyn Disk>, layout: Layout, config: WalConfig, ring: Ring) -> Self {
        Shared {
            disk,
            layout,
            config,
            queue: Queue::default(),
            ring: Mutex::new(ring),
            shards: Mutex::default(),
            usage: Usage::default(),
            buffers: Arc::default(),
            bell: Bell::default(),
            commit_count: AtomicU64::new(0),
            group_count: AtomicU64::new(0),
            space: AtomicU8::new(0),
            stopped: OnceLock::new(),
            doomed: Mutex::default(),
        }
    }

    pub(crate) fn shard(&self, id: ShardId) -> Arc<Shard> {
        let mut shards = locked(&self.shards);
        let shard = shards.entry(id).or_insert_with(|| Arc::new(Shard::new(id, ColdStore::new(id), None)));
        Arc::clone(shard)
    }

    pub(crate) fn stopped(&self) -> Option<&Poisoned> {
        self.stopped.get()
    }

    pub(crate) fn check(&self) -> Result<(), Poisoned> {
        self.stopped.get().cloned().map_or(Ok(()), Err)
    }

    /// Stops every log of this journal permanently. The watermarks do not change any more.
    pub(crate) fn stop(&self, reason: String) {
        if self.stopped.set(Poisoned { reason }).is_err() {
            return;
        }
        for shard in locked(&self.shards).values() {
            shard.progress.send_modify(|progress| progress.stopped = true);
        }
        self.queue.poke();
        self.bell.ring();
    }

    pub(crate) fn space(&self) -> Space {
        match self.space.load(Ordering::Relaxed) {
            0 => Space::Enough,
            1 => Space::Behind,
            2 => Space::RejectSends,
            _ => Space::OnlySettle,
        }
    }

    pub(crate) fn set_space(&self, space: Space) {
        self.space.store(space as u8, Ordering::Relaxed);
    }

    pub(crate) fn bury(&self, shard: ShardId, dead: &[Dead]) {
        if dead.is_empty() {
            return;
        }
        locked(&self.doomed)
            .extend(dead.iter().map(|dead| dead.kind.path(&self.layout, shard, dead.segment)));
        dead.iter().for_each(|dead| lower(&self.usage.cold_bytes, dead.size_bytes));
        self.bell.ring();
    }

    pub(crate) fn take_doomed(&self) -> Vec<PathBuf> {
        std::mem::take(&mut locked(&self.doomed))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.layout.root
    }
}

/// Stops the journal when a thread panics, so that no owner waits for the work of that thread.
pub(crate) struct StopOnPanic {
    pub(crate) shared: Arc<Shared>,
    pub(crate) who: &'static str,
}

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.stop(format!("{} has failed; this is a fault of the program", self.who));
        }
    }
}

/// Wakes the keeper.
#[derive(Default)]
pub(crate) struct Bell {
    state: Mutex<BellState>,
    changed: Condvar,
}

#[derive(Default)]
struct BellState {
    rung: bool,
    closing: bool,
}

impl Bell {
    pub(crate) fn ring(&self) {
        locked(&self.state).rung = true;
        self.changed.notify_one();
    }

    pub(crate) fn close(&self) {
        locked(&self.state).closing = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_closing(&self) -> bool {
        locked(&self.state).closing
    }

    /// Sleeps until the bell rings or the time has passed. Returns `false` when the journal closes.
    pub(crate) fn wait(&self, at_most: Option<Duration>) -> bool {
        let mut state = locked(&self.state);
        while !state.rung && !state.closing {
            state = match at_most {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(time) => {
                    let (state, waited) =
                        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner);
                    if waited.timed_out() {
                        return !state.closing;
                    }
                    state
                }
            };
        }
        state.rung = false;
        !state.closing
    }
}
