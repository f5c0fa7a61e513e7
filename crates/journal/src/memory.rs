//! A journal in memory, for tests, for simulations and for brokers without a disk. Its contents end with the process.
//!
//! Every group is durable at once, unless a test holds the watermark to separate "appended" from "durable".

mod faults;
mod large;
mod standalone;

use std::collections::{HashMap, VecDeque};
use std::future::{Future, ready};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use peeklock_types::{BodyPlace, BodyRange, CommitGroupNumber, Placement, ShardId, StoredBody};
use tokio::sync::watch;

use self::faults::Faults;
pub use self::large::{MemoryLargeBodies, MemoryLargeBody};
use self::standalone::StandaloneBodies;
use crate::{
    AppendError, BodyReader, Journal, Log, Move, OpenError, Payload, Poisoned, ReadError, Recovery, Snapshot,
    SnapshotError, Space, StoredGroup, run_bytes,
};

/// A journal in memory. Clones are handles to the same journal. To simulate a restart, drop a log and open it again.
#[derive(Clone, Debug)]
pub struct MemoryJournal {
    store: Arc<Store>,
}

#[derive(Debug)]
struct Store {
    backlog_bytes_max: usize,
    placement: Placement,
    settings: Mutex<Settings>,
    shards: Mutex<HashMap<ShardId, Arc<Shard>>>,
}

#[derive(Debug)]
struct Settings {
    held: bool,
    space: Space,
}

#[derive(Debug)]
struct Shard {
    state: Mutex<State>,
    progress: watch::Sender<Progress>,
    reads_held: watch::Sender<bool>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    watermark: CommitGroupNumber,
    epoch: u64,
    stopped: bool,
}

#[derive(Debug)]
struct State {
    epoch: u64,
    /// The number of the first element of `groups`.
    first: CommitGroupNumber,
    groups: VecDeque<Bytes>,
    backlog_bytes: usize,
    snapshot: Option<Snapshot>,
    /// The newest group that the owner has trimmed.
    trimmed: CommitGroupNumber,
    standalone: StandaloneBodies,
    stopped: Option<Poisoned>,
    asked: Option<BodyRange>,
    asked_snapshot: bool,
    faults: Faults,
}

/// The largest payload of a group. It exists so that tests meet a limit, as on a disk.
const GROUP_BYTES_MAX: usize = 15 * 1024 * 1024;
const BACKLOG_BYTES_MAX: usize = 64 * 1024 * 1024;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for MemoryJournal {
    fn default() -> Self {
        MemoryJournal::new()
    }
}

impl MemoryJournal {
    /// Creates an empty journal.
    pub fn new() -> Self {
        Self::with_backlog_bytes_max(BACKLOG_BYTES_MAX)
    }

    /// Creates an empty journal with this placement.
    pub fn with_placement(placement: Placement) -> Self {
        Self::build(BACKLOG_BYTES_MAX, placement)
    }

    /// Creates an empty journal that rejects appends as busy while more than `backlog_bytes_max` wait above the
    /// watermark of a shard.
    pub fn with_backlog_bytes_max(backlog_bytes_max: usize) -> Self {
        Self::build(backlog_bytes_max, Placement::default())
    }

    fn build(backlog_bytes_max: usize, placement: Placement) -> Self {
        let settings = Mutex::new(Settings { held: false, space: Space::Enough });
        let store = Store { backlog_bytes_max, placement, settings, shards: Mutex::default() };
        MemoryJournal { store: Arc::new(store) }
    }

    /// Holds every watermark at its current group. Opening a log while the watermark is held loses the groups above it,
    /// like a power failure.
    pub fn hold(&self) {
        locked(&self.store.settings).held = true;
    }

    /// Ends [`MemoryJournal::hold`]: all groups become durable.
    pub fn release(&self) {
        locked(&self.store.settings).held = false;
        self.each_shard(|shard, state| {
            if state.stopped.is_none() {
                state.backlog_bytes = 0;
                shard.progress.send_modify(|p| p.watermark = state.last());
            }
        });
    }

    /// Poisons every open log, like a failed sync. The groups above the watermark are lost. A log works again after it
    /// is opened again.
    pub fn poison(&self, reason: &str) {
        self.each_shard(|shard, state| {
            state.stopped = Some(Poisoned { reason: reason.to_owned() });
            state.drop_above(shard.progress.borrow().watermark);
            shard.progress.send_modify(|p| p.stopped = true);
        });
    }

