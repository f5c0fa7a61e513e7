//! Retention of events.

use peeklock_types::Timestamp;

use crate::Output;
use crate::agenda::Deadlines;
use crate::fact::Fact;
use crate::hub::Hubs;
use crate::stream::{Extent, Stream, StreamId};

impl Stream {
    pub(crate) fn next_entry(&self) -> Deadlines {
        Deadlines { oldest_group: self.extents.oldest_group(), due: self.due() }
    }

    /// Returns when the first extent may be retired.
    fn due(&self) -> Option<Timestamp> {
        let first = self.extents.get(0)?;
        if self.is_over(self.extents.size_bytes(), self.extents.len()) {
            return Some(Timestamp::ZERO);
        }
        self.spec.settings.retention.map(|retention| first.last_enqueued_at + retention)
    }

    /// Returns whether this many bytes exceed the limit. One extent may always stay, whatever its size.
    fn is_over(&self, size_bytes: u64, extent_count: usize) -> bool {
        extent_count > 1 && self.spec.settings.retention_bytes.is_some_and(|max| size_bytes > max)
    }

    /// Returns the extents that may be retired by `now`: the first ones.
    fn to_retire(&self, now: Timestamp) -> impl Iterator<Item = Extent> {
        let mut left = (self.extents.size_bytes(), self.extents.len());
        self.extents.iter_from(0).take_while(move |extent| {
            let is_old = |retention| extent.last_enqueued_at + retention <= now;
            let goes = self.is_over(left.0, left.1) || self.spec.settings.retention.is_some_and(is_old);
            left = (left.0 - u64::from(extent.size_bytes), left.1 - 1);
            goes
        })
    }
}

impl Hubs {
    /// Retires the extents that retention permits by `now`.
    pub fn retire(&mut self, now: Timestamp, out: &mut Output) {
        while let Some(&(due, stream)) = self.agenda.due.first()
            && due <= now
        {
            self.retire_stream(stream, now, out);
        }
    }

    fn retire_stream(&mut self, stream: StreamId, now: Timestamp, out: &mut Output) {
        let Some(known) = self.streams.get(&stream) else { return };
        let mut upto = known.extents.begin();
        for extent in known.to_retire(now) {
            upto = extent.end();
            if extent.body.is_standalone() && !extent.is_lost() {
                out.freed.push((extent.body, extent.size_bytes));
            }
        }
        self.record(Fact::Retired { stream, upto }, out);
        self.overtake_readers(stream, out);
    }
}
