//! Copies of a topic's messages: their limits, their shared bodies, and their forwarding.

use bytes::Bytes;
use peeklock_engine::{
    Attributes, CloseReason, EntityId, Error, Fact, Message, PatchPart, ReceiveMode, ReceiverId, SessionWish,
    Settlement, Transaction, record,
};
use peeklock_filter::{
    Action, Change, Changes, Filter, Rule, RuleName, SqlFilter, SystemProperty, Value, ViewBuilder,
};
use peeklock_types::{EntityKind, EntityName, Placement, QueueSettings, QueueStatus, SubQueue, limits};

use crate::story::{
    ABANDON, DEAD, MAIN, Story, far_away, here, id, name, neighbours, secs, session, settings, standalone,
};

const ASIDE: SubQueue = SubQueue::TransferDeadLetter;

/// Returns a topic in the shard of "orders".
fn topic_name() -> EntityName {
    neighbours().nth(3).unwrap()
}

fn subscription_name(text: &str) -> EntityName {
    EntityName::subscription(&topic_name(), text).unwrap()
}

fn story() -> (Story, EntityId) {
    story_with(QueueSettings::default())
}

fn story_with(settings: QueueSettings) -> (Story, EntityId) {
    let mut story = Story::new();
    let topic =
        story.engine.create(story.now, topic_name(), EntityKind::Topic, settings, &mut story.out).unwrap();
    (story, topic)
}

fn rule_name(text: &str) -> RuleName {
    RuleName::parse(text).unwrap()
}

fn rule(name: &str, filter: Filter) -> Rule {
    Rule { name: rule_name(name), filter, action: None }
}

fn sql(text: &str) -> Filter {
    Filter::Sql(SqlFilter { expression: text.to_owned(), parameters: Vec::new() })
}

fn acting(name: &str, filter: Filter, action: &str) -> Rule {
    let action = Action { expression: action.to_owned(), parameters: Vec::new() };
    Rule { action: Some(action), ..rule(name, filter) }
}

impl Story {
    fn subscribe(&mut self, name: &str, rule: Option<Rule>) -> EntityId {
        self.subscribe_with(name, settings(), rule)
    }

    fn subscribe_with(&mut self, name: &str, settings: QueueSettings, rule: Option<Rule>) -> EntityId {
        let name = subscription_name(name);
        self.engine.create_subscription(self.now, name, settings, rule, &mut self.out).unwrap()
    }

    /// Sends a message with these properties.
    fn publish(&mut self, topic: EntityId, properties: &[(&str, Value)]) {
        self.send_to(topic, viewed(properties)).unwrap();
    }

    fn count(&self, entity: EntityId) -> u64 {
        self.engine.queue(entity).unwrap().counts.message_count()
    }

    /// Sends a message whose body is standalone.
    fn publish_cold(&mut self, topic: EntityId, n: u64) {
        let mut batch = self.batch(1);
        batch[0].body = standalone(1, n);
        self.engine.send(self.now, topic, batch, &mut self.out).unwrap();
    }

    /// Returns the standalone bodies that were freed since the last call.
    fn freed(&mut self) -> Vec<u64> {
        self.engine.unshare(&mut self.out.freed);
        self.out.freed.drain(..).map(|body| body.place.to_raw()).collect()
    }
}

fn viewed(properties: &[(&str, Value)]) -> Attributes {
    let mut view = ViewBuilder::new();
    properties.iter().for_each(|(name, value)| view.user(name, value));
    Attributes { view: Some(view.finish()), ..Attributes::default() }
}

fn changes_of(message: &Message) -> Vec<Change> {
    let changes = message.patch.parts.iter().find_map(|part| match part {
        PatchPart::Changes(changes) => Some(changes),
        _ => None,
    });
    changes.map(|changes| Changes::decode(changes).unwrap()).unwrap_or_default()
}

