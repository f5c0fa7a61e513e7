//! Competing consumers: they complete, abandon, defer, renew, forget, come late, and say things twice.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use peeklock_client::{Client, Delivery, LockToken, Outcome, ReceiveMode, Receiver, SequenceNumber};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Connected, PATIENCE, Party, World, ask, seen};
use crate::log::{Answer, Event, Part, QueueIndex, Seen};
use crate::scenario::{Consumer, Habits};

/// What is done with one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Complete,
    Abandon,
    Defer,
    DeadLetter,
    Release,
    Renew,
    Forget,
    Late,
    Twice,
}

impl Habits {
    fn choose(&self, rng: &mut Rng) -> Deed {
        let weights = [
            (self.complete, Deed::Complete),
            (self.abandon, Deed::Abandon),
            (self.defer, Deed::Defer),
            (self.dead_letter, Deed::DeadLetter),
            (self.release, Deed::Release),
            (self.renew, Deed::Renew),
            (self.forget, Deed::Forget),
            (self.late, Deed::Late),
            (self.twice, Deed::Twice),
        ];
        let total: u32 = weights.iter().map(|(weight, _)| weight).sum();
        let mut at = rng.u32(0..total.max(1));
        for (weight, deed) in weights {
            if at < weight {
                return deed;
            }
            at -= weight;
        }
        Deed::Complete
    }
}

/// One who handles deliveries; several do at the same time.
#[derive(Clone)]
struct Worker {
    world: Arc<World>,
    name: Arc<str>,
    client: Client,
    queue: QueueIndex,
    part: Part,
    lock: Duration,
}

pub(crate) async fn consume(mut party: Party, spec: Consumer) {
    let part = if spec.from_dead_letters { Part::DeadLetter } else { Part::Main };
    while !party.is_over() {
        let connected = party.connect().await;
        let worker = Worker {
            world: Arc::clone(&party.world),
            name: Arc::clone(&party.name),
            client: connected.client.clone(),
            queue: spec.queue,
            part,
            lock: party.world.scenario.queues.get(spec.queue).map_or(PATIENCE, |q| q.settings.lock_duration),
        };
        receive_on(&mut party, &spec, &connected, &worker).await;
        drop(connected);
        party.pause().await;
    }
}

async fn receive_on(party: &mut Party, spec: &Consumer, connected: &Connected, worker: &Worker) {
    let builder = connected.client.receiver(party.world.queue_name(spec.queue)).credit(spec.credit);
    let builder = if worker.part == Part::DeadLetter { builder.dead_letter() } else { builder };
    let (Some(mut receiver), _) = ask(builder.open()).await else { return };
    let mut working = JoinSet::new();
    for _ in 0..party.rng.u32(1..300) {
        match timeout(Duration::from_secs(5), receiver.next()).await {
            Ok(Ok(Some(delivery))) => {
                let Some(seen) = worker.note(&delivery, connected.run) else { continue };
                let (deed, work) = (spec.habits.choose(&mut party.rng), party.rng.u64(0..=spec.work_ms_max));
                let rng = party.rng.fork();
                working.spawn(worker.clone().handle(delivery, seen, deed, Duration::from_millis(work), rng));
            }
            Ok(Ok(None) | Err(_)) => return,
            Err(_) if spec.fetches_deferred => {
                working.spawn(worker.clone().fetch(connected.run, party.rng.fork()));
            }
            Err(_) => {}
        }
        while working.try_join_next().is_some() {}
    }
    leave(party, receiver, working).await;
}

/// Some leave in order, after their work; others just go.
async fn leave(party: &mut Party, receiver: Receiver, mut working: JoinSet<()>) {
    if party.rng.bool() {
        let _ = timeout(PATIENCE, async { while working.join_next().await.is_some() {} }).await;
        let _ = ask(receiver.close()).await;
    }
}

impl Worker {
    fn log(&self, event: Event) {
        self.world.log.add(&self.name, event);
    }

    fn note(&self, delivery: &Delivery, run: u32) -> Option<Seen> {
        match delivery.message() {
            Ok(message) => {
                let seen = seen(&message, self.queue, self.part, run);
                self.log(Event::Received(seen.clone()));
                Some(seen)
            }
            Err(error) => {
                self.log(Event::Trouble { what: format!("a delivery cannot be read: {error}") });
                None
            }
        }
    }

