//! Tests of topics in shards: copies share one body through upload, evacuation, crash and forwarding, and it is
//! released once; and management lists and changes topics, subscriptions and rules.

use std::time::Duration;

use crate::common::{Rig, TestQueue, delivered};
use bytes::Bytes;
use peeklock_broker::engine::{Attributes, Error as Refused, Patch, ReceiveMode, ReceiverId, Settlement};
use peeklock_broker::filter::{Filter, Rule, RuleName, SqlFilter, Value, ViewBuilder};
use peeklock_broker::request::sending::SendMessages;
use peeklock_broker::{
    AdminError, Broker, Delivered, DeliveredBody, Error, Listing, Page, PageStart, ReceiverReply, Reply,
    StoredBody, Ticket, Wanted,
};
use peeklock_journal::{BodyRange, MemoryJournal};
use peeklock_types::{
    CommitGroupNumber, EntityKind, EntityName, LockToken, Placement, QueueSettings, SubQueue,
};

const LARGE_BYTES: u32 = 3 * 1024 * 1024;

fn name(text: &str) -> EntityName {
    EntityName::parse(text).unwrap()
}

fn settings() -> QueueSettings {
    QueueSettings { max_message_size_bytes: 8 * 1024 * 1024, ..QueueSettings::default() }
}

fn sql(rule: &str, text: &str) -> Rule {
    let filter = Filter::Sql(SqlFilter { expression: text.to_owned(), parameters: Vec::new() });
    Rule { name: RuleName::parse(rule).unwrap(), filter, action: None }
}

/// Makes a view with the priority, which is the only content of the bodies here.
fn describe(stored: &[u8], _: &Patch) -> Option<Bytes> {
    let text = std::str::from_utf8(stored).ok()?;
    let mut view = ViewBuilder::new();
    view.user("Priority", &Value::text(text.trim_end()));
    Some(view.finish())
}

async fn start(journal: MemoryJournal) -> Rig {
    let (broker, running, _) = Broker::open(&journal, describe).await.unwrap();
    Rig { journal, broker, running }
}

async fn topic_with(broker: &Broker, topic: &str, subscriptions: &[(&str, Option<Rule>)]) {
    broker.create(name(topic), EntityKind::Topic, settings(), None).await.unwrap();
    for (subscription, rule) in subscriptions {
        let name = EntityName::subscription(&name(topic), subscription).unwrap();
        broker.create(name, EntityKind::Subscription, settings(), rule.clone()).await.unwrap();
    }
}

fn refused_as(error: AdminError) -> Refused {
    match error {
        AdminError::Refused(Error::Engine(error)) => *error,
        other => panic!("{other}"),
    }
}

/// Waits until all tasks had time to work.
async fn settle_down() {
    tokio::time::sleep(Duration::from_secs(10)).await;
}

async fn upload(rig: &Rig, queue: &mut TestQueue<'_>, body: &[u8]) -> Result<(), Error> {
    let upload = rig.broker.upload(queue.shard, &queue.peer.peer, Ticket::new(9));
    for piece in body.chunks(100_000) {
        upload.write(vec![Bytes::copy_from_slice(piece)]).await;
    }
    upload.finish(queue.entity, Some(Box::new(Attributes::default()))).await;
    queue.answer::<SendMessages>().await
}

/// Receives a large message with its whole body.
async fn receive_large(rig: &Rig, queue: &mut TestQueue<'_>, receiver: ReceiverId) -> (LockToken, Vec<u8>) {
    let delivered = delivered(queue.peer.next().await).unwrap();
    let Delivered { delivery, body: DeliveredBody::Large(hold) } = delivered else { panic!("{delivered:?}") };
    let message = &delivery.message;
    let body = StoredBody { place: message.body, size_bytes: message.size_bytes };
    let (token, range) = (delivery.token, 0..message.size_bytes);
    rig.broker.fetch(queue.shard, &queue.peer.peer, Wanted { receiver, token, body, range });
    let Reply::Receiver(ReceiverReply::Range { bytes, .. }) = queue.peer.next().await else {
        panic!("the reply has no bytes")
    };
    drop(hold);
    (token, bytes.unwrap().to_vec())
}

