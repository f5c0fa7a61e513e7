//! Reads bodies from the log and from cold segments, neighbours together.

mod checked;
mod parts;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use peeklock_journal::{ReadError, StoredBody};
use peeklock_types::{BodyPlace, BodyRef, CommitGroupNumber};

pub(crate) use self::checked::checked_bodies;
pub(crate) use self::parts::Sums;
use crate::buffers::Buffers;
use crate::cold::{self, BODY_HEADER_BYTES, Kind};
use crate::disk::DiskFile;
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader};
use crate::large::LargeRange;
use crate::layout::text;
use crate::locked;
use crate::segment::{Place, Segment};
use crate::shard::Shard;
use crate::shared::Shared;
use crate::warm::WINDOW_BYTES;

/// The limits of a shared read: ranges with at most this gap are read together, up to this size.
const GAP_BYTES_MAX: u64 = 4 * 1024;
const READ_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Larger bodies are read separately: another call costs less than copying the body out of a shared read.
const ALONE_BYTES: u64 = 64 * 1024;
/// A body is copied out of a shared buffer if it would otherwise keep more than this, and more than its own size, in
/// memory until a receiver has taken it.
const PINNED_BYTES_MAX: usize = 4096;

/// The number of bodies up to which a read includes those that follow. More bodies are read together.
const FEW: usize = 32;

const BEHIND_END: &str = "a body that should be in this group lies behind its end";

/// Returns the body if it is in memory.
pub(crate) fn hot(shard: &Shard, body: StoredBody) -> Option<Bytes> {
    hot_group(shard, body).map(|(bytes, _)| bytes).or_else(|| warm(shard, body))
}

/// Returns the body if it is in memory, without keeping much of its group alive.
pub(crate) fn hot_apart(shard: &Shard, body: StoredBody) -> Option<Bytes> {
    let hot = hot_group(shard, body).map(|(bytes, part_bytes)| unpinned(bytes, part_bytes));
    hot.or_else(|| warm(shard, body))
}

/// Returns the body if it was read with another one.
fn warm(shard: &Shard, body: StoredBody) -> Option<Bytes> {
    let BodyPlace::InGroup { group, offset_bytes } = body.place.place() else { return None };
    locked(&shard.windows).find(group, offset_bytes, body.size_bytes)
}

/// Reads a small body in the log together with those that follow it in its group. Returns `None` for other bodies.
fn read_on(shared: &Shared, shard: &Shard, body: StoredBody) -> Result<Option<Bytes>, ReadError> {
    let BodyPlace::InGroup { group, offset_bytes } = body.place.place() else { return Ok(None) };
    if u64::from(body.size_bytes) > WINDOW_BYTES / 4 {
        return Ok(None);
    }
    let place = locked(&shard.books).place(group).ok_or(ReadError::Gone(body.place))?;
    let segment = locked(&shared.ring).find(place.segment()).ok_or(ReadError::Gone(body.place))?;
    let source = Source::log(shared, segment);
    let header = source.read(place.offset(), FRAME_HEADER_BYTES as u64)?;
    let header = source.header(&header, place.offset(), shard, group)?;
    let payload_bytes = header.group.payload_bytes;
    if payload_bytes.checked_sub(offset_bytes).is_none_or(|rest_bytes| rest_bytes < body.size_bytes) {
        return Err(source.damaged(place.offset(), BEHIND_END));
    }
    let is_whole = u64::from(payload_bytes) <= WINDOW_BYTES;
    let start = if is_whole { 0 } else { offset_bytes };
    let size_bytes = u64::from(payload_bytes - start).min(WINDOW_BYTES);
    let bytes = if is_whole {
        let bytes = source.read(place.offset() + FRAME_HEADER_BYTES as u64, size_bytes)?;
        if crc32c::crc32c(&bytes) != header.group.payload_crc {
            return Err(source.damaged(place.offset(), "the checksum of a group does not fit"));
        }
        bytes
    } else {
        parts::read(&source, shard, place, &header, start.into(), size_bytes)?
    };
    let mut windows = locked(&shard.windows);
    windows.put(group, start, bytes);
    Ok(windows.find(group, offset_bytes, body.size_bytes))
}

