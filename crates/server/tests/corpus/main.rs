//! Data directories of every format that was released: the server opens each one, and everything in it is read back.
//!
//! `data/<name>.pack` contains a directory, and `data/<name>.json` the values that clients read from it. Neither is written again after the
//! release of a version with this format. After a change of the format, give [`NAME`] a new value and run `write_corpus` with [`WRITE`] set.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod pack;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use peeklock_broker::Broker;
use peeklock_client::{Admin, Client, Message, MessageExt, MessageState, ReceivedMessage, Target};
use peeklock_journal::{Journal, Log, Payload};
use peeklock_journal_wal::{WalConfig, WalJournal};
use peeklock_server::{Addresses, Options, Served, Server, StorageListen, StorageOptions};
use peeklock_types::wire::put_field;
use peeklock_types::{EntityName, Placement, ProgramVersion, SequenceNumber, ShardId, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The environment variable that makes `write_corpus` write.
const WRITE: &str = "PEEKLOCK_WRITE_CORPUS";
/// The timeout of every wait. Only a failing test reaches it.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The name of the newest directory.
const NAME: &str = "format-3";

/// A shared access signature of the well-known storage account, valid until 2099.
const SIGNATURE: &str = "sv=2021-06-08&ss=b&srt=sco&sp=racwdl&se=2099-01-01T00:00:00Z&sig=ailSggYY%2BchEH4eLJjcKK1KutnrUqo4pZ0sEEaueqrE%3D";

/// A token of the well-known key for management, valid until 2099.
const TOKEN: &str = "SharedAccessSignature sr=sb%3a%2f%2f127.0.0.1%2f&sig=4bYQSAKVWQS8SlS8NADzi63R3eLESm7goC%2BcFdqzzVs%3D&se=4070908800&skn=RootManageSharedAccessKey";

/// The entities whose messages are compared.
const PLACES: [&str; 16] = [
    "plain",
    "plain/$DeadLetterQueue",
    "short",
    "sessions",
    "ids",
    "ordered",
    "source",
    "source/$Transfer/$DeadLetterQueue",
    "target",
    "locked-out",
    "news/Subscriptions/all",
    "news/Subscriptions/high",
    "news/Subscriptions/by-id",
    "news/Subscriptions/high/$DeadLetterQueue",
    "late",
    "late/$DeadLetterQueue",
];

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/data")
}

fn name(text: &str) -> EntityName {
    EntityName::parse(text).unwrap()
}

fn spec<T: DeserializeOwned>(spec: Value) -> T {
    serde_json::from_value(spec).unwrap()
}

fn in_years(years: u64) -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_millis(u64::try_from(now.as_millis()).unwrap())
        + Duration::from_secs(years * 365 * 86_400)
}

struct Rig {
    server: Server,
    client: Client,
    admin: Admin,
    blobs: SocketAddr,
}

impl Rig {
    async fn start(directory: &Path) -> Rig {
        let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listen = Addresses { amqp: Some(loopback), ..Addresses::default() };
        let blobs = Some(StorageListen { address: loopback, is_usual: false });
        let storage = StorageOptions { blobs, ..StorageOptions::default() };
        let options = Options { data: directory.to_owned(), listen, storage, ..Options::default() };
        let server = Server::start(options).await.unwrap();
        let address = server.addresses.amqp.unwrap();
        let target =
            Target::parse(&format!("amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@{address}")).unwrap();
        let options = peeklock_client::Options::default();
        let client = Client::connect_with(&target, &options).await.unwrap();
        let Served::At(blobs) = server.storage.blobs else { panic!("no blobs") };
        Rig { server, client, admin: Admin::new(&target, &options), blobs }
    }

    async fn stop(self) {
        self.client.close().await;
        self.server.stop().await.unwrap();
    }

    async fn queue(&mut self, queue: &str, settings: Value) {
        self.admin.create_queue(&name(queue), &spec(settings)).await.unwrap();
    }

