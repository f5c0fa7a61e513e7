//! Sessions: one holder, the order, the state, the lock; and their processor.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock::admin::Queue;
use peeklock::handler::{Context, HandlerError, Text};
use peeklock::session_processor::SessionState;
use peeklock::{Kind, SequenceNumber};

use crate::world::{SHORT_LOCK, World, take, text, until};

const LONG: Duration = Duration::from_secs(30);

on_every_transport!(
    a_session_has_one_holder_and_keeps_its_state,
    the_messages_of_sessions_do_not_mix,
    a_renewed_session_outlasts_a_lost_one,
    a_session_processor_keeps_the_order_and_the_state,
);

async fn a_session_has_one_holder_and_keeps_its_state(world: World) {
    world.queue("orders", Queue::new().sessions(true)).await;
    world.send_to_session("orders", "table-7", &["a"]).await;
    let mut holder = world.client.receiver("orders").next_session(LONG).open().await.unwrap();
    let session = holder.session().unwrap().clone();
    assert_eq!(session.id(), "table-7");
    let second = world.client.receiver("orders").session("table-7").open().await;
    assert_eq!(second.err().unwrap().kind(), Kind::NoSession);
    holder.next().await.unwrap().unwrap().complete().await.unwrap();
    session.set_state(Some("seated".into())).await.unwrap();
    assert_eq!(session.state().await.unwrap().as_deref(), Some(b"seated".as_slice()));
    holder.close().await.unwrap();
    let next = world.client.receiver("orders").session("table-7").open().await.unwrap();
    assert_eq!(next.session().unwrap().state().await.unwrap().as_deref(), Some(b"seated".as_slice()));
    next.session().unwrap().set_state(None).await.unwrap();
    assert_eq!(next.session().unwrap().state().await.unwrap(), None);
}

async fn the_messages_of_sessions_do_not_mix(world: World) {
    world.queue("orders", Queue::new().sessions(true)).await;
    world.send_to_session("orders", "a", &["a1", "a2"]).await;
    world.send_to_session("orders", "b", &["b1"]).await;
    let mut sessions = world.client.list_sessions("orders", None).await.unwrap();
    sessions.sort_unstable();
    assert_eq!(sessions, ["a", "b"]);
    let peeked = world.client.peek_session("orders", "a", SequenceNumber(0), 10).await.unwrap();
    assert_eq!(peeked.len(), 2);
    let mut holder = world.client.receiver("orders").session("a").manual_credit().open().await.unwrap();
    let first = take(&mut holder).await;
    let number = first.message().sequence_number().unwrap();
    first.defer().await.unwrap();
    let second = take(&mut holder).await;
    assert_eq!((text(&second).as_str(), second.message().session_id()), ("a2", Some("a")));
    second.complete().await.unwrap();
    let deferred = holder.receive_deferred(&[number]).await.unwrap().remove(0);
    assert_eq!(text(&deferred), "a1");
    deferred.complete().await.unwrap();
    assert_eq!(world.counts("orders").await.message_count, 1, "the other session is untouched");
}

async fn a_renewed_session_outlasts_a_lost_one(world: World) {
    world.queue("orders", Queue::new().sessions(true).lock_duration(SHORT_LOCK)).await;
    world.send_to_session("orders", "kept", &["k"]).await;
    world.send_to_session("orders", "lost", &["l"]).await;
    let open = |id: &str| world.client.receiver("orders").session(id.to_owned()).manual_credit().open();
    let (mut kept, lost) = (open("kept").await.unwrap(), open("lost").await.unwrap());
    let session = kept.session().unwrap().clone();
    let other = world.other_client().await;
    let mut renewals = tokio::time::interval(SHORT_LOCK / 4);
    let renewing = async {
        loop {
            renewals.tick().await;
            session.renew().await.unwrap();
        }
    };
    // The session is available to another receiver when its lock has ended.
    let next = tokio::select! {
        next = other.receiver("orders").next_session(LONG).open() => next.unwrap(),
        never = renewing => never,
    };
    assert_eq!(next.session().unwrap().id(), "lost");
    let refused = lost.session().unwrap().renew().await.unwrap_err();
    assert_eq!((refused.kind(), refused.code()), (Kind::LockLost, "E-SESS-03"));
    take(&mut kept).await.complete().await.unwrap();
}

async fn a_session_processor_keeps_the_order_and_the_state(world: World) {
    type Log = Arc<Mutex<BTreeMap<String, Vec<String>>>>;
    world.queue("orders", Queue::new().sessions(true)).await;
    for number in 1..=4 {
        for session in ["a", "b", "c"] {
            world.send_to_session("orders", session, &[&number.to_string()]).await;
        }
    }
    let log = Log::default();
    let lines = Arc::clone(&log);
    let handle = move |Text(body): Text, total: SessionState<u64>, context: Context| {
        let lines = Arc::clone(&lines);
        async move {
            let session = context.session().unwrap().id().to_owned();
            lines.lock().unwrap().entry(session).or_default().push(body.clone());
            let number: u64 = body.parse()?;
            total.store(&(total.load().await?.unwrap_or_default() + number)).await?;
            Ok::<_, HandlerError>(())
        }
    };
    let builder = world.client.session_processor("orders").handler(handle).max_sessions(2);
    let processor = builder.idle(Duration::from_millis(50)).start().await.unwrap();
    until(&processor, |status| status.completed == 12).await;
    processor.stop(LONG).await.unwrap();
    let log = log.lock().unwrap().clone();
    assert_eq!(log.len(), 3);
    assert!(log.values().all(|bodies| *bodies == ["1", "2", "3", "4"]), "{log:?}");
    for session in ["a", "b", "c"] {
        let holder = world.client.receiver("orders").session(session).manual_credit().open().await.unwrap();
        let total = SessionState::<u64>::of(holder.session().unwrap());
        assert_eq!(total.load().await.unwrap(), Some(10));
    }
    world.assert_empty("orders").await;
}
