//! What each request asks of the engine.

use std::ops::Range;

use bytes::Bytes;
use peeklock_engine::{
    Attached, EntityId, Fact, NewMessage, NewState, ReceiverId, SessionWish, Settlement, Transaction,
};
use peeklock_journal::{Log, Space, StoredBody};
use peeklock_types::{EntityName, LockToken, SequenceNumber, ShardId, SubQueue, Timestamp, limits};

use crate::batch::{Batch, PeerId, Ticket};
use crate::outgoing::Effect;
use crate::reply::{Answer, Error, TransferOutcome};
use crate::request::{
    Brought, Drain, Request, SessionAsk, SessionHold, TransactionSend, TransactionSettle, TransactionState,
};
use crate::shard::{Shard, nonce};

/// Limits the size of a group after a send. Journals accept 2 MiB more.
const SEND_GROUP_BYTES_MAX: usize = 13 * 1024 * 1024;

/// Messages of one send; most are single.
pub(crate) type New = smallvec::SmallVec<[NewMessage; 8]>;

/// Who waits for an answer, and the answer; or nobody, or not now.
pub(crate) type Answered = Option<(Ticket, Result<Answer, Error>)>;

impl<L: Log> Shard<L> {
    pub(crate) fn execute(&mut self, now: Timestamp, peer: PeerId, batch: &mut Batch, request: Request) {
        let answered = match request {
            Request::Send { .. }
            | Request::Schedule { .. }
            | Request::CancelScheduled { .. }
            | Request::CheckScheduled { .. }
            | Request::Reserve { .. }
            | Request::GiveUp { .. }
            | Request::Commit { .. }
            | Request::Bring { .. } => self.execute_send(now, batch, request),
            Request::Settle { .. }
            | Request::SettleAll { .. }
            | Request::CheckLock { .. }
            | Request::Renew { .. }
            | Request::Release { .. }
            | Request::Purge { .. }
            | Request::PurgeSession { .. }
            | Request::Transferred { .. } => self.execute_settle(now, request),
            Request::Attach { .. }
            | Request::Detach { .. }
            | Request::Credit { .. }
            | Request::Take { .. }
            | Request::Watch { .. }
            | Request::Window { .. }
            | Request::Gone => self.execute_receiver(now, peer, request),
            Request::RenewSession { .. }
            | Request::SessionState { .. }
            | Request::SetSessionState { .. }
            | Request::CheckState { .. }
            | Request::ListSessions { .. } => self.execute_session(now, request),
            Request::Peek { .. } | Request::ReceiveDeferred { .. } => self.execute_fetch(now, peer, request),
            Request::Find { .. }
            | Request::Create { .. }
            | Request::Update { .. }
            | Request::Delete { .. }
            | Request::Show { .. }
            | Request::List { .. }
            | Request::Names { .. } => self.execute_catalog(now, request),
            Request::AddRule { .. }
            | Request::ReplaceRule { .. }
            | Request::RemoveRule { .. }
            | Request::ShowRule { .. }
            | Request::ListRules { .. }
            | Request::Explain { .. } => self.execute_rules(now, request),
            Request::Append { .. } | Request::AttachReader { .. } | Request::Hub { .. } => {
                self.execute_stream(now, peer, request)
            }
            Request::Blob { ticket, request } => Some((ticket, self.execute_blob(now, *request))),
            Request::Receipt { ticket, request } => self.execute_receipt(now, peer, batch, ticket, *request),
            Request::ShowOrder { .. } | Request::ExplainMessage { .. } | Request::Measure { .. } => {
                self.execute_measure(now, request)
            }
        };
        self.collect();
        self.collect_hubs();
        if let Some((ticket, result)) = answered {
            self.effects.push(Effect::Answer { peer, ticket, result });
        }
    }

