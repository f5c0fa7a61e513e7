use std::sync::Arc;
use std::time::Duration;

use peeklock_gateway_azure::Gateway;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Connections that one listener serves at the same time; more wait in the kernel's line.
const CONNECTIONS_MAX: usize = 5000;
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
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
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
