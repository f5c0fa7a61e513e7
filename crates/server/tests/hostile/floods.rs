//! Peers that request more than their share.

use peeklock_amqp::{Begin, Encode, Flow, Message, Performative, Transfer};
use peeklock_client::ReceiveMode;
use peeklock_server::{AmqpLimits, ListenLimits};
use tokio::time::timeout;

use crate::support::{PATIENCE, ROOT, ROOT_SECRET, start, start_with};
use crate::wire::Wire;

const LIMIT_EXCEEDED: &str = "amqp:resource-limit-exceeded";

fn credit(handle: u32, credit: u32) -> Flow {
    Flow {
        handle: Some(handle),
        link_credit: Some(credit),
        delivery_count: Some(0),
        next_incoming_id: Some(1),
        incoming_window: u32::MAX,
        outgoing_window: u32::MAX,
        ..Flow::default()
    }
}

#[tokio::test]
async fn a_flood_of_attaches_ends_at_the_limit() {
    let amqp = AmqpLimits { links_per_connection_max: 100, ..AmqpLimits::default() };
    let rig = start_with(ListenLimits::default(), amqp).await;
    let mut wire = Wire::root(&rig).await;
    for handle in 0..1000 {
        wire.put_receiver(handle, "orders");
    }
    wire.flush().await;
    assert_eq!(wire.refusal().await.condition, LIMIT_EXCEEDED);
    rig.still_works().await;
}

#[tokio::test]
async fn attaching_the_same_link_repeatedly_uses_up_only_its_own_connection() {
    let rig = start().await;
    let mut wire = Wire::root(&rig).await;
    for _ in 0..2000 {
        wire.put_receiver(0, "orders");
        wire.put(&peeklock_amqp::Detach { handle: 0, closed: true, error: None });
    }
    wire.flush().await;
    rig.still_works().await;
}

#[tokio::test]
async fn a_flood_of_sessions_ends_at_the_limit() {
    let amqp = AmqpLimits { sessions_per_connection_max: 10, ..AmqpLimits::default() };
    let rig = start_with(ListenLimits::default(), amqp).await;
    let mut wire = Wire::root(&rig).await;
    for channel in 1..20 {
        wire.put_on(channel, &Begin::new(0, 1, 1));
    }
    wire.flush().await;
    let error = wire.refusal().await;
    assert!(error.to_string().contains("channel 10"), "{error}");
    rig.still_works().await;
}

#[tokio::test]
async fn a_flood_of_connections_ends_at_the_limit_and_leaves_no_trace() {
    let listen = ListenLimits { connections_max: 8, ..ListenLimits::default() };
    let rig = start_with(listen, AmqpLimits::default()).await;
    let mut seated = Vec::new();
    for _ in 0..8 {
        seated.push(Wire::root(&rig).await);
    }
    for _ in 0..20 {
        let stream = tokio::net::TcpStream::connect(rig.amqp()).await.unwrap();
        drop(stream);
    }
    let mut ninth = Wire::start(rig.amqp(), Some((ROOT, ROOT_SECRET))).await;
    assert_eq!(ninth.refusal().await.condition, LIMIT_EXCEEDED);
    drop(seated);
    let again = async { while !got_in(&rig).await {} };
    timeout(PATIENCE, again).await.expect("a closed connection frees its place");
    rig.still_works().await;
}

async fn got_in(rig: &crate::support::Rig) -> bool {
    let mut wire = Wire::start(rig.amqp(), Some((ROOT, ROOT_SECRET))).await;
    wire.put_receiver(0, "orders");
    wire.flush().await;
    wire.granted().await.is_ok()
}

