//! The combined result of the rules of several subscriptions.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use bytes::Bytes;
use common::{evaluate, name, rule, rule_with_action, sql, user_view};
use peeklock_filter::{
    Change, Changes, CorrelationFilter, Cost, Decision, Filter, Outcome, Rule, RuleSet, SystemProperty,
    Value, Verdict, ViewBuilder, limits,
};
use proptest::prelude::*;

fn by_properties(properties: &[(&str, Value)]) -> Filter {
    let properties =
        properties.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into())).collect();
    Filter::Correlation(CorrelationFilter { properties, ..CorrelationFilter::default() })
}

fn plain(key: u32) -> Verdict<u32> {
    Verdict { key, outcome: Outcome::Copies { plain: true, changed: Vec::new() } }
}

fn matches(filter: Filter, view: &[u8]) -> bool {
    let mut rules = RuleSet::new();
    rules.insert(0, &rule("r", filter)).unwrap();
    evaluate(&rules, view) == [plain(0)]
}

#[test]
fn verdicts_are_in_the_order_of_subscriptions() {
    let mut rules = RuleSet::new();
    for key in [5, 1, 3] {
        rules.insert(key, &Rule::take_all()).unwrap();
    }
    rules.insert(2, &rule("none", Filter::False)).unwrap();
    rules.insert(4, &rule("sql", sql("a = 1"))).unwrap();
    rules.insert(0, &rule("correlation", by_properties(&[("a", Value::Long(1))]))).unwrap();
    rules.insert(6, &rule("other", sql("a = 2"))).unwrap();
    let view = user_view(&[("a", Value::Long(1))]);
    assert_eq!(evaluate(&rules, &view), [0, 1, 3, 4, 5].map(plain));
}

#[test]
fn rules_without_action_make_one_copy_together_and_each_action_makes_another() {
    let mut rules = RuleSet::new();
    rules.insert(1, &Rule::take_all()).unwrap();
    rules.insert(1, &rule("sql", sql("a = 1"))).unwrap();
    rules.insert(1, &rule("correlation", by_properties(&[("a", Value::Long(1))]))).unwrap();
    rules.insert(1, &rule_with_action("z", sql("a = 1"), "SET x = 1")).unwrap();
    rules.insert(1, &rule_with_action("b", by_properties(&[("a", Value::Long(1))]), "REMOVE a")).unwrap();
    rules.insert(1, &rule_with_action("m", Filter::True, "SET y = a")).unwrap();
    rules.insert(1, &rule_with_action("unmatched", sql("a = 2"), "SET x = 1")).unwrap();
    rules.insert(1, &rule_with_action("never", Filter::False, "SET x = 1")).unwrap();
    let verdicts = evaluate(&rules, &user_view(&[("a", Value::Long(1))]));
    let [Verdict { key: 1, outcome: Outcome::Copies { plain: true, changed } }] = &verdicts[..] else {
        panic!("{verdicts:?}")
    };
    let names: Vec<&str> = changed.iter().map(|copy| copy.rule.as_str()).collect();
    assert_eq!(names, ["b", "m", "z"]);
    let first = Changes::decode(&changed[0].changes).unwrap();
    assert_eq!(first[0], Change::RemoveUser { name: "a".to_owned() });
    assert_eq!(first[1], Change::SetUser { name: "RuleName".to_owned(), value: Value::text("b") });
}

#[test]
fn an_error_follows_the_copies_of_its_subscription() {
    let mut rules = RuleSet::new();
    rules.insert(1, &Rule::take_all()).unwrap();
    rules.insert(1, &rule("z-fails", sql("a > 'x'"))).unwrap();
    rules.insert(1, &rule("a-fails", sql("a / 0 = 1"))).unwrap();
    rules.insert(2, &rule("fails", sql("a > 'x'"))).unwrap();
    rules.insert(3, &Rule::take_all()).unwrap();
    let verdicts = evaluate(&rules, &user_view(&[("a", Value::Long(1))]));
    let error = |key, rule: &str, reason: &str| {
        let outcome = Outcome::Error { rule: name(rule), reason: reason.to_owned() };
        Verdict { key, outcome }
    };
    let mismatch = "a > 'x' compares a number 1 with text 'x'";
    let expected =
        [plain(1), error(1, "a-fails", "a / 0 divides by zero"), error(2, "fails", mismatch), plain(3)];
    assert_eq!(verdicts, expected);
}

