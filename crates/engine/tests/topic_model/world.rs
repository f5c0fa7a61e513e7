//! The engine and the model side by side, with a journal that loses unwritten facts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use peeklock_engine::{
    Attributes, Engine, EntityId, Message, NewMessage, Output, PatchPart, ReceiveMode, ReceiverId,
    SessionWish, Settlement, Transaction, record,
};
use peeklock_filter::{Change, Changes, Rule, RuleName, SystemProperty, Value, ViewBuilder};
use peeklock_types::{
    BodyRange, BodyRef, CommitGroupNumber, EntityKind, EntityName, LockToken, Placement, QueueSettings,
    SequenceNumber, SessionId, ShardId, SubQueue, Timestamp,
};

use crate::model::{
    Copy, DUPLICATE_WINDOW, Model, ModelMessage, RuleKind, SUBSCRIPTION_COUNT, Subscription, TOPIC_COUNT,
    Topic,
};
use crate::{At, How, Sent, Step};

const HERE: ShardId = ShardId(3);
const RECEIVER: ReceiverId = ReceiverId(1);
const DEFAULT: &str = "$Default";

struct CommitGroup {
    bytes: Vec<u8>,
    model: Model,
    snapshot: Vec<u8>,
}

pub(crate) struct World {
    engine: Engine,
    model: Model,
    now: Timestamp,
    out: Output,
    groups: Vec<CommitGroup>,
    nonce: u64,
    next_id: u32,
    next_segment: u32,
}

fn topic_name(topic: usize) -> EntityName {
    let names = (0..).map(|n| EntityName::parse(&format!("t{topic}-{n}")).unwrap());
    names.into_iter().find(|name| Placement::default().of(name) == HERE).unwrap()
}

fn subscription_name((topic, n): At) -> EntityName {
    EntityName::subscription(&topic_name(topic), &format!("s{n}")).unwrap()
}

fn rule_name(rule: usize) -> String {
    format!("r{rule}")
}

fn part(is_dead: bool) -> SubQueue {
    if is_dead { SubQueue::DeadLetter } else { SubQueue::Main }
}

/// Returns settings with such a long lock duration that no lock expires.
fn settings() -> QueueSettings {
    let lock_duration = Duration::from_secs(300);
    QueueSettings { lock_duration, max_delivery_count: 2000, ..QueueSettings::default() }
}

fn topic_settings(topic: usize) -> QueueSettings {
    QueueSettings { duplicate_window: (topic == 1).then_some(DUPLICATE_WINDOW), ..QueueSettings::default() }
}

fn view_of(message: &ModelMessage) -> Bytes {
    let mut view = ViewBuilder::new();
    if let Some(p) = message.p {
        view.user("p", &Value::Long(p));
    }
    if let Some(session) = &message.session {
        view.system(SystemProperty::SessionId, &Value::text(session.as_str()));
    }
    view.finish()
}

fn settlement(how: How) -> Settlement {
    match how {
        How::Complete => Settlement::Complete,
        How::Abandon => Settlement::Abandon { patch: None, delay: None },
        How::DeadLetter => Settlement::DeadLetter { reason: None, description: None, patch: None },
        How::Leave => Settlement::Release,
    }
}

impl World {
    pub(crate) fn new() -> World {
        let mut world = World {
            engine: Engine::default(),
            model: Model { topics: Vec::new() },
            now: Timestamp::from_millis(1_000_000),
            out: Output::default(),
            groups: Vec::new(),
            nonce: 0,
            next_id: 1,
            next_segment: 2,
        };
        for topic in 0..TOPIC_COUNT {
            let topic = world.create_topic(topic);
            world.model.topics.push(topic);
        }
        world.journal();
        world
    }

    fn create_topic(&mut self, n: usize) -> Topic {
        let (name, settings) = (topic_name(n), topic_settings(n));
        let entity = self.engine.create(self.now, name, EntityKind::Topic, settings, &mut self.out).unwrap();
        Topic {
            entity,
            detects_duplicates: n == 1,
            next_number: 1,
            scheduled: Vec::new(),
            seen: Vec::new(),
            subscriptions: [const { None }; SUBSCRIPTION_COUNT],
        }
    }

