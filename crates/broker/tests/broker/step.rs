//! Tests of steps of the system's clock while the broker runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use peeklock_broker::Clock;
use peeklock_broker::engine::{Attributes, ReceiveMode, Settlement};
use peeklock_journal::MemoryJournal;
use peeklock_types::{QueueSettings, Timestamp};
use tokio::time::Instant;

use crate::common::Rig;

const START_MS: u64 = 1_700_000_000_000;

/// The wall clock of the machine, which a test sets.
struct Wall(Arc<AtomicU64>);

impl Wall {
    fn new() -> (Self, Clock) {
        let (shown, start) = (Arc::new(AtomicU64::new(START_MS)), Instant::now());
        let read = Arc::clone(&shown);
        let clock =
            Clock::following(move || Timestamp::from_millis(read.load(Ordering::Relaxed)) + start.elapsed());
        (Wall(shown), clock)
    }

    fn step_forward(&self, by_ms: u64) {
        self.0.fetch_add(by_ms, Ordering::Relaxed);
    }

    fn step_back(&self, by_ms: u64) {
        self.0.fetch_sub(by_ms, Ordering::Relaxed);
    }
}

fn settings() -> QueueSettings {
    QueueSettings { lock_duration: Duration::from_secs(30), ..QueueSettings::default() }
}

#[tokio::test(start_paused = true)]
async fn a_step_of_the_clock_ends_no_lock_and_new_locks_have_the_new_time() {
    let (wall, clock) = Wall::new();
    let rig = Rig::start_at(MemoryJournal::new(), clock).await;
    let mut queue = rig.queue_with("orders", settings()).await;
    for body in [b"one", b"two"] {
        queue.send(body).await;
    }
    let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 1, false).await;
    let (first, _) = queue.delivery().await;
    wall.step_forward(600_000);
    tokio::time::sleep(Duration::from_secs(20)).await;
    queue.credit(receiver, 2, false).await;
    let (second, _) = queue.delivery().await;
    assert_eq!(second.message.delivery_count, 0, "the first lock has not ended");
    let until = second.message.locked_until.unwrap();
    let now = rig.broker.clock().now();
    assert!(until <= now + Duration::from_secs(30) && until > now + Duration::from_secs(29));
    queue.settle(first.token, Settlement::Complete).await.unwrap();
    queue.settle(second.token, Settlement::Complete).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_extended_lock_survives_a_crash_and_ends() {
    let (wall, clock) = Wall::new();
    let rig = Rig::start_at(MemoryJournal::new(), clock.clone()).await;
    let mut queue = rig.queue_with("orders", settings()).await;
    queue.send(b"one").await;
    let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 1, false).await;
    let (held, _) = queue.delivery().await;
    wall.step_forward(600_000);
    // An idle shard notices the step by itself.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let Rig { journal, broker, running } = rig;
    drop((broker, running));
    let rig = Rig::start_at(journal, clock).await;
    let mut queue = rig.queue_with("orders", settings()).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    queue.settle(held.token, Settlement::Complete).await.unwrap();
    assert!(queue.peek().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_message_is_delivered_soon_after_a_step_over_its_time() {
    let (wall, clock) = Wall::new();
    let rig = Rig::start_at(MemoryJournal::new(), clock).await;
    let mut queue = rig.queue_with("orders", settings()).await;
    let scheduled_for = Some(Timestamp::from_millis(START_MS + 600_000));
    queue.send_with(b"later", Attributes { scheduled_for, ..Attributes::default() }).await.unwrap();
    let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 1, false).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(queue.peer.stays_silent().await);
    wall.step_forward(600_000);
    let stepped = Instant::now();
    queue.delivery().await;
    assert!(stepped.elapsed() < Duration::from_secs(3), "{:?}", stepped.elapsed());
}

#[tokio::test(start_paused = true)]
async fn time_goes_on_when_the_clock_is_set_back() {
    let (wall, clock) = Wall::new();
    let rig = Rig::start_at(MemoryJournal::new(), clock).await;
    let mut queue = rig.queue_with("orders", settings()).await;
    queue.send(b"one").await;
    let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 2, false).await;
    let (held, _) = queue.delivery().await;
    wall.step_back(3_600_000);
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert!(queue.peer.stays_silent().await, "the lock lasts for its time");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (again, _) = queue.delivery().await;
    assert_eq!(again.message.sequence_number, held.message.sequence_number);
    assert!(again.message.locked_until > held.message.locked_until);
}
