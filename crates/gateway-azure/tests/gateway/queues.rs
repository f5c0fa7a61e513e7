//! The effect of a queue's settings and limits on its senders and receivers.

use peeklock_amqp::connection::DeliveryId;
use peeklock_amqp::{DeliveryState, Fields, Source, Value, condition};
use peeklock_types::{EntityName, QueueSettings, QueueStatus};

use crate::support::{Rig, condition_of, message, receiver, sessions, symbol};

#[tokio::test(start_paused = true)]
async fn the_namespace_is_not_managed_over_amqp() {
    let rig = Rig::start().await;
    let mut client = rig.client().await;
    let management = client.management("").await;
    let refused = client.request(&management, "com.microsoft:peek-message", Vec::new()).await;
    assert_eq!((refused.status, refused.condition.as_deref()), (501, Some(condition::NOT_IMPLEMENTED)));
}

#[tokio::test(start_paused = true)]
async fn messages_are_purged_by_the_operations_of_the_sdks_and_of_peeklock() {
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
async fn an_attach_reply_contains_the_message_size_limit() {
    let settings = QueueSettings { max_message_size_bytes: 1000, ..QueueSettings::default() };
    let rig = Rig::with_queue("q", settings).await;
    let mut client = rig.client().await;
    let (link, attach) = client.attach(crate::support::sender("q")).await.unwrap();
    assert_eq!(attach.max_message_size, Some(1000));
    let large = peeklock_amqp::Message::data(vec![0; 1001]);
    assert_eq!(condition_of(&client.send(link, &large).await), condition::MESSAGE_SIZE_EXCEEDED);
    assert_eq!(client.send(link, &message("small")).await, DeliveryState::Accepted);
}

/// SDK quirk: .NET closes a receiver on a delivery above the size in the attach reply, with all annotations counted.
#[tokio::test(start_paused = true)]
async fn receivers_and_responses_get_a_size_limit_above_every_delivery() {
    let settings = QueueSettings { max_message_size_bytes: 1000, ..QueueSettings::default() };
    let rig = Rig::with_queue("q", settings).await;
    let mut client = rig.client().await;
    for address in ["q", "q/$management", "$cbs"] {
        let attach = client.attach(receiver(address, None)).await.unwrap().1;
        assert!(attach.max_message_size.is_none_or(|size| size > 200 << 20), "{address}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_or_disabled_queue_rejects_with_the_reason() {
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
    let name = EntityName::parse("q").unwrap();
    let with = |status| QueueSettings { status, ..QueueSettings::default() };
    let link = client.receiver("q").await;
    rig.broker.update(name.clone(), with(QueueStatus::ReceiveDisabled), None).await.unwrap();
    assert_eq!(client.detached(link).await.condition, condition::ENTITY_DISABLED);
    rig.broker.update(name.clone(), with(QueueStatus::Active), None).await.unwrap();
    let link = client.receiver("q").await;
    rig.broker.delete(name, None).await.unwrap();
    assert_eq!(client.detached(link).await.condition, condition::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn a_disposition_of_a_sender_does_not_confirm_its_delivery() {
    let rig = Rig::with_queue("talks", sessions()).await;
    let mut client = rig.client().await;
    let link = client.sender("talks").await;
    while client.connection.credit(link) == 0 {
        client.turn().await;
    }
    let tag = client.start_send(link, &message("no session"), None);
    client.connection.set_outcome(link, DeliveryId(0), DeliveryState::Accepted);
    assert_eq!(condition_of(&client.outcome(link, tag).await), condition::NOT_ALLOWED);
}

/// A client that browses must not lock messages, and one with a selector must not receive other messages.
#[tokio::test(start_paused = true)]
async fn a_receiver_that_browses_or_selects_is_rejected() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let mut client = rig.client().await;
    let selector =
        |descriptor: Value| Fields::new().with("jms-selector", Value::described(descriptor, "level > 3"));
    let by_name = selector(Value::symbol("apache.org:selector-filter:string"));
    let by_code = selector(0x468C_0000_0004_u64.into());
    let sources = [
        (Source { distribution_mode: Some(symbol("copy")), ..Source::with_address("q") }, "cannot browse"),
        (Source { filter: Some(by_name), ..Source::with_address("q") }, "cannot select"),
        (Source { filter: Some(by_code), ..Source::with_address("q") }, "cannot select"),
    ];
    for (source, sentence) in sources {
        let mut attach = receiver("q", None);
        attach.source = Some(source);
        let error = client.attach(attach).await.unwrap_err();
        assert_eq!(error.condition, condition::NOT_IMPLEMENTED);
        assert!(error.description.unwrap().as_str().contains(sentence));
    }
    let mut moves = receiver("q", None);
    moves.source = Some(Source { distribution_mode: Some(symbol("move")), ..Source::with_address("q") });
    client.attach(moves).await.unwrap();
}
