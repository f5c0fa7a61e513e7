//! Tests management in the protocol of the Azure SDKs, with the actual requests of Python and JavaScript.

use peeklock_http::Limits;
use peeklock_types::Tier;

use crate::common::{HOST, ROOT, ROOT_KEY, Rig, js, js_token, python, request, token};

const V24: &str = "api-version=2024-05";
const V21: &str = "api-version=2021-05";

const FULL_QUEUE: &str = "<QueueDescription><LockDuration>PT13S</LockDuration><MaxSizeInMegabytes>3072</MaxSizeInMegabytes>\
    <RequiresDuplicateDetection>true</RequiresDuplicateDetection><RequiresSession>true</RequiresSession>\
    <DefaultMessageTimeToLive>PT11M</DefaultMessageTimeToLive>\
    <DeadLetteringOnMessageExpiration>true</DeadLetteringOnMessageExpiration>\
    <DuplicateDetectionHistoryTimeWindow>PT12M</DuplicateDetectionHistoryTimeWindow><MaxDeliveryCount>14</MaxDeliveryCount>\
    <EnableBatchedOperations>false</EnableBatchedOperations><AuthorizationRules>\
    <AuthorizationRule i:type=\"SharedAccessAuthorizationRule\"><ClaimType>SharedAccessKey</ClaimType>\
    <ClaimValue>None</ClaimValue><Rights><AccessRights>Send</AccessRights></Rights><KeyName>k1</KeyName>\
    <PrimaryKey>cHJpbWFyeQ==</PrimaryKey><SecondaryKey>c2Vjb25kYXJ5</SecondaryKey></AuthorizationRule></AuthorizationRules>\
    <AutoDeleteOnIdle>PT10M</AutoDeleteOnIdle><EnablePartitioning>false</EnablePartitioning>\
    <EnableExpress>false</EnableExpress><UserMetadata>x&lt;&amp;&gt;y</UserMetadata>\
    <ForwardDeadLetteredMessagesTo>sb://localhost:5300/dlq</ForwardDeadLetteredMessagesTo>\
    <MaxMessageSizeInKilobytes>2048</MaxMessageSizeInKilobytes></QueueDescription>";

/// Returns the description inside the answer, without the dates, which vary.
fn description(body: &str) -> String {
    let (_, rest) = body.split_once("<content type=\"application/xml\">").unwrap();
    let mut text = rest.split_once("</content>").unwrap().0.to_owned();
    for name in ["CreatedAt", "UpdatedAt", "AccessedAt", "CreatedTime", "ModifiedTime"] {
        while let Some((before, after)) = text.split_once(&format!("<{name}>")) {
            let (_, after) = after.split_once(&format!("</{name}>")).unwrap();
            text = format!("{before}{after}");
        }
    }
    text
}

#[tokio::test]
async fn a_queue_with_defaults_has_every_element_in_order() {
    let rig = Rig::start().await;
    let created = rig.put(&format!("/q1?{V24}"), &python("<QueueDescription />")).await.expect(201);
    let golden = "<QueueDescription xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\" \
        xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\"><LockDuration>PT1M</LockDuration>\
        <MaxSizeInMegabytes>1024</MaxSizeInMegabytes><RequiresDuplicateDetection>false</RequiresDuplicateDetection>\
        <RequiresSession>false</RequiresSession>\
        <DefaultMessageTimeToLive>P10675199DT2H48M5.4775807S</DefaultMessageTimeToLive>\
        <DeadLetteringOnMessageExpiration>false</DeadLetteringOnMessageExpiration>\
        <DuplicateDetectionHistoryTimeWindow>PT10M</DuplicateDetectionHistoryTimeWindow><MaxDeliveryCount>10</MaxDeliveryCount>\
        <EnableBatchedOperations>true</EnableBatchedOperations><SizeInBytes>0</SizeInBytes><MessageCount>0</MessageCount>\
        <IsAnonymousAccessible>false</IsAnonymousAccessible><AuthorizationRules/><Status>Active</Status>\
        <SupportOrdering>true</SupportOrdering>\
        <CountDetails xmlns:d2p1=\"http://schemas.microsoft.com/netservices/2011/06/servicebus\">\
        <d2p1:ActiveMessageCount>0</d2p1:ActiveMessageCount><d2p1:DeadLetterMessageCount>0</d2p1:DeadLetterMessageCount>\
        <d2p1:ScheduledMessageCount>0</d2p1:ScheduledMessageCount><d2p1:TransferMessageCount>0</d2p1:TransferMessageCount>\
        <d2p1:TransferDeadLetterMessageCount>0</d2p1:TransferDeadLetterMessageCount></CountDetails>\
        <AutoDeleteOnIdle>P10675199DT2H48M5.4775807S</AutoDeleteOnIdle><EnablePartitioning>false</EnablePartitioning>\
        <EntityAvailabilityStatus>Available</EntityAvailabilityStatus><EnableExpress>false</EnableExpress>\
        <MaxMessageSizeInKilobytes>1024</MaxMessageSizeInKilobytes></QueueDescription>";
    assert_eq!(description(&created.body), golden);
    assert_eq!(created.header("content-type"), "application/atom+xml;type=entry;charset=utf-8");
    assert_eq!(created.element("id"), format!("https://{HOST}/q1?api-version=2024-05"));
    assert!(created.body.contains("<title type=\"text\">q1</title>"));
    assert!(created.body.contains("<author><name>sbemulatorns</name></author>"));
    assert!(created.element("CreatedAt").ends_with("0000Z"), "seven fractional digits");
    let shown = rig.get(&format!("/Q1?enrich=false&{V24}")).await.expect(200);
    assert_eq!(description(&shown.body), golden);
    assert!(!rig.get("/q1?api-version=2017-04").await.expect(200).body.contains("MaxMessageSizeInKilobytes"));
}