#[test]
fn a_correlation_filter_requires_all_its_fields() {
    let mut view = ViewBuilder::new();
    let all = [
        (SystemProperty::CorrelationId, "c"),
        (SystemProperty::MessageId, "m"),
        (SystemProperty::To, "t"),
        (SystemProperty::ReplyTo, "r"),
        (SystemProperty::Label, "l"),
        (SystemProperty::SessionId, "s"),
        (SystemProperty::ReplyToSessionId, "rs"),
        (SystemProperty::ContentType, "ct"),
    ];
    all.iter().for_each(|(property, text)| view.system(*property, &Value::text(*text)));
    view.user("Color", &Value::text("Red"));
    let view = view.finish();
    let some = |text: &str| Some(text.to_owned());
    let full = CorrelationFilter {
        correlation_id: some("c"),
        message_id: some("m"),
        to: some("t"),
        reply_to: some("r"),
        label: some("l"),
        session_id: some("s"),
        reply_to_session_id: some("rs"),
        content_type: some("ct"),
        properties: vec![("color".to_owned(), Value::text("Red").into())],
    };
    assert!(matches(Filter::Correlation(full.clone()), &view));
    let changes: [fn(&mut CorrelationFilter); 9] = [
        |filter| filter.correlation_id = Some("x".to_owned()),
        |filter| filter.message_id = Some("M".to_owned()),
        |filter| filter.to = Some(String::new()),
        |filter| filter.reply_to = Some("x".to_owned()),
        |filter| filter.label = Some("L".to_owned()),
        |filter| filter.session_id = Some("x".to_owned()),
        |filter| filter.reply_to_session_id = Some("x".to_owned()),
        |filter| filter.content_type = Some("x".to_owned()),
        |filter| filter.properties[0].1 = Value::text("red").into(),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let mut filter = full.clone();
        change(&mut filter);
        assert!(!matches(Filter::Correlation(filter), &view), "condition {at}");
    }
    let label = CorrelationFilter { label: some("l"), ..CorrelationFilter::default() };
    assert!(matches(Filter::Correlation(label.clone()), &view));
    assert!(!matches(Filter::Correlation(label), &[]));
}

#[test]
fn a_correlation_filter_compares_values_by_kind() {
    let guid = [0xab; 16];
    let guid_text = "ABABABAB-abab-abab-abab-abababababab";
    let cases = [
        (Value::Long(1), Value::Double(1.0), true),
        (Value::Double(1.0), Value::Long(1), true),
        (Value::Double(1.5), Value::Double(1.5), true),
        (Value::Double(-0.0), Value::Double(0.0), true),
        (Value::Long(1), Value::text("1"), false),
        (Value::Bool(true), Value::Bool(true), true),
        (Value::Bool(true), Value::Long(1), false),
        (Value::Uuid(guid), Value::Uuid(guid), true),
        (Value::text(guid_text), Value::Uuid(guid), true),
        (Value::Uuid(guid), Value::text(guid_text), true),
        (Value::text(guid_text), Value::text(guid_text.to_lowercase()), false),
        (Value::Time(5), Value::Time(5), true),
        (Value::Time(0), Value::text("1970-01-01"), false),
        (Value::Span(5), Value::Span(5), true),
        (Value::Span(5), Value::Time(5), false),
        (Value::Binary(Bytes::from_static(b"x")), Value::Binary(Bytes::from_static(b"x")), true),
        (Value::Binary(Bytes::from_static(b"x")), Value::text("x"), false),
        (Value::text("x"), Value::Null, false),
        (Value::Long(1), Value::Double(f64::NAN), false),
    ];
    for (asked, found, expected) in cases {
        let view = user_view(&[("a", found.clone())]);
        assert_eq!(matches(by_properties(&[("A", asked.clone())]), &view), expected, "{asked} and {found}");
    }
}

