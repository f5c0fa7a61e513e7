//! Topics: selects the subscriptions that get a message, and the form of each copy.
//!
//! A topic is an entity that distributes its messages. A message is stored once; each copy is a row in a subscription
//! that refers to the same body, and all copies of a message are decided together. Only a scheduled message waits in
//! the topic itself.

use std::collections::BTreeMap;

use bytes::Bytes;
use peeklock_filter::{
    Change, Changed, Changes, Cost, Entries, Filter, Outcome, Rule, RuleName, RuleSet, SystemProperty, Value,
    ValueRef, ViewBuilder, ViewProperty, same_name,
};
use peeklock_types::{
    EntityKind, EntityName, QueueSettings, SequenceNumber, SessionId, SubQueue, Timestamp, limits,
};

use crate::engine::Engine;
use crate::error::{Error, ReplayError};
use crate::fact::Fact;
use crate::message::{Attributes, EntityId, NewMessage};
use crate::output::Output;
use crate::patch::PatchPart;
use crate::plan::{Plan, check_copies};
use crate::queue::{MessageRow, NUMBERS_PER_MESSAGE, Queue, reason};

const REASON_NO_SESSION: &str = "Session ID is null";
const DESCRIPTION_NO_SESSION: &str = "The subscription requires sessions, and the message has no session id.";
const REASON_FILTER: &str = "FilterEvaluationException";
/// The bytes that one step of a tick may add to the journal; a larger message counts as several steps.
const STEP_BYTES: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Topic {
    pub(crate) subscriptions: BTreeMap<EntityName, EntityId>,
    pub(crate) rules: RuleSet<EntityId>,
}

/// The result of a test message for one subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    pub subscription: EntityName,
    pub copy_count: usize,
    /// The reason for which the message would be dead-lettered.
    pub dead_letter: Option<String>,
    pub rules: Vec<ExplainedRule>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ExplainedRule {
    pub name: RuleName,
    pub matched: bool,
    pub why: String,
}

impl Engine {
    /// Sets the limit of the cost of a topic's rules for one message. The limit is not durable, and has no effect on
    /// earlier decisions.
    pub fn set_filter_cost(&mut self, cost: Cost) {
        self.filter_cost = cost;
        self.topics.values_mut().for_each(|topic| topic.rules.set_cost(cost));
    }

    pub fn create_subscription(
        &mut self,
        now: Timestamp,
        name: EntityName,
        settings: QueueSettings,
        rule: Option<Rule>,
        out: &mut Output,
    ) -> Result<EntityId, Error> {
        let kind = EntityKind::Subscription;
        let Some(topic_name) = name.topic() else { return Err(Error::OtherKind { name, kind }) };
        let topic = self.find(&topic_name).and_then(|entity| self.topics.get(&entity));
        let topic = topic.ok_or_else(|| Error::NoSuchTopic { name: topic_name.clone() })?;
        let max = limits::SUBSCRIPTIONS_PER_TOPIC_MAX;
        let is_full = topic.subscriptions.len() >= max;
        let settings = self.check_new(&name, kind, &settings)?;
        if is_full {
            return Err(Error::TopicFull { name: topic_name, what: "subscriptions", max });
        }
        let all = || Rule { name: RuleName::default_rule(), filter: Filter::True, action: None };
        let rule = rule.unwrap_or_else(all);
        rule.check()?;
        let entity = self.next_entity;
        self.check_rule_count(&topic_name, &rule, None)?;
        self.record(Fact::QueueCreated { entity, name, kind, settings, created_at: now }, out);
        self.record(Fact::RuleSet { entity, rule: Box::new(rule), at: now }, out);
        // The service counts a new subscription as a use of the topic.
        if let Some(topic) = self.find(&topic_name) {
            self.touch(now, topic);
        }
        Ok(entity)
    }