    /// Waits until the lock on a message of `plain` has expired, so that a later test reads the same values.
    async fn wait_for_locks(&mut self) {
        let no_locks =
            async { while self.admin.queue(&name("plain")).await.unwrap().counts.locked_count > 0 {} };
        tokio::time::timeout(WAIT_MAX, no_locks).await.expect("the lock expires");
    }

    async fn send(&self, entity: &str, message: Message) {
        self.client.sender(entity).await.unwrap().send(&message).await.unwrap();
    }

    async fn blob(&self, method: &str, path: &str, headers: &str, content: &str) -> String {
        let path = format!("/devstoreaccount1/{path}{SIGNATURE}");
        let headers = format!("x-ms-version: 2021-06-08\r\n{headers}");
        ask(self.blobs, method, &path, &headers, content).await
    }

    /// Writes an owner or a checkpoint of the consumer group `audit` over the JSON API.
    async fn put_progress(&self, path: &str, header: &str, body: Value) {
        let path = format!("/api/hubs/meters/consumer-groups/audit/{path}");
        let headers = format!("Authorization: {TOKEN}\r\nContent-Type: application/json\r\n{header}");
        ask(self.server.addresses.amqp.unwrap(), "PUT", &path, &headers, &body.to_string()).await;
    }
}

async fn ask(address: SocketAddr, method: &str, path: &str, headers: &str, content: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = content.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{content}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    answer
}

/// Fills a new directory with entities and messages in every state.
async fn fill(rig: &mut Rig) {
    rig.queue(
        "plain",
        json!({ "lockDuration": "PT1S", "maxDeliveryCount": 7, "userMetadata": "of the owner" }),
    )
    .await;
    for body in ["to lock", "to defer", "to dead-letter", "to delay"] {
        let message =
            Message::data(body).with_message_id(body).with_subject("steps").with_property("color", "red");
        rig.send("plain", message).await;
    }
    rig.send("plain", Message::data("to keep").with_time_to_live(Duration::from_secs(3000 * 86_400))).await;
    let late = Message::data("to schedule").with_scheduled_time(in_years(9));
    rig.client.sender("plain").await.unwrap().schedule(&[late]).await.unwrap();
    let mut receiver = rig.client.receiver("plain").credit(4).open().await.unwrap();
    let _locked = receiver.next().await.unwrap().unwrap();
    receiver.next().await.unwrap().unwrap().defer().await.unwrap();
    receiver.next().await.unwrap().unwrap().dead_letter("Bad", "it was bad").await.unwrap();
    receiver.next().await.unwrap().unwrap().abandon_after(Duration::from_secs(3000 * 86_400)).await.unwrap();

    rig.queue("short", json!({ "status": "SendDisabled" })).await;

    rig.queue("sessions", json!({ "requiresSession": true })).await;
    for session in ["a", "b", "a"] {
        rig.send("sessions", Message::data(format!("of {session}")).with_session_id(session)).await;
    }
    let holder = rig.client.receiver("sessions").session("a").open().await.unwrap();
    holder.session().unwrap().set_state(Some("half done".into())).await.unwrap();
    holder.close().await.unwrap();

    rig.queue("ids", json!({ "duplicateWindow": "P7D" })).await;
    for _ in 0..2 {
        rig.send("ids", Message::data("once").with_message_id("same")).await;
    }

    let classes = json!({ "high": { "priorities": "7-9" }, "low": { "priorities": "0-6" } });
    rig.queue(
        "ordered",
        json!({ "order": { "policy": "strict", "classes": classes, "tenants": { "key": "tenant" } } }),
    )
    .await;
    rig.send("ordered", Message::data("slow").with_priority(1).with_tenant("t1")).await;
    rig.send("ordered", Message::data("fast").with_priority(9).with_tenant("t2")).await;

    rig.queue("target", json!({})).await;
    rig.queue("locked-out", json!({})).await;
    rig.queue("source", json!({ "forwardTo": "target" })).await;
    rig.send("source", Message::data("goes on")).await;
    rig.admin.update_queue(&name("source"), &spec(json!({ "forwardTo": "locked-out" }))).await.unwrap();
    rig.admin.update_queue(&name("locked-out"), &spec(json!({ "status": "SendDisabled" }))).await.unwrap();
    rig.send("source", Message::data("stays")).await;

    rig.admin.create_topic(&name("news"), &spec(json!({}))).await.unwrap();
    let rules = [
        ("all", "all", json!({ "match": "all" })),
        (
            "high",
            "sql",
            json!({ "sql": "level > 3 AND color = @c", "parameters": { "c": "red" }, "action": "SET seen = 1" }),
        ),
        (
            "by-id",
            "correlation",
            json!({ "correlation": { "label": "steps", "properties": { "color": "blue" } } }),
        ),
    ];
    for (subscription, rule, filter) in rules {
        let spec = spec(json!({ "rules": { rule: filter } }));
        rig.admin.create_subscription(&name("news"), subscription, &spec).await.unwrap();
    }
    rig.send("news", Message::data("red").with_property("level", 4).with_property("color", "red")).await;
    rig.send("news", Message::data("blue").with_subject("steps").with_property("color", "blue")).await;

    let hub = json!({ "partitionCount": 2, "retentionHours": 876_000 });
    rig.admin.create_hub(&name("meters"), &spec(hub)).await.unwrap();
    rig.admin.create_consumer_group(&name("meters"), "audit", Some("for the books")).await.unwrap();
    for number in 0..3 {
        rig.send("meters/Partitions/1", Message::data(format!("event {number}")).with_property("n", number))
            .await;
    }
    rig.put_progress("ownerships/1", "If-None-Match: *\r\n", json!({ "owner": "reader-1" })).await;
    let checkpoint = json!({ "sequenceNumber": 1, "owner": "reader-1", "epoch": 1 });
    rig.put_progress("checkpoints/1", "", checkpoint).await;

    rig.blob("PUT", "box?restype=container&", "x-ms-meta-kind: test\r\n", "").await;
    let headers = "x-ms-blob-type: BlockBlob\r\nx-ms-meta-color: red\r\nContent-Type: text/plain\r\n";
    rig.blob("PUT", "box/hello.txt?", headers, "hello from a blob").await;
}

