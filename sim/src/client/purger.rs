//! Empties a queue now and then.

use super::{Party, ask};
use crate::log::{Event, QueueIndex};

const PAUSE_MS_MAX: u64 = 60_000;

pub(crate) async fn purge(mut party: Party, queue: QueueIndex) {
    while !party.is_over() {
        party.pause_up_to(PAUSE_MS_MAX).await;
        let connected = party.connect().await;
        let request = party.world.log.next_request();
        party.log(Event::Purging { request, queue });
        let (count, answer) = ask(connected.client.purge(party.world.queue_name(queue), None)).await;
        party.log(Event::Purged { request, answer, count: count.unwrap_or(0) });
    }
}