    /// Returns the subscriptions of a topic, by name.
    pub fn subscriptions(&self, topic: EntityId) -> impl Iterator<Item = EntityId> {
        self.topics.get(&topic).into_iter().flat_map(|topic| topic.subscriptions.values().copied())
    }

    /// Reports which subscriptions would get a message with these properties, and why the others would not.
    pub fn explain(&self, name: &EntityName, view: &[u8]) -> Result<Vec<Explained>, Error> {
        let found = self.find(name).ok_or_else(|| Error::NoSuchQueue { name: name.clone() })?;
        let kind = EntityKind::Topic;
        let topic = self.topics.get(&found).ok_or_else(|| Error::OtherKind { name: name.clone(), kind })?;
        let base = Attributes { session: session_of(view), ..Attributes::default() };
        let plan = self.plan_one(topic, view, 0, Some(&base));
        let mut rules: BTreeMap<EntityId, Vec<ExplainedRule>> = BTreeMap::new();
        for explained in topic.rules.explain(view) {
            let (matched, why) = (explained.matched(), explained.why);
            let rule = ExplainedRule { name: explained.rule, matched, why };
            rules.entry(explained.key).or_default().push(rule);
        }
        let mut copies: BTreeMap<EntityId, (usize, Option<String>)> = BTreeMap::new();
        let mut note = |to: EntityId, problem: Option<String>| {
            let (copy_count, dead_letter) = copies.entry(to).or_default();
            *copy_count += usize::from(problem.is_none());
            *dead_letter = dead_letter.take().or(problem);
        };
        for &to in plan.plain.iter().chain(&plan.placed) {
            note(to, self.problem(to, &base, None).map(|(_, text)| text));
        }
        for (to, changes) in plan.changed {
            let (attributes, problem) = changed(&base, Timestamp::MAX, changes);
            note(to, self.problem(to, &attributes, problem).map(|(_, text)| text));
        }
        plan.failed.into_iter().for_each(|(to, why)| note(to, Some(why)));
        let explain = |(name, entity): (&EntityName, &EntityId)| {
            let (copy_count, dead_letter) = copies.remove(entity).unwrap_or_default();
            let rules = rules.remove(entity).unwrap_or_default();
            Explained { subscription: name.clone(), copy_count, dead_letter, rules }
        };
        Ok(topic.subscriptions.iter().map(explain).collect())
    }

    /// Sends messages to a topic, all or nothing. Only the numbers of scheduled messages are meaningful.
    pub(crate) fn publish(
        &mut self,
        now: Timestamp,
        topic: EntityId,
        messages: impl AsRef<[NewMessage]> + IntoIterator<Item = NewMessage>,
        out: &mut Output,
    ) -> Result<Vec<SequenceNumber>, Error> {
        let plans = self.plan(now, topic, messages.as_ref())?;
        check_copies(plans.iter())?;
        let put = |(message, plan)| self.put(now, topic, message, plan, out);
        Ok(messages.into_iter().zip(plans).map(put).collect())
    }

    /// Plans the copies of messages for a topic, and checks that the topic accepts all of them.
    pub(crate) fn plan(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        messages: &[NewMessage],
    ) -> Result<Vec<Plan>, Error> {
        self.command(now, entity, |queue| queue.check_send(now, messages))?;
        self.check_topic_size(entity, messages)?;
        let Some(topic) = self.topics.get(&entity) else { return Err(Error::NoSuchEntity { entity }) };
        check_evaluations(topic.rules.sql_count(), messages.len())?;
        let expires =
            self.queues.get(&entity).is_some_and(|queue| queue.settings.default_time_to_live.is_some());
        let plan = |message: &NewMessage| {
            let attributes = message.attributes.as_deref();
            if let Some(attributes) = attributes.filter(|attributes| is_scheduled(attributes, now)) {
                return Plan::waiting(attributes);
            }
            let view = attributes.and_then(|attributes| attributes.view.as_deref()).unwrap_or_default();
            let mut plan = self.plan_one(topic, view, message.seed(now), attributes);
            if expires {
                plan.add_time_to_live();
            }
            plan
        };
        let (mut plans, mut size_bytes) = (Vec::with_capacity(messages.len()), 0);
        for message in messages {
            let plan = plan(message);
            size_bytes += plan.size_bytes();
            plans.push(plan);
            // A batch has up to a hundred thousand messages, and a topic thousands of subscriptions: planning stops as
            // soon as the batch is rejected.
            if size_bytes > limits::COPIES_SIZE_BYTES_MAX {
                check_copies(plans.iter())?;
            }
        }
        self.check_numbers(&plans, messages.len())?;
        Ok(plans)
    }

