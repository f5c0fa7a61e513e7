//! The log, sorted by subject.

mod holds;
mod links;
mod orders;
mod sends;
mod settlements;

use std::collections::BTreeMap;
use std::sync::Arc;

use peeklock_client::Outcome;

use crate::log::{
    Answer, Counted, Event, LogLine, MessageNumber, Part, Peeked, ProgramEvent, QueueIndex, Seen,
    SessionNumber, Terms,
};
use crate::scenario::{Scenario, Wish};
pub(super) use links::Link;
use orders::Reign;
use sends::transactions_of;
use settlements::Settlements;

/// The tolerance between two clocks, because both sides read them in whole milliseconds.
pub(super) const TOLERANCE_MS: i64 = 2;

/// The smallest step of the clock that the broker follows.
const STEP_MS_MIN: i64 = 100;

pub(super) struct History<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) entries: &'a [LogLine],
    runs: Vec<Run>,
    pub(super) sends: Vec<Send>,
    pub(super) messages: BTreeMap<MessageNumber, Message>,
    /// The result of each sent number: itself, or the copies that a topic's rules made of it.
    copies: BTreeMap<MessageNumber, Vec<MessageNumber>>,
    /// The numbers under which the messages of a topic were sent.
    origins: BTreeMap<MessageNumber, MessageNumber>,
    /// The orders of each queue, the oldest first.
    reigns: BTreeMap<QueueIndex, Vec<Reign>>,
    pub(super) links: BTreeMap<u32, Link>,
    /// Deliveries of messages that no client sent.
    pub(super) strangers: Vec<Delivery>,
    pub(super) peeks: Vec<Peek>,
    pub(super) holds: BTreeMap<u32, Hold>,
    pub(super) transactions: BTreeMap<u32, Answer>,
    /// The number of messages that the receivers in mode receive-and-delete may have missed, by queue.
    pub(super) unseen_max: BTreeMap<QueueIndex, u64>,
    pub(super) counted: BTreeMap<QueueIndex, Counted>,
    pub(super) emptied: BTreeMap<QueueIndex, Counted>,
}

#[derive(Clone, Debug)]
struct Run {
    number: u32,
    start_ms: i64,
    end_ms: i64,
    /// The time from which the broker releases sessions, because it stops.
    stopping_ms: i64,
    /// The broker's clock minus the world's, from each time on. It only grows: the broker follows the clock of its machine
    /// forward.
    offsets: Vec<(i64, i64)>,
}

impl Run {
    /// Returns the broker's clock minus the world's at the start.
    fn first_offset_ms(&self) -> i64 {
        self.offsets.first().map_or(0, |(_, offset_ms)| *offset_ms)
    }

    /// Returns the world time at which the broker's clock showed `wall_ms`.
    fn world_of(&self, wall_ms: i64) -> i64 {
        let passed = self.offsets.iter().rfind(|(from_ms, offset_ms)| from_ms + offset_ms <= wall_ms);
        wall_ms - passed.map_or_else(|| self.first_offset_ms(), |(_, offset_ms)| *offset_ms)
    }

    fn step(&mut self, at_ms: i64, offset_ms: i64) {
        if self.offsets.last().is_none_or(|(_, last_ms)| offset_ms >= last_ms + STEP_MS_MIN) {
            self.offsets.push((at_ms, offset_ms));
        }
    }
}

/// The messages that one request sends to one queue.
#[derive(Clone, Debug)]
pub(super) struct Send {
    pub(super) queue: QueueIndex,
    pub(super) messages: Vec<MessageNumber>,
    /// All messages of the request, in every queue.
    pub(super) whole: Arc<[MessageNumber]>,
    pub(super) terms: Terms,
    pub(super) at_ms: i64,
    pub(super) answer: Answer,
    pub(super) answered_ms: Option<i64>,
}

