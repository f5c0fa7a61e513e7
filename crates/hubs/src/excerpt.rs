//! Reads parts of an extent, so that a reader that takes a few events at a time does not read the whole extent each
//! time.

use bytes::{BufMut, Bytes, BytesMut};
use peeklock_types::Timestamp;

use crate::block::{BlockHead, HEADER_BYTES};

/// The place of an event in its extent, and the values of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bookmark {
    pub sequence: u64,
    /// The byte of the extent where the event starts, or where its block starts if the event is the first of the block.
    pub at: u32,
    /// The number of events of the block from this one on. 0: the block starts here.
    left: u32,
    enqueued_at: Timestamp,
}

/// Some events of an extent, as blocks of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    pub blocks: Bytes,
    /// The event after the last one, and its place.
    pub next: Bookmark,
}

/// Returns the place of the event with this number; `None` if the extent does not contain it, or the bytes are damaged.
/// `near` is an earlier event in the same extent, where the search starts.
pub fn find(extent: &[u8], sequence: u64, near: Option<Bookmark>) -> Option<Bookmark> {
    let near = near.filter(|near| near.sequence <= sequence);
    let mut walk = Walk::new(extent, 0, near.unwrap_or(Bookmark::START));
    loop {
        // Whole blocks are skipped.
        while walk.mark.left == 0 {
            let block = walk.block()?;
            if block.end_sequence > sequence {
                break;
            }
            walk.mark.at = block.end;
            walk.mark.sequence = block.end_sequence;
        }
        if walk.mark.left > 0 && walk.mark.sequence == sequence {
            return Some(walk.mark);
        }
        let before = walk.mark;
        let event = walk.next()?;
        if event.sequence == sequence {
            // The place of the first event of a block is that of the block.
            return Some(Bookmark { sequence, ..before });
        }
        if event.sequence > sequence {
            return None;
        }
    }
}

/// Returns the complete events in `bytes` from `from` on and before `upto`; `bytes` start at the place `from`. `None`
/// if there are none.
pub fn excerpt(bytes: &[u8], from: Bookmark, upto: u64) -> Option<Excerpt> {
    let mut walk = Walk::new(bytes, from.at, from);
    let mut out = BytesMut::with_capacity(bytes.len() + HEADER_BYTES);
    let mut block: Option<(usize, BlockHead)> = None;
    let mut next = from;
    while next.sequence < upto
        && let Some(event) = walk.next()
    {
        if event.is_first || block.is_none() {
            finish(&mut out, block.take());
            let (first_sequence, enqueued_at) = (event.sequence, walk.mark.enqueued_at);
            block = Some((out.len(), BlockHead { first_sequence, count: 0, enqueued_at }));
            out.put_bytes(0, HEADER_BYTES);
        }
        out.put_slice(event.bytes);
        if let Some((_, head)) = &mut block {
            head.count += 1;
        }
        next = walk.mark;
    }
    finish(&mut out, block);
    (next.sequence > from.sequence).then(|| Excerpt { blocks: out.freeze(), next })
}

/// Writes the header of a complete block.
fn finish(out: &mut BytesMut, block: Option<(usize, BlockHead)>) {
    let Some((start, head)) = block else { return };
    let header = head.encode(out.len() - start - HEADER_BYTES);
    if let (Some(header), Some(place)) = (header, out.get_mut(start..start + HEADER_BYTES)) {
        place.copy_from_slice(&header);
    }
}

impl Bookmark {
    const START: Bookmark = Bookmark { sequence: 0, at: 0, left: 0, enqueued_at: Timestamp::ZERO };
}

struct Walk<'a> {
    bytes: &'a [u8],
    /// The byte of the extent where `bytes` start.
    base: u32,
    /// The next event.
    mark: Bookmark,
}

struct Block {
    first_sequence: u64,
    end_sequence: u64,
    count: u32,
    enqueued_at: Timestamp,
    /// The end of the block in the extent.
    end: u32,
}

struct Event<'a> {
    sequence: u64,
    is_first: bool,
    /// The bytes of the event, with their length in front.
    bytes: &'a [u8],
}

impl<'a> Walk<'a> {
    fn new(bytes: &'a [u8], base: u32, mark: Bookmark) -> Self {
        Walk { bytes, base, mark }
    }

