//! Cold segments: the files of the standalone bodies of a shard. A segment is only appended to, and is removed as a
//! whole.
//!
//! A segment is written by one run of the program. After a restart the program starts a new segment, so nothing is ever
//! written behind a torn end. Bodies that the owner does not adopt are removed.

mod files;
mod kind;
mod large;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use bytes::Bytes;
use peeklock_journal::{ReadError, StoredBody};
use peeklock_types::{BodyPlace, BodyRange, BodyRef, ShardId};

use crate::disk::{Disk, DiskFile};
use crate::frame::{u16_at, u32_at};
use crate::layout::{Layout, text};
use crate::locked;

use self::files::OpenFiles;
pub(crate) use self::kind::Kind;
use self::write::Writers;
pub(crate) use self::write::{Copy, Site, Target};

const MAGIC: [u8; 8] = *b"PLcoldsg";
const VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 24;
/// The checksum and the length before each body.
pub(crate) const BODY_HEADER_BYTES: usize = 8;

pub(crate) struct ColdStore {
    shard: ShardId,
    books: Mutex<Books>,
    /// The writers are locked while copies are written, which takes long. Fast calls only try to lock them.
    moved: Mutex<Writers>,
    streams: Mutex<Writers>,
    /// Whether the directory of this shard is durable.
    has_directory: AtomicBool,
    /// Whether a segment is mostly dead. An atomic, because it is read for every batch.
    has_mostly_dead: AtomicBool,
}

struct Books {
    /// The epoch of the owner. Calls of earlier owners are ignored.
    owner: u32,
    segments: BTreeMap<u32, Segment>,
    mostly_dead: BTreeSet<u32>,
    /// Segments that are being written and have no live body. They are given up soon.
    idle: BTreeSet<u32>,
    files: OpenFiles,
    /// Whether the owner has adopted the live bodies.
    counted: bool,
    next: u32,
}

struct Segment {
    kind: Kind,
    size_bytes: u64,
    live_bytes: u64,
    sealed: bool,
}

/// An open segment and its kind.
pub(crate) type OpenSegment = (Arc<dyn DiskFile>, Kind);

/// A segment without live bodies, to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dead {
    pub(crate) kind: Kind,
    pub(crate) segment: u32,
    pub(crate) size_bytes: u64,
}

fn stored_bytes(body_bytes: usize) -> u64 {
    ((BODY_HEADER_BYTES + body_bytes) as u64).next_multiple_of(8)
}

/// Returns the checksum of a body. It includes the place, so that one body cannot pass for another.
pub(crate) fn checksum(segment: u32, offset: u64, body: &[u8]) -> u32 {
    crc32c::crc32c_append(place_checksum(segment, offset), body)
}