#[test]
fn rules_are_replaced_and_removed() {
    let mut rules = RuleSet::new();
    let view = user_view(&[("a", Value::Long(1))]);
    rules.insert(1, &rule("r", by_properties(&[("a", Value::Long(1))]))).unwrap();
    rules.insert(1, &rule("R", sql("a = 2"))).unwrap();
    assert_eq!((rules.sql_count(), rules.correlation_count()), (1, 0));
    assert_eq!(evaluate(&rules, &view), []);
    rules.insert(1, &rule("r", Filter::True)).unwrap();
    rules.insert(1, &rule("s", Filter::True)).unwrap();
    assert!(rules.remove(1, &name("S")));
    assert!(!rules.remove(1, &name("s")));
    assert_eq!(evaluate(&rules, &view), [plain(1)]);
    rules.insert(2, &rule("r", Filter::True)).unwrap();
    rules.remove_all(1);
    assert_eq!(evaluate(&rules, &view), [plain(2)]);
    rules.remove_all(2);
    assert!(rules.is_empty());
}

#[test]
fn a_rule_without_properties_does_not_fail_on_an_unreadable_view() {
    let mut rules = RuleSet::new();
    rules.insert(1, &rule("all", sql("1 = 1.0 OR FALSE"))).unwrap();
    rules.insert(2, &rule("none", sql("1 = 0"))).unwrap();
    rules.insert(3, &rule("sql", sql("a = 1"))).unwrap();
    let verdicts = evaluate(&rules, peeklock_filter::UNREADABLE);
    assert_eq!(verdicts[0], plain(1));
    assert_eq!(verdicts.iter().map(|verdict| verdict.key).collect::<Vec<_>>(), [1, 3]);
    let decisions: Vec<_> = rules.explain(peeklock_filter::UNREADABLE).iter().map(|e| e.decision).collect();
    assert_eq!(decisions, [Decision::Matched, Decision::NotMatched, Decision::Error]);
}

#[test]
fn only_rules_with_properties_need_the_view() {
    let mut rules = RuleSet::new();
    rules.insert(1, &Rule::take_all()).unwrap();
    rules.insert(2, &rule("none", Filter::False)).unwrap();
    assert!(!rules.needs_view());
    assert_eq!(evaluate(&rules, b"not a view"), [plain(1)]);
    rules.insert(3, &rule("sql", sql("a = 1"))).unwrap();
    rules.insert(4, &rule("correlation", by_properties(&[("a", Value::Long(1))]))).unwrap();
    assert!(rules.needs_view());
    let verdicts = evaluate(&rules, peeklock_filter::UNREADABLE);
    assert_eq!(verdicts[0], plain(1));
    for (verdict, key) in verdicts[1..].iter().zip([3, 4]) {
        assert_eq!(verdict.key, key);
        assert!(
            matches!(&verdict.outcome, Outcome::Error { reason, .. } if reason.contains("cannot be read"))
        );
    }
    assert_eq!(verdicts.len(), 3);
}

