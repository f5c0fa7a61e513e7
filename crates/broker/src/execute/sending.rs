//! Sends: the bodies are added to the commit group, and the engine decides.

use std::ops::Range;

use bytes::Bytes;
use peeklock_engine::{Attributes, EntityId, Fact, NewMessage};
use peeklock_journal::{Log, Space, StoredBody};
use peeklock_types::{Timestamp, limits};

use crate::batch::{Batch, PeerId};
use crate::reply::Error;
use crate::request::sending::{
    CancelScheduled, GiveUpBodies, ScheduleMessages, SendOfRun, SendRun, SendingRequest,
};
use crate::request::{Answer, Answered};
use crate::shard::outgoing::Effect;
use crate::shard::{Failure, Shard};

/// The maximum size of a commit group after a send. Journals accept 2 MiB more.
const SEND_GROUP_BYTES_MAX: usize = 13 * 1024 * 1024;

/// The messages of one send; most sends have one.
pub(super) type New = smallvec::SmallVec<[NewMessage; 1]>;

impl<L: Log> Shard<L> {
    /// Executes the sends of a run in order. A rejected send does not affect the others.
    pub(super) fn execute_sends(
        &mut self,
        now: Timestamp,
        peer: PeerId,
        batch: &mut Batch,
        SendRun { entity, sends }: SendRun,
    ) -> Result<(), Failure> {
        let mut sent = Vec::with_capacity(sends.len());
        for SendOfRun { ticket, messages } in sends {
            let send = |shard: &mut Self, new| shard.state.engine.send(now, entity, new, &mut shard.output);
            let result = self.send(entity, batch, messages, send);
            sent.push(Answered { ticket, result });
            self.collect_many();
            if self.is_group_large() {
                self.collect();
                let answer = Answer::Sent(std::mem::take(&mut sent));
                self.held.push(Effect::Answer { peer, answer });
                self.deliver_and_append(now)?;
            }
        }
        self.collect();
        if !sent.is_empty() {
            self.held.push(Effect::Answer { peer, answer: Answer::Sent(sent) });
        }
        Ok(())
    }

    pub(super) fn execute_sending(
        &mut self,
        now: Timestamp,
        peer: PeerId,
        batch: &mut Batch,
        request: SendingRequest,
    ) {
        match request {
            SendingRequest::ScheduleMessages(asked) => {
                self.answer(peer, asked, |shard, ScheduleMessages { entity, messages }| {
                    let schedule = |shard: &mut Self, new| {
                        shard.state.engine.schedule(now, entity, new, &mut shard.output)
                    };
                    shard.send(entity, batch, messages, schedule)
                });
            }
            SendingRequest::CancelScheduled(asked) => {
                self.answer(peer, asked, |shard, CancelScheduled { entity, numbers }| {
                    let (engine, out) = (&mut shard.state.engine, &mut shard.output);
                    Ok(engine.cancel_scheduled(now, entity, &numbers, out)?)
                });
            }
            SendingRequest::GiveUpBodies(asked) => {
                self.answer(peer, asked, |shard, GiveUpBodies { messages }| {
                    shard.free_unused(batch, messages);
                    Ok(())
                });
            }
        }
    }

    fn send<T>(
        &mut self,
        entity: EntityId,
        batch: &mut Batch,
        messages: Range<usize>,
        send: impl FnOnce(&mut Self, New) -> Result<T, peeklock_engine::Error>,
    ) -> Result<T, Error> {
        let limit_bytes = limits::MESSAGE_SIZE_BYTES_MAX;
        let extra_bytes = messages.len() * limits::STORED_EXTRA_BYTES_MAX;
        let room = self.check_room(batch, messages.clone(), 2 * limit_bytes + extra_bytes, limit_bytes);
        let result = room.and_then(|()| {
            self.in_group(|shard| {
                let new = shard.put_messages(Some(entity), batch, messages.clone())?;
                shard.check_group(&new)?;
                Ok(send(shard, new)?)
            })
        });
        self.free_unused(batch, messages);
        result
    }

