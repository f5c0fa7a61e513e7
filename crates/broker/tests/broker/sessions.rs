//! Tests of how receivers obtain and lose sessions.

use std::time::Duration;

use crate::common::{Rig, TestQueue, delivered, write};
use peeklock_broker::engine::{Attributes, CloseReason, ReceiverId, Settlement};
use peeklock_broker::request::receiving::{Attach, Detach};
use peeklock_broker::request::sending::SendMessages;
use peeklock_broker::request::sessions::SetState;
use peeklock_broker::{Batch, Error, ReceiverReply, Reply, Request, SessionAsk, SessionHold, Ticket};
use peeklock_journal::Space;
use peeklock_types::{QueueSettings, SessionId};

fn settings() -> QueueSettings {
    let lock_duration = Duration::from_secs(5);
    QueueSettings { requires_session: true, lock_duration, ..QueueSettings::default() }
}

fn session(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

async fn send(queue: &mut TestQueue<'_>, id: &str, body: &[u8]) {
    queue.send_with(body, Attributes { session: Some(session(id)), ..Attributes::default() }).await.unwrap();
}

fn next(timeout_s: u64) -> SessionAsk {
    SessionAsk::Next { timeout: Duration::from_secs(timeout_s) }
}

async fn accepted(queue: &mut TestQueue<'_>) -> String {
    match queue.answer::<Attach>().await {
        Ok(Some(held)) => held.session.to_string(),
        other => panic!("expected a session, got {other:?}"),
    }
}

async fn detach(queue: &mut TestQueue<'_>, receiver: ReceiverId) {
    queue.ask(Detach { receiver }).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiting_receiver_gets_the_next_session_with_messages() {
    let rig = Rig::start().await;
    let mut queue = rig.queue_with("orders", settings()).await;
    let mut waiting = rig.queue("orders").await;
    waiting.start_accept(1, next(60)).await;
    assert!(waiting.peer.stays_silent().await);
    send(&mut queue, "red", b"one").await;
    assert_eq!(accepted(&mut waiting).await, "red");
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_waits_in_vain_gets_an_error() {
    let rig = Rig::start().await;
    let mut queue = rig.queue_with("orders", settings()).await;
    queue.start_accept(1, next(3)).await;
    assert!(matches!(queue.answer::<Attach>().await, Err(Error::NoSession)));
    let receiver = queue.start_accept(2, next(60)).await;
    queue.start(Detach { receiver }).await;
    assert!(matches!(queue.answer::<Attach>().await, Err(Error::NoSession)));
    queue.answer::<Detach>().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_session_has_one_holder_and_keeps_its_order() {
    let rig = Rig::start().await;
    let mut queue = rig.queue_with("orders", settings()).await;
    for body in [&b"one"[..], b"two", b"three"] {
        send(&mut queue, "red", body).await;
    }
    let receiver = queue.start_accept(1, SessionAsk::Named(session("red"))).await;
    assert_eq!(accepted(&mut queue).await, "red");
    let mut other = rig.queue("orders").await;
    other.start_accept(1, SessionAsk::Named(session("red"))).await;
    assert!(matches!(other.answer::<Attach>().await, Err(Error::Engine(_))));
    queue.credit(receiver, 2, false).await;
    let (first, body) = queue.delivery().await;
    assert_eq!(body, &b"one"[..]);
    assert_eq!(queue.delivery().await.1, &b"two"[..]);
    queue.settle(first.token, Settlement::Complete).await.unwrap();
    detach(&mut queue, receiver).await;
    // Messages that were still locked are delivered to the next holder first, and the earlier delivery counts.
    let receiver = other.start_accept(2, next(1)).await;
    assert_eq!(accepted(&mut other).await, "red");
    other.credit(receiver, 2, false).await;
    let (delivery, body) = other.delivery().await;
    assert_eq!((delivery.message.delivery_count, &body[..]), (1, &b"two"[..]));
    assert_eq!(other.delivery().await.1, &b"three"[..]);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_lost_when_its_lock_expires() {
    let rig = Rig::start().await;
    let mut queue = rig.queue_with("orders", settings()).await;
    send(&mut queue, "red", b"one").await;
    let receiver = queue.start_accept(1, next(1)).await;
    accepted(&mut queue).await;
    queue.credit(receiver, 1, false).await;
    let (delivery, _) = queue.delivery().await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    match queue.peer.next().await {
        Reply::Receiver(ReceiverReply::Closed { reason, .. }) => {
            assert_eq!(reason, CloseReason::SessionLockLost)
        }
        other => panic!("{other:?}"),
    }
    let lost = queue.settle(delivery.token, Settlement::Complete).await.unwrap_err();
    assert!(lost.to_string().contains("session"), "{lost}");
}

#[tokio::test]
async fn a_crash_releases_sessions_and_keeps_their_messages() {
    let rig = Rig::start().await;
    let mut queue = rig.queue_with("orders", settings()).await;
    send(&mut queue, "red", b"one").await;
    let receiver = queue.start_accept(1, next(1)).await;
    accepted(&mut queue).await;
    queue.credit(receiver, 1, false).await;
    queue.delivery().await;
    drop(queue);
    let rig = rig.crash().await;
    let mut queue = rig.queue("orders").await;
    let receiver = queue.start_accept(1, next(1)).await;
    assert_eq!(accepted(&mut queue).await, "red");
    queue.credit(receiver, 1, false).await;
    assert_eq!(queue.delivery().await.0.message.delivery_count, 1);
}

#[tokio::test]
async fn a_peer_that_closes_with_very_many_locked_messages_does_not_stop_the_shard() {
    let rig = Rig::start().await;
    // Each returned message is dead-lettered with a reason, which is more than one commit group can contain.
    let mut queue = rig.queue_with("orders", QueueSettings { max_delivery_count: 1, ..settings() }).await;
    let mut other = rig.queue("orders").await;
    let (session_count, message_count) = (30, 4000);
    let mut receivers = Vec::new();
    for local in 0..session_count {
        let mut batch = Batch::default();
        let mut messages = batch.messages();
        for _ in 0..message_count {
            let attributes =
                Attributes { session: Some(session(&local.to_string())), ..Attributes::default() };
            messages.add(write(b"x", Some(attributes))).unwrap();
        }
        messages.send(Ticket::new(1), queue.entity);
        queue.hand_over(batch).await;
        queue.answer::<SendMessages>().await.unwrap();
        receivers.push(queue.start_accept(local, SessionAsk::Named(session(&local.to_string()))).await);
        assert_eq!(accepted(&mut queue).await, local.to_string());
    }
    for receiver in receivers {
        queue.credit(receiver, message_count, false).await;
    }
    for _ in 0..u64::from(session_count) * message_count {
        delivered(queue.peer.next().await).unwrap();
    }
    queue.tell(Request::Gone).await;
    let counts = other.info("orders").await.counts;
    assert_eq!((counts.locked_count, counts.active_count), (0, 0));
}

#[tokio::test]
async fn a_receiver_with_no_time_to_wait_gets_an_available_session() {
    let rig = Rig::start().await;
    let mut queue = rig.queue_with("orders", settings()).await;
    send(&mut queue, "red", b"one").await;
    queue.start_accept(1, next(0)).await;
    assert_eq!(accepted(&mut queue).await, "red");
    queue.start_accept(2, next(0)).await;
    assert!(matches!(queue.answer::<Attach>().await, Err(Error::NoSession)));
}

#[tokio::test]
async fn a_session_state_cannot_be_set_but_can_be_cleared_while_the_disk_is_nearly_full() {
    let rig = Rig::start().await;
    let mut queue = rig.queue_with("orders", settings()).await;
    let receiver = queue.start_accept(1, SessionAsk::Named(session("red"))).await;
    accepted(&mut queue).await;
    rig.journal.set_space(Space::RejectSends);
    for state in [Some(bytes::Bytes::from_static(b"new")), None] {
        let (entity, is_new) = (queue.entity, state.is_some());
        let hold = SessionHold { session: session("red"), receiver };
        let set = queue.ask(SetState { entity, hold, state }).await;
        assert_eq!(matches!(set, Err(Error::DiskFull)), is_new);
    }
}