#[test]
fn filters_without_properties_need_no_view() {
    let mut rules = RuleSet::new();
    for (key, always) in (0..).zip(["1=1", "TRUE", "1 + 1 = 2 AND 'a' LIKE '_'", "1 IN (1, 2)", "NOT 1=0"]) {
        rules.insert(key, &rule("r", sql(always))).unwrap();
    }
    for (key, never) in (5..).zip(["1=0", "FALSE", "NULL", "NULL IS NOT NULL"]) {
        rules.insert(key, &rule("r", sql(never))).unwrap();
    }
    assert!(!rules.needs_view());
    assert_eq!((rules.sql_count(), rules.rule_count()), (9, 9));
    assert_eq!(evaluate(&rules, &[]), [0, 1, 2, 3, 4].map(plain));
    assert_eq!(rules.explain(&[])[5].why, "1=0 is false");
    rules.insert(9, &rule("r", sql("1/0 = 1"))).unwrap();
    assert!(matches!(evaluate(&rules, &[])[5].outcome, Outcome::Error { .. }));
    rules.insert(9, &rule_with_action("r", sql("1=1"), "SET a = 1")).unwrap();
    assert!(
        matches!(&evaluate(&rules, &[])[5].outcome, Outcome::Copies { plain: false, changed } if changed.len() == 1)
    );
    (0..10).for_each(|key| rules.remove_all(key));
    assert!(rules.is_empty() && evaluate(&rules, &[]).is_empty());
}

#[test]
fn all_rules_of_a_topic_share_a_budget() {
    let mut rules = RuleSet::new();
    for key in 0..10 {
        rules.insert(key, &rule("r", sql("a LIKE '%_%b' OR 1=1"))).unwrap();
    }
    let view = user_view(&[("a", Value::text("a".repeat(1000)))]);
    let matched_count = |rules: &RuleSet<u32>| {
        evaluate(rules, &view)
            .iter()
            .filter(|verdict| matches!(verdict.outcome, Outcome::Copies { .. }))
            .count()
    };
    assert_eq!(matched_count(&rules), 10);
    rules.set_cost(Cost { rule_steps_max: 1000, message_steps_max: 30 });
    let verdicts = evaluate(&rules, &view);
    assert!((1..10).contains(&matched_count(&rules)), "{verdicts:?}");
    let Some(Verdict { outcome: Outcome::Error { reason, .. }, .. }) = verdicts.last() else {
        panic!("{verdicts:?}")
    };
    assert_eq!(reason, "the rules of the topic take more than 30 steps for this message");
    rules.set_cost(Cost { rule_steps_max: 3, message_steps_max: 1000 });
    assert_eq!(matched_count(&rules), 0);
}

#[test]
fn the_text_of_an_error_is_short() {
    let expression = format!("'{}' < a", "ö".repeat(900));
    let mut rules = RuleSet::new();
    rules.insert(0, &rule("r", sql(&expression))).unwrap();
    let verdicts = evaluate(&rules, &user_view(&[("a", Value::Long(1))]));
    let [Verdict { outcome: Outcome::Error { reason, .. }, .. }] = &verdicts[..] else {
        panic!("{verdicts:?}")
    };
    assert!(reason.chars().count() < 250, "{reason}");
}

#[test]
fn the_first_of_equal_names_counts() {
    let view = user_view(&[("A", Value::Long(1)), ("a", Value::Long(2))]);
    assert!(matches(sql("a = 1"), &view));
    assert!(matches(sql("p('a' + '') = 1"), &view));
    assert!(matches(by_properties(&[("a", Value::Long(1))]), &view));
}

#[test]
fn a_rule_has_a_budget() {
    let long = Value::text("a".repeat(60_000));
    let view = user_view(&[("t", long.clone()), ("u", long)]);
    let fails = |expression: &str| {
        let mut rules = RuleSet::new();
        rules.insert(0, &rule("r", sql(expression))).unwrap();
        match &evaluate(&rules, &view)[..] {
            [Verdict { outcome: Outcome::Error { reason, .. }, .. }] => {
                assert!(reason.contains(&format!("more than {} steps", limits::RULE_STEPS_MAX)), "{reason}");
                true
            }
            _ => false,
        }
    };
    assert!(!fails("t LIKE '%a%a%a%b'"));
    assert!(!fails("t LIKE '%a%a%a%b%'"));
    assert!(!fails("t LIKE '%a_a%'"));
    assert!(fails("t LIKE '%_aaaaaaaaaaaaaaaaaaaab%'"));
    assert!(fails("t LIKE '%_' + u + 'b%'"));
    assert!(!fails(&["t < u"; 100].join(" OR ")));
}