#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) queue: QueueIndex,
    /// The topic to which the message was sent.
    pub(super) topic: Option<usize>,
    pub(super) terms: Terms,
    /// The indices of its sends in `History::sends`: a message may be sent again.
    pub(super) sends: Vec<usize>,
    /// The answer to its cancellation before it was due.
    pub(super) cancelled: Option<Answer>,
    /// The deliveries, in the order in which the broker made them.
    pub(super) deliveries: Vec<Delivery>,
}

#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) party: Arc<str>,
    pub(super) at_ms: i64,
    /// Its position in the log.
    pub(super) log_index: usize,
    pub(super) seen: Seen,
    /// The time of the lock, in world time.
    pub(super) locked_at_ms: i64,
    pub(super) attempts: Vec<Attempt>,
    pub(super) renewals: Vec<Renewal>,
    /// Whether the message was found when all was at rest.
    pub(super) is_at_rest: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) outcome: Outcome,
    pub(super) transaction: Option<u32>,
    pub(super) at_ms: i64,
    pub(super) answer: Answer,
    pub(super) answered_ms: i64,
}

#[derive(Clone, Debug)]
pub(super) struct Renewal {
    pub(super) answer: Answer,
    pub(super) answered_ms: i64,
    /// The end of the lock, by the broker's clock.
    pub(super) until_ms: i64,
}

/// A held session.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) queue: QueueIndex,
    pub(super) session: SessionNumber,
    pub(super) party: Arc<str>,
    /// The time at which the session was accepted, in world time.
    pub(super) accepted_ms: i64,
    /// The time until which no other client could hold the session.
    pub(super) certain_end_ms: i64,
}

#[derive(Clone, Debug)]
pub(super) struct Peek {
    pub(super) queue: QueueIndex,
    pub(super) part: Part,
    pub(super) at_ms: i64,
    pub(super) messages: Vec<Peeked>,
}

impl Attempt {
    pub(super) fn is_done(&self) -> bool {
        self.answer == Answer::Done
    }

    /// Returns whether it may have changed the message.
    pub(super) fn may_count(&self) -> bool {
        !matches!(self.answer, Answer::Refused { .. })
    }
}

impl Delivery {
    /// Returns whether it was settled in this way and confirmed.
    pub(super) fn has_done(&self, outcome: fn(&Outcome) -> bool) -> bool {
        self.attempts.iter().any(|attempt| attempt.is_done() && outcome(&attempt.outcome))
    }

    /// Returns whether it may have been settled in this way.
    pub(super) fn may_have_done(&self, outcome: fn(&Outcome) -> bool) -> bool {
        self.attempts.iter().any(|attempt| attempt.may_count() && outcome(&attempt.outcome))
    }

    /// Returns whether its delivery deleted it.
    pub(super) fn is_deleted(&self) -> bool {
        self.seen.token.is_none()
    }
}

pub(super) fn is_abandon(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Abandon | Outcome::AbandonWith { .. })
}

pub(super) fn is_complete(outcome: &Outcome) -> bool {
    *outcome == Outcome::Complete
}

fn ms(at: u64) -> i64 {
    i64::try_from(at).unwrap_or(i64::MAX)
}

impl<'a> History<'a> {
    pub(super) fn new(scenario: &'a Scenario, entries: &'a [LogLine]) -> Self {
        let mut history = History {
            scenario,
            entries,
            runs: runs_of(entries),
            sends: Vec::new(),
            messages: BTreeMap::new(),
            copies: BTreeMap::new(),
            origins: BTreeMap::new(),
            reigns: BTreeMap::new(),
            links: BTreeMap::new(),
            strangers: Vec::new(),
            peeks: Vec::new(),
            holds: BTreeMap::new(),
            transactions: transactions_of(entries),
            unseen_max: BTreeMap::new(),
            counted: BTreeMap::new(),
            emptied: BTreeMap::new(),
        };
        history.collect_holds();
        history.collect_sends();
        history.collect_deliveries();
        history.collect_orders();
        history.collect_links();
        history.resolve_transactions();
        history.collect_peeks();
        history.collect_rest();
        history
    }