    fn execute_send(&mut self, now: Timestamp, batch: &mut Batch, request: Request) -> Answered {
        Some(match request {
            Request::Send { ticket, entity, messages } => {
                let send =
                    |shard: &mut Self, new| shard.state.engine.send(now, entity, new, &mut shard.output);
                (ticket, self.send(entity, batch, messages, send).map(|()| Answer::Done))
            }
            Request::Schedule { ticket, entity, messages } => {
                let send =
                    |shard: &mut Self, new| shard.state.engine.schedule(now, entity, new, &mut shard.output);
                (ticket, self.send(entity, batch, messages, send).map(Answer::Scheduled))
            }
            Request::CancelScheduled { ticket, entity, numbers } => {
                let result = self.state.engine.cancel_scheduled(now, entity, &numbers, &mut self.output);
                (ticket, done(result))
            }
            Request::CheckScheduled { ticket, entity, numbers } => {
                (ticket, done(self.state.engine.check_scheduled(now, entity, &numbers)))
            }
            Request::GiveUp { ticket, messages } => {
                self.free_unused(batch, messages);
                (ticket, Ok(Answer::Done))
            }
            Request::Reserve { ticket, entity, count } => {
                let result = self.state.engine.reserve_numbers(now, entity, count, &mut self.output);
                (ticket, result.map(Answer::Scheduled).map_err(Error::from))
            }
            Request::Commit { ticket, entity, settles, cancels, states, sends } => {
                let transaction = new_transaction(settles, cancels, states);
                let result = self.commit(now, entity, batch, transaction, &sends);
                sends.into_iter().for_each(|send| self.free_unused(batch, send.messages));
                (ticket, result.map(|()| Answer::Done))
            }
            Request::Bring { ticket, source, messages } => {
                (ticket, self.take_in(now, source, batch, messages).map(Answer::Brought))
            }
            _ => return None,
        })
    }

    fn execute_settle(&mut self, now: Timestamp, request: Request) -> Answered {
        let (engine, out) = (&mut self.state.engine, &mut self.output);
        Some(match request {
            Request::Settle { ticket, entity, sub_queue, token, settlement } => {
                (ticket, done(engine.settle(now, entity, sub_queue, token, settlement, out)))
            }
            Request::SettleAll { ticket, entity, sub_queue, tokens, settlement, hold } => {
                let hold = hold.as_ref().map(|hold| (&hold.session, hold.receiver));
                let result = engine.settle_all(now, entity, sub_queue, &tokens, &settlement, hold, out);
                (ticket, done(result))
            }
            Request::CheckLock { ticket, entity, sub_queue, token } => {
                (ticket, done(engine.check_lock(now, entity, sub_queue, token)))
            }
            Request::Renew { ticket, entity, sub_queue, tokens } => {
                let result = engine.renew(now, entity, sub_queue, &tokens, out);
                (ticket, result.map(Answer::Renewed).map_err(Error::from))
            }
            Request::Purge { ticket, entity, sub_queue, before, count_max } => {
                let (before, count_max) = (before.unwrap_or(Timestamp::MAX), count_max.unwrap_or(u64::MAX));
                let result = engine.purge(now, entity, sub_queue, before, count_max, out);
                (ticket, result.map(Answer::Count).map_err(Error::from))
            }
            Request::PurgeSession { ticket, entity, hold, before, count_max } => {
                let (SessionHold { session, receiver }, before) = (hold, before.unwrap_or(Timestamp::MAX));
                let result = engine.purge_session(now, entity, &session, receiver, before, count_max, out);
                (ticket, result.map(Answer::Count).map_err(Error::from))
            }
            Request::Release { entity, sub_queue, token } => {
                // A lock that has run out meanwhile has already given the message back.
                let _ = engine.settle(now, entity, sub_queue, token, Settlement::Release, out);
                return None;
            }
            Request::Transferred { target, outcome } => {
                engine.transferred(target, outcome.upto, out);
                if let Some((number, reason)) = outcome.refused {
                    engine.transfer_refused(target, number, reason, out);
                }
                self.bringing.remove(&target);
                return None;
            }
            _ => return None,
        })
    }

