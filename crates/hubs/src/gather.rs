//! Moves events out of the log: many small extents become a large one in the cold storage of their stream.

use peeklock_types::{BodyRange, BodyRef, CommitGroupNumber};

use crate::Output;
use crate::fact::Fact;
use crate::hub::Hubs;
use crate::stream::{Extent, Gather, GatherRun, Stream, StreamId};

impl Stream {
    /// Returns the first extents in the log, as far as they are in commit groups at or before `upto`.
    fn log_extents(&self, upto: CommitGroupNumber) -> impl Iterator<Item = Extent> {
        let range = BodyRange::groups_upto(upto);
        let is_in = move |extent: &Extent| range.contains(extent.body);
        self.extents.iter_from(self.extents.cold_len()).take_while(is_in)
    }

    /// Returns these extents in runs of at most `run_bytes_max`, as many runs as surely fit into `bytes_max`, but at
    /// least one; and their total size.
    fn gather_runs(
        &self,
        upto: CommitGroupNumber,
        bytes_max: u64,
        run_bytes_max: u32,
    ) -> (Vec<GatherRun>, u64) {
        let (mut runs, mut total) = (Vec::<GatherRun>::new(), 0);
        let run_bytes_max = u64::from(run_bytes_max).min(bytes_max);
        let mut run_bytes = 0_u64;
        for extent in self.log_extents(upto) {
            if extent.is_lost() {
                // A lost extent moves without a copy, but no run spans it.
                run_bytes = u64::MAX;
                continue;
            }
            // The size in the log, where each extent starts on a multiple of the alignment. In the copy the extents are
            // adjacent.
            let size_bytes = u64::from(extent.size_bytes).next_multiple_of(BodyRef::ALIGNMENT as u64);
            run_bytes = run_bytes.saturating_add(size_bytes);
            let body = (extent.body, extent.size_bytes);
            match runs.last_mut() {
                Some(run) if run_bytes <= run_bytes_max => run.bodies.push(body),
                Some(_) if total + run_bytes_max > bytes_max => break,
                _ => {
                    runs.push(GatherRun { first_sequence: extent.first_sequence, bodies: vec![body] });
                    run_bytes = size_bytes;
                }
            }
            total += size_bytes;
        }
        (runs, total)
    }

    /// Returns whether the first extents in the log are those of the run.
    fn starts_with(&self, run: &GatherRun) -> bool {
        let mut extents = self.extents.iter_from(self.extents.cold_len());
        let first = self.extents.get(self.extents.cold_len());
        first.is_some_and(|first| first.first_sequence == run.first_sequence)
            && run
                .bodies
                .iter()
                .all(|body| extents.next().is_some_and(|extent| (extent.body, extent.size_bytes) == *body))
    }
}

impl Hubs {
    /// Returns the oldest commit group with a body that a stream still needs.
    pub fn oldest_log_body(&self) -> Option<CommitGroupNumber> {
        self.agenda.in_log.first().map(|(group, _)| *group)
    }

    /// Returns up to `bytes_max` of extents in commit groups at or before `upto`, to be moved to the cold storage of
    /// their streams. The extents of one run are neighbours and become one extent of at most `run_bytes_max`. The
    /// streams that hold the oldest commit groups come first. No stream takes more than an even share, or one run if
    /// that is more: the extents that remain for the next call are adjacent in the log, so that they are read together.
    pub fn extents_in(&self, upto: CommitGroupNumber, bytes_max: u64, run_bytes_max: u32) -> Vec<Gather> {
        let mut gathers = Vec::new();
        let mut left = bytes_max;
        let holding = || self.agenda.in_log.range(..=(upto, StreamId(u32::MAX)));
        let share = (bytes_max / (holding().count() as u64).max(1)).max(run_bytes_max.into());
        for (_, stream) in holding() {
            if left < run_bytes_max.into() && !gathers.is_empty() {
                break;
            }
            let Some(known) = self.streams.get(stream) else { continue };
            let (runs, size_bytes) = known.gather_runs(upto, left.min(share), run_bytes_max);
            left = left.saturating_sub(size_bytes);
            gathers.push(Gather { stream: *stream, runs });
        }
        gathers
    }

    /// Journals that the extents of a run are at `body` now. Returns `false` and changes nothing if some of them are
    /// gone or have moved: the copy is garbage.
    pub fn gathered(
        &mut self,
        stream: StreamId,
        run: &GatherRun,
        body: BodyRef,
        size_bytes: u32,
        out: &mut Output,
    ) -> bool {
        let fits = self.streams.get(&stream).is_some_and(|known| known.starts_with(run));
        let Ok(extent_count) = u32::try_from(run.bodies.len()) else { return false };
        if !fits || extent_count == 0 || !body.is_standalone() {
            return false;
        }
        let first_sequence = run.first_sequence;
        self.record(Fact::Gathered { stream, first_sequence, extent_count, body, size_bytes }, out);
        true
    }

    /// Returns the place and size of every extent in cold storage. The shard needs them after recovery.
    pub fn standalone_bodies(&self) -> impl Iterator<Item = (BodyRef, u32)> {
        self.streams.values().flat_map(|stream| stream.extents.cold())
    }
}