    pub(crate) fn take(&mut self, step: Step) {
        if let Step::Crash { lost_group_count, from_snapshot } = step {
            return self.crash(lost_group_count, from_snapshot);
        }
        let before = self.model.standalone_bodies();
        match step {
            Step::Subscribe { at, rule } => self.subscribe(at, rule),
            Step::Unsubscribe { at } => self.unsubscribe(at),
            Step::Renew { topic } => self.renew(topic),
            Step::PutRule { at, rule, kind } => self.put_rule(at, &rule_name(rule), kind),
            Step::RemoveRule { at, rule } => {
                self.remove_rule(at, rule.map_or_else(|| DEFAULT.to_owned(), rule_name))
            }
            Step::Send { topic, messages } => self.send(topic, &messages),
            Step::Cancel { topic, pick } => self.cancel(topic, pick),
            Step::Take { at, is_dead, how } => self.receive_and_settle(at, is_dead, how),
            Step::Settle { at, pick, how } => self.settle_left(at, pick, how),
            Step::Transact { at, topic, message } => self.transact(at, topic, message),
            Step::Purge { at, is_dead, count_max } => self.purge(at, is_dead, count_max),
            Step::Move { segment, max } => self.move_bodies(segment, max),
            Step::Wait { seconds } => {
                self.now = self.now + Duration::from_secs(seconds);
                self.tick();
            }
            Step::Crash { .. } => {}
        }
        self.check_freed(&before);
        self.journal();
    }

    /// Checks that exactly the bodies without messages were freed, once each.
    fn check_freed(&mut self, before: &BTreeSet<u64>) {
        self.engine.unshare(&mut self.out.freed);
        let mut freed: Vec<_> = self.out.freed.drain(..).map(|body| body.place.to_raw()).collect();
        freed.sort_unstable();
        let now = self.model.standalone_bodies();
        assert_eq!(
            freed,
            before.difference(&now).copied().collect::<Vec<_>>(),
            "exactly the bodies without messages are freed"
        );
    }

    fn next_group(&self) -> CommitGroupNumber {
        CommitGroupNumber(self.groups.len() as u64 + 1)
    }

    fn journal(&mut self) {
        let (group, mut bytes) = (self.next_group(), Vec::new());
        self.out.facts.drain(..).for_each(|fact| record::encode(&fact, group, &mut bytes));
        self.engine.unshare(&mut self.out.freed);
        self.out.clear();
        let (model, snapshot) = (self.model.clone(), self.engine.snapshot());
        self.groups.push(CommitGroup { bytes, model, snapshot });
    }

    fn crash(&mut self, lost_group_count: usize, from_snapshot: bool) {
        let kept = self.groups.len().saturating_sub(lost_group_count).max(1);
        self.groups.truncate(kept);
        let middle = kept / 2;
        let (mut engine, from) = match self.groups.get(middle) {
            Some(group) if from_snapshot => {
                (Engine::restore(&group.snapshot, Placement::default()).unwrap(), middle + 1)
            }
            _ => (Engine::default(), 0),
        };
        for (group, number) in self.groups.iter().zip(1..).skip(from) {
            let mut bytes = group.bytes.as_slice();
            while !bytes.is_empty() {
                engine.apply(&record::decode(&mut bytes, CommitGroupNumber(number)).unwrap()).unwrap();
            }
            assert!(
                engine.snapshot() == group.snapshot,
                "the replayed state differs from the live one, at group {number}"
            );
        }
        self.engine = engine;
        self.model = self.groups.last().unwrap().model.clone();
        self.engine.wake(self.now, &mut self.out);
        self.tick();
        self.journal();
    }

    fn tick(&mut self) {
        self.engine.tick(self.now, &mut self.out);
        let now = self.now;
        self.model.topics.iter_mut().for_each(|topic| topic.tick(now));
    }