    fn execute_receiver(&mut self, now: Timestamp, peer: PeerId, request: Request) -> Answered {
        match request {
            Request::Attach { ticket, entity, sub_queue, receiver, mode, session } => {
                let wish = wish(now, session);
                let result = self.state.engine.attach_receiver(now, entity, sub_queue, receiver, mode, wish);
                self.attached(peer, ticket, receiver, result)
            }
            Request::Detach { ticket, receiver } => {
                if let Some(receivers) = self.receivers.get_mut(&peer) {
                    receivers.retain(|r| *r != receiver);
                }
                self.detach(now, receiver);
                Some((ticket, Ok(Answer::Done)))
            }
            Request::Credit { receiver, limit, drain } if self.credit_reader(receiver, limit, drain) => None,
            Request::Credit { receiver, limit, drain } => {
                self.state.engine.set_credit(receiver, self.credit_upto(receiver, limit));
                match drain {
                    Drain::Keep => {}
                    Drain::Start => self.state.engine.drain(receiver),
                    Drain::Cancel => self.state.engine.cancel_drain(receiver),
                }
                None
            }
            Request::Take { receiver, limit, not_after } => {
                self.state.engine.take_run(receiver, self.credit_upto(receiver, limit), not_after);
                None
            }
            Request::Watch { receiver, serial } => {
                self.state.engine.watch(receiver, serial);
                None
            }
            Request::Window { receiver, size_bytes } if self.state.hubs.has_reader(receiver) => {
                self.state.hubs.add_reader_window(receiver, size_bytes);
                None
            }
            Request::Window { receiver, size_bytes } => {
                self.state.engine.add_window(receiver, size_bytes);
                None
            }
            Request::Gone => {
                self.forget(now, peer);
                None
            }
            _ => None,
        }
    }

    fn credit_upto(&self, receiver: ReceiverId, limit: u64) -> u32 {
        let delivered = self.delivered.get(&receiver).copied().unwrap_or_default();
        u32::try_from(limit.saturating_sub(delivered)).unwrap_or(u32::MAX)
    }

    fn attached(
        &mut self,
        peer: PeerId,
        ticket: Ticket,
        receiver: ReceiverId,
        result: Result<Attached, peeklock_engine::Error>,
    ) -> Answered {
        let session = match result {
            Err(error) => return Some((ticket, Err(error.into()))),
            Ok(Attached::Queue) => Some(None),
            Ok(Attached::Session(held)) => Some(Some(held)),
            Ok(Attached::Waiting) => None,
        };
        self.receivers.entry(peer).or_default().push(receiver);
        if session.is_none() {
            self.waiting.insert(receiver, (peer, ticket));
        }
        session.map(|held| (ticket, Ok(Answer::Attached(held))))
    }

    fn execute_session(&mut self, now: Timestamp, request: Request) -> Answered {
        let (engine, out) = (&mut self.state.engine, &mut self.output);
        Some(match request {
            Request::RenewSession { ticket, entity, hold } => {
                let result = engine.renew_session(now, entity, &hold.session, hold.receiver);
                (ticket, result.map(|until| Answer::Renewed(vec![until])).map_err(Error::from))
            }
            Request::SessionState { ticket, entity, hold } => {
                let result = engine.session_state(now, entity, &hold.session, hold.receiver);
                (ticket, result.map(Answer::State).map_err(Error::from))
            }
            // A state may be as large as many messages; to clear one is always allowed.
            Request::SetSessionState { ticket, state: Some(_), .. } if self.log.space() > Space::Behind => {
                (ticket, Err(Error::DiskFull))
            }
            Request::SetSessionState { ticket, entity, hold, state } => {
                let result = engine.set_session_state(now, entity, &hold.session, hold.receiver, state, out);
                (ticket, done(result))
            }
            Request::CheckState { ticket, state: TransactionState { entity, hold, state } } => {
                let SessionHold { session, receiver } = &hold;
                let result = engine.check_session_state(now, entity, session, *receiver, state.as_ref());
                (ticket, done(result))
            }
            Request::ListSessions { ticket, entity, updated_since, skip, top } => {
                let result = engine.list_sessions(now, entity, updated_since, skip, top);
                (ticket, result.map(Answer::Sessions).map_err(Error::from))
            }
            _ => return None,
        })
    }

