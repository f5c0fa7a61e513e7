//! Moves bodies to cold segments: reads and checks them, then writes them together.

use std::sync::Arc;

use peeklock_journal::{ReadError, StoredBody};

use crate::cold::{Copy, Site, Target};
use crate::log::check;
use crate::shard::Shard;
use crate::shared::Shared;
use crate::{fetch, locked};

/// The size of the copies that are in memory before they are written and synced. A larger sync would delay commits.
pub(crate) const MOVE_BYTES: u64 = 8 * 1024 * 1024;

/// Bodies that become one body of a target.
#[derive(Clone, Copy)]
pub(crate) struct Move<'a> {
    pub(crate) target: Target,
    pub(crate) run: &'a [StoredBody],
}

impl Move<'_> {
    pub(crate) fn size_bytes(&self) -> u64 {
        self.run.iter().map(|body| u64::from(body.size_bytes)).sum()
    }
}

/// Copies that count as live. If the caller never receives the new places, the copies are orphaned and released.
pub(crate) struct Unclaimed {
    shared: Arc<Shared>,
    shard: Arc<Shard>,
    epoch: u32,
    copies: Vec<StoredBody>,
}

impl Unclaimed {
    pub(crate) fn new(shared: &Arc<Shared>, shard: &Arc<Shard>, epoch: u32, copies: Vec<StoredBody>) -> Self {
        Unclaimed { shared: Arc::clone(shared), shard: Arc::clone(shard), epoch, copies }
    }

    pub(crate) fn claim(mut self) -> Vec<StoredBody> {
        std::mem::take(&mut self.copies)
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if !self.copies.is_empty() {
            self.shared.bury(self.shard.id, &self.shard.cold.release(self.epoch, &self.copies));
        }
    }
}

pub(crate) fn move_each(
    shared: &Arc<Shared>,
    shard: &Arc<Shard>,
    epoch: u32,
    bodies: &[StoredBody],
) -> Result<Unclaimed, ReadError> {
    check(shared, shard, epoch)?;
    let moves: Vec<Move<'_>> = bodies.chunks(1).map(|run| Move { target: Target::Moved, run }).collect();
    let mut done = Unclaimed::new(shared, shard, epoch, Vec::with_capacity(moves.len()));
    while let Some(rest) = moves.get(done.copies.len()..).filter(|rest| !rest.is_empty()) {
        let (now, _) = rest.split_at(count_within(rest));
        done.copies.extend(copy(shared, shard, now)?);
    }
    Ok(done)
}

/// Returns how many moves from the front are done together; at least one.
fn count_within(moves: &[Move<'_>]) -> usize {
    let mut total = 0;
    let fits = |one: &&Move<'_>| {
        total += one.size_bytes();
        total <= MOVE_BYTES
    };
    moves.iter().take_while(fits).count().max(1)
}

/// Makes the copies and returns them in order once they are durable. Leaves nothing after a failure.
pub(crate) fn copy(shared: &Shared, shard: &Shard, moves: &[Move<'_>]) -> Result<Vec<StoredBody>, ReadError> {
    try_copy(shared, shard, moves).inspect_err(|_| {
        // The next attempt may be much later, so the marks must not be trusted until then.
        locked(&shard.checked).clear();
    })
}

fn try_copy(shared: &Shared, shard: &Shard, moves: &[Move<'_>]) -> Result<Vec<StoredBody>, ReadError> {
    let wanted: Vec<StoredBody> = moves.iter().flat_map(|one| one.run).copied().collect();
    let found = fetch::checked_bodies(shared, shard, &wanted)?;
    let mut rest = found.as_slice();
    let mut copies = Vec::with_capacity(moves.len());
    for Move { target, run } in moves {
        let (pieces, later) = rest.split_at_checked(run.len()).unwrap_or((rest, &[]));
        copies.push(Copy { target: *target, pieces });
        rest = later;
    }
    let site = Site {
        disk: &*shared.disk,
        layout: &shared.layout,
        moved_bytes: shared.config.cold_segment_bytes,
        stream_bytes: shared.config.stream_segment_bytes,
        usage_bytes: &shared.usage.cold_bytes,
    };
    let mut dead = Vec::new();
    let written = shard.cold.write(&site, &copies, &mut dead);
    shared.bury(shard.id, &dead);
    written
}
