//! The status of a pump for its owner.

use super::{Phase, Pump};
use crate::processor::status::State;

/// What a pump has published. Session pumps share one status, so each adds its changes only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Published {
    state: State,
    target: u32,
    is_tripped: bool,
    running: u32,
    held: u32,
    completed: u64,
    failed: u64,
}

impl Pump {
    fn to_publish(&self) -> Published {
        let state = match self.phase {
            Phase::Running => State::Running,
            Phase::Paused => State::Paused,
            Phase::Draining { .. } => State::Draining,
        };
        let (running, (completed, failed)) = (self.slots.running, self.counts);
        let held = running.saturating_add(self.slots.buffered);
        let is_tripped = self.switch.as_ref().is_some_and(|switch| switch.limit().is_some());
        Published { state, target: self.target, is_tripped, running, held, completed, failed }
    }

    /// Publishes the status if it has changed.
    pub(super) fn publish(&mut self) {
        let (old, new) = (self.published, self.to_publish());
        if old == new {
            return;
        }
        self.published = new;
        // The sessions of a processor have one state together, which is not theirs.
        let is_alone = self.settings.session.is_none();
        let reporter = &self.runner.reporter;
        self.status.send_modify(|status| {
            status.running = status.running.saturating_sub(old.running).saturating_add(new.running);
            status.held = status.held.saturating_sub(old.held).saturating_add(new.held);
            status.completed += new.completed - old.completed;
            status.failed += new.failed - old.failed;
            status.is_tripped = new.is_tripped;
            if is_alone {
                if status.state != new.state {
                    let state = new.state;
                    tracing::info!(queue = reporter.entity(), processor = reporter.processor(), %state, "processor state");
                }
                (status.state, status.target) = (new.state, new.target);
            }
        });
    }
}
