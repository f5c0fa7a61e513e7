//! Events: appends, readers, and the runs of events for readers.

use peeklock_hubs::block::BlockHead;
use peeklock_hubs::{Prepared, ReaderEnd, Run};
use peeklock_journal::{Log, ReadError, StoredBody};
use peeklock_types::{ReceiverId, Timestamp, limits};

use crate::batch::PeerId;
use crate::hub::Events;
use crate::reply::{Error, ReaderReply, Reply};
use crate::request::events::{Append, AttachReader, EventRequest};
use crate::request::receiving::Drain;
use crate::shard::outgoing::Effect;
use crate::shard::reading::{Read, place_after};
use crate::shard::{Failure, Shard};

/// The approximate maximum size of one run for a reader.
const RUN_BYTES_MAX: u32 = 1024 * 1024;

impl<L: Log> Shard<L> {
    pub(super) fn execute_event(&mut self, now: Timestamp, peer: PeerId, request: EventRequest) {
        match request {
            EventRequest::Append(asked) => {
                self.answer(peer, asked, |shard, request| shard.append_events(now, request))
            }
            EventRequest::AttachReader(asked) => self.answer(peer, asked, |shard, request| {
                let AttachReader { partition, receiver, spec, fence } = request;
                let hubs = &mut shard.state.hubs;
                let stream = hubs.find_stream(partition.hub, partition.number)?;
                hubs.attach_reader(stream, receiver, *spec, &mut shard.hub_output)?;
                shard.receivers.attach_reader(peer, receiver, fence);
                Ok(())
            }),
        }
    }

    fn append_events(&mut self, now: Timestamp, request: Append) -> Result<(), Error> {
        let Append { partition, block, producer } = request;
        self.check_space()?;
        let stream = self.state.hubs.find_stream(partition.hub, partition.number)?;
        let size_bytes = block.size_bytes();
        let too_large = || Error::TooLarge { size_bytes, limit_bytes: limits::PUBLICATION_SIZE_BYTES_MAX };
        if size_bytes > 2 * limits::PUBLICATION_SIZE_BYTES_MAX {
            return Err(too_large());
        }
        let head: BlockHead = match self.state.hubs.prepare(now, stream, block.count(), producer)? {
            Prepared::Store(head) => head,
            Prepared::Duplicate => return Ok(()),
        };
        let bytes = block.finish(&head).ok_or_else(too_large)?;
        let body = self.group.put_part(bytes).map_err(|_| too_large())?;
        let size_bytes = u32::try_from(size_bytes).map_err(|_| too_large())?;
        self.state.hubs.append(stream, head, body, size_bytes, producer, &mut self.hub_output);
        Ok(())
    }

    /// Applies a reader's credit. Returns `false` if the receiver is not a reader.
    pub(crate) fn credit_reader(&mut self, receiver: ReceiverId, limit: u64, drain: Drain) -> bool {
        let hubs = &mut self.state.hubs;
        if !hubs.has_reader(receiver) {
            return false;
        }
        hubs.set_reader_limit(receiver, limit);
        match drain {
            Drain::Keep => {}
            Drain::Start => hubs.drain_reader(receiver, true),
            Drain::Cancel => hubs.drain_reader(receiver, false),
        }
        true
    }

    /// Collects the output of the hubs.
    pub(crate) fn collect_hubs(&mut self) {
        for fact in self.hub_output.facts.drain(..) {
            self.group.put_hub_fact(&fact);
        }
        for (receiver, reason) in self.hub_output.ended.drain(..) {
            // The fence is closed at once: events in flight to the old reader must not be visible beside those of a new
            // one.
            self.receivers.close_fence(receiver);
            self.receivers.leave(receiver);
            self.held.push(Effect::ReaderEnded { receiver, reason });
        }
        let freed = self.hub_output.freed.drain(..);
        self.held.free(freed.map(|(place, size_bytes)| StoredBody { place, size_bytes }));
    }

    /// Starts a read for every reader that can receive events. The read of events that are not durable yet waits until
    /// they are.
    pub(crate) fn serve_readers(&mut self) {
        while self.reading.has_room()
            && let Some(run) = self.state.hubs.next_run(RUN_BYTES_MAX, &mut self.hub_output)
        {
            if run.newest_group <= self.appending.durable() {
                self.start_run(run);
            } else {
                self.held.push(Effect::Run(run));
            }
        }
        self.collect_hubs();
        self.held.extend(self.state.hubs.take_drained().into_iter().map(Effect::ReaderDrained));
    }

    pub(crate) fn start_run(&mut self, run: Run) {
        if let Some(read) = self.reading.start(run) {
            self.hand_out(read);
        }
    }

    fn hand_out(&mut self, Read { mut run, result, next }: Read) {
        let hubs = &mut self.state.hubs;
        if !hubs.has_reader(run.reader) {
            return;
        }
        let extents = match result {
            Ok(extents) => extents,
            // The extents were moved during the read. The reader's next run has their new place.
            Err(ReadError::Gone(_)) if !hubs.is_current(&run) => return hubs.run_failed(&run),
            Err(error @ ReadError::Corrupt { .. }) => return self.on_damaged_run(&run, &error.to_string()),
            Err(error) => {
                tracing::error!(
                    shard = self.id.0,
                    "events {} to {} cannot be read: {error}",
                    run.from,
                    run.upto
                );
                hubs.detach_reader(run.reader);
                self.hub_output.ended.push((run.reader, ReaderEnd::Unreadable { from: run.from }));
                return;
            }
        };
        let place = match (next, run.bodies.first().copied()) {
            (Some(next), Some((body, _))) => {
                hubs.shorten_run(&mut run, next.sequence);
                Some((body, next))
            }
            _ => place_after(&run, &extents),
        };
        if let Some((body, place)) = place {
            hubs.keep_place(run.reader, body, place);
        }
        hubs.run_done(run.reader);
        let Run { reader: receiver, from, upto, not_before, window_bytes, last, .. } = run;
        let events =
            Events { receiver, from, upto, not_before, extents, window_bytes, last, at: self.clock.now() };
        let events = ReaderReply::Events(Box::new(events));
        self.outgoing.push(PeerId::of(receiver), Reply::Reader(events));
    }

    /// Handles the end of a read, after which the reader can get the next run.
    pub(crate) fn on_read(&mut self, read: Read) -> Result<(), Failure> {
        if let Err(ReadError::Poisoned(poisoned)) = read.result {
            return Err(poisoned.into());
        }
        self.hand_out(read);
        self.serve_readers();
        // Usually there are no facts: a read decides a fact only if events are lost.
        if self.group.is_empty() {
            self.hold();
            return Ok(());
        }
        self.append_group()
    }

    /// Removes events that are older than the retention time of their hub.
    pub(crate) fn retire(&mut self, now: Timestamp) -> Result<(), Failure> {
        self.state.hubs.retire(now, &mut self.hub_output);
        self.collect_hubs();
        if !self.group.is_empty() || self.held.has_new() {
            self.append_group()?;
        }
        Ok(())
    }
}
