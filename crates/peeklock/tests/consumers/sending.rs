//! Sending: fields, batches, schedules, duplicates, times to live. Peeking.

use std::time::{Duration, SystemTime};

use peeklock::admin::Queue;
use peeklock::{Kind, Message, SequenceNumber};

use crate::world::{World, take, take_many, text};

const HOUR: Duration = Duration::from_secs(3600);

on_every_transport!(
    every_field_of_a_message_arrives,
    a_batch_takes_what_fits_and_is_stored_whole,
    a_scheduled_message_arrives_when_it_is_due,
    a_cancelled_message_never_arrives,
    peeked_messages_stay_where_they_are,
    a_repeated_message_is_stored_once,
    an_expired_message_is_dead_lettered,
);

async fn every_field_of_a_message_arrives(world: World) {
    world.queue("orders", Queue::new()).await;
    let message = Message::json(&["coffee", "tea"])
        .unwrap()
        .message_id("order-7")
        .correlation_id("cart-3")
        .subject("order")
        .to("kitchen")
        .reply_to("replies")
        .reply_to_session_id("table-7")
        .partition_key("shop-1")
        .time_to_live(HOUR)
        .property("region", "EU")
        .property("amount", 12_u64)
        .property("is_paid", true);
    world.client.sender("orders").await.unwrap().send(message).await.unwrap();
    let delivery = take(&mut world.receiver("orders").await).await;
    assert_eq!(delivery.json::<Vec<String>>().unwrap(), ["coffee", "tea"]);
    let message = delivery.message();
    assert_eq!(message.message_id().as_deref(), Some("order-7"));
    assert_eq!(message.correlation_id().as_deref(), Some("cart-3"));
    assert_eq!((message.subject(), message.reply_to()), (Some("order"), Some("replies")));
    assert_eq!(message.reply_to_session_id(), Some("table-7"));
    assert_eq!(message.message.properties.to.as_ref().map(|to| to.as_str()), Some("kitchen"));
    let media_type = message.message.properties.content_type.as_ref();
    assert_eq!(media_type.map(|media_type| media_type.as_str()), Some("application/json"));
    assert_eq!(message.expires_at().unwrap().since(message.enqueued_at().unwrap()), HOUR);
    let property = |name: &str| message.message.property(name).cloned();
    assert_eq!(property("region").and_then(|value| value.as_str().map(str::to_owned)).as_deref(), Some("EU"));
    assert_eq!(property("amount").and_then(|value| value.as_u64()), Some(12));
    assert_eq!(property("is_paid"), Some(true.into()));
    assert_eq!(message.delivery_count(), 0);
    delivery.complete().await.unwrap();
    world.assert_empty("orders").await;
}

async fn a_batch_takes_what_fits_and_is_stored_whole(world: World) {
    const LIMIT: u32 = 64 * 1024;
    world.queue("orders", Queue::new().max_message_size_bytes(LIMIT)).await;
    let sender = world.client.sender("orders").await.unwrap();
    let message = || Message::new(vec![7; 10_000]);
    let mut batch = sender.batch().await.unwrap();
    assert!(batch.is_empty());
    while batch.try_add(message()).is_ok() {}
    assert_eq!(batch.len(), 6);
    assert!(batch.size_bytes() <= u64::from(LIMIT));
    sender.send_batch(batch).await.unwrap();
    assert_eq!(world.counts("orders").await.active_count, 6);
    let too_large = Message::new(vec![7; 70_000]);
    assert!(sender.batch().await.unwrap().try_add(too_large).is_err(), "not even alone");
    // Without the check of the batch, all messages are refused together.
    let refused = sender.send_batch((0..7).map(|_| message())).await.unwrap_err();
    assert_eq!(refused.kind(), Kind::TooLarge);
    assert_eq!(world.counts("orders").await.active_count, 6);
    let mut receiver = world.receiver("orders").await;
    let deliveries = take_many(&mut receiver, 6).await;
    assert!(deliveries.iter().all(|delivery| delivery.message().body_bytes().unwrap().len() == 10_000));
    receiver.settle_many(deliveries, peeklock::Outcome::Complete).await.unwrap();
    world.assert_empty("orders").await;
}

