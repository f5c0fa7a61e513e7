//! Queue groups: several queues behind one link, with the most urgent message of all members first, and no message
//! without credit.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use peeklock_access::{Policy, Right};
use peeklock_amqp::connection::{Delivery, DeliveryId, Event, LinkId, SaslClient};
use peeklock_amqp::{Attach, Body, DeliveryState, Header, Message, SenderSettleMode, Value, condition};
use peeklock_gateway_azure::{Gateway, Limits};
use peeklock_types::{
    ClassName, ClassSettings, EntityKind, EntityName, OrderPolicy, OrderSettings, Placement,
    QueueGroupSettings, QueueGroups, QueueSettings, QueueStatus,
};

use crate::support::{Client, Rig, condition_of, message, receiver, sender, sessions};

const MEMBERS: [&str; 3] = ["high", "normal", "low"];

fn name(text: &str) -> EntityName {
    EntityName::parse(text).unwrap()
}

fn group(policy: OrderPolicy) -> QueueGroupSettings {
    QueueGroupSettings::new(policy, MEMBERS.map(name))
}

/// Starts a rig with the queue group "work".
async fn rig_with(settings: QueueGroupSettings) -> Rig {
    let rig = Rig::start().await;
    let groups: QueueGroups = [(name("work"), Arc::new(settings))].into();
    let broker = rig.broker.clone().with_queue_groups(groups);
    let gateway = Gateway::new(broker.clone(), rig.access.clone());
    let mut rig = rig.behind(gateway);
    rig.broker = broker;
    rig
}

/// Starts the same rig with all members.
async fn rig(settings: QueueGroupSettings) -> Rig {
    let rig = rig_with(settings).await;
    for member in MEMBERS {
        rig.queue(member, QueueSettings::default()).await;
    }
    rig
}

async fn send(client: &mut Client, queue: &'static str, bodies: &[&'static str]) {
    let link = client.sender(queue).await;
    for body in bodies {
        assert_eq!(client.send(link, &message(body)).await, DeliveryState::Accepted);
    }
}

fn text(message: &Message) -> String {
    let Body::Data(parts) = &message.body else { panic!("{:?}", message.body) };
    String::from_utf8(parts.concat()).unwrap()
}

/// Returns the next delivery, without granting credit.
async fn next(client: &mut Client, link: LinkId) -> (Delivery, String) {
    let delivery = client.until(|event| delivery_on(event, link)).await;
    let message = Message::decode(&delivery.payload).unwrap();
    (delivery, text(&message))
}

fn delivery_on(event: &Event, link: LinkId) -> Option<Delivery> {
    match event {
        Event::Delivery { link: found, delivery } if *found == link => Some(delivery.clone()),
        _ => None,
    }
}

async fn take(client: &mut Client, link: LinkId, count: usize) -> Vec<String> {
    let mut taken = Vec::new();
    for _ in 0..count {
        let (delivery, body) = next(client, link).await;
        let outcome = client.settle(link, delivery.id, DeliveryState::Accepted).await;
        assert_eq!(outcome, DeliveryState::Accepted);
        taken.push(body);
    }
    taken
}

/// Returns the deliveries that arrive within a while, unsettled.
async fn all(client: &mut Client, link: LinkId) -> Vec<(Delivery, String)> {
    let mut found = Vec::new();
    while let Ok(delivery) = tokio::time::timeout(Duration::from_millis(200), next(client, link)).await {
        found.push(delivery);
    }
    found
}

