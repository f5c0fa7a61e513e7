//! Opens connections to a broker, whatever the transport.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use peeklock_client::{Admin, Client, ConnectError, Options, Target};

use crate::backoff::Backoff;
use crate::error::Error;

/// The reason why a connection could not be opened.
pub type DialError = ConnectError;

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

/// Dials one broker over TCP.
pub(crate) struct Tcp {
    target: Target,
    options: Options,
}

impl Tcp {
    pub(crate) fn new(target: Target, options: Options) -> Self {
        Tcp { target, options }
    }
}

impl Dial for Tcp {
    fn dial(&self) -> BoxFuture<'_, Result<Client, DialError>> {
        Box::pin(Client::connect_with(&self.target, &self.options))
    }

    fn admin(&self) -> Admin {
        Admin::new(&self.target, &self.options)
    }

    fn address(&self) -> String {
        self.target.address()
    }
}

/// The connection that all handles of a client share.
#[derive(Clone)]
pub(crate) struct Connection {
    live: Client,
}

impl Connection {
    pub(crate) async fn open(dial: Arc<dyn Dial>, _backoff: Backoff) -> Result<Self, Error> {
        Ok(Connection { live: dial.dial().await? })
    }

    /// Returns the open connection.
    pub(crate) async fn live(&self) -> Result<Client, Error> {
        Ok(self.live.clone())
    }

    pub(crate) async fn close(self) {
        self.live.close().await;
    }
}
