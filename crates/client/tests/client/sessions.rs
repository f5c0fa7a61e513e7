//! Links and the AMQP sessions that carry them.

use std::sync::{Arc, Mutex};

use peeklock_amqp::connection::{Config, Event};
use peeklock_client::{Client, Receiver};

use crate::receiving::Endless;
use crate::script::{Then, connect_to};

/// Connects to a broker that permits four sessions. The numbers are those of the open sessions and of their maximum.
async fn connect_with_four_sessions() -> (Client, Arc<Mutex<(usize, usize)>>) {
    let sessions = Arc::<Mutex<(usize, usize)>>::default();
    let (counts, mut queue) = (Arc::clone(&sessions), Endless::default());
    let config = Config { channel_max: 3, ..Config::server("script") };
    let client = connect_to(config, move |connection, event| {
        let mut counts = counts.lock().unwrap();
        match event {
            Event::SessionBegun { .. } => counts.0 += 1,
            Event::SessionEnded { .. } => counts.0 -= 1,
            event => drop(queue.handle(connection, event)),
        }
        counts.1 = counts.1.max(counts.0);
        Then::GoOn
    });
    (client.await, sessions)
}

async fn receive_and_complete(receiver: &mut Receiver) {
    receiver.add_credit(1).await.unwrap();
    receiver.next().await.unwrap().unwrap().complete().await.unwrap();
}

#[tokio::test]
async fn links_share_sessions_when_the_broker_permits_no_more() {
    let (client, sessions) = connect_with_four_sessions().await;
    let mut receivers = Vec::new();
    for number in 0..20 {
        let receiver = client.receiver(&format!("queue-{number}")).manual_credit().open();
        receivers.push(receiver.await.unwrap());
    }
    let sender = client.sender("orders").await.unwrap();
    for receiver in &mut receivers {
        receive_and_complete(receiver).await;
    }
    assert_eq!(*sessions.lock().unwrap(), (4, 4), "(open, most)");
    // The end of some links leaves the others of their session as they are.
    for receiver in receivers.drain(..10) {
        receiver.close().await.unwrap();
    }
    for receiver in &mut receivers {
        receive_and_complete(receiver).await;
    }
    drop(sender);
}

#[tokio::test]
async fn a_session_ends_with_its_last_link() {
    let (client, sessions) = connect_with_four_sessions().await;
    for round in 0..5 {
        let mut receivers = Vec::new();
        for _ in 0..6 {
            receivers.push(client.receiver("orders").manual_credit().open().await.unwrap());
        }
        for mut receiver in receivers {
            receive_and_complete(&mut receiver).await;
            receiver.close().await.unwrap();
        }
        // The next link finds out whether a session is free.
        let mut last = client.receiver("orders").manual_credit().open().await.unwrap();
        receive_and_complete(&mut last).await;
        assert_eq!(
            sessions.lock().unwrap().0,
            1,
            "in round {round}, only the session of the open link is left"
        );
        last.close().await.unwrap();
    }
}
