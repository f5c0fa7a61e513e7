//! Topics: messages from senders to subscriptions, and rules over the management of a subscription.

use std::time::Duration;

use peeklock_amqp::connection::LinkId;
use peeklock_amqp::connection::{Outgoing, SaslClient};
use peeklock_amqp::{
    BATCH_FORMAT, BatchBuilder, Body, DeliveryState, DeliveryTag, Encode, Header, Message, MessageId, Value,
    condition,
};
use peeklock_filter::{Action, CorrelationFilter, Filter, Rule, RuleName, SqlFilter};
use peeklock_types::{EntityKind, EntityName, QueueSettings};

use crate::hubs::smallest_messages;
use crate::support::{Client, Rig, condition_of, in_session, message, receiver, sender, sessions};

fn name(text: &str) -> EntityName {
    EntityName::parse(text).unwrap()
}

fn sql(rule: &str, expression: &str, action: Option<&str>) -> Rule {
    let filter = Filter::Sql(SqlFilter { expression: expression.to_owned(), parameters: vec![] });
    let action = action.map(|expression| Action { expression: expression.to_owned(), parameters: vec![] });
    Rule { name: RuleName::parse(rule).unwrap(), filter, action }
}

impl Rig {
    pub(crate) async fn topic(&self, topic: &str) {
        let settings = QueueSettings { max_message_size_bytes: 8 << 20, ..QueueSettings::default() };
        self.broker.create(name(topic), EntityKind::Topic, settings, None).await.unwrap();
    }

    pub(crate) async fn subscription(&self, path: &str, rule: Option<Rule>) {
        self.subscription_with(path, rule, QueueSettings::default()).await;
    }

    async fn subscription_with(&self, path: &str, rule: Option<Rule>, settings: QueueSettings) {
        self.broker.create(name(path), EntityKind::Subscription, settings, rule).await.unwrap();
    }
}

impl Client {
    /// Receives and completes one message.
    async fn take(&mut self, link: LinkId) -> Message {
        let (delivery, message) = self.receive(link).await;
        assert_eq!(self.settle(link, delivery.id, DeliveryState::Accepted).await, DeliveryState::Accepted);
        message
    }

    async fn peek(&mut self, entity: &str) -> Vec<Message> {
        let management = self.management(entity).await;
        let body = vec![("from-sequence-number", 0_i64.into()), ("message-count", 100.into())];
        let found = self.request(&management, "com.microsoft:peek-message", body).await.get("messages");
        // Responses are sent to the first link of their entity.
        self.connection.detach(management.requests, None);
        self.connection.detach(management.responses, None);
        let decode =
            |entry: &Value| Message::decode(entry.lookup("message").unwrap().as_bytes().unwrap()).unwrap();
        found.as_list().map_or(Vec::new(), |list| list.iter().map(decode).collect())
    }

    async fn bodies(&mut self, entity: &str) -> Vec<String> {
        self.peek(entity).await.iter().map(text).collect()
    }
}

fn text(message: &Message) -> String {
    match &message.body {
        Body::Data(data) => data.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect(),
        other => panic!("{other:?}"),
    }
}

fn property(message: &Message, key: &str) -> Option<Value> {
    message.application_properties.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone())
}

#[tokio::test(start_paused = true)]
async fn a_message_reaches_the_subscriptions_with_matching_filters() {
    let rig = Rig::start().await;
    rig.topic("t").await;
    rig.subscription("t/Subscriptions/all", None).await;
    rig.subscription("t/Subscriptions/high", Some(sql("r", "Priority = 'High'", None))).await;
    rig.subscription("t/Subscriptions/low", Some(sql("r", "Priority = 'Low'", None))).await;
    let mut client = rig.client().await;
    let link = client.sender("t").await;
    let high = message("a").with_property("Priority", "High");
    let low = message("b").with_property("priority", "Low");
    for sent in [&high, &low, &message("c")] {
        assert_eq!(client.send(link, sent).await, DeliveryState::Accepted);
    }
    assert_eq!(client.bodies("t/Subscriptions/all").await, ["a", "b", "c"]);
    assert_eq!(client.bodies("t/Subscriptions/high").await, ["a"]);
    assert_eq!(client.bodies("t/Subscriptions/low").await, ["b"]);
    // Names are case-insensitive, and the message is settled for one subscription only.
    let receiver = client.receiver("T/subscriptions/HIGH").await;
    let found = client.take(receiver).await;
    assert_eq!(property(&found, "Priority"), Some("High".into()));
    assert!(client.bodies("t/Subscriptions/high").await.is_empty());
    assert_eq!(client.bodies("t/Subscriptions/all").await.len(), 3);
}

