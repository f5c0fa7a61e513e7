//! The index of a stream: the places of its events.
//!
//! Extents are gathered from the front, so those in cold storage come first, and those in the log after them. A stream
//! can have millions of small extents in the log, so these take 32 bytes each.

use std::collections::VecDeque;

use peeklock_types::{BodyRef, CommitGroupNumber, Timestamp};

use crate::error::ReplayError;
use crate::stream::Extent;

/// The largest sequence number, because sequence numbers are signed on the wire.
const SEQUENCE_MAX: u64 = i64::MAX.cast_unsigned();

/// Consecutive extents without a gap.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    cold: VecDeque<Extent>,
    log: VecDeque<Logged>,
    /// The number of the next event.
    next: u64,
    size_bytes: u64,
}

/// One send in the log: all its events have the same time.
#[derive(Clone, Copy, Debug)]
struct Logged {
    first_sequence: u64,
    enqueued_at: Timestamp,
    body: BodyRef,
    count: u32,
    size_bytes: u32,
}

impl Extent {
    /// Returns the number after its last event.
    pub(crate) fn end(&self) -> u64 {
        self.first_sequence + u64::from(self.count)
    }

    /// Returns the time of this event, interpolated between the first and the last.
    pub(crate) fn enqueued_at(&self, sequence: u64) -> Timestamp {
        let (first, last) = (self.first_enqueued_at.as_millis(), self.last_enqueued_at.as_millis());
        let place = sequence.saturating_sub(self.first_sequence).min(u64::from(self.count - 1));
        let passed = u128::from(last - first) * u128::from(place);
        let passed = passed.checked_div(u128::from(self.count - 1)).unwrap_or_default();
        Timestamp::from_millis(first + u64::try_from(passed).unwrap_or_default())
    }
}

impl From<Logged> for Extent {
    fn from(logged: Logged) -> Extent {
        Extent {
            first_sequence: logged.first_sequence,
            count: logged.count,
            first_enqueued_at: logged.enqueued_at,
            last_enqueued_at: logged.enqueued_at,
            body: logged.body,
            size_bytes: logged.size_bytes,
        }
    }
}

impl Extents {
    /// Creates an empty index whose next event gets this number.
    pub(crate) fn starting_at(next: u64) -> Result<Extents, ReplayError> {
        let what = "a sequence number is too large";
        (next <= SEQUENCE_MAX).then(|| Extents { next, ..Extents::default() }).ok_or(ReplayError { what })
    }

    pub(crate) fn len(&self) -> usize {
        self.cold.len() + self.log.len()
    }

