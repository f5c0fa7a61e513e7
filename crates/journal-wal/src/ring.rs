//! The segments of the log, oldest first, and the prepared ones that wait for their turn.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use peeklock_types::{CommitGroupNumber, ShardId};

use crate::segment::Segment;

/// A segment in use. The last of the ring is the one being written.
pub(crate) struct RingSegment {
    pub(crate) segment: Arc<Segment>,
    /// The newest group of each shard in here: the segment is free when every owner has let go of these.
    pub(crate) newest: BTreeMap<ShardId, CommitGroupNumber>,
}

pub(crate) struct Ring {
    pub(crate) live: VecDeque<RingSegment>,
    /// Named and durable in the directory, so that the writer only changes its file handle.
    pub(crate) spares: VecDeque<Segment>,
    next_id: u64,
    /// With fewer than this the keeper makes new ones.
    spares_wanted: usize,
    /// Rolls in a row that left something in the pool.
    calm_rolls: u32,
    /// The first commit after the last roll, and how many there were between the last two.
    rolled_at: u64,
    commits_per_segment: u64,
}

/// One spare less is wanted after so many rolls that left something in the pool.
const CALM_ROLLS: u32 = 16;
/// A segment that is filled by fewer commits is filled fast, and its commits are large: 256 KiB each at the usual size.
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

    /// Whether commits are so large that a segment may as well be reserved as written with zeros first.
    pub(crate) fn is_filled_fast(&self) -> bool {
        self.commits_per_segment < COMMITS_OF_FAST
    }

    /// Takes the next spare, which this commit is the first in. A pool that this leaves empty is too small for the pace.
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
        // The very first roll says nothing: there is one small segment, and the keeper has just begun.
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

    /// The oldest segment, unless it is the one being written.
    pub(crate) fn oldest_left(&self) -> Option<&RingSegment> {
        self.live.front().filter(|_| self.live.len() > 1)
    }

    /// The newest group of each shard in the oldest segments that together hold `bytes`.
    pub(crate) fn newest_within_oldest(&self, bytes: u64) -> BTreeMap<ShardId, CommitGroupNumber> {
        let mut newest = BTreeMap::new();
        let mut covered = 0;
        for segment in self.live.iter().take(self.live.len().saturating_sub(1)) {
            if covered >= bytes {
                break;
            }
            covered += segment.segment.size_bytes;
            // Later segments hold later groups, so the last one stands.
            newest.extend(&segment.newest);
        }
        newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_of_few_commits_is_filled_fast() {
        let mut ring = Ring::new(VecDeque::new(), VecDeque::new(), 1, 1);
        let mut roll = |commit| {
            ring.take_spare(commit, 1, 1);
            ring.is_filled_fast()
        };
        assert!(!roll(1), "nothing is known yet");
        assert!(roll(1 + COMMITS_OF_FAST - 1));
        assert!(!roll(1000));
        assert!(!roll(1000), "a look in vain for a spare is no roll");
        assert!(roll(1001));
    }
}
