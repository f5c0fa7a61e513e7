//! Messages in and out of a pump: credit, arrivals, starts, ends, and messages that are handed back.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{self, JoinError};
use tokio::time::{Instant, timeout};

use super::{Held, LINK_TIME_MAX, Phase, Pump, PumpEnd, Running};
use crate::Backoff;
use crate::delivery::Delivery;
use crate::error::{Error, Kind};
use crate::handler::Work;
use crate::processor::check::refuse_prefetch;
use crate::processor::errors::ErrorSource;
use crate::processor::locks::Renewal;
use crate::processor::runner::{Ended, Runner};
use crate::receiver::Receiver;

impl Pump {
    /// Returns the number of messages of one call.
    fn call_size(&self) -> u32 {
        self.settings.batching.as_ref().map_or(1, |batching| batching.count_max)
    }

    /// Updates the room for messages after a change of the target, the phase or the kill switch.
    fn measure(&mut self) {
        let limit = self.switch.as_ref().and_then(|switch| switch.limit()).unwrap_or(u32::MAX);
        self.slots.target = self.target.min(limit).saturating_mul(self.call_size());
        self.slots.is_open = self.phase == Phase::Running && !self.session.is_lost && !self.is_session_over();
    }

    /// Starts handlers for buffered messages while slots are free.
    pub(super) fn start_ready(&mut self) {
        self.measure();
        match self.settings.batching.clone() {
            None => {
                while self.slots.can_start()
                    && let Some(held) = self.take_buffered()
                {
                    self.start(vec![held]);
                }
            }
            Some(batching) => {
                while self.can_start_batch() {
                    let held: Vec<_> = (0..batching.count_max).map_while(|_| self.take_buffered()).collect();
                    if !held.is_empty() {
                        self.start(held);
                    }
                }
            }
        }
    }

    fn can_start_batch(&self) -> bool {
        let Some(batching) = &self.settings.batching else { return false };
        let calls_max = self.slots.target / batching.count_max.max(1);
        let has_slot =
            self.slots.is_open && self.running.len() < usize::try_from(calls_max).unwrap_or(usize::MAX);
        let is_due = self.batch_started().is_some_and(|since| since + batching.wait <= Instant::now());
        has_slot && !self.buffer.is_empty() && (self.slots.buffered >= batching.count_max || is_due)
    }

    /// Returns the moment since which the first buffered message waits for others.
    fn batch_started(&self) -> Option<Instant> {
        self.buffer.front().map(|held| held.since)
    }

    /// Returns the moment at which an incomplete batch starts.
    pub(super) fn batch_due(&self) -> Option<Instant> {
        let batching = self.settings.batching.as_ref()?;
        let calls_max = usize::try_from(self.slots.target / batching.count_max.max(1)).unwrap_or(usize::MAX);
        let due = self.batch_started()?.checked_add(batching.wait)?;
        (self.slots.is_open && self.running.len() < calls_max).then_some(due)
    }

    /// Takes the oldest buffered message whose lock has not passed.
    fn take_buffered(&mut self) -> Option<Held> {
        let now = Instant::now();
        loop {
            let held = self.buffer.pop_front()?;
            self.slots.buffered -= 1;
            if held.work.deadline().is_none_or(|deadline| now < deadline) {
                return Some(held);
            }
            self.drop_passed(&held);
        }
    }

    /// Starts one call of the handler.
    fn start(&mut self, held: Vec<Held>) {
        let now = Instant::now();
        held.iter().for_each(|held| self.schedule.start(held.key, now, self.settings.renew));
        self.slots.running += count(held.len());
        self.session.count += u64::from(count(held.len()));
        let abort = match &self.settings.batching {
            None => {
                let works: Option<_> = held.first().map(|held| Arc::clone(&held.work));
                let Some(work) = works else { return };
                self.tasks.spawn(run_one(Arc::clone(&self.runner), work))
            }
            Some(batching) => {
                let works = held.iter().map(|held| Arc::clone(&held.work)).collect();
                self.tasks.spawn(batching.clone().run(Arc::clone(&self.runner), works))
            }
        };
        self.running.insert(abort.id(), Running { held, abort, cancel: None });
    }

