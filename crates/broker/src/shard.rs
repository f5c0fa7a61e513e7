//! One task that owns a shard: its engine, its log, and what waits for the log.
//!
//! A round takes every batch that waits, decides each request, hands out messages, and appends one group with all facts. The effects of a
//! round are held until its group is durable. While the disk works, the next round is decided: the engine's memory runs ahead of the disk,
//! what others see does not.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use peeklock_engine::{Engine, EntityId, NewMessage, Outbox, QueueView, ReceiverId, Settlement};
use peeklock_journal::{AppendError, Log, Poisoned, Space, StoredBody};
use peeklock_types::{GroupNumber, LockToken, ShardId, Timestamp, limits};
use rustc_hash::FxHashMap;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::alarm::Alarm;
use crate::batch::{Answer, Batch, Drain, Error, Peer, PeerId, QueueInfo, Request, Ticket};
use crate::clock::Clock;
use crate::group::GroupBuilder;
use crate::housekeeping::{Done, Housekeeping, HousekeepingError, Moved, Trim};
use crate::outgoing::{Effect, Outgoing};

/// A group this large is appended before more is added to it.
const GROUP_BYTES_MAX: usize = 1024 * 1024;
/// Batches taken in one round.
const ROUND_BATCHES_MAX: usize = 256;
/// When the log had no room although nothing of this shard waits for the disk, nobody says when there is some again.
const RETRY_AFTER: Duration = Duration::from_millis(10);
/// How often an idle shard looks whether the log wants something of it, so that it does not pin old segments.
const HOUSEKEEPING_EVERY: Duration = Duration::from_secs(2);

pub(crate) struct Envelope {
    pub(crate) peer: Peer,
    pub(crate) batch: Batch,
}

/// Effects that wait for a group to be durable, and the space that may be given back then.
struct Held {
    after: GroupNumber,
    effects: Vec<Effect>,
    cleanup: Option<Cleanup>,
}

/// Space that can be given back once certain reads are done.
enum Cleanup {
    Trim(Trim),
    Forget(Vec<StoredBody>),
}

pub(crate) struct Shard<L: Log> {
    id: ShardId,
    engine: Engine,
    log: L,
    clock: Clock,
    incoming: mpsc::Receiver<Envelope>,
    outgoing: Outgoing<L::Reader>,
    /// What each peer has attached, to be detached when it goes.
    receivers: FxHashMap<PeerId, Vec<ReceiverId>>,
    /// How many deliveries each receiver got so far.
    delivered: FxHashMap<ReceiverId, u64>,
    housekeeping: Housekeeping,
    outbox: Outbox,
    group: GroupBuilder,
    /// Finished groups that the log had no room for yet. Nothing new is decided while there are any.
    refused: VecDeque<Bytes>,
    /// Messages may wait for receivers with credit, because the log had no room for the locks.
    owes_delivery: bool,
    appended: GroupNumber,
    seen: GroupNumber,
    effects: Vec<Effect>,
    freed: Vec<StoredBody>,
    held: VecDeque<Held>,
    cleanups: VecDeque<(u64, Cleanup)>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Log(#[from] Poisoned),
    #[error(transparent)]
    Append(AppendError),
}

impl<L: Log> Shard<L> {
    /// `snapshot_upto`: the group up to which a snapshot replaces the log.
    pub(crate) fn new(
        id: ShardId,
        engine: Engine,
        log: L,
        snapshot_upto: GroupNumber,
        clock: Clock,
        incoming: mpsc::Receiver<Envelope>,
    ) -> Self {
        let outgoing = Outgoing::new(id, log.reader());
        let appended = log.watermark();
        Shard {
            id,
            engine,
            clock,
            incoming,
            outgoing,
            receivers: FxHashMap::default(),
            delivered: FxHashMap::default(),
            housekeeping: Housekeeping::new(snapshot_upto),
            outbox: Outbox::default(),
            group: GroupBuilder::new(log.next_group()),
            refused: VecDeque::new(),
            owes_delivery: false,
            appended,
            seen: appended,
            effects: Vec::new(),
            freed: Vec::new(),
            held: VecDeque::new(),
            cleanups: VecDeque::new(),
            log,
        }
    }

