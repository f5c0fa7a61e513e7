//! The offset by which a test has moved the clocks of this process. Only builds with the feature `test-clock` contain
//! it; in all others the offset is zero.
//!
//! Interop tests run unmodified SDKs against a broker in a separate process. A test that needs minutes of a lock or of
//! a time to live moves the broker's clock instead of waiting. AMQP idle timeouts and all other network timers stay on
//! real time.

pub use implementation::*;

#[cfg(feature = "test-clock")]
mod implementation {
    use std::sync::OnceLock;
    use std::time::Duration;

    use tokio::sync::watch;

    /// The offset; empty unless the clocks may be moved. There is one per process, because all of its namespaces must
    /// agree on the time.
    static SHIFT: OnceLock<watch::Sender<Duration>> = OnceLock::new();

    /// Permits [`set`]. Call it before the first broker opens: a broker that is already open does not wake up for
    /// moves.
    pub fn allow() {
        SHIFT.get_or_init(|| watch::Sender::new(Duration::ZERO));
    }

    /// Sets all clocks of this process to `ahead` of the real time. A smaller value than before sets them back.
    pub fn set(ahead: Duration) {
        if let Some(shift) = SHIFT.get() {
            shift.send_replace(ahead);
        }
    }

    pub(crate) fn current() -> Duration {
        SHIFT.get().map_or(Duration::ZERO, |shift| *shift.borrow())
    }

    /// The moves of the clocks since this value was created.
    #[derive(Debug)]
    pub struct Moves(Option<watch::Receiver<Duration>>);

    impl Moves {
        pub(crate) fn from_now_on() -> Self {
            Moves(SHIFT.get().map(watch::Sender::subscribe))
        }

        /// Waits for the next move. The call is safe to cancel.
        pub async fn next(&mut self) {
            let Some(shift) = &mut self.0 else { return std::future::pending().await };
            if shift.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }
}

#[cfg(not(feature = "test-clock"))]
mod implementation {
    use std::time::Duration;

    pub(crate) const fn current() -> Duration {
        Duration::ZERO
    }

    /// The moves of the clocks, of which there are none in this build.
    #[derive(Debug)]
    pub struct Moves;

    impl Moves {
        pub(crate) const fn from_now_on() -> Self {
            Moves
        }

        /// Waits for ever.
        pub async fn next(&mut self) {
            std::future::pending().await
        }
    }
}
