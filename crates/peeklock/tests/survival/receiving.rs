//! Receivers attach again with their remaining credit.

use std::time::Duration;

use futures_util::StreamExt;
use peeklock::{Client, Kind, Message, Receiver};
use peeklock_types::{EntityName, QueueSettings};

use crate::rig::{Rig, a_moment};

async fn send(client: &Client, bodies: impl IntoIterator<Item = u32>) {
    let sender = client.sender("q").await.unwrap();
    for body in bodies {
        sender.send(Message::text(body.to_string())).await.unwrap();
    }
}

async fn body(receiver: &mut Receiver) -> String {
    let delivery = receiver.next().await.unwrap().unwrap();
    let body = delivery.message().body_text().into_owned();
    delivery.complete().await.unwrap();
    body
}

#[tokio::test(start_paused = true)]
async fn a_waiting_receiver_attaches_again() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    let mut receiver = client.receiver("q").open().await.unwrap();
    let receiving = tokio::spawn(async move { body(&mut receiver).await });
    a_moment().await;
    rig.network.cut();
    a_moment().await;
    send(&client, [7]).await;
    assert_eq!(receiving.await.unwrap(), "7");
}

#[tokio::test(start_paused = true)]
async fn manual_credit_survives_the_link() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    let mut receiver = client.receiver("q").manual_credit().open().await.unwrap();
    receiver.add_credit(3).await.unwrap();
    send(&client, [1]).await;
    assert_eq!(body(&mut receiver).await, "1");
    rig.network.cut();
    a_moment().await;
    send(&client, [2, 3, 4]).await;
    assert_eq!(body(&mut receiver).await, "2");
    assert_eq!(body(&mut receiver).await, "3");
    let none = tokio::time::timeout(Duration::from_secs(5), receiver.next()).await;
    assert!(none.is_err(), "a message beyond the credit arrived");
    receiver.add_credit(1).await.unwrap();
    assert_eq!(body(&mut receiver).await, "4");
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_wait_loses_nothing() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    let mut receiver = client.receiver("q").manual_credit().open().await.unwrap();
    receiver.add_credit(1).await.unwrap();
    rig.network.set_down(true);
    rig.network.cut();
    for _ in 0..100 {
        // The attempts to attach go on from call to call.
        let waited = tokio::time::timeout(Duration::from_millis(7), receiver.next()).await;
        assert!(waited.is_err());
    }
    rig.network.set_down(false);
    send(&client, [1]).await;
    let delivery = loop {
        if let Ok(next) = tokio::time::timeout(Duration::from_millis(7), receiver.next()).await {
            break next.unwrap().unwrap();
        }
    };
    delivery.complete().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stopped_receiver_ends_after_the_messages_in_flight() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    send(&client, [1, 2]).await;
    let mut receiver = client.receiver("q").open().await.unwrap();
    a_moment().await;
    receiver.stop().await.unwrap();
    assert_eq!((body(&mut receiver).await, body(&mut receiver).await), ("1".into(), "2".into()));
    assert!(receiver.next().await.unwrap().is_none());
    let mut receiver = client.receiver("q").open().await.unwrap();
    rig.network.cut();
    a_moment().await;
    receiver.stop().await.unwrap();
    assert!(receiver.next().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_receiver_is_a_stream() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    send(&client, 0..5).await;
    let receiver = client.receiver("q").prefetch(2).open().await.unwrap();
    let mut bodies = Vec::new();
    let mut first = receiver.take(5);
    while let Some(delivery) = first.next().await {
        let delivery = delivery.unwrap();
        bodies.push(delivery.message().body_text().into_owned());
        delivery.complete().await.unwrap();
    }
    assert_eq!(bodies, ["0", "1", "2", "3", "4"]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_queue_ends_the_receiver() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    let mut receiver = client.receiver("q").open().await.unwrap();
    rig.broker.delete(EntityName::parse("q").unwrap(), None).await.unwrap();
    for _ in 0..2 {
        let error = receiver.next().await.err().unwrap();
        assert_eq!((error.kind(), error.code()), (Kind::NotFound, "E-ENT-04"));
    }
    assert!(receiver.next().await.is_err());
    assert!(StreamExt::next(&mut receiver).await.is_some_and(|item| item.is_err()));
    assert!(StreamExt::next(&mut receiver).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_receiver_releases_what_nobody_took() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    send(&client, 0..5).await;
    let mut receiver = client.receiver("q").open().await.unwrap();
    let taken = receiver.next().await.unwrap().unwrap();
    a_moment().await;
    drop(receiver);
    a_moment().await;
    let mut other = client.receiver("q").open().await.unwrap();
    for number in 1..5 {
        let delivery = other.next().await.unwrap().unwrap();
        assert_eq!(delivery.message().body_text(), number.to_string());
        assert_eq!(delivery.message().delivery_count(), 0);
        delivery.complete().await.unwrap();
    }
    taken.complete().await.unwrap();
}
