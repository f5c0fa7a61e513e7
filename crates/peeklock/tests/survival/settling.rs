//! Deliveries: locks, settlements over lost links, drops.

use std::time::Duration;

use peeklock::{Client, Delivery, Kind, Message, Receiver};
use peeklock_types::QueueSettings;

use crate::rig::{Rig, a_moment};

const LOCK: Duration = Duration::from_secs(60);

async fn one(client: &Client) -> (Receiver, Delivery) {
    client.sender("q").await.unwrap().send(Message::text("x")).await.unwrap();
    let mut receiver = client.receiver("q").open().await.unwrap();
    let delivery = receiver.next().await.unwrap().unwrap();
    (receiver, delivery)
}

async fn count(client: &Client) -> usize {
    client.peek("q", Default::default(), 100).await.unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn a_delivery_is_settled_after_its_connection_is_lost() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    let (_receiver, delivery) = one(&client).await;
    rig.network.cut();
    delivery.complete().await.unwrap();
    assert_eq!(count(&client).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_is_settled_after_its_receiver_was_closed() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    let (receiver, delivery) = one(&client).await;
    receiver.close().await.unwrap();
    delivery.complete().await.unwrap();
    assert_eq!(count(&client).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_settlement_whose_answer_is_lost_succeeds_once() {
    for seed in 0..40 {
        let rig = Rig::with_queue("q", QueueSettings::default()).await;
        rig.network.cut_at_random(seed);
        let client = rig.client().await;
        let sender = client.sender("q").await.unwrap();
        sender.send_batch((0..20).map(|number| Message::text(number.to_string()))).await.unwrap();
        let mut receiver = client.receiver("q").prefetch(1).open().await.unwrap();
        for _ in 0..20 {
            receiver.next().await.unwrap().unwrap().complete().await.unwrap();
        }
        rig.network.calm();
        assert_eq!(count(&client).await, 0, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_measured_by_the_clock_of_the_broker() {
    let settings = QueueSettings { lock_duration: LOCK, ..QueueSettings::default() };
    let rig = Rig::with_queue("q", settings).await;
    let client = rig.client().await;
    let (_receiver, delivery) = one(&client).await;
    let remaining = delivery.lock_remaining().unwrap();
    assert!(remaining <= LOCK && remaining > LOCK - Duration::from_secs(1), "{remaining:?}");
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert!(delivery.lock_remaining().unwrap() <= Duration::from_secs(20));
    delivery.renew().await.unwrap();
    assert!(delivery.lock_remaining().unwrap() > Duration::from_secs(59));
    tokio::time::sleep(Duration::from_secs(50)).await;
    // The lock is renewed on a new connection as well.
    rig.network.cut();
    delivery.renew().await.unwrap();
    tokio::time::sleep(Duration::from_secs(50)).await;
    delivery.complete().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_expired_lock_is_an_error() {
    let rig = Rig::with_queue("q", QueueSettings { lock_duration: LOCK, ..QueueSettings::default() }).await;
    let client = rig.client().await;
    let (receiver, delivery) = one(&client).await;
    drop(receiver);
    tokio::time::sleep(LOCK + Duration::from_secs(1)).await;
    assert_eq!(delivery.lock_remaining(), Some(Duration::ZERO));
    let error = delivery.complete().await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::LockLost, "E-LOCK-01"));
    assert_eq!(count(&client).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_delivery_is_abandoned_at_once() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    let (mut receiver, delivery) = one(&client).await;
    drop(delivery);
    let delivery = receiver.next().await.unwrap().unwrap();
    assert_eq!(delivery.message().delivery_count(), 1);
    // The same over a lost link.
    rig.network.cut();
    a_moment().await;
    drop(delivery);
    let delivery = receiver.next().await.unwrap().unwrap();
    assert_eq!(delivery.message().delivery_count(), 2);
    delivery.complete().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_certain_only_while_the_lock_cannot_have_expired() {
    for (wait, is_certain) in [(LOCK / 2, true), (LOCK + Duration::from_secs(1), false)] {
        let settings = QueueSettings { lock_duration: LOCK, ..QueueSettings::default() };
        let rig = Rig::with_queue("q", settings).await;
        let client = rig.client().await;
        let (_receiver, delivery) = one(&client).await;
        rig.network.mute();
        let completing = tokio::spawn(delivery.complete());
        tokio::time::sleep(wait).await;
        rig.network.cut();
        let result = completing.await.unwrap();
        if is_certain {
            result.unwrap();
        } else {
            let error = result.unwrap_err();
            assert_eq!((error.kind(), error.code()), (Kind::LockLost, "E-LOCK-02"));
        }
        assert_eq!(count(&client).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deferred_message_is_fetched_and_settled_like_any_other() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    let (receiver, delivery) = one(&client).await;
    let number = delivery.message().sequence_number().unwrap();
    delivery.defer().await.unwrap();
    rig.network.cut();
    let mut fetched = client.receive_deferred("q", &[number]).await.unwrap();
    // A dropped one is abandoned: it stays deferred and can be fetched again.
    drop(fetched.pop().unwrap());
    a_moment().await;
    rig.network.cut();
    let mut fetched = receiver.receive_deferred(&[number]).await.unwrap();
    fetched.pop().unwrap().complete().await.unwrap();
    assert_eq!(count(&client).await, 0);
    assert_eq!(client.receive_deferred("q", &[number]).await.err().unwrap().kind(), Kind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_deserialise_is_a_clear_error() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    let (_receiver, delivery) = one(&client).await;
    let error = delivery.json::<u32>().unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::Malformed, "E-DATA-04"));
    delivery.dead_letter("DeserializeFailed", &error.to_string()).await.unwrap();
    let sender = client.sender("q").await.unwrap();
    sender.send(Message::json(&7).unwrap()).await.unwrap();
    let mut receiver = client.receiver("q").open().await.unwrap();
    let delivery = receiver.next().await.unwrap().unwrap();
    assert_eq!(delivery.json::<u32>().unwrap(), 7);
    delivery.complete().await.unwrap();
    let mut dead = client.receiver("q").dead_letter().open().await.unwrap();
    let delivery = dead.next().await.unwrap().unwrap();
    assert_eq!(delivery.message().dead_letter_reason(), Some("DeserializeFailed"));
    delivery.complete().await.unwrap();
}
