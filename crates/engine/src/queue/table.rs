//! Messages by sequence number.
//!
//! Neighbours share a chunk, because a queue's sequence numbers are dense: a lookup is two array accesses, and a chunk
//! is freed when its last message is gone. A few old messages must not keep many empty chunks allocated, so stragglers
//! move to a tree.
//!
//! A row has 32 bytes. In a long backlog most chunks are untouched for a long time, so a chunk of plain messages is
//! packed into a few bytes per row, see [`packed`]. It is unpacked when one of its messages changes, for example when
//! the first one is locked. Reading and removing messages do not unpack it.

mod packed;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque, btree_map};

use peeklock_types::{BodyRef, Timestamp};

use self::packed::Packed;
use super::locks::LockSlot;
use super::sessions::SessionSlot;
use crate::message::MessageState;
use crate::order::LaneSlot;

/// A row of the table: borrowed, or unpacked for the caller.
pub(crate) type Row<'t> = Cow<'t, MessageRow>;

/// The row of each message. Patches and details are rare and stored elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageRow {
    pub(crate) body: BodyRef,
    /// The time of enqueueing, in 48 bits: enough for nine thousand years.
    came_low: u32,
    pub(crate) size_bytes: u32,
    pub(crate) lock: Option<LockSlot>,
    /// The session of the message, in a queue with sessions.
    pub(crate) session: Option<SessionSlot>,
    came_high: u16,
    /// The lane of the message, in a queue with an order.
    pub(crate) lane: Option<LaneSlot>,
    /// The lower half of the delivery count; the rest is in the details, because few messages fail that often.
    pub(crate) delivery_count_low: u16,
    pub(crate) state: MessageState,
    pub(crate) marks: Marks,
}

/// Rare properties of a message, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(u8);

impl Marks {
    /// The message has a patch.
    pub(crate) const PATCHED: Marks = Marks(1);
    /// The message has details.
    pub(crate) const DETAILED: Marks = Marks(2);
    /// The body is out of order in the log.
    pub(crate) const STRAY: Marks = Marks(4);
    /// The message has failed as often as the queue permits, and its session is set aside for it.
    pub(crate) const POISON: Marks = Marks(8);
    /// The message was delivered at least once, in a queue with an order.
    pub(crate) const STARTED: Marks = Marks(16);
    /// The message was scheduled, and has become due.
    pub(crate) const ACTIVATED: Marks = Marks(32);

    pub(crate) fn has(self, mark: Marks) -> bool {
        self.0 & mark.0 != 0
    }

    pub(crate) fn set(&mut self, mark: Marks, on: bool) {
        self.0 = if on { self.0 | mark.0 } else { self.0 & !mark.0 };
    }
}

const _: () = assert!(size_of::<MessageRow>() == 32, "a million waiting messages are to fit in 32 MB");

impl MessageRow {
    const BLANK: MessageRow = MessageRow {
        body: BodyRef::from_raw(0),
        came_low: 0,
        size_bytes: 0,
        lock: None,
        session: None,
        came_high: 0,
        lane: None,
        delivery_count_low: 0,
        state: MessageState::Active,
        marks: Marks(0),
    };

    /// Creates the row of a new message.
    pub(crate) fn new(body: BodyRef, size_bytes: u32, enqueued_at: Timestamp) -> MessageRow {
        let mut entry = MessageRow { body, size_bytes, ..MessageRow::BLANK };
        entry.set_enqueued_at(enqueued_at);
        entry
    }

    #[inline]
    pub(crate) fn enqueued_at(&self) -> Timestamp {
        Timestamp::from_millis(u64::from(self.came_high) << 32 | u64::from(self.came_low))
    }

    pub(crate) fn set_enqueued_at(&mut self, at: Timestamp) {
        const MAX: u64 = (1 << 48) - 1;
        let [a, b, c, d, e, f, ..] = at.as_millis().min(MAX).to_le_bytes();
        (self.came_low, self.came_high) = (u32::from_le_bytes([a, b, c, d]), u16::from_le_bytes([e, f]));
    }