    /// Handles the end of a call.
    pub(super) fn finish(&mut self, done: Result<(task::Id, Vec<Ended>), JoinError>) {
        let (id, ends) = match done {
            Ok((id, ends)) => (id, Some(ends)),
            Err(error) => (error.id(), None),
        };
        // A stuck call was removed before.
        let Some(running) = self.running.remove(&id) else { return };
        self.slots.running -= count(running.held.len());
        running.held.iter().for_each(|held| self.forget_lock(held.key));
        self.session.idle_since = Instant::now();
        match ends {
            Some(ends) => ends.into_iter().for_each(|end| self.count(end)),
            None => {
                self.report.cancelled += running.held.len() as u64;
                running.held.into_iter().for_each(|held| self.hand_back(held.work, Delivery::interrupt));
            }
        }
    }

    fn count(&mut self, end: Ended) {
        let is_draining = matches!(self.phase, Phase::Draining { .. });
        self.report.completed += u64::from(is_draining);
        match end {
            Ended::Completed => self.counts.0 += 1,
            Ended::Failed => self.counts.1 += 1,
            Ended::Released => return,
            Ended::Fatal => {
                self.counts.1 += 1;
                self.fail();
            }
        }
        let has_failed = !matches!(end, Ended::Completed);
        if let Some(switch) = &mut self.switch
            && switch.record(Instant::now(), has_failed)
        {
            self.tell_tripped();
        }
    }

    fn tell_tripped(&self) {
        let text = format!(
            "Too many handlers of \"{}\" fail, so the kill switch has paused the processor. Find the reason in the errors before this one; the processor tries again by itself.",
            self.runner.entity
        );
        self.report(ErrorSource::Handler, Error::new(Kind::Handler, "E-PROC-08", text));
    }

    /// Adds a message that has arrived.
    pub(super) fn arrived(&mut self, delivery: Delivery) {
        let now = Instant::now();
        self.failed_opens = 0;
        self.slots.requested = self.slots.requested.saturating_sub(1);
        let key = self.next_key;
        self.next_key += 1;
        let in_session = self.receiver.as_ref().and_then(Receiver::session).cloned();
        let lock = if in_session.is_some() { None } else { delivery.lock_remaining() };
        let renewal = delivery.renewal().map(Renewal::Message);
        let deadline = lock.and_then(|lock| now.checked_add(lock));
        let work = Arc::new(Work::new(delivery, Arc::clone(&self.runner.entity), in_session, deadline));
        if let (Some(lock), Some(renewal)) = (lock, renewal) {
            let renew = self.settings.renew;
            self.schedule.add(key, now, lock, renew, fastrand::f64());
            self.locks.insert(key, (Some(Arc::clone(&work)), renewal));
        }
        self.refuse_prefetch(&work);
        self.buffer.push_back(Held { key, work, since: now });
        self.slots.buffered += 1;
    }

    /// Adds the messages that have arrived already, without waiting.
    pub(super) fn take_arrived(&mut self) {
        while self.slots.requested > 0
            && let Some(receiver) = &mut self.receiver
        {
            match receiver.try_next() {
                Ok(Some(delivery)) => self.arrived(delivery),
                Ok(None) => return,
                Err(error) => self.fail_to_receive(error),
            }
        }
    }

    /// Handles an error of the receiver, which has handed back a message that is not AMQP, or has ended.
    pub(super) fn fail_to_receive(&mut self, error: Error) {
        if error.kind() == Kind::Malformed {
            self.slots.requested = self.slots.requested.saturating_sub(1);
            self.report(ErrorSource::Receive, error);
        } else {
            self.lose_receiver(Some(error));
        }
    }

    /// Ends the prefetch at the first message with a class, if the start could not see that the queue has classes.
    fn refuse_prefetch(&mut self, work: &Work) {
        if self.slots.prefetch > 0 && work.message().class().is_some() {
            let error = refuse_prefetch(&self.runner.entity, self.slots.prefetch);
            self.runner.reporter.report(ErrorSource::Receive, error);
            self.slots.prefetch = 0;
        }
    }

