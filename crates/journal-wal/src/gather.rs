//! Gathering bodies of streams. What waits for many streams is done together: a group that holds bodies of several is read once, and files are
//! synced side by side.

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

/// So many requests are taken at once: each may need a file of its own.
const GATHERS_MAX: usize = 64;
/// So much is copied at once. Streams have files of their own, and to sync those takes about as long for little as for much.
const GATHER_BYTES: u64 = 16 * 1024 * 1024;

type Answer = Result<Unclaimed, ReadError>;

/// A request to gather bodies of one stream.
pub(crate) struct Gather {
    epoch: u32,
    stream: u64,
    runs: Vec<Vec<StoredBody>>,
    /// One for each run that is done.
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

    /// What is left to do.
    fn moves(&self) -> impl Iterator<Item = Move<'_>> {
        let target = Target::Stream(self.stream);
        self.runs.iter().skip(self.copies.len()).map(move |run| Move { target, run })
    }

    /// How many runs are copied next, and takes their bytes off the room for all; at least one, if any is left to do.
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

    /// Whoever asked may have gone away meanwhile; what was copied is then forgotten, as it is after an error.
    fn answer(self, shared: &Arc<Shared>, shard: &Arc<Shard>, error: Option<ReadError>) {
        let done = Unclaimed::new(shared, shard, self.epoch, self.copies);
        let _ = self.answer.send(error.map_or(Ok(done), Err));
    }
}

/// Does what waits to be gathered, until nothing does.
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
                // It may be the error of one of them alone.
                Err(several) => several.into_iter().for_each(|one| work(shared, shard, [one.gather].into())),
            },
        }
    }
}

/// A request, and how many of its runs are copied next.
struct Next {
    gather: Gather,
    count: usize,
}

/// Takes as many as are copied at once, of each an even share: streams that are written together lie in the same groups, and what is copied of
/// them together is read once. Those that can be refused without copying are.
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

/// Answers those that are done.
fn settle(shared: &Arc<Shared>, shard: &Arc<Shard>, batch: Vec<Next>, waiting: &mut VecDeque<Gather>) {
    for Next { gather, .. } in batch.into_iter().rev() {
        if gather.copies.len() == gather.runs.len() {
            gather.answer(shared, shard, None);
        } else {
            waiting.push_front(gather);
        }
    }
}
