//! Binds the addresses before anything else is touched.

use std::io;
use std::net::SocketAddr;

use anyhow::{Result, anyhow, bail};
use tokio::net::TcpListener;

use super::Door;
use super::occupant::occupant;
use crate::Addresses;
use crate::storage::{Served, StorageListen};

/// The listeners with their bound addresses.
pub(crate) struct Bound {
    pub(crate) listeners: Vec<(TcpListener, Door)>,
    pub(crate) addresses: Addresses,
}

pub(crate) async fn bind(mut addresses: Addresses) -> Result<Bound> {
    let mut listeners = Vec::new();
    let wanted = [
        (&mut addresses.amqp, Door::Any, "--listen"),
        (&mut addresses.amqp_tls, Door::TlsOnly, "--listen-tls"),
        (&mut addresses.http, Door::Any, "--http"),
        (&mut addresses.https, Door::TlsOnly, "--https"),
    ];
    for (address, door, flag) in wanted {
        if let Some(address) = address {
            let listener = bind_one(*address, flag).await?;
            *address = listener.local_addr()?;
            listeners.push((listener, door));
        }
    }
    if listeners.is_empty() {
        bail!("there is no address to listen on; give one with --listen, --listen-tls, --http or --https");
    }
    Ok(Bound { listeners, addresses })
}

impl Bound {
    /// Adds a listener. One at a default address may be missing, with the reason in `served`.
    pub(crate) async fn add_storage(
        &mut self,
        listen: Option<StorageListen>,
        door: Door,
        served: &mut Served,
    ) -> Result<()> {
        let Some(StorageListen { address, is_usual }) = listen else { return Ok(()) };
        let flag = if door == Door::Blobs { "--blob-port" } else { "--queue-port" };
        match bind_one(address, flag).await {
            Ok(listener) => {
                *served = Served::At(listener.local_addr()?);
                self.listeners.push((listener, door));
            }
            Err(error) if is_usual => *served = Served::Without(error.to_string()),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

async fn bind_one(address: SocketAddr, flag: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| refused(address, flag, error))
}

/// Returns an error that names the reason and the remedy.
fn refused(address: SocketAddr, flag: &str, error: io::Error) -> anyhow::Error {
    let instead = format!("choose another address with {flag} ADDRESS, or leave it out with '{flag} off'");
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let who = match occupant(address) {
                Some(found) if found.pid == std::process::id() => "this broker itself".to_owned(),
                Some(found) => format!("{} (process {})", found.name, found.pid),
                None => "another program".to_owned(),
            };
            anyhow!("cannot listen on {address}: {who} uses it already; {instead}")
        }
        io::ErrorKind::PermissionDenied => anyhow!(
            "cannot listen on {address}: ports below 1024 are for root, or for programs with the capability CAP_NET_BIND_SERVICE; {instead}"
        ),
        io::ErrorKind::AddrNotAvailable => anyhow!(
            "cannot listen on {address}: this machine does not have that address. 127.0.0.1 is for this machine only, 0.0.0.0 for all \
             addresses it has; {instead}"
        ),
        _ => anyhow!(error).context(format!("cannot listen on {address}; {instead}")),
    }
}