#[tokio::test(start_paused = true)]
async fn a_large_message_is_stored_once_and_released_with_its_last_copy() {
    let mut rig = start(MemoryJournal::new()).await;
    topic_with(
        &rig.broker,
        "news",
        &[("a", None), ("b", None), ("c", None), ("none", Some(sql("r", "1 = 2")))],
    )
    .await;
    let shard = Placement::default().of(&name("news"));
    let body: Vec<u8> = (0..LARGE_BYTES).map(|n| (n % 251) as u8).collect();
    let mut topic = rig.queue("news").await;
    upload(&rig, &mut topic, &body).await.unwrap();
    drop(topic);
    for (subscription, left) in [("a", 1), ("b", 1), ("c", 0)] {
        assert_eq!(rig.journal.standalone_bytes(shard), LARGE_BYTES.into());
        let mut queue = rig.queue(&format!("news/Subscriptions/{subscription}")).await;
        let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
        queue.credit(receiver, 1, false).await;
        let (token, found) = receive_large(&rig, &mut queue, receiver).await;
        assert!(found == body, "the body of {subscription} differs");
        queue.settle(token, Settlement::Complete).await.unwrap();
        drop(queue);
        settle_down().await;
        assert_eq!(rig.journal.standalone_bytes(shard), u64::from(LARGE_BYTES) * left);
        rig = start_again(rig).await;
        assert_eq!(rig.journal.standalone_bytes(shard), u64::from(LARGE_BYTES) * left, "after a restart");
    }
}

async fn start_again(rig: Rig) -> Rig {
    let Rig { journal, broker, running } = rig;
    drop((broker, running));
    start(journal).await
}

#[tokio::test(start_paused = true)]
async fn a_large_message_that_no_subscription_accepts_is_released() {
    let rig = start(MemoryJournal::new()).await;
    topic_with(&rig.broker, "news", &[("none", Some(sql("r", "1 = 2")))]).await;
    let mut topic = rig.queue("news").await;
    upload(&rig, &mut topic, &vec![b'x'; LARGE_BYTES as usize]).await.unwrap();
    settle_down().await;
    assert_eq!(rig.journal.standalone_bytes(topic.shard_id()), 0);
}

#[tokio::test(start_paused = true)]
async fn evacuation_copies_a_shared_body_once() {
    let rig = start(MemoryJournal::new()).await;
    topic_with(&rig.broker, "news", &[("a", None), ("b", None)]).await;
    let mut topic = rig.queue("news").await;
    let shard = topic.shard_id();
    for n in 0..20_u8 {
        topic.send(&[n; 1000]).await;
    }
    rig.journal.ask_move(shard, BodyRange::groups_upto(CommitGroupNumber(1000)));
    settle_down().await;
    assert_eq!(rig.journal.standalone_bytes(shard), 20_000);
    drop(topic);
    let rig = start_again(rig).await;
    assert_eq!(rig.journal.standalone_bytes(shard), 20_000);
    let expected: Vec<_> = (0..20_u8).map(|n| vec![n; 1000]).collect();
    for (subscription, left) in [("a", 20_000), ("b", 0)] {
        let mut queue = rig.queue(&format!("news/Subscriptions/{subscription}")).await;
        assert_eq!(queue.peek().await, expected);
        let receiver = queue.attach(1, ReceiveMode::ReceiveAndDelete).await;
        queue.credit(receiver, 20, false).await;
        for body in &expected {
            assert_eq!(queue.delivery().await.1, body);
        }
        drop(queue);
        settle_down().await;
        assert_eq!(rig.journal.standalone_bytes(shard), left);
    }
}

