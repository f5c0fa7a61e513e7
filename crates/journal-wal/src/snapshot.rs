//! Snapshots: each is one file, which is written as a draft, synced, renamed, and read back before it counts.

use std::io;

use bytes::Bytes;
use peeklock_journal::{OpenError, Payload, Snapshot};
use peeklock_types::{CommitGroupNumber, ShardId};

use crate::disk::Disk;
use crate::frame::{u16_at, u32_at, u64_at};
use crate::layout::{Layout, number_in, text};
use crate::shard::SnapshotMark;

const MAGIC: [u8; 8] = *b"PLsnapsh";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 56;
/// The size of the pieces in which a file is read back.
const PIECE_BYTES: usize = 1024 * 1024;

/// The contents of a snapshot file.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) snapshot: Snapshot,
    /// The [`GroupHead::chain`](peeklock_journal::GroupHead::chain) of the last covered group, and the epoch of the
    /// owner.
    pub(crate) chain: u64,
    pub(crate) epoch: u32,
}

impl Stored {
    pub(crate) fn mark(&self) -> SnapshotMark {
        SnapshotMark { upto: self.snapshot.upto, chain: self.chain }
    }

    fn decode(shard: ShardId, file: Bytes) -> Option<Self> {
        let header: &[u8; HEADER_BYTES] = file.first_chunk()?;
        let sound = header[..8] == MAGIC
            && u32_at(header, 8) == VERSION
            && u16_at(header, 12) == shard.0
            && u32_at(header, 52) == crc32c::crc32c(&header[..52]);
        let payload = file.slice(HEADER_BYTES..);
        if !sound
            || u64_at(header, 40) != payload.len() as u64
            || u32_at(header, 20) != crc32c::crc32c(&payload)
        {
            return None;
        }
        let upto = CommitGroupNumber(u64_at(header, 24));
        let (epoch, chain) = (u32_at(header, 16), u64_at(header, 32));
        Some(Stored { snapshot: Snapshot { upto, payload }, chain, epoch })
    }
}

/// A snapshot to be written. It may share its parts with the owner, who continues to change the state.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) upto: CommitGroupNumber,
    pub(crate) payload: Payload,
    /// See [`Stored`].
    pub(crate) chain: u64,
    pub(crate) epoch: u32,
}

impl Draft {
    fn header(&self, shard: ShardId) -> [u8; HEADER_BYTES] {
        let sum = self.payload.parts().iter().fold(0, |sum, part| crc32c::crc32c_append(sum, part));
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..14].copy_from_slice(&shard.0.to_le_bytes());
        out[16..20].copy_from_slice(&self.epoch.to_le_bytes());
        out[20..24].copy_from_slice(&sum.to_le_bytes());
        out[24..32].copy_from_slice(&self.upto.0.to_le_bytes());
        out[32..40].copy_from_slice(&self.chain.to_le_bytes());
        out[40..48].copy_from_slice(&(self.payload.len() as u64).to_le_bytes());
        let crc = crc32c::crc32c(&out[..52]);
        out[52..].copy_from_slice(&crc.to_le_bytes());
        out
    }
}