    /// Sets the space that all logs report.
    pub fn set_space(&self, space: Space) {
        locked(&self.store.settings).space = space;
    }

    /// Makes the log of a shard want these bodies moved until the owner has trimmed or released them.
    pub fn ask_move(&self, shard: ShardId, bodies: BodyRange) {
        locked(&self.store.shard(shard).state).asked = Some(bodies);
    }

    /// Makes the log of a shard want its current standalone bodies moved until the owner has released them.
    pub fn ask_move_standalone(&self, shard: ShardId) {
        let mut places: Vec<_> = locked(&self.store.shard(shard).state).standalone.handles().collect();
        places.sort_unstable();
        if let (Some(first), Some(last)) = (places.first(), places.last()) {
            self.ask_move(shard, BodyRange::handles(*first, *last));
        }
    }

    /// Makes the log of a shard want a snapshot until the owner puts one.
    pub fn ask_snapshot(&self, shard: ShardId) {
        locked(&self.store.shard(shard).state).asked_snapshot = true;
    }

    /// Returns the size of the live standalone bodies of a shard.
    pub fn standalone_bytes(&self, shard: ShardId) -> u64 {
        locked(&self.store.shard(shard).state).standalone.live_bytes()
    }

    /// Returns the newest group that the owner of a shard has trimmed.
    pub fn trimmed(&self, shard: ShardId) -> CommitGroupNumber {
        locked(&self.store.shard(shard).state).trimmed
    }

    fn each_shard(&self, mut visit: impl FnMut(&Shard, &mut State)) {
        for shard in locked(&self.store.shards).values() {
            visit(shard, &mut locked(&shard.state));
        }
    }
}

impl Store {
    fn shard(&self, id: ShardId) -> Arc<Shard> {
        Arc::clone(locked(&self.shards).entry(id).or_insert_with(|| Arc::new(Shard::new())))
    }
}

impl Shard {
    fn new() -> Self {
        let state = State {
            epoch: 0,
            first: CommitGroupNumber::NONE.next(),
            groups: VecDeque::new(),
            backlog_bytes: 0,
            snapshot: None,
            trimmed: CommitGroupNumber::NONE,
            standalone: StandaloneBodies::default(),
            stopped: None,
            asked: None,
            asked_snapshot: false,
            faults: Faults::default(),
        };
        Shard {
            state: Mutex::new(state),
            progress: watch::Sender::new(Progress::default()),
            reads_held: watch::Sender::new(false),
        }
    }
}

impl State {
    fn last(&self) -> CommitGroupNumber {
        CommitGroupNumber(self.first.0 + self.groups.len() as u64 - 1)
    }

    fn drop_above(&mut self, watermark: CommitGroupNumber) {
        let keep = (watermark.0 + 1).saturating_sub(self.first.0);
        self.groups.truncate(usize::try_from(keep).unwrap_or(usize::MAX));
        self.backlog_bytes = 0;
    }

    fn group(&self, number: CommitGroupNumber) -> Option<&Bytes> {
        let at = number.0.checked_sub(self.first.0)?;
        self.groups.get(usize::try_from(at).ok()?)
    }

    fn body(&self, body: StoredBody) -> Option<Bytes> {
        let size = body.size_bytes as usize;
        match body.place.place() {
            BodyPlace::InGroup { group, offset_bytes } => {
                let start = offset_bytes as usize;
                let payload = self.group(group)?;
                (payload.len() >= start.checked_add(size)?).then(|| payload.slice(start..start + size))
            }
            BodyPlace::Standalone { handle } => self.standalone.body(handle).filter(|b| b.len() == size),
        }
    }

    fn check(&self, epoch: u64) -> Result<(), Poisoned> {
        if self.epoch != epoch {
            return Err(fenced());
        }
        self.stopped.clone().map_or(Ok(()), Err)
    }

    fn snapshot_upto(&self) -> CommitGroupNumber {
        self.snapshot.as_ref().map_or(CommitGroupNumber::NONE, |s| s.upto)
    }

    fn trim(&mut self, upto: CommitGroupNumber) {
        self.trimmed = self.trimmed.max(upto);
        let free_upto = self.trimmed.min(self.snapshot_upto());
        while self.first <= free_upto && self.groups.pop_front().is_some() {
            self.first = self.first.next();
        }
    }

    fn wants_moved(&self) -> Option<BodyRange> {
        let asked = self.asked.filter(|asked| match asked.last_group() {
            Some(upto) => self.trimmed < upto,
            None => self.standalone.has_any(*asked),
        });
        asked.or_else(|| self.standalone.mostly_dead())
    }

