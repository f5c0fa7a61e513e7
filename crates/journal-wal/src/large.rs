//! Large bodies: each has a cold segment of its own, is written piece by piece, and is read in ranges.
//!
//! A body is divided into chunks, each with a checksum and a length, so that a range can be checked without the rest.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use peeklock_journal::{BodyError, LargeBodies, LargeBody, Space, StoredBody};

use crate::cold::{BODY_HEADER_BYTES, HEADER_BYTES, Kind, body_ref, checksum, encode_header};
use crate::disk::{DiskFile, is_no_room, write_all};
use crate::frame::u32_at;
use crate::layout::text;
use crate::log::{check, closed, fenced};
use crate::pool::Pool;
use crate::shard::Shard;
use crate::shared::Shared;

pub(crate) const MAGIC: [u8; 8] = *b"PLlargeb";
/// The size of a chunk with its header. The last chunk of a body may be shorter.
const CHUNK_BYTES: usize = 64 * 1024;
const CHUNK_DATA_BYTES: usize = CHUNK_BYTES - BODY_HEADER_BYTES;
/// The size of the buffer that collects chunks before they are written.
const WRITE_BYTES: usize = 4 * CHUNK_BYTES;
/// The file is synced after this many bytes, so that a commit does not have to wait for a sync of the whole body.
const SYNC_BYTES: u64 = 8 * 1024 * 1024;

/// Writes large bodies of one shard.
#[derive(Clone)]
pub struct WalLargeBodies {
    pub(crate) shared: Arc<Shared>,
    pub(crate) shard: Arc<Shard>,
    pub(crate) movers: Pool,
    pub(crate) epoch: u32,
}

impl LargeBodies for WalLargeBodies {
    type Body = WalLargeBody;

    fn start(&self) -> impl Future<Output = Result<WalLargeBody, BodyError>> + Send + 'static {
        let (shared, shard, epoch) = (Arc::clone(&self.shared), Arc::clone(&self.shard), self.epoch);
        let movers = self.movers.clone();
        let done = movers.run(move || Draft::start(shared, shard, epoch));
        async move {
            let draft = done.await.map_err(|_| closed())??;
            Ok(WalLargeBody { draft: Some(draft), movers })
        }
    }
}

/// A large body while it is written.
pub struct WalLargeBody {
    /// `None` while a thread writes, and after a failure.
    draft: Option<Draft>,
    movers: Pool,
}

impl LargeBody for WalLargeBody {
    async fn write(&mut self, pieces: Vec<Bytes>) -> Result<(), BodyError> {
        let mut draft = self.draft.take().ok_or(BodyError::Lost)?;
        let job = move || draft.write(&pieces).map(|()| draft);
        self.draft = Some(self.movers.run(job).await.map_err(|_| closed())??);
        Ok(())
    }

    async fn finish(mut self) -> Result<StoredBody, BodyError> {
        let draft = self.draft.take().ok_or(BodyError::Lost)?;
        self.movers.run(move || draft.finish()).await.map_err(|_| closed())?
    }
}

/// The state of an unfinished body.
struct Draft {
    shared: Arc<Shared>,
    shard: Arc<Shard>,
    epoch: u32,
    number: u32,
    file: Arc<dyn DiskFile>,
    /// The bytes of the body so far.
    size_bytes: u64,
    /// The size of the file, and the bytes that follow.
    end: u64,
    buffer: BytesMut,
    /// The offset in `buffer` of the chunk that is not full.
    open_at: Option<usize>,
    unsynced_bytes: u64,
    is_finished: bool,
}

