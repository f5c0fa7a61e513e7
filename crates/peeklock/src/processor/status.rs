//! The state of a processor for its owner.

use std::fmt;

use crate::error::Error;

/// The state of a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// The processor attaches its link.
    #[default]
    Starting,
    /// The processor receives messages and calls the handler.
    Running,
    /// The processor holds no message that is not running, and requests none.
    Paused,
    /// The processor stops: it waits for running handlers.
    Draining,
    /// The processor has stopped and holds no lock.
    Stopped,
    /// A fatal error has stopped the processor. [`Status::last_error`] is the reason.
    Failed,
}

impl State {
    /// Returns whether the processor has ended.
    pub fn has_ended(self) -> bool {
        matches!(self, State::Stopped | State::Failed)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Starting => "starting",
            State::Running => "running",
            State::Paused => "paused",
            State::Draining => "draining",
            State::Stopped => "stopped",
            State::Failed => "failed",
        })
    }
}

/// The state and the counts of a processor.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Status {
    /// The state.
    pub state: State,
    /// The number of messages whose handlers run.
    pub running: u32,
    /// The number of messages that may run at a time.
    pub target: u32,
    /// The number of messages that the processor holds: running, and received in advance.
    pub held: u32,
    /// The number of messages whose handlers have succeeded.
    pub completed: u64,
    /// The number of failed deliveries. Immediate retries of one delivery count once.
    pub failed: u64,
    /// Whether the kill switch limits the processor.
    pub is_tripped: bool,
    /// The number of locked sessions, in a session processor.
    pub sessions: u32,
    /// The last error.
    pub last_error: Option<Error>,
}

/// The messages of a processor that has stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopReport {
    /// The messages whose handlers have succeeded, since the start of the processor.
    pub completed: u64,
    /// The failed deliveries, since the start of the processor. Immediate retries of one delivery count once.
    pub failed: u64,
    /// The messages that the stop has handed back: they were not started, or their handlers ended when they were asked to.
    pub released: u64,
    /// The handlers that were dropped after the deadline and the grace period. Their messages were handed back.
    pub cancelled: u64,
    /// Handlers that block a thread and could not be dropped. Their locks expire, so that nobody else gets the messages before that.
    pub stuck: u64,
    /// Tasks that were parked. A processor without pools has none.
    pub parked: u64,
}

impl StopReport {
    pub(crate) fn add(&mut self, other: &StopReport) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.released += other.released;
        self.cancelled += other.cancelled;
        self.stuck += other.stuck;
        self.parked += other.parked;
    }
}

/// Shows the completed and the failed messages, and the other numbers that are not 0.
impl fmt::Display for StopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StopReport { completed, failed, released, cancelled, stuck, parked } = *self;
        write!(f, "{completed} completed, {failed} failed")?;
        let others = [(released, "released"), (cancelled, "cancelled"), (stuck, "stuck"), (parked, "parked")];
        others
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .try_for_each(|(count, name)| write!(f, ", {count} {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_shows_what_has_happened() {
        let mut report = StopReport { completed: 5, ..StopReport::default() };
        assert_eq!(report.to_string(), "5 completed, 0 failed");
        report.add(&StopReport { failed: 1, released: 2, stuck: 1, ..StopReport::default() });
        assert_eq!(report.to_string(), "5 completed, 1 failed, 2 released, 1 stuck");
    }
}
