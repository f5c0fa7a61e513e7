//! Logs of a broken broker, to show that each checker finds its violation.

use std::time::Duration;

use peeklock_client::{LockToken, Outcome, SequenceNumber};
use peeklock_types::{ClassName, ClassSettings, OrderSettings, QueueSettings};

use super::history::History;
use super::{CHECKERS, Checker};
use crate::log::{Answer, Counted, Event, LogLine, MessageNumber, Part, Peeked, Seen, Terms};
use crate::scenario::{MachineFaults, Programs, Rule, Scenario, Subscription, Target, Test, Topic, Wish};

pub(super) const LOCK_MS: u64 = 10_000;
pub(super) const LIMIT: u32 = 4;
const WALL_MS: u64 = 1_000_000;

pub(super) struct Forge {
    scenario: Scenario,
    entries: Vec<LogLine>,
    now_ms: u64,
    offset_ms: u64,
    run: u32,
    request: u32,
    message: MessageNumber,
}

/// Returns the promises that a checker finds broken.
pub(super) fn promises(check: Checker, forge: &Forge) -> Vec<&'static str> {
    let history = History::new(&forge.scenario, &forge.entries);
    check(&history).into_iter().map(|violation| violation.promise).collect()
}

impl Forge {
    pub(super) fn new() -> Self {
        let mut scenario = Scenario::draw(1);
        scenario.queues.truncate(1);
        scenario.topics.clear();
        scenario.programs = None;
        scenario.machine = MachineFaults::default();
        for queue in &mut scenario.queues {
            queue.session_count = 0;
            queue.settings = QueueSettings::default();
            queue.settings.lock_duration = Duration::from_millis(LOCK_MS);
            queue.settings.max_delivery_count = LIMIT;
        }
        let mut forge = Forge {
            scenario,
            entries: Vec::new(),
            now_ms: 0,
            offset_ms: WALL_MS,
            run: 0,
            request: 0,
            message: 0,
        };
        forge.start();
        forge
    }

    /// Creates a log of a queue that only programs with the SDK use.
    pub(super) fn with_programs() -> Self {
        let mut forge = Forge::new();
        let (queues, senders, processors) = (vec![0], Vec::new(), Vec::new());
        forge.scenario.programs =
            Some(Programs { queues, senders, processors, cut_within_bytes: None, flaw: None });
        forge
    }

    pub(super) fn with_sessions() -> Self {
        let mut forge = Forge::new();
        forge.scenario.queues.iter_mut().for_each(|queue| queue.session_count = 3);
        forge
    }

    /// Creates a log of a queue with the classes high, normal and low.
    pub(super) fn with_order() -> Self {
        let mut forge = Forge::new();
        let class = |name, priorities| ClassSettings::new(ClassName::parse(name).unwrap(), priorities);
        let classes = vec![class("high", (7, 9)), class("normal", (4, 6)), class("low", (0, 3))];
        let order = Some(Box::new(OrderSettings { classes, ..OrderSettings::default() }));
        forge.scenario.queues.iter_mut().for_each(|queue| queue.settings.order.clone_from(&order));
        forge
    }

    /// Returns the initial order of the queue.
    pub(super) fn order(&mut self) -> &mut OrderSettings {
        self.scenario.queues.first_mut().and_then(|queue| queue.settings.order.as_deref_mut()).unwrap()
    }

    /// Changes the initial order.
    pub(super) fn reordered(&mut self, answer: Answer, change: fn(&mut OrderSettings)) {
        self.request += 1;
        let request = self.request;
        let mut order = self.order().clone();
        change(&mut order);
        self.add(Event::Ordering { request, queue: 0, order: Some(Box::new(order)) });
        self.add(Event::Ordered { request, answer });
    }

    /// Sends the next message that belongs to a class.
    pub(super) fn sent_to(&mut self, class: &str) -> MessageNumber {
        let order = self.order().clone();
        let fits = |number: &MessageNumber| Wish::of(*number).class(&order).as_str() == class;
        self.message = (self.message + 1..).find(fits).unwrap();
        self.sent(self.message);
        self.message
    }

    pub(super) fn took_as(&mut self, number: MessageNumber, class: &str) {
        let nonce = self.now_ms;
        self.received_as(Seen { class: Some(class.to_owned()), ..self.seen(number, nonce) });
    }

