//! Tests of a disk whose reads fail for a while: no delivery counts, no message is lost, and every link goes on.

use std::time::Duration;

use peeklock_broker::engine::{ReceiveMode, Settlement};
use peeklock_broker::request::receiving::ReceiveDeferred;
use peeklock_broker::{ReceiverReply, Reply, SessionAsk};
use peeklock_types::{EntityName, Placement, QueueSettings, SequenceNumber, SubQueue};
use tokio::time::Instant;

use crate::common::{Rig, TestQueue, write};

/// The attempts to read several bodies together, and then each of them.
const PATIENT: u32 = 8;

fn settings() -> QueueSettings {
    QueueSettings { lock_duration: Duration::from_secs(60), ..QueueSettings::default() }
}

async fn sent<'r>(rig: &'r Rig, bodies: &[&[u8]]) -> TestQueue<'r> {
    let mut queue = rig.queue_with("orders", settings()).await;
    for body in bodies {
        queue.send(body).await;
    }
    rig.journal.cool(queue.shard_id());
    queue
}

#[tokio::test(start_paused = true)]
async fn receive_and_delete_removes_no_message_whose_body_was_not_read() {
    let rig = Rig::start().await;
    let mut queue = sent(&rig, &[b"one", b"two"]).await;
    rig.journal.fail_reads(queue.shard_id(), PATIENT);
    let receiver = queue.attach(1, ReceiveMode::ReceiveAndDelete).await;
    queue.credit(receiver, 2, false).await;
    let (first, body) = queue.delivery().await;
    assert_eq!((&body[..], first.message.locked_until), (&b"two"[..], None));
    let (second, body) = queue.delivery().await;
    assert_eq!((&body[..], second.message.delivery_count), (&b"one"[..], 0));
    assert!(queue.peek().await.is_empty());
    // The link has its whole window and no credit: it gets the next message with the next credit.
    queue.send(b"three").await;
    assert!(queue.peer.stays_silent().await);
    queue.credit(receiver, 3, false).await;
    assert_eq!(queue.delivery().await.1, &b"three"[..]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_read_for_a_receiver_is_gone_after_a_crash() {
    let rig = Rig::start().await;
    let mut queue = sent(&rig, &[b"one", b"two"]).await;
    let receiver = queue.attach(1, ReceiveMode::ReceiveAndDelete).await;
    queue.credit(receiver, 1, false).await;
    assert_eq!(queue.delivery().await.1, &b"one"[..]);
    drop(queue);
    let rig = rig.crash().await;
    let mut queue = rig.queue_with("orders", settings()).await;
    assert_eq!(queue.peek().await, [&b"two"[..]]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_being_read_is_there_after_a_crash() {
    let rig = Rig::start().await;
    let mut queue = sent(&rig, &[b"one"]).await;
    rig.journal.hold_reads(queue.shard_id(), true);
    let receiver = queue.attach(1, ReceiveMode::ReceiveAndDelete).await;
    queue.credit(receiver, 1, false).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    rig.journal.hold_reads(queue.shard_id(), false);
    let shard = queue.shard_id();
    drop(queue);
    let rig = rig.crash().await;
    rig.journal.hold_reads(shard, false);
    let mut queue = rig.queue_with("orders", settings()).await;
    tokio::time::sleep(settings().lock_duration).await;
    let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 1, false).await;
    assert_eq!(queue.delivery().await.1, &b"one"[..]);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_leaves_during_the_read_leaves_the_message() {
    let rig = Rig::start().await;
    let mut queue = sent(&rig, &[b"one"]).await;
    rig.journal.hold_reads(queue.shard_id(), true);
    let receiver = queue.attach(1, ReceiveMode::ReceiveAndDelete).await;
    queue.credit(receiver, 1, false).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    queue.ask(peeklock_broker::request::receiving::Detach { receiver }).await.unwrap();
    rig.journal.hold_reads(queue.shard_id(), false);
    let receiver = queue.attach(2, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 1, false).await;
    let (delivery, body) = queue.delivery().await;
    assert_eq!((&body[..], delivery.message.delivery_count), (&b"one"[..], 0));
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_after_the_messages_that_are_being_read() {
    let rig = Rig::start().await;
    let mut queue = sent(&rig, &[b"one", b"two"]).await;
    rig.journal.hold_reads(queue.shard_id(), true);
    let receiver = queue.attach(1, ReceiveMode::ReceiveAndDelete).await;
    queue.credit(receiver, 10, true).await;
    assert!(queue.peer.stays_silent().await);
    rig.journal.hold_reads(queue.shard_id(), false);
    assert_eq!(queue.delivery().await.1, &b"one"[..]);
    assert_eq!(queue.delivery().await.1, &b"two"[..]);
    let drained = queue.peer.next().await;
    assert!(matches!(drained, Reply::Receiver(ReceiverReply::Drained { .. })), "{drained:?}");
}

#[tokio::test(start_paused = true)]
async fn a_new_message_does_not_overtake_one_that_is_being_read() {
    let rig = Rig::start().await;
    let mut queue = sent(&rig, &[b"one"]).await;
    rig.journal.hold_reads(queue.shard_id(), true);
    let receiver = queue.attach(1, ReceiveMode::ReceiveAndDelete).await;
    queue.credit(receiver, 2, false).await;
    queue.send(b"two").await;
    assert!(queue.peer.stays_silent().await);
    rig.journal.hold_reads(queue.shard_id(), false);
    for body in [&b"one"[..], b"two"] {
        assert_eq!(queue.delivery().await.1, body);
    }
}

#[tokio::test(start_paused = true)]
async fn failed_reads_do_not_count_and_the_link_goes_on() {
    let rig = Rig::start().await;
    let mut queue = sent(&rig, &[b"one"]).await;
    // Far more failures than deliveries are allowed.
    rig.journal.fail_reads(queue.shard_id(), 20 * PATIENT);
    let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 1, false).await;
    let reply = tokio::time::timeout(Duration::from_secs(3600), async {
        while rig.journal.failing_reads(queue.shard_id()) > 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    reply.await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (delivery, body) = queue.delivery().await;
    assert_eq!((&body[..], delivery.message.delivery_count), (&b"one"[..], 0));
    queue.settle(delivery.token, Settlement::Complete).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_message_is_delivered_long_before_its_lock_would_end() {
    let rig = Rig::start().await;
    let mut queue = sent(&rig, &[b"one"]).await;
    rig.journal.fail_reads(queue.shard_id(), PATIENT);
    let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 1, false).await;
    let start = Instant::now();
    queue.delivery().await;
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn no_message_of_a_session_overtakes_one_that_could_not_be_read() {
    let rig = Rig::start().await;
    let mut queue = rig.queue_with("orders", QueueSettings { requires_session: true, ..settings() }).await;
    let session = peeklock_types::SessionId::parse("a").unwrap();
    for body in [&b"one"[..], b"two", b"three"] {
        let session = Some(session.clone());
        let attributes = peeklock_broker::engine::Attributes { session, ..Default::default() };
        queue.send_with(body, attributes).await.unwrap();
    }
    rig.journal.cool(queue.shard_id());
    rig.journal.fail_reads(queue.shard_id(), PATIENT);
    let receiver = queue.start_accept(1, SessionAsk::Named(session.clone())).await;
    queue.answer::<peeklock_broker::request::receiving::Attach>().await.unwrap();
    queue.credit(receiver, 3, false).await;
    let closed = queue.peer.next().await;
    assert!(matches!(closed, Reply::Receiver(ReceiverReply::Closed { .. })), "{closed:?}");
    let again = queue.start_accept(2, SessionAsk::Named(session)).await;
    queue.answer::<peeklock_broker::request::receiving::Attach>().await.unwrap();
    queue.credit(again, 3, false).await;
    for body in [&b"one"[..], b"two", b"three"] {
        let (delivery, found) = queue.delivery().await;
        assert_eq!((&found[..], delivery.message.delivery_count), (body, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_deferred_message_is_removed_only_after_it_was_read() {
    let rig = Rig::start().await;
    let mut queue = sent(&rig, &[b"one"]).await;
    let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 1, false).await;
    let (delivery, _) = queue.delivery().await;
    queue.settle(delivery.token, Settlement::Defer { patch: None }).await.unwrap();
    rig.journal.fail_reads(queue.shard_id(), PATIENT);
    let entity = queue.entity;
    let wanted = || ReceiveDeferred {
        entity,
        sub_queue: SubQueue::Main,
        numbers: vec![SequenceNumber(1)],
        mode: ReceiveMode::ReceiveAndDelete,
        hold: None,
    };
    assert!(queue.ask(wanted()).await.unwrap().is_empty());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let found = queue.ask(wanted()).await.unwrap();
    assert_eq!(found.iter().map(|found| &found.body[..]).collect::<Vec<_>>(), [b"one"]);
    assert!(queue.peek().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_forwarded_message_waits_for_its_body() {
    let name = |text: &str| EntityName::parse(text).unwrap();
    let far = (0..)
        .map(|number| format!("far{number}"))
        .find(|far| Placement::default().of(&name(far)) != Placement::default().of(&name("near")));
    let far = far.unwrap();
    let rig = Rig::start().await;
    let mut target = rig.queue(&far).await;
    let forward_to = Some(name(&far));
    let mut source = rig.queue_with("near", QueueSettings { forward_to, ..settings() }).await;
    rig.journal.cool(source.shard_id());
    rig.journal.fail_reads(source.shard_id(), 3 * PATIENT);
    let mut batch = peeklock_broker::Batch::default();
    let mut messages = batch.messages();
    for body in [&b"one"[..], b"two"] {
        messages.add(write(body, None)).unwrap();
    }
    messages.send(peeklock_broker::Ticket::new(1), source.entity);
    source.hand_over(batch).await;
    source.answer::<peeklock_broker::request::sending::SendMessages>().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let dead = source.peek_at(SubQueue::TransferDeadLetter).await;
    assert!(dead.is_empty(), "{dead:?}");
    assert_eq!(target.peek().await, [&b"one"[..], b"two"]);
}
