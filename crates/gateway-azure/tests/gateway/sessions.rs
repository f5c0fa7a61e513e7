//! Session links: the assignment of sessions, the waiting time, and the loss of a session.

use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::{Array, DeliveryState, Value, condition};
use peeklock_types::QueueSettings;

use crate::support::{Rig, SESSION_FILTER, in_session, message, receiver, sessions, with_timeout};

const LOCKED_UNTIL: &str = "com.microsoft:locked-until-utc";
const GO_DESCRIPTOR: u64 = 0x0000_0013_7000_000c;
/// 1970 in .NET ticks.
const EPOCH_TICKS: i64 = 621_355_968_000_000_000;

#[tokio::test(start_paused = true)]
async fn a_named_session_belongs_to_one_receiver_until_its_link_is_closed() {
    let rig = Rig::with_queue("q", sessions()).await;
    let mut one = rig.client().await;
    let (link, attach) = one.session("q", "a").await.unwrap();
    let source = attach.source.unwrap();
    assert_eq!(source.address.unwrap(), "q", "Python compares it with the requested address");
    assert_eq!(source.filter.unwrap().get(SESSION_FILTER), Some(&Value::from("a")));
    let Some(Value::Long(ticks)) = attach.properties.unwrap().get(LOCKED_UNTIL).cloned() else { panic!() };
    assert!(ticks > EPOCH_TICKS);

    let mut two = rig.client().await;
    let error = two.session("q", "a").await.unwrap_err();
    assert_eq!(error.condition, condition::SESSION_CANNOT_BE_LOCKED);
    one.connection.detach(link, None);
    one.flush().await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    two.session("q", "a").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_next_session_is_awaited_and_encoded_like_the_request() {
    let rig = Rig::with_queue("q", sessions()).await;
    for question in [Value::Null, Value::described(GO_DESCRIPTOR, Value::Null)] {
        let mut waiting = rig.client().await;
        let link = waiting.start_attach(receiver("q", Some(question.clone())));
        waiting.flush().await;
        tokio::time::sleep(Duration::from_secs(20)).await;

        let mut client = rig.client().await;
        let sender = client.sender("q").await;
        assert_eq!(client.send(sender, &in_session("m", "s")).await, DeliveryState::Accepted);
        let (link, attach) = waiting.attached(link).await.unwrap();
        let answer = match question {
            Value::Null => Value::from("s"),
            _ => Value::described(GO_DESCRIPTOR, "s"),
        };
        assert_eq!(attach.source.unwrap().filter.unwrap().get(SESSION_FILTER), Some(&answer));
        let (delivery, found) = waiting.receive(link).await;
        assert_eq!(found.properties.group_id.unwrap(), "s");
        assert_eq!(waiting.settle(link, delivery.id, DeliveryState::Accepted).await, DeliveryState::Accepted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_waits_no_longer_than_requested() {
    let rig = Rig::with_queue("q", sessions()).await;
    let mut client = rig.client().await;
    let start = tokio::time::Instant::now();
    let error = client.attach(with_timeout(receiver("q", Some(Value::Null)), 5000)).await.unwrap_err();
    assert_eq!(error.condition, condition::TIMEOUT);
    assert!((5..6).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    let error = client.session("q", Value::Null).await.unwrap_err();
    assert_eq!(error.condition, condition::TIMEOUT);
    assert!((70..72).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_detaches_while_waiting_locks_no_session() {
    let rig = Rig::with_queue("q", sessions()).await;
    let mut leaving = rig.client().await;
    let link = leaving.start_attach(receiver("q", Some(Value::Null)));
    leaving.flush().await;
    let mut vanishing = rig.client().await;
    vanishing.start_attach(receiver("q", Some(Value::Null)));
    vanishing.flush().await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    leaving.connection.detach(link, None);
    leaving.flush().await;
    drop(vanishing);
    tokio::time::sleep(Duration::from_millis(10)).await;

    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    client.send(sender, &in_session("m", "s")).await;
    let link = client.attach(with_timeout(receiver("q", Some(Value::Null)), 1000)).await.unwrap().0;
    client.receive(link).await;
}

#[tokio::test(start_paused = true)]
async fn a_receiver_must_match_its_queue() {
    let rig = Rig::with_queue("q", sessions()).await;
    rig.queue("plain", QueueSettings::default()).await;
    let mut client = rig.client().await;
    let error = client.attach(receiver("q", None)).await.unwrap_err();
    assert_eq!(error.condition, condition::NOT_ALLOWED);
    let error = client.session("plain", "a").await.unwrap_err();
    assert_eq!(error.condition, condition::NOT_ALLOWED);
    let error = client.session("q", "x".repeat(129)).await.unwrap_err();
    assert_eq!(error.condition, condition::ARGUMENT_OUT_OF_RANGE);
    let sender = client.sender("q").await;
    let refused = client.send(sender, &message("without a session")).await;
    assert_eq!(crate::support::condition_of(&refused), condition::NOT_ALLOWED);
    client.receiver("q/$DeadLetterQueue").await;
}

#[tokio::test(start_paused = true)]
async fn an_expired_session_lock_detaches_the_link_and_renewal_prevents_it() {
    let settings = QueueSettings { lock_duration: Duration::from_secs(10), ..sessions() };
    let rig = Rig::with_queue("q", settings).await;
    let mut client = rig.client().await;
    let management = client.management("q").await;
    let link = client.session("q", "a").await.unwrap().0;
    let session = || vec![("session-id", Value::from("a"))];
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(8)).await;
        let renewed = client.request(&management, "com.microsoft:renew-session-lock", session()).await;
        assert_eq!(renewed.status, 200);
        assert!(matches!(renewed.get("expiration"), Value::Timestamp(_)));
    }
    let error = client.detached(link).await;
    assert_eq!(error.condition, condition::SESSION_LOCK_LOST);
    let lost = client.request(&management, "com.microsoft:renew-session-lock", session()).await;
    assert_eq!((lost.status, lost.condition.as_deref()), (410, Some(condition::SESSION_LOCK_LOST)));
}

#[tokio::test(start_paused = true)]
async fn a_receiver_without_its_session_is_rejected_at_once_and_detached_a_second_later() {
    let settings = QueueSettings { lock_duration: Duration::from_secs(10), ..sessions() };
    let rig = Rig::with_queue("q", settings).await;
    let mut client = rig.client().await;
    let management = client.management("q").await;
    let sender = client.sender("q").await;
    client.send(sender, &in_session("m", "a")).await;
    let start = tokio::time::Instant::now();
    let link = client.session("q", "a").await.unwrap().0;
    let (delivery, _) = client.receive(link).await;
    tokio::time::sleep(Duration::from_millis(10_200)).await;
    let state = vec![("session-id", Value::from("a"))];
    let lost = client.request(&management, "com.microsoft:get-session-state", state).await;
    assert_eq!((lost.status, lost.condition.as_deref()), (410, Some(condition::SESSION_LOCK_LOST)));
    let refused = client.settle(link, delivery.id, DeliveryState::Accepted).await;
    assert_eq!(crate::support::condition_of(&refused), condition::SESSION_LOCK_LOST);
    assert!(start.elapsed() < Duration::from_millis(10_900), "{:?}", start.elapsed());
    assert_eq!(client.detached(link).await.condition, condition::SESSION_LOCK_LOST);
    let elapsed = start.elapsed();
    assert!((10_900..11_500).contains(&elapsed.as_millis()), "{elapsed:?}");

    // Another receiver requests the session and gets it, and the link is detached at once.
    let start = tokio::time::Instant::now();
    let link = client.session("q", "a").await.unwrap().0;
    let mut other = rig.client().await;
    tokio::time::sleep(Duration::from_millis(10_200)).await;
    other.session("q", "A").await.unwrap();
    assert_eq!(client.detached(link).await.condition, condition::SESSION_LOCK_LOST);
    assert!(start.elapsed() < Duration::from_millis(10_900), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn only_the_holder_of_a_session_accesses_its_state() {
    let rig = Rig::with_queue("q", sessions()).await;
    let mut client = rig.client().await;
    let management = client.management("q").await;
    let get = || vec![("session-id", Value::from("a"))];
    let lost = client.request(&management, "com.microsoft:get-session-state", get()).await;
    assert_eq!((lost.status, lost.condition.as_deref()), (410, Some(condition::SESSION_LOCK_LOST)));

    client.session("q", "a").await.unwrap();
    let state = Value::Binary(Bytes::from_static(b"half done"));
    for state in [state, Value::Null] {
        let set = vec![("session-id", Value::from("a")), ("session-state", state.clone())];
        assert_eq!(client.request(&management, "com.microsoft:set-session-state", set).await.status, 200);
        let got = client.request(&management, "com.microsoft:get-session-state", get()).await;
        assert_eq!((got.status, got.get("session-state")), (200, state));
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_with_messages_are_listed() {
    let rig = Rig::with_queue("q", sessions()).await;
    let mut client = rig.client().await;
    let management = client.management("q").await;
    let every = |skip: i32| {
        let time = Value::Timestamp(253_402_300_800_000);
        vec![("last-updated-time", time), ("skip", skip.into()), ("top", 10.into())]
    };
    let none = client.request(&management, "com.microsoft:get-message-sessions", every(0)).await;
    assert_eq!(none.status, 204);
    let sender = client.sender("q").await;
    for session in ["b", "a", "c"] {
        client.send(sender, &in_session("m", session)).await;
    }
    let some = client.request(&management, "com.microsoft:get-message-sessions", every(1)).await;
    assert_eq!((some.status, some.get("skip")), (200, Value::Int(1)));
    let expected = Array::strings(["b".into(), "c".into()]);
    assert_eq!(some.get("sessions-ids"), Value::Array(expected));
}

#[tokio::test(start_paused = true)]
async fn deferred_messages_of_a_session_require_the_session() {
    let rig = Rig::with_queue("q", sessions()).await;
    let mut client = rig.client().await;
    let management = client.management("q").await;
    let sender = client.sender("q").await;
    client.send(sender, &in_session("m", "s")).await;
    let link = client.session("q", "s").await.unwrap().0;
    let (delivery, _) = client.receive(link).await;
    let defer = DeliveryState::Modified {
        delivery_failed: None,
        undeliverable_here: Some(true),
        message_annotations: None,
    };
    client.settle(link, delivery.id, defer).await;

    let body = |session: &'static str| {
        vec![
            ("sequence-numbers", Value::Array(Array::longs([1]))),
            ("receiver-settle-mode", Value::Uint(1)),
            ("session-id", session.into()),
        ]
    };
    let operation = "com.microsoft:receive-by-sequence-number";
    let lost = client.request(&management, operation, body("other")).await;
    assert_eq!((lost.status, lost.condition.as_deref()), (410, Some(condition::SESSION_LOCK_LOST)));
    let found = client.request(&management, operation, body("s")).await;
    assert_eq!(found.status, 200);
    let messages = found.get("messages");
    let token = messages.as_list().unwrap()[0].lookup("lock-token").unwrap().as_uuid().unwrap();
    let body = vec![
        ("disposition-status", Value::from("completed")),
        ("lock-tokens", Value::Array(Array::uuids([token]))),
        ("session-id", "s".into()),
    ];
    assert_eq!(client.request(&management, "com.microsoft:update-disposition", body).await.status, 200);
    assert_eq!(client.count(&management).await, 0);
}
