//! The producers with numbered events that a stream remembers.

use std::collections::{BTreeMap, VecDeque};

use peeklock_types::limits;

use crate::error::Error;
use crate::stream::Producer;

/// The number of sends of a producer that are recognised. No SDK has more than one in flight to a partition.
pub(crate) const SENDS_MAX: usize = 64;
/// Producers' numbers continue with 0 after `i32::MAX`.
const NUMBER_MASK: u32 = i32::MAX.cast_unsigned();

/// The newest [`limits::PRODUCERS_MAX`] producers of a stream. The producer that was silent longest is forgotten first.
/// This order follows from the events of the stream alone, so that replay forgets the same producer.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    by_id: BTreeMap<i64, Known>,
    /// The ids of the producers, by the sequence number of their last event in the stream.
    by_last_event: BTreeMap<u64, i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) producer: Producer,
    /// The event count of each of the last sends, oldest first. The numbers of the sends are consecutive up to the last
    /// number.
    pub(crate) sends: VecDeque<u32>,
    pub(crate) last_event: u64,
}

impl Known {
    /// Returns whether these events were one of the last sends. A producer repeats the same events; a producer that
    /// splits them in another way is out of order.
    fn has_seen(&self, first: Producer, count: u32) -> bool {
        if count == 0 {
            return true;
        }
        let mut end = self.producer.sequence;
        for sent in self.sends.iter().rev() {
            let start = before(end, *sent);
            if distance(start, first.sequence) == 1 {
                return *sent == count;
            }
            end = start;
        }
        false
    }
}

/// The decision about events with these numbers.
pub(crate) enum Verdict {
    New,
    Seen,
}

/// Returns the distance from `from` to `to`.
fn distance(from: i32, to: i32) -> u32 {
    to.cast_unsigned().wrapping_sub(from.cast_unsigned()) & NUMBER_MASK
}

/// Returns the number that is `count` before another.
fn before(number: i32, count: u32) -> i32 {
    (number.cast_unsigned().wrapping_sub(count) & NUMBER_MASK).cast_signed()
}

impl Producer {
    /// Returns the number of the last of `count` events, where `self` has the number of the first.
    pub(crate) fn last_of(self, count: u32) -> Producer {
        let last = self.sequence.cast_unsigned().wrapping_add(count.saturating_sub(1)) & NUMBER_MASK;
        Producer { sequence: last.cast_signed(), ..self }
    }
}

impl Producers {
    pub(crate) fn get(&self, id: i64) -> Option<Producer> {
        self.by_id.get(&id).map(|known| known.producer)
    }

