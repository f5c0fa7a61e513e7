//! Opens the data directory and runs the threads that work on it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use peeklock_journal::{Journal, OpenError, Recovery, Space};
use peeklock_types::{CommitGroupNumber, Placement, ShardId};

use crate::cold::ColdStore;
use crate::config::WalConfig;
use crate::desk::Desk;
use crate::disk::{DirectoryLock, Disk, RealDisk, is_no_room};
use crate::keeper::{Fill, Filling, Keeper, prepare_segment};
use crate::layout::{Layout, number_in, text};
use crate::log::WalLog;
use crate::pool::Pools;
use crate::recovery::{self, Found};
use crate::replay::{Replay, Window};
use crate::ring::Ring;
use crate::segment::Segment;
use crate::shard::{Shard, SnapshotMark};
use crate::shared::Shared;
use crate::sim::{Chores, Driver, Work};
use crate::snapshot::Loaded;
use crate::writer::Writer;
use crate::{fetch, format, locked, snapshot};

/// The journal in one directory of a local disk. Clones are handles to the same journal. It closes when the last handle
/// and the last log are dropped.
#[derive(Clone)]
pub struct WalJournal {
    handle: Arc<Handle>,
}

pub(crate) struct Handle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) pools: Pools,
    /// Runs the writer, unless a driver does.
    pub(crate) desk: Option<Arc<Desk>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    lock: Mutex<Option<DirectoryLock>>,
}

/// Figures for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    pub commit_count: u64,
    pub group_count: u64,
    pub segment_count: usize,
    pub spare_count: usize,
    pub log_bytes: u64,
    pub cold_bytes: u64,
    pub snapshot_bytes: u64,
    pub space: Space,
}

pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = text(path);
    move |source| OpenError::Io { action, path, source }
}

impl WalJournal {
    /// Opens or creates a journal. Blocks while it reads the whole log, which may take a second after a crash under
    /// load.
    pub fn open(directory: impl AsRef<Path>, config: WalConfig) -> Result<Self, OpenError> {
        Self::open_on(Arc::new(RealDisk::default()), directory.as_ref(), config)
    }

    /// Opens or creates a journal on the given file layer.
    pub fn open_on(disk: Arc<dyn Disk>, directory: &Path, config: WalConfig) -> Result<Self, OpenError> {
        let Opened { shared, writer, lock } = prepare(disk, directory, config)?;
        let spawned = |action: &'static str| failed(action, directory);
        let (pools, mut threads) =
            Pools::start(&shared).map_err(spawned("starting readers and movers for"))?;
        let keeper = Keeper::new(Arc::clone(&shared));
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        threads.push(named("wal-keeper").spawn(|| keeper.run()).map_err(spawned("starting a keeper for"))?);
        let desk = Arc::new(Desk::new(Arc::clone(&shared), writer));
        let writing = Arc::clone(&desk);
        threads.push(
            named("wal-writer").spawn(move || writing.run()).map_err(spawned("starting a writer for"))?,
        );
        Ok(Self::assemble(shared, pools, Some(desk), threads, lock))
    }

    /// Opens a journal without threads. It works only when the driver is called, so that a simulated run is repeatable.
    pub fn open_driven(
        disk: Arc<dyn Disk>,
        directory: &Path,
        config: WalConfig,
    ) -> Result<(Self, Driver), OpenError> {
        let Opened { shared, writer, lock } = prepare(disk, directory, config)?;
        let driver = Driver::new(Arc::clone(&shared), writer, Keeper::new(Arc::clone(&shared)));
        Ok((Self::assemble(shared, Pools::inline(), None, Vec::new(), lock), driver))
    }

    /// Opens a journal without threads, in which reading and moving bodies also wait for the caller. They then take
    /// simulated time, during which other events can happen.
    pub fn open_idle(
        disk: Arc<dyn Disk>,
        directory: &Path,
        config: WalConfig,
    ) -> Result<(Self, Driver, Chores), OpenError> {
        let Opened { shared, writer, lock } = prepare(disk, directory, config)?;
        let driver = Driver::new(Arc::clone(&shared), writer, Keeper::new(Arc::clone(&shared)));
        let (pools, works) = Pools::handed_over();
        let [reads, moves, gathers] = works.map(|jobs| Work { jobs });
        Ok((Self::assemble(shared, pools, None, Vec::new(), lock), driver, Chores { reads, moves, gathers }))
    }

