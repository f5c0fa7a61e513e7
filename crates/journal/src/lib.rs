//! What the broker asks of whoever keeps its facts, and a journal in memory that keeps the same promise.
//!
//! A journal knows shards, groups and bodies. It never knows what a group says.
//!
//! # The promise
//!
//! * **G1** Nothing at or below the watermark is lost.
//! * **G2** Groups of a shard are totally ordered and numbered without gaps; if a group fails, every later one fails.
//! * **G3** A group is there whole or not at all.
//! * **G4** After [`Journal::open`] returns, no older owner's append succeeds.
//! * **G5** An unknown outcome (failed sync, timeout) poisons the log: it refuses everything until it is opened again.
//! * **G6** What replay returned once, it returns always, until it is trimmed.
//! * **G7** The journal adds no clock and no randomness to what it keeps.

pub mod conformance;
mod memory;
mod payload;

use std::future::Future;
use std::ops::Range;

pub use self::payload::Payload;
use bytes::Bytes;
pub use memory::{MemoryBodyReader, MemoryJournal, MemoryLargeBodies, MemoryLargeBody, MemoryLog};
use peeklock_types::{BodyRef, CommitGroupNumber, ShardId};

/// A place where shards keep their logs.
pub trait Journal: Send + Sync + 'static {
    type Log: Log;

    /// Opens the log of `shard`, creates it if there is none, and fences every older owner of it.
    fn open(&self, shard: ShardId) -> impl Future<Output = Result<(Self::Log, Recovery), OpenError>> + Send;
}

/// What was found when a log was opened: the newest snapshot, then every group after it, in order.
pub struct Recovery {
    pub snapshot: Option<Snapshot>,
    pub groups: GroupStream,
}

/// Engine state as of the end of group `upto`.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub upto: CommitGroupNumber,
    pub payload: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredGroup {
    pub number: CommitGroupNumber,
    pub payload: Bytes,
}

/// Groups in order, without gaps, read lazily so that a long log never has to fit in memory.
pub type GroupStream = Box<dyn Iterator<Item = Result<StoredGroup, OpenError>> + Send>;

