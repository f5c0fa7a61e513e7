//! The events of one send as bytes.
//!
//! ```text
//! u32  size of the block with this header
//! u32  number of events
//! u64  sequence number of the first event
//! u64  enqueued time, in milliseconds since 1970
//! u64  zero
//! …    events: u32 length, bytes
//! ```
//! All numbers are little-endian. A block contains everything that a reader needs, so an extent can contain several
//! consecutive blocks.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use peeklock_types::Timestamp;

pub const HEADER_BYTES: usize = 32;

/// The header that the shard adds to the events of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHead {
    pub first_sequence: u64,
    pub count: u32,
    pub enqueued_at: Timestamp,
}

impl BlockHead {
    /// Returns the header of a block whose events take `events_bytes`; `None` if they exceed a block.
    pub(crate) fn encode(&self, events_bytes: usize) -> Option<[u8; HEADER_BYTES]> {
        let size = u32::try_from(events_bytes.checked_add(HEADER_BYTES)?).ok()?;
        let mut out = [0; HEADER_BYTES];
        out[..4].copy_from_slice(&size.to_le_bytes());
        out[4..8].copy_from_slice(&self.count.to_le_bytes());
        out[8..16].copy_from_slice(&self.first_sequence.to_le_bytes());
        out[16..24].copy_from_slice(&self.enqueued_at.as_millis().to_le_bytes());
        Some(out)
    }
}

/// The events of one send, written once, with room for the shard's header in front, so that they are stored without a
/// copy.
#[derive(Debug)]
pub struct Block {
    bytes: BytesMut,
    count: u32,
}

impl Block {
    /// Creates a block with room for this many bytes of events; it grows if there are more.
    pub fn with_capacity(events_bytes: usize) -> Self {
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES.saturating_add(events_bytes));
        bytes.put_bytes(0, HEADER_BYTES);
        Block { bytes, count: 0 }
    }

    /// Adds one event: its length, then the bytes that `write` adds. After an error the block must not be used.
    pub fn add<E>(&mut self, write: impl FnOnce(&mut BytesMut) -> Result<(), E>) -> Result<(), E> {
        let out = &mut self.bytes;
        let start = out.len();
        out.put_u32_le(0);
        write(out)?;
        let size = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
        if let Some(length) = out.get_mut(start..start + 4) {
            length.copy_from_slice(&size.to_le_bytes());
        }
        self.count = self.count.saturating_add(1);
        Ok(())
    }

    /// Returns the number of events.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns the size with the header.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes of the block; `None` if they exceed a block.
    pub fn finish(mut self, head: &BlockHead) -> Option<BytesMut> {
        let header = head.encode(self.bytes.len().checked_sub(HEADER_BYTES)?)?;
        *self.bytes.first_chunk_mut()? = header;
        Some(self.bytes)
    }
}

/// A stored event, with the values of its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub sequence: u64,
    pub enqueued_at: Timestamp,
    pub bytes: Bytes,
}

/// A stored event without its bytes, which [`Events::bytes_of`] returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventPlace {
    pub sequence: u64,
    pub enqueued_at: Timestamp,
    range: Range<usize>,
}

/// The error that the bytes of an extent are not blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes of an extent are damaged at {at}")]
pub struct Damaged {
    pub at: usize,
}

/// Returns the events of an extent with a sequence number of at least `from`, in order. Earlier blocks are skipped.
pub fn events(extent: Bytes, from: u64) -> Events {
    Events {
        extent,
        at: 0,
        block_end: 0,
        left: 0,
        sequence: 0,
        enqueued_at: Timestamp::ZERO,
        from,
        failed: false,
    }
}

#[derive(Debug)]
pub struct Events {
    extent: Bytes,
    at: usize,
    block_end: usize,
    /// The remaining events of the block.
    left: u32,
    /// The sequence number of the next event.
    sequence: u64,
    enqueued_at: Timestamp,
    from: u64,
    failed: bool,
}

