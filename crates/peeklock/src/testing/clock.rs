//! The virtual clock: the paused clock of the Tokio runtime.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use peeklock_client::Timestamp;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;

/// The time that passes while tasks settle. The timers of Tokio count milliseconds, and a deadline of the broker is rounded up by one, so a
/// timer that is due now fires within this time.
const SETTLE_TIME: Duration = Duration::from_millis(3);

/// The paused clock of the current runtime, with the wall time of its start.
pub(super) struct VirtualClock {
    start: Instant,
    start_wall: Timestamp,
}

impl VirtualClock {
    /// Pauses the clock unless it is paused.
    ///
    /// # Panics
    /// If the runtime has several threads, because their clock cannot be paused.
    pub(super) fn pause() -> Self {
        assert!(
            Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread,
            "E-TEST-01 TestBroker needs a runtime with one thread, whose clock can be paused. Use #[tokio::test] without a flavor."
        );
        if !is_paused() {
            tokio::time::pause();
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let start_wall = Timestamp::from_millis(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX));
        VirtualClock { start: Instant::now(), start_wall }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.start_wall + self.start.elapsed()
    }

    /// Passes all timers within `span` in order.
    pub(super) async fn advance(&self, span: Duration) {
        // A paused clock moves on only when all tasks wait, and then to the next timer, so this sleep ends after all earlier timers and
        // what they started.
        tokio::time::sleep(span).await;
        self.settle().await;
    }

    /// Waits until all tasks wait.
    pub(super) async fn settle(&self) {
        tokio::time::sleep(SETTLE_TIME).await;
    }
}

/// Returns whether the clock of the runtime is paused. Tokio has no function for it.
fn is_paused() -> bool {
    let (real, virtual_start) = (std::time::Instant::now(), Instant::now());
    while real.elapsed() < Duration::from_micros(1) {
        std::hint::spin_loop();
    }
    Instant::now() == virtual_start
}
