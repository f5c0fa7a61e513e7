//! The whole broker inside this process: no port, no other program.
//!
//! ```no_run
//! # async fn example() -> Result<(), peeklock::Error> {
//! use peeklock::embedded::Broker;
//!
//! let broker = Broker::open("./data").await?;
//! let client = broker.client().await?;
//! // Other programs can connect to the same queues.
//! let address = broker.serve("127.0.0.1:5672").await?;
//! println!("listening at {address}");
//! broker.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The shards of the broker are tasks on the runtime that opened it. A durable broker also has the threads of its journal; they end with
//! the broker. All handles of one directory in a process share one broker, which ends with the last of them: [`Broker`]s, and
//! [`Client`]s that were connected to it. Every confirmed message is on stable storage by then. [`Broker::stop`] also closes open
//! connections in order.

mod dial;
mod pipe;
mod registry;
mod shared;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::admin::Admin;
use crate::error::{Error, Kind};
use crate::{Backoff, Client};

pub(crate) use dial::EmbeddedDial;
#[cfg(feature = "testing")]
pub(crate) use dial::{Wrap, Wrapped};
use shared::{Place, Settings, Shared};

/// A broker inside this process. It is cheap to clone; see the [module](self) for when it ends.
#[derive(Clone)]
pub struct Broker {
    shared: Arc<Shared>,
}

/// The settings of a [`Broker`], from [`Broker::builder`].
#[derive(Default)]
#[must_use = "call open or in_memory"]
pub struct Builder {
    settings: Settings,
}

impl Broker {
    /// Opens a durable broker, or returns a handle to it if it is open in this process. The directory has the same format as that of
    /// `peeklock serve`; it is created if it does not exist.
    ///
    /// # Errors
    /// `E-EMB-01` if another process uses the directory, `E-EMB-02` if it cannot be opened for another reason.
    pub async fn open(directory: impl AsRef<Path>) -> Result<Self, Error> {
        Broker::builder().open(directory).await
    }

    /// Starts a broker in memory. Its messages end with it.
    pub async fn in_memory() -> Result<Self, Error> {
        Broker::builder().in_memory().await
    }

    /// Returns a builder for a broker with other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Connects a client to the broker.
    pub async fn client(&self) -> Result<Client, Error> {
        Client::over(Arc::new(self.dial())).connect().await
    }

    /// Listens at an address such as `127.0.0.1:5672`, for AMQP and HTTP, so that other programs can connect. Returns the bound address,
    /// with the actual port in the place of port 0.
    ///
    /// Clients use the keys of [`Builder::key`], or on this machine the well-known key
    /// (`amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@…`) if there are none.
    ///
    /// # Errors
    /// `E-EMB-04` if the broker cannot listen there, `E-EMB-05` if it was stopped.
    pub async fn serve(&self, address: &str) -> Result<SocketAddr, Error> {
        let parsed = address.parse().map_err(|_| {
            let text = format!(
                "'{address}' is not an address to listen on. Give an IP address and a port, such as 127.0.0.1:5672."
            );
            Error::new(Kind::Embedded, "E-EMB-04", text)
        })?;
        self.shared.listen(parsed).await
    }

    /// Closes all connections and listeners, and returns when every accepted message is durable and the tasks and threads of the broker
    /// have ended. Its clients get errors from then on. A broker that is stopped already stays so.
    ///
    /// # Errors
    /// `E-EMB-02` if the broker failed before; its directory has all confirmed messages.
    pub async fn stop(self) -> Result<(), Error> {
        self.shared.stop().await
    }

    /// Returns the administration. It needs no key.
    pub fn admin(&self) -> Admin {
        Admin::new(Arc::new(self.dial()), Backoff::default())
    }

    pub(crate) fn dial(&self) -> EmbeddedDial {
        EmbeddedDial::new(Arc::clone(&self.shared))
    }
}

impl Builder {
    /// Adds a key for the clients of [`Broker::serve`]: its name and its secret, with all rights. With a key, the well-known key is not
    /// accepted, and other machines may connect.
    pub fn key(mut self, name: impl Into<String>, secret: impl Into<String>) -> Self {
        self.settings.keys.push((name.into(), secret.into()));
        self
    }

    /// Opens a durable broker, or returns a handle to it if it is open in this process. An open broker keeps its settings.
    ///
    /// # Errors
    /// See [`Broker::open`].
    pub async fn open(self, directory: impl AsRef<Path>) -> Result<Broker, Error> {
        let directory: PathBuf = directory.as_ref().to_owned();
        Ok(Broker { shared: registry::open(directory, self.settings).await? })
    }

    /// Starts a broker in memory.
    pub async fn in_memory(self) -> Result<Broker, Error> {
        Ok(Broker { shared: Arc::new(Shared::open(Place::Memory, self.settings, None).await?) })
    }
}

/// Opens the broker of a connection target, without its prefix `embedded:`: a directory, or nothing for memory.
pub(crate) async fn dial_for(place: &str) -> Result<EmbeddedDial, Error> {
    let broker = match place {
        "" => Broker::in_memory().await?,
        directory => Broker::open(directory).await?,
    };
    Ok(broker.dial())
}