/// Adds entities and messages that are in the log after the snapshots of [`fill`].
async fn add(rig: &mut Rig) {
    rig.queue("late", json!({ "defaultTimeToLive": "P3000D" })).await;
    rig.send("late", Message::data("behind the snapshot").with_message_id("last")).await;
    rig.send("plain", Message::data("behind it, too")).await;
    rig.send("meters/Partitions/1", Message::data("event 3").with_property("n", 3)).await;
}

fn message(found: &ReceivedMessage) -> Value {
    let state = match found.state() {
        MessageState::Active => "active",
        MessageState::Deferred => "deferred",
        MessageState::Scheduled => "scheduled",
    };
    json!({
        "number": found.sequence_number().map(|number| number.0),
        "state": state,
        "deliveries": found.delivery_count(),
        "body": found.body_text(),
        "id": found.message_id(),
        "session": found.session_id(),
        "subject": found.subject(),
        "color": found.message.property("color").and_then(|value| value.as_str()),
        "seen": found.message.property("seen").and_then(|value| value.as_i64()),
        "class": found.class(),
        "tenant": found.tenant(),
        "reason": found.dead_letter_reason(),
        "description": found.dead_letter_description(),
        "enqueued": found.enqueued_at().map(Timestamp::as_millis),
        "due": found.scheduled_for().map(Timestamp::as_millis),
        "expires": found.expires_at().map(Timestamp::as_millis),
    })
}

