//! The broker inside the process: its directory, its handles, and its end.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use peeklock::admin::Queue;
use peeklock::embedded::Broker;
use peeklock::{Client, Kind, Message};
use peeklock_server::{Entities, Instance, InstanceOptions, Medium};

/// The directory for the process of [`holds_a_directory`].
const DIRECTORY_TO_HOLD: &str = "PEEKLOCK_TEST_DIRECTORY";

fn target(directory: &Path) -> String {
    format!("embedded:{}", directory.display())
}

async fn send(client: &Client, texts: impl IntoIterator<Item = String>) {
    let sender = client.sender("orders").await.unwrap();
    for text in texts {
        sender.send(Message::text(text)).await.unwrap();
    }
}

async fn receive(client: &Client, count: usize) -> Vec<String> {
    // No further message is locked, so that the next broker delivers the others at once and in order.
    let mut receiver = client.receiver("orders").manual_credit().open().await.unwrap();
    receiver.add_credit(u32::try_from(count).unwrap()).await.unwrap();
    let mut texts = Vec::new();
    while texts.len() < count {
        let delivery = receiver.next().await.unwrap().unwrap();
        texts.push(delivery.message().body_text().into_owned());
        delivery.complete().await.unwrap();
    }
    texts
}

#[tokio::test]
async fn a_durable_broker_keeps_all_messages_when_it_is_dropped_and_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let texts: Vec<String> = (0..100).map(|number| format!("order {number}")).collect();
    let client = Client::connect(&target(directory.path())).await.unwrap();
    client.admin().create_queue("orders", Queue::new()).await.unwrap();
    send(&client, texts.iter().take(60).cloned()).await;
    assert_eq!(receive(&client, 10).await, texts[..10]);
    drop(client);
    let broker = Broker::open(directory.path()).await.unwrap();
    let client = broker.client().await.unwrap();
    send(&client, texts.iter().skip(60).cloned()).await;
    broker.stop().await.unwrap();
    let client = Client::connect(&target(directory.path())).await.unwrap();
    assert_eq!(receive(&client, 90).await, texts[10..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_of_one_directory_share_a_broker() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = tokio::join!(Broker::open(directory.path()), Broker::open(directory.path()));
    let first = first.unwrap().client().await.unwrap();
    first.admin().create_queue("orders", Queue::new()).await.unwrap();
    send(&first, ["a".to_owned()]).await;
    let second = second.unwrap().client().await.unwrap();
    assert_eq!(receive(&second, 1).await, ["a"]);
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(directory.path(), &link).unwrap();
    let third = Client::connect(&target(&link)).await.unwrap();
    drop(first);
    send(&third, ["b".to_owned()]).await;
    assert_eq!(receive(&second, 1).await, ["b"]);
}

#[tokio::test]
async fn each_broker_in_memory_is_new() {
    let first = Client::connect("embedded:").await.unwrap();
    first.admin().create_queue("orders", Queue::new()).await.unwrap();
    let second = Client::connect("embedded:").await.unwrap();
    assert_eq!(second.sender("orders").await.err().unwrap().kind(), Kind::NotFound);
    send(&first, ["a".to_owned()]).await;
    assert_eq!(receive(&first, 1).await, ["a"]);
}

#[tokio::test]
async fn the_directory_is_free_when_the_last_handle_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let client = Client::connect(&target(directory.path())).await.unwrap();
    client.admin().create_queue("orders", Queue::new()).await.unwrap();
    send(&client, ["a".to_owned()]).await;
    drop(client);
    // A client's connection ends with its task, which lets go of the directory then.
    tokio::task::yield_now().await;
    let medium = Medium::Directory(directory.path().to_owned());
    let options = InstanceOptions { medium, keys: Vec::new(), entities: Entities::default() };
    Instance::open(options).await.unwrap().stop().await.unwrap();
}

#[tokio::test]
async fn a_directory_that_another_process_uses_is_named_with_that_process() {
    let directory = tempfile::tempdir().unwrap();
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holds_a_directory", "--nocapture"])
        .env(DIRECTORY_TO_HOLD, directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(other.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(output.any(|line| line.contains("the directory is open")));
    let refused = Client::connect(&target(directory.path())).await.err().unwrap();
    assert_eq!((refused.kind(), refused.code()), (Kind::Embedded, "E-EMB-01"));
    let text = refused.to_string();
    assert!(text.contains(&format!("is in use by process {}", other.id())), "{text}");
    assert!(text.contains(&directory.path().display().to_string()), "{text}");
    // The other process ends with its input.
    drop(other.stdin.take());
    output.for_each(drop);
    other.wait().unwrap();
    Client::connect(&target(directory.path())).await.unwrap();
}

/// The other process of the test above. Without its environment variable, this does nothing.
#[tokio::test]
async fn holds_a_directory() {
    let Some(directory) = std::env::var_os(DIRECTORY_TO_HOLD) else { return };
    let broker = Broker::open(directory).await.unwrap();
    println!("the directory is open");
    let _ = std::io::stdin().lines().count();
    broker.stop().await.unwrap();
}

#[tokio::test]
async fn others_connect_when_the_broker_is_served() {
    let broker = Broker::in_memory().await.unwrap();
    let inside = broker.client().await.unwrap();
    inside.admin().create_queue("orders", Queue::new()).await.unwrap();
    let address = broker.serve("127.0.0.1:0").await.unwrap();
    let outside =
        Client::connect(&format!("amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@{address}")).await.unwrap();
    send(&inside, ["a".to_owned()]).await;
    assert_eq!(receive(&outside, 1).await, ["a"]);
    assert_eq!(outside.admin().queues().await.unwrap().len(), 1);
    broker.stop().await.unwrap();
}

#[tokio::test]
async fn a_broker_without_a_key_of_its_own_is_not_served_to_other_machines() {
    let broker = Broker::in_memory().await.unwrap();
    let refused = broker.serve("0.0.0.0:0").await.unwrap_err();
    assert_eq!(refused.code(), "E-EMB-04");
    assert!(refused.to_string().contains("SAS_KEY_VALUE"), "{refused}");
    assert_eq!(broker.serve("localhost").await.unwrap_err().code(), "E-EMB-04");
    let short = Broker::builder().key("app", "s3cret").in_memory().await.unwrap();
    let refused = short.serve("0.0.0.0:0").await.unwrap_err().to_string();
    assert!(refused.contains("'app'") && !refused.contains("s3cret"), "{refused}");
    let broker = Broker::builder().key("app", "a-s3cret-of-its-own").in_memory().await.unwrap();
    let address = broker.serve("0.0.0.0:0").await.unwrap();
    let port = address.port();
    Client::connect(&format!("amqp://app:a-s3cret-of-its-own@127.0.0.1:{port}")).await.unwrap();
    let known = format!("amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@127.0.0.1:{port}");
    assert_eq!(Client::connect(&known).await.err().unwrap().kind(), Kind::Unauthorized);
}

#[tokio::test]
async fn a_stopped_broker_refuses_its_handles() {
    let broker = Broker::in_memory().await.unwrap();
    let other = broker.clone();
    broker.stop().await.unwrap();
    assert_eq!(other.serve("127.0.0.1:0").await.unwrap_err().code(), "E-EMB-05");
    other.stop().await.unwrap();
}
