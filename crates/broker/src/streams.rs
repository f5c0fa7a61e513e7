//! What a shard does for hubs: requests, facts, and events for readers.

use peeklock_hubs::block::{Block, BlockHead};
use peeklock_hubs::{Error as HubError, Hubs, Prepared, Producer, ReaderEnd, Run};
use peeklock_journal::{Log, ReadError, StoredBody};
use peeklock_types::{ReceiverId, Timestamp, limits};

use crate::batch::PeerId;
use crate::execute::Answered;
use crate::hub::{Events, HubAnswer, HubRequest, Partition, PartitionInfo};
use crate::outgoing::Effect;
use crate::reading::{Read, place_after};
use crate::reply::{Answer, Error, Reply};
use crate::request::{Drain, Request};
use crate::shard::{Failure, Shard};

/// What one run hands to a reader, about.
const RUN_BYTES_MAX: u32 = 1024 * 1024;

impl<L: Log> Shard<L> {
    pub(crate) fn execute_stream(&mut self, now: Timestamp, peer: PeerId, request: Request) -> Answered {
        Some(match request {
            Request::Append { ticket, partition, block, producer } => {
                (ticket, self.append_events(now, partition, block, producer))
            }
            Request::AttachReader { ticket, partition, receiver, spec, fence } => {
                let hubs = &mut self.state.hubs;
                let attached = hubs
                    .find_stream(partition.hub, partition.number)
                    .and_then(|stream| hubs.attach_reader(stream, receiver, *spec, &mut self.hub_output));
                if attached.is_ok() {
                    self.receivers.entry(peer).or_default().push(receiver);
                    self.fences.insert(receiver, fence);
                }
                (ticket, attached.map(|()| Answer::Done).map_err(Error::from))
            }
            Request::Hub { ticket, request } => {
                (ticket, self.execute_hub(now, *request).map(|answer| Answer::Hub(Box::new(answer))))
            }
            _ => return None,
        })
    }

    fn append_events(
        &mut self,
        now: Timestamp,
        partition: Partition,
        block: Block,
        producer: Option<Producer>,
    ) -> Result<Answer, Error> {
        self.check_space()?;
        let stream = self.state.hubs.find_stream(partition.hub, partition.number)?;
        let size_bytes = block.size_bytes();
        let too_large = || Error::TooLarge { size_bytes, limit_bytes: limits::PUBLICATION_SIZE_BYTES_MAX };
        if size_bytes > 2 * limits::PUBLICATION_SIZE_BYTES_MAX {
            return Err(too_large());
        }
        let head: BlockHead = match self.state.hubs.prepare(now, stream, block.count(), producer)? {
            Prepared::Store(head) => head,
            Prepared::Duplicate => return Ok(Answer::Done),
        };
        let bytes = block.finish(&head).ok_or_else(too_large)?;
        let body = self.group.put_part(bytes).map_err(|_| too_large())?;
        let size_bytes = u32::try_from(size_bytes).map_err(|_| too_large())?;
        self.state.hubs.append(stream, head, body, size_bytes, producer, &mut self.hub_output);
        Ok(Answer::Done)
    }

    fn execute_hub(&mut self, now: Timestamp, request: HubRequest) -> Result<HubAnswer, Error> {
        let (hubs, out) = (&mut self.state.hubs, &mut self.hub_output);
        Ok(match request {
            HubRequest::Create { name, id, settings, groups } => {
                if self.state.engine.find(&name).is_some() {
                    return Err(Error::NameTaken { name, is_hub: false });
                }
                HubAnswer::Hub(hubs.create_hub(now, name, id, settings, &groups, out)?)
            }
            HubRequest::Update { name, settings, expected } => {
                HubAnswer::Hub(hubs.update_hub(now, &name, settings, expected, out)?)
            }
            HubRequest::Delete { name, expected } => HubAnswer::Hub(hubs.delete_hub(&name, expected, out)?),
            HubRequest::Show { name } => HubAnswer::Hub(hubs.hub(&name)?),
            HubRequest::List { after, top } => {
                HubAnswer::Hubs(hubs.hubs_after(after.as_ref()).take(top).collect())
            }
            HubRequest::CreateGroup { name, group, user_metadata } => {
                HubAnswer::Hub(hubs.create_group(now, &name, group, user_metadata, out)?)
            }
            HubRequest::UpdateGroup { name, group, user_metadata } => {
                HubAnswer::Hub(hubs.update_group(now, &name, group, user_metadata, out)?)
            }
            HubRequest::DeleteGroup { name, group } => HubAnswer::Hub(hubs.delete_group(&name, &group, out)?),
            HubRequest::Claim { name, group, partition, owner, expected } => {
                HubAnswer::Ownership(hubs.claim(now, &name, &group, partition, &owner, expected, out)?)
            }
            HubRequest::Ownerships { name, group } => HubAnswer::Ownerships(hubs.ownerships(&name, &group)?),
            HubRequest::Checkpoint { name, group, partition, sequence, by } => {
                HubAnswer::Checkpoint(hubs.checkpoint(now, &name, &group, partition, sequence, &by, out)?)
            }
            HubRequest::Checkpoints { name, group } => {
                HubAnswer::Checkpoints(hubs.checkpoints(&name, &group)?)
            }
            of_partition => self.execute_partition(of_partition)?,
        })
    }