impl Events {
    fn u32_at(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.extent.get(at..)?.first_chunk()?))
    }

    fn u64_at(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*self.extent.get(at..)?.first_chunk()?))
    }

    /// Enters the block at `at`, or skips it if it ends before the wanted event.
    fn enter_block(&mut self) -> Option<()> {
        let size = self.u32_at(self.at)? as usize;
        let end =
            self.at.checked_add(size).filter(|end| size >= HEADER_BYTES && *end <= self.extent.len())?;
        let (count, first) = (self.u32_at(self.at + 4)?, self.u64_at(self.at + 8)?);
        let after = first.checked_add(u64::from(count))?;
        self.enqueued_at = Timestamp::from_millis(self.u64_at(self.at + 16)?);
        self.block_end = end;
        self.sequence = first;
        (self.at, self.left) = if after <= self.from { (end, 0) } else { (self.at + HEADER_BYTES, count) };
        Some(())
    }

    /// Returns the bytes of an event of this extent.
    pub fn bytes_of(&self, event: &EventPlace) -> &[u8] {
        self.extent.get(event.range.clone()).unwrap_or_default()
    }

    /// Returns the next event; `None` after the last one, or after an error.
    pub fn next_place(&mut self) -> Option<Result<EventPlace, Damaged>> {
        if self.failed {
            return None;
        }
        match self.step() {
            Some(event) => event.map(Ok),
            None => {
                self.failed = true;
                Some(Err(Damaged { at: self.at }))
            }
        }
    }

    fn step(&mut self) -> Option<Option<EventPlace>> {
        loop {
            if self.left == 0 {
                // The bytes between blocks are padding to a multiple of eight at most.
                self.at = self.at.max(self.block_end);
                if self.at >= self.extent.len() {
                    return Some(None);
                }
                self.enter_block()?;
                continue;
            }
            let start = self.at.checked_add(4)?;
            let end =
                start.checked_add(self.u32_at(self.at)? as usize).filter(|end| *end <= self.block_end)?;
            let sequence = self.sequence;
            self.at = end;
            self.left -= 1;
            self.sequence += 1;
            if sequence >= self.from {
                return Some(Some(EventPlace { sequence, enqueued_at: self.enqueued_at, range: start..end }));
            }
        }
    }
}

impl Iterator for Events {
    type Item = Result<Event, Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        let found = self.next_place()?;
        Some(found.map(|EventPlace { sequence, enqueued_at, range }| {
            let bytes = self.extent.slice(range);
            Event { sequence, enqueued_at, bytes }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(first_sequence: u64, events: &[&[u8]]) -> BytesMut {
        let mut block = Block::with_capacity(0);
        for event in events {
            let written: Result<(), ()> = block.add(|out| {
                out.put_slice(event);
                Ok(())
            });
            written.unwrap();
        }
        let enqueued_at = Timestamp::from_millis(5);
        let head = BlockHead { first_sequence, count: block.count(), enqueued_at };
        block.finish(&head).unwrap()
    }

    #[test]
    fn consecutive_blocks_are_read_from_any_event_on() {
        let mut extent = block(7, &[b"a", b"", b"ccc"]);
        extent.extend_from_slice(&block(10, &[b"d"]));
        let extent = extent.freeze();
        for from in 0..12 {
            let found: Vec<_> = events(extent.clone(), from).map(|event| event.unwrap()).collect();
            let wanted: Vec<_> = (7..11).filter(|sequence| *sequence >= from).collect();
            assert_eq!(found.iter().map(|event| event.sequence).collect::<Vec<_>>(), wanted);
            let mut again = events(extent.clone(), from);
            for event in &found {
                let place = again.next_place().unwrap().unwrap();
                assert_eq!((place.sequence, place.enqueued_at), (event.sequence, event.enqueued_at));
                assert_eq!(again.bytes_of(&place), event.bytes);
            }
            assert!(again.next_place().is_none());
        }
        let bytes: Vec<_> = events(extent, 0).map(|event| event.unwrap().bytes).collect();
        assert_eq!(bytes, [&b"a"[..], b"", b"ccc", b"d"]);
    }

    #[test]
    fn damage_is_an_error_and_ends_the_iteration() {
        let extent = block(0, &[b"abc", b"def"]).freeze();
        for cut in 1..extent.len() {
            let found: Vec<_> = events(extent.slice(..cut), 0).collect();
            assert!(found.last().unwrap().is_err(), "{cut}");
        }
        let mut wrong = BytesMut::from(&extent[..]);
        wrong[HEADER_BYTES] = 200;
        assert!(events(wrong.freeze(), 0).next().unwrap().is_err());
    }
}
