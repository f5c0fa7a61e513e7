//! Copies bodies to the ends of cold segments.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use peeklock_journal::{ReadError, StoredBody};

use super::{
    BODY_HEADER_BYTES, Books, ColdStore, Dead, HEADER_BYTES, Kind, Segment, body_ref, encode_header,
    place_checksum, stored_bytes,
};
use crate::disk::{Disk, DiskFile, is_no_room, write_all};
use crate::layout::{Layout, text};
use crate::locked;

/// The size of one write.
const WRITE_BYTES: u64 = 1024 * 1024;
/// The size above which a stream leaves a segment that is mostly dead. Leaving a smaller segment would gain little.
const LEAVE_BYTES_MIN: u64 = 1024 * 1024;
/// Bodies start at multiples of this size.
const PADDING: [u8; 8] = [0; 8];

/// The segments to which copies are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    Moved,
    Stream(u64),
}

impl Target {
    fn kind(self) -> Kind {
        match self {
            Target::Moved => Kind::Moved,
            Target::Stream(_) => Kind::Stream,
        }
    }
}

/// The segments that are being written. This run has started all of them, and every write has succeeded, so their ends
/// are known. Their files need not stay open.
#[derive(Default)]
pub(super) struct Writers {
    ends: BTreeMap<Target, End>,
}

#[derive(Clone, Copy)]
struct End {
    number: u32,
    offset: u64,
}

impl Writers {
    /// Gives up idle segments of these writers.
    pub(super) fn give_up_idle(&mut self, books: &mut Books, dead: &mut Vec<Dead>) {
        let own: Vec<u32> = books.idle.iter().copied().filter(|number| self.writes_to(*number)).collect();
        for number in own {
            books.idle.remove(&number);
            // The segment may have received copies since it became idle.
            if books.segments.get(&number).is_some_and(|segment| segment.live_bytes == 0) {
                self.ends.retain(|_, end| end.number != number);
                books.seal(number);
                dead.extend(books.review(number));
            }
        }
    }

    fn writes_to(&self, number: u32) -> bool {
        self.ends.values().any(|end| end.number == number)
    }
}

/// The environment in which cold segments are written.
pub(crate) struct Site<'a> {
    pub(crate) disk: &'a dyn Disk,
    pub(crate) layout: &'a Layout,
    /// The sizes at which segments are sealed.
    pub(crate) moved_bytes: u64,
    pub(crate) stream_bytes: u64,
    /// The size of all cold segments. It grows with a segment and shrinks when the segment is removed.
    pub(crate) usage_bytes: &'a AtomicU64,
}

impl Site<'_> {
    fn segment_bytes(&self, target: Target) -> u64 {
        match target {
            Target::Moved => self.moved_bytes,
            Target::Stream(_) => self.stream_bytes,
        }
    }
}

/// A body to be written.
pub(crate) struct Copy<'a> {
    pub(crate) target: Target,
    pub(crate) pieces: &'a [Bytes],
}

impl Copy<'_> {
    fn size(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// Returns the header of the body: its checksum and its length.
    fn head(&self, segment: u32, offset: u64, size_bytes: u32) -> [u8; BODY_HEADER_BYTES] {
        let start = place_checksum(segment, offset);
        let crc = self.pieces.iter().fold(start, |crc, piece| crc32c::crc32c_append(crc, piece));
        (u64::from(size_bytes) << 32 | u64::from(crc)).to_le_bytes()
    }

    /// Returns all parts that are written. The pieces are written from their own buffers.
    fn parts<'b>(&'b self, head: &'b [u8]) -> impl Iterator<Item = IoSlice<'b>> {
        let padding_bytes =
            usize::try_from(stored_bytes(self.size())).unwrap_or(0) - self.size() - head.len();
        let padding = PADDING.get(..padding_bytes).unwrap_or(&[]);
        let pieces = self.pieces.iter().map(|piece| &piece[..]);
        [head].into_iter().chain(pieces).chain([padding]).filter(|part| !part.is_empty()).map(IoSlice::new)
    }
}

