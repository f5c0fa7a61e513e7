//! The journal: the trait that stores a shard's records and bodies durably, an implementation in memory, and a
//! conformance suite.
//!
//! A journal stores *commit groups* and *bodies* of shards. It never interprets a payload, and it decides nothing about
//! messages or events: the owner of a shard reports which bodies live. The owner in turn does not depend on how a
//! journal stores bytes. Files, segments, streams of a replicated store, and their sizes are details of an
//! implementation.
//!
//! # The promise
//!
//! * **G1** A durable commit group is never lost. A group is durable when its number is at or below the watermark.
//! * **G2** The commit groups of a shard are totally ordered and numbered without gaps. If a group fails, every later
//!   group fails.
//! * **G3** Replay returns a commit group completely or not at all.
//! * **G4** After [`Journal::open`] returns, no append of an earlier owner becomes durable.
//! * **G5** An unknown outcome (a failed sync, a timeout) either gets resolved or poisons the log: the log then rejects
//!   every call until it is opened again.
//! * **G6** Replay returns the same groups every time, until the owner trims them.
//! * **G7** The journal adds no clock and no randomness to the data that it stores.
//!
//! # Commit groups
//!
//! The owner opens a log with [`Journal::open`], restores its state from the snapshot and the groups in [`Recovery`],
//! and then appends groups. [`Log::append`] returns at once. The owner waits for the watermark ([`Log::durable`])
//! before it releases any effect of the group.
//!
//! # Bodies
//!
//! The bytes of messages and events are called bodies. The owner refers to a body by a [`StoredBody`]: a [`BodyRef`]
//! and a size. There are two kinds of place:
//!
//! * **In a commit group**: the owner writes the body into the payload of a group, at a multiple of
//!   [`BodyRef::ALIGNMENT`], and builds the reference from [`Log::next_group`] and the offset. The body is readable as
//!   soon as `append` has returned.
//! * **Standalone**: the journal stores the body outside of commit groups and issues the reference
//!   ([`BodyRef::standalone`]). The handle in it belongs to the journal: it is unique among all standalone bodies of
//!   the shard that were ever stored, and only the journal interprets it. [`Log::move_bodies`] and
//!   [`LargeBody::finish`] create standalone bodies.
//!
//! The owner records every reference in its own commit groups and snapshots. The journal keeps a body until the owner
//! gives it up:
//!
//! | step | call |
//! | --- | --- |
//! | after recovery, once | [`Log::adopt`]: the standalone bodies that live. The journal removes all others. |
//! | a standalone body is no longer needed | [`Log::release`] |
//! | no body in the oldest commit groups is needed any more | [`Log::trim`] |
//! | the journal wants space back that live bodies occupy | [`Log::wants_moved`] names them, [`Log::move_bodies`] copies them; the owner records the new references and then gives up the old ones |
//!
//! Two rules keep bodies safe. The owner gives up a body only after the commit group that records the reason is
//! durable. The journal counts a standalone body as live from the moment at which it returns the reference; if a crash
//! prevents the owner from recording the reference, the next `adopt` does not name the body and the journal removes it.
//!
//! # Snapshots and trimming
//!
//! [`Log::put_snapshot`] stores the owner's state as of a commit group. Replay then starts after that group. The
//! journal may drop a commit group when two conditions are met: a durable snapshot covers it, and [`Log::trim`] has
//! reported that no body in it lives. It never drops any other group.

#![warn(missing_docs)]

pub mod conformance;
mod error;
mod group_head;
mod memory;
mod payload;

use std::future::Future;
use std::ops::Range;

use bytes::Bytes;
pub use peeklock_types::{BodyRange, BodyRef, StoredBody};
use peeklock_types::{CommitGroupNumber, Placement, ShardId};

pub use self::error::{AppendError, BodyError, OpenError, Poisoned, ReadError, SnapshotError};
pub use self::group_head::GroupHead;
pub use self::memory::{MemoryBodyReader, MemoryJournal, MemoryLargeBodies, MemoryLargeBody, MemoryLog};
pub use self::payload::Payload;

/// Stores the logs of shards.
pub trait Journal: Send + Sync + 'static {
    /// The log of one shard.
    type Log: Log;

    /// Returns the placement, which decides which shard owns a name. It belongs to the data and never changes.
    fn placement(&self) -> Placement;

    /// Opens the log of `shard`, creates it if there is none, and fences every earlier owner of it (G4).
    ///
    /// Groups that an earlier owner has appended either become durable before this call returns, and are part of the
    /// recovery, or never become durable.
    fn open(&self, shard: ShardId) -> impl Future<Output = Result<(Self::Log, Recovery), OpenError>> + Send;
}

