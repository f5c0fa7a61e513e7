//! The timer of a pump, and what is due.

use std::pin::Pin;

use tokio::time::{Instant, Sleep, sleep_until};

use super::{Phase, Pump};
use crate::processor::kill_switch::Switch;
use crate::processor::renewal::Step;

/// One timer for everything, which is only reset when it would fire too late.
pub(super) struct Timer {
    pub(super) sleep: Pin<Box<Sleep>>,
    pub(super) armed: Option<Instant>,
}

impl Timer {
    pub(super) fn new(now: Instant) -> Self {
        Timer { sleep: Box::pin(sleep_until(now)), armed: None }
    }
}

impl Pump {
    /// Handles everything whose time has come.
    pub(super) fn tick(&mut self) {
        let now = self.now;
        while let Some(step) = self.schedule.poll(now) {
            match step {
                Step::Renew(key) => self.renew(key),
                Step::Lost(key) => self.lose_lock(key, None),
            }
        }
        if let Some(switch) = &mut self.switch {
            switch.tick(now);
        }
        if self.reopen_at.is_some_and(|at| at <= now) {
            self.reopen_at = None;
            self.reopen();
        }
        self.tick_phase(now);
        self.tick_session(now);
        self.tick_cancellations(now);
        self.tick_settling(now);
    }

    /// Resets the timer if it would fire too late. A timer that fires too early costs one turn.
    pub(super) fn arm(&mut self) {
        let Some(next) = self.next_moment() else { return };
        if self.timer.armed.is_none_or(|armed| next < armed) {
            self.timer.sleep.as_mut().reset(next);
            self.timer.armed = Some(next);
        }
    }

    fn next_moment(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Draining { deadline, is_cancelling: false } => Some(deadline),
            Phase::Draining { .. } if self.settling.len() > self.returning_count => self.give_up_at(),
            _ => None,
        };
        let switch = self.switch.as_ref().and_then(Switch::next);
        let moments =
            [phase, self.schedule.next(), switch, self.reopen_at, self.batch_due(), self.session_due()];
        moments.into_iter().flatten().chain(self.cancellation_due()).min()
    }
}
