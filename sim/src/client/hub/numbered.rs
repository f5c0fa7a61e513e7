//! Publishers that number their events, over AMQP. They repeat every send with an unknown outcome, and the broker
//! stores it once.

use peeklock_client::Producer;
use tokio::time::timeout;

use super::publisher::{Numbers, Shipment};
use super::wire::{SENDS_PER_CONNECTION_MAX, hub_address};
use super::{Party, body, some_partition};
use crate::client::{Connected, PATIENCE, ask};
use crate::log::{Answer, Event, HubEvent};
use crate::scenario::Publisher;

pub(crate) async fn publish(mut party: Party, spec: Publisher, id: i64) {
    let mut numbers = Numbers::new(id);
    let mut unsure = None;
    while !party.is_over() {
        let connected = party.connect().await;
        // The epoch rises only when all sends are known to be stored: a new epoch rejects sends that are still in
        // flight.
        if unsure.is_none() && party.rng.u32(0..8) == 0 {
            numbers.epoch = numbers.epoch.saturating_add(1);
        }
        publish_on(&mut party, &spec, &connected, &mut numbers, &mut unsure).await;
        drop(connected);
        party.pause().await;
    }
}

async fn publish_on(
    party: &mut Party,
    spec: &Publisher,
    connected: &Connected,
    numbers: &mut Numbers,
    unsure: &mut Option<Shipment>,
) {
    let partition = match unsure {
        Some(shipment) => shipment.partition,
        None => some_partition(party, spec.partition),
    };
    let producer = Producer { id: numbers.id, epoch: numbers.epoch };
    let address = format!("{}/Partitions/{partition}", hub_address(party));
    let opened = timeout(PATIENCE, connected.client.producer(&address, producer)).await;
    // No other publisher has this id, and the epoch never falls.
    if let Ok(Err(why)) = &opened
        && why.to_string().contains("is too low")
    {
        party.log(Event::Trouble { what: format!("{producer:?}: {why}") });
    }
    let Ok(Ok(sender)) = opened else { return };
    // The broker returns its last number, so stored events need no repetition.
    let is_there =
        unsure.as_ref().is_some_and(|unsure| unsure.last_number() == sender.last_number().map(i64::from));
    if is_there && party.rng.bool() {
        *unsure = None;
    }
    for _ in 0..party.rng.u32(1..=SENDS_PER_CONNECTION_MAX) {
        party.pause_up_to(spec.pause_ms_max).await;
        let shipment = unsure.take().unwrap_or_else(|| Shipment::to(party, spec, numbers, partition));
        let (request, run, size_bytes) =
            (party.world.log.next_request(), connected.run, shipment.size_bytes());
        let (events, numbered) =
            (shipment.events.iter().map(|(number, _)| *number).collect(), shipment.numbered);
        party.log_hub(HubEvent::Publishing { request, partition, events, numbered, size_bytes, run });
        let messages = messages(&shipment, producer);
        let (_, answer) = match messages.as_slice() {
            [single] => ask(sender.send(single)).await,
            batch => ask(sender.send_batch(batch)).await,
        };
        party.log_hub(HubEvent::Published { request, answer: answer.clone() });
        if answer != Answer::Done {
            *unsure = Some(shipment);
        }
        if answer == Answer::Unknown {
            return;
        }
    }
}

fn messages(shipment: &Shipment, producer: Producer) -> Vec<peeklock_client::Message> {
    let first = shipment.numbered.map_or(0, |numbered| numbered.first);
    let numbers = (0_i32..).map(|place| first.wrapping_add(place) & i32::MAX);
    let message =
        |((event, size), number): (&(u32, usize), i32)| producer.number(body::message(*event, *size), number);
    shipment.events.iter().zip(numbers).map(message).collect()
}