/// Returns the body and the size of the buffer that it is a slice of.
fn hot_group(shard: &Shard, body: StoredBody) -> Option<(Bytes, usize)> {
    let BodyPlace::InGroup { group, offset_bytes } = body.place.place() else { return None };
    let books = locked(&shard.books);
    let payload = books.hot(group)?;
    let (start, size) = (offset_bytes as usize, body.size_bytes as usize);
    payload.slice(start..start.checked_add(size)?)
}

/// Copies the body if the slice would keep much more memory alive.
fn unpinned(body: Bytes, whole_bytes: usize) -> Bytes {
    let pinned_bytes = whole_bytes.saturating_sub(body.len());
    if pinned_bytes > PINNED_BYTES_MAX.max(body.len()) { Bytes::copy_from_slice(&body) } else { body }
}

/// Returns the bodies in order.
pub(crate) fn bodies(shared: &Shared, shard: &Shard, wanted: &[StoredBody]) -> Result<Vec<Bytes>, ReadError> {
    let mut plan =
        Plan { shared, shard, pieces: Vec::new(), groups: BTreeMap::new(), sources: BTreeMap::new() };
    let mut found: Vec<Option<Bytes>> = vec![None; wanted.len()];
    for (slot, body) in wanted.iter().enumerate() {
        let mut known = hot_apart(shard, *body);
        if known.is_none() && wanted.len() <= FEW {
            known = read_on(shared, shard, *body)?;
        }
        found[slot] = match known {
            None => plan.add(slot, *body)?,
            known => known,
        };
    }
    plan.read(&mut found)?;
    let missing = |at: usize| ReadError::Gone(wanted[at].place);
    found.into_iter().enumerate().map(|(at, bytes)| bytes.ok_or_else(|| missing(at))).collect()
}

/// Reads a range of a body. A large body has checksums for its chunks. A body of a stream is read completely and
/// checked before ranges of it are read. A part of a body in the log is checked like a body.
pub(crate) fn range(
    shared: &Shared,
    shard: &Shard,
    body: StoredBody,
    range: Range<u32>,
) -> Result<Bytes, ReadError> {
    let end = range.end.min(body.size_bytes);
    let start = range.start.min(end);
    match body.place.place() {
        BodyPlace::Standalone { handle } => {
            let (segment, offset_bytes) = cold::segment_and_offset(handle);
            let source = cold_source(shared, shard, segment)?;
            let (source, kind) = source.ok_or(ReadError::Gone(body.place))?;
            if kind == Kind::Large {
                return source.large_range(&LargeRange::new(segment, body.size_bytes, range));
            }
            if kind == Kind::Stream && shard.is_sound(body.place) {
                let at = offset_bytes + BODY_HEADER_BYTES as u64 + u64::from(start);
                return source.read(at, (end - start).into());
            }
        }
        BodyPlace::InGroup { group, offset_bytes } => {
            // A part of a body can be read as a body if it starts at an aligned offset.
            let before = start % u32::try_from(BodyRef::ALIGNMENT).unwrap_or(1);
            let place = offset_bytes.checked_add(start - before).and_then(|at| BodyRef::in_group(group, at));
            if let Some(place) = place {
                let part = StoredBody { place, size_bytes: end - start + before };
                let part = bodies(shared, shard, &[part])?.pop().ok_or(ReadError::Gone(body.place))?;
                return Ok(part.slice((before as usize).min(part.len())..));
            }
        }
    }
    let whole = bodies(shared, shard, &[body])?.pop().ok_or(ReadError::Gone(body.place))?;
    Ok(whole.slice((start as usize).min(whole.len())..(end as usize).min(whole.len())))
}

/// Opens a cold segment for reading. Returns `None` if it does not exist any more.
fn cold_source(shared: &Shared, shard: &Shard, number: u32) -> Result<Option<(Source, Kind)>, ReadError> {
    let Shared { disk, layout, .. } = shared;
    let Some((file, kind)) = shard.cold.file(&**disk, layout, number)? else { return Ok(None) };
    let path = text(&kind.path(layout, shard.id, number));
    let size_bytes = file.size_bytes().map_err(|source| ReadError::Io { path: path.clone(), source })?;
    let buffers = Arc::clone(&shared.buffers);
    Ok(Some((Source { path, file, size_bytes, buffers, _segment: None }, kind)))
}

