//! Tests of the guarantees of a shard: nothing is visible before it is durable, nothing durable is lost, and a peer
//! that closes loses no message.

use std::pin::Pin;
use std::task::{Context, Waker};

use crate::common::Rig;
use peeklock_broker::engine::{ReceiveMode, Settlement};
use peeklock_broker::request::sending::SendMessages;
use peeklock_broker::{Batch, Error, ReceiverReply, Reply, Request, Ticket};
use peeklock_journal::{BodyRange, MemoryJournal, Space};
use peeklock_types::CommitGroupNumber;

#[tokio::test]
async fn a_send_is_answered_when_it_is_durable_and_not_before() {
    let rig = Rig::start().await;
    let mut queue = rig.queue("orders").await;
    rig.journal.hold();
    queue.start_send(b"one").await;
    assert!(queue.peer.stays_silent().await);
    rig.journal.release();
    queue.answer::<SendMessages>().await.unwrap();
}

#[tokio::test]
async fn a_message_is_delivered_when_it_is_durable_and_not_before() {
    let rig = Rig::start().await;
    let mut queue = rig.queue("orders").await;
    let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 10, false).await;
    rig.journal.hold();
    queue.start_send(b"one").await;
    assert!(queue.peer.stays_silent().await);
    rig.journal.release();
    queue.answer::<SendMessages>().await.unwrap();
    let (delivery, body) = queue.delivery().await;
    assert_eq!((delivery.message.delivery_count, &body[..]), (0, &b"one"[..]));
}

#[tokio::test]
async fn confirmed_messages_survive_a_crash_and_completed_ones_do_not_return() {
    let rig = Rig::start().await;
    let mut queue = rig.queue("orders").await;
    for body in [&b"one"[..], b"two", b"three"] {
        queue.send(body).await;
    }
    let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 1, false).await;
    let (delivery, _) = queue.delivery().await;
    queue.settle(delivery.token, Settlement::Complete).await.unwrap();
    drop(queue);
    let rig = rig.crash().await;
    assert_eq!(rig.queue("orders").await.peek().await, [&b"two"[..], b"three"]);
}

#[tokio::test]
async fn a_lock_survives_a_crash() {
    let rig = Rig::start().await;
    let mut queue = rig.queue("orders").await;
    queue.send(b"one").await;
    let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 1, false).await;
    let (delivery, _) = queue.delivery().await;
    drop(queue);
    let rig = rig.crash().await;
    let mut queue = rig.queue("orders").await;
    let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 1, true).await;
    assert!(
        matches!(queue.peer.next().await, Reply::Receiver(ReceiverReply::Drained { .. })),
        "the message is still locked"
    );
    queue.settle(delivery.token, Settlement::Complete).await.unwrap();
    assert!(queue.peek().await.is_empty());
}

#[tokio::test]
async fn a_drain_ends_after_the_available_messages() {
    let rig = Rig::start().await;
    let mut queue = rig.queue("orders").await;
    queue.send(b"one").await;
    let receiver = queue.attach(1, ReceiveMode::ReceiveAndDelete).await;
    queue.credit(receiver, 5, true).await;
    assert_eq!(queue.delivery().await.1, &b"one"[..]);
    assert!(matches!(queue.peer.next().await, Reply::Receiver(ReceiverReply::Drained { .. })));
}

#[tokio::test]
async fn deliveries_in_flight_to_a_closed_peer_return_uncounted() {
    let rig = Rig::start().await;
    let mut queue = rig.queue("orders").await;
    let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 10, false).await;
    rig.journal.hold();
    queue.start_send(b"one").await;
    queue.tell(Request::Gone).await;
    assert!(queue.peer.stays_silent().await);
    rig.journal.release();
    let mut other = rig.queue("orders").await;
    let receiver = other.attach(1, ReceiveMode::PeekLock).await;
    other.credit(receiver, 1, false).await;
    let (delivery, body) = other.delivery().await;
    assert_eq!((delivery.message.delivery_count, &body[..]), (0, &b"one"[..]));
}

#[tokio::test]
async fn a_busy_disk_slows_senders_and_loses_nothing() {
    let rig = Rig::start_with(MemoryJournal::with_backlog_bytes_max(4096)).await;
    let mut queue = rig.queue("orders").await;
    rig.journal.hold();
    for i in 0..64_u8 {
        queue.start_send(&[i; 512]).await;
        tokio::task::yield_now().await;
    }
    assert!(queue.peer.stays_silent().await);
    rig.journal.release();
    for _ in 0..64 {
        queue.answer::<SendMessages>().await.unwrap();
    }
    let expected: Vec<_> = (0..64_u8).map(|i| vec![i; 512]).collect();
    assert_eq!(queue.peek().await, expected);
}

