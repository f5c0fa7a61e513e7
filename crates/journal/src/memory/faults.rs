//! Faults that a test injects: bodies that are not in memory, damaged bodies, and reads that fail or hang.

use std::collections::BTreeSet;

use bytes::Bytes;
use peeklock_types::{BodyPlace, BodyRef, CommitGroupNumber, ShardId};

use super::{MemoryJournal, State, locked};
use crate::{ReadError, StoredBody};

#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) is_cool: bool,
    damaged_groups: BTreeSet<CommitGroupNumber>,
    damaged_standalone: BTreeSet<BodyRef>,
    failing_count: u32,
    read_bytes: u64,
    reading_count: usize,
    reading_count_max: usize,
}

impl Faults {
    /// Counts the start of a read.
    pub(super) fn enter(&mut self) {
        self.reading_count += 1;
        self.reading_count_max = self.reading_count_max.max(self.reading_count);
    }

    pub(super) fn leave(&mut self) {
        self.reading_count = self.reading_count.saturating_sub(1);
    }

    pub(super) fn note_read(&mut self, size_bytes: usize) {
        self.read_bytes += size_bytes as u64;
    }

    /// Fails if this read is one of the reads that a test has chosen to fail.
    pub(super) fn check(&mut self) -> Result<(), ReadError> {
        let Some(left) = self.failing_count.checked_sub(1) else { return Ok(()) };
        self.failing_count = left;
        let source = std::io::Error::other("injected read error");
        Err(ReadError::Io { path: "memory".to_owned(), source })
    }

    fn is_damaged(&self, place: BodyRef) -> bool {
        match place.place() {
            BodyPlace::InGroup { group, .. } => self.damaged_groups.contains(&group),
            BodyPlace::Standalone { .. } => self.damaged_standalone.contains(&place),
        }
    }
}

impl State {
    /// Returns the body, or the error that a disk would return for it.
    pub(super) fn checked_body(&self, body: StoredBody) -> Result<Bytes, ReadError> {
        if self.faults.is_damaged(body.place) {
            let (file, what) = ("memory".to_owned(), "the checksum does not fit".to_owned());
            return Err(ReadError::Corrupt { file, offset: body.place.to_raw(), what });
        }
        self.body(body).ok_or(ReadError::Gone(body.place))
    }
}

impl MemoryJournal {
    fn with_faults<T>(&self, shard: ShardId, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut locked(&self.store.shard(shard).state))
    }

    /// Makes `try_read` miss for every body of a shard, so that every body is read as from a disk.
    pub fn cool(&self, shard: ShardId) {
        self.with_faults(shard, |state| state.faults.is_cool = true);
    }

    /// Returns the newest group of a shard.
    pub fn newest_group(&self, shard: ShardId) -> CommitGroupNumber {
        self.with_faults(shard, |state| state.last())
    }

    /// Damages a group of a shard: reading any of its bodies fails.
    pub fn damage_group(&self, shard: ShardId, group: CommitGroupNumber) {
        self.with_faults(shard, |state| state.faults.damaged_groups.insert(group));
    }

    /// Damages all standalone bodies of a shard.
    pub fn damage_standalone(&self, shard: ShardId) {
        self.with_faults(shard, |state| {
            let places: Vec<_> = state.standalone.places().collect();
            state.faults.damaged_standalone.extend(places);
        });
    }

    /// Makes the next `count` reads of a shard fail.
    pub fn fail_reads(&self, shard: ShardId, count: u32) {
        self.with_faults(shard, |state| state.faults.failing_count = count);
    }

    /// Returns how many reads of a shard are still going to fail.
    pub fn failing_reads(&self, shard: ShardId) -> u32 {
        self.with_faults(shard, |state| state.faults.failing_count)
    }

    /// Makes reads of a shard wait until this is called with `false`.
    pub fn hold_reads(&self, shard: ShardId, is_held: bool) {
        self.store.shard(shard).reads_held.send_replace(is_held);
    }

    /// Returns how many bytes of a shard were read as from a disk.
    pub fn read_bytes(&self, shard: ShardId) -> u64 {
        self.with_faults(shard, |state| state.faults.read_bytes)
    }

    /// Returns the largest number of reads of a shard that were in progress at the same time.
    pub fn reading_count_max(&self, shard: ShardId) -> usize {
        self.with_faults(shard, |state| state.faults.reading_count_max)
    }
}
