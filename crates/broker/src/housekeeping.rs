//! Snapshots, trimming and evacuation: what keeps the log short while the shard serves.

use bytes::Bytes;
use peeklock_engine::{Engine, Evacuate, LiveBody};
use peeklock_journal::{Evacuation, Log, ReadError, SnapshotError, StoredBody};
use peeklock_types::{BodyRef, GroupNumber};
use tokio::task::JoinHandle;

/// How many bodies one evacuation step moves.
const EVACUATE_COUNT_MAX: usize = 1024;

#[derive(Default)]
pub(crate) struct Housekeeping {
    snapshot: SnapshotStep,
    evacuation: Option<RunningEvacuation>,
}

#[derive(Default)]
enum SnapshotStep {
    #[default]
    Idle,
    /// Taken from memory; the log must hold it all before it may replace the log.
    Taken { trim: Trim, payload: Bytes },
    Writing { trim: Trim, done: JoinHandle<Result<(), SnapshotError>> },
}

#[derive(Clone, Copy)]
pub(crate) struct Trim {
    pub(crate) upto: GroupNumber,
    pub(crate) bodies_upto: GroupNumber,
}

struct RunningEvacuation {
    bodies: Vec<LiveBody>,
    done: JoinHandle<Result<Vec<BodyRef>, ReadError>>,
}

/// A body that now lies in a second place too.
pub(crate) struct Moved {
    pub(crate) body: LiveBody,
    pub(crate) to: BodyRef,
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

impl Housekeeping {
    /// Takes a snapshot if the log wants one. `appended` is the newest group; every fact so far must be in it or before it.
    pub(crate) fn start<L: Log>(&mut self, engine: &mut Engine, log: &mut L, appended: GroupNumber) {
        if matches!(self.snapshot, SnapshotStep::Idle) && log.wants_snapshot() {
            let trim = Trim { upto: appended, bodies_upto: bodies_upto(engine, appended) };
            self.snapshot = SnapshotStep::Taken { trim, payload: engine.snapshot().into() };
        }
        self.write_snapshot(log);
        self.start_evacuation(engine, log);
    }

    fn write_snapshot<L: Log>(&mut self, log: &mut L) {
        self.snapshot = match std::mem::take(&mut self.snapshot) {
            SnapshotStep::Taken { trim, payload } if trim.upto <= log.watermark() => {
                SnapshotStep::Writing { trim, done: tokio::spawn(log.put_snapshot(trim.upto, payload)) }
            }
            other => other,
        };
    }

    fn start_evacuation<L: Log>(&mut self, engine: &mut Engine, log: &mut L) {
        if self.evacuation.is_some() {
            return;
        }
        let Some(wanted) = log.wants_evacuation() else { return };
        let bodies = engine.bodies_in(range(wanted), EVACUATE_COUNT_MAX);
        if bodies.is_empty() {
            return;
        }
        let stored = bodies.iter().map(|b| StoredBody { place: b.place, size_bytes: b.size_bytes }).collect();
        self.evacuation = Some(RunningEvacuation { bodies, done: tokio::spawn(log.evacuate(stored)) });
    }

    /// Waits for a background step to end. Safe to cancel. Waits for ever if none runs.
    pub(crate) async fn step_done(&mut self) -> Result<Done, HousekeepingError> {
        tokio::select! {
            result = snapshot_written(&mut self.snapshot) => {
                self.snapshot = SnapshotStep::Idle;
                Ok(Done::Trim(result?))
            }
            result = evacuated(&mut self.evacuation) => {
                let bodies = self.evacuation.take().map(|running| running.bodies).unwrap_or_default();
                Ok(Done::Moved(bodies.into_iter().zip(result?).map(|(body, to)| Moved { body, to }).collect()))
            }
        }
    }
}

async fn snapshot_written(step: &mut SnapshotStep) -> Result<Trim, SnapshotError> {
    let SnapshotStep::Writing { trim, done } = step else { return std::future::pending().await };
    match done.await {
        Ok(result) => result.map(|()| *trim),
        Err(stopped) => Err(SnapshotError::Io { path: String::new(), source: std::io::Error::other(stopped) }),
    }
}

async fn evacuated(running: &mut Option<RunningEvacuation>) -> Result<Vec<BodyRef>, ReadError> {
    let Some(running) = running else { return std::future::pending().await };
    match (&mut running.done).await {
        Ok(result) => result,
        Err(stopped) => Err(ReadError::Io { path: String::new(), source: std::io::Error::other(stopped) }),
    }
}
