//! A packed chunk: the rows of plain, unlocked messages in few bytes.
//!
//! Neighbours differ little: they were enqueued within milliseconds, and their bodies are close to each other on disk.
//! So each field of a row is stored as the difference from its smallest value in the chunk, in as many bytes as the
//! largest difference needs. All rows of a chunk have the same length, and each can be read without the others.

use peeklock_types::{BodyRef, Timestamp};

use super::{CHUNK_LEN, Chunk, Marks, MessageRow, places};
use crate::message::MessageState;

/// The fields of a row as numbers: the body, the time of enqueueing, the size, and everything else. Locks, sessions and
/// lanes are omitted, because no packed message has one.
type Numbers = [u64; 4];

#[derive(Debug)]
pub(super) struct Packed {
    /// The rows that are present.
    pub(super) live: u64,
    /// The rows in `bytes`: those that were live when the chunk was packed.
    stored: u64,
    /// The smallest value of each field.
    least: Numbers,
    /// The number of bytes of each field in a row.
    widths: [u8; 4],
    bytes: Box<[u8]>,
}

/// A field is read and written as a whole word, so the bytes end one word after the last row.
const WORD_BYTES: usize = size_of::<u64>();

/// The masks of the lowest bytes of a word, by their number.
const MASKS: [u64; WORD_BYTES + 1] = {
    let (mut masks, mut width) = ([0; WORD_BYTES + 1], 1);
    while width <= WORD_BYTES {
        masks[width] = masks[width - 1] << 8 | 0xff;
        width += 1;
    }
    masks
};

/// The fields of each row of a packed chunk.
#[derive(Clone, Copy)]
struct Layout {
    /// The first byte of each field in a row.
    starts: [usize; 4],
    masks: [u64; 4],
    row_bytes: usize,
}

impl Layout {
    #[inline]
    fn new(widths: [u8; 4]) -> Layout {
        let widths = widths.map(usize::from);
        let [a, b, c, d] = widths;
        Layout {
            starts: [0, a, a + b, a + b + c],
            masks: widths.map(|width| MASKS[width]),
            row_bytes: a + b + c + d,
        }
    }
}

impl Packed {
    /// Packs the live rows of a chunk, all of which are plain and unlocked.
    pub(super) fn new(chunk: &Chunk) -> Packed {
        let mut rows = [[0; 4]; CHUNK_LEN];
        let (mut least, mut most, mut count) = ([u64::MAX; 4], [0; 4], 0);
        for (numbers, row) in rows.iter_mut().zip(chunk.rows()) {
            *numbers = to_numbers(row);
            for field in 0..4 {
                least[field] = least[field].min(numbers[field]);
                most[field] = most[field].max(numbers[field]);
            }
            count += 1;
        }
        let widths = [0, 1, 2, 3].map(|field| width_of(most[field].saturating_sub(least[field])));
        let Layout { starts, row_bytes, .. } = Layout::new(widths);
        let mut bytes = vec![0; row_bytes * count + WORD_BYTES];
        for (index, numbers) in rows[..count].iter().enumerate() {
            let row = &mut bytes[index * row_bytes..];
            // The upper bytes of each word are zero, and the next field overwrites them.
            for field in 0..4 {
                let word = numbers[field] - least[field];
                row[starts[field]..][..WORD_BYTES].copy_from_slice(&word.to_le_bytes());
            }
        }
        Packed { live: chunk.live, stored: chunk.live, least, widths, bytes: bytes.into_boxed_slice() }
    }

    /// Returns the row at a place, which must be live. Most rows that are read are not packed, so this is never inlined
    /// there.
    #[cold]
    #[inline(never)]
    pub(super) fn row(&self, place: usize) -> MessageRow {
        let before = self.stored & !(u64::MAX << place);
        self.row_at(Layout::new(self.widths), before.count_ones() as usize)
    }

    /// Copies the live rows into a chunk.
    pub(super) fn unpack(&self, chunk: &mut Chunk) {
        for (place, row) in self.rows() {
            chunk.entries[place] = row;
        }
        chunk.live = self.live;
    }

    /// Returns the live rows with their places, in order.
    pub(super) fn rows(&self) -> impl Iterator<Item = (usize, MessageRow)> {
        let layout = Layout::new(self.widths);
        let rows = places(self.stored).enumerate();
        let rows = rows.filter(|(_, place)| self.live & (1 << place) != 0);
        rows.map(move |(index, place)| (place, self.row_at(layout, index)))
    }

    #[cfg(test)]
    pub(super) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    fn row_at(&self, Layout { starts, masks, row_bytes }: Layout, index: usize) -> MessageRow {
        let row = &self.bytes[index * row_bytes..];
        let mut numbers = self.least;
        for field in 0..4 {
            let word = row[starts[field]..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            numbers[field] += word & masks[field];
        }
        from_numbers(numbers)
    }
}

/// Returns the number of bytes that a number needs.
fn width_of(number: u64) -> u8 {
    let bits = u64::BITS - number.leading_zeros();
    u8::try_from(bits.div_ceil(8)).expect("a word has eight bytes")
}

#[inline]
fn to_numbers(row: &MessageRow) -> Numbers {
    let state = match row.state {
        MessageState::Active => 0,
        MessageState::Deferred => 1,
        MessageState::Scheduled => 2,
        MessageState::Delayed => 3,
    };
    let [low, high] = row.delivery_count_low.to_le_bytes();
    let rest = u32::from_le_bytes([low, high, row.marks.0, state]);
    [row.body.to_raw(), row.enqueued_at().as_millis(), row.size_bytes.into(), rest.into()]
}

#[inline]
fn from_numbers([body, enqueued_at, size_bytes, rest]: Numbers) -> MessageRow {
    let [low, high, marks, state, ..] = rest.to_le_bytes();
    let [a, b, c, d, ..] = size_bytes.to_le_bytes();
    let size_bytes = u32::from_le_bytes([a, b, c, d]);
    let mut row = MessageRow::new(BodyRef::from_raw(body), size_bytes, Timestamp::from_millis(enqueued_at));
    row.delivery_count_low = u16::from_le_bytes([low, high]);
    row.marks = Marks(marks);
    row.state = match state {
        0 => MessageState::Active,
        1 => MessageState::Deferred,
        2 => MessageState::Scheduled,
        _ => MessageState::Delayed,
    };
    row
}