#[tokio::test]
async fn all_values_of_a_description_are_stored() {
    let rig = Rig::start().await;
    rig.put(&format!("/a%2Fq2?{V24}"), &python(FULL_QUEUE)).await.expect(201);
    let shown = rig.get(&format!("/a/q2?{V21}")).await.expect(200);
    for (name, value) in [
        ("LockDuration", "PT13S"),
        ("MaxSizeInMegabytes", "3072"),
        ("RequiresDuplicateDetection", "true"),
        ("RequiresSession", "true"),
        ("DefaultMessageTimeToLive", "PT11M"),
        ("DeadLetteringOnMessageExpiration", "true"),
        ("DuplicateDetectionHistoryTimeWindow", "PT12M"),
        ("MaxDeliveryCount", "14"),
        ("EnableBatchedOperations", "false"),
        ("AutoDeleteOnIdle", "PT10M"),
        ("UserMetadata", "x&lt;&amp;&gt;y"),
        ("ForwardDeadLetteredMessagesTo", "sb://localhost:5300/dlq"),
        ("MaxMessageSizeInKilobytes", "2048"),
        ("KeyName", "k1"),
        ("PrimaryKey", "cHJpbWFyeQ=="),
        ("SecondaryKey", "c2Vjb25kYXJ5"),
        ("AccessRights", "Send"),
        ("id", "https://localhost:5300/a/q2?api-version=2021-05"),
    ] {
        assert_eq!(shown.element(name), value, "{name}");
    }
    // Clients return the received description with one change.
    let content = description(&shown.body).replace("PT13S", "PT14S");
    let updated = rig.update(&format!("/a/q2?{V21}"), &js_entry(&content)).await.expect(200);
    assert_eq!(description(&updated.body), content);
    assert_eq!(rig.access.policies(Some(&peeklock_types::EntityName::parse("a/q2").unwrap())).len(), 1);
}

#[tokio::test]
async fn settings_without_effect_are_stored_and_shown() {
    let rig = Rig::start().await;
    let flags = [("SupportOrdering", "false"), ("EnablePartitioning", "true"), ("EnableExpress", "true")];
    let content: String = flags.map(|(name, value)| format!("<{name}>{value}</{name}>")).concat();
    for (name, root, api) in [("q1", "QueueDescription", "queues"), ("t1", "TopicDescription", "topics")] {
        let uri = format!("/{name}?{V21}");
        rig.put(&uri, &js(root, &content)).await.expect(201);
        let shown = rig.get(&uri).await.expect(200);
        let updated = rig.update(&uri, &js_entry(&description(&shown.body))).await.expect(200);
        for (flag, value) in flags {
            assert_eq!((shown.element(flag), updated.element(flag)), (value, value), "{flag} of {name}");
        }
        let json = rig.get(&format!("/api/{api}/{name}")).await.json();
        assert_eq!((&json["supportOrdering"], &json["partitioning"]), (&false.into(), &true.into()));
        assert_eq!(json["express"], true);
        let left_out = rig.update(&uri, &js(root, "")).await.expect(200);
        assert_eq!(left_out.element("EnablePartitioning"), "true", "cannot be changed");
    }
}

fn js_entry(description: &str) -> String {
    format!(
        "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content type=\"application/xml\">{description}</content></entry>"
    )
}

#[tokio::test]
async fn create_update_and_delete_answer_as_the_sdks_expect() {
    let rig = Rig::start().await;
    let (uri, plain) = (format!("/q1?{V21}"), js("QueueDescription", ""));
    let missing = rig.get(&uri).await.expect(404);
    assert_eq!(missing.header("content-type"), "application/xml; charset=utf-8");
    assert_eq!(missing.element("Code"), "404");
    rig.update(&uri, &plain).await.expect(404);
    let created = rig.put(&uri, &plain).await.expect(201);
    rig.put(&uri, &plain).await.expect(409);
    assert!(!rig.put(&uri, &plain).await.element("Detail").contains("40901"), "not a transient conflict");
    let tag = created.header("etag").to_owned();
    rig.ask("GET", &uri, &[("if-none-match", &tag)], "").await.expect(304);
    let locked = js("QueueDescription", "<LockDuration>PT30S</LockDuration>");
    let updated = rig.ask("PUT", &uri, &[("if-match", &tag)], &locked).await.expect(200);
    assert_eq!(updated.element("LockDuration"), "PT30S");
    assert_ne!(updated.header("etag"), tag);
    rig.ask("PUT", &uri, &[("if-match", &tag)], &locked).await.expect(412);
    rig.ask("PUT", &uri, &[("if-match", "\"other\"")], &locked).await.expect(412);
    rig.ask("DELETE", &uri, &[("if-match", &tag)], "").await.expect(412);
    let deleted = rig.delete(&uri).await.expect(200);
    assert_eq!(deleted.body, "");
    rig.delete(&uri).await.expect(404);
    rig.ask("POST", &uri, &[], &plain).await.expect(405);
}