#[test]
fn without_its_default_rule_a_subscription_gets_nothing() {
    let (mut story, topic) = story();
    let (one, name) = (story.subscribe("one", None), subscription_name("one"));
    let default = rule_name("$DEFAULT");
    story.engine.remove_rule(story.now, &name, &default, &mut story.out).unwrap();
    story.publish(topic, &[]);
    assert_eq!(story.count(one), 0);
    let again = story.engine.remove_rule(story.now, &name, &default, &mut story.out);
    assert_eq!(again, Err(Error::NoSuchRule { name: name.clone(), rule: default }));
    story.engine.add_rule(story.now, &name, rule("all", Filter::True), &mut story.out).unwrap();
    let twice = story.engine.add_rule(story.now, &name, rule("ALL", Filter::False), &mut story.out);
    assert!(matches!(twice, Err(Error::RuleExists { .. })));
    story.publish(topic, &[]);
    assert_eq!(story.count(one), 1);
    story.restart();
}

#[test]
fn a_rule_that_does_not_parse_changes_nothing() {
    let (mut story, _) = story();
    let one = story.subscribe("one", None);
    story.forget_effects();
    let before = story.engine.snapshot();
    let name = subscription_name("one");
    let refused = story.engine.add_rule(story.now, &name, rule("bad", sql("a = ")), &mut story.out);
    assert!(matches!(refused, Err(Error::Rule(_))), "{refused:?}");
    let two = subscription_name("two");
    let bad = Some(rule("bad", sql("a LIKE")));
    let refused = story.engine.create_subscription(story.now, two, settings(), bad, &mut story.out);
    assert!(matches!(refused, Err(Error::Rule(_))), "{refused:?}");
    assert_eq!((story.engine.snapshot(), story.out.facts.len()), (before, 0));
    assert_eq!(story.engine.queue(one).unwrap().rule_count, 1);
}

#[test]
fn an_action_may_change_system_properties_that_the_queue_uses() {
    let (mut story, topic) = story();
    let sessions = QueueSettings { requires_session: true, ..settings() };
    let moved =
        story.subscribe_with("moved", sessions, Some(acting("r", Filter::True, "SET sys.SessionId = 'a'")));
    story.publish(topic, &[]);
    assert_eq!(story.engine.list_sessions(story.now, moved, None, 0, 9).unwrap(), [session("a")]);
    story.restart();
}

#[test]
fn the_shortest_time_to_live_applies() {
    for (message, topic_says, subscription_says, expected) in [
        (Some(5), Some(7), Some(9), 5),
        (Some(9), Some(7), Some(8), 7),
        (None, Some(9), Some(4), 4),
        (None, Some(9), None, 9),
    ] {
        let (mut story, topic) =
            story_with(QueueSettings { default_time_to_live: topic_says.map(secs), ..settings() });
        let own = QueueSettings { default_time_to_live: subscription_says.map(secs), ..settings() };
        let one = story.subscribe_with("one", own, None);
        let said = Attributes { time_to_live: message.map(secs), ..Attributes::default() };
        story.send_to(topic, said).unwrap();
        let details = story.peek_in(one, MAIN).remove(0).details.unwrap();
        assert_eq!(details.time_to_live, Some(secs(expected)));
        story.wait(secs(expected));
        assert_eq!(story.count(one), 0);
        story.restart();
    }
}

#[test]
fn a_scheduled_message_waits_in_the_topic_and_matches_the_rules_when_it_is_due() {
    let (mut story, topic) = story();
    let early = story.subscribe("early", None);
    let due = story.now + secs(60);
    let said = Attributes { scheduled_for: Some(due), ..viewed(&[("a", Value::Long(1))]) };
    let number = story.send_to(topic, said.clone()).unwrap();
    let cancelled = story.send_to(topic, said).unwrap();
    assert_ne!(number, cancelled);
    story.engine.cancel_scheduled(story.now, topic, &[cancelled], &mut story.out).unwrap();
    // Other messages are sent in between, so its body is before theirs.
    story.publish(topic, &[]);
    story.engine.delete_queue(story.now, &subscription_name("early"), &mut story.out).unwrap();
    let late = story.subscribe("late", Some(rule("r", sql("a = 1"))));
    let all = story.subscribe("all", None);
    story.publish(topic, &[]);
    story.restart();
    assert_eq!(story.engine.queue(early), None);
    assert_eq!(story.engine.queue(topic).unwrap().counts.scheduled_count, 1);
    assert_eq!(story.engine.next_deadline(), Some(due));
    story.wait(secs(60));
    assert_eq!([topic, late, all].map(|entity| story.count(entity)), [0, 1, 2]);
    let found = story.peek_in(late, MAIN).remove(0);
    assert_eq!((found.enqueued_at, found.details), (story.now, None));
    story.restart();
}

