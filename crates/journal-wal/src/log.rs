//! The log of one shard, from the owner's side.

use std::future::Future;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use peeklock_journal::{
    AppendError, BodyReader, GroupHead, Log, Move, Payload, Poisoned, ReadError, SnapshotError, Space,
};
use peeklock_types::{BodyRange, CommitGroupNumber, StoredBody};
use tokio::sync::{oneshot, watch};

use crate::frame::frame_bytes;
use crate::gather::Gather;
use crate::journal::Handle;
use crate::large::WalLargeBodies;
use crate::layout::text;
use crate::moving::Unclaimed;
use crate::pool::Pool;
use crate::queue::{Pending, Turn};
use crate::shard::{Progress, Shard, SnapshotMark};
use crate::shared::{Shared, lower};
use crate::snapshot::Draft;
use crate::{cold, fetch, gather, locked, moving, snapshot};

/// The log of one shard. It is fenced when the shard is opened again.
pub struct WalLog {
    handle: Arc<Handle>,
    shard: Arc<Shard>,
    progress: watch::Receiver<Progress>,
    epoch: u32,
    next: CommitGroupNumber,
    /// The chain of the group before `next`.
    chain: u64,
    /// The newest durable group that this owner has seen. It is the watermark after a later owner has fenced this one.
    watermark: CommitGroupNumber,
}

pub(crate) fn fenced() -> Poisoned {
    Poisoned { reason: "a newer owner has opened this log".to_owned() }
}

pub(crate) fn closed() -> Poisoned {
    Poisoned { reason: "the journal is closed".to_owned() }
}

impl WalLog {
    pub(crate) fn new(handle: Arc<Handle>, shard: Arc<Shard>, epoch: u32) -> Self {
        let (last, chain) = {
            let books = locked(&shard.books);
            (books.last, books.chain)
        };
        let progress = shard.progress.subscribe();
        WalLog { handle, shard, progress, epoch, next: last.next(), chain, watermark: last }
    }

    fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    fn owns(&self) -> bool {
        locked(&self.shard.books).epoch == self.epoch
    }

    /// Checks the limits and computes the checksum, on the owner's thread. The writer only adds the
    /// [`Landing`](crate::frame::Landing).
    fn head(&self, payload: &Payload) -> Result<GroupHead, AppendError> {
        let limit_bytes = self.shared().config.group_bytes_max;
        let too_large = || AppendError::TooLarge { size_bytes: payload.len(), limit_bytes };
        let payload_bytes = u32::try_from(payload.len()).map_err(|_| too_large())?;
        if payload.len() > limit_bytes {
            return Err(too_large());
        }
        let room =
            self.shared().queue.has_room(frame_bytes(payload.len()), self.shared().config.backlog_bytes_max);
        // A shard without waiting groups is never rejected: its watermark would not rise, so the owner would never
        // retry.
        if !room && self.next > self.watermark().next() {
            return Err(AppendError::Busy);
        }
        Ok(GroupHead {
            shard: self.shard.id,
            epoch: self.epoch,
            number: self.next,
            previous: self.chain,
            payload_bytes,
            payload_crc: checksum(payload),
        })
    }

    fn take_over(&mut self, payload: Payload, is_alone: bool) -> Result<CommitGroupNumber, AppendError> {
        self.shared().check()?;
        let head = self.head(&payload)?;
        self.hand_over(head, payload, is_alone)?;
        self.chain = head.chain();
        self.next = head.number.next();
        Ok(head.number)
    }

    fn move_each(&self, bodies: Vec<StoredBody>) -> oneshot::Receiver<Result<Unclaimed, ReadError>> {
        let (shared, shard, epoch) = (Arc::clone(&self.handle.shared), Arc::clone(&self.shard), self.epoch);
        self.handle.pools.movers.run(move || moving::move_each(&shared, &shard, epoch, &bodies))
    }

    fn move_runs(
        &self,
        stream: u64,
        runs: Vec<Vec<StoredBody>>,
    ) -> (oneshot::Receiver<()>, oneshot::Receiver<Result<Unclaimed, ReadError>>) {
        let (shared, shard) = (Arc::clone(&self.handle.shared), Arc::clone(&self.shard));
        let (gather, answer) = Gather::new(self.epoch, stream, runs);
        locked(&shard.gathers).push_back(gather);
        (self.handle.pools.gatherers.run(move || gather::work_off(&shared, &shard)), answer)
    }

