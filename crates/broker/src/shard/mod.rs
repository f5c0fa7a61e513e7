//! One task that owns a shard: its engine, its log, and the effects that wait for the log.
//!
//! A round takes every waiting batch, decides each request, delivers messages, and appends one group with all facts.
//! The effects of a round are held until its group is durable. The next round is decided while the disk works: the
//! engine's memory is ahead of the disk, but the effects that leave the shard are not.

mod appending;
pub(crate) mod commit_group;
mod company;
pub(crate) mod damage;
mod held;
pub(crate) mod housekeeping;
pub(crate) mod outgoing;
pub(crate) mod patience;
pub(crate) mod reading;
mod receivers;
pub(crate) mod state;
mod step;
mod transfers;
mod unread;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use peeklock_engine::{Accepted, CloseReason, Output, ReceiverId, Settlement};
use peeklock_journal::{AppendError, Log, Poisoned, StoredBody};
use peeklock_types::{BodyRef, CommitGroupNumber, ShardId, Timestamp};
use rustc_hash::FxHashMap;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::MissedTickBehavior;

use crate::alarm::Alarm;
use crate::batch::{Batch, Peer, PeerId};
use crate::broker::Describe;
use crate::clock::{Clock, Moment};
use crate::execute::BlobShare;
use crate::reply::Error;
use crate::router::Router;
use crate::shard::commit_group::CommitGroupBuilder;
use crate::shard::damage::DamageCounts;
use crate::shard::housekeeping::{Done, Gathered, Housekeeping, HousekeepingError, LostExtent, Moved};
use crate::shard::outgoing::{Effect, Outgoing};
use crate::shard::reading::Reading;
use crate::shard::state::State;
use appending::Appending;
use company::Company;
pub use damage::Damage;
use held::{Cleanup, HeldEffects};
use receivers::Receivers;
use transfers::Transfers;
use unread::UnreadLocks;

/// The size from which a group is appended before more is added to it.
const GROUP_BYTES_MAX: usize = 1024 * 1024;
/// The number of facts that the steps of a run leave in the output of the engine.
pub(crate) const FACTS_AT_ONCE: usize = 64;
/// The maximum number of batches in one round.
const ROUND_BATCHES_MAX: usize = 256;
/// The interval between retries while the log has no room although nothing of this shard waits for the disk. In this
/// case no notification follows when there is room again.
const RETRY_AFTER: Duration = Duration::from_millis(10);
/// The interval at which an idle shard checks for requests of the log, so that it does not pin old segments.
const HOUSEKEEPING_EVERY: Duration = Duration::from_secs(2);

pub(crate) struct Envelope {
    pub(crate) peer: Peer,
    pub(crate) batch: Batch,
    /// The permit of a batch with very many messages, held until the batch is done.
    pub(crate) place: Option<OwnedSemaphorePermit>,
}

/// The recovered state of a shard.
pub(crate) struct RecoveredShard<L> {
    pub(crate) id: ShardId,
    pub(crate) state: State,
    pub(crate) log: L,
    /// The group up to which a snapshot replaces the log.
    pub(crate) snapshot_upto: CommitGroupNumber,
    pub(crate) damage: Arc<DamageCounts>,
    pub(crate) blob_share: BlobShare,
}

