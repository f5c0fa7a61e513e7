//! Attaches the link of a receiver, at the start and after each loss.

use std::sync::Arc;
use std::time::Duration;

use peeklock_client::Receiver as Link;

use crate::ReceiveMode;
use crate::connection::Connection;
use crate::error::{Error, Kind};

/// The properties that each link of a receiver has.
#[derive(Clone)]
pub(super) struct Plan {
    pub(super) connection: Connection,
    pub(super) entity: Arc<str>,
    pub(super) mode: ReceiveMode,
    pub(super) session: SessionWish,
    /// `None` for manual credit.
    pub(super) prefetch: Option<u32>,
}

#[derive(Clone, Debug)]
pub(super) enum SessionWish {
    None,
    Named(String),
    Next(Duration),
}

impl Plan {
    /// Attaches a link. Errors that may pass are retried; a session that is not available is not awaited.
    pub(super) async fn attach(self) -> Result<Link, Error> {
        let mut attempts = self.connection.attempts();
        loop {
            match self.try_attach().await {
                Ok(link) => return Ok(link),
                Err(error) => attempts.retry_after(error).await?,
            }
        }
    }

    /// Attaches a link after the former one was lost. A broker may take a while to notice that the former holder of the session is gone.
    pub(super) async fn attach_again(self) -> Result<Link, Error> {
        let mut attempts = self.connection.attempts();
        loop {
            let error = match self.try_attach().await {
                Ok(link) => return Ok(link),
                Err(error) => error,
            };
            if error.kind() != Kind::NoSession {
                attempts.retry_after(error).await?;
            } else if let Err(error) = attempts.pause(error).await {
                let reason = "the connection was lost, and another receiver has accepted the session since";
                return Err(Error::session_lost(&self.entity, reason).caused_by(error));
            }
        }
    }

    async fn try_attach(&self) -> Result<Link, Error> {
        let builder = self.connection.live().await?.receiver(&self.entity).mode(self.mode);
        let builder = match &self.session {
            SessionWish::None => builder,
            SessionWish::Named(id) => builder.session(id.clone()),
            SessionWish::Next(wait) => builder.next_session(*wait),
        };
        let builder = match self.prefetch {
            Some(count) => builder.credit(count),
            None => builder.manual_credit(),
        };
        Ok(builder.open().await?)
    }
}
