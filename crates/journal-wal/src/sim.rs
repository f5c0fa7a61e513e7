//! A disk that fails on request, and a journal that works only when it is driven: for tests of crashes.

mod disk;

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;

use crate::keeper::Keeper;
use crate::pool::Job;
use crate::shared::Shared;
use crate::writer::{Step, Writer};

pub use disk::{Fault, Loss, SimDisk};

/// Drives a journal that was opened without threads.
pub struct Driver {
    shared: Arc<Shared>,
    writer: Writer,
    keeper: Keeper,
}

/// The work of a journal without threads, apart from writing the log, in the order of the requests. The caller may do
/// reads in any order and in parallel. It does snapshots and moves of bodies one after the other, and also moves of
/// runs of streams.
pub struct Chores {
    pub reads: Work,
    pub moves: Work,
    pub gathers: Work,
}

/// Jobs of one kind.
pub struct Work {
    pub(crate) jobs: UnboundedReceiver<Job>,
}

impl Work {
    /// Returns the next job, to be done by calling it, or `None` if there will be no more jobs.
    pub async fn next(&mut self) -> Option<impl FnOnce() + Send + use<>> {
        self.jobs.recv().await
    }
}

impl Driver {
    pub(crate) fn new(shared: Arc<Shared>, writer: Writer, keeper: Keeper) -> Self {
        Driver { shared, writer, keeper }
    }

    /// Waits until a group waits to be written.
    pub async fn group_arrived(&self) {
        self.shared.queue.group_arrived().await;
    }

    /// Writes one commit. Returns `false` if there was nothing to write or no segment.
    pub fn commit(&mut self) -> bool {
        self.writer.step() == Step::Committed
    }

    /// Does one pass of the keeper: prepares and recycles segments, checks the space, requests trims from owners.
    pub fn keep(&mut self) {
        self.keeper.pass(true);
    }
}