/// One peer grants unlimited credit and settles nothing.
#[tokio::test]
async fn unlimited_credit_leaves_messages_for_others() {
    const COUNT: usize = 400;
    let rig = start().await;
    let good = rig.good().await;
    let sender = good.sender("orders").await.unwrap();
    let body = "x".repeat(100_000);
    for _ in 0..COUNT / 20 {
        let sends = (0..20).map(|_| async { sender.send(&Message::data(body.clone())).await.unwrap() });
        futures_util::future::join_all(sends).await;
    }
    let mut bomb = Wire::root(&rig).await;
    bomb.put_receiver(0, "orders");
    bomb.put(&credit(0, u32::MAX));
    // This credit ends after the 32-bit delivery count has wrapped around.
    bomb.put(&Flow { delivery_count: Some(u32::MAX), ..credit(0, u32::MAX) });
    bomb.flush().await;
    bomb.granted().await.unwrap();
    bomb.until(|frame| matches!(frame, Performative::Transfer(_)).then_some(())).await;
    let mut receiver =
        good.receiver("orders").mode(ReceiveMode::ReceiveAndDelete).credit(20).open().await.unwrap();
    for number in 0..COUNT / 2 {
        let next = timeout(PATIENCE, receiver.next()).await;
        drop(next.unwrap_or_else(|_| panic!("only {number} messages were left")).unwrap().unwrap());
    }
    drop(bomb);
    rig.still_works().await;
}

#[tokio::test]
async fn messages_beyond_the_credit_end_the_link() {
    let rig = start().await;
    let mut wire = Wire::root(&rig).await;
    wire.put_sender(0, "orders");
    wire.flush().await;
    wire.granted().await.unwrap();
    let message = Message::data("x").to_bytes();
    for number in 0..60_000_u32 {
        let tag = peeklock_amqp::DeliveryTag::from(number);
        let transfer = Transfer {
            delivery_id: Some(number),
            delivery_tag: Some(tag),
            message_format: Some(0),
            settled: Some(false),
            ..Transfer::default()
        };
        wire.put_message(&transfer, &message);
    }
    // The test writes and reads at the same time, because the broker answers in the meantime.
    let output = wire.output.split();
    let (mut reader, mut writer) = tokio::io::split(wire.stream);
    let writing = async {
        let _ = tokio::io::AsyncWriteExt::write_all(&mut writer, &output).await;
    };
    let mut answer = Vec::new();
    let reading = async {
        let needle = b"amqp:";
        let mut buffer = vec![0; 65_536];
        while !answer.windows(needle.len()).any(|window| window == needle) {
            match tokio::io::AsyncReadExt::read(&mut reader, &mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(count) => answer = buffer[..count].to_vec(),
            }
        }
    };
    let both = async { tokio::join!(writing, reading) };
    let _ = timeout(PATIENCE, both).await;
    rig.still_works().await;
}

#[tokio::test]
async fn too_much_input_before_a_token_ends_the_connection() {
    let amqp = AmqpLimits { unauthenticated_bytes_max: 10_000, ..AmqpLimits::default() };
    let rig = start_with(ListenLimits::default(), amqp).await;
    let mut wire = Wire::anonymous(&rig).await;
    for handle in 0..1000 {
        wire.put_receiver(handle, "orders");
    }
    wire.flush().await;
    let closed = wire.until(|frame| match frame {
        Performative::Close(close) => close.error.clone(),
        _ => None,
    });
    let error = closed.await.expect("the broker sends the reason");
    assert!(error.to_string().contains("unauthorized: more than 10000 bytes"), "{error}");
    rig.still_works().await;
}

#[tokio::test]
async fn guessed_keys_are_rejected_and_not_logged() {
    let rig = start().await;
    let mut wire = Wire::anonymous(&rig).await;
    wire.service("$cbs").await;
    for number in 0..50 {
        let guess = peeklock_access::Secret::new(format!("guess {number}"));
        let token = crate::support::token(crate::support::ROOT, &guess, "sb://h/orders", 600);
        assert_eq!(wire.put_token(number, "sb://h/orders", &token).await, 401);
    }
    wire.put_sender(5, "orders");
    wire.flush().await;
    assert_eq!(wire.granted().await.unwrap_err().condition, "amqp:unauthorized-access");
    rig.still_works().await;
}
