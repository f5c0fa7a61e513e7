//! Sends: the bodies are added to the commit group, and the engine decides.

use std::ops::Range;

use bytes::Bytes;
use peeklock_engine::{EntityId, Fact, NewMessage};
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
pub(super) type New = smallvec::SmallVec<[NewMessage; 8]>;

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
            self.collect();
            sent.push(Answered { ticket, result });
            if self.is_group_large() {
                let answer = Answer::Sent(std::mem::take(&mut sent));
                self.held.push(Effect::Answer { peer, answer });
                self.deliver_and_append(now)?;
            }
        }
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
                let mut new = shard.put_bodies(batch, messages.clone())?;
                shard.add_views(Some(entity), batch, messages.clone(), &mut new);
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

    /// Adds the views that topics and queues with an order need. Most messages already have one, except those from
    /// another queue or from a sender that attached before the order was set. The view of a large message, whose bytes
    /// are not in memory, was made earlier.
    pub(super) fn add_views(
        &self,
        target: Option<EntityId>,
        batch: &Batch,
        messages: Range<usize>,
        new: &mut [NewMessage],
    ) {
        if !target.is_some_and(|target| self.state.engine.needs_view(target)) {
            return;
        }
        for (message, body) in new.iter_mut().zip(batch.bodies(messages)) {
            let attributes = message.attributes.get_or_insert_default();
            if attributes.view.is_none() {
                let view = (self.describe)(body, &attributes.patch);
                attributes.view = Some(view.unwrap_or(Bytes::from_static(peeklock_filter::UNREADABLE)));
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
        let size_bytes = batch.bodies(messages).map(<[u8]>::len).sum();
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

    pub(super) fn put_bodies(&mut self, batch: &mut Batch, messages: Range<usize>) -> Result<New, Error> {
        let too_large =
            |size_bytes| Error::TooLarge { size_bytes, limit_bytes: limits::MESSAGE_SIZE_BYTES_MAX };
        let mut new = New::new();
        for (bytes, number) in batch.bodies(messages.clone()).zip(messages.clone()) {
            if let Some(StoredBody { place: body, size_bytes }) = batch.stored(number) {
                new.push(NewMessage { body, size_bytes, attributes: None });
                continue;
            }
            let body = self.group.put_body(bytes).map_err(|_| too_large(bytes.len()))?;
            let size_bytes = u32::try_from(bytes.len()).map_err(|_| too_large(bytes.len()))?;
            new.push(NewMessage { body, size_bytes, attributes: None });
        }
        for (message, number) in new.iter_mut().zip(messages) {
            message.attributes = batch.take_attributes(number);
        }
        Ok(new)
    }
}