pub(crate) struct Shard<L: Log> {
    pub(crate) id: ShardId,
    pub(crate) state: State,
    pub(crate) log: L,
    pub(crate) clock: Clock,
    incoming: mpsc::Receiver<Envelope>,
    pub(crate) outgoing: Outgoing<L::BodyReader>,
    /// Events in flight to readers.
    pub(crate) reading: Reading<L::BodyReader>,
    pub(crate) receivers: Receivers,
    pub(crate) describe: Describe,
    pub(crate) transfers: Transfers,
    pub(crate) housekeeping: Housekeeping,
    pub(crate) output: Output,
    pub(crate) hub_output: peeklock_hubs::Output,
    pub(crate) group: CommitGroupBuilder,
    pub(crate) appending: Appending,
    company: Company,
    /// Whether messages may be waiting for receivers with credit, because the log had no room for the locks.
    owes_delivery: bool,
    pub(crate) held: HeldEffects,
    /// The time of the engine's last sample of the classes of its queues.
    pub(crate) sampled_at: Timestamp,
    /// The steps of the clock that the state has followed.
    stepped: Duration,
    unread: UnreadLocks,
    pub(crate) damage: Arc<DamageCounts>,
    pub(crate) blob_share: BlobShare,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Log(#[from] Poisoned),
    #[error(transparent)]
    Append(AppendError),
}

impl<L: Log> Shard<L> {
    pub(crate) fn new(
        recovered: RecoveredShard<L>,
        clock: Clock,
        incoming: mpsc::Receiver<Envelope>,
        router: Router,
        describe: Describe,
    ) -> Self {
        let RecoveredShard { id, state, log, snapshot_upto, damage, blob_share } = recovered;
        let reading = Reading::new(log.reader());
        let outgoing = Outgoing::new(id, log.reader(), router);
        let appending = Appending::new(log.watermark());
        Shard {
            id,
            state,
            clock,
            incoming,
            outgoing,
            reading,
            receivers: Receivers::default(),
            describe,
            transfers: Transfers::default(),
            housekeeping: Housekeeping::new(snapshot_upto),
            output: Output::default(),
            hub_output: peeklock_hubs::Output::default(),
            group: CommitGroupBuilder::new(log.next_group()),
            appending,
            company: Company::default(),
            owes_delivery: false,
            held: HeldEffects::default(),
            sampled_at: Timestamp::ZERO,
            stepped: Duration::ZERO,
            unread: UnreadLocks::default(),
            damage,
            blob_share,
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
            // Peers whose requests were not decided must receive the reason, too.
            self.incoming.close();
            while let Ok(envelope) = self.incoming.try_recv() {
                self.outgoing.join(&envelope.peer);
            }
            self.outgoing.stop(&failure.to_string());
        }
        result
    }

    /// Writes a last snapshot, so that the next start reads little and the log can release its segments. The snapshot
    /// is optional.
    async fn rest(&mut self) {
        let Some((trim, payload)) =
            self.housekeeping.last_snapshot(&mut self.state, self.appending.appended())
        else {
            return;
        };
        match self.log.put_snapshot(trim.upto, payload).await {
            Ok(()) => self.log.trim(trim.bodies_upto),
            Err(error) => tracing::warn!(shard = self.id.0, "no snapshot at the end: {error}"),
        }
    }

    async fn serve(&mut self) -> Result<(), Failure> {
        let Moment { now, stepped } = self.clock.read();
        self.stepped = stepped;
        self.state.engine.set_near_from(self.appending.durable().next());
        self.state.engine.wake(now, &mut self.output);
        self.collect();
        self.deliver_and_append(now)?;
        let mut waiting = VecDeque::new();
        let mut taken = Vec::new();
        let mut open = true;
        let mut alarm = Alarm::default();
        let mut housekeeping = tokio::time::interval(HOUSEKEEPING_EVERY);
        housekeeping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut moves = self.clock.moves();
        while open || self.held.is_holding() || self.outgoing.is_reading() || !waiting.is_empty() {
            let is_free = self.appending.has_room();
            let deadline = self.state.engine.next_deadline().map(|at| self.clock.instant(at));
            let deadline = [deadline, self.unread.next()].into_iter().flatten().min().filter(|_| is_free);
            tokio::select! {
                biased;
                result = self.log.durable(self.appending.durable()), if self.appending.is_waiting() => self.on_durable(result?)?,
                result = self.outgoing.read_done(), if self.outgoing.is_reading() => {
                    result?;
                    self.clean_up();
                }
                result = self.housekeeping.step_done() => self.on_housekeeping(result)?,
                count = self.incoming.recv_many(&mut taken, ROUND_BATCHES_MAX), if open && is_free && waiting.is_empty() => {
                    open = count > 0;
                    self.take_more(&mut taken).await;
                    self.company.note(taken.iter().map(|envelope| (envelope.peer.id, envelope.batch.answer_count())));
                    waiting.extend(taken.drain(..));
                    self.round(&mut waiting)?;
                    // Neither readers that catch up nor a stream of requests may starve the other.
                    if let Some(read) = self.reading.try_done() {
                        self.on_read(read)?;
                    }
                }
                read = self.reading.done(), if self.reading.is_reading() => self.on_read(read)?,
                () = alarm.wait_until(deadline) => self.round(&mut waiting)?,
                () = moves.next(), if is_free => {
                    housekeeping.reset_immediately();
                    self.round(&mut waiting)?;
                }
                () = tokio::time::sleep(RETRY_AFTER), if !is_free && !self.appending.is_waiting() => self.append_finished()?,
                _ = housekeeping.tick(), if is_free => {
                    let now = self.read_clock();
                    self.sample(now);
                    self.retire(now)?;
                    self.keep_house();
                }
            }
            if self.appending.has_room() && (self.owes_delivery || !waiting.is_empty()) {
                self.round(&mut waiting)?;
            }
            self.give_back()?;
            self.set_damaged_aside()?;
            self.remove_read()?;
            self.return_unread()?;
            self.outgoing.flush();
        }
        Ok(())
    }

