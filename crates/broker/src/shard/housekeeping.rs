//! Housekeeping: takes snapshots, trims the log and moves bodies while the shard serves.

use std::time::Duration;

use peeklock_engine::LiveBody;
use peeklock_hubs::{Gather, GatherRun, StreamId};
use peeklock_journal::{Log, Move, Payload, Poisoned, ReadError, SnapshotError, StoredBody};
use peeklock_types::{BodyRange, BodyRef, CommitGroupNumber};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::shard::state::State;

/// The maximum number of bodies that one step moves.
const MOVE_COUNT_MAX: usize = 1024;
/// The maximum number of stream bytes that one step gathers, and the maximum size of the extents that it writes.
const GATHER_BYTES_MAX: u64 = 16 * 1024 * 1024;
const EXTENT_BYTES_MAX: u32 = 512 * 1024;
/// The pause before a retry after a step has failed, for example for lack of disk space.
const RETRY_AFTER: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Housekeeping {
    snapshot: SnapshotStep,
    /// The newest durable snapshot.
    snapshot_upto: CommitGroupNumber,
    moving: Option<RunningMove>,
    gathering: Option<JoinHandle<Gathering>>,
    pace: Pace,
    /// Whether a part of the log is damaged. A restart would fail there until a snapshot replaces the log.
    is_log_hurt: bool,
    /// A range of standalone bodies that are all dead, but are not released yet.
    emptied: Option<BodyRange>,
    /// Whether a report to the log is pending. Until it arrives, the log repeats requests that are already fulfilled.
    is_reporting: bool,
    /// The time of the next attempt after a failure.
    not_before: Option<Instant>,
}

#[derive(Default)]
enum SnapshotStep {
    #[default]
    Idle,
    /// The snapshot was taken from memory. The log must contain all of its facts before the snapshot may replace the
    /// log.
    Taken {
        trim: Trim,
        payload: Payload,
    },
    Writing {
        trim: Trim,
        done: JoinHandle<Result<(), SnapshotError>>,
    },
    /// The snapshot is durable. The log has not been trimmed yet.
    Written,
}

#[derive(Clone, Copy)]
pub(crate) struct Trim {
    pub(crate) upto: CommitGroupNumber,
    pub(crate) bodies_upto: CommitGroupNumber,
}

/// The size of one step. If a step fails on damage, the steps become smaller until the damaged body is identified, and
/// then grow again. The undamaged bodies are moved, and this module does not depend on the journal's checksums.
struct Pace {
    body_count: usize,
    gather_bytes: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { body_count: MOVE_COUNT_MAX, gather_bytes: GATHER_BYTES_MAX }
    }
}

struct RunningMove {
    bodies: Vec<LiveBody>,
    /// The places that are copied. A body that several messages share is copied once.
    places: Vec<BodyRef>,
    done: JoinHandle<Result<Vec<StoredBody>, ReadError>>,
}

/// A body that also has a copy in a second place. `to` is `None` if the body was copied before.
pub(crate) struct Moved {
    pub(crate) body: LiveBody,
    pub(crate) to: Option<BodyRef>,
}

/// Extents of a stream that also have a joint copy in a second place.
pub(crate) struct Gathered {
    pub(crate) stream: StreamId,
    pub(crate) run: GatherRun,
    pub(crate) to: StoredBody,
}

/// An extent that cannot be read any more.
pub(crate) struct LostExtent {
    pub(crate) stream: StreamId,
    pub(crate) sequence: u64,
    pub(crate) place: BodyRef,
    pub(crate) why: String,
}

/// The progress of a gathering.
struct Gathering {
    gathered: Vec<Gathered>,
    failed: Option<FailedGather>,
}

struct FailedGather {
    error: ReadError,
    stream: StreamId,
    runs: Vec<GatherRun>,
}

/// The result of a background step.
pub(crate) enum Done {
    /// A snapshot is durable, so the log before it can be trimmed.
    Trim(Trim),
    Moved(Vec<Moved>),
    /// The body that these messages share is damaged.
    Lost {
        bodies: Vec<LiveBody>,
        why: String,
    },
    Gathered {
        gathered: Vec<Gathered>,
        lost: Option<LostExtent>,
    },
    /// A body or extent of the step is damaged. The next, smaller step narrows the damage down.
    Narrowed,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum HousekeepingError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Move(#[from] ReadError),
}

impl HousekeepingError {
    /// Returns whether a message was settled, and its body released, while the body was being moved.
    pub(crate) fn is_overtaken(&self) -> bool {
        matches!(self, HousekeepingError::Move(ReadError::Gone(_)))
    }

    /// Returns the poison if the whole log has failed, not just this step.
    pub(crate) fn poisoned(&self) -> Option<Poisoned> {
        match self {
            HousekeepingError::Snapshot(SnapshotError::Poisoned(poisoned))
            | HousekeepingError::Move(ReadError::Poisoned(poisoned)) => Some(poisoned.clone()),
            HousekeepingError::Snapshot(_) | HousekeepingError::Move(_) => None,
        }
    }
}

impl Housekeeping {
    /// Returns the housekeeping of a shard whose log starts after the snapshot `upto`.
    pub(crate) fn new(upto: CommitGroupNumber) -> Self {
        Housekeeping { snapshot_upto: upto, ..Housekeeping::default() }
    }