/// Ordered, durable groups of one shard.
pub trait Log: Send + 'static {
    type BodyReader: BodyReader;
    type LargeBodies: LargeBodies;

    /// The number that the next appended group will get.
    fn next_group(&self) -> CommitGroupNumber;

    /// Hands over one group. Returns at once; the group is durable when [`Log::durable`] says so. Groups become durable in call order.
    fn append(&mut self, payload: Payload) -> Result<CommitGroupNumber, AppendError>;

    /// The newest durable group.
    fn watermark(&self) -> CommitGroupNumber;

    /// Waits until the watermark is above `seen`, then returns it. Safe to cancel.
    fn durable(
        &mut self,
        seen: CommitGroupNumber,
    ) -> impl Future<Output = Result<CommitGroupNumber, Poisoned>> + Send;

    /// A handle for bodies that works beside appends, from any task.
    fn reader(&self) -> Self::BodyReader;

    /// A handle that writes large bodies beside appends, from any task.
    fn large_bodies(&self) -> Self::LargeBodies;

    /// Keeps `payload` as the state after group `upto`. Completes when it is durable and verified.
    fn put_snapshot(
        &mut self,
        upto: CommitGroupNumber,
        payload: Payload,
    ) -> impl Future<Output = Result<(), SnapshotError>> + Send + 'static;

    /// Whether the owner should take a snapshot and trim soon: much was appended since the last one, or groups that no snapshot covers keep
    /// old space from being used again. Cheap: may be asked for each batch.
    fn wants_snapshot(&self) -> bool;

    /// Says that replay will never start at or before `upto` again (a durable snapshot covers it), and that no live body lies in a group at
    /// or before `bodies_upto`. A hint: space at or below both may be used again, nothing else may. What was trimmed stays trimmed: a lower
    /// number than before changes nothing, and groups above the newest durable snapshot are kept whatever `upto` says.
    ///
    /// The first call after [`Journal::open`] also closes the count of live cold bodies: cold segments that nobody named through
    /// [`Log::remember_cold`] by then are removed. An owner that needs no trimming calls it once with [`CommitGroupNumber::NONE`].
    fn trim(&mut self, upto: CommitGroupNumber, bodies_upto: CommitGroupNumber);

    /// Which bodies the owner should move so that space can be used again, if any. See [`Log::evacuate`].
    fn wants_evacuation(&self) -> Option<Evacuation>;

    /// Copies bodies to cold segments and returns their new places, in order, once the copies are durable. The owner then journals the new
    /// places, and only after that is durable may it say through [`Log::trim`] or [`Log::forget_cold`] that the old ones are free.
    fn evacuate(
        &mut self,
        bodies: Vec<StoredBody>,
    ) -> impl Future<Output = Result<Vec<BodyRef>, ReadError>> + Send + 'static;

    /// Copies bodies to cold segments of `stream` alone, those of each run one behind the other as one body, and returns the new bodies in order
    /// once they are durable. Like [`Log::evacuate`] in all else.
    ///
    /// Many streams are gathered best by calling this for each of them and waiting then. A future that is dropped leaves nothing.
    ///
    /// A gathered body has at most [`GATHERED_BYTES_MAX`]. Segments of a stream go when nothing in them lives, and
    /// [`Log::wants_evacuation`] never names one: a stream is forgotten from its front, so they empty by themselves.
    fn gather(
        &mut self,
        stream: u64,
        runs: Vec<Vec<StoredBody>>,
    ) -> impl Future<Output = Result<Vec<StoredBody>, ReadError>> + Send + 'static;

    /// Counts bodies in cold segments as live: called once per live cold body after recovery, before the first [`Log::trim`].
    /// (`evacuate`, `gather` and [`LargeBody::finish`] count theirs themselves.)
    fn remember_cold(&mut self, bodies: &[StoredBody]);

    /// Says that bodies in cold segments are no longer needed, after the fact that settled or moved them is durable. A cold segment without
    /// live bodies is removed.
    fn forget_cold(&mut self, bodies: &[StoredBody]);

    /// How much room is left. Cheap: may be asked for each batch.
    fn space(&self) -> Space;
}

/// Reads bodies back.
pub trait BodyReader: Clone + Send + Sync + 'static {
    /// The body if it is in memory. Never blocks.
    fn try_read(&self, body: StoredBody) -> Option<Bytes>;

    /// The same for whoever may hold the body for long: a copy, if a slice would keep much more than the body in memory.
    fn try_read_apart(&self, body: StoredBody) -> Option<Bytes> {
        self.try_read(body)
    }

    /// The bodies, in order, from wherever they are. Neighbours are read together.
    fn read(
        &self,
        bodies: Vec<StoredBody>,
    ) -> impl Future<Output = Result<Vec<Bytes>, ReadError>> + Send + 'static;

    /// Some bytes of a body, so that a large one never has to be in memory whole. What lies behind its end is left out.
    fn read_range(
        &self,
        body: StoredBody,
        range: Range<u32>,
    ) -> impl Future<Output = Result<Bytes, ReadError>> + Send + 'static;
}

/// The most that a body may have which [`Log::gather`] makes: it is held in memory whole.
pub const GATHERED_BYTES_MAX: u32 = 8 * 1024 * 1024;

/// The size of the one body that [`Log::gather`] makes of a run.
pub fn gathered_bytes(run: &[StoredBody]) -> Result<u32, ReadError> {
    let size_bytes: u64 = run.iter().map(|body| u64::from(body.size_bytes)).sum();
    let fits = u32::try_from(size_bytes).ok().filter(|size| *size <= GATHERED_BYTES_MAX);
    fits.ok_or(ReadError::TooLarge { size_bytes, limit_bytes: GATHERED_BYTES_MAX })
}

