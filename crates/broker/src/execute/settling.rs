//! Settlements, renewals of locks, and bulk deletion of messages.

use peeklock_engine::Settlement;
use peeklock_journal::Log;
use peeklock_types::Timestamp;

use crate::batch::PeerId;
use crate::reply::Error;
use crate::request::sessions::SessionHold;
use crate::request::settling::{
    Purge, PurgeSession, Release, RenewLocks, SettleAll, SettleOfRun, SettleRun, SettlingRequest,
};
use crate::request::{Answer, Answered};
use crate::shard::outgoing::Effect;
use crate::shard::{FACTS_AT_ONCE, Failure, Shard};

impl<L: Log> Shard<L> {
    /// Executes the settlements of a run in order. A rejected settlement does not affect the others.
    pub(super) fn execute_settles(
        &mut self,
        now: Timestamp,
        peer: PeerId,
        SettleRun { entity, sub_queue, settles }: SettleRun,
    ) -> Result<(), Failure> {
        let mut settled = Vec::with_capacity(settles.len());
        let mut settles = settles.into_iter();
        while let Some(first) = settles.as_slice().first() {
            let (engine, out) = (&mut self.state.engine, &mut self.output);
            if is_completion(first) {
                // Most settlements are completions, and many of them share the fixed costs of a command.
                let next = settles.as_slice().iter().take(FACTS_AT_ONCE);
                let count = next.take_while(|settle| is_completion(settle)).count();
                let tokens = settles.by_ref().take(count).map(|settle| (settle.ticket, settle.token));
                engine.complete_each(now, entity, sub_queue, tokens, out, |ticket, result| {
                    settled.push(Answered { ticket, result: result.map_err(Error::from) });
                });
            } else if let Some(SettleOfRun { ticket, token, settlement }) = settles.next() {
                let result = engine.settle(now, entity, sub_queue, token, settlement, out);
                settled.push(Answered { ticket, result: result.map_err(Error::from) });
            }
            self.collect_many();
            if self.is_group_large() {
                self.collect();
                let answer = Answer::Settled(std::mem::take(&mut settled));
                self.held.push(Effect::Answer { peer, answer });
                self.deliver_and_append(now)?;
            }
        }
        self.collect();
        if !settled.is_empty() {
            self.held.push(Effect::Answer { peer, answer: Answer::Settled(settled) });
        }
        Ok(())
    }

    pub(super) fn execute_settling(&mut self, now: Timestamp, peer: PeerId, request: SettlingRequest) {
        match request {
            SettlingRequest::SettleAll(asked) => self.answer(peer, asked, |shard, request| {
                let SettleAll { entity, sub_queue, tokens, settlement, hold } = request;
                let hold = hold.as_ref().map(|hold| (&hold.session, hold.receiver));
                let (engine, out) = (&mut shard.state.engine, &mut shard.output);
                Ok(engine.settle_all(now, entity, sub_queue, &tokens, &settlement, hold, out)?)
            }),
            SettlingRequest::RenewLocks(asked) => self.answer(peer, asked, |shard, request| {
                let RenewLocks { entity, sub_queue, tokens } = request;
                Ok(shard.state.engine.renew(now, entity, sub_queue, &tokens, &mut shard.output)?)
            }),
            SettlingRequest::Purge(asked) => self.answer(peer, asked, |shard, request| {
                let Purge { entity, sub_queue, before, count_max } = request;
                let (before, count_max) = (before.unwrap_or(Timestamp::MAX), count_max.unwrap_or(u64::MAX));
                let (engine, out) = (&mut shard.state.engine, &mut shard.output);
                Ok(engine.purge(now, entity, sub_queue, before, count_max, out)?)
            }),
            SettlingRequest::PurgeSession(asked) => self.answer(peer, asked, |shard, request| {
                let PurgeSession { entity, hold, before, count_max } = request;
                let (SessionHold { session, receiver }, before) = (hold, before.unwrap_or(Timestamp::MAX));
                let (engine, out) = (&mut shard.state.engine, &mut shard.output);
                Ok(engine.purge_session(now, entity, &session, receiver, before, count_max, out)?)
            }),
            SettlingRequest::Release(Release { entity, sub_queue, token }) => {
                let (engine, out) = (&mut self.state.engine, &mut self.output);
                // If the lock has expired meanwhile, the message is already back in the queue.
                let _ = engine.settle(now, entity, sub_queue, token, Settlement::Release, out);
            }
        }
    }
}

fn is_completion(settle: &SettleOfRun) -> bool {
    matches!(settle.settlement, Settlement::Complete)
}