    fn rest(&self) -> Option<&'a [u8]> {
        self.bytes.get(self.mark.at.checked_sub(self.base)? as usize..)
    }

    /// Returns the block that starts here.
    fn block(&self) -> Option<Block> {
        let header: &[u8; HEADER_BYTES] = self.rest()?.first_chunk()?;
        let size = u32::from_le_bytes(*header.first_chunk()?);
        let count = u32::from_le_bytes(*header.get(4..)?.first_chunk()?);
        let first_sequence = u64::from_le_bytes(*header.get(8..)?.first_chunk()?);
        let enqueued_at = Timestamp::from_millis(u64::from_le_bytes(*header.get(16..)?.first_chunk()?));
        let end_sequence = first_sequence.checked_add(count.into())?;
        let end = self.mark.at.checked_add(size).filter(|_| size as usize >= HEADER_BYTES && count > 0)?;
        Some(Block { first_sequence, end_sequence, count, enqueued_at, end })
    }

    /// Returns the next complete event. At the end, or where the bytes are cut, the mark stays.
    fn next(&mut self) -> Option<Event<'a>> {
        let mut mark = self.mark;
        let is_first = mark.left == 0;
        if is_first {
            let block = self.block()?;
            mark = Bookmark {
                sequence: block.first_sequence,
                at: mark.at.checked_add(u32::try_from(HEADER_BYTES).ok()?)?,
                left: block.count,
                enqueued_at: block.enqueued_at,
            };
        }
        let start = mark.at.checked_sub(self.base)? as usize;
        let rest = self.bytes.get(start..)?;
        let size = u32::from_le_bytes(*rest.first_chunk()?).checked_add(4)?;
        let bytes = rest.get(..size as usize)?;
        let sequence = mark.sequence;
        self.mark = Bookmark {
            sequence: sequence.checked_add(1)?,
            at: mark.at.checked_add(size)?,
            left: mark.left - 1,
            enqueued_at: mark.enqueued_at,
        };
        Some(Event { sequence, is_first, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{self, events};

    /// Builds blocks with these numbers of events, of growing size.
    fn extent(counts: &[u32]) -> Bytes {
        let mut out = BytesMut::new();
        let mut sequence = 7_u64;
        for (count, at) in counts.iter().zip(100..) {
            let mut block = block::Block::with_capacity(0);
            for number in sequence..sequence + u64::from(*count) {
                let written: Result<(), ()> = block.add(|out| {
                    out.put_bytes(number.to_le_bytes()[0], usize::try_from(number % 50).unwrap());
                    Ok(())
                });
                written.unwrap();
            }
            let enqueued_at = Timestamp::from_millis(at);
            let head = BlockHead { first_sequence: sequence, count: *count, enqueued_at };
            out.put_slice(&block.finish(&head).unwrap());
            sequence += u64::from(*count);
        }
        out.freeze()
    }

    #[test]
    fn any_part_of_an_extent_gives_the_events_of_the_whole() {
        let counts = [1, 30, 2, 1, 66];
        let (extent, end) = (extent(&counts), 7 + 100);
        let all: Vec<_> = events(extent.clone(), 0).map(Result::unwrap).collect();
        for from in 7..end {
            let mark = find(&extent, from, None).unwrap();
            assert_eq!(mark.sequence, from);
            assert_eq!(find(&extent, end - 1, Some(mark)).unwrap().sequence, end - 1);
            for size in [0, 3, 40, 200, 5000] {
                let start = mark.at as usize;
                let part = extent.slice(start..(start + size).min(extent.len()));
                let Some(found) = excerpt(&part, mark, from + 20) else {
                    assert!(size < 100, "no event is larger");
                    continue;
                };
                let wanted = &all
                    [usize::try_from(from - 7).unwrap()..usize::try_from(found.next.sequence - 7).unwrap()];
                let read: Vec<_> = events(found.blocks.clone(), 0).map(Result::unwrap).collect();
                assert_eq!(read, wanted);
                assert!(found.next.sequence <= from + 20);
                if found.next.sequence < end {
                    let rest = extent.slice(found.next.at as usize..);
                    assert_eq!(excerpt(&rest, found.next, end).unwrap().next.sequence, end);
                }
            }
        }
        assert_eq!(find(&extent, end, None), None);
        assert_eq!(find(&extent, 6, None), None);
    }

    #[test]
    fn damaged_bytes_have_no_places() {
        let extent = extent(&[3]);
        let mark = find(&extent, 9, None).unwrap();
        for cut in 0..extent.len() {
            let _ = find(&extent[..cut], 9, None);
            let _ = excerpt(&extent[..cut], Bookmark { at: 0, ..mark }, 100);
        }
        let zeros = [0; 100];
        assert_eq!(find(&zeros, 1, None), None);
        assert_eq!(excerpt(&zeros, Bookmark::START, 10), None);
    }
}
