//! Receivers of sessions accept their session again; work of the former hold is fenced.

use bytes::Bytes;
use peeklock::{Client, Kind, Message};
use peeklock_types::QueueSettings;

use crate::rig::{Rig, a_moment};

async fn rig() -> Rig {
    Rig::with_queue("q", QueueSettings { requires_session: true, ..QueueSettings::default() }).await
}

async fn send(client: &Client, body: &str) {
    let message = Message::text(body).session_id("s");
    client.sender("q").await.unwrap().send(message).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_same_session_is_accepted_again() {
    let rig = rig().await;
    let client = rig.client().await;
    send(&client, "a").await;
    let mut receiver =
        client.receiver("q").next_session(std::time::Duration::from_secs(1)).open().await.unwrap();
    let former = receiver.session().unwrap().clone();
    former.set_state(Some(Bytes::from_static(b"1"))).await.unwrap();
    let delivery = receiver.next().await.unwrap().unwrap();
    rig.network.cut();
    a_moment().await;
    let again = receiver.next().await.unwrap().unwrap();
    assert_eq!(again.message().delivery_count(), 1);
    assert_eq!(receiver.session().unwrap().id(), "s");
    assert_eq!(delivery.complete().await.unwrap_err().kind(), Kind::LockLost);
    assert_eq!(former.set_state(None).await.unwrap_err().kind(), Kind::LockLost);
    let state = receiver.session().unwrap().state().await.unwrap();
    assert_eq!(state, Some(Bytes::from_static(b"1")));
    again.complete().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_session_that_another_receiver_has_taken_is_lost() {
    let rig = rig().await;
    let (client, other) = (rig.client().await, rig.client().await);
    send(&client, "a").await;
    let mut receiver = client.receiver("q").session("s").open().await.unwrap();
    rig.network.cut();
    a_moment().await;
    let _holder = other.receiver("q").session("s").open().await.unwrap();
    let error = receiver.next().await.err().unwrap();
    assert_eq!((error.kind(), error.code()), (Kind::LockLost, "E-SESS-03"));
    let second = client.receiver("q").session("s").open().await.err().unwrap();
    assert_eq!((second.kind(), second.code()), (Kind::NoSession, "E-SESS-04"));
}

#[tokio::test(start_paused = true)]
async fn an_expired_session_is_lost() {
    let rig = rig().await;
    let client = rig.client().await;
    let mut receiver = client.receiver("q").session("s").open().await.unwrap();
    let session = receiver.session().unwrap().clone();
    let lock = session.lock_remaining();
    tokio::time::sleep(lock / 2).await;
    session.renew().await.unwrap();
    tokio::time::sleep(lock - lock / 4).await;
    assert!(!session.lock_remaining().is_zero());
    tokio::time::sleep(lock).await;
    let error = receiver.next().await.err().unwrap();
    assert_eq!((error.kind(), error.code()), (Kind::LockLost, "E-SESS-03"));
    assert_eq!(session.renew().await.unwrap_err().kind(), Kind::LockLost);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_without_a_session_gets_a_clear_error() {
    let rig = rig().await;
    let client = rig.client().await;
    let error = client.receiver("q").open().await.err().unwrap();
    assert_eq!((error.kind(), error.code()), (Kind::WrongEntity, "E-SESS-02"));
    assert!(error.to_string().contains("receiver(\"q\").session(id)"), "{error}");
    let error =
        client.receiver("q").next_session(std::time::Duration::from_secs(1)).open().await.err().unwrap();
    assert_eq!((error.kind(), error.code()), (Kind::NoSession, "E-SESS-05"));
}