    /// Takes the batches of peers that are ready to run, while the disk is busy anyway. A round costs the same for one
    /// batch as for many.
    async fn take_more(&mut self, taken: &mut Vec<Envelope>) {
        if !self.appending.is_waiting() {
            return;
        }
        tokio::task::yield_now().await;
        while taken.len() < ROUND_BATCHES_MAX
            && let Ok(envelope) = self.incoming.try_recv()
        {
            taken.push(envelope);
        }
    }

    /// Decides the waiting batches, as long as the log accepts them.
    fn round(&mut self, waiting: &mut VecDeque<Envelope>) -> Result<(), Failure> {
        let now = self.read_clock();
        self.release_unread(now);
        self.state.engine.tick(now, &mut self.output);
        self.collect();
        if self.group.size_bytes() >= GROUP_BYTES_MAX {
            // Many messages of topics were due. The first request may need as much room again.
            self.append_finished()?;
        }
        while self.appending.has_room()
            && let Some(envelope) = waiting.pop_front()
        {
            self.outgoing.join(&envelope.peer);
            self.execute_batch(now, envelope)?;
        }
        self.deliver_and_append(now)?;
        self.sample(now);
        self.keep_house();
        Ok(())
    }

    fn keep_house(&mut self) {
        let lingering = self.held.take_lingering();
        if !lingering.is_empty() {
            self.forget_bodies(lingering);
        }
        // A snapshot must contain exactly the facts in the log: no decided fact may still be outside of it.
        let may_snapshot = self.appending.has_room() && self.group.is_empty();
        let report =
            self.housekeeping.start(&mut self.state, &mut self.log, self.appending.appended(), may_snapshot);
        if let Some(trim) = report {
            self.hold_cleanup(Cleanup::Trim(trim));
        }
    }

    fn execute_batch(
        &mut self,
        now: Timestamp,
        Envelope { peer, mut batch, place: _place }: Envelope,
    ) -> Result<(), Failure> {
        self.group.start_batch(batch.take_bodies());
        for request in std::mem::take(&mut batch.requests) {
            self.execute(now, peer.id, &mut batch, request)?;
            if self.is_group_large() {
                self.deliver_and_append(now)?;
            }
        }
        self.group.end_batch();
        Ok(())
    }

    /// Returns whether the group under construction should be appended before more is added to it.
    pub(crate) fn is_group_large(&self) -> bool {
        self.group.size_bytes() >= GROUP_BYTES_MAX
    }

    pub(crate) fn forget(&mut self, now: Timestamp, peer: PeerId) {
        for receiver in self.receivers.leave_all(peer) {
            self.detach(now, receiver);
            self.end_large_group();
        }
        self.outgoing.leave(peer);
    }

    pub(crate) fn detach(&mut self, now: Timestamp, receiver: ReceiverId) {
        if self.state.hubs.detach_reader(receiver) {
            return self.receivers.forget(receiver);
        }
        self.state.engine.detach_receiver(now, receiver, &mut self.output);
        self.collect();
        self.receivers.forget(receiver);
        if let Some((peer, ticket)) = self.receivers.end_wait(receiver) {
            self.hold_answer(peer, ticket, Err(Error::NoSession));
        }
    }

    /// Delivers messages and ends the group, repeatedly if there is more than one group can contain.
    pub(crate) fn deliver_and_append(&mut self, now: Timestamp) -> Result<(), Failure> {
        self.append_finished()?;
        self.owes_delivery = !self.appending.has_room();
        while !self.owes_delivery {
            let more = self.state.engine.deliver(now, &mut nonce, &mut self.output);
            self.collect();
            self.serve_readers();
            self.append_group()?;
            if !more {
                return Ok(());
            }
            self.owes_delivery = !self.appending.has_room();
        }
        self.hold();
        Ok(())
    }

