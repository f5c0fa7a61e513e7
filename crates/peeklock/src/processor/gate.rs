//! Credit by the readiness of the service. A layer that is not ready, such as a limit of the rate, holds messages back in the queue.

/// The number of calls that a service is expected to take.
///
/// A service says only whether it takes a further call, and messages have to be requested before. So the gate learns: a service that took five
/// calls and then was not ready is expected to take five again. As long as it stays ready, it is expected to take more.
#[derive(Debug)]
pub(super) struct Gate {
    phase: Phase,
    /// The calls since the service became ready.
    started: u32,
    /// The calls after which the service was not ready the last time.
    expected: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Ready,
    Waiting,
    /// The service will never be ready again.
    Failed,
}

impl Default for Gate {
    fn default() -> Self {
        Gate { phase: Phase::Ready, started: 0, expected: u32::MAX }
    }
}

impl Gate {
    pub(super) fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Returns whether the processor waits until the service is ready.
    pub(super) fn is_waiting(&self) -> bool {
        self.phase == Phase::Waiting
    }

    /// Returns how many messages the service is expected to take now.
    pub(super) fn room(&self) -> u32 {
        if self.is_ready() { self.expected.saturating_sub(self.started) } else { 0 }
    }

    /// Counts a call.
    pub(super) fn start(&mut self) {
        self.started = self.started.saturating_add(1);
    }

    /// Handles that the service is ready for a call.
    pub(super) fn ready(&mut self) {
        match self.phase {
            Phase::Ready if self.room() > 0 => {}
            Phase::Ready if self.expected == u32::MAX => self.started = 0,
            Phase::Ready => self.expected = self.expected.saturating_mul(2),
            Phase::Waiting => (self.phase, self.started) = (Phase::Ready, 0),
            Phase::Failed => {}
        }
    }

    /// Handles that the service takes no call now.
    pub(super) fn pending(&mut self) {
        if self.phase == Phase::Ready {
            (self.phase, self.expected) = (Phase::Waiting, self.started.max(1));
        }
    }

    /// Handles that the service has failed.
    pub(super) fn fail(&mut self) {
        self.phase = Phase::Failed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts up to `count` calls of a service that takes `takes` of them.
    fn start(gate: &mut Gate, count: u32, takes: u32) {
        for at in 0..count {
            if at == takes {
                return gate.pending();
            }
            gate.ready();
            gate.start();
        }
        if count == takes { gate.pending() } else { gate.ready() }
    }

    #[test]
    fn a_service_is_expected_to_take_as_many_calls_as_before() {
        let mut gate = Gate::default();
        start(&mut gate, 100, 5);
        assert_eq!((gate.room(), gate.is_ready(), gate.is_waiting()), (0, false, true));
        gate.ready();
        assert_eq!((gate.room(), gate.is_ready()), (5, true));
        start(&mut gate, 2, 5);
        assert_eq!(gate.room(), 3);
    }

    #[test]
    fn a_service_that_stays_ready_is_expected_to_take_more() {
        let mut gate = Gate::default();
        start(&mut gate, 100, 0);
        gate.ready();
        let mut rooms = Vec::new();
        for _ in 0..4 {
            rooms.push(gate.room());
            let room = gate.room();
            start(&mut gate, room, u32::MAX);
        }
        assert_eq!(rooms, [1, 1, 2, 4]);
    }

    #[test]
    fn a_failed_service_never_gets_a_message_again() {
        let mut gate = Gate::default();
        gate.fail();
        gate.ready();
        gate.pending();
        assert_eq!((gate.room(), gate.is_ready(), gate.is_waiting()), (0, false, false));
    }
}
