//! Locks: their renewal, and their loss.

use peeklock::Kind;
use peeklock::admin::Queue;

use crate::world::{SHORT_LOCK, World, take, take_many, text};

on_every_transport!(a_lost_lock_is_an_error_and_the_message_comes_back, a_renewed_lock_outlasts_another_one);

async fn a_lost_lock_is_an_error_and_the_message_comes_back(world: World) {
    world.queue_with("orders", Queue::new().lock_duration(SHORT_LOCK), &["a"]).await;
    let late = take(&mut world.receiver("orders").await).await;
    // The next delivery of the message is the end of the lock.
    let again = take(&mut world.receiver("orders").await).await;
    assert_eq!((text(&again).as_str(), again.message().delivery_count()), ("a", 1));
    for error in [late.renew().await.unwrap_err(), late.complete().await.unwrap_err()] {
        assert_eq!((error.kind(), error.code(), error.is_transient()), (Kind::LockLost, "E-LOCK-01", false));
        assert!(error.to_string().contains("raise the lock duration"), "{error}");
    }
    again.complete().await.unwrap();
    world.assert_empty("orders").await;
}

async fn a_renewed_lock_outlasts_another_one(world: World) {
    world.queue_with("orders", Queue::new().lock_duration(SHORT_LOCK), &["kept", "lost"]).await;
    let mut holder = world.receiver("orders").await;
    let mut held = take_many(&mut holder, 2).await.into_iter();
    let (kept, lost) = (held.next().unwrap(), held.next().unwrap());
    let mut other = world.receiver("orders").await;
    let mut renewals = tokio::time::interval(SHORT_LOCK / 4);
    let renewing = async {
        loop {
            renewals.tick().await;
            kept.renew().await.unwrap();
        }
    };
    let again = tokio::select! {
        again = take(&mut other) => again,
        never = renewing => never,
    };
    assert_eq!((text(&again).as_str(), text(&lost).as_str()), ("lost", "lost"));
    kept.complete().await.unwrap();
    assert_eq!(lost.complete().await.unwrap_err().kind(), Kind::LockLost);
    again.complete().await.unwrap();
    world.assert_empty("orders").await;
}