/// The contents of a log when it was opened: the newest snapshot, then every commit group after it, in order.
pub struct Recovery {
    /// The newest snapshot, if there is one.
    pub snapshot: Option<Snapshot>,
    /// The groups after the snapshot, or all groups if there is no snapshot.
    pub groups: GroupStream,
}

/// The state of an owner as of the end of commit group `upto`.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The last group that the state includes.
    pub upto: CommitGroupNumber,
    /// The state, as it was passed to [`Log::put_snapshot`].
    pub payload: Bytes,
}

/// A commit group as replay returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredGroup {
    /// The number that [`Log::append`] returned for the group.
    pub number: CommitGroupNumber,
    /// The payload that was appended.
    pub payload: Bytes,
}

/// Iterates over commit groups in order and without gaps. Reads lazily, so that a long log does not have to fit into
/// memory.
pub type GroupStream = Box<dyn Iterator<Item = Result<StoredGroup, OpenError>> + Send>;

/// Stores the commit groups and bodies of one shard for its owner.
///
/// Every method except [`Log::next_group`] and [`Log::watermark`] has no effect or fails after a later owner has opened
/// the log (G4) or after the log was poisoned (G5).
pub trait Log: Send + 'static {
    /// Reads bodies of this log.
    type BodyReader: BodyReader;
    /// Writes large bodies of this log.
    type LargeBodies: LargeBodies;

    /// Returns the number that the next appended group will get. The first group of a shard is number 1.
    fn next_group(&self) -> CommitGroupNumber;

    /// Takes over one commit group and returns its number at once.
    ///
    /// Groups become durable in the order of these calls. An error means that the group was not taken, and that its
    /// number will be used by the next group.
    fn append(&mut self, payload: Payload) -> Result<CommitGroupNumber, AppendError>;

    /// Takes over one commit group like [`Log::append`], from an owner that has nothing else to do until the group is
    /// durable. The log may block the calling thread while it writes the group, which is faster than a wait for
    /// [`Log::durable`] in another thread.
    fn append_alone(&mut self, payload: Payload) -> Result<CommitGroupNumber, AppendError>;

    /// Returns the newest durable group, or [`CommitGroupNumber::NONE`].
    fn watermark(&self) -> CommitGroupNumber;

    /// Waits until the watermark is above `seen` and returns it. The call is safe to cancel. It fails when the log is
    /// poisoned or fenced, because the watermark will not rise again.
    fn durable(
        &mut self,
        seen: CommitGroupNumber,
    ) -> impl Future<Output = Result<CommitGroupNumber, Poisoned>> + Send;

    /// Returns a handle that reads bodies. It works from any task, in parallel with appends.
    fn reader(&self) -> Self::BodyReader;

    /// Returns a handle that writes large bodies. It works from any task, in parallel with appends.
    fn large_bodies(&self) -> Self::LargeBodies;

    /// Stores `payload` as the state after group `upto`, which must be durable. Completes when the snapshot is durable
    /// and verified.
    ///
    /// Replay starts after `upto` from then on. A snapshot that is older than the newest one is accepted and ignored.
    fn put_snapshot(
        &mut self,
        upto: CommitGroupNumber,
        payload: Payload,
    ) -> impl Future<Output = Result<(), SnapshotError>> + Send + 'static;

    /// Returns whether the owner should put a snapshot and trim soon, because replay would take long or because
    /// uncovered groups occupy space that is needed. The call is cheap: an owner may make it for every batch.
    fn wants_snapshot(&self) -> bool;

    /// Reports the standalone bodies that live. The owner calls it exactly once, after recovery and before the first
    /// call of [`Log::release`].
    ///
    /// The journal removes every standalone body that it stored before `open` and that is not in `live`. Bodies that it
    /// has stored since `open` live without being named.
    fn adopt(&mut self, live: &[StoredBody]);

    /// Gives up standalone bodies. Bodies in commit groups are ignored.
    ///
    /// A later read returns the bytes until the journal has removed the body, and [`ReadError::Gone`] from then on. The
    /// journal removes a large body at once. It removes copies at the latest when all copies of the stream, or all
    /// copies of [`Move::Each`], are released.
    fn release(&mut self, bodies: &[StoredBody]);

    /// Gives up the bodies in commit groups up to and including `upto`.
    ///
    /// The journal may drop those groups as far as a durable snapshot covers them. A lower number than in an earlier
    /// call has no effect.
    fn trim(&mut self, upto: CommitGroupNumber);

    /// Returns a range whose live bodies the owner should move, if the journal wants space back. The call is cheap: an
    /// owner may make it for every batch.
    ///
    /// For a range of commit groups the owner moves all live bodies of the range with [`Log::move_bodies`], or waits
    /// until they are no longer needed, and then calls [`Log::trim`] with [`BodyRange::last_group`] or a higher group.
    /// For a range of standalone bodies the owner moves the live ones and releases the old ones. The journal returns
    /// the same range until this has happened.
    fn wants_moved(&self) -> Option<BodyRange>;

    /// Copies bodies to new standalone bodies and returns the new ones, in order, once all of them are durable.
    ///
    /// The new bodies live at once. The owner records the new references, and gives up the old bodies when the record
    /// is durable. If the call fails or its future is dropped, no new body remains. Several calls may run at the same
    /// time.
    fn move_bodies(
        &mut self,
        bodies: Move,
    ) -> impl Future<Output = Result<Vec<StoredBody>, ReadError>> + Send + 'static;

    /// Returns how much space is left. The call is cheap: an owner may make it for every batch.
    fn space(&self) -> Space;
}