    /// Takes back credit that is more than the free slots, and hands back messages that have no slot.
    pub(super) async fn trim(&mut self) {
        self.measure();
        if self.slots.is_over() {
            self.drain().await;
            self.start_ready();
        }
        for _ in 0..self.slots.surplus() {
            // The newest goes back first, so that the order of the others stays.
            let Some(held) = self.buffer.pop_back() else { return };
            self.slots.buffered -= 1;
            self.forget_lock(held.key);
            self.report.released += u64::from(matches!(self.phase, Phase::Draining { .. }));
            self.release(held.work);
        }
    }

    /// Takes back all credit. The messages that were in flight are buffered.
    async fn drain(&mut self) {
        let Some(receiver) = &mut self.receiver else {
            self.slots.requested = 0;
            return;
        };
        let result = timeout(LINK_TIME_MAX, receiver.drain()).await;
        let mut arrived = Vec::new();
        let mut failure = None;
        loop {
            match receiver.try_next() {
                Ok(Some(delivery)) => arrived.push(delivery),
                Ok(None) => break,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        arrived.into_iter().for_each(|delivery| self.arrived(delivery));
        self.slots.requested = 0;
        match (result, failure) {
            (Ok(Ok(())), None) => {}
            (Ok(Err(error)), _) | (_, Some(error)) => self.lose_receiver(Some(error)),
            (Err(_), None) => self.lose_receiver(None),
        }
    }

    /// Hands a message back that was not started. Its delivery count does not increase.
    pub(super) fn release(&mut self, work: Arc<Work>) {
        self.hand_back(work, Delivery::release);
    }

    fn hand_back<F>(&mut self, work: Arc<Work>, settle: impl FnOnce(Delivery) -> F + Send + 'static)
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        if work.lock_lost.has_fired() {
            return work.leave();
        }
        let Some(delivery) = work.take() else { return };
        let runner = Arc::clone(&self.runner);
        self.releases.spawn(async move {
            if let Err(error) = settle(delivery).await {
                runner.reporter.report_work(ErrorSource::Settle, error, &work);
            }
        });
    }

    /// Requests as many messages as there are free slots.
    pub(super) async fn grant(&mut self) {
        self.measure();
        let due = self.slots.due();
        if due == 0 {
            return;
        }
        let Some(receiver) = &self.receiver else { return };
        match receiver.add_credit(due).await {
            Ok(()) => self.slots.requested += due,
            Err(error) => self.lose_receiver(Some(error)),
        }
    }

    /// Handles the end of the link. A processor attaches it again after a pause, for as long as it runs; a session is gone.
    pub(super) fn lose_receiver(&mut self, error: Option<Error>) {
        self.receiver = None;
        self.slots.requested = 0;
        let is_session = self.settings.session.is_some();
        if let Some(error) = error {
            let source = if is_session { ErrorSource::RenewLock } else { ErrorSource::Receive };
            if !self.session.is_lost {
                self.report(source, error);
            }
        }
        if is_session {
            return self.lose_session();
        }
        self.reopen_later();
    }

    fn reopen_later(&mut self) {
        self.failed_opens = self.failed_opens.saturating_add(1);
        let backoff = Backoff::exponential(Duration::from_millis(500), Duration::from_secs(30));
        let pause = backoff.pause(self.failed_opens, Duration::ZERO, fastrand::f64());
        self.reopen_at = pause.and_then(|pause| Instant::now().checked_add(pause));
    }

    pub(super) fn reopen(&mut self) {
        if self.receiver.is_some() || self.opening.is_some() || matches!(self.phase, Phase::Draining { .. }) {
            return;
        }
        if let Some(opener) = self.opener.take() {
            self.opening = Some(tokio::spawn(async move {
                let result = opener().await;
                (opener, result)
            }));
        }
    }

    pub(super) fn opened(&mut self, opener: super::Opener, result: Result<Receiver, Error>) {
        self.opening = None;
        self.opener = Some(opener);
        match result {
            Ok(receiver) => self.receiver = Some(receiver),
            Err(error) => {
                self.report(ErrorSource::Connect, error);
                self.reopen_later();
            }
        }
    }

    /// Ends the processor because a handler requires it.
    pub(super) fn fail(&mut self) {
        self.end = PumpEnd::Failed;
        self.drain_until(super::STOP_DEADLINE);
    }
}

async fn run_one(runner: Arc<Runner>, work: Arc<Work>) -> Vec<Ended> {
    vec![runner.run(work).await]
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