/// The engine is ahead of a log that has no room, so a snapshot of the engine at that moment would contain facts that
/// are not in the log.
#[tokio::test]
async fn a_snapshot_requested_while_the_disk_is_busy_contains_the_facts_of_the_log() {
    let rig = Rig::start_with(MemoryJournal::with_backlog_bytes_max(4096)).await;
    let mut queue = rig.queue("orders").await;
    rig.journal.hold();
    rig.journal.ask_snapshot(queue.shard_id());
    for i in 0..32_u8 {
        queue.start_send(&[i; 512]).await;
        tokio::task::yield_now().await;
    }
    assert!(queue.peer.stays_silent().await);
    rig.journal.release();
    for _ in 0..32 {
        queue.answer::<SendMessages>().await.unwrap();
    }
    rig.journal.ask_snapshot(queue.shard_id());
    queue.send(b"last").await;
    drop(queue);
    let rig = rig.crash().await;
    let mut expected: Vec<_> = (0..32_u8).map(|i| vec![i; 512]).collect();
    expected.push(b"last".to_vec());
    assert_eq!(rig.queue("orders").await.peek().await, expected);
}

#[tokio::test]
async fn a_full_disk_rejects_sends_and_permits_everything_else() {
    let rig = Rig::start().await;
    let mut queue = rig.queue("orders").await;
    queue.send(b"one").await;
    rig.journal.set_space(Space::RejectSends);
    queue.start_send(b"two").await;
    assert!(matches!(queue.answer::<SendMessages>().await, Err(Error::DiskFull)));
    let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 1, false).await;
    let (delivery, _) = queue.delivery().await;
    queue.settle(delivery.token, Settlement::Complete).await.unwrap();
    rig.journal.set_space(Space::Enough);
    queue.send(b"three").await;
    assert_eq!(queue.peek().await, [&b"three"[..]]);
}

#[tokio::test]
async fn a_log_that_grows_too_fast_makes_senders_retry() {
    let rig = Rig::start().await;
    let mut queue = rig.queue("orders").await;
    rig.journal.set_space(Space::Behind);
    queue.start_send(b"one").await;
    let refused = queue.answer::<SendMessages>().await.unwrap_err();
    assert!(matches!(refused, Error::Behind) && refused.to_string().contains("after 1 s"), "{refused}");
    rig.journal.set_space(Space::Enough);
    queue.send(b"one").await;
    assert_eq!(queue.peek().await, [&b"one"[..]]);
}

#[tokio::test]
async fn a_failed_sync_stops_the_shard_and_confirms_nothing() {
    let mut rig = Rig::start().await;
    let mut queue = rig.queue("orders").await;
    rig.journal.hold();
    queue.start_send(b"one").await;
    assert!(queue.peer.stays_silent().await);
    rig.journal.poison("the disk said no");
    match queue.peer.next().await {
        Reply::Stopped { reason } => assert!(reason.contains("the disk said no"), "{reason}"),
        other => panic!("{other:?}"),
    }
    drop(queue);
    assert!(rig.running.stopped().await.unwrap_err().contains("the disk said no"));
}

#[tokio::test]
async fn snapshots_and_evacuation_change_nothing_that_peers_see() {
    let rig = Rig::start().await;
    let mut queue = rig.queue("orders").await;
    for i in 0..50_u8 {
        queue.send(&[i; 100]).await;
    }
    let shard = queue.shard_id();
    rig.journal.ask_move(shard, BodyRange::groups_upto(CommitGroupNumber(30)));
    for i in 50..60_u8 {
        queue.send(&[i; 100]).await;
    }
    rig.journal.ask_snapshot(shard);
    for i in 60..70_u8 {
        queue.send(&[i; 100]).await;
    }
    let expected: Vec<_> = (0..70_u8).map(|i| vec![i; 100]).collect();
    assert_eq!(queue.peek().await, expected);
    drop(queue);
    let rig = rig.crash().await;
    assert_eq!(rig.queue("orders").await.peek().await, expected);
}

fn is_taken(send: &mut Pin<Box<impl Future>>) -> bool {
    send.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[tokio::test]
async fn only_a_few_batches_of_very_many_messages_wait_for_a_shard() {
    let rig = Rig::start().await;
    let mut queue = rig.queue("orders").await;
    let handle = rig.broker.shard(queue.shard).unwrap();
    let send = |count: usize| {
        let mut batch = Batch::default();
        let mut messages = batch.messages();
        for _ in 0..count {
            let Ok(()) = messages.add(|_| Ok::<_, std::convert::Infallible>(None));
        }
        messages.send(Ticket::new(1), queue.entity);
        Box::pin(handle.send(queue.peer.peer.clone(), batch))
    };
    // The shard does not run in the meantime.
    let mut large: Vec<_> = (0..10).map(|_| send(5_000)).collect();
    let taken: Vec<_> = large.iter_mut().map(is_taken).collect();
    assert_eq!(taken.iter().filter(|taken| **taken).count(), 4);
    assert!(is_taken(&mut send(1)), "small batches must not wait behind large ones");
    for (send, _) in large.into_iter().zip(taken).filter(|(_, taken)| !taken) {
        send.await.unwrap();
    }
    for _ in 0..11 {
        queue.answer::<SendMessages>().await.unwrap();
    }
}