/// Returns the name of an entity that another shard than that of `near` owns.
fn far_from(near: &str) -> String {
    let names = (0..).map(|number| format!("far{number}"));
    names
        .into_iter()
        .find(|far| Placement::default().of(&name(far)) != Placement::default().of(&name(near)))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn messages_forwarded_to_a_topic_are_filtered() {
    for topic in ["near".to_owned() + "topic", far_from("near")] {
        let rig = start(MemoryJournal::new()).await;
        let high = sql("r", "Priority = 'High'");
        topic_with(&rig.broker, &topic, &[("high", Some(high)), ("all", None)]).await;
        let forwards = QueueSettings { forward_to: Some(name(&topic)), ..settings() };
        let mut source = rig.queue_with("near", forwards).await;
        for body in [&b"Low"[..], b"High"] {
            source.send(body).await;
        }
        // The same applies to large messages, of which only the front is read.
        let mut large = b"High".to_vec();
        large.resize(LARGE_BYTES as usize, b' ');
        upload(&rig, &mut source, &large).await.unwrap();
        large[..4].copy_from_slice(b"Low ");
        upload(&rig, &mut source, &large).await.unwrap();
        settle_down().await;
        assert_eq!(source.info("near").await.counts.message_count(), 0);
        let shown = |subscription: &str| EntityName::subscription(&name(&topic), subscription).unwrap();
        let count = async |subscription| rig.broker.show(shown(subscription)).await.unwrap().counts;
        assert_eq!((count("high").await.active_count, count("all").await.active_count), (2, 4));
        assert_eq!(
            rig.journal.standalone_bytes(Placement::default().of(&name(&topic))),
            2 * u64::from(LARGE_BYTES)
        );
        rig.broker.delete(name(&topic), None).await.unwrap();
        settle_down().await;
        assert_eq!(rig.journal.standalone_bytes(Placement::default().of(&name(&topic))), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn entities_are_listed_by_name_in_pages() {
    let rig = start(MemoryJournal::new()).await;
    for n in [4, 2, 0, 3, 1] {
        rig.queue(&format!("q{n}")).await;
    }
    topic_with(&rig.broker, "t1", &[("b", None), ("a", None), ("c", None)]).await;
    topic_with(&rig.broker, "T0", &[]).await;
    let list = async |what: Listing, start: PageStart, top| {
        let found = rig.broker.list(what, Page { start, top }).await.unwrap();
        found.iter().map(|entity| entity.name.to_string()).collect::<Vec<_>>()
    };
    let queues = || Listing::Queues;
    assert_eq!(list(queues(), PageStart::Skip(0), 2).await, ["q0", "q1"]);
    assert_eq!(list(queues(), PageStart::Skip(3), 9).await, ["q3", "q4"]);
    assert_eq!(list(queues(), PageStart::Skip(9), 9).await, [""; 0]);
    assert_eq!(list(queues(), PageStart::After(name("q1")), 2).await, ["q2", "q3"]);
    assert_eq!(list(Listing::Topics, PageStart::Skip(0), 9).await, ["T0", "t1"]);
    let of = |topic: &str| Listing::Subscriptions { topic: name(topic) };
    let all = ["t1/Subscriptions/a", "t1/Subscriptions/b", "t1/Subscriptions/c"];
    assert_eq!(list(of("t1"), PageStart::Skip(0), 9).await, all);
    assert_eq!(list(of("t1"), PageStart::Skip(1), 1).await, all[1..2]);
    assert_eq!(list(of("t0"), PageStart::Skip(0), 9).await, [""; 0]);
    for missing in ["q1", "nothing"] {
        let refused = rig.broker.list(of(missing), Page::ALL).await;
        assert!(matches!(refused_as(refused.unwrap_err()), Refused::NoSuchTopic { .. }));
    }
    let shown = rig.broker.show(name("t1")).await.unwrap();
    assert_eq!((shown.kind, shown.subscription_count), (EntityKind::Topic, 3));
}

#[tokio::test(start_paused = true)]
async fn a_change_based_on_an_old_revision_is_rejected() {
    let rig = start(MemoryJournal::new()).await;
    topic_with(&rig.broker, "news", &[("a", None)]).await;
    let sub = name("news/subscriptions/A");
    let first = rig.broker.show(sub.clone()).await.unwrap();
    let changed = QueueSettings { max_delivery_count: 7, ..settings() };
    let second = rig.broker.update(sub.clone(), changed.clone(), Some(first.revision)).await.unwrap();
    assert_ne!(first.revision, second.revision);
    let is_late = |error| matches!(refused_as(error), Refused::RevisionChanged { .. });
    let late = rig.broker.update(sub.clone(), settings(), Some(first.revision)).await;
    assert!(is_late(late.unwrap_err()));
    assert!(is_late(rig.broker.delete(sub.clone(), Some(first.revision)).await.unwrap_err()));
    let rig = start_again(rig).await;
    let found = rig.broker.show(sub.clone()).await.unwrap();
    assert_eq!((found.revision, found.settings), (second.revision, changed));
    rig.broker.delete(sub, Some(second.revision)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn rules_are_added_and_removed_and_explain_routing() {
    let rig = start(MemoryJournal::new()).await;
    topic_with(&rig.broker, "news", &[("a", None)]).await;
    let sub = name("news/Subscriptions/a");
    rig.broker.add_rule(sub.clone(), sql("high", "Priority = 'High'")).await.unwrap();
    rig.broker.remove_rule(sub.clone(), RuleName::default_rule()).await.unwrap();
    let rig = start_again(rig).await;
    let names = |rules: Vec<peeklock_broker::RuleInfo>| -> Vec<String> {
        rules.iter().map(|info| info.rule.name.to_string()).collect()
    };
    assert_eq!(names(rig.broker.rules(sub.clone(), 0, 9).await.unwrap()), ["high"]);
    let explained = async |body: &[u8]| {
        let view = describe(body, &Patch::default()).unwrap();
        rig.broker.explain(name("news"), view).await.unwrap()[0].copy_count
    };
    assert_eq!((explained(b"High").await, explained(b"Low").await), (1, 0));
    rig.broker.replace_rule(sub.clone(), sql("HIGH", "Priority = 'Low'")).await.unwrap();
    assert_eq!((explained(b"High").await, explained(b"Low").await), (0, 1));
    let path = peeklock_types::EntityPath { name: sub, sub_queue: SubQueue::Main };
    let found = rig.broker.peek(path, peeklock_types::SequenceNumber(0), 9).await.unwrap();
    assert!(found.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_point_of_a_transfer_to_a_topic_neither_loses_nor_duplicates() {
    for turns in 0..60 {
        let rig = start(MemoryJournal::new()).await;
        let topic = far_from("near");
        topic_with(&rig.broker, &topic, &[("high", Some(sql("r", "Priority = 'High'"))), ("all", None)])
            .await;
        let forwards = QueueSettings { forward_to: Some(name(&topic)), ..settings() };
        let mut source = rig.queue_with("near", forwards).await;
        source.send(b"Low").await;
        source.send(b"High").await;
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        drop(source);
        let rig = start_again(rig).await;
        settle_down().await;
        let mut high = rig.queue(&format!("{topic}/Subscriptions/high")).await;
        let mut all = rig.queue(&format!("{topic}/Subscriptions/all")).await;
        assert_eq!(high.peek().await, [&b"High"[..]], "after {turns} turns");
        assert_eq!(all.peek().await, [&b"Low"[..], b"High"], "after {turns} turns");
    }
}

// A commit group is limited to 15 MiB. The messages that are due here take more.
#[tokio::test(start_paused = true)]
async fn a_shard_survives_many_scheduled_messages_that_are_due_at_once() {
    let rig = start(MemoryJournal::new()).await;
    let acting = Rule {
        action: Some(peeklock_broker::filter::Action {
            expression: "SET a = Priority; SET b = Priority".to_owned(),
            parameters: Vec::new(),
        }),
        ..sql("r", "Priority LIKE 'x%'")
    };
    let names: Vec<_> = (0..40).map(|n| format!("s{n}")).collect();
    let subscriptions: Vec<_> = names.iter().map(|name| (name.as_str(), Some(acting.clone()))).collect();
    topic_with(&rig.broker, "news", &subscriptions).await;
    let mut topic = rig.queue("news").await;
    let body = vec![b'x'; 10_000];
    let view = describe(&body, &Patch::default());
    let scheduled_for = Some(rig.broker.clock().now() + Duration::from_secs(60));
    let message_count = 30;
    for _ in 0..message_count {
        let attributes = Attributes { scheduled_for, view: view.clone(), ..Attributes::default() };
        topic.send_with(&body, attributes).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(topic.info("news").await.counts.scheduled_count, 0);
    let first = rig.broker.show(name("news/Subscriptions/s0")).await.unwrap();
    assert_eq!((first.counts.active_count, first.counts.dead_letter_count), (message_count, 0));
    drop(topic);
    let rig = start_again(rig).await;
    assert_eq!(
        rig.broker.show(name("news/Subscriptions/s39")).await.unwrap().counts.active_count,
        message_count
    );
}