/// Each filter tests one field and matches only the message that has it.
#[tokio::test(start_paused = true)]
async fn filters_match_every_field_that_a_sender_sets() {
    let filters = [
        "sys.MessageId = 'id'",
        "sys.CorrelationId = '17'",
        "sys.SessionId = 's'",
        "sys.ReplyToSessionId = 'rs'",
        "sys.To = 'to'",
        "sys.ReplyTo = 'reply'",
        "sys.Label = 'subject'",
        "sys.ContentType = 'text/plain'",
        "sys.PartitionKey = 's'",
        "sys.TimeToLive IS NOT NULL",
        "sys.ExpiresAtUtc > sys.EnqueuedTimeUtc",
        "sys.Size > 10",
        "number = 7",
        "big > 1e18",
        "ratio = 0.5",
        "flag = TRUE",
        "word LIKE 'w_rd'",
        "nothing IS NULL AND EXISTS(nothing)",
        "EXISTS(\"when\")",
        "EXISTS(span)",
        "unknown IS NULL AND NOT EXISTS(unknown)",
    ];
    let rig = Rig::start().await;
    rig.topic("t").await;
    for (at, filter) in filters.iter().enumerate() {
        rig.subscription(&format!("t/Subscriptions/s{at}"), Some(sql("r", filter, None))).await;
    }
    let mut sent = message("x")
        .with_property("number", 7)
        .with_property("big", Value::Ulong(u64::MAX))
        .with_property("ratio", 0.5)
        .with_property("flag", true)
        .with_property("word", "word")
        .with_property("nothing", Value::Null)
        .with_property("when", Value::Timestamp(5))
        .with_property("span", Value::described(Value::symbol("com.microsoft:timespan"), Value::Long(9)));
    sent.header = Some(Header { ttl: Some(60_000), ..Header::default() });
    sent.message_annotations.insert("x-opt-partition-key", "s");
    sent.properties.message_id = Some("id".into());
    sent.properties.correlation_id = Some(MessageId::Ulong(17));
    sent.properties.group_id = Some("s".into());
    sent.properties.reply_to_group_id = Some("rs".into());
    sent.properties.to = Some("to".into());
    sent.properties.reply_to = Some("reply".into());
    sent.properties.subject = Some("subject".into());
    sent.properties.content_type = Some(crate::support::symbol("text/plain"));
    let mut client = rig.client().await;
    let link = client.sender("t").await;
    client.send(link, &sent).await;
    for (at, filter) in filters.iter().enumerate() {
        let entity = format!("t/Subscriptions/s{at}");
        assert_eq!(client.bodies(&entity).await, ["x"], "{filter}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_action_changes_the_copy_of_its_subscription_only() {
    let action = "SET kind = 'changed'; SET number = number + 1; REMOVE secret; SET sys.Label = 'new'; \
                  SET sys.To = 'there'; SET sys.ReplyTo = 'r'; SET sys.CorrelationId = 'c'; SET sys.MessageId = 'm'; \
                  SET sys.ReplyToSessionId = 'rs'; SET sys.ContentType = 'text/html'";
    let rig = Rig::start().await;
    rig.topic("t").await;
    rig.subscription("t/Subscriptions/changed", Some(sql("act", "1=1", Some(action)))).await;
    rig.subscription("t/Subscriptions/plain", None).await;
    let mut client = rig.client().await;
    let link = client.sender("t").await;
    let mut sent =
        message("x").with_property("Kind", "as sent").with_property("number", 1).with_property("secret", "s");
    sent.properties.subject = Some("old".into());
    client.send(link, &sent).await;
    let peeked = client.peek("t/Subscriptions/changed").await;
    let changed = client.receiver("t/Subscriptions/changed").await;
    let received = client.take(changed).await;
    for found in [&peeked[0], &received] {
        assert_eq!(property(found, "Kind"), Some("changed".into()), "the spelling of the sender");
        assert_eq!(property(found, "number"), Some(Value::Int(2)), "the type is unchanged");
        assert_eq!(property(found, "secret"), None);
        assert_eq!(property(found, "RuleName"), Some("act".into()));
        let properties = &found.properties;
        assert_eq!(properties.subject, Some("new".into()));
        assert_eq!(properties.to, Some("there".into()));
        assert_eq!(properties.reply_to, Some("r".into()));
        assert_eq!(properties.correlation_id, Some("c".into()));
        assert_eq!(properties.message_id, Some("m".into()));
        assert_eq!(properties.reply_to_group_id, Some("rs".into()));
        assert_eq!(properties.content_type, Some(crate::support::symbol("text/html")));
        assert_eq!(text(found), "x");
    }
    let plain = client.receiver("t/Subscriptions/plain").await;
    let found = client.take(plain).await;
    assert_eq!(property(&found, "Kind"), Some("as sent".into()));
    assert_eq!(property(&found, "RuleName"), None);
    assert_eq!(found.properties.subject, Some("old".into()));
}

#[tokio::test(start_paused = true)]
async fn a_property_set_by_a_settlement_overrides_one_set_by_an_action() {
    let rig = Rig::start().await;
    rig.topic("t").await;
    rig.subscription("t/Subscriptions/s", Some(sql("act", "1=1", Some("SET a = 1; SET b = 1")))).await;
    let mut client = rig.client().await;
    let link = client.sender("t").await;
    client.send(link, &message("x")).await;
    let receiver = client.receiver("t/Subscriptions/s").await;
    let (delivery, _) = client.receive(receiver).await;
    let state = crate::support::modified(peeklock_amqp::Fields::new().with("b", 2));
    client.settle(receiver, delivery.id, state).await;
    let found = client.take(receiver).await;
    assert_eq!(property(&found, "a"), Some(Value::Long(1)));
    assert_eq!(property(&found, "b"), Some(Value::Int(2)));
}

#[tokio::test(start_paused = true)]
async fn batches_schedules_transactions_and_large_messages_reach_subscriptions() {
    let rig = Rig::start().await;
    rig.topic("t").await;
    let rule = sql("r", "wanted = TRUE AND (sys.Size < 1000 OR sys.Size > 3145728)", Some("SET seen = TRUE"));
    rig.subscription("t/Subscriptions/s", Some(rule)).await;
    let mut client = rig.client().await;
    let link = client.sender("t").await;
    client.send(link, &message("not wanted")).await;
    let wanted = |body: &'static str| message(body).with_property("wanted", true);

    let mut batch = BatchBuilder::new(1 << 20);
    for body in ["batch 1", "batch 2"] {
        assert!(batch.try_add(&wanted(body).to_bytes()));
    }
    assert!(batch.try_add(&message("batch, not wanted").to_bytes()));
    let outgoing =
        Outgoing { tag: DeliveryTag::from(999), message_format: BATCH_FORMAT, settled: true, state: None };
    client.connection.send(link, &outgoing, &[&batch.finish()]).unwrap();
    client.flush().await;

    let control = client.coordinator().await.0;
    let txn = client.declare(control).await;
    client.send_in(link, &wanted("transaction"), Some(&txn)).await;
    assert_eq!(client.discharge(control, &txn, false).await, DeliveryState::Accepted);

    let large = Message::data(vec![7; 3 << 20]).with_message_id("large").with_property("wanted", true);
    assert_eq!(client.send(link, &large).await, DeliveryState::Accepted);

    let management = client.management("t").await;
    let due = rig.broker.clock().now().as_millis() + 5000;
    let mut later = wanted("scheduled");
    later
        .message_annotations
        .insert("x-opt-scheduled-enqueue-time", Value::Timestamp(due.try_into().unwrap()));
    let entry = vec![
        (Value::from("message-id"), Value::from("m")),
        (Value::from("message"), Value::Binary(later.to_bytes())),
    ];
    let body = vec![("messages", Value::List(vec![Value::Map(entry)]))];
    assert_eq!(client.request(&management, "com.microsoft:schedule-message", body).await.status, 200);

    let attach =
        peeklock_amqp::Attach { max_message_size: Some(100 << 20), ..receiver("t/Subscriptions/s", None) };
    let receiver = client.attach(attach).await.unwrap().0;
    let mut bodies = Vec::new();
    for _ in 0..5 {
        let found = client.take(receiver).await;
        assert_eq!(property(&found, "seen"), Some(true.into()));
        bodies.push(text(&found).chars().take(20).collect::<String>());
    }
    bodies[3].truncate(1);
    assert_eq!(bodies, ["batch 1", "batch 2", "transaction", "\u{7}", "scheduled"]);
}

#[tokio::test(start_paused = true)]
async fn messages_forwarded_to_a_topic_are_filtered() {
    let rig = Rig::start().await;
    rig.topic("t").await;
    rig.subscription("t/Subscriptions/s", Some(sql("r", "colour = 'red' AND sys.Label = 'l'", None))).await;
    let settings = QueueSettings { forward_to: Some(name("t")), ..QueueSettings::default() };
    rig.queue("q", settings).await;
    let mut client = rig.client().await;
    let link = client.sender("q").await;
    for colour in ["red", "blue"] {
        let mut sent = message(colour).with_property("colour", colour);
        sent.properties.subject = Some("l".into());
        client.send(link, &sent).await;
    }
    let receiver = client.receiver("t/Subscriptions/s").await;
    assert_eq!(text(&client.take(receiver).await), "red");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(client.bodies("t/Subscriptions/s").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_an_action_changed_is_forwarded_with_its_changes() {
    let rig = Rig::start().await;
    rig.topic("t").await;
    rig.topic("next").await;
    let settings = QueueSettings { forward_to: Some(name("next")), ..QueueSettings::default() };
    let rule = sql("act", "1=1", Some("SET colour = 'red'; SET sys.Label = 'l'"));
    rig.subscription_with("t/Subscriptions/s", Some(rule), settings).await;
    rig.subscription("next/Subscriptions/s", Some(sql("r", "colour = 'red' AND sys.Label = 'l'", None)))
        .await;
    let mut client = rig.client().await;
    let link = client.sender("t").await;
    client.send(link, &message("x").with_property("colour", "blue")).await;
    let receiver = client.receiver("next/Subscriptions/s").await;
    let found = client.take(receiver).await;
    assert_eq!(property(&found, "colour"), Some("red".into()));
    assert_eq!(found.properties.subject, Some("l".into()));
}

#[tokio::test(start_paused = true)]
async fn a_subscription_has_the_sessions_and_dead_letters_of_a_queue() {
    let rig = Rig::start().await;
    rig.topic("t").await;
    rig.subscription_with("t/Subscriptions/s", None, sessions()).await;
    rig.subscription("t/Subscriptions/fails", Some(sql("r", "word > 5", None))).await;
    let mut client = rig.client().await;
    let link = client.sender("t").await;
    client.send(link, &in_session("x", "one").with_property("word", "text")).await;
    let session = client.session("t/Subscriptions/s", "one").await.unwrap().0;
    assert_eq!(text(&client.take(session).await), "x");
    let dead = client.receiver("t/Subscriptions/fails/$DeadLetterQueue").await;
    let found = client.take(dead).await;
    assert!(
        property(&found, "DeadLetterErrorDescription").unwrap().as_str().unwrap().contains("'r'"),
        "{found:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn invalid_links_are_rejected() {
    let rig = Rig::start().await;
    rig.topic("t").await;
    rig.subscription("t/Subscriptions/s", None).await;
    let mut client = rig.client().await;
    for attach in [receiver("t", None), receiver("t/$DeadLetterQueue", None), sender("t/Subscriptions/s")] {
        let refused = client.attach(attach).await.unwrap_err();
        assert_eq!(refused.condition, condition::NOT_ALLOWED, "{refused:?}");
    }
    let missing = client.attach(receiver("t/Subscriptions/none", None)).await.unwrap_err();
    assert_eq!(missing.condition, condition::NOT_FOUND);
    let text = missing.description.unwrap().to_string();
    assert!(text.contains("peeklock subscription create t none"), "{text}");
    let link = client.sender("t").await;
    let many =
        (0..300).fold(message("x"), |message, n| message.with_property(format!("p{n}"), "v".repeat(1000)));
    let refused = client.send(link, &many).await;
    assert_eq!(condition_of(&refused), condition::MESSAGE_SIZE_EXCEEDED);
}

fn map(entries: Vec<(&'static str, Value)>) -> Value {
    Value::Map(entries.into_iter().map(|(key, value)| (Value::from(key), value)).collect())
}

fn rule_body(rule: &'static str, description: Vec<(&'static str, Value)>) -> Vec<(&'static str, Value)> {
    vec![("rule-name", rule.into()), ("rule-description", map(description))]
}

#[tokio::test(start_paused = true)]
async fn rules_are_added_listed_and_removed() {
    let rig = Rig::start().await;
    rig.topic("t").await;
    rig.subscription("t/Subscriptions/s", None).await;
    let mut client = rig.client().await;
    let management = client.management("t/Subscriptions/s").await;
    let sql_rule = vec![
        ("sql-filter", map(vec![("expression", "a = 1".into())])),
        ("sql-rule-action", map(vec![("expression", "SET b = 2".into())])),
    ];
    let correlation_rule = vec![
        (
            "correlation-filter",
            map(vec![
                ("correlation-id", Value::Null),
                ("label", "l".into()),
                ("properties", map(vec![("k", 1.into())])),
            ]),
        ),
        ("sql-rule-action", map(vec![])),
    ];
    for (rule, description) in [("one", sql_rule.clone()), ("two", correlation_rule)] {
        let added = client.request(&management, "com.microsoft:add-rule", rule_body(rule, description)).await;
        assert_eq!(added.status, 200, "{added:?}");
    }
    let again = client.request(&management, "com.microsoft:add-rule", rule_body("ONE", sql_rule)).await;
    assert_eq!((again.status, again.condition.as_deref()), (409, Some(condition::ENTITY_ALREADY_EXISTS)));

    let body = vec![("top", 100.into()), ("skip", 0.into())];
    let listed = client.request(&management, "com.microsoft:enumerate-rules", body).await.get("rules");
    let rules: Vec<_> =
        listed.as_list().unwrap().iter().map(|rule| rule.lookup("rule-description").unwrap()).collect();
    let fields = |value: &Value| {
        let described = value.as_described().unwrap();
        (described.descriptor.clone(), described.value.as_list().unwrap().to_vec())
    };
    let shown = |name: &str| {
        let found = rules.iter().map(|rule| fields(rule)).find(|(_, rule)| rule[2].as_str() == Some(name));
        let (descriptor, rule) = found.unwrap();
        assert_eq!(descriptor, Value::Ulong(1_335_734_829_060));
        assert!(matches!(rule[3], Value::Timestamp(_)));
        (fields(&rule[0]), fields(&rule[1]))
    };
    let (filter, action) = shown("$Default");
    assert_eq!(filter, (Value::Ulong(83_483_426_823), vec![]));
    assert_eq!(action, (Value::Ulong(1_335_734_829_061), vec![]));
    let (filter, action) = shown("one");
    assert_eq!((filter.0, &filter.1[0]), (Value::Ulong(83_483_426_822), &Value::from("a = 1")));
    assert_eq!((action.0, &action.1[0]), (Value::Ulong(1_335_734_829_062), &Value::from("SET b = 2")));
    let (filter, _) = shown("two");
    assert_eq!(filter.0, Value::Ulong(83_483_426_825));
    assert_eq!(filter.1.len(), 9);
    assert_eq!((&filter.1[0], &filter.1[4]), (&Value::Null, &Value::from("l")));
    assert_eq!(filter.1[8], Value::Map(vec![(Value::from("k"), Value::Int(1))]));

    let remove = |rule: &'static str| vec![("rule-name", Value::from(rule))];
    for rule in ["$default", "two"] {
        assert_eq!(client.request(&management, "com.microsoft:remove-rule", remove(rule)).await.status, 200);
    }
    let gone = client.request(&management, "com.microsoft:remove-rule", remove("two")).await;
    assert_eq!((gone.status, gone.condition.as_deref()), (404, Some(condition::NOT_FOUND)));
    let link = client.sender("t").await;
    client.send(link, &message("no")).await;
    client.send(link, &message("yes").with_property("a", 1)).await;
    assert_eq!(client.bodies("t/Subscriptions/s").await, ["yes"]);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_rule_is_rejected_with_the_position() {
    let rig = Rig::start().await;
    rig.topic("t").await;
    rig.subscription("t/Subscriptions/s", None).await;
    rig.queue("q", QueueSettings::default()).await;
    let mut client = rig.client().await;
    let management = client.management("t/Subscriptions/s").await;
    let expression = |text: &'static str| vec![("sql-filter", map(vec![("expression", text.into())]))];
    let wrong = [
        rule_body("r", expression("a = = 1")),
        rule_body("r", vec![]),
        rule_body("r", vec![("correlation-filter", map(vec![("label", Value::Null)]))]),
        rule_body(
            "r",
            vec![("correlation-filter", map(vec![("properties", map(vec![("k", Value::List(vec![]))]))]))],
        ),
        rule_body("a/b", expression("1=1")),
        vec![("rule-description", map(expression("1=1")))],
    ];
    for body in wrong {
        let refused = client.request(&management, "com.microsoft:add-rule", body).await;
        assert_eq!(refused.status, 400, "{refused:?}");
    }
    let of_queue = client.management("q").await;
    let refused =
        client.request(&of_queue, "com.microsoft:add-rule", rule_body("r", expression("1=1"))).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    let body = vec![("top", 100.into()), ("skip", 1.into())];
    let none = client.request(&management, "com.microsoft:enumerate-rules", body).await;
    assert_eq!(none.status, 204, "there is only $Default");
}

#[tokio::test(start_paused = true)]
async fn the_listen_right_permits_changes_of_rules() {
    let rig = Rig::start().await;
    rig.topic("t").await;
    rig.subscription("t/Subscriptions/s", None).await;
    let body = || rule_body("r", vec![("sql-filter", map(vec![("expression", "1=1".into())]))]);
    let mut client = rig.client_with(SaslClient::plain("sender", "secret")).await;
    let management = client.management("t/Subscriptions/s").await;
    let refused = client.request(&management, "com.microsoft:add-rule", body()).await;
    assert_eq!((refused.status, refused.condition.as_deref()), (401, Some(condition::UNAUTHORIZED_ACCESS)));
    let listed = client.request(&management, "com.microsoft:enumerate-rules", vec![("top", 1.into())]).await;
    assert_eq!(listed.status, 401);
    let mut client = rig.client_with(SaslClient::plain("listener", "secret")).await;
    let management = client.management("t/Subscriptions/s").await;
    assert_eq!(client.request(&management, "com.microsoft:add-rule", body()).await.status, 200);
    let default = vec![("rule-name", "$Default".into())];
    assert_eq!(client.request(&management, "com.microsoft:remove-rule", default).await.status, 200);
    let listed = client.request(&management, "com.microsoft:enumerate-rules", vec![("top", 1.into())]).await;
    assert_eq!(listed.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_correlation_filter_compares_texts_and_properties() {
    let rig = Rig::start().await;
    rig.topic("t").await;
    let filter = CorrelationFilter {
        label: Some("l".to_owned()),
        properties: vec![("k".to_owned(), peeklock_filter::Value::Long(1).into())],
        ..CorrelationFilter::default()
    };
    let rule =
        Rule { name: RuleName::parse("r").unwrap(), filter: Filter::Correlation(filter), action: None };
    rig.subscription("t/Subscriptions/s", Some(rule)).await;
    let mut client = rig.client().await;
    let link = client.sender("t").await;
    for (label, k) in [("l", 1), ("L", 1), ("l", 2)] {
        let mut sent = message("x").with_property("k", k);
        sent.properties.subject = Some(label.into());
        client.send(link, &sent).await;
    }
    assert_eq!(client.bodies("t/Subscriptions/s").await.len(), 1);
}

/// The properties of the recording sb-rule-types, one rule for each. One of them is a decimal.
#[tokio::test(start_paused = true)]
async fn a_rule_returns_its_values_in_their_original_types() {
    let rig = Rig::start().await;
    rig.topic("t").await;
    rig.subscription("t/Subscriptions/s", None).await;
    let mut client = rig.client().await;
    let management = client.management("t/Subscriptions/s").await;
    let decimal = 0x0c3c_0000_0000_0000_0000_0000_0000_0145_u128.to_be_bytes();
    let given = vec![
        ("string", "x".into()),
        ("int", Value::Int(1)),
        ("long", Value::Long(2)),
        ("bigLong", Value::Long(5_000_000_000)),
        ("short", Value::Short(3)),
        ("byte", Value::Ubyte(4)),
        ("sbyte", Value::Byte(-5)),
        ("ushort", Value::Ushort(6)),
        ("uint", Value::Uint(7)),
        ("ulong", Value::Ulong(u64::MAX)),
        ("float", Value::Float(0.1)),
        ("double", Value::Double(2.5)),
        ("decimal", Value::Decimal128(decimal)),
        ("bool", true.into()),
        ("char", Value::Char('c')),
        ("guid", Value::Uuid([7; 16])),
        ("time", Value::Timestamp(1_767_323_045_123)),
    ];
    let filter = vec![("correlation-filter", map(vec![("properties", map(given.clone()))]))];
    let added = client.request(&management, "com.microsoft:add-rule", rule_body("r", filter)).await;
    assert_eq!(added.status, 200, "{added:?}");
    let remove = vec![("rule-name", Value::from("$Default"))];
    assert_eq!(client.request(&management, "com.microsoft:remove-rule", remove).await.status, 200);

    let body = vec![("top", 100.into()), ("skip", 0.into())];
    let listed = client.request(&management, "com.microsoft:enumerate-rules", body).await.get("rules");
    let fields = |value: &Value| value.as_described().unwrap().value.as_list().unwrap().to_vec();
    let rule = fields(listed.as_list().unwrap()[0].lookup("rule-description").unwrap());
    assert_eq!(fields(&rule[0])[8], map(given.clone()));

    // Numbers are compared by value: the decimal as a double, the int as a long.
    let link = client.sender("t").await;
    let with = |body: &'static str, change: fn(&Value) -> Value| {
        let properties = given.iter().map(|(name, value)| (*name, change(value)));
        properties.fold(message(body), |message, (name, value)| message.with_property(name, value))
    };
    let in_other_types = with("in other types", |value| match value {
        Value::Decimal128(_) => Value::Double(3.25),
        Value::Int(number) => Value::Long((*number).into()),
        other => other.clone(),
    });
    let other_number = with("other number", |value| match value {
        Value::Decimal128(_) => Value::Double(3.5),
        other => other.clone(),
    });
    for message in [in_other_types, with("as given", Value::clone), other_number] {
        client.send(link, &message).await;
    }
    assert_eq!(client.bodies("t/Subscriptions/s").await, ["in other types", "as given"]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_to_a_topic_is_limited_only_by_its_bytes() {
    let rig = Rig::start().await;
    rig.topic("news").await;
    rig.subscription("news/Subscriptions/all", None).await;
    let mut client = rig.client().await;
    let link = client.sender("news").await;
    let batch = smallest_messages();
    let count = batch.message_count() as u64;
    assert_eq!(client.send_batch(link, batch).await, DeliveryState::Accepted);
    let counts = rig.broker.show(name("news/Subscriptions/all")).await.unwrap().counts;
    assert_eq!(counts.active_count, count);
}
