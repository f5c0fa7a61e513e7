//! Peers that hold a connection without using it.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{PATIENCE, impatient, start_with};
use crate::wire::{AMQP_HEADER, SASL_HEADER, Wire};

/// The start of a ClientHello.
const TLS_HELLO: &[u8] =
    &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03, 1, 2, 3, 4, 5, 6, 7, 8, 9];
const HTTP_HEAD: &[u8] =
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
/// The pause after each byte: far too long to finish in time.
const PACE: Duration = Duration::from_millis(150);

/// Sends the bytes slowly until the broker closes the connection. Returns whether it did.
async fn drip(address: std::net::SocketAddr, bytes: &[u8]) -> bool {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut answer = [0; 1024];
    for byte in bytes.iter().cycle().take(200) {
        if stream.write_all(std::slice::from_ref(byte)).await.is_err() {
            return true;
        }
        if let Ok(Ok(0) | Err(_)) = timeout(PACE, stream.read(&mut answer)).await {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn slow_peers_are_disconnected_and_others_are_served() {
    let (listen, amqp) = impatient();
    let rig = start_with(listen, amqp).await;
    let empty_frames = [AMQP_HEADER, &[0, 0, 0, 8, 2, 0, 0, 0].repeat(20)].concat();
    let slow = [
        (rig.amqp(), SASL_HEADER),
        (rig.amqp(), AMQP_HEADER),
        (rig.amqp(), &empty_frames),
        (rig.tls(), TLS_HELLO),
        (rig.amqp(), TLS_HELLO),
        (rig.http(), HTTP_HEAD),
        (rig.amqp(), HTTP_HEAD),
    ];
    let dropped = async {
        let mut drips = tokio::task::JoinSet::new();
        for (at, (address, bytes)) in slow.into_iter().enumerate() {
            let bytes = bytes.to_vec();
            for _ in 0..8 {
                let bytes = bytes.clone();
                drips.spawn(async move { (at, drip(address, &bytes).await) });
            }
        }
        while let Some(dropped) = drips.join_next().await {
            let (at, was_dropped) = dropped.unwrap();
            assert!(was_dropped, "the broker did not disconnect slow peer {at}");
        }
    };
    let serving = async {
        loop {
            rig.still_works().await;
        }
    };
    tokio::select! {
        () = dropped => {}
        () = serving => {}
    }
    rig.still_works().await;
}

#[tokio::test]
async fn silent_peers_are_disconnected() {
    let (listen, amqp) = impatient();
    let rig = start_with(listen, amqp).await;
    for address in [rig.amqp(), rig.tls(), rig.http()] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let read =
            timeout(PATIENCE, stream.read(&mut [0; 8])).await.expect("the broker closes the connection");
        assert_eq!(read.unwrap_or(0), 0);
    }
    rig.still_works().await;
}

#[tokio::test]
async fn peers_without_a_token_are_disconnected_with_the_reason() {
    let (listen, amqp) = impatient();
    let rig = start_with(listen, amqp).await;
    let mut wire = Wire::anonymous(&rig).await;
    let error = wire.refusal().await;
    assert_eq!(error.condition, "amqp:connection:forced");
    assert!(error.to_string().contains("unauthorized: no valid token"), "{error}");
    // Heartbeats do not replace a token.
    let mut wire = Wire::anonymous(&rig).await;
    let error = loop {
        wire.output.extend_from_slice(&peeklock_amqp::EMPTY_FRAME);
        wire.flush().await;
        if let Ok(error) = timeout(PACE, wire.refusal()).await {
            break error;
        }
    };
    assert!(error.to_string().contains("unauthorized"), "{error}");
    rig.still_works().await;
}

#[tokio::test]
async fn a_half_closed_connection_is_ended() {
    let (listen, amqp) = impatient();
    let rig = start_with(listen, amqp).await;
    let mut wire = Wire::root(&rig).await;
    wire.put_receiver(0, "orders");
    wire.flush().await;
    wire.granted().await.unwrap();
    wire.stream.shutdown().await.unwrap();
    let ended = async { while wire.next().await.is_some() {} };
    timeout(PATIENCE, ended).await.expect("the broker closes its half");
    rig.still_works().await;
}