    fn found(&mut self, (topic, n): At) -> Option<&mut Subscription> {
        self.model.topics[topic].subscriptions[n].as_mut()
    }

    fn subscribe(&mut self, at: At, kind: Option<RuleKind>) {
        let has_sessions = at.1 == 1;
        let rule = kind.map(|kind| kind.rule(&rule_name(0)));
        let settings = QueueSettings { requires_session: has_sessions, ..settings() };
        let name = subscription_name(at);
        let created = self.engine.create_subscription(self.now, name, settings, rule, &mut self.out);
        if self.found(at).is_some() {
            assert!(created.is_err());
            return;
        }
        let rule = kind.map_or_else(|| (DEFAULT.to_owned(), RuleKind::True), |kind| (rule_name(0), kind));
        let (entity, rules) = (created.unwrap(), BTreeMap::from([rule]));
        let copies = Vec::new();
        self.model.topics[at.0].subscriptions[at.1] =
            Some(Subscription { entity, has_sessions, rules, next_number: 1, copies });
    }

    fn unsubscribe(&mut self, at: At) {
        let deleted = self.engine.delete_queue(self.now, &subscription_name(at), &mut self.out);
        let was_there = self.model.topics[at.0].subscriptions[at.1].take();
        assert_eq!(deleted.ok(), was_there.map(|subscription| subscription.entity));
    }

    fn renew(&mut self, topic: usize) {
        self.engine.delete_queue(self.now, &topic_name(topic), &mut self.out).unwrap();
        self.model.topics[topic] = self.create_topic(topic);
    }

    fn put_rule(&mut self, at: At, name: &str, kind: RuleKind) {
        let Some(subscription) = self.found(at) else { return };
        let is_new = subscription.rules.insert(name.to_owned(), kind).is_none();
        let (name, rule): (_, Rule) = (subscription_name(at), kind.rule(name));
        let (engine, now, out) = (&mut self.engine, self.now, &mut self.out);
        let (add, replace) = if is_new {
            let replaced = engine.replace_rule(now, &name, rule.clone(), out);
            (engine.add_rule(now, &name, rule, out), replaced)
        } else {
            let added = engine.add_rule(now, &name, rule.clone(), out);
            (engine.replace_rule(now, &name, rule, out), added)
        };
        assert!(add.is_ok() && replace.is_err());
    }

    fn remove_rule(&mut self, at: At, rule: String) {
        let Some(subscription) = self.found(at) else { return };
        let was_there = subscription.rules.remove(&rule).is_some();
        let (name, rule) = (subscription_name(at), RuleName::parse(&rule).unwrap());
        let removed = self.engine.remove_rule(self.now, &name, &rule, &mut self.out);
        assert_eq!(removed.is_ok(), was_there);
    }

    /// Returns the message for the model and for the engine; `n` is its place in the commit group.
    fn message(&mut self, sent: Sent, n: u32) -> (ModelMessage, NewMessage) {
        let id = self.next_id;
        self.next_id += 1;
        let body = match sent.is_cold {
            true => BodyRef::standalone((1 << 32) | u64::from(id)).unwrap(),
            false => BodyRef::in_group(self.next_group(), n * 8).unwrap(),
        };
        let session = sent.session.map(|session| format!("session {session}"));
        let model = ModelMessage { id, p: sent.p, session, body };
        let attributes = Attributes {
            session: model.session.as_ref().map(|session| SessionId::parse(session).unwrap()),
            scheduled_for: self.due(sent),
            message_id: sent.message_id.map(|id| Bytes::copy_from_slice(&[id])),
            view: Some(view_of(&model)),
            ..Attributes::default()
        };
        (model, NewMessage { body, size_bytes: id, attributes: Some(Box::new(attributes)) })
    }

    fn due(&self, sent: Sent) -> Option<Timestamp> {
        sent.ahead_s.map(|ahead| self.now + Duration::from_secs(ahead))
    }

