//! Streams as lists of events and extents, with linear searches.

use peeklock_hubs::{Error, GatherRun, Prepared, Producer, StreamId, StreamView};
use peeklock_types::{BodyRef, CommitGroupNumber};

#[derive(Clone, Debug)]
pub(crate) struct ModelExtent {
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) first_at: u64,
    pub(crate) last_at: u64,
    pub(crate) body: BodyRef,
    pub(crate) size_bytes: u32,
}

impl ModelExtent {
    pub(crate) fn end(&self) -> u64 {
        self.first + self.count
    }

    pub(crate) fn group(&self) -> Option<CommitGroupNumber> {
        self.body.group()
    }

    pub(crate) fn stored(&self) -> (BodyRef, u32) {
        (self.body, self.size_bytes)
    }
}

/// The sends of one producer in its last epoch, by the numbers of their events.
#[derive(Clone, Debug)]
struct Sent {
    id: i64,
    epoch: i16,
    sends: Vec<Vec<i32>>,
}

/// The number of recognised sends.
const SENDS_KNOWN: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct ModelStream {
    pub(crate) id: StreamId,
    pub(crate) retention_ms: Option<u64>,
    pub(crate) retention_bytes: Option<u64>,
    pub(crate) is_moved_on: bool,
    pub(crate) extents: Vec<ModelExtent>,
    /// The time of each event ever.
    pub(crate) times: Vec<u64>,
    sent: Vec<Sent>,
}

fn follower(number: i32) -> i32 {
    number.checked_add(1).unwrap_or(0)
}

/// Returns the numbers of `count` events from `first` on.
fn numbers(first: i32, count: u32) -> Vec<i32> {
    std::iter::successors(Some(first), |number| Some(follower(*number))).take(count as usize).collect()
}

impl ModelStream {
    pub(crate) fn new(id: StreamId) -> ModelStream {
        ModelStream {
            id,
            retention_ms: None,
            retention_bytes: None,
            is_moved_on: false,
            extents: Vec::new(),
            times: Vec::new(),
            sent: Vec::new(),
        }
    }

    pub(crate) fn next(&self) -> u64 {
        self.times.len() as u64
    }

    pub(crate) fn begin(&self) -> u64 {
        self.extents.first().map_or_else(|| self.next(), |extent| extent.first)
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.extents.iter().map(|extent| u64::from(extent.size_bytes)).sum()
    }

    pub(crate) fn check(&self, first: Option<Producer>, count: u32) -> Result<Option<Prepared>, Error> {
        let known = first.and_then(|first| self.sent.iter().find(|sent| sent.id == first.id));
        let (Some(first), Some(known)) = (first, known) else { return Ok(None) };
        if first.epoch < known.epoch {
            let (producer, current, found) = (first.id, known.epoch, first.epoch);
            return Err(Error::ProducerEpoch { producer, current, found });
        }
        let last = *known.sends.last().unwrap().last().unwrap();
        if first.epoch > known.epoch || first.sequence == follower(last) {
            return Ok(None);
        }
        if count == 0
            || known.sends.iter().rev().take(SENDS_KNOWN).any(|sent| *sent == numbers(first.sequence, count))
        {
            return Ok(Some(Prepared::Duplicate));
        }
        Err(Error::OutOfOrderSequence { last, found: first.sequence })
    }

    /// Returns the enqueued time of events that arrive at `now`.
    pub(crate) fn time(&self, now: u64) -> u64 {
        self.times.last().map_or(now, |last| now.max(*last))
    }

    pub(crate) fn append(
        &mut self,
        now: u64,
        count: u32,
        body: BodyRef,
        size_bytes: u32,
        by: Option<Producer>,
    ) {
        let (at, first, count) = (self.time(now), self.next(), u64::from(count));
        self.times.extend((0..count).map(|_| at));
        self.extents.push(ModelExtent { first, count, first_at: at, last_at: at, body, size_bytes });
        let Some(by) = by else { return };
        self.sent.retain(|sent| sent.id != by.id || sent.epoch == by.epoch);
        if !self.sent.iter().any(|sent| sent.id == by.id) {
            self.sent.push(Sent { id: by.id, epoch: by.epoch, sends: Vec::new() });
        }
        let sent = self.sent.iter_mut().find(|sent| sent.id == by.id).unwrap();
        sent.sends.push(numbers(by.sequence, u32::try_from(count).unwrap()));
    }

    pub(crate) fn last_number(&self, id: i64) -> Option<i32> {
        self.sent.iter().find(|sent| sent.id == id).and_then(|sent| sent.sends.last()?.last().copied())
    }

    /// Retires events by age and size, and returns those in cold storage.
    pub(crate) fn retire(&mut self, now: u64) -> Vec<(BodyRef, u32)> {
        let mut freed = Vec::new();
        while let Some(first) = self.extents.first() {
            let is_old = self.retention_ms.is_some_and(|retention| first.last_at + retention <= now);
            let is_much = self.retention_bytes.is_some_and(|max| self.size_bytes() > max);
            let goes = is_old || (is_much && self.extents.len() > 1);
            if !goes {
                break;
            }
            let gone = self.extents.remove(0);
            freed.extend(gone.group().is_none().then(|| gone.stored()));
        }
        freed
    }

    pub(crate) fn in_log(&self) -> impl Iterator<Item = &ModelExtent> {
        self.extents.iter().filter(|extent| extent.group().is_some())
    }

    /// Returns whether the run could be moved.
    pub(crate) fn gathered(&mut self, run: &GatherRun, body: BodyRef, size_bytes: u32) -> bool {
        let start = self.extents.len() - self.in_log().count();
        let found: Vec<_> = self.extents[start..].iter().take(run.bodies.len()).cloned().collect();
        let fits = found.iter().map(ModelExtent::stored).eq(run.bodies.iter().copied());
        if !fits || found[0].first != run.first_sequence {
            return false;
        }
        let whole = ModelExtent {
            first: run.first_sequence,
            count: found.iter().map(|extent| extent.count).sum(),
            first_at: found[0].first_at,
            last_at: found[found.len() - 1].last_at,
            body,
            size_bytes,
        };
        self.extents.splice(start..start + found.len(), [whole]);
        true
    }

    pub(crate) fn compare(&self, view: &StreamView) {
        let millis = |at: Option<peeklock_types::Timestamp>| at.map(|at| at.as_millis());
        assert_eq!((view.begin_sequence, view.next_sequence), (self.begin(), self.next()));
        assert_eq!((view.size_bytes, view.extent_count), (self.size_bytes(), self.extents.len()));
        assert_eq!(millis(view.last_enqueued_at), self.times.last().copied());
        assert_eq!(millis(view.first_enqueued_at), self.extents.first().map(|extent| extent.first_at));
    }
}