    /// Iterates over the producers by their last event, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Known> {
        self.by_last_event.values().filter_map(|id| self.by_id.get(id))
    }

    /// Checks `count` events from the number of `first` on.
    pub(crate) fn check(&self, first: Producer, count: u32) -> Result<Verdict, Error> {
        let Some(known) = self.by_id.get(&first.id) else { return Ok(Verdict::New) };
        let last = known.producer;
        if first.epoch < last.epoch {
            let (producer, current, found) = (first.id, last.epoch, first.epoch);
            return Err(Error::ProducerEpoch { producer, current, found });
        }
        if first.epoch > last.epoch || distance(last.sequence, first.sequence) == 1 {
            return Ok(Verdict::New);
        }
        if known.has_seen(first, count) {
            return Ok(Verdict::Seen);
        }
        Err(Error::OutOfOrderSequence { last: last.sequence, found: first.sequence })
    }

    /// Accepts `count` events. `last` is the producer's number of the last event, and `last_event` its sequence number
    /// in the stream.
    pub(crate) fn take(&mut self, last: Producer, count: u32, last_event: u64) {
        let before = self.by_id.get_mut(&last.id).filter(|known| known.producer.epoch == last.epoch);
        let mut sends = before.map_or_else(VecDeque::new, |known| std::mem::take(&mut known.sends));
        if sends.len() >= SENDS_MAX {
            sends.pop_front();
        }
        sends.push_back(count);
        self.insert(Known { producer: last, sends, last_event });
    }

    pub(crate) fn insert(&mut self, known: Known) {
        let (id, last_event) = (known.producer.id, known.last_event);
        if let Some(old) = self.by_id.insert(id, known) {
            self.by_last_event.remove(&old.last_event);
        }
        self.by_last_event.insert(last_event, id);
        if self.by_id.len() > limits::PRODUCERS_MAX
            && let Some((_, oldest)) = self.by_last_event.pop_first()
        {
            self.by_id.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn producer(sequence: i32) -> Producer {
        Producer { id: 1, epoch: 0, sequence }
    }

    #[test]
    fn accepted_sends_are_recognised_and_no_others() {
        let mut known = Producers::default();
        let first = producer(i32::MAX - 2);
        known.take(first.last_of(3), 3, 2);
        known.take(producer(0).last_of(2), 2, 4);
        assert_eq!(known.get(1), Some(producer(1)));
        let check = |sequence, count| known.check(producer(sequence), count);
        assert!(matches!(check(2, 7), Ok(Verdict::New)));
        assert!(matches!(check(i32::MAX - 2, 3), Ok(Verdict::Seen)));
        assert!(matches!(check(0, 2), Ok(Verdict::Seen)));
        let refused = |found| Err(Error::OutOfOrderSequence { last: 1, found });
        assert_eq!(check(3, 1).map(|_| ()), refused(3));
        assert_eq!(check(0, 3).map(|_| ()), refused(0), "one of the events is new");
        assert_eq!(check(1, 1).map(|_| ()), refused(1), "the event was not sent alone");
        assert_eq!(check(i32::MAX - 2, 5).map(|_| ()), refused(i32::MAX - 2), "the events were two sends");
        assert_eq!(check(i32::MAX - 3, 1).map(|_| ()), refused(i32::MAX - 3), "the event was never accepted");
    }

    #[test]
    fn only_the_last_sends_are_remembered() {
        let mut known = Producers::default();
        let max = i32::try_from(SENDS_MAX).unwrap();
        for sequence in 0..=max {
            known.take(producer(sequence), 1, u64::try_from(sequence).unwrap());
        }
        assert!(matches!(known.check(producer(1), 1), Ok(Verdict::Seen)));
        assert!(known.check(producer(0), 1).is_err());
        assert_eq!(known.iter().map(|known| known.sends.len()).collect::<Vec<_>>(), [SENDS_MAX]);
    }

    #[test]
    fn a_new_epoch_starts_again() {
        let mut known = Producers::default();
        known.take(producer(9), 1, 0);
        let later = Producer { epoch: 1, ..producer(3) };
        assert!(matches!(known.check(later, 1), Ok(Verdict::New)));
        known.take(later, 1, 1);
        let (current, found) = (1, 0);
        let refused = known.check(producer(10), 1).map(|_| ());
        assert_eq!(refused, Err(Error::ProducerEpoch { producer: 1, current, found }));
        assert!(known.check(Producer { epoch: 1, ..producer(2) }, 1).is_err());
    }

    #[test]
    fn the_producer_that_was_silent_longest_is_forgotten() {
        let mut known = Producers::default();
        let max = u64::try_from(limits::PRODUCERS_MAX).unwrap();
        for event in 0..max {
            known.take(Producer { id: event.cast_signed(), epoch: 0, sequence: 0 }, 1, event);
        }
        known.take(Producer { id: 0, epoch: 0, sequence: 1 }, 1, max);
        known.take(Producer { id: -1, epoch: 0, sequence: 1 }, 1, max + 1);
        assert_eq!((known.get(1), known.iter().count()), (None, limits::PRODUCERS_MAX));
        assert!(known.get(0).is_some() && known.get(-1).is_some());
    }
}
