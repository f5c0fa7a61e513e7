//! The state that all handles of one broker share.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use peeklock_client::Target;
use peeklock_server::{Entities, Instance, InstanceOptions, Medium, OpenError, Policy, Right};
use tokio::io::DuplexStream;
use tokio::sync::RwLock;

use super::pipe::pipe;
use super::registry::Claim;
use crate::error::{Error, Kind};

/// The settings of a broker.
#[derive(Default)]
pub(super) struct Settings {
    /// The names and secrets of keys.
    pub(super) keys: Vec<(String, String)>,
}

/// The place of the data of a broker. It is shown in messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Directory(PathBuf),
    Memory,
}

/// A broker with all its handles. It is stopped, or dropped with its last handle.
pub(crate) struct Shared {
    place: Place,
    target: Target,
    /// The broker, or `None` after it was stopped.
    open: RwLock<Option<Open>>,
}

struct Open {
    instance: Instance,
    /// The claim on the directory, which is given up after the broker has closed it.
    _claim: Option<Claim>,
}

impl Shared {
    /// Opens a broker on the current runtime.
    pub(super) async fn open(place: Place, settings: Settings, claim: Option<Claim>) -> Result<Self, Error> {
        let medium = match &place {
            Place::Directory(directory) => Medium::Directory(directory.clone()),
            Place::Memory => Medium::Memory,
        };
        let key = |(name, secret): (String, String)| Policy::with_one_key(name, secret, &[Right::Manage]);
        let keys = settings.keys.into_iter().map(key).collect();
        let options = InstanceOptions { medium, keys, entities: Entities::default() };
        let instance = Instance::open(options).await.map_err(|error| open_error(&place, &error))?;
        let (name, secret) = instance.owner();
        let target = Target::with_secret(Instance::HOST, name, secret);
        Ok(Shared { place, target, open: RwLock::new(Some(Open { instance, _claim: claim })) })
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Opens an AMQP stream.
    pub(super) async fn amqp(&self) -> io::Result<DuplexStream> {
        self.stream(Instance::serve_amqp).await
    }

    /// Opens an HTTP stream.
    pub(super) async fn http(&self) -> io::Result<DuplexStream> {
        self.stream(Instance::serve_http).await
    }

    async fn stream(&self, serve: impl FnOnce(&Instance, DuplexStream)) -> io::Result<DuplexStream> {
        let open = self.open.read().await;
        let Some(open) = open.as_ref() else {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "it was stopped; open it again"));
        };
        if !open.instance.is_running() {
            let text = "it has failed, or the runtime that opened it has ended; open it again";
            return Err(io::Error::new(io::ErrorKind::NotConnected, text));
        }
        let (client, broker) = pipe();
        serve(&open.instance, broker);
        Ok(client)
    }

    pub(super) async fn listen(&self, address: SocketAddr) -> Result<SocketAddr, Error> {
        let open = self.open.read().await;
        let Some(open) = open.as_ref() else {
            let text = format!("{} was stopped and cannot listen at {address}. Open it again.", self.place);
            return Err(Error::new(Kind::Closed, "E-EMB-05", text));
        };
        open.instance.listen(address).await.map_err(|error| {
            Error::new(Kind::Embedded, "E-EMB-04", format!("{} cannot be served: {error:#}.", self.place))
        })
    }

    /// Returns whether the broker runs.
    pub(super) async fn is_running(&self) -> bool {
        self.open.read().await.as_ref().is_some_and(|open| open.instance.is_running())
    }

    /// Stops the broker. The lock is held until the end, so that everybody who finds the broker stopped finds its directory free.
    pub(super) async fn stop(&self) -> Result<(), Error> {
        let mut place = self.open.write().await;
        let Some(Open { instance, _claim }) = place.take() else { return Ok(()) };
        instance.stop().await.map_err(|reason| {
            let text =
                format!("{} has failed: {reason:#}. Confirmed messages are safe. Open it again.", self.place);
            Error::new(Kind::Embedded, "E-EMB-02", text)
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Directory(directory) => write!(f, "the embedded broker in {}", directory.display()),
            Place::Memory => f.write_str("the embedded broker in memory"),
        }
    }
}

fn open_error(place: &Place, error: &OpenError) -> Error {
    let (code, text) = match error {
        OpenError::InUse { directory, process } => {
            let holder = process.map_or_else(|| "another process".to_owned(), |id| format!("process {id}"));
            let text = format!(
                "The directory {} is in use by {holder}. Only one process can open it. Stop that one, choose another directory, or let it \
                 listen (Broker::serve, or `peeklock serve`) and connect with amqp://.",
                directory.display()
            );
            ("E-EMB-01", text)
        }
        other => {
            ("E-EMB-02", format!("Cannot open {place}: {other}. Correct the reason, and open it again."))
        }
    };
    Error::new(Kind::Embedded, code, text)
}