    /// Checks the fence and queues the group under one lock, so that no group of an earlier owner is queued after a
    /// later open.
    fn hand_over(&self, head: GroupHead, payload: Payload, is_alone: bool) -> Result<(), Poisoned> {
        let queue = &self.shared().queue;
        let mut state = locked(&queue.state);
        if state.closing {
            return Err(closed());
        }
        let mut books = locked(&self.shard.books);
        if books.epoch != self.epoch {
            return Err(fenced());
        }
        books.hand_over(head.number, head.chain(), payload.clone());
        drop(books);
        let pending = Pending { shard: Arc::clone(&self.shard), head, payload };
        let desk = self.handle.desk.as_deref().filter(|desk| is_alone && desk.can_lend());
        let turn = queue.push(&mut state, pending, desk.is_some());
        drop(state);
        match (turn, desk) {
            (Turn::Busy, _) => {}
            (Turn::Owner, Some(desk)) => desk.write_here(),
            (Turn::Writer | Turn::Owner, _) => queue.wake_writer(),
        }
        Ok(())
    }
}

/// The results that a call of [`Log::move_bodies`] waits for.
enum Moving {
    Each(oneshot::Receiver<Result<Unclaimed, ReadError>>),
    Runs((oneshot::Receiver<()>, oneshot::Receiver<Result<Unclaimed, ReadError>>)),
}

fn checksum(payload: &Payload) -> u32 {
    payload.parts().iter().fold(0, |sum, part| crc32c::crc32c_append(sum, part))
}

impl Log for WalLog {
    type BodyReader = WalBodyReader;
    type LargeBodies = WalLargeBodies;

    fn next_group(&self) -> CommitGroupNumber {
        self.next
    }

    fn append(&mut self, payload: Payload) -> Result<CommitGroupNumber, AppendError> {
        self.take_over(payload, false)
    }

    fn append_alone(&mut self, payload: Payload) -> Result<CommitGroupNumber, AppendError> {
        self.take_over(payload, true)
    }

    fn watermark(&self) -> CommitGroupNumber {
        let progress = self.progress.borrow();
        if progress.epoch == self.epoch { progress.watermark } else { self.watermark }
    }

    async fn durable(&mut self, seen: CommitGroupNumber) -> Result<CommitGroupNumber, Poisoned> {
        let epoch = self.epoch;
        let waited = self.progress.wait_for(|p| p.watermark > seen || p.stopped || p.epoch != epoch).await;
        let progress = waited.map(|p| *p).map_err(|_| closed())?;
        if progress.epoch != epoch {
            return Err(fenced());
        }
        if progress.watermark > seen {
            self.watermark = progress.watermark;
            return Ok(progress.watermark);
        }
        self.shared().check()?;
        Err(closed())
    }

    fn reader(&self) -> WalBodyReader {
        WalBodyReader {
            shared: Arc::clone(&self.handle.shared),
            shard: Arc::clone(&self.shard),
            pool: self.handle.pools.readers.clone(),
        }
    }

    fn large_bodies(&self) -> WalLargeBodies {
        WalLargeBodies {
            shared: Arc::clone(&self.handle.shared),
            shard: Arc::clone(&self.shard),
            movers: self.handle.pools.movers.clone(),
            epoch: self.epoch,
        }
    }

    fn put_snapshot(
        &mut self,
        upto: CommitGroupNumber,
        payload: Payload,
    ) -> impl Future<Output = Result<(), SnapshotError>> + Send + 'static {
        let (shared, shard, epoch) = (Arc::clone(&self.handle.shared), Arc::clone(&self.shard), self.epoch);
        let done = self.handle.pools.movers.run(move || put_snapshot(&shared, &shard, epoch, upto, payload));
        async move { done.await.map_err(|_| closed())? }
    }

    fn wants_snapshot(&self) -> bool {
        self.shard.wants_snapshot(self.shared().config.snapshot_after_bytes)
    }

    fn adopt(&mut self, live: &[StoredBody]) {
        self.shared().bury(self.shard.id, &self.shard.cold.adopt(self.epoch, live));
    }

    fn release(&mut self, bodies: &[StoredBody]) {
        self.shared().bury(self.shard.id, &self.shard.cold.release(self.epoch, bodies));
    }

    fn trim(&mut self, upto: CommitGroupNumber) {
        if self.owns() && self.shard.trim(upto) {
            self.shared().bell.ring();
        }
    }

    fn wants_moved(&self) -> Option<BodyRange> {
        let groups = self.shard.asked_groups().map(BodyRange::groups_upto);
        groups.or_else(|| self.shard.cold.mostly_dead().map(cold::bodies_in))
    }

    fn move_bodies(
        &mut self,
        bodies: Move,
    ) -> impl Future<Output = Result<Vec<StoredBody>, ReadError>> + Send + 'static {
        let moving = match bodies {
            Move::Each(bodies) => Moving::Each(self.move_each(bodies)),
            Move::Runs { stream, runs } => Moving::Runs(self.move_runs(stream, runs)),
        };
        async move {
            match moving {
                Moving::Each(done) => Ok(done.await.map_err(|_| closed())??.claim()),
                Moving::Runs((done, answer)) => {
                    // An earlier job may have sent the answer. If no job will ever run, there is no answer.
                    done.await.map_err(|_| closed())?;
                    Ok(answer.await.map_err(|_| closed())??.claim())
                }
            }
        }
    }

    fn space(&self) -> Space {
        self.shared().space()
    }
}

