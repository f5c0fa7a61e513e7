//! Scheduled, expiring and delayed messages, and their appearance in management responses.

use std::time::Duration;

use bytes::Bytes;
use peeklock_amqp::connection::SaslClient;
use peeklock_amqp::{
    Array, Attach, Body, DeliveryState, Encode, Fields, Header, Message, Symbol, Value, condition,
};
use peeklock_broker::Clock;
use peeklock_types::{EntityName, Placement, QueueSettings};

use crate::hubs::smallest_messages;
use crate::support::{Rig, condition_of, message, modified, receiver};

const SCHEDULED: &str = "x-opt-scheduled-enqueue-time";

/// Returns the time this many seconds ahead, in milliseconds.
fn ahead(seconds: u64) -> i64 {
    let now = Clock::start().now() + Duration::from_secs(seconds);
    i64::try_from(now.as_millis()).unwrap()
}

fn scheduled(body: &'static str, seconds: u64) -> Message {
    let message_annotations = Fields::new().with(SCHEDULED, Value::Timestamp(ahead(seconds)));
    Message { message_annotations, ..message(body) }
}

fn schedule_body(messages: &[Message]) -> Vec<(&'static str, Value)> {
    let entry = |message: &Message| Value::Map(vec![("message".into(), message.to_bytes().into())]);
    vec![("messages", Value::List(messages.iter().map(entry).collect()))]
}

fn first_message(response: &crate::support::Response) -> Message {
    let messages = response.get("messages");
    let first = messages.as_list().unwrap()[0].lookup("message").unwrap().as_bytes().unwrap().clone();
    Message::decode(&first).unwrap()
}

impl crate::support::Client {
    async fn peek_one(&mut self, management: &crate::support::Management) -> Message {
        let body = vec![("from-sequence-number", 0_i64.into()), ("message-count", 1.into())];
        first_message(&self.request(management, "com.microsoft:peek-message", body).await)
    }
}

#[tokio::test(start_paused = true)]
async fn scheduled_messages_are_numbered_peeked_and_cancelled() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let mut client = rig.client().await;
    let management = client.management("q").await;
    let body = schedule_body(&[scheduled("a", 3600), scheduled("b", 3600)]);
    let response = client.request(&management, "com.microsoft:schedule-message", body).await;
    assert_eq!(response.status, 200);
    assert_eq!(response.get("sequence-numbers"), Value::Array(Array::longs([1, 2])));

    let body = vec![("from-sequence-number", 0_i64.into()), ("message-count", 10.into())];
    let peeked = client.request(&management, "com.microsoft:peek-message", body).await.get("messages");
    let first = peeked.as_list().unwrap()[0].lookup("message").unwrap().as_bytes().unwrap().clone();
    let first = Message::decode(&first).unwrap();
    assert_eq!(first.message_annotations.get("x-opt-message-state"), Some(&Value::Int(2)));

    let cancel = || vec![("sequence-numbers", Value::Array(Array::longs([1])))];
    let operation = "com.microsoft:cancel-scheduled-message";
    assert_eq!(client.request(&management, operation, cancel()).await.status, 200);
    let again = client.request(&management, operation, cancel()).await;
    assert_eq!((again.status, again.condition.as_deref()), (404, Some(condition::MESSAGE_NOT_FOUND)));
    assert_eq!(client.count(&management).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_of_the_queues_size_limit_can_be_scheduled() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let mut client = rig.client().await;
    let management = client.management("q").await;
    let full = Message { body: Body::Data(vec![vec![7; (1 << 20) - 200].into()]), ..scheduled("a", 3600) };
    let operation = "com.microsoft:schedule-message";
    let response = client.request(&management, operation, schedule_body(&[full])).await;
    assert_eq!(response.status, 200);
    assert_eq!(client.count(&management).await, 1);
}