#[test]
fn a_topic_drops_duplicates_scheduled_or_not() {
    let (mut story, topic) =
        story_with(QueueSettings { duplicate_window: Some(secs(60)), ..QueueSettings::default() });
    let one = story.subscribe("one", None);
    story.send_to(topic, id("a")).unwrap();
    story.send_to(topic, id("a")).unwrap();
    let later = Attributes { scheduled_for: Some(story.now + secs(10)), ..id("b") };
    let number = story.send_to(topic, later).unwrap();
    story.restart();
    story.send_to(topic, id("a")).unwrap();
    assert_eq!(story.send_to(topic, id("b")), Ok(number), "a duplicate gets the number of the first message");
    story.wait(secs(10));
    assert_eq!(story.count(one), 2);
    story.send_to(topic, id("b")).unwrap();
    assert_eq!(story.count(one), 2);
    story.wait(secs(60));
    story.send_to(topic, id("a")).unwrap();
    assert_eq!(story.count(one), 3);
    story.restart();
}

#[test]
fn a_disabled_or_full_topic_rejects_messages() {
    let (mut story, topic) = story_with(QueueSettings { max_size_bytes: Some(450), ..settings() });
    let (one, two) = (story.subscribe("one", None), story.subscribe("two", None));
    story.publish(topic, &[]);
    story.publish(topic, &[]);
    let full = story.send_to(topic, Attributes::default());
    assert!(matches!(full, Err(Error::QueueFull { taken: 400, max: 450, .. })), "{full:?}");
    story.queue = two;
    let delivery = story.receive(MAIN).unwrap();
    story.settle(&delivery, Settlement::Complete).unwrap();
    story.publish(topic, &[]);
    assert_eq!(story.count(one), 3);
    let closed = QueueSettings { status: QueueStatus::SendDisabled, ..settings() };
    story.engine.update_queue(story.now, &topic_name(), closed, &mut story.out).unwrap();
    assert!(matches!(story.send_to(topic, Attributes::default()), Err(Error::Disabled { .. })));
    assert!(story.receive(MAIN).is_some(), "existing messages can be received");
}

#[test]
fn a_subscription_accepts_no_sends_and_a_topic_no_receivers() {
    let (mut story, topic) = story();
    let one = story.subscribe("one", None);
    assert!(matches!(story.send_to(one, Attributes::default()), Err(Error::IsSubscription { .. })));
    let (mode, wish) = (ReceiveMode::PeekLock, SessionWish::None);
    let attached = story.engine.attach_receiver(story.now, topic, MAIN, ReceiverId(1), mode, wish);
    assert!(matches!(attached, Err(Error::IsTopic { .. })));
    assert!(matches!(story.engine.rules(&name("orders")).map(|_| ()), Err(Error::NoRules { .. })));
    let lost = EntityName::parse("nothing/Subscriptions/one").unwrap();
    let lost = story.engine.create_subscription(story.now, lost, settings(), None, &mut story.out);
    assert!(matches!(lost, Err(Error::NoSuchTopic { .. })));
}

#[test]
fn the_number_of_subscriptions_and_rules_of_a_topic_is_limited() {
    let (mut story, topic) = story();
    for n in 0..limits::SUBSCRIPTIONS_PER_TOPIC_MAX {
        story.subscribe(&format!("s{n}"), None);
    }
    let more = subscription_name("more");
    let more = story.engine.create_subscription(story.now, more, settings(), None, &mut story.out);
    assert!(matches!(more, Err(Error::TopicFull { what: "subscriptions", .. })), "{more:?}");
    let first = subscription_name("s0");
    for n in 0..limits::SQL_RULES_PER_TOPIC_MAX {
        let rule = rule(&format!("r{n}"), sql("a = 1"));
        story.engine.add_rule(story.now, &first, rule, &mut story.out).unwrap();
    }
    let full = story.engine.add_rule(story.now, &first, rule("more", sql("a = 1")), &mut story.out);
    assert!(matches!(full, Err(Error::TopicFull { what: "SQL filters", .. })), "{full:?}");
    story.engine.replace_rule(story.now, &first, rule("r0", sql("a = 2")), &mut story.out).unwrap();
    // The number of rules is at its limit, so not even a rule that matches everything is accepted.
    for filter in [Filter::True, Filter::False, sql("1 = 1")] {
        let full = story.engine.add_rule(story.now, &first, rule("more", filter), &mut story.out);
        assert!(matches!(full, Err(Error::TopicFull { .. })), "{full:?}");
    }
    let defaults = limits::SUBSCRIPTIONS_PER_TOPIC_MAX;
    assert_eq!(story.engine.rule_counts(topic).0, limits::SQL_RULES_PER_TOPIC_MAX + defaults);
}

