//! Queues with an order: the class and the tenant of a message, the error when a send rate is exceeded, and the order
//! in the presence of prefetching receivers.

use std::time::Duration;

use peeklock_amqp::connection::{Delivery, Event, LinkId};
use peeklock_amqp::{
    Attach, DeliveryState, Encode, Fields, Header, Message, SenderSettleMode, Value, condition,
};
use peeklock_types::{
    ClassName, ClassSettings, EntityName, OrderPolicy, OrderSettings, QueueSettings, Rate, TenantSettings,
};

use crate::support::{Client, Management, Rig, condition_of, message, receiver};

const CLASS: &str = "x-opt-peeklock-class";
const TENANT: &str = "x-opt-peeklock-tenant";

fn classes() -> OrderSettings {
    let class = |name, from, to| ClassSettings::new(ClassName::parse(name).unwrap(), (from, to));
    OrderSettings {
        policy: OrderPolicy::Strict,
        classes: vec![class("high", 7, 9), class("normal", 4, 6), class("low", 0, 3)],
        ..OrderSettings::default()
    }
}

fn ordered(order: OrderSettings) -> QueueSettings {
    QueueSettings { order: Some(Box::new(order)), ..QueueSettings::default() }
}

fn with_priority(body: &'static str, priority: u8) -> Message {
    let header = Some(Header { priority: Some(priority), ..Header::default() });
    Message { header, ..message(body) }
}

async fn peek(client: &mut Client, management: &Management) -> Vec<Message> {
    let body = vec![("from-sequence-number", 0_i64.into()), ("message-count", 100.into())];
    let found = client.request(management, "com.microsoft:peek-message", body).await.get("messages");
    let decode =
        |entry: &Value| Message::decode(entry.lookup("message").unwrap().as_bytes().unwrap()).unwrap();
    found.as_list().map_or(Vec::new(), |list| list.iter().map(decode).collect())
}

fn annotation<'m>(message: &'m Message, key: &str) -> Option<&'m str> {
    message.message_annotations.get(key).and_then(Value::as_str)
}

fn classes_of(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| annotation(message, CLASS).unwrap_or("none")).collect()
}

/// Returns the deliveries until none arrives for a while.
async fn deliveries(client: &mut Client, link: LinkId) -> Vec<(Delivery, Message)> {
    let mut found = Vec::new();
    let next = |event: &Event| match event {
        Event::Delivery { link: of, delivery } if *of == link => Some(delivery.clone()),
        _ => None,
    };
    while let Ok(delivery) = tokio::time::timeout(Duration::from_secs(1), client.until(next)).await {
        let message = Message::decode(&delivery.payload).unwrap();
        found.push((delivery, message));
    }
    found
}

async fn send_all(client: &mut Client, link: LinkId, messages: impl IntoIterator<Item = Message>) {
    for message in messages {
        assert_eq!(client.send(link, &message).await, DeliveryState::Accepted);
    }
}

#[tokio::test(start_paused = true)]
async fn header_and_property_set_the_class_and_receivers_see_it() {
    let rig = Rig::with_queue("q", ordered(classes())).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    let forged = Fields::new().with(CLASS, "high").with(TENANT, "me");
    send_all(
        &mut client,
        sender,
        [
            with_priority("header", 0),
            message("name").with_property("Priority", "high"),
            message("number").with_property("Priority", 8),
            with_priority("both", 9).with_property("Priority", "2"),
            message("nothing"),
            Message { message_annotations: forged, ..message("forged") },
        ],
    )
    .await;
    let management = client.management("q").await;
    let peeked = peek(&mut client, &management).await;
    assert_eq!(classes_of(&peeked), ["low", "high", "high", "low", "normal", "normal"]);
    assert!(peeked.iter().all(|message| annotation(message, TENANT).is_none()), "there are no tenants");

    let link = client.receiver("q").await;
    client.connection.set_credit(link, 6);
    let found: Vec<Message> =
        deliveries(&mut client, link).await.into_iter().map(|(_, message)| message).collect();
    assert_eq!(classes_of(&found), ["high", "high", "normal", "normal", "low", "low"]);
    let priorities: Vec<_> = found.iter().map(|message| message.header.unwrap().priority).collect();
    assert_eq!(priorities, [None, None, None, None, Some(0), Some(9)], "the priorities that the sender set");
}

#[tokio::test(start_paused = true)]
async fn a_message_is_delivered_with_its_tenant() {
    let tenants = TenantSettings { key: "shop".to_owned(), classes: Vec::new(), default_class: None };
    let order = OrderSettings { tenants: Some(tenants), ..classes() };
    let rig = Rig::with_queue("q", ordered(order)).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    send_all(&mut client, sender, [message("a").with_property("Shop", "tokyo"), message("b")]).await;
    let management = client.management("q").await;
    let peeked = peek(&mut client, &management).await;
    let found: Vec<_> = peeked.iter().map(|message| annotation(message, TENANT)).collect();
    assert_eq!(found, [Some("tokyo"), None]);
    let link = client.receiver("q").await;
    client.connection.set_credit(link, 2);
    let found = deliveries(&mut client, link).await;
    let mut found: Vec<_> = found.iter().map(|(_, message)| annotation(message, TENANT)).collect();
    found.sort_unstable();
    assert_eq!(found, [None, Some("tokyo")]);
}

