//! Peers that send huge, deeply nested or inconsistent data.

use bytes::{BufMut, BytesMut};
use peeklock_amqp::{DeliveryState, Disposition, Encode, Flow, Message, Performative, Role, Transfer, Value};

use crate::support::{Rig, root_token, start};
use crate::wire::Wire;

/// Encodes nested lists in AMQP, each with its length.
fn nested(depth: usize) -> BytesMut {
    let mut inside = BytesMut::from(&[0x45][..]);
    for _ in 0..depth {
        let mut list = BytesMut::with_capacity(inside.len() + 9);
        list.put_u8(0xd0);
        list.put_u32(u32::try_from(inside.len() + 4).unwrap());
        list.put_u32(1);
        list.unsplit(inside);
        inside = list;
    }
    inside
}

/// Returns a frame with this content.
fn frame(content: &[u8]) -> BytesMut {
    let mut frame = BytesMut::new();
    frame.put_u32(u32::try_from(content.len() + 8).unwrap());
    frame.put_slice(&[2, 0, 0, 0]);
    frame.put_slice(content);
    frame
}

async fn receiving(rig: &Rig, count: u32) -> Wire {
    let good = rig.good().await;
    let sender = good.sender("orders").await.unwrap();
    for _ in 0..count {
        sender.send(&Message::data("x")).await.unwrap();
    }
    let mut wire = Wire::root(rig).await;
    wire.put_receiver(0, "orders");
    wire.put(&Flow {
        handle: Some(0),
        link_credit: Some(count),
        delivery_count: Some(0),
        next_incoming_id: Some(1),
        incoming_window: 5_000,
        outgoing_window: 5_000,
        ..Flow::default()
    });
    wire.flush().await;
    wire.granted().await.unwrap();
    for _ in 0..count {
        wire.until(|frame| matches!(frame, Performative::Transfer(_)).then_some(())).await.unwrap();
    }
    wire
}

#[tokio::test]
async fn a_settlement_of_four_billion_deliveries_costs_as_much_as_the_existing_ones() {
    let rig = start().await;
    let mut wire = receiving(&rig, 5).await;
    for (first, last) in [(0, u32::MAX), (u32::MAX, u32::MAX - 1), (0, u32::MAX), (65_536, 65_535)] {
        let state = Some(DeliveryState::Accepted);
        wire.put(&Disposition {
            role: Role::Receiver,
            first,
            last: Some(last),
            settled: true,
            state,
            batchable: false,
        });
    }
    wire.flush().await;
    rig.still_works().await;
}

#[tokio::test]
async fn numbers_out_of_order_end_only_their_connection() {
    let rig = start().await;
    let message = Message::data("x").to_bytes();
    for delivery_id in [u32::MAX, 0, 1 << 31] {
        let mut wire = Wire::root(&rig).await;
        wire.put_sender(0, "orders");
        wire.flush().await;
        wire.granted().await.unwrap();
        for handle in [0, 7, u32::MAX] {
            let tag = peeklock_amqp::DeliveryTag::from(1_u32);
            let transfer = Transfer {
                handle,
                delivery_id: Some(delivery_id),
                delivery_tag: Some(tag),
                message_format: Some(u32::MAX),
                ..Transfer::default()
            };
            wire.put_message(&transfer, &message);
        }
        let mad = Flow {
            next_incoming_id: Some(delivery_id),
            incoming_window: u32::MAX,
            next_outgoing_id: delivery_id,
            outgoing_window: u32::MAX,
            handle: Some(u32::MAX),
            ..Flow::default()
        };
        wire.put(&mad);
        wire.flush().await;
    }
    rig.still_works().await;
}

#[tokio::test]
async fn a_settled_delivery_does_not_affect_one_with_the_same_id() {
    let rig = start().await;
    let mut wire = Wire::root(&rig).await;
    wire.put_sender(0, "orders");
    wire.flush().await;
    wire.granted().await.unwrap();
    let transfer = |settled| Transfer {
        delivery_id: Some(5),
        delivery_tag: Some(peeklock_amqp::DeliveryTag::from(5_u32)),
        message_format: Some(0),
        settled: Some(settled),
        ..Transfer::default()
    };
    wire.put_message(&transfer(false), &Message::data("good").to_bytes());
    wire.put_message(&transfer(true), b"nonsense, which is refused at once");
    wire.flush().await;
    let outcome = wire.until(|frame| match frame {
        Performative::Disposition(disposition) => Some((disposition.first, disposition.state.clone())),
        _ => None,
    });
    assert_eq!(outcome.await, Some((5, Some(DeliveryState::Accepted))));
}

