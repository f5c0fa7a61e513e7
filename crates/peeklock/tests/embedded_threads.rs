//! The end of an embedded broker leaves no thread behind. This is the only test of its process, because it counts threads.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use peeklock::admin::Queue;
use peeklock::embedded::Broker;
use peeklock::{Client, Message};

/// The threads of Tokio for blocking work. They belong to the runtime and end some seconds after their last work.
const OF_RUNTIME: &str = "tokio-rt-worker";

/// Returns the names of the threads of this process.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut names: Vec<_> =
        tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok()).collect();
    names.retain(|name| name.trim() != OF_RUNTIME);
    names.sort_unstable();
    names
}

async fn use_it(client: &Client) {
    client.sender("orders").await.unwrap().send(Message::text("a")).await.unwrap();
}

#[tokio::test]
async fn no_thread_is_left_when_a_broker_is_stopped_or_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let before = threads();
    let broker = Broker::open(directory.path()).await.unwrap();
    let client = broker.client().await.unwrap();
    client.admin().create_queue("orders", Queue::new()).await.unwrap();
    use_it(&client).await;
    assert!(threads().len() > before.len(), "the journal has threads");
    broker.stop().await.unwrap();
    assert_eq!(threads(), before);
    drop(client);
    let client = Broker::open(directory.path()).await.unwrap().client().await.unwrap();
    use_it(&client).await;
    drop(client);
    tokio::task::yield_now().await;
    assert_eq!(threads(), before);
}