#[test]
fn a_subscription_that_forwards_to_its_own_topic_ends_with_dead_letters() {
    for duplicate_window in [None, Some(secs(60))] {
        let (mut story, topic) = story_with(QueueSettings { duplicate_window, ..QueueSettings::default() });
        let one =
            story.subscribe_with("one", QueueSettings { forward_to: Some(topic_name()), ..settings() }, None);
        story.send_to(topic, Attributes { message_id: Some("id".into()), ..Attributes::default() }).unwrap();
        story.forward();
        assert!(story.peek_in(one, MAIN).is_empty());
        let dead = story.peek_in(one, DEAD);
        assert_eq!(dead.len(), 1, "a message is not the duplicate of itself");
        story.restart();
    }
}

#[test]
fn explain_reports_which_subscriptions_get_a_message_and_why_others_do_not() {
    let (mut story, _) = story();
    story.subscribe("all", None);
    story.subscribe("high", Some(rule("r", sql("Priority = 'High'"))));
    story.subscribe("broken", Some(rule("r", sql("1 / 0 = 1"))));
    let sessions = QueueSettings { requires_session: true, ..settings() };
    story.subscribe_with("strict", sessions, None);
    let view = |session: bool| {
        let mut view = ViewBuilder::new();
        view.user("Priority", &Value::text("Low"));
        if session {
            view.system(SystemProperty::SessionId, &Value::text("a"));
        }
        view.finish()
    };
    let explained = story.engine.explain(&topic_name(), &view(false)).unwrap();
    let told = |name: &str| {
        explained.iter().find(|explained| explained.subscription == subscription_name(name)).unwrap()
    };
    assert_eq!((told("all").copy_count, &told("all").dead_letter), (1, &None));
    let high = told("high");
    assert_eq!((high.copy_count, &high.dead_letter, high.rules[0].matched), (0, &None, false));
    assert!(high.rules[0].why.contains("Priority"), "{}", high.rules[0].why);
    assert!(told("broken").dead_letter.as_ref().unwrap().contains("'r'"));
    assert!(told("strict").dead_letter.as_ref().unwrap().contains("session"), "{:?}", told("strict"));
    let explained = story.engine.explain(&topic_name(), &view(true)).unwrap();
    let strict = explained.iter().find(|found| found.subscription == subscription_name("strict")).unwrap();
    assert_eq!((strict.copy_count, &strict.dead_letter), (1, &None));
    assert!(matches!(story.engine.explain(&name("orders"), &[]), Err(Error::OtherKind { .. })));
    assert!(matches!(story.engine.explain(&name("nothing"), &[]), Err(Error::NoSuchQueue { .. })));
}

#[test]
fn a_topic_is_deleted_with_its_subscriptions_and_their_receivers() {
    let (mut story, topic) = story();
    let (one, two) = (story.subscribe("one", None), story.subscribe("two", None));
    story.publish_cold(topic, 1);
    let receiver = story.attach_to(one, MAIN, 1, ReceiveMode::PeekLock, 1);
    assert_eq!(story.deliver().len(), 1);
    story.engine.delete_queue(story.now, &topic_name(), &mut story.out).unwrap();
    let closed = story.out.closed.first().unwrap();
    assert_eq!((closed.receiver, closed.reason), (receiver, CloseReason::Deleted));
    assert_eq!(story.freed(), [standalone(1, 1).to_raw()], "the body had two messages and is freed once");
    assert!([topic, one, two].iter().all(|entity| story.engine.queue(*entity).is_none()));
    story.restart();
    let again =
        story.engine.create(story.now, topic_name(), EntityKind::Topic, settings(), &mut story.out).unwrap();
    assert_eq!(story.engine.subscriptions(again).count(), 0);
    story.publish(again, &[]);
    story.restart();
}

