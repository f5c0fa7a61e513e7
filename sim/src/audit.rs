//! Sets the queues up, and at the end, when all is at rest, counts and takes out what is there.

use std::time::Duration;

use peeklock_client::{EntityName, Outcome, ReceiveMode, SequenceNumber};
use tokio::time::timeout;

use crate::client::{Connected, Party, ask, seen};
use crate::log::{Answer, Counted, Event, Part, QueueIndex, Seen};

/// An empty queue has nothing to deliver for this long.
const EMPTY_AFTER: Duration = Duration::from_secs(10);
const CREDIT: u32 = 50;
const PEEK_COUNT: u32 = 200;
/// How often to look whether the last locks are over.
const LOOK_EVERY: Duration = Duration::from_secs(10);

pub(crate) async fn create_queues(party: &mut Party) -> bool {
    let connected = party.connect().await;
    for queue in party.world.scenario.queues.clone() {
        let Ok(name) = EntityName::parse(&queue.name) else { return false };
        let (_, answer) = ask(connected.client.admin().create_queue(&name, &queue.settings)).await;
        if answer != Answer::Done {
            return false;
        }
    }
    true
}

pub(crate) async fn take_out(mut party: Party) {
    tokio::time::sleep(party.world.scenario.rest()).await;
    for queue in 0..party.world.scenario.queues.len() {
        while !try_wait(&mut party, queue).await {}
    }
    party.log(Event::Resting);
    for queue in 0..party.world.scenario.queues.len() {
        if !try_take_out(&mut party, queue).await {
            party.log(Event::Trouble { what: format!("queue {queue} could not be emptied") });
        }
    }
}

async fn count(party: &Party, connected: &Connected, queue: QueueIndex) -> Option<Counted> {
    let name = EntityName::parse(party.world.queue_name(queue)).ok()?;
    let info = ask(connected.client.admin().show_queue(&name)).await.0?;
    Some(Counted {
        active: info.active_count,
        locked: info.locked_count,
        deferred: info.deferred_count,
        dead_letter: info.dead_letter_count,
    })
}

/// Waits until no lock is held. Steps of the clock may have made some of them long.
async fn try_wait(party: &mut Party, queue: QueueIndex) -> bool {
    let connected = party.connect().await;
    loop {
        match count(party, &connected, queue).await {
            Some(counts) if counts.locked == 0 => return true,
            Some(_) => tokio::time::sleep(LOOK_EVERY).await,
            None => return false,
        }
    }
}

async fn try_take_out(party: &mut Party, queue: QueueIndex) -> bool {
    let connected = party.connect().await;
    let Some(counts) = count(party, &connected, queue).await else { return false };
    party.log(Event::Counted { queue, counts });
    for part in [Part::Main, Part::DeadLetter] {
        let Some(deferred) = deferred_in(party, &connected, queue, part).await else { return false };
        if take_waiting(party, &connected, queue, part).await.is_none()
            || take_deferred(party, &connected, queue, part, &deferred).await.is_none()
        {
            return false;
        }
    }
    let Some(counts) = count(party, &connected, queue).await else { return false };
    party.log(Event::Emptied { queue, counts });
    true
}

/// Looks at everything there is, and finds what is set aside.
async fn deferred_in(
    party: &Party,
    connected: &Connected,
    queue: QueueIndex,
    part: Part,
) -> Option<Vec<SequenceNumber>> {
    let entity = party.world.entity(queue, part);
    let mut from = SequenceNumber::FIRST;
    let mut deferred = Vec::new();
    loop {
        let request = party.world.log.next_request();
        party.log(Event::Peeking { request, queue, part });
        let found = ask(connected.client.peek(&entity, from, PEEK_COUNT)).await.0?;
        let messages: Vec<_> = found.iter().map(crate::client::peeked).collect();
        let last = messages.last().map(|message| message.sequence_number);
        deferred.extend(messages.iter().filter(|m| m.is_deferred).map(|m| SequenceNumber(m.sequence_number)));
        party.log(Event::Peeked { request, messages });
        match last {
            Some(last) if last >= from.0 => from = SequenceNumber(last).next(),
            _ => return Some(deferred),
        }
    }
}

async fn take_waiting(party: &Party, connected: &Connected, queue: QueueIndex, part: Part) -> Option<()> {
    let builder = connected.client.receiver(party.world.queue_name(queue)).credit(CREDIT);
    let builder = if part == Part::DeadLetter { builder.dead_letter() } else { builder };
    let mut receiver = ask(builder.open()).await.0?;
    while let Ok(next) = timeout(EMPTY_AFTER, receiver.next()).await {
        let delivery = next.ok()??;
        let message = delivery.message().ok()?;
        let seen = seen(&message, queue, part, connected.run);
        let token = seen.token?;
        party.log(Event::Received(seen));
        let request = party.world.log.next_request();
        party.log(Event::Settling { request, token, outcome: Outcome::Complete });
        let (_, answer) = ask(delivery.settle(Outcome::Complete)).await;
        party.log(Event::Settled { request, answer });
    }
    ask(receiver.close()).await.0
}

async fn take_deferred(
    party: &Party,
    connected: &Connected,
    queue: QueueIndex,
    part: Part,
    numbers: &[SequenceNumber],
) -> Option<()> {
    let entity = party.world.entity(queue, part);
    for number in numbers {
        let mode = ReceiveMode::PeekLock;
        let found = ask(connected.client.receive_deferred(&entity, &[*number], mode)).await.0?;
        for message in found {
            let seen = Seen { by_number: true, ..seen(&message, queue, part, connected.run) };
            let token = seen.token?;
            party.log(Event::Received(seen));
            let request = party.world.log.next_request();
            party.log(Event::Settling { request, token, outcome: Outcome::Complete });
            let (_, answer) = ask(connected.client.settle(&entity, &[token], Outcome::Complete)).await;
            party.log(Event::Settled { request, answer });
        }
    }
    Some(())
}
