//! Tests the Prometheus metrics: the rights that they require, that each entity occurs once, and that the values follow
//! the state.

use crate::common::{HOST, ROOT, ROOT_KEY, Rig, call, namespace, request, token};
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Request;
use peeklock_http::{Arrival, HttpState, Limits, router};

const LOOPBACK: Arrival = Arrival { is_loopback: true, connection_count: 3, connection_count_max: 100 };

/// Returns a request from a local program.
fn local(host: &str) -> Request<Body> {
    let mut request = Request::builder().uri("/metrics").header("host", host).body(Body::empty()).unwrap();
    request.extensions_mut().insert(LOOPBACK);
    request
}

fn remote(authorization: &str) -> Request<Body> {
    request("GET", "/metrics", authorization, &[], "")
}

fn basic(name: &str, key: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{name}:{key}")))
}

#[track_caller]
fn value(text: &str, sample: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{sample} is not in\n{text}")).parse().unwrap()
}

#[tokio::test]
async fn metrics_require_a_key_except_on_loopback() {
    let rig = Rig::start().await;
    for host in ["localhost:5300", "127.0.0.1:9", "[::1]:9"] {
        let answer = rig.call(local(host)).await.expect(200);
        assert_eq!(answer.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    }
    rig.call(local("evil.example")).await.expect(401);
    let refused = rig.call(remote("")).await.expect(401);
    let asked: Vec<_> = refused.headers.get_all("www-authenticate").iter().collect();
    assert!(asked.iter().any(|asked| asked.to_str().unwrap().starts_with("Basic ")), "{asked:?}");
    rig.call(remote(&basic(ROOT, ROOT_KEY))).await.expect(200);
    rig.call(remote(&token(ROOT, ROOT_KEY, &format!("https://{HOST}")))).await.expect(200);
    for wrong in [basic(ROOT, "guess"), basic("nobody", ROOT_KEY), token(ROOT, "guess", HOST)] {
        rig.call(remote(&wrong)).await.expect(401);
    }
    rig.call(remote("Basic ?")).await.expect(400);
    rig.ask("POST", "/metrics", &[], "").await.expect(405);
    rig.get("/metrics?api-version=2021-05").await.expect(404);
}

#[tokio::test]
async fn metrics_of_a_namespace_require_a_right_on_it() {
    let rig = Rig::start().await;
    rig.put("/api/queues/q", "{}").await.expect(201);
    for (place, right, status) in [
        ("/api/policies/listener", "Listen", 200),
        ("/api/policies/sender", "Send", 403),
        ("/api/queues/q/policies/one", "Listen", 403),
    ] {
        let policy = rig.put(place, &format!(r#"{{"rights": ["{right}"]}}"#)).await.expect(201).json();
        let (name, key) = (policy["name"].as_str().unwrap(), policy["primaryKey"].as_str().unwrap());
        rig.call(remote(&basic(name, key))).await.expect(status);
    }
}

#[tokio::test]
async fn every_entity_occurs_once() {
    let rig = Rig::start().await;
    let count = 3 * peeklock_broker::MEASURE_COUNT_MAX * rig.broker.shard_count() / 2;
    for number in 0..count {
        rig.put(&format!("/api/queues/q{number}"), "{}").await.expect(201);
    }
    rig.get("/health").await.expect(200);
    rig.put("/api/topics/t", "{}").await.expect(201);
    rig.put("/api/topics/t/subscriptions/s", "{}").await.expect(201);
    crate::common::send(&rig, "q7", 3).await;
    let text = rig.call(local("localhost")).await.expect(200).body;
    assert_eq!(
        text.matches("peeklock_queue_size_bytes{").count(),
        count + 1,
        "excludes the queue of the self-test"
    );
    assert_eq!(text.matches("# TYPE peeklock_queue_messages gauge\n").count(), 1);
    assert!((value(&text, r#"peeklock_queue_messages{queue="q7",state="active"}"#) - 3.0).abs() < 1e-9);
    assert!(value(&text, r#"peeklock_queue_size_bytes{queue="q7"}"#) > 3.0);
    assert!(
        value(&text, r#"peeklock_queue_messages{queue="t/Subscriptions/s",state="locked"}"#).abs() < 1e-9
    );
    assert!((value(&text, r#"peeklock_topic_subscriptions{topic="t"}"#) - 1.0).abs() < 1e-9);
    assert!((value(&text, "peeklock_connections") - 3.0).abs() < 1e-9);
    assert!(text.contains("peeklock_build_info{version=\""));
    assert!(value(&text, "peeklock_metrics_left_out").abs() < 1e-9);
    assert!(value(&text, "peeklock_damaged_messages_total").abs() < 1e-9);
    assert!(value(&text, "peeklock_damaged_events_total").abs() < 1e-9);
    assert!(!text.contains("peeklock_class_"), "queues without an order have no classes");
}

#[tokio::test]
async fn a_key_permits_only_the_metrics_of_its_namespaces() {
    let (first, _first) = namespace("one", "key-1").await;
    let (second, _second) = namespace("two", "key-2").await;
    let router = router(HttpState::new(vec![first, second], Limits::default()));
    for (host, key) in [("one.localhost", "key-1"), ("two.localhost", "key-2")] {
        let signed = token(ROOT, key, &format!("https://{host}"));
        let request = Request::put("/api/queues/q").header("host", host).header("authorization", signed);
        call(&router, request.body(Body::empty()).unwrap()).await.expect(201);
    }
    let (of_first, of_second) = ("peeklock_queue_size_bytes{queue=\"q\"}", "{namespace=\"two\",queue=\"q\"}");
    let all = call(&router, local("localhost")).await.expect(200).body;
    assert!(all.contains(of_first) && all.contains(of_second), "{all}");
    let only_second = call(&router, remote(&basic(ROOT, "key-2"))).await.expect(200).body;
    assert!(!only_second.contains(of_first) && only_second.contains(of_second), "{only_second}");
}