    fn plan_one(&self, topic: &Topic, view: &[u8], seed: u64, attributes: Option<&Attributes>) -> Plan {
        let mut verdicts = Vec::new();
        topic.rules.evaluate(view, seed, &mut verdicts);
        let mut plan = Plan::of(attributes);
        let none = Attributes::default();
        let attributes = attributes.unwrap_or(&none);
        for verdict in verdicts {
            let key = verdict.key;
            match verdict.outcome {
                Outcome::Copies { plain, changed } => {
                    let is_dead = plain && self.lacks_session(key, attributes);
                    let queue = self.queues.get(&key).filter(|_| plain);
                    match queue.map(|queue| queue.settings.order.is_some()) {
                        Some(true) => plan.place(key, is_dead),
                        Some(false) => plan.copy(key, is_dead),
                        None => {}
                    }
                    for Changed { rule, changes } in changed {
                        plan.change(key, &rule, changes);
                    }
                }
                Outcome::Error { rule, reason } => {
                    if self.queues.get(&key).is_some_and(|queue| queue.settings.dead_letter_on_filter_error) {
                        plan.fail(key, format!("The rule '{rule}' cannot be evaluated: {reason}."));
                    }
                }
            }
        }
        plan
    }

    fn check_numbers(&self, plans: &[Plan], message_count: usize) -> Result<(), Error> {
        let needed = NUMBERS_PER_MESSAGE.saturating_mul(message_count as u64);
        let targets = plans.iter().flat_map(Plan::targets);
        // A rule with an action makes its own copy, and the number of rules of a subscription is limited.
        let factor = (limits::SQL_RULES_PER_TOPIC_MAX + limits::CORRELATION_RULES_PER_TOPIC_MAX) as u64 + 2;
        for queue in targets.filter_map(|to| self.queues.get(to)) {
            if queue.numbers_left() / factor < needed {
                return Err(Error::NoSequenceNumberLeft { path: queue.path(SubQueue::Main) });
            }
        }
        Ok(())
    }

    /// Checks the size of a topic, which is that of all its subscriptions.
    fn check_topic_size(&self, entity: EntityId, messages: &[NewMessage]) -> Result<(), Error> {
        let Some(queue) = self.queues.get(&entity) else { return Ok(()) };
        let Some(max) = queue.settings.max_size_bytes else { return Ok(()) };
        let size_bytes = self.topic_size(entity);
        let more: u64 = messages.iter().map(|message| u64::from(message.size_bytes)).sum();
        if size_bytes + more > max {
            return Err(queue.full(size_bytes, max, "bytes", "max size"));
        }
        Ok(())
    }

    /// Returns the bytes of the messages in a topic and in its subscriptions. A body counts once for each copy.
    pub fn topic_size(&self, topic: EntityId) -> u64 {
        let all = std::iter::once(topic).chain(self.subscriptions(topic));
        all.filter_map(|entity| self.queues.get(&entity)).map(|queue| queue.size_bytes()).sum()
    }