#[tokio::test]
async fn unlimited_nesting_is_rejected() {
    let rig = start().await;
    // The nesting is in a performative.
    let mut wire = Wire::root(&rig).await;
    let mut attach = BytesMut::from(&[0x00, 0x53, 0x12][..]);
    attach.unsplit(nested(3000));
    wire.output.unsplit(frame(&attach));
    wire.flush().await;
    assert_eq!(wire.refusal().await.condition, "amqp:decode-error");
    // The nesting is in a request.
    let mut wire = Wire::root(&rig).await;
    wire.service("orders/$management").await;
    let mut request = Message::value("x")
        .with_message_id("1")
        .with_property("operation", "com.microsoft:peek-message")
        .to_bytes()
        .to_vec();
    let body = request.len() - Message::value("x").to_bytes().len();
    request.truncate(body);
    request.extend_from_slice(&[0x00, 0x53, 0x77]);
    request.extend_from_slice(&nested(3000));
    wire.put_request(1, &request);
    wire.flush().await;
    assert_eq!(wire.refusal().await.condition, "amqp:decode-error");
    // The nesting is in a message, whose body the broker does not decode.
    let mut wire = Wire::root(&rig).await;
    wire.put_sender(0, "orders");
    wire.flush().await;
    wire.granted().await.unwrap();
    let body = [&[0x00, 0x53, 0x77][..], &nested(3000)].concat();
    wire.put_request(1, &body);
    wire.flush().await;
    rig.still_works().await;
}

#[tokio::test]
async fn requests_for_everything_are_answered_up_to_a_limit() {
    let rig = start().await;
    let mut wire = Wire::root(&rig).await;
    wire.service("orders/$management").await;
    let ask = |operation: &'static str, body: Vec<(&'static str, Value)>| {
        let body: Vec<_> = body.into_iter().map(|(key, value)| (Value::from(key), value)).collect();
        Message::value(body).with_message_id("1").with_property("operation", operation).to_bytes()
    };
    let many_numbers: Vec<_> = (0..10_000_i64).map(Value::from).collect();
    let requests = [
        ask(
            "com.microsoft:peek-message",
            vec![("from-sequence-number", i64::MAX.into()), ("message-count", i32::MAX.into())],
        ),
        ask(
            "com.microsoft:peek-message",
            vec![("from-sequence-number", i64::MIN.into()), ("message-count", (-1).into())],
        ),
        ask(
            "com.microsoft:get-message-sessions",
            vec![
                ("last-updated-time", Value::Timestamp(i64::MIN)),
                ("skip", i32::MAX.into()),
                ("top", i32::MAX.into()),
            ],
        ),
        ask("com.microsoft:cancel-scheduled-message", vec![("sequence-numbers", Value::List(many_numbers))]),
        ask("com.microsoft:no-such-thing", vec![]),
    ];
    for (number, request) in (0..).zip(&requests) {
        // The large request needs more than one frame.
        let mut parts = request.chunks(60_000).peekable();
        while let Some(part) = parts.next() {
            let transfer = Transfer {
                delivery_id: Some(number),
                delivery_tag: Some(peeklock_amqp::DeliveryTag::from(number)),
                message_format: Some(0),
                settled: Some(true),
                more: parts.peek().is_some(),
                ..Transfer::default()
            };
            wire.put_message(&transfer, part);
        }
        wire.flush().await;
        assert!(wire.response("statusCode").await.is_some(), "request {number}");
    }
    rig.still_works().await;
}

#[tokio::test]
async fn http_heads_and_bodies_are_limited() {
    let rig = start().await;
    let token = root_token();
    let deep = "[".repeat(100_000);
    let (status, answer) = rig.http_status("PUT", "/api/queues/deep", &token, &deep).await;
    assert!((400..500).contains(&status), "{answer}");
    let deep = format!("{}{}", "{\"a\":".repeat(5_000), "}".repeat(5_000));
    let (status, answer) = rig.http_status("PUT", "/api/queues/deep", &token, &deep).await;
    assert!((400..500).contains(&status), "{answer}");
    let huge = "x".repeat(4 << 20);
    let (status, _) = rig.http_status("PUT", "/api/queues/huge", &token, &huge).await;
    assert!((400..500).contains(&status), "{status}");
    let xml = format!("{}{}", "<a>".repeat(20_000), "</a>".repeat(20_000));
    let (status, answer) = rig.http_status("PUT", "/deep?api-version=2021-05", &token, &xml).await;
    assert!((400..500).contains(&status), "{answer}");
    let entities = "<!DOCTYPE x [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;&a;\">]><entry>&b;</entry>";
    let (status, answer) = rig.http_status("PUT", "/bomb?api-version=2021-05", &token, entities).await;
    assert!((400..500).contains(&status), "{answer}");
    let many = "X-H: y\r\n".repeat(5_000);
    let answer = rig.http_text(&format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{many}\r\n")).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    let answer =
        rig.http_text(&format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(200_000))).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    // Both requests announce more bytes than they send.
    for claim in ["Content-Length: 18446744073709551615", "Transfer-Encoding: chunked"] {
        let request = format!(
            "PUT /api/queues/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n{claim}\r\n\r\nffffffffffffffffff\r\n"
        );
        let answer = rig.http_text(&request).await;
        assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
    }
    rig.still_works().await;
}