    fn execute_partition(&mut self, request: HubRequest) -> Result<HubAnswer, HubError> {
        let (hubs, out) = (&mut self.state.hubs, &mut self.hub_output);
        Ok(match request {
            HubRequest::OpenStreams { specs } => {
                for spec in specs {
                    hubs.open_stream(spec, out);
                }
                HubAnswer::Done
            }
            HubRequest::DeleteStreams { partitions } => {
                for partition in partitions {
                    hubs.delete_stream(partition.hub, partition.number, out);
                }
                HubAnswer::Done
            }
            HubRequest::ShowStream { partition, after } => HubAnswer::Stream(show(hubs, partition, after)?),
            HubRequest::ShowStreams { partitions } => {
                let shown = partitions.into_iter().map(|(partition, after)| show(hubs, partition, after));
                HubAnswer::PartitionInfos(shown.collect::<Result<_, _>>()?)
            }
            HubRequest::ListStreams => {
                let found = hubs.streams().map(|(_, spec)| {
                    (Partition { hub: spec.hub, number: spec.partition }, spec.name.clone())
                });
                HubAnswer::Streams(found.collect())
            }
            HubRequest::ShowProducer { partition, id } => {
                let stream = hubs.find_stream(partition.hub, partition.number)?;
                HubAnswer::Producer(hubs.producer(stream, id))
            }
            HubRequest::EndGroup { hub, group, revision } => {
                hubs.end_group(hub, &group, revision, out);
                HubAnswer::Done
            }
            _ => HubAnswer::Done,
        })
    }

    /// What a reader says about its credit. `false`: it is no reader.
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

    /// Takes over what the hubs have put into their output.
    pub(crate) fn collect_hubs(&mut self) {
        for fact in self.hub_output.facts.drain(..) {
            self.group.put_hub_fact(&fact);
        }
        for (receiver, reason) in self.hub_output.ended.drain(..) {
            // At once: what is on its way to the old reader must not be seen beside what a new one gets.
            if let Some(fence) = self.fences.remove(&receiver) {
                fence.close();
            }
            if let Some(receivers) = self.receivers.get_mut(&PeerId::of(receiver)) {
                receivers.retain(|other| *other != receiver);
            }
            self.effects.push(Effect::ReaderEnded { receiver, reason });
        }
        let freed = self.hub_output.freed.drain(..);
        self.freed.extend(freed.map(|(place, size_bytes)| StoredBody { place, size_bytes }));
    }

    /// Starts to read for every reader that can have events. What is not durable yet waits until it is.
    pub(crate) fn serve_readers(&mut self) {
        while self.reading.has_room()
            && let Some(run) = self.state.hubs.next_run(RUN_BYTES_MAX, &mut self.hub_output)
        {
            if run.newest_group <= self.seen {
                self.start_run(run);
            } else {
                self.effects.push(Effect::Run(run));
            }
        }
        self.collect_hubs();
        self.effects.extend(self.state.hubs.take_drained().into_iter().map(Effect::Drained));
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
            // They have moved while they were read; the reader's next run says where to.
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
        self.outgoing.push(PeerId::of(receiver), Reply::Events(Box::new(events)));
    }

    /// A read has ended: its reader can have the next run.
    pub(crate) fn on_read(&mut self, read: Read) -> Result<(), Failure> {
        if let Err(ReadError::Poisoned(poisoned)) = read.result {
            return Err(poisoned.into());
        }
        self.hand_out(read);
        self.serve_readers();
        // Mostly there are no facts: only what was found to be lost is one.
        if self.group.is_empty() {
            self.hold();
            return Ok(());
        }
        self.append_group()
    }

    /// Drops events that are older than their hub wants to keep them.
    pub(crate) fn retire(&mut self, now: Timestamp) -> Result<(), Failure> {
        self.state.hubs.retire(now, &mut self.hub_output);
        self.collect_hubs();
        if !self.group.is_empty() || !self.effects.is_empty() {
            self.append_group()?;
        }
        Ok(())
    }
}

fn show(hubs: &Hubs, partition: Partition, after: Option<u64>) -> Result<PartitionInfo, HubError> {
    let Partition { hub, number } = partition;
    let stream = hubs.find_stream(hub, number)?;
    let view = hubs.stream(stream).ok_or(HubError::NoSuchStream { hub, partition: number })?;
    let next = after.map(|after| after.saturating_add(1));
    let enqueued_after = next.and_then(|next| hubs.enqueued_at(stream, next));
    Ok(PartitionInfo { view, enqueued_after, traffic: hubs.traffic(stream) })
}
