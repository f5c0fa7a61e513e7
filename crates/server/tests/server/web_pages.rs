//! Requests as a browser sends them for a page of another origin, or for a page whose name was made to resolve to this machine.

use std::net::SocketAddr;
use std::time::Duration;

use peeklock_server::{Addresses, Options, Served, Server, StorageListen, StorageOptions, WebPages};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(20);
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n";

fn options(data: &tempfile::TempDir, web_pages: WebPages) -> Options {
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let at = Some(StorageListen { address: loopback, is_usual: false });
    Options {
        data: data.path().to_owned(),
        listen: Addresses { amqp: Some(loopback), ..Addresses::default() },
        storage: StorageOptions { blobs: at, queues: at, ..StorageOptions::default() },
        web_pages,
        ..Options::default()
    }
}

fn address(served: &Served) -> SocketAddr {
    match served {
        Served::At(address) => *address,
        other => panic!("{other:?}"),
    }
}

/// Sends a request with these header lines, and returns the first line and the whole answer. An open WebSocket ends at its first line.
async fn ask(address: SocketAddr, target: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{target} HTTP/1.1\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    loop {
        let count = timeout(PATIENCE, stream.read_buf(&mut answer)).await.expect("an answer comes").unwrap();
        if count == 0 || answer.starts_with(b"HTTP/1.1 101") {
            break;
        }
    }
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no status: {text}")), text)
}

const SOCKET: &str = "GET /$servicebus/websocket";

#[tokio::test]
async fn a_foreign_page_opens_no_websocket() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(options(&data, WebPages::default())).await.unwrap();
    let broker = server.addresses.amqp.unwrap();
    let open = async |headers: &str| ask(broker, SOCKET, &format!("{headers}{UPGRADE}")).await;
    assert_eq!(open("Host: localhost\r\n").await.0, 101, "a client sends no origin");
    let same = format!("Host: {broker}\r\nOrigin: http://{broker}\r\n");
    assert_eq!(open(&same).await.0, 101, "some clients send the origin of the broker");
    let (status, text) = open("Host: localhost\r\nOrigin: https://evil.example\r\n").await;
    assert_eq!(status, 403);
    assert!(text.contains("'https://evil.example'") && text.contains("--allow-origin"), "{text}");
    let (status, text) = open("Host: rebound.evil.example\r\nOrigin: http://rebound.evil.example\r\n").await;
    assert_eq!(status, 421);
    assert!(text.contains("'rebound.evil.example'") && text.contains("--allow-host"), "{text}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_foreign_page_reaches_no_service_over_http() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(options(&data, WebPages::default())).await.unwrap();
    let management = server.addresses.amqp.unwrap();
    let storage = [address(&server.storage.blobs), address(&server.storage.queues)];
    let close = "Connection: close\r\n";
    for at in [management, storage[0], storage[1]] {
        for target in ["GET /devstoreaccount1/c?restype=container", "POST /devstoreaccount1/c", "GET /health"]
        {
            let own = ask(at, target, &format!("Host: localhost\r\n{close}")).await;
            assert!(![403, 421].contains(&own.0) || own.1.contains("<Error>"), "{target}: {}", own.1);
            for foreign in [
                "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n",
                "Host: localhost\r\nOrigin: https://evil.example\r\n",
                "Host: localhost\r\nOrigin: null\r\n",
            ] {
                let (status, text) = ask(at, target, &format!("{foreign}{close}")).await;
                assert_eq!(status, 403, "{target} {foreign}: {text}");
                assert!(text.contains("--allow-origin"), "{text}");
            }
            let rebound = ask(at, target, &format!("Host: evil.example:{}\r\n{close}", at.port())).await;
            assert_eq!(rebound.0, 421, "{target}: {}", rebound.1);
        }
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_allowed_page_and_a_configured_host_work() {
    let data = tempfile::tempdir().unwrap();
    let web_pages = WebPages {
        hosts: vec!["broker.example".to_owned()],
        origins: vec!["https://shop.example".parse().unwrap()],
    };
    let mut options = options(&data, web_pages);
    options.hosts = vec!["east.example".to_owned()];
    options.tls.names = vec!["named.example".to_owned()];
    let server = Server::start(options).await.unwrap();
    let broker = server.addresses.amqp.unwrap();
    for host in ["broker.example", "EAST.example:1234", "named.example", "shop.servicebus.windows.net"] {
        assert_eq!(ask(broker, SOCKET, &format!("Host: {host}\r\n{UPGRADE}")).await.0, 101, "{host}");
    }
    let page = "Host: localhost\r\nOrigin: https://shop.example\r\nSec-Fetch-Site: cross-site\r\n";
    assert_eq!(ask(broker, SOCKET, &format!("{page}{UPGRADE}")).await.0, 101);
    let (status, text) = ask(broker, "GET /health", &format!("{page}Connection: close\r\n")).await;
    assert_eq!(status, 200);
    assert!(text.contains("access-control-allow-origin: https://shop.example\r\n"), "{text}");
    let question = format!("{page}Access-Control-Request-Method: PUT\r\nConnection: close\r\n");
    let (status, text) = ask(broker, "OPTIONS /api/queues/q", &question).await;
    assert_eq!(status, 204);
    assert!(text.contains("access-control-allow-methods: PUT\r\n"), "{text}");
    server.stop().await.unwrap();
}
