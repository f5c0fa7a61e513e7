//! Transactions: all or nothing, also when the connection is lost.

use peeklock::{Client, Kind, Message};
use peeklock_types::QueueSettings;

use crate::rig::{Rig, a_moment};

async fn rig() -> Rig {
    let rig = Rig::with_queue("orders", QueueSettings::default()).await;
    rig.queue("invoices", QueueSettings::default()).await;
    rig
}

async fn counts(client: &Client) -> (usize, usize) {
    let orders = client.peek("orders", Default::default(), 10).await.unwrap().len();
    (orders, client.peek("invoices", Default::default(), 10).await.unwrap().len())
}

#[tokio::test(start_paused = true)]
async fn a_transaction_spans_entities() {
    let rig = rig().await;
    let client = rig.client().await;
    let (orders, invoices) =
        (client.sender("orders").await.unwrap(), client.sender("invoices").await.unwrap());
    orders.send(Message::text("order")).await.unwrap();
    let mut receiver = client.receiver("orders").open().await.unwrap();
    let order = receiver.next().await.unwrap().unwrap();
    let work = client.transaction().await.unwrap();
    work.send(&invoices, Message::text("invoice")).await.unwrap();
    work.complete(order).await.unwrap();
    assert_eq!(counts(&client).await, (1, 0));
    work.commit().await.unwrap();
    assert_eq!(counts(&client).await, (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_rolled_back_transaction_returns_its_messages_at_once() {
    let rig = rig().await;
    let client = rig.client().await;
    client.sender("orders").await.unwrap().send(Message::text("order")).await.unwrap();
    let mut receiver = client.receiver("orders").open().await.unwrap();
    for count in 0..2 {
        let order = receiver.next().await.unwrap().unwrap();
        assert_eq!(order.message().delivery_count(), count);
        let work = client.transaction().await.unwrap();
        work.complete(order).await.unwrap();
        // The second one is dropped.
        if count == 0 {
            work.roll_back().await.unwrap();
        }
    }
    let order = receiver.next().await.unwrap().unwrap();
    assert_eq!(order.message().delivery_count(), 2);
    order.complete().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_rolls_back_and_the_work_can_begin_again() {
    let rig = rig().await;
    let client = rig.client().await;
    let (orders, invoices) =
        (client.sender("orders").await.unwrap(), client.sender("invoices").await.unwrap());
    orders.send(Message::text("order")).await.unwrap();
    let mut receiver = client.receiver("orders").open().await.unwrap();
    let order = receiver.next().await.unwrap().unwrap();
    let work = client.transaction().await.unwrap();
    work.complete(order).await.unwrap();
    rig.network.cut();
    a_moment().await;
    let error = work.send(&invoices, Message::text("invoice")).await.unwrap_err();
    assert_eq!((error.kind(), error.code(), error.is_transient()), (Kind::RolledBack, "E-TX-02", true));
    assert_eq!(work.commit().await.unwrap_err().kind(), Kind::RolledBack);
    // The delivery of the former connection can be part of a transaction on the new one.
    let order = receiver.next().await.unwrap().unwrap();
    rig.network.cut();
    a_moment().await;
    let work = client.transaction().await.unwrap();
    work.send(&invoices, Message::text("invoice")).await.unwrap();
    work.complete(order).await.unwrap();
    work.commit().await.unwrap();
    assert_eq!(counts(&client).await, (0, 1));
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_commit_without_an_answer_is_unknown() {
    let rig = rig().await;
    let client = rig.client().await;
    let invoices = client.sender("invoices").await.unwrap();
    let work = client.transaction().await.unwrap();
    work.send(&invoices, Message::text("invoice")).await.unwrap();
    rig.network.mute();
    let committing = tokio::spawn(work.commit());
    a_moment().await;
    rig.network.cut();
    let error = committing.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.code(), error.is_transient()), (Kind::Connection, "E-TX-03", false));
}

#[tokio::test(start_paused = true)]
async fn a_failed_step_dooms_the_transaction() {
    let rig = rig().await;
    let client = rig.client().await;
    let invoices = client.sender("invoices").await.unwrap();
    let work = client.transaction().await.unwrap();
    work.send(&invoices, Message::text("invoice")).await.unwrap();
    let large = Message::new(vec![7; 2 << 20]);
    assert_eq!(work.send(&invoices, large).await.unwrap_err().kind(), Kind::TooLarge);
    let error = work.commit().await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::RolledBack, "E-TX-01"));
    a_moment().await;
    assert_eq!(counts(&client).await, (0, 0));
}