    async fn handle(self, delivery: Delivery, seen: Seen, deed: Deed, work: Duration, mut rng: Rng) {
        let Some(token) = seen.token else { return };
        tokio::time::sleep(work).await;
        match deed {
            Deed::Forget => tokio::time::sleep(self.lock * 2).await,
            Deed::Renew => {
                for _ in 0..rng.u32(1..4) {
                    tokio::time::sleep(self.lock.mul_f64(rng.f64())).await;
                    self.renew(token).await;
                }
                self.settle(delivery, token, Outcome::Complete).await;
            }
            Deed::Late => {
                // Around the end of the lock, where both answers are possible.
                tokio::time::sleep(self.lock.mul_f64(0.8 + 0.4 * rng.f64())).await;
                self.settle(delivery, token, Outcome::Complete).await;
            }
            Deed::Twice => {
                let outcome = if rng.bool() { Outcome::Complete } else { Outcome::Abandon };
                let again = self.settle_by_token(token, Outcome::Complete);
                if rng.bool() {
                    tokio::join!(biased; self.settle(delivery, token, outcome), again);
                } else {
                    self.settle(delivery, token, outcome).await;
                    again.await;
                }
            }
            Deed::Defer => {
                self.settle(delivery, token, Outcome::Defer).await;
                self.world.note_deferred(self.queue, self.part, seen.sequence_number);
            }
            Deed::Complete => self.settle(delivery, token, Outcome::Complete).await,
            Deed::Abandon => self.settle(delivery, token, Outcome::Abandon).await,
            Deed::Release => self.settle(delivery, token, Outcome::Release).await,
            Deed::DeadLetter => {
                let (reason, description) = ("Simulated".to_owned(), "by choice".to_owned());
                self.settle(delivery, token, Outcome::DeadLetter { reason, description }).await;
            }
        }
    }

    async fn settle(&self, delivery: Delivery, token: LockToken, outcome: Outcome) {
        let request = self.world.log.next_request();
        self.log(Event::Settling { request, token, outcome: outcome.clone() });
        let (_, answer) = ask(delivery.settle(outcome)).await;
        self.log(Event::Settled { request, answer });
    }

    async fn settle_by_token(&self, token: LockToken, outcome: Outcome) {
        let request = self.world.log.next_request();
        self.log(Event::Settling { request, token, outcome: outcome.clone() });
        let entity = self.world.entity(self.queue, self.part);
        let (_, answer) = ask(self.client.settle(&entity, &[token], outcome)).await;
        self.log(Event::Settled { request, answer });
    }

    async fn renew(&self, token: LockToken) {
        let request = self.world.log.next_request();
        self.log(Event::Renewing { request, token });
        let entity = self.world.entity(self.queue, self.part);
        let (until, answer) = ask(self.client.renew(&entity, &[token])).await;
        let until_ms = until.and_then(|until| until.first().copied()).map_or(0, |until| until.as_millis());
        self.log(Event::Renewed { request, answer, until_ms });
    }

    /// Asks for deferred messages by their numbers, and settles what it gets.
    async fn fetch(self, run: u32, mut rng: Rng) {
        let numbers = self.world.some_deferred(self.queue, self.part, &mut rng);
        if numbers.is_empty() {
            return;
        }
        let asked: Vec<_> = numbers.iter().map(|number| SequenceNumber(*number)).collect();
        let entity = self.world.entity(self.queue, self.part);
        let (found, answer) = ask(self.client.receive_deferred(&entity, &asked, ReceiveMode::PeekLock)).await;
        if let (Answer::Refused { .. }, [single]) = (&answer, numbers.as_slice()) {
            self.world.forget_deferred(self.queue, self.part, *single);
        }
        for message in found.unwrap_or_default() {
            let seen = Seen { by_number: true, ..seen(&message, self.queue, self.part, run) };
            let token = seen.token;
            self.log(Event::Received(seen));
            let Some(token) = token else { continue };
            let outcome = match rng.u32(0..4) {
                0 => Outcome::Abandon,
                1 => Outcome::Defer,
                _ => Outcome::Complete,
            };
            tokio::time::sleep(Duration::from_millis(rng.u64(0..2000))).await;
            self.settle_by_token(token, outcome).await;
        }
    }
}