#[tokio::test(start_paused = true)]
async fn scheduling_requires_the_send_right_and_peeking_the_listen_right() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let body = || schedule_body(&[scheduled("a", 3600)]);
    let mut sender = rig.client_with(SaslClient::plain("sender", "secret")).await;
    let management = sender.management("q").await;
    assert_eq!(sender.request(&management, "com.microsoft:schedule-message", body()).await.status, 200);
    let peek = vec![("from-sequence-number", 0_i64.into()), ("message-count", 10.into())];
    assert_eq!(sender.request(&management, "com.microsoft:peek-message", peek).await.status, 401);
    let mut listener = rig.client_with(SaslClient::plain("listener", "secret")).await;
    let management = listener.management("q").await;
    assert_eq!(listener.request(&management, "com.microsoft:schedule-message", body()).await.status, 401);
    assert_eq!(listener.count(&management).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_message_is_delivered_when_it_is_due() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    assert_eq!(client.send(sender, &scheduled("later", 30)).await, DeliveryState::Accepted);
    let link = client.receiver("q").await;
    let start = tokio::time::Instant::now();
    let (_, found) = client.receive(link).await;
    assert_eq!(found.body, message("later").body);
    assert!((29..33).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    // The same value as in the service.
    assert_eq!(found.message_annotations.get("x-opt-message-state"), Some(&Value::Int(2)));
}

#[tokio::test(start_paused = true)]
async fn receivers_receive_the_expiry_time() {
    let settings =
        QueueSettings { default_time_to_live: Some(Duration::from_secs(60)), ..QueueSettings::default() };
    let rig = Rig::with_queue("q", settings).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    let ttl = |ttl| Message { header: Some(Header { ttl: Some(ttl), ..Header::default() }), ..message("m") };
    client.send(sender, &ttl(5000)).await;
    client.send(sender, &ttl(u32::MAX)).await;
    let refused = client.send(sender, &ttl(0)).await;
    assert_eq!(condition_of(&refused), condition::ARGUMENT_OUT_OF_RANGE);
    let link = client.receiver("q").await;
    for expected in [5000, 60_000] {
        let (_, found) = client.receive(link).await;
        assert_eq!(found.header.unwrap().ttl, Some(expected));
        let Some(Value::Timestamp(enqueued)) = found.message_annotations.get("x-opt-enqueued-time") else {
            panic!()
        };
        assert_eq!(found.properties.absolute_expiry_time, Some(enqueued + i64::from(expected)));
        assert_eq!(found.properties.creation_time, Some(*enqueued));
    }
}

/// SDKs compute the time to live from expiry and creation; the largest value of the header is 49.7 days.
#[tokio::test(start_paused = true)]
async fn a_time_to_live_of_a_hundred_days_is_kept_in_all_forms_of_a_message() {
    const DAY_MS: i64 = 86_400_000;
    let settings = QueueSettings {
        default_time_to_live: Some(Duration::from_secs(100 * 86_400)),
        max_message_size_bytes: 8 << 20,
        ..QueueSettings::default()
    };
    let rig = Rig::with_queue("q", settings).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    let check = |found: &Message| {
        let (from, until) = (found.properties.creation_time, found.properties.absolute_expiry_time);
        assert_eq!(until.unwrap() - from.unwrap(), 100 * DAY_MS, "{:?}", found.properties);
        assert_eq!(found.header.unwrap().ttl, Some(u32::MAX));
    };
    let management = client.management("q").await;
    client.send(sender, &scheduled("later", 3600)).await;
    check(&client.peek_one(&management).await);
    let numbers = vec![("sequence-numbers", Value::Array(Array::longs([1])))];
    client.request(&management, "com.microsoft:cancel-scheduled-message", numbers).await;
    client.send(sender, &Message::data(vec![7; 3 << 20])).await;
    let attach = Attach { max_message_size: Some(100 << 20), ..receiver("q", None) };
    let link = client.attach(attach).await.unwrap().0;
    let (delivery, found) = client.receive(link).await;
    check(&found);
    client.settle(link, delivery.id, DeliveryState::Accepted).await;
    client.send(sender, &message("small")).await;
    check(&client.peek_one(&management).await);
    let (delivery, found) = client.receive(link).await;
    check(&found);
    let defer = DeliveryState::Modified {
        delivery_failed: None,
        undeliverable_here: Some(true),
        message_annotations: None,
    };
    client.settle(link, delivery.id, defer).await;
    let number = found.message_annotations.get("x-opt-sequence-number").unwrap().as_i64().unwrap();
    let body = vec![
        ("sequence-numbers", Value::Array(Array::longs([number]))),
        ("receiver-settle-mode", Value::Uint(1)),
    ];
    let received = client.request(&management, "com.microsoft:receive-by-sequence-number", body).await;
    check(&first_message(&received));
    client.connection.detach(link, None);
    client.send(sender, &message("poison")).await;
    let link = client.receiver("q").await;
    let (delivery, _) = client.receive(link).await;
    client.settle(link, delivery.id, DeliveryState::Rejected { error: None }).await;
    let dead = client.receiver("q/$deadletterqueue").await;
    check(&client.receive(dead).await.1);
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_reason_that_is_not_a_text_is_kept() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    client.send(sender, &message("m")).await;
    let link = client.receiver("q").await;
    let (delivery, _) = client.receive(link).await;
    let error = peeklock_amqp::AmqpError::new("com.microsoft:dead-letter", "")
        .with_info("DeadLetterReason", 7)
        .with_info("DeadLetterErrorDescription", Value::Boolean(true));
    client.settle(link, delivery.id, DeliveryState::rejected(error)).await;
    let dead = client.receiver("q/$deadletterqueue").await;
    let (_, found) = client.receive(dead).await;
    assert_eq!(found.property("DeadLetterReason"), Some(&Value::Int(7)));
    assert_eq!(found.property("DeadLetterErrorDescription"), Some(&Value::Boolean(true)));
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_message_is_delayed_as_requested() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    client.send(sender, &message("m")).await;
    let link = client.receiver("q").await;
    let (delivery, _) = client.receive(link).await;
    let annotations = Fields::new().with("peeklock-retry-after", "PT20S").with("why", "busy");
    let outcome = client.settle(link, delivery.id, modified(annotations)).await;
    assert!(matches!(outcome, DeliveryState::Modified { .. }), "{outcome:?}");
    let start = tokio::time::Instant::now();
    let (delivery, found) = client.receive(link).await;
    assert!((20..21).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    assert_eq!(found.application_properties, vec![("why".into(), "busy".into())]);

    let bad =
        client.settle(link, delivery.id, modified(Fields::new().with("peeklock-retry-after", "soon"))).await;
    assert_eq!(condition_of(&bad), condition::ARGUMENT_ERROR);
}

#[tokio::test(start_paused = true)]
async fn extensions_are_offered_to_receivers_that_desire_them() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let mut client = rig.client().await;
    let names = ["peeklock:interrupted", "peeklock:delayed-abandon", "peeklock:session-turns", "other"];
    let desired_capabilities = names.map(Symbol::from_static).to_vec();
    let (_, reply) = client.attach(Attach { desired_capabilities, ..receiver("q", None) }).await.unwrap();
    let offered: Vec<_> = reply.offered_capabilities.iter().map(|offered| offered.as_str()).collect();
    assert_eq!(offered, ["peeklock:delayed-abandon", "peeklock:interrupted", "peeklock:session-turns"]);
    let (_, reply) = client.attach(receiver("q", None)).await.unwrap();
    assert!(reply.offered_capabilities.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_interruption_does_not_count_and_has_no_other_properties() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    client.send(sender, &message("m")).await;
    let link = client.receiver("q").await;
    let (delivery, _) = client.receive(link).await;
    let interrupted = Fields::new().with("peeklock-interrupted", true);
    let outcome = client.settle(link, delivery.id, modified(interrupted.clone())).await;
    assert!(matches!(outcome, DeliveryState::Modified { .. }), "{outcome:?}");
    let (delivery, found) = client.receive(link).await;
    assert_eq!(found.header.map_or(0, |header| header.delivery_count()), 0);
    assert!(found.application_properties.is_empty(), "{found:?}");
    let bad = client.settle(link, delivery.id, modified(interrupted.with("why", "busy"))).await;
    assert_eq!(condition_of(&bad), condition::ARGUMENT_ERROR);
}

#[tokio::test(start_paused = true)]
async fn a_peek_can_omit_the_body() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let mut client = rig.client().await;
    let management = client.management("q").await;
    let sender = client.sender("q").await;
    client.send(sender, &message("a long story").with_property("kept", 1)).await;
    let body = vec![
        ("from-sequence-number", 0_i64.into()),
        ("message-count", 10.into()),
        ("omit-message-body", true.into()),
    ];
    let peeked = client.request(&management, "com.microsoft:peek-message", body).await.get("messages");
    let found = peeked.as_list().unwrap()[0].lookup("message").unwrap().as_bytes().unwrap().clone();
    let found = Message::decode(&found).unwrap();
    assert_eq!(found.body, Body::None);
    assert_eq!(found.application_properties, vec![("kept".into(), 1.into())]);
}

#[tokio::test(start_paused = true)]
async fn responses_are_in_the_order_of_requests() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let mut client = rig.client().await;
    let management = client.management("q").await;
    assert_eq!(client.count(&management).await, 0);
    // The first requires an answer of a shard, the second is rejected at once.
    let peek = vec![("from-sequence-number", 0_i64.into()), ("message-count", 10.into())];
    client.start_request(&management, "com.microsoft:peek-message", peek, None);
    client.start_request(&management, "nonsense", Vec::new(), None);
    assert_eq!(client.response(&management).await.0, "com.microsoft:peek-message");
    assert_eq!(client.response(&management).await.0, "nonsense");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_receive_its_responses_is_detached() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    client.send(sender, &Message::data(vec![0; 900_000])).await;
    let deaf = client.management_with("q", 0).await;
    let peek = || vec![("from-sequence-number", 0_i64.into()), ("message-count", 10.into())];
    for _ in 0..10 {
        client.start_request(&deaf, "com.microsoft:peek-message", peek(), None);
    }
    assert_eq!(client.detached(deaf.responses).await.condition, condition::RESOURCE_LIMIT_EXCEEDED);
    client.start_request(&deaf, "com.microsoft:peek-message", peek(), None);
    let management = client.management("q").await;
    assert_eq!(client.count(&management).await, 1, "other links continue");
}