    pub(super) fn took_enqueued(&mut self, number: MessageNumber, enqueued_ms: u64) {
        self.received_as(Seen { enqueued_ms, ..self.seen(number, 1) });
    }

    /// Delivers a message in the class of the initial order.
    pub(super) fn took_first(&mut self, number: MessageNumber) {
        let class = Some(Wish::of(number).class(self.order()).as_str().to_owned());
        self.received_as(Seen { class, ..self.seen(number, 1) });
    }

    /// Creates a log with a topic: its first subscription matches everything, its second matches level above 4 and
    /// messages that rule `b` marks.
    pub(super) fn with_topic() -> Self {
        let mut forge = Forge::new();
        let first = forge.scenario.queues.len();
        forge.scenario.queues.extend([forge.scenario.queues.clone(), forge.scenario.queues.clone()].concat());
        let rule = |name: &str, test, marks| Rule { name: name.to_owned(), test, marks };
        let subscriptions = vec![
            Subscription { queue: first, rules: vec![rule("a", Test::All, false)] },
            Subscription {
                queue: first + 1,
                rules: vec![rule("a", Test::Above(4), false), rule("b", Test::Above(7), true)],
            },
        ];
        let settings = QueueSettings::default();
        let topic = Topic { name: "topic".to_owned(), settings, session_count: 0, subscriptions };
        forge.scenario.topics.push(topic);
        forge
    }

    pub(super) fn published(&mut self, number: MessageNumber, answer: Answer) {
        self.request += 1;
        let (request, target, terms) = (self.request, Target::Topic(0), Terms::default());
        self.add(Event::Sending { request, target, messages: vec![number], terms });
        self.add(Event::Sent { request, answer });
    }

    /// Delivers and completes a copy.
    pub(super) fn took(&mut self, copy: MessageNumber, queue: usize) {
        let nonce = u64::from(copy);
        let seen = Seen { queue, ..self.seen(copy, nonce) };
        let token = seen.token;
        self.received_as(seen);
        token.into_iter().for_each(|token| self.settled(token, Outcome::Complete, Answer::Done));
    }

    pub(super) fn add(&mut self, event: Event) {
        self.entries.push(LogLine { at_ms: self.now_ms, party: "forger".into(), event });
    }

    fn start(&mut self) {
        self.run += 1;
        let (run, wall_ms) = (self.run, self.now_ms + self.offset_ms);
        self.add(Event::Started { run, wall_ms });
    }

    pub(super) fn restarted(&mut self, step_ms: u64) {
        let run = self.run;
        self.add(Event::Ended { run, how: "killed".to_owned() });
        self.offset_ms += step_ms;
        self.start();
    }

    /// Sets the clock of the machine forward during the run.
    pub(super) fn stepped(&mut self, step_ms: u64) {
        self.offset_ms += step_ms;
        let (run, wall_ms) = (self.run, self.now_ms + self.offset_ms);
        self.add(Event::Stepped { run, wall_ms });
    }

    /// Sets the clock of the machine back during the run, which the broker does not follow.
    pub(super) fn stepped_back(&mut self, step_ms: u64) {
        let (run, wall_ms) = (self.run, self.now_ms + self.offset_ms - step_ms);
        self.add(Event::Stepped { run, wall_ms });
    }

    pub(super) fn set_back(&mut self, step_ms: u64) {
        self.offset_ms -= step_ms;
        self.restarted(0);
    }

    pub(super) fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    /// Advances the time beyond the end of every lock.
    pub(super) fn later(&mut self) {
        self.pass(LOCK_MS + 10);
    }

    /// Holds a session from now on.
    pub(super) fn held(&mut self, session: u32) -> u32 {
        self.request += 1;
        let (hold, run) = (self.request, self.run);
        let until_ms = self.now_ms + self.offset_ms + LOCK_MS;
        self.add(Event::Holding { hold, queue: 0, session, until_ms, run, connection: hold });
        hold
    }

    pub(super) fn sent_on(&mut self, number: MessageNumber, terms: Terms) {
        self.send_on(&[number], terms, Answer::Done);
    }

    pub(super) fn sent_in(&mut self, number: MessageNumber, transaction: u32) {
        self.sent_on(number, Terms { transaction: Some(transaction), ..Terms::default() });
    }

    fn send(&mut self, messages: &[MessageNumber], answer: Answer) {
        self.send_on(messages, Terms::default(), answer);
    }

