//! Runs of events that are being read for readers. The reads are independent of everything else: no queue and no other
//! reader waits for them.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use peeklock_hubs::Run;
use peeklock_hubs::excerpt::{self, Bookmark, Excerpt};
use peeklock_journal::{BodyReader, ReadError, StoredBody};
use peeklock_types::BodyRef;
use rustc_hash::FxHashMap;
use tokio::task::JoinSet;

use crate::shard::patience;

/// The maximum number of concurrent reads, which limits the memory of readers that catch up, regardless of their
/// number.
pub(crate) const READS_MAX: usize = 16;
/// The maximum size of the cached extents. A reader that takes a few events at a time, or its neighbours, may soon need
/// an extent again.
const KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The minimum size of an extent that may be read in part.
const PART_OF_BYTES_MIN: u32 = 64 * 1024;
/// The number of bytes that are read beyond the average size of the wanted events, in case they are larger.
const PART_EXTRA_BYTES: u64 = 8 * 1024;

/// A finished read: its bytes, or its error.
pub(crate) struct Read {
    pub(crate) run: Run,
    pub(crate) result: Result<Vec<Bytes>, ReadError>,
    /// For a partial read: the event that follows, and its place in the extent.
    pub(crate) next: Option<Bookmark>,
}

/// Returns the part of an extent that is enough for a run, if it is much smaller than the whole. This serves readers
/// that take a few events at a time and return after the extent has left the cache.
fn part_of(run: &Run) -> Option<(StoredBody, Bookmark, Range<u32>)> {
    let (bookmark, &[(place, size_bytes)]) = (run.bookmark?, run.bodies.as_slice()) else { return None };
    let wanted = run.size_bytes.saturating_mul(2).saturating_add(PART_EXTRA_BYTES);
    let wanted = u32::try_from(wanted).ok().filter(|wanted| *wanted <= size_bytes / 2)?;
    let end = bookmark.at.saturating_add(wanted).min(size_bytes);
    (size_bytes >= PART_OF_BYTES_MIN).then_some((
        StoredBody { place, size_bytes },
        bookmark,
        bookmark.at..end,
    ))
}

/// Returns the place of the event after the run, if the run ends far from both ends of a large extent.
pub(crate) fn place_after(run: &Run, extents: &[Bytes]) -> Option<(BodyRef, Bookmark)> {
    let ((place, size_bytes), extent) = run.bodies.last().zip(extents.last())?;
    let is_worth_it =
        *size_bytes >= PART_OF_BYTES_MIN && run.size_bytes.saturating_mul(4) <= u64::from(*size_bytes);
    let near = run.bookmark.filter(|_| run.bodies.len() == 1);
    is_worth_it.then(|| excerpt::find(extent, run.upto, near)).flatten().map(|mark| (*place, mark))
}

async fn read_run<R: BodyReader>(
    reader: R,
    run: Run,
) -> (Run, Result<Vec<Bytes>, ReadError>, Option<Bookmark>) {
    if let Some((body, bookmark, range)) = part_of(&run) {
        match patience::read_range(&reader, body, range).await {
            // An event that is not complete in the part is much larger than average: the whole extent is read.
            Ok(bytes) => {
                if let Some(Excerpt { blocks, next }) = excerpt::excerpt(&bytes, bookmark, run.upto) {
                    return (run, Ok(vec![blocks]), Some(next));
                }
            }
            Err(error) => return (run, Err(error), None),
        }
    }
    let stored = |(place, size_bytes): &(BodyRef, u32)| StoredBody { place: *place, size_bytes: *size_bytes };
    let bodies: Vec<_> = run.bodies.iter().map(stored).collect();
    let result = patience::read(&reader, &bodies).await;
    (run, result, None)
}

pub(crate) struct Reading<R> {
    reader: R,
    reads: JoinSet<Read>,
    /// Durable runs that wait because the maximum number of reads is in progress.
    waiting: VecDeque<Run>,
    kept: Kept,
}

impl<R: BodyReader> Reading<R> {
    pub(crate) fn new(reader: R) -> Self {
        Reading { reader, reads: JoinSet::new(), waiting: VecDeque::new(), kept: Kept::default() }
    }

    pub(crate) fn is_reading(&self) -> bool {
        !self.reads.is_empty()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.reads.len() + self.waiting.len() < READS_MAX
    }

    /// Returns the run with its bytes if they are in memory; otherwise reads them in the background as soon as a slot
    /// is free.
    pub(crate) fn start(&mut self, run: Run) -> Option<Read> {
        let find = |(place, size_bytes): &(BodyRef, u32)| {
            let body = StoredBody { place: *place, size_bytes: *size_bytes };
            // `try_read_apart`, because a slow reader may hold its run indefinitely.
            self.kept.get(*place).or_else(|| self.reader.try_read_apart(body))
        };
        let found: Option<Vec<Bytes>> = run.bodies.iter().map(find).collect();
        if let Some(extents) = found {
            return Some(Read { run, result: Ok(extents), next: None });
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
            // The read has its own task, so the reader gets a result even if the task panics.
            match tokio::spawn(read_run(reader, run.clone())).await {
                Ok((run, result, next)) => Read { run, result, next },
                Err(stopped) => {
                    let (path, source) = (String::new(), std::io::Error::other(stopped));
                    Read { run, result: Err(ReadError::Io { path, source }), next: None }
                }
            }
        });
    }

    /// Returns a finished read, if there is one.
    pub(crate) fn try_done(&mut self) -> Option<Read> {
        self.reads.try_join_next().and_then(Result::ok).map(|read| self.keep(read))
    }

    /// Starts the next waiting run and caches the extents of this read.
    fn keep(&mut self, read: Read) -> Read {
        if let Some(next) = self.waiting.pop_front() {
            self.spawn(next);
        }
        // Partial extents are small, and no other reader needs the same part.
        if let (Ok(extents), None) = (&read.result, read.next) {
            self.kept.put(&read.run, extents);
        }
        read
    }

    /// Waits for a read to end, or for ever if none runs. The call is safe to cancel.
    pub(crate) async fn done(&mut self) -> Read {
        match self.reads.join_next().await {
            Some(Ok(read)) => self.keep(read),
            // The task around a read contains nothing that could fail.
            Some(Err(_)) | None => std::future::pending().await,
        }
    }
}

/// A cache of the extents that were read last.
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