    /// Counts a failed delivery. Returns whether the lower half of the count overflows; the caller then increments the
    /// upper half.
    #[must_use]
    pub(crate) fn count_failure(&mut self) -> bool {
        let (low, overflows) = self.delivery_count_low.overflowing_add(1);
        self.delivery_count_low = low;
        overflows
    }

    /// Returns whether the message is in the list of messages to deliver. In a session this includes a delayed message,
    /// so that nothing overtakes it.
    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        let delayed_in_session = self.state == MessageState::Delayed && self.session.is_some();
        self.lock.is_none() && (self.state == MessageState::Active || delayed_in_session)
    }

    pub(crate) fn is_stray(&self) -> bool {
        self.marks.has(Marks::STRAY)
    }

    /// Returns whether the message has nothing but what every message has. Messages of sessions and lanes are not
    /// plain: they are delivered in another order than that of the table, so their chunks would be packed and unpacked
    /// for single messages.
    fn is_plain(&self) -> bool {
        self.session.is_none() && self.lane.is_none()
    }
}

/// The rows of a chunk. One bit per row marks its presence, so a chunk has as many rows as a word has bits.
const CHUNK_LEN: usize = 64;

/// The number of chunks that stay unpacked after they were created or unpacked. In a queue with fewer messages, the
/// receivers usually remove a chunk before it is packed. Debug builds pack as much as possible, so that the tests of
/// queues cover it.
const UNPACKED_COUNT_MAX: usize = if cfg!(debug_assertions) { 1 } else { 64 };

#[derive(Debug)]
struct Chunk {
    live: u64,
    entries: [MessageRow; CHUNK_LEN],
}

impl Chunk {
    const BLANK: Chunk = Chunk { live: 0, entries: [MessageRow::BLANK; CHUNK_LEN] };

    fn rows(&self) -> impl Iterator<Item = &MessageRow> {
        places(self.live).map(|place| &self.entries[place])
    }
}

#[derive(Debug)]
enum Slot {
    Empty,
    Rows(Box<Chunk>),
    Packed(Box<Packed>),
}

impl Slot {
    #[inline]
    fn live(&self) -> u64 {
        match self {
            Slot::Empty => 0,
            Slot::Rows(chunk) => chunk.live,
            Slot::Packed(packed) => packed.live,
        }
    }

    /// Returns the row at a place, if it is live.
    #[inline]
    fn row(&self, place: usize) -> Option<Row<'_>> {
        match self {
            Slot::Rows(chunk) if chunk.live & (1 << place) != 0 => Some(Cow::Borrowed(&chunk.entries[place])),
            Slot::Packed(packed) if packed.live & (1 << place) != 0 => Some(Cow::Owned(packed.row(place))),
            Slot::Empty | Slot::Rows(_) | Slot::Packed(_) => None,
        }
    }

    /// Returns the live rows with their places, in order.
    fn rows(&self) -> impl Iterator<Item = (usize, Row<'_>)> {
        let (chunk, packed) = match self {
            Slot::Empty => (None, None),
            Slot::Rows(chunk) => (Some(chunk), None),
            Slot::Packed(packed) => (None, Some(packed)),
        };
        let rows = chunk
            .into_iter()
            .flat_map(|chunk| places(chunk.live).map(|place| (place, Cow::Borrowed(&chunk.entries[place]))));
        rows.chain(
            packed.into_iter().flat_map(|packed| packed.rows().map(|(place, row)| (place, Cow::Owned(row)))),
        )
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    /// The number of the first chunk. Messages of earlier chunks are in `stragglers`.
    first_chunk: u64,
    chunks: VecDeque<Slot>,
    /// The number of allocated chunks in `chunks`.
    chunk_count: usize,
    /// The chunk that was emptied or packed last: otherwise a queue that is mostly empty would allocate memory for each
    /// message.
    spare: Option<Box<Chunk>>,
    /// The numbers of the unpacked chunks, in the order in which they were created or unpacked. Some may be empty or
    /// packed since.
    unpacked: VecDeque<u64>,
    stragglers: BTreeMap<u64, MessageRow>,
    len: u64,
}