    /// Serves until every handle is gone and everything is durable and answered, or until the log fails.
    pub(crate) async fn run(mut self) -> Result<(), Failure> {
        let result = self.serve().await;
        if result.is_ok() {
            self.rest().await;
        }
        if let Err(failure) = &result {
            tracing::error!(shard = self.id.0, "the shard has stopped: {failure}");
            // Those whose requests were not even looked at must hear it too.
            self.incoming.close();
            while let Ok(envelope) = self.incoming.try_recv() {
                self.outgoing.join(&envelope.peer);
            }
            self.outgoing.stop(&failure.to_string());
        }
        result
    }

    /// A last snapshot, so that the next start reads little and the log can let go of its segments. Nothing depends on it.
    async fn rest(&mut self) {
        let Some((trim, payload)) = self.housekeeping.last_snapshot(&mut self.engine, self.appended) else {
            return;
        };
        match self.log.put_snapshot(trim.upto, payload).await {
            Ok(()) => self.log.trim(trim.upto, trim.bodies_upto),
            Err(error) => tracing::warn!(shard = self.id.0, "no snapshot at the end: {error}"),
        }
    }

    async fn serve(&mut self) -> Result<(), Failure> {
        let mut waiting = VecDeque::new();
        let mut taken = Vec::new();
        let mut open = true;
        let mut alarm = Alarm::default();
        let mut housekeeping = tokio::time::interval(HOUSEKEEPING_EVERY);
        housekeeping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while open || !self.held.is_empty() || self.outgoing.is_reading() || !waiting.is_empty() {
            let is_free = self.refused.is_empty();
            let deadline = self.engine.next_deadline().filter(|_| is_free).map(|at| self.clock.instant(at));
            tokio::select! {
                biased;
                result = self.log.durable(self.seen), if self.appended > self.seen => self.on_durable(result?)?,
                result = self.outgoing.read_done(), if self.outgoing.is_reading() => {
                    result?;
                    self.clean_up();
                }
                result = self.housekeeping.step_done() => self.on_housekeeping(result)?,
                count = self.incoming.recv_many(&mut taken, ROUND_BATCHES_MAX), if open && is_free && waiting.is_empty() => {
                    open = count > 0;
                    waiting.extend(taken.drain(..));
                    self.round(&mut waiting)?;
                }
                () = alarm.wait_until(deadline) => self.round(&mut waiting)?,
                () = tokio::time::sleep(RETRY_AFTER), if !is_free && self.appended == self.seen => self.append_finished()?,
                _ = housekeeping.tick(), if is_free => self.keep_house(),
            }
            if self.refused.is_empty() && (self.owes_delivery || !waiting.is_empty()) {
                self.round(&mut waiting)?;
            }
            self.give_back()?;
            self.outgoing.flush();
        }
        Ok(())
    }

    /// Decides what waits, as long as the log takes it.
    fn round(&mut self, waiting: &mut VecDeque<Envelope>) -> Result<(), Failure> {
        let now = self.clock.now();
        self.engine.tick(now, &mut self.outbox);
        self.collect();
        while self.refused.is_empty()
            && let Some(envelope) = waiting.pop_front()
        {
            self.outgoing.join(&envelope.peer);
            self.execute_batch(now, envelope)?;
        }
        self.deliver_and_append(now)?;
        self.keep_house();
        Ok(())
    }

    fn keep_house(&mut self) {
        // A snapshot must hold exactly what the log holds: nothing that was decided may still be outside of it.
        let may_snapshot = self.refused.is_empty() && self.group.is_empty();
        let report = self.housekeeping.start(&mut self.engine, &mut self.log, self.appended, may_snapshot);
        if let Some(trim) = report {
            self.hold_cleanup(Cleanup::Trim(trim));
        }
    }

    fn execute_batch(
        &mut self,
        now: Timestamp,
        Envelope { peer, mut batch }: Envelope,
    ) -> Result<(), Failure> {
        for request in std::mem::take(&mut batch.requests) {
            self.execute(now, peer.id, &batch, request);
            if self.group.size_bytes() >= GROUP_BYTES_MAX {
                self.deliver_and_append(now)?;
            }
        }
        Ok(())
    }

