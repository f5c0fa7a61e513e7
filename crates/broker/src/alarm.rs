use std::pin::Pin;

use tokio::time::{Instant, Sleep};

/// A timer for loops that wait on it repeatedly. It is reset only when it must fire earlier than before. A deadline
/// that moves later, as most do, therefore costs nothing; a new timer each time would lock the runtime's timers and
/// often wake a sleeping thread.
#[derive(Debug)]
pub struct Alarm {
    sleep: Pin<Box<Sleep>>,
    /// The time at which the timer fires; `None` after it has fired.
    set_to: Option<Instant>,
}

impl Default for Alarm {
    fn default() -> Self {
        Alarm { sleep: Box::pin(tokio::time::sleep_until(Instant::now())), set_to: None }
    }
}

impl Alarm {
    /// Waits until `at`, or for ever if it is `None`. The call is safe to cancel.
    pub async fn wait_until(&mut self, at: Option<Instant>) {
        let Some(at) = at else { return std::future::pending().await };
        loop {
            if self.set_to.is_none_or(|set_to| set_to > at) {
                self.sleep.as_mut().reset(at);
                self.set_to = Some(at);
            }
            self.sleep.as_mut().await;
            let rang_at = self.set_to.take();
            if rang_at >= Some(at) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_alarm_fires_at_the_most_recently_requested_time() {
        let start = Instant::now();
        let mut alarm = Alarm::default();
        let after = |seconds| Some(start + Duration::from_secs(seconds));
        for seconds in [5, 20, 10] {
            let early = tokio::time::timeout(Duration::from_secs(1), alarm.wait_until(after(seconds))).await;
            assert!(early.is_err(), "the timer fired before {seconds} s had passed");
        }
        alarm.wait_until(after(10)).await;
        assert_eq!(start.elapsed().as_secs(), 10);
        alarm.wait_until(after(20)).await;
        assert_eq!(start.elapsed().as_secs(), 20);
    }
}