    /// Returns the number of extents in cold storage. They are the first ones.
    pub(crate) fn cold_len(&self) -> usize {
        self.cold.len()
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the number of the first existing event, or that of the next one.
    pub(crate) fn begin(&self) -> u64 {
        self.get(0).map_or(self.next, |extent| extent.first_sequence)
    }

    pub(crate) fn get(&self, place: usize) -> Option<Extent> {
        match place.checked_sub(self.cold.len()) {
            None => self.cold.get(place).copied(),
            Some(place) => self.log.get(place).copied().map(Extent::from),
        }
    }

    pub(crate) fn iter_from(&self, place: usize) -> impl Iterator<Item = Extent> {
        let cold = self.cold.range(place.min(self.cold.len())..).copied();
        let in_log = place.saturating_sub(self.cold.len()).min(self.log.len());
        cold.chain(self.log.range(in_log..).copied().map(Extent::from))
    }

    /// Returns place and size of the extents in cold storage.
    pub(crate) fn cold(&self) -> impl Iterator<Item = (BodyRef, u32)> {
        self.cold.iter().filter(|extent| !extent.is_lost()).map(|extent| (extent.body, extent.size_bytes))
    }

    /// Returns the commit group of the oldest extent in the log.
    pub(crate) fn oldest_group(&self) -> Option<CommitGroupNumber> {
        self.log.front().and_then(|logged| logged.body.group())
    }

    /// Returns the index of the first extent with an event of this number or a later one.
    pub(crate) fn find(&self, sequence: u64) -> usize {
        match self.cold.back() {
            Some(last) if last.end() > sequence => {
                self.cold.partition_point(|extent| extent.end() <= sequence)
            }
            _ => {
                let ends = |logged: &Logged| logged.first_sequence + u64::from(logged.count) <= sequence;
                self.cold.len() + self.log.partition_point(ends)
            }
        }
    }

    /// Returns the index of the first extent with an event of this time or a later one.
    pub(crate) fn find_time(&self, at: Timestamp) -> usize {
        match self.cold.back() {
            Some(last) if last.last_enqueued_at >= at => {
                self.cold.partition_point(|extent| extent.last_enqueued_at < at)
            }
            _ => self.cold.len() + self.log.partition_point(|logged| logged.enqueued_at < at),
        }
    }

    pub(crate) fn last(&self) -> Option<Extent> {
        self.log.back().copied().map(Extent::from).or_else(|| self.cold.back().copied())
    }

    /// Adds an extent at the end: in the log, or in cold storage while none is in the log.
    pub(crate) fn push(&mut self, extent: Extent) -> Result<(), ReplayError> {
        let wrong = |what| Err(ReplayError { what });
        let last = self.last();
        if extent.first_sequence != self.next {
            return wrong("the events do not follow those before");
        }
        if extent.count == 0 || self.next > SEQUENCE_MAX - u64::from(extent.count) {
            return wrong("a number of events is impossible");
        }
        if extent.last_enqueued_at < extent.first_enqueued_at
            || last.is_some_and(|last| last.last_enqueued_at > extent.first_enqueued_at)
        {
            return wrong("events came before those before them");
        }
        match extent.body.group() {
            None if self.log.is_empty() => self.cold.push_back(extent),
            None => return wrong("a gathered extent comes after one in the log"),
            Some(group) => {
                if last.and_then(|last| last.body.group()).is_some_and(|last| last > group) {
                    return wrong("events lie before those before them");
                }
                if extent.first_enqueued_at != extent.last_enqueued_at {
                    return wrong("the events of one send came at different times");
                }
                self.log.push_back(Logged {
                    first_sequence: extent.first_sequence,
                    enqueued_at: extent.first_enqueued_at,
                    body: extent.body,
                    count: extent.count,
                    size_bytes: extent.size_bytes,
                });
            }
        }
        self.next = extent.end();
        self.size_bytes += u64::from(extent.size_bytes);
        Ok(())
    }

    pub(crate) fn pop_front(&mut self) -> Option<Extent> {
        let extent = match self.cold.pop_front() {
            Some(extent) => extent,
            None => self.log.pop_front()?.into(),
        };
        self.size_bytes -= u64::from(extent.size_bytes);
        self.shrink();
        Some(extent)
    }

    /// Releases the memory of a stream that was once long in the log.
    fn shrink(&mut self) {
        if self.log.capacity() > 1024 && self.log.len() < self.log.capacity() / 4 {
            self.log.shrink_to(self.log.capacity() / 2);
        }
    }

    /// Joins the first `count` extents in the log into one extent in cold storage. The first of them starts with this
    /// event.
    pub(crate) fn gather(
        &mut self,
        first_sequence: u64,
        count: usize,
        body: BodyRef,
        size_bytes: u32,
    ) -> Result<(), ReplayError> {
        let wrong = |what| ReplayError { what };
        let first = self.log.front().filter(|first| first.first_sequence == first_sequence);
        let first = *first.ok_or_else(|| wrong("gathered events are not the first in the log"))?;
        let last = count.checked_sub(1).and_then(|last| self.log.get(last));
        let last = Extent::from(*last.ok_or_else(|| wrong("a number of gathered extents is impossible"))?);
        if !body.is_standalone() {
            return Err(wrong("gathered events lie in the log"));
        }
        if self.log.range(..count).any(|logged| logged.size_bytes == 0) {
            return Err(wrong("lost events were gathered"));
        }
        let event_count = u32::try_from(last.end() - first_sequence);
        let event_count = event_count.map_err(|_| wrong("too many events were gathered"))?;
        let before: u64 = self.log.drain(..count).map(|logged| u64::from(logged.size_bytes)).sum();
        self.size_bytes = self.size_bytes - before + u64::from(size_bytes);
        self.cold.push_back(Extent {
            first_sequence,
            count: event_count,
            first_enqueued_at: first.enqueued_at,
            last_enqueued_at: last.last_enqueued_at,
            body,
            size_bytes,
        });
        self.shift_lost();
        self.shrink();
        Ok(())
    }

    /// Removes the body of the extent that starts with this event.
    pub(crate) fn lose(&mut self, first_sequence: u64) -> Result<(), ReplayError> {
        let wrong = |what| ReplayError { what };
        let place = self.find(first_sequence);
        let fits = |extent: &Extent| extent.first_sequence == first_sequence && !extent.is_lost();
        let extent = self.get(place).filter(fits).ok_or_else(|| wrong("lost events are none"))?;
        match place.checked_sub(self.cold.len()) {
            None => {
                if let Some(cold) = self.cold.get_mut(place) {
                    (cold.body, cold.size_bytes) = (BodyRef::NOWHERE, 0);
                }
            }
            Some(place) => {
                if let Some(logged) = self.log.get_mut(place) {
                    logged.size_bytes = 0;
                }
            }
        }
        self.size_bytes -= u64::from(extent.size_bytes);
        self.shift_lost();
        Ok(())
    }

    /// Moves lost extents at the front of the log to the extents in cold storage: they need no commit group, so they
    /// need not be gathered.
    fn shift_lost(&mut self) {
        while let Some(lost) = self.log.pop_front_if(|logged| logged.size_bytes == 0) {
            self.cold.push_back(Extent { body: BodyRef::NOWHERE, ..lost.into() });
        }
    }
}
