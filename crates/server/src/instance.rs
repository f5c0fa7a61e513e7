//! A broker inside another program: it serves that program without a listener, and gets listeners when others are to connect.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Result, bail};
use peeklock_access::{Access, Policy, Right, Secret};
use peeklock_journal_wal::WalJournal;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::access::{self, Exposure};
use crate::assembly::{Assembly, Limits};
use crate::listen::{self, Protocol};
use crate::namespace::{Medium, NamespaceOptions};
use crate::storage::{Accounts, StorageOptions};
use crate::{Addresses, Entities, WELL_KNOWN_KEY_SECRET, WebPages};

/// The name of the policy of the program that contains the broker. Its secret is random and never leaves the process.
const OWNER_NAME: &str = "embedding-program";

/// A running broker inside another program.
///
/// When it is dropped, its tasks end, and its journal is closed after a last write. [`Instance::stop`] also lets connections finish.
pub struct Instance {
    assembly: Assembly,
    /// The policies for clients of listeners.
    access: Access,
    owner: Policy,
}

/// The configuration of an [`Instance`].
pub struct InstanceOptions {
    /// The place of the data.
    pub medium: Medium,
    /// Policies for clients of listeners. Without any, the well-known key is valid, on loopback only.
    pub keys: Vec<Policy>,
    /// Entities to create or to change.
    pub entities: Entities,
}

/// The reason why an [`Instance`] could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another broker in this one, uses the directory.
    #[error("the data directory {} is in use by {}", directory.display(), owner(*.process))]
    InUse {
        /// The directory.
        directory: PathBuf,
        /// The process, if the lock file names it.
        process: Option<u32>,
    },
    /// Another reason.
    #[error("{0:#}")]
    Other(anyhow::Error),
}

fn owner(process: Option<u32>) -> String {
    process.map_or_else(|| "another process".to_owned(), |id| format!("process {id}"))
}

impl Instance {
    /// The host name in the requests of the program itself.
    pub const HOST: &str = "embedded";

    /// Opens the data and starts the broker on the current runtime.
    pub async fn open(options: InstanceOptions) -> Result<Self, OpenError> {
        let InstanceOptions { medium, keys, entities } = options;
        let opened = Self::open_any(&medium, keys, entities).await;
        opened.map_err(|error| open_error(&medium, error))
    }

    async fn open_any(medium: &Medium, mut keys: Vec<Policy>, entities: Entities) -> Result<Self> {
        if keys.is_empty() {
            keys.push(access::well_known());
        }
        let owner = Policy::with_one_key(OWNER_NAME, Secret::generate()?.expose(), &[Right::Manage]);
        keys.push(owner.clone());
        let space = NamespaceOptions::only(keys, entities);
        let access = space.open_access(medium, Addresses::default(), None)?;
        let opened = space.open(medium, access.clone(), Default::default()).await?;
        let (accounts, ..) = Accounts::open(&mut StorageOptions::default(), true)?;
        let web_pages = WebPages::default().with_hosts([Self::HOST.to_owned()]);
        let limits = Limits { web_pages, ..Limits::default() };
        let assembly = Assembly::new(opened, Vec::new(), &accounts, limits, None);
        Ok(Instance { assembly, access, owner })
    }

    /// Returns the name and the secret of the program itself, with all rights. They are valid for this run only.
    pub fn owner(&self) -> (&str, &str) {
        (&self.owner.name, self.owner.primary.expose())
    }

    /// Serves AMQP on a byte stream of this process.
    pub fn serve_amqp<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.assembly.add_stream(stream, Protocol::Amqp);
    }

    /// Serves HTTP on a byte stream of this process.
    pub fn serve_http<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        self.assembly.add_stream(stream, Protocol::Http);
    }

    /// Listens at an address, for AMQP and HTTP. Returns the bound address, with the actual port in the place of port 0.
    pub async fn listen(&self, address: SocketAddr) -> Result<SocketAddr> {
        if !address.ip().is_loopback() {
            match access::exposure(&self.access) {
                None => {}
                Some(Exposure::ShortSecret { name }) => bail!(
                    "{address} can be reached from other machines, and the key '{name}' has a secret that can be guessed; open the \
                     broker with a longer one, or listen on 127.0.0.1"
                ),
                Some(Exposure::NoKey | Exposure::WellKnownSecret) => bail!(
                    "{address} can be reached from other machines, and the secret {WELL_KNOWN_KEY_SECRET} is known to everybody; open the \
                     broker with a key of its own, or listen on 127.0.0.1"
                ),
            }
        }
        let addresses = Addresses { amqp: Some(address), ..Addresses::default() };
        let bound = listen::bind(addresses).await?;
        let address = bound.addresses.amqp.unwrap_or(address);
        self.assembly.add_listeners(bound);
        Ok(address)
    }

    /// Returns whether the broker runs. It stops when its journal fails, and when the runtime that it was opened on ends.
    pub fn is_running(&self) -> bool {
        self.assembly.is_running()
    }

    /// Closes all connections, and returns when every accepted message is durable and all tasks and threads have ended.
    pub async fn stop(self) -> Result<()> {
        self.assembly.stop().await
    }
}

/// Names the process that uses the directory, if this is the reason.
fn open_error(medium: &Medium, error: anyhow::Error) -> OpenError {
    let locked = matches!(error.downcast_ref(), Some(peeklock_journal::OpenError::Locked { .. }))
        || matches!(
            error.downcast_ref(),
            Some(peeklock_broker::OpenError::Journal(peeklock_journal::OpenError::Locked { .. }))
        );
    match medium {
        Medium::Directory(directory) if locked => {
            OpenError::InUse { process: WalJournal::owner_of(directory), directory: directory.clone() }
        }
        _ => OpenError::Other(error),
    }
}
