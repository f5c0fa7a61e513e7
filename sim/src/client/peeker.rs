//! Peeks at messages.

use peeklock_client::{MessageState, ReceivedMessage, SequenceNumber};

use super::{Party, ask, body, number_in};
use crate::log::{Event, Part, Peeked, QueueIndex};
use crate::scenario::Scenario;

const COUNT_MAX: u32 = 50;

pub(crate) async fn peek(mut party: Party) {
    while !party.is_over() {
        let connected = party.connect().await;
        for _ in 0..party.rng.u32(1..20) {
            party.pause().await;
            let queue = party.rng.usize(..party.world.scenario.queues.len());
            let part = if party.rng.bool() { Part::Main } else { Part::DeadLetter };
            let (from, count) = (SequenceNumber(party.rng.u64(0..200)), party.rng.u32(1..=COUNT_MAX));
            if !look(&party, &connected.client, queue, part, from, count).await {
                break;
            }
        }
        drop(connected);
        party.pause().await;
    }
}

async fn look(
    party: &Party,
    client: &peeklock_client::Client,
    queue: QueueIndex,
    part: Part,
    from: SequenceNumber,
    count: u32,
) -> bool {
    let request = party.world.log.next_request();
    party.log(Event::Peeking { request, queue, part });
    let entity = party.world.entity(queue, part);
    let (Some(found), _) = ask(client.peek(&entity, from, count)).await else { return false };
    let messages = found.iter().map(|message| peeked(&party.world.scenario, message, queue)).collect();
    party.log(Event::Peeked { request, messages });
    true
}

pub(crate) fn peeked(scenario: &Scenario, message: &ReceivedMessage, queue: QueueIndex) -> Peeked {
    Peeked {
        message: number_in(scenario, &body::read(message), queue),
        session: message.session_id().and_then(super::session_number),
        sequence_number: message.sequence_number().map_or(0, |number| number.0),
        is_deferred: message.state() == MessageState::Deferred,
    }
}
