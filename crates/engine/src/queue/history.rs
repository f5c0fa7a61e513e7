use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use peeklock_types::{SequenceNumber, Timestamp};

/// The message ids that a queue has seen within its window.
#[derive(Debug, Default)]
pub(crate) struct History {
    // The ids are sorted and not hashed, because senders choose them and could cause collisions.
    by_id: BTreeMap<Key, (Timestamp, SequenceNumber)>,
    /// The time and the length of each id, in the order of their arrival.
    in_order: VecDeque<(Timestamp, u32)>,
    /// The bytes of these ids.
    bytes: VecDeque<u8>,
}

/// An id in a form that is compared quickly: the first bytes are numbers inside the key, so most comparisons need no
/// other memory.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    start: (u64, u64),
    /// The length of an id with fewer bytes than `start`, which is filled up with zeros.
    length: u8,
    rest: Box<[u8]>,
}

impl Key {
    const START_BYTES: usize = 16;

    fn of(id: &[u8]) -> Key {
        let (start, rest) = id.split_at(id.len().min(Self::START_BYTES));
        let mut filled = [0; Self::START_BYTES];
        filled[..start.len()].copy_from_slice(start);
        let start_number = u128::from_be_bytes(filled);
        #[expect(clippy::cast_possible_truncation, reason = "the halves of a number; at most 16 bytes")]
        let (high, low, length) = ((start_number >> 64) as u64, start_number as u64, start.len() as u8);
        Key { start: (high, low), length, rest: rest.into() }
    }
}

impl History {
    /// Returns the message that had this id within `window` of `now`.
    pub(crate) fn find(&self, now: Timestamp, window: Duration, id: &[u8]) -> Option<SequenceNumber> {
        self.by_id.get(&Key::of(id)).filter(|(at, _)| *at > now - window).map(|&(_, number)| number)
    }

    /// Stores an id, and removes those that are out of the window.
    pub(crate) fn add(&mut self, at: Timestamp, window: Duration, id: &[u8], number: SequenceNumber) {
        let oldest = at - window;
        while let Some((seen, length)) = self.in_order.pop_front_if(|(seen, _)| *seen <= oldest) {
            let old: Vec<u8> = self.bytes.drain(..length as usize).collect();
            let old = Key::of(&old);
            // The id may have been seen again since.
            if self.by_id.get(&old).is_some_and(|(newest, _)| *newest == seen) {
                self.by_id.remove(&old);
            }
        }
        self.restore(at, id, number);
    }

    /// Appends an id.
    pub(crate) fn restore(&mut self, at: Timestamp, id: &[u8], number: SequenceNumber) {
        // Ids are far shorter.
        let Ok(length) = u32::try_from(id.len()) else { return };
        self.by_id.insert(Key::of(id), (at, number));
        self.in_order.push_back((at, length));
        self.bytes.extend(id);
    }

    pub(crate) fn len(&self) -> usize {
        self.in_order.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Timestamp, Vec<u8>, SequenceNumber)> {
        let mut start = 0;
        self.in_order.iter().map(move |&(at, length)| {
            let end = start + length as usize;
            let id: Vec<u8> = self.bytes.range(start..end).copied().collect();
            start = end;
            let number = self.by_id.get(&Key::of(&id)).map(|&(_, number)| number).unwrap_or_default();
            (at, id, number)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_within_the_window_and_then_removed() {
        let at = Timestamp::from_millis;
        let (window, id) = (Duration::from_millis(10), b"a");
        let mut history = History::default();
        history.add(at(100), window, id, SequenceNumber(1));
        assert_eq!(history.find(at(109), window, id), Some(SequenceNumber(1)));
        assert_eq!(history.find(at(110), window, id), None);
        history.add(at(110), window, id, SequenceNumber(2));
        assert_eq!((history.find(at(119), window, id), history.len()), (Some(SequenceNumber(2)), 1));
    }

    #[test]
    fn ids_that_begin_alike_are_different_ids() {
        let at = Timestamp::from_millis;
        let window = Duration::from_millis(10);
        let long = [b'x'; 40];
        let ids: Vec<Vec<u8>> = (0..=40)
            .map(|length| long[..length].to_vec())
            .chain([b"x\0".to_vec(), b"x\0\0".to_vec(), [&long[..16], b"\0"].concat()])
            .collect();
        let mut history = History::default();
        for (number, id) in (1..).zip(&ids) {
            assert_eq!(history.find(at(1), window, id), None, "{id:?}");
            history.add(at(1), window, id, SequenceNumber(number));
        }
        for (number, id) in (1..).zip(&ids) {
            assert_eq!(history.find(at(2), window, id), Some(SequenceNumber(number)), "{id:?}");
        }
        let kept: Vec<_> = history.iter().map(|(_, id, _)| id).collect();
        assert_eq!(kept, ids);
        history.add(at(11), window, b"last", SequenceNumber(99));
        assert_eq!((history.len(), history.by_id.len(), history.bytes.len()), (1, 1, 4));
    }
}
