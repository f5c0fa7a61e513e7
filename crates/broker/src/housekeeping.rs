//! Snapshots, trimming and evacuation: what keeps the log short while the shard serves.

use std::time::Duration;

use bytes::Bytes;
use peeklock_engine::{Engine, Evacuate, LiveBody};
use peeklock_journal::{Evacuation, Log, Poisoned, ReadError, SnapshotError, StoredBody};
use peeklock_types::{BodyRef, GroupNumber};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How many bodies one evacuation step moves.
const EVACUATE_COUNT_MAX: usize = 1024;
/// After a step failed (no room, say), a pause instead of trying in a loop.
const RETRY_AFTER: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Housekeeping {
    snapshot: SnapshotStep,
    /// The newest snapshot that is safe.
    snapshot_upto: GroupNumber,
    evacuation: Option<RunningEvacuation>,
    /// A cold segment in which nothing live was found; what is left of it waits to be forgotten.
    emptied: Option<u32>,
    /// A report on its way: until it is there the log keeps asking for what is done already.
    is_reporting: bool,
    /// After a failure, when to try again.
    not_before: Option<Instant>,
}

#[derive(Default)]
enum SnapshotStep {
    #[default]
    Idle,
    /// Taken from memory; the log must hold it all before it may replace the log.
    Taken {
        trim: Trim,
        payload: Bytes,
    },
    Writing {
        trim: Trim,
        done: JoinHandle<Result<(), SnapshotError>>,
    },
    /// Safe; the log has not been told yet.
    Written,
}

#[derive(Clone, Copy)]
pub(crate) struct Trim {
    pub(crate) upto: GroupNumber,
    pub(crate) bodies_upto: GroupNumber,
}

struct RunningEvacuation {
    bodies: Vec<LiveBody>,
    /// What is copied. A body that several messages have is copied once.
    places: Vec<BodyRef>,
    done: JoinHandle<Result<Vec<BodyRef>, ReadError>>,
}

/// A body that now lies in a second place too. `None`: it did so before.
pub(crate) struct Moved {
    pub(crate) body: LiveBody,
    pub(crate) to: Option<BodyRef>,
}

/// What a background step has brought.
pub(crate) enum Done {
    /// A snapshot is safe: the log before it may go.
    Trim(Trim),
    Moved(Vec<Moved>),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HousekeepingError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Evacuate(#[from] ReadError),
}

/// The newest group that holds no body which a message still needs, nor any group before it.
pub(crate) fn bodies_upto(engine: &mut Engine, appended: GroupNumber) -> GroupNumber {
    engine.oldest_log_body().map_or(appended, |oldest| GroupNumber(oldest.0.saturating_sub(1)))
}

fn range(wanted: Evacuation) -> Evacuate {
    match wanted {
        Evacuation::Groups { upto } => Evacuate::Groups { upto },
        Evacuation::Cold { segment } => Evacuate::Cold { segment },
    }
}

impl HousekeepingError {
    /// A message was settled, and its body given back, while the body was on its way to another place.
    pub(crate) fn is_overtaken(&self) -> bool {
        matches!(self, HousekeepingError::Evacuate(ReadError::Gone(_)))
    }

    /// Whether the whole log has failed, not just this step.
    pub(crate) fn poisoned(&self) -> Option<Poisoned> {
        match self {
            HousekeepingError::Snapshot(SnapshotError::Poisoned(poisoned))
            | HousekeepingError::Evacuate(ReadError::Poisoned(poisoned)) => Some(poisoned.clone()),
            HousekeepingError::Snapshot(_) | HousekeepingError::Evacuate(_) => None,
        }
    }
}

impl Housekeeping {
    /// For a shard whose log starts after the snapshot `upto`.
    pub(crate) fn new(upto: GroupNumber) -> Self {
        Housekeeping { snapshot_upto: upto, ..Housekeeping::default() }
    }

    /// Does what the log asks for. `appended` is the newest group; `may_snapshot` says that every fact so far is in it or before it. Returns
    /// what the log should hear once everything decided so far is durable.
    pub(crate) fn start<L: Log>(
        &mut self,
        engine: &mut Engine,
        log: &mut L,
        appended: GroupNumber,
        may_snapshot: bool,
    ) -> Option<Trim> {
        if self.not_before.is_some_and(|at| Instant::now() < at) {
            return None;
        }
        if may_snapshot
            && matches!(self.snapshot, SnapshotStep::Idle)
            && log.wants_snapshot()
            && appended > self.snapshot_upto
        {
            let trim = Trim { upto: appended, bodies_upto: bodies_upto(engine, appended) };
            self.snapshot = SnapshotStep::Taken { trim, payload: engine.snapshot().into() };
        }
        self.write_snapshot(log);
        self.start_evacuation(engine, log, appended)
    }