impl ColdStore {
    /// Writes bodies, each assembled from its pieces, and returns their places once all of them are durable. Adds
    /// segments without live bodies to `dead`, even if the writing fails: on a full disk, their space is needed at
    /// once. Either all bodies belong to streams or none does.
    pub(crate) fn write(
        &self,
        site: &Site<'_>,
        bodies: &[Copy<'_>],
        dead: &mut Vec<Dead>,
    ) -> Result<Vec<StoredBody>, ReadError> {
        let is_moved = bodies.iter().any(|body| body.target == Target::Moved);
        let mut writers = locked(if is_moved { &self.moved } else { &self.streams });
        let mut copies = Copies {
            store: self,
            site,
            ends: BTreeMap::new(),
            touched: BTreeMap::new(),
            created: false,
            counted: BTreeMap::new(),
            dead,
        };
        let written = copies.write_all(&mut writers, bodies);
        if written.is_ok() {
            writers.ends.append(&mut copies.ends);
        } else {
            copies.take_back();
        }
        let mut books = locked(&self.books);
        writers.give_up_idle(&mut books, dead);
        // The writers are unlocked first, so that another thread can give up the next idle segment at once.
        drop(writers);
        self.publish(&books);
        written.map_err(WriteFailed::into_read_error)
    }
}

/// One call of [`ColdStore::write`].
struct Copies<'a> {
    store: &'a ColdStore,
    site: &'a Site<'a>,
    /// The place of the next copy, for each target that was written to.
    ends: BTreeMap<Target, End>,
    /// The files to sync before the copies are durable, by segment.
    touched: BTreeMap<u32, Arc<dyn DiskFile>>,
    created: bool,
    /// The bytes that were counted as live, by segment.
    counted: BTreeMap<u32, u64>,
    dead: &'a mut Vec<Dead>,
}

enum WriteFailed {
    Io { path: String, source: io::Error },
    Read(ReadError),
}

impl WriteFailed {
    fn into_read_error(self) -> ReadError {
        match self {
            WriteFailed::Read(error) => error,
            WriteFailed::Io { path, source } if is_no_room(&source) => {
                ReadError::NoSpace(format!("{path}: {source}"))
            }
            WriteFailed::Io { path, source } => ReadError::Io { path, source },
        }
    }
}