async fn read(rig: &mut Rig) -> Value {
    let mut messages = serde_json::Map::new();
    for place in PLACES {
        let found = rig.client.peek(place, SequenceNumber(1), 100).await.unwrap();
        messages.insert(place.to_owned(), found.iter().map(message).collect());
    }
    let queues: Vec<_> =
        rig.admin.queues().await.unwrap().into_iter().map(|queue| (queue.name, queue.spec)).collect();
    let mut rules = Vec::new();
    for subscription in rig.admin.subscriptions(&name("news")).await.unwrap() {
        let found = rig.admin.rules(&name("news"), &subscription.name).await.unwrap();
        rules.extend(found.into_iter().map(|rule| (subscription.name.clone(), rule.name, rule.spec)));
    }
    let mut states = Vec::new();
    for session in ["a", "b"] {
        let holder = rig.client.receiver("sessions").session(session).open().await.unwrap();
        let state = holder.session().unwrap().state().await.unwrap();
        states.push(state.map(|state| String::from_utf8_lossy(&state).into_owned()));
        holder.close().await.unwrap();
    }
    let hub = rig.admin.hub(&name("meters")).await.unwrap();
    let events = rig.admin.events(&name("meters"), 1, "earliest", 100).await.unwrap();
    let events: Vec<_> = events.items.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    let owners = rig.admin.ownerships(&name("meters"), "audit").await.unwrap();
    let checkpoints = rig.admin.checkpoints(&name("meters"), "audit").await.unwrap();
    let checkpoints: Vec<_> =
        checkpoints.into_iter().map(|found| (found.partition, found.sequence_number, found.at)).collect();
    let owners: Vec<_> =
        owners.into_iter().map(|owned| (owned.partition, owned.owner, owned.epoch)).collect();
    let blob = rig.blob("GET", "box/hello.txt?", "", "").await;
    json!({
        "messages": messages,
        "queues": queues,
        "rules": rules,
        "session states": states,
        "hub": hub.spec,
        "events": events,
        "owners": owners,
        "checkpoints": checkpoints,
        "blob": blob.rsplit("\r\n\r\n").next(),
        "blob has metadata": blob.contains("x-ms-meta-color: red") && blob.contains("text/plain"),
    })
}

/// Fails if an expected value is missing or different. Later versions may return further values.
fn compare(expected: &Value, found: &Value, path: &str) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            for (key, value) in expected {
                compare(value, found.get(key).unwrap_or(&Value::Null), &format!("{path}/{key}"));
            }
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            for (at, (expected, found)) in expected.iter().zip(found).enumerate() {
                compare(expected, found, &format!("{path}/{at}"));
            }
        }
        _ => assert_eq!(expected, found, "{path}"),
    }
}

/// Makes every shard of a directory write a snapshot.
async fn take_snapshots(directory: &Path) {
    let config = WalConfig { snapshot_after_bytes: 0, ..WalConfig::default() };
    let journal = WalJournal::open(directory, config).unwrap();
    let (broker, mut running, _) = Broker::open(&journal, peeklock_message::describe).await.unwrap();
    let has_snapshot = |shard: u16| {
        let folder = directory.join("snap").join(shard.to_string());
        std::fs::read_dir(folder).is_ok_and(|mut files| {
            files.any(|file| file.unwrap().path().extension().is_some_and(|end| end == "snap"))
        })
    };
    // A shard without a commit group writes no snapshot.
    let logged = journal.shards();
    // A request to all shards is a round of each, and a shard takes its snapshot at the end of a round.
    let all_written = async {
        while !logged.iter().all(|shard| has_snapshot(shard.0)) {
            broker.hubs(None, 1).await.unwrap();
        }
    };
    tokio::time::timeout(WAIT_MAX, all_written).await.expect("every shard with a log writes a snapshot");
    drop(broker);
    running.stopped().await.unwrap();
    journal.close();
}