    /// Starts the work that the log requests. `appended` is the newest group; `may_snapshot` means that every fact so
    /// far is in it or before it. Returns the report for the log, to be sent once everything decided so far is durable.
    pub(crate) fn start<L: Log>(
        &mut self,
        state: &mut State,
        log: &mut L,
        appended: CommitGroupNumber,
        may_snapshot: bool,
    ) -> Option<Trim> {
        if self.not_before.is_some_and(|at| Instant::now() < at) {
            return None;
        }
        if may_snapshot
            && matches!(self.snapshot, SnapshotStep::Idle)
            && (log.wants_snapshot() || self.is_log_hurt)
            && appended > self.snapshot_upto
        {
            let trim = Trim { upto: appended, bodies_upto: state.bodies_upto(appended) };
            self.is_log_hurt = false;
            self.snapshot = SnapshotStep::Taken { trim, payload: state.snapshot() };
        }
        self.write_snapshot(log);
        self.start_move(state, log, appended)
    }

    fn write_snapshot<L: Log>(&mut self, log: &mut L) {
        self.snapshot = match std::mem::take(&mut self.snapshot) {
            SnapshotStep::Taken { trim, payload } if trim.upto <= log.watermark() => {
                SnapshotStep::Writing { trim, done: tokio::spawn(log.put_snapshot(trim.upto, payload)) }
            }
            other => other,
        };
    }

    fn start_move<L: Log>(
        &mut self,
        state: &mut State,
        log: &mut L,
        appended: CommitGroupNumber,
    ) -> Option<Trim> {
        if self.moving.is_some() || self.gathering.is_some() {
            return None;
        }
        let wanted = log.wants_moved()?;
        if wanted.last_group().is_none() && (self.is_reporting || self.emptied == Some(wanted)) {
            return None;
        }
        let engine = &mut state.engine;
        let bodies = engine.bodies_in(wanted, self.pace.body_count);
        if bodies.is_empty() {
            return match wanted.last_group() {
                Some(upto) => self.start_gathering(state, log, appended, upto),
                None => {
                    self.emptied = Some(wanted);
                    None
                }
            };
        }
        let mut seen = FxHashSet::default();
        let is_new = |body: &&LiveBody| engine.copy_of(body.place).is_none() && seen.insert(body.place);
        let stored = |body: &LiveBody| StoredBody { place: body.place, size_bytes: body.size_bytes };
        let stored: Vec<_> = bodies.iter().filter(is_new).map(stored).collect();
        let places = stored.iter().map(|body| body.place).collect();
        let done = tokio::spawn(log.move_bodies(Move::Each(stored)));
        self.moving = Some(RunningMove { bodies, places, done });
        None
    }

    /// Moves extents of streams and joins neighbours. If there are no extents, the groups can be trimmed.
    fn start_gathering<L: Log>(
        &mut self,
        state: &mut State,
        log: &mut L,
        appended: CommitGroupNumber,
        upto: CommitGroupNumber,
    ) -> Option<Trim> {
        let wanted = state.hubs.extents_in(upto, self.pace.gather_bytes, EXTENT_BYTES_MAX);
        if wanted.is_empty() {
            return (!self.is_reporting).then(|| self.report(state, appended));
        }
        let mut copies = Vec::with_capacity(wanted.len());
        for Gather { stream, runs } in wanted {
            let stored =
                |(place, size_bytes): &(BodyRef, u32)| StoredBody { place: *place, size_bytes: *size_bytes };
            let bodies = runs.iter().map(|run| run.bodies.iter().map(stored).collect()).collect();
            let moved = Move::Runs { stream: stream.0.into(), runs: bodies };
            copies.push((stream, runs, log.move_bodies(moved)));
        }
        self.gathering = Some(tokio::spawn(async move {
            let mut gathered = Vec::new();
            for (stream, runs, copy) in copies {
                match copy.await {
                    Ok(bodies) => {
                        let done = runs.into_iter().zip(bodies);
                        gathered.extend(done.map(|(run, to)| Gathered { stream, run, to }));
                    }
                    // The extents that were copied before the failure count; the rest is retried.
                    Err(error) => {
                        return Gathering { gathered, failed: Some(FailedGather { error, stream, runs }) };
                    }
                }
            }
            Gathering { gathered, failed: None }
        }));
        None
    }

    /// Returns the final state, if the newest snapshot does not contain all of it.
    pub(crate) fn last_snapshot(
        &self,
        state: &mut State,
        appended: CommitGroupNumber,
    ) -> Option<(Trim, Payload)> {
        let is_new = appended > self.snapshot_upto && matches!(self.snapshot, SnapshotStep::Idle);
        is_new.then(|| {
            let trim = Trim { upto: appended, bodies_upto: state.bodies_upto(appended) };
            (trim, state.snapshot())
        })
    }

