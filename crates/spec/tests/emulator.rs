//! The official emulators' `Config.json` files.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::time::Duration;

use peeklock_filter::{Filter, RuleName, Value};
use peeklock_spec::{Document, NamespaceSpec, emulator};
use peeklock_types::{ConsumerGroup, EntityName, QueueSettings, QueueStatus};

const QUEUES: &str = r#"
// Comments are allowed
{ "UserConfig": {
    "Namespaces": [ {
      "Name": "sbemulatorns",
      "Queues": [
        { "Name": "plain" },
        { "Name": "shop/orders~1", "Properties": {
            "DeadLetteringOnMessageExpiration": true,
            "DefaultMessageTimeToLive": "PT1H",
            "DuplicateDetectionHistoryTimeWindow": "PT20S",
            "ForwardDeadLetteredMessagesTo": "",
            "ForwardTo": "",
            "LockDuration": "PT1M",
            "MaxDeliveryCount": 3,
            "RequiresDuplicateDetection": false,
            "RequiresSession": true, /* last */
            "Status": "SendDisabled",
            "MaxSizeInMegabytes": 100,
            "MaxMessageSizeInKilobytes": 2048,
            "AutoDeleteOnIdle": "P10675199DT2H48M5.4775807S",
            "RetryPolicy": "fixed:5s",
            "EnablePartitioning": true,
            "EnableExpress": true,
            "SupportOrdering": false,
        } } ],
      "Topics": [ {
        "Name": "events",
        "Properties": { "DefaultMessageTimeToLive": "PT1H", "RequiresDuplicateDetection": true, "EnableExpress": true },
        "Subscriptions": [
          { "Name": "all" },
          { "Name": "audit",
            "Properties": { "MaxDeliveryCount": 3, "ForwardTo": "plain", "RequiresSession": false },
            "Rules": [
              { "Name": "by-header", "Properties": {
                  "FilterType": "Correlation",
                  "CorrelationFilter": { "ContentType": "application/json", "Label": "subject", "To": "",
                    "Properties": { "tenant": "a", "level": 3 } } } },
              { "Name": "by-sql", "Properties": {
                  "FilterType": "Sql",
                  "SqlFilter": { "SqlExpression": "sys.MessageId = '1' AND prio > 3" },
                  "Action": { "SqlExpression": "SET sys.To = 'x'" } } } ] } ] } ] } ],
    "Logging": { "Type": "File" } } }
"#;

const HUBS: &str = r#"{ "UserConfig": { "NamespaceConfig": [ { "Type": "EventHub", "Name": "emulatorNs1", "Entities": [
    { "Name": "eh1", "PartitionCount": "2", "ConsumerGroups": [ { "Name": "cg1" } ] },
    { "Name": "eh2", "PartitionCount": 4, "ConsumerGroups": [] } ] } ], "LoggingConfig": { "Type": "File" } } }"#;

fn read(text: &str) -> Vec<(String, NamespaceSpec)> {
    emulator::read(&Document::json(text).unwrap()).unwrap()
}

fn refused(text: &str) -> String {
    emulator::read(&Document::json(text).unwrap()).unwrap_err().to_string()
}

#[test]
fn queues_have_the_settings_of_the_file_and_the_defaults_of_azure() {
    let (name, space) = read(QUEUES).remove(0);
    assert_eq!(name, "sbemulatorns");
    assert_eq!(space.queues.0[0].0, EntityName::parse("plain").unwrap());
    assert_eq!(space.queues.0[0].1.settings(), QueueSettings::default());
    let settings = space.queues.0[1].1.settings();
    let expected = QueueSettings {
        dead_letter_on_expiration: true,
        default_time_to_live: Some(Duration::from_secs(3600)),
        lock_duration: Duration::from_secs(60),
        max_delivery_count: 3,
        requires_session: true,
        status: QueueStatus::SendDisabled,
        max_size_bytes: Some(100 << 20),
        max_message_size_bytes: 2 << 20,
        retry: peeklock_types::RetryPolicy::Fixed { delay: Duration::from_secs(5) },
        partitioning: true,
        unused_duplicate_window: Some(Duration::from_secs(20)),
        express: true,
        support_ordering: false,
        ..QueueSettings::default()
    };
    assert_eq!(settings, expected);
}