    fn execute(&mut self, now: Timestamp, peer: PeerId, batch: &Batch, request: Request) {
        let out = &mut self.outbox;
        let (ticket, result) = match request {
            Request::Send { ticket, entity, messages } => (ticket, self.send(now, entity, batch, messages)),
            Request::Settle { ticket, entity, sub_queue, token, settlement } => {
                let result = self.engine.settle(now, entity, sub_queue, token, settlement, out);
                (ticket, result.map(|()| Answer::Done).map_err(Error::from))
            }
            Request::Renew { ticket, entity, sub_queue, tokens } => {
                let result = self.engine.renew(now, entity, sub_queue, &tokens, out);
                (ticket, result.map(Answer::Renewed).map_err(Error::from))
            }
            Request::Attach { ticket, entity, sub_queue, receiver, mode } => {
                let result = self.engine.attach_receiver(entity, sub_queue, receiver, mode);
                if result.is_ok() {
                    self.receivers.entry(peer).or_default().push(receiver);
                }
                (ticket, result.map(|()| Answer::Done).map_err(Error::from))
            }
            Request::Find { ticket, name } => {
                let result = self.engine.find(&name).ok_or(peeklock_engine::Error::NoSuchQueue { name });
                (ticket, result.map(Answer::Found).map_err(Error::from))
            }
            Request::CreateQueue { ticket, name, settings } => {
                let result = self.engine.create_queue(now, name, settings, out);
                (ticket, result.map(Answer::Found).map_err(Error::from))
            }
            Request::DeleteQueue { ticket, name } => {
                let result = self.engine.delete_queue(&name, out);
                (ticket, result.map(Answer::Found).map_err(Error::from))
            }
            Request::ShowQueue { ticket, name } => {
                let found = self.engine.find(&name).and_then(|entity| self.engine.queue(entity));
                let result = found.map(describe).ok_or(peeklock_engine::Error::NoSuchQueue { name });
                (ticket, result.map(|info| Answer::Queues(vec![info])).map_err(Error::from))
            }
            Request::ListQueues { ticket } => {
                (ticket, Ok(Answer::Queues(self.engine.queues().map(describe).collect())))
            }
            Request::Peek { ticket, entity, sub_queue, from, count_max } => {
                let found = self.engine.peek(entity, sub_queue, from, count_max.min(limits::BATCH_COUNT_MAX));
                let found = found.map(|found| first_of(found).map(|message| (None, message)).collect());
                return self.answer_messages(peer, ticket, found);
            }
            Request::ReceiveDeferred { ticket, entity, sub_queue, numbers, mode } => {
                let found =
                    self.engine.receive_deferred(now, entity, sub_queue, &numbers, mode, nonce(), out);
                self.collect();
                let found =
                    found.map(|found| found.into_iter().map(|r| (Some(r.token), r.message)).collect());
                return self.answer_messages(peer, ticket, found);
            }
            Request::Credit { receiver, limit, drain } => {
                let delivered = self.delivered.get(&receiver).copied().unwrap_or_default();
                let credit = u32::try_from(limit.saturating_sub(delivered)).unwrap_or(u32::MAX);
                self.engine.set_credit(receiver, credit);
                match drain {
                    Drain::Keep => {}
                    Drain::Start => self.engine.drain(receiver),
                    Drain::Cancel => self.engine.cancel_drain(receiver),
                }
                return;
            }
            Request::Window { receiver, size_bytes } => return self.engine.add_window(receiver, size_bytes),
            Request::Detach { ticket, receiver } => {
                if let Some(receivers) = self.receivers.get_mut(&peer) {
                    receivers.retain(|r| *r != receiver);
                }
                self.detach(receiver);
                (ticket, Ok(Answer::Done))
            }
            Request::Release { entity, sub_queue, token } => {
                // A lock that has run out meanwhile has already given the message back.
                let _ = self.engine.settle(now, entity, sub_queue, token, Settlement::Release, out);
                return self.collect();
            }
            Request::Gone => return self.forget(peer),
        };
        self.collect();
        self.effects.push(Effect::Answer { peer, ticket, result });
    }

    fn send(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        batch: &Batch,
        messages: Range<usize>,
    ) -> Result<Answer, Error> {
        if self.log.space() > Space::Enough {
            return Err(Error::DiskFull);
        }
        let size_bytes = batch.bodies(messages.clone()).map(<[u8]>::len).sum();
        if size_bytes > 2 * limits::MESSAGE_SIZE_BYTES_MAX {
            return Err(Error::TooLarge { size_bytes, limit_bytes: limits::MESSAGE_SIZE_BYTES_MAX });
        }
        let mark = self.group.mark();
        let result = self.store(now, entity, batch, messages);
        if result.is_err() {
            self.group.truncate(mark);
        }
        result
    }

