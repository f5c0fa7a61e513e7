//! Tests hubs over HTTP: the JSON API and ATOM.

use crate::common::{HOST, Rig, request, token};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use peeklock_broker::blob::{BlobName, Condition, ContainerName, Metadata, NewBlob};
use serde_json::{Value, json};

async fn rig() -> Rig {
    let rig = Rig::start().await;
    rig.put("/api/hubs/meters", r#"{"partitionCount": 2, "consumerGroups": ["audit"]}"#).await.expect(201);
    rig
}

async fn send(rig: &Rig, partition: u32, count: usize) {
    let events: Vec<_> = (0..count).map(|number| json!({ "body": { "number": number } })).collect();
    let body = json!({ "partition": partition, "events": events }).to_string();
    rig.post("/api/hubs/meters/events", &body).await.expect(201);
}

#[tokio::test]
async fn a_put_creates_or_changes_and_is_idempotent() {
    let rig = Rig::start().await;
    let body = r#"{"partitionCount": 3, "retentionHours": 48, "consumerGroups": ["b", "a", "$Default"]}"#;
    let created = rig.put("/api/hubs/shop%2Fmeters", body).await.expect(201);
    let told = created.json();
    assert_eq!((&told["name"], &told["partitionCount"]), (&json!("shop/meters"), &json!(3)));
    assert_eq!(told["consumerGroups"], json!(["$Default", "a", "b"]));
    assert_eq!(told["runtime"]["partitions"].as_array().unwrap().len(), 3);
    let again = rig.put("/api/hubs/shop%2Fmeters", body).await.expect(200);
    assert_eq!(again.header("etag"), created.header("etag"), "nothing has changed");
    let more = r#"{"partitionCount": 4, "consumerGroups": ["c"]}"#;
    let changed = rig.put("/api/hubs/SHOP%2fmeters", more).await.expect(200).json();
    assert_eq!((&changed["retentionHours"], &changed["partitionCount"]), (&json!(48), &json!(4)));
    assert_eq!(changed["consumerGroups"], json!(["$Default", "a", "b", "c"]), "no consumer group is removed");
    let fewer = rig.put("/api/hubs/shop%2Fmeters", r#"{"partitionCount": 1}"#).await.expect(400).json();
    assert!(fewer["error"]["message"].as_str().unwrap().contains("cannot have fewer"), "{fewer}");
    rig.put("/api/hubs/x", r#"{"partitionCount": 0}"#).await.expect(400);
    rig.put("/api/hubs/x", r#"{"partitions": 1}"#).await.expect(400);
    rig.delete("/api/hubs/shop%2Fmeters").await.expect(204);
    rig.get("/api/hubs/shop%2Fmeters").await.expect(404);
}

#[tokio::test]
async fn conditions_are_checked_and_names_are_unique() {
    let rig = rig().await;
    let put = async |condition, body: &str| rig.ask("PUT", "/api/hubs/meters", &[condition], body).await;
    assert_eq!(put(("if-none-match", "*"), "{}").await.expect(409).json()["error"]["code"], "exists");
    let tag = rig.get("/api/hubs/meters").await.expect(200).header("etag").to_owned();
    put(("if-match", &tag), r#"{"userMetadata": "x"}"#).await.expect(200);
    put(("if-match", &tag), r#"{"userMetadata": "y"}"#).await.expect(412);
    rig.ask("PUT", "/api/hubs/none", &[("if-match", "*")], "{}").await.expect(404);
    // A name belongs to one entity.
    rig.put("/api/queues/q", "{}").await.expect(201);
    assert_eq!(rig.put("/api/hubs/q", "{}").await.expect(409).json()["error"]["code"], "exists");
    rig.put("/api/queues/meters", "{}").await.expect(409);
    rig.get("/api/queues/meters").await.expect(404);
    rig.get("/api/hubs/q").await.expect(404);
    for name in ["a", "b"] {
        rig.put(&format!("/api/hubs/{name}"), r#"{"partitionCount": 1}"#).await.expect(201);
    }
    let page = rig.get("/api/hubs?top=2").await.expect(200).json();
    assert_eq!((&page["items"][1]["name"], &page["next"]), (&json!("b"), &json!("b")));
    let rest = rig.get("/api/hubs?after=b").await.expect(200).json();
    assert_eq!((&rest["items"][0]["name"], &rest["next"]), (&json!("meters"), &Value::Null));
}

#[tokio::test]
async fn consumer_groups_are_created_and_deleted() {
    let rig = rig().await;
    let group = "/api/hubs/meters/consumer-groups/billing";
    rig.put(group, r#"{"userMetadata": "monthly"}"#).await.expect(201);
    rig.ask("PUT", group, &[("if-none-match", "*")], "{}").await.expect(409);
    let told = rig.put(group, "{}").await.expect(200).json();
    assert_eq!(told["userMetadata"], "monthly", "the other values are unchanged");
    let page = rig.get("/api/hubs/meters/consumer-groups?top=2").await.expect(200).json();
    assert_eq!((page["items"].as_array().unwrap().len(), &page["next"]), (2, &json!("audit")));
    let rest = rig.get("/api/hubs/meters/consumer-groups?after=audit").await.expect(200).json();
    assert_eq!(rest["items"][0]["name"], "billing");
    rig.delete(group).await.expect(204);
    rig.get(group).await.expect(404);
    rig.delete("/api/hubs/meters/consumer-groups/$Default").await.expect(400);
    rig.put("/api/hubs/meters/consumer-groups/a%20b", "{}").await.expect(400);
    rig.put("/api/hubs/none/consumer-groups/a", "{}").await.expect(404);
}

#[tokio::test]
async fn events_are_stored_and_shown() {
    let rig = rig().await;
    send(&rig, 1, 5).await;
    let keyed = r#"{"partitionKey": "home-7", "events": [{"body": "warm", "messageId": "m", "properties": {"room": 3}}]}"#;
    let sent = rig.post("/api/hubs/meters/events", keyed).await.expect(201).json();
    let partition = sent["partition"].as_u64().unwrap();
    let found = rig.get(&format!("/api/hubs/meters/partitions/{partition}/events")).await.expect(200).json();
    let last = found["items"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["partitionKey"], &last["messageId"]), (&json!("home-7"), &json!("m")));
    assert_eq!((&last["body"]["value"], &last["properties"]["room"]), (&json!("warm"), &json!(3)));
    let page = rig.get("/api/hubs/meters/partitions/1/events?from=1&max=2").await.expect(200).json();
    let numbers: Vec<_> =
        page["items"].as_array().unwrap().iter().map(|event| event["sequenceNumber"].clone()).collect();
    assert_eq!((numbers, &page["next"]), (vec![json!(1), json!(2)], &json!("3")));
    assert_eq!(page["items"][0]["body"]["value"], r#"{"number":1}"#);
    let none = rig.get("/api/hubs/meters/partitions/1/events?from=latest").await.expect(200).json();
    assert_eq!(none, json!({ "items": [] }));
    let by_time = rig.get("/api/hubs/meters/partitions/1/events?from=2020-01-01T00:00:00Z").await.expect(200);
    assert!(by_time.json()["items"].as_array().unwrap().len() >= 5);
    rig.get("/api/hubs/meters/partitions/1/events?from=yesterday").await.expect(400);
    rig.get("/api/hubs/meters/partitions/1/events?from=900").await.expect(400);
    rig.get("/api/hubs/meters/partitions/9/events").await.expect(404);
    rig.get("/api/hubs/meters/partitions/x").await.expect(404);
    let both = r#"{"partition": 0, "partitionKey": "k", "events": [{}]}"#;
    rig.post("/api/hubs/meters/events", both).await.expect(400);
    rig.post("/api/hubs/meters/events", r#"{"events": []}"#).await.expect(400);
    rig.post("/api/hubs/meters/events", r#"{"partition": 7, "events": [{}]}"#).await.expect(404);
    let shown = rig.get("/api/hubs/meters").await.expect(200).json();
    assert_eq!(shown["runtime"]["eventCount"], 6);
    let partition = rig.get("/api/hubs/meters/partitions/1").await.expect(200).json();
    assert!(
        partition["lastSequenceNumber"].as_i64().unwrap() >= 4 && partition["sizeBytes"].as_u64() > Some(0)
    );
}

#[tokio::test]
async fn a_previous_owner_is_rejected_after_a_takeover() {
    let rig = rig().await;
    send(&rig, 0, 10).await;
    let (owned, point) = (
        "/api/hubs/meters/consumer-groups/audit/ownerships/0",
        "/api/hubs/meters/consumer-groups/audit/checkpoints/0",
    );
    rig.get(owned).await.expect(404);
    rig.put(owned, r#"{"owner": "a"}"#).await.expect(400);
    let claim = async |condition, owner: &str| {
        rig.ask("PUT", owned, &[condition], &json!({ "owner": owner }).to_string()).await
    };
    let first = claim(("if-none-match", "*"), "a").await.expect(201);
    let epoch = first.json()["epoch"].as_u64().unwrap();
    claim(("if-none-match", "*"), "b").await.expect(412);
    let checkpoint = |number: u64, owner: &str, epoch: u64| {
        json!({ "sequenceNumber": number, "owner": owner, "epoch": epoch }).to_string()
    };
    let told = rig.put(point, &checkpoint(3, "a", epoch)).await.expect(200).json();
    assert_eq!(
        (&told["sequenceNumber"], &told["lagEvents"], &told["owner"]),
        (&json!(3), &json!(6), &json!("a"))
    );
    rig.put(point, &checkpoint(2, "a", epoch)).await.expect(409);
    rig.put(point, r#"{"sequenceNumber": 5}"#).await.expect(409);
    rig.put(point, &checkpoint(99, "a", epoch)).await.expect(400);
    rig.put(point, r#"{"sequenceNumber": 5, "owner": "a"}"#).await.expect(400);
    let taken = claim(("if-match", first.header("etag")), "b").await.expect(200);
    claim(("if-match", first.header("etag")), "a").await.expect(412);
    let refused = rig.put(point, &checkpoint(5, "a", epoch)).await.expect(409).json();
    assert!(refused["error"]["message"].as_str().unwrap().contains("does not own"), "{refused}");
    let now = taken.json();
    assert!(now["epoch"].as_u64().unwrap() > epoch);
    rig.put(point, &checkpoint(5, "b", now["epoch"].as_u64().unwrap())).await.expect(200);
    let all = rig.get("/api/hubs/meters/consumer-groups/audit/ownerships").await.expect(200).json();
    assert_eq!((all["items"].as_array().unwrap().len(), &all["items"][0]["owner"]), (1, &json!("b")));
    rig.get("/api/hubs/meters/consumer-groups/none/ownerships").await.expect(404);
}

#[tokio::test]
async fn checkpoints_are_reset_only_where_requested() {
    let rig = rig().await;
    send(&rig, 0, 10).await;
    send(&rig, 1, 4).await;
    let all = "/api/hubs/meters/consumer-groups/$Default/checkpoints";
    let reset = async |body: Value| {
        rig.post("/api/hubs/meters/consumer-groups/$Default/reset", &body.to_string()).await
    };
    let lag = async || {
        let told = rig.get(all).await.expect(200).json();
        let items = told["items"].as_array().unwrap().clone();
        items.iter().map(|item| item["lagEvents"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(lag().await, [10, 4]);
    let tried = reset(json!({ "to": "latest", "dryRun": true })).await.expect(200).json();
    assert_eq!(
        tried["items"][0],
        json!({ "partition": 0, "source": "broker", "after": 9, "repeatedEvents": 0, "skippedEvents": 10 })
    );
    assert_eq!(lag().await, [10, 4], "nothing was changed");
    reset(json!({ "to": "latest" })).await.expect(200);
    assert_eq!(lag().await, [0, 0]);
    let back = reset(json!({ "to": 2, "partition": 0 })).await.expect(200).json();
    assert_eq!((&back["items"][0]["before"], &back["items"][0]["repeatedEvents"]), (&json!(9), &json!(7)));
    assert_eq!(lag().await, [7, 0]);
    reset(json!({ "to": 7 })).await.expect(400);
    assert_eq!(lag().await, [7, 0], "nothing was changed, even in the partition with a valid position");
    reset(json!({ "to": "2020-01-01T00:00:00Z" })).await.expect(200);
    assert_eq!(lag().await, [10, 4]);
    reset(json!({ "to": "2120-01-01T00:00:00Z", "partition": 1 })).await.expect(200);
    assert_eq!(lag().await, [10, 0]);
    reset(json!({ "to": "earliest" })).await.expect(200);
    assert_eq!(lag().await, [10, 4]);
    reset(json!({ "to": "soon" })).await.expect(400);
    reset(json!({ "to": "latest", "partition": 9 })).await.expect(404);
    let one = rig.get(&format!("{all}/1")).await.expect(200).json();
    assert_eq!((&one["source"], &one["lastSequenceNumber"]), (&json!("broker"), &json!(3)));
}

/// Uses the blobs of the SDKs' checkpoint stores, which a processor reads when it starts.
#[tokio::test]
async fn checkpoints_in_blobs_are_reset_in_their_blobs() {
    let rig = rig().await;
    send(&rig, 0, 10).await;
    send(&rig, 1, 4).await;
    let container = ContainerName::parse("checkpoints").unwrap();
    rig.broker.create_container(container.clone(), Metadata::default()).await.unwrap();
    let name = |what: &str| BlobName::parse(&format!("localhost/meters/$default/{what}")).unwrap();
    let mut metadata = Metadata::default();
    for (name, value) in [("offset", "6"), ("sequencenumber", "6"), ("clientidentifier", "c")] {
        metadata.add(name, value).unwrap();
    }
    let new = NewBlob { metadata, ..NewBlob::default() };
    let put = rig.broker.put_blob(container.clone(), name("checkpoint/0"), new, Condition::default());
    put.await.unwrap();
    let reset = async |body: Value| {
        let uri = "/api/hubs/meters/consumer-groups/$Default/reset";
        rig.post(uri, &body.to_string()).await.expect(200).json()["items"].clone()
    };
    let kept = async |number: u32| {
        let blob = rig.broker.blob(container.clone(), name(&format!("checkpoint/{number}"))).await.ok()?;
        Some(
            blob.metadata.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "),
        )
    };
    let tried = reset(json!({ "to": 2, "dryRun": true })).await;
    let moved = json!({ "partition": 0, "source": "blob", "container": "checkpoints", "before": 6, "after": 2,
        "repeatedEvents": 4, "skippedEvents": 0 });
    assert_eq!((&tried[0], tried.as_array().unwrap().len()), (&moved, 2), "no checkpoint is in the broker");
    assert_eq!(kept(0).await.unwrap(), "clientidentifier=c offset=6 sequencenumber=6", "a dry run");
    reset(json!({ "to": 2 })).await;
    assert_eq!(kept(0).await.unwrap(), "clientidentifier=c offset=2 sequencenumber=2");
    assert_eq!(
        kept(1).await.unwrap(),
        "offset=2 sequencenumber=2",
        "a partition without a checkpoint gets one"
    );
    reset(json!({ "to": "earliest", "partition": 1 })).await;
    assert_eq!(kept(1).await.unwrap(), "offset=-1 sequencenumber=-1", "before the first event");
    reset(json!({ "to": "none" })).await;
    assert_eq!((kept(0).await, kept(1).await), (None, None));
}

/// With a key itself, `curl -u NAME:KEY` is sufficient.
#[tokio::test]
async fn a_key_is_accepted_in_place_of_a_token() {
    let rig = rig().await;
    let key = rig.put("/api/hubs/meters/policies/app", r#"{"rights": ["Listen"]}"#).await.expect(201).json();
    let secret = key["primaryKey"].as_str().unwrap();
    let basic = |secret: &str| format!("Basic {}", BASE64.encode(format!("app:{secret}")));
    let ask = async |uri: &str, basic: &str| rig.call(request("GET", uri, basic, &[], "")).await;
    ask("/api/hubs/meters/partitions", &basic(secret)).await.expect(200);
    ask("/api/hubs/meters/partitions", &basic("other")).await.expect(401);
    ask("/api/hubs/meters/partitions", "Basic x").await.expect(400);
    ask("/api/hubs/meters", &basic(secret)).await.expect(403);
    ask("/api/hubs", &basic(secret)).await.expect(403);
}

#[tokio::test]
async fn a_reader_does_not_require_the_manage_right() {
    let rig = rig().await;
    let key = rig.put("/api/hubs/meters/policies/app", r#"{"rights": ["Listen"]}"#).await.expect(201).json();
    let token = token("app", key["primaryKey"].as_str().unwrap(), &format!("sb://{HOST}/meters"));
    let ask = async |method, uri: &str, body| rig.call(request(method, uri, &token, &[], body)).await;
    ask("GET", "/api/hubs/meters/partitions", "").await.expect(200);
    ask("GET", "/api/hubs/meters/partitions/0/events", "").await.expect(200);
    ask("GET", "/api/hubs/meters/consumer-groups/audit/checkpoints", "").await.expect(200);
    ask("POST", "/api/hubs/meters/consumer-groups/audit/reset", r#"{"to": "latest"}"#).await.expect(403);
    ask("POST", "/api/hubs/meters/events", r#"{"events": [{}]}"#).await.expect(403);
    ask("GET", "/api/hubs/meters", "").await.expect(403);
    ask("GET", "/api/hubs", "").await.expect(401);
    rig.get("/api/hubs/none/policies").await.expect(404);
    // The keys of a hub are deleted with it.
    rig.delete("/api/hubs/meters").await.expect(204);
    rig.put("/api/hubs/meters", "{}").await.expect(201);
    ask("GET", "/api/hubs/meters/partitions", "").await.expect(401);
}

#[tokio::test]
async fn metrics_contain_hubs_and_the_lag_of_consumer_groups() {
    let rig = rig().await;
    rig.put("/api/hubs/many", r#"{"partitionCount": 65}"#).await.expect(201);
    send(&rig, 1, 5).await;
    let point = "/api/hubs/meters/consumer-groups/audit/checkpoints/1";
    rig.put(point, r#"{"sequenceNumber": 2}"#).await.expect(200);
    let metrics = rig.get("/metrics").await.expect(200).body;
    for line in [
        "peeklock_hub_partitions{hub=\"meters\"} 2",
        "peeklock_hub_received_total{hub=\"meters\"} 5",
        "peeklock_hub_events{hub=\"meters\"} 5",
        "peeklock_hub_read_total{hub=\"meters\"} 0",
        "peeklock_hub_partition_received_total{hub=\"meters\",partition=\"1\"} 5",
        "peeklock_hub_partition_begin_sequence_number{hub=\"meters\",partition=\"0\"} 0",
        "peeklock_hub_partition_readers{hub=\"meters\",partition=\"1\"} 0",
        "peeklock_hub_group_lag_events{hub=\"meters\",group=\"audit\"} 2",
        "peeklock_hub_lag_events{hub=\"meters\",group=\"audit\",partition=\"1\"} 2",
        "peeklock_hub_partitions{hub=\"many\"} 65",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
    // No event has been removed yet, so the received size equals the stored size.
    let size = rig.get("/api/hubs/meters").await.expect(200).json()["runtime"]["sizeBytes"].as_u64().unwrap();
    let line = format!("peeklock_hub_received_bytes_total{{hub=\"meters\"}} {size}");
    assert!(size > 0 && metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    assert!(!metrics.contains("hub=\"many\",partition"), "too many partitions for metrics of their own");
    assert!(!metrics.contains("group=\"$Default\""), "there is no lag without a checkpoint");
    assert!(metrics.contains("peeklock_hub_lag_seconds{hub=\"meters\",group=\"audit\",partition=\"1\"} "));
}

fn description(name: &str, inside: &str) -> String {
    format!(
        "<entry xmlns='http://www.w3.org/2005/Atom'><content type='application/xml'>\
         <{name} xmlns='http://schemas.microsoft.com/netservices/2010/10/servicebus/connect'>{inside}</{name}></content></entry>"
    )
}

#[tokio::test]
async fn atom_has_hubs_consumer_groups_and_partitions() {
    let rig = Rig::start().await;
    let body = description(
        "EventHubDescription",
        "<MessageRetentionInDays>3</MessageRetentionInDays><Status>Active</Status><PartitionCount>2</PartitionCount>",
    );
    let created = rig.put("/meters?timeout=60&api-version=2014-01", &body).await.expect(201);
    assert_eq!((created.element("MessageRetentionInDays"), created.element("PartitionCount")), ("3", "2"));
    let order = [
        "MessageRetentionInDays",
        "AuthorizationRules",
        "Status",
        "CreatedAt",
        "PartitionCount",
        "PartitionIds",
    ];
    let places: Vec<_> = order.iter().map(|name| created.body.find(&format!("<{name}")).unwrap()).collect();
    assert!(places.is_sorted(), "{}", created.body);
    rig.put("/meters?api-version=2014-01", &body).await.expect(409);
    rig.put("/api/hubs/meters", r#"{"retention": "50h"}"#).await.expect(200);
    rig.update("/meters?api-version=2014-01", &body.replace(">2<", ">4<")).await.expect(200);
    let told = rig.get("/api/hubs/meters").await.expect(200).json();
    assert_eq!(
        (&told["partitionCount"], &told["retentionHours"]),
        (&json!(4), &json!(50)),
        "50 hours are shown as three days, so three days change nothing"
    );
    rig.update("/meters?api-version=2014-01", &body.replace(">2<", ">1<")).await.expect(400);
    let strange = description("EventHubDescription", "<CaptureDescription/>");
    rig.put("/other?api-version=2014-01", &strange).await.expect(400);

    let group = description("ConsumerGroupDescription", "<UserMetadata>mine</UserMetadata>");
    let made = rig.put("/meters/consumergroups/audit?api-version=2014-01", &group).await.expect(201);
    assert_eq!(made.element("UserMetadata"), "mine");
    rig.put("/meters/consumergroups/audit?api-version=2014-01", &group).await.expect(409);
    let groups = rig.get("/meters/consumergroups?api-version=2014-01").await.expect(200);
    assert_eq!(groups.body.matches("<entry>").count(), 2, "{}", groups.body);
    let partition =
        rig.get("/meters/consumergroups/audit/partitions/3?api-version=2014-01").await.expect(200);
    assert_eq!(
        (partition.element("BeginSequenceNumber"), partition.element("EndSequenceNumber")),
        ("0", "-1")
    );
    let all =
        rig.get("/meters/consumergroups/$Default/partitions?api-version=2014-01&$top=3").await.expect(200);
    assert!(all.body.matches("<entry>").count() == 3 && all.body.contains("rel=\"next\""), "{}", all.body);
    rig.get("/meters/consumergroups/none/partitions/0?api-version=2014-01").await.expect(404);
    rig.get("/meters/consumergroups/audit/partitions/9?api-version=2014-01").await.expect(404);
    rig.delete("/meters/consumergroups/audit?api-version=2014-01").await.expect(200);

    let list = rig.get("/$Resources/eventhubs?api-version=2014-01").await.expect(200);
    assert!(list.body.contains("<EventHubDescription"), "{}", list.body);
    rig.get("/meters?api-version=2014-01").await.expect(200);
    rig.delete("/meters?api-version=2014-01").await.expect(200);
    rig.get("/meters?api-version=2014-01").await.expect(404);
}
