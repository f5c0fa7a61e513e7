//! Steps of the system's clock: tokens end by the new time, and locks show it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use peeklock_access::Secret;
use peeklock_amqp::connection::SaslClient;
use peeklock_amqp::{Attach, DeliveryState, Symbol, Value};
use peeklock_broker::Clock;
use peeklock_types::{QueueSettings, Timestamp};
use tokio::time::Instant;

use crate::access::token;
use crate::support::{Rig, message, receiver};

const STEP_MS: u64 = 600_000;

async fn rig() -> (Arc<AtomicU64>, Rig) {
    let (wall, start) = (Arc::new(AtomicU64::new(1_700_000_000_000)), Instant::now());
    let read = Arc::clone(&wall);
    let clock =
        Clock::following(move || Timestamp::from_millis(read.load(Ordering::Relaxed)) + start.elapsed());
    let rig = Rig::start_at(clock).await;
    let settings = QueueSettings { lock_duration: Duration::from_secs(30), ..QueueSettings::default() };
    rig.queue("orders", settings).await;
    (wall, rig)
}

#[tokio::test(start_paused = true)]
async fn a_step_ends_the_links_of_tokens_that_have_expired_by_then() {
    let (wall, rig) = rig().await;
    let mut client = rig.client_with(SaslClient::anonymous()).await;
    let tokens = client.tokens().await;
    let secret = Secret::new("secret");
    let short = token(&rig, "all", &secret, "sb://h/orders", STEP_MS / 1000 - 60);
    assert_eq!(client.put_token(&tokens, "sb://h/orders", short).await, 202);
    let link = client.sender("orders").await;
    assert_eq!(client.send(link, &message("one")).await, DeliveryState::Accepted);
    wall.fetch_add(STEP_MS, Ordering::Relaxed);
    let stepped = Instant::now();
    // The next input of the peer is enough.
    client.management("").await;
    assert_eq!(client.detached(link).await.condition, "amqp:unauthorized-access");
    assert!(stepped.elapsed() < Duration::from_secs(5), "{:?}", stepped.elapsed());
    // A token with the new time is accepted, and expires when its time is over.
    let fresh = token(&rig, "all", &secret, "sb://h/orders", 60);
    assert_eq!(client.put_token(&tokens, "sb://h/orders", fresh).await, 202);
    let link = client.sender("orders").await;
    assert_eq!(client.send(link, &message("two")).await, DeliveryState::Accepted);
    client.detached(link).await;
    assert!((59..63).contains(&stepped.elapsed().as_secs()), "{:?}", stepped.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_token_of_which_a_part_is_left_after_a_step_ends_earlier() {
    let (wall, rig) = rig().await;
    let mut client = rig.client_with(SaslClient::anonymous()).await;
    let tokens = client.tokens().await;
    let longer = token(&rig, "all", &Secret::new("secret"), "sb://h/orders", STEP_MS / 1000 + 60);
    assert_eq!(client.put_token(&tokens, "sb://h/orders", longer).await, 202);
    let link = client.sender("orders").await;
    wall.fetch_add(STEP_MS, Ordering::Relaxed);
    let stepped = Instant::now();
    assert_eq!(client.send(link, &message("one")).await, DeliveryState::Accepted);
    client.detached(link).await;
    assert!((58..63).contains(&stepped.elapsed().as_secs()), "{:?}", stepped.elapsed());
}

#[tokio::test(start_paused = true)]
async fn messages_after_a_step_show_locks_by_the_new_time() {
    let (wall, rig) = rig().await;
    let mut client = rig.client().await;
    let link = client.sender("orders").await;
    client.send(link, &message("one")).await;
    let desired = receiver("orders", None);
    let desired_capabilities = vec![Symbol::from_static("peeklock:time")];
    let (receiver, reply) = client.attach(Attach { desired_capabilities, ..desired }).await.unwrap();
    let properties = reply.properties.unwrap_or_default();
    assert_eq!(properties.get("peeklock:lock-duration"), Some(&Value::Uint(30_000)));
    assert!(properties.get("peeklock:time").is_some());
    wall.fetch_add(STEP_MS, Ordering::Relaxed);
    let (_, message) = client.receive(receiver).await;
    let until = message.message_annotations.get("x-opt-locked-until").and_then(Value::as_timestamp);
    let now = i64::try_from(rig.broker.clock().now().as_millis()).unwrap();
    let left_ms = until.unwrap() - now;
    assert!((29_000..=30_000).contains(&left_ms), "{left_ms}");
}