    /// Returns the groups after the newest snapshot.
    fn replay(&self) -> Vec<StoredGroup> {
        let first = self.first.max(self.snapshot_upto().next());
        (first.0..=self.last().0)
            .filter_map(|n| {
                self.group(CommitGroupNumber(n))
                    .map(|p| StoredGroup { number: CommitGroupNumber(n), payload: p.clone() })
            })
            .collect()
    }
}

impl Journal for MemoryJournal {
    type Log = MemoryLog;

    fn placement(&self) -> Placement {
        self.store.placement
    }

    fn open(&self, id: ShardId) -> impl Future<Output = Result<(MemoryLog, Recovery), OpenError>> + Send {
        let shard = self.store.shard(id);
        let mut state = locked(&shard.state);
        state.drop_above(shard.progress.borrow().watermark);
        state.epoch += 1;
        state.stopped = None;
        state.standalone.reopen();
        let (epoch, watermark) = (state.epoch, state.last());
        shard.progress.send_replace(Progress { watermark, epoch, stopped: false });
        let recovery = Recovery {
            snapshot: state.snapshot.clone(),
            groups: Box::new(state.replay().into_iter().map(Ok)),
        };
        drop(state);
        let log = MemoryLog {
            store: Arc::clone(&self.store),
            progress: shard.progress.subscribe(),
            shard,
            epoch,
            watermark,
        };
        ready(Ok((log, recovery)))
    }
}

/// The log of one shard of a [`MemoryJournal`].
#[derive(Debug)]
pub struct MemoryLog {
    store: Arc<Store>,
    shard: Arc<Shard>,
    progress: watch::Receiver<Progress>,
    epoch: u64,
    /// The newest durable group that this owner has seen. It is the watermark after a later owner has fenced this one.
    watermark: CommitGroupNumber,
}

impl MemoryLog {
    fn check(&self, state: &State) -> Result<(), Poisoned> {
        state.check(self.epoch)
    }
}

fn fenced() -> Poisoned {
    Poisoned { reason: "a newer owner has opened this log".to_owned() }
}

impl Log for MemoryLog {
    type BodyReader = MemoryBodyReader;
    type LargeBodies = MemoryLargeBodies;

    fn next_group(&self) -> CommitGroupNumber {
        locked(&self.shard.state).last().next()
    }

    fn append_alone(&mut self, payload: Payload) -> Result<CommitGroupNumber, AppendError> {
        self.append(payload)
    }

    fn append(&mut self, payload: Payload) -> Result<CommitGroupNumber, AppendError> {
        if payload.len() > GROUP_BYTES_MAX {
            return Err(AppendError::TooLarge { size_bytes: payload.len(), limit_bytes: GROUP_BYTES_MAX });
        }
        let held = locked(&self.store.settings).held;
        let mut state = locked(&self.shard.state);
        self.check(&state)?;
        if state.backlog_bytes > 0 && state.backlog_bytes + payload.len() > self.store.backlog_bytes_max {
            return Err(AppendError::Busy);
        }
        let size = payload.len();
        state.groups.push_back(payload.into_bytes());
        if held {
            state.backlog_bytes += size;
        } else {
            self.shard.progress.send_modify(|p| p.watermark = state.last());
        }
        Ok(state.last())
    }

    fn watermark(&self) -> CommitGroupNumber {
        let progress = self.progress.borrow();
        if progress.epoch == self.epoch { progress.watermark } else { self.watermark }
    }

    async fn durable(&mut self, seen: CommitGroupNumber) -> Result<CommitGroupNumber, Poisoned> {
        let epoch = self.epoch;
        let waited = self.progress.wait_for(|p| p.watermark > seen || p.stopped || p.epoch != epoch).await;
        let progress =
            waited.map(|p| *p).map_err(|_| Poisoned { reason: "the journal is gone".to_owned() })?;
        if progress.epoch == epoch && progress.watermark > seen {
            self.watermark = progress.watermark;
            return Ok(progress.watermark);
        }
        self.check(&locked(&self.shard.state)).map(|()| self.watermark)
    }

    fn reader(&self) -> MemoryBodyReader {
        MemoryBodyReader { shard: Arc::clone(&self.shard) }
    }

    fn large_bodies(&self) -> MemoryLargeBodies {
        MemoryLargeBodies {
            store: Arc::clone(&self.store),
            shard: Arc::clone(&self.shard),
            epoch: self.epoch,
        }
    }

