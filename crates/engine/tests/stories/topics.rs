//! Topics: the copies of subscriptions, their form, and their state after a restart.

use std::time::Duration;

use bytes::Bytes;
use peeklock_engine::{Attributes, EntityId, Error, Message, PatchPart, Settlement};
use peeklock_filter::{
    Action, Change, Changes, Filter, Rule, RuleName, SqlFilter, SystemProperty, Value, ViewBuilder,
};
use peeklock_types::{EntityKind, EntityName, QueueSettings, SubQueue, limits};

use crate::story::{DEAD, MAIN, Story, id, name, neighbours, secs, session, settings, standalone};

/// Returns a story with a topic "t".
fn topic() -> (Story, EntityId) {
    topic_with(QueueSettings::default())
}

fn topic_with(settings: QueueSettings) -> (Story, EntityId) {
    let mut story = Story::new();
    let topic =
        story.engine.create(story.now, name("t"), EntityKind::Topic, settings, &mut story.out).unwrap();
    (story, topic)
}

fn rule(text: &str, filter: Filter, action: Option<&str>) -> Rule {
    let action = action.map(|text| Action { expression: text.to_owned(), parameters: Vec::new() });
    Rule { name: RuleName::parse(text).unwrap(), filter, action }
}

fn sql(text: &str) -> Filter {
    Filter::Sql(SqlFilter { expression: text.to_owned(), parameters: Vec::new() })
}

fn sub(text: &str) -> EntityName {
    EntityName::subscription(&name("t"), text).unwrap()
}

fn subscribe(story: &mut Story, text: &str, settings: QueueSettings, rule: Option<Rule>) -> EntityId {
    story.engine.create_subscription(story.now, sub(text), settings, rule, &mut story.out).unwrap()
}

fn with_view(properties: &[(&str, Value)]) -> Attributes {
    let mut view = ViewBuilder::new();
    properties.iter().for_each(|(name, value)| view.user(name, value));
    Attributes { view: Some(view.finish()), ..Attributes::default() }
}

fn priority(text: &str) -> Attributes {
    with_view(&[("Priority", Value::text(text))])
}

fn count(story: &Story, queue: EntityId, sub_queue: SubQueue) -> usize {
    story.peek_in(queue, sub_queue).len()
}

fn changes(message: &Message) -> Vec<Change> {
    let part = message.patch.parts.iter().find_map(|part| match part {
        PatchPart::Changes(changes) => Some(Changes::decode(changes).unwrap()),
        _ => None,
    });
    part.unwrap_or_default()
}

fn dead_letter(message: &Message) -> (String, String) {
    let part = message.patch.parts.iter().find_map(|part| match part {
        PatchPart::DeadLetter { reason, description } => Some((reason.clone(), description.clone())),
        _ => None,
    });
    let (reason, description) = part.unwrap();
    (reason.unwrap(), description.unwrap())
}

#[test]
fn each_subscription_gets_the_messages_that_its_rule_matches() {
    let (mut story, topic) = topic();
    let all = subscribe(&mut story, "all", settings(), None);
    let high = subscribe(&mut story, "high", settings(), Some(rule("r", sql("Priority = 'High'"), None)));
    let none = subscribe(&mut story, "none", settings(), Some(rule("r", Filter::False, None)));
    for text in ["High", "Low", "High"] {
        story.send_to(topic, priority(text)).unwrap();
    }
    for _ in 0..2 {
        let counts = [all, high, none, topic].map(|queue| count(&story, queue, MAIN));
        assert_eq!(counts, [3, 2, 0, 0]);
        story.restart();
    }
    let (first, other) = (&story.peek_in(all, MAIN)[0], &story.peek_in(high, MAIN)[0]);
    assert_eq!(first.body, other.body);
    assert!(first.patch.is_empty());
}

#[test]
fn copies_are_settled_independently() {
    let (mut story, topic) = topic();
    let a = subscribe(&mut story, "a", settings(), None);
    let b = subscribe(&mut story, "b", settings(), None);
    story.send_to(topic, Attributes::default()).unwrap();
    let delivery = story.receive_from(a, MAIN).unwrap();
    story.forget_effects();
    story.engine.settle(story.now, a, MAIN, delivery.token, Settlement::Complete, &mut story.out).unwrap();
    story.restart();
    assert_eq!([a, b].map(|queue| count(&story, queue, MAIN)), [0, 1]);
}

