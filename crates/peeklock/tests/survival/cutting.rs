//! Two programs on a queue while their connections are cut at random bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peeklock::{Client, Message};
use peeklock_types::QueueSettings;

use crate::rig::Rig;

const COUNT: u32 = 200;

async fn send_all(client: Client) {
    let sender = client.sender("q").await.unwrap();
    for number in 0..COUNT {
        sender.send(Message::text(number.to_string())).await.unwrap();
    }
}

/// Receives and completes until all messages were completed.
async fn complete_all(client: Client, completed: Arc<Mutex<BTreeMap<u32, u32>>>) {
    let mut receiver = client.receiver("q").prefetch(10).open().await.unwrap();
    while completed.lock().unwrap().len() < COUNT as usize {
        // Messages that were in flight when a connection was cut return after their lock, and may be cut off again.
        let next = tokio::time::timeout(Duration::from_secs(3600), receiver.next()).await;
        let delivery = next.expect("a message within an hour").unwrap().unwrap();
        let number: u32 = delivery.message().body_text().parse().unwrap();
        let times = completed.lock().unwrap().get(&number).copied();
        assert_eq!(times, None, "message {number} came back after its completion");
        delivery.complete().await.unwrap();
        *completed.lock().unwrap().entry(number).or_default() += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_and_nothing_comes_back() {
    let duplicate_window = Some(Duration::from_secs(86_400));
    let settings = QueueSettings { duplicate_window, max_delivery_count: 1000, ..QueueSettings::default() };
    let mut dial_count = 0;
    for seed in 0..30 {
        let rig = Rig::with_queue("q", settings.clone()).await;
        let (sending, working) = (rig.client().await, rig.client().await);
        rig.network.cut_at_random(seed);
        rig.network.cut();
        let completed = Arc::<Mutex<BTreeMap<u32, u32>>>::default();
        let worker = tokio::spawn(complete_all(working.clone(), Arc::clone(&completed)));
        send_all(sending).await;
        worker.await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        rig.network.calm();
        assert!(working.peek("q", Default::default(), 10).await.unwrap().is_empty(), "seed {seed}");
        assert!(completed.lock().unwrap().values().all(|times| *times == 1));
        dial_count += rig.network.dial_count();
    }
    assert!(dial_count > 30 * 20, "{dial_count}");
}
