//! Listeners: they detect the protocol and limit the number of connections.

mod bind;
mod http;
mod limits;
mod occupant;
mod patience;
mod sniff;
mod spelling;
mod web_pages;
mod websocket;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::http::uri::Scheme;
use peeklock_gateway_azure::Gateway;
use peeklock_http::Arrival;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

pub(crate) use bind::{Bound, bind};
pub use limits::ListenLimits;
pub(crate) use sniff::Protocol;
use sniff::sniff;
pub use web_pages::{NotAnOrigin, WebOrigin, WebPages};

/// The number of connections over the limit that may be in rejection at once, including those that are about to be accepted.
const LOBBY_PLACES: usize = 64;
/// The pause after a failed accept, such as without free file handles.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The services of every listener.
pub(crate) struct Edge {
    pub(crate) gateway: Gateway,
    routes: Routes,
    /// The TLS acceptor, or `None` if no certificate is loaded.
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) limits: ListenLimits,
    web_pages: WebPages,
    /// The seats for connections of all listeners together.
    seats: Arc<Semaphore>,
    seat_count: usize,
    /// The places for connections that are rejected for lack of a seat.
    lobby: Arc<Semaphore>,
}

impl Edge {
    pub(crate) fn new(
        gateway: Gateway,
        routes: Routes,
        tls: Option<TlsAcceptor>,
        limits: ListenLimits,
        web_pages: WebPages,
    ) -> Arc<Self> {
        let seat_count = limits.seat_count();
        let seats = Arc::new(Semaphore::new(seat_count));
        let lobby = Arc::new(Semaphore::new(LOBBY_PLACES));
        Arc::new(Edge { gateway, routes, tls, limits, web_pages, seats, seat_count, lobby })
    }

    fn routes(&self, door: Door) -> &Router {
        match door {
            Door::Any | Door::TlsOnly => &self.routes.management,
            Door::Blobs => &self.routes.blobs,
            Door::Queues => &self.routes.queues,
        }
    }

    /// Describes how a request arrived and how busy the listener is.
    fn arrival(&self, visit: Visit) -> Arrival {
        Arrival {
            is_loopback: visit.is_loopback,
            connection_count: self.seat_count.saturating_sub(self.seats.available_permits()),
            connection_count_max: self.seat_count,
        }
    }
}

/// The HTTP routes of each listener.
pub(crate) struct Routes {
    pub(crate) management: Router,
    pub(crate) blobs: Router,
    pub(crate) queues: Router,
}

/// The protocols of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// AMQP and HTTP, plain or over TLS.
    Any,
    /// AMQP and HTTP, over TLS only.
    TlsOnly,
    /// HTTP only, plain or over TLS, for a storage service.
    Blobs,
    Queues,
}

impl Door {
    fn is_storage(self) -> bool {
        matches!(self, Door::Blobs | Door::Queues)
    }
}

/// The origin of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Visit {
    pub(crate) door: Door,
    /// Whether the listener is reachable from this machine only.
    pub(crate) is_loopback: bool,
    pub(crate) from: SocketAddr,
    /// Whether the connection has a seat. Without one, it is rejected.
    pub(crate) has_seat: bool,
}

/// Accepts connections until `stopping` is set, then waits for the open ones to end.
pub(crate) async fn serve(
    listener: TcpListener,
    door: Door,
    edge: Arc<Edge>,
    mut stopping: watch::Receiver<bool>,
) {
    let is_loopback = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            // While there is no place even for a rejection, new connections wait in the kernel's queue.
            let place = Arc::clone(&edge.lobby).acquire_owned().await;
            (place, listener.accept().await)
        };
        tokio::select! {
            () = stop_asked(&mut stopping) => break,
            (place, accepted) = accepted => match accepted {
                Ok((stream, from)) => {
                    let seat = Arc::clone(&edge.seats).try_acquire_owned().ok();
                    // A connection with a seat frees its place in the lobby at once.
                    let place = if seat.is_some() { None } else { place.ok() };
                    let visit = Visit { door, is_loopback, from, has_seat: seat.is_some() };
                    let connection = connect(stream, visit, Arc::clone(&edge), stopping.clone());
                    connections.spawn(async move {
                        let _held = (seat, place);
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

/// Raises the limit of open files as far as the process may.
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
    visit: Visit,
    edge: Arc<Edge>,
    mut stopping: watch::Receiver<bool>,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let first_bytes_time_max = edge.limits.first_bytes_time_max;
    let first = tokio::select! {
        first = timeout(first_bytes_time_max, sniff(stream)) => first??,
        () = stop_asked(&mut stopping) => return Ok(()),
    };
    let Some((protocol, stream)) = first else { return Ok(()) };
    match (protocol, &edge.tls, visit.door) {
        // The future is boxed, so that a plain connection does not hold the state of TLS.
        (Protocol::Tls, Some(acceptor), _) => {
            Box::pin(connect_tls(stream, acceptor.clone(), visit, edge, stopping)).await
        }
        (Protocol::Tls, None, _) => Err(io::Error::other("it speaks TLS, and no certificate is loaded")),
        (_, _, Door::TlsOnly) => Err(io::Error::other("it does not speak TLS, which this address asks for")),
        (_, _, Door::Any | Door::Blobs | Door::Queues) => {
            speak(protocol, Scheme::HTTP, stream, visit, edge, stopping).await
        }
    }
}

async fn connect_tls<S>(
    stream: S,
    acceptor: TlsAcceptor,
    visit: Visit,
    edge: Arc<Edge>,
    mut stopping: watch::Receiver<bool>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let stream = tokio::select! {
        stream = timeout(edge.limits.tls_handshake_time_max, acceptor.accept(stream)) => stream??,
        () = stop_asked(&mut stopping) => return Ok(()),
    };
    let first = tokio::select! {
        first = timeout(edge.limits.first_bytes_time_max, sniff(stream)) => first??,
        () = stop_asked(&mut stopping) => return Ok(()),
    };
    let Some((protocol, stream)) = first else { return Ok(()) };
    speak(protocol, Scheme::HTTPS, stream, visit, edge, stopping).await
}

/// Serves a connection of a known protocol.
pub(crate) async fn speak<S>(
    protocol: Protocol,
    scheme: Scheme,
    stream: S,
    visit: Visit,
    edge: Arc<Edge>,
    stopping: watch::Receiver<bool>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    match protocol {
        Protocol::Amqp if visit.door.is_storage() => {
            Err(io::Error::other("it speaks AMQP where only a storage service is"))
        }
        Protocol::Amqp if !visit.has_seat => Gateway::refuse_for_lack_of_room(stream).await,
        Protocol::Tls | Protocol::Http if !visit.has_seat => http::refuse_for_lack_of_room(stream).await,
        Protocol::Amqp => edge.gateway.serve(stream, Some(visit.from), stopping).await,
        // The future is boxed, so that an idle AMQP connection does not hold the state of HTTP.
        Protocol::Tls | Protocol::Http => Box::pin(http::serve(stream, scheme, visit, edge, stopping)).await,
    }
}

async fn stop_asked(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}
