//! The order of a queue in JSON and TOML: both directions, and the errors.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::time::Duration;

use peeklock_spec::{Document, NamespaceSpec, OrderSpec, QueueSpec, SubscriptionSpec, from_json, from_toml};
use peeklock_types::{
    ClassName, ClassRule, ClassSettings, OrderPolicy, OrderSettings, QueueSettings, Rate, Target,
    TenantClass, TenantSettings,
};
use proptest::prelude::*;
use serde_json::json;

const FULL: &str = r#"{
  "policy": "aged",
  "classes": {
    "low": { "priorities": "0-3" },
    "high": { "priorities": "7-9", "target": "10s", "objective": 0.999, "offset": "0ms", "weight": 4,
              "rate": "200/s burst 400", "sendRate": "50/s burst 50" },
    "normal": { "priorities": "4-6", "target": "1m" }
  },
  "defaultClass": "normal",
  "rules": [ { "when": "tier = 'paying'", "class": "high" }, { "when": "size > 10", "class": "low" } ],
  "tenants": {
    "key": "tenant",
    "classes": {
      "paying": { "when": "tier = 'paying'", "weight": 2.5, "maxShare": 0.3, "hard": true, "rate": "300/m" },
      "free": {}
    },
    "defaultClass": "free"
  },
  "rate": "1000/s burst 1000", "sendRate": "0.5/s", "maxOutstanding": 32
}"#;

fn order(text: &str) -> OrderSettings {
    let OrderSpec(order) = from_json(text).unwrap();
    *order
}

fn name(text: &str) -> ClassName {
    ClassName::parse(text).unwrap()
}

fn refused(text: &str) -> String {
    from_json::<OrderSpec>(text).unwrap_err().to_string()
}

/// Returns the error of `check` with its place in a file.
fn misfit(toml: &str) -> String {
    let document = Document::toml(toml).unwrap();
    let misfit = document.read::<NamespaceSpec>().unwrap().check().unwrap_err();
    let path: Vec<&str> = misfit.path.iter().map(String::as_str).collect();
    document.problem(&path, misfit.message).to_string()
}

#[test]
fn all_settings_of_an_order_are_read() {
    let order = order(FULL);
    assert_eq!(OrderSpec(Box::new(order.clone())).check(), Ok(()));
    let names: Vec<_> = order.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["high", "normal", "low"], "the most urgent class is first");
    let rate = |per_second_milli, burst| Some(Rate { per_second_milli, burst });
    let high = ClassSettings {
        name: name("high"),
        priorities: (7, 9),
        offset: Some(Duration::ZERO),
        weight: Some(4),
        target: Some(Target { within: Duration::from_secs(10), objective_ppm: 999_000 }),
        rate: rate(200_000, 400),
        send_rate: rate(50_000, 50),
    };
    assert_eq!(order.classes[0], high);
    assert_eq!(order.classes[1].target.unwrap().objective_ppm, 990_000, "the default objective");
    assert_eq!(order.rules[0], ClassRule { when: "tier = 'paying'".to_owned(), class: name("high") });
    let tenants = order.tenants.unwrap();
    let paying = TenantClass {
        when: Some("tier = 'paying'".to_owned()),
        weight_milli: 2500,
        max_share_milli: Some(300),
        is_share_hard: true,
        rate: rate(5000, 5),
        ..TenantClass::new(name("paying"))
    };
    assert_eq!(tenants.classes, [paying, TenantClass::new(name("free"))]);
    assert_eq!(
        (order.rate, order.send_rate, order.max_outstanding),
        (rate(1_000_000, 1000), rate(500, 1), 32)
    );
}

#[test]
fn an_order_has_a_readable_form() {
    let written = serde_json::to_value(OrderSpec(Box::new(order(FULL)))).unwrap();
    assert_eq!(
        written,
        json!({
            "policy": "aged",
            "classes": {
                "high": { "priorities": "7-9", "target": "10s", "objective": 0.999, "offset": "0ms", "weight": 4,
                    "rate": "200/s burst 400", "sendRate": "50/s burst 50" },
                "normal": { "priorities": "4-6", "target": "1m", "objective": 0.99 },
                "low": { "priorities": "0-3" }
            },
            "defaultClass": "normal",
            "rules": [ { "when": "tier = 'paying'", "class": "high" }, { "when": "size > 10", "class": "low" } ],
            "tenants": {
                "key": "tenant",
                "classes": {
                    "paying": { "when": "tier = 'paying'", "weight": 2.5, "maxShare": 0.3, "hard": true, "rate": "5/s burst 5" },
                    "free": { "weight": 1 }
                },
                "defaultClass": "free"
            },
            "rate": "1000/s burst 1000", "sendRate": "0.5/s burst 1", "maxOutstanding": 32
        })
    );
    assert_eq!(order("{}"), OrderSettings::default());
}

