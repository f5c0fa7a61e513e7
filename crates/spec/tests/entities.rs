//! Queues, topics, subscriptions and rules in JSON and TOML: both directions, and the errors.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::time::Duration;

use peeklock_access::{Right, Rights};
use peeklock_filter::{Filter, RuleName, Value};
use peeklock_spec::{
    Match, MessageSize, Named, PolicySpec, QueueSpec, RuleSpec, Size, SubscriptionSpec, TopicSpec, from_json,
    from_json_bytes, from_toml,
};
use peeklock_types::{EntityName, PoisonSession, QueueSettings, QueueStatus, RetryPolicy};
use serde_json::json;

fn full() -> QueueSettings {
    let seconds = Duration::from_secs;
    QueueSettings {
        lock_duration: seconds(5),
        max_delivery_count: 3,
        requires_session: true,
        default_time_to_live: Some(seconds(60)),
        dead_letter_on_expiration: true,
        auto_delete_on_idle: Some(seconds(61)),
        duplicate_window: Some(seconds(62)),
        unused_duplicate_window: Some(seconds(63)),
        max_size_bytes: Some(1 << 30),
        max_count: Some(1000),
        max_message_size_bytes: 1 << 20 | 1,
        status: QueueStatus::SendDisabled,
        forward_to: EntityName::parse("next").ok(),
        forward_dead_letters_to: EntityName::parse("dead/letters").ok(),
        retry: RetryPolicy::Exponential { base: seconds(1), cap: seconds(9), jitter: true },
        poison_session: PoisonSession::SetAside,
        order: Some(Box::default()),
        dead_letter_on_filter_error: false,
        batched_operations: false,
        support_ordering: false,
        express: true,
        partitioning: true,
        user_metadata: Some("mine".to_owned()),
    }
}

fn queue(text: &str) -> QueueSpec {
    from_json(text).unwrap()
}

fn refused(text: &str) -> String {
    from_json::<QueueSpec>(text).unwrap_err().to_string()
}

#[test]
fn settings_survive_writing_and_reading() {
    for settings in [full(), QueueSettings::default()] {
        let text = serde_json::to_string(&QueueSpec::of(&settings)).unwrap();
        let read: QueueSpec = from_json(&text).unwrap();
        let same: QueueSpec = serde_json::from_str(&text).unwrap();
        assert_eq!(read, same);
        // The spec is applied to the opposite settings, so that no value is correct by default.
        let mut made = if settings == full() { QueueSettings::default() } else { full() };
        read.apply(&mut made);
        made.dead_letter_on_filter_error = settings.dead_letter_on_filter_error;
        assert_eq!(made, settings, "{text}");
    }
    let mut made = QueueSettings::default();
    let text = serde_json::to_string(&SubscriptionSpec::of(&full())).unwrap();
    from_json::<SubscriptionSpec>(&text).unwrap().apply(&mut made);
    let not_for_subscriptions = QueueSettings::default();
    assert_eq!(
        made,
        QueueSettings {
            duplicate_window: not_for_subscriptions.duplicate_window,
            unused_duplicate_window: not_for_subscriptions.unused_duplicate_window,
            max_size_bytes: not_for_subscriptions.max_size_bytes,
            max_count: not_for_subscriptions.max_count,
            max_message_size_bytes: not_for_subscriptions.max_message_size_bytes,
            support_ordering: not_for_subscriptions.support_ordering,
            express: not_for_subscriptions.express,
            partitioning: not_for_subscriptions.partitioning,
            ..full()
        }
    );
}

#[test]
fn a_queue_has_a_readable_form() {
    let written = serde_json::to_value(QueueSpec::of(&full())).unwrap();
    assert_eq!(
        written,
        json!({
            "lockDuration": "5s", "maxDeliveryCount": 3, "requiresSession": true, "defaultTimeToLive": "1m",
            "deadLetterOnExpiration": true, "autoDeleteOnIdle": "61s", "duplicateWindow": "62s", "unusedDuplicateWindow": "63s", "maxSize": "1GiB", "maxCount": 1000,
            "maxMessageSize": "1048577", "status": "send-disabled", "forwardTo": "next",
            "forwardDeadLettersTo": "dead/letters", "retry": "exponential:1s..9s:jitter", "poisonSession": "set-aside",
            "batchedOperations": false, "supportOrdering": false, "express": true, "partitioning": true, "userMetadata": "mine", "order": { "policy": "aged", "maxOutstanding": 16 }
        })
    );
}

