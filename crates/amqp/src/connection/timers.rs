//! Deadlines: due heartbeats, the longest tolerated silence, and the ends of handshake and close.

use std::time::Duration;

use super::{Config, Millis};

/// The shortest interval between heartbeats, however short a peer's idle time-out is.
const PING_INTERVAL_MIN: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Timers {
    pub(super) started_at: Millis,
    pub(super) heard_at: Millis,
    handshake_timeout: Duration,
    /// Our advertised idle time-out, doubled.
    // AMQP 1.0 §2.4.5 recommends to advertise half of the enforced time; clients with a slow keep-alive depend on it.
    silence_max: Option<Duration>,
    ping: Option<Ping>,
    close_timeout: Duration,
    close_at: Option<Millis>,
}

#[derive(Debug)]
struct Ping {
    interval: Duration,
    at: Millis,
}

impl Timers {
    pub(super) fn new(config: &Config, now: Millis) -> Self {
        Self {
            started_at: now,
            heard_at: now,
            handshake_timeout: config.handshake_timeout,
            silence_max: config.idle_timeout.map(|timeout| timeout.saturating_mul(2)),
            ping: None,
            close_timeout: config.close_timeout,
            close_at: None,
        }
    }

    /// Stores the peer's idle time-out. We send twice within it.
    pub(super) fn learn(&mut self, now: Millis, idle_time_out_ms: Option<u32>) {
        self.ping = idle_time_out_ms.filter(|ms| *ms > 0).map(|ms| {
            let interval = (Duration::from_millis(u64::from(ms)) / 2).max(PING_INTERVAL_MIN);
            Ping { interval, at: now.after(interval) }
        });
    }

    pub(super) fn handshake_at(&self) -> Millis {
        self.started_at.after(self.handshake_timeout)
    }

    pub(super) fn silent_at(&self) -> Option<Millis> {
        self.silence_max.map(|span| self.heard_at.after(span))
    }

    pub(super) fn running_at(&self) -> Option<Millis> {
        let ping_at = self.ping.as_ref().map(|ping| ping.at);
        [ping_at, self.silent_at()].into_iter().flatten().min()
    }

    /// Returns the deadline of the peer's close. The close call has no time, so the wait starts with the first timeout
    /// after it: at once.
    pub(super) fn close_at(&self) -> Millis {
        self.close_at.unwrap_or_default()
    }

    /// Returns whether the wait for the peer's close is over. The first call starts the wait.
    pub(super) fn close_is_overdue(&mut self, now: Millis) -> bool {
        match self.close_at {
            Some(at) => at <= now,
            None => {
                self.close_at = Some(now.after(self.close_timeout));
                false
            }
        }
    }

    /// Returns whether a heartbeat is due and, if so, schedules the next one.
    pub(super) fn take_ping(&mut self, now: Millis) -> bool {
        match &mut self.ping {
            Some(ping) if ping.at <= now => {
                ping.at = now.after(ping.interval);
                true
            }
            _ => false,
        }
    }
}