impl Copies<'_> {
    fn write_all(
        &mut self,
        writers: &mut Writers,
        bodies: &[Copy<'_>],
    ) -> Result<Vec<StoredBody>, WriteFailed> {
        let mut places = Vec::with_capacity(bodies.len());
        for body in bodies {
            // While a segment is written, its end is unknown.
            if let Some(end) = writers.ends.remove(&body.target) {
                self.ends.insert(body.target, end);
            }
        }
        while let Some(rest) = bodies.get(places.len()..)
            && let Some(first) = rest.first()
        {
            self.write_some(first.target, rest, &mut places)?;
        }
        let files: Vec<_> = self.touched.values().map(|file| &**file).collect();
        self.site.disk.sync_files(&files).map_err(|source| self.failed(source))?;
        if self.created {
            let directory = self.site.layout.cold_dir(self.store.shard);
            self.site.disk.sync_dir(&directory).map_err(|source| self.failed(source))?;
        }
        Ok(places)
    }

    /// Writes as many bodies of a target as fit into one buffer and the current segment, but at least one.
    fn write_some(
        &mut self,
        target: Target,
        bodies: &[Copy<'_>],
        places: &mut Vec<StoredBody>,
    ) -> Result<(), WriteFailed> {
        let (file, End { number, offset: at }) = self.ensure_segment(target)?;
        let bodies = of_one_write(bodies, target, self.site.segment_bytes(target).saturating_sub(at));
        let mut heads = Vec::with_capacity(bodies.len());
        let mut end = at;
        for body in bodies {
            let size_bytes = u32::try_from(body.size()).expect("bodies are limited to far smaller sizes");
            heads.push(body.head(number, end, size_bytes));
            let place = body_ref(number, end);
            places.push(StoredBody { place, size_bytes });
            end += stored_bytes(body.size());
        }
        self.ends.insert(target, End { number, offset: end });
        self.count(number, end - at);
        let mut parts: Vec<_> = bodies.iter().zip(&heads).flat_map(|(body, head)| body.parts(head)).collect();
        file.write_at(&mut parts, at).map_err(|source| self.failed(source))
    }

    /// Counts the copies as live before they are written: before they are durable, the segment may be sealed and its
    /// last other body released.
    fn count(&mut self, number: u32, bytes: u64) {
        let mut books = locked(&self.store.books);
        if let Some(segment) = books.segments.get_mut(&number) {
            segment.size_bytes += bytes;
            segment.live_bytes += bytes;
            self.site.usage_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        *self.counted.entry(number).or_default() += bytes;
    }

    /// Undoes the counting after a failure. The contents at the end of the file are unknown, so nothing may be written
    /// behind it.
    fn take_back(&mut self) {
        let mut books = locked(&self.store.books);
        for end in std::mem::take(&mut self.ends).into_values() {
            self.counted.entry(end.number).or_default();
            books.seal(end.number);
        }
        for (number, bytes) in std::mem::take(&mut self.counted) {
            if let Some(segment) = books.segments.get_mut(&number) {
                segment.live_bytes = segment.live_bytes.saturating_sub(bytes);
            }
            self.dead.extend(books.review(number));
        }
    }

    fn seal(&mut self, number: u32) {
        let mut books = locked(&self.store.books);
        books.seal(number);
        self.dead.extend(books.review(number));
    }

    /// Returns the file and the offset for the next copy.
    fn ensure_segment(&mut self, target: Target) -> Result<(Arc<dyn DiskFile>, End), WriteFailed> {
        if let Some(end) = self.ends.get(&target).copied() {
            if !self.is_full(target, end) {
                return Ok((self.open(end.number)?, end));
            }
            self.ends.remove(&target);
            self.seal(end.number);
        }
        let (file, end) = self.start_segment(target.kind()).map_err(|source| self.failed(source))?;
        self.ends.insert(target, end);
        self.touched.insert(end.number, Arc::clone(&file));
        Ok((file, end))
    }

    /// Returns whether the next copy needs a new segment. A stream also leaves a segment that is mostly dead: its last
    /// bodies will be released soon, and then the whole segment is removed.
    fn is_full(&self, target: Target, end: End) -> bool {
        if end.offset >= self.site.segment_bytes(target) {
            return true;
        }
        target != Target::Moved && end.offset >= LEAVE_BYTES_MIN && {
            let books = locked(&self.store.books);
            books.segments.get(&end.number).is_some_and(Segment::is_mostly_dead)
        }
    }

    fn open(&mut self, number: u32) -> Result<Arc<dyn DiskFile>, WriteFailed> {
        if let Some(file) = self.touched.get(&number) {
            return Ok(Arc::clone(file));
        }
        let Site { disk, layout, .. } = *self.site;
        let found = self.store.file(disk, layout, number).map_err(WriteFailed::Read)?;
        let (file, _) = found.ok_or_else(|| self.failed(io::ErrorKind::NotFound.into()))?;
        self.touched.insert(number, Arc::clone(&file));
        Ok(file)
    }

    fn start_segment(&mut self, kind: Kind) -> io::Result<(Arc<dyn DiskFile>, End)> {
        let Site { disk, layout, .. } = *self.site;
        let shard = self.store.shard;
        self.store.ensure_directory(disk, layout)?;
        let number = {
            let mut books = locked(&self.store.books);
            let number = books.next;
            books.next += 1;
            number
        };
        let path = kind.path(layout, shard, number);
        let file = disk.create(&path)?;
        self.created = true;
        if let Err(error) = write_all(&*file, &encode_header(kind, shard, number), 0) {
            // An error of the removal is ignored: the first error is reported, and nothing refers to this file yet.
            let _ = disk.remove(&path);
            return Err(error);
        }
        let offset = HEADER_BYTES as u64;
        self.site.usage_bytes.fetch_add(offset, Ordering::Relaxed);
        let mut books = locked(&self.store.books);
        books.segments.insert(number, Segment { kind, size_bytes: offset, live_bytes: 0, sealed: false });
        books.files.keep(number, &file);
        Ok((file, End { number, offset }))
    }

    fn failed(&self, source: io::Error) -> WriteFailed {
        WriteFailed::Io { path: text(&self.site.layout.cold_dir(self.store.shard)), source }
    }
}

/// Returns the bodies from the front that go to a target in one write of at most `room`, but at least one.
fn of_one_write<'a, 'b>(bodies: &'a [Copy<'b>], target: Target, room: u64) -> &'a [Copy<'b>] {
    let mut total = 0;
    let fits = |body: &&Copy<'_>| {
        let fits = total == 0 || (total < WRITE_BYTES && total < room);
        total += stored_bytes(body.size());
        fits && body.target == target
    };
    let count = bodies.iter().take_while(fits).count();
    bodies.get(..count).unwrap_or(bodies)
}
