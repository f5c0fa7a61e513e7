//! The link of a pump: its loss, and its successor.

use std::time::Duration;

use super::{Opener, Phase, Pump};
use crate::Backoff;
use crate::error::Error;
use crate::processor::errors::ErrorSource;
use crate::receiver::Receiver;

impl Pump {
    /// Handles the end of the link. A processor attaches it again after a pause, for as long as it runs; a session is gone.
    pub(super) fn lose_receiver(&mut self, error: Option<Error>) {
        self.receiver = None;
        self.slots.requested = 0;
        let is_session = self.settings.session.is_some();
        if let Some(error) = error {
            let source = if is_session { ErrorSource::RenewLock } else { ErrorSource::Receive };
            if !self.session.is_lost {
                self.report(source, error);
            }
        }
        if is_session {
            return self.lose_session();
        }
        self.reopen_later();
    }

    fn reopen_later(&mut self) {
        self.failed_opens = self.failed_opens.saturating_add(1);
        let backoff = Backoff::exponential(Duration::from_millis(500), Duration::from_secs(30));
        let pause = backoff.pause(self.failed_opens, Duration::ZERO, fastrand::f64());
        self.reopen_at = pause.and_then(|pause| self.now.checked_add(pause));
    }

    pub(super) fn reopen(&mut self) {
        if self.receiver.is_some() || self.opening.is_some() || matches!(self.phase, Phase::Draining { .. }) {
            return;
        }
        if let Some(opener) = self.opener.take() {
            self.opening = Some(tokio::spawn(async move {
                let result = opener().await;
                (opener, result)
            }));
        }
    }

    pub(super) fn opened(&mut self, opener: Opener, result: Result<Receiver, Error>) {
        self.opening = None;
        self.opener = Some(opener);
        match result {
            Ok(receiver) => self.receiver = Some(receiver),
            Err(error) => {
                self.report(ErrorSource::Connect, error);
                self.reopen_later();
            }
        }
    }
}
