//! Listeners: who comes in, what they speak, and how many at a time.

mod bind;
mod http;
mod limits;
mod occupant;
mod patience;
mod sniff;
mod spelling;
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

pub(crate) use bind::bind;
pub use limits::ListenLimits;
use sniff::{Protocol, sniff};

/// Connections beyond the limit that are being refused at the same time, or are about to come.
const LOBBY_PLACES: usize = 64;
/// After a failed accept (out of file handles, say), a pause instead of a spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What every listener serves.
pub(crate) struct Edge {
    pub(crate) gateway: Gateway,
    routes: Routes,
    /// `None`: no certificate is loaded.
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) limits: ListenLimits,
    /// For connections of all listeners together.
    seats: Arc<Semaphore>,
    seat_count: usize,
    /// For those who are told that there is no seat.
    lobby: Arc<Semaphore>,
}

impl Edge {
    pub(crate) fn new(
        gateway: Gateway,
        routes: Routes,
        tls: Option<TlsAcceptor>,
        limits: ListenLimits,
    ) -> Arc<Self> {
        let seat_count = limits.seat_count();
        let seats = Arc::new(Semaphore::new(seat_count));
        let lobby = Arc::new(Semaphore::new(LOBBY_PLACES));
        Arc::new(Edge { gateway, routes, tls, limits, seats, seat_count, lobby })
    }

    fn routes(&self, door: Door) -> &Router {
        match door {
            Door::Any | Door::TlsOnly => &self.routes.management,
            Door::Blobs => &self.routes.blobs,
            Door::Queues => &self.routes.queues,
        }
    }

    /// How a request came in, and how full it is here.
    fn arrival(&self, visit: Visit) -> Arrival {
        Arrival {
            is_loopback: visit.is_loopback,
            connection_count: self.seat_count.saturating_sub(self.seats.available_permits()),
            connection_count_max: self.seat_count,
        }
    }
}

/// What answers HTTP, by the door that it came through.
pub(crate) struct Routes {
    pub(crate) management: Router,
    pub(crate) blobs: Router,
    pub(crate) queues: Router,
}

/// What a listener lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// AMQP and HTTP, plain or in TLS.
    Any,
    /// The same, in TLS only.
    TlsOnly,
    /// Only HTTP, plain or in TLS, for one of the storage services.
    Blobs,
    Queues,
}

impl Door {
    fn is_storage(self) -> bool {
        matches!(self, Door::Blobs | Door::Queues)
    }
}

/// How a connection came in.
#[derive(Clone, Copy)]
struct Visit {
    door: Door,
    /// By a listener that only this machine can reach.
    is_loopback: bool,
    from: SocketAddr,
    /// Without one, it is told so and ends.
    has_seat: bool,
}

/// Accepts connections until `stopping` says so, then waits for the open ones to end.
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
            // Until there is room at least to be told that there is none, whoever comes waits in the kernel's line.
            let place = Arc::clone(&edge.lobby).acquire_owned().await;
            (place, listener.accept().await)
        };
        tokio::select! {
            () = stop_asked(&mut stopping) => break,
            (place, accepted) = accepted => match accepted {
                Ok((stream, from)) => {
                    let seat = Arc::clone(&edge.seats).try_acquire_owned().ok();
                    // Whoever has a seat leaves the lobby at once.
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
        // Boxed, so that a plain connection does not pay for what only TLS needs.
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

async fn speak<S>(
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
        // Boxed, so that an idle AMQP connection does not pay for what only HTTP needs.
        Protocol::Tls | Protocol::Http => Box::pin(http::serve(stream, scheme, visit, edge, stopping)).await,
    }
}

async fn stop_asked(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stop| *stop).await;
}
