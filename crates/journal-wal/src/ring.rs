//! The segments of the log, oldest first, and the prepared segments.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use peeklock_types::{CommitGroupNumber, ShardId};

use crate::segment::Segment;

/// A used segment. The last one of the ring is the one that the writer uses.
pub(crate) struct RingSegment {
    pub(crate) segment: Arc<Segment>,
    /// The newest group of each shard in the segment. The segment is free when every owner has given up these groups.
    pub(crate) newest: BTreeMap<ShardId, CommitGroupNumber>,
}

pub(crate) struct Ring {
    pub(crate) live: VecDeque<RingSegment>,
    /// Prepared segments. Their names are durable in the directory, so that the writer only has to change its file
    /// handle.
    pub(crate) spares: VecDeque<Segment>,
    next_id: u64,
    /// The keeper prepares new segments if there are fewer spares than this.
    spares_wanted: usize,
    /// The number of consecutive rolls that left a spare.
    calm_rolls: u32,
    /// The first commit after the last roll, and the number of commits between the last two rolls.
    rolled_at: u64,
    commits_per_segment: u64,
}

/// After this many rolls that left a spare, the number of spares is reduced by one.
const CALM_ROLLS: u32 = 16;
/// A segment with fewer commits was filled fast: its commits are large, 256 KiB each at the default size.
const COMMITS_OF_FAST: u64 = 64;

impl Ring {
    pub(crate) fn new(
        live: VecDeque<RingSegment>,
        spares: VecDeque<Segment>,
        next_id: u64,
        spares_wanted: usize,
    ) -> Self {
        let (rolled_at, commits_per_segment) = (0, u64::MAX);
        Ring { live, spares, next_id, spares_wanted, calm_rolls: 0, rolled_at, commits_per_segment }
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    pub(crate) fn spares_wanted(&self) -> usize {
        self.spares_wanted
    }

    /// Returns whether commits are so large that it is better to reserve a segment than to write zeros first.
    pub(crate) fn is_filled_fast(&self) -> bool {
        self.commits_per_segment < COMMITS_OF_FAST
    }

    /// Takes the next spare for the segment that starts with this commit. If no spare is left, there are too few of
    /// them.
    pub(crate) fn take_spare(
        &mut self,
        commit: u64,
        wanted_min: usize,
        wanted_max: usize,
    ) -> Option<Segment> {
        if self.rolled_at > 0 && commit > self.rolled_at {
            self.commits_per_segment = commit - self.rolled_at;
        }
        self.rolled_at = commit;
        // The first roll does not count: there is one small segment, and the keeper has just started.
        if self.spares.len() <= 1 && !self.live.is_empty() {
            self.calm_rolls = 0;
            self.spares_wanted = (self.spares_wanted + 1).min(wanted_max);
        } else {
            self.calm_rolls += 1;
            if self.calm_rolls >= CALM_ROLLS {
                self.calm_rolls = 0;
                self.spares_wanted = (self.spares_wanted - 1).max(wanted_min);
            }
        }
        self.spares.pop_front()
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<Segment>> {
        let at = self.live.binary_search_by_key(&id, |s| s.segment.id).ok()?;
        self.live.get(at).map(|s| Arc::clone(&s.segment))
    }

    pub(crate) fn live_bytes(&self) -> u64 {
        self.live.iter().map(|s| s.segment.size_bytes).sum()
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.live_bytes() + self.spares.iter().map(|s| s.size_bytes).sum::<u64>()
    }

    /// Returns the oldest segment, unless the writer uses it.
    pub(crate) fn oldest_left(&self) -> Option<&RingSegment> {
        self.live.front().filter(|_| self.live.len() > 1)
    }

    /// Returns the newest group of each shard in the oldest segments that together have `bytes`.
    pub(crate) fn newest_within_oldest(&self, bytes: u64) -> BTreeMap<ShardId, CommitGroupNumber> {
        let mut newest = BTreeMap::new();
        let mut covered = 0;
        for segment in self.live.iter().take(self.live.len().saturating_sub(1)) {
            if covered >= bytes {
                break;
            }
            covered += segment.segment.size_bytes;
            // Later segments contain later groups, so the last segment with groups of a shard counts.
            newest.extend(&segment.newest);
        }
        newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_with_few_commits_is_filled_fast() {
        let mut ring = Ring::new(VecDeque::new(), VecDeque::new(), 1, 1);
        let mut roll = |commit| {
            ring.take_spare(commit, 1, 1);
            ring.is_filled_fast()
        };
        assert!(!roll(1), "the first roll should not count");
        assert!(roll(1 + COMMITS_OF_FAST - 1));
        assert!(!roll(1000));
        assert!(!roll(1000), "a failed attempt to take a spare should not count");
        assert!(roll(1001));
    }
}
