//! Programs that send. A send without a confirmation may have been stored; the SDK repeats it before that.

use std::sync::Arc;
use std::time::Duration;

use peeklock::{Backoff, Client, Message};
use tokio::time::timeout;

use super::line::Line;
use crate::client::producer::{apply, session_for};
use crate::client::{Party, World, body};
use crate::log::{Answer, Event, MessageNumber, Terms};
use crate::scenario::programs::{BATCH_MAX, BODY_BYTES_MAX, Sender};
use crate::scenario::{Flaw, Target};

const SENDS_PER_PROGRAM_MAX: u32 = 200;
/// One send in this many is given up by its caller.
const GIVEN_UP_ONE_IN: u32 = 20;
const GIVEN_UP_AFTER_MS_MAX: u64 = 100;

/// Sends until the storm is over.
pub(super) async fn send(mut party: Party, spec: Sender) {
    while !party.is_over() {
        if let Some(mailer) = Mailer::open(&mut party, spec.queue, backoff(&spec)).await {
            send_with(&mut party, &spec, mailer).await;
        }
        party.pause().await;
    }
}

fn backoff(spec: &Sender) -> Backoff {
    spec.attempts_max.map_or_else(Backoff::default, |max| Backoff::default().attempts(max))
}

/// Sends with one program, to its orderly or sudden end.
async fn send_with(party: &mut Party, spec: &Sender, mailer: Mailer) {
    for _ in 0..party.rng.u32(1..=SENDS_PER_PROGRAM_MAX) {
        let pause = Duration::from_millis(party.rng.u64(0..=spec.pause_ms_max));
        if !super::live(&party.world, pause).await {
            break;
        }
        let count = if party.rng.bool() { 1 } else { party.rng.usize(1..=BATCH_MAX) };
        let gives_up = party.rng.u32(0..GIVEN_UP_ONE_IN) == 0;
        let patience = gives_up.then(|| Duration::from_millis(party.rng.u64(0..=GIVEN_UP_AFTER_MS_MAX)));
        mailer.send(party, count, patience).await;
    }
    if party.rng.bool() { mailer.client.close().await } else { mailer.line.kill() }
}

/// A sender of the SDK, which logs its sends.
pub(crate) struct Mailer {
    world: Arc<World>,
    name: Arc<str>,
    queue: usize,
    sender: peeklock::Sender,
    client: Client,
    line: Arc<Line>,
}

impl Mailer {
    /// Connects. Returns `None` if the broker could not be reached.
    pub(crate) async fn open(party: &mut Party, queue: usize, backoff: Backoff) -> Option<Self> {
        let line = Line::new(party);
        let client = line.connect(backoff).await?;
        let sender = client.sender(party.world.queue_name(queue)).await.ok()?;
        Some(Mailer {
            world: Arc::clone(&party.world),
            name: Arc::clone(&party.name),
            queue,
            sender,
            client,
            line,
        })
    }

    fn log(&self, event: Event) {
        self.world.log.add(&self.name, event);
    }

    /// Sends so many messages together. With a patience, the caller stops to wait after that time. Returns their numbers.
    pub(crate) async fn send(
        &self,
        party: &mut Party,
        count: usize,
        patience: Option<Duration>,
    ) -> Vec<MessageNumber> {
        let target = Target::Queue(self.queue);
        let numbers: Vec<_> = (0..count).map(|_| self.world.next_message(target)).collect();
        let terms = Terms { session: session_for(party, target), ..Terms::default() };
        let mut message = |number: &MessageNumber| {
            let message = body::message(*number, party.rng.usize(0..=BODY_BYTES_MAX), target);
            Message::from(apply(message, &terms))
        };
        let messages: Vec<_> = numbers.iter().map(&mut message).collect();
        let (request, logged) = (self.world.log.next_request(), numbers.clone());
        self.log(Event::Sending { request, target, messages: logged, terms });
        let sending = async {
            match <[Message; 1]>::try_from(messages) {
                Ok([single]) => self.sender.send(single).await,
                Err(batch) => self.sender.send_batch(batch).await,
            }
        };
        let is_confirmed = match patience {
            Some(patience) => matches!(timeout(patience, sending).await, Ok(Ok(()))),
            None => sending.await.is_ok(),
        };
        let flaw = self.world.scenario.programs.as_ref().and_then(|programs| programs.flaw);
        // An error of the last attempt says nothing about the earlier ones, and a send that was given up may still leave: without a
        // confirmation the messages may be stored at any time.
        if is_confirmed || flaw == Some(Flaw::CountsUnconfirmed) {
            self.log(Event::Sent { request, answer: Answer::Done });
        }
        numbers
    }

    pub(crate) async fn close(self) {
        self.client.close().await;
    }
}