    /// Executes the plan for a message of a topic.
    pub(crate) fn put(
        &mut self,
        now: Timestamp,
        topic: EntityId,
        message: NewMessage,
        plan: Plan,
        out: &mut Output,
    ) -> SequenceNumber {
        let Some(queue) = self.queues.get_mut(&topic) else { return SequenceNumber::default() };
        if message.attributes.as_ref().is_some_and(|attributes| is_scheduled(attributes, now)) {
            let number = queue.store(now, message, out);
            self.note(topic);
            return number;
        }
        if let Some(number) = queue.find_duplicate(now, &message) {
            return number;
        }
        let id = message.attributes.as_ref().and_then(|attributes| attributes.message_id.clone());
        if let (Some(message_id), true) = (id, queue.settings.duplicate_window.is_some()) {
            self.record(Fact::Seen { entity: topic, message_id, at: now }, out);
        }
        self.copy(now, topic, message, plan, false, out);
        SequenceNumber::default()
    }

    /// Stores the copies of a message in subscriptions. `was_scheduled` is set if the message waited in the topic, so
    /// that its body already belongs to a message.
    fn copy(
        &mut self,
        now: Timestamp,
        topic: EntityId,
        message: NewMessage,
        plan: Plan,
        was_scheduled: bool,
        out: &mut Output,
    ) {
        let mut again = was_scheduled;
        let Some(queue) = self.queues.get(&topic) else { return };
        let seed = message.seed(now);
        let NewMessage { body, size_bytes, attributes } = message;
        let view = attributes.as_ref().and_then(|attributes| attributes.view.clone()).unwrap_or_default();
        let mut base = attributes.map(|attributes| *attributes).unwrap_or_default();
        (base.view, base.reserved) = (None, None);
        base.scheduled_for = base.scheduled_for.filter(|_| was_scheduled);
        base.time_to_live = base.time_to_live.into_iter().chain(queue.settings.default_time_to_live).min();
        if !self.hands_on(&plan) {
            base.message_id = None;
        }
        let mut fan = |engine: &mut Self, to: &[EntityId], attributes: &Attributes| {
            let number = |to: &EntityId| Some((*to, engine.queues.get(to)?.next_number));
            let copies: Box<[_]> = to.iter().filter_map(number).collect();
            let attributes = Attributes::kept(Some(Box::new(attributes.clone())), false);
            if !copies.is_empty() {
                let fact = Fact::FannedOut {
                    copies: copies.clone(),
                    enqueued_at: now,
                    body,
                    size_bytes,
                    attributes,
                    again: std::mem::replace(&mut again, true),
                };
                engine.record(fact, out);
            }
            copies
        };
        let mut dead = Vec::new();
        for (entity, number) in fan(self, &plan.plain, &base) {
            let problem = self.problem(entity, &base, None);
            dead.extend(problem.map(|(reason, text)| (entity, number, reason, text)));
        }
        for entity in plan.placed {
            let (attributes, is_misfit) = self.in_lane(entity, &base, &view, seed);
            for (entity, number) in fan(self, &[entity], &attributes) {
                self.note_copy(now, entity, number, &attributes, is_misfit);
                let problem = self.problem(entity, &attributes, None);
                dead.extend(problem.map(|(reason, text)| (entity, number, reason, text)));
            }
        }
        for (entity, changes) in plan.changed {
            let seen = changed_view(&view, &changes);
            let (attributes, problem) = changed(&base, now, changes);
            let (attributes, is_misfit) = self.in_lane(entity, &attributes, &seen, seed);
            for (entity, number) in fan(self, &[entity], &attributes) {
                self.note_copy(now, entity, number, &attributes, is_misfit);
                let problem = self.problem(entity, &attributes, problem.clone());
                dead.extend(problem.map(|(reason, text)| (entity, number, reason, text)));
            }
        }
        let (failed, why): (Vec<_>, Vec<_>) = plan.failed.into_iter().unzip();
        let numbers = fan(self, &failed, &base).into_iter().map(|(_, number)| number);
        let failed = failed.into_iter().zip(numbers).zip(why);
        dead.extend(failed.map(|((entity, number), why)| (entity, number, REASON_FILTER, why)));
        for (entity, sequence_number, why, text) in dead {
            let text = text.chars().take(limits::DEAD_LETTER_TEXT_CHARS_MAX).collect();
            let (sub_queue, patch) = (SubQueue::Main, reason(why, text));
            self.record(Fact::DeadLettered { entity, sub_queue, sequence_number, failed: false, patch }, out);
        }
    }

