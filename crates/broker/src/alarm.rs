use std::pin::Pin;

use tokio::time::{Instant, Sleep};

/// A timer for loops that look at it again and again. It is set anew only when it must ring earlier than before: a deadline that moves
/// away, as most do, costs nothing, where a fresh timer each time would lock the runtime's timers and often wake a sleeping thread.
#[derive(Debug)]
pub struct Alarm {
    sleep: Pin<Box<Sleep>>,
    /// When the timer rings; `None` once it has.
    set_to: Option<Instant>,
}

impl Default for Alarm {
    fn default() -> Self {
        Alarm { sleep: Box::pin(tokio::time::sleep_until(Instant::now())), set_to: None }
    }
}

impl Alarm {
    /// Waits until `at`; without a time, for ever. Safe to cancel.
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
    async fn it_rings_at_the_time_asked_for_last() {
        let start = Instant::now();
        let mut alarm = Alarm::default();
        let after = |seconds| Some(start + Duration::from_secs(seconds));
        for seconds in [5, 20, 10] {
            let early = tokio::time::timeout(Duration::from_secs(1), alarm.wait_until(after(seconds))).await;
            assert!(early.is_err(), "{seconds} s are not over");
        }
        alarm.wait_until(after(10)).await;
        assert_eq!(start.elapsed().as_secs(), 10);
        alarm.wait_until(after(20)).await;
        assert_eq!(start.elapsed().as_secs(), 20);
    }
}