fn place_checksum(segment: u32, offset: u64) -> u32 {
    let mut place = [0; 12];
    place[..4].copy_from_slice(&segment.to_le_bytes());
    place[4..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c(&place)
}

impl ColdStore {
    pub(crate) fn new(shard: ShardId) -> Self {
        let books = Books {
            owner: 0,
            segments: BTreeMap::new(),
            mostly_dead: BTreeSet::new(),
            idle: BTreeSet::new(),
            files: OpenFiles::default(),
            counted: false,
            next: 1,
        };
        ColdStore {
            shard,
            books: Mutex::new(books),
            moved: Mutex::default(),
            streams: Mutex::default(),
            has_directory: AtomicBool::new(false),
            has_mostly_dead: AtomicBool::new(false),
        }
    }

    /// Registers the files of earlier runs.
    pub(crate) fn load(&self, disk: &dyn Disk, layout: &Layout) -> io::Result<u64> {
        let entries = match disk.list(&layout.cold_dir(self.shard)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            other => other?,
        };
        let mut books = locked(&self.books);
        for entry in entries {
            if let Some((kind, number)) = Kind::of(&entry.name) {
                let segment = Segment { kind, size_bytes: entry.size_bytes, live_bytes: 0, sealed: true };
                books.segments.insert(number, segment);
                books.next = books.next.max(number.saturating_add(1));
            }
        }
        Ok(books.segments.values().map(|s| s.size_bytes).sum())
    }

    pub(crate) fn ensure_directory(&self, disk: &dyn Disk, layout: &Layout) -> io::Result<()> {
        if !self.has_directory.load(Ordering::Relaxed) {
            disk.create_dir_all(&layout.cold_dir(self.shard))?;
            disk.sync_dir(&layout.cold_root())?;
            self.has_directory.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Prepares for a new owner, which adopts the live bodies again. Calls of an earlier owner have no effect.
    pub(crate) fn start_count(&self, epoch: u32) {
        let (mut moved, mut streams) = (locked(&self.moved), locked(&self.streams));
        let mut books = locked(&self.books);
        if epoch < books.owner {
            return;
        }
        *moved = Writers::default();
        *streams = Writers::default();
        books.owner = epoch;
        books.counted = false;
        books.mostly_dead.clear();
        books.idle.clear();
        for segment in books.segments.values_mut() {
            segment.live_bytes = 0;
            segment.sealed = true;
        }
        self.publish(&books);
    }

    /// Counts the bodies that live, and returns the segments in which none does.
    pub(crate) fn adopt(&self, epoch: u32, live: &[StoredBody]) -> Vec<Dead> {
        let mut books = locked(&self.books);
        if books.counted || books.owner != epoch {
            return Vec::new();
        }
        for (number, size) in live.iter().filter_map(segment_and_size) {
            if let Some(segment) = books.segments.get_mut(&number) {
                segment.live_bytes += size;
            }
        }
        books.counted = true;
        let numbers: Vec<u32> = books.segments.keys().copied().collect();
        let mut dead = numbers.into_iter().filter_map(|number| books.review(number)).collect();
        self.give_up_idle(&mut books, &mut dead);
        self.publish(&books);
        dead
    }

    pub(crate) fn release(&self, epoch: u32, bodies: &[StoredBody]) -> Vec<Dead> {
        let mut dead = Vec::new();
        let mut books = locked(&self.books);
        if books.owner != epoch {
            return dead;
        }
        for (number, size) in bodies.iter().filter_map(segment_and_size) {
            if let Some(segment) = books.segments.get_mut(&number) {
                segment.live_bytes = segment.live_bytes.saturating_sub(size);
            }
            dead.extend(books.review(number));
        }
        self.give_up_idle(&mut books, &mut dead);
        self.publish(&books);
        dead
    }

    /// Gives up segments that are being written and have no live body, unless a copy is being written to them. The
    /// writer of the copy checks again at the end.
    fn give_up_idle(&self, books: &mut Books, dead: &mut Vec<Dead>) {
        if books.idle.is_empty() {
            return;
        }
        for writers in [&self.moved, &self.streams] {
            match writers.try_lock() {
                Ok(mut writers) => writers.give_up_idle(books, dead),
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().give_up_idle(books, dead),
                Err(TryLockError::WouldBlock) => {}
            }
        }
    }

    pub(crate) fn mostly_dead(&self) -> Option<u32> {
        if !self.has_mostly_dead.load(Ordering::Relaxed) {
            return None;
        }
        locked(&self.books).mostly_dead.first().copied()
    }

    fn publish(&self, books: &Books) {
        self.has_mostly_dead.store(!books.mostly_dead.is_empty(), Ordering::Relaxed);
    }

    /// Returns an open file of the segment and its kind, or `None` if the segment does not exist any more.
    pub(crate) fn file(
        &self,
        disk: &dyn Disk,
        layout: &Layout,
        number: u32,
    ) -> Result<Option<OpenSegment>, ReadError> {
        let kind = {
            let mut books = locked(&self.books);
            let Some(kind) = books.segments.get(&number).map(|segment| segment.kind) else { return Ok(None) };
            if let Some(file) = books.files.get(number) {
                return Ok(Some((file, kind)));
            }
            kind
        };
        let path = kind.path(layout, self.shard, number);
        let failed = |source| ReadError::Io { path: text(&path), source };
        let file = match disk.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(failed)?,
        };
        let mut header = [0; HEADER_BYTES];
        file.read_at(&mut header, 0).map_err(failed)?;
        if header != encode_header(kind, self.shard, number) {
            let what = describe_header(kind, &header);
            return Err(ReadError::Corrupt { file: text(&path), offset: 0, what });
        }
        locked(&self.books).keep_open(number, &file);
        Ok(Some((file, kind)))
    }
}

impl Books {
    /// Keeps a file open, unless its segment was removed in the meantime.
    fn keep_open(&mut self, number: u32, file: &Arc<dyn DiskFile>) {
        if self.segments.contains_key(&number) {
            self.files.keep(number, file);
        }
    }

    /// Removes a segment from the books.
    fn remove(&mut self, number: u32) -> Option<Dead> {
        self.mostly_dead.remove(&number);
        self.idle.remove(&number);
        self.files.forget(number);
        let gone = self.segments.remove(&number)?;
        Some(Dead { kind: gone.kind, segment: number, size_bytes: gone.size_bytes })
    }

    fn seal(&mut self, number: u32) {
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.sealed = true;
        }
    }

    /// Updates the state of a segment after its live bytes have changed: it is removed if it has none, and mostly dead
    /// if less than half of it lives.
    fn review(&mut self, number: u32) -> Option<Dead> {
        let segment = self.segments.get(&number)?;
        if !self.counted {
            return None;
        }
        let is_empty = segment.live_bytes == 0;
        if !segment.sealed {
            // An unfinished large body has no live bytes yet.
            if is_empty && segment.kind != Kind::Large {
                self.idle.insert(number);
            } else {
                self.idle.remove(&number);
            }
            return None;
        }
        if is_empty {
            return self.remove(number);
        }
        // Moving a body out of a segment of its own gains nothing, and a stream is released from its front.
        let is_mixed = segment.kind == Kind::Moved;
        if is_mixed && segment.is_mostly_dead() {
            self.mostly_dead.insert(number);
        } else {
            self.mostly_dead.remove(&number);
        }
        None
    }
}

impl Segment {
    fn is_mostly_dead(&self) -> bool {
        self.live_bytes.saturating_mul(2) < self.size_bytes
    }
}

/// Returns the body of a complete frame, or the contradiction.
pub(crate) fn check_body(frame: &Bytes, segment: u32, offset: u64) -> Result<Bytes, String> {
    let Some((header, body)) = frame.split_at_checked(BODY_HEADER_BYTES) else {
        return Err("the file ends inside of a body".to_owned());
    };
    if u32_at(header, 4) as usize != body.len() {
        return Err(format!(
            "a body of {} bytes stands where one of {} is wanted",
            u32_at(header, 4),
            body.len()
        ));
    }
    if u32_at(header, 0) != checksum(segment, offset, body) {
        return Err("the checksum of a body does not fit".to_owned());
    }
    Ok(frame.slice(BODY_HEADER_BYTES..))
}

pub(crate) fn encode_header(kind: Kind, shard: ShardId, number: u32) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    out[..8].copy_from_slice(&kind.magic());
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[12..14].copy_from_slice(&shard.0.to_le_bytes());
    out[16..20].copy_from_slice(&number.to_le_bytes());
    let crc = crc32c::crc32c(&out[..20]);
    out[20..].copy_from_slice(&crc.to_le_bytes());
    out
}

