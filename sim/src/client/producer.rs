//! Sends single messages, batches and bursts, immediate or scheduled, sometimes twice, and logs the answers.

use std::sync::Arc;
use std::time::Duration;

use peeklock_client::{Message, MessageExt, Sender};
use tokio::task::JoinSet;

use super::{Connected, Party, World, ask, body, session_id};
use crate::log::{Answer, Event, MessageNumber, Terms};
use crate::scenario::{Producer, Target};

/// The largest number of sends on one connection. Then a producer reconnects.
const SENDS_PER_CONNECTION_MAX: u32 = 200;
/// The longest delay of a repeated send, well inside of every duplicate window.
const REPEAT_AFTER_MS_MAX: u64 = 4_000;

pub(crate) async fn produce(mut party: Party, spec: Producer) {
    while !party.is_over() {
        let connected = party.connect().await;
        send_on(&mut party, &spec, &connected).await;
        drop(connected);
        party.pause().await;
    }
}

/// Sends until the connection fails.
async fn send_on(party: &mut Party, spec: &Producer, connected: &Connected) {
    let target = party.world.scenario.target_name(spec.target).to_owned();
    let (Some(sender), _) = ask(connected.client.sender(&target)).await else { return };
    for _ in 0..party.rng.u32(1..=SENDS_PER_CONNECTION_MAX) {
        party.pause_up_to(spec.pause_ms_max).await;
        let mut under_way = JoinSet::new();
        for _ in 0..party.rng.usize(1..=spec.burst_max) {
            under_way.spawn(Shipment::new(party, spec, sender.clone()).ship());
        }
        while let Some(answer) = under_way.join_next().await {
            if !matches!(answer, Ok(Answer::Done | Answer::Refused { .. })) {
                return;
            }
        }
    }
}

/// One message or one batch, with its log entries.
struct Shipment {
    world: Arc<World>,
    name: Arc<str>,
    sender: Sender,
    target: Target,
    numbers: Vec<MessageNumber>,
    messages: Vec<Message>,
    terms: Terms,
    repeats_after_ms: Option<u64>,
    cancels_after_ms: Option<u64>,
}

impl Shipment {
    fn new(party: &mut Party, spec: &Producer, sender: Sender) -> Self {
        let terms = terms(party, spec);
        let rng = &mut party.rng;
        let is_large = spec.large_one_in > 0 && rng.u32(0..spec.large_one_in) == 0;
        let count = if is_large || rng.bool() { 1 } else { rng.usize(1..=spec.batch_max) };
        let bytes_max = if is_large { spec.large_bytes_max } else { spec.body_bytes_max };
        let numbers: Vec<_> = (0..count).map(|_| party.world.next_message(spec.target)).collect();
        let messages = numbers
            .iter()
            .map(|number| apply(body::message(*number, rng.usize(0..=bytes_max), spec.target), &terms));
        let messages = messages.collect();
        let settings = party.world.scenario.target_settings(spec.target);
        let has_window = settings.is_some_and(|settings| settings.duplicate_window.is_some());
        let repeats = has_window && rng.u32(0..4) == 0;
        let cancels = terms.due_ms.is_some() && rng.u32(0..3) == 0;
        Shipment {
            world: Arc::clone(&party.world),
            name: Arc::clone(&party.name),
            sender,
            target: spec.target,
            numbers,
            messages,
            terms,
            repeats_after_ms: repeats.then(|| rng.u64(0..REPEAT_AFTER_MS_MAX)),
            cancels_after_ms: cancels.then(|| rng.u64(0..spec.ahead_ms_max.max(1))),
        }
    }

    async fn ship(self) -> Answer {
        let answer = if self.terms.due_ms.is_some() { self.schedule().await } else { self.send().await };
        if let Some(after_ms) = self.repeats_after_ms {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            return self.send().await;
        }
        answer
    }

    fn log(&self, event: Event) {
        self.world.log.add(&self.name, event);
    }

    fn note_sending(&self) -> u32 {
        let request = self.world.log.next_request();
        let (target, messages, terms) = (self.target, self.numbers.clone(), self.terms);
        self.log(Event::Sending { request, target, messages, terms });
        request
    }

    async fn send(&self) -> Answer {
        let request = self.note_sending();
        let (_, answer) = match self.messages.as_slice() {
            [single] => ask(self.sender.send(single)).await,
            batch => ask(self.sender.send_batch(batch)).await,
        };
        self.log(Event::Sent { request, answer: answer.clone() });
        answer
    }

    async fn schedule(&self) -> Answer {
        let request = self.note_sending();
        let (numbers, answer) = ask(self.sender.schedule(&self.messages)).await;
        self.log(Event::Sent { request, answer: answer.clone() });
        let (Some(numbers), Some(after_ms)) = (numbers, self.cancels_after_ms) else { return answer };
        tokio::time::sleep(Duration::from_millis(after_ms)).await;
        let request = self.world.log.next_request();
        self.log(Event::Cancelling { request, messages: self.numbers.clone() });
        let (_, answer) = ask(self.sender.cancel_scheduled(&numbers)).await;
        self.log(Event::Cancelled { request, answer: answer.clone() });
        answer
    }
}

fn terms(party: &mut Party, spec: &Producer) -> Terms {
    let session = session_for(party, spec.target);
    let rng = &mut party.rng;
    let lives_ms = spec.lives_ms_max > 0 && rng.u32(0..3) == 0;
    let waits_ms = spec.ahead_ms_max > 0 && rng.u32(0..3) == 0;
    Terms {
        session,
        time_to_live_ms: lives_ms.then(|| rng.u64(1..=spec.lives_ms_max)),
        due_ms: waits_ms.then(|| party.world.log.now_ms() + rng.u64(0..=spec.ahead_ms_max)),
        transaction: None,
    }
}

/// Returns a random session, if the target has sessions.
pub(super) fn session_for(party: &mut Party, target: Target) -> Option<u32> {
    let count = party.world.scenario.session_count(target);
    (count > 0).then(|| party.rng.u32(0..count))
}

/// Adds the properties of the terms to the message.
pub(super) fn apply(mut message: Message, terms: &Terms) -> Message {
    if let Some(session) = terms.session {
        message = message.with_session_id(session_id(session));
    }
    if let Some(ms) = terms.time_to_live_ms {
        message = message.with_time_to_live(Duration::from_millis(ms));
    }
    if let Some(due_ms) = terms.due_ms {
        let at = peeklock_client::Timestamp::from_millis(crate::machine::WALL_START_MS + due_ms);
        message = message.with_scheduled_time(at);
    }
    message
}