    fn assemble(
        shared: Arc<Shared>,
        pools: Pools,
        desk: Option<Arc<Desk>>,
        threads: Vec<JoinHandle<()>>,
        lock: DirectoryLock,
    ) -> Self {
        let (threads, lock) = (Mutex::new(threads), Mutex::new(Some(lock)));
        WalJournal { handle: Arc::new(Handle { shared, pools, desk, threads, lock }) }
    }

    /// Returns the id of the process that has, or last had, the directory open.
    pub fn owner_of(directory: impl AsRef<Path>) -> Option<u32> {
        let lock = Layout::new(directory.as_ref()).lock();
        std::fs::read_to_string(lock).ok()?.trim().parse().ok()
    }

    /// Returns the shards that have data in the directory.
    pub fn shards(&self) -> Vec<ShardId> {
        locked(&self.handle.shared.shards).keys().copied().collect()
    }

    pub fn stats(&self) -> Stats {
        let shared = &self.handle.shared;
        let ring = locked(&shared.ring);
        Stats {
            commit_count: shared.commit_count.load(Ordering::Relaxed),
            group_count: shared.group_count.load(Ordering::Relaxed),
            segment_count: ring.live.len(),
            spare_count: ring.spares.len(),
            log_bytes: ring.total_bytes(),
            cold_bytes: shared.usage.cold_bytes.load(Ordering::Relaxed),
            snapshot_bytes: shared.usage.snapshot_bytes.load(Ordering::Relaxed),
            space: shared.space(),
        }
    }

    /// Writes the waiting groups, ends the threads and unlocks the directory. Logs that still exist reject every call
    /// afterwards.
    pub fn close(&self) {
        self.handle.close();
    }
}

