//! Publishes events: single ones, batches, by key or to a partition, and with numbers by which the broker recognises a
//! repeat.

use std::collections::BTreeMap;

use super::{Line, Party, some_partition};
use crate::log::{Answer, EventNumber, HubEvent, Numbered};
use crate::scenario::Publisher;

const SENDS_PER_LINE_MAX: u32 = 100;
const KEYS: u32 = 20;

/// Events in flight, until their outcome is known.
#[derive(Clone)]
pub(super) struct Shipment {
    pub(super) partition: u32,
    pub(super) events: Vec<(EventNumber, usize)>,
    pub(super) numbered: Option<Numbered>,
}

/// The state of a publisher that numbers its events.
pub(super) struct Numbers {
    pub(super) id: i64,
    pub(super) epoch: i16,
    next: BTreeMap<u32, i32>,
}

pub(crate) async fn publish(mut party: Party, spec: Publisher, id: i64) {
    let mut numbers = Numbers::new(id);
    let mut unsure: Option<Shipment> = None;
    while !party.is_over() {
        let mut line = Line::open(&mut party).await;
        if unsure.is_some() && party.rng.u32(0..4) == 0 {
            ask_back(&mut party, &mut line, &mut numbers, &mut unsure).await;
        }
        for _ in 0..party.rng.u32(1..=SENDS_PER_LINE_MAX) {
            party.pause_up_to(spec.pause_ms_max).await;
            let shipment =
                unsure.take().unwrap_or_else(|| Shipment::new(&mut party, &spec, &mut numbers, &line));
            match ship(&mut party, &mut line, &shipment).await {
                Answer::Done => {}
                // A send that was rejected because the disk is full has not used its numbers.
                Answer::Refused { .. } => unsure = shipment.numbered.is_some().then_some(shipment),
                Answer::Unknown => {
                    unsure = (shipment.numbered.is_some() || party.rng.bool()).then_some(shipment);
                    break;
                }
            }
        }
        drop(line);
        party.pause().await;
    }
}

async fn ship(party: &mut Party, line: &mut Line, shipment: &Shipment) -> Answer {
    let request = party.world.log.next_request();
    let Shipment { partition, events, numbered } = shipment.clone();
    let size_bytes = shipment.size_bytes();
    let numbers = events.iter().map(|(number, _)| *number).collect();
    let run = line.run;
    party.log_hub(HubEvent::Publishing { request, partition, events: numbers, numbered, size_bytes, run });
    let answer = line.publish(partition, &events, numbered).await;
    party.log_hub(HubEvent::Published { request, answer: answer.clone() });
    answer
}

impl Shipment {
    fn new(party: &mut Party, spec: &Publisher, numbers: &mut Numbers, line: &Line) -> Shipment {
        let mut partition = some_partition(party, spec.partition);
        if spec.is_keyed {
            partition = party.rng.u32(0..KEYS) % line.partition_count();
        }
        Shipment::to(party, spec, numbers, partition)
    }

    pub(super) fn to(party: &mut Party, spec: &Publisher, numbers: &mut Numbers, partition: u32) -> Shipment {
        let count = if party.rng.bool() { 1 } else { party.rng.usize(1..=spec.batch_max) };
        let first = party.world.log.next_message(u32::try_from(count).unwrap_or(1));
        let size = |party: &mut Party| party.rng.usize(0..=spec.body_bytes_max);
        let events = (first..).take(count).map(|number| (number, size(party))).collect();
        let numbered = spec.is_numbered.then(|| numbers.take(partition, count));
        Shipment { partition, events, numbered }
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.events.iter().map(|(_, size)| *size as u64 + 16).sum::<u64>() + 64
    }

    /// Returns the number of the last event.
    pub(super) fn last_number(&self) -> Option<i64> {
        let first = i64::from(self.numbered?.first);
        Some((first + self.events.len() as i64 - 1) & i64::from(i32::MAX))
    }
}

impl Numbers {
    pub(super) fn new(id: i64) -> Numbers {
        Numbers { id, epoch: 0, next: BTreeMap::new() }
    }

    fn take(&mut self, partition: u32, count: usize) -> Numbered {
        // Close to the largest number, so that numbers wrap in some runs.
        let next = self.next.entry(partition).or_insert(i32::MAX - 50);
        let first = *next;
        let after = (i64::from(first) + count as i64) & i64::from(i32::MAX);
        *next = i32::try_from(after).unwrap_or(0);
        Numbered { id: self.id, epoch: self.epoch, first }
    }
}

/// Requests the last stored number, and continues from there with a new epoch, which rejects sends that are still in
/// flight.
async fn ask_back(party: &mut Party, line: &mut Line, numbers: &mut Numbers, unsure: &mut Option<Shipment>) {
    let Some(shipment) = unsure.clone() else { return };
    let last = shipment.last_number();
    let Shipment { partition, numbered: Some(numbered), events } = shipment else { return };
    let Some(known) = line.last_number(partition, numbers.id).await else { return };
    let has_all =
        known.is_some_and(|(epoch, found)| epoch == numbered.epoch && Some(i64::from(found)) == last);
    if has_all {
        *unsure = None;
    } else if party.rng.bool() {
        // An old send must not be stored late: the broker accepts only the new epoch from its first use on.
        numbers.epoch = numbers.epoch.saturating_add(1);
        *unsure = Some(Shipment {
            partition,
            events,
            numbered: Some(Numbered { epoch: numbers.epoch, ..numbered }),
        });
    }
}