#[tokio::test(start_paused = true)]
async fn messages_of_links_older_than_the_order_are_classified() {
    let rig = Rig::with_queue("q", QueueSettings::default()).await;
    let to_q = Some(EntityName::parse("q").unwrap());
    rig.queue("source", QueueSettings { forward_to: to_q, ..QueueSettings::default() }).await;
    let mut client = rig.client().await;
    let (sender, source) = (client.sender("q").await, client.sender("source").await);
    let control = client.coordinator().await.0;
    let management = client.management("q").await;
    send_all(&mut client, sender, [with_priority("early", 9)]).await;
    rig.broker.update(EntityName::parse("q").unwrap(), ordered(classes()), None).await.unwrap();

    send_all(&mut client, sender, [with_priority("sent", 9)]).await;
    send_all(&mut client, source, [message("forwarded").with_property("Priority", "low")]).await;
    let txn = client.declare(control).await;
    client.send_in(sender, &with_priority("committed", 1), Some(&txn)).await;
    assert_eq!(client.discharge(control, &txn, false).await, DeliveryState::Accepted);
    let large = Message { body: Message::data(vec![7; 2 << 20]).body, ..with_priority("large", 8) };
    // The queue accepts large messages only since this update.
    let settings = QueueSettings { max_message_size_bytes: 8 << 20, ..ordered(classes()) };
    rig.broker.update(EntityName::parse("q").unwrap(), settings, None).await.unwrap();
    let wide = client.sender("q").await;
    send_all(&mut client, wide, [large]).await;

    let mut found = peek(&mut client, &management).await;
    let text = |message: &Message| match &message.properties.message_id {
        Some(peeklock_amqp::MessageId::String(id)) => id.to_string(),
        other => panic!("{other:?}"),
    };
    found.sort_by_key(text);
    let found: Vec<_> = found.iter().map(|message| (text(message), annotation(message, CLASS))).collect();
    let expected = [
        ("committed", "low"),
        ("early", "normal"),
        ("forwarded", "low"),
        ("large", "high"),
        ("sent", "high"),
    ];
    assert_eq!(found, expected.map(|(id, class)| (id.to_owned(), Some(class))));
}

#[tokio::test(start_paused = true)]
async fn a_large_message_in_flight_while_the_order_is_set_is_classified() {
    let settings = QueueSettings { max_message_size_bytes: 8 << 20, ..QueueSettings::default() };
    let rig = Rig::with_queue("q", settings.clone()).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    send_all(&mut client, sender, [message("first")]).await;
    let order = Some(Box::new(classes()));
    rig.broker
        .update(EntityName::parse("q").unwrap(), QueueSettings { order, ..settings }, None)
        .await
        .unwrap();
    let large = Message { body: Message::data(vec![7; 2 << 20]).body, ..with_priority("large", 8) };
    send_all(&mut client, sender, [large]).await;
    let management = client.management("q").await;
    assert_eq!(classes_of(&peek(&mut client, &management).await), ["normal", "high"]);
}

#[tokio::test(start_paused = true)]
async fn a_sender_above_its_rate_receives_the_time_to_retry() {
    let send_rate = Some(Rate { per_second_milli: 500, burst: 2 });
    let rig = Rig::with_queue("q", ordered(OrderSettings { send_rate, ..classes() })).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    send_all(&mut client, sender, [message("a"), message("b")]).await;
    let refused = client.send(sender, &message("c")).await;
    let DeliveryState::Rejected { error: Some(error) } = refused else { panic!("{refused:?}") };
    assert_eq!(error.condition, condition::SERVER_BUSY);
    let wait_ms = error.info.as_ref().unwrap().get("retry-after-ms").and_then(Value::as_u64).unwrap();
    assert!((1..=2000).contains(&wait_ms), "{wait_ms}");
    let text = error.description.as_ref().unwrap().as_str();
    assert!(text.contains("'q'") && text.contains(&format!("{wait_ms} ms")), "{text}");

    let management = client.management("q").await;
    let entry = Value::Map(vec![("message".into(), message("s").to_bytes().into())]);
    let body = || vec![("messages", Value::List(vec![entry.clone()]))];
    let busy = client.request(&management, "com.microsoft:schedule-message", body()).await;
    assert_eq!((busy.status, busy.condition.as_deref()), (503, Some(condition::SERVER_BUSY)));
    let control = client.coordinator().await.0;
    let txn = client.declare(control).await;
    client.send_in(sender, &message("t"), Some(&txn)).await;
    let refused = client.discharge(control, &txn, false).await;
    assert_eq!(condition_of(&refused), condition::TRANSACTION_ROLLBACK);
    assert_eq!(client.count(&management).await, 2, "no rejected message is stored");

    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
    assert_eq!(
        client.send(sender, &message("c")).await,
        DeliveryState::Accepted,
        "the retry after the reported time succeeds"
    );
}

