//! A signal that fires once and stays fired.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Signal {
    has_fired: AtomicBool,
    waiting: Notify,
}

impl Signal {
    pub(crate) fn fire(&self) {
        self.has_fired.store(true, Ordering::Release);
        self.waiting.notify_waiters();
    }

    pub(crate) fn has_fired(&self) -> bool {
        self.has_fired.load(Ordering::Acquire)
    }

    /// Returns when the signal fires, or at once if it has.
    pub(crate) async fn fired(&self) {
        // The future is created before the flag is read, so a signal between the two wakes it.
        let notified = self.waiting.notified();
        if !self.has_fired() {
            notified.await;
        }
    }
}