#[test]
fn a_cold_body_is_freed_with_its_last_copy() {
    let (mut story, topic) = topic();
    let subscriptions = ["a", "b", "c"].map(|text| subscribe(&mut story, text, settings(), None));
    let mut batch = story.batch(1);
    batch[0].body = standalone(1, 7);
    story.engine.send(story.now, topic, batch, &mut story.out).unwrap();
    for (at, queue) in subscriptions.into_iter().enumerate() {
        let delivery = story.receive_from(queue, MAIN).unwrap();
        story.forget_effects();
        story
            .engine
            .settle(story.now, queue, MAIN, delivery.token, Settlement::Complete, &mut story.out)
            .unwrap();
        let mut freed = std::mem::take(&mut story.out.freed);
        story.engine.unshare(&mut freed);
        assert_eq!(freed.len(), usize::from(at == 2), "after copy {at}");
        story.restart();
    }
}

#[test]
fn an_action_changes_the_copy_of_its_rule_only() {
    let (mut story, topic) = topic();
    let a = subscribe(&mut story, "a", settings(), None);
    let action = "SET color = 'red'; SET sys.SessionId = Priority; SET sys.TimeToLive = 'PT10S'";
    story
        .engine
        .add_rule(story.now, &sub("a"), rule("paint", Filter::True, Some(action)), &mut story.out)
        .unwrap();
    let sessions = QueueSettings { requires_session: true, ..settings() };
    let in_sessions =
        subscribe(&mut story, "in-sessions", sessions, Some(rule("r", Filter::True, Some(action))));
    story.send_to(topic, priority("High")).unwrap();
    story.restart();
    let messages = story.peek_in(a, MAIN);
    assert_eq!(messages.len(), 2);
    assert!(messages[0].patch.is_empty());
    let changed = changes(&messages[1]);
    assert_eq!(
        changed.first(),
        Some(&Change::SetUser { name: "color".to_owned(), value: Value::text("red") })
    );
    assert_eq!(
        changed.last(),
        Some(&Change::SetUser { name: "RuleName".to_owned(), value: Value::text("paint") })
    );
    assert_eq!([MAIN, DEAD].map(|part| count(&story, in_sessions, part)), [1, 0]);
    story.wait(secs(11));
    assert_eq!(count(&story, a, MAIN), 1);
}

/// A value that cannot be decoded after a restart must not be written.
#[test]
fn the_largest_changes_survive_a_restart() {
    let (mut story, topic) = topic();
    let a = subscribe(&mut story, "a", settings(), Some(rule("r", Filter::True, Some("SET a = t"))));
    for len in 49_000..49_200 {
        story.send_to(topic, with_view(&[("t", Value::text("x".repeat(len)))])).unwrap();
    }
    story.restart();
    assert!(count(&story, a, MAIN) > 0 && count(&story, a, DEAD) > 0);
}

#[test]
fn a_rule_that_fails_dead_letters_the_message_or_does_not_match() {
    let (mut story, topic) = topic();
    let fails = || Some(rule("r", sql("Priority > 3"), None));
    let strict = subscribe(&mut story, "strict", settings(), fails());
    let lenient = QueueSettings { dead_letter_on_filter_error: false, ..settings() };
    let lenient = subscribe(&mut story, "lenient", lenient, fails());
    let both = subscribe(&mut story, "both", settings(), fails());
    story.engine.add_rule(story.now, &sub("both"), rule("all", Filter::True, None), &mut story.out).unwrap();
    story.send_to(topic, priority("High")).unwrap();
    story.restart();
    assert_eq!([strict, lenient, both].map(|queue| count(&story, queue, MAIN)), [0, 0, 1]);
    assert_eq!([strict, lenient, both].map(|queue| count(&story, queue, DEAD)), [1, 0, 1]);
    let (reason, description) = dead_letter(&story.peek_in(strict, DEAD)[0]);
    assert_eq!(reason, "FilterEvaluationException");
    assert!(description.contains("Priority > 3 compares text 'High' with a number 3"), "{description}");
}

