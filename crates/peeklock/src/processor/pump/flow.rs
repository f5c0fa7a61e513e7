//! Messages that arrive in a pump, and their credit.

use std::sync::Arc;

use tokio::time::{Instant, timeout};

use super::{Held, LINK_TIME_MAX, Phase, Pump, PumpEnd};
use crate::delivery::Delivery;
use crate::error::{Error, Kind};
use crate::handler::Work;
use crate::processor::check::refuse_prefetch;
use crate::processor::errors::ErrorSource;
use crate::receiver::Receiver;

impl Pump {
    /// Updates the room for messages after a change of the target, the phase or the kill switch.
    pub(super) fn measure(&mut self) {
        let limit = self.switch.as_ref().and_then(|switch| switch.limit()).unwrap_or(u32::MAX);
        self.slots.target = self.target.min(limit).saturating_mul(self.call_size());
        let is_wanted = self.phase == Phase::Running && !self.session.is_lost && !self.is_session_over();
        self.slots.is_open = is_wanted && self.gate.is_ready();
        self.slots.gate = self.is_gated().then(|| self.gate.room());
    }

    /// Adds a message that has arrived.
    pub(super) fn arrived(&mut self, delivery: Delivery) {
        self.failed_opens = 0;
        self.slots.requested = self.slots.requested.saturating_sub(1);
        let (key, since) = (self.next_key, self.now);
        self.next_key += 1;
        let session = self.receiver.as_ref().and_then(Receiver::session).cloned();
        let work = Arc::new(Work::new(delivery, Arc::clone(&self.runner.entity), session, since));
        self.refuse_prefetch(&work);
        self.buffer.push_back(Held { key, work, since, is_guarded: false });
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
        if self.phase == Phase::Running {
            self.is_service_ready().await;
        }
        self.measure();
        if self.slots.is_over() {
            self.drain().await;
            self.start_ready().await;
            self.measure();
        }
        for _ in 0..self.slots.surplus() {
            // The newest goes back first, so that the order of the others stays.
            let Some(held) = self.buffer.pop_back() else { return };
            self.slots.buffered -= 1;
            self.count_released();
            self.release(held);
        }
    }

    /// Counts a message that a stop hands back.
    pub(super) fn count_released(&mut self) {
        let is_stopping = matches!(self.phase, Phase::Draining { .. }) && !matches!(self.end, PumpEnd::LetGo);
        self.report.released += u64::from(is_stopping);
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
        self.now = Instant::now();
        arrived.into_iter().for_each(|delivery| self.arrived(delivery));
        self.slots.requested = 0;
        match (result, failure) {
            (Ok(Ok(())), None) => {}
            (Ok(Err(error)), _) | (_, Some(error)) => self.lose_receiver(Some(error)),
            (Err(_), None) => self.lose_receiver(None),
        }
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

    /// Ends the processor because a handler requires it.
    pub(super) fn fail(&mut self) {
        self.end = PumpEnd::Failed;
        self.drain_until(super::STOP_DEADLINE);
    }
}
