//! Tests the state of classes, targets and waiting messages in the JSON API and the metrics.

use std::time::Duration;

use crate::common::Rig;
use axum::body::Body;
use bytes::Bytes;
use http::Request;
use peeklock_amqp::{Encode, Message, Sections};
use peeklock_broker::engine::Attributes;
use peeklock_broker::request::entities::Find;
use peeklock_broker::request::sending::SendMessages;
use peeklock_broker::{Batch, Named};
use peeklock_filter::{Value as Property, ViewBuilder};
use peeklock_http::Arrival;
use peeklock_message::StoredMessage;
use peeklock_types::EntityName;
use serde_json::{Value, json};

const JOBS: &str = r#"{"order": {
    "policy": "strict",
    "classes": {"high": {"priorities": "7-9", "target": "10s"}, "low": {"priorities": "0-6"}},
    "tenants": {"key": "customer", "classes": {"paying": {"when": "tier = 'paying'"}, "free": {}}}
}}"#;

/// Sends one message for each of the given priorities, all of the same tenant.
async fn send(rig: &Rig, queue: &str, priorities: &[&str]) {
    let name = EntityName::parse(queue).unwrap();
    let shard = rig.broker.place(&name);
    let Named::Entity(found) = rig.broker.ask_at(&name.clone(), Find { name }).await.unwrap() else {
        panic!("the queue does not exist")
    };
    let mut batch = Batch::default();
    let mut messages = batch.messages();
    for priority in priorities {
        let message = Message::data("job").to_bytes();
        let written = messages.add(|out| {
            StoredMessage::encode(out, &Sections::scan(&message).unwrap(), None)
                .map(|()| Some(Box::new(Attributes { view: Some(view(priority)), ..Attributes::default() })))
        });
        written.unwrap();
    }
    let (entity, messages) = (found.entity, messages.keep());
    rig.broker.ask_with(shard, batch, SendMessages { entity, messages }).await.unwrap();
}

fn view(priority: &str) -> Bytes {
    let mut view = ViewBuilder::new();
    view.user("Priority", &Property::text(priority));
    view.user("customer", &Property::text("acme"));
    view.user("tier", &Property::text("paying"));
    view.finish()
}

async fn metrics(rig: &Rig) -> String {
    let mut request =
        Request::builder().uri("/metrics").header("host", "localhost").body(Body::empty()).unwrap();
    request.extensions_mut().insert(Arrival {
        is_loopback: true,
        connection_count: 1,
        connection_count_max: 2,
    });
    rig.call(request).await.expect(200).body
}

#[track_caller]
fn assert_has(text: &str, line: &str) {
    assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
}

fn class<'v>(document: &'v Value, kind: &str, name: &str) -> &'v Value {
    let classes = document["runtime"]["order"][kind].as_array().unwrap();
    classes.iter().find(|class| class["name"] == name).unwrap()
}

#[tokio::test]
async fn a_queue_reports_the_state_of_its_classes() {
    let rig = Rig::start().await;
    rig.put("/api/queues/jobs", JOBS).await.expect(201);
    send(&rig, "jobs", &["high", "low", "2", "42"]).await;
    let shown = rig.get("/api/queues/jobs").await.expect(200).json();
    let (high, low) = (class(&shown, "classes", "high"), class(&shown, "classes", "low"));
    assert_eq!((&high["waiting"], &low["waiting"]), (&json!(1), &json!(3)));
    assert_eq!((&high["enqueuedCount"], &high["startedCount"]), (&json!(1), &json!(0)));
    assert!(high["oldestAgeSeconds"].is_number());
    assert_eq!(high["timeInQueue"], json!({"count": 0}));
    assert_eq!(high["timeToDrainSeconds"], "never");
    let target = &high["target"];
    assert_eq!((&target["within"], &target["objective"]), (&json!("10s"), &json!(0.99)));
    assert_eq!((&target["bad"], &target["alert"]), (&json!(0), &json!("none")));
    let windows: Vec<_> = target["windows"].as_array().unwrap().iter().map(|w| &w["window"]).collect();
    assert_eq!(windows, ["5m", "30m", "1h", "6h", "3d"]);
    assert!(low.get("target").is_none());
    assert_eq!(class(&shown, "tenantClasses", "paying")["waiting"], 4);
    let order = &shown["runtime"]["order"];
    assert_eq!(order["misfitCount"], 1);
    assert_eq!(order["tenants"][0]["tenant"], "acme");
    let listed = rig.get("/api/queues").await.expect(200).json();
    assert_eq!(class(&listed["items"][0], "classes", "low")["waiting"], 3);
    rig.put("/api/queues/plain", "{}").await.expect(201);
    assert!(rig.get("/api/queues/plain").await.json().get("runtime").is_none());
}