#[test]
fn an_action_with_an_invalid_value_dead_letters_the_copy() {
    let (mut story, topic) = topic();
    let action = "SET sys.TimeToLive = '-PT1S'";
    let a = subscribe(&mut story, "a", settings(), Some(rule("r", Filter::True, Some(action))));
    story.send_to(topic, Attributes::default()).unwrap();
    story.restart();
    assert_eq!(count(&story, a, MAIN), 0);
    let (reason, description) = dead_letter(&story.peek_in(a, DEAD)[0]);
    assert_eq!(reason, "FilterEvaluationException");
    assert!(description.contains("set sys.TimeToLive to"), "{description}");
}

#[test]
fn a_subscription_with_sessions_dead_letters_messages_without_one() {
    let (mut story, topic) = topic();
    let sessions = QueueSettings { requires_session: true, ..settings() };
    let a = subscribe(&mut story, "a", sessions, None);
    story.send_to(topic, Attributes::default()).unwrap();
    story.send_to(topic, Attributes { session: Some(session("s")), ..Attributes::default() }).unwrap();
    story.restart();
    assert_eq!([MAIN, DEAD].map(|part| count(&story, a, part)), [1, 1]);
    assert_eq!(dead_letter(&story.peek_in(a, DEAD)[0]).0, "Session ID is null");
}

#[test]
fn a_scheduled_message_is_distributed_when_it_is_due() {
    let (mut story, topic) = topic();
    let high = subscribe(&mut story, "high", settings(), Some(rule("r", sql("Priority = 'High'"), None)));
    let later =
        |story: &Story, text| Attributes { scheduled_for: Some(story.now + secs(60)), ..priority(text) };
    let attributes = later(&story, "High");
    story.send_to(topic, attributes).unwrap();
    let attributes = later(&story, "Low");
    story.send_to(topic, attributes).unwrap();
    let attributes = later(&story, "High");
    let cancelled = story.send_to(topic, attributes).unwrap();
    // Younger bodies are in the subscription before older ones.
    story.send_to(topic, priority("High")).unwrap();
    story.engine.cancel_scheduled(story.now, topic, &[cancelled], &mut story.out).unwrap();
    story.restart();
    assert_eq!([count(&story, topic, MAIN), count(&story, high, MAIN)], [2, 1]);
    // Rules are evaluated when the message is due, not when it was sent.
    let late = subscribe(&mut story, "late", settings(), None);
    story.wait(secs(61));
    story.restart();
    assert_eq!([topic, high, late].map(|queue| count(&story, queue, MAIN)), [0, 2, 2]);
    assert_eq!(story.peek_in(high, MAIN)[1].enqueued_at, story.now);
    assert_eq!([0, 1].map(|at| story.peek_in(high, MAIN)[at].is_activated), [false, true]);
}

#[test]
fn a_new_subscription_is_a_use_of_its_topic() {
    let (mut story, topic) = topic();
    story.now = story.now + secs(9);
    subscribe(&mut story, "a", settings(), None);
    assert_eq!(story.engine.queue(topic).unwrap().used_at, story.now);
}

/// All facts of one tick share one commit group, which has a limit.
#[test]
fn many_large_changes_are_distributed_in_portions() {
    const GROUP_BYTES_MAX: usize = 4 << 20;
    let (mut story, topic) = topic();
    let queues: Vec<EntityId> = (0..10)
        .map(|n| {
            subscribe(
                &mut story,
                &format!("s{n}"),
                settings(),
                Some(rule("r", Filter::True, Some("SET a = t"))),
            )
        })
        .collect();
    for _ in 0..60 {
        let mut attributes = with_view(&[("t", Value::text("x".repeat(40_000)))]);
        attributes.scheduled_for = Some(story.now + secs(60));
        story.send_to(topic, attributes).unwrap();
    }
    story.now = story.now + secs(61);
    let mut tick_count = 0;
    while count(&story, topic, MAIN) > 0 {
        story.forget_effects();
        story.engine.tick(story.now, &mut story.out);
        let mut bytes = Vec::new();
        story
            .out
            .facts
            .iter()
            .for_each(|fact| peeklock_engine::record::encode(fact, story.group, &mut bytes));
        assert!(bytes.len() <= GROUP_BYTES_MAX, "a tick of {} bytes", bytes.len());
        tick_count += 1;
    }
    assert!(tick_count > 1);
    assert!(queues.iter().all(|queue| count(&story, *queue, MAIN) == 60));
    story.restart();
}