#[test]
fn an_order_replaces_the_previous_one_and_null_removes_it() {
    let mut settings = QueueSettings { order: Some(Box::new(order(FULL))), ..QueueSettings::default() };
    let apply =
        |text: &str, settings: &mut QueueSettings| from_json::<QueueSpec>(text).unwrap().apply(settings);
    apply(r#"{"lockDuration": "5s"}"#, &mut settings);
    assert_eq!(settings.order.as_deref(), Some(&order(FULL)), "a spec without an order does not change it");
    apply(r#"{"order": {"policy": "fifo"}}"#, &mut settings);
    let fifo = OrderSettings { policy: OrderPolicy::Fifo, ..OrderSettings::default() };
    assert_eq!(settings.order.as_deref(), Some(&fifo), "the new order has no classes");
    apply(r#"{"order": null}"#, &mut settings);
    assert_eq!(settings.order, None);
    let spec: SubscriptionSpec = from_json(r#"{"order": {"classes": {"high": {"priorities": 9}}}}"#).unwrap();
    assert_eq!(spec.settings().order.unwrap().classes[0].priorities, (9, 9));
}

#[test]
fn toml_has_the_same_keys_with_dashes_and_keeps_their_order() {
    let text = "
[order]
policy = 'strict'
default-class = 'low'
max-outstanding = 4
[order.classes]
low.priorities = '0-3'
high = { priorities = '4-9', send-rate = '5/s' }
[[order.rules]]
when = 'vip = TRUE'
class = 'high'
[order.tenants]
key = 'tenant'
default-class = 'z'
classes.z = {}
classes.b = { max-share = 0.5 }
classes.a.weight = 0.25
";
    let spec: QueueSpec = from_toml(text).unwrap();
    let order = spec.order.unwrap().unwrap().0;
    assert_eq!((order.policy, order.max_outstanding), (OrderPolicy::Strict, 4));
    assert_eq!(order.default_class, Some(name("low")));
    let tenants = order.tenants.unwrap();
    let names: Vec<_> = tenants.classes.iter().map(|class| class.name.as_str()).collect();
    assert_eq!(names, ["z", "b", "a"], "the classes have the order of the document");
    assert_eq!(tenants.classes[2].weight_milli, 250);
}

#[test]
fn unreadable_values_have_their_place() {
    assert_eq!(
        refused("{\n  \"polcy\": \"aged\"\n}"),
        "line 2, column 3: unknown key 'polcy'; did you mean 'policy'?"
    );
    assert_eq!(
        refused(r#"{"policy": "lifo"}"#),
        "line 1, column 12: policy: 'lifo' is not a policy; write fifo, strict, aged or weighted"
    );
    let class = |text: &str| refused(&format!(r#"{{"classes": {{"high": {text}}}}}"#));
    assert_eq!(
        class(r#"{"priorities": "9-7"}"#),
        "line 1, column 37: classes.high.priorities: '9-7' is not a range of priorities; write the smaller one first, such as 0-3 \
         or 7-9; from 0 to 255"
    );
    assert!(class(r#"{"priorities": ""}"#).contains("'' is not a range"));
    assert!(class(r#"{"priorities": "7-9", "targt": "10s"}"#).contains("did you mean 'target'?"));
    let told = class(r#"{"target": "10s"}"#);
    assert!(
        told.contains("classes.high: a class has a range of priorities, and this one says none"),
        "{told}"
    );
    let told = class(r#"{"priorities": "7-9", "objective": 0.9}"#);
    assert!(told.contains("give it a target, such as 10s"), "{told}");
    for weight in ["0", "-1", "1001", "1.5", "\"nan\""] {
        let told = class(&format!(r#"{{"priorities": "7-9", "weight": {weight}}}"#));
        let digits = weight.trim_matches('"');
        assert!(
            told.contains(&format!(
                "classes.high.weight: '{digits}' is not a weight of a class; write a whole"
            )),
            "{told}"
        );
    }
    assert!(class(r#"{"priorities": "7-9", "rate": 5}"#).contains("5 where a rate such as 5/s"));
    assert!(class(r#"{"priorities": "7-9", "rate": "0/s"}"#).contains("'0/s' is not a rate"));
    let tenants =
        |text: &str| refused(&format!(r#"{{"tenants": {{"key": "t", "classes": {{"a": {text}}}}}}}"#));
    for weight in ["0", "-0.5", "0.0001"] {
        assert!(
            tenants(&format!(r#"{{"weight": {weight}}}"#))
                .contains("is not a weight of tenants; write a number above 0")
        );
    }
    assert!(tenants(r#"{"maxShare": 1.5}"#).contains("'1.5' is not a share"));
    assert!(refused(r#"{"tenants": {}}"#).contains("tenants: the key 'key' is missing"));
    assert!(refused(r#"{"rules": [{"when": "a = 1"}]}"#).contains("rules.[1]: the key 'class' is missing"));
    assert!(refused(r#"{"classes": {"9": {"priorities": 9}}}"#).contains("begins with '9'"));
    assert!(
        refused(r#"{"classes": {"a": {"priorities": 9}, "A": {"priorities": 8}}}"#).contains("given twice")
    );
    assert!(from_toml::<OrderSpec>("[tenants]\nkey = 't'\nclasses.a.weight = nan").is_err());
}

#[test]
fn invalid_orders_have_their_place() {
    let queue = "[queues.jobs.order]\n";
    let told = misfit(&format!("{queue}classes.high.priorities = '5-9'\nclasses.low.priorities = '0-5'"));
    assert_eq!(
        told,
        "line 3, column 26: queues.jobs.order.classes.low.priorities: the priorities of the classes 'high' and 'low' overlap at 5; \
         each priority belongs to one class"
    );
    let told = misfit(&format!("{queue}default-class = 'urgent'\nclasses.low.priorities = '0-5'"));
    assert!(
        told.starts_with("line 2, column 17: queues.jobs.order.defaultClass: there is no class 'urgent'"),
        "{told}"
    );
    assert!(told.ends_with("there are low"), "{told}");
    let told =
        misfit(&format!("{queue}policy = 'strict'\nclasses.low = {{ priorities = '0-5', weight = 2 }}"));
    assert!(
        told.starts_with("line 3, column 46: queues.jobs.order.classes.low.weight: the policy is strict"),
        "{told}"
    );
    assert!(told.contains("policy weighted"), "{told}");
    let rules = "classes.low.priorities = '0-5'\nrules = [\n  { when = 'a = 1', class = 'low' },\n";
    let told = misfit(&format!("{queue}{rules}  {{ when = 'a >', class = 'low' }}]"));
    assert!(
        told.starts_with(
            "line 5, column 12: queues.jobs.order.rules.[2].when: the SQL filter does not parse: at column 4"
        ),
        "{told}"
    );
    let told = misfit(&format!("{queue}{rules}  {{ when = 'a > 1', class = 'urgent' }}]"));
    assert!(
        told.starts_with(
            "line 5, column 29: queues.jobs.order.rules.[2].class: there is no class 'urgent' (of a rule)"
        ),
        "{told}"
    );
    let told = misfit(&format!("{queue}[queues.jobs.order.tenants]\nkey = 'a +'"));
    assert!(told.starts_with("line 3, column 7: queues.jobs.order.tenants.key: "), "{told}");
    assert!(told.contains("a key is the name of a property"), "{told}");
    let told = misfit(&format!(
        "{queue}[queues.jobs.order.tenants]\nkey = 'a'\ndefault-class = 'x'\nclasses.b.when = 'c = 1'"
    ));
    assert!(
        told.starts_with("line 4, column 17: queues.jobs.order.tenants.defaultClass: there is no class 'x'"),
        "{told}"
    );
    let told = misfit(&format!("{queue}[queues.jobs.order.tenants]\nkey = 'a'\nclasses.b.when = 'c ='"));
    assert!(told.starts_with("line 4, column 18: queues.jobs.order.tenants.classes.b.when: "), "{told}");
    let told = misfit("[topics.news.subscriptions.all.order]\nmax-outstanding = 0");
    assert!(
        told.starts_with("line 2, column 19: topics.news.subscriptions.all.order.maxOutstanding: "),
        "{told}"
    );
    let told = misfit("[topics.news.subscriptions.all.order]\nsend-rate = '5/s'");
    assert!(told.contains("set send rates on a queue"), "{told}");
}

fn any_rate() -> impl Strategy<Value = Option<Rate>> {
    let rate = (1..=10_000_000_000_u64, 1..=u32::MAX);
    prop::option::of(rate.prop_map(|(per_second_milli, burst)| Rate { per_second_milli, burst }))
}

fn any_span() -> impl Strategy<Value = Duration> {
    (1..300_000_000_000_u64).prop_map(Duration::from_millis)
}

fn any_class(place: u8) -> impl Strategy<Value = ClassSettings> {
    let target =
        (any_span(), 1..1_000_000_u32).prop_map(|(within, objective_ppm)| Target { within, objective_ppm });
    let numbers = (prop::option::of(any_span()), prop::option::of(1..=1000_u32), prop::option::of(target));
    (0..10_u8, numbers, any_rate(), any_rate()).prop_map(
        move |(width, (offset, weight, target), rate, send_rate)| {
            let name = name(&format!("class-{place}"));
            let priorities = (place * 10, place * 10 + width);
            ClassSettings { name, priorities, offset, weight, target, rate, send_rate }
        },
    )
}

fn any_tenants() -> impl Strategy<Value = TenantSettings> {
    let share = prop::option::of(1..=1000_u32);
    let class = (
        prop::option::of(Just("a = 'x'".to_owned())),
        1..=1_000_000_u32,
        share,
        any::<bool>(),
        any_rate(),
        any_rate(),
    );
    let classes = prop::collection::vec(class, 0..5);
    (classes, any::<bool>()).prop_map(|(classes, has_default)| {
        let class = |(place, (when, weight_milli, max_share_milli, is_share_hard, rate, send_rate))| {
            let name = name(&format!("t{}", 9 - place));
            TenantClass { name, when, weight_milli, max_share_milli, is_share_hard, rate, send_rate }
        };
        let classes: Vec<_> = (0..).zip(classes).map(class).collect();
        let default_class = classes.first().filter(|_| has_default).map(|class| class.name.clone());
        TenantSettings { key: "region + '/' + tier".to_owned(), classes, default_class }
    })
}

fn any_order() -> impl Strategy<Value = OrderSettings> {
    let policy = prop_oneof![Just(OrderPolicy::Fifo), Just(OrderPolicy::Aged), Just(OrderPolicy::Weighted)];
    let classes = (1..9_u8).prop_flat_map(|count| (0..count).map(any_class).collect::<Vec<_>>());
    let rest = (prop::option::of(any_tenants()), any_rate(), any_rate(), 1..=100_000_u32);
    (policy, classes, any::<bool>(), 0..5_usize, rest).prop_map(
        |(policy, classes, has_default, rule_count, rest)| {
            let (tenants, rate, send_rate, max_outstanding) = rest;
            let last = classes.last().map(|class| class.name.clone());
            let rule = |class: &ClassSettings| ClassRule {
                when: format!("a = \"{}\"", class.name),
                class: class.name.clone(),
            };
            let rules = classes.iter().cycle().take(rule_count).map(rule).collect();
            let default_class = last.filter(|_| has_default);
            let mut order = OrderSettings {
                policy,
                classes,
                default_class,
                rules,
                tenants,
                rate,
                send_rate,
                max_outstanding,
            };
            order.sort();
            order
        },
    )
}

proptest! {
    #[test]
    fn every_order_survives_writing_and_reading(order in any_order()) {
        prop_assert_eq!(OrderSpec(Box::new(order.clone())).check(), Ok(()));
        let settings = QueueSettings { order: Some(Box::new(order)), ..QueueSettings::default() };
        let text = serde_json::to_string(&QueueSpec::of(&settings)).unwrap();
        let ours: QueueSpec = from_json(&text).unwrap();
        let theirs: QueueSpec = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&ours, &theirs, "this crate's reader and serde_json give the same result");
        prop_assert_eq!(ours.settings(), settings, "{}", text);
    }

    #[test]
    fn a_damaged_order_does_not_panic(at in 0..FULL.len(), length in 0..8_usize, put in "[\\]\\[{}\",:a0.\\-\n]{0,4}") {
        let end = (at + length).min(FULL.len());
        if let Ok(spec) = from_json::<OrderSpec>(&format!("{}{put}{}", &FULL[..at], &FULL[end..])) {
            let _ = spec.check();
        }
    }
}
