//! Peers that break the protocol get the reason, and no other peer is affected.

use std::net::SocketAddr;
use std::time::Duration;

use peeklock_amqp::Message;
use peeklock_client::{Client, ReceiveMode};
use peeklock_server::{Addresses, Options, Server};
use peeklock_types::{EntityName, QueueSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const HEADER: &[u8] = b"AMQP\x00\x01\x00\x00";
const OPEN: &[u8] =
    &[0, 0, 0, 0x14, 2, 0, 0, 0, 0, 0x53, 0x10, 0xc0, 0x07, 0x04, 0xa1, 0x01, b'x', 0x40, 0x40, 0x40];

async fn start(data: &tempfile::TempDir) -> Server {
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let settings = QueueSettings { lock_duration: Duration::from_secs(2), ..QueueSettings::default() };
    let queue = (EntityName::parse("orders").unwrap(), settings);
    let data = data.path().to_owned();
    let options = Options {
        data,
        listen: Addresses { amqp: Some(loopback), ..Addresses::default() },
        entities: [queue].into_iter().collect(),
        ..Options::default()
    };
    Server::start(options).await.unwrap()
}

fn address(server: &Server) -> SocketAddr {
    server.addresses.amqp.unwrap()
}

async fn client(server: &Server) -> Client {
    let target = format!("amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@{}", address(server));
    Client::connect(&target).await.unwrap()
}

/// Returns everything that the broker sends before it closes the connection.
async fn say(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address(server)).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let read = timeout(Duration::from_secs(10), stream.read_to_end(&mut answer)).await;
    // A reset after the last frame counts as an end.
    let _ = read.expect("the broker ends the connection");
    answer
}

fn contains(haystack: &[u8], needle: &str) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle.as_bytes())
}

async fn still_works(server: &Server) {
    let client = client(server).await;
    client.sender("orders").await.unwrap().send(&Message::data("still here")).await.unwrap();
    let mut receiver = client.receiver("orders").mode(ReceiveMode::ReceiveAndDelete).open().await.unwrap();
    let delivery = timeout(Duration::from_secs(10), receiver.next()).await.unwrap().unwrap().unwrap();
    assert_eq!(delivery.message().unwrap().body_text(), "still here");
}

#[tokio::test]
async fn a_wrong_version_is_answered_with_the_supported_one_and_garbage_with_an_http_error() {
    let data = tempfile::tempdir().unwrap();
    let server = start(&data).await;
    let answer = say(&server, b"AMQP\x00\x09\x01\x00").await;
    assert!(answer.starts_with(b"AMQP\x00\x01\x00\x00") || answer.starts_with(b"AMQP\x03"), "{answer:?}");
    let answer = say(&server, b"\0\0\0\0garbage\r\n\r\n").await;
    assert!(answer.starts_with(b"HTTP/1.1 400"), "{answer:?}");
    still_works(&server).await;
}

#[tokio::test]
async fn an_oversized_frame_ends_its_connection_with_a_framing_error() {
    let data = tempfile::tempdir().unwrap();
    let server = start(&data).await;
    let huge = [0x7f, 0xff, 0xff, 0xff, 2, 0, 0, 0];
    let answer = say(&server, &[HEADER, OPEN, &huge].concat()).await;
    assert!(contains(&answer, "amqp:connection:framing-error"), "{}", String::from_utf8_lossy(&answer));
    still_works(&server).await;
}

#[tokio::test]
async fn a_malformed_frame_ends_its_connection_with_its_position() {
    let data = tempfile::tempdir().unwrap();
    let server = start(&data).await;
    let broken = [0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x11, 0xc0];
    let answer = say(&server, &[HEADER, OPEN, &broken].concat()).await;
    assert!(contains(&answer, "amqp:decode-error"), "{}", String::from_utf8_lossy(&answer));
    still_works(&server).await;
}

#[tokio::test]
async fn a_wrong_secret_is_rejected() {
    let data = tempfile::tempdir().unwrap();
    let server = start(&data).await;
    let target = format!("amqp://RootManageSharedAccessKey:wrong@{}", address(&server));
    assert!(Client::connect(&target).await.is_err());
    still_works(&server).await;
}

/// A receiver grants credit for a thousand large messages and never reads.
#[tokio::test]
async fn a_peer_that_never_reads_blocks_no_other_and_loses_nothing() {
    const COUNT: usize = 64;
    let data = tempfile::tempdir().unwrap();
    let server = start(&data).await;
    let good = client(&server).await;
    let sender = good.sender("orders").await.unwrap();
    let body = "x".repeat(500_000);
    for _ in 0..COUNT {
        sender.send(&Message::data(body.clone())).await.unwrap();
    }
    let deaf = deaf_receiver(&server).await;
    let mut receiver =
        good.receiver("orders").mode(ReceiveMode::ReceiveAndDelete).credit(10).open().await.unwrap();
    let mut received = 0;
    while let Ok(delivery) = timeout(Duration::from_secs(3), receiver.next()).await {
        drop(delivery.unwrap().unwrap());
        received += 1;
    }
    // The messages in flight to that receiver are bounded by windows, not by its credit.
    assert!(received >= COUNT / 2, "only {received} of {COUNT} messages were left for others");
    drop(deaf);
    while received < COUNT {
        let rest = timeout(Duration::from_secs(30), receiver.next()).await;
        drop(rest.expect("the rest is delivered again").unwrap().unwrap());
        received += 1;
    }
}

/// Attaches with credit 1000, then only holds the socket.
async fn deaf_receiver(server: &Server) -> TcpStream {
    use peeklock_amqp::connection::{Config, Connection, Event, Millis, SaslClient};
    use peeklock_amqp::{Attach, Role, Source, Target};
    let mut stream = TcpStream::connect(address(server)).await.unwrap();
    let sasl = SaslClient::plain("RootManageSharedAccessKey", "SAS_KEY_VALUE");
    let mut connection = Connection::client(Config::client("deaf", "localhost"), Some(sasl), Millis(0));
    let session = connection.begin().unwrap();
    let mut attach = Attach::new("deaf", 0, Role::Receiver);
    attach.source = Some(Source::with_address("orders"));
    attach.target = Some(Target::with_address("deaf"));
    let link = connection.attach(session, attach).unwrap();
    connection.set_credit(link, 1000);
    let mut input = bytes::BytesMut::new();
    loop {
        let output = connection.output().split();
        stream.write_all(&output).await.unwrap();
        stream.read_buf(&mut input).await.unwrap();
        connection.handle_input(Millis(0), &mut input).unwrap();
        while let Some(event) = connection.poll_event() {
            if matches!(event, Event::Attached { .. }) {
                let output = connection.output().split();
                stream.write_all(&output).await.unwrap();
                return stream;
            }
        }
    }
}