/// The bodies that [`Log::move_bodies`] copies. The variant predicts how the copies will be released, so that a journal
/// can store bodies together that are released together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// Copies each body by itself. The copies are released in any order.
    Each(Vec<StoredBody>),
    /// Concatenates the bodies of each run to one body of at most [`RUN_BYTES_MAX`].
    ///
    /// A stream is released from its front. Therefore [`Log::wants_moved`] never names copies of a stream.
    Runs {
        /// Identifies the stream among all streams of the shard. Copies of different streams do not share space.
        stream: u64,
        /// One run for each copy. A run may be empty.
        runs: Vec<Vec<StoredBody>>,
    },
}

/// The largest body that [`Log::move_bodies`] makes of a run. A journal may hold such a body in memory as a whole.
pub const RUN_BYTES_MAX: u32 = 8 * 1024 * 1024;

/// Returns the size of the body that [`Log::move_bodies`] makes of a run.
pub fn run_bytes(run: &[StoredBody]) -> Result<u32, ReadError> {
    let size_bytes: u64 = run.iter().map(|body| u64::from(body.size_bytes)).sum();
    let fits = u32::try_from(size_bytes).ok().filter(|size| *size <= RUN_BYTES_MAX);
    fits.ok_or(ReadError::TooLarge { size_bytes, limit_bytes: RUN_BYTES_MAX })
}

/// Reads bodies of both kinds, including bodies of groups that are not durable yet.
pub trait BodyReader: Clone + Send + Sync + 'static {
    /// Returns the body if it is in memory. Never blocks.
    fn try_read(&self, body: StoredBody) -> Option<Bytes>;

    /// Returns the body if it is in memory, for a caller that may hold it for long. Copies the body if a slice would
    /// keep much more memory alive than the body needs.
    fn try_read_apart(&self, body: StoredBody) -> Option<Bytes> {
        self.try_read(body)
    }

    /// Reads bodies and returns them in order. Fails as a whole if one of them cannot be read.
    ///
    /// [`ReadError::Gone`] means that the owner has given the body up. A live body that cannot be read is
    /// [`ReadError::Corrupt`].
    fn read(
        &self,
        bodies: Vec<StoredBody>,
    ) -> impl Future<Output = Result<Vec<Bytes>, ReadError>> + Send + 'static;

    /// Reads a range of a body, so that a large body does not have to be in memory as a whole. The part of `range`
    /// after the end of the body is ignored.
    fn read_range(
        &self,
        body: StoredBody,
        range: Range<u32>,
    ) -> impl Future<Output = Result<Bytes, ReadError>> + Send + 'static;
}

/// Writes bodies that are too large for a commit group, piece by piece.
pub trait LargeBodies: Clone + Send + Sync + 'static {
    /// A large body while it is written.
    type Body: LargeBody;

    /// Starts a body. Fails with [`BodyError::NoSpace`] while the journal rejects new messages.
    fn start(&self) -> impl Future<Output = Result<Self::Body, BodyError>> + Send + 'static;
}

/// A large body while it is written. If it is dropped before [`LargeBody::finish`], or if a call fails or is cancelled,
/// nothing of it remains.
pub trait LargeBody: Send + 'static {
    /// Adds bytes to the end.
    fn write(&mut self, pieces: Vec<Bytes>) -> impl Future<Output = Result<(), BodyError>> + Send;

    /// Finishes the body, and completes when the whole body is durable. The body is standalone and lives at once: the
    /// owner of the log records its reference or releases it with [`Log::release`].
    fn finish(self) -> impl Future<Output = Result<StoredBody, BodyError>> + Send;
}

/// The level of free space, which decides which requests the owner may still accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Space {
    /// The owner may accept all requests.
    Enough,
    /// The owner may accept all requests, but the log grows faster than the owner frees it. The owner should slow new
    /// messages down.
    Behind,
    /// The owner must reject new messages. Receiving and settling continue.
    RejectSends,
    /// The owner may accept only requests that free space.
    OnlySettle,
}