    /// Returns the parts of the log that can be reused at present. The log receives the report once the present state
    /// is durable.
    pub(crate) fn report(&mut self, state: &mut State, appended: CommitGroupNumber) -> Trim {
        self.is_reporting = true;
        Trim { upto: self.snapshot_upto, bodies_upto: state.bodies_upto(appended) }
    }

    /// Notes that the log has received the report.
    pub(crate) fn trimmed(&mut self) {
        self.is_reporting = false;
        if matches!(self.snapshot, SnapshotStep::Written) {
            self.snapshot = SnapshotStep::Idle;
        }
    }

    /// Notes that standalone bodies were released, so the journal may now request other ranges.
    pub(crate) fn released(&mut self) {
        self.emptied = None;
    }

    /// Waits for a background step to end, or for ever if none runs. The call is safe to cancel.
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
            result = copied(&mut self.moving) => {
                let running = self.moving.take();
                match (result, running) {
                    (Err(error @ ReadError::Corrupt { .. }), Some(running)) => {
                        Ok(self.narrow_move(running, &error))
                    }
                    (result, running) => {
                        self.retry_later(result.is_err());
                        let copies = result?;
                        self.pace.body_count = (self.pace.body_count * 2).min(MOVE_COUNT_MAX);
                        Ok(Done::Moved(running.map(|running| moves(running, copies)).unwrap_or_default()))
                    }
                }
            }
            Gathering { gathered, failed } = gathered(&mut self.gathering) => {
                self.gathering = None;
                match failed {
                    Some(FailedGather { error: error @ ReadError::Corrupt { .. }, stream, runs }) => {
                        let lost = self.narrow_gathering(stream, &runs, &error);
                        Ok(Done::Gathered { gathered, lost })
                    }
                    Some(FailedGather { error, .. }) => {
                        self.retry_later(true);
                        if gathered.is_empty() { Err(error.into()) } else { Ok(Done::Gathered { gathered, lost: None }) }
                    }
                    None => {
                        self.retry_later(false);
                        self.pace.gather_bytes = self.pace.gather_bytes.saturating_mul(2).min(GATHER_BYTES_MAX);
                        Ok(Done::Gathered { gathered, lost: None })
                    }
                }
            }
        }
    }

    /// Returns the messages that have lost their body, if only one body can be damaged; otherwise makes the next step
    /// smaller.
    fn narrow_move(&mut self, running: RunningMove, error: &ReadError) -> Done {
        let RunningMove { bodies, places, .. } = running;
        let [place] = places[..] else {
            self.pace.body_count = (bodies.len() / 2).max(1);
            return Done::Narrowed;
        };
        if self.pace.body_count > 1 {
            // The body has been read only once. It is read again before it is reported as damaged.
            self.pace.body_count = 1;
            return Done::Narrowed;
        }
        let bodies = bodies.into_iter().filter(|body| body.place == place).collect();
        Done::Lost { bodies, why: error.to_string() }
    }

    fn narrow_gathering(
        &mut self,
        stream: StreamId,
        runs: &[GatherRun],
        error: &ReadError,
    ) -> Option<LostExtent> {
        let [GatherRun { first_sequence, bodies }] = runs else {
            self.narrow_bytes(runs);
            return None;
        };
        let [(place, _)] = bodies[..] else {
            self.narrow_bytes(runs);
            return None;
        };
        if self.pace.gather_bytes > 1 {
            // The extent has been read only once. It is read again before it is reported as damaged.
            self.pace.gather_bytes = 1;
            return None;
        }
        Some(LostExtent { stream, sequence: *first_sequence, place, why: error.to_string() })
    }

    fn narrow_bytes(&mut self, runs: &[GatherRun]) {
        let size_bytes: u64 =
            runs.iter().flat_map(|run| &run.bodies).map(|(_, size_bytes)| u64::from(*size_bytes)).sum();
        self.pace.gather_bytes = (size_bytes.min(self.pace.gather_bytes) / 2).max(1);
    }

    /// Notes that a part of the log is damaged.
    pub(crate) fn hurt_log(&mut self) {
        self.is_log_hurt = true;
    }

    fn retry_later(&mut self, has_failed: bool) {
        self.not_before = has_failed.then(|| Instant::now() + RETRY_AFTER);
    }
}

fn moves(running: RunningMove, copies: Vec<StoredBody>) -> Vec<Moved> {
    let copies = copies.into_iter().map(|copy| copy.place);
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

async fn gathered(running: &mut Option<JoinHandle<Gathering>>) -> Gathering {
    let Some(running) = running else { return std::future::pending().await };
    running.await.unwrap_or_else(|stopped| {
        let error = ReadError::Io { path: String::new(), source: std::io::Error::other(stopped) };
        let failed = Some(FailedGather { error, stream: StreamId::default(), runs: Vec::new() });
        Gathering { gathered: Vec::new(), failed }
    })
}

async fn copied(running: &mut Option<RunningMove>) -> Result<Vec<StoredBody>, ReadError> {
    let Some(running) = running else { return std::future::pending().await };
    match (&mut running.done).await {
        Ok(result) => result,
        Err(stopped) => Err(ReadError::Io { path: String::new(), source: std::io::Error::other(stopped) }),
    }
}