#[test]
fn topics_have_subscriptions_and_rules() {
    let (_, space) = read(QUEUES).remove(0);
    let (_, topic) = &space.topics.0[0];
    assert_eq!(topic.settings().duplicate_window, Some(Duration::from_secs(20)));
    assert!(topic.settings().express);
    let subscriptions = &topic.subscriptions.as_ref().unwrap().0;
    assert!(subscriptions[0].1.rules.is_none(), "a subscription without rules gets the default rule");
    let audit = &subscriptions[1].1;
    assert_eq!(audit.forward_to.clone().flatten(), EntityName::parse("plain").ok());
    let rules = &audit.rules.as_ref().unwrap().0;
    let rule = rules[0].1.rule(RuleName::parse("by-header").unwrap()).unwrap();
    let Filter::Correlation(filter) = rule.filter else { panic!("not a correlation filter") };
    assert_eq!((filter.label.as_deref(), filter.to), (Some("subject"), None));
    assert_eq!(filter.properties[1], ("level".to_owned(), Value::Long(3).into()));
    let rule = rules[1].1.rule(RuleName::parse("by-sql").unwrap()).unwrap();
    assert!(matches!(rule.filter, Filter::Sql(_)) && rule.action.is_some());
}

#[test]
fn hubs_are_read() {
    let (name, space) = read(HUBS).remove(0);
    assert_eq!(name, "emulatorNs1");
    assert_eq!(space.hubs.0[0].1.partition_count, Some(2));
    assert_eq!(space.hubs.0[0].1.groups(), [ConsumerGroup::parse("cg1").unwrap()]);
    assert_eq!(space.hubs.0[1].1.partition_count, Some(4));
    assert!(refused(&HUBS.replace("\"2\"", "9999")).contains("Entities.[1]: a hub with 9999 partitions"));
    let told = refused(&HUBS.replace("cg1", "c/1"));
    assert!(
        told.contains("ConsumerGroups.[1].Name: the consumer group 'c/1' has the character '/'"),
        "{told}"
    );
    assert!(refused(&HUBS.replace("eh2", "EH1")).contains("given twice"));
}

#[test]
fn errors_have_their_place() {
    let with = |from: &str, to: &str| {
        assert!(QUEUES.contains(from), "{from}");
        refused(&QUEUES.replacen(from, to, 1))
    };
    assert_eq!(
        with("\"LockDuration\"", "\"LockDuraton\""),
        "line 14, column 13: UserConfig.Namespaces.[1].Queues.[2].Properties: unknown key 'LockDuraton'; did you mean 'LockDuration'?"
    );
    assert!(with("\"PT1M\"", "\"1M\"").contains("'1M' is not a duration; write it as ISO 8601 does"));
    assert!(with("\"PT1M\"", "\"PT1H\"").contains("Queues.[2]: a lock duration of 3600s is outside"));
    assert!(
        with("\"MaxDeliveryCount\": 3", "\"MaxDeliveryCount\": \"3\"")
            .contains("the text '3' where u32 should be")
    );
    let told = with("prio > 3", "prio >> 3");
    assert!(told.starts_with("line 41, column 51: "), "{told}");
    assert!(told.contains("SqlFilter.SqlExpression: the SQL filter does not parse: at column"), "{told}");
    assert!(with("SET sys.To", "SIT sys.To").contains("Action.SqlExpression: the SQL action"));
    assert!(with("\"FilterType\": \"Sql\"", "\"FilterType\": \"Sqll\"").contains("did you mean 'Sql'?"));
    assert!(with("\"plain\" }", "\"pl ain\" }").contains("Queues.[1].Name: the entity name 'pl ain'"));
    assert!(with("\"events\"", "\"PLAIN\"").contains("Topics.[1].Name: the name 'PLAIN' is given twice"));
    assert!(with("\"all\"", "\"AUDIT\"").contains("Subscriptions.[2].Name: the name 'audit' is given twice"));
    assert!(with("by-sql", "BY-HEADER").contains("Rules.[2].Name: the name 'BY-HEADER' is given twice"));
    assert!(with("\"SqlFilter\": {", "\"CorrelationFilter\": {").contains("unknown key 'SqlExpression'"));
}
