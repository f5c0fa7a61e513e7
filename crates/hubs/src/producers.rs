//! What a stream remembers of producers that number their events.

use std::collections::BTreeMap;

use peeklock_types::limits;

use crate::error::Error;
use crate::stream::Producer;

/// More is not looked back: half of all numbers, so that before and after can be told.
const TAKEN_MAX: u32 = 1 << 30;
/// Numbers go on with 0 after `i32::MAX`.
const NUMBER_MASK: u32 = i32::MAX.cast_unsigned();

/// The newest [`limits::PRODUCERS_MAX`] of them. Whoever was silent longest is forgotten first, which is told by the events of the stream alone, so
/// that replay forgets the same.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    by_id: BTreeMap<i64, Known>,
    /// By the number that the stream gave to the last event of each.
    by_last_event: BTreeMap<u64, i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) producer: Producer,
    /// How many events came in a row, up to the last. Whatever has a number before these was never seen.
    pub(crate) taken: u32,
    pub(crate) last_event: u64,
}

/// What becomes of events with these numbers.
pub(crate) enum Verdict {
    New,
    Seen,
}

/// How far `to` comes after `from`.
fn distance(from: i32, to: i32) -> u32 {
    to.cast_unsigned().wrapping_sub(from.cast_unsigned()) & NUMBER_MASK
}

impl Producer {
    /// The number of the last of `count` events, of which this names the first.
    pub(crate) fn last_of(self, count: u32) -> Producer {
        let last = self.sequence.cast_unsigned().wrapping_add(count.saturating_sub(1)) & NUMBER_MASK;
        Producer { sequence: last.cast_signed(), ..self }
    }
}

impl Producers {
    pub(crate) fn get(&self, id: i64) -> Option<Producer> {
        self.by_id.get(&id).map(|known| known.producer)
    }

    /// By the last event of each, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Known> {
        self.by_last_event.values().filter_map(|id| self.by_id.get(id))
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether `count` events from the number of `first` on may be taken.
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
        let back = distance(first.sequence, last.sequence);
        if back < known.taken && count <= back + 1 {
            return Ok(Verdict::Seen);
        }
        Err(Error::OutOfOrderSequence { last: last.sequence, found: first.sequence })
    }

    /// Takes `count` events, of which `last` names the last; the stream has given it the number `last_event`.
    pub(crate) fn take(&mut self, last: Producer, count: u32, last_event: u64) {
        let before = self.by_id.get(&last.id).filter(|known| known.producer.epoch == last.epoch);
        let taken = before.map_or(0, |known| known.taken).saturating_add(count).min(TAKEN_MAX);
        self.insert(Known { producer: last, taken, last_event });
    }

    pub(crate) fn insert(&mut self, known: Known) {
        if let Some(old) = self.by_id.insert(known.producer.id, known) {
            self.by_last_event.remove(&old.last_event);
        }
        self.by_last_event.insert(known.last_event, known.producer.id);
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
    fn what_was_taken_is_known_again_and_nothing_else_is() {
        let mut known = Producers::default();
        let first = producer(i32::MAX - 2);
        known.take(first.last_of(5), 5, 4);
        assert_eq!(known.get(1), Some(producer(1)));
        let check = |sequence, count| known.check(producer(sequence), count);
        assert!(matches!(check(2, 7), Ok(Verdict::New)));
        assert!(matches!(check(i32::MAX - 2, 5), Ok(Verdict::Seen)));
        assert!(matches!(check(0, 2), Ok(Verdict::Seen)));
        let refused = |found| Err(Error::OutOfOrderSequence { last: 1, found });
        assert_eq!(check(3, 1).map(|_| ()), refused(3));
        assert_eq!(check(0, 3).map(|_| ()), refused(0), "one of them is new");
        assert_eq!(check(i32::MAX - 3, 1).map(|_| ()), refused(i32::MAX - 3), "it was never seen");
    }

    #[test]
    fn a_new_epoch_starts_anew() {
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
    fn the_one_that_was_silent_longest_is_forgotten() {
        let mut known = Producers::default();
        let max = u64::try_from(limits::PRODUCERS_MAX).unwrap();
        for event in 0..max {
            known.take(Producer { id: event.cast_signed(), epoch: 0, sequence: 0 }, 1, event);
        }
        known.take(Producer { id: 0, epoch: 0, sequence: 1 }, 1, max);
        known.take(Producer { id: -1, epoch: 0, sequence: 1 }, 1, max + 1);
        assert_eq!((known.get(1), known.len()), (None, limits::PRODUCERS_MAX));
        assert!(known.get(0).is_some() && known.get(-1).is_some());
    }
}