/// Reads the header of a group in the log. Returns `None` if its space was reused.
pub(crate) fn header(
    shared: &Shared,
    shard: &Shard,
    number: CommitGroupNumber,
) -> Result<Option<FrameHeader>, ReadError> {
    let place = locked(&shard.books).place(number);
    let Some((place, segment)) =
        place.and_then(|place| Some((place, locked(&shared.ring).find(place.segment())?)))
    else {
        return Ok(None);
    };
    let source = Source::log(shared, segment);
    let bytes = source.read(place.offset(), FRAME_HEADER_BYTES as u64)?;
    source.header(&bytes, place.offset(), shard, number).map(Some)
}

/// A file that contains bodies. It stays open, so the file may be removed during the read. A log segment is not
/// recycled while it is held.
struct Source {
    path: String,
    file: Arc<dyn DiskFile>,
    size_bytes: u64,
    buffers: Arc<Buffers>,
    /// Keeps the segment in use, if the file is a log segment.
    _segment: Option<Arc<Segment>>,
}

impl Source {
    fn log(shared: &Shared, segment: Arc<Segment>) -> Self {
        Source {
            path: text(&shared.layout.segment(segment.id)),
            file: Arc::clone(&segment.file),
            size_bytes: segment.size_bytes,
            buffers: Arc::clone(&shared.buffers),
            _segment: Some(segment),
        }
    }

    fn read(&self, offset: u64, size_bytes: u64) -> Result<Bytes, ReadError> {
        // Sizes come from references and headers, so they are checked against the file before memory is allocated.
        if offset.checked_add(size_bytes).is_none_or(|end| end > self.size_bytes) {
            return Err(self.damaged(offset, "something that should be here would end behind the file"));
        }
        let size_bytes = usize::try_from(size_bytes).unwrap_or(usize::MAX);
        let read = self.buffers.read(&*self.file, size_bytes, offset);
        read.map_err(|source| ReadError::Io { path: self.path.clone(), source })
    }

    fn large_range(&self, range: &LargeRange) -> Result<Bytes, ReadError> {
        let wanted = range.file_range();
        let chunks = self.read(wanted.start, wanted.end - wanted.start)?;
        range.cut(&chunks).map_err(|(offset, what)| self.damaged(offset, what))
    }

    fn header(
        &self,
        bytes: &[u8],
        at: u64,
        shard: &Shard,
        number: CommitGroupNumber,
    ) -> Result<FrameHeader, ReadError> {
        let header =
            FrameHeader::decode(bytes).ok_or_else(|| self.damaged(at, "the header of a group is damaged"))?;
        if header.group.shard != shard.id || header.group.number != number {
            return Err(self.damaged(at, "another group stands here"));
        }
        Ok(header)
    }

    fn damaged(&self, offset: u64, what: &str) -> ReadError {
        ReadError::Corrupt { file: self.path.clone(), offset, what: what.to_owned() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SourceId {
    Log(u64),
    Cold(u32),
}

/// A range of a file, and its purpose. When sorted, the ranges of one file are neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    source: SourceId,
    offset: u64,
    size_bytes: u64,
    purpose: Purpose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    /// Verifies that the group is the expected one and long enough.
    GroupHeader {
        number: CommitGroupNumber,
        payload_bytes_min: u64,
    },
    LogBody {
        slot: usize,
        number: CommitGroupNumber,
        offset_bytes: u32,
    },
    ColdBody {
        slot: usize,
    },
}

/// A body in a group that was not read as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Unchecked {
    number: CommitGroupNumber,
    start: u64,
    end: u64,
    slot: usize,
}

struct Plan<'a> {
    shared: &'a Shared,
    shard: &'a Shard,
    pieces: Vec<Piece>,
    /// The place and the least length of each group.
    groups: BTreeMap<CommitGroupNumber, (Place, u64)>,
    /// The kind applies to cold segments only.
    sources: BTreeMap<SourceId, (Source, Kind)>,
}