    fn execute_fetch(&mut self, now: Timestamp, peer: PeerId, request: Request) -> Answered {
        match request {
            Request::Peek { ticket, entity, sub_queue, from, count_max, session } => {
                self.state.engine.touch(now, entity);
                let count_max = count_max.min(limits::BATCH_COUNT_MAX);
                // Only the queue itself has sessions.
                let found = match session.filter(|_| sub_queue == SubQueue::Main) {
                    Some(session) => self.state.engine.peek_session(entity, &session, from, count_max),
                    None => self.state.engine.peek(entity, sub_queue, from, count_max),
                };
                let found = found.map(|found| first_of(found).map(|message| (None, message)).collect());
                self.answer_messages(peer, ticket, entity, found)
            }
            Request::ReceiveDeferred { ticket, entity, sub_queue, numbers, mode, hold } => {
                let hold = hold.as_ref().map(|hold| (&hold.session, hold.receiver));
                let (engine, out) = (&mut self.state.engine, &mut self.output);
                let found =
                    engine.receive_deferred(now, entity, sub_queue, &numbers, mode, hold, nonce(), out);
                self.collect();
                let found =
                    found.map(|found| found.into_iter().map(|r| (Some(r.token), r.message)).collect());
                self.answer_messages(peer, ticket, entity, found)
            }
            _ => None,
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

    /// Checks that the facts of a large batch fit into the group, behind the bodies. Only a batch of many small messages with many attributes
    /// fails.
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

    /// Bodies that came by their place and that no message has taken, because it was refused or is a duplicate, are of no use.
    fn free_unused(&mut self, batch: &Batch, messages: Range<usize>) {
        for body in messages.filter_map(|message| batch.stored(message)) {
            let has_taken = |fact: &Fact| match fact {
                Fact::Enqueued { body: place, .. }
                | Fact::FannedOut { body: place, .. }
                | Fact::SentOn { body: place, .. } => *place == body.place,
                _ => false,
            };
            if !self.output.facts.iter().any(has_taken) {
                self.freed.push(body);
            }
        }
    }

    fn commit(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        batch: &mut Batch,
        mut transaction: Transaction,
        sends: &[TransactionSend],
    ) -> Result<(), Error> {
        if transaction.states.iter().any(|state| state.state.is_some()) && self.log.space() > Space::Behind {
            return Err(Error::DiskFull);
        }
        let limit_bytes = limits::TRANSACTION_SIZE_BYTES_MAX;
        for send in sends {
            self.check_room(batch, send.messages.clone(), limit_bytes, limit_bytes)?;
        }
        self.in_group(|shard| {
            for TransactionSend { target, messages } in sends {
                let messages = messages.clone();
                let mut new = shard.put_bodies(batch, messages.clone())?;
                // One of another shard is looked at when it gets there.
                shard.add_views(shard.state.engine.find(target), batch, messages, &mut new);
                transaction.sends.extend(new.into_iter().map(|message| (target.clone(), message)));
            }
            Ok(shard.state.engine.commit(now, shard.id, entity, transaction, &mut shard.output)?)
        })
    }

    /// Takes what another shard brings, in order, until one is refused.
    fn take_in(
        &mut self,
        now: Timestamp,
        source: ShardId,
        batch: &mut Batch,
        messages: Vec<Brought>,
    ) -> Result<TransferOutcome, Error> {
        if let Err(error) = self.check_space() {
            // They are brought again later, and a large body is copied anew for that.
            for brought in messages {
                self.free_unused(batch, brought.message..brought.message + 1);
            }
            return Err(error);
        }
        let mut outcome = TransferOutcome::default();
        for Brought { number, target, message } in messages {
            match self.take_one(now, source, number, &target, batch, message) {
                Ok(()) => {
                    outcome.upto = number;
                    self.end_large_group();
                }
                Err(error) => {
                    outcome.refused = Some((number, error.to_string()));
                    break;
                }
            }
        }
        Ok(outcome)
    }

    fn take_one(
        &mut self,
        now: Timestamp,
        source: ShardId,
        number: u64,
        target: &EntityName,
        batch: &mut Batch,
        number_in_batch: usize,
    ) -> Result<(), Error> {
        let mark = self.group.mark();
        let result = self.in_group(|shard| {
            let messages = number_in_batch..number_in_batch + 1;
            let mut new = shard.put_bodies(batch, messages.clone())?;
            shard.add_views(shard.state.engine.find(target), batch, messages, &mut new);
            let Some(message) = new.pop() else { return Ok(false) };
            Ok(shard.state.engine.arrive(now, source, number, target, message, &mut shard.output)?)
        });
        self.free_unused(batch, number_in_batch..number_in_batch + 1);
        if !result? {
            self.group.truncate(mark);
        }
        self.collect();
        Ok(())
    }

    /// Topics and queues with an order look at the properties of a message. It mostly brings them, but not when it comes from another queue, or
    /// from a sender that is older than the order. Of a large one, whose bytes are not here, somebody has looked before.
    pub(crate) fn add_views(
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

    /// Whether the log takes new messages.
    pub(crate) fn check_space(&self) -> Result<(), Error> {
        match self.log.space() {
            Space::Enough => Ok(()),
            Space::Behind => Err(Error::Behind),
            Space::RejectSends | Space::OnlySettle => Err(Error::DiskFull),
        }
    }

    pub(crate) fn check_room(
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

    /// Does something that puts bodies into the group; if it fails, or nobody takes them, they are taken out again: a group without facts is not
    /// ended, and bodies of duplicates or of messages that no subscription takes would pile up in it.
    pub(crate) fn in_group<T>(
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

    pub(crate) fn put_bodies(&mut self, batch: &mut Batch, messages: Range<usize>) -> Result<New, Error> {
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

    pub(crate) fn answer_messages(
        &mut self,
        peer: PeerId,
        ticket: Ticket,
        entity: EntityId,
        found: Result<Vec<(Option<LockToken>, peeklock_engine::Message)>, peeklock_engine::Error>,
    ) -> Answered {
        match found {
            Ok(messages) => {
                self.effects.push(Effect::Messages { peer, ticket, entity, messages });
                None
            }
            Err(error) => Some((ticket, Err(error.into()))),
        }
    }
}

/// Builds a transaction without its sends: their bodies are not in the group yet.
fn new_transaction(
    settles: Vec<TransactionSettle>,
    cancels: Vec<(EntityId, SequenceNumber)>,
    states: Vec<TransactionState>,
) -> Transaction {
    let settles = settles.into_iter().map(|step| (step.sub_queue, step.token, step.settlement)).collect();
    let state = |TransactionState { entity, hold, state }| {
        let SessionHold { session, receiver } = hold;
        NewState { entity, session, receiver, state }
    };
    let states = states.into_iter().map(state).collect();
    Transaction { settles, cancels, states, sends: Vec::new() }
}

pub(crate) fn done(result: Result<(), peeklock_engine::Error>) -> Result<Answer, Error> {
    result.map(|()| Answer::Done).map_err(Error::from)
}

fn wish(now: Timestamp, session: SessionAsk) -> SessionWish {
    match session {
        SessionAsk::None => SessionWish::None,
        SessionAsk::Named(session) => SessionWish::Named(session),
        SessionAsk::Next { timeout } => SessionWish::Next { give_up_at: now + timeout },
    }
}

/// As many messages as fit one answer, and at least one.
pub(crate) fn first_of(
    messages: Vec<peeklock_engine::Message>,
) -> impl Iterator<Item = peeklock_engine::Message> {
    let mut size_bytes = 0;
    messages.into_iter().take_while(move |message| {
        let is_first = size_bytes == 0;
        size_bytes += message.size_bytes as usize + message.patch.size_bytes();
        is_first || size_bytes <= limits::ANSWER_SIZE_BYTES_MAX
    })
}