    /// Collects the output of the engine if it has several facts. The steps of a run share one collection, because each
    /// step has few facts, and a collection inspects every kind of output.
    pub(crate) fn collect_many(&mut self) {
        if self.output.facts.len() >= FACTS_AT_ONCE {
            self.collect();
        }
    }

    /// Collects the output of the engine.
    pub(crate) fn collect(&mut self) {
        for fact in self.output.facts.drain(..) {
            self.group.put_fact(&fact);
        }
        let runs = self.receivers.runs(self.output.deliveries.drain(..));
        self.held.extend(runs.map(Effect::Deliveries));
        self.held.extend(self.output.heads.drain(..).map(Effect::Head));
        self.held.extend(self.output.drained.drain(..).map(|drained| Effect::Drained(drained.receiver)));
        for Accepted { receiver, held } in std::mem::take(&mut self.output.accepted) {
            if let Some((peer, ticket)) = self.receivers.end_wait(receiver) {
                self.hold_answer(peer, ticket, Ok(Some(held)));
            }
        }
        for closed in std::mem::take(&mut self.output.closed) {
            self.receivers.forget(closed.receiver);
            self.receivers.leave(closed.receiver);
            match self.receivers.end_wait(closed.receiver) {
                Some((peer, ticket)) => self.hold_answer(peer, ticket, Err(refused(closed.reason))),
                None => self.held.push(Effect::Closed(closed)),
            }
        }
        self.state.engine.unshare(&mut self.output.freed);
        self.held.free(self.output.freed.drain(..));
    }

    /// Appends the round's facts, if there are any, and holds its effects until they are durable.
    pub(crate) fn append_group(&mut self) -> Result<(), Failure> {
        self.append_finished()?;
        self.hold();
        Ok(())
    }

    /// Ends a large group between the steps of a long request: a group has a limit, and exceeding it stops the shard.
    /// Facts that must be durable together are in one step.
    pub(crate) fn end_large_group(&mut self) {
        if self.group.size_bytes() >= GROUP_BYTES_MAX && !self.group.is_empty() {
            let payload = self.group.finish();
            self.appending.push(payload);
        }
    }

    /// Ends the group under construction and appends finished groups in order, until the log has no room.
    fn append_finished(&mut self) -> Result<(), Failure> {
        if !self.group.is_empty() {
            let payload = self.group.finish();
            self.appending.push(payload);
        }
        self.appending.append_to(&mut self.log, self.company.is_one())
    }

    pub(crate) fn hold(&mut self) {
        self.held.extend(self.transfers.start(&self.state.engine));
        // A decision may depend on any earlier fact, so its effects wait for all of them.
        self.held.hold(self.group.newest_with_facts());
        self.release();
    }

    fn hold_cleanup(&mut self, cleanup: Cleanup) {
        self.held.hold_cleanup(self.group.newest_with_facts(), cleanup);
        self.release();
    }

    fn on_durable(&mut self, watermark: CommitGroupNumber) -> Result<(), Failure> {
        self.appending.set_durable(watermark);
        // The bodies of groups that are not durable yet are in memory until their effects are released.
        self.state.engine.set_near_from(watermark.next());
        self.release();
        // Readers whose runs are now durable can get more.
        self.serve_readers();
        self.hold();
        self.append_finished()?;
        self.keep_house();
        Ok(())
    }

    fn release(&mut self) {
        while let Some(held) = self.held.next_durable(self.appending.durable()) {
            self.release_effects(held.effects);
            if let Some(cleanup) = held.cleanup {
                self.held.clean_up_after(self.outgoing.started(), cleanup);
            }
        }
        self.clean_up();
    }

    fn release_effects(&mut self, effects: Vec<Effect>) {
        let is_run = |effect: &Effect| matches!(effect, Effect::Run(_));
        if !effects.iter().any(is_run) {
            return self.outgoing.release(effects);
        }
        let (runs, others): (Vec<_>, Vec<_>) = effects.into_iter().partition(is_run);
        self.outgoing.release(others);
        for effect in runs {
            if let Effect::Run(run) = effect {
                self.start_run(run);
            }
        }
    }

