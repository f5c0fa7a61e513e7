//! Moving bodies to cold segments: reading and checking them, then writing them together.

use peeklock_journal::{ReadError, StoredBody};
use peeklock_types::BodyRef;

use crate::cold::{Copy, Site, Target};
use crate::fetch;
use crate::log::check;
use crate::shard::Shard;
use crate::shared::Shared;

/// Copies are held in memory up to this much before they are written and synced. More at once would make commits wait.
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

pub(crate) fn evacuate(
    shared: &Shared,
    shard: &Shard,
    epoch: u32,
    bodies: &[StoredBody],
) -> Result<Vec<BodyRef>, ReadError> {
    check(shared, shard, epoch)?;
    let moves: Vec<Move<'_>> = bodies.chunks(1).map(|run| Move { target: Target::Moved, run }).collect();
    let mut copies = Vec::with_capacity(moves.len());
    while let Some(rest) = moves.get(copies.len()..).filter(|rest| !rest.is_empty()) {
        let (now, _) = rest.split_at(count_within(rest));
        match copy(shared, shard, now) {
            Ok(some) => copies.extend(some),
            Err(error) => {
                // Nobody will ever name the copies that were made.
                shared.bury(shard.id, &shard.cold.forget(epoch, &copies));
                return Err(error);
            }
        }
    }
    Ok(copies.into_iter().map(|copy| copy.place).collect())
}

/// How many from the front are moved at once; at least one.
fn count_within(moves: &[Move<'_>]) -> usize {
    let mut total = 0;
    let fits = |one: &&Move<'_>| {
        total += one.size_bytes();
        total <= MOVE_BYTES
    };
    moves.iter().take_while(fits).count().max(1)
}

/// Makes the copies and returns them in order once they are durable. Leaves nothing if it fails.
pub(crate) fn copy(shared: &Shared, shard: &Shard, moves: &[Move<'_>]) -> Result<Vec<StoredBody>, ReadError> {
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
