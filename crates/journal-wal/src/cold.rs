//! Cold segments: bodies that outlived their log segment, per shard, in files that are only appended to and dropped whole.
//!
//! A segment is written by one run of the program. After a restart a new one is started, so a torn tail is never written behind; whatever
//! nobody names as live is removed once the owner has counted.

mod kind;
mod large;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use bytes::{BufMut as _, Bytes, BytesMut};
use peeklock_journal::{ReadError, StoredBody};
use peeklock_types::{BodyPlace, BodyRef, ShardId};

use crate::disk::{Disk, DiskFile, is_no_room, write_all};
use crate::frame::{u16_at, u32_at};
use crate::layout::{Layout, text};
use crate::locked;

pub(crate) use self::kind::Kind;

const MAGIC: [u8; 8] = *b"PLcoldsg";
const VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 24;
/// Checksum and length before each body.
pub(crate) const BODY_HEADER_BYTES: usize = 8;
/// Copies are gathered up to this much before they are written.
const WRITE_BYTES: usize = 1024 * 1024;
/// Open files that one shard keeps for reading.
const OPEN_FILES_MAX: usize = 64;

pub(crate) struct ColdStore {
    shard: ShardId,
    books: Mutex<Books>,
    /// Held while copies are written, which is long: nothing that must not wait takes it.
    writer: Mutex<Option<Writer>>,
    /// Whether some segment is mostly dead; asked for each batch.
    has_mostly_dead: AtomicBool,
}

struct Books {
    /// Epoch of the owner whose word counts here.
    owner: u32,
    segments: BTreeMap<u32, Segment>,
    mostly_dead: BTreeSet<u32>,
    /// Whether the owner has named everything that lives.
    counted: bool,
    next: u32,
}

struct Segment {
    kind: Kind,
    size_bytes: u64,
    live_bytes: u64,
    sealed: bool,
    file: Option<Arc<dyn DiskFile>>,
}

struct Writer {
    number: u32,
    end: u64,
    file: Arc<dyn DiskFile>,
}

/// A segment that is open for reading, and what it holds.
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

/// Covers the place too, so that a body cannot pass for another one.
pub(crate) fn checksum(segment: u32, offset: u64, body: &[u8]) -> u32 {
    let mut place = [0; 12];
    place[..4].copy_from_slice(&segment.to_le_bytes());
    place[4..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&place), body)
}

impl ColdStore {
    pub(crate) fn new(shard: ShardId) -> Self {
        let books = Books {
            owner: 0,
            segments: BTreeMap::new(),
            mostly_dead: BTreeSet::new(),
            counted: false,
            next: 1,
        };
        ColdStore {
            shard,
            books: Mutex::new(books),
            writer: Mutex::new(None),
            has_mostly_dead: AtomicBool::new(false),
        }
    }

    /// Takes note of the files of earlier runs.
    pub(crate) fn load(&self, disk: &dyn Disk, layout: &Layout) -> io::Result<u64> {
        let entries = match disk.list(&layout.cold_dir(self.shard)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            other => other?,
        };
        let mut books = locked(&self.books);
        for entry in entries {
            if let Some((kind, number)) = Kind::of(&entry.name) {
                let segment =
                    Segment { kind, size_bytes: entry.size_bytes, live_bytes: 0, sealed: true, file: None };
                books.segments.insert(number, segment);
                books.next = books.next.max(number.saturating_add(1));
            }
        }
        Ok(books.segments.values().map(|s| s.size_bytes).sum())
    }

    /// A new owner counts anew, and what an older one still says changes nothing.
    pub(crate) fn start_count(&self, epoch: u32) {
        let mut writer = locked(&self.writer);
        let mut books = locked(&self.books);
        if epoch < books.owner {
            return;
        }
        *writer = None;
        books.owner = epoch;
        books.counted = false;
        books.mostly_dead.clear();
        for segment in books.segments.values_mut() {
            segment.live_bytes = 0;
            segment.sealed = true;
        }
        self.publish(&books);
    }