#[test]
fn an_idle_topic_stays_as_long_as_a_subscription_is_used() {
    let idle = QueueSettings { auto_delete_on_idle: Some(secs(60)), ..settings() };
    let (mut story, topic) = story_with(idle.clone());
    let (one, two) = (story.subscribe("one", None), story.subscribe_with("two", idle, None));
    let receiver = story.attach_to(one, MAIN, 1, ReceiveMode::PeekLock, 1);
    story.wait(secs(600));
    assert!(story.engine.queue(topic).is_some() && story.engine.queue(one).is_some());
    assert_eq!(story.engine.queue(two), None, "only the use of a subscription itself keeps it");
    story.detach(receiver.0);
    story.wait(secs(59));
    assert!(story.engine.queue(topic).is_some());
    story.wait(secs(1));
    assert!(story.engine.queue(topic).is_none() && story.engine.queue(one).is_none());
    story.restart();
}

#[test]
fn a_shared_body_in_a_cold_segment_is_freed_with_its_last_copy() {
    let (mut story, topic) = story();
    let (one, two) = (story.subscribe("one", None), story.subscribe("two", None));
    let acted = story.subscribe("acted", Some(acting("r", Filter::True, "SET a = 1")));
    story.publish_cold(topic, 1);
    assert_eq!(story.engine.standalone_bodies().count(), 1);
    for (entity, is_last) in [(one, false), (acted, false), (two, true)] {
        story.restart();
        let purged =
            story.engine.purge(story.now, entity, MAIN, peeklock_types::Timestamp::MAX, 9, &mut story.out);
        assert_eq!(purged, Ok(1));
        let freed = story.freed();
        assert_eq!(freed, if is_last { vec![standalone(1, 1).to_raw()] } else { vec![] });
    }
    assert_eq!(story.engine.standalone_bodies().count(), 0);
    story.restart();
}

// The body of a large scheduled message is standalone while it waits.
#[test]
fn a_scheduled_cold_body_passes_from_the_topic_to_its_copies() {
    for subscription_count in 0..3 {
        let (mut story, topic) = story();
        let names = ["one", "two"].into_iter().take(subscription_count);
        let subscriptions: Vec<_> = names.map(|name| story.subscribe(name, None)).collect();
        let mut batch = story.batch(1);
        batch[0].body = standalone(1, 1);
        let scheduled_for = Some(story.now + secs(1));
        batch[0].attributes = Some(Box::new(Attributes { scheduled_for, ..Attributes::default() }));
        story.engine.schedule(story.now, topic, batch, &mut story.out).unwrap();
        story.restart();
        story.wait(secs(1));
        assert_eq!(story.freed().len(), usize::from(subscription_count == 0));
        story.restart();
        for (entity, left) in subscriptions.iter().zip((0..subscription_count).rev()) {
            story
                .engine
                .purge(story.now, *entity, MAIN, peeklock_types::Timestamp::MAX, 9, &mut story.out)
                .unwrap();
            assert_eq!(story.freed().len(), usize::from(left == 0));
        }
        story.restart();
    }
}

#[test]
fn a_shared_body_is_copied_once_when_it_moves() {
    let (mut story, topic) = story();
    let entities = ["one", "two"].map(|name| story.subscribe(name, None));
    story.publish(topic, &[]);
    let from = story.peek_in(entities[0], MAIN)[0].body;
    assert_eq!(story.engine.copy_of(from), None);
    let number = peeklock_types::SequenceNumber::FIRST;
    for entity in entities {
        assert!(story.engine.move_body(entity, number, from, standalone(1, 1), &mut story.out));
        assert_eq!(story.engine.copy_of(from), Some(standalone(1, 1)));
        assert_eq!(story.freed(), []);
    }
    assert_eq!(story.engine.oldest_log_body(), None);
    story.restart();
    // The body moves from one standalone place to another.
    for (entity, frees) in entities.into_iter().zip([false, true]) {
        assert!(story.engine.move_body(entity, number, standalone(1, 1), standalone(2, 2), &mut story.out));
        assert_eq!(story.freed(), if frees { vec![standalone(1, 1).to_raw()] } else { vec![] });
    }
    story.restart();
    assert_eq!(story.engine.standalone_bodies().count(), 1);
}