    fn store(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        batch: &Batch,
        messages: Range<usize>,
    ) -> Result<Answer, Error> {
        let too_large =
            |size_bytes| Error::TooLarge { size_bytes, limit_bytes: limits::MESSAGE_SIZE_BYTES_MAX };
        let mut new = smallvec::SmallVec::<[NewMessage; 8]>::new();
        for bytes in batch.bodies(messages) {
            let body = self.group.put_body(bytes).map_err(|_| too_large(bytes.len()))?;
            let size_bytes = u32::try_from(bytes.len()).map_err(|_| too_large(bytes.len()))?;
            new.push(NewMessage { body, size_bytes });
        }
        self.engine.send(now, entity, &new, &mut self.outbox)?;
        Ok(Answer::Done)
    }

    fn answer_messages(
        &mut self,
        peer: PeerId,
        ticket: Ticket,
        found: Result<Vec<(Option<LockToken>, peeklock_engine::Message)>, peeklock_engine::Error>,
    ) {
        self.effects.push(match found {
            Ok(messages) => Effect::Messages { peer, ticket, messages },
            Err(error) => Effect::Answer { peer, ticket, result: Err(error.into()) },
        });
    }

    fn forget(&mut self, peer: PeerId) {
        for receiver in self.receivers.remove(&peer).unwrap_or_default() {
            self.detach(receiver);
        }
        self.outgoing.leave(peer);
    }

    fn detach(&mut self, receiver: ReceiverId) {
        self.engine.detach_receiver(receiver);
        self.delivered.remove(&receiver);
    }

    /// Hands out what can be handed out and ends the group, as often as there is more than one group can hold.
    fn deliver_and_append(&mut self, now: Timestamp) -> Result<(), Failure> {
        self.append_finished()?;
        self.owes_delivery = !self.refused.is_empty();
        while !self.owes_delivery {
            let more = self.engine.deliver(now, &mut nonce, &mut self.outbox);
            self.collect();
            self.append_group()?;
            if !more {
                return Ok(());
            }
            self.owes_delivery = !self.refused.is_empty();
        }
        self.hold();
        Ok(())
    }

    /// Takes over what the engine has put into the outbox.
    fn collect(&mut self) {
        for fact in self.outbox.facts.drain(..) {
            self.group.put_fact(&fact);
        }
        for delivery in self.outbox.deliveries.drain(..) {
            *self.delivered.entry(delivery.receiver).or_default() += 1;
            self.effects.push(Effect::Delivery(delivery));
        }
        self.effects.extend(self.outbox.drained.drain(..).map(|drained| Effect::Drained(drained.receiver)));
        self.effects.extend(self.outbox.closed.drain(..).map(Effect::Closed));
        let freed = self.outbox.freed.drain(..);
        self.freed.extend(freed.map(|body| StoredBody { place: body.place, size_bytes: body.size_bytes }));
    }

    /// Appends the round's facts, if there are any, and holds its effects until they are durable.
    fn append_group(&mut self) -> Result<(), Failure> {
        self.append_finished()?;
        self.hold();
        Ok(())
    }

    /// Ends the group in the making and appends what is finished, in order, until the log has no room.
    fn append_finished(&mut self) -> Result<(), Failure> {
        if !self.group.is_empty() {
            let payload = self.group.finish();
            self.refused.push_back(payload);
        }
        while let Some(payload) = self.refused.front() {
            match self.log.append(payload.clone()) {
                Ok(number) => self.appended = number,
                Err(AppendError::Busy) => return Ok(()),
                Err(AppendError::Poisoned(poisoned)) => return Err(poisoned.into()),
                Err(error) => return Err(Failure::Append(error)),
            }
            self.refused.pop_front();
        }
        Ok(())
    }

    fn hold(&mut self) {
        if self.effects.is_empty() && self.freed.is_empty() {
            return;
        }
        let effects = std::mem::take(&mut self.effects);
        let freed = std::mem::take(&mut self.freed);
        let cleanup = (!freed.is_empty()).then_some(Cleanup::Forget(freed));
        // What was decided may rest on any fact decided before it, so it waits for all of them.
        let after = self.group.newest_with_facts();
        self.held.push_back(Held { after, effects, cleanup });
        self.release();
    }

