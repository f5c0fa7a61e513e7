//! The keeper prepares segments, recycles free ones, watches the space, and requests that owners give up the oldest
//! groups.
//!
//! It is not in the path of a commit. In a broker it has a thread; a simulation calls [`Keeper::pass`].

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use peeklock_journal::Space;

use crate::config::WalConfig;
use crate::disk::{Disk, DiskFile, is_no_room, is_out_of_handles, write_all};
use crate::layout::{Layout, text};
use crate::locked;
use crate::ring::RingSegment;
use crate::segment::Segment;
use crate::shared::{Shared, StopOnPanic};

/// The interval at which a keeper that lacks space retries. Otherwise it sleeps without a timer.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// The pause after each chunk of zeros while the writer has a spare. A commit waits for the disk behind one chunk at
/// most, and the disk is free most of the time.
const FILL_PAUSE: Duration = Duration::from_millis(2);
/// The size of a chunk of zeros.
const FILL_BYTES: u64 = 256 * 1024;

pub(crate) struct Keeper {
    shared: Arc<Shared>,
    /// Whether the last attempt to prepare a segment found no space.
    no_room: bool,
    /// Whether the keeper has a thread, which may pause.
    may_pause: bool,
}

impl Keeper {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Keeper { shared, no_room: false, may_pause: false }
    }

    pub(crate) fn run(mut self) {
        let _alarm = StopOnPanic { shared: Arc::clone(&self.shared), who: "the keeper" };
        self.may_pause = true;
        let mut next_try = Instant::now();
        loop {
            let now = Instant::now();
            let may_try = now >= next_try;
            if may_try {
                next_try = now + LOOK_AGAIN;
            }
            self.pass(may_try);
            let troubled = self.no_room || self.shared.space() != Space::Enough;
            let at_most = troubled.then(|| next_try.saturating_duration_since(Instant::now()));
            if !self.shared.bell.wait(at_most) || self.shared.stopped().is_some() {
                return;
            }
        }
    }

    /// Does all pending work. A permanent error stops the journal, because a directory that cannot be synced cannot be
    /// trusted. After an attempt that found no space, the next attempt is made only if `may_try` is set: an attempt
    /// writes until the disk is full, and the bell rings often.
    pub(crate) fn pass(&mut self, may_try: bool) {
        let mut may_go_on = true;
        while may_go_on && self.shared.stopped().is_none() {
            self.remove_doomed();
            let kept =
                self.reclaim().and_then(|()| self.shed_spares()).and_then(|()| self.add_spare(may_try));
            may_go_on = match kept {
                // A pass prepares one segment: a busy writer may use segments as fast as they are prepared, and the
                // other work must not wait for that.
                Ok(was_added) => was_added,
                Err(error) => {
                    let folder = text(self.shared.root());
                    return self.shared.stop(format!("preparing segments in {folder}: {error}"));
                }
            };
            self.watch_space();
            self.ask_owners();
            self.end_stall();
        }
    }

    /// Removes cold segments without live bodies. A crash may undo a removal; the segment is then removed again after
    /// the next start.
    fn remove_doomed(&self) {
        for path in self.shared.take_doomed() {
            if let Err(error) = self.shared.disk.remove(&path) {
                tracing::warn!(path = text(&path), %error, "a cold segment without live bodies could not be removed");
            }
        }
    }

    /// Recycles segments from the oldest on, one at a time, so that the log has no hole even after a power failure.
    fn reclaim(&self) -> io::Result<()> {
        let Shared { disk, layout, .. } = &*self.shared;
        while let Some(freed) = self.take_freed() {
            let old = layout.segment(freed.segment.id);
            match Arc::try_unwrap(freed.segment) {
                Ok(segment) if self.is_wanted(&segment) => self.recycle(&old, segment)?,
                // A reader still has the segment open, so its bytes must not change.
                _ => {
                    disk.remove(&old)?;
                    disk.sync_dir(&layout.wal_dir())?;
                }
            }
        }
        Ok(())
    }

    fn take_freed(&self) -> Option<RingSegment> {
        let mut ring = locked(&self.shared.ring);
        let oldest = ring.oldest_left()?;
        let mut free = true;
        for (id, newest) in &oldest.newest {
            let shard = self.shared.shard(*id);
            // The pin is set before the check: an owner that trims in between rings the bell.
            shard.pin(Some(*newest));
            if shard.free_upto() < *newest {
                free = false;
            } else {
                shard.pin(None);
            }
        }
        if free { ring.live.pop_front() } else { None }
    }

    /// Returns whether a free segment is kept as a spare. More spares are kept than are prepared: reusing a segment
    /// costs a rename, and a new one is written twice.
    fn is_wanted(&self, segment: &Segment) -> bool {
        let spare_count = locked(&self.shared.ring).spares.len();
        segment.size_bytes == self.shared.config.segment_bytes && spare_count < self.spares_most()
    }

    /// Returns the largest number of spares. Under load the log grows to its limit, shrinks with each snapshot, and grows
    /// again, so it keeps the segments for that. When space is short, spares are given up.
    fn spares_most(&self) -> usize {
        let config = &self.shared.config;
        if self.shared.space() >= Space::RejectSends {
            return config.spares_min;
        }
        let live_bytes = locked(&self.shared.ring).live_bytes();
        let regrown_count = self.ring_bytes_limit().saturating_sub(live_bytes) / config.segment_bytes;
        config.spares_max.max(usize::try_from(regrown_count).unwrap_or(usize::MAX))
    }

    /// Returns the size of the log above which owners must give up the oldest groups.
    fn ring_bytes_limit(&self) -> u64 {
        let config = &self.shared.config;
        config.total_bytes_max.map_or(config.ring_bytes, |max| config.ring_bytes.min(max / 2))
    }

    fn shed_spares(&self) -> io::Result<()> {
        let Shared { disk, layout, ring, .. } = &*self.shared;
        loop {
            let most = self.spares_most();
            let surplus = {
                let mut ring = locked(ring);
                if ring.spares.len() > most { ring.spares.pop_back() } else { None }
            };
            let Some(surplus) = surplus else { return Ok(()) };
            disk.remove(&layout.segment(surplus.id))?;
        }
    }

    /// Renames a free segment. The new id marks its old contents as invalid, so it needs no zeroing.
    fn recycle(&self, old: &Path, segment: Segment) -> io::Result<()> {
        let Shared { disk, layout, ring, .. } = &*self.shared;
        let id = locked(ring).next_id();
        disk.rename(old, &layout.segment(id))?;
        disk.sync_dir(&layout.wal_dir())?;
        locked(ring).spares.push_back(Segment { id, ..segment });
        Ok(())
    }

    /// Prepares a segment if one is needed, and returns whether it did. After a lack of space, only a successful
    /// attempt resets `no_room`: the free space that the file system reports may not be the only limit.
    fn add_spare(&mut self, may_try: bool) -> io::Result<bool> {
        if self.no_room && !may_try {
            return Ok(false);
        }
        if !self.lacks_spare() {
            self.no_room = false;
            return Ok(false);
        }
        let Shared { disk, layout, ring, config, .. } = &*self.shared;
        // An attempt would fill the disk, and would be repeated at every pass.
        let free_bytes = disk.free_bytes(self.shared.root()).unwrap_or(u64::MAX);
        if self.is_over_total() || free_bytes < config.segment_bytes {
            self.no_room = true;
            return Ok(false);
        }
        let (id, filling) = {
            let mut ring = locked(ring);
            let filling = if ring.is_filled_fast() { Filling::Reserved } else { Filling::Zeros };
            (ring.next_id(), filling)
        };
        let fill = Fill { size_bytes: config.segment_bytes, filling, after_chunk: &|file| self.ease(file) };
        match prepare_segment(&**disk, layout, id, &fill) {
            Ok(segment) => locked(ring).spares.push_back(segment),
            Err(error) if is_no_room(&error) || is_out_of_handles(&error) => {
                self.no_room = true;
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        self.no_room = false;
        Ok(true)
    }

    /// Lets commits pass while a file is filled: without this, a commit would wait until all of the file is on the disk.
    /// Does nothing if the writer has no spare.
    fn ease(&self, file: &dyn DiskFile) -> io::Result<()> {
        let has_spare = !locked(&self.shared.ring).spares.is_empty();
        if self.may_pause && has_spare && !self.shared.bell.is_closing() {
            file.sync()?;
            std::thread::sleep(FILL_PAUSE);
        }
        Ok(())
    }

    fn lacks_spare(&self) -> bool {
        let ring = locked(&self.shared.ring);
        let in_full = self.no_room || self.shared.space() < Space::RejectSends;
        let wanted = if in_full { ring.spares_wanted() } else { 1 };
        ring.spares.len() < wanted
    }

    fn is_over_total(&self) -> bool {
        let after = self.total_bytes() + self.shared.config.segment_bytes;
        self.shared.config.total_bytes_max.is_some_and(|max| after > max)
    }

    fn total_bytes(&self) -> u64 {
        locked(&self.shared.ring).total_bytes() + self.shared.usage.total_bytes()
    }

    /// Wakes a stalled writer if there is a spare: the writer may have stalled just before a segment was added.
    fn end_stall(&self) {
        let has_spare = !locked(&self.shared.ring).spares.is_empty();
        if has_spare && self.shared.queue.stalled.load(Ordering::Relaxed) {
            self.shared.queue.poke();
        }
    }

    fn watch_space(&self) {
        let free_bytes = match self.shared.disk.free_bytes(self.shared.root()) {
            Ok(free_bytes) => free_bytes,
            Err(error) => {
                tracing::warn!(%error, "the free space is unknown; going on with what was known before");
                return;
            }
        };
        let figures = self.figures(free_bytes);
        let (before, now) = (self.shared.space(), figures.space(&self.shared.config));
        if before != now {
            tracing::warn!(
                ?before,
                ?now,
                free_bytes,
                total_bytes = figures.total_bytes,
                "the space has changed"
            );
            self.shared.set_space(now);
            if now < before {
                // Segments that were held back can be prepared.
                self.shared.bell.ring();
            }
        }
        self.keep_reserve(now, free_bytes);
    }

    fn figures(&self, free_bytes: u64) -> Figures {
        let total_bytes = self.total_bytes();
        let ring = locked(&self.shared.ring);
        // Surplus spares are given up when space is short. They count as free space, so that giving them up does not
        // change the level.
        let surplus =
            ring.spares.iter().skip(self.shared.config.spares_min).map(|spare| spare.size_bytes).sum();
        Figures {
            free_bytes: free_bytes.saturating_add(surplus),
            total_bytes: total_bytes.saturating_sub(surplus),
            ring_bytes: ring.live_bytes(),
            spare_count: ring.spares.len(),
            no_room: self.no_room,
        }
    }

    /// Creates or removes the reserve: space for snapshots and moved bodies. It is freed when only they can free space.
    fn keep_reserve(&self, space: Space, free_bytes: u64) {
        let Shared { disk, layout, config, usage, .. } = &*self.shared;
        let held = usage.reserve_bytes.load(Ordering::Relaxed) > 0;
        let roomy = free_bytes > config.free_bytes_soft.saturating_add(config.reserve_bytes);
        let changed = match space {
            Space::OnlySettle if held => disk.remove(&layout.reserve()).map(|()| 0),
            Space::Enough if !held && roomy && config.reserve_bytes > 0 => {
                let fill = Fill {
                    size_bytes: config.reserve_bytes,
                    filling: Filling::Zeros,
                    after_chunk: &|file| self.ease(file),
                };
                let made = make_file(&**disk, &layout.reserve(), &fill);
                made.map(|_| config.reserve_bytes)
            }
            _ => return,
        };
        match changed {
            Ok(bytes) => usage.reserve_bytes.store(bytes, Ordering::Relaxed),
            Err(error) => tracing::warn!(%error, "the reserve file could not be changed"),
        }
    }

    /// Requests that owners give up the oldest groups. Groups of idle shards keep old segments in use as much as those
    /// of busy shards, so the request goes to every owner.
    fn ask_owners(&self) {
        let limit = self.ring_bytes_limit();
        let ring = locked(&self.shared.ring);
        let live = ring.live_bytes();
        let mut excess = live.saturating_sub(limit);
        if excess > 0 {
            // The request is for slightly more than needed, so that it is not repeated for every segment.
            excess += limit / 8;
        }
        if self.shared.space() != Space::Enough {
            excess = excess.max(live / 2);
        }
        let newest = ring.newest_within_oldest(excess);
        drop(ring);
        for (id, group) in newest {
            self.shared.shard(id).ask(group);
        }
    }
}

/// The figures that determine the space level.
#[derive(Clone, Copy, Debug)]
struct Figures {
    free_bytes: u64,
    total_bytes: u64,
    ring_bytes: u64,
    spare_count: usize,
    no_room: bool,
}

impl Figures {
    fn space(&self, config: &WalConfig) -> Space {
        let left = config.total_bytes_max.map_or(u64::MAX, |max| max.saturating_sub(self.total_bytes));
        if self.free_bytes < config.free_bytes_hard
            || left < config.segment_bytes
            || (self.no_room && self.spare_count == 0)
        {
            return Space::OnlySettle;
        }
        let margin = config.total_bytes_max.map_or(0, |max| (max / 8).max(2 * config.segment_bytes));
        if self.free_bytes < config.free_bytes_soft || left < margin || self.no_room {
            return Space::RejectSends;
        }
        if self.ring_bytes > config.ring_bytes_max { Space::Behind } else { Space::Enough }
    }
}

/// The contents of a new file. In both cases it reads as zeros and all of its space is allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filling {
    /// All blocks are written once. A commit into them changes no metadata.
    Zeros,
    /// The blocks are allocated but not written. A commit then also updates metadata, which doubles the cost of a small
    /// commit, but a large commit costs less than writing the blocks twice.
    Reserved,
}