#[tokio::test]
async fn an_update_resets_omitted_elements_and_keeps_settings_without_an_element() {
    let rig = Rig::start().await;
    let json = r#"{"retry": "fixed:5s", "maxSize": "100KiB", "userMetadata": "mine"}"#;
    rig.put("/api/queues/q1", json).await.expect(201);
    let uri = format!("/q1?{V21}");
    let shown = rig.get(&uri).await.expect(200);
    assert_eq!(shown.element("MaxSizeInMegabytes"), "1");
    let updated = rig.update(&uri, &js_entry(&description(&shown.body))).await.expect(200);
    assert_eq!(updated.element("UserMetadata"), "mine");
    let queue = rig.get("/api/queues/q1").await.json();
    assert_eq!((&queue["retry"], &queue["maxSize"]), (&"fixed:5s".into(), &"100KiB".into()));
    rig.update(&uri, &js("QueueDescription", "")).await.expect(200);
    let queue = rig.get("/api/queues/q1").await.json();
    assert_eq!((&queue["retry"], &queue["maxSize"]), (&"fixed:5s".into(), &"1GiB".into()));
    assert_eq!(queue["userMetadata"], serde_json::Value::Null);
    // ATOM cannot represent an entity without a limit, so an omitted size stays unchanged.
    rig.put("/api/queues/q2", "{}").await.expect(201);
    let uri = format!("/q2?{V21}");
    let updated = rig.update(&uri, &js("QueueDescription", "")).await.expect(200);
    assert_eq!(updated.element("MaxSizeInMegabytes"), "81920");
    assert_eq!(rig.get("/api/queues/q2").await.json()["maxSize"], serde_json::Value::Null);
}