    /// Checks that the facts of a large batch fit into the group after the bodies. Only a batch of many small messages
    /// with many attributes fails.
    fn check_group(&self, new: &[NewMessage]) -> Result<(), Error> {
        const FACT_BYTES: usize = 32;
        if new.len() <= limits::BATCH_COUNT_MAX {
            return Ok(());
        }
        let attributes = new.iter().filter_map(|message| message.attributes.as_ref());
        let facts_bytes: usize = attributes.map(|attributes| attributes.size_bytes()).sum();
        let size_bytes = self.group.size_bytes() + new.len() * FACT_BYTES + facts_bytes;
        let limit_bytes = SEND_GROUP_BYTES_MAX;
        if size_bytes > limit_bytes {
            return Err(Error::TooLarge { size_bytes, limit_bytes });
        }
        Ok(())
    }

    /// Releases stored bodies that no message uses, because the message was rejected or is a duplicate.
    pub(super) fn free_unused(&mut self, batch: &Batch, messages: Range<usize>) {
        for body in messages.filter_map(|message| batch.stored(message)) {
            let has_taken = |fact: &Fact| match fact {
                Fact::Enqueued { body: place, .. }
                | Fact::FannedOut { body: place, .. }
                | Fact::SentOn { body: place, .. } => *place == body.place,
                _ => false,
            };
            if !self.output.facts.iter().any(has_taken) {
                self.held.free([body]);
            }
        }
    }

    /// Returns an error if the log does not accept new messages.
    pub(super) fn check_space(&self) -> Result<(), Error> {
        match self.log.space() {
            Space::Enough => Ok(()),
            Space::Behind => Err(Error::Behind),
            Space::RejectSends | Space::OnlySettle => Err(Error::DiskFull),
        }
    }

    pub(super) fn check_room(
        &self,
        batch: &Batch,
        messages: Range<usize>,
        max: usize,
        limit_bytes: usize,
    ) -> Result<(), Error> {
        self.check_space()?;
        let size_bytes = batch.size_bytes(messages);
        if size_bytes > max {
            return Err(Error::TooLarge { size_bytes, limit_bytes });
        }
        Ok(())
    }

    /// Runs a step that adds bodies to the group. The bodies are removed if the step fails or no message uses them: a
    /// group without facts is not ended, and bodies of duplicates or of messages that no subscription accepts would
    /// accumulate in it.
    pub(super) fn in_group<T>(
        &mut self,
        todo: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (mark, fact_count) = (self.group.mark(), self.output.facts.len());
        let result = todo(self);
        if result.is_err() || self.output.facts.len() == fact_count {
            self.group.truncate(mark);
        }
        result
    }

    /// Adds the bodies of messages to the group, and views of the messages if `target` needs them. The target is `None`
    /// if it is in another shard, which adds the views itself.
    pub(super) fn put_messages(
        &mut self,
        target: Option<EntityId>,
        batch: &mut Batch,
        messages: Range<usize>,
    ) -> Result<New, Error> {
        let too_large =
            |size_bytes| Error::TooLarge { size_bytes, limit_bytes: limits::MESSAGE_SIZE_BYTES_MAX };
        let needs_view = target.is_some_and(|target| self.state.engine.needs_view(target));
        let mut new = New::new();
        for number in messages {
            let Some(range) = batch.range(number) else { continue };
            let mut attributes = batch.take_attributes(number);
            if needs_view {
                self.add_view(attributes.get_or_insert_default(), &range);
            }
            let StoredBody { place: body, size_bytes } = match batch.stored(number) {
                Some(stored) => stored,
                None => StoredBody {
                    place: self.group.put_batch_body(&range).map_err(|_| too_large(range.len()))?,
                    size_bytes: u32::try_from(range.len()).map_err(|_| too_large(range.len()))?,
                },
            };
            new.push(NewMessage { body, size_bytes, attributes });
        }
        Ok(new)
    }

    /// Adds the view that topics and queues with an order need. Most messages already have one, except those from
    /// another queue or from a sender that attached before the order was set. The view of a large message, whose bytes
    /// are not in memory, was made earlier.
    fn add_view(&self, attributes: &mut Attributes, range: &Range<usize>) {
        if attributes.view.is_none() {
            let view = (self.describe)(self.group.batch_body(range), &attributes.patch);
            attributes.view = Some(view.unwrap_or(Bytes::from_static(peeklock_filter::UNREADABLE)));
        }
    }
}