/// Takes bodies that are too large for a group to cold segments of their own, piece by piece.
pub trait LargeBodies: Clone + Send + Sync + 'static {
    type Body: LargeBody;

    /// Begins a body. Refused when new messages are.
    fn start(&self) -> impl Future<Output = Result<Self::Body, BodyError>> + Send + 'static;
}

/// A large body in the making. One that is dropped before it is finished, or of which a call failed or was cancelled, is gone for good and
/// leaves nothing behind.
pub trait LargeBody: Send + 'static {
    /// Adds bytes behind those before.
    fn write(&mut self, pieces: Vec<Bytes>) -> impl Future<Output = Result<(), BodyError>> + Send;

    /// Completes when all of it is durable. It counts as live from then on: the owner of the log journals its place, or says through
    /// [`Log::forget_cold`] that nobody will. After a crash in between it is removed with all that nobody remembers.
    fn finish(self) -> impl Future<Output = Result<StoredBody, BodyError>> + Send;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBody {
    pub place: BodyRef,
    pub size_bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evacuation {
    /// Bodies in groups at or before this one.
    Groups { upto: CommitGroupNumber },
    /// Bodies in this cold segment, which is mostly dead.
    Cold { segment: u32 },
}

/// How much room is left, and so what may still be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    /// Everything.
    Enough,
    /// There is room, but the log has grown faster than it is tidied: new messages should come a little later.
    Behind,
    /// No new messages; receiving and settling go on.
    RejectSends,
    /// Only what frees space.
    OnlySettle,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "{file} is damaged at byte {offset}: {what}. Nothing was changed. Restore the data directory from a copy, or ask for help with this file"
    )]
    Corrupt { file: String, offset: u64, what: String },
    #[error(
        "the data directory {directory} is in use by another process; stop that one first, or choose another directory"
    )]
    Locked { directory: String },
    #[error(
        "the data directory {directory} has format {found}, this program knows up to {known}; use a newer version of the program"
    )]
    NewerFormat { directory: String, found: u32, known: u32 },
    #[error(
        "the data directory {directory} has format {found}, which was never released; this version reads format {known}. Use an empty data directory"
    )]
    OlderFormat { directory: String, found: u32, known: u32 },
    #[error("{action} {path}: {source}")]
    Io { action: &'static str, path: String, source: std::io::Error },
    #[error("{0} is open already")]
    AlreadyOpen(ShardId),
}

#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Too many bytes wait for the disk. Nothing was taken; try again when the watermark has moved, which it will: a log of which nothing
    /// waits is never busy.
    #[error("too many bytes wait for the disk")]
    Busy,
    #[error("a group of {size_bytes} bytes is over the limit of {limit_bytes}")]
    TooLarge { size_bytes: usize, limit_bytes: usize },
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// The log has failed and refuses every call; open it again to learn what survived.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the journal has stopped: {reason}")]
pub struct Poisoned {
    pub reason: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{file} is damaged at byte {offset}: {what}")]
    Corrupt { file: String, offset: u64, what: String },
    #[error("no body lies at {0:?}; its space was given back")]
    Gone(BodyRef),
    #[error("reading {path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error("no room for the copy: {0}")]
    NoSpace(String),
    #[error("bodies of {size_bytes} bytes were to be gathered into one, the limit is {limit_bytes}")]
    TooLarge { size_bytes: u64, limit_bytes: u32 },
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

/// Why a large body was not kept.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("no room for the body: {0}")]
    NoSpace(String),
    #[error("writing {path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error("a body of more than {limit_bytes} bytes")]
    TooLarge { limit_bytes: u32 },
    /// A call of it failed or was cancelled before.
    #[error("an earlier write of the body failed")]
    Lost,
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("writing the snapshot {path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error(transparent)]
    Poisoned(#[from] Poisoned),
}