/// Writes the newest directory of the corpus, if [`WRITE`] is set. It is not an ignored test, because `cargo xtask test` counts ignored tests
/// as failed.
#[tokio::test]
async fn write_corpus() {
    if std::env::var_os(WRITE).is_none() {
        return;
    }
    let (made, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut rig = Rig::start(made.path()).await;
    fill(&mut rig).await;
    rig.stop().await;
    take_snapshots(made.path()).await;
    let mut rig = Rig::start(made.path()).await;
    add(&mut rig).await;
    rig.stop().await;
    let packed = pack::pack(made.path());
    pack::unpack(&packed, copy.path());
    let mut rig = Rig::start(copy.path()).await;
    rig.wait_for_locks().await;
    let found = read(&mut rig).await;
    rig.stop().await;
    std::fs::write(data().join(NAME).with_extension("pack"), packed).unwrap();
    let text = serde_json::to_string_pretty(&found).unwrap() + "\n";
    std::fs::write(data().join(NAME).with_extension("json"), text).unwrap();
}

#[tokio::test]
async fn every_directory_opens_with_all_its_content() {
    let mut count = 0;
    for entry in std::fs::read_dir(data()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "pack") {
            continue;
        }
        count += 1;
        let expected = std::fs::read(path.with_extension("json")).unwrap();
        let expected: Value = serde_json::from_slice(&expected).unwrap();
        let directory = tempfile::tempdir().unwrap();
        pack::unpack(&std::fs::read(&path).unwrap(), directory.path());
        // The first round reads the directory as it was written, the second with the records that this version has added, and the third from
        // snapshots of this version.
        for round in 0..3 {
            if round == 2 {
                take_snapshots(directory.path()).await;
            }
            let mut rig = Rig::start(directory.path()).await;
            let found = read(&mut rig).await;
            rig.stop().await;
            compare(&expected, &found, &path.display().to_string());
        }
    }
    assert!(count > 0, "the corpus is empty");
}

#[tokio::test]
async fn a_directory_of_three_shards_opens_and_serves() {
    let directory = tempfile::tempdir().unwrap();
    let config = WalConfig { placement: Placement::new(3).unwrap(), ..WalConfig::default() };
    WalJournal::open(directory.path(), config).unwrap().close();
    let mut rig = Rig::start(directory.path()).await;
    fill(&mut rig).await;
    add(&mut rig).await;
    let before = read(&mut rig).await;
    rig.stop().await;
    assert_eq!(
        std::fs::read_to_string(directory.path().join("FORMAT")).unwrap().lines().last(),
        Some("shards 3")
    );
    let mut rig = Rig::start(directory.path()).await;
    for part in ["queues", "rules", "session states", "events", "owners", "checkpoints", "blob"] {
        compare(&before[part], &read(&mut rig).await[part], part);
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_record_of_a_newer_version_is_rejected_with_its_version() {
    let directory = tempfile::tempdir().unwrap();
    let rig = Rig::start(directory.path()).await;
    rig.stop().await;
    let journal = WalJournal::open(directory.path(), WalConfig::default()).unwrap();
    let (mut log, _) = Journal::open(&journal, ShardId(2)).await.unwrap();
    let mut group = 8_u32.to_le_bytes().to_vec();
    group.extend(ProgramVersion::new(0, 99, 1).to_bits().to_le_bytes());
    put_field(4711, &1_u64, &mut group);
    let number = log.append(Payload::from(group)).unwrap();
    let before = peeklock_types::CommitGroupNumber(number.0 - 1);
    log.durable(before).await.unwrap();
    drop(log);
    journal.close();
    let listen = Addresses { amqp: Some("127.0.0.1:0".parse().unwrap()), ..Addresses::default() };
    let options = Options { data: directory.path().to_owned(), listen, ..Options::default() };
    let refused = Server::start(options).await.err().unwrap();
    let text = format!("{refused:#}");
    let this = ProgramVersion::THIS;
    let expected = format!(
        "the record kind 4711 is unknown to this version of the program, {this}. Version 0.99.1 wrote it: start version 0.99.1 or a later one. Nothing was changed"
    );
    assert!(text.contains("shard 2") && text.contains(&expected), "{text}");
}