#[tokio::test]
async fn a_subscription_reports_the_state_of_its_classes() {
    let rig = Rig::start().await;
    rig.put("/api/topics/t", "{}").await.expect(201);
    rig.put("/api/topics/t/subscriptions/s", JOBS).await.expect(201);
    send(&rig, "t", &["high", "low"]).await;
    let shown = rig.get("/api/topics/t/subscriptions/s").await.expect(200).json();
    assert_eq!(class(&shown, "classes", "high")["waiting"], 1);
    let uri = "/api/topics/t/subscriptions/s/messages/2/explain";
    assert_eq!(rig.get(uri).await.expect(200).json()["class"], "low");
    assert_has(&metrics(&rig).await, r#"peeklock_class_waiting{queue="t/Subscriptions/s",class="low"} 1"#);
}

#[tokio::test]
async fn a_waiting_message_is_explained() {
    let rig = Rig::start().await;
    rig.put("/api/queues/jobs", JOBS).await.expect(201);
    send(&rig, "jobs", &["low", "low", "high"]).await;
    let explained = rig.get("/api/queues/jobs/messages/2/explain").await.expect(200).json();
    assert_eq!((&explained["sequenceNumber"], &explained["state"]), (&json!(2), &json!("waiting")));
    assert_eq!((&explained["class"], &explained["tenantClass"]), (&json!("low"), &json!("paying")));
    assert_eq!(explained["tenant"], "acme");
    assert_eq!(explained["ahead"], json!([{"class": "high", "count": 1}, {"class": "low", "count": 1}]));
    assert_eq!(explained["aheadCount"], 2);
    assert_ne!(explained["why"], "");
    rig.get("/api/queues/jobs/messages/4/explain").await.expect(404);
    rig.get("/api/queues/none/messages/1/explain").await.expect(404);
    rig.get("/api/topics/jobs/subscriptions/s/messages/1/explain").await.expect(404);
    rig.get("/api/queues/jobs/messages/first/explain").await.expect(400);
    rig.ask("POST", "/api/queues/jobs/messages/1/explain", &[], "").await.expect(405);
}

#[tokio::test(start_paused = true)]
async fn a_class_that_misses_its_target_has_an_alert_before_any_receive() {
    let rig = Rig::start().await;
    rig.put("/api/queues/jobs", JOBS).await.expect(201);
    send(&rig, "jobs", &["high"; 19]).await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    let target = async || {
        let shown = rig.get("/api/queues/jobs").await.expect(200).json();
        class(&shown, "classes", "high")["target"].clone()
    };
    let few = target().await;
    assert_eq!((&few["bad"], &few["attainment"]), (&json!(19), &json!(0.0)));
    assert_eq!((&few["alert"], &few["windows"][0]["burn"]), (&json!("fewMessages"), &json!(100.0)));
    send(&rig, "jobs", &["high"]).await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(target().await["alert"], "page");
    let text = metrics(&rig).await;
    for line in [
        r#"peeklock_class_target_bad_total{queue="jobs",class="high"} 20"#,
        r#"peeklock_class_target_seconds{queue="jobs",class="high"} 10"#,
        r#"peeklock_class_time_in_queue_seconds_bucket{queue="jobs",class="high",le="+Inf"} 0"#,
        r#"peeklock_tenant_class_waiting{queue="jobs",tenant_class="paying"} 20"#,
        r#"peeklock_queue_misfits_total{queue="jobs"} 0"#,
    ] {
        assert_has(&text, line);
    }
    let burn = text.lines().find(|line| line.contains("burn_rate{") && line.contains("\"5m\"")).unwrap();
    let burn: f64 = burn.rsplit_once(' ').unwrap().1.parse().unwrap();
    assert!((99.9..100.1).contains(&burn), "{burn}");
    assert!(!text.contains("acme"), "names of tenants are private and may be numerous");
}
