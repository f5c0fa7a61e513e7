//! Finds the contents of the log at a start.
//!
//! Only the newest segment may have a torn end, and only within the one commit that was being written. Every other
//! contradiction is damage, and recovery fails instead of guessing. It changes nothing.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use peeklock_journal::{GroupHead, OpenError};
use peeklock_types::{CommitGroupNumber, ShardId};

use crate::config::BLOCK_BYTES;
use crate::disk::Disk;
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader, frame_bytes};
use crate::layout::{Layout, number_in, text};
use crate::ring::RingSegment;
use crate::segment::{Link, Place, Segment, SegmentHeader};
use crate::shard::Logged;

/// Frames start at multiples of this size.
const FRAME_ALIGNMENT: usize = 8;

pub(crate) struct Found {
    pub(crate) live: VecDeque<RingSegment>,
    /// Segments that are not part of the log.
    pub(crate) unused: Vec<Segment>,
    /// The next segment id. It is larger than every id that was ever used.
    pub(crate) next_id: u64,
    pub(crate) end: Link,
    pub(crate) next_commit: u64,
    pub(crate) shards: BTreeMap<ShardId, Logged>,
}

/// A segment that is part of the log.
struct Used {
    segment: Segment,
    header: SegmentHeader,
}

pub(crate) fn recover(disk: &dyn Disk, layout: &Layout) -> Result<Found, OpenError> {
    let ids = segment_ids(disk, layout)?;
    let next_id = ids.last().map_or(1, |id| id + 1);
    let (used, unused) = sort_out(disk, layout, &ids)?;
    let mut scan =
        Scan { layout, shards: BTreeMap::new(), last_commit: 0, live: VecDeque::new(), buffer: Vec::new() };
    let mut end = Link::default();
    let ends: Vec<Option<u64>> =
        used.iter().skip(1).map(|next| Some(next.header.previous.end)).chain([None]).collect();
    for (used, sealed_at) in used.into_iter().zip(ends) {
        end = scan.segment(used, sealed_at)?;
    }
    if let Some(first) = unused.iter().find(|segment| segment.id > end.segment) {
        scan.expect_unwritten(first)?;
    }
    let next_commit = scan.last_commit.saturating_add(1);
    let shards = scan.shards.into_iter().map(|(id, found)| (id, found.into_logged())).collect();
    Ok(Found { live: scan.live, unused, next_id, end, next_commit, shards })
}

fn failed(action: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = text(path);
    move |source| OpenError::Io { action, path, source }
}

fn segment_ids(disk: &dyn Disk, layout: &Layout) -> Result<Vec<u64>, OpenError> {
    let entries = disk.list(&layout.wal_dir()).map_err(failed("listing", &layout.wal_dir()))?;
    let numbers = entries.iter().filter_map(|entry| number_in(&entry.name, ".wal"));
    let mut ids: Vec<u64> = numbers.filter(|id| (1..Place::SEGMENT_MAX).contains(id)).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Follows the headers back from the newest used segment. The linked segments are the log; each of them must exist and
/// be readable.
fn sort_out(disk: &dyn Disk, layout: &Layout, ids: &[u64]) -> Result<(Vec<Used>, Vec<Segment>), OpenError> {
    let mut used: Vec<Used> = Vec::new();
    let mut unused = Vec::new();
    for id in ids.iter().rev() {
        let (segment, header) = open_segment(disk, layout, *id, used.is_empty())?;
        let wanted = used.last().map(|newer| newer.header.previous.segment);
        match (header, wanted) {
            (Some(header), None) => used.push(Used { segment, header }),
            (Some(header), Some(wanted)) if wanted == *id => used.push(Used { segment, header }),
            (Some(_), Some(wanted)) => {
                let newer = used.last().map_or(0, |newer| newer.segment.id);
                let what = format!(
                    "the segment before it, {wanted}, is missing, but the older segment {id} is there"
                );
                return Err(damaged(layout, newer, 0, &what));
            }
            // Segments are used in the order of their ids.
            (None, Some(_)) => {
                let what = "a newer segment is in use, so this one was: its header is damaged";
                return Err(damaged(layout, *id, 0, what));
            }
            (None, None) => unused.push(segment),
        }
    }
    used.reverse();
    unused.reverse();
    Ok((used, unused))
}

/// Opens a segment and reads its header. Returns `None` if nothing was written to it under this id.
///
/// To find the newest used segment, the header must be read from the device: after a failed sync, the cache contains
/// bytes that a power failure would remove.
fn open_segment(
    disk: &dyn Disk,
    layout: &Layout,
    id: u64,
    may_be_newest: bool,
) -> Result<(Segment, Option<SegmentHeader>), OpenError> {
    let path = layout.segment(id);
    let file = disk.open(&path).map_err(failed("opening", &path))?;
    let size_bytes = file.size_bytes().map_err(failed("measuring", &path))?;
    if size_bytes < 4 * BLOCK_BYTES {
        return Err(damaged(layout, id, size_bytes, "the file was cut short"));
    }
    let segment = Segment { id, size_bytes, file };
    let mut header = read_header(&segment).map_err(failed("reading", &path))?;
    if header.is_some_and(|header| header.id == id) && may_be_newest {
        segment.file.sync().map_err(failed("syncing", &path))?;
        segment.file.forget_cache().map_err(failed("reading again", &path))?;
        header = read_header(&segment).map_err(failed("reading", &path))?;
    }
    match header {
        // A recycled file has the header of an older segment until it is used. The header of a newer segment is damage.
        Some(header) if header.id > id => {
            Err(damaged(layout, id, 0, &format!("this file is segment {} under another name", header.id)))
        }
        Some(header) if header.id < id => Ok((segment, None)),
        Some(header) if header.size_bytes > size_bytes => {
            let what = format!("the file was cut short, it had {} bytes", header.size_bytes);
            Err(damaged(layout, id, size_bytes, &what))
        }
        Some(header) if header.size_bytes < size_bytes => {
            Err(damaged(layout, id, header.size_bytes, "the file is longer than it was made"))
        }
        header => Ok((segment, header)),
    }
}

fn read_header(segment: &Segment) -> io::Result<Option<SegmentHeader>> {
    let mut block = vec![0; usize::try_from(BLOCK_BYTES).unwrap_or(0)];
    segment.file.read_at(&mut block, 0)?;
    Ok(SegmentHeader::decode(&block))
}

fn damaged(layout: &Layout, id: u64, offset: u64, what: &str) -> OpenError {
    OpenError::Corrupt { file: text(&layout.segment(id)), offset, what: what.to_owned() }
}

struct Scan<'a> {
    layout: &'a Layout,
    shards: BTreeMap<ShardId, FoundShard>,
    /// The newest commit with at least one complete frame.
    last_commit: u64,
    live: VecDeque<RingSegment>,
    /// The bytes of a segment. All segments use the same memory: new memory for each would cost more than reading and checking it.
    buffer: Vec<u8>,
}

