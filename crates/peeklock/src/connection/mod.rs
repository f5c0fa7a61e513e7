//! The connection that all handles of a client share. It is dialled again when it was lost.

mod attempts;
mod reopened;
mod tcp;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use peeklock_client::{Admin, Client, ConnectError, ReceivedMessage};

pub(crate) use attempts::Attempts;
pub(crate) use reopened::Reopened;
pub(crate) use tcp::{Tcp, is_permanent};

use crate::backoff::Backoff;
use crate::error::Error;

/// The reason why a connection could not be opened.
pub type DialError = ConnectError;

/// The number of attempts of [`Client::connect`](crate::Client::connect), so that a wrong address is reported soon.
const FIRST_ATTEMPTS_MAX: u32 = 3;

/// Opens connections to one broker or to equal brokers. The SDK calls it at the start and after each lost connection.
///
/// A test or a tunnel implements it to connect over its own streams with
/// [`peeklock_client::Client::connect_over`](peeklock_client::Client::connect_over).
pub trait Dial: Send + Sync + 'static {
    /// Opens a connection.
    fn dial(&self) -> BoxFuture<'_, Result<Client, DialError>>;

    /// Returns a management client. It connects with its first request.
    fn admin(&self) -> Admin;

    /// Returns the address for error messages, without credentials.
    fn address(&self) -> String;
}

/// Sees the messages that a client receives and completes.
pub(crate) trait Observer: Send + Sync + 'static {
    /// A message was received.
    fn received(&self, entity: &str, message: &ReceivedMessage);

    /// The broker has confirmed that a message is completed.
    fn completed(&self, entity: &str);
}

/// The connection of a client. It is cheap to clone.
#[derive(Clone)]
pub(crate) struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    dial: Arc<dyn Dial>,
    backoff: Backoff,
    live: Reopened<Client>,
    is_closed: AtomicBool,
    /// The test kit.
    observer: Option<Arc<dyn Observer>>,
}

impl Connection {
    /// Opens the first connection, with few attempts.
    pub(crate) async fn open(
        dial: Arc<dyn Dial>,
        backoff: Backoff,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Self, Error> {
        let first = dial_with(Arc::clone(&dial), backoff.attempts_at_most(FIRST_ATTEMPTS_MAX)).await?;
        let (live, is_closed) = (Reopened::new(first), AtomicBool::new(false));
        Ok(Connection { inner: Arc::new(Inner { dial, backoff, live, is_closed, observer }) })
    }

    /// Returns the open connection. If it is lost, waits until it is dialled again: once for all callers.
    pub(crate) async fn live(&self) -> Result<Client, Error> {
        self.check_open()?;
        let inner = &self.inner;
        let open =
            || -> BoxFuture<'static, _> { Box::pin(dial_with(Arc::clone(&inner.dial), inner.backoff)) };
        let client = inner.live.get(|client| client.ended().is_none(), open).await?;
        if let Err(closed) = self.check_open() {
            client.close().await;
            return Err(closed);
        }
        Ok(client)
    }

    pub(crate) fn observer(&self) -> Option<&dyn Observer> {
        self.inner.observer.as_deref()
    }

    /// Starts to count the attempts of one operation.
    pub(crate) fn attempts(&self) -> Attempts {
        Attempts::new(self.inner.backoff)
    }

    /// Repeats a request on the live connection until it succeeds, its error does not pass, or no further attempt is due.
    pub(crate) async fn repeat<T>(
        &self,
        request: impl Fn(Client) -> BoxFuture<'static, Result<T, peeklock_client::Error>>,
    ) -> Result<T, Error> {
        let mut attempts = self.attempts();
        loop {
            let result = match self.live().await {
                Ok(live) => request(live).await.map_err(Error::from),
                Err(error) => Err(error),
            };
            match result {
                Ok(answer) => return Ok(answer),
                Err(error) => attempts.retry_after(error).await?,
            }
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.inner.is_closed.load(Ordering::Relaxed)
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.is_closed() { Err(Error::closed()) } else { Ok(()) }
    }

    pub(crate) async fn close(&self) {
        self.inner.is_closed.store(true, Ordering::Relaxed);
        if let Some(client) = self.inner.live.take() {
            client.close().await;
        }
    }
}

/// Dials until a connection is open, the error is permanent, or no further attempt is due.
async fn dial_with(dial: Arc<dyn Dial>, backoff: Backoff) -> Result<Client, Error> {
    let mut attempts = Attempts::new(backoff);
    loop {
        let error = match dial.dial().await {
            Ok(client) => return Ok(client),
            Err(error) => error,
        };
        tracing::debug!(address = dial.address(), %error, "the broker cannot be reached");
        let (tries, elapsed) = attempts.count();
        let error = Error::not_dialled(&dial.address(), error, tries, elapsed);
        attempts.dial_again_after(error).await?;
    }
}
