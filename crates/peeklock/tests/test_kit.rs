//! The test kit: virtual time, faults, and what the broker sees.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::time::Duration;

use peeklock::admin::Queue;
use peeklock::handler::Context;
use peeklock::testing::TestBroker;
use peeklock::{Kind, Message, Sender};

const MINUTE: Duration = Duration::from_secs(60);

async fn send(sender: &Sender, text: &str) {
    sender.send(Message::text(text).message_id(text.to_owned())).await.unwrap();
}

#[tokio::test]
async fn a_lock_expires_when_time_advances() {
    let broker = TestBroker::start().await;
    broker.create_queue("orders", Queue::new().lock_duration(MINUTE)).await;
    let client = broker.client().await;
    let sender = client.sender("orders").await.unwrap();
    send(&sender, "a").await;
    send(&sender, "b").await;
    let mut receiver = client.receiver("orders").manual_credit().open().await.unwrap();
    receiver.add_credit(1).await.unwrap();
    let delivery = receiver.next().await.unwrap().unwrap();
    assert_eq!((broker.held_locks("orders").await, broker.waiting("orders").await), (1, 1));
    broker.advance(MINUTE - Duration::from_secs(1)).await;
    assert_eq!(broker.held_locks("orders").await, 1);
    broker.advance(Duration::from_secs(1)).await;
    assert_eq!((broker.held_locks("orders").await, broker.waiting("orders").await), (0, 2));
    assert!(delivery.complete().await.is_err(), "the lock is lost");
}

#[tokio::test]
async fn half_an_hour_of_retries_ends_in_the_dead_letter_queue() {
    let broker = TestBroker::start().await;
    broker.create_queue("orders", Queue::new().lock_duration(MINUTE).max_delivery_count(10)).await;
    let client = broker.client().await;
    send(&client.sender("orders").await.unwrap(), "a").await;
    let before = broker.now();
    let mut receiver = client.receiver("orders").open().await.unwrap();
    for attempt in 1..=10 {
        let delivery = receiver.next().await.unwrap().unwrap();
        assert_eq!(delivery.message().delivery_count(), attempt - 1);
        delivery.abandon_after(4 * MINUTE).await.unwrap();
    }
    broker.settle().await;
    assert!(broker.now().since(before) >= 30 * MINUTE);
    let dead = broker.dead_letters("orders").await;
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].dead_letter_reason(), Some("MaxDeliveryCountExceeded"));
    assert_eq!(dead[0].message_id().as_deref(), Some("a"));
}

#[tokio::test]
async fn schedules_and_times_to_live_follow_the_virtual_clock() {
    let broker = TestBroker::start().await;
    broker.create_queue("orders", Queue::new().time_to_live(10 * MINUTE).dead_letter_expired(true)).await;
    let sender = broker.client().await.sender("orders").await.unwrap();
    sender.schedule(Message::text("later"), broker.now() + 60 * MINUTE).await.unwrap();
    assert_eq!((broker.scheduled("orders").await, broker.waiting("orders").await), (1, 0));
    broker.advance(60 * MINUTE).await;
    assert_eq!((broker.scheduled("orders").await, broker.waiting("orders").await), (0, 1));
    broker.advance(10 * MINUTE).await;
    let dead = broker.dead_letters("orders").await;
    assert_eq!(dead.first().and_then(|dead| dead.dead_letter_reason()), Some("TTLExpiredException"));
}

#[tokio::test]
async fn connections_stay_open_for_days() {
    let broker = TestBroker::start().await;
    broker.create_queue("orders", Queue::new()).await;
    let client = broker.client().await;
    let sender = client.sender("orders").await.unwrap();
    let mut receiver = client.receiver("orders").open().await.unwrap();
    broker.advance(3 * 24 * 60 * MINUTE).await;
    send(&sender, "a").await;
    receiver.next().await.unwrap().unwrap().complete().await.unwrap();
    assert!(broker.messages("orders").await.is_empty());
}

