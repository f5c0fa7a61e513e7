//! Publishers and readers over AMQP, with the real client, through the simulated network.

use std::time::Duration;

use peeklock_amqp::{AmqpError, condition};
use peeklock_broker::hubs::StartAt;
use peeklock_client::{Delivery, Error, ReceiveMode, Receiver};
use peeklock_types::partition_of_key;
use tokio::time::timeout;

use super::{Party, any_case, body, group_name, reader, some_partition};
use crate::client::{Connected, PATIENCE, ask};
use crate::log::{Answer, Event, HubEvent, ReadEnd, ReadEvent, Refusal};
use crate::scenario::{HubReader, Publisher};

pub(super) const SENDS_PER_CONNECTION_MAX: u32 = 100;
const KEYS: u32 = 20;
const PARTITION_KEY: &str = "x-opt-partition-key";
const LOOKS_MAX: u32 = 60;
const SILENCE: Duration = Duration::from_secs(5);
/// The timeout for more events, so short that only arrived events are taken.
const AT_ONCE: Duration = Duration::from_millis(1);

pub(super) fn hub_address(party: &mut Party) -> String {
    let name = party.hub().name.clone();
    any_case(&name, &mut party.rng)
}

pub(crate) async fn publish(mut party: Party, spec: Publisher) {
    while !party.is_over() {
        let connected = party.connect().await;
        publish_on(&mut party, &spec, &connected).await;
        drop(connected);
        party.pause().await;
    }
}

/// Publishes by key only while the number of partitions is fixed, because it decides the partition of a key.
async fn publish_on(party: &mut Party, spec: &Publisher, connected: &Connected) {
    let count = party.hub().settings.partition_count;
    let is_keyed = spec.is_keyed && party.hub().partition_count_max == count;
    let own = some_partition(party, spec.partition);
    let name = hub_address(party);
    let address = if is_keyed { name } else { format!("{name}/Partitions/{own}") };
    let (Some(sender), _) = ask(connected.client.sender(&address)).await else { return };
    for _ in 0..party.rng.u32(1..=SENDS_PER_CONNECTION_MAX) {
        party.pause_up_to(spec.pause_ms_max).await;
        let key = is_keyed.then(|| format!("key-{}", party.rng.u32(0..KEYS)));
        let partition = key.as_deref().map_or(own, |key| partition_of_key(key, count));
        let batch = if is_keyed || party.rng.bool() { 1 } else { party.rng.usize(1..=spec.batch_max) };
        let first = party.world.log.next_message(u32::try_from(batch).unwrap_or(1));
        let events: Vec<_> = (first..).take(batch).collect();
        let mut messages = Vec::new();
        for number in &events {
            let mut message = body::message(*number, party.rng.usize(0..=spec.body_bytes_max));
            if let Some(key) = &key {
                message.message_annotations.insert(PARTITION_KEY, key.clone());
            }
            messages.push(message);
        }
        let (request, run, numbered) = (party.world.log.next_request(), connected.run, None);
        let size_bytes = 64 + (spec.body_bytes_max as u64 + 64) * batch as u64;
        party.log_hub(HubEvent::Publishing { request, partition, events, numbered, size_bytes, run });
        let (_, answer) = match messages.as_slice() {
            [single] => ask(sender.send(single)).await,
            batch => ask(sender.send_batch(batch)).await,
        };
        let is_over = answer == Answer::Unknown;
        party.log_hub(HubEvent::Published { request, answer });
        if is_over {
            return;
        }
    }
}

pub(crate) async fn read(mut party: Party, spec: HubReader) {
    let mut last = None;
    let mut partition = some_partition(&mut party, spec.partition);
    while !party.is_over() {
        let connected = party.connect().await;
        if party.rng.u32(0..4) == 0 {
            (partition, last) = (some_partition(&mut party, spec.partition), None);
        }
        let start = reader::start(&mut party, last);
        let link = party.world.log.next_request();
        match open(&mut party, &spec, &connected, (link, partition, start)).await {
            Some(receiver) => follow(&mut party, &spec, receiver, link, &mut last).await,
            None => last = None,
        }
        drop(connected);
        party.pause().await;
    }
}

async fn open(
    party: &mut Party,
    spec: &HubReader,
    connected: &Connected,
    (link, partition, start): (u32, u32, StartAt),
) -> Option<Receiver> {
    let (group, level, run) = (spec.group, spec.level, connected.run);
    let is_wired = true;
    party.log_hub(HubEvent::Opening { link, group, partition, start, level, run, is_wired });
    let address = format!(
        "{}/ConsumerGroups/{}/Partitions/{partition}",
        hub_address(party),
        group_name(group, &mut party.rng)
    );
    let builder = connected.client.receiver(&address).mode(ReceiveMode::ReceiveAndDelete).credit(spec.credit);
    let builder = builder.selector(selector(party, start));
    let builder = if let Some(level) = level { builder.owner_level(level) } else { builder };
    match timeout(PATIENCE, builder.open()).await {
        Ok(Ok(receiver)) => {
            party.log_hub(HubEvent::Opened { link });
            Some(receiver)
        }
        Ok(Err(error)) => {
            party.log_hub(HubEvent::NotOpened { link, refusal: refusal(&error) });
            None
        }
        Err(_) => {
            party.log_hub(HubEvent::NotOpened { link, refusal: None });
            None
        }
    }
}

