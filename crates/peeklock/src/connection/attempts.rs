//! The attempts of one operation: which errors are retried, and the pauses between them.

use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::error::Error;

/// Counts the failed attempts of one operation and waits between them.
pub(crate) struct Attempts {
    backoff: Backoff,
    failed_count: u32,
    started_at: Instant,
}

impl Attempts {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Attempts { backoff, failed_count: 0, started_at: Instant::now() }
    }

    /// Returns the number of attempts, with the one that has just failed, and their time.
    pub(crate) fn count(&self) -> (u32, Duration) {
        (self.failed_count.saturating_add(1), self.started_at.elapsed())
    }

    /// Waits before the next attempt of an operation on a connection. Returns the error if a further attempt does not help or is not due.
    pub(crate) async fn retry_after(&mut self, error: Error) -> Result<(), Error> {
        if error.is_retried() { self.pause(error).await } else { Err(error) }
    }

    /// Waits before the connection is dialled again. Returns the error if it is permanent or if no further attempt is due.
    pub(crate) async fn dial_again_after(&mut self, error: Error) -> Result<(), Error> {
        if error.is_transient() { self.pause(error).await } else { Err(error) }
    }

    /// Waits before the next attempt, whatever the error. Returns the error if no further attempt is due.
    pub(crate) async fn pause(&mut self, error: Error) -> Result<(), Error> {
        self.failed_count = self.failed_count.saturating_add(1);
        let elapsed = self.started_at.elapsed();
        let Some(pause) = self.backoff.pause(self.failed_count, elapsed, fastrand::f64()) else {
            return Err(error);
        };
        tokio::time::sleep(pause.max(error.retry_after().unwrap_or_default())).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[tokio::test(start_paused = true)]
    async fn a_busy_broker_determines_the_pause() {
        let mut attempts = Attempts::new(Backoff::default());
        let busy = Error::new(Kind::Busy, "E-BUSY-01", "busy").transient(Some(Duration::from_secs(7)));
        let start = Instant::now();
        attempts.retry_after(busy).await.unwrap();
        assert_eq!(start.elapsed(), Duration::from_secs(7));
    }

    #[tokio::test(start_paused = true)]
    async fn permanent_errors_are_returned_at_once() {
        let mut attempts = Attempts::new(Backoff::default());
        let gone = Error::new(Kind::NotFound, "E-ENT-04", "gone");
        assert_eq!(attempts.retry_after(gone).await.unwrap_err().code(), "E-ENT-04");
    }
}
