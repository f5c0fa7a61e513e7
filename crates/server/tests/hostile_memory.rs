//! Floods from many peers at once use bounded memory. The test runs alone in its process, whose memory it measures.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::net::SocketAddr;
use std::time::Duration;

use peeklock_access::{Policy, Right};
use peeklock_server::{Addresses, AmqpLimits, Options, Server};
use peeklock_types::{EntityName, QueueSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const PEER_COUNT: usize = 64;
/// The limit for all floods together: buffers of sockets and incomplete frames, and memory that the allocator keeps.
const GROWTH_BYTES_MAX: u64 = 96 << 20;

async fn start(data: &tempfile::TempDir) -> Server {
    let loopback: Option<SocketAddr> = Some("127.0.0.1:0".parse().unwrap());
    let options = Options {
        data: data.path().to_owned(),
        listen: Addresses { amqp: loopback, http: loopback, ..Addresses::default() },
        keys: vec![Policy::with_one_key("root", "secret", &[Right::Manage])],
        amqp_limits: AmqpLimits {
            unauthenticated_time_max: Duration::from_secs(60),
            ..AmqpLimits::default()
        },
        entities: [(EntityName::parse("orders").unwrap(), QueueSettings::default())].into_iter().collect(),
        ..Options::default()
    };
    Server::start(options).await.unwrap()
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Sends the same bytes repeatedly until the broker closes the connection or `bytes_max` is reached, and reads nothing.
async fn pour(address: SocketAddr, head: &[u8], again: &[u8], bytes_max: usize) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let pouring = async {
        stream.write_all(head).await?;
        for _ in 0..bytes_max / again.len() {
            stream.write_all(again).await?;
        }
        std::io::Result::Ok(())
    };
    // A peer whose bytes are not read is held up, which counts as a rejection.
    let _ = timeout(Duration::from_secs(3), pouring).await;
    stream
}

/// Returns the head of a frame of the largest size, without its end.
fn frame_without_end() -> Vec<u8> {
    let mut bytes = b"AMQP\x00\x01\x00\x00".to_vec();
    bytes.extend_from_slice(&[0, 0, 0xff, 0xff, 2, 0, 0, 0, 0, 0x53, 0x10, 0xd0]);
    bytes
}

#[tokio::test]
async fn floods_of_all_kinds_use_bounded_memory() {
    let data = tempfile::tempdir().unwrap();
    let server = start(&data).await;
    let (amqp, http) = (server.addresses.amqp.unwrap(), server.addresses.http.unwrap());
    let before = resident_bytes();
    let endless = frame_without_end();
    let empty_frames = [0_u8, 0, 0, 8, 2, 0, 0, 0].repeat(1000);
    let http_head: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n";
    let http_body: &[u8] =
        b"PUT /api/queues/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    let kinds: [(SocketAddr, &[u8], &[u8]); 5] = [
        (amqp, &endless, &[0; 1024]),
        (amqp, b"AMQP\x00\x01\x00\x00", &empty_frames),
        (http, http_head, b"X-Header: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n"),
        (http, http_body, b"400\r\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
        (http, b"GET /", b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
    ];
    let mut pours = tokio::task::JoinSet::new();
    for number in 0..PEER_COUNT {
        let (address, head, again) = kinds[number % kinds.len()];
        let (head, again) = (head.to_vec(), again.to_vec());
        pours.spawn(async move { pour(address, &head, &again, 16 << 20).await });
    }
    let mut held = Vec::new();
    while let Some(stream) = pours.join_next().await {
        held.push(stream.unwrap());
    }
    let growth = resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH_BYTES_MAX, "{PEER_COUNT} peers cost {} MiB", growth >> 20);
    let mut good = TcpStream::connect(amqp).await.unwrap();
    good.write_all(b"AMQP\x03\x01\x00\x00").await.unwrap();
    let mut header = [0; 8];
    timeout(Duration::from_secs(20), good.read_exact(&mut header)).await.expect("served").unwrap();
    assert_eq!(&header, b"AMQP\x03\x01\x00\x00");
    drop(held);
    server.stop().await.unwrap();
}
