use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use peeklock_types::{SequenceNumber, Timestamp};

/// The message ids that a queue has seen within its window.
#[derive(Debug, Default)]
pub(crate) struct History {
    // The ids are sorted and not hashed, because senders choose them and could cause collisions.
    by_id: BTreeMap<Bytes, (Timestamp, SequenceNumber)>,
    in_order: VecDeque<(Timestamp, Bytes)>,
}

impl History {
    /// Returns the message that had this id within `window` of `now`.
    pub(crate) fn find(&self, now: Timestamp, window: Duration, id: &Bytes) -> Option<SequenceNumber> {
        self.by_id.get(id).filter(|(at, _)| *at > now - window).map(|&(_, number)| number)
    }

    /// Stores an id, and removes those that are out of the window.
    pub(crate) fn add(&mut self, at: Timestamp, window: Duration, id: Bytes, number: SequenceNumber) {
        let oldest = at - window;
        while let Some((seen, old)) = self.in_order.pop_front_if(|(seen, _)| *seen <= oldest) {
            // The id may have been seen again since.
            if self.by_id.get(&old).is_some_and(|(newest, _)| *newest == seen) {
                self.by_id.remove(&old);
            }
        }
        self.restore(at, id, number);
    }

    /// Appends an id.
    pub(crate) fn restore(&mut self, at: Timestamp, id: Bytes, number: SequenceNumber) {
        self.by_id.insert(id.clone(), (at, number));
        self.in_order.push_back((at, id));
    }

    pub(crate) fn len(&self) -> usize {
        self.in_order.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Timestamp, &Bytes, SequenceNumber)> {
        let number = |id| self.by_id.get(id).map(|&(_, number)| number).unwrap_or_default();
        self.in_order.iter().map(move |(at, id)| (*at, id, number(id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_within_the_window_and_then_removed() {
        let at = Timestamp::from_millis;
        let (window, id) = (Duration::from_millis(10), Bytes::from_static(b"a"));
        let mut history = History::default();
        history.add(at(100), window, id.clone(), SequenceNumber(1));
        assert_eq!(history.find(at(109), window, &id), Some(SequenceNumber(1)));
        assert_eq!(history.find(at(110), window, &id), None);
        history.add(at(110), window, id.clone(), SequenceNumber(2));
        assert_eq!((history.find(at(119), window, &id), history.len()), (Some(SequenceNumber(2)), 1));
    }
}
