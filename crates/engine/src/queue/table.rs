//! Messages by sequence number, in 32 bytes each.
//!
//! Neighbours share a chunk, because a queue's sequence numbers are dense: a lookup is two array accesses, and a chunk
//! is freed when its last message is gone. A few old messages must not keep many empty chunks allocated, so stragglers
//! move to a tree.

use std::collections::{BTreeMap, VecDeque, btree_map};

use peeklock_types::{BodyRef, Timestamp};

use super::locks::LockSlot;
use super::sessions::SessionSlot;
use crate::message::MessageState;
use crate::order::LaneSlot;

/// The stored row of each message. Patches and details are rare and stored elsewhere.
#[derive(Clone, Copy, Debug)]
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
}

/// The rows of a chunk. One bit per row marks its presence, so a chunk has as many rows as a word has bits.
const CHUNK_LEN: usize = 64;

#[derive(Debug)]
struct Chunk {
    live: u64,
    entries: [MessageRow; CHUNK_LEN],
}

#[derive(Debug)]
pub(crate) struct Table {
    /// The number of the first chunk. Messages of earlier chunks are in `stragglers`.
    first_chunk: u64,
    chunks: VecDeque<Option<Box<Chunk>>>,
    /// The number of allocated chunks in `chunks`.
    chunk_count: usize,
    /// The chunk that was emptied last: otherwise a queue that is mostly empty would allocate memory for each message.
    spare: Option<Box<Chunk>>,
    stragglers: BTreeMap<u64, MessageRow>,
    len: u64,
}

/// Returns the chunk of a number, and the index inside it.
fn split(number: u64) -> (u64, usize) {
    let place = usize::from(number.to_le_bytes()[0]) % CHUNK_LEN;
    (number / CHUNK_LEN as u64, place)
}