/// Lists the files of one shard, newest first, with their sizes.
fn list(disk: &dyn Disk, layout: &Layout, shard: ShardId) -> io::Result<Vec<(CommitGroupNumber, u64)>> {
    let entries = match disk.list(&layout.snapshot_dir(shard)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let named =
        entries.iter().filter_map(|e| Some((CommitGroupNumber(number_in(&e.name, ".snap")?), e.size_bytes)));
    let mut found: Vec<_> = named.collect();
    found.sort_unstable_by_key(|(upto, _)| std::cmp::Reverse(*upto));
    Ok(found)
}

pub(crate) fn total_bytes(disk: &dyn Disk, layout: &Layout, shard: ShardId) -> io::Result<u64> {
    Ok(list(disk, layout, shard)?.iter().map(|(_, size)| size).sum())
}

/// The result of looking for a snapshot.
pub(crate) struct Loaded {
    pub(crate) newest: Option<Stored>,
    /// The newest unreadable snapshot, if it is newer than `newest`.
    pub(crate) unreadable: Option<CommitGroupNumber>,
}

/// Finds the newest readable snapshot.
pub(crate) fn load(disk: &dyn Disk, layout: &Layout, shard: ShardId) -> Result<Loaded, OpenError> {
    let directory = layout.snapshot_dir(shard);
    let failed = |source| OpenError::Io { action: "reading", path: text(&directory), source };
    let mut unreadable = None;
    let found = list(disk, layout, shard).map_err(failed)?;
    if !found.is_empty() {
        // The last run may have died between the rename and the sync. Groups are trimmed because of this snapshot, so
        // it must be durable.
        disk.sync_dir(&directory).map_err(failed)?;
    }
    for (upto, _) in found {
        let stored = read(disk, layout, shard, upto).map_err(failed)?;
        if let Some(stored) = stored {
            return Ok(Loaded { newest: Some(stored), unreadable });
        }
        let file = text(&layout.snapshot(shard, upto));
        tracing::warn!(file, "this snapshot is damaged; trying the one before it");
        unreadable.get_or_insert(upto);
    }
    Ok(Loaded { newest: None, unreadable })
}

fn read(
    disk: &dyn Disk,
    layout: &Layout,
    shard: ShardId,
    upto: CommitGroupNumber,
) -> io::Result<Option<Stored>> {
    let file = disk.open(&layout.snapshot(shard, upto))?;
    let mut bytes = vec![0; usize::try_from(file.size_bytes()?).map_err(|_| io::ErrorKind::FileTooLarge)?];
    file.read_at(&mut bytes, 0)?;
    Ok(Stored::decode(shard, bytes.into()).filter(|stored| stored.snapshot.upto == upto))
}

/// Writes a snapshot so that a crash leaves all of it or none of it, then removes the files that are no longer needed.
pub(crate) fn put(
    disk: &dyn Disk,
    layout: &Layout,
    shard: ShardId,
    draft: &Draft,
    previous: CommitGroupNumber,
) -> io::Result<()> {
    let (directory, beside) = (layout.snapshot_dir(shard), layout.snapshot_draft(shard));
    disk.create_dir_all(&directory)?;
    disk.sync_dir(&layout.snapshot_root())?;
    let (upto, header) = (draft.upto, draft.header(shard));
    if let Err(error) = write_draft(disk, layout, shard, &header, &draft.payload) {
        // The first error is the one to report, and a full disk needs the space of the unfinished file.
        let _ = disk.remove(&beside);
        return Err(error);
    }
    disk.rename(&beside, &layout.snapshot(shard, upto))?;
    disk.sync_dir(&directory)?;
    if !reads_back(disk, layout, shard, upto, &header)? {
        return Err(io::Error::other("the snapshot does not read back as it was written"));
    }
    remove_older(disk, layout, shard, upto, previous)
}

fn write_draft(
    disk: &dyn Disk,
    layout: &Layout,
    shard: ShardId,
    header: &[u8; HEADER_BYTES],
    payload: &Payload,
) -> io::Result<()> {
    let file = disk.create(&layout.snapshot_draft(shard))?;
    let parts = payload.parts().iter().map(|part| io::IoSlice::new(part));
    let mut parts: Vec<_> = std::iter::once(io::IoSlice::new(header)).chain(parts).collect();
    file.write_at(&mut parts, 0)?;
    file.sync()
}

/// Reads a file in pieces, because it may be large.
fn reads_back(
    disk: &dyn Disk,
    layout: &Layout,
    shard: ShardId,
    upto: CommitGroupNumber,
    header: &[u8; HEADER_BYTES],
) -> io::Result<bool> {
    let file = disk.open(&layout.snapshot(shard, upto))?;
    let size_bytes = file.size_bytes()?;
    let mut at = HEADER_BYTES as u64;
    if size_bytes != at + u64_at(header, 40) || file.bytes_at(HEADER_BYTES, 0)? != header {
        return Ok(false);
    }
    let mut sum = 0;
    let mut piece = vec![0; usize::try_from(size_bytes - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES)];
    while at < size_bytes {
        let rest = usize::try_from(size_bytes - at).unwrap_or(usize::MAX).min(piece.len());
        let Some(piece) = piece.get_mut(..rest) else { return Ok(false) };
        file.read_at(piece, at)?;
        sum = crc32c::crc32c_append(sum, piece);
        at += rest as u64;
    }
    Ok(sum == u32_at(header, 20))
}

/// Keeps `upto` and the snapshot before it, `previous`. An unreadable file between them is removed.
fn remove_older(
    disk: &dyn Disk,
    layout: &Layout,
    shard: ShardId,
    upto: CommitGroupNumber,
    previous: CommitGroupNumber,
) -> io::Result<()> {
    let files = list(disk, layout, shard)?.into_iter();
    for (old, _) in files.filter(|(old, _)| *old < upto && *old != previous) {
        disk.remove(&layout.snapshot(shard, old))?;
    }
    Ok(())
}
