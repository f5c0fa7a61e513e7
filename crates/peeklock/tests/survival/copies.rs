//! Delayed abandonment with a broker that cannot delay, on connections that are cut at any byte.

use std::time::Duration;

use peeklock::{Client, Message};
use peeklock_types::QueueSettings;

use crate::rig::Rig;

const DELAY: Duration = Duration::from_secs(300);

/// Completes all messages that arrive within some minutes, and returns their original ids.
async fn complete_all(client: &Client) -> Vec<String> {
    let mut receiver = client.receiver("q").open().await.unwrap();
    let mut ids = Vec::new();
    while let Ok(next) = tokio::time::timeout(10 * DELAY, receiver.next()).await {
        let delivery = next.unwrap().unwrap();
        ids.extend(delivery.message().original_message_id());
        delivery.complete().await.unwrap();
    }
    ids
}

/// Cuts the connection so many bytes after a delayed abandonment begins. Returns the number of cuts, 0 if it ended before that.
async fn abandon_and_cut(bytes: usize, crashes: bool) -> u32 {
    let duplicate_window = bytes.is_multiple_of(2).then_some(100 * DELAY);
    let rig = Rig::with_queue("q", QueueSettings { duplicate_window, ..QueueSettings::default() }).await;
    rig.network.set_stranger();
    let client = rig.client().await;
    let sender = client.sender("q").await.unwrap();
    sender.send(Message::text("1").message_id("m1")).await.unwrap();
    let mut receiver = client.receiver("q").open().await.unwrap();
    let delivery = receiver.next().await.unwrap().unwrap();
    let dials = rig.network.dial_count();
    rig.network.cut_after(bytes);
    if crashes {
        // The process ends with the connection.
        rig.network.set_down(true);
        let abandoning = tokio::time::timeout(Duration::from_millis(50), delivery.abandon_after(DELAY));
        let _ = abandoning.await;
        rig.network.cut();
    } else {
        // An error means that the result is unknown.
        let _ = delivery.abandon_after(DELAY).await;
    }
    drop((sender, receiver, client));
    rig.network.set_down(false);
    let dials = rig.network.dial_count() - dials;
    let ids = complete_all(&rig.client().await).await;
    assert_eq!(ids, ["m1"], "cut after {bytes} bytes, {crashes}");
    dials
}

#[tokio::test(start_paused = true)]
async fn a_cut_at_any_byte_leaves_the_original_or_its_copy() {
    for crashes in [false, true] {
        let mut cut_count = 0;
        let mut bytes = 1;
        // Some cuts beyond the end of the abandonment.
        while bytes < 6_000 {
            cut_count += u32::from(abandon_and_cut(bytes, crashes).await > 0);
            bytes += 23;
        }
        assert!(crashes || cut_count > 20, "{cut_count} connections were cut");
    }
}
