//! Settlements: those of one turn leave together, and each message is held until the broker has confirmed its own.

use std::sync::Arc;

use peeklock_client::Error as Low;
use tokio::time::Instant;

use super::{Held, Phase, Pump};
use crate::Outcome;
use crate::delivery::{Sent, Unsettled};
use crate::error::Error;
use crate::handler::Work;
use crate::processor::errors::ErrorSource;
use crate::processor::runner::{Conclusion, Ended};

/// A message whose settlement is not confirmed.
pub(super) struct Settling {
    work: Arc<Work>,
    /// `None` while the settlement takes further steps.
    sent: Option<Sent>,
    purpose: Purpose,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Its call has ended. The slot is free when the settlement is confirmed.
    End(Ended),
    /// It is handed back, and has no slot.
    Return,
}

impl Pump {
    /// Settles the message of a call that has ended.
    pub(super) fn conclude(&mut self, held: Held, Conclusion { outcome, ended }: Conclusion) {
        if held.is_guarded {
            self.forget_lock(held.key);
        }
        if held.work.lock_lost.has_fired() {
            // Another receiver may have the message. The loss was reported when it happened.
            held.work.leave();
            return self.record(if ended == Ended::Fatal { ended } else { Ended::Failed });
        }
        match outcome.and_then(|outcome| Some((held.work.take()?, outcome))) {
            Some((unsettled, outcome)) => {
                self.settle(held.key, held.work, unsettled, outcome, Purpose::End(ended));
            }
            // The handler has settled it.
            None => self.record(ended),
        }
    }

    /// Hands a message back that was not started. Its delivery count does not increase.
    pub(super) fn release(&mut self, held: Held) {
        self.hand_back(held, |_| Outcome::Release);
    }

    /// Hands the message of a call back that was dropped.
    pub(super) fn interrupt(&mut self, held: Held) {
        self.hand_back(held, Unsettled::interruption);
    }

    fn hand_back(&mut self, held: Held, outcome: impl FnOnce(&Unsettled) -> Outcome) {
        if held.is_guarded {
            self.forget_lock(held.key);
        }
        if held.work.lock_lost.has_fired() {
            return held.work.leave();
        }
        let Some(unsettled) = held.work.take() else { return };
        let outcome = outcome(&unsettled);
        self.returning_count += 1;
        self.settle(held.key, held.work, unsettled, outcome, Purpose::Return);
    }

    fn settle(
        &mut self,
        key: u64,
        work: Arc<Work>,
        unsettled: Unsettled,
        outcome: Outcome,
        purpose: Purpose,
    ) {
        let sent = match unsettled.send(outcome, key, &mut self.settler) {
            Ok(sent) => Some(sent),
            Err(parts) => {
                let ((unsettled, outcome), work) = (*parts, Arc::clone(&work));
                self.steps.spawn(async move { (key, unsettled.settle(work.message(), outcome).await) });
                None
            }
        };
        self.settling.insert(key, Settling { work, sent, purpose });
    }

    /// Handles the results of settlements that have arrived.
    pub(super) fn take_settled(&mut self) {
        let mut settled = std::mem::take(&mut self.settled);
        self.settler.try_settled(&mut settled);
        settled.drain(..).for_each(|(key, result)| self.confirm(key, result));
        self.settled = settled;
    }

    fn confirm(&mut self, key: u64, result: Result<(), Low>) {
        // A settlement that was given up has no entry.
        let Some(settling) = self.settling.get_mut(&key) else { return };
        let Some(sent) = settling.sent.take() else { return };
        match result {
            Ok(()) => {
                sent.confirmed();
                self.stepped(key, Ok(()));
            }
            Err(error) => drop(self.steps.spawn(async move { (key, sent.recover(error).await) })),
        }
    }

    /// Handles the end of a settlement.
    pub(super) fn stepped(&mut self, key: u64, result: Result<(), Error>) {
        let Some(Settling { work, purpose, .. }) = self.settling.remove(&key) else { return };
        match (purpose, result) {
            (Purpose::End(ended), result) => {
                let ended = self.runner.settled(&work, result, ended);
                self.record(ended);
            }
            (Purpose::Return, result) => {
                self.returning_count -= 1;
                if let Err(error) = result {
                    self.runner.reporter.report_work(ErrorSource::Settle, error, &work);
                }
            }
        }
    }

    /// Returns the moment at which a stop no longer waits for the settlements of calls.
    pub(super) fn give_up_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::Draining { deadline, is_cancelling: true } => deadline.checked_add(self.settings.grace),
            _ => None,
        }
    }

    /// Gives up the settlements of calls that the broker does not confirm before the end of a stop. Their results are unknown.
    pub(super) fn tick_settling(&mut self, now: Instant) {
        if self.settling.is_empty() || self.give_up_at().is_none_or(|at| now < at) {
            return;
        }
        let is_call = |settling: &Settling| matches!(settling.purpose, Purpose::End(_));
        let before = self.settling.len();
        self.settling.retain(|_, settling| !is_call(settling));
        let count = before - self.settling.len();
        self.slots.running -= u32::try_from(count).unwrap_or(u32::MAX);
        self.report.cancelled += count as u64;
    }
}
