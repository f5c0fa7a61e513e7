//! Runs of events on their way to readers. They are read beside everything else: no queue and no other reader waits for them.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use peeklock_hubs::Run;
use peeklock_hubs::excerpt::{self, Bookmark, Excerpt};
use peeklock_journal::{BodyReader, ReadError, StoredBody};
use peeklock_types::BodyRef;
use rustc_hash::FxHashMap;
use tokio::task::JoinSet;

use crate::patience;

/// Runs that are read at the same time: what bounds the memory of readers that catch up, however many there are.
pub(crate) const READS_MAX: usize = 16;
/// Extents that were read from disk and may be wanted again soon, by a reader that takes a few events at a time or by its neighbours.
const KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A smaller extent is always read whole.
const PART_OF_BYTES_MIN: u32 = 64 * 1024;
/// What is read of a larger one beside what its events have on average, for those that are larger.
const PART_EXTRA_BYTES: u64 = 8 * 1024;

/// What was read, or why not.
pub(crate) struct Read {
    pub(crate) run: Run,
    pub(crate) result: Result<Vec<Bytes>, ReadError>,
    /// Of a run that was read in part: the event that follows, and where it lies.
    pub(crate) next: Option<Bookmark>,
}

/// The part of an extent that is enough for a run, if it is much less than the whole: for a reader that takes a few events at a time, and comes back
/// long after others have pushed the extent out of what is kept.
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

/// Where the event after the run lies, if the run ends far from both ends of a large extent.
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
            // An event that is not whole in it is larger than all the others: then the whole extent is read.
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
    /// Runs that became durable while enough were being read.
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

    /// Gives the run back with its bytes if they are in memory, else reads them in the background, as soon as there is room.
    pub(crate) fn start(&mut self, run: Run) -> Option<Read> {
        let find = |(place, size_bytes): &(BodyRef, u32)| {
            let body = StoredBody { place: *place, size_bytes: *size_bytes };
            // A reader that is stuck holds its run for as long as it likes.
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
            // On a task of its own: whatever becomes of it, the reader hears of it.
            match tokio::spawn(read_run(reader, run.clone())).await {
                Ok((run, result, next)) => Read { run, result, next },
                Err(stopped) => {
                    let (path, source) = (String::new(), std::io::Error::other(stopped));
                    Read { run, result: Err(ReadError::Io { path, source }), next: None }
                }
            }
        });
    }

    /// A read that has ended, if there is one.
    pub(crate) fn try_done(&mut self) -> Option<Read> {
        self.reads.try_join_next().and_then(Result::ok).map(|read| self.keep(read))
    }

    /// What has ended leaves room for what waits, and may be wanted again.
    fn keep(&mut self, read: Read) -> Read {
        if let Some(next) = self.waiting.pop_front() {
            self.spawn(next);
        }
        // Parts of extents are small, and nobody else wants the same ones.
        if let (Ok(extents), None) = (&read.result, read.next) {
            self.kept.put(&read.run, extents);
        }
        read
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