#[test]
fn a_transaction_settles_in_a_subscription_and_sends_to_topics() {
    let (mut story, topic) = story();
    let (one, high) = (story.subscribe("one", None), story.subscribe("high", Some(rule("r", sql("p = 1")))));
    story.publish(topic, &[]);
    story.queue = one;
    let delivery = story.receive(MAIN).unwrap();
    let mut batch = story.batch(3);
    batch[0].attributes = Some(Box::new(viewed(&[("p", Value::Long(1))])));
    let targets = [topic_name(), far_away(), name("orders")];
    let sends = targets.into_iter().zip(batch).collect();
    let settles = vec![(MAIN, delivery.token, Settlement::Complete)];
    let transaction = Transaction { settles, sends, ..Transaction::default() };
    story.engine.commit(story.now, here(), one, transaction, &mut story.out).unwrap();
    assert_eq!(story.peek_in(one, MAIN).len(), 1);
    assert_eq!((story.count(high), story.engine.queue(one).unwrap().counts.transfer_count), (1, 1));
    story.restart();
}

/// Creates a topic with a message in its transfer dead-letter queue: a transaction of the topic sent it to a queue that
/// rejects it.
fn topic_with_one_aside() -> (Story, EntityId) {
    let (mut story, topic) = story();
    let sends = vec![(far_away(), story.batch(1).remove(0))];
    let transaction = Transaction { settles: vec![], sends, ..Transaction::default() };
    story.engine.commit(story.now, here(), topic, transaction, &mut story.out).unwrap();
    story.engine.transfer_refused(Placement::default().of(&far_away()), 1, "no".to_owned(), &mut story.out);
    (story, topic)
}

#[test]
fn the_transfer_dead_letters_of_a_topic_can_be_received_and_their_locks_expire() {
    let (mut story, topic) = topic_with_one_aside();
    assert!(story.receive_from(topic, ASIDE).is_some());
    story.wait(secs(100));
    story.queue = topic;
    let delivery = story.receive(ASIDE).unwrap();
    story.settle(&delivery, Settlement::Abandon { patch: None, delay: Some(secs(5)) }).unwrap();
    story.wait(secs(5));
    let delivery = story.receive(ASIDE).unwrap();
    assert_eq!(delivery.message.delivery_count, 0, "deliveries are not counted there");
    story.settle(&delivery, Settlement::Complete).unwrap();
    story.restart();
}

#[test]
fn a_message_goes_from_a_queue_through_a_topic_to_a_queue() {
    let (mut story, _) = story();
    story.update(|settings| settings.forward_to = Some(topic_name())).unwrap();
    let end = neighbours().next().unwrap();
    let end_queue = story.create(&end, settings());
    let on = QueueSettings { forward_to: Some(end.clone()), ..settings() };
    let acted = story.subscribe_with("acted", on, Some(acting("r", Filter::True, "SET a = 1")));
    let dead_on = QueueSettings { forward_dead_letters_to: Some(end), max_delivery_count: 1, ..settings() };
    let other = story.subscribe_with("other", dead_on, None);
    story.send_with(id("x")).unwrap();
    story.forward();
    assert_eq!((story.counts().message_count(), story.count(acted)), (0, 0));
    let arrived = story.peek_in(end_queue, MAIN).remove(0);
    assert_eq!(changes_of(&arrived).len(), 2, "the change is forwarded too");
    assert_eq!(arrived.details.unwrap().origin.unwrap().hop_count, 2);
    story.queue = other;
    let delivery = story.receive(MAIN).unwrap();
    story.settle(&delivery, ABANDON).unwrap();
    story.forward();
    let dead = story.peek_in(end_queue, MAIN).remove(1);
    let source = dead.details.unwrap().origin.unwrap().dead_letter_source;
    assert_eq!(source, Some(subscription_name("other")));
    story.restart();
}