/// Returns the chunk of a number, and the index inside it.
fn split(number: u64) -> (u64, usize) {
    let place = usize::from(number.to_le_bytes()[0]) % CHUNK_LEN;
    (number / CHUNK_LEN as u64, place)
}

/// Returns the places of the live rows, in order.
fn places(mut live: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (live != 0).then(|| live.trailing_zeros() as usize);
        live &= live.wrapping_sub(1);
        place
    })
}

impl Table {
    /// Creates a table for numbers that arrive in order and without large gaps.
    pub(crate) fn dense() -> Table {
        Table {
            first_chunk: 0,
            chunks: VecDeque::new(),
            chunk_count: 0,
            spare: None,
            unpacked: VecDeque::new(),
            stragglers: BTreeMap::new(),
            len: 0,
        }
    }

    /// Creates a table for few numbers in any order: all are stragglers.
    pub(crate) fn sparse() -> Table {
        Table { first_chunk: u64::MAX, ..Table::dense() }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    pub(crate) fn get(&self, number: u64) -> Option<Row<'_>> {
        let (chunk, place) = split(number);
        let Some(index) = chunk.checked_sub(self.first_chunk) else {
            return self.stragglers.get(&number).map(Cow::Borrowed);
        };
        self.chunks.get(usize::try_from(index).ok()?)?.row(place)
    }

    /// Returns the row of a locked message. Its chunk is not packed, so this is faster than `get`.
    #[inline]
    pub(crate) fn get_locked(&self, number: u64) -> Option<&MessageRow> {
        let (chunk, place) = split(number);
        let Some(index) = chunk.checked_sub(self.first_chunk) else {
            return self.stragglers.get(&number).filter(|row| row.lock.is_some());
        };
        match self.chunks.get(usize::try_from(index).ok()?)? {
            Slot::Rows(chunk) if chunk.live & (1 << place) != 0 => {
                Some(&chunk.entries[place]).filter(|row| row.lock.is_some())
            }
            Slot::Empty | Slot::Rows(_) | Slot::Packed(_) => None,
        }
    }

