//! The commands of the owner: pause, resume, change the number of calls, stop.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::calls::Cancel;
use super::{LINK_TIME_MAX, Phase, Pump, PumpEnd, STOP_DEADLINE, STUCK_AFTER};
use crate::processor::handle::Command;
use crate::session_processor::call_back;

/// A deadline that is never reached.
const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl Pump {
    pub(super) fn obey(&mut self, command: Command) {
        match command {
            Command::Pause { drains, reply } => {
                if self.phase == Phase::Running {
                    self.phase = Phase::Paused;
                }
                if drains { self.replies.drained.push(reply) } else { self.replies.quiet.push(reply) }
            }
            Command::Resume { reply } => {
                if self.phase == Phase::Paused {
                    self.phase = Phase::Running;
                    self.session.idle_since = self.now;
                }
                let _ = reply.send(());
            }
            Command::SetMax { max, cancels, reply } => {
                self.target = max;
                if cancels {
                    self.cancel_surplus();
                }
                let _ = reply.send(());
            }
            Command::Stop { deadline, reply } => {
                self.replies.stopped.push(reply);
                self.drain_until(deadline);
            }
        }
    }

    /// Stops a pump whose last handle was dropped.
    pub(super) fn lose_owner(&mut self) {
        self.has_owner = false;
        self.drain_until(STOP_DEADLINE);
    }

    /// Starts to stop, or shortens a stop.
    pub(super) fn drain_until(&mut self, deadline: Duration) {
        let wanted = self.now + deadline.min(FAR);
        self.phase = match self.phase {
            Phase::Draining { deadline, is_cancelling } => {
                Phase::Draining { deadline: deadline.min(wanted), is_cancelling }
            }
            Phase::Running | Phase::Paused => Phase::Draining { deadline: wanted, is_cancelling: false },
        };
    }

    /// Cancels the running handlers at the deadline of a stop.
    pub(super) fn tick_phase(&mut self, now: Instant) {
        if let Phase::Draining { deadline, is_cancelling: false } = self.phase
            && deadline <= now
        {
            self.phase = Phase::Draining { deadline, is_cancelling: true };
            self.cancel_beyond(0);
        }
    }

    /// Cancels the newest calls that are more than the target.
    fn cancel_surplus(&mut self) {
        self.cancel_beyond(usize::try_from(self.target).unwrap_or(usize::MAX));
    }

    /// Asks all calls after the oldest ones to end. After the grace period they are dropped.
    fn cancel_beyond(&mut self, kept: usize) {
        let next = self.now.checked_add(self.settings.grace).unwrap_or(self.now);
        for running in self.running.values_mut().skip(kept).filter(|running| running.cancel.is_none()) {
            running.held.iter().for_each(|held| held.work.cancelled.fire());
            running.cancel = Some(Cancel { next, is_aborted: false });
            self.cancelled_count += 1;
        }
    }

    /// Returns the moment of the next step of a cancellation.
    pub(super) fn cancellation_due(&self) -> Option<Instant> {
        if self.cancelled_count == 0 {
            return None;
        }
        self.running.values().filter_map(|running| running.cancel).map(|cancel| cancel.next).min()
    }

    /// Drops calls whose grace period is over, and gives up on those that cannot be dropped.
    pub(super) fn tick_cancellations(&mut self, now: Instant) {
        if self.cancelled_count == 0 {
            return;
        }
        let mut stuck = Vec::new();
        for (number, running) in &mut self.running {
            let Some(cancel) = running.cancel.as_mut().filter(|cancel| cancel.next <= now) else { continue };
            if cancel.is_aborted {
                stuck.push(*number);
            } else {
                running.abort.abort();
                *cancel = Cancel { next: now + STUCK_AFTER, is_aborted: true };
            }
        }
        for number in stuck {
            let Some(running) = self.running.remove(&number) else { continue };
            self.cancelled_count -= 1;
            self.slots.running -= u32::try_from(running.held.len()).unwrap_or(u32::MAX);
            for held in running.held {
                // The work still goes on, so nobody else may get the message before its lock expires.
                self.forget_lock(held.key);
                held.work.leave();
                self.report.stuck += 1;
            }
        }
    }

    /// Answers the callers whose state is reached.
    pub(super) fn answer(&mut self) {
        let is_quiet = self.slots.requested == 0 && self.buffer.is_empty() && self.returning_count == 0;
        if self.phase == Phase::Running {
            // A resume ends the wait for a pause.
            self.replies.quiet.clear();
            self.replies.drained.clear();
        } else if is_quiet {
            answer_all(&mut self.replies.quiet);
            if self.running.is_empty() && self.settling.is_empty() {
                answer_all(&mut self.replies.drained);
            }
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Draining { .. })
            && self.running.is_empty()
            && self.buffer.is_empty()
            && self.settling.is_empty()
    }

    /// Completes the report and detaches the link.
    pub(super) async fn close(&mut self) {
        (self.report.completed, self.report.failed) = self.counts;
        self.renewals.abort_all();
        if let Some(opening) = self.opening.take() {
            opening.abort();
        }
        if let Some(receiver) = self.receiver.take() {
            if let (Some(on_close), Some(session), false) =
                (&self.settings.on_close, receiver.session().cloned(), self.session.is_lost)
            {
                call_back(on_close, session).await;
            }
            if let (Some(hand_over), PumpEnd::LetGo, true) =
                (&self.settings.hand_over, &self.end, self.is_session_over())
                && !receiver.serves_sessions_in_turn()
            {
                hand_over().await;
            }
            // The link is gone as well if the connection is: there is nothing to detach, and nothing to report.
            let closing = timeout(LINK_TIME_MAX, receiver.close()).await;
            if let Ok(Err(error)) = closing {
                tracing::debug!(queue = %self.runner.entity, "the link was not detached: {error}");
            }
        }
    }
}

fn answer_all(replies: &mut Vec<oneshot::Sender<()>>) {
    for reply in replies.drain(..) {
        // A caller that has stopped waiting needs no answer.
        let _ = reply.send(());
    }
}