    fn send(&mut self, topic: usize, messages: &[Sent]) {
        let mut batch = Vec::new();
        for (sent, n) in messages.iter().zip(0..) {
            let (model, new) = self.message(*sent, n);
            self.check_explained(topic, &model);
            let due = self.due(*sent);
            self.model.topics[topic].send(self.now, model, sent.message_id, due);
            batch.push(new);
        }
        let entity = self.model.topics[topic].entity;
        self.engine.schedule(self.now, entity, batch, &mut self.out).unwrap();
    }

    fn check_explained(&self, topic: usize, message: &ModelMessage) {
        let explained = self.engine.explain(&topic_name(topic), &view_of(message)).unwrap();
        let subscriptions = self.model.topics[topic].subscriptions.iter().enumerate();
        let there = subscriptions.filter_map(|(n, found)| Some((n, found.as_ref()?)));
        let expected: Vec<_> =
            there.map(|(n, found)| (subscription_name((topic, n)), found.would_take(message))).collect();
        let told = explained.into_iter().map(|explained| {
            (explained.subscription, (explained.copy_count, explained.dead_letter.is_some()))
        });
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }

    fn cancel(&mut self, topic: usize, pick: usize) {
        let topic = &mut self.model.topics[topic];
        let number = match pick.checked_rem(topic.scheduled.len()) {
            Some(place) => topic.scheduled.remove(place).number,
            None => {
                let never = [SequenceNumber(topic.next_number)];
                assert!(self.engine.cancel_scheduled(self.now, topic.entity, &never, &mut self.out).is_err());
                return;
            }
        };
        let number = [SequenceNumber(number)];
        self.engine.cancel_scheduled(self.now, topic.entity, &number, &mut self.out).unwrap();
    }

    /// Locks the first waiting message, checked against the model; returns its place among the copies, and its token.
    /// The receiver stays attached.
    fn receive(&mut self, at: At, is_dead: bool) -> Option<(usize, EntityId, LockToken)> {
        let (entity, has_sessions) = self.found(at).map(|found| (found.entity, found.has_sessions))?;
        let waits = |copy: &Copy| copy.is_dead == is_dead && copy.lock.is_none();
        let expected = self.found(at)?.copies.iter().position(waits);
        let in_session = |copy: &Copy| SessionId::parse(copy.message.session.as_ref()?).ok();
        let wish = match expected {
            Some(place) if has_sessions && !is_dead => {
                SessionWish::Named(in_session(&self.found(at)?.copies[place])?)
            }
            None if has_sessions && !is_dead => return None,
            _ => SessionWish::None,
        };
        let (now, mode) = (self.now, ReceiveMode::PeekLock);
        self.engine.attach_receiver(now, entity, part(is_dead), RECEIVER, mode, wish).unwrap();
        self.engine.add_window(RECEIVER, i64::MAX);
        self.engine.set_credit(RECEIVER, 1);
        self.nonce += 1;
        let nonce = self.nonce;
        assert!(!self.engine.deliver(now, &mut || nonce, &mut self.out));
        let delivery = self.out.deliveries.pop();
        let copies = &self.found(at)?.copies;
        let number = expected.map(|place| copies[place].number);
        assert_eq!(delivery.as_ref().map(|delivery| delivery.message.sequence_number.0), number);
        let Some(delivery) = delivery else {
            self.detach();
            return None;
        };
        Some((expected?, entity, delivery.token))
    }

    fn detach(&mut self) {
        self.engine.detach_receiver(self.now, RECEIVER, &mut self.out);
    }

    fn receive_and_settle(&mut self, at: At, is_dead: bool, how: How) {
        let Some((place, entity, token)) = self.receive(at, is_dead) else { return };
        // A session is free when its receiver detaches, and the messages locked in it return.
        let is_kept = at.1 != 1 || is_dead;
        match how {
            How::Leave if is_kept => self.found(at).unwrap().copies[place].lock = Some(token),
            _ => self.settle(at, place, entity, token, how),
        }
        self.detach();
    }