    /// Returns the attributes with the lane of the copy, if the subscription has an order; and whether the message
    /// specified an unknown class.
    fn in_lane(&self, to: EntityId, attributes: &Attributes, view: &Bytes, seed: u64) -> (Attributes, bool) {
        let order = self.queues.get(&to).and_then(|queue| queue.main.messages.order());
        let (lane, is_misfit) = order.map(|order| order.classify(view, seed)).unzip();
        (Attributes { lane, ..attributes.clone() }, is_misfit.unwrap_or_default())
    }

    fn note_copy(
        &mut self,
        now: Timestamp,
        to: EntityId,
        number: SequenceNumber,
        attributes: &Attributes,
        is_misfit: bool,
    ) {
        if let (Some(queue), Some(key)) = (self.queues.get_mut(&to), &attributes.lane) {
            queue.note_new(now, number, key, is_misfit);
        }
    }

    /// Returns whether a subscription that gets the message may forward it to a queue that needs its message id.
    fn hands_on(&self, plan: &Plan) -> bool {
        let mut queues = plan.targets().filter_map(|to| self.queues.get(to));
        queues.any(|queue| {
            queue.settings.forward_to.is_some() || queue.settings.forward_dead_letters_to.is_some()
        })
    }

    /// Returns why a copy goes to the dead-letter queue, as a reason and a sentence. `changed` is the error in the
    /// result of an action.
    fn problem(
        &self,
        to: EntityId,
        attributes: &Attributes,
        changed: Option<String>,
    ) -> Option<(&'static str, String)> {
        let no_session = || (REASON_NO_SESSION, DESCRIPTION_NO_SESSION.to_owned());
        let lacks_session = || self.lacks_session(to, attributes).then(no_session);
        changed.map(|text| (REASON_FILTER, text)).or_else(lacks_session)
    }

    fn lacks_session(&self, entity: EntityId, attributes: &Attributes) -> bool {
        let queue = self.queues.get(&entity);
        attributes.session.is_none() && queue.is_some_and(|queue| queue.settings.requires_session)
    }

    /// Distributes scheduled messages that are due by `now`, in approximately `max` steps or fewer; returns the number
    /// of steps.
    pub(crate) fn tick_topic(
        &mut self,
        now: Timestamp,
        entity: EntityId,
        max: usize,
        out: &mut Output,
    ) -> usize {
        let mut done = 0;
        while done < max {
            let Some((sequence_number, message)) = self.next_due_in_topic(now, entity) else { break };
            let attributes = message.attributes.as_deref();
            let view = attributes.and_then(|attributes| attributes.view.clone()).unwrap_or_default();
            let plan = match self.topics.get(&entity) {
                Some(topic) => self.plan_one(topic, &view, message.seed(now), attributes),
                None => Plan::default(),
            };
            let (start, size_bytes) = (out.facts.len(), plan.size_bytes());
            self.copy(now, entity, message, plan, true, out);
            self.record(Fact::Completed { entity, sub_queue: SubQueue::Main, sequence_number }, out);
            done += (out.facts.len() - start).max(size_bytes / STEP_BYTES);
        }
        self.delete_if_idle(now, entity, out);
        self.note(entity);
        done
    }