#[test]
fn a_topic_detects_duplicates() {
    let window = Some(Duration::from_secs(60));
    let (mut story, topic) =
        topic_with(QueueSettings { duplicate_window: window, ..QueueSettings::default() });
    let a = subscribe(&mut story, "a", settings(), None);
    for text in ["x", "y", "x"] {
        story.send_to(topic, id(text)).unwrap();
    }
    story.restart();
    story.send_to(topic, id("y")).unwrap();
    assert_eq!(count(&story, a, MAIN), 2);
    story.wait(secs(120));
    story.send_to(topic, id("x")).unwrap();
    assert_eq!(count(&story, a, MAIN), 3);
}

#[test]
fn rules_are_added_replaced_and_removed() {
    let (mut story, topic) = topic();
    let a = subscribe(&mut story, "a", settings(), None);
    let names = |story: &Story| -> Vec<String> {
        story.engine.rules(&sub("A")).unwrap().map(|view| view.rule.name.to_string()).collect()
    };
    assert_eq!(names(&story), ["$Default"]);
    let (now, out) = (story.now, &mut story.out);
    let default = RuleName::default_rule();
    story.engine.remove_rule(now, &sub("a"), &default, out).unwrap();
    story.engine.add_rule(now, &sub("a"), rule("High", sql("Priority = 'High'"), None), out).unwrap();
    let again = story.engine.add_rule(now, &sub("a"), rule("HIGH", Filter::True, None), out);
    assert!(matches!(again, Err(Error::RuleExists { .. })), "{again:?}");
    let bad = story.engine.add_rule(now, &sub("a"), rule("bad", sql("a ="), None), out);
    assert!(matches!(bad, Err(Error::Rule(_))), "{bad:?}");
    let missing = story.engine.remove_rule(now, &sub("a"), &default, out);
    assert!(matches!(missing, Err(Error::NoSuchRule { .. })), "{missing:?}");
    let queue = story.engine.add_rule(now, &name("orders"), rule("r", Filter::True, None), out);
    assert!(matches!(queue, Err(Error::NoRules { .. })), "{queue:?}");
    story.restart();
    assert_eq!(names(&story), ["High"]);
    story.send_to(topic, priority("Low")).unwrap();
    assert_eq!(count(&story, a, MAIN), 0);
    let replaced = rule("high", sql("Priority = 'Low'"), None);
    story.engine.replace_rule(story.now, &sub("a"), replaced, &mut story.out).unwrap();
    story.restart();
    story.send_to(topic, priority("Low")).unwrap();
    story.send_to(topic, priority("High")).unwrap();
    assert_eq!(count(&story, a, MAIN), 1);
    assert_eq!(story.engine.rule_counts(topic), (1, 0));
}

#[test]
fn the_number_of_rules_of_any_kind_is_limited() {
    let (mut story, _) = topic();
    subscribe(&mut story, "a", settings(), None);
    let add = |story: &mut Story, n: usize, filter: Filter| {
        let rule = rule(&format!("r{n}"), filter, None);
        story.engine.add_rule(story.now, &sub("a"), rule, &mut story.out)
    };
    for n in 0..limits::SQL_RULES_PER_TOPIC_MAX {
        add(&mut story, n, sql("a = 1")).unwrap();
    }
    let full = add(&mut story, 99_999, sql("a = 1"));
    assert!(matches!(full, Err(Error::TopicFull { what: "SQL filters", .. })), "{full:?}");
    let replaced = rule("r0", sql("a = 2"), None);
    story.engine.replace_rule(story.now, &sub("a"), replaced, &mut story.out).unwrap();
    let full = (10_000..20_000).find_map(|n| add(&mut story, n, Filter::True).err());
    assert!(matches!(full, Some(Error::TopicFull { .. })), "{full:?}");
}