/// Generates few different values, so that filters often match messages.
fn small_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0_i64..3).prop_map(Value::Long),
        (0_i32..3).prop_map(|number| Value::Double(number.into())),
        prop::sample::select(vec!["0", "a", "A"]).prop_map(Value::text),
        any::<bool>().prop_map(Value::Bool),
    ]
}

fn small_name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["x", "Y", "z"])
}

fn small_properties(count_min: usize) -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let values = prop::collection::vec(prop::option::of(small_value()), 3);
    values
        .prop_map(|values| {
            ["x", "y", "z"].into_iter().zip(values).filter_map(|(name, value)| Some((name, value?))).collect()
        })
        .prop_filter("enough conditions", move |properties: &Vec<_>| properties.len() >= count_min)
}

proptest! {
    /// The comparison follows random insertions and removals.
    #[test]
    fn the_index_finds_the_same_filters_as_a_scan(
        filters in prop::collection::vec((small_properties(1), prop::option::of("[ab]"), any::<bool>()), 1..40),
        properties in small_properties(0),
        label in prop::option::of("[ab]"),
    ) {
        let mut view = ViewBuilder::new();
        properties.iter().for_each(|(name, value)| view.user(&name.to_uppercase(), value));
        label.iter().for_each(|label| view.system(SystemProperty::Label, &Value::text(label.as_str())));
        let view = view.finish();
        let filter_of = |(properties, label, _): &(Vec<(&str, Value)>, Option<String>, bool)| {
            let properties = properties.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into())).collect();
            Filter::Correlation(CorrelationFilter { properties, label: label.clone(), ..CorrelationFilter::default() })
        };
        let mut rules = RuleSet::new();
        for (key, filter) in (0..).zip(&filters) {
            rules.insert(key, &rule("r", filter_of(filter))).unwrap();
        }
        for (key, _) in (0..).zip(&filters).filter(|(_, filter)| filter.2) {
            rules.remove_all(key);
        }
        let is_equal = |left: &Value, right: &Value| match (left, right) {
            (Value::Long(whole), Value::Double(number)) | (Value::Double(number), Value::Long(whole)) => *number == *whole as f64,
            (left, right) => left == right,
        };
        let expected: Vec<Verdict<u32>> = (0..)
            .zip(&filters)
            .filter(|(_, (_, _, is_removed))| !is_removed)
            .filter(|(_, (_, asked, _))| asked.is_none() || *asked == label)
            .filter(|(_, (asked, _, _))| asked.iter().all(|(name, value)| {
                properties.iter().any(|(other, found)| other == name && is_equal(value, found))
            }))
            .map(|(key, _)| plain(key))
            .collect();
        prop_assert_eq!(evaluate(&rules, &view), expected);
    }

    /// Filters that begin with an equality are found by hash. Equivalent filters without that form give the same verdicts.
    #[test]
    fn filters_found_by_hash_give_the_same_verdicts_as_evaluated_ones(
        conditions in prop::collection::vec((small_name(), small_value(), prop::option::of((small_name(), small_value()))), 1..30),
        removed in prop::collection::vec(0_u32..30, 0..10),
        properties in small_properties(0),
    ) {
        let view = user_view(&properties);
        let (mut hashed, mut run) = (RuleSet::new(), RuleSet::new());
        for (key, (name, value, more)) in (0..).zip(&conditions) {
            let more = more.iter().map(|(name, value)| format!(" AND {name} < {value}")).collect::<String>();
            let expression = if key % 2 == 0 { format!("{name} = {value}{more}") } else { format!("{value} = {name}{more}") };
            run.insert(key, &rule("r", sql(&format!("TRUE AND {expression}")))).unwrap();
            hashed.insert(key, &rule("r", sql(&expression))).unwrap();
        }
        for key in removed {
            prop_assert_eq!(hashed.remove(key, &name("r")), run.remove(key, &name("r")));
        }
        prop_assert_eq!(evaluate(&hashed, &view), evaluate(&run, &view));
    }
}