fn selector(party: &mut Party, start: StartAt) -> String {
    let by_offset = party.rng.bool();
    let name = if by_offset { "x-opt-offset" } else { "x-opt-sequence-number" };
    let sign = |inclusive: bool| if inclusive { ">=" } else { ">" };
    match start {
        StartAt::Earliest => "amqp.annotation.x-opt-offset > '-1'".to_owned(),
        StartAt::Latest => "amqp.annotation.x-opt-offset > '@latest'".to_owned(),
        StartAt::Sequence { sequence, inclusive } => {
            format!("amqp.annotation.{name} {} '{sequence}'", sign(inclusive))
        }
        StartAt::Time { at, inclusive } => {
            format!("amqp.annotation.x-opt-enqueued-time {} '{}'", sign(inclusive), at.as_millis())
        }
    }
}

async fn follow(
    party: &mut Party,
    spec: &HubReader,
    mut receiver: Receiver,
    link: u32,
    last: &mut Option<u64>,
) {
    for _ in 0..party.rng.u32(1..=LOOKS_MAX) {
        let (mut events, mut ended, mut wait) = (Vec::new(), None, SILENCE);
        loop {
            match timeout(wait, receiver.next()).await {
                Ok(Ok(Some(delivery))) => events.extend(note(party, &delivery)),
                Ok(Ok(None)) => ended = Some(ReadEnd::Lost),
                Ok(Err(error)) => ended = Some(read_end(&error)),
                Err(_) => break,
            }
            if ended.is_some() {
                break;
            }
            wait = AT_ONCE;
        }
        if !events.is_empty() {
            *last = events.last().map(|event| event.sequence);
            party.log_hub(HubEvent::Read { link, events });
        }
        if let Some(how) = ended {
            return party.log_hub(HubEvent::ReadEnded { link, how });
        }
        party.pause_up_to(spec.work_ms_max).await;
    }
    party.log_hub(HubEvent::ReadEnded { link, how: ReadEnd::Left });
    if party.rng.bool() {
        let _ = ask(receiver.close()).await;
    }
}

fn note(party: &Party, delivery: &Delivery) -> Option<ReadEvent> {
    let Ok(message) = delivery.message() else {
        party.log(Event::Trouble { what: "an event cannot be read".to_owned() });
        return None;
    };
    let (number, is_intact) = body::read(delivery.payload());
    let sequence = message.sequence_number().map_or(u64::MAX - 1, |number| number.0);
    let enqueued_ms = message.enqueued_at().map_or(0, |at| at.as_millis());
    Some(ReadEvent { sequence, enqueued_ms, number, is_intact })
}

/// Returns the number after these words.
fn number_after(text: &str, words: &str) -> Option<i64> {
    let rest = text.split_once(words)?.1;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

fn told(error: &Error) -> Option<&AmqpError> {
    match error {
        Error::LinkLost { error, .. } => Some(error),
        _ => None,
    }
}

fn refusal(error: &Error) -> Option<Refusal> {
    if let Error::NotFound { .. } = error {
        return Some(Refusal::Missing);
    }
    let error = told(error)?;
    let text = error.to_string();
    let other = || Refusal::Other(text.clone());
    Some(match error.condition.as_str() {
        condition::STOLEN => {
            let without = number_after(&text, "is created with epoch of '");
            let current = without.or_else(|| number_after(&text, "with a higher epoch '"));
            current.map_or_else(other, |current| Refusal::OwnerLevel { current })
        }
        condition::RESOURCE_LIMIT_EXCEEDED => Refusal::TooMany,
        condition::ARGUMENT_OUT_OF_RANGE if text.contains("specified partition is invalid") => {
            Refusal::Missing
        }
        condition::ARGUMENT_OUT_OF_RANGE if text.contains("beyond the end") => {
            number_after(&text, "last event has sequence number ")
                .map_or_else(other, |last| Refusal::BeyondEnd { last })
        }
        condition::ARGUMENT_OUT_OF_RANGE => {
            let first =
                number_after(&text, "there has sequence number ").and_then(|first| u64::try_from(first).ok());
            first.map_or_else(other, |first| Refusal::Expired { first })
        }
        condition::DETACH_FORCED | condition::CONNECTION_FORCED => return None,
        _ => other(),
    })
}

fn read_end(error: &Error) -> ReadEnd {
    if let Error::NotFound { .. } = error {
        return ReadEnd::Deleted;
    }
    let Some(error) = told(error) else { return ReadEnd::Lost };
    let text = error.to_string();
    let number = |words| number_after(&text, words).and_then(|number| u64::try_from(number).ok());
    match error.condition.as_str() {
        condition::STOLEN => ReadEnd::Stolen,
        condition::ARGUMENT_OUT_OF_RANGE => match (number(": event "), number("the oldest is ")) {
            (Some(next), Some(first)) => ReadEnd::Expired { next, first },
            _ => ReadEnd::Other(text),
        },
        condition::DETACH_FORCED | condition::CONNECTION_FORCED => ReadEnd::Lost,
        _ => ReadEnd::Other(text),
    }
}