    fn settle(&mut self, at: At, place: usize, entity: EntityId, token: LockToken, how: How) {
        let sub_queue = part(self.found(at).unwrap().copies[place].is_dead);
        let settled = self.engine.settle(self.now, entity, sub_queue, token, settlement(how), &mut self.out);
        let copies = &mut self.found(at).unwrap().copies;
        if copies[place].is_dead && matches!(how, How::DeadLetter) {
            assert!(matches!(settled, Err(peeklock_engine::Error::DeadLetteredAlready { .. })));
            copies[place].lock = Some(token);
            return;
        }
        settled.unwrap();
        copies[place].lock = None;
        match how {
            How::Complete => drop(copies.remove(place)),
            How::Abandon => copies[place].failed_count += u32::from(!copies[place].is_dead),
            How::DeadLetter => copies[place].is_dead = true,
            How::Leave => {}
        }
    }

    fn settle_left(&mut self, at: At, pick: usize, how: How) {
        let Some(subscription) = self.found(at) else { return };
        let locked = |(place, copy): (usize, &Copy)| Some((place, copy.lock?));
        let locked: Vec<_> = subscription.copies.iter().enumerate().filter_map(locked).collect();
        let Some(&(place, token)) = pick.checked_rem(locked.len()).and_then(|pick| locked.get(pick)) else {
            return;
        };
        let entity = subscription.entity;
        self.settle(at, place, entity, token, how);
    }

    fn transact(&mut self, at: At, topic: usize, sent: Sent) {
        let Some(entity) = self.found(at).map(|subscription| subscription.entity) else { return };
        let held = self.receive(at, false);
        if let Some((place, ..)) = held {
            self.found(at).unwrap().copies.remove(place);
        }
        let settles = held.map(|(_, _, token)| (SubQueue::Main, token, Settlement::Complete));
        let (model, new) = self.message(sent, 0);
        let due = self.due(sent);
        self.model.topics[topic].send(self.now, model, sent.message_id, due);
        let transaction = Transaction {
            settles: settles.into_iter().collect(),
            sends: vec![(topic_name(topic), new)],
            ..Transaction::default()
        };
        self.engine.commit(self.now, HERE, entity, transaction, &mut self.out).unwrap();
        self.detach();
    }

    fn purge(&mut self, at: At, is_dead: bool, count_max: u64) {
        let now = self.now;
        let Some(subscription) = self.found(at) else { return };
        let mut left = count_max;
        subscription.copies.retain(|copy| {
            let goes = left > 0 && copy.is_dead == is_dead && copy.lock.is_none();
            left -= u64::from(goes);
            !goes
        });
        let (entity, before) = (subscription.entity, Timestamp::MAX);
        let purged = self.engine.purge(now, entity, part(is_dead), before, count_max, &mut self.out);
        assert_eq!(purged, Ok(count_max - left));
    }

    /// Moves bodies as the broker does: a body is copied once, even if its messages move in different steps.
    fn move_bodies(&mut self, segment: Option<u32>, max: usize) {
        let upto = self.next_group();
        let what = segment.map_or_else(
            || BodyRange::groups_upto(upto),
            |segment| {
                let first = u64::from(segment) << 32;
                BodyRange::handles(first, first | 0xffff_ffff)
            },
        );
        let mut copied: BTreeMap<u64, BodyRef> = BTreeMap::new();
        let to_segment = self.next_segment;
        self.next_segment += 1;
        let found = self.engine.bodies_in(what, max);
        assert!(found.len() <= max);
        for body in found {
            let known = self.engine.copy_of(body.place);
            let next = BodyRef::standalone((u64::from(to_segment) << 32) | copied.len() as u64).unwrap();
            let to = known.unwrap_or_else(|| *copied.entry(body.place.to_raw()).or_insert(next));
            let (entity, number) = (body.entity, body.sequence_number);
            assert!(self.engine.move_body(entity, number, body.place, to, &mut self.out));
            assert!(!self.engine.move_body(entity, number, body.place, to, &mut self.out));
            self.model.move_body(entity, number.0, to);
        }
    }

