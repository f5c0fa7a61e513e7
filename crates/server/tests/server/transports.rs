//! Each port serves AMQP, HTTP and AMQP over WebSocket, plain and over TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::{SinkExt, StreamExt};
use peeklock_amqp::connection::{Config, Connection, Event, Millis, Outgoing, SaslClient};
use peeklock_amqp::{Attach, DeliveryTag, Encode, Message, Role, Source, Target};
use peeklock_server::{Addresses, ListenLimits, Options, Server};
use peeklock_types::{EntityName, QueueSettings};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite;
use tungstenite::client::IntoClientRequest;

const PATIENCE: Duration = Duration::from_secs(20);
const HTTP: &[u8] = b"GET /nothing/here HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// The protocol header without SASL, and an open frame.
const OPENING: &[u8] =
    b"AMQP\x00\x01\x00\x00\x00\x00\x00\x14\x02\x00\x00\x00\x00\x53\x10\xc0\x07\x04\xa1\x01x\x40\x40\x40";

async fn start(data: &tempfile::TempDir, limits: ListenLimits) -> Server {
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let options = Options {
        data: data.path().to_owned(),
        listen: Addresses {
            amqp: Some(loopback),
            amqp_tls: Some(loopback),
            http: Some(loopback),
            https: Some(loopback),
        },
        limits,
        entities: [(EntityName::parse("orders").unwrap(), QueueSettings::default())].into_iter().collect(),
        ..Options::default()
    };
    Server::start(options).await.unwrap()
}

fn open_doors(server: &Server) -> [SocketAddr; 2] {
    [server.addresses.amqp.unwrap(), server.addresses.http.unwrap()]
}

fn tls_doors(server: &Server) -> [SocketAddr; 2] {
    [server.addresses.amqp_tls.unwrap(), server.addresses.https.unwrap()]
}