/// The size and contents of a new file.
pub(crate) struct Fill<'a> {
    pub(crate) size_bytes: u64,
    pub(crate) filling: Filling,
    /// Is called after each chunk of zeros.
    pub(crate) after_chunk: &'a dyn Fn(&dyn DiskFile) -> io::Result<()>,
}

pub(crate) fn prepare_segment(
    disk: &dyn Disk,
    layout: &Layout,
    id: u64,
    fill: &Fill<'_>,
) -> io::Result<Segment> {
    let draft = layout.segment_draft();
    let file = make_file(disk, &draft, fill)?;
    disk.rename(&draft, &layout.segment(id))?;
    disk.sync_dir(&layout.wal_dir())?;
    Ok(Segment { id, size_bytes: fill.size_bytes, file })
}

/// Creates a file. Leaves nothing after a failure: on a full disk, an unfinished file would take space.
fn make_file(disk: &dyn Disk, path: &Path, fill: &Fill<'_>) -> io::Result<Arc<dyn DiskFile>> {
    let file = disk.create(path)?;
    let written = fill.write(&*file).and_then(|()| file.sync());
    if let Err(error) = written {
        // An error of the removal is ignored: the first error is reported.
        let _ = disk.remove(path);
        return Err(error);
    }
    Ok(file)
}

impl Fill<'_> {
    fn write(&self, file: &dyn DiskFile) -> io::Result<()> {
        if self.filling == Filling::Reserved && file.reserve(self.size_bytes)? {
            return Ok(());
        }
        let zeros = vec![0; usize::try_from(FILL_BYTES.min(self.size_bytes)).unwrap_or(0)];
        let mut at = 0;
        while at < self.size_bytes {
            let now = zeros.len().min(usize::try_from(self.size_bytes - at).unwrap_or(usize::MAX));
            write_all(file, zeros.get(..now).unwrap_or(&zeros), at)?;
            at += now as u64;
            (self.after_chunk)(file)?;
        }
        Ok(())
    }
}
