//! Handles one delivery: settles it in every way, renews it, forgets it, settles it late, twice, or in a transaction.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use peeklock_client::{
    Client, Delivery, Error, Fields, LockToken, Outcome, ReceiveMode, ReceivedMessage, Sender,
    SequenceNumber, Session, Transaction,
};

use super::producer::apply;
use super::{Deferred, World, ask, body, seen};
use crate::log::{Answer, Event, Part, QueueIndex, Seen, SessionNumber, Terms};
use crate::scenario::{Habits, Target};

/// The largest size of a message that fits into an answer.
const ANSWERED_BYTES_MAX: usize = 2_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Complete,
    Abandon,
    Delay,
    Defer,
    DeadLetter,
    Release,
    Renew,
    Forget,
    Late,
    Twice,
    Transact,
}

impl Habits {
    pub(super) fn choose(&self, rng: &mut Rng) -> Deed {
        let weights = [
            (self.complete, Deed::Complete),
            (self.abandon, Deed::Abandon),
            (self.delay, Deed::Delay),
            (self.defer, Deed::Defer),
            (self.dead_letter, Deed::DeadLetter),
            (self.release, Deed::Release),
            (self.renew, Deed::Renew),
            (self.forget, Deed::Forget),
            (self.late, Deed::Late),
            (self.twice, Deed::Twice),
            (self.transact, Deed::Transact),
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

/// A held session, with its number in the log.
#[derive(Clone)]
pub(super) struct Hold {
    pub(super) hold: u32,
    pub(super) number: SessionNumber,
    pub(super) session: Session,
}

/// Handles deliveries; several workers run at the same time.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) world: Arc<World>,
    pub(super) name: Arc<str>,
    pub(super) client: Client,
    pub(super) run: u32,
    pub(super) queue: QueueIndex,
    pub(super) part: Part,
    pub(super) hold: Option<Hold>,
    pub(super) link: u32,
    /// The target of the sends in its transactions.
    pub(super) target: Target,
}

impl Worker {
    pub(super) fn log(&self, event: Event) {
        self.world.log.add(&self.name, event);
    }

    pub(super) fn note(&self, delivery: &Delivery) -> Option<Seen> {
        match delivery.message() {
            Ok(message) => Some(self.note_message(&message, false)),
            Err(error) => {
                self.log(Event::Trouble { what: format!("a delivery cannot be read: {error}") });
                None
            }
        }
    }

    pub(super) fn note_message(&self, message: &ReceivedMessage, by_number: bool) -> Seen {
        let hold = self.hold.as_ref().map(|hold| hold.hold);
        let link = (!by_number).then_some(self.link);
        let seen = Seen {
            by_number,
            hold,
            link,
            ..seen(&self.world.scenario, message, self.queue, self.part, self.run)
        };
        self.log(Event::Received(seen.clone()));
        seen
    }

    fn entity(&self) -> String {
        self.world.entity(self.queue, self.part)
    }

    pub(super) async fn handle(
        self,
        delivery: Delivery,
        seen: Seen,
        deed: Deed,
        work: Duration,
        mut rng: Rng,
    ) {
        let Some(token) = seen.token else { return };
        let lock = self.world.lock_duration(self.queue);
        tokio::time::sleep(work).await;
        // A deferred message that is requested by number arrives in one answer, so a larger message is not deferred.
        let is_large = delivery.payload().len() > ANSWERED_BYTES_MAX;
        match if deed == Deed::Defer && is_large { Deed::Complete } else { deed } {
            Deed::Forget => tokio::time::sleep(lock * 2).await,
            Deed::Renew => {
                for _ in 0..rng.u32(1..4) {
                    tokio::time::sleep(lock.mul_f64(rng.f64())).await;
                    self.renew(token).await;
                }
                self.settle(delivery, token, Outcome::Complete).await;
            }
            Deed::Late => {
                // Close to the end of the lock, where both answers are possible.
                tokio::time::sleep(lock.mul_f64(0.8 + 0.4 * rng.f64())).await;
                self.settle(delivery, token, Outcome::Complete).await;
            }
            Deed::Twice => self.settle_twice(delivery, token, &mut rng).await,
            Deed::Transact => self.transact(delivery, token, &mut rng).await,
            Deed::Defer => {
                self.settle(delivery, token, Outcome::Defer).await;
                self.note_deferred(&seen);
            }
            Deed::Complete => self.settle(delivery, token, Outcome::Complete).await,
            Deed::Abandon => self.settle(delivery, token, Outcome::Abandon).await,
            Deed::Delay => {
                let delay = Some(Duration::from_millis(rng.u64(0..20_000)));
                let outcome = Outcome::AbandonWith { properties: Fields::default(), delay };
                self.settle(delivery, token, outcome).await;
            }
            Deed::Release => self.settle(delivery, token, Outcome::Release).await,
            Deed::DeadLetter => {
                let (reason, description) = ("Simulated".to_owned(), "by choice".to_owned());
                self.settle(delivery, token, Outcome::DeadLetter { reason, description }).await;
            }
        }
    }

    fn note_deferred(&self, seen: &Seen) {
        let session = self.hold.as_ref().map(|hold| hold.number);
        let (queue, part, number) = (self.queue, self.part, seen.sequence_number);
        self.world.note_deferred(Deferred { queue, part, session, number });
    }

    async fn settle_twice(&self, delivery: Delivery, token: LockToken, rng: &mut Rng) {
        let outcome = if rng.bool() { Outcome::Complete } else { Outcome::Abandon };
        let again = self.settle_by_token(token, Outcome::Complete);
        if rng.bool() {
            tokio::join!(biased; self.settle(delivery, token, outcome), again);
        } else {
            self.settle(delivery, token, outcome).await;
            again.await;
        }
    }

    async fn note_settling(
        &self,
        token: LockToken,
        outcome: Outcome,
        transaction: Option<u32>,
        settling: impl Future<Output = Result<(), Error>>,
    ) -> Answer {
        let request = self.world.log.next_request();
        self.log(Event::Settling { request, token, outcome, transaction });
        let (_, answer) = ask(settling).await;
        self.log(Event::Settled { request, answer: answer.clone() });
        answer
    }

    async fn settle(&self, delivery: Delivery, token: LockToken, outcome: Outcome) {
        self.note_settling(token, outcome.clone(), None, delivery.settle(outcome)).await;
    }

    pub(super) async fn settle_by_token(&self, token: LockToken, outcome: Outcome) {
        let entity = self.entity();
        let said = outcome.clone();
        let settling = async {
            match &self.hold {
                Some(hold) => hold.session.settle(&[token], said).await,
                None => self.client.settle(&entity, &[token], said).await,
            }
        };
        self.note_settling(token, outcome, None, settling).await;
    }

    async fn renew(&self, token: LockToken) {
        if let Some(Hold { hold, session, .. }) = &self.hold {
            if let Some(until) = ask(session.renew()).await.0 {
                self.log(Event::HoldRenewed { hold: *hold, until_ms: until.as_millis() });
            }
            return;
        }
        let request = self.world.log.next_request();
        self.log(Event::Renewing { request, token });
        let (until, answer) = ask(self.client.renew(&self.entity(), &[token])).await;
        let until_ms = until.and_then(|until| until.first().copied()).map_or(0, |until| until.as_millis());
        self.log(Event::Renewed { request, answer, until_ms });
    }

    /// Completes the delivery and sends messages elsewhere, atomically.
    async fn transact(&self, delivery: Delivery, token: LockToken, rng: &mut Rng) {
        let target = self.world.scenario.target_name(self.target).to_owned();
        let (Some(sender), _) = ask(self.client.sender(&target)).await else { return };
        let (Some(work), _) = ask(self.client.transaction()).await else { return };
        let transaction = self.world.log.next_request();
        let mut is_well = true;
        for _ in 0..rng.u32(1..4) {
            is_well &= self.send_in(&work, transaction, &sender, rng).await == Answer::Done;
        }
        let settling = work.complete(delivery);
        is_well &=
            self.note_settling(token, Outcome::Complete, Some(transaction), settling).await == Answer::Done;
        tokio::time::sleep(Duration::from_millis(rng.u64(0..500))).await;
        match rng.u32(0..8) {
            0 => drop(work),
            1 => drop(ask(work.roll_back()).await),
            _ if !is_well => drop(ask(work.roll_back()).await),
            _ => {
                self.log(Event::Committing { transaction });
                let (_, answer) = ask(work.commit()).await;
                self.log(Event::Committed { transaction, answer });
            }
        }
    }

    async fn send_in(&self, work: &Transaction, transaction: u32, sender: &Sender, rng: &mut Rng) -> Answer {
        let number = self.world.next_message(self.target);
        let sessions = self.world.scenario.session_count(self.target);
        let session = (sessions > 0).then(|| rng.u32(0..sessions));
        let terms = Terms { session, transaction: Some(transaction), ..Terms::default() };
        let message = apply(body::message(number, rng.usize(0..200), self.target), &terms);
        let request = self.world.log.next_request();
        self.log(Event::Sending { request, target: self.target, messages: vec![number], terms });
        let (_, answer) = ask(work.send(sender, &message)).await;
        self.log(Event::Sent { request, answer: answer.clone() });
        answer
    }

    /// Requests deferred messages by number, and settles them.
    pub(super) async fn fetch(self, mut rng: Rng) {
        let session = self.hold.as_ref().map(|hold| hold.number);
        let wanted = self.world.some_deferred(self.queue, self.part, session, &mut rng);
        if wanted.is_empty() {
            return;
        }
        let (found, answer) =
            self.ask_for(wanted.iter().map(|deferred| SequenceNumber(deferred.number))).await;
        if let (Answer::Refused { .. }, [single]) = (&answer, wanted.as_slice()) {
            self.world.forget_deferred(*single);
        }
        for message in found.unwrap_or_default() {
            let Some(token) = self.note_message(&message, true).token else { continue };
            let outcome = match rng.u32(0..4) {
                0 => Outcome::Abandon,
                1 => Outcome::Defer,
                _ => Outcome::Complete,
            };
            tokio::time::sleep(Duration::from_millis(rng.u64(0..2000))).await;
            self.settle_by_token(token, outcome).await;
        }
    }

    pub(super) async fn ask_for(
        &self,
        numbers: impl Iterator<Item = SequenceNumber>,
    ) -> (Option<Vec<ReceivedMessage>>, Answer) {
        let numbers: Vec<_> = numbers.collect();
        let mode = ReceiveMode::PeekLock;
        match &self.hold {
            Some(hold) => ask(hold.session.receive_deferred(&numbers, mode)).await,
            None => ask(self.client.receive_deferred(&self.entity(), &numbers, mode)).await,
        }
    }
}