    fn collect_deliveries(&mut self) {
        let mut settlements = Settlements::of(self.entries);
        let mut is_at_rest = false;
        for (log_index, entry) in self.entries.iter().enumerate() {
            is_at_rest |= entry.event == Event::Resting;
            let Event::Received(seen) = &entry.event else { continue };
            let (attempts, renewals) = seen.token.map(|token| settlements.take(token)).unwrap_or_default();
            let delivery = Delivery {
                party: Arc::clone(&entry.party),
                at_ms: ms(entry.at_ms),
                log_index,
                seen: seen.clone(),
                locked_at_ms: self.locked_at(seen, ms(entry.at_ms)),
                attempts,
                renewals,
                is_at_rest,
            };
            match seen.message.and_then(|number| self.messages.get_mut(&number)) {
                Some(message) => message.deliveries.push(delivery),
                None => self.strangers.push(delivery),
            }
        }
        for message in self.messages.values_mut() {
            // Two locks can be taken in the same millisecond; then the delivery count gives their order.
            message.deliveries.sort_by_key(|d| (d.locked_at_ms, d.seen.part, d.seen.delivery_count, d.at_ms));
        }
    }

    fn collect_peeks(&mut self) {
        let mut asked = BTreeMap::new();
        for entry in self.entries {
            match &entry.event {
                Event::Peeking { request, queue, part } => {
                    asked.insert(*request, (*queue, *part, ms(entry.at_ms)));
                }
                Event::Peeked { request, messages } => {
                    if let Some((queue, part, at_ms)) = asked.remove(request) {
                        self.peeks.push(Peek { queue, part, at_ms, messages: messages.clone() });
                    }
                }
                _ => {}
            }
        }
    }

    fn collect_rest(&mut self) {
        let mut open = BTreeMap::new();
        let mut purges = BTreeMap::new();
        for entry in self.entries {
            match &entry.event {
                Event::Purging { request, queue } => drop(purges.insert(*request, (*queue, None))),
                Event::Purged { request, answer: Answer::Done, count } => {
                    if let Some(purge) = purges.get_mut(request) {
                        purge.1 = Some(*count);
                    }
                }
                Event::Deleting { request, queue, credit } => drop(open.insert(*request, (*queue, *credit))),
                Event::DeletingEnded { request } => drop(open.remove(request)),
                Event::Counted { queue, counts } => drop(self.counted.insert(*queue, *counts)),
                Event::Emptied { queue, counts } => drop(self.emptied.insert(*queue, *counts)),
                _ => {}
            }
        }
        for (queue, credit) in open.into_values() {
            *self.unseen_max.entry(queue).or_default() += u64::from(credit);
        }
        for (queue, count) in purges.into_values() {
            let unseen = self.unseen_max.entry(queue).or_default();
            // Without an answer it may have taken everything.
            *unseen = count.map_or(u64::MAX, |count| unseen.saturating_add(count));
        }
    }

