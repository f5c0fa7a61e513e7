//! Tests of monitoring: pages list every entity, a late message counts as bad before it is received, and windows move
//! with time.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::Rig;
use peeklock_broker::engine::{Attributes, OrderView, ReceiveMode, Settlement, TargetView};
use peeklock_broker::filter::{Value, ViewBuilder};
use peeklock_broker::{AdminError, MEASURE_COUNT_MAX};
use peeklock_types::{
    ClassName, ClassSettings, EntityName, OrderSettings, QueueSettings, SequenceNumber, Target,
};

fn name(text: &str) -> EntityName {
    EntityName::parse(text).unwrap()
}

/// Returns settings with the classes high (7 to 9, within ten seconds) and low (0 to 6).
fn settings() -> QueueSettings {
    let class = |text: &str| ClassName::parse(text).unwrap();
    let mut high = ClassSettings::new(class("high"), (7, 9));
    high.target = Some(Target { within: Duration::from_secs(10), objective_ppm: 990_000 });
    let low = ClassSettings::new(class("low"), (0, 6));
    let order = OrderSettings { classes: vec![high, low], ..OrderSettings::default() };
    QueueSettings { order: Some(Box::new(order)), ..QueueSettings::default() }
}

fn with_priority(priority: &str) -> Attributes {
    let mut view = ViewBuilder::new();
    view.user("Priority", &Value::text(priority));
    Attributes { view: Some(view.finish()), ..Attributes::default() }
}

async fn order(rig: &Rig) -> OrderView {
    *rig.broker.order(name("jobs")).await.unwrap().unwrap()
}

async fn target(rig: &Rig) -> TargetView {
    order(rig).await.classes[0].target.clone().unwrap()
}

#[tokio::test]
async fn pages_list_every_entity_once() {
    let rig = Rig::start().await;
    let count = 3 * MEASURE_COUNT_MAX * rig.broker.shard_count() / 2;
    let mut missing: BTreeSet<_> = (0..count).map(|number| name(&format!("q{number}"))).collect();
    for name in &missing {
        rig.broker.create_queue(name.clone(), QueueSettings::default()).await.unwrap();
    }
    rig.queue_with("jobs", settings()).await;
    missing.insert(name("jobs"));
    for shard in 0..rig.broker.shard_count() {
        let mut after = None;
        loop {
            let page = rig.broker.measure(shard, after).await.unwrap();
            assert!(page.len() <= MEASURE_COUNT_MAX);
            let Some(last) = page.last() else { break };
            after = Some(last.name.clone());
            for found in page {
                assert_eq!(found.order.is_some(), found.name == name("jobs"));
                assert!(missing.remove(&found.name), "{} is listed twice or was never created", found.name);
            }
        }
    }
    assert_eq!(missing, BTreeSet::new());
}

#[tokio::test]
async fn a_plain_queue_has_no_order_but_its_messages_can_be_explained() {
    let rig = Rig::start().await;
    let mut queue = rig.queue("plain").await;
    queue.send(b"one").await;
    queue.send(b"two").await;
    assert!(rig.broker.order(name("plain")).await.unwrap().is_none());
    let explained = rig.broker.explain_message(name("plain"), SequenceNumber(2)).await.unwrap();
    assert_eq!((explained.state, explained.class), ("waiting", None));
    assert_eq!(explained.ahead.iter().map(|(_, count)| count).sum::<u64>(), 1);
    let gone = rig.broker.explain_message(name("plain"), SequenceNumber(3)).await;
    assert!(matches!(gone, Err(AdminError::Refused(_))));
    assert!(matches!(rig.broker.order(name("none")).await, Err(AdminError::Refused(_))));
}

#[tokio::test]
async fn a_class_is_counted_from_arrival_to_settlement() {
    let rig = Rig::start().await;
    let mut queue = rig.queue_with("jobs", settings()).await;
    for priority in ["low", "high", "3", "42"] {
        queue.send_with(priority.as_bytes(), with_priority(priority)).await.unwrap();
    }
    let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 1, false).await;
    let (delivery, body) = queue.delivery().await;
    assert_eq!(&body[..], b"high");
    let view = order(&rig).await;
    let [high, low] = &view.classes[..] else { panic!("{view:?}") };
    assert_eq!((high.waiting_count, high.locked_count, high.started_count, high.settled_count), (0, 1, 1, 0));
    assert_eq!((low.waiting_count, low.locked_count, low.enqueued_count), (3, 0, 3));
    assert_eq!(view.misfit_count, 1, "there is no class of priority 42");
    let behind = rig.broker.explain_message(name("jobs"), SequenceNumber(3)).await.unwrap();
    assert_eq!(behind.class, Some(ClassName::parse("low").unwrap()));
    assert_eq!(behind.ahead, [(ClassName::parse("low").unwrap(), 1)]);
    let held = rig.broker.explain_message(name("jobs"), SequenceNumber(2)).await.unwrap();
    assert_eq!(held.state, "locked");
    queue.settle(delivery.token, Settlement::Complete).await.unwrap();
    let view = order(&rig).await;
    let high = &view.classes[0];
    assert_eq!((high.locked_count, high.settled_count), (0, 1));
    assert_eq!((high.time_in_queue.count(), high.critical_time.count()), (1, 1));
    let target = high.target.as_ref().unwrap();
    assert_eq!((target.good_count, target.bad_count), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_message_is_bad_as_soon_as_it_is_late() {
    let rig = Rig::start().await;
    let mut queue = rig.queue_with("jobs", settings()).await;
    queue.send_with(b"one", with_priority("high")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(target(&rig).await.bad_count, 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let late = target(&rig).await;
    assert_eq!((late.good_count, late.bad_count), (0, 1), "the message has not been received yet");
    assert!(late.burn(&late.windows[0]).unwrap() > 14.4);
    let receiver = queue.attach(1, ReceiveMode::PeekLock).await;
    queue.credit(receiver, 1, false).await;
    queue.delivery().await;
    let started = target(&rig).await;
    assert_eq!((started.good_count, started.bad_count), (0, 1), "the message counts as bad once");
}

#[tokio::test(start_paused = true)]
async fn a_window_moves_without_traffic() {
    let rig = Rig::start().await;
    let mut queue = rig.queue_with("jobs", settings()).await;
    queue.send_with(b"one", with_priority("high")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(11)).await;
    let receiver = queue.attach(1, ReceiveMode::ReceiveAndDelete).await;
    queue.credit(receiver, 1, false).await;
    queue.delivery().await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    let now = target(&rig).await;
    let bad: Vec<_> = now.windows.iter().map(|window| window.bad_count).collect();
    assert_eq!(bad, [0, 1, 1, 1, 1], "the message was late more than five minutes ago");
}
