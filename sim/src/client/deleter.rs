//! Receivers in mode receive-and-delete, and receivers that never give credit.

use std::time::Duration;

use peeklock_client::{ReceiveMode, Receiver};
use tokio::time::timeout;

use super::{Connected, PATIENCE, Party, ask, seen};
use crate::log::{Event, Part, QueueIndex, Seen};

pub(crate) async fn delete(mut party: Party, queue: QueueIndex, credit: u32) {
    while !party.is_over() {
        let connected = party.connect().await;
        let builder = connected.client.receiver(party.world.queue_name(queue));
        let request = party.world.log.next_request();
        // Logged before the receiver opens, because messages may be in flight before the answer arrives.
        party.log(Event::Deleting { request, queue, credit });
        party.attach_as(request, &connected, queue, Part::Main);
        let opened = ask(builder.mode(ReceiveMode::ReceiveAndDelete).credit(credit).open()).await.0;
        if let Some(mut receiver) = opened
            && take(&mut party, &connected, (queue, request), &mut receiver).await.is_some()
        {
            party.log(Event::DeletingEnded { request });
        }
        drop(connected);
        party.pause().await;
    }
}

/// Receives messages for a while, and then the messages still in flight. Returns `None` if some may be lost.
async fn take(
    party: &mut Party,
    connected: &Connected,
    place: (QueueIndex, u32),
    receiver: &mut Receiver,
) -> Option<()> {
    for _ in 0..party.rng.u32(1..100) {
        party.pause_up_to(300).await;
        match timeout(Duration::from_secs(5), receiver.next()).await {
            Ok(Ok(Some(delivery))) => note(party, connected, place, &delivery),
            Ok(Ok(None) | Err(_)) => return None,
            Err(_) => {}
        }
    }
    ask(receiver.stop()).await.0?;
    while let Some(delivery) = timeout(PATIENCE, receiver.next()).await.ok()?.ok()? {
        note(party, connected, place, &delivery);
    }
    Some(())
}

fn note(
    party: &Party,
    connected: &Connected,
    (queue, link): (QueueIndex, u32),
    delivery: &peeklock_client::Delivery,
) {
    match delivery.message() {
        Ok(message) => {
            let seen = seen(&party.world.scenario, &message, queue, Part::Main, connected.run);
            party.log(Event::Received(Seen { link: Some(link), ..seen }));
        }
        Err(error) => party.log(Event::Trouble { what: format!("a delivery cannot be read: {error}") }),
    }
}

/// Attaches, gives no credit, and must get nothing.
pub(crate) async fn idle(mut party: Party, queue: QueueIndex) {
    while !party.is_over() {
        let connected = party.connect().await;
        let builder = connected.client.receiver(party.world.queue_name(queue)).manual_credit();
        if let (Some(mut receiver), _) = ask(builder.open()).await {
            let span = Duration::from_secs(party.rng.u64(1..120));
            if let Ok(Ok(Some(_))) = timeout(span, receiver.next()).await {
                party.log(Event::Trouble { what: "a delivery without credit".to_owned() });
            }
        }
        drop(connected);
        party.pause().await;
    }
}
