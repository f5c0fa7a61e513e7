//! Moves runs of streams. Requests for several streams are processed together: a group with bodies of several streams
//! is read once, and the files are synced in parallel.

use std::collections::VecDeque;
use std::sync::Arc;

use peeklock_journal::{ReadError, StoredBody, run_bytes};
use tokio::sync::oneshot;

use crate::cold::Target;
use crate::locked;
use crate::log::check;
use crate::moving::{Move, Unclaimed, copy};
use crate::shard::Shard;
use crate::shared::Shared;

/// The number of requests that are processed together. Each may need a file of its own.
const GATHERS_MAX: usize = 64;
/// The number of bytes that are copied before a sync. Every stream has its own file, and syncing a file takes
/// approximately the same time for few bytes as for many.
const GATHER_BYTES: u64 = 16 * 1024 * 1024;

type Answer = Result<Unclaimed, ReadError>;

/// A request to move runs of one stream.
pub(crate) struct Gather {
    epoch: u32,
    stream: u64,
    runs: Vec<Vec<StoredBody>>,
    /// The copies so far, one for each finished run.
    copies: Vec<StoredBody>,
    answer: oneshot::Sender<Answer>,
}

impl Gather {
    pub(crate) fn new(
        epoch: u32,
        stream: u64,
        runs: Vec<Vec<StoredBody>>,
    ) -> (Self, oneshot::Receiver<Answer>) {
        let (answer, receiver) = oneshot::channel();
        (Gather { epoch, stream, runs, copies: Vec::new(), answer }, receiver)
    }

    fn check(&self, shared: &Shared, shard: &Shard) -> Result<(), ReadError> {
        check(shared, shard, self.epoch)?;
        self.runs.iter().try_for_each(|run| run_bytes(run).map(drop))
    }

    /// Returns the runs that are left.
    fn moves(&self) -> impl Iterator<Item = Move<'_>> {
        let target = Target::Stream(self.stream);
        self.runs.iter().skip(self.copies.len()).map(move |run| Move { target, run })
    }

    /// Returns how many of the next runs are copied now, and subtracts their size from `room_bytes`. It is at least one
    /// if a run is left and there is room.
    fn take_room(&self, room_bytes: &mut u64, share_bytes: u64) -> usize {
        let mut share_bytes = share_bytes.min(*room_bytes);
        let mut fits = |next: &Move<'_>| {
            let has_room = share_bytes > 0;
            if has_room {
                share_bytes = share_bytes.saturating_sub(next.size_bytes());
                *room_bytes = room_bytes.saturating_sub(next.size_bytes());
            }
            has_room
        };
        self.moves().take_while(|next| fits(next)).count()
    }

    /// Sends the result. If the requester no longer waits, or after an error, the copies are released.
    fn answer(self, shared: &Arc<Shared>, shard: &Arc<Shard>, error: Option<ReadError>) {
        let done = Unclaimed::new(shared, shard, self.epoch, self.copies);
        let _ = self.answer.send(error.map_or(Ok(done), Err));
    }
}

/// Processes requests until none waits.
pub(crate) fn work_off(shared: &Arc<Shared>, shard: &Arc<Shard>) {
    loop {
        let taken: VecDeque<Gather> = {
            let mut waiting = locked(&shard.gathers);
            let count = waiting.len().min(GATHERS_MAX);
            waiting.drain(..count).collect()
        };
        if taken.is_empty() {
            return;
        }
        work(shared, shard, taken);
    }
}

fn work(shared: &Arc<Shared>, shard: &Arc<Shard>, mut waiting: VecDeque<Gather>) {
    while !waiting.is_empty() {
        let mut batch = next_batch(shared, shard, &mut waiting);
        let moves: Vec<Move<'_>> =
            batch.iter().flat_map(|next| next.gather.moves().take(next.count)).collect();
        match copy(shared, shard, &moves) {
            Ok(copies) => {
                let mut copies = copies.into_iter();
                for next in &mut batch {
                    next.gather.copies.extend(copies.by_ref().take(next.count));
                }
                settle(shared, shard, batch, &mut waiting);
            }
            Err(error) => match <[Next; 1]>::try_from(batch) {
                Ok([only]) => only.gather.answer(shared, shard, Some(error)),
                // Only one of the requests may have caused the error, so each is tried by itself.
                Err(several) => several.into_iter().for_each(|one| work(shared, shard, [one.gather].into())),
            },
        }
    }
}

/// A request, and the number of its runs that are copied next.
struct Next {
    gather: Gather,
    count: usize,
}

/// Takes the requests that are processed together, with an equal share for each. Streams that are written together are
/// in the same groups, and their bodies are then read once. Requests that fail without a copy are answered here.
fn next_batch(shared: &Arc<Shared>, shard: &Arc<Shard>, waiting: &mut VecDeque<Gather>) -> Vec<Next> {
    let mut batch = Vec::new();
    let mut room_bytes = GATHER_BYTES;
    let share_bytes = GATHER_BYTES / (waiting.len() as u64).max(1);
    while room_bytes > 0
        && let Some(gather) = waiting.pop_front()
    {
        match gather.check(shared, shard) {
            Err(error) => gather.answer(shared, shard, Some(error)),
            Ok(()) => batch.push(Next { count: gather.take_room(&mut room_bytes, share_bytes), gather }),
        }
    }
    batch
}

/// Answers the finished requests and puts the others back.
fn settle(shared: &Arc<Shared>, shard: &Arc<Shard>, batch: Vec<Next>, waiting: &mut VecDeque<Gather>) {
    for Next { gather, .. } in batch.into_iter().rev() {
        if gather.copies.len() == gather.runs.len() {
            gather.answer(shared, shard, None);
        } else {
            waiting.push_front(gather);
        }
    }
}