struct FoundShard {
    first: CommitGroupNumber,
    last: GroupHead,
    places: VecDeque<Place>,
    bytes: u64,
}

impl FoundShard {
    fn into_logged(self) -> Logged {
        Logged {
            first: self.first,
            chain: self.last.chain(),
            epoch: self.last.epoch,
            places: self.places,
            bytes: self.bytes,
        }
    }
}

/// The position of the walk through a segment.
struct Cursor {
    /// The start of the next frame, and the end of the last one.
    next: u64,
    last_end: u64,
    /// The number of frames of the current commit that must follow.
    frames_left: u32,
}

impl Scan<'_> {
    /// Reads all frames of a segment and returns their end. A sealed segment must be complete up to the offset at which
    /// it was sealed.
    fn segment(&mut self, used: Used, sealed_at: Option<u64>) -> Result<Link, OpenError> {
        let mut bytes = std::mem::take(&mut self.buffer);
        read_whole(&used.segment, sealed_at, &mut bytes)
            .map_err(failed("reading", &self.layout.segment(used.segment.id)))?;
        let id = used.segment.id;
        self.start_commits(&used.header)?;
        let mut newest = BTreeMap::new();
        let mut cursor = Cursor { next: BLOCK_BYTES, last_end: BLOCK_BYTES, frames_left: 0 };
        while sealed_at != Some(cursor.last_end) {
            let Some(header) = self.frame_at(&bytes, id, &cursor) else {
                match sealed_at {
                    None => self.expect_torn(&bytes, id, &cursor)?,
                    Some(end) => {
                        let what =
                            format!("a frame is damaged, although the segment was written up to byte {end}");
                        return Err(damaged(self.layout, id, cursor.next, &what));
                    }
                }
                break;
            };
            self.note(&header, Place::new(id, cursor.next))
                .map_err(|what| damaged(self.layout, id, cursor.next, &what))?;
            newest.insert(header.group.shard, header.group.number);
            self.last_commit = header.landing.commit;
            cursor.advance(&header);
        }
        self.buffer = bytes;
        self.live.push_back(RingSegment { segment: Arc::new(used.segment), newest });
        Ok(Link { segment: id, end: cursor.last_end })
    }

    /// Checks that the segment continues the numbers of the commits, which have no gaps. Only the oldest segment may
    /// start with any number.
    fn start_commits(&mut self, header: &SegmentHeader) -> Result<(), OpenError> {
        let before = header.first_commit.saturating_sub(1);
        if !self.live.is_empty() && before != self.last_commit {
            let what = format!(
                "the segment starts after commit {before}, the one before it ends with {}",
                self.last_commit
            );
            return Err(damaged(self.layout, header.id, 0, &what));
        }
        self.last_commit = before;
        Ok(())
    }

    /// Returns the commit that the frame at the cursor must belong to.
    fn expected_commit(&self, cursor: &Cursor) -> u64 {
        if cursor.frames_left > 0 { self.last_commit } else { self.last_commit.saturating_add(1) }
    }

    fn frame_at(&self, bytes: &[u8], id: u64, cursor: &Cursor) -> Option<FrameHeader> {
        let at = usize::try_from(cursor.next).ok()?;
        let (head, rest) = bytes.get(at..)?.split_at_checked(FRAME_HEADER_BYTES)?;
        let header = FrameHeader::decode(head)?;
        let in_order = self.expected_commit(cursor) == header.landing.commit
            && (cursor.frames_left == 0 || header.landing.frames_left == cursor.frames_left - 1);
        let payload = rest.get(..header.group.payload_bytes as usize)?;
        let valid =
            header.landing.segment == id && in_order && crc32c::crc32c(payload) == header.group.payload_crc;
        valid.then_some(header)
    }

    /// Checks that a bad frame at the end of the log is a torn write. It is one if no frame of a later commit follows:
    /// the writer starts a commit only after the commit before it is durable.
    fn expect_torn(&self, bytes: &[u8], id: u64, cursor: &Cursor) -> Result<(), OpenError> {
        let later = later_than(self.expected_commit(cursor), bytes.len() as u64);
        match later_commit(bytes, cursor.next, id, &later) {
            None => Ok(()),
            Some(at) => {
                let what = format!("a frame is damaged, but a later commit is intact at byte {at}");
                Err(damaged(self.layout, id, cursor.next, &what))
            }
        }
    }

    /// Checks that the next segment was not written. It may contain a torn first commit without a header; if it
    /// contains more, its header was lost.
    fn expect_unwritten(&self, segment: &Segment) -> Result<(), OpenError> {
        const CHUNK_BYTES: u64 = 1024 * 1024;
        let later = later_than(self.last_commit.saturating_add(1), segment.size_bytes);
        let mut chunk = Vec::new();
        let mut start = BLOCK_BYTES;
        while start < segment.size_bytes {
            let size = CHUNK_BYTES.min(segment.size_bytes - start);
            chunk.resize(usize::try_from(size).unwrap_or(0), 0);
            let read = segment.file.read_at(&mut chunk, start);
            read.map_err(failed("reading", &self.layout.segment(segment.id)))?;
            if let Some(at) = later_commit(&chunk, 0, segment.id, &later) {
                let what = format!(
                    "the header of the segment is damaged, but a commit is intact at byte {}",
                    start + at
                );
                return Err(damaged(self.layout, segment.id, 0, &what));
            }
            start += size;
        }
        Ok(())
    }

    /// Adds a group to its shard, or returns the reason why it does not continue the group before it.
    fn note(&mut self, header: &FrameHeader, place: Place) -> Result<(), String> {
        let group = header.group;
        let Some(found) = self.shards.get_mut(&group.shard) else {
            let places = VecDeque::from([place]);
            let found = FoundShard {
                first: group.number,
                last: group,
                places,
                bytes: frame_bytes(group.payload_bytes as usize),
            };
            self.shards.insert(group.shard, found);
            return Ok(());
        };
        let last = found.last;
        if last.number.0.checked_add(1) != Some(group.number.0) {
            return Err(format!("{} follows {} of {}", group.number, last.number, group.shard));
        }
        if group.previous != last.chain() || group.epoch < last.epoch {
            return Err(format!("{} of {} does not continue the group before it", group.number, group.shard));
        }
        found.last = group;
        found.places.push_back(place);
        found.bytes += frame_bytes(group.payload_bytes as usize);
        Ok(())
    }
}