#[tokio::test(start_paused = true)]
async fn a_prefetching_receiver_does_not_delay_urgent_messages() {
    let order = OrderSettings { max_outstanding: 4, ..classes() };
    let rig = Rig::with_queue("q", ordered(order)).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    send_all(&mut client, sender, (0..20).map(|_| with_priority("low", 1))).await;
    let link = client.receiver("q").await;
    client.connection.set_credit(link, 300);
    let held = deliveries(&mut client, link).await;
    assert_eq!(held.len(), 4, "the rest of the credit is unused");

    send_all(&mut client, sender, [with_priority("high", 9)]).await;
    assert!(deliveries(&mut client, link).await.is_empty(), "the receiver holds the permitted number");
    let (first, others) = held.split_first().unwrap();
    client.settle(link, first.0.id, DeliveryState::Accepted).await;
    let next = deliveries(&mut client, link).await;
    assert_eq!(next.len(), 1, "one settlement permits one more");
    assert_eq!(annotation(&next[0].1, CLASS), Some("high"), "the most urgent message at this time");

    // Released messages make room, too, and are delivered again.
    let released = client.settle(link, others[0].0.id, DeliveryState::Released).await;
    assert_eq!(released, DeliveryState::Released);
    let again = deliveries(&mut client, link).await;
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].0.tag.as_slice().len(), 16);
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_at_the_limit_and_a_new_link_starts_from_zero() {
    let order = OrderSettings { max_outstanding: 4, ..classes() };
    let rig = Rig::with_queue("q", ordered(order)).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    send_all(&mut client, sender, (0..20).map(|_| message("m"))).await;
    let link = client.receiver("q").await;
    client.connection.set_credit(link, 300);
    let held = deliveries(&mut client, link).await;
    client.connection.drain(link);
    let drained = |event: &Event| match event {
        Event::Flow { link: found, drain: true, .. } if *found == link => Some(()),
        _ => None,
    };
    client.until(drained).await;
    assert_eq!(client.connection.credit(link), 0, "all credit was returned");
    for (delivery, _) in &held {
        client.settle(link, delivery.id, DeliveryState::Accepted).await;
    }
    assert!(deliveries(&mut client, link).await.is_empty(), "no credit is left over");
    client.connection.set_credit(link, 1);
    assert_eq!(deliveries(&mut client, link).await.len(), 1);
    // A drain below the limit returns at once with the permitted messages.
    client.connection.set_credit(link, 300);
    client.connection.drain(link);
    client.until(drained).await;
    assert_eq!(deliveries(&mut client, link).await.len(), 3);

    client.connection.detach(link, None);
    let link = client.receiver("q").await;
    client.connection.set_credit(link, 300);
    assert_eq!(deliveries(&mut client, link).await.len(), 4, "messages of the other link do not count here");
}

#[tokio::test(start_paused = true)]
async fn an_expired_lock_makes_room() {
    let order = OrderSettings { max_outstanding: 2, ..classes() };
    let settings = QueueSettings { lock_duration: Duration::from_secs(10), ..ordered(order) };
    let rig = Rig::with_queue("q", settings).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    send_all(&mut client, sender, (0..3).map(|_| message("m"))).await;
    let link = client.receiver("q").await;
    client.connection.set_credit(link, 300);
    assert_eq!(deliveries(&mut client, link).await.len(), 2);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let counts: Vec<_> = deliveries(&mut client, link)
        .await
        .iter()
        .map(|(_, message)| message.header.unwrap().delivery_count.unwrap_or(0))
        .collect();
    assert_eq!(counts, [1, 1], "the same two are delivered again");
}

#[tokio::test(start_paused = true)]
async fn a_receive_and_delete_link_holds_no_locks_and_is_not_limited() {
    let order = OrderSettings { max_outstanding: 4, ..classes() };
    let rig = Rig::with_queue("q", ordered(order)).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    send_all(&mut client, sender, (0..20).map(|_| message("m"))).await;
    let attach = Attach { snd_settle_mode: SenderSettleMode::Settled, ..receiver("q", None) };
    let link = client.attach(attach).await.unwrap().0;
    client.connection.set_credit(link, 300);
    assert_eq!(deliveries(&mut client, link).await.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_settles_fast_may_hold_more() {
    let order = OrderSettings { max_outstanding: 2, ..classes() };
    let rig = Rig::with_queue("q", ordered(order)).await;
    let mut client = rig.client().await;
    let sender = client.sender("q").await;
    send_all(&mut client, sender, (0..60).map(|_| message("m"))).await;
    let link = client.receiver("q").await;
    client.connection.set_credit(link, 300);
    let next = |event: &Event| match event {
        Event::Delivery { link: of, delivery } if *of == link => Some(delivery.id),
        _ => None,
    };
    // Virtual time does not advance while there is work, so all settlements are within the horizon.
    for _ in 0..20 {
        let id = client.until(next).await;
        client.settle(link, id, DeliveryState::Accepted).await;
    }
    let held = tokio::time::timeout(Duration::from_millis(10), async {
        let mut count = 0;
        while count < 18 {
            client.until(next).await;
            count += 1;
        }
    });
    assert!(held.await.is_ok(), "the receiver holds as many messages as it settled recently");
}