#[test]
fn a_message_that_a_topic_rejects_is_dead_lettered_at_its_source() {
    let (mut story, _) = story_with(QueueSettings { status: QueueStatus::SendDisabled, ..settings() });
    story.update(|settings| settings.forward_to = Some(topic_name())).unwrap();
    story.send(1);
    story.forward();
    assert_eq!(story.counts().transfer_dead_letter_count, 1);
}

#[test]
fn a_message_with_too_many_properties_for_filters_is_rejected() {
    let (mut story, topic) = story();
    story.subscribe("one", None);
    let later = Some(story.now + secs(5));
    let view = |size: usize| Some(Bytes::from(vec![0; size]));
    let said = |size| Attributes { view: view(size), scheduled_for: later, ..Attributes::default() };
    let refused = story.send_to(topic, said(limits::VIEW_SIZE_BYTES_MAX + 1));
    assert!(matches!(refused, Err(Error::PropertiesTooLarge { .. })), "{refused:?}");
    story.send_to(topic, said(limits::VIEW_SIZE_BYTES_MAX)).unwrap();
    story.restart();
}

#[test]
fn changes_of_settlements_and_of_actions_have_separate_limits() {
    let (mut story, topic) = story();
    let one = story.subscribe("one", Some(acting("r", Filter::True, "SET a = big")));
    story.publish(topic, &[("big", Value::text("x".repeat(48 * 1024 - 100)))]);
    story.queue = one;
    let delivery = story.receive(MAIN).unwrap();
    let reason = Some("no".repeat(100));
    let settlement = Settlement::DeadLetter { reason, description: None, patch: None };
    story.settle(&delivery, settlement).unwrap();
    assert_eq!(story.peek(DEAD).len(), 1);
    story.restart();
}

fn size_of(facts: &[Fact], story: &Story) -> usize {
    let mut bytes = Vec::new();
    facts.iter().for_each(|fact| record::encode(fact, story.group, &mut bytes));
    bytes.len()
}

#[test]
fn the_copies_of_one_message_fit_in_a_group() {
    let (mut story, topic) = story();
    for n in 0..1500 {
        let rule = acting("r", Filter::True, "SET a = big");
        story.subscribe(&format!("s{n}"), Some(rule));
    }
    let view = viewed(&[("big", Value::text("x".repeat(2000)))]).view;
    story.forget_effects();
    story.send_to(topic, Attributes { view, ..Attributes::default() }).unwrap();
    let size_bytes = size_of(&story.out.facts, &story);
    assert!(size_bytes < 2 << 20, "{size_bytes}");
    let entities: Vec<_> = story.engine.subscriptions(topic).collect();
    let dead: usize = entities.iter().map(|entity| story.peek_in(*entity, DEAD).len()).sum();
    let changed: usize = entities.iter().map(|entity| story.peek_in(*entity, MAIN).len()).sum();
    assert_eq!(dead + changed, 1500, "every subscription gets a copy");
    assert!(dead > 0 && changed > 0, "{dead} {changed}");
    story.restart();
}

#[test]
fn planning_stops_when_a_batch_has_too_many_copies() {
    let (mut story, topic) = story();
    for n in 0..100 {
        story.subscribe(&n.to_string(), None);
    }
    let batch = story.batch(20_000);
    let refused = story.engine.send(story.now, topic, batch, &mut story.out).unwrap_err();
    let Error::TooManyCopies { copy_count } = refused else { panic!("{refused}") };
    assert!(copy_count < 200_000, "{copy_count} copies of 2,000,000 were planned");
}

#[test]
fn a_batch_is_limited_by_its_sql_filter_evaluations() {
    let (mut story, topic) = story();
    for n in 0..100 {
        story.subscribe(&n.to_string(), Some(rule("r", sql("a = 1"))));
    }
    let max = limits::SQL_EVALUATIONS_MAX / 100;
    let batch = story.batch(max + 1);
    let refused = story.engine.send(story.now, topic, batch, &mut story.out).unwrap_err();
    assert!(matches!(refused, Error::TooManyEvaluations { rule_count: 100, .. }), "{refused}");
    assert!(refused.to_string().contains(&format!("send at most {max} at once")), "{refused}");
    story.subscribe("all", None);
    let batch = story.batch(1000);
    story.engine.send(story.now, topic, batch, &mut story.out).unwrap();
}
