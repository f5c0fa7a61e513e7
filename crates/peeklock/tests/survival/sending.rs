//! Senders: repeats, sizes, batches, rates.

use std::time::Duration;

use peeklock::{Kind, Message};
use peeklock_types::QueueSettings;

use crate::rig::Rig;

#[tokio::test(start_paused = true)]
async fn messages_without_an_id_get_one() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    let sender = client.sender("q").await.unwrap();
    sender.send(Message::text("a")).await.unwrap();
    sender.send_batch([Message::text("b"), Message::text("c").message_id("own")]).await.unwrap();
    let found = client.peek("q", Default::default(), 10).await.unwrap();
    let ids: Vec<_> = found.iter().map(|message| message.message_id().unwrap()).collect();
    assert_eq!((ids[0].len(), ids[1].len(), ids[2].as_str()), (32, 32, "own"));
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_filled_up_to_the_limit_and_stored_as_a_whole() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    let sender = client.sender("q").await.unwrap();
    let mut batch = sender.batch().await.unwrap();
    while batch.try_add(Message::new(vec![7; 10_000])).is_ok() {}
    let count = batch.len();
    assert!(count > 100, "{count}");
    sender.send_batch(batch).await.unwrap();
    assert_eq!(client.peek("q", Default::default(), 1000).await.unwrap().len(), count);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_large_is_not_sent() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    let sender = client.sender("q").await.unwrap();
    let messages = (0..3).map(|_| Message::new(vec![7; 500_000]));
    let error = sender.send_batch(messages).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (Kind::TooLarge, "E-SIZE-01"));
    assert!(error.to_string().contains("exceeds the limit of 1,048,576 for \"q\""), "{error}");
    assert!(client.peek("q", Default::default(), 10).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn repeats_of_an_unconfirmed_send_are_stored_once() {
    let settings =
        QueueSettings { duplicate_window: Some(Duration::from_secs(3600)), ..QueueSettings::default() };
    let mut dial_count = 0;
    for seed in 0..20 {
        let rig = Rig::with_queue("q", settings.clone()).await;
        rig.network.cut_at_random(seed);
        let client = rig.client().await;
        let sender = client.sender("q").await.unwrap();
        for number in 0..50 {
            sender.send(Message::text(number.to_string())).await.unwrap();
        }
        rig.network.calm();
        let stored = client.peek("q", Default::default(), 1000).await.unwrap();
        let bodies: Vec<_> = stored.iter().map(|message| message.body_text().into_owned()).collect();
        assert_eq!(bodies, (0..50).map(|number| number.to_string()).collect::<Vec<_>>(), "seed {seed}");
        dial_count += rig.network.dial_count();
    }
    assert!(dial_count > 60, "{dial_count}");
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_message_can_be_cancelled() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let client = rig.client().await;
    let sender = client.sender("q").await.unwrap();
    let at = rig.now() + Duration::from_secs(3600);
    let number = sender.schedule(Message::text("later"), at).await.unwrap();
    rig.network.cut();
    sender.cancel_scheduled(number).await.unwrap();
    assert!(client.peek("q", Default::default(), 10).await.unwrap().is_empty());
    assert_eq!(sender.cancel_scheduled(number).await.unwrap_err().kind(), Kind::NotFound);
}
