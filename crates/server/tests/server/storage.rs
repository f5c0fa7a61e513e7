//! The listeners of the storage services: they serve HTTP only, under the limits of all listeners, and one at a default address may be
//! missing.

use std::net::SocketAddr;
use std::time::Duration;

use peeklock_server::{Addresses, ListenLimits, Options, Served, Server, StorageListen, StorageOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);
const LIST: &[u8] =
    b"GET /devstoreaccount1?comp=list HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn at(address: SocketAddr, is_usual: bool) -> Option<StorageListen> {
    Some(StorageListen { address, is_usual })
}

fn options(data: &tempfile::TempDir, storage: StorageOptions) -> Options {
    let limits = ListenLimits { http_head_time_max: Duration::from_secs(1), ..ListenLimits::default() };
    let listen = Addresses { amqp: Some(loopback()), ..Addresses::default() };
    Options { data: data.path().to_owned(), listen, storage, limits, ..Options::default() }
}

async fn ask(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the connection ends");
    String::from_utf8_lossy(&answer).into_owned()
}

fn address(served: &Served) -> SocketAddr {
    match served {
        Served::At(address) => *address,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn storage_listeners_serve_http_within_the_limits() {
    let data = tempfile::tempdir().unwrap();
    let storage = StorageOptions {
        blobs: at(loopback(), false),
        queues: at(loopback(), false),
        ..StorageOptions::default()
    };
    let server = Server::start(options(&data, storage)).await.unwrap();
    for served in [&server.storage.blobs, &server.storage.queues] {
        let address = address(served);
        let answer = ask(address, LIST).await;
        assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
        assert!(answer.contains("<Code>NoAuthenticationInformation</Code>"), "{answer}");
        assert_eq!(ask(address, b"AMQP\x00\x01\x00\x00").await, "", "the listener rejects AMQP");
        let socket = b"GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: amqp\r\n\r\n";
        let answer = ask(address, socket).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "no WebSocket here: {answer}");
        // An incomplete head ends at the time limit.
        let answer = ask(address, b"GET /devstoreaccount1 HTTP/1.1\r\nHost: ").await;
        assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
    }
    // Management and the storage services do not answer each other's requests.
    let management = server.addresses.amqp.unwrap();
    assert!(!ask(management, LIST).await.contains("NoAuthenticationInformation"));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_default_port_may_be_in_use_and_a_configured_one_may_not() {
    let other = std::net::TcpListener::bind(loopback()).unwrap();
    let taken = other.local_addr().unwrap();
    let data = tempfile::tempdir().unwrap();
    let named = StorageOptions { blobs: at(taken, false), ..StorageOptions::default() };
    let refused = Server::start(options(&data, named)).await.err().unwrap().to_string();
    assert!(refused.contains("--blob-port"), "{refused}");
    let usual = StorageOptions { blobs: at(taken, true), ..StorageOptions::default() };
    let server = Server::start(options(&data, usual)).await.unwrap();
    assert!(matches!(&server.storage.blobs, Served::Without(why) if why.contains("--blob-port")));
    assert_eq!(server.storage.queues, Served::Off);
    server.stop().await.unwrap();
}