impl Plan<'_> {
    /// Adds a body to the plan. Reads a large body at once, because it has no neighbours.
    fn add(&mut self, slot: usize, body: StoredBody) -> Result<Option<Bytes>, ReadError> {
        let size_bytes = u64::from(body.size_bytes);
        match body.place.place() {
            BodyPlace::InGroup { group, offset_bytes } => {
                let place = locked(&self.shard.books).place(group).ok_or(ReadError::Gone(body.place))?;
                let source = SourceId::Log(place.segment());
                self.open_log(place.segment()).ok_or(ReadError::Gone(body.place))?;
                let (_, payload_bytes_min) = self.groups.entry(group).or_insert((place, 0));
                *payload_bytes_min = (*payload_bytes_min).max(u64::from(offset_bytes) + size_bytes);
                let offset = place.offset() + FRAME_HEADER_BYTES as u64 + u64::from(offset_bytes);
                let purpose = Purpose::LogBody { slot, number: group, offset_bytes };
                self.pieces.push(Piece { source, offset, size_bytes, purpose });
            }
            BodyPlace::Standalone { handle } => {
                let (segment, offset) = cold::segment_and_offset(handle);
                if self.open_cold(segment)?.ok_or(ReadError::Gone(body.place))? == Kind::Large {
                    let all = LargeRange::new(segment, body.size_bytes, 0..body.size_bytes);
                    let source = self.sources.get(&SourceId::Cold(segment));
                    return source.map(|(source, _)| source.large_range(&all)).transpose();
                }
                let size_bytes = size_bytes + BODY_HEADER_BYTES as u64;
                let source = SourceId::Cold(segment);
                self.pieces.push(Piece { source, offset, size_bytes, purpose: Purpose::ColdBody { slot } });
            }
        }
        Ok(None)
    }

    fn open_log(&mut self, id: u64) -> Option<()> {
        if !self.sources.contains_key(&SourceId::Log(id)) {
            let segment = locked(&self.shared.ring).find(id)?;
            self.sources.insert(SourceId::Log(id), (Source::log(self.shared, segment), Kind::Moved));
        }
        Some(())
    }

    fn open_cold(&mut self, number: u32) -> Result<Option<Kind>, ReadError> {
        if let Some((_, kind)) = self.sources.get(&SourceId::Cold(number)) {
            return Ok(Some(*kind));
        }
        let Some((source, kind)) = cold_source(self.shared, self.shard, number)? else { return Ok(None) };
        self.sources.insert(SourceId::Cold(number), (source, kind));
        Ok(Some(kind))
    }

    fn read(mut self, found: &mut [Option<Bytes>]) -> Result<(), ReadError> {
        let headers = self.groups.iter().map(|(number, (place, payload_bytes_min))| Piece {
            source: SourceId::Log(place.segment()),
            offset: place.offset(),
            size_bytes: FRAME_HEADER_BYTES as u64,
            purpose: Purpose::GroupHeader { number: *number, payload_bytes_min: *payload_bytes_min },
        });
        self.pieces.extend(headers);
        self.pieces.sort_unstable();
        let mut checked = BTreeSet::new();
        let mut rest = self.pieces.as_slice();
        while let Some((first, _)) = rest.split_first() {
            let (count, end) = run_of(rest);
            let (run, after) = rest.split_at(count);
            if let Some((source, _)) = self.sources.get(&first.source) {
                let bytes = source.read(first.offset, end - first.offset)?;
                self.hand_out(source, run, &bytes, &mut checked, found)?;
            }
            rest = after;
        }
        self.check_rest(&checked, found)
    }

    /// Checks the bodies whose group was not read as a whole: they are read once more with the blocks around them.
    fn check_rest(
        &self,
        checked: &BTreeSet<CommitGroupNumber>,
        found: &mut [Option<Bytes>],
    ) -> Result<(), ReadError> {
        let unchecked = self.pieces.iter().filter_map(|piece| match piece.purpose {
            Purpose::LogBody { slot, number, offset_bytes } if !checked.contains(&number) => {
                let start = u64::from(offset_bytes);
                Some(Unchecked { number, start, end: start + piece.size_bytes, slot })
            }
            _ => None,
        });
        let mut unchecked: Vec<_> = unchecked.collect();
        unchecked.sort_unstable();
        let is_near = |one: &Unchecked, next: &Unchecked| {
            one.number == next.number && next.start <= one.end + GAP_BYTES_MAX
        };
        for run in unchecked.chunk_by(is_near) {
            let Some(&Unchecked { number, start, .. }) = run.first() else { continue };
            let end = run.iter().map(|body| body.end).max().unwrap_or(start);
            let Some((place, _)) = self.groups.get(&number) else { continue };
            let Some((source, _)) = self.sources.get(&SourceId::Log(place.segment())) else { continue };
            let header = source.read(place.offset(), FRAME_HEADER_BYTES as u64)?;
            let header = source.header(&header, place.offset(), self.shard, number)?;
            let bytes = parts::read(source, self.shard, *place, &header, start, end - start)?;
            for body in run {
                let at = |offset: u64| usize::try_from(offset - start).unwrap_or(usize::MAX);
                found[body.slot] = Some(unpinned(bytes.slice(at(body.start)..at(body.end)), bytes.len()));
            }
        }
        Ok(())
    }

    /// Divides the result of one read into its pieces and checks them.
    fn hand_out(
        &self,
        source: &Source,
        run: &[Piece],
        bytes: &Bytes,
        checked: &mut BTreeSet<CommitGroupNumber>,
        found: &mut [Option<Bytes>],
    ) -> Result<(), ReadError> {
        let start = run.first().map_or(0, |piece| piece.offset);
        let cut = |at: u64, size: u64| {
            let from = usize::try_from(at - start).ok()?;
            let to = from.checked_add(usize::try_from(size).ok()?)?;
            (to <= bytes.len()).then(|| bytes.slice(from..to))
        };
        let keep = |body: Bytes| unpinned(body, bytes.len());
        for piece in run {
            let Some(part) = cut(piece.offset, piece.size_bytes) else { continue };
            match (piece.purpose, piece.source) {
                (Purpose::GroupHeader { number, payload_bytes_min }, _) => {
                    let header = source.header(&part, piece.offset, self.shard, number)?;
                    let payload_bytes = u64::from(header.group.payload_bytes);
                    if payload_bytes < payload_bytes_min {
                        return Err(source.damaged(piece.offset, BEHIND_END));
                    }
                    // If the read contains the whole group, its checksum can be verified at no cost.
                    let payload = cut(piece.offset + FRAME_HEADER_BYTES as u64, payload_bytes);
                    if let Some(payload) = payload {
                        if crc32c::crc32c(&payload) != header.group.payload_crc {
                            return Err(source.damaged(piece.offset, "the checksum of a group does not fit"));
                        }
                        checked.insert(number);
                    }
                }
                (Purpose::ColdBody { slot }, SourceId::Cold(segment)) => {
                    let body = cold::check_body(&part, segment, piece.offset);
                    let body = body.map_err(|what| source.damaged(piece.offset, &what))?;
                    if piece.size_bytes >= ALONE_BYTES {
                        self.shard.note_sound(cold::body_ref(segment, piece.offset));
                    }
                    found[slot] = Some(keep(body));
                }
                (Purpose::LogBody { slot, .. } | Purpose::ColdBody { slot }, _) => {
                    found[slot] = Some(keep(part))
                }
            }
        }
        Ok(())
    }
}

/// Returns how many of the sorted pieces one read covers, and the end of the read.
fn run_of(pieces: &[Piece]) -> (usize, u64) {
    let Some(first) = pieces.first() else { return (0, 0) };
    let mut end = first.offset.saturating_add(first.size_bytes);
    let mut count = 1;
    for piece in pieces.iter().skip(1) {
        let piece_end = piece.offset.saturating_add(piece.size_bytes);
        let near = piece.source == first.source && piece.offset <= end.saturating_add(GAP_BYTES_MAX);
        let alone = first.size_bytes >= ALONE_BYTES || piece.size_bytes >= ALONE_BYTES;
        if !near || alone || piece_end.max(end) - first.offset > READ_BYTES_MAX {
            break;
        }
        end = end.max(piece_end);
        count += 1;
    }
    (count, end)
}