    fn next_due_in_topic(&self, now: Timestamp, entity: EntityId) -> Option<(SequenceNumber, NewMessage)> {
        let messages = &self.queues.get(&entity)?.main.messages;
        let number = messages.next_due(now)?;
        let (entry, details) =
            (messages.get(number)?, messages.details_of(number).cloned().unwrap_or_default());
        let attributes = Attributes {
            session: details.session,
            time_to_live: details.time_to_live,
            scheduled_for: details.due,
            message_id: details.message_id,
            origin: details.origin,
            patch: messages.patch_of(number).cloned().unwrap_or_default(),
            view: details.view,
            lane: None,
            reserved: None,
        };
        let attributes = Some(Box::new(attributes));
        Some((number, NewMessage { body: entry.body, size_bytes: entry.size_bytes, attributes }))
    }

    pub(crate) fn fan_out(
        &mut self,
        copies: &[(EntityId, SequenceNumber)],
        entry: MessageRow,
        attributes: Option<&Attributes>,
        again: bool,
    ) -> Result<(), ReplayError> {
        for &(entity, number) in copies {
            let queue = self.queues.get_mut(&entity).ok_or(ReplayError::NoSuchEntity { entity })?;
            if queue.kind != EntityKind::Subscription {
                return Err(ReplayError::OtherKind { entity });
            }
            queue.enqueue(number, entry, attributes)?;
            self.agenda.note(queue);
        }
        let first = u64::from(!again);
        self.shared.add(entry.body, (copies.len() as u64).saturating_sub(first));
        Ok(())
    }

    /// Returns an entity; if it is a topic, its subscriptions come before it.
    pub(crate) fn with_subscriptions(&self, entity: EntityId) -> Vec<EntityId> {
        self.subscriptions(entity).chain([entity]).collect()
    }

    /// Registers a topic or subscription, and checks that its kind and its parent are valid.
    pub(crate) fn insert_topic(&mut self, queue: &Queue) -> Result<(), ReplayError> {
        let entity = queue.entity;
        let fits = queue.name.is_subscription() == (queue.kind == EntityKind::Subscription);
        let misfit = ReplayError::OtherKind { entity };
        match queue.kind {
            _ if !fits => return Err(misfit),
            EntityKind::Queue => {}
            EntityKind::Topic => {
                let mut topic = Topic::default();
                topic.rules.set_cost(self.filter_cost);
                self.topics.insert(entity, topic);
            }
            EntityKind::Subscription => {
                let topic = queue.name.topic().and_then(|name| self.find(&name));
                let topic = topic.and_then(|topic| self.topics.get_mut(&topic)).ok_or(misfit)?;
                topic.subscriptions.insert(queue.name.clone(), entity);
            }
        }
        Ok(())
    }

    pub(crate) fn remove_topic(&mut self, queue: &Queue) {
        self.topics.remove(&queue.entity);
        let topic = queue.name.topic().and_then(|name| self.find(&name));
        if let Some(topic) = topic.and_then(|topic| self.topics.get_mut(&topic)) {
            topic.subscriptions.remove(&queue.name);
            topic.rules.remove_all(queue.entity);
        }
    }
}

/// Returns the session in a view.
fn session_of(view: &[u8]) -> Option<SessionId> {
    Entries::of(view).find_map(|entry| match entry {
        Ok(ViewProperty::System(SystemProperty::SessionId, ValueRef::Text(text))) => {
            SessionId::parse(&text).ok()
        }
        _ => None,
    })
}

/// Checks the number of filter evaluations. A single message always passes: the number of its topic's filters is
/// limited.
fn check_evaluations(rule_count: usize, message_count: usize) -> Result<(), Error> {
    let max = limits::SQL_EVALUATIONS_MAX / rule_count.max(1);
    if message_count > max.max(1) {
        return Err(Error::TooManyEvaluations { message_count, rule_count, max });
    }
    Ok(())
}

fn is_scheduled(attributes: &Attributes, now: Timestamp) -> bool {
    attributes.scheduled_for.is_some_and(|due| due > now)
}