    /// Returns a row to change it. Its chunk is unpacked.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut MessageRow> {
        let (chunk, place) = split(number);
        let Some(index) = chunk.checked_sub(self.first_chunk) else {
            return self.stragglers.get_mut(&number);
        };
        let index = usize::try_from(index).ok()?;
        let slot = self.chunks.get(index)?;
        if slot.live() & (1 << place) == 0 {
            return None;
        }
        if matches!(slot, Slot::Packed(_)) {
            self.unpack(index);
        }
        match &mut self.chunks[index] {
            Slot::Rows(chunk) => Some(&mut chunk.entries[place]),
            Slot::Empty | Slot::Packed(_) => None,
        }
    }

    /// Returns the first message whose number is at least `number`.
    #[inline]
    pub(crate) fn next_from(&self, number: u64) -> Option<(u64, Row<'_>)> {
        if !self.stragglers.is_empty()
            && let Some((&found, entry)) = self.stragglers.range(number..).next()
        {
            return Some((found, Cow::Borrowed(entry)));
        }
        let (skip, mut place) = self.start_at(number);
        let skip = usize::try_from(skip).ok().filter(|&skip| skip < self.chunks.len())?;
        for (slot, number) in self.chunks.range(skip..).zip(self.first_chunk + skip as u64..) {
            let live = slot.live() & (u64::MAX << place);
            if live != 0 {
                let place = live.trailing_zeros() as usize;
                return slot.row(place).map(|row| (number * CHUNK_LEN as u64 + place as u64, row));
            }
            place = 0;
        }
        None
    }

    /// Returns the index in `chunks` and the place at which a search for numbers from `number` on starts.
    fn start_at(&self, number: u64) -> (u64, usize) {
        let (chunk, place) = split(number);
        chunk.checked_sub(self.first_chunk).map_or((0, 0), |skip| (skip, place))
    }

    /// Returns all messages from `number` on, in order.
    pub(crate) fn iter_from(&self, number: u64) -> impl Iterator<Item = (u64, Row<'_>)> {
        let stragglers =
            self.stragglers.range(number..).map(|(&number, entry)| (number, Cow::Borrowed(entry)));
        let (skip, _) = self.start_at(number);
        let skip = usize::try_from(skip).map_or(self.chunks.len(), |skip| skip.min(self.chunks.len()));
        let chunks = self.chunks.range(skip..).zip(self.first_chunk.saturating_add(skip as u64)..);
        let rows = chunks.flat_map(|(slot, chunk)| {
            slot.rows().map(move |(place, row)| (chunk * CHUNK_LEN as u64 + place as u64, row))
        });
        stragglers.chain(rows.skip_while(move |(found, _)| *found < number))
    }

    /// Inserts a row. Returns `false` if the number is already present.
    #[inline]
    pub(crate) fn insert(&mut self, number: u64, entry: MessageRow) -> bool {
        let (chunk, place) = split(number);
        let is_new = if chunk < self.first_chunk {
            let slot = self.stragglers.entry(number);
            let is_new = matches!(slot, btree_map::Entry::Vacant(_));
            slot.or_insert(entry);
            is_new
        } else {
            let chunk = self.chunk_for_insert(chunk);
            let is_new = chunk.live & (1 << place) == 0;
            if is_new {
                chunk.live |= 1 << place;
                chunk.entries[place] = entry;
            }
            is_new
        };
        self.len += u64::from(is_new);
        is_new
    }

    #[inline]
    /// Removes a row. Returns `false` if the number is not present. A caller that needs the row copies it before the
    /// call: a return value would be one more copy.
    pub(crate) fn remove(&mut self, number: u64) -> bool {
        let (chunk, place) = split(number);
        let Some(index) = chunk.checked_sub(self.first_chunk) else {
            let was_there = self.stragglers.remove(&number).is_some();
            self.len -= u64::from(was_there);
            return was_there;
        };
        let slot = usize::try_from(index).ok().and_then(|index| self.chunks.get_mut(index));
        let Some(slot) = slot else { return false };
        let live = match slot {
            Slot::Empty => return false,
            Slot::Rows(chunk) => &mut chunk.live,
            Slot::Packed(packed) => &mut packed.live,
        };
        if *live & (1 << place) == 0 {
            return false;
        }
        *live &= !(1 << place);
        self.len -= 1;
        if *live == 0 {
            if let Slot::Rows(chunk) = std::mem::replace(slot, Slot::Empty) {
                self.spare = Some(chunk);
            }
            self.chunk_count -= 1;
            self.shorten();
        }
        true
    }

    /// Returns the chunk with this number, which is at or after the first one, and creates or unpacks it if necessary.
    #[inline]
    fn chunk_for_insert(&mut self, number: u64) -> &mut Chunk {
        // The new chunk is most often the last one.
        let index = number.checked_sub(self.first_chunk).and_then(|index| usize::try_from(index).ok());
        let is_open =
            index.and_then(|index| self.chunks.get(index)).is_some_and(|slot| matches!(slot, Slot::Rows(_)));
        let index = index.filter(|_| is_open).unwrap_or_else(|| self.open_chunk(number));
        match &mut self.chunks[index] {
            Slot::Rows(chunk) => chunk,
            Slot::Empty | Slot::Packed(_) => unreachable!("the chunk is unpacked, see above"),
        }
    }

    /// Creates or unpacks a chunk at or after the first one. Returns its index.
    fn open_chunk(&mut self, number: u64) -> usize {
        while !self.chunks.is_empty() && number - self.first_chunk >= self.row_len_max(self.chunk_count + 1) {
            self.give_up_first_chunk();
        }
        if self.chunks.is_empty() {
            self.first_chunk = number;
        }
        let index = usize::try_from(number - self.first_chunk).expect("the row is short, see above");
        if index >= self.chunks.len() {
            self.chunks.resize_with(index + 1, || Slot::Empty);
        }
        if matches!(self.chunks[index], Slot::Packed(_)) {
            self.unpack(index);
        } else {
            self.chunk_count += 1;
            let blank = self.blank_chunk();
            self.chunks[index] = Slot::Rows(blank);
            self.note_unpacked(number);
        }
        index
    }

    /// Returns a chunk without live rows.
    fn blank_chunk(&mut self) -> Box<Chunk> {
        let mut chunk = self.spare.take().unwrap_or_else(|| Box::new(Chunk::BLANK));
        chunk.live = 0;
        chunk
    }

    #[cold]
    fn unpack(&mut self, index: usize) {
        let mut chunk = self.blank_chunk();
        if let Slot::Packed(packed) = &self.chunks[index] {
            packed.unpack(&mut chunk);
            self.chunks[index] = Slot::Rows(chunk);
            self.note_unpacked(self.first_chunk + index as u64);
        }
    }

    /// Adds a chunk to the unpacked ones, and packs the oldest of them if there are many. Two are examined for each one
    /// that is added, so the list becomes shorter again after many of its chunks were locked.
    fn note_unpacked(&mut self, number: u64) {
        // A queue that is mostly empty creates its last chunk again and again.
        if self.unpacked.back() != Some(&number) {
            self.unpacked.push_back(number);
        }
        for _ in 0..2 {
            if self.unpacked.len() > UNPACKED_COUNT_MAX
                && let Some(oldest) = self.unpacked.pop_front()
                // The chunk that was just added is about to change. It may be in the list twice.
                && oldest != number
            {
                self.try_to_pack(oldest);
            }
        }
    }

    /// Packs a chunk of plain messages. A chunk with a locked message is examined again later.
    fn try_to_pack(&mut self, number: u64) {
        let index = number.checked_sub(self.first_chunk).and_then(|index| usize::try_from(index).ok());
        let Some(slot) = index.and_then(|index| self.chunks.get_mut(index)) else { return };
        let Slot::Rows(chunk) = slot else { return };
        if let Some(row) = chunk.rows().find(|row| !row.is_plain() || row.lock.is_some()) {
            if row.is_plain() {
                self.unpacked.push_back(number);
            }
            return;
        }
        let packed = Slot::Packed(Box::new(Packed::new(chunk)));
        if let Slot::Rows(chunk) = std::mem::replace(slot, packed) {
            self.spare = Some(chunk);
        }
    }

    /// Returns the maximum length of the row for a number of allocated chunks: a fixed multiple, so memory is
    /// proportional to the messages.
    fn row_len_max(&self, chunk_count: usize) -> u64 {
        8 + 4 * chunk_count as u64
    }

    fn shorten(&mut self) {
        while self.chunks.len() as u64 > self.row_len_max(self.chunk_count) {
            self.give_up_first_chunk();
        }
        // The last slot stays, even if empty: the next message belongs there, and must not become a straggler.
        while self.chunks.len() > 1 && matches!(self.chunks.front(), Some(Slot::Empty)) {
            self.chunks.pop_front();
            self.first_chunk += 1;
        }
    }

    fn give_up_first_chunk(&mut self) {
        let first_number = self.first_chunk * CHUNK_LEN as u64;
        self.first_chunk += 1;
        let Some(slot) = self.chunks.pop_front() else { return };
        self.chunk_count -= usize::from(!matches!(slot, Slot::Empty));
        self.stragglers.extend(slot.rows().map(|(place, row)| (first_number + place as u64, *row)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use peeklock_types::SequenceNumber;
    use proptest::prelude::*;

    use super::super::locks::Locks;
    use super::*;

    fn entry(size_bytes: u32) -> MessageRow {
        MessageRow { size_bytes, ..MessageRow::BLANK }
    }

    #[test]
    fn an_old_straggler_does_not_keep_a_long_row_allocated() {
        let mut table = Table::dense();
        for number in 1..=100_000 {
            assert!(table.insert(number, entry(1)));
            if number != 5 {
                assert!(table.remove(number));
            }
        }
        assert!(table.chunks.len() < 20);
        assert_eq!(table.iter_from(0).map(|(number, _)| number).collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn a_queue_that_empties_again_and_again_stays_dense() {
        let mut table = Table::dense();
        for number in 1..=1000 {
            table.insert(number, entry(1));
            assert!(table.stragglers.is_empty());
            table.remove(number);
            assert!(table.chunks.len() <= 2);
        }
    }

    #[test]
    fn a_jump_of_the_number_costs_no_memory() {
        let mut table = Table::dense();
        table.insert(1, entry(1));
        table.insert(1 << 60, entry(2));
        assert_eq!(table.iter_from(0).map(|(number, _)| number).collect::<Vec<_>>(), [1, 1 << 60]);
    }

    #[test]
    fn a_long_backlog_of_plain_messages_takes_few_bytes() {
        let mut table = Table::dense();
        for number in 1..=10_000 {
            assert!(table.insert(number, plain(number)));
        }
        let packed =
            |table: &Table| table.chunks.iter().filter(|slot| matches!(slot, Slot::Packed(_))).count();
        assert!(packed(&table) + UNPACKED_COUNT_MAX >= table.chunk_count);
        let bytes = table.chunks.iter().map(|slot| match slot {
            Slot::Packed(packed) => size_of::<Packed>() + packed.size_bytes(),
            Slot::Rows(_) | Slot::Empty => 0,
        });
        assert!(bytes.sum::<usize>() < 8 * 10_000);
        // The moved bodies of a long backlog do not leave its chunks unpacked.
        for number in 1..=10_000 {
            table.get_mut(number).unwrap().body = BodyRef::standalone((1 << 32) | (number * 34)).unwrap();
        }
        assert!(packed(&table) + UNPACKED_COUNT_MAX >= table.chunk_count);
    }

    #[test]
    fn a_locked_message_keeps_its_chunk_unpacked() {
        let mut table = Table::dense();
        for number in 1..=1000 {
            table.insert(number, plain(number));
            if number == 70 {
                table.get_mut(number).unwrap().lock = Some(lock());
            }
        }
        assert_eq!(table.get_locked(70), table.get(70).as_deref());
        assert!(table.get_locked(71).is_none() && table.get(71).is_some());
    }

    /// Returns the row of a message of 256 bytes in a commit group of 100 such messages.
    fn plain(number: u64) -> MessageRow {
        let offset = u32::try_from(number % 100 * 272).unwrap();
        let body = BodyRef::in_group(peeklock_types::CommitGroupNumber(number / 100), offset).unwrap();
        MessageRow::new(body, 256, Timestamp::from_millis(1_700_000_000_000 + number / 100))
    }

    fn lock() -> LockSlot {
        Locks::default().add(SequenceNumber(1), 1, Timestamp::ZERO)
    }

    /// A row with similar or arbitrary values.
    fn rows() -> impl Strategy<Value = MessageRow> {
        let near = (1_000_000..1_000_999_u64, 256..300_u32, 1_700_000_000_000..1_700_000_000_999_u64);
        let far = (any::<u64>(), any::<u32>(), 0..1_u64 << 48);
        let state = prop_oneof![
            8 => Just(MessageState::Active),
            1 => Just(MessageState::Deferred),
            1 => Just(MessageState::Scheduled),
            1 => Just(MessageState::Delayed),
        ];
        let rest = (state, prop_oneof![8 => Just((0, 0)), 1 => (any::<u8>(), any::<u16>())]);
        (prop_oneof![8 => near, 1 => far], rest).prop_map(
            |((body, size_bytes, at), (state, (marks, count)))| {
                let row = MessageRow::new(BodyRef::from_raw(body), size_bytes, Timestamp::from_millis(at));
                MessageRow { state, marks: Marks(marks), delivery_count_low: count, ..row }
            },
        )
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push { gap: u64, count: u64 },
        InsertAt { number: u64 },
        RemoveNth { nth: usize },
        ChangeNth { nth: usize },
        LockNth { nth: usize, on: bool },
        WalkFrom { number: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<(Step, MessageRow)>> {
        let step = prop_oneof![
            8 => (1..3_u64, 1..20_u64).prop_map(|(gap, count)| Step::Push { gap, count }),
            1 => (1..5000_u64).prop_map(|gap| Step::Push { gap, count: 1 }),
            1 => (0..2000_u64).prop_map(|number| Step::InsertAt { number }),
            8 => (0..8_usize).prop_map(|nth| Step::RemoveNth { nth }),
            8 => any::<usize>().prop_map(|nth| Step::RemoveNth { nth }),
            2 => any::<usize>().prop_map(|nth| Step::ChangeNth { nth }),
            2 => any::<(usize, bool)>().prop_map(|(nth, on)| Step::LockNth { nth, on }),
            1 => (0..2000_u64).prop_map(|number| Step::WalkFrom { number }),
        ];
        prop::collection::vec((step, rows()), 1..600)
    }

    fn nth_key(model: &BTreeMap<u64, MessageRow>, nth: usize) -> Option<u64> {
        model.keys().nth(nth.checked_rem(model.len())?).copied()
    }

    fn row_of(table: &Table, number: u64) -> Option<MessageRow> {
        table.get(number).map(Cow::into_owned)
    }

    fn walk(table: &Table, number: u64) -> Vec<(u64, MessageRow)> {
        table.iter_from(number).map(|(number, row)| (number, *row)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_table_behaves_like_a_map(steps in steps(), dense in any::<bool>()) {
            let mut table = if dense { Table::dense() } else { Table::sparse() };
            let mut model = BTreeMap::new();
            let mut last = 0;
            for (step, row) in steps {
                match step {
                    Step::Push { gap, count } => {
                        for _ in 0..count {
                            last += gap;
                            prop_assert_eq!(table.insert(last, row), !model.contains_key(&last));
                            model.entry(last).or_insert(row);
                        }
                    }
                    Step::InsertAt { number } => {
                        prop_assert_eq!(table.insert(number, row), !model.contains_key(&number));
                        model.entry(number).or_insert(row);
                        last = last.max(number);
                    }
                    Step::RemoveNth { nth: index } => {
                        let Some(number) = nth_key(&model, index) else { continue };
                        prop_assert_eq!(row_of(&table, number), model.remove(&number));
                        prop_assert!(table.remove(number) && !table.remove(number));
                        prop_assert!(table.get_mut(number).is_none());
                    }
                    Step::ChangeNth { nth: index } => {
                        let Some(number) = nth_key(&model, index) else { continue };
                        *table.get_mut(number).unwrap() = row;
                        model.insert(number, row);
                    }
                    Step::LockNth { nth: index, on } => {
                        let Some(number) = nth_key(&model, index) else { continue };
                        table.get_mut(number).unwrap().lock = on.then(lock);
                        model.get_mut(&number).unwrap().lock = on.then(lock);
                        prop_assert_eq!(table.get_locked(number).is_some(), on);
                    }
                    Step::WalkFrom { number } => {
                        let expected: Vec<_> = model.range(number..).map(|(&number, &row)| (number, row)).collect();
                        prop_assert_eq!(table.next_from(number).map(|(number, row)| (number, *row)), expected.first().copied());
                        prop_assert_eq!(walk(&table, number), expected);
                    }
                }
                prop_assert_eq!(table.len(), model.len() as u64);
                let allocated = table.chunks.iter().filter(|slot| !matches!(slot, Slot::Empty));
                prop_assert_eq!(allocated.count(), table.chunk_count);
                prop_assert!(table.chunks.len() as u64 <= table.row_len_max(table.chunk_count));
            }
            for (&number, row) in &model {
                prop_assert_eq!(row_of(&table, number), Some(*row));
            }
            prop_assert_eq!(walk(&table, 0), model.into_iter().collect::<Vec<_>>());
        }
    }
}
