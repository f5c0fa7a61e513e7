//! A disk that fails on request, and a journal that moves only when told: for tests of what a crash may take.

mod disk;

use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;

use crate::keeper::Keeper;
use crate::pool::Job;
use crate::shared::Shared;
use crate::writer::{Step, Writer};

pub use disk::{Fault, Loss, SimDisk};

/// Moves a journal that was opened without threads.
pub struct Driver {
    shared: Arc<Shared>,
    writer: Writer,
    keeper: Keeper,
}

/// What a journal without threads has to do beside writing its log, in the order in which it was asked. Reads may be done in any order and at the
/// same time; snapshots and moved bodies, and streams that are gathered, one after the other.
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
    /// The next thing to be done, by calling it; `None` when nobody can ask any more.
    pub async fn next(&mut self) -> Option<impl FnOnce() + Send + use<>> {
        self.jobs.recv().await
    }
}

impl Driver {
    pub(crate) fn new(shared: Arc<Shared>, writer: Writer, keeper: Keeper) -> Self {
        Driver { shared, writer, keeper }
    }

    /// Returns when a group waits to be written.
    pub async fn group_arrived(&self) {
        self.shared.queue.group_arrived().await;
    }

    /// Writes one commit of what waits; false if there was nothing to do or no way to do it.
    pub fn commit(&mut self) -> bool {
        self.writer.step() == Step::Committed
    }

    /// Prepares and takes back segments, looks at the space, asks owners.
    pub fn keep(&mut self) {
        self.keeper.pass(true);
    }
}
