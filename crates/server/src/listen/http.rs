//! One HTTP/1.1 connection. Requests go to the routes; a WebSocket request turns the connection into AMQP.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use hyper::body::Incoming;
use hyper::http::uri::Scheme;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tower::ServiceExt;

use super::patience::Patient;
use super::{Edge, Visit, spelling, stop_asked, web_pages, websocket};

/// The time limit for a rejection.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(5);

/// Passes the connection of a WebSocket request from the service to its caller.
type Handover = Arc<Mutex<Option<OnUpgrade>>>;

pub(crate) async fn serve<S>(
    stream: S,
    scheme: Scheme,
    visit: Visit,
    edge: Arc<Edge>,
    mut stopping: watch::Receiver<bool>,
) -> std::io::Result<()>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let handover = Handover::default();
    let service =
        service_fn(|request| answer(request, scheme.clone(), visit, Arc::clone(&edge), handover.clone()));
    let mut builder = http1::Builder::new();
    let limits = &edge.limits;
    builder.timer(TokioTimer::new()).header_read_timeout(limits.http_head_time_max);
    builder.max_buf_size(limits.http_head_bytes_max).max_headers(limits.http_headers_max);
    builder.preserve_header_case(visit.door.is_storage());
    let connection = builder.serve_connection(TokioIo::new(Patient::new(stream)), service).with_upgrades();
    let mut connection = Box::pin(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stop_asked(&mut stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    ended.map_err(std::io::Error::other)?;
    let upgrade = handover.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(upgrade) = upgrade else { return Ok(()) };
    let upgraded = upgrade.await.map_err(std::io::Error::other)?;
    let stream =
        websocket::ByteStream::new(TokioIo::new(upgraded), edge.limits.websocket_message_bytes_max).await;
    edge.gateway.serve(stream, Some(visit.from), stopping).await
}

/// Rejects a connection because the limit of connections is reached.
pub(crate) async fn refuse_for_lack_of_room(mut stream: impl AsyncWrite + Unpin) -> std::io::Result<()> {
    const REFUSAL: &[u8] =
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 79\r\n\
        Retry-After: 10\r\nConnection: close\r\n\r\n\
        the broker has as many connections as it allows; close some, or raise the limit";
    let told = async {
        stream.write_all(REFUSAL).await?;
        stream.shutdown().await
    };
    tokio::time::timeout(REFUSAL_TIME_MAX, told).await?
}

async fn answer(
    mut request: Request<Incoming>,
    scheme: Scheme,
    visit: Visit,
    edge: Arc<Edge>,
    handover: Handover,
) -> Result<Response<Body>, Infallible> {
    let page = match edge.web_pages.admit(&request, &scheme, visit) {
        Ok(page) => page,
        Err(refusal) => return Ok(*refusal),
    };
    if !visit.door.is_storage() && websocket::is_asked_for(&request) {
        let (response, upgrade) = websocket::accept(&mut request);
        *handover.lock().unwrap_or_else(PoisonError::into_inner) = upgrade;
        return Ok(response);
    }
    if let Some(allowed) = page.as_ref().and_then(|page| web_pages::preflight(&request, page)) {
        return Ok(allowed);
    }
    if visit.door.is_storage()
        && let Some(spelling) = spelling::of(&request).await
    {
        request.extensions_mut().insert(spelling);
    }
    // Handlers that write links need the scheme of the request.
    request.extensions_mut().insert(scheme);
    request.extensions_mut().insert(edge.arrival(visit));
    let answer = edge.routes(visit.door).clone().oneshot(request.map(Body::new));
    match tokio::time::timeout(edge.limits.http_request_time_max, answer).await {
        Ok(Ok(mut answer)) => {
            spelling::apply(&mut answer).await;
            if let Some(page) = &page {
                web_pages::show_to(&mut answer, page);
            }
            Ok(answer)
        }
        Ok(Err(never)) => Err(never),
        Err(_) => Ok(plain(StatusCode::REQUEST_TIMEOUT, "the request took too long; send it again")),
    }
}

/// Returns a short text response. The connection is closed after it, because the rest of the request is not read.
pub(crate) fn plain(status: StatusCode, text: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert("content-type", hyper::header::HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert("connection", hyper::header::HeaderValue::from_static("close"));
    response
}