impl Handle {
    fn close(&self) {
        self.shared.queue.close();
        self.shared.bell.close();
        self.pools.close();
        // The lock is held to the end: a concurrent close must not unlock the directory before the threads have ended.
        let mut threads = locked(&self.threads);
        for thread in threads.drain(..) {
            // A thread that panicked has already stopped the journal.
            let _ = thread.join();
        }
        if let Some(desk) = &self.desk {
            desk.wait_until_free();
        }
        self.shared.stop("the journal is closed".to_owned());
        *locked(&self.lock) = None;
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

struct Opened {
    shared: Arc<Shared>,
    writer: Writer,
    lock: DirectoryLock,
}

fn prepare(disk: Arc<dyn Disk>, directory: &Path, config: WalConfig) -> Result<Opened, OpenError> {
    let (layout, config) = (Layout::new(directory), config.normalised());
    disk.create_dir_all(directory).map_err(failed("creating", directory))?;
    let lock = disk
        .lock(&layout.lock(), &format!("{}\n", std::process::id()))
        .map_err(failed("locking", &layout.lock()))?;
    let lock = lock.ok_or_else(|| OpenError::Locked { directory: text(directory) })?;
    let mut config = config;
    config.placement = format::settle(&*disk, &layout, config.placement)?;
    let Found { live, unused, next_id, end, next_commit, shards } = recovery::recover(&*disk, &layout)?;
    format::check_shards(&layout, config.placement, shards.keys().copied())?;
    if live.is_empty() {
        expect_no_log(&*disk, &layout)?;
    }
    remove_drafts(&*disk, &layout)?;
    let mut next_id = next_id;
    let spares = ready_spares(&*disk, &layout, &config, unused, !live.is_empty(), &mut next_id)?;
    let ring = Ring::new(live, spares, next_id, config.spares_min);
    let shared = Arc::new(Shared::new(disk, layout, config, ring));
    for (id, logged) in shards {
        locked(&shared.shards).insert(id, Arc::new(Shard::new(id, ColdStore::new(id), Some(logged))));
    }
    measure(&shared)?;
    let writer = Writer::new(Arc::clone(&shared), end, next_commit);
    Ok(Opened { shared, writer, lock })
}

/// Checks that a directory without a log has no snapshots or cold bodies. The segment that was written last is never
/// reused, so such a directory must have a log.
fn expect_no_log(disk: &dyn Disk, layout: &Layout) -> Result<(), OpenError> {
    let mut made_from_it = Vec::new();
    for id in numbered_dirs(disk, &layout.snapshot_root())? {
        made_from_it.push((layout.snapshot_dir(id), ".snap"));
    }
    for id in numbered_dirs(disk, &layout.cold_root())? {
        made_from_it.push((layout.cold_dir(id), ".seg"));
        made_from_it.push((layout.cold_dir(id), ".stream"));
    }
    for (directory, suffix) in made_from_it {
        let entries = disk.list(&directory).map_err(failed("listing", &directory))?;
        if let Some(entry) =
            entries.iter().find(|entry| number_in(&entry.name, suffix).is_some_and(|number| number > 0))
        {
            let what =
                format!("the log is missing, but {} was made from it", text(&directory.join(&entry.name)));
            return Err(OpenError::Corrupt { file: text(&layout.wal_dir()), offset: 0, what });
        }
    }
    Ok(())
}

/// Removes unfinished files of an earlier run. Nothing refers to them.
fn remove_drafts(disk: &dyn Disk, layout: &Layout) -> Result<(), OpenError> {
    let mut drafts = vec![layout.segment_draft()];
    drafts.extend(
        numbered_dirs(disk, &layout.snapshot_root())?.into_iter().map(|id| layout.snapshot_draft(id)),
    );
    for draft in drafts {
        match disk.remove(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("removing", &draft)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn numbered_dirs(disk: &dyn Disk, directory: &Path) -> Result<Vec<ShardId>, OpenError> {
    let entries = disk.list(directory).map_err(failed("listing", directory))?;
    let numbers = entries.iter().filter_map(|entry| number_in(&entry.name, ""));
    Ok(numbers.filter_map(|number| u16::try_from(number).ok()).map(ShardId).collect())
}

/// Gives unused segments new ids. A segment may contain a torn commit under its old id, which must not be replayed.
fn ready_spares(
    disk: &dyn Disk,
    layout: &Layout,
    config: &WalConfig,
    mut unused: Vec<Segment>,
    has_log: bool,
    next_id: &mut u64,
) -> Result<VecDeque<Segment>, OpenError> {
    let is_small = |segment: &Segment| segment.size_bytes <= config.first_segment_bytes;
    unused.sort_by_key(|segment| !is_small(segment));
    let mut spares = VecDeque::new();
    if !unused.first().is_some_and(is_small) {
        spares.extend(first_segment(disk, layout, config, has_log, unused.is_empty(), next_id)?);
    }
    let changed = !unused.is_empty();
    for segment in unused {
        let old = layout.segment(segment.id);
        if spares.len() >= config.spares_max {
            disk.remove(&old).map_err(failed("removing", &old))?;
            continue;
        }
        let id = *next_id;
        *next_id += 1;
        disk.rename(&old, &layout.segment(id)).map_err(failed("renaming", &old))?;
        spares.push_back(Segment { id, ..segment });
    }
    if changed {
        disk.sync_dir(&layout.wal_dir()).map_err(failed("syncing", &layout.wal_dir()))?;
    }
    Ok(spares)
}

/// Prepares the first segment of this run, because every start writes into a new segment. It is small, so that the
/// first start is fast and many starts in a row do not fill the disk before the log can be trimmed. The keeper prepares
/// the other segments.
fn first_segment(
    disk: &dyn Disk,
    layout: &Layout,
    config: &WalConfig,
    has_log: bool,
    is_needed: bool,
    next_id: &mut u64,
) -> Result<Option<Segment>, OpenError> {
    if !is_needed && config.total_bytes_max.is_some() {
        // The existing spares already count towards the limit.
        return Ok(None);
    }
    let path = layout.segment(*next_id);
    let size_bytes = config.first_segment_bytes;
    let fill = Fill { size_bytes, filling: Filling::Zeros, after_chunk: &|_| Ok(()) };
    let prepare = || prepare_segment(disk, layout, *next_id, &fill);
    let is_full = |made: &io::Result<Segment>| made.as_ref().is_err_and(is_no_room);
    let mut made = prepare();
    if is_full(&made) && is_needed && disk.remove(&layout.reserve()).is_ok() {
        made = prepare();
    }
    if is_full(&made) && (has_log || !is_needed) {
        // The log is readable, and requests that free space need no new segment if the keeper can recycle one.
        tracing::warn!(path = text(&path), "there is no room for a new segment");
        return Ok(None);
    }
    let segment = made.map_err(failed("creating", &path))?;
    *next_id += 1;
    Ok(Some(segment))
}

/// Counts the cold segments and snapshots of all shards.
fn measure(shared: &Shared) -> Result<(), OpenError> {
    let Shared { disk, layout, usage, .. } = shared;
    for id in numbered_dirs(&**disk, &layout.cold_root())? {
        let bytes =
            shared.shard(id).cold.load(&**disk, layout).map_err(failed("listing", &layout.cold_dir(id)))?;
        usage.cold_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    for id in numbered_dirs(&**disk, &layout.snapshot_root())? {
        let bytes = snapshot::total_bytes(&**disk, layout, id)
            .map_err(failed("listing", &layout.snapshot_dir(id)))?;
        usage.snapshot_bytes.fetch_add(bytes, Ordering::Relaxed);
        shared.shard(id);
    }
    let entries = disk.list(&layout.root).map_err(failed("listing", &layout.root))?;
    let reserve = entries.iter().find(|entry| Path::new(&entry.name) == Path::new("RESERVE"));
    usage.reserve_bytes.store(reserve.map_or(0, |entry| entry.size_bytes), Ordering::Relaxed);
    Ok(())
}

impl Journal for WalJournal {
    type Log = WalLog;

    fn placement(&self) -> Placement {
        self.handle.shared.config.placement
    }

    async fn open(&self, id: ShardId) -> Result<(WalLog, Recovery), OpenError> {
        let shared = Arc::clone(&self.handle.shared);
        check_running(&shared)?;
        let shard = shared.shard(id);
        let (epoch, last) = fence(&shard);
        let mut progress = shard.progress.subscribe();
        // Groups that the earlier owner has appended become durable first, because they are part of the replay.
        let drained = progress.wait_for(|p| p.watermark >= last || p.stopped).await.map(|_| ());
        drained.map_err(|_| stopped_error(&shared, "the journal is closed"))?;
        check_running(&shared)?;
        let job = {
            let (shared, shard) = (Arc::clone(&shared), Arc::clone(&shard));
            move || take_over(&shared, &shard, epoch)
        };
        let done = self.handle.pools.readers.run(job).await;
        let (epoch, recovery) = done.map_err(|_| stopped_error(&shared, "the journal is closed"))??;
        Ok((WalLog::new(Arc::clone(&self.handle), shard, epoch), recovery))
    }
}

fn check_running(shared: &Shared) -> Result<(), OpenError> {
    shared.stopped().map_or(Ok(()), |poisoned| Err(stopped_error(shared, &poisoned.reason)))
}

fn stopped_error(shared: &Shared, reason: &str) -> OpenError {
    failed("opening a log in", shared.root())(io::Error::other(reason.to_owned()))
}

/// Fences every earlier owner.
fn fence(shard: &Shard) -> (u32, CommitGroupNumber) {
    let mut books = locked(&shard.books);
    books.epoch = books.epoch.saturating_add(1);
    let fenced = (books.epoch, books.last);
    shard.progress.send_modify(|progress| progress.epoch = fenced.0);
    fenced
}

/// Finds the newest snapshot and the groups after it, and checks that they fit together.
fn take_over(shared: &Shared, shard: &Shard, fenced_epoch: u32) -> Result<(u32, Recovery), OpenError> {
    let loaded = snapshot::load(&*shared.disk, &shared.layout, shard.id)?;
    let mark = loaded.newest.as_ref().map(|stored| stored.mark()).unwrap_or_default();
    let written_by = loaded.newest.as_ref().map_or(0, |stored| stored.epoch);
    check_unreadable(shared, shard, &loaded)?;
    let epoch = adopt(shard, mark, fenced_epoch, written_by)?;
    shard.cold.start_count(epoch);
    check_cover(shared, shard, mark, &loaded)?;
    check_chain(shared, shard, mark)?;
    let groups = Box::new(replay(shared, shard, mark.upto.next()));
    Ok((epoch, Recovery { snapshot: loaded.newest.map(|stored| stored.snapshot), groups }))
}

/// Checks that the log contains all groups that an unreadable snapshot covers. They may be stored nowhere else, and an
/// older state would otherwise pass for the newest one.
fn check_unreadable(shared: &Shared, shard: &Shard, loaded: &Loaded) -> Result<(), OpenError> {
    let Some(unreadable) = loaded.unreadable else { return Ok(()) };
    let books = locked(&shard.books);
    if books.oldest().is_some() && books.last >= unreadable {
        return Ok(());
    }
    let what = format!("the log of {} does not hold the groups up to {unreadable} any more", shard.id);
    Err(OpenError::Corrupt { file: text(&shared.layout.snapshot(shard.id, unreadable)), offset: 0, what })
}

/// Makes this open the owner of the shard, unless a later open has overtaken it. If the log has no groups of the shard,
/// the shard continues after its snapshot.
fn adopt(shard: &Shard, mark: SnapshotMark, fenced_epoch: u32, written_by: u32) -> Result<u32, OpenError> {
    let mut books = locked(&shard.books);
    if books.epoch != fenced_epoch {
        return Err(OpenError::AlreadyOpen(shard.id));
    }
    books.epoch = books.epoch.max(written_by.saturating_add(1));
    let epoch = books.epoch;
    let goes_on_after = (books.oldest().is_none() && books.last < mark.upto).then_some(mark.upto);
    if goes_on_after.is_some() {
        books.start_after(mark);
    }
    // The progress is sent under the lock, so that an earlier open cannot overwrite the progress of a later one.
    shard.progress.send_modify(|progress| {
        progress.epoch = epoch;
        progress.watermark = goes_on_after.unwrap_or(progress.watermark);
    });
    drop(books);
    shard.snapshot_taken(mark, 0);
    Ok(epoch)
}

/// Checks that the log continues from the snapshot to the newest group without a gap.
fn check_cover(shared: &Shared, shard: &Shard, mark: SnapshotMark, loaded: &Loaded) -> Result<(), OpenError> {
    let books = locked(&shard.books);
    let gap = |what: String| {
        let unreadable = loaded.unreadable.map(|upto| shared.layout.snapshot(shard.id, upto));
        let file = unreadable.unwrap_or_else(|| shared.layout.snapshot_dir(shard.id));
        Err(OpenError::Corrupt { file: text(&file), offset: 0, what })
    };
    match books.oldest() {
        Some(oldest) if oldest > mark.upto.next() => {
            gap(format!("the snapshot ends with {}, the log of {} starts with {oldest}", mark.upto, shard.id))
        }
        _ if books.last < mark.upto => {
            gap(format!("the snapshot ends with {}, the log of {} with {}", mark.upto, shard.id, books.last))
        }
        _ => Ok(()),
    }
}

fn check_chain(shared: &Shared, shard: &Shard, mark: SnapshotMark) -> Result<(), OpenError> {
    let (last, chain) = {
        let books = locked(&shard.books);
        (books.last, books.chain)
    };
    let next = mark.upto.next();
    let read = |number| fetch::header(shared, shard, number).map_err(io::Error::other);
    let found = if last == mark.upto {
        Some(chain)
    } else {
        let header = read(next).map_err(failed("reading the log in", shared.root()))?;
        header.map(|header| header.group.previous)
    };
    if found == Some(mark.chain) {
        return Ok(());
    }
    let what = format!("{next} of {} does not continue what the snapshot before it covers", shard.id);
    Err(OpenError::Corrupt { file: text(&shared.layout.snapshot(shard.id, mark.upto)), offset: 0, what })
}

fn replay(shared: &Shared, shard: &Shard, from: CommitGroupNumber) -> Replay {
    let places = locked(&shard.books).places_from(from);
    let ring = locked(&shared.ring);
    let mut segments = BTreeMap::new();
    for place in &places {
        if let std::collections::btree_map::Entry::Vacant(entry) = segments.entry(place.segment())
            && let Some(segment) = ring.find(place.segment())
        {
            entry.insert(segment);
        }
    }
    drop(ring);
    Replay {
        layout: shared.layout.clone(),
        shard: shard.id,
        segments,
        next: from,
        places: places.into_iter(),
        window: Window::default(),
    }
}
