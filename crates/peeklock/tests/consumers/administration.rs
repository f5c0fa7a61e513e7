//! Administration: entities, counts, purges.

use std::time::{Duration, SystemTime};

use peeklock::admin::{Queue, QueueStatus};
use peeklock::{Kind, Message};

use crate::world::{World, take};

const HOUR: Duration = Duration::from_secs(3600);

on_every_transport!(
    counts_follow_the_messages,
    queues_come_change_and_go,
    a_purge_spares_locked_and_scheduled_messages
);

async fn counts_follow_the_messages(world: World) {
    world.queue_with("orders", Queue::new(), &["dead", "deferred", "locked", "a", "b"]).await;
    let sender = world.client.sender("orders").await.unwrap();
    sender.schedule(Message::text("later"), SystemTime::now() + HOUR).await.unwrap();
    let mut receiver = world.receiver("orders").await;
    take(&mut receiver).await.dead_letter("Bad", "").await.unwrap();
    take(&mut receiver).await.defer().await.unwrap();
    let _locked = take(&mut receiver).await;
    let counts = world.counts("orders").await;
    assert_eq!((counts.active_count, counts.locked_count), (3, 1), "locked messages are active");
    assert_eq!((counts.deferred_count, counts.scheduled_count, counts.dead_letter_count), (1, 1, 1));
}

async fn queues_come_change_and_go(world: World) {
    let admin = world.client.admin();
    world.queue("orders", Queue::new().max_delivery_count(5)).await;
    world.queue("invoices", Queue::new()).await;
    let names: Vec<_> =
        admin.queues().await.unwrap().into_iter().map(|queue| queue.name.to_string()).collect();
    assert_eq!(names, ["invoices", "orders"]);
    let taken = admin.create_queue("orders", Queue::new()).await.unwrap_err();
    assert_eq!((taken.kind(), taken.code()), (Kind::Exists, "E-ENT-01"));
    let changed = Queue::new().lock_duration(Duration::from_secs(30)).status(QueueStatus::Active);
    admin.update_queue("orders", changed).await.unwrap();
    let spec = admin.queue("orders").await.unwrap().spec;
    assert_eq!((spec.max_delivery_count, spec.lock_duration), (Some(5), Some(Duration::from_secs(30))));
    admin.delete_queue("orders").await.unwrap();
    let gone = admin.queue("orders").await.unwrap_err();
    assert_eq!((gone.kind(), gone.code()), (Kind::NotFound, "E-ENT-04"));
    let invalid = Queue::new().max_delivery_count(0);
    assert_eq!(admin.create_queue("x", invalid).await.unwrap_err().kind(), Kind::Invalid);
}

async fn a_purge_spares_locked_and_scheduled_messages(world: World) {
    world.queue_with("orders", Queue::new(), &["locked", "a", "b", "c"]).await;
    let sender = world.client.sender("orders").await.unwrap();
    sender.schedule(Message::text("later"), SystemTime::now() + HOUR).await.unwrap();
    let locked = take(&mut world.receiver("orders").await).await;
    assert_eq!(world.client.purge("orders", None).await.unwrap(), 3);
    let counts = world.counts("orders").await;
    assert_eq!((counts.active_count, counts.scheduled_count), (1, 1));
    locked.dead_letter("Bad", "").await.unwrap();
    assert_eq!(world.client.purge("orders/$DeadLetterQueue", None).await.unwrap(), 1);
    assert_eq!(world.counts("orders").await.message_count, 1);
}