    fn hold_cleanup(&mut self, cleanup: Cleanup) {
        let after = self.group.newest_with_facts();
        self.held.push_back(Held { after, effects: Vec::new(), cleanup: Some(cleanup) });
        self.release();
    }

    fn on_durable(&mut self, watermark: GroupNumber) -> Result<(), Failure> {
        self.seen = watermark;
        self.release();
        self.append_finished()?;
        self.keep_house();
        Ok(())
    }

    fn release(&mut self) {
        while self.held.front().is_some_and(|held| held.after <= self.seen) {
            let Some(held) = self.held.pop_front() else { break };
            self.outgoing.release(held.effects);
            if let Some(cleanup) = held.cleanup {
                self.cleanups.push_back((self.outgoing.started(), cleanup));
            }
        }
        self.clean_up();
    }

    /// Gives space back, but not before the reads are done that were started while the bodies were still needed.
    fn clean_up(&mut self) {
        while self.cleanups.front().is_some_and(|(reads, _)| *reads <= self.outgoing.finished()) {
            match self.cleanups.pop_front() {
                Some((_, Cleanup::Trim(trim))) => {
                    self.log.trim(trim.upto, trim.bodies_upto);
                    self.housekeeping.trimmed();
                }
                Some((_, Cleanup::Forget(bodies))) => {
                    self.log.forget_cold(&bodies);
                    self.housekeeping.forgotten();
                }
                None => break,
            }
        }
    }

    /// Messages whose receiver was gone before they could leave return to the queue.
    fn give_back(&mut self) -> Result<(), Failure> {
        let undeliverable = self.outgoing.take_undeliverable();
        if undeliverable.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        for delivery in undeliverable {
            let settlement = Settlement::Release;
            let (entity, sub_queue) = (delivery.entity, delivery.sub_queue);
            let _ = self.engine.settle(now, entity, sub_queue, delivery.token, settlement, &mut self.outbox);
        }
        self.collect();
        self.deliver_and_append(now)
    }

    fn on_housekeeping(&mut self, result: Result<Done, HousekeepingError>) -> Result<(), Failure> {
        match result {
            Ok(Done::Trim(trim)) => {
                self.cleanups.push_back((self.outgoing.started(), Cleanup::Trim(trim)));
                self.clean_up();
            }
            Ok(Done::Moved(moved)) => self.record_moves(moved)?,
            Err(error) => {
                if let Some(poisoned) = error.poisoned() {
                    return Err(poisoned.into());
                }
                // The log is as long as it was; a later try may fare better.
                if error.is_overtaken() {
                    tracing::debug!(shard = self.id.0, "a body was settled while it was moved: {error}");
                } else {
                    tracing::warn!(shard = self.id.0, "could not shorten the log: {error}");
                }
            }
        }
        self.keep_house();
        Ok(())
    }

    fn record_moves(&mut self, moved: Vec<Moved>) -> Result<(), Failure> {
        for Moved { body, to } in moved {
            let taken =
                self.engine.move_body(body.entity, body.sequence_number, body.place, to, &mut self.outbox);
            if !taken {
                // Settled while the copy was made: the copy is not needed.
                self.freed.push(StoredBody { place: to, size_bytes: body.size_bytes });
            }
        }
        self.collect();
        self.append_group()?;
        // The old places are free once the moves are durable.
        let trim = self.housekeeping.report(&mut self.engine, self.appended);
        self.hold_cleanup(Cleanup::Trim(trim));
        Ok(())
    }
}

fn describe(queue: QueueView<'_>) -> QueueInfo {
    QueueInfo { name: queue.name.clone(), settings: queue.settings.clone(), counts: queue.counts }
}

/// As many messages as fit one answer, and at least one.
fn first_of(messages: Vec<peeklock_engine::Message>) -> impl Iterator<Item = peeklock_engine::Message> {
    let mut size_bytes = 0;
    messages.into_iter().take_while(move |message| {
        let is_first = size_bytes == 0;
        size_bytes += message.size_bytes as usize + message.patch.size_bytes();
        is_first || size_bytes <= limits::ANSWER_SIZE_BYTES_MAX
    })
}

fn nonce() -> u64 {
    fastrand::u64(..)
}