async fn a_scheduled_message_arrives_when_it_is_due(world: World) {
    world.queue("orders", Queue::new()).await;
    let sender = world.client.sender("orders").await.unwrap();
    let due = SystemTime::now() + Duration::from_millis(300);
    sender.schedule(Message::text("soon"), due).await.unwrap();
    sender.send(Message::text("now")).await.unwrap();
    let mut receiver = world.receiver("orders").await;
    let deliveries = take_many(&mut receiver, 2).await;
    assert_eq!(deliveries.iter().map(text).collect::<Vec<_>>(), ["now", "soon"]);
    let message = deliveries[1].message();
    assert_eq!(message.scheduled_for(), Some(due.into()));
    assert!(message.enqueued_at() >= message.scheduled_for(), "it is enqueued when it is due");
    receiver.settle_many(deliveries, peeklock::Outcome::Complete).await.unwrap();
}

async fn a_cancelled_message_never_arrives(world: World) {
    world.queue("orders", Queue::new()).await;
    let sender = world.client.sender("orders").await.unwrap();
    let at = SystemTime::now() + HOUR;
    let first = sender.schedule(Message::text("a"), at).await.unwrap();
    let scheduled = |text: &str| Message::text(text).scheduled_for(at);
    let others = sender.schedule_many([scheduled("b"), scheduled("c")]).await.unwrap();
    assert_eq!(world.counts("orders").await.scheduled_count, 3);
    sender.cancel_scheduled(first).await.unwrap();
    assert_eq!(sender.cancel_scheduled(first).await.unwrap_err().kind(), Kind::NotFound);
    // All are cancelled or none.
    let mixed = sender.cancel_scheduled_many(&[others[0], first]).await.unwrap_err();
    assert_eq!(mixed.kind(), Kind::NotFound);
    assert_eq!(world.counts("orders").await.scheduled_count, 2);
    sender.cancel_scheduled_many(&others).await.unwrap();
    world.assert_empty("orders").await;
}

async fn peeked_messages_stay_where_they_are(world: World) {
    world.queue_with("orders", Queue::new(), &["a", "b", "c"]).await;
    let held = take(&mut world.receiver("orders").await).await;
    let page = world.client.peek("orders", SequenceNumber(0), 2).await.unwrap();
    let texts: Vec<_> = page.iter().map(|message| message.body_text().into_owned()).collect();
    assert_eq!(texts, ["a", "b"], "also a locked message can be seen");
    let last = page[1].sequence_number().unwrap();
    let rest = world.client.peek("orders", SequenceNumber(last.0 + 1), 10).await.unwrap();
    assert_eq!((rest.len(), rest[0].body_text().as_ref()), (1, "c"));
    assert!(rest[0].lock_token.is_none());
    let counts = world.counts("orders").await;
    assert_eq!((counts.locked_count, counts.message_count), (1, 3));
    held.dead_letter("Bad", "too sweet").await.unwrap();
    let dead = world.client.peek("orders/$DeadLetterQueue", SequenceNumber(0), 10).await.unwrap();
    assert_eq!((dead.len(), dead[0].dead_letter_reason()), (1, Some("Bad")));
}

async fn a_repeated_message_is_stored_once(world: World) {
    world.queue_with("orders", Queue::new().duplicate_window(HOUR), &["a", "b", "a"]).await;
    assert_eq!(world.counts("orders").await.active_count, 2);
    let mut receiver = world.receiver("orders").await;
    take(&mut receiver).await.complete().await.unwrap();
    world.send("orders", &["a"]).await;
    assert_eq!(world.counts("orders").await.active_count, 1, "also after the first was completed");
}

async fn an_expired_message_is_dead_lettered(world: World) {
    world.queue("orders", Queue::new().dead_letter_expired(true)).await;
    let sender = world.client.sender("orders").await.unwrap();
    sender.send(Message::text("a").time_to_live(Duration::from_millis(1))).await.unwrap();
    let delivery = take(&mut world.dead_letters("orders").await).await;
    assert_eq!(text(&delivery), "a");
    assert_eq!(delivery.message().dead_letter_reason(), Some("TTLExpiredException"));
    delivery.complete().await.unwrap();
    world.assert_empty("orders").await;
}
