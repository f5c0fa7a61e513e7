//! Moving bodies to cold segments: one by one, or gathered to larger bodies of a stream.

use bytes::Bytes;
use peeklock_journal::{ReadError, StoredBody, gathered_bytes};
use peeklock_types::BodyRef;

use crate::cold::{Site, Target};
use crate::fetch;
use crate::log::check;
use crate::shard::Shard;
use crate::shared::Shared;

/// Copies are held in memory up to this much before they are written.
const MOVE_BYTES: u64 = 4 * 1024 * 1024;

/// Copies of bodies to one target, made by one owner.
struct Mover<'a> {
    shared: &'a Shared,
    shard: &'a Shard,
    epoch: u32,
    target: Target,
}

pub(crate) fn evacuate(
    shared: &Shared,
    shard: &Shard,
    epoch: u32,
    bodies: &[StoredBody],
) -> Result<Vec<BodyRef>, ReadError> {
    let mover = Mover { shared, shard, epoch, target: Target::Moved };
    let runs: Vec<&[StoredBody]> = bodies.chunks(1).collect();
    let copies = mover.copy(&runs)?;
    Ok(copies.into_iter().map(|copy| copy.place).collect())
}

pub(crate) fn gather(
    shared: &Shared,
    shard: &Shard,
    epoch: u32,
    stream: u64,
    runs: &[Vec<StoredBody>],
) -> Result<Vec<StoredBody>, ReadError> {
    let mover = Mover { shared, shard, epoch, target: Target::Stream(stream) };
    let runs: Vec<&[StoredBody]> = runs.iter().map(Vec::as_slice).collect();
    // Known before anything is written.
    runs.iter().try_for_each(|run| gathered_bytes(run).map(drop))?;
    mover.copy(&runs)
}

impl Mover<'_> {
    /// Makes one body of each run.
    fn copy(&self, runs: &[&[StoredBody]]) -> Result<Vec<StoredBody>, ReadError> {
        check(self.shared, self.shard, self.epoch)?;
        let mut copies = Vec::with_capacity(runs.len());
        while let Some(rest) = runs.get(copies.len()..).filter(|rest| !rest.is_empty()) {
            let (now, _) = rest.split_at(count_within(rest, MOVE_BYTES));
            match self.copy_some(now) {
                Ok(some) => copies.extend(some),
                Err(error) => {
                    // Nobody will ever name the copies that were made.
                    self.shared.bury(self.shard.id, &self.shard.cold.forget(self.epoch, &copies));
                    return Err(error);
                }
            }
        }
        Ok(copies)
    }

    fn copy_some(&self, runs: &[&[StoredBody]]) -> Result<Vec<StoredBody>, ReadError> {
        let found = fetch::checked_bodies(self.shared, self.shard, &runs.concat())?;
        let mut rest = found.as_slice();
        let mut take = |run: &&[StoredBody]| {
            let (pieces, later) = rest.split_at_checked(run.len()).unwrap_or((rest, &[]));
            rest = later;
            pieces
        };
        let bodies: Vec<&[Bytes]> = runs.iter().map(&mut take).collect();
        let config = &self.shared.config;
        let site = Site {
            disk: &*self.shared.disk,
            layout: &self.shared.layout,
            segment_bytes: match self.target {
                Target::Moved => config.cold_segment_bytes,
                Target::Stream(_) => config.stream_segment_bytes,
            },
            usage_bytes: &self.shared.usage.cold_bytes,
        };
        let mut dead = Vec::new();
        let written = self.shard.cold.write(&site, self.target, &bodies, &mut dead);
        self.shared.bury(self.shard.id, &dead);
        written
    }
}

/// How many runs from the front fit; at least one.
fn count_within(runs: &[&[StoredBody]], limit_bytes: u64) -> usize {
    let mut total = 0;
    let fits = |run: &&&[StoredBody]| {
        total += run.iter().map(|body| u64::from(body.size_bytes)).sum::<u64>();
        total <= limit_bytes
    };
    runs.iter().take_while(fits).count().max(1)
}