async fn in_tls(server: &Server, address: SocketAddr) -> TlsStream<TcpStream> {
    use rustls::pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    let certificate = server.certificate.as_ref().unwrap();
    roots.add(rustls::pki_types::CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = "localhost".try_into().unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

/// Authenticates, sends one message and waits for its confirmation.
async fn send_one(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let sasl = SaslClient::plain("RootManageSharedAccessKey", "SAS_KEY_VALUE");
    let mut connection = Connection::client(Config::client("test", "anybody.example"), Some(sasl), Millis(0));
    let session = connection.begin().unwrap();
    let mut attach = Attach::new("sender", 0, Role::Sender);
    attach.source = Some(Source::with_address("test"));
    attach.target = Some(Target::with_address("orders"));
    let link = connection.attach(session, attach).unwrap();
    let mut input = BytesMut::new();
    let mut is_sent = false;
    loop {
        let output = connection.output().split();
        stream.write_all(&output).await.unwrap();
        stream.flush().await.unwrap();
        let count =
            timeout(PATIENCE, stream.read_buf(&mut input)).await.expect("the broker answers").unwrap();
        assert!(count > 0, "the broker closed the connection");
        connection.handle_input(Millis(0), &mut input).unwrap();
        while let Some(event) = connection.poll_event() {
            if let Event::Disposition { state, .. } = event {
                assert_eq!(state, Some(peeklock_amqp::DeliveryState::Accepted));
                return;
            }
        }
        if !is_sent && connection.credit(link) > 0 {
            is_sent = true;
            let message = Message::data("x".repeat(200_000)).to_bytes();
            let outgoing =
                Outgoing { tag: DeliveryTag::from(1), message_format: 0, settled: false, state: None };
            connection.send(link, &outgoing, &[&message]).unwrap();
        }
    }
}

async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &[u8]) -> String {
    stream.write_all(request).await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = Vec::new();
    // TLS may end without a close notification.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the connection ends");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn every_open_port_serves_amqp_and_http_plain_and_over_tls() {
    let data = tempfile::tempdir().unwrap();
    let server = start(&data, ListenLimits::default()).await;
    for address in open_doors(&server) {
        send_one(TcpStream::connect(address).await.unwrap()).await;
        let answer = ask(TcpStream::connect(address).await.unwrap(), HTTP).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    for address in [open_doors(&server), tls_doors(&server)].concat() {
        send_one(in_tls(&server, address).await).await;
        let answer = ask(in_tls(&server, address).await, HTTP).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    for address in tls_doors(&server) {
        let answer = ask(TcpStream::connect(address).await.unwrap(), HTTP).await;
        assert_eq!(answer, "", "the listener answers only over TLS");
    }
    server.stop().await.unwrap();
}

async fn open_socket<S>(
    stream: S,
    path: &str,
    protocol: &str,
) -> Result<WebSocketStream<S>, tungstenite::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut request = format!("ws://localhost{path}").into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", protocol.parse().unwrap());
    let (socket, response) = tokio_tungstenite::client_async(request, stream).await?;
    let chosen = response.headers().get("sec-websocket-protocol").unwrap().to_str().unwrap();
    assert!(protocol.contains(chosen), "{chosen}");
    Ok(socket)
}

/// Copies bytes between a WebSocket and the returned stream, in messages of odd sizes.
fn bytes_of<S>(socket: WebSocketStream<S>) -> tokio::io::DuplexStream
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (near, far) = tokio::io::duplex(1000);
    let (mut from_peer, mut to_peer) = tokio::io::split(far);
    let (mut sink, mut source) = socket.split();
    tokio::spawn(async move {
        let mut buffer = [0; 777];
        while let Ok(count @ 1..) = from_peer.read(&mut buffer).await {
            sink.send(buffer[..count].to_vec().into()).await.unwrap();
        }
        let _ = sink.close().await;
    });
    tokio::spawn(async move {
        while let Some(Ok(message)) = source.next().await {
            if to_peer.write_all(&message.into_data()).await.is_err() {
                return;
            }
        }
    });
    near
}

#[tokio::test]
async fn amqp_works_over_websockets_under_both_names() {
    let data = tempfile::tempdir().unwrap();
    let server = start(&data, ListenLimits::default()).await;
    let http = server.addresses.http.unwrap();
    let https = server.addresses.https.unwrap();
    let ways = [
        ("/$servicebus/websocket", "AMQPWSB10"),
        ("/$servicebus/websocket/", "amqp"),
        ("/%24servicebus/websocket/", "mqtt, AMQPWSB10"),
    ];
    for (path, protocol) in ways {
        let stream = TcpStream::connect(http).await.unwrap();
        send_one(bytes_of(open_socket(stream, path, protocol).await.unwrap())).await;
        let stream = in_tls(&server, https).await;
        send_one(bytes_of(open_socket(stream, path, protocol).await.unwrap())).await;
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_invalid_websocket_request_is_rejected_with_the_reason() {
    let data = tempfile::tempdir().unwrap();
    let server =
        start(&data, ListenLimits { websocket_message_bytes_max: 10_000, ..ListenLimits::default() }).await;
    let address = server.addresses.http.unwrap();
    let connect = || async { TcpStream::connect(address).await.unwrap() };
    let refused = open_socket(connect().await, "/$servicebus/websocket", "mqtt").await.err().unwrap();
    assert!(refused.to_string().contains("400"), "{refused}");
    let plain = b"GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = ask(connect().await, plain).await;
    assert!(answer.starts_with("HTTP/1.1 426") && answer.contains("WebSocket client"), "{answer}");
    let posted = b"POST /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    assert!(ask(connect().await, posted).await.starts_with("HTTP/1.1 405"));

    // A text message and a message that is too large each end only their connection.
    let wrong: [tungstenite::Message; 2] = ["AMQP".into(), vec![0; 10_001].into()];
    for message in wrong {
        let mut socket = open_socket(connect().await, "/$servicebus/websocket", "amqp").await.unwrap();
        socket.send(message).await.unwrap();
        let end = timeout(PATIENCE, async { while let Some(Ok(_)) = socket.next().await {} }).await;
        end.expect("the connection ends");
    }
    send_one(bytes_of(open_socket(connect().await, "/$servicebus/websocket", "amqp").await.unwrap())).await;
}

#[tokio::test]
async fn a_silent_peer_is_disconnected() {
    let data = tempfile::tempdir().unwrap();
    let short = Duration::from_millis(100);
    let limits = ListenLimits {
        first_bytes_time_max: short,
        tls_handshake_time_max: short,
        http_head_time_max: short,
        ..ListenLimits::default()
    };
    let server = start(&data, limits).await;
    let address = server.addresses.http.unwrap();
    for beginning in [&b""[..], b"AMQ", b"\x16\x03\x01", b"GET / HT"] {
        let answer = ask(TcpStream::connect(address).await.unwrap(), beginning).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
}

#[tokio::test]
async fn a_full_server_rejects_connections_and_accepts_again_later() {
    let data = tempfile::tempdir().unwrap();
    let server = start(&data, ListenLimits { connections_max: 2, ..ListenLimits::default() }).await;
    let [amqp, http] = open_doors(&server);
    let mut guests = Vec::new();
    for _ in 0..2 {
        let mut guest = TcpStream::connect(amqp).await.unwrap();
        guest.write_all(b"AMQP\x00\x01\x00\x00").await.unwrap();
        guest.read_exact(&mut [0; 8]).await.unwrap();
        guests.push(guest);
    }
    let answer = ask(TcpStream::connect(http).await.unwrap(), HTTP).await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("as many connections"), "{answer}");
    let answer = ask(TcpStream::connect(amqp).await.unwrap(), OPENING).await;
    assert!(
        answer.contains("amqp:resource-limit-exceeded") && answer.contains("as many connections"),
        "{answer}"
    );
    drop(guests);
    let served = async {
        while ask(TcpStream::connect(http).await.unwrap(), HTTP).await.starts_with("HTTP/1.1 503") {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, served).await.expect("a connection is accepted again");
    send_one(TcpStream::connect(amqp).await.unwrap()).await;
}

#[tokio::test]
async fn the_server_stops_while_all_kinds_of_connections_are_open() {
    let data = tempfile::tempdir().unwrap();
    let server = start(&data, ListenLimits::default()).await;
    let address = server.addresses.http.unwrap();
    let silent = TcpStream::connect(address).await.unwrap();
    let mut idle_http = TcpStream::connect(address).await.unwrap();
    idle_http.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut head = [0; 12];
    idle_http.read_exact(&mut head).await.unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let mut socket = open_socket(stream, "/$servicebus/websocket", "amqp").await.unwrap();
    socket.send(b"AMQP\x00\x01\x00\x00".to_vec().into()).await.unwrap();
    socket.next().await.unwrap().unwrap();
    let stopped = timeout(Duration::from_secs(20), server.stop()).await;
    stopped.expect("no connection delays the stop").unwrap();
    drop(silent);
}
