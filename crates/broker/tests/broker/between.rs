//! Tests of messages between queues: forwarding and transactions may cross shards, deliver once and lose nothing.

use std::time::Duration;

use crate::common::{Rig, TestQueue, delivered, write};
use peeklock_broker::engine::{ReceiveMode, Settlement};
use peeklock_broker::request::entities::{Delete, Update};
use peeklock_broker::request::settling::Settle;
use peeklock_broker::request::transactions::Commit;
use peeklock_broker::{Batch, Error, Ticket, TransactionSend, TransactionSettle};
use peeklock_types::{EntityName, Placement, QueueSettings, QueueStatus, SubQueue};

fn name(text: &str) -> EntityName {
    EntityName::parse(text).unwrap()
}

fn forwarding(target: &str) -> QueueSettings {
    QueueSettings { forward_to: Some(name(target)), ..QueueSettings::default() }
}

/// Returns the name of an entity that another shard than that of `near` owns.
fn far_from(near: &str) -> String {
    let names = (0..).map(|number| format!("far{number}"));
    names
        .into_iter()
        .find(|far| Placement::default().of(&name(far)) != Placement::default().of(&name(near)))
        .unwrap()
}

async fn wait_for(queue: &mut TestQueue<'_>, sub_queue: SubQueue, count: usize) -> Vec<bytes::Bytes> {
    for _ in 0..500 {
        let found = queue.peek_at(sub_queue).await;
        if found.len() >= count {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{count} messages did not arrive");
}

#[tokio::test(start_paused = true)]
async fn a_forwarded_message_arrives_in_another_shard_and_leaves_its_source() {
    let rig = Rig::start().await;
    let far = far_from("near");
    let mut target = rig.queue(&far).await;
    let mut source = rig.queue_with("near", forwarding(&far)).await;
    for body in [&b"one"[..], b"two", b"three"] {
        source.send(body).await;
    }
    assert_eq!(wait_for(&mut target, SubQueue::Main, 3).await, [&b"one"[..], b"two", b"three"]);
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(source.info("near").await.counts.message_count(), 0);
    assert_eq!(target.info(&far).await.counts.active_count, 3);
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_point_of_a_transfer_neither_loses_nor_duplicates() {
    for turns in 0..60 {
        let rig = Rig::start().await;
        let far = far_from("near");
        rig.queue(&far).await;
        let mut source = rig.queue_with("near", forwarding(&far)).await;
        source.send(b"one").await;
        source.send(b"two").await;
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        drop(source);
        let rig = rig.crash().await;
        let mut target = rig.queue(&far).await;
        assert_eq!(
            wait_for(&mut target, SubQueue::Main, 2).await,
            [&b"one"[..], b"two"],
            "after {turns} turns"
        );
        let mut source = rig.queue_with("near", forwarding(&far)).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(source.info("near").await.counts.message_count(), 0);
        assert_eq!(target.peek().await.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_target_is_missing_or_disabled_is_dead_lettered_and_blocks_no_other() {
    let rig = Rig::start().await;
    let far = far_from("near");
    let disabled = QueueSettings { status: QueueStatus::SendDisabled, ..QueueSettings::default() };
    rig.queue_with(&far, disabled).await;
    let mut source = rig.queue_with("near", forwarding(&far)).await;
    source.send(b"one").await;
    assert_eq!(wait_for(&mut source, SubQueue::TransferDeadLetter, 1).await, [&b"one"[..]]);
    let mut gone = rig.queue_with("lonely", forwarding("nowhere")).await;
    gone.send(b"two").await;
    assert_eq!(wait_for(&mut gone, SubQueue::TransferDeadLetter, 1).await, [&b"two"[..]]);
    let counts = gone.info("lonely").await.counts;
    assert_eq!((counts.transfer_count, counts.transfer_dead_letter_count), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_cycle_ends_at_the_hop_limit() {
    let rig = Rig::start().await;
    let mut one = rig.queue_with("one", forwarding("two")).await;
    let mut two = rig.queue_with("two", forwarding("one")).await;
    one.send(b"round").await;
    assert_eq!(wait_for(&mut one, SubQueue::DeadLetter, 1).await, [&b"round"[..]]);
    assert_eq!(two.info("two").await.counts.message_count(), 0);
}

/// Completes a message of `queue` and sends one to each target, in one transaction.
async fn commit(
    queue: &mut TestQueue<'_>,
    settles: Vec<TransactionSettle>,
    targets: &[&str],
) -> Result<(), Error> {
    let mut batch = Batch::default();
    let mut sends = Vec::new();
    for target in targets {
        let mut messages = batch.messages();
        messages.add(write(target.as_bytes(), None)).unwrap();
        sends.push(TransactionSend { target: name(target), messages: messages.keep() });
    }
    let (entity, cancels, states) = (queue.entity, Vec::new(), Vec::new());
    batch.ask(Ticket::new(9), Commit { entity, settles, cancels, states, sends });
    queue.hand_over(batch).await;
    queue.answer::<Commit>().await
}

async fn receive_one(queue: &mut TestQueue<'_>) -> TransactionSettle {
    let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 1, false).await;
    let (delivery, _) = queue.delivery().await;
    TransactionSettle { sub_queue: SubQueue::Main, token: delivery.token, settlement: Settlement::Complete }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_completes_and_sends_to_any_shard() {
    let rig = Rig::start().await;
    let far = far_from("near");
    let mut target = rig.queue(&far).await;
    let mut queue = rig.queue("near").await;
    queue.send(b"job").await;
    let settle = receive_one(&mut queue).await;
    commit(&mut queue, vec![settle], &[&far, "near"]).await.unwrap();
    assert_eq!(queue.peek().await, [&b"near"[..]]);
    assert_eq!(wait_for(&mut target, SubQueue::Main, 1).await, [far.as_bytes()]);
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(queue.info("near").await.counts.message_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_with_a_lost_lock_changes_nothing() {
    let rig = Rig::start().await;
    let far = far_from("near");
    let mut target = rig.queue(&far).await;
    let mut queue = rig.queue("near").await;
    queue.send(b"job").await;
    let settle = receive_one(&mut queue).await;
    queue.settle(settle.token, Settlement::Release).await.unwrap();
    assert!(commit(&mut queue, vec![settle], &[&far, "near"]).await.is_err());
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(queue.peek().await, [&b"job"[..]]);
    assert!(target.peek().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_committed_transaction_survives_a_crash_completely() {
    for turns in 0..30 {
        let rig = Rig::start().await;
        let far = far_from("near");
        rig.queue(&far).await;
        let mut queue = rig.queue("near").await;
        queue.send(b"job").await;
        let settle = receive_one(&mut queue).await;
        commit(&mut queue, vec![settle], &[&far]).await.unwrap();
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        drop(queue);
        let rig = rig.crash().await;
        assert!(rig.queue("near").await.peek().await.is_empty());
        let mut target = rig.queue(&far).await;
        assert_eq!(wait_for(&mut target, SubQueue::Main, 1).await, [far.as_bytes()]);
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(target.peek().await.len(), 1, "after {turns} turns");
    }
}

#[tokio::test(start_paused = true)]
async fn messages_with_many_changed_properties_are_forwarded_without_stopping_their_target() {
    let rig = Rig::start().await;
    let far = far_from("near");
    let mut target = rig.queue(&far).await;
    let settings = QueueSettings { forward_dead_letters_to: Some(name(&far)), ..QueueSettings::default() };
    let mut source = rig.queue_with("near", settings).await;
    let receiver = source.attach(1, ReceiveMode::PeekLock).await;
    let count = 200;
    source.credit(receiver, count, false).await;
    for _ in 0..count {
        source.start_send(b"x").await;
    }
    let (mut tokens, mut answers) = (Vec::new(), 0);
    while tokens.len() < 200 || answers < 200 {
        match delivered(source.peer.next().await) {
            Ok(delivered) => tokens.push(delivered.delivery.token),
            Err(_) => answers += 1,
        }
    }
    // All messages are in one batch, so that they are transferred together.
    let mut batch = Batch::default();
    for token in tokens {
        let patch = Some(bytes::Bytes::from(vec![0; 60_000]));
        let settlement = Settlement::DeadLetter { reason: None, description: None, patch };
        let (entity, sub_queue) = (source.entity, SubQueue::Main);
        batch.settle(Ticket::new(7), Settle { entity, sub_queue, token, settlement });
    }
    source.hand_over(batch).await;
    for _ in 0..count {
        source.answer::<Settle>().await.unwrap();
    }
    let mut arrived_count = 0;
    for _ in 0..500 {
        arrived_count = target.info(&far).await.counts.active_count;
        if arrived_count == count {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(arrived_count, count);
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_not_deleted_before_the_messages_of_its_transaction_have_left() {
    let rig = Rig::start().await;
    let far = far_from("near");
    let mut target = rig.queue(&far).await;
    let mut queue = rig.queue("near").await;
    queue.send(b"job").await;
    let settle = receive_one(&mut queue).await;
    // The deletion of the queue directly follows the commit, in the same batch.
    let mut batch = Batch::default();
    let mut messages = batch.messages();
    messages.add(write(b"result", None)).unwrap();
    let sends = vec![TransactionSend { target: name(&far), messages: messages.keep() }];
    let entity = queue.entity;
    let (settles, cancels, states) = (vec![settle], Vec::new(), Vec::new());
    batch.ask(Ticket::new(9), Commit { entity, settles, cancels, states, sends });
    batch.ask(Ticket::new(10), Delete { name: name("near"), expected: None });
    queue.hand_over(batch).await;
    queue.answer::<Commit>().await.expect("the transaction is committed");
    assert!(
        queue.answer::<Delete>().await.is_err(),
        "a queue must not be deleted before the message has left it"
    );
    assert_eq!(wait_for(&mut target, SubQueue::Main, 1).await, [&b"result"[..]]);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let mut other = rig.queue("near").await;
    let delete = Delete { name: name("near"), expected: None };
    other.ask(delete).await.expect("no transfer is in progress any more");
}

#[tokio::test(start_paused = true)]
async fn messages_keep_their_sessions_when_a_queue_starts_to_forward() {
    let rig = Rig::start().await;
    let far = far_from("near");
    let sessions = QueueSettings { requires_session: true, ..QueueSettings::default() };
    let mut target = rig.queue_with(&far, sessions).await;
    let mut source = rig.queue("near").await;
    let session = Some(peeklock_types::SessionId::parse("s").unwrap());
    let attributes = peeklock_broker::engine::Attributes { session, ..Default::default() };
    source.send_with(b"one", attributes).await.unwrap();
    let settings = Box::new(forwarding(&far));
    source.ask(Update { name: name("near"), settings, expected: None }).await.unwrap();
    assert_eq!(wait_for(&mut target, SubQueue::Main, 1).await, [&b"one"[..]]);
}