    fn write_snapshot<L: Log>(&mut self, log: &mut L) {
        self.snapshot = match std::mem::take(&mut self.snapshot) {
            SnapshotStep::Taken { trim, payload } if trim.upto <= log.watermark() => {
                SnapshotStep::Writing { trim, done: tokio::spawn(log.put_snapshot(trim.upto, payload)) }
            }
            other => other,
        };
    }

    fn start_evacuation<L: Log>(
        &mut self,
        engine: &mut Engine,
        log: &mut L,
        appended: GroupNumber,
    ) -> Option<Trim> {
        if self.evacuation.is_some() || self.is_reporting {
            return None;
        }
        let wanted = log.wants_evacuation()?;
        if matches!(wanted, Evacuation::Cold { segment } if self.emptied == Some(segment)) {
            return None;
        }
        let bodies = engine.bodies_in(range(wanted), EVACUATE_COUNT_MAX);
        if bodies.is_empty() {
            return match wanted {
                Evacuation::Groups { .. } => Some(self.report(engine, appended)),
                Evacuation::Cold { segment } => {
                    self.emptied = Some(segment);
                    None
                }
            };
        }
        let mut seen = FxHashSet::default();
        let is_new = |body: &&LiveBody| engine.copy_of(body.place).is_none() && seen.insert(body.place);
        let stored = |body: &LiveBody| StoredBody { place: body.place, size_bytes: body.size_bytes };
        let stored: Vec<_> = bodies.iter().filter(is_new).map(stored).collect();
        let places = stored.iter().map(|body| body.place).collect();
        let done = tokio::spawn(log.evacuate(stored));
        self.evacuation = Some(RunningEvacuation { bodies, places, done });
        None
    }

    /// The state at the end, if the newest snapshot does not have it all.
    pub(crate) fn last_snapshot(&self, engine: &mut Engine, appended: GroupNumber) -> Option<(Trim, Bytes)> {
        let is_new = appended > self.snapshot_upto && matches!(self.snapshot, SnapshotStep::Idle);
        is_new.then(|| {
            let trim = Trim { upto: appended, bodies_upto: bodies_upto(engine, appended) };
            (trim, engine.snapshot().into())
        })
    }

    /// What the log may use again as things stand now, to be told once they are durable.
    pub(crate) fn report(&mut self, engine: &mut Engine, appended: GroupNumber) -> Trim {
        self.is_reporting = true;
        Trim { upto: self.snapshot_upto, bodies_upto: bodies_upto(engine, appended) }
    }

    /// The log was told.
    pub(crate) fn trimmed(&mut self) {
        self.is_reporting = false;
        if matches!(self.snapshot, SnapshotStep::Written) {
            self.snapshot = SnapshotStep::Idle;
        }
    }

    /// Cold bodies were forgotten: segments may look different now.
    pub(crate) fn forgotten(&mut self) {
        self.emptied = None;
    }

    /// Waits for a background step to end. Safe to cancel. Waits for ever if none runs.
    pub(crate) async fn step_done(&mut self) -> Result<Done, HousekeepingError> {
        tokio::select! {
            biased;
            result = snapshot_written(&mut self.snapshot) => {
                self.snapshot = if result.is_ok() { SnapshotStep::Written } else { SnapshotStep::Idle };
                self.retry_later(result.is_err());
                let trim = result?;
                self.snapshot_upto = trim.upto;
                Ok(Done::Trim(trim))
            }
            result = evacuated(&mut self.evacuation) => {
                let running = self.evacuation.take();
                self.retry_later(result.is_err());
                let copies = result?;
                Ok(Done::Moved(running.map(|running| moves(running, copies)).unwrap_or_default()))
            }
        }
    }

    fn retry_later(&mut self, has_failed: bool) {
        self.not_before = has_failed.then(|| Instant::now() + RETRY_AFTER);
    }
}

fn moves(running: RunningEvacuation, copies: Vec<BodyRef>) -> Vec<Moved> {
    let copies: FxHashMap<_, _> = running.places.into_iter().zip(copies).collect();
    let moved = |body: LiveBody| Moved { body, to: copies.get(&body.place).copied() };
    running.bodies.into_iter().map(moved).collect()
}

async fn snapshot_written(step: &mut SnapshotStep) -> Result<Trim, SnapshotError> {
    let SnapshotStep::Writing { trim, done } = step else { return std::future::pending().await };
    match done.await {
        Ok(result) => result.map(|()| *trim),
        Err(stopped) => {
            Err(SnapshotError::Io { path: String::new(), source: std::io::Error::other(stopped) })
        }
    }
}

async fn evacuated(running: &mut Option<RunningEvacuation>) -> Result<Vec<BodyRef>, ReadError> {
    let Some(running) = running else { return std::future::pending().await };
    match (&mut running.done).await {
        Ok(result) => result,
        Err(stopped) => Err(ReadError::Io { path: String::new(), source: std::io::Error::other(stopped) }),
    }
}