/// A message with a damaged body is reported: its receiver continues with the next one, and the dead-letter queue
/// contains it.
#[tokio::test(start_paused = true)]
async fn a_damaged_message_becomes_an_empty_dead_letter_with_a_reason() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    assert_eq!(client.send(sender, &message("a")).await, DeliveryState::Accepted);
    let shard = Placement::default().of(&EntityName::parse("q").unwrap());
    rig.journal.damage_group(shard, rig.journal.newest_group(shard));
    rig.journal.cool(shard);
    assert_eq!(client.send(sender, &message("b")).await, DeliveryState::Accepted);
    let receiver = client.receiver("q").await;
    let (_, found) = client.receive(receiver).await;
    assert_eq!(found.body, message("b").body);
    let dead = client.receiver("q/$deadletterqueue").await;
    let (delivery, found) = client.receive(dead).await;
    assert_eq!(found.body, Body::Data(vec![Bytes::new()]));
    let told = |key: &str| {
        let property = found.application_properties.iter().find(|(name, _)| name.as_str() == key);
        property.and_then(|(_, value)| value.as_str()).unwrap()
    };
    assert_eq!(told("DeadLetterReason"), "BodyDamaged");
    assert!(told("DeadLetterErrorDescription").contains("the checksum does not fit"));
    assert_eq!(client.settle(dead, delivery.id, DeliveryState::Accepted).await, DeliveryState::Accepted);
    assert_eq!(rig.broker.damage().message_count, 1);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_limited_only_by_its_bytes() {
    let rig = Rig::with_queue("orders", QueueSettings::default()).await;
    let unique =
        QueueSettings { duplicate_window: Some(Duration::from_secs(60)), ..QueueSettings::default() };
    rig.queue("unique", unique).await;
    let mut client = rig.client().await;
    for name in ["orders", "unique"] {
        let link = client.sender(name).await;
        let batch = smallest_messages();
        let count = batch.message_count() as u64;
        assert!(count > 100_000);
        assert_eq!(client.send_batch(link, batch).await, DeliveryState::Accepted);
        let counts = rig.broker.show(EntityName::parse(name).unwrap()).await.unwrap().counts;
        assert_eq!(counts.active_count, count);
    }
}
