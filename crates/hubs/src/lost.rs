//! Handles events whose extent is damaged: the disk returns other bytes than were written.
//!
//! The numbers of lost events stay used and their extent stays in the list, without a body, so that a number never
//! means another event. Lost events are gone like retired events, and a reader that reaches them is handled in the same
//! way, see [`peeklock_types::ExpiredPosition`].

use std::ops::Range;

use peeklock_types::{BodyRef, ExpiredPosition, ReceiverId};

use crate::Output;
use crate::extents::Extents;
use crate::fact::Fact;
use crate::hub::Hubs;
use crate::reader::{ReaderEnd, Run};
use crate::stream::{Extent, StreamId};

impl Extent {
    /// Returns whether the extent is lost. Every other extent contains at least the header of a block.
    pub(crate) fn is_lost(&self) -> bool {
        self.size_bytes == 0
    }
}

impl Extents {
    /// Returns the first event that is not lost, from this event on.
    pub(crate) fn skip_lost(&self, sequence: u64) -> u64 {
        let extents = self.iter_from(self.find(sequence));
        extents.take_while(Extent::is_lost).last().map_or(sequence, |extent| extent.end())
    }
}

impl Hubs {
    /// Journals that the extent with this event, at `body`, cannot be read any more. Returns the lost events; `None`,
    /// with no change, if they are gone or have moved.
    pub fn lose_extent(
        &mut self,
        stream: StreamId,
        sequence: u64,
        body: BodyRef,
        out: &mut Output,
    ) -> Option<Range<u64>> {
        let extents = &self.streams.get(&stream)?.extents;
        let extent = extents.get(extents.find(sequence))?;
        let is_it = extent.body == body && extent.first_sequence <= sequence && !extent.is_lost();
        if !is_it {
            return None;
        }
        if body.is_standalone() {
            out.freed.push((body, extent.size_bytes));
        }
        self.record(Fact::Lost { stream, first_sequence: extent.first_sequence }, out);
        Some(extent.first_sequence..extent.end())
    }

    /// Handles a damaged extent in the run. The reader returns to the run's start and gets one extent at a time, until
    /// the damaged one is found. Returns whether it is found: the run had one extent and was read in order to find it.
    pub fn run_damaged(&mut self, run: &Run) -> bool {
        let mut is_clear = false;
        if let Some(reader) = self.readers.get_mut(run.reader) {
            is_clear = run.bodies.len() == 1 && run.from < reader.careful_until;
            reader.careful_until = reader.careful_until.max(run.upto);
        }
        self.run_failed(run);
        is_clear
    }

    /// Ends the reader or moves it on, if its next events are lost.
    pub(crate) fn pass_lost(&mut self, id: ReceiverId, out: &mut Output) {
        let Some(reader) = self.readers.get_mut(id) else { return };
        let Some(stream) = self.streams.get(&reader.stream) else { return };
        let (from, upto) = (reader.next, stream.extents.skip_lost(reader.next));
        if from == upto {
            return;
        }
        match stream.spec.settings.expired_position {
            ExpiredPosition::Earliest => reader.next = upto,
            ExpiredPosition::Refuse => {
                self.remove_reader(id);
                out.ended.push((id, ReaderEnd::Lost { from, upto }));
            }
        }
    }
}