impl Draft {
    fn start(shared: Arc<Shared>, shard: Arc<Shard>, epoch: u32) -> Result<Self, BodyError> {
        check(&shared, &shard, epoch)?;
        check_space(&shared)?;
        let directory = shared.layout.cold_dir(shard.id);
        let made = shard.cold.ensure_directory(&*shared.disk, &shared.layout);
        made.map_err(|source| failed(text(&directory), source))?;
        let number = shard.cold.begin_large(epoch).ok_or_else(fenced)?;
        let path = shared.layout.large(shard.id, number);
        let file = match shared.disk.create(&path) {
            Ok(file) => file,
            Err(source) => {
                // The file may exist despite the error.
                shared.bury(shard.id, shard.cold.abandon_large(number).as_slice());
                return Err(failed(text(&path), source));
            }
        };
        let buffer = BytesMut::from(&encode_header(Kind::Large, shard.id, number)[..]);
        Ok(Draft {
            shared,
            shard,
            epoch,
            number,
            file,
            size_bytes: 0,
            end: 0,
            buffer,
            open_at: None,
            unsynced_bytes: 0,
            is_finished: false,
        })
    }

    fn write(&mut self, pieces: &[Bytes]) -> Result<(), BodyError> {
        check(&self.shared, &self.shard, self.epoch)?;
        check_space(&self.shared)?;
        for piece in pieces {
            self.size_bytes += piece.len() as u64;
            if self.size_bytes > u32::MAX.into() {
                return Err(BodyError::TooLarge { limit_bytes: u32::MAX });
            }
            self.put(piece)?;
        }
        Ok(())
    }

    fn put(&mut self, mut piece: &[u8]) -> Result<(), BodyError> {
        while !piece.is_empty() {
            let open_at = self.open_chunk();
            let filled = self.buffer.len() - open_at;
            let (now, later) = piece.split_at(piece.len().min(CHUNK_BYTES - filled));
            self.buffer.put_slice(now);
            piece = later;
            if filled + now.len() == CHUNK_BYTES {
                self.close_chunk();
                if self.buffer.len() >= WRITE_BYTES {
                    self.flush()?;
                }
            }
        }
        Ok(())
    }

    fn open_chunk(&mut self) -> usize {
        if let Some(at) = self.open_at {
            return at;
        }
        let at = self.buffer.len();
        self.buffer.put_bytes(0, BODY_HEADER_BYTES);
        self.open_at = Some(at);
        at
    }

    fn close_chunk(&mut self) {
        let Some(at) = self.open_at.take() else { return };
        let (_, chunk) = self.buffer.split_at_mut(at);
        let (header, data) = chunk.split_at_mut(BODY_HEADER_BYTES);
        let crc = checksum(self.number, self.end + at as u64, data);
        header[..4].copy_from_slice(&crc.to_le_bytes());
        let len = u32::try_from(data.len()).expect("a chunk is small");
        header[4..].copy_from_slice(&len.to_le_bytes());
    }