impl Table {
    /// Creates a table for numbers that arrive in order and without large gaps.
    pub(crate) fn dense() -> Table {
        Table {
            first_chunk: 0,
            chunks: VecDeque::new(),
            chunk_count: 0,
            spare: None,
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
    pub(crate) fn get(&self, number: u64) -> Option<&MessageRow> {
        let (chunk, place) = split(number);
        let Some(index) = chunk.checked_sub(self.first_chunk) else { return self.stragglers.get(&number) };
        let chunk = self.chunks.get(usize::try_from(index).ok()?)?.as_ref()?;
        (chunk.live & (1 << place) != 0).then(|| &chunk.entries[place])
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut MessageRow> {
        let (chunk, place) = split(number);
        let Some(index) = chunk.checked_sub(self.first_chunk) else {
            return self.stragglers.get_mut(&number);
        };
        let chunk = self.chunks.get_mut(usize::try_from(index).ok()?)?.as_mut()?;
        (chunk.live & (1 << place) != 0).then(|| &mut chunk.entries[place])
    }

    /// Returns the first message whose number is at least `number`.
    #[inline]
    pub(crate) fn next_from(&self, number: u64) -> Option<(u64, &MessageRow)> {
        if !self.stragglers.is_empty()
            && let Some((&found, entry)) = self.stragglers.range(number..).next()
        {
            return Some((found, entry));
        }
        let (chunk, place) = split(number);
        let (skip, mut place) = chunk.checked_sub(self.first_chunk).map_or((0, 0), |skip| (skip, place));
        let skip = usize::try_from(skip).ok().filter(|&skip| skip < self.chunks.len())?;
        for (chunk, number) in self.chunks.range(skip..).zip(self.first_chunk + skip as u64..) {
            if let Some(chunk) = chunk {
                let live = chunk.live & (u64::MAX << place);
                if live != 0 {
                    let place = live.trailing_zeros();
                    return Some((
                        number * CHUNK_LEN as u64 + u64::from(place),
                        &chunk.entries[place as usize],
                    ));
                }
            }
            place = 0;
        }
        None
    }

    /// Returns all messages from `number` on, in order.
    pub(crate) fn iter_from(&self, number: u64) -> impl Iterator<Item = (u64, &MessageRow)> {
        let mut next = Some(number);
        std::iter::from_fn(move || {
            let (found, entry) = self.next_from(next?)?;
            next = found.checked_add(1);
            Some((found, entry))
        })
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
        let Some(chunk) = slot.as_mut().filter(|chunk| chunk.live & (1 << place) != 0) else { return false };
        chunk.live &= !(1 << place);
        self.len -= 1;
        if chunk.live == 0 {
            self.spare = slot.take();
            self.chunk_count -= 1;
            self.shorten();
        }
        true
    }

    /// Returns the chunk with this number, which is at or after the first one, and creates it if necessary.
    fn chunk_for_insert(&mut self, number: u64) -> &mut Chunk {
        while !self.chunks.is_empty() && number - self.first_chunk >= self.row_len_max(self.chunk_count + 1) {
            self.give_up_first_chunk();
        }
        if self.chunks.is_empty() {
            self.first_chunk = number;
        }
        let index = usize::try_from(number - self.first_chunk).expect("the row is short, see above");
        if index >= self.chunks.len() {
            self.chunks.resize_with(index + 1, || None);
        }
        let (slot, spare) = (&mut self.chunks[index], &mut self.spare);
        slot.get_or_insert_with(|| {
            self.chunk_count += 1;
            spare
                .take()
                .unwrap_or_else(|| Box::new(Chunk { live: 0, entries: [MessageRow::BLANK; CHUNK_LEN] }))
        })
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
        while self.chunks.len() > 1 && matches!(self.chunks.front(), Some(None)) {
            self.chunks.pop_front();
            self.first_chunk += 1;
        }
    }

    fn give_up_first_chunk(&mut self) {
        let first_number = self.first_chunk * CHUNK_LEN as u64;
        self.first_chunk += 1;
        let Some(Some(chunk)) = self.chunks.pop_front() else { return };
        self.chunk_count -= 1;
        let there = chunk.entries.iter().enumerate().filter(|(place, _)| chunk.live & (1 << place) != 0);
        self.stragglers.extend(there.map(|(place, entry)| (first_number + place as u64, *entry)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

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

    #[derive(Clone, Debug)]
    enum Step {
        Push { gap: u64 },
        InsertAt { number: u64 },
        RemoveNth { nth: usize },
        WalkFrom { number: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            8 => (1..3u64).prop_map(|gap| Step::Push { gap }),
            1 => (1..5000u64).prop_map(|gap| Step::Push { gap }),
            1 => (0..2000u64).prop_map(|number| Step::InsertAt { number }),
            8 => (0..8usize).prop_map(|nth| Step::RemoveNth { nth }),
            2 => any::<usize>().prop_map(|nth| Step::RemoveNth { nth }),
            1 => (0..2000u64).prop_map(|number| Step::WalkFrom { number }),
        ];
        prop::collection::vec(step, 1..600)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_table_behaves_like_a_map(steps in steps(), dense in any::<bool>()) {
            let mut table = if dense { Table::dense() } else { Table::sparse() };
            let mut model = BTreeMap::new();
            let mut last = 0;
            for (mark, step) in (0..).zip(steps) {
                match step {
                    Step::Push { gap } => {
                        last += gap;
                        prop_assert_eq!(table.insert(last, entry(mark)), !model.contains_key(&last));
                        model.entry(last).or_insert(mark);
                    }
                    Step::InsertAt { number } => {
                        prop_assert_eq!(table.insert(number, entry(mark)), !model.contains_key(&number));
                        model.entry(number).or_insert(mark);
                        last = last.max(number);
                    }
                    Step::RemoveNth { nth } if !model.is_empty() => {
                        let number = *model.keys().nth(nth % model.len()).unwrap();
                        let removed = table.get(number).map(|entry| entry.size_bytes);
                        prop_assert_eq!(removed, model.remove(&number));
                        prop_assert!(table.remove(number) && !table.remove(number));
                        prop_assert!(table.get_mut(number).is_none());
                    }
                    Step::RemoveNth { .. } => {}
                    Step::WalkFrom { number } => {
                        let walked = table.iter_from(number).map(|(number, entry)| (number, entry.size_bytes));
                        let expected = model.range(number..).map(|(&number, &mark)| (number, mark));
                        prop_assert!(walked.eq(expected));
                    }
                }
                prop_assert_eq!(table.len(), model.len() as u64);
                prop_assert_eq!(table.chunks.iter().flatten().count(), table.chunk_count);
                prop_assert!(table.chunks.len() as u64 <= table.row_len_max(table.chunk_count));
            }
            for (number, mark) in model {
                prop_assert_eq!(table.get(number).map(|entry| entry.size_bytes), Some(mark));
            }
        }
    }
}
