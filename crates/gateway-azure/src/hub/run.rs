//! A run: the events that a shard has read for a reader in one step.

use bytes::Bytes;
use peeklock_amqp::{Encode, Fields, RawMap, Value};
use peeklock_broker::Events;
use peeklock_broker::hubs::block::{self, Damaged, EventPlace};
use peeklock_message::timestamp;
use peeklock_types::Timestamp;

pub(super) struct Run {
    extents: std::vec::IntoIter<Bytes>,
    /// The events of the current extent.
    events: block::Events,
    from: u64,
    next: u64,
    upto: u64,
    not_before: Option<Timestamp>,
    window_bytes: i64,
    returned_bytes: i64,
    /// The delivery annotations of every event, as an encoded map, or empty.
    annotations: Bytes,
}

impl Run {
    pub(super) fn new(events: Events, wants_metrics: bool) -> Self {
        let annotations = if wants_metrics { metrics(&events) } else { Bytes::new() };
        Run {
            extents: events.extents.into_iter(),
            events: block::events(Bytes::new(), 0),
            from: events.from,
            next: events.from,
            upto: events.upto,
            not_before: events.not_before,
            window_bytes: events.window_bytes,
            returned_bytes: 0,
            annotations,
        }
    }

    /// Returns the next event for the reader. Returns `Ok(None)` at the end of the run.
    pub(super) fn next_event(&mut self) -> Result<Option<EventPlace>, Damaged> {
        while self.next < self.upto {
            let Some(event) = self.events.next_place() else {
                // There are fewer events than the shard has announced: the stored data is damaged.
                let extent = self.extents.next().ok_or(Damaged { at: 0 })?;
                self.events = block::events(extent, self.next);
                continue;
            };
            let event = event?;
            if event.sequence != self.next {
                return Err(Damaged { at: 0 });
            }
            self.next += 1;
            if self.not_before.is_none_or(|time| event.enqueued_at >= time) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    pub(super) fn annotations(&self) -> RawMap<'_> {
        // This module has encoded it, so it is a map or empty.
        RawMap::parse(&self.annotations).unwrap_or(RawMap::EMPTY)
    }

    /// Returns the bytes of the event that was returned last.
    pub(super) fn bytes_of(&self, event: &EventPlace) -> &[u8] {
        self.events.bytes_of(event)
    }

    /// Returns the number of events that were returned or omitted so far.
    pub(super) fn passed_count(&self) -> u64 {
        self.next - self.from
    }

    /// Returns the bytes of the reader's window that have become free since the last call, in proportion to the events.
    pub(super) fn take_window(&mut self) -> i64 {
        let (passed, all) = (i128::from(self.passed_count()), i128::from((self.upto - self.from).max(1)));
        let free = i64::try_from(i128::from(self.window_bytes) * passed / all).unwrap_or(self.window_bytes);
        let returned = free - self.returned_bytes;
        self.returned_bytes = free;
        returned
    }

    pub(super) fn is_done(&self) -> bool {
        self.next >= self.upto
    }
}

/// Encodes the position of the newest event, for readers that have requested it with each event.
fn metrics(events: &Events) -> Bytes {
    let last = events.last;
    let fields = Fields::new()
        .with("last_enqueued_sequence_number", last.sequence)
        .with("last_enqueued_offset", last.sequence.to_string())
        .with("last_enqueued_time_utc", time_or_unset(last.at))
        .with("runtime_info_retrieval_time_utc", Value::Timestamp(timestamp(events.at)));
    fields.to_bytes()
}

/// Returns the time as a value. SDKs treat the first moment of the year 1 as "never".
pub(super) fn time_or_unset(at: Option<Timestamp>) -> Value {
    const UNSET_MS: i64 = -62_135_596_800_000;
    Value::Timestamp(at.map_or(UNSET_MS, timestamp))
}

#[cfg(test)]
mod tests {
    use peeklock_broker::hubs::LastEnqueued;
    use peeklock_broker::hubs::block::{Block, BlockHead};
    use peeklock_types::ReceiverId;

    use super::*;

    fn extent(first_sequence: u64, count: u32, at: u64) -> Bytes {
        let mut block = Block::with_capacity(0);
        for number in 0..count {
            let written: Result<(), ()> = block.add(|out| {
                out.extend_from_slice(&number.to_be_bytes());
                Ok(())
            });
            written.unwrap();
        }
        let head = BlockHead { first_sequence, count, enqueued_at: Timestamp::from_millis(at) };
        block.finish(&head).unwrap().freeze()
    }

    fn events(from: u64, upto: u64, not_before: Option<u64>, extents: Vec<Bytes>) -> Events {
        Events {
            receiver: ReceiverId(1),
            from,
            upto,
            not_before: not_before.map(Timestamp::from_millis),
            extents,
            window_bytes: 1000,
            last: LastEnqueued { sequence: 9, at: None },
            at: Timestamp::from_millis(77),
        }
    }

    fn numbers(run: &mut Run) -> Vec<u64> {
        std::iter::from_fn(|| run.next_event().unwrap()).map(|event| event.sequence).collect()
    }

    #[test]
    fn a_run_begins_and_ends_within_extents() {
        let extents = vec![extent(0, 4, 10), extent(4, 4, 20)];
        let mut run = Run::new(events(2, 7, None, extents.clone()), false);
        assert_eq!(numbers(&mut run), [2, 3, 4, 5, 6]);
        assert!(run.is_done());
        let mut late = Run::new(events(0, 8, Some(15), extents), false);
        assert_eq!(numbers(&mut late), [4, 5, 6, 7]);
        assert_eq!(late.passed_count(), 8, "omitted events count, too");
    }

    #[test]
    fn the_window_is_released_as_events_are_sent() {
        let mut run = Run::new(events(0, 4, None, vec![extent(0, 4, 10)]), false);
        let mut returned = Vec::new();
        while run.next_event().unwrap().is_some() {
            returned.push(run.take_window());
        }
        assert_eq!(returned, [250, 250, 250, 250]);
        assert_eq!(run.take_window(), 0);
    }

    #[test]
    fn missing_events_are_reported_as_damage() {
        assert!(Run::new(events(0, 8, None, vec![extent(0, 4, 10)]), false).next_event().is_ok());
        let mut short = Run::new(events(0, 8, None, vec![extent(0, 4, 10)]), false);
        assert!((0..8).any(|_| short.next_event().is_err()));
        let mut gap = Run::new(events(0, 8, None, vec![extent(4, 4, 10)]), false);
        assert!(gap.next_event().is_err());
    }

    #[test]
    fn metrics_have_the_types_that_sdks_require() {
        use peeklock_amqp::Decode;
        let run = Run::new(events(0, 1, None, Vec::new()), true);
        assert_eq!(run.annotations().entry_count(), 4);
        let found = Fields::decode_all(&run.annotations).unwrap();
        assert_eq!(found.get("last_enqueued_sequence_number"), Some(&Value::Long(9)));
        assert_eq!(found.get("last_enqueued_offset"), Some(&Value::from("9")));
        assert_eq!(found.get("last_enqueued_time_utc"), Some(&Value::Timestamp(-62_135_596_800_000)));
        assert_eq!(found.get("runtime_info_retrieval_time_utc"), Some(&Value::Timestamp(77)));
    }
}