    fn flush(&mut self) -> Result<(), BodyError> {
        let bytes = self.buffer.len() as u64;
        // The space is counted before the write, because a failed write may have allocated it.
        self.shard.cold.grow_large(self.number, bytes, &self.shared.usage.cold_bytes);
        write_all(&*self.file, &self.buffer, self.end).map_err(|source| self.failed(source))?;
        self.end += bytes;
        self.buffer.clear();
        self.unsynced_bytes += bytes;
        if self.unsynced_bytes >= SYNC_BYTES {
            self.sync()?;
            // The space level may have changed.
            self.shared.bell.ring();
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), BodyError> {
        self.unsynced_bytes = 0;
        self.file.sync().map_err(|source| self.failed(source))
    }

    fn finish(mut self) -> Result<StoredBody, BodyError> {
        check(&self.shared, &self.shard, self.epoch)?;
        self.close_chunk();
        self.flush()?;
        self.sync()?;
        let directory = self.shared.layout.cold_dir(self.shard.id);
        self.shared.disk.sync_dir(&directory).map_err(|source| self.failed(source))?;
        let too_large = |_| BodyError::TooLarge { limit_bytes: u32::MAX };
        let size_bytes = u32::try_from(self.size_bytes).map_err(too_large)?;
        if !self.shard.cold.finish_large(self.epoch, self.number, size_bytes) {
            return Err(fenced().into());
        }
        self.is_finished = true;
        Ok(StoredBody { place: body_ref(self.number, HEADER_BYTES as u64), size_bytes })
    }

    fn failed(&self, source: std::io::Error) -> BodyError {
        failed(text(&self.shared.layout.large(self.shard.id, self.number)), source)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_finished {
            self.shared.bury(self.shard.id, self.shard.cold.abandon_large(self.number).as_slice());
        }
    }
}

fn failed(path: String, source: std::io::Error) -> BodyError {
    if is_no_room(&source) {
        return BodyError::NoSpace(format!("{path}: {source}"));
    }
    BodyError::Io { path, source }
}

fn check_space(shared: &Shared) -> Result<(), BodyError> {
    match shared.space() {
        // A large body does not grow the log.
        Space::Enough | Space::Behind => Ok(()),
        Space::RejectSends | Space::OnlySettle => {
            Err(BodyError::NoSpace("the disk is nearly full, new messages are rejected".to_owned()))
        }
    }
}

/// A range of a large body, and the chunks of the file that contain it.
pub(crate) struct LargeRange {
    number: u32,
    size_bytes: u64,
    range: Range<u64>,
}

impl LargeRange {
    /// Limits the range to the body.
    pub(crate) fn new(number: u32, size_bytes: u32, range: Range<u32>) -> Self {
        let end = range.end.min(size_bytes);
        let range = u64::from(range.start.min(end))..u64::from(end);
        LargeRange { number, size_bytes: size_bytes.into(), range }
    }

    fn first_chunk(&self) -> u64 {
        self.range.start / CHUNK_DATA_BYTES as u64
    }

    /// Returns the bytes of the file that contain the chunks of the range.
    pub(crate) fn file_range(&self) -> Range<u64> {
        let start_of = |chunk: u64| HEADER_BYTES as u64 + chunk * CHUNK_BYTES as u64;
        let first = self.first_chunk();
        if self.range.is_empty() {
            return start_of(first)..start_of(first);
        }
        let last = (self.range.end - 1) / CHUNK_DATA_BYTES as u64;
        start_of(first)..start_of(last) + BODY_HEADER_BYTES as u64 + self.chunk_bytes(last)
    }

    /// Returns how many bytes of the body a chunk contains.
    fn chunk_bytes(&self, chunk: u64) -> u64 {
        self.size_bytes.saturating_sub(chunk * CHUNK_DATA_BYTES as u64).min(CHUNK_DATA_BYTES as u64)
    }

    /// Extracts the range from its chunks. An error contains the offset in the file and the contradiction.
    pub(crate) fn cut(&self, chunks: &[u8]) -> Result<Bytes, (u64, &'static str)> {
        let mut out = BytesMut::new();
        let file_start = self.file_range().start;
        for (chunk, bytes) in (self.first_chunk()..).zip(chunks.chunks(CHUNK_BYTES)) {
            let at = file_start + (chunk - self.first_chunk()) * CHUNK_BYTES as u64;
            let (header, data) = bytes
                .split_at_checked(BODY_HEADER_BYTES)
                .ok_or((at, "the file ends inside of a large body"))?;
            if u64::from(u32_at(header, 4)) != self.chunk_bytes(chunk)
                || data.len() as u64 != self.chunk_bytes(chunk)
            {
                return Err((at, "a chunk of a large body has another length than it should"));
            }
            if u32_at(header, 0) != checksum(self.number, at, data) {
                return Err((at, "the checksum of a large body does not fit"));
            }
            let start = chunk * CHUNK_DATA_BYTES as u64;
            let from = index(self.range.start.saturating_sub(start)).min(data.len());
            let to = index(self.range.end.saturating_sub(start)).min(data.len());
            out.extend_from_slice(data.get(from..to).unwrap_or_default());
        }
        Ok(out.freeze())
    }
}

fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}