fn describe_header(kind: Kind, header: &[u8; HEADER_BYTES]) -> String {
    if header[..8] == kind.magic() && u32_at(header, 20) == crc32c::crc32c(&header[..20]) {
        let (shard, number) = (u16_at(header, 12), u32_at(header, 16));
        return format!("this is cold segment {number} of shard {shard}, version {}", u32_at(header, 8));
    }
    "the header of the cold segment is damaged".to_owned()
}

const OFFSET_BITS: u32 = 32;

/// Returns the reference to a body in a cold segment. The handle has 31 bits for the segment and 32 for the offset
/// divided by the alignment.
pub(crate) fn body_ref(segment: u32, offset_bytes: u64) -> BodyRef {
    let offset = offset_bytes / BodyRef::ALIGNMENT as u64;
    let fits = offset < 1 << OFFSET_BITS;
    let place = fits.then(|| BodyRef::standalone((u64::from(segment) << OFFSET_BITS) | offset)).flatten();
    place.expect("segments are far smaller and fewer than a handle can encode")
}

/// Returns the segment and the offset that [`body_ref`] has put into a handle.
pub(crate) fn segment_and_offset(handle: u64) -> (u32, u64) {
    let offset = (handle & ((1 << OFFSET_BITS) - 1)) * BodyRef::ALIGNMENT as u64;
    (u32::try_from(handle >> OFFSET_BITS).expect("a handle has 63 bits"), offset)
}

/// Returns the range of all bodies in a segment.
pub(crate) fn bodies_in(segment: u32) -> BodyRange {
    let first = u64::from(segment) << OFFSET_BITS;
    BodyRange::handles(first, first | ((1 << OFFSET_BITS) - 1))
}

/// Returns the segment of a standalone body and the space that the body takes there.
fn segment_and_size(body: &StoredBody) -> Option<(u32, u64)> {
    match body.place.place() {
        BodyPlace::Standalone { handle } => {
            Some((segment_and_offset(handle).0, stored_bytes(body.size_bytes as usize)))
        }
        BodyPlace::InGroup { .. } => None,
    }
}

#[cfg(test)]
mod tests;