#[tokio::test]
async fn an_update_without_an_order_keeps_the_order() {
    let rig = Rig::start().await;
    let order = r#"{"policy": "weighted", "classes": {"high": {"priorities": "5-9", "weight": 3}, "low": {"priorities": "0-4"}}}"#;
    rig.put("/api/queues/q1", &format!(r#"{{"order": {order}}}"#)).await.expect(201);
    rig.put("/api/topics/t", "{}").await.expect(201);
    rig.put("/api/topics/t/subscriptions/s", &format!(r#"{{"order": {order}}}"#)).await.expect(201);
    let ours =
        [("/q1", "/api/queues/q1"), ("/t/subscriptions/s", "/api/topics/t/subscriptions/s")].into_iter();
    for (path, api) in ours {
        let before = rig.get(api).await.json()["order"].clone();
        assert_eq!(before["classes"]["high"]["weight"], 3);
        let uri = format!("{path}?{V21}");
        let shown = rig.get(&uri).await.expect(200);
        let changed = description(&shown.body).replace("<LockDuration>PT1M<", "<LockDuration>PT30S<");
        assert_eq!(rig.update(&uri, &js_entry(&changed)).await.expect(200).element("LockDuration"), "PT30S");
        let after = rig.get(api).await.json();
        assert_eq!((&after["order"], &after["lockDuration"]), (&before, &"30s".into()));
    }
    let uri = format!("/q2?{V21}");
    rig.put(&uri, &js("QueueDescription", "")).await.expect(201);
    rig.put(&format!("/q1?{V21}"), &js("QueueDescription", "")).await.expect(409);
    assert_eq!(
        rig.get("/api/queues/q2").await.json()["order"],
        serde_json::Value::Null,
        "no order by default"
    );
}

#[tokio::test]
async fn settings_that_cannot_be_changed_or_are_unsupported_are_rejected_by_name() {
    let rig = Rig::start().await;
    let uri = format!("/q1?{V21}");
    rig.put(&uri, &js("QueueDescription", "")).await.expect(201);
    let refused = async |method: bool, content: &str, said: &str| {
        let body = js("QueueDescription", content);
        let answer =
            if method { rig.update(&uri, &body).await } else { rig.put(&format!("/q2?{V21}"), &body).await };
        let answer = answer.expect(400);
        assert!(answer.element("Detail").contains(said), "{}", answer.body);
    };
    refused(true, "<RequiresSession>true</RequiresSession>", "session").await;
    refused(true, "<RequiresDuplicateDetection>true</RequiresDuplicateDetection>", "duplicate").await;
    refused(true, "<EnablePartitioning>true</EnablePartitioning>", "'enable partitioning' cannot be changed")
        .await;
    refused(false, "<IsAnonymousAccessible>true</IsAnonymousAccessible>", "IsAnonymousAccessible").await;
    refused(false, "<LockDurration>PT1M</LockDurration>", "did you mean LockDuration?").await;
    refused(false, "<LockDuration>1 minute</LockDuration>", "LockDuration is '1 minute'").await;
    refused(false, "<LockDuration>PT10M</LockDuration>", "lock duration").await;
    refused(false, "<MaxDeliveryCount>many</MaxDeliveryCount>", "MaxDeliveryCount is 'many'").await;
    refused(false, "<MaxDeliveryCount>0</MaxDeliveryCount>", "delivery count of 0").await;
    refused(false, "<Status>Sleeping</Status>", "Active, Disabled, SendDisabled, ReceiveDisabled").await;
    refused(false, "<RequiresSession>maybe</RequiresSession>", "true or false").await;
    refused(false, "<Status>Active</Status><Status>Active</Status>", "twice").await;
    refused(false, "<SubscriptionCount>1</SubscriptionCount>", "a queue has no property 'SubscriptionCount'")
        .await;
    rig.get(&format!("/q2?{V21}")).await.expect(404);
}

#[tokio::test]
async fn a_window_is_stored_while_duplicates_are_not_detected() {
    let rig = Rig::start().await;
    let window = |span: &str| {
        format!("<DuplicateDetectionHistoryTimeWindow>{span}</DuplicateDetectionHistoryTimeWindow>")
    };
    for (name, root) in [("q1", "QueueDescription"), ("t1", "TopicDescription")] {
        let uri = format!("/{name}?{V21}");
        for wrong in ["PT19S", "P7DT1S", "soon"] {
            let refused = rig.put(&uri, &js(root, &window(wrong))).await.expect(400);
            assert!(
                refused.element("Detail").contains("DuplicateDetectionHistoryTimeWindow"),
                "{}",
                refused.body
            );
        }
        let created = rig.put(&uri, &js(root, &window("PT3M"))).await.expect(201);
        assert_eq!(created.element("RequiresDuplicateDetection"), "false");
        let updated = rig.update(&uri, &js_entry(&description(&created.body))).await.expect(200);
        assert_eq!(updated.element("DuplicateDetectionHistoryTimeWindow"), "PT3M");
        let updated = rig.update(&uri, &js(root, &window("P7D"))).await.expect(200);
        assert_eq!(updated.element("DuplicateDetectionHistoryTimeWindow"), "P7D");
    }
    // The broker's own configuration permits shorter windows, and a client can return the value that it received.
    rig.put("/api/queues/q2", r#"{"duplicateWindow": "5s"}"#).await.expect(201);
    let uri = format!("/q2?{V21}");
    let shown = rig.get(&uri).await.expect(200);
    let updated = rig.update(&uri, &js_entry(&description(&shown.body))).await.expect(200);
    assert_eq!(updated.element("DuplicateDetectionHistoryTimeWindow"), "PT5S");
}

#[tokio::test]
async fn an_element_of_a_later_version_is_rejected_and_not_shown() {
    let rig = Rig::start().await;
    let size = "<MaxMessageSizeInKilobytes>2048</MaxMessageSizeInKilobytes>";
    for version in ["2014-01", "2015-01", "2017-04"] {
        let uri = format!("/q1?api-version={version}");
        let refused = rig.put(&uri, &js("QueueDescription", size)).await.expect(400);
        assert!(refused.element("Detail").contains("use 2021-05 or later"), "{}", refused.body);
    }
    rig.put(&format!("/q1?{V21}"), &js("QueueDescription", size)).await.expect(201);
    let old = "/q1?api-version=2017-04";
    let shown = rig.get(old).await.expect(200);
    assert!(!shown.body.contains("MaxMessageSizeInKilobytes"));
    rig.update(old, &js_entry(&description(&shown.body))).await.expect(200);
    let shown = rig.get(&format!("/q1?{V21}")).await.expect(200);
    assert_eq!(
        shown.element("MaxMessageSizeInKilobytes"),
        "2048",
        "an update in an older version keeps the value"
    );
}

#[tokio::test]
async fn the_standard_tier_limits_the_message_size() {
    let rig = Rig::start_as(Limits::default(), Tier::Standard).await;
    let shown = rig.get(&format!("/$namespaceinfo?{V21}")).await.expect(200);
    assert_eq!(shown.element("MessagingSKU"), "Standard");
    assert!(!shown.body.contains("MessagingUnits"));
    for (name, root) in [("q1", "QueueDescription"), ("t1", "TopicDescription")] {
        let uri = format!("/{name}?{V21}");
        let size = "<MaxMessageSizeInKilobytes>1024</MaxMessageSizeInKilobytes>";
        let refused = rig.put(&uri, &js(root, size)).await.expect(400);
        assert!(refused.element("Detail").contains("premium tier"), "{}", refused.body);
        let created = rig.put(&uri, &js(root, "")).await.expect(201);
        assert_eq!(created.element("MaxMessageSizeInKilobytes"), "256");
        rig.update(&uri, &js_entry(&description(&created.body))).await.expect(200);
        rig.update(&uri, &js(root, size)).await.expect(400);
    }
    let refused = rig.put("/api/queues/q2", r#"{"maxMessageSize": "2MiB"}"#).await.expect(400);
    assert!(refused.body.contains("--tier premium"), "{}", refused.body);
}

#[tokio::test]
async fn topics_subscriptions_and_rules_are_created_and_deleted() {
    let rig = Rig::start().await;
    let created = rig.put(&format!("/t1?{V24}"), &python("<TopicDescription />")).await.expect(201);
    assert_eq!(created.element("SubscriptionCount"), "0");
    assert_eq!(created.element("EnableSubscriptionPartitioning"), "false");
    let with_rule = js(
        "SubscriptionDescription",
        "<DefaultRuleDescription><Filter p4:type=\"SqlFilter\" xmlns:p4=\"http://www.w3.org/2001/XMLSchema-instance\">\
         <SqlExpression>a=@p</SqlExpression><Parameters><KeyValueOfstringanyType><Key>@p</Key>\
         <Value p4:type=\"l28:double\" xmlns:l28=\"http://www.w3.org/2001/XMLSchema\">1</Value></KeyValueOfstringanyType>\
         </Parameters></Filter><Action p4:type=\"SqlRuleAction\" xmlns:p4=\"http://www.w3.org/2001/XMLSchema-instance\">\
         <SqlExpression>SET x=1</SqlExpression></Action><Name>dr</Name></DefaultRuleDescription>",
    );
    let created = rig.put(&format!("/t1/Subscriptions/s1?{V21}"), &with_rule).await.expect(201);
    assert_eq!(created.element("id"), format!("https://{HOST}/t1/Subscriptions/s1?{V21}"));
    assert!(created.body.contains("<title type=\"text\">s1</title>"));
    rig.put(&format!("/t1/subscriptions/s2?{V24}"), &python("<SubscriptionDescription />")).await.expect(201);
    let rule = rig.get(&format!("/t1/Subscriptions/s1/Rules/dr?{V21}")).await.expect(200);
    let golden = "<RuleDescription xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\" \
        xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\"><Filter i:type=\"SqlFilter\"><SqlExpression>a=@p</SqlExpression>\
        <CompatibilityLevel>20</CompatibilityLevel><Parameters><KeyValueOfstringanyType><Key>@p</Key>\
        <Value i:type=\"d6p1:double\" xmlns:d6p1=\"http://www.w3.org/2001/XMLSchema\">1</Value></KeyValueOfstringanyType>\
        </Parameters></Filter><Action i:type=\"SqlRuleAction\"><SqlExpression>SET x=1</SqlExpression>\
        <CompatibilityLevel>20</CompatibilityLevel></Action><Name>dr</Name></RuleDescription>";
    assert_eq!(description(&rule.body), golden);
    let rule = rig.get(&format!("/t1/subscriptions/s2/rules/$Default?{V24}")).await.expect(200);
    assert!(
        rule.body.contains("<Filter i:type=\"TrueFilter\"><SqlExpression>1=1</SqlExpression>"),
        "{}",
        rule.body
    );
    assert!(rule.body.contains("<Action i:type=\"EmptyRuleAction\"/>"));
    assert_eq!(rule.element("id"), format!("https://{HOST}/t1/Subscriptions/s2/Rules/$Default?{V24}"));
    rig.delete(&format!("/t1/subscriptions/s2/rules/$Default?{V24}")).await.expect(200);
    rig.get(&format!("/t1/subscriptions/s2/rules/$Default?{V24}")).await.expect(404);
    let topic = rig.get(&format!("/t1?{V24}")).await.expect(200);
    assert_eq!((topic.element("SubscriptionCount"), topic.element("SqlFilterCount")), ("2", "1"));
    for kind in ["TrueFilter", "FalseFilter"] {
        let rule =
            format!("<RuleDescription><Filter xsi:type=\"{kind}\"/><Name>{kind}</Name></RuleDescription>");
        rig.put(&format!("/t1/subscriptions/s2/rules/{kind}?{V24}"), &python(&rule)).await.expect(201);
    }
    assert_eq!(rig.get(&format!("/t1?{V24}")).await.expect(200).element("SqlFilterCount"), "3");
    rig.delete(&format!("/t1?{V24}")).await.expect(200);
    rig.get(&format!("/t1/Subscriptions/s1?{V21}")).await.expect(404);
}

#[tokio::test]
async fn every_kind_of_rule_and_value_is_returned_unchanged() {
    let rig = Rig::start().await;
    rig.put(&format!("/t1?{V24}"), &python("<TopicDescription />")).await.expect(201);
    rig.put(&format!("/t1/subscriptions/s1?{V24}"), &python("<SubscriptionDescription />")).await.expect(201);
    let pairs = [
        ("s", "string", "x &lt; y"),
        ("i", "int", "-7"),
        ("l", "long", "2"),
        ("ll", "long", "1099511627776"),
        ("d", "double", "1.5"),
        ("b", "boolean", "true"),
        ("t", "dateTime", "2024-01-02T03:04:05.1234567Z"),
        ("tl", "dateTime", "2024-01-02T03:04:05.1234567"),
        ("tz", "dateTime", "2024-01-02T03:04:05+02:00"),
        ("t0", "dateTime", "0001-01-01T00:00:00"),
        ("un", "duration", "-PT5S"),
        ("u", "duration", "PT5S"),
    ];
    let pair = |(key, kind, value): &(&str, &str, &str), xsi: &str| {
        format!(
            "<KeyValueOfstringanyType><Key>{key}</Key><Value {xsi}:type=\"d6p1:{kind}\" \
             xmlns:d6p1=\"http://www.w3.org/2001/XMLSchema\">{value}</Value></KeyValueOfstringanyType>"
        )
    };
    let all = |xsi: &str| pairs.iter().map(|one| pair(one, xsi)).collect::<String>();
    let correlation = format!(
        "<RuleDescription><Filter xsi:type=\"CorrelationFilter\"><CorrelationId>c</CorrelationId><MessageId>m</MessageId>\
         <To>t</To><ReplyTo>r</ReplyTo><Label>l</Label><SessionId>s</SessionId><ReplyToSessionId>rs</ReplyToSessionId>\
         <ContentType>ct</ContentType><Properties>{}</Properties></Filter><Action xsi:type=\"EmptyRuleAction\" />\
         <Name>r2</Name></RuleDescription>",
        all("xsi")
    );
    let uri = format!("/t1/subscriptions/s1/rules/r2?{V24}");
    rig.put(&uri, &python(&correlation)).await.expect(201);
    rig.put(&uri, &python(&correlation)).await.expect(409);
    let shown = rig.get(&uri).await.expect(200);
    let expected = all("i");
    assert!(shown.body.contains(&format!("<Properties>{expected}</Properties>")), "{}", shown.body);
    assert!(shown.body.contains("<ReplyToSessionId>rs</ReplyToSessionId>"));
    let false_rule = "<RuleDescription><Filter xsi:type=\"FalseFilter\"><SqlExpression>1&gt;1</SqlExpression>\
        <CompatibilityLevel>20</CompatibilityLevel><RequiresPreprocessing>true</RequiresPreprocessing></Filter>\
        <Action xsi:type=\"EmptyRuleAction\" /><Name>r2</Name></RuleDescription>";
    let updated = rig.update(&uri, &python(false_rule)).await.expect(200);
    assert!(updated.body.contains("FalseFilter"));
    rig.update(&format!("/t1/subscriptions/s1/rules/r9?{V24}"), &python(&false_rule.replace("r2", "r9")))
        .await
        .expect(404);
    rig.put(&format!("/t1/subscriptions/s1/rules/r9?{V24}"), &python(false_rule)).await.expect(400);
}

#[tokio::test]
async fn a_syntax_error_in_a_rule_has_its_position() {
    let rig = Rig::start().await;
    rig.put(&format!("/t1?{V24}"), &python("<TopicDescription />")).await.expect(201);
    rig.put(&format!("/t1/subscriptions/s1?{V24}"), &python("<SubscriptionDescription />")).await.expect(201);
    let refused = async |filter: &str, said: &str| {
        let body = python(&format!("<RuleDescription>{filter}<Name>r</Name></RuleDescription>"));
        let answer = rig.put(&format!("/t1/subscriptions/s1/rules/r?{V24}"), &body).await.expect(400);
        assert!(answer.element("Detail").contains(said), "{}", answer.body);
    };
    refused("<Filter xsi:type=\"SqlFilter\"><SqlExpression>a = = 1</SqlExpression></Filter>", "column 5")
        .await;
    refused("<Filter xsi:type=\"SqlFilter\"></Filter>", "no SqlExpression").await;
    refused(
        "<Filter xsi:type=\"MagicFilter\"></Filter>",
        "SqlFilter, CorrelationFilter, TrueFilter or FalseFilter",
    )
    .await;
    refused("<Filter xsi:type=\"CorrelationFilter\"></Filter>", "no condition").await;
    refused("<Filter xsi:type=\"CorrelationFilter\"><Lable>x</Lable></Filter>", "did you mean Label?").await;
    refused("<Filter xsi:type=\"TrueFilter\"/><Action xsi:type=\"SqlRuleAction\"><SqlExpression>SET</SqlExpression></Action>", "action").await;
}

#[tokio::test]
async fn lists_are_paged_with_the_links_that_the_sdks_follow() {
    let rig = Rig::start().await;
    for number in 0..5 {
        rig.put(&format!("/q{number}?{V24}"), &python("<QueueDescription />")).await.expect(201);
        rig.put(&format!("/t{number}?{V24}"), &python("<TopicDescription />")).await.expect(201);
    }
    let page = rig.get(&format!("/$Resources/queues?$skip=0&$top=2&{V24}")).await.expect(200);
    assert_eq!(page.header("content-type"), "application/atom+xml;type=feed;charset=utf-8");
    assert_eq!(page.body.matches("<entry>").count(), 2);
    let links = page.body.split("<entry>").next().unwrap().matches("<link ").count();
    assert_eq!(links, 2, "Python interprets the second link as the next page");
    let next = format!("rel=\"next\" href=\"https://{HOST}/$Resources/Queues?{V24}&amp;$skip=2&amp;$top=2\"");
    assert!(page.body.contains(&next), "{}", page.body);
    let last = rig.get(&format!("/$Resources/Queues?{V21}&%24skip=4&%24top=2")).await.expect(200);
    assert_eq!((last.body.matches("<entry>").count(), last.body.matches("rel=\"next\"").count()), (1, 0));
    assert!(last.body.contains("<title type=\"text\">q4</title>"));
    let topics = rig.get(&format!("/$Resources/Topics?{V21}")).await.expect(200);
    assert_eq!(topics.body.matches("<TopicDescription").count(), 5);
    let none = rig.get(&format!("/t1/Subscriptions/?{V21}")).await.expect(200);
    assert_eq!(none.body.matches("<entry>").count(), 0);
    rig.get(&format!("/missing/Subscriptions/?{V21}")).await.expect(404);
    rig.get(&format!("/q1/Subscriptions/?{V21}")).await.expect(404);
    rig.put(&format!("/t1/subscriptions/s1?{V24}"), &python("<SubscriptionDescription />")).await.expect(201);
    let rules = rig.get(&format!("/t1/Subscriptions/s1/Rules/?{V21}")).await.expect(200);
    assert_eq!(rules.body.matches("<RuleDescription").count(), 1);
    rig.get(&format!("/$Resources/Queues?{V21}&$top=x")).await.expect(400);
}

#[tokio::test]
async fn the_namespace_is_described() {
    let rig = Rig::start().await;
    let shown = rig.get(&format!("/$namespaceinfo?{V24}")).await.expect(200);
    assert_eq!((shown.element("Name"), shown.element("MessagingSKU")), ("sbemulatorns", "Premium"));
    assert_eq!((shown.element("NamespaceType"), shown.element("MessagingUnits")), ("Messaging", "1"));
    let unknown = rig.get("/$namespaceinfo?api-version=2031-01").await.expect(400);
    assert!(unknown.element("Detail").contains("2017-04, 2021-05, 2024-05"));
}

#[tokio::test]
async fn each_call_requires_a_valid_token_with_the_right() {
    let rig = Rig::start().await;
    let uri = format!("/q1?{V21}");
    rig.put(&uri, &python(FULL_QUEUE.replace("AccessRights>Send<", "AccessRights>Manage<").as_str()))
        .await
        .expect(201);
    rig.put(&format!("/q2?{V21}"), &python("<QueueDescription />")).await.expect(201);
    let ask = async |uri: &str, token: &str| rig.call(request("GET", uri, token, &[], "")).await;
    let none = ask(&uri, "").await.expect(401);
    assert!(none.element("Detail").contains("Authorization"));
    assert!(none.header("www-authenticate").contains("SharedAccessSignature"));
    let wrong = ask(&uri, &token(ROOT, "wrong", &format!("https://{HOST}"))).await.expect(401);
    assert!(wrong.element("Detail").contains("signature"));
    let old = crate::common::token_until(ROOT, ROOT_KEY, &format!("https://{HOST}"), 1_000_000_000);
    assert!(ask(&uri, &old).await.expect(401).element("Detail").contains("expired"));
    ask(&uri, &js_token(ROOT, ROOT_KEY, &uri)).await.expect(200);
    ask(&format!("/q2?{V21}"), &js_token(ROOT, ROOT_KEY, &uri)).await.expect(401);
    let listing = format!("/$Resources/Queues?{V21}");
    ask(&listing, &js_token(ROOT, ROOT_KEY, &listing)).await.expect(200);
    // The key of one queue permits management of that queue only.
    let own = token("k1", "cHJpbWFyeQ==", &format!("sb://{HOST}/q1"));
    ask(&uri, &own).await.expect(200);
    ask(&format!("/q2?{V21}"), &own).await.expect(401);
    ask(&listing, &token("k1", "cHJpbWFyeQ==", &format!("https://{HOST}"))).await.expect(401);
}

#[tokio::test]
async fn forwarding_requires_the_right_to_send_to_the_target() {
    let rig = Rig::start().await;
    for name in ["mine", "other"] {
        rig.put(&format!("/{name}?{V21}"), &python("<QueueDescription />")).await.expect(201);
    }
    rig.put(
        "/api/queues/mine/policies/boss",
        r#"{"rights": ["Manage"], "primaryKey": "boss", "secondaryKey": "boss2"}"#,
    )
    .await
    .expect(201);
    rig.put(
        "/api/queues/other/policies/sender",
        r#"{"rights": ["Send"], "primaryKey": "send", "secondaryKey": "send2"}"#,
    )
    .await
    .expect(201);
    let body = js("QueueDescription", &format!("<ForwardTo>sb://{HOST}/other</ForwardTo>"));
    let uri = format!("/mine?{V21}");
    let boss = token("boss", "boss", &format!("https://{HOST}/mine"));
    let refused = rig.call(request("PUT", &uri, &boss, &[("if-match", "*")], &body)).await.expect(401);
    assert!(refused.element("Detail").contains("Send"));
    let json = r#"{"forwardTo": "other"}"#;
    rig.call(request("PUT", "/api/queues/mine", &boss, &[], json)).await.expect(403);
    let more = token("sender", "send", &format!("sb://{HOST}/other"));
    let headers = [("if-match", "*"), ("ServiceBusSupplementaryAuthorization", more.as_str())];
    let done = rig.call(request("PUT", &uri, &boss, &headers, &body)).await.expect(200);
    assert_eq!(done.element("ForwardTo"), format!("sb://{HOST}/other"));
    // JavaScript signs the token of the request for its address, and the second token for the bare host.
    let (js, bare) = (js_token(ROOT, ROOT_KEY, &format!("/new?{V21}")), token(ROOT, ROOT_KEY, HOST));
    let headers = [("ServiceBusSupplementaryAuthorization", bare.as_str())];
    rig.call(request("PUT", &format!("/new?{V21}"), &js, &headers, &body)).await.expect(201);
    rig.call(request(
        "PUT",
        &format!("/new2?{V21}"),
        &js_token(ROOT, ROOT_KEY, &format!("/new2?{V21}")),
        &[],
        &body,
    ))
    .await
    .expect(401);
}

#[tokio::test]
async fn invalid_descriptions_are_rejected() {
    let rig = Rig::start().await;
    let uri = format!("/q1?{V21}");
    let refused = async |body: &str, said: &str| {
        let answer = rig.put(&uri, body).await.expect(400);
        assert!(answer.element("Detail").contains(said), "{}", answer.body);
    };
    refused("", "no XML element").await;
    refused("{}", "line 1").await;
    refused("<entry/>", "http://www.w3.org/2005/Atom").await;
    refused("<entry xmlns=\"http://www.w3.org/2005/Atom\"/>", "no content").await;
    refused(&js_entry(""), "is empty").await;
    refused(&js_entry("<QueueDescription/>"), "namespace").await;
    refused(&js("RuleDescription", ""), "QueueDescription, TopicDescription").await;
    refused(&js("SubscriptionDescription", ""), "QueueDescription, TopicDescription or EventHubDescription")
        .await;
    refused("<!DOCTYPE x [<!ENTITY a \"b\">]><x/>", "document type").await;
    refused(&js_entry(&"<a>".repeat(100)), "deeper than 16").await;
    rig.put(&format!("/t/Subscriptions/s?{V21}"), &js("QueueDescription", "")).await.expect(400);
    rig.ask("PUT", &uri, &[("content-type", "application/json")], "{}").await.expect(415);
    let large = js("QueueDescription", &" ".repeat(1 << 20));
    let answer = rig.put(&uri, &large).await.expect(413);
    assert_eq!(answer.element("Code"), "413");
    for name in
        ["a%2F..%2Fb", "..%2F..%2Fetc", "a%00b", "%24cbs", "a%20b", &"x".repeat(261), "q1%2F$DeadLetterQueue"]
    {
        let answer = rig.put(&format!("/{name}?{V21}"), &js("QueueDescription", "")).await;
        assert!(matches!(answer.status.as_u16(), 400 | 404), "{name}: {} {}", answer.status, answer.body);
    }
}

#[tokio::test]
async fn counts_equal_the_stored_messages() {
    let rig = Rig::start().await;
    rig.put(&format!("/q1?{V21}"), &js("QueueDescription", "")).await.expect(201);
    crate::common::send(&rig, "q1", 3).await;
    let shown = rig.get(&format!("/q1?{V21}")).await.expect(200);
    assert_eq!((shown.element("MessageCount"), shown.element("d2p1:ActiveMessageCount")), ("3", "3"));
    assert_ne!(shown.element("SizeInBytes"), "0");
}

#[tokio::test]
async fn rights_are_returned_in_the_given_order() {
    let rig = Rig::start().await;
    let given = "<AccessRights>Manage</AccessRights><AccessRights>Listen</AccessRights><AccessRights>Send</AccessRights>";
    let queue = FULL_QUEUE.replace("<AccessRights>Send</AccessRights>", given);
    let created = rig.put(&format!("/q1?{V21}"), &python(&queue)).await.expect(201);
    assert_eq!(created.element("Rights"), given);
    assert_eq!(rig.get(&format!("/q1?{V21}")).await.expect(200).element("Rights"), given);
}

#[tokio::test]
async fn the_root_of_a_namespace_is_an_empty_feed() {
    let rig = Rig::start().await;
    let request = |method: &str| {
        let request = http::Request::builder().method(method).uri("/").header("host", HOST);
        rig.call(request.body(axum::body::Body::empty()).unwrap())
    };
    let feed = request("GET").await.expect(200);
    assert_eq!(feed.header("content-type"), "application/atom+xml;type=feed;charset=utf-8");
    assert!(feed.body.contains(
        "<feed xmlns=\"http://www.w3.org/2005/Atom\"><title type=\"text\">Publicly Listed Services</title>"
    ));
    assert_eq!(feed.element("generator"), "Service Bus 1.1");
    assert!(!feed.body.contains("<entry"));
    request("POST").await.expect(405);
}