#[test]
fn a_deleted_subscription_gets_no_messages() {
    let (mut story, topic) = topic();
    let a = subscribe(&mut story, "a", settings(), None);
    subscribe(&mut story, "b", settings(), None);
    story.send_to(topic, Attributes::default()).unwrap();
    story.engine.delete_queue(story.now, &sub("b"), &mut story.out).unwrap();
    story.send_to(topic, Attributes::default()).unwrap();
    story.restart();
    assert_eq!(count(&story, a, MAIN), 2);
    assert_eq!(story.engine.subscriptions(topic).count(), 1);
    story.engine.delete_queue(story.now, &name("t"), &mut story.out).unwrap();
    story.restart();
    assert!(story.engine.find(&sub("a")).is_none() && story.engine.find(&name("t")).is_none());
    let gone = story.send_to(topic, Attributes::default());
    assert!(gone.is_err());
}

#[test]
fn invalid_kinds_names_and_rules_are_rejected() {
    let (mut story, topic) = topic();
    let (now, out) = (story.now, &mut story.out);
    let nowhere = EntityName::subscription(&name("nowhere"), "a").unwrap();
    let no_topic = story.engine.create_subscription(now, nowhere, settings(), None, out);
    assert!(matches!(no_topic, Err(Error::NoSuchTopic { .. })), "{no_topic:?}");
    let of_queue = EntityName::subscription(&name("orders"), "a").unwrap();
    let of_queue = story.engine.create_subscription(now, of_queue, settings(), None, out);
    assert!(matches!(of_queue, Err(Error::NoSuchTopic { .. })), "{of_queue:?}");
    let as_queue = story.engine.create_queue(now, sub("a"), settings(), out);
    assert!(matches!(as_queue, Err(Error::OtherKind { .. })), "{as_queue:?}");
    let bad_rule = Some(rule("r", sql("a ="), None));
    assert!(story.engine.create_subscription(now, sub("a"), settings(), bad_rule, out).is_err());
    assert!(story.engine.find(&sub("a")).is_none());
    assert!(story.engine.queue(topic).is_some());
    story.restart();
}

#[test]
fn a_subscription_forwards_its_copies() {
    let (mut story, topic) = topic();
    let target = neighbours().next().unwrap();
    let queue = story.create(&target, settings());
    let forwards = QueueSettings { forward_to: Some(target), ..settings() };
    subscribe(&mut story, "a", forwards, Some(rule("r", Filter::True, Some("SET color = 'red'"))));
    story.send_to(topic, Attributes::default()).unwrap();
    story.forward();
    let [message] = &story.peek_in(queue, MAIN)[..] else { panic!("the queue has one message") };
    assert!(
        changes(message).contains(&Change::SetUser { name: "color".to_owned(), value: Value::text("red") })
    );
    story.restart();
}

#[test]
fn a_topic_explains_its_decisions() {
    let (mut story, topic) = topic();
    let mut view = ViewBuilder::new();
    view.system(SystemProperty::Label, &Value::text("order"));
    let view = view.finish();
    subscribe(&mut story, "all", settings(), None);
    subscribe(&mut story, "label", settings(), Some(rule("r", sql("sys.Label = 'bill'"), None)));
    subscribe(&mut story, "error", settings(), Some(rule("r", sql("sys.Label > 3"), None)));
    let explained = story.engine.explain(&name("t"), &view).unwrap();
    let by_name = |text: &str| explained.iter().find(|one| one.subscription == sub(text)).unwrap();
    assert_eq!((by_name("all").copy_count, by_name("all").rules[0].matched), (1, true));
    assert_eq!(by_name("label").rules[0].why, "sys.Label = 'bill' is false: sys.Label is 'order'");
    assert!(by_name("error").dead_letter.as_ref().is_some_and(|why| why.contains("compares text 'order'")));
    // Nothing was sent.
    let sent = story.engine.subscriptions(topic).map(|queue| count(&story, queue, MAIN)).sum::<usize>();
    assert_eq!(sent, 0);
    assert!(story.engine.explain(&name("orders"), &Bytes::new()).is_err());
}