pub(crate) fn check(shared: &Shared, shard: &Shard, epoch: u32) -> Result<(), Poisoned> {
    shared.check()?;
    if locked(&shard.books).epoch == epoch { Ok(()) } else { Err(fenced()) }
}

fn put_snapshot(
    shared: &Shared,
    shard: &Shard,
    epoch: u32,
    upto: CommitGroupNumber,
    payload: Payload,
) -> Result<(), SnapshotError> {
    check(shared, shard, epoch)?;
    let path = text(&shared.layout.snapshot(shard.id, upto));
    let failed = |source| SnapshotError::Io { path: path.clone(), source };
    let previous = locked(&shard.books).snapshot;
    let logged_bytes = shard.logged_bytes();
    if upto <= previous.upto {
        // An existing snapshot of the same group is not overwritten, because that would put it at risk. It ends the
        // request for a snapshot.
        if upto == previous.upto {
            shard.snapshot_taken(previous, logged_bytes);
        }
        return Ok(());
    }
    let chain = chain_of(shared, shard, upto).map_err(failed)?;
    let draft = Draft { upto, payload, chain, epoch };
    let put = counting_snapshots(shared, shard, || {
        snapshot::put(&*shared.disk, &shared.layout, shard.id, &draft, previous.upto)
    });
    put.map_err(failed)?;
    shard.snapshot_taken(SnapshotMark { upto, chain }, logged_bytes);
    Ok(())
}

/// Changes the snapshots and updates their usage. The usage is updated even if the change fails, because it may fail
/// after some files were written or removed.
fn counting_snapshots(
    shared: &Shared,
    shard: &Shard,
    change: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let total = || snapshot::total_bytes(&*shared.disk, &shared.layout, shard.id);
    let before = total()?;
    let changed = change();
    if let Ok(after) = total() {
        shared.usage.snapshot_bytes.fetch_add(after.saturating_sub(before), Ordering::Relaxed);
        lower(&shared.usage.snapshot_bytes, before.saturating_sub(after));
    }
    changed
}

/// Returns the chain at the end of a durable group.
fn chain_of(shared: &Shared, shard: &Shard, upto: CommitGroupNumber) -> io::Result<u64> {
    if upto > shard.progress.borrow().watermark {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{upto} is not durable yet")));
    }
    {
        let books = locked(&shard.books);
        if upto == books.snapshot.upto {
            return Ok(books.snapshot.chain);
        }
        if upto == books.last {
            return Ok(books.chain);
        }
    }
    let header = fetch::header(shared, shard, upto).map_err(io::Error::other)?;
    let header = header.ok_or_else(|| io::Error::other(format!("{upto} is not in the log any more")))?;
    Ok(header.group.chain())
}

/// Reads bodies of one shard, in parallel with appends.
#[derive(Clone)]
pub struct WalBodyReader {
    shared: Arc<Shared>,
    shard: Arc<Shard>,
    pool: Pool,
}

impl BodyReader for WalBodyReader {
    fn try_read(&self, body: StoredBody) -> Option<Bytes> {
        fetch::hot(&self.shard, body)
    }

    fn try_read_apart(&self, body: StoredBody) -> Option<Bytes> {
        fetch::hot_apart(&self.shard, body)
    }

    fn read(
        &self,
        bodies: Vec<StoredBody>,
    ) -> impl Future<Output = Result<Vec<Bytes>, ReadError>> + Send + 'static {
        let (shared, shard) = (Arc::clone(&self.shared), Arc::clone(&self.shard));
        let done = self.pool.run(move || fetch::bodies(&shared, &shard, &bodies));
        async move { done.await.map_err(|_| closed())? }
    }

    fn read_range(
        &self,
        body: StoredBody,
        range: Range<u32>,
    ) -> impl Future<Output = Result<Bytes, ReadError>> + Send + 'static {
        let (shared, shard) = (Arc::clone(&self.shared), Arc::clone(&self.shard));
        let done = self.pool.run(move || fetch::range(&shared, &shard, body, range));
        async move { done.await.map_err(|_| closed())? }
    }
}
