use std::sync::Arc;
use std::time::Duration;

use peeklock_gateway_azure::Gateway;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Connections that one listener serves at the same time; more wait in the kernel's line.
const CONNECTIONS_MAX: u64 = 5000;
/// File handles that are left to the journal.
const HANDLES_RESERVED: u64 = 256;
const TLS_HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(20);
/// After a failed accept (out of file handles, say), a pause instead of a spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until `stopping` says so, then waits for the open ones to end.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    gateway: Arc<Gateway>,
    mut stopping: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(seats()));
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            let seat = Arc::clone(&room).acquire_owned().await;
            (seat, listener.accept().await)
        };
        tokio::select! {
            () = stop_asked(&mut stopping) => break,
            (seat, accepted) = accepted => match accepted {
                Ok((stream, from)) => {
                    let connection = connect(stream, tls.clone(), Arc::clone(&gateway), stopping.clone());
                    connections.spawn(async move {
                        let _seat = seat;
                        if let Err(error) = connection.await {
                            tracing::debug!(%from, "connection ended: {error}");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    while connections.join_next().await.is_some() {}
}

/// As many as the process may have file handles for, with both listeners and the journal in mind: a journal without handles stops.
fn seats() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let handles = limit.current.unwrap_or(u64::MAX);
    let seats = (handles.saturating_sub(HANDLES_RESERVED) / 2).clamp(16, CONNECTIONS_MAX);
    usize::try_from(seats).unwrap_or(16)
}

/// Lets the process have as many file handles as it may.
pub(crate) fn raise_handle_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!("cannot raise the limit on open files: {error}");
    }
}

async fn connect(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    gateway: Arc<Gateway>,
    stopping: watch::Receiver<bool>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    match tls {
        None => gateway.serve(stream, stopping).await,
        Some(acceptor) => {
            let stream = tokio::time::timeout(TLS_HANDSHAKE_TIME_MAX, acceptor.accept(stream)).await??;
            gateway.serve(stream, stopping).await
        }
    }
}

async fn stop_asked(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}
