//! Runs of events on their way to readers. They are read beside everything else: no queue and no other reader waits for them.

use std::collections::VecDeque;

use bytes::Bytes;
use peeklock_hubs::Run;
use peeklock_journal::{ReadError, Reader, StoredBody};
use peeklock_types::BodyRef;
use rustc_hash::FxHashMap;
use tokio::task::JoinSet;

use crate::patience;

/// Runs that are read at the same time: what bounds the memory of readers that catch up, however many there are.
pub(crate) const READS_MAX: usize = 16;
/// Extents that were read from disk and may be wanted again soon, by a reader that takes a few events at a time or by its neighbours.
const KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What was read, or why not.
pub(crate) type Read = (Run, Result<Vec<Bytes>, ReadError>);

pub(crate) struct Reading<R> {
    reader: R,
    reads: JoinSet<Read>,
    /// Runs that became durable while enough were being read.
    waiting: VecDeque<Run>,
    kept: Kept,
}

impl<R: Reader> Reading<R> {
    pub(crate) fn new(reader: R) -> Self {
        Reading { reader, reads: JoinSet::new(), waiting: VecDeque::new(), kept: Kept::default() }
    }

    pub(crate) fn is_reading(&self) -> bool {
        !self.reads.is_empty()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.reads.len() + self.waiting.len() < READS_MAX
    }

    /// Gives the run back with its bytes if they are in memory, else reads them in the background, as soon as there is room.
    pub(crate) fn start(&mut self, run: Run) -> Option<Read> {
        let find = |(place, size_bytes): &(BodyRef, u32)| {
            let body = StoredBody { place: *place, size_bytes: *size_bytes };
            // A reader that is stuck holds its run for as long as it likes.
            self.kept.get(*place).or_else(|| self.reader.try_read_apart(body))
        };
        let found: Option<Vec<Bytes>> = run.bodies.iter().map(find).collect();
        if let Some(extents) = found {
            return Some((run, Ok(extents)));
        }
        if self.reads.len() < READS_MAX {
            self.spawn(run);
        } else {
            self.waiting.push_back(run);
        }
        None
    }

    fn spawn(&mut self, run: Run) {
        let reader = self.reader.clone();
        self.reads.spawn(async move {
            let stored =
                |(place, size_bytes): &(BodyRef, u32)| StoredBody { place: *place, size_bytes: *size_bytes };
            let bodies: Vec<_> = run.bodies.iter().map(stored).collect();
            // On a task of its own: whatever becomes of it, the reader hears of it.
            let read = tokio::spawn(async move { patience::read(&reader, &bodies).await });
            let stopped = |stopped| {
                let (path, source) = (String::new(), std::io::Error::other(stopped));
                Err(ReadError::Io { path, source })
            };
            (run, read.await.unwrap_or_else(stopped))
        });
    }

    /// A read that has ended, if there is one.
    pub(crate) fn try_done(&mut self) -> Option<Read> {
        self.reads.try_join_next().and_then(Result::ok).map(|read| self.keep(read))
    }

    /// What has ended leaves room for what waits, and may be wanted again.
    fn keep(&mut self, (run, result): Read) -> Read {
        if let Some(next) = self.waiting.pop_front() {
            self.spawn(next);
        }
        if let Ok(extents) = &result {
            self.kept.put(&run, extents);
        }
        (run, result)
    }

    /// Waits for a read to end. Safe to cancel. Waits for ever if none runs.
    pub(crate) async fn done(&mut self) -> Read {
        match self.reads.join_next().await {
            Some(Ok(read)) => self.keep(read),
            // What waits for a read does nothing that could fail.
            Some(Err(_)) | None => std::future::pending().await,
        }
    }
}

/// The newest few extents that were read.
#[derive(Default)]
struct Kept {
    extents: FxHashMap<BodyRef, Bytes>,
    order: VecDeque<BodyRef>,
    size_bytes: usize,
}

impl Kept {
    fn get(&self, place: BodyRef) -> Option<Bytes> {
        self.extents.get(&place).cloned()
    }

    fn put(&mut self, run: &Run, extents: &[Bytes]) {
        for ((place, _), bytes) in run.bodies.iter().zip(extents) {
            if self.extents.insert(*place, bytes.clone()).is_none() {
                self.order.push_back(*place);
                self.size_bytes += bytes.len();
            }
        }
        while self.size_bytes > KEPT_BYTES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.size_bytes -= self.extents.remove(&oldest).map_or(0, |bytes| bytes.len());
        }
    }
}