    pub(super) fn lock_ms(&self, queue: QueueIndex) -> i64 {
        let duration = self.scenario.queues.get(queue).map(|queue| queue.settings.lock_duration);
        ms(duration.map_or(0, |duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    pub(super) fn has_sessions(&self, queue: QueueIndex) -> bool {
        self.scenario.queues.get(queue).is_some_and(|queue| queue.session_count > 0)
    }

    /// Returns whether the broker's clock never steps.
    pub(super) fn is_steady(&self) -> bool {
        self.scenario.machine.clock_step_ms_max == 0
    }

    /// Returns the time to live of the message, from the message itself and the queues on its route.
    pub(super) fn time_to_live_ms(&self, message: &Message) -> Option<i64> {
        let own = message.terms.time_to_live_ms.map(ms);
        let places = self.scenario.places(message.queue);
        let queues = places.iter().filter_map(|queue| self.scenario.queues.get(*queue));
        let spans = queues.filter_map(|queue| queue.settings.default_time_to_live);
        let spans = spans.map(|span| ms(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)));
        let topic = message.topic.and_then(|topic| self.scenario.topics.get(topic));
        let of_topic = topic.and_then(|topic| topic.settings.default_time_to_live);
        let of_topic = of_topic.map(|span| ms(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)));
        own.into_iter().chain(spans).chain(of_topic).min()
    }

    fn run(&self, number: u32) -> Option<&Run> {
        self.runs.iter().find(|run| run.number == number)
    }

    /// Returns the time at which the broker locked the message. The receipt can be later, never earlier.
    fn locked_at(&self, seen: &Seen, at_ms: i64) -> i64 {
        // In a session the lock on a message is that of its session; deliveries are in order under one hold.
        if let Some(hold) = seen.hold.and_then(|hold| self.holds.get(&hold)) {
            return hold.accepted_ms;
        }
        match (seen.token, self.run(seen.run)) {
            _ if self.has_sessions(seen.queue) && seen.part == Part::Main => at_ms,
            (Some(_), Some(run)) => run.world_of(ms(seen.locked_until_ms) - self.lock_ms(seen.queue)),
            _ => at_ms,
        }
    }

    /// Returns the start of the run that delivered the message.
    pub(super) fn run_start(&self, number: u32) -> i64 {
        self.run(number).map_or(i64::MAX, |run| run.start_ms)
    }

    pub(super) fn has_started_between(&self, from_ms: i64, upto_ms: i64) -> bool {
        self.runs.iter().any(|run| (from_ms..=upto_ms).contains(&run.start_ms))
    }

    /// Returns the number of steps of the clock during runs until this time.
    pub(super) fn step_count(&self, at_ms: i64) -> usize {
        let steps = self.runs.iter().flat_map(|run| run.offsets.iter().skip(1));
        steps.filter(|(step_ms, _)| *step_ms <= at_ms).count()
    }

    /// Returns the first moment at which a broker could consider the lock expired, in world time: `until_ms` by the
    /// clock of the run that was active at `from_ms`, or of a later one. A run shortens the locks it finds to the lock
    /// duration from its start, because its clock may have been set back. A step of the clock during a run ends no lock
    /// earlier; but a run that ends before the extended locks are durable leaves the earlier ends.
    fn over_at(&self, mut until_ms: i64, from_ms: i64, lock_ms: i64) -> i64 {
        for (later, run) in self.runs.iter().filter(|run| run.end_ms >= from_ms).enumerate() {
            let over = if later == 0 {
                run.world_of(until_ms - lock_ms) + lock_ms
            } else {
                until_ms = until_ms.min(run.start_ms + run.first_offset_ms() + lock_ms);
                (until_ms - run.first_offset_ms()).max(run.start_ms)
            };
            if over <= run.end_ms {
                return over;
            }
        }
        i64::MAX
    }

    /// Returns the end of the lock without settlement: its own end, or that of the last confirmed renewal.
    pub(super) fn lock_end(&self, delivery: &Delivery) -> i64 {
        if let Some(hold) = delivery.seen.hold.and_then(|hold| self.holds.get(&hold)) {
            return hold.certain_end_ms;
        }
        let lock_ms = self.lock_ms(delivery.seen.queue);
        let confirmed = delivery.renewals.iter().rfind(|renewal| renewal.answer == Answer::Done);
        match confirmed {
            Some(renewal) => self.over_at(renewal.until_ms, renewal.answered_ms, lock_ms),
            None => self.over_at(ms(delivery.seen.locked_until_ms), delivery.locked_at_ms, lock_ms),
        }
    }

    /// Returns whether it may be gone without a delivery or a settlement: expired, cancelled, purged, or deleted in
    /// flight.
    pub(super) fn may_vanish(&self, message: &Message) -> bool {
        let places = self.scenario.places(message.queue);
        let is_unseen = places.iter().any(|queue| self.unseen_max.contains_key(queue));
        is_unseen || self.may_be_gone(message)
    }

    /// Returns whether it was cancelled before it was due, or has expired in a queue that drops expired messages.
    pub(super) fn may_be_gone(&self, message: &Message) -> bool {
        let cancelled = message.cancelled.as_ref();
        let is_cancelled = cancelled.is_some_and(|answer| !matches!(answer, Answer::Refused { .. }));
        let places = self.scenario.places(message.queue);
        let mut queues = places.iter().filter_map(|queue| self.scenario.queues.get(*queue));
        let drops_expired = queues.any(|queue| !queue.settings.dead_letter_on_expiration);
        is_cancelled || (self.time_to_live_ms(message).is_some() && drops_expired)
    }

    /// Returns whether the send was stored, as far as the log shows.
    pub(super) fn is_stored(&self, send: &Send) -> bool {
        send.answer == Answer::Done || send.whole.iter().any(|number| self.was_seen(*number))
    }

    pub(super) fn was_seen(&self, number: MessageNumber) -> bool {
        self.messages.get(&number).is_some_and(|message| !message.deliveries.is_empty())
    }

    /// Returns the sender's priority and tenant.
    pub(super) fn wish(&self, number: MessageNumber) -> Wish {
        Wish::of(self.origins.get(&number).copied().unwrap_or(number))
    }

    pub(super) fn copies_of(&self, sent: MessageNumber) -> &[MessageNumber] {
        self.copies.get(&sent).map_or(&[], Vec::as_slice)
    }

    /// Returns the log lines about one message.
    pub(super) fn lines_of(&self, number: MessageNumber) -> Vec<String> {
        let mut requests = Vec::new();
        let mut tokens = Vec::new();
        let mut lines = Vec::new();
        for entry in self.entries {
            let concerns = match &entry.event {
                Event::Sending { request, messages, .. }
                    if messages
                        .iter()
                        .any(|sent| *sent == number || self.copies_of(*sent).contains(&number)) =>
                {
                    requests.push(*request);
                    true
                }
                Event::Received(seen) if seen.message == Some(number) => {
                    tokens.extend(seen.token);
                    true
                }
                Event::Settling { request, token, .. } | Event::Renewing { request, token }
                    if tokens.contains(token) =>
                {
                    requests.push(*request);
                    true
                }
                Event::Sent { request, .. }
                | Event::Settled { request, .. }
                | Event::Renewed { request, .. } => requests.contains(request),
                Event::Program(ProgramEvent::Worked { message }) => *message == number,
                Event::Started { .. } | Event::Stepped { .. } | Event::Ended { .. } | Event::Resting => {
                    !lines.is_empty()
                }
                _ => false,
            };
            if concerns {
                lines.push(entry.to_string());
            }
        }
        lines
    }
}

fn runs_of(entries: &[LogLine]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for entry in entries {
        match &entry.event {
            Event::Started { run, wall_ms } => {
                let start_ms = ms(entry.at_ms);
                let offset_ms = ms(*wall_ms) - start_ms;
                let offsets = vec![(start_ms, offset_ms)];
                runs.push(Run { number: *run, start_ms, end_ms: i64::MAX, stopping_ms: i64::MAX, offsets });
            }
            Event::Stepped { run, wall_ms } => {
                let at_ms = ms(entry.at_ms);
                if let Some(known) = runs.iter_mut().find(|known| known.number == *run) {
                    known.step(at_ms, ms(*wall_ms) - at_ms);
                }
            }
            Event::Stopping { run } => {
                if let Some(known) = runs.iter_mut().find(|known| known.number == *run) {
                    known.stopping_ms = ms(entry.at_ms);
                }
            }
            Event::Ended { run, .. } => {
                if let Some(known) = runs.iter_mut().find(|known| known.number == *run) {
                    known.end_ms = ms(entry.at_ms);
                    known.stopping_ms = known.stopping_ms.min(known.end_ms);
                }
            }
            _ => {}
        }
    }
    runs
}