    pub(crate) fn close_count(&self, epoch: u32) -> Vec<Dead> {
        let mut books = locked(&self.books);
        if books.counted || books.owner != epoch {
            return Vec::new();
        }
        books.counted = true;
        let numbers: Vec<u32> = books.segments.keys().copied().collect();
        let dead = numbers.into_iter().filter_map(|number| books.review(number)).collect();
        self.publish(&books);
        dead
    }

    pub(crate) fn remember(&self, epoch: u32, bodies: &[StoredBody]) {
        let mut books = locked(&self.books);
        if books.owner != epoch {
            return;
        }
        for (number, _, size) in bodies.iter().filter_map(cold_place) {
            if let Some(segment) = books.segments.get_mut(&number) {
                segment.live_bytes += size;
            }
            // A body that moved on before the count was closed must not leave its old segment marked.
            books.review(number);
        }
        self.publish(&books);
    }

    pub(crate) fn forget(&self, epoch: u32, bodies: &[StoredBody]) -> Vec<Dead> {
        let mut dead = Vec::new();
        let mut books = locked(&self.books);
        if books.owner != epoch {
            return dead;
        }
        for (number, _, size) in bodies.iter().filter_map(cold_place) {
            if let Some(segment) = books.segments.get_mut(&number) {
                segment.live_bytes = segment.live_bytes.saturating_sub(size);
            }
            dead.extend(books.review(number));
        }
        let is_idle = |s: &Segment| !s.sealed && s.live_bytes == 0 && s.kind == Kind::Moved;
        let idle = books.segments.iter().find(|(_, s)| is_idle(s)).map(|(number, _)| *number);
        if let Some(number) = idle {
            dead.extend(self.seal_if_idle(&mut books, number));
        }
        self.publish(&books);
        dead
    }

    /// The segment being written has no live body left: give it up, unless copies are on their way into it.
    fn seal_if_idle(&self, books: &mut Books, number: u32) -> Option<Dead> {
        let mut writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if writer.as_ref().is_some_and(|w| w.number == number) {
            *writer = None;
        }
        books.segments.get_mut(&number)?.sealed = true;
        books.review(number)
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

    /// An open file of the segment and what it holds, or `None` if there is no such segment any more.
    pub(crate) fn file(
        &self,
        disk: &dyn Disk,
        layout: &Layout,
        number: u32,
    ) -> Result<Option<OpenSegment>, ReadError> {
        let kind = match locked(&self.books).segments.get(&number) {
            None => return Ok(None),
            Some(segment) => {
                if let Some(file) = &segment.file {
                    return Ok(Some((Arc::clone(file), segment.kind)));
                }
                segment.kind
            }
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

    /// Copies bodies behind each other and returns their places once all of them are durable. Segments that turn out to hold nothing that
    /// lives are added to `dead`, even if the copying fails: when the disk is full, their space is needed at once.
    pub(crate) fn write(
        &self,
        site: &Site<'_>,
        bodies: &[Bytes],
        dead: &mut Vec<Dead>,
    ) -> Result<Vec<BodyRef>, ReadError> {
        let mut writer = locked(&self.writer);
        let counted = BTreeMap::new();
        let mut copies = Copies {
            store: self,
            site,
            writer: &mut writer,
            touched: Vec::new(),
            created: false,
            counted,
            dead,
        };
        copies.write_all(bodies).map_err(|failed| {
            copies.take_back();
            failed.into_read_error()
        })
    }
}

impl Books {
    fn keep_open(&mut self, number: u32, file: &Arc<dyn DiskFile>) {
        if self.segments.values().filter(|s| s.file.is_some()).count() >= OPEN_FILES_MAX {
            self.segments.values_mut().for_each(|s| s.file = None);
        }
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.file = Some(Arc::clone(file));
        }
    }

    fn seal(&mut self, number: u32) {
        if let Some(segment) = self.segments.get_mut(&number) {
            segment.sealed = true;
        }
    }

    /// Looks at a segment after its count has changed: gone if nothing lives in it, marked if less than half does.
    fn review(&mut self, number: u32) -> Option<Dead> {
        let segment = self.segments.get(&number)?;
        if !self.counted || !segment.sealed {
            return None;
        }
        if segment.live_bytes > 0 {
            // Moving a body that has a segment to itself would gain nothing.
            let is_shared = segment.kind == Kind::Moved;
            if is_shared && segment.live_bytes.saturating_mul(2) < segment.size_bytes {
                self.mostly_dead.insert(number);
            } else {
                self.mostly_dead.remove(&number);
            }
            return None;
        }
        self.mostly_dead.remove(&number);
        let gone = self.segments.remove(&number)?;
        Some(Dead { kind: gone.kind, segment: number, size_bytes: gone.size_bytes })
    }
}

/// Where cold segments are written.
pub(crate) struct Site<'a> {
    pub(crate) disk: &'a dyn Disk,
    pub(crate) layout: &'a Layout,
    pub(crate) segment_bytes: u64,
    /// What all cold segments hold: raised with the size of a segment, lowered when the segment goes.
    pub(crate) usage_bytes: &'a AtomicU64,
}

/// One call of [`ColdStore::write`].
struct Copies<'a> {
    store: &'a ColdStore,
    site: &'a Site<'a>,
    writer: &'a mut Option<Writer>,
    /// Files to sync before the copies count as durable.
    touched: Vec<Arc<dyn DiskFile>>,
    created: bool,
    /// Bytes that were counted as live, by segment.
    counted: BTreeMap<u32, u64>,
    dead: &'a mut Vec<Dead>,
}

