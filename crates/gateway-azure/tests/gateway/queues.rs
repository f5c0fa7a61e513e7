//! Queues and their settings, over the management of the namespace; and what a queue's limits do to its senders.

use peeklock_amqp::{DeliveryState, Value, condition};
use peeklock_types::{QueueSettings, QueueStatus};

use crate::support::{Rig, condition_of, message, receiver};

#[tokio::test(start_paused = true)]
async fn a_queue_is_created_changed_shown_and_deleted() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    let management = client.management("").await;
    let body = vec![
        ("name", "q".into()),
        ("default-time-to-live-ms", 60_000.into()),
        ("retry", "exponential".into()),
        ("forward-dead-letters-to", "graves".into()),
    ];
    assert_eq!(client.request(&management, "peeklock:create-queue", body.clone()).await.status, 201);
    assert_eq!(client.request(&management, "peeklock:create-queue", body).await.status, 409);
    let changes = vec![
        ("name", "q".into()),
        ("forward-dead-letters-to", Value::Null),
        ("max-delivery-count", 3.into()),
    ];
    assert_eq!(client.request(&management, "peeklock:update-queue", changes).await.status, 200);
    let shown = client.request(&management, "peeklock:show-queue", vec![("name", "q".into())]).await;
    let queues = shown.get("queues");
    let queue = &queues.as_list().unwrap()[0];
    assert_eq!(queue.lookup("default-time-to-live-ms"), Some(&Value::Ulong(60_000)));
    assert_eq!(queue.lookup("max-delivery-count"), Some(&Value::Uint(3)));
    assert_eq!(queue.lookup("forward-dead-letters-to"), None);
    assert_eq!(queue.lookup("retry"), Some(&Value::from("exponential")));
    for count in
        ["active", "locked", "deferred", "scheduled", "dead-letter", "transfer", "transfer-dead-letter"]
    {
        assert_eq!(queue.lookup(&format!("{count}-count")), Some(&Value::Ulong(0)), "{count}");
    }
    assert_eq!(
        client.request(&management, "peeklock:delete-queue", vec![("name", "q".into())]).await.status,
        200
    );
    let gone = client.request(&management, "peeklock:update-queue", vec![("name", "q".into())]).await;
    assert_eq!((gone.status, gone.condition.as_deref()), (404, Some(condition::NOT_FOUND)));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_changed_is_refused() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let mut client = rig.client().await;
    let management = client.management("").await;
    for (key, value) in
        [("requires-session", Value::from(true)), ("colour", "red".into()), ("retry", 1.into())]
    {
        let body = vec![("name", "q".into()), (key, value)];
        assert_eq!(client.request(&management, "peeklock:update-queue", body).await.status, 400, "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn messages_are_purged_by_the_sdks_word_and_by_ours() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let mut client = rig.client().await;
    let management = client.management("q").await;
    let sender = client.sender("q").await;
    for body in ["a", "b", "c"] {
        client.send(sender, &message(body)).await;
    }
    let batch = || {
        let before = Value::Timestamp(253_402_300_799_999);
        vec![("message-count", 1.into()), ("enqueued-time-utc", before)]
    };
    let operation = "com.microsoft:batch-delete-messages";
    let deleted = client.request(&management, operation, batch()).await;
    assert_eq!((deleted.status, deleted.get("message-count")), (200, Value::Int(1)));
    let purged = client.request(&management, "peeklock:purge", Vec::new()).await;
    assert_eq!((purged.status, purged.get("message-count")), (200, Value::Ulong(2)));
    assert_eq!(client.request(&management, operation, batch()).await.status, 204);
    assert_eq!(client.count(&management).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_link_tells_how_large_a_message_may_be() {
    let settings = QueueSettings { max_message_size_bytes: 1000, ..QueueSettings::default() };
    let rig = Rig::with_queue("q", settings).await;
    let mut client = rig.client().await;
    let (link, attach) = client.attach(crate::support::sender("q")).await.unwrap();
    assert_eq!(attach.max_message_size, Some(1000));
    let large = peeklock_amqp::Message::data(vec![0; 1001]);
    assert_eq!(condition_of(&client.send(link, &large).await), condition::MESSAGE_SIZE_EXCEEDED);
    assert_eq!(client.send(link, &message("small")).await, DeliveryState::Accepted);
}

#[tokio::test(start_paused = true)]
async fn a_full_or_disabled_queue_says_so() {
    let settings = QueueSettings { max_size_bytes: Some(1), ..QueueSettings::default() };
    let rig = Rig::with_queue("full", settings).await;
    let settings = QueueSettings { status: QueueStatus::Disabled, ..QueueSettings::default() };
    rig.queue("off", settings).await;
    let mut client = rig.client().await;
    let full = client.sender("full").await;
    let mut refused = client.send(full, &message("a")).await;
    if refused == DeliveryState::Accepted {
        refused = client.send(full, &message("b")).await;
    }
    assert_eq!(condition_of(&refused), condition::RESOURCE_LIMIT_EXCEEDED);
    let off = client.sender("off").await;
    assert_eq!(condition_of(&client.send(off, &message("a")).await), condition::ENTITY_DISABLED);
    let error = client.attach(receiver("off", None)).await.unwrap_err();
    assert_eq!(error.condition, condition::ENTITY_DISABLED);
}

#[tokio::test(start_paused = true)]
async fn receivers_are_detached_when_their_queue_is_disabled_or_deleted() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let mut client = rig.client().await;
    let management = client.management("").await;
    let link = client.receiver("q").await;
    let body = vec![("name", "q".into()), ("status", "receive-disabled".into())];
    assert_eq!(client.request(&management, "peeklock:update-queue", body).await.status, 200);
    assert_eq!(client.detached(link).await.condition, condition::ENTITY_DISABLED);
    let body = vec![("name", "q".into()), ("status", "active".into())];
    assert_eq!(client.request(&management, "peeklock:update-queue", body).await.status, 200);
    let link = client.receiver("q").await;
    client.request(&management, "peeklock:delete-queue", vec![("name", "q".into())]).await;
    assert_eq!(client.detached(link).await.condition, condition::NOT_FOUND);
}
