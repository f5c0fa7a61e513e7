//! Taking the addresses before anything else is touched.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use tokio::net::TcpListener;

use super::Door;
use crate::Addresses;

/// Listeners, and the addresses that they really have.
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

async fn bind_one(address: SocketAddr, flag: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; another program may use it. Choose another address with {flag}, or '{flag} off'")
    })
}
