//! Repeats requests whose connection was lost.

use std::sync::{Arc, Mutex, PoisonError};

use peeklock_client::AdminError;
use tokio::time::Instant;

use super::error;
use crate::backoff::Backoff;
use crate::connection::Dial;
use crate::error::Error;

/// The limit of connections that wait for the next request.
const IDLE_COUNT_MAX: usize = 4;

/// The connections for requests, each of which is used by one request at a time.
pub(super) struct Requests {
    dial: Arc<dyn Dial>,
    backoff: Backoff,
    idle: Mutex<Vec<peeklock_client::Admin>>,
}

/// Decides whether a request may be sent again after its answer was lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Sending it twice has the effect of sending it once.
    Always,
    /// Only if it was not sent.
    Unsent,
}

/// The attempts of one request.
pub(super) struct Attempts<'a> {
    requests: &'a Requests,
    repeat: Repeat,
    started: Instant,
    failed_count: u32,
    /// Whether the broker may have carried out an attempt whose answer was lost.
    is_unsettled: bool,
}

/// Runs a request until it has an answer or an error that stays. The second variable is true if the broker may have carried out an earlier
/// attempt.
macro_rules! attempts {
    ($self:ident, $repeat:ident, |$admin:ident| $call:expr) => {
        attempts!($self, $repeat, |$admin, _is_repeated| $call)
    };
    ($self:ident, $repeat:ident, |$admin:ident, $is_repeated:ident| $call:expr) => {{
        let repeat = $crate::admin::attempts::Repeat::$repeat;
        let mut attempts = $crate::admin::attempts::Attempts::new(&$self.requests, repeat);
        loop {
            let mut connection = attempts.connection();
            let $is_repeated = attempts.is_unsettled();
            let $admin = &mut connection;
            let result = $call;
            if let Some(value) = attempts.finish(connection, result).await? {
                break Ok(value);
            }
        }
    }};
}

impl Requests {
    pub(super) fn new(dial: Arc<dyn Dial>, backoff: Backoff) -> Self {
        Requests { dial, backoff, idle: Mutex::new(Vec::new()) }
    }

    fn take(&self) -> peeklock_client::Admin {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| self.dial.admin())
    }

    fn put_back(&self, connection: peeklock_client::Admin) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_COUNT_MAX {
            idle.push(connection);
        }
    }
}

impl<'a> Attempts<'a> {
    pub(super) fn new(requests: &'a Requests, repeat: Repeat) -> Self {
        Attempts { requests, repeat, started: Instant::now(), failed_count: 0, is_unsettled: false }
    }

    /// Returns a connection. If the request is dropped, its connection is dropped as well, so no answer reaches a later request.
    pub(super) fn connection(&self) -> peeklock_client::Admin {
        self.requests.take()
    }

    pub(super) fn is_unsettled(&self) -> bool {
        self.is_unsettled
    }

    /// Returns the answer, or `None` after a pause if the request is to be sent again.
    pub(super) async fn finish<T>(
        &mut self,
        connection: peeklock_client::Admin,
        result: Result<T, AdminError>,
    ) -> Result<Option<T>, Error> {
        let error = match result {
            Ok(value) => {
                self.requests.put_back(connection);
                return Ok(Some(value));
            }
            Err(error) => error,
        };
        if !error::is_transient(&error) {
            self.requests.put_back(connection);
            return Err(error.into());
        }
        // The next attempt uses another connection, perhaps to another broker.
        drop(connection);
        let was_sent = error::was_sent(&error);
        self.is_unsettled |= was_sent;
        self.failed_count += 1;
        let is_allowed = !was_sent || self.repeat == Repeat::Always;
        let pause = self.requests.backoff.pause(self.failed_count, self.started.elapsed(), fastrand::f64());
        let Some(pause) = pause.filter(|_| is_allowed) else { return Err(error.into()) };
        tokio::time::sleep(pause).await;
        Ok(None)
    }
}
