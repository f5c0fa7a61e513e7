//! A lost connection is dialled again, once for all.

use std::time::Duration;

use peeklock::{Backoff, Kind, Message};
use peeklock_types::QueueSettings;
use tokio::time::Instant;

use crate::rig::{Rig, a_moment};

#[tokio::test(start_paused = true)]
async fn all_senders_share_the_new_connection() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    let senders = [client.sender("q").await.unwrap(), client.sender("q").await.unwrap()];
    rig.network.cut();
    let sends = (0..10).map(|number| senders[number % 2].send(Message::text(number.to_string())));
    for sent in futures_util::future::join_all(sends).await {
        sent.unwrap();
    }
    assert_eq!(rig.network.dial_count(), 2);
    assert_eq!(client.peek("q", Default::default(), 100).await.unwrap().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_returns_in_time_is_not_noticed() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    let sender = client.sender("q").await.unwrap();
    rig.network.set_down(true);
    rig.network.cut();
    let sending = tokio::spawn(async move { sender.send(Message::text("x")).await });
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!sending.is_finished());
    rig.network.set_down(false);
    sending.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_stays_away_is_an_error_with_tries_and_time() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let backoff = Backoff::exponential(Duration::from_secs(1), Duration::from_secs(1)).attempts(3);
    let client = rig.client_with(backoff).await;
    let sender = client.sender("q").await.unwrap();
    rig.network.set_down(true);
    rig.network.cut();
    a_moment().await;
    let start = Instant::now();
    let error = sender.send(Message::text("x")).await.unwrap_err();
    assert_eq!((error.kind(), error.code(), error.is_transient()), (Kind::Connection, "E-CONN-01", true));
    let text = error.to_string();
    assert!(
        text.starts_with("E-CONN-01 Cannot reach memory (connection refused after 3 tries in "),
        "{text}"
    );
    assert!(text.contains("peeklock serve"), "{text}");
    assert!(start.elapsed() >= Duration::from_secs(1));
    // The next call starts again.
    rig.network.set_down(false);
    sender.send(Message::text("x")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn missing_entities_are_not_retried() {
    let rig = Rig::start().await;
    let client = rig.client().await;
    let start = Instant::now();
    let error = client.sender("ordrs").await.err().unwrap();
    assert_eq!((error.kind(), error.code()), (Kind::NotFound, "E-ENT-04"));
    assert!(error.to_string().contains("peeklock queue create ordrs"), "{error}");
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_closed_client_does_not_connect_again() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    let (sender, mut receiver) =
        (client.sender("q").await.unwrap(), client.receiver("q").open().await.unwrap());
    client.close().await;
    assert_eq!(sender.send(Message::text("x")).await.unwrap_err().kind(), Kind::Closed);
    assert_eq!(receiver.next().await.err().unwrap().kind(), Kind::Closed);
    assert_eq!(rig.network.dial_count(), 1);
}
