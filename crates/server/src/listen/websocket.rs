//! AMQP over WebSocket: binary messages with the byte stream. Message boundaries have no meaning.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::{Buf, Bytes};
use futures_util::{Sink, Stream};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode};
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Error};

use super::http::plain;

const PATH: &str = "/$servicebus/websocket";
/// The names of the same protocol in the SDKs and in the standard.
const SUB_PROTOCOLS: [&str; 2] = ["AMQPWSB10", "amqp"];
const VERSION: &str = "13";

const READ_BUFFER_BYTES: usize = 8 * 1024;
/// Bytes that are buffered before an automatic flush. The gateway flushes when it has nothing more to write.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;
/// The largest message that the server sends.
const CHUNK_BYTES_MAX: usize = 64 * 1024;

/// Returns whether the path of the request is that of the WebSocket. SDK quirk: .NET and Rust put a slash at the end.
pub(crate) fn is_asked_for<B>(request: &Request<B>) -> bool {
    let path = percent_decode_str(request.uri().path()).decode_utf8_lossy();
    path.strip_suffix('/').unwrap_or(&path).eq_ignore_ascii_case(PATH)
}

/// Returns the response that turns the connection into a WebSocket, with the upgraded connection, or a response with the reason of the
/// rejection.
pub(crate) fn accept<B>(request: &mut Request<B>) -> (Response<Body>, Option<OnUpgrade>) {
    let Wish { proof, protocol } = match check(request) {
        Ok(wish) => wish,
        Err((status, text)) => {
            let mut refusal = plain(status, text);
            refusal.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
            return (refusal, None);
        }
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, proof);
    headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    (response, Some(hyper::upgrade::on(request)))
}

/// The values of a valid request that the response repeats.
struct Wish {
    proof: HeaderValue,
    protocol: HeaderValue,
}

fn check<B>(request: &Request<B>) -> Result<Wish, (StatusCode, &'static str)> {
    if request.method() != Method::GET {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "a WebSocket begins with GET"));
    }
    let headers = request.headers();
    if !has_token(headers, header::CONNECTION, "upgrade") || !has_token(headers, header::UPGRADE, "websocket")
    {
        let text = "this address is for AMQP over WebSocket; connect to it with a WebSocket client";
        return Err((StatusCode::UPGRADE_REQUIRED, text));
    }
    if !has_token(headers, header::SEC_WEBSOCKET_VERSION, VERSION) {
        return Err((StatusCode::UPGRADE_REQUIRED, "the version of WebSocket served here is 13"));
    }
    let unknown = "offer the sub-protocol AMQPWSB10 or amqp in Sec-WebSocket-Protocol";
    let protocol = sub_protocol(headers).ok_or((StatusCode::BAD_REQUEST, unknown))?;
    let key = headers.get(header::SEC_WEBSOCKET_KEY);
    let proof = key.and_then(|key| HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok());
    let proof = proof.ok_or((StatusCode::BAD_REQUEST, "the header Sec-WebSocket-Key is missing"))?;
    Ok(Wish { proof, protocol })
}

/// Returns the words of a list header.
fn tokens<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

fn has_token(headers: &HeaderMap, name: HeaderName, wanted: &str) -> bool {
    tokens(headers, &name).any(|token| token.eq_ignore_ascii_case(wanted))
}

/// Returns the first supported sub-protocol in the spelling of the request.
fn sub_protocol(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_known = |offered: &&str| SUB_PROTOCOLS.iter().any(|known| known.eq_ignore_ascii_case(offered));
    let found = tokens(headers, &header::SEC_WEBSOCKET_PROTOCOL).find(is_known)?;
    HeaderValue::from_str(found).ok()
}

/// A byte stream over the messages of a WebSocket.
pub(crate) struct ByteStream<S> {
    socket: WebSocketStream<S>,
    /// The rest of a message that was longer than the read buffer.
    left: Bytes,
    is_over: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ByteStream<S> {
    pub(crate) async fn new(stream: S, message_bytes_max: usize) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(WRITE_BUFFER_BYTES)
            .max_write_buffer_size(WRITE_BUFFER_BYTES + 2 * CHUNK_BYTES_MAX)
            .max_message_size(Some(message_bytes_max))
            .max_frame_size(Some(message_bytes_max));
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
        ByteStream { socket, left: Bytes::new(), is_over: false }
    }
}

fn io_error(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        Error::ConnectionClosed | Error::AlreadyClosed => io::ErrorKind::BrokenPipe.into(),
        error => io::Error::new(io::ErrorKind::InvalidData, error),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ByteStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.left.is_empty() && !this.is_over {
            match ready!(Pin::new(&mut this.socket).poll_next(cx)) {
                Some(Ok(Message::Binary(bytes))) => this.left = bytes,
                // The WebSocket library answers these messages.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Text(_))) => {
                    let text = "a text message came over the WebSocket; AMQP travels in binary ones";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
                }
                Some(Ok(Message::Close(_)) | Err(Error::ConnectionClosed | Error::AlreadyClosed)) | None => {
                    this.is_over = true;
                }
                // SDK quirk: Python closes the socket without a closing handshake.
                Some(Err(Error::Protocol(
                    tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
                ))) => {
                    this.is_over = true;
                }
                Some(Err(error)) => return Poll::Ready(Err(io_error(error))),
            }
        }
        let count = this.left.len().min(out.remaining());
        out.put_slice(this.left.get(..count).unwrap_or_default());
        this.left.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ByteStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(Pin::new(&mut this.socket).poll_ready(cx)).map_err(io_error)?;
        let chunk = bytes.get(..CHUNK_BYTES_MAX).unwrap_or(bytes);
        let message = Message::Binary(Bytes::copy_from_slice(chunk));
        Pin::new(&mut this.socket).start_send(message).map_err(io_error)?;
        Poll::Ready(Ok(chunk.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx).map_err(io_error)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.get_mut().socket).poll_close(cx)) {
            Ok(()) | Err(Error::ConnectionClosed | Error::AlreadyClosed) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(io_error(error))),
        }
    }
}