struct WriteFailed {
    path: String,
    source: io::Error,
}

impl WriteFailed {
    fn into_read_error(self) -> ReadError {
        if is_no_room(&self.source) {
            return ReadError::NoSpace(format!("{}: {}", self.path, self.source));
        }
        ReadError::Io { path: self.path, source: self.source }
    }
}

impl Copies<'_> {
    fn write_all(&mut self, bodies: &[Bytes]) -> Result<Vec<BodyRef>, WriteFailed> {
        let mut places = Vec::with_capacity(bodies.len());
        let mut rest = bodies;
        while !rest.is_empty() {
            let written = self.write_some(rest, &mut places)?;
            rest = rest.get(written..).unwrap_or_default();
        }
        for file in &self.touched {
            file.sync().map_err(|source| self.failed(source))?;
        }
        if self.created {
            let directory = self.site.layout.cold_dir(self.store.shard);
            self.site.disk.sync_dir(&directory).map_err(|source| self.failed(source))?;
        }
        Ok(places)
    }

    /// Writes as many bodies as one buffer and the current segment take; at least one.
    fn write_some(&mut self, bodies: &[Bytes], places: &mut Vec<BodyRef>) -> Result<usize, WriteFailed> {
        self.ensure_segment()?;
        let Some(writer) = self.writer.as_mut() else { return Ok(0) };
        let mut buffer = BytesMut::new();
        let mut count = 0;
        for body in bodies {
            let offset = writer.end + buffer.len() as u64;
            if count > 0 && (buffer.len() >= WRITE_BYTES || offset >= self.site.segment_bytes) {
                break;
            }
            put_body(&mut buffer, writer.number, offset, body);
            places.push(
                BodyRef::in_cold(writer.number, offset).expect("segments end far below the largest offset"),
            );
            count += 1;
        }
        let (file, at, number) = (Arc::clone(&writer.file), writer.end, writer.number);
        writer.end += buffer.len() as u64;
        self.count(number, buffer.len() as u64);
        write_all(&*file, &buffer, at).map_err(|source| self.failed(source))?;
        Ok(count)
    }

    /// Copies count as live before they are written: their segment may be sealed, and the last other body in it forgotten, before they are
    /// durable.
    fn count(&mut self, number: u32, bytes: u64) {
        let mut books = locked(&self.store.books);
        if let Some(segment) = books.segments.get_mut(&number) {
            segment.size_bytes += bytes;
            segment.live_bytes += bytes;
            self.site.usage_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        *self.counted.entry(number).or_default() += bytes;
    }

    /// After a failure nobody will ever name the copies, and what stands at the end of the file is unknown: nothing may be written behind it.
    fn take_back(&mut self) {
        let mut books = locked(&self.store.books);
        if let Some(writer) = self.writer.take() {
            self.counted.entry(writer.number).or_default();
            books.seal(writer.number);
        }
        for (number, bytes) in std::mem::take(&mut self.counted) {
            if let Some(segment) = books.segments.get_mut(&number) {
                segment.live_bytes = segment.live_bytes.saturating_sub(bytes);
            }
            self.dead.extend(books.review(number));
        }
        self.store.publish(&books);
    }

    fn seal(&mut self, number: u32) {
        let mut books = locked(&self.store.books);
        books.seal(number);
        self.dead.extend(books.review(number));
        self.store.publish(&books);
    }

    fn ensure_segment(&mut self) -> Result<(), WriteFailed> {
        if let Some(writer) = self.writer.as_ref().filter(|writer| writer.end < self.site.segment_bytes) {
            let known = self.touched.iter().any(|file| Arc::ptr_eq(file, &writer.file));
            if !known {
                self.touched.push(Arc::clone(&writer.file));
            }
            return Ok(());
        }
        if let Some(full) = self.writer.take() {
            self.seal(full.number);
        }
        *self.writer = Some(self.start_segment().map_err(|source| self.failed(source))?);
        Ok(())
    }

    fn start_segment(&mut self) -> io::Result<Writer> {
        let Site { disk, layout, .. } = self.site;
        let directory = layout.cold_dir(self.store.shard);
        disk.create_dir_all(&directory)?;
        disk.sync_dir(&layout.cold_root())?;
        let number = {
            let mut books = locked(&self.store.books);
            let number = books.next;
            books.next += 1;
            number
        };
        let path = layout.cold(self.store.shard, number);
        let file = disk.create(&path)?;
        self.created = true;
        if let Err(error) = write_all(&*file, &encode_header(Kind::Moved, self.store.shard, number), 0) {
            // The first error is the one to tell; no one knows of this file yet.
            let _ = disk.remove(&path);
            return Err(error);
        }
        let end = HEADER_BYTES as u64;
        self.site.usage_bytes.fetch_add(end, Ordering::Relaxed);
        let (kind, file_kept) = (Kind::Moved, Some(Arc::clone(&file)));
        let segment = Segment { kind, size_bytes: end, live_bytes: 0, sealed: false, file: file_kept };
        locked(&self.store.books).segments.insert(number, segment);
        self.touched.push(Arc::clone(&file));
        Ok(Writer { number, end, file })
    }

    fn failed(&self, source: io::Error) -> WriteFailed {
        WriteFailed { path: text(&self.site.layout.cold_dir(self.store.shard)), source }
    }
}

fn put_body(buffer: &mut BytesMut, segment: u32, offset: u64, body: &[u8]) {
    buffer.put_u32_le(checksum(segment, offset, body));
    buffer.put_u32_le(u32::try_from(body.len()).expect("bodies fit in a group, which is far smaller"));
    buffer.put_slice(body);
    buffer.put_bytes(0, buffer.len().next_multiple_of(8) - buffer.len());
}

/// The body in a frame that was read whole, or what is wrong with it.
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

/// Segment, offset and room of a cold body.
fn cold_place(body: &StoredBody) -> Option<(u32, u64, u64)> {
    match body.place.place() {
        BodyPlace::Cold { segment, offset_bytes } => {
            Some((segment, offset_bytes, stored_bytes(body.size_bytes as usize)))
        }
        BodyPlace::Log { .. } => None,
    }
}

#[cfg(test)]
mod tests;