    pub(crate) fn check(&mut self) {
        let standalone: Vec<_> = self.engine.standalone_bodies().map(|body| body.place.to_raw()).collect();
        assert_eq!(
            standalone.len(),
            standalone.iter().collect::<BTreeSet<_>>().len(),
            "each body is reported once"
        );
        assert_eq!(standalone.into_iter().collect::<BTreeSet<_>>(), self.model.standalone_bodies());
        assert_eq!(self.engine.oldest_log_body(), self.model.oldest_log_body());
        for topic in &self.model.topics {
            let waiting = self.engine.peek(topic.entity, SubQueue::Main, SequenceNumber(0), 4000).unwrap();
            let numbers = |message: &Message| (message.sequence_number.0, message.size_bytes, message.body);
            let mut expected: Vec<_> = topic
                .scheduled
                .iter()
                .map(|scheduled| (scheduled.number, scheduled.message.id, scheduled.message.body))
                .collect();
            expected.sort_unstable_by_key(|(number, ..)| *number);
            assert_eq!(waiting.iter().map(numbers).collect::<Vec<_>>(), expected);
            let there = topic.subscriptions.iter().flatten();
            assert_eq!(self.engine.subscriptions(topic.entity).count(), there.clone().count());
            there.for_each(|subscription| check_subscription(&self.engine, subscription));
        }
    }

    /// Deletes everything, and checks that nothing is left.
    pub(crate) fn finish(mut self) {
        self.crash(0, true);
        self.check();
        let before = self.model.standalone_bodies();
        for topic in 0..TOPIC_COUNT {
            self.renew(topic);
        }
        self.check_freed(&before);
        self.journal();
        self.check();
        self.crash(0, false);
        assert_eq!(self.engine.standalone_bodies().count(), 0);
    }
}

fn check_subscription(engine: &Engine, subscription: &Subscription) {
    for is_dead in [false, true] {
        let found = engine.peek(subscription.entity, part(is_dead), SequenceNumber(0), 4000).unwrap();
        let copies = subscription.copies.iter().filter(|copy| copy.is_dead == is_dead);
        assert_eq!(found.len(), copies.clone().count());
        for (found, copy) in found.iter().zip(copies) {
            let seen = (found.sequence_number.0, found.size_bytes, found.body, found.delivery_count);
            assert_eq!(seen, (copy.number, copy.message.id, copy.message.body, copy.failed_count));
            assert_eq!(
                (rule_of(found), found.locked_until.is_some()),
                (copy.rule.clone(), copy.lock.is_some())
            );
            if !subscription.has_sessions {
                let session = found.details.as_ref().and_then(|details| details.session.as_ref());
                assert_eq!(session.map(SessionId::as_str), copy.message.session.as_deref());
            }
        }
    }
    let counts = engine.queue(subscription.entity).unwrap().counts;
    let of = |is_dead: bool| subscription.copies.iter().filter(move |copy| copy.is_dead == is_dead);
    assert_eq!(
        (counts.active_count, counts.dead_letter_count),
        (of(false).count() as u64, of(true).count() as u64)
    );
    assert_eq!(counts.locked_count, of(false).filter(|copy| copy.lock.is_some()).count() as u64);
    assert_eq!(engine.queue(subscription.entity).unwrap().rule_count, subscription.rules.len());
}

/// Returns the rule whose action has changed the copy.
fn rule_of(message: &Message) -> Option<String> {
    let changes = message.patch.parts.iter().find_map(|part| match part {
        PatchPart::Changes(changes) => Some(Changes::decode(changes).unwrap()),
        _ => None,
    });
    changes?.into_iter().find_map(|change| match change {
        Change::SetUser { name, value: Value::Text(text) } if name == "RuleName" => Some(text.to_string()),
        _ => None,
    })
}