impl Cursor {
    fn advance(&mut self, header: &FrameHeader) {
        self.last_end = self.next + FRAME_HEADER_BYTES as u64 + u64::from(header.group.payload_bytes);
        self.frames_left = header.landing.frames_left;
        let alignment = if self.frames_left > 0 { 8 } else { BLOCK_BYTES };
        self.next = self.last_end.next_multiple_of(alignment);
    }
}

/// Returns the commits that a segment of this size can contain after a torn one, at most one per block. A frame of a
/// commit outside of this range is the content of a message.
fn later_than(torn: u64, size_bytes: u64) -> RangeInclusive<u64> {
    torn.saturating_add(1)..=torn.saturating_add(size_bytes / BLOCK_BYTES)
}

/// Returns the first offset from `from` on with a frame of one of these commits. Frames in the middle of a commit count
/// too, because the first frame may be torn.
fn later_commit(bytes: &[u8], from: u64, id: u64, commits: &RangeInclusive<u64>) -> Option<u64> {
    let is_later =
        |header: FrameHeader| header.landing.segment == id && commits.contains(&header.landing.commit);
    let mut at = usize::try_from(from).ok()?.next_multiple_of(FRAME_ALIGNMENT);
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        if FrameHeader::decode(rest).is_some_and(is_later) {
            return Some(at as u64);
        }
        at += FRAME_ALIGNMENT;
    }
    None
}

/// Reads the segment up to `end`, or all of it. Segments are small enough for this.
fn read_whole(segment: &Segment, end: Option<u64>, bytes: &mut Vec<u8>) -> io::Result<()> {
    let size = end.unwrap_or(segment.size_bytes).min(segment.size_bytes);
    bytes.resize(usize::try_from(size).unwrap_or(0), 0);
    segment.file.read_at(bytes, 0)
}