#[tokio::test]
async fn a_clock_that_the_test_has_paused_is_used() {
    tokio::time::pause();
    let broker = TestBroker::start().await;
    broker.create_queue("orders", Queue::new()).await;
    assert_eq!(broker.waiting("orders").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_with_several_threads_gets_a_clear_error() {
    let ended = tokio::spawn(async { TestBroker::start().await.settle().await }).await;
    let panic = ended.unwrap_err().into_panic();
    let text = panic.downcast_ref::<&str>().copied().unwrap_or_default();
    assert!(text.starts_with("E-TEST-01"), "{text}");
}

#[tokio::test]
async fn settlements_are_delayed_until_the_lock_is_lost() {
    let broker = TestBroker::start().await;
    broker.create_queue("orders", Queue::new().lock_duration(MINUTE)).await;
    let client = broker.client().await;
    send(&client.sender("orders").await.unwrap(), "a").await;
    let mut receiver = client.receiver("orders").manual_credit().open().await.unwrap();
    receiver.add_credit(1).await.unwrap();
    let delivery = receiver.next().await.unwrap().unwrap();
    broker.delay_settlements(2 * MINUTE);
    assert!(delivery.complete().await.is_err());
    broker.delay_settlements(Duration::ZERO);
    assert_eq!(broker.waiting("orders").await, 1);
}

#[tokio::test]
async fn a_lock_that_is_lost_is_noticed_by_its_holder() {
    let broker = TestBroker::start().await;
    broker.create_queue("orders", Queue::new()).await;
    let client = broker.client().await;
    send(&client.sender("orders").await.unwrap(), "a").await;
    let mut receiver = client.receiver("orders").manual_credit().open().await.unwrap();
    receiver.add_credit(1).await.unwrap();
    let delivery = receiver.next().await.unwrap().unwrap();
    broker.lose_lock(&delivery).await;
    assert_eq!((broker.held_locks("orders").await, broker.waiting("orders").await), (0, 1));
    assert_eq!(delivery.renew().await.unwrap_err().kind(), Kind::LockLost);
    assert_eq!(delivery.complete().await.unwrap_err().kind(), Kind::LockLost);
}

#[tokio::test]
async fn clients_continue_after_cut_and_refused_connections() {
    let broker = TestBroker::start().await;
    broker.create_queue("orders", Queue::new()).await;
    let client = broker.client().await;
    let sender = client.sender("orders").await.unwrap();
    let mut receiver = client.receiver("orders").open().await.unwrap();
    for text in ["a", "b", "c"] {
        broker.refuse_connections(true);
        broker.cut_connections();
        let sent = tokio::spawn({
            let sender = sender.clone();
            async move { send(&sender, text).await }
        });
        broker.advance(Duration::from_secs(5)).await;
        assert!(!sent.is_finished(), "the broker cannot be reached");
        broker.refuse_connections(false);
        sent.await.unwrap();
        let delivery = receiver.next().await.unwrap().unwrap();
        assert_eq!(delivery.message().body_text(), text);
        delivery.complete().await.unwrap();
    }
    assert!(broker.messages("orders").await.is_empty());
}

#[tokio::test]
async fn clients_attach_again_when_their_links_are_dropped() {
    let broker = TestBroker::start().await;
    broker.create_queue("orders", Queue::new()).await;
    broker.create_queue("invoices", Queue::new()).await;
    let client = broker.client().await;
    let (orders, invoices) =
        (client.sender("orders").await.unwrap(), client.sender("invoices").await.unwrap());
    let mut receiver = client.receiver("orders").manual_credit().open().await.unwrap();
    send(&orders, "a").await;
    receiver.add_credit(2).await.unwrap();
    let held = receiver.next().await.unwrap().unwrap();
    // A transaction ends with its connection.
    let work = client.transaction().await.unwrap();
    work.send(&invoices, Message::text("invoice")).await.unwrap();
    for text in ["b", "c", "d"] {
        broker.drop_links("orders").await;
        send(&orders, text).await;
        let delivery = receiver.next().await.unwrap().unwrap();
        assert_eq!((delivery.message().body_text().as_ref(), delivery.message().delivery_count()), (text, 0));
        delivery.complete().await.unwrap();
        receiver.add_credit(1).await.unwrap();
    }
    held.complete().await.unwrap();
    work.commit().await.unwrap();
    assert_eq!((broker.held_locks("orders").await, broker.waiting("orders").await), (0, 0));
    assert_eq!(broker.waiting("invoices").await, 1, "the connection has stayed");
}

#[tokio::test]
async fn a_processor_goes_on_after_its_link_was_dropped() {
    let broker = TestBroker::start().await;
    broker.create_queue("orders", Queue::new()).await;
    let client = broker.client().await;
    let sender = client.sender("orders").await.unwrap();
    let processor = client.processor("orders").handler(|| async {}).start().await.unwrap();
    for count in 1..=3 {
        broker.drop_links("orders").await;
        send(&sender, "a").await;
        let mut status = processor.status();
        status.wait_for(|status| status.completed == count).await.unwrap();
        assert_eq!(status.borrow().failed, 0);
    }
    processor.stop(MINUTE).await.unwrap();
    assert_eq!((broker.completed("orders"), broker.held_locks("orders").await), (3, 0));
}

#[tokio::test]
async fn the_lock_of_a_message_in_a_handler_is_lost_by_its_id_or_its_number() {
    let broker = TestBroker::start().await;
    broker.create_queue("orders", Queue::new()).await;
    let client = broker.client().await;
    send(&client.sender("orders").await.unwrap(), "a").await;
    let handle = |context: Context| async move {
        // The third delivery keeps its lock.
        if context.attempt() < 3 {
            context.lock_lost().await;
        }
    };
    let processor = client.processor("orders").handler(handle).start().await.unwrap();
    let mut status = processor.status();
    status.wait_for(|status| status.running == 1).await.unwrap();
    broker.lose_lock_of("orders", "a").await;
    status.wait_for(|status| status.failed == 1 && status.running == 1).await.unwrap();
    let number = broker.messages("orders").await[0].sequence_number().unwrap();
    broker.lose_lock_of("orders", number).await;
    status.wait_for(|status| (status.failed, status.completed) == (2, 1)).await.unwrap();
    processor.stop(MINUTE).await.unwrap();
    assert_eq!((broker.completed("orders"), broker.held_locks("orders").await), (1, 0));
}

#[tokio::test]
#[should_panic(expected = "no client holds message 'b' of 'orders'")]
async fn a_message_that_nobody_holds_has_no_lock_to_lose() {
    let broker = TestBroker::start().await;
    broker.create_queue("orders", Queue::new()).await;
    broker.lose_lock_of("orders", "b").await;
}

#[tokio::test]
async fn completed_messages_are_counted_once_the_broker_has_confirmed() {
    let broker = TestBroker::start().await;
    broker.create_queue("orders", Queue::new()).await;
    let client = broker.client().await;
    let sender = client.sender("orders").await.unwrap();
    for text in ["completed", "abandoned", "lost", "committed", "rolled back"] {
        send(&sender, text).await;
    }
    let mut receiver = client.receiver("orders").manual_credit().open().await.unwrap();
    receiver.add_credit(5).await.unwrap();
    let mut next = async || receiver.next().await.unwrap().unwrap();
    next().await.complete().await.unwrap();
    next().await.abandon().await.unwrap();
    let lost = next().await;
    broker.lose_lock(&lost).await;
    assert!(lost.complete().await.is_err());
    assert_eq!((broker.completed("Orders"), broker.completed("invoices")), (1, 0));
    let work = client.transaction().await.unwrap();
    work.complete(next().await).await.unwrap();
    assert_eq!(broker.completed("orders"), 1);
    work.commit().await.unwrap();
    let work = client.transaction().await.unwrap();
    work.complete(next().await).await.unwrap();
    work.roll_back().await.unwrap();
    assert_eq!(broker.completed("orders"), 2);
    assert_eq!(broker.waiting("orders").await, 3);
}