    /// Releases space after the end of all reads that were started while the bodies were still needed.
    fn clean_up(&mut self) {
        while let Some(cleanup) = self.held.next_cleanup(self.outgoing.finished()) {
            match cleanup {
                Cleanup::Trim(trim) => {
                    self.log.trim(trim.bodies_upto);
                    self.housekeeping.trimmed();
                }
                Cleanup::Forget(bodies) => {
                    self.forget_bodies(bodies);
                    self.housekeeping.released();
                }
            }
        }
    }

    /// Releases bodies, but keeps a large body while it is being read: under receive-and-delete its message is removed
    /// before the body is sent.
    fn forget_bodies(&mut self, bodies: Vec<StoredBody>) {
        let (held, free): (Vec<_>, Vec<_>) = bodies.into_iter().partition(|body| self.outgoing.is_held(body));
        self.held.linger(held);
        self.log.release(&free);
    }

    /// Returns messages to their queues if their receiver was gone before the delivery.
    fn give_back(&mut self) -> Result<(), Failure> {
        let undeliverable = self.outgoing.take_undeliverable();
        if undeliverable.is_empty() {
            return Ok(());
        }
        let now = self.read_clock();
        for delivery in undeliverable {
            let settlement = Settlement::Release;
            let (entity, sub_queue) = (delivery.entity, delivery.sub_queue);
            let _ = self.state.engine.settle(
                now,
                entity,
                sub_queue,
                delivery.token,
                settlement,
                &mut self.output,
            );
        }
        self.collect();
        self.deliver_and_append(now)
    }

    fn on_housekeeping(&mut self, result: Result<Done, HousekeepingError>) -> Result<(), Failure> {
        match result {
            Ok(Done::Trim(trim)) => {
                self.held.clean_up_after(self.outgoing.started(), Cleanup::Trim(trim));
                self.clean_up();
            }
            Ok(Done::Moved(moved)) => self.record_moves(moved)?,
            Ok(Done::Gathered { gathered, lost }) => {
                if let Some(LostExtent { stream, sequence, place, why }) = lost {
                    self.lose_extent(stream, sequence, place, &why);
                }
                self.record_gathered(gathered)?;
            }
            Ok(Done::Lost { bodies, why }) => self.lose_bodies(&bodies, &why)?,
            Ok(Done::Narrowed) => {}
            Err(error) => {
                if let Some(poisoned) = error.poisoned() {
                    return Err(poisoned.into());
                }
                // The log keeps its length; a later attempt may succeed.
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
        // Copies that no message needs any more, because the message was settled during the copy.
        let mut unused: FxHashMap<BodyRef, u32> = FxHashMap::default();
        unused.extend(moved.iter().filter_map(|moved| Some((moved.to?, moved.body.size_bytes))));
        for Moved { body, to } in moved {
            // Another message with the same body may have been moved before.
            let Some(to) = to.or_else(|| self.state.engine.copy_of(body.place)) else { continue };
            let (entity, number) = (body.entity, body.sequence_number);
            if self.state.engine.move_body(entity, number, body.place, to, &mut self.output) {
                unused.remove(&to);
            }
        }
        let unused = unused.into_iter().map(|(place, size_bytes)| StoredBody { place, size_bytes });
        self.held.free(unused);
        self.collect();
        self.append_group()?;
        self.report_moves();
        Ok(())
    }

    fn record_gathered(&mut self, gathered: Vec<Gathered>) -> Result<(), Failure> {
        for Gathered { stream, run, to } in gathered {
            let (place, size_bytes) = (to.place, to.size_bytes);
            if !self.state.hubs.gathered(stream, &run, place, size_bytes, &mut self.hub_output) {
                self.held.free([to]);
            }
        }
        self.collect_hubs();
        self.append_group()?;
        self.report_moves();
        Ok(())
    }

    /// Reports the moves to the log. The old places are free once the moves are durable.
    fn report_moves(&mut self) {
        let trim = self.housekeeping.report(&mut self.state, self.appending.appended());
        self.hold_cleanup(Cleanup::Trim(trim));
    }
}

/// Returns the error for a receiver whose attachment ended before it started.
fn refused(reason: CloseReason) -> Error {
    match reason {
        CloseReason::NoSession | CloseReason::SessionLockLost => Error::NoSession,
        CloseReason::Deleted => Error::Gone { what: "deleted" },
        CloseReason::Disabled => Error::Gone { what: "disabled" },
    }
}

pub(crate) fn nonce() -> u64 {
    crate::random::u64()
}
