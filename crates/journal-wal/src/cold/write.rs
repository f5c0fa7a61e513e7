//! Copying bodies to the end of cold segments.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{BufMut as _, Bytes, BytesMut};
use peeklock_journal::{ReadError, StoredBody};
use peeklock_types::BodyRef;

use super::{
    BODY_HEADER_BYTES, Books, ColdStore, Dead, HEADER_BYTES, Kind, Segment, encode_header, place_checksum,
    stored_bytes,
};
use crate::disk::{Disk, DiskFile, is_no_room, write_all};
use crate::layout::{Layout, text};
use crate::locked;

/// Copies are gathered up to this much before they are written.
const WRITE_BYTES: usize = 1024 * 1024;
/// A stream's segment that is smaller is not left because most of it is dead: there is little to win.
const LEAVE_BYTES_MIN: u64 = 1024 * 1024;

/// Whose segments copies go to.
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

/// The segments that copies are added to. All were begun by this run of the program, and every write to them was a success, so that their ends
/// are known; a file need not stay open in between.
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
    pub(super) fn give_up_idle(&mut self, books: &mut Books, dead: &mut Vec<Dead>) {
        for number in std::mem::take(&mut books.idle) {
            // It may have got copies since it was noted.
            if books.segments.get(&number).is_some_and(|segment| segment.live_bytes == 0) {
                self.ends.retain(|_, end| end.number != number);
                books.seal(number);
                dead.extend(books.review(number));
            }
        }
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

impl ColdStore {
    /// Copies bodies behind each other, each put together of its pieces, and returns their places once all of them are durable. Segments that
    /// turn out to hold nothing that lives are added to `dead`, even if the copying fails: when the disk is full, their space is needed at once.
    pub(crate) fn write(
        &self,
        site: &Site<'_>,
        target: Target,
        bodies: &[&[Bytes]],
        dead: &mut Vec<Dead>,
    ) -> Result<Vec<StoredBody>, ReadError> {
        let mut writers = locked(&self.writers);
        let end = writers.ends.remove(&target);
        let mut copies = Copies {
            store: self,
            site,
            target,
            end,
            file: None,
            touched: Vec::new(),
            created: false,
            counted: BTreeMap::new(),
            dead,
        };
        let written = copies.write_all(bodies);
        match copies.end {
            Some(end) if written.is_ok() => drop(writers.ends.insert(target, end)),
            _ => copies.take_back(),
        }
        let mut books = locked(&self.books);
        writers.give_up_idle(&mut books, dead);
        // Let go of first, so that whoever finds the next idle segment can give it up at once.
        drop(writers);
        self.publish(&books);
        written.map_err(WriteFailed::into_read_error)
    }
}

/// One call of [`ColdStore::write`].
struct Copies<'a> {
    store: &'a ColdStore,
    site: &'a Site<'a>,
    target: Target,
    end: Option<End>,
    /// The file that `end` is in.
    file: Option<Arc<dyn DiskFile>>,
    /// Files to sync before the copies count as durable.
    touched: Vec<Arc<dyn DiskFile>>,
    created: bool,
    /// Bytes that were counted as live, by segment.
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
    fn write_all(&mut self, bodies: &[&[Bytes]]) -> Result<Vec<StoredBody>, WriteFailed> {
        let mut places = Vec::with_capacity(bodies.len());
        while let Some(rest) = bodies.get(places.len()..).filter(|rest| !rest.is_empty()) {
            self.write_some(rest, &mut places)?;
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
    fn write_some(&mut self, bodies: &[&[Bytes]], places: &mut Vec<StoredBody>) -> Result<(), WriteFailed> {
        let (file, End { number, offset: at }) = self.ensure_segment()?;
        let mut buffer = BytesMut::with_capacity(buffer_bytes(bodies));
        for body in bodies {
            let offset = at + buffer.len() as u64;
            if !buffer.is_empty() && (buffer.len() >= WRITE_BYTES || offset >= self.site.segment_bytes) {
                break;
            }
            let size_bytes = put_body(&mut buffer, number, offset, body);
            let place = BodyRef::in_cold(number, offset).expect("segments end far below the largest offset");
            places.push(StoredBody { place, size_bytes });
        }
        self.end = Some(End { number, offset: at + buffer.len() as u64 });
        self.count(number, buffer.len() as u64);
        write_all(&*file, &buffer, at).map_err(|source| self.failed(source))
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
        if let Some(end) = self.end.take() {
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

    /// The file that the next copy goes to, and where.
    fn ensure_segment(&mut self) -> Result<(Arc<dyn DiskFile>, End), WriteFailed> {
        if let Some(end) = self.end {
            if !self.is_full(end) {
                return Ok((self.open(end.number)?, end));
            }
            self.end = None;
            self.seal(end.number);
        }
        let (file, end) = self.start_segment().map_err(|source| self.failed(source))?;
        self.end = Some(end);
        self.use_file(&file);
        Ok((file, end))
    }

    /// A stream leaves a segment also when most of it is dead: what is left dies soon, and the space of all of it comes back.
    fn is_full(&self, end: End) -> bool {
        if end.offset >= self.site.segment_bytes {
            return true;
        }
        self.target != Target::Moved && end.offset >= LEAVE_BYTES_MIN && {
            let books = locked(&self.store.books);
            books.segments.get(&end.number).is_some_and(Segment::is_mostly_dead)
        }
    }

    fn open(&mut self, number: u32) -> Result<Arc<dyn DiskFile>, WriteFailed> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let Site { disk, layout, .. } = *self.site;
        let found = self.store.file(disk, layout, number).map_err(WriteFailed::Read)?;
        let (file, _) = found.ok_or_else(|| self.failed(io::ErrorKind::NotFound.into()))?;
        self.use_file(&file);
        Ok(file)
    }

    fn use_file(&mut self, file: &Arc<dyn DiskFile>) {
        self.file = Some(Arc::clone(file));
        self.touched.push(Arc::clone(file));
    }

    fn start_segment(&mut self) -> io::Result<(Arc<dyn DiskFile>, End)> {
        let Site { disk, layout, .. } = *self.site;
        let (shard, kind) = (self.store.shard, self.target.kind());
        disk.create_dir_all(&layout.cold_dir(shard))?;
        disk.sync_dir(&layout.cold_root())?;
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
            // The first error is the one to tell; no one knows of this file yet.
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

/// Room for the bodies that go into one write.
fn buffer_bytes(bodies: &[&[Bytes]]) -> usize {
    let mut total = 0;
    for body in bodies {
        if total >= WRITE_BYTES {
            break;
        }
        total += BODY_HEADER_BYTES + body.iter().map(Bytes::len).sum::<usize>().next_multiple_of(8);
    }
    total
}

fn put_body(buffer: &mut BytesMut, segment: u32, offset: u64, pieces: &[Bytes]) -> u32 {
    let crc = pieces.iter().fold(place_checksum(segment, offset), |crc, p| crc32c::crc32c_append(crc, p));
    let size: usize = pieces.iter().map(Bytes::len).sum();
    let size_bytes = u32::try_from(size).expect("bodies have limits that are far smaller");
    buffer.put_u32_le(crc);
    buffer.put_u32_le(size_bytes);
    pieces.iter().for_each(|piece| buffer.put_slice(piece));
    buffer.put_bytes(
        0,
        usize::try_from(stored_bytes(size)).expect("it is in memory") - BODY_HEADER_BYTES - size,
    );
    size_bytes
}
