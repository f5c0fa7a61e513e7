//! What a consumer sees is the same over every transport.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

#[path = "../common/mod.rs"]
mod common;

use std::time::Duration;

use peeklock::admin::Queue;
use peeklock::{Client, Delivery, Kind, Message};

use common::for_each_transport;

async fn given(client: &Client, queue: Queue, texts: &[&str]) {
    client.admin().create_queue("orders", queue).await.unwrap();
    let sender = client.sender("orders").await.unwrap();
    for text in texts {
        sender.send(Message::text(*text).message_id((*text).to_owned())).await.unwrap();
    }
}

fn text(delivery: &Delivery) -> String {
    delivery.message().body_text().into_owned()
}

#[tokio::test]
async fn messages_arrive_in_order_and_each_settlement_has_its_effect() {
    for_each_transport(async |client| {
        given(&client, Queue::new().max_delivery_count(2), &["a", "b", "c"]).await;
        let mut receiver = client.receiver("orders").manual_credit().open().await.unwrap();
        receiver.add_credit(3).await.unwrap();
        let mut held = Vec::new();
        for expected in ["a", "b", "c"] {
            let delivery = receiver.next().await.unwrap().unwrap();
            assert_eq!(text(&delivery), expected);
            held.push(delivery);
        }
        let counts = client.admin().queue("orders").await.unwrap().counts;
        assert_eq!(counts.locked_count, 3);
        let [first, second, third] = <[Delivery; 3]>::try_from(held).ok().unwrap();
        first.complete().await.unwrap();
        second.abandon().await.unwrap();
        third.dead_letter("Bad", "too sweet").await.unwrap();
        receiver.add_credit(1).await.unwrap();
        let again = receiver.next().await.unwrap().unwrap();
        assert_eq!((text(&again).as_str(), again.message().delivery_count()), ("b", 1));
        again.abandon().await.unwrap();
        let mut dead = client.receiver("orders").dead_letter().open().await.unwrap();
        let mut reasons = Vec::new();
        for _ in 0..2 {
            let delivery = dead.next().await.unwrap().unwrap();
            let reason = delivery.message().dead_letter_reason().unwrap_or_default().to_owned();
            reasons.push((text(&delivery), reason));
            delivery.complete().await.unwrap();
        }
        reasons.sort_unstable();
        let expected = [("b", "MaxDeliveryCountExceeded"), ("c", "Bad")];
        assert_eq!(reasons, expected.map(|(text, reason)| (text.to_owned(), reason.to_owned())));
        assert_eq!(client.admin().queue("orders").await.unwrap().counts.message_count, 0);
    })
    .await;
}

#[tokio::test]
async fn a_dropped_delivery_is_abandoned_at_once() {
    for_each_transport(async |client| {
        given(&client, Queue::new(), &["a"]).await;
        let mut receiver = client.receiver("orders").open().await.unwrap();
        drop(receiver.next().await.unwrap().unwrap());
        let again = receiver.next().await.unwrap().unwrap();
        assert_eq!(again.message().delivery_count(), 1);
        again.complete().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_session_has_one_holder_and_keeps_its_state() {
    for_each_transport(async |client| {
        client.admin().create_queue("orders", Queue::new().sessions(true)).await.unwrap();
        let sender = client.sender("orders").await.unwrap();
        sender.send(Message::text("a").session_id("table-7")).await.unwrap();
        let mut holder =
            client.receiver("orders").next_session(Duration::from_secs(10)).open().await.unwrap();
        let session = holder.session().unwrap().clone();
        assert_eq!(session.id(), "table-7");
        let second = client.receiver("orders").session("table-7").open().await;
        assert_eq!(second.err().unwrap().kind(), Kind::NoSession);
        holder.next().await.unwrap().unwrap().complete().await.unwrap();
        session.set_state(Some("seated".into())).await.unwrap();
        assert_eq!(session.state().await.unwrap().as_deref(), Some(b"seated".as_slice()));
        holder.close().await.unwrap();
        let next = client.receiver("orders").session("table-7").open().await.unwrap();
        assert_eq!(next.session().unwrap().state().await.unwrap().as_deref(), Some(b"seated".as_slice()));
    })
    .await;
}