#[test]
fn an_absent_key_changes_nothing_and_null_removes_a_value() {
    let mut settings = full();
    queue(r#"{"forwardTo": null, "maxSize": 10, "lockDuration": "PT30S"}"#).apply(&mut settings);
    let expected = QueueSettings {
        forward_to: None,
        max_size_bytes: Some(10),
        lock_duration: Duration::from_secs(30),
        ..full()
    };
    assert_eq!(settings, expected);
    assert_eq!(serde_json::to_string(&queue(r#"{"maxSize": null}"#)).unwrap(), r#"{"maxSize":null}"#);
    assert_eq!(serde_json::to_string(&queue("{}")).unwrap(), "{}");
}

#[test]
fn sizes_may_be_numbers() {
    let read = queue(r#"{"maxSize": "2GiB", "maxMessageSize": 1000}"#);
    assert_eq!((read.max_size, read.max_message_size), (Some(Some(Size(2 << 30))), Some(MessageSize(1000))));
}

#[test]
fn errors_have_their_place() {
    assert_eq!(
        refused("{\n  \"lockDuraton\": \"5s\"\n}"),
        "line 2, column 3: unknown key 'lockDuraton'; did you mean 'lockDuration'?"
    );
    assert_eq!(
        refused(r#"{"lockDuration": "5"}"#),
        "line 1, column 18: lockDuration: '5' is not a duration; write 500ms, 30s, 5m, 1h30m, 7d or PT30S"
    );
    assert_eq!(
        refused(r#"{"lockDuration": 5}"#),
        "line 1, column 18: lockDuration: 5 where a duration such as 30s, 1h30m or PT30S should be"
    );
    assert_eq!(
        refused(r#"{"requiresSession": "yes"}"#),
        "line 1, column 21: requiresSession: the text 'yes' where a boolean should be"
    );
    assert!(refused(r#"{"lockDuration": null}"#).contains("lockDuration: null where a duration"));
    assert!(refused(r#"{"maxDeliveryCount": -1}"#).contains("maxDeliveryCount: -1 "));
    assert!(
        refused(r#"{"maxMessageSize": "5GiB"}"#)
            .contains("maxMessageSize: '5GiB' is not a size of one message")
    );
    assert!(refused(r#"{"forwardTo": "a b"}"#).contains("forwardTo: the entity name 'a b'"));
    assert!(
        refused(r#"{"status": "asleep"}"#)
            .contains("write active, send-disabled, receive-disabled or disabled")
    );
    assert!(refused(r#"{"colour": 1}"#).contains("unknown key 'colour'; write requiresSession, "));
    assert!(refused("[]").contains("a list where a table of keys and values should be"));
    let told = from_json_bytes::<QueueSpec>(b"{\n\xff}").unwrap_err();
    assert_eq!((told.line, told.column), (2, 1));
}

#[test]
fn toml_has_the_same_keys_with_dashes() {
    let text = "
lock-duration = '30s'
max_delivery_count = 4
maxSize = '1GiB'
forward-dead-letters-to = 'dead'
";
    let read: QueueSpec = from_toml(text).unwrap();
    assert_eq!(read.lock_duration, Some(Duration::from_secs(30)));
    assert_eq!(read.max_delivery_count, Some(4));
    assert_eq!(read.forward_dead_letters_to.flatten(), EntityName::parse("dead").ok());
    let refused = |text| from_toml::<QueueSpec>(text).unwrap_err().to_string();
    assert_eq!(
        refused("\nlock-durration = '30s'"),
        "line 2, column 1: unknown key 'lock-durration'; did you mean 'lock-duration'?"
    );
    assert_eq!(
        refused("lock-duration = '3'"),
        "line 1, column 17: lock-duration: '3' is not a duration; write 500ms, 30s, 5m, 1h30m, 7d or PT30S"
    );
    assert!(refused("lock-duration = '3s'\nlockDuration = '4s'").contains("given twice"));
    assert!(
        refused("lock-duration = ").starts_with("line 1, column 17: "),
        "{}",
        refused("lock-duration = ")
    );
}

#[test]
fn a_topic_contains_subscriptions_and_rules() {
    let text = r#"{ "duplicateWindow": "10m", "subscriptions": { "High": { "maxDeliveryCount": 3, "rules": {
        "urgent": { "sql": "Priority > @p", "parameters": { "@p": 3 }, "action": "SET seen = TRUE" },
        "mine": { "correlation": { "subject": "x", "properties": { "tenant": "a", "n": 1 } } },
        "off": { "match": "none" } } } } }"#;
    let topic: TopicSpec = from_json(text).unwrap();
    let Named(subscriptions) = topic.subscriptions.clone().unwrap();
    assert_eq!(subscriptions[0].0.as_str(), "High");
    let Named(rules) = subscriptions[0].1.rules.clone().unwrap();
    assert_eq!(rules[0].1.parameters.as_ref().unwrap().0[0], ("@p".to_owned(), Value::Long(3).into()));
    let correlation = rules[1].1.correlation.as_ref().unwrap();
    assert_eq!(correlation.label.as_deref(), Some("x"));
    assert_eq!(rules[2].1, RuleSpec { r#match: Some(Match::None), ..RuleSpec::default() });
    let again: TopicSpec = from_json(&serde_json::to_string(&topic).unwrap()).unwrap();
    assert_eq!(again, topic);
    let refused = |text| from_json::<TopicSpec>(text).unwrap_err().to_string();
    assert_eq!(
        refused(r#"{"subscriptions": {"a": {"rules": {"r": {"sqll": "x"}}}}}"#),
        "line 1, column 42: subscriptions.a.rules.r: unknown key 'sqll'; did you mean 'sql'?"
    );
    assert!(
        refused(r#"{"subscriptions": {"a": {}, "A": {}}}"#)
            .contains("column 29: subscriptions: the name 'A' is given twice")
    );
    assert!(refused(r#"{"subscriptions": {"a/b": {}}}"#).contains("column 20: subscriptions: "));
    assert!(refused(r#"{"lockDuration": "5s"}"#).contains("unknown key 'lockDuration'"));
}

#[test]
fn rules_survive_writing_and_reading() {
    let name = || RuleName::parse("r").unwrap();
    for text in [
        r#"{"match":"all"}"#,
        r#"{"match":"none","action":"SET a = @b","actionParameters":{"@b":{"type":"span","value":"PT1M"}}}"#,
        r#"{"sql":"a > @b","parameters":{"@b":3}}"#,
        r#"{"correlation":{"correlationId":"c","label":"l","properties":{"n":1.5,"t":"x"}}}"#,
    ] {
        let spec: RuleSpec = from_json(text).unwrap();
        let rule = spec.rule(name()).unwrap();
        assert_eq!(serde_json::to_string(&RuleSpec::of(&rule)).unwrap(), text);
    }
    assert_eq!(RuleSpec::default().rule(name()).unwrap().filter, Filter::True);
    let refused = |text| {
        let error = from_json::<RuleSpec>(text).unwrap().rule(name()).unwrap_err();
        (error.key, error.message)
    };
    assert_eq!(refused(r#"{"sql": "a >"}"#).0, Some("sql"));
    assert_eq!(refused(r#"{"action": "SIT a = 1"}"#).0, Some("action"));
    assert_eq!(refused(r#"{"correlation": {}}"#).0, Some("correlation"));
    assert!(refused(r#"{"sql": "a = 1", "match": "all"}"#).1.contains("only one of"));
    assert_eq!(refused(r#"{"parameters": {"@a": 1}}"#).0, Some("parameters"));
    assert_eq!(refused(r#"{"actionParameters": {"@a": 1}}"#).0, Some("actionParameters"));
}

#[test]
fn a_policy_has_rights_and_keys() {
    let spec: PolicySpec = from_toml("rights = ['Send', 'listen']\nprimary-key = 'abc'").unwrap();
    let policy = spec.declared("app").unwrap();
    assert_eq!(policy.rights, Rights::of(&[Right::Send, Right::Listen]));
    assert!(policy.has_secret(b"abc") && policy.secondary == policy.primary);
    let text = serde_json::to_string(&PolicySpec::of(&policy)).unwrap();
    assert_eq!(text, r#"{"rights":["Send","Listen"],"primaryKey":"abc","secondaryKey":"abc"}"#);
    assert!(!format!("{spec:?}").contains("abc"));
    let all: PolicySpec = from_json(r#"{"entity": "orders", "secondaryKey": "x"}"#).unwrap();
    let policy = all.declared("all").unwrap();
    assert_eq!((policy.rights, policy.scope), (Rights::ALL, EntityName::parse("orders").ok()));
    let error = PolicySpec::default().declared("none").unwrap_err().to_string();
    assert!(error.contains("has no key; give it a primary-key"), "{error}");
    assert!(all.declared("-").is_err());
    let refused = from_json::<PolicySpec>(r#"{"rights": ["Send", "Write"]}"#).unwrap_err().to_string();
    assert_eq!(
        refused,
        "line 1, column 21: rights.[2]: 'Write' is not a right; write Send, Listen or Manage"
    );
}
