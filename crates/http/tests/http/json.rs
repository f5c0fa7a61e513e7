//! Tests the JSON API: its types, its errors and its description.

use std::sync::Arc;

use crate::common::{HOST, ROOT, ROOT_KEY, Rig, call, namespace, request, token};
use peeklock_http::{HttpState, Limits, Namespace, router};
use peeklock_types::{EntityName, OrderPolicy, QueueGroupSettings};
use serde_json::{Value, json};

#[tokio::test]
async fn a_put_creates_or_changes_and_is_idempotent() {
    let rig = Rig::start().await;
    let body = r#"{"lockDuration": "30s", "maxDeliveryCount": 5, "forwardTo": null}"#;
    let created = rig.put("/api/queues/shop%2Forders", body).await.expect(201);
    assert_eq!(created.json()["name"], "shop/orders");
    let again = rig.put("/api/queues/shop%2Forders", body).await.expect(200);
    assert_eq!(again.header("etag"), created.header("etag"), "nothing has changed");
    let changed = rig.put("/api/queues/shop%2Forders", r#"{"maxDeliveryCount": 7}"#).await.expect(200).json();
    assert_eq!(
        (&changed["lockDuration"], &changed["maxDeliveryCount"]),
        (&json!("30s"), &json!(7)),
        "the other settings are unchanged"
    );
    let shown = rig.get("/api/queues/SHOP%2forders").await.expect(200).json();
    assert_eq!(shown, changed);
    assert_eq!(shown["activeCount"], 0);
    rig.delete("/api/queues/shop%2Forders").await.expect(204);
    rig.get("/api/queues/shop%2Forders").await.expect(404);
}

#[tokio::test]
async fn conditions_select_between_creating_and_changing() {
    let rig = Rig::start().await;
    let put =
        async |condition: (&str, &str), body: &str| rig.ask("PUT", "/api/queues/q", &[condition], body).await;
    put(("if-match", "*"), "{}").await.expect(404);
    let tag = put(("if-none-match", "*"), "{}").await.expect(201).header("etag").to_owned();
    let exists = put(("if-none-match", "*"), "{}").await.expect(409);
    assert_eq!(exists.json()["error"]["code"], "exists");
    put(("if-match", &tag), r#"{"maxDeliveryCount": 3}"#).await.expect(200);
    put(("if-match", &tag), r#"{"maxDeliveryCount": 4}"#).await.expect(412);
    rig.put("/api/topics/q", "{}").await.expect(400);
    rig.get("/api/topics/q").await.expect(404);
    rig.delete("/api/topics/q").await.expect(404);
}

#[tokio::test]
async fn collections_are_paged() {
    let rig = Rig::start().await;
    for name in ["a", "b", "c"] {
        rig.put(&format!("/api/queues/{name}"), "{}").await.expect(201);
    }
    let first = rig.get("/api/queues?top=2").await.expect(200).json();
    let names = |page: &Value| {
        page["items"].as_array().unwrap().iter().map(|item| item["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&first), ["a", "b"]);
    let second =
        rig.get(&format!("/api/queues?top=2&after={}", first["next"].as_str().unwrap())).await.json();
    assert_eq!((names(&second), &second["next"]), (vec![json!("c")], &Value::Null));
    rig.get("/health").await.expect(200);
    let all = rig.get("/api/queues").await.json();
    assert_eq!(names(&all).len(), 3, "the queue of the self-test is hidden");
    rig.get("/api/queues?limit=2").await.expect(400);
    rig.get("/api/queues?top=many").await.expect(400);
}

#[tokio::test]
async fn subscriptions_have_rules_and_a_sample_message_is_explained() {
    let rig = Rig::start().await;
    rig.put("/api/topics/orders", "{}").await.expect(201);
    let high = r#"{"rules": {"high": {"sql": "Priority = 'High'"}, "vip": {"correlation": {"label": "vip"}, "action": "SET x = 1"}}}"#;
    let created = rig.put("/api/topics/orders/subscriptions/high", high).await.expect(201).json();
    assert_eq!(
        (&created["name"], &created["topic"], &created["ruleCount"]),
        (&json!("high"), &json!("orders"), &json!(2))
    );
    rig.put("/api/topics/orders/subscriptions/all", "{}").await.expect(201);
    let rules = rig.get("/api/topics/orders/subscriptions/high/rules").await.expect(200).json();
    assert_eq!(rules["items"][0]["sql"], "Priority = 'High'");
    assert_eq!(rules["items"][1]["correlation"]["label"], "vip");
    let page = rig.get("/api/topics/orders/subscriptions/high/rules?top=1").await.json();
    let next = page["next"].as_str().unwrap();
    let page =
        rig.get(&format!("/api/topics/orders/subscriptions/high/rules?top=1&after={next}")).await.json();
    assert_eq!((&page["items"][0]["name"], &page["next"]), (&json!("vip"), &Value::Null));
    let sample = r#"{"properties": {"Priority": "Low", "amount": 3}, "label": "vip"}"#;
    let explained = rig.post("/api/topics/orders/explain", sample).await.expect(200).json();
    let of = |name: &str| {
        let items = explained["items"].as_array().unwrap();
        items.iter().find(|item| item["subscription"] == name).unwrap().clone()
    };
    assert_eq!(of("all")["copies"], 1);
    let high = of("high");
    let rule = |name: &str| {
        let rules = high["rules"].as_array().unwrap();
        rules.iter().find(|rule| rule["name"] == name).unwrap().clone()
    };
    assert_eq!((&rule("vip")["matched"], &rule("high")["matched"]), (&json!(true), &json!(false)));
    assert_ne!(rule("high")["why"], "");
    let only = r#"{"rules": {"none": {"match": "none"}}}"#;
    rig.put("/api/topics/orders/subscriptions/high", only).await.expect(200);
    let rules = rig.get("/api/topics/orders/subscriptions/high/rules").await.json();
    assert_eq!(rules["items"].as_array().unwrap().len(), 1, "all other rules are removed");
    let none = rig.put("/api/topics/orders/subscriptions/none", r#"{"rules": {}}"#).await.expect(201).json();
    assert_eq!(none["ruleCount"], 0);
    let topic = rig.get("/api/topics/orders").await.json();
    assert_eq!(topic["subscriptionCount"], 3);
    rig.put("/api/topics/missing/subscriptions/s", "{}").await.expect(404);
    rig.post("/api/topics/missing/explain", "{}").await.expect(404);
}

#[tokio::test]
async fn single_rules_are_put() {
    let rig = Rig::start().await;
    rig.put("/api/topics/t", "{}").await.expect(201);
    rig.put("/api/topics/t/subscriptions/s", "{}").await.expect(201);
    let uri = "/api/topics/t/subscriptions/s/rules/r";
    rig.put(uri, r#"{"sql": "a = 1"}"#).await.expect(201);
    rig.put(uri, r#"{"sql": "a = 1"}"#).await.expect(200);
    let changed = rig.put(uri, r#"{"sql": "a = @p", "parameters": {"p": 2}}"#).await.expect(200).json();
    assert_eq!(changed["parameters"], json!({"p": 2}));
    rig.ask("PUT", uri, &[("if-none-match", "*")], "{}").await.expect(409);
    let wrong = rig.put(uri, r#"{"sql": "a = = 1"}"#).await.expect(400).json();
    assert!(wrong["error"]["message"].as_str().unwrap().contains("column 5"), "{wrong}");
    rig.put(uri, r#"{"sql": "a = 1", "match": "all"}"#).await.expect(400);
    rig.delete(uri).await.expect(204);
    rig.delete(uri).await.expect(404);
    rig.put("/api/topics/t/subscriptions/s/rules/a%2Fb", "{}").await.expect(400);
}

#[tokio::test]
async fn only_the_answer_for_one_policy_has_its_keys() {
    let rig = Rig::start().await;
    rig.put("/api/queues/q", "{}").await.expect(201);
    let uri = "/api/queues/q/policies/app";
    let created = rig.put(uri, r#"{"rights": ["Send", "listen"]}"#).await.expect(201).json();
    assert_eq!(created["rights"], json!(["Send", "Listen"]));
    let (primary, secondary) = (created["primaryKey"].clone(), created["secondaryKey"].clone());
    assert_eq!(primary.as_str().unwrap().len(), 44);
    let list = rig.get("/api/queues/q/policies").await.expect(200).json();
    assert_eq!((&list["items"][0]["name"], &list["items"][0]["primaryKey"]), (&json!("app"), &Value::Null));
    let rotated = rig.post(&format!("{uri}/regenerate"), r#"{"key": "primary"}"#).await.expect(200).json();
    assert_ne!(rotated["primaryKey"], primary);
    assert_eq!(rotated["secondaryKey"], secondary, "the other key stays valid");
    rig.post(&format!("{uri}/regenerate"), r#"{"key": "third"}"#).await.expect(400);
    rig.put(uri, r#"{"rights": ["Fly"]}"#).await.expect(400);
    rig.put("/api/queues/q/policies/empty", "{}").await.expect(400);
    rig.put("/api/queues/missing/policies/app", r#"{"rights": ["Send"]}"#).await.expect(404);
    rig.put("/api/topics/q/policies/app", r#"{"rights": ["Send"]}"#).await.expect(404);
    rig.get("/api/topics/q/policies/app").await.expect(404);
    rig.get("/api/topics/q/policies").await.expect(404);
    rig.put(&format!("/api/policies/{ROOT}"), r#"{"rights": ["Send"]}"#).await.expect(409);
    rig.put("/api/policies/reader", r#"{"rights": ["Listen"]}"#).await.expect(201);
    rig.delete("/api/policies/reader").await.expect(204);
    rig.get("/api/policies/reader").await.expect(404);
    rig.delete(uri).await.expect(204);
    rig.put(uri, r#"{"rights": ["Send"]}"#).await.expect(201);
    rig.delete("/api/queues/q").await.expect(204);
    rig.put("/api/queues/q", "{}").await.expect(201);
    rig.get(uri).await.expect(404);
}

#[tokio::test]
async fn each_call_requires_a_right() {
    let rig = Rig::start().await;
    rig.put("/api/queues/q", "{}").await.expect(201);
    let key = r#"{"rights": ["Listen"], "primaryKey": "listen", "secondaryKey": "listen2"}"#;
    rig.put("/api/queues/q/policies/reader", key).await.expect(201);
    let reader = token("reader", "listen", &format!("sb://{HOST}/q"));
    let ask = async |uri: &str, token: &str| rig.call(request("GET", uri, token, &[], "")).await;
    ask("/api/queues/q/messages", &reader).await.expect(200);
    let refused = ask("/api/queues/q", &reader).await.expect(403).json();
    assert!(refused["error"]["message"].as_str().unwrap().contains("Manage"), "{refused}");
    ask("/api/queues/q/policies/reader", &reader).await.expect(403);
    ask("/api/queues", &token("reader", "listen", &format!("sb://{HOST}/"))).await.expect(401);
    ask("/api/queues/q", "").await.expect(401);
    ask("/api/queues/q", "Bearer abc").await.expect(401);
}

#[tokio::test]
async fn messages_are_shown() {
    let rig = Rig::start().await;
    rig.put("/api/queues/q", "{}").await.expect(201);
    crate::common::send(&rig, "q", 3).await;
    let page = rig.get("/api/queues/q/messages?top=2").await.expect(200).json();
    let first = &page["items"][0];
    assert_eq!(
        (&first["sequenceNumber"], &first["state"], &first["messageId"]),
        (&json!(1), &json!("active"), &json!("id0"))
    );
    assert_eq!(first["body"], json!({"kind": "text", "value": "m0"}));
    assert_eq!(first["properties"]["number"], 0);
    let rest =
        rig.get(&format!("/api/queues/q/messages?from={}", page["next"].as_str().unwrap())).await.json();
    assert_eq!(rest["items"][0]["body"]["value"], "m2");
    let dead = rig.get("/api/queues/q/messages?subQueue=deadLetter").await.expect(200).json();
    assert_eq!(dead["items"], json!([]));
    rig.get("/api/queues/q/messages?subQueue=other").await.expect(400);
    rig.get("/api/topics/q/messages").await.expect(404);
    rig.put("/api/topics/t", "{}").await.expect(201);
    assert_eq!(rig.get("/api/topics/t/messages").await.expect(200).json()["items"], json!([]));
    rig.get("/api/topics/t/messages?subQueue=deadLetter").await.expect(400);
    assert_eq!(rig.get("/api/queues/q").await.json()["activeCount"], 3);
}

#[tokio::test]
async fn sessions_are_listed_in_pages() {
    let rig = Rig::start().await;
    rig.put("/api/queues/q", r#"{"requiresSession": true}"#).await.expect(201);
    for session in ["b", "a", "c", "a"] {
        crate::common::send_to_session(&rig, "q", session).await;
    }
    let page = rig.get("/api/queues/q/sessions?top=2").await.expect(200).json();
    assert_eq!(page["items"], json!([{"sessionId": "a"}, {"sessionId": "b"}]));
    let next = page["next"].as_str().unwrap();
    let rest = rig.get(&format!("/api/queues/q/sessions?top=2&after={next}")).await.expect(200).json();
    assert_eq!(rest, json!({"items": [{"sessionId": "c"}]}));
    rig.get("/api/queues/q/sessions?after=x").await.expect(400);
    rig.get("/api/queues/q/sessions?from=1").await.expect(400);
    rig.get("/api/queues/none/sessions").await.expect(404);
    rig.put("/api/queues/plain", "{}").await.expect(201);
    rig.get("/api/queues/plain/sessions").await.expect(400);
    rig.put("/api/topics/t", "{}").await.expect(201);
    rig.get("/api/topics/t/sessions").await.expect(404);
    rig.put("/api/topics/t/subscriptions/s", r#"{"requiresSession": true}"#).await.expect(201);
    let none = rig.get("/api/topics/t/subscriptions/s/sessions").await.expect(200).json();
    assert_eq!(none, json!({"items": []}));
}

#[tokio::test]
async fn invalid_bodies_are_rejected_with_the_position() {
    let rig = Rig::start_with(Limits { body_size_bytes_max: 1000, ..Limits::default() }).await;
    let refused = async |body: &str, said: &str| {
        let answer = rig.put("/api/queues/q", body).await.expect(400).json();
        assert_eq!(answer["error"]["code"], "badRequest");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(said), "{message}");
    };
    refused("<xml/>", "line 1, column 1").await;
    refused(r#"{"lockDurration": "1s"}"#, "lockDuration").await;
    refused(r#"{"lockDuration": 5}"#, "duration").await;
    refused(r#"{"lockDuration": "5 parsecs"}"#, "5 parsecs").await;
    refused(r#"{"maxDeliveryCount": "many"}"#, "maxDeliveryCount").await;
    refused(&"[".repeat(500), "deep").await;
    refused(r#"{"forwardTo": "t/subscriptions/s"}"#, "is a subscription").await;
    rig.ask("PUT", "/api/queues/q", &[("content-type", "text/plain")], "{}").await.expect(415);
    let large = format!("{{\"userMetadata\": \"{}\"}}", "x".repeat(1000));
    assert_eq!(rig.put("/api/queues/q", &large).await.expect(413).json()["error"]["code"], "tooLarge");
    rig.put("/api/queues/a%20b", "{}").await.expect(400);
    rig.put("/api/queues/t%2FSubscriptions%2Fs", "{}").await.expect(404);
    rig.put("/api/topics/t", r#"{"subscriptions": {"s": {}}}"#).await.expect(400);
    rig.put("/api/queues", "{}").await.expect(405);
    let nothing = rig.get("/api/relays").await.expect(404).json();
    assert_eq!(nothing["error"]["code"], "notFound");
}

const ORDER: &str = r#"{ "policy": "aged",
  "classes": { "low": { "priorities": "0-3" }, "high": { "priorities": "7-9", "target": "10s" }, "normal": { "priorities": "4-6" } },
  "rules": [ { "when": "tier = 'paying'", "class": "high" } ],
  "tenants": { "key": "tenant", "classes": { "paying": { "when": "tier = 'paying'", "weight": 2.5 }, "free": {} } } }"#;

#[tokio::test]
async fn an_order_is_set_replaced_and_removed() {
    let rig = Rig::start().await;
    let created = rig.put("/api/queues/q", &format!(r#"{{"order": {ORDER}}}"#)).await.expect(201);
    let order = created.json()["order"].clone();
    assert_eq!(order["classes"]["high"], json!({ "priorities": "7-9", "target": "10s", "objective": 0.99 }));
    assert_eq!(order["tenants"]["classes"]["paying"]["weight"], 2.5);
    let shown = rig.get("/api/queues/q").await;
    assert_eq!(shown.json()["order"], order);
    let at = |text: &str| shown.body.find(text).unwrap();
    assert!(at("\"paying\":{") < at("\"free\":{"), "tenants are matched in this order: {}", shown.body);
    assert!(at("\"high\":{") < at("\"low\":{"), "the most urgent first: {}", shown.body);
    rig.put("/api/queues/q", r#"{"lockDuration": "5s"}"#).await.expect(200);
    assert_eq!(rig.get("/api/queues/q").await.json()["order"], order, "an omitted order is unchanged");
    rig.put("/api/queues/q", r#"{"order": {"policy": "fifo"}}"#).await.expect(200);
    let fifo = json!({ "policy": "fifo", "maxOutstanding": 16 });
    assert_eq!(rig.get("/api/queues/q").await.json()["order"], fifo);
    rig.put("/api/queues/q", r#"{"order": null}"#).await.expect(200);
    assert_eq!(rig.get("/api/queues/q").await.json()["order"], Value::Null);
    rig.put("/api/topics/t", "{}").await.expect(201);
    rig.put("/api/topics/t/subscriptions/s", &format!(r#"{{"order": {ORDER}}}"#)).await.expect(201);
    assert_eq!(rig.get("/api/topics/t/subscriptions/s").await.json()["order"], order);
    rig.put("/api/topics/t", r#"{"order": {}}"#).await.expect(400);
}

#[tokio::test]
async fn an_invalid_order_is_rejected_with_its_position() {
    let rig = Rig::start().await;
    rig.put("/api/queues/q", &format!(r#"{{"order": {ORDER}}}"#)).await.expect(201);
    let before = rig.get("/api/queues/q").await.json();
    let refused = async |order: &str, said: &[&str]| {
        for queue in ["q", "new"] {
            let answer = rig.put(&format!("/api/queues/{queue}"), &format!("{{\"order\":\n{order}}}")).await;
            let answer = answer.expect(400).json();
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(said.iter().all(|said| message.contains(said)), "{message}");
        }
    };
    let classes = |one: &str, other: &str| format!(r#"{{"classes": {{"a": {{{one}}}, "b": {{{other}}}}}}}"#);
    let two = |one: &str, other: &str| {
        classes(&format!(r#""priorities": "{one}""#), &format!(r#""priorities": "{other}""#))
    };
    refused(&two("0-5", "5-9"), &["line 2, column ", "order.classes.a.priorities: ", "overlap at 5"]).await;
    refused(&two("0-5", "9-6"), &["line 2, column ", "order.classes.b.priorities: ", "'9-6' is not a range"])
        .await;
    refused(r#"{"policy": "lifo"}"#, &["line 2, column 12", "write fifo, strict, aged or weighted"]).await;
    refused(
        &classes(r#""priorities": 1"#, r#""target": "10s""#),
        &["order.classes.b: ", "give it priorities"],
    )
    .await;
    let weight =
        |weight: &str| classes(r#""priorities": 1"#, &format!(r#""priorities": 2, "weight": {weight}"#));
    refused(&weight("0"), &["order.classes.b.weight: ", "from 1 to 1000"]).await;
    refused(&weight("-3"), &["order.classes.b.weight: ", "from 1 to 1000"]).await;
    let strict = weight("3").replacen('{', r#"{"policy": "strict", "#, 1);
    refused(
        &strict,
        &["order.classes.b.weight: ", "policy strict; leave the weights out", "policy weighted"],
    )
    .await;
    refused(r#"{"defaultClass": "high"}"#, &["order.defaultClass: there is no class 'high'"]).await;
    let tenants =
        |rest: &str| format!(r#"{{"tenants": {{"key": "tenant", "classes": {{"free": {{}}}}, {rest}}}}}"#);
    refused(
        &tenants(r#""defaultClass": "x""#),
        &["order.tenants.defaultClass: there is no class 'x'", "there are free"],
    )
    .await;
    refused(&tenants(r#""defaultClass": "x""#).replace("tenant\"", "tenant >\""), &["there is no class 'x'"])
        .await;
    refused(r#"{"tenants": {"key": "tenant +"}}"#, &["order.tenants.key: ", "does not parse"]).await;
    let rule = r#"{"classes": {"a": {"priorities": 1}}, "rules": [{"when": "tier ==", "class": "a"}]}"#;
    refused(rule, &["line 2, column 58", "order.rules.[1].when: ", "does not parse: at column "]).await;
    assert_eq!(rig.get("/api/queues/q").await.json(), before, "nothing has changed");
    rig.get("/api/queues/new").await.expect(404);
}

#[tokio::test]
async fn health_has_the_text_that_test_frameworks_expect() {
    let rig = Rig::start().await;
    let answer = rig.call(request("GET", "/health", "", &[], "")).await.expect(200);
    assert_eq!(answer.body, r#"{"status":"healthy","message":"Service is healthy."}"#);
    assert_eq!(answer.header("content-type"), "application/json");
    // With a version parameter, the path is that of an entity.
    rig.get("/health?api-version=2021-05").await.expect(404);
}

#[tokio::test]
async fn a_namespace_is_selected_by_host_then_by_key() {
    let (one, _one_runs) = namespace("first", "one").await;
    let (mut two, _two_runs) = namespace("second", "two").await;
    two.hosts.push("bus.example.com".to_owned());
    two.access = peeklock_access::Access::open(
        None,
        vec![peeklock_access::Policy::with_one_key("OtherKey", "two", &[peeklock_access::Right::Manage])],
    )
    .unwrap();
    let router = router(HttpState::new(vec![one, two], Limits::default()));
    let ask = async |host: &str, name: &str, key: &str| {
        let mut request =
            request("GET", "/$namespaceinfo?api-version=2021-05", &token(name, key, "sb://any/"), &[], "");
        request.headers_mut().insert("host", host.parse().unwrap());
        call(&router, request).await
    };
    assert_eq!(
        ask("second.servicebus.windows.net", "OtherKey", "two").await.expect(200).element("Name"),
        "second"
    );
    assert_eq!(ask("bus.example.com:5300", "OtherKey", "two").await.expect(200).element("Name"), "second");
    assert_eq!(ask("127.0.0.1:5300", "OtherKey", "two").await.expect(200).element("Name"), "second");
    assert_eq!(ask("127.0.0.1:5300", ROOT, "one").await.expect(200).element("Name"), "first");
    ask("second", ROOT, "one").await.expect(401);
    ask("first", ROOT, ROOT_KEY).await.expect(401);
}

#[tokio::test]
async fn the_description_matches_the_routes() {
    let rig = Rig::start().await;
    let description = rig.call(request("GET", "/api/openapi.json", "", &[], "")).await.expect(200).json();
    assert_eq!(description["openapi"], "3.1.0");
    for (path, operations) in description["paths"].as_object().unwrap() {
        let uri: String = path
            .split('/')
            .map(|part| if part.starts_with('{') { "x" } else { part })
            .collect::<Vec<_>>()
            .join("/");
        for method in ["get", "put", "delete", "post"] {
            let status = rig.call(request(&method.to_uppercase(), &uri, "", &[], "{}")).await.status.as_u16();
            let described = operations.get(method);
            match described {
                Some(operation) if operation["security"] == json!([]) => {
                    assert_eq!(status, 200, "{method} {path}")
                }
                Some(_) => assert_eq!(status, 401, "{method} {path}"),
                None => assert_eq!(status, 405, "{method} {path}"),
            }
        }
    }
    let keys = |schema: &str| {
        let schema = &description["components"]["schemas"][schema]["properties"];
        // Only entities with an order have a `runtime`.
        let keys = schema.as_object().unwrap().keys().filter(|key| *key != "runtime");
        keys.cloned().collect::<Vec<_>>()
    };
    let told = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let settings = peeklock_types::QueueSettings::default();
    let spec = serde_json::to_value(peeklock_spec::QueueSpec::of(&settings)).unwrap();
    assert_eq!(keys("QueueSettings"), told(&spec));
    let spec = serde_json::to_value(peeklock_spec::TopicSpec::of(&settings)).unwrap();
    assert_eq!(keys("TopicSettings"), told(&spec));
    assert_eq!(keys("Queue"), told(&rig.put("/api/queues/q", "{}").await.json()));
    assert_eq!(keys("Topic"), told(&rig.put("/api/topics/t", "{}").await.json()));
    let full = r#"{ "policy": "aged", "defaultClass": "a", "rate": "5/s", "sendRate": "5/s", "maxOutstanding": 2, "rules":
        [{ "when": "b = 1", "class": "a" }], "tenants": { "key": "t", "defaultClass": "f", "classes": { "f": { "when": "c = 1",
        "weight": 2, "maxShare": 0.5, "hard": true, "rate": "5/s", "sendRate": "5/s" } } }, "classes": { "a": { "priorities": "1-2",
        "target": "1s", "objective": 0.9, "offset": "1s", "weight": 2, "rate": "5/s", "sendRate": "5/s" } } }"#;
    let order: peeklock_spec::OrderSpec = peeklock_spec::from_json(full).unwrap();
    let order = serde_json::to_value(order).unwrap();
    assert_eq!(keys("Order"), told(&order));
    assert_eq!(keys("OrderClass"), told(&order["classes"]["a"]));
    assert_eq!(keys("OrderRule"), told(&order["rules"][0]));
    assert_eq!(keys("OrderTenants"), told(&order["tenants"]));
    assert_eq!(keys("OrderTenantClass"), told(&order["tenants"]["classes"]["f"]));
    assert_eq!(keys("Subscription"), told(&rig.put("/api/topics/t/subscriptions/s", "{}").await.json()));
    let policy = rig.put("/api/policies/p", r#"{"rights": ["Send"]}"#).await.json();
    assert_eq!(keys("Policy"), told(&policy));
    for reference in description.to_string().split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(description["components"]["schemas"].get(name).is_some(), "{name} is not described");
    }
}

#[tokio::test]
async fn keys_of_an_earlier_entity_are_not_valid_for_a_later_one() {
    let rig = Rig::start().await;
    let name = peeklock_types::EntityName::parse("q").unwrap();
    let rights = Some(peeklock_access::Rights::ALL);
    let change = peeklock_access::PolicyChange { rights, ..Default::default() };
    // The state after a queue has deleted itself when idle.
    rig.access.put(Some(&name), "old", change, rig.broker.clock().now()).unwrap();
    rig.put("/api/queues/q", "{}").await.expect(201);
    rig.get("/api/queues/q/policies/old").await.expect(404);
}

/// A body that never arrives.
struct Never;

impl axum::body::HttpBody for Never {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }
}

#[tokio::test]
async fn a_slow_body_delays_only_its_own_request() {
    let body_time_max = std::time::Duration::from_millis(20);
    let rig = Rig::start_with(Limits { body_time_max, ..Limits::default() }).await;
    let put =
        |token: &str| request("PUT", "/api/queues/q", token, &[], "").map(|_| axum::body::Body::new(Never));
    // A request without a token is rejected before its body is read.
    rig.call(put("")).await.expect(401);
    let slow = rig.call(put(&token(ROOT, ROOT_KEY, "sb://any/"))).await.expect(408);
    assert_eq!(slow.json()["error"]["code"], "slow");
}

#[tokio::test]
async fn queue_groups_are_shown_and_their_names_are_reserved() {
    let (space, _running) = namespace("sbemulatorns", ROOT_KEY).await;
    let group = |members: [&str; 2]| {
        let members = members.map(|name| EntityName::parse(name).unwrap());
        Arc::new(QueueGroupSettings::new(OrderPolicy::Strict, members))
    };
    let name = |text| EntityName::parse(text).unwrap();
    let groups =
        [(name("work"), group(["high", "low"])), (name("pool"), group(["a", "news/Subscriptions/all"]))];
    let space = Namespace { broker: space.broker.with_queue_groups(groups.into()), ..space };
    let router = router(HttpState::new(vec![space], Limits::default()));
    let ask = async |method: &str, path: &str| {
        let token = token(ROOT, ROOT_KEY, &format!("https://{HOST}"));
        call(&router, request(method, path, &token, &[], "{}")).await
    };
    let all = ask("GET", "/api/groups").await.expect(200).json();
    assert_eq!(all["items"][0]["name"], "pool");
    assert_eq!(all["items"][1]["name"], "work");
    let first = ask("GET", "/api/groups?top=1").await.expect(200).json();
    assert_eq!((first["items"].as_array().unwrap().len(), &first["next"]), (1, &json!("pool")));
    let rest = ask("GET", "/api/groups?after=pool").await.expect(200).json();
    assert_eq!(rest["items"].as_array().unwrap().len(), 1);
    let work = ask("GET", "/api/groups/Work").await.expect(200).json();
    let expected =
        json!({"name": "work", "members": ["high", "low"], "order": "strict", "maxOutstanding": 16});
    assert_eq!(work, expected);
    ask("GET", "/api/groups/none").await.expect(404);
    ask("PUT", "/api/groups/work").await.expect(405);
    let refused = ask("PUT", "/api/queues/WORK").await.expect(400).json();
    assert!(refused["error"]["message"].as_str().unwrap().contains("name of a group"), "{refused}");
}
