//! Sends single messages, batches and bursts, and notes what it was told.

use std::sync::Arc;

use peeklock_client::{Message, Sender};
use tokio::task::JoinSet;

use super::{Connected, Party, ask, body};
use crate::log::{Answer, Event};
use crate::scenario::Producer;

/// After so many sends a producer connects anew.
const SENDS_PER_CONNECTION_MAX: u32 = 200;

pub(crate) async fn produce(mut party: Party, spec: Producer) {
    while !party.is_over() {
        let connected = party.connect().await;
        send_on(&mut party, &spec, &connected).await;
        drop(connected);
        party.pause().await;
    }
}

/// Sends until something is wrong with the connection.
async fn send_on(party: &mut Party, spec: &Producer, connected: &Connected) {
    let queue = party.world.queue_name(spec.queue).to_owned();
    let (Some(sender), _) = ask(connected.client.sender(&queue)).await else { return };
    for _ in 0..party.rng.u32(1..=SENDS_PER_CONNECTION_MAX) {
        party.pause_up_to(spec.pause_ms_max).await;
        let mut under_way = JoinSet::new();
        for _ in 0..party.rng.usize(1..=spec.burst_max) {
            under_way.spawn(send(party, spec, sender.clone()));
        }
        while let Some(answer) = under_way.join_next().await {
            if !matches!(answer, Ok(Answer::Done | Answer::Refused { .. })) {
                return;
            }
        }
    }
}

/// One message, or several as one.
fn send(party: &mut Party, spec: &Producer, sender: Sender) -> impl Future<Output = Answer> + Send + use<> {
    let count = if party.rng.bool() { 1 } else { party.rng.usize(1..=spec.batch_max) };
    let numbers: Vec<_> = (0..count).map(|_| party.world.log.next_message()).collect();
    let messages: Vec<Message> = numbers
        .iter()
        .map(|number| body::message(*number, party.rng.usize(0..=spec.body_bytes_max)))
        .collect();
    let request = party.world.log.next_request();
    let (log, name) = (party.world.log.clone(), Arc::clone(&party.name));
    log.add(&name, Event::Sending { request, queue: spec.queue, messages: numbers });
    async move {
        let (_, answer) = match messages.as_slice() {
            [single] => ask(sender.send(single)).await,
            batch => ask(sender.send_batch(batch)).await,
        };
        log.add(&name, Event::Sent { request, answer: answer.clone() });
        answer
    }
}