    fn put_snapshot(
        &mut self,
        upto: CommitGroupNumber,
        payload: Payload,
    ) -> impl Future<Output = Result<(), SnapshotError>> + Send + 'static {
        let mut state = locked(&self.shard.state);
        let checked = self.check(&state);
        if checked.is_ok() && upto >= state.snapshot_upto() {
            state.snapshot = Some(Snapshot { upto, payload: payload.into_bytes() });
            state.asked_snapshot = false;
        }
        ready(checked.map_err(SnapshotError::from))
    }

    fn wants_snapshot(&self) -> bool {
        locked(&self.shard.state).asked_snapshot
    }

    fn trim(&mut self, upto: CommitGroupNumber) {
        let mut state = locked(&self.shard.state);
        if self.check(&state).is_ok() {
            state.trim(upto);
        }
    }

    fn adopt(&mut self, live: &[StoredBody]) {
        let mut state = locked(&self.shard.state);
        if self.check(&state).is_ok() {
            state.standalone.adopt(live);
        }
    }

    fn release(&mut self, bodies: &[StoredBody]) {
        let mut state = locked(&self.shard.state);
        if self.check(&state).is_ok() {
            bodies.iter().for_each(|body| state.standalone.release(*body));
        }
    }

    fn wants_moved(&self) -> Option<BodyRange> {
        locked(&self.shard.state).wants_moved()
    }

    fn move_bodies(
        &mut self,
        bodies: Move,
    ) -> impl Future<Output = Result<Vec<StoredBody>, ReadError>> + Send + 'static {
        let (shard, epoch) = (Arc::clone(&self.shard), self.epoch);
        async move {
            let mut state = locked(&shard.state);
            state.check(epoch)?;
            let (stream, copies) = match bodies {
                Move::Each(bodies) => (None, read_all(&state, &bodies)?),
                Move::Runs { stream, runs } => {
                    let copies: Result<Vec<Bytes>, _> =
                        runs.iter().map(|run| read_run(&state, run)).collect();
                    (Some(stream), copies?)
                }
            };
            Ok(copies.into_iter().map(|copy| state.standalone.push(stream, copy)).collect())
        }
    }

    fn space(&self) -> Space {
        locked(&self.store.settings).space
    }
}

/// Reads bodies of one shard of a [`MemoryJournal`].
#[derive(Clone, Debug)]
pub struct MemoryBodyReader {
    shard: Arc<Shard>,
}

fn read_all(state: &State, bodies: &[StoredBody]) -> Result<Vec<Bytes>, ReadError> {
    bodies.iter().map(|body| state.checked_body(*body)).collect()
}

fn read_run(state: &State, run: &[StoredBody]) -> Result<Bytes, ReadError> {
    run_bytes(run)?;
    Ok(read_all(state, run)?.concat().into())
}

impl MemoryBodyReader {
    /// Waits while reads are held, then reads with the injected faults.
    async fn read_from_disk<T>(
        self,
        look: impl FnOnce(&mut State) -> Result<(T, usize), ReadError>,
    ) -> Result<T, ReadError> {
        locked(&self.shard.state).faults.enter();
        let mut held = self.shard.reads_held.subscribe();
        let _ = held.wait_for(|is_held| !*is_held).await;
        let mut state = locked(&self.shard.state);
        state.faults.leave();
        state.faults.check()?;
        let (found, size_bytes) = look(&mut state)?;
        state.faults.note_read(size_bytes);
        Ok(found)
    }
}

impl BodyReader for MemoryBodyReader {
    fn try_read(&self, body: StoredBody) -> Option<Bytes> {
        let state = locked(&self.shard.state);
        if state.faults.is_cool { None } else { state.body(body) }
    }

    fn read(
        &self,
        bodies: Vec<StoredBody>,
    ) -> impl Future<Output = Result<Vec<Bytes>, ReadError>> + Send + 'static {
        self.clone().read_from_disk(move |state| {
            let found = read_all(state, &bodies)?;
            let size_bytes = found.iter().map(Bytes::len).sum();
            Ok((found, size_bytes))
        })
    }

    fn read_range(
        &self,
        body: StoredBody,
        range: Range<u32>,
    ) -> impl Future<Output = Result<Bytes, ReadError>> + Send + 'static {
        self.clone().read_from_disk(move |state| {
            let found = state.checked_body(body)?;
            let end = range.end.min(body.size_bytes) as usize;
            let part = found.slice((range.start as usize).min(end)..end);
            let size_bytes = part.len();
            Ok((part, size_bytes))
        })
    }
}
