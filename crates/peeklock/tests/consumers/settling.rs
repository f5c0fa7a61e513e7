//! Receiving and settling in every way.

use std::time::Duration;

use peeklock::admin::Queue;
use peeklock::{Delivery, Kind, Message, ReceiveMode, SequenceNumber};
use tokio::time::Instant;

use crate::world::{World, take, take_many, text};

on_every_transport!(
    messages_arrive_in_order_and_each_settlement_has_its_effect,
    a_dropped_delivery_is_abandoned_at_once,
    an_abandoned_message_comes_back_after_its_delay,
    a_deferred_message_is_fetched_by_its_number,
    dead_letters_are_read_and_sent_again,
    a_released_message_is_not_counted,
    messages_are_deleted_when_they_are_received,
    competing_receivers_share_the_messages,
);

async fn messages_arrive_in_order_and_each_settlement_has_its_effect(world: World) {
    world.queue_with("orders", Queue::new().max_delivery_count(2), &["a", "b", "c"]).await;
    let mut receiver = world.receiver("orders").await;
    let held = take_many(&mut receiver, 3).await;
    assert_eq!(held.iter().map(text).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(world.counts("orders").await.locked_count, 3);
    let [first, second, third] = <[Delivery; 3]>::try_from(held).ok().unwrap();
    first.complete().await.unwrap();
    second.abandon().await.unwrap();
    third.dead_letter("Bad", "too sweet").await.unwrap();
    let again = take(&mut receiver).await;
    assert_eq!((text(&again).as_str(), again.message().delivery_count()), ("b", 1));
    again.abandon().await.unwrap();
    let mut dead = world.dead_letters("orders").await;
    let mut reasons = Vec::new();
    for delivery in take_many(&mut dead, 2).await {
        let message = delivery.message();
        let part = |part: Option<&str>| part.unwrap_or_default().to_owned();
        reasons.push((
            text(&delivery),
            part(message.dead_letter_reason()),
            part(message.dead_letter_description()),
        ));
        delivery.complete().await.unwrap();
    }
    reasons.sort_unstable();
    assert_eq!((reasons[0].0.as_str(), reasons[0].1.as_str()), ("b", "MaxDeliveryCountExceeded"));
    assert_eq!(reasons[1], ("c".to_owned(), "Bad".to_owned(), "too sweet".to_owned()));
    world.assert_empty("orders").await;
}

async fn a_dropped_delivery_is_abandoned_at_once(world: World) {
    world.queue_with("orders", Queue::new(), &["a"]).await;
    let mut receiver = world.receiver("orders").await;
    drop(take(&mut receiver).await);
    let again = take(&mut receiver).await;
    assert_eq!(again.message().delivery_count(), 1);
    again.complete().await.unwrap();
    world.assert_empty("orders").await;
}

async fn an_abandoned_message_comes_back_after_its_delay(world: World) {
    const DELAY: Duration = Duration::from_millis(300);
    world.queue_with("orders", Queue::new(), &["a"]).await;
    let mut receiver = world.receiver("orders").await;
    let delivery = take(&mut receiver).await;
    let number = delivery.message().sequence_number();
    let abandoned_at = Instant::now();
    delivery.abandon_after(DELAY).await.unwrap();
    let again = take(&mut receiver).await;
    assert!(abandoned_at.elapsed() >= DELAY - Duration::from_millis(2), "{:?}", abandoned_at.elapsed());
    assert_eq!((again.message().delivery_count(), again.message().sequence_number()), (1, number));
    again.complete().await.unwrap();
    world.assert_empty("orders").await;
}

async fn a_deferred_message_is_fetched_by_its_number(world: World) {
    world.queue_with("orders", Queue::new(), &["a", "b"]).await;
    let mut receiver = world.receiver("orders").await;
    let delivery = take(&mut receiver).await;
    let number = delivery.message().sequence_number().unwrap();
    delivery.defer().await.unwrap();
    let next = take(&mut receiver).await;
    assert_eq!(text(&next), "b", "a deferred message is not delivered");
    next.complete().await.unwrap();
    assert_eq!(world.counts("orders").await.deferred_count, 1);
    let fetched = receiver.receive_deferred(&[number]).await.unwrap().remove(0);
    assert_eq!((text(&fetched).as_str(), fetched.message().sequence_number()), ("a", Some(number)));
    fetched.complete().await.unwrap();
    world.assert_empty("orders").await;
    let gone = receiver.receive_deferred(&[number]).await.err().unwrap();
    assert_eq!((gone.kind(), gone.code()), (Kind::NotFound, "E-DATA-03"));
}

async fn dead_letters_are_read_and_sent_again(world: World) {
    world.queue_with("orders", Queue::new(), &["a", "b"]).await;
    for delivery in take_many(&mut world.receiver("orders").await, 2).await {
        delivery.dead_letter("BadAddress", "street is empty").await.unwrap();
    }
    assert_eq!(world.counts("orders").await.dead_letter_count, 2);
    let (mut dead, sender) =
        (world.dead_letters("orders").await, world.client.sender("orders").await.unwrap());
    for _ in 0..2 {
        let delivery = take(&mut dead).await;
        let message = delivery.message();
        assert_eq!(message.dead_letter_reason(), Some("BadAddress"));
        assert_eq!(message.dead_letter_description(), Some("street is empty"));
        let corrected = Message::text(format!("{} corrected", message.body_text()));
        sender.send(corrected).await.unwrap();
        delivery.complete().await.unwrap();
    }
    let again = take_many(&mut world.receiver("orders").await, 2).await;
    assert_eq!(again.iter().map(text).collect::<Vec<_>>(), ["a corrected", "b corrected"]);
    assert_eq!(again[0].message().dead_letter_reason(), None);
    for delivery in again {
        delivery.complete().await.unwrap();
    }
    world.assert_empty("orders").await;
}

async fn a_released_message_is_not_counted(world: World) {
    world.queue_with("orders", Queue::new(), &["a"]).await;
    let mut receiver = world.receiver("orders").await;
    take(&mut receiver).await.release().await.unwrap();
    let again = take(&mut receiver).await;
    assert_eq!(again.message().delivery_count(), 0);
    again.complete().await.unwrap();
}

async fn messages_are_deleted_when_they_are_received(world: World) {
    world.queue_with("orders", Queue::new(), &["a", "b"]).await;
    let builder = world.client.receiver("orders").mode(ReceiveMode::ReceiveAndDelete).manual_credit();
    let mut receiver = builder.open().await.unwrap();
    let delivery = take(&mut receiver).await;
    assert_eq!((text(&delivery).as_str(), delivery.lock_token()), ("a", None));
    let counts = world.counts("orders").await;
    assert_eq!((counts.message_count, counts.locked_count), (1, 0));
    delivery.complete().await.unwrap();
    assert_eq!(world.client.peek("orders", SequenceNumber(0), 10).await.unwrap().len(), 1);
}

async fn competing_receivers_share_the_messages(world: World) {
    let texts: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    world.queue_with("orders", Queue::new(), &texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let other = world.other_client().await;
    let mut receivers =
        [world.receiver("orders").await, other.receiver("orders").manual_credit().open().await.unwrap()];
    let mut seen = Vec::new();
    for number in 0..20 {
        let delivery = take(&mut receivers[number % 2]).await;
        seen.push(text(&delivery));
        delivery.complete().await.unwrap();
    }
    assert_eq!(seen, texts, "each once, in their order");
    world.assert_empty("orders").await;
}