    fn send_on(&mut self, messages: &[MessageNumber], terms: Terms, answer: Answer) {
        self.request += 1;
        let request = self.request;
        self.add(Event::Sending { request, target: Target::Queue(0), messages: messages.to_vec(), terms });
        self.add(Event::Sent { request, answer });
    }

    pub(super) fn sent(&mut self, number: MessageNumber) {
        self.send(&[number], Answer::Done);
    }

    pub(super) fn unknown(&mut self, number: MessageNumber) {
        self.send(&[number], Answer::Unknown);
    }

    pub(super) fn unknown_batch(&mut self, numbers: &[MessageNumber]) {
        self.send(numbers, Answer::Unknown);
    }

    pub(super) fn refused(&mut self, number: MessageNumber) {
        self.send(&[number], Answer::Refused { lock_lost: false, why: String::new() });
    }

    /// Returns the delivery that a correct broker would make now, under a lock with this nonce.
    pub(super) fn seen(&self, number: MessageNumber, nonce: u64) -> Seen {
        Seen {
            queue: 0,
            part: Part::Main,
            message: Some(number),
            sequence_number: u64::from(number),
            token: Some(LockToken::new(SequenceNumber(u64::from(number)), nonce)),
            locked_until_ms: self.now_ms + self.offset_ms + LOCK_MS,
            delivery_count: 0,
            run: self.run,
            is_intact: true,
            dead_letter_reason: None,
            by_number: false,
            session: None,
            hold: None,
            link: None,
            enqueued_ms: 0,
            class: None,
        }
    }

    pub(super) fn received(&mut self, number: MessageNumber, nonce: u64) -> LockToken {
        let seen = self.seen(number, nonce);
        self.received_as(seen);
        LockToken::new(SequenceNumber(u64::from(number)), nonce)
    }

    pub(super) fn received_as(&mut self, seen: Seen) {
        self.add(Event::Received(seen));
    }

    pub(super) fn settled(&mut self, token: LockToken, outcome: Outcome, answer: Answer) {
        self.request += 1;
        let request = self.request;
        self.add(Event::Settling { request, token, outcome, transaction: None });
        self.add(Event::Settled { request, answer });
    }

    pub(super) fn settled_in(&mut self, token: LockToken, outcome: Outcome, transaction: u32) {
        self.request += 1;
        let request = self.request;
        self.add(Event::Settling { request, token, outcome, transaction: Some(transaction) });
        self.add(Event::Settled { request, answer: Answer::Done });
    }

    pub(super) fn renewed(&mut self, token: LockToken) {
        self.request += 1;
        let (request, until_ms) = (self.request, self.now_ms + self.offset_ms + LOCK_MS);
        self.add(Event::Renewing { request, token });
        self.add(Event::Renewed { request, answer: Answer::Done, until_ms });
    }

    /// Attaches a receiver, on a connection of the same number.
    pub(super) fn attached(&mut self, link: u32) {
        let run = self.run;
        self.add(Event::Attaching { link, queue: 0, part: Part::Main, run, connection: link });
    }

    pub(super) fn broken(&mut self, connection: u32) {
        self.add(Event::Broken { connection });
    }

    pub(super) fn deleting(&mut self, credit: u32) {
        self.request += 1;
        let request = self.request;
        self.add(Event::Deleting { request, queue: 0, credit });
    }

    pub(super) fn peeked(&mut self, messages: Vec<Peeked>) {
        self.request += 1;
        let request = self.request;
        self.add(Event::Peeking { request, queue: 0, part: Part::Main });
        self.add(Event::Peeked { request, messages });
    }

    pub(super) fn resting(&mut self, counts: Counted) {
        self.add(Event::Resting);
        self.add(Event::Counted { queue: 0, counts });
    }

    pub(super) fn emptied(&mut self, counts: Counted) {
        self.add(Event::Emptied { queue: 0, counts });
    }
}

#[test]
fn a_correct_broker_breaks_no_promise() {
    let mut forge = Forge::new();
    forge.sent(1);
    let token = forge.received(1, 1);
    forge.settled(token, Outcome::Complete, Answer::Done);
    let found: Vec<_> =
        CHECKERS.iter().chain(&super::ORDER_CHECKERS).flat_map(|check| promises(*check, &forge)).collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn trouble_is_reported() {
    let mut forge = Forge::new();
    forge.add(Event::Trouble { what: "a panic".to_owned() });
    assert_eq!(promises(super::trouble, &forge).len(), 1);
}