/// Returns the properties of a message after the changes of an action.
fn changed_view(view: &Bytes, changes: &Bytes) -> Bytes {
    let list = Changes::decode(changes).unwrap_or_default();
    let mut seen = ViewBuilder::new();
    for (place, change) in list.iter().enumerate() {
        let is_last = !list.iter().skip(place + 1).any(|later| concerns_same(change, later));
        match change {
            Change::SetUser { name, value } if is_last => seen.user(name, value),
            Change::SetSystem { property, value } if is_last => seen.system(*property, value),
            _ => {}
        }
    }
    let is_changed = |entry: &ViewProperty<'_>| {
        list.iter().any(|change| match (change, entry) {
            (Change::SetUser { name, .. } | Change::RemoveUser { name }, ViewProperty::User(other, _)) => {
                same_name(name, other)
            }
            (Change::SetSystem { property, .. }, ViewProperty::System(other, _)) => property == other,
            _ => false,
        })
    };
    for entry in Entries::of(view).map_while(Result::ok).filter(|entry| !is_changed(entry)) {
        match entry {
            ViewProperty::User(name, value) => seen.user_ref(name, &value),
            ViewProperty::System(property, value) => seen.system_ref(property, &value),
        }
    }
    seen.finish()
}

fn concerns_same(one: &Change, other: &Change) -> bool {
    let name = |change: &Change| match change {
        Change::SetUser { name, .. } | Change::RemoveUser { name } => Some(name.clone()),
        Change::SetSystem { .. } => None,
    };
    match (name(one), name(other)) {
        (Some(one), Some(other)) => same_name(&one, &other),
        (None, None) => {
            matches!((one, other), (Change::SetSystem { property: one, .. }, Change::SetSystem { property: other, .. }) if one == other)
        }
        _ => false,
    }
}

/// Applies the changes of an action to a message's attributes. Also returns the error if a change is not possible.
fn changed(base: &Attributes, now: Timestamp, changes: Bytes) -> (Attributes, Option<String>) {
    let mut attributes = base.clone();
    let list = Changes::decode(&changes).unwrap_or_default();
    attributes.patch.add(PatchPart::Changes(changes));
    let mut problem = None;
    for change in list {
        if let Change::SetSystem { property, value } = change
            && let Err(what) = set_system(&mut attributes, now, property, &value)
        {
            problem = Some(format!("An action set {property} to a value that it cannot have: {what}."));
        }
    }
    if problem.is_some() {
        return (base.clone(), problem);
    }
    (attributes, None)
}

/// Sets the system properties that a queue uses; the others are only shown.
fn set_system(
    attributes: &mut Attributes,
    now: Timestamp,
    property: SystemProperty,
    value: &Value,
) -> Result<(), String> {
    match (property, value) {
        (SystemProperty::SessionId, Value::Null) => attributes.session = None,
        (SystemProperty::SessionId, Value::Text(text)) => {
            attributes.session = Some(SessionId::parse(text).map_err(|error| error.to_string())?);
        }
        (SystemProperty::TimeToLive, Value::Null) => attributes.time_to_live = None,
        (SystemProperty::TimeToLive, Value::Span(ticks)) => {
            let span_ms = u64::try_from(*ticks / 10_000).ok().filter(|span_ms| *span_ms > 0);
            let span_ms = span_ms.ok_or("a time to live is at least a millisecond")?;
            attributes.time_to_live =
                Some(std::time::Duration::from_millis(span_ms).min(limits::DURATION_MAX));
        }
        (SystemProperty::ScheduledEnqueueTimeUtc, Value::Time(at)) => {
            let due = Timestamp::from_millis(u64::try_from(*at).unwrap_or_default());
            if due > now + limits::SCHEDULE_AHEAD_MAX {
                return Err("it is too far ahead".to_owned());
            }
            attributes.scheduled_for = Some(due).filter(|due| *due > now);
        }
        _ => {}
    }
    Ok(())
}