fn bodies(found: &[(Delivery, String)]) -> Vec<&str> {
    found.iter().map(|(_, body)| body.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn strict_delivers_the_high_queue_first_regardless_of_age() {
    let shards: BTreeSet<_> = MEMBERS.iter().map(|member| Placement::default().of(&name(member))).collect();
    assert_eq!(shards.len(), 3, "the members are in different shards");
    let rig = rig(group(OrderPolicy::Strict)).await;
    let mut client = rig.client().await;
    send(&mut client, "low", &["l1", "l2"]).await;
    send(&mut client, "normal", &["n1"]).await;
    send(&mut client, "high", &["h1", "h2"]).await;
    let link = client.receiver("work").await;
    client.connection.set_credit(link, 10);
    let found = all(&mut client, link).await;
    assert_eq!(bodies(&found), ["h1", "h2", "n1", "l1", "l2"]);
    for (delivery, _) in found {
        let outcome = client.settle(link, delivery.id, DeliveryState::Accepted).await;
        assert_eq!(outcome, DeliveryState::Accepted);
    }
    // Credit remains, and every new message is delivered.
    send(&mut client, "low", &["l3"]).await;
    assert_eq!(take(&mut client, link, 1).await, ["l3"]);
    send(&mut client, "high", &["h3"]).await;
    assert_eq!(take(&mut client, link, 1).await, ["h3"]);
    for member in MEMBERS {
        let info = rig.broker.show(name(member)).await.unwrap();
        assert_eq!(info.counts.message_count(), 0, "{member}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_prefetch_is_limited() {
    let rig = rig(group(OrderPolicy::Strict)).await;
    let mut client = rig.client().await;
    let link = client.sender("low").await;
    for _ in 0..100 {
        client.send(link, &message("low")).await;
    }
    let link = client.receiver("work").await;
    client.connection.set_credit(link, 300);
    let held = all(&mut client, link).await;
    assert_eq!(held.len(), 16, "the limit, not the credit");
    send(&mut client, "high", &["high"]).await;
    assert!(all(&mut client, link).await.is_empty());
    client.settle(link, held[0].0.id, DeliveryState::Accepted).await;
    assert_eq!(
        bodies(&all(&mut client, link).await),
        ["high"],
        "the first free place is for the urgent message"
    );
    let low = rig.broker.show(name("low")).await.unwrap();
    assert_eq!((low.counts.locked_count, low.counts.message_count()), (15, 99));
}

#[tokio::test(start_paused = true)]
async fn expired_locks_make_room() {
    let mut settings = group(OrderPolicy::Strict);
    settings.max_outstanding = 2;
    let rig = rig(settings).await;
    let mut client = rig.client().await;
    send(&mut client, "low", &["a", "b", "c"]).await;
    let link = client.receiver("work").await;
    client.connection.set_credit(link, 100);
    assert_eq!(bodies(&all(&mut client, link).await), ["a", "b"]);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(bodies(&all(&mut client, link).await), ["a", "b"], "the same two, and no more");
}

#[tokio::test(start_paused = true)]
async fn fifo_merges_the_queues_by_age() {
    let rig = rig(group(OrderPolicy::Fifo)).await;
    let mut client = rig.client().await;
    for (queue, body) in
        [("low", "1"), ("high", "2"), ("high", "3"), ("normal", "4"), ("low", "5"), ("high", "6")]
    {
        send(&mut client, queue, &[body]).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let link = client.receiver("work").await;
    client.connection.set_credit(link, 10);
    assert_eq!(bodies(&all(&mut client, link).await), ["1", "2", "3", "4", "5", "6"]);
}

#[tokio::test(start_paused = true)]
async fn aged_limits_the_wait_of_the_low_queue() {
    let rig = rig(group(OrderPolicy::Aged)).await;
    // The offsets are zero, 30 s and 5 min.
    send(&mut rig.client().await, "low", &["old low"]).await;
    tokio::time::sleep(Duration::from_secs(290)).await;
    let mut client = rig.client().await;
    send(&mut client, "normal", &["normal"]).await;
    send(&mut client, "low", &["low"]).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    send(&mut client, "high", &["high"]).await;
    let link = client.receiver("work").await;
    client.connection.set_credit(link, 10);
    assert_eq!(bodies(&all(&mut client, link).await), ["old low", "high", "normal", "low"]);
}

#[tokio::test(start_paused = true)]
async fn weighted_queues_share() {
    let mut settings = group(OrderPolicy::Weighted);
    for (member, weight) in settings.members.iter_mut().zip([4, 2, 1]) {
        member.weight = Some(weight);
    }
    let rig = rig(settings).await;
    let mut client = rig.client().await;
    for member in MEMBERS {
        let link = client.sender(member).await;
        for _ in 0..50 {
            client.send(link, &message(member)).await;
        }
    }
    let link = client.receiver("work").await;
    client.connection.set_credit(link, 300);
    let taken = take(&mut client, link, 56).await;
    let count = |of: &str| taken.iter().filter(|body| *body == of).count();
    let counts = MEMBERS.map(count);
    for (count, share) in counts.into_iter().zip([32, 16, 8]) {
        assert!(count.abs_diff(share) <= 5, "{counts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn competing_receivers_lose_and_duplicate_no_message() {
    let rig = rig(group(OrderPolicy::Aged)).await;
    let mut client = rig.client().await;
    for member in MEMBERS {
        let link = client.sender(member).await;
        for n in 0..60 {
            let text: &'static str = format!("{member} {n}").leak();
            client.send(link, &message(text)).await;
        }
    }
    let mut workers = Vec::new();
    let mut links = Vec::new();
    for source in ["work", "work", "normal"] {
        let mut client = rig.client().await;
        let link = client.receiver(source).await;
        links.push((client, link));
    }
    for (mut client, link) in links {
        workers.push(tokio::spawn(async move {
            client.connection.set_credit(link, 300);
            let mut taken = Vec::new();
            while let Ok((delivery, body)) =
                tokio::time::timeout(Duration::from_secs(5), next(&mut client, link)).await
            {
                client.settle(link, delivery.id, DeliveryState::Accepted).await;
                taken.push(body);
            }
            taken
        }));
    }
    let mut taken = Vec::new();
    for worker in workers {
        let by_one = worker.await.unwrap();
        assert!(!by_one.is_empty(), "each receiver has some");
        taken.extend(by_one);
    }
    assert_eq!(taken.len(), 180);
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), 180);
}

#[tokio::test(start_paused = true)]
async fn a_drain_returns_the_available_messages_and_ends() {
    let rig = rig(group(OrderPolicy::Strict)).await;
    let mut client = rig.client().await;
    let link = client.receiver("work").await;
    let drained = |client: &mut Client| {
        client.connection.set_credit(link, 10);
        client.connection.drain(link);
    };
    let is_drained = |event: &Event| match event {
        Event::Flow { link: found, drain: true, .. } if *found == link => Some(()),
        _ => None,
    };
    drained(&mut client);
    client.until(is_drained).await;
    assert_eq!(client.connection.credit(link), 0);
    send(&mut client, "low", &["l"]).await;
    send(&mut client, "high", &["h"]).await;
    drained(&mut client);
    client.until(is_drained).await;
    assert_eq!(client.connection.credit(link), 0);
    assert_eq!(bodies(&all(&mut client, link).await), ["h", "l"]);
    send(&mut client, "high", &["later"]).await;
    assert!(all(&mut client, link).await.is_empty(), "no credit is left");
}

#[tokio::test(start_paused = true)]
async fn receive_and_delete_has_the_same_order() {
    let rig = rig(group(OrderPolicy::Strict)).await;
    let mut client = rig.client().await;
    send(&mut client, "low", &["l1", "l2"]).await;
    send(&mut client, "high", &["h1"]).await;
    let attach = Attach { snd_settle_mode: SenderSettleMode::Settled, ..receiver("work", None) };
    let link = client.attach(attach).await.unwrap().0;
    client.connection.set_credit(link, 2);
    let found = all(&mut client, link).await;
    assert_eq!(bodies(&found), ["h1", "l1"]);
    assert!(found.iter().all(|(delivery, _)| delivery.settled));
    let low = rig.broker.show(name("low")).await.unwrap();
    assert_eq!((low.counts.locked_count, low.counts.message_count()), (0, 1), "no more than the credit");
}

#[tokio::test(start_paused = true)]
async fn members_appear_and_disappear() {
    let rig = rig_with(group(OrderPolicy::Strict)).await;
    let mut client = rig.client().await;
    let refused = client.attach(receiver("work", None)).await.unwrap_err();
    assert_eq!(refused.condition, condition::NOT_FOUND);
    let told = refused.description.unwrap().to_string();
    assert!(told.contains("the group 'work'") && told.contains("'low'"), "{told}");
    rig.queue("low", QueueSettings::default()).await;
    let link = client.receiver("work").await;
    client.connection.set_credit(link, 100);
    send(&mut client, "low", &["low"]).await;
    assert_eq!(take(&mut client, link, 1).await, ["low"]);
    rig.queue("high", QueueSettings::default()).await;
    send(&mut client, "high", &["high"]).await;
    assert_eq!(take(&mut client, link, 1).await, ["high"], "found without a new link");
    send(&mut client, "high", &["held"]).await;
    let (held, _) = next(&mut client, link).await;
    rig.broker.delete(name("high"), None).await.unwrap();
    send(&mut client, "low", &["goes on"]).await;
    assert_eq!(take(&mut client, link, 1).await, ["goes on"]);
    let outcome = client.settle(link, held.id, DeliveryState::Accepted).await;
    assert_eq!(condition_of(&outcome), condition::NOT_FOUND);
    let off = QueueSettings { status: QueueStatus::ReceiveDisabled, ..QueueSettings::default() };
    rig.broker.update(name("low"), off, None).await.unwrap();
    let gone = client.detached(link).await;
    assert_eq!(gone.condition, condition::ENTITY_DISABLED, "no member is left");
}

#[tokio::test(start_paused = true)]
async fn invalid_links_are_rejected_with_reasons() {
    let rig = rig(group(OrderPolicy::Strict)).await;
    let mut client = rig.client().await;
    let told = async |client: &mut Client, attach| {
        let error = client.attach(attach).await.unwrap_err();
        (error.condition.to_string(), error.description.unwrap().to_string())
    };
    let (of, text) = told(&mut client, sender("work")).await;
    assert!(
        of == condition::NOT_ALLOWED && text.contains("send to one of its members ('high', 'normal', 'low')")
    );
    let (_, text) = told(&mut client, receiver("work/$deadletterqueue", None)).await;
    assert!(text.to_lowercase().contains("'high/$deadletterqueue', 'normal/$deadletterqueue'"), "{text}");
    let (_, text) = told(&mut client, receiver("work", Some(Value::Null))).await;
    assert!(text.contains("groups have no sessions"), "{text}");
    let created = rig.broker.create_queue(name("Work"), QueueSettings::default()).await.unwrap_err();
    assert!(created.to_string().contains("name of a group"), "{created}");

    rig.broker.delete(name("low"), None).await.unwrap();
    rig.queue("low", sessions()).await;
    let (of, text) = told(&mut client, receiver("work", None)).await;
    assert!(
        of == condition::NOT_ALLOWED && text.contains("its member 'low'") && text.contains("session"),
        "{text}"
    );
    rig.broker.delete(name("low"), None).await.unwrap();
    rig.broker.create(name("low"), EntityKind::Topic, QueueSettings::default(), None).await.unwrap();
    let (of, text) = told(&mut client, receiver("work", None)).await;
    assert!(of == condition::NOT_ALLOWED && text.contains("'low' is a topic"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_listen_right_on_the_queue_group_or_on_all_members_is_required() {
    let rig = rig(group(OrderPolicy::Strict)).await;
    let on = |policy: &str, entity: &str| Policy {
        scope: Some(name(entity)),
        ..Policy::with_one_key(policy, "secret", &[Right::Listen])
    };
    let access = peeklock_access::Access::open(
        None,
        vec![
            on("of-group", "work"),
            on("of-high", "high"),
            on("of-normal", "normal"),
            on("of-low", "low"),
            Policy::with_one_key("listener", "secret", &[Right::Listen]),
            Policy::with_one_key("sender", "secret", &[Right::Send]),
        ],
    );
    let gateway = Gateway::new(rig.broker.clone(), access.unwrap());
    let rig = rig.behind(gateway);
    for key in ["of-group", "listener"] {
        let mut client = rig.client_with(SaslClient::plain(key, "secret")).await;
        assert!(client.attach(receiver("work", None)).await.is_ok(), "{key}");
    }
    for key in ["of-high", "sender"] {
        let mut client = rig.client_with(SaslClient::plain(key, "secret")).await;
        let error = client.attach(receiver("work", None)).await.unwrap_err();
        assert_eq!(error.condition, condition::UNAUTHORIZED_ACCESS, "{key}");
        assert!(error.description.unwrap().as_str().contains("each of its members"));
    }
}

#[tokio::test(start_paused = true)]
async fn locks_are_renewed_and_settled_at_the_right_member() {
    let rig = rig(group(OrderPolicy::Strict)).await;
    let mut client = rig.client().await;
    send(&mut client, "low", &["l"]).await;
    send(&mut client, "high", &["h"]).await;
    let link = client.receiver("work").await;
    client.connection.set_credit(link, 10);
    let found = all(&mut client, link).await;
    assert_eq!(bodies(&found), ["h", "l"]);
    let tokens: Vec<[u8; 16]> = found
        .iter()
        .map(|(delivery, _)| {
            let guid = <[u8; 16]>::try_from(delivery.tag.as_slice()).unwrap();
            peeklock_types::LockToken::from_guid_bytes(guid).to_bytes()
        })
        .collect();
    let of = |tokens: &[[u8; 16]]| {
        let tokens = tokens.iter().map(|token| Value::Uuid(*token)).collect();
        let array = peeklock_amqp::Array::new(peeklock_amqp::Kind::Uuid, tokens).unwrap();
        ("lock-tokens", Value::Array(array))
    };
    let management = client.management("work").await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    let renewed = client.request(&management, "com.microsoft:renew-lock", vec![of(&tokens)]).await;
    assert_eq!(renewed.status, 200);
    tokio::time::sleep(Duration::from_secs(40)).await;
    // Another connection has no state for the locks, and looks them up.
    let mut other = rig.client().await;
    let elsewhere = other.management("work").await;
    let complete = |tokens: &[[u8; 16]]| vec![of(tokens), ("disposition-status", "completed".into())];
    let done = other.request(&elsewhere, "com.microsoft:update-disposition", complete(&tokens[1..])).await;
    assert_eq!(done.status, 200);
    let lost = other.request(&elsewhere, "com.microsoft:update-disposition", complete(&tokens[1..])).await;
    assert_eq!((lost.status, lost.condition.as_deref()), (410, Some(condition::MESSAGE_LOCK_LOST)));
    let done = client.request(&management, "com.microsoft:update-disposition", complete(&tokens[..1])).await;
    assert_eq!(done.status, 200);
    for member in MEMBERS {
        assert_eq!(rig.broker.show(name(member)).await.unwrap().counts.message_count(), 0, "{member}");
    }
    for (delivery, _) in found {
        let outcome = client.settle(link, delivery.id, DeliveryState::Accepted).await;
        assert_eq!(condition_of(&outcome), condition::MESSAGE_LOCK_LOST, "the same as with a queue");
    }
    let refused = client.request(&management, "peeklock:purge", Vec::new()).await;
    assert_eq!((refused.status, refused.condition.as_deref()), (400, Some(condition::NOT_ALLOWED)));
}

#[tokio::test(start_paused = true)]
async fn a_peek_at_a_queue_group_returns_messages_of_all_members() {
    let rig = rig(group(OrderPolicy::Strict)).await;
    let mut client = rig.client().await;
    send(&mut client, "low", &["l1", "l2", "l3"]).await;
    send(&mut client, "high", &["h1", "h2"]).await;
    let management = client.management("work").await;
    assert_eq!(client.count(&management).await, 5);
    let from =
        |from: i64, count: i32| vec![("from-sequence-number", from.into()), ("message-count", count.into())];
    let peek = "com.microsoft:peek-message";
    let two = client.request(&management, peek, from(0, 2)).await;
    assert_eq!(two.get("messages").as_list().unwrap().len(), 2);
    let rest = client.request(&management, peek, from(2, 10)).await;
    assert_eq!(rest.get("messages").as_list().unwrap().len(), 3);
    assert_eq!(client.request(&management, peek, from(4, 10)).await.status, 204);
}

#[tokio::test(start_paused = true)]
async fn abandoned_and_dead_lettered_messages_stay_with_their_queue() {
    let rig = rig(group(OrderPolicy::Strict)).await;
    let mut client = rig.client().await;
    send(&mut client, "low", &["l"]).await;
    let link = client.receiver("work").await;
    client.connection.set_credit(link, 10);
    let (delivery, _) = next(&mut client, link).await;
    client.settle(link, delivery.id, crate::support::modified(peeklock_amqp::Fields::new())).await;
    let (delivery, body) = next(&mut client, link).await;
    assert_eq!(body, "l");
    client.settle(link, delivery.id, DeliveryState::Rejected { error: None }).await;
    let dead = client.receiver("low/$deadletterqueue").await;
    assert_eq!(text(&client.receive(dead).await.1), "l");
}

#[tokio::test(start_paused = true)]
async fn a_detached_link_leaves_no_locks() {
    let rig = rig(group(OrderPolicy::Strict)).await;
    let mut client = rig.client().await;
    let link = client.receiver("work").await;
    client.connection.set_credit(link, 10);
    client.flush().await;
    client.connection.detach(link, None);
    client.until(|event| matches!(event, Event::Detached { .. }).then_some(())).await;
    send(&mut client, "high", &["h"]).await;
    let other = client.receiver("high").await;
    assert_eq!(text(&client.receive(other).await.1), "h");
}

#[tokio::test(start_paused = true)]
async fn a_member_with_its_own_order_keeps_its_own_limit() {
    let rig = rig_with(group(OrderPolicy::Strict)).await;
    let order = OrderSettings { max_outstanding: 1, ..OrderSettings::default() };
    for member in MEMBERS {
        let order = (member == "high").then(|| Box::new(order.clone()));
        rig.queue(member, QueueSettings { order, ..QueueSettings::default() }).await;
    }
    let mut client = rig.client().await;
    send(&mut client, "high", &["h1", "h2", "h3"]).await;
    send(&mut client, "low", &["l1"]).await;
    let link = client.receiver("work").await;
    client.connection.set_credit(link, 300);
    let found = all(&mut client, link).await;
    assert_eq!(bodies(&found), ["h1", "l1"], "the other members continue");
    client.settle(link, found[0].0.id, DeliveryState::Accepted).await;
    assert_eq!(bodies(&all(&mut client, link).await), ["h2"]);
}

#[tokio::test(start_paused = true)]
async fn large_messages_of_several_members_share_the_link() {
    let rig = rig_with(group(OrderPolicy::Weighted)).await;
    for member in MEMBERS {
        let settings = QueueSettings { max_message_size_bytes: 4 << 20, ..QueueSettings::default() };
        rig.queue(member, settings).await;
    }
    let mut client = rig.client().await;
    let body = vec![7; 2 << 20];
    for member in MEMBERS {
        let link = client.sender(member).await;
        for _ in 0..3 {
            assert_eq!(client.send(link, &Message::data(body.clone())).await, DeliveryState::Accepted);
        }
    }
    let attach = Attach { max_message_size: Some(100 << 20), ..receiver("work", None) };
    let (link, reply) = client.attach(attach).await.unwrap();
    assert!(reply.max_message_size.is_none_or(|size| size >= 100 << 20));
    client.connection.set_credit(link, 300);
    for _ in 0..9 {
        let delivery = client.until(|event| delivery_on(event, link)).await;
        assert!(delivery.payload.len() > body.len());
        client.settle(link, delivery.id, DeliveryState::Accepted).await;
    }
    assert!(all(&mut client, link).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn lookups_of_absent_members_use_no_link_numbers() {
    let rig = rig_with(group(OrderPolicy::Strict)).await;
    let off = QueueSettings { status: QueueStatus::ReceiveDisabled, ..QueueSettings::default() };
    rig.queue("low", QueueSettings::default()).await;
    rig.queue("normal", off).await;
    let gateway = Gateway::new(rig.broker.clone(), rig.access.clone());
    // The numbers are for the link, three members, two senders, and one more: lookups that used numbers would run out of
    // them.
    let limits = Limits { link_numbers_per_connection_max: 7, ..Limits::default() };
    let rig = rig.behind(gateway.with_limits(limits));
    let mut client = rig.client().await;
    let link = client.receiver("work").await;
    client.connection.set_credit(link, 100);
    client.flush().await;
    // One member is missing and one is disabled, for more lookups than there are numbers.
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.queue("high", QueueSettings::default()).await;
    rig.broker.update(name("normal"), QueueSettings::default(), None).await.unwrap();
    send(&mut client, "high", &["high"]).await;
    assert_eq!(take(&mut client, link, 1).await, ["high"]);
    send(&mut client, "normal", &["normal"]).await;
    assert_eq!(take(&mut client, link, 1).await, ["normal"]);
    // A member that was present and deleted returns with the last number.
    rig.broker.delete(name("high"), None).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.queue("high", QueueSettings::default()).await;
    send(&mut rig.client().await, "high", &["again"]).await;
    assert_eq!(take(&mut client, link, 1).await, ["again"]);
    // Its first number is free again, and then all are in use.
    client.receiver("high").await;
    let refused = client.attach(receiver("high", None)).await.unwrap_err();
    assert_eq!(refused.condition, condition::RESOURCE_LIMIT_EXCEEDED);
}

#[tokio::test(start_paused = true)]
async fn a_connection_attaches_more_links_than_it_has_numbers() {
    let rig = rig_with(group(OrderPolicy::Strict)).await;
    rig.queue("plain", QueueSettings::default()).await;
    let gateway = Gateway::new(rig.broker.clone(), rig.access.clone());
    let limits = Limits { link_numbers_per_connection_max: 7, ..Limits::default() };
    let rig = rig.behind(gateway.with_limits(limits));
    let mut client = rig.client().await;
    let sender = client.sender("plain").await;
    for _ in 0..50 {
        assert_eq!(client.send(sender, &message("one")).await, DeliveryState::Accepted);
        let link = client.receiver("plain").await;
        let (delivery, _) = client.receive(link).await;
        assert_eq!(client.settle(link, delivery.id, DeliveryState::Accepted).await, DeliveryState::Accepted);
        client.connection.detach(link, None);
        client
            .until(|event| {
                matches!(event, Event::Detached { link: found, .. } if *found == link).then_some(())
            })
            .await;
    }
}

/// Starts a queue group with a limit of 100, whose member "high" permits one lock per receiver and delivers each
/// message once.
async fn rig_with_bound() -> Rig {
    let settings = QueueGroupSettings { max_outstanding: 100, ..group(OrderPolicy::Strict) };
    let rig = rig_with(settings).await;
    let order = Some(Box::new(OrderSettings { max_outstanding: 1, ..OrderSettings::default() }));
    let settings = QueueSettings { order, max_delivery_count: 1, ..QueueSettings::default() };
    rig.queue("high", settings).await;
    rig.queue("low", QueueSettings::default()).await;
    rig
}

#[tokio::test(start_paused = true)]
async fn a_link_continues_when_expired_locks_are_dead_lettered() {
    let rig = rig_with_bound().await;
    let mut client = rig.client().await;
    send(&mut client, "high", &["h1", "h2", "h3"]).await;
    let link = client.receiver("work").await;
    client.connection.set_credit(link, 300);
    for expected in ["h1", "h2", "h3"] {
        assert_eq!(bodies(&all(&mut client, link).await), [expected]);
        tokio::time::sleep(Duration::from_secs(61)).await;
    }
    let counts = rig.broker.show(name("high")).await.unwrap().counts;
    assert_eq!((counts.locked_count, counts.dead_letter_count), (0, 3));
}

/// Accepts a delivery in a transaction that is still open.
async fn accept_in_transaction(client: &mut Client, link: LinkId, id: DeliveryId) -> (LinkId, Bytes) {
    let (control, _) = client.coordinator().await;
    let txn_id = client.declare(control).await;
    let outcome = Some(Box::new(DeliveryState::Accepted));
    let state = DeliveryState::Transactional { txn_id: txn_id.clone(), outcome };
    let (_, is_settled) = client.settle_in(link, id, state).await;
    assert!(!is_settled, "the commit settles it");
    (control, txn_id)
}

#[tokio::test(start_paused = true)]
async fn a_link_continues_when_a_transaction_ends() {
    let rig = rig_with_bound().await;
    let mut client = rig.client().await;
    send(&mut client, "high", &["h1", "h2"]).await;
    let link = client.receiver("work").await;
    client.connection.set_credit(link, 300);
    let (delivery, _) = next(&mut client, link).await;
    let (control, txn_id) = accept_in_transaction(&mut client, link, delivery.id).await;
    assert!(all(&mut client, link).await.is_empty(), "the message is locked until the commit");
    assert_eq!(client.discharge(control, &txn_id, false).await, DeliveryState::Accepted);
    assert_eq!(take(&mut client, link, 1).await, ["h2"]);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_of_a_rolled_back_transaction_can_be_settled_again() {
    let rig = rig(group(OrderPolicy::Strict)).await;
    let mut client = rig.client().await;
    send(&mut client, "low", &["l"]).await;
    let link = client.receiver("work").await;
    client.connection.set_credit(link, 10);
    let (delivery, _) = next(&mut client, link).await;
    let (control, txn_id) = accept_in_transaction(&mut client, link, delivery.id).await;
    assert_eq!(client.discharge(control, &txn_id, true).await, DeliveryState::Accepted);
    assert_eq!(rig.broker.show(name("low")).await.unwrap().counts.locked_count, 1);
    let done = client.settle(link, delivery.id, DeliveryState::Accepted).await;
    assert_eq!(done, DeliveryState::Accepted);
    assert_eq!(rig.broker.show(name("low")).await.unwrap().counts.message_count(), 0);
}

/// Returns the same policy for a queue whose classes have the names of the members.
fn classes_like(group: &QueueGroupSettings) -> OrderSettings {
    let class =
        |(place, member): (u8, &str)| ClassSettings::new(ClassName::parse(member).unwrap(), (place, place));
    let mut classes: Vec<_> = [2, 1, 0].into_iter().zip(MEMBERS).map(class).collect();
    for (class, member) in classes.iter_mut().zip(&group.members) {
        (class.offset, class.weight) = (member.offset, member.weight);
    }
    OrderSettings { policy: group.policy, classes, ..OrderSettings::default() }
}

/// Sends the same messages to the members and to the classes, in bursts with pauses, and receives some after each
/// burst. Returns the messages received from the queue group and from the queue.
async fn orders_of(settings: QueueGroupSettings) -> (Vec<String>, Vec<String>) {
    let order = classes_like(&settings);
    let rig = rig(settings).await;
    rig.queue("classes", QueueSettings { order: Some(Box::new(order)), ..QueueSettings::default() }).await;
    let mut client = rig.client().await;
    let mut members = Vec::new();
    for member in MEMBERS {
        members.push(client.sender(member).await);
    }
    let queue = client.sender("classes").await;
    let links = [client.receiver("work").await, client.receiver("classes").await];
    let mut dice = fastrand::Rng::with_seed(7);
    let mut taken = [Vec::new(), Vec::new()];
    let mut waiting = 0;
    for heap in 0..24 {
        let count = dice.usize(0..5);
        for n in 0..count {
            let place = dice.usize(0..3);
            tokio::time::advance(Duration::from_millis(dice.u64(1..60_000))).await;
            let body = Body::Data(vec![Bytes::from(format!("{heap}-{n} {}", MEMBERS[place]))]);
            let priority = Some(2 - u8::try_from(place).unwrap());
            let header = Some(Header { priority, ..Header::default() });
            let message = Message { header, body, ..message("") };
            for link in [members[place], queue] {
                assert_eq!(client.send(link, &message).await, DeliveryState::Accepted);
            }
        }
        waiting += count;
        let count = if heap == 23 { waiting } else { dice.usize(0..=waiting.min(3)) };
        waiting -= count;
        for (link, taken) in links.into_iter().zip(&mut taken) {
            for _ in 0..count {
                client.connection.set_credit(link, 1);
                taken.extend(take(&mut client, link, 1).await);
            }
        }
    }
    taken.into()
}

#[tokio::test(start_paused = true)]
async fn a_queue_group_and_a_queue_with_classes_have_the_same_order() {
    for policy in [OrderPolicy::Fifo, OrderPolicy::Strict, OrderPolicy::Aged, OrderPolicy::Weighted] {
        let mut settings = group(policy);
        if policy == OrderPolicy::Weighted {
            settings
                .members
                .iter_mut()
                .zip([5, 2, 1])
                .for_each(|(member, weight)| member.weight = Some(weight));
        }
        let (from_group, from_queue) = orders_of(settings).await;
        assert!(from_group.len() > 30, "{}", from_group.len());
        assert_eq!(from_group, from_queue, "{policy:?}");
    }
}
