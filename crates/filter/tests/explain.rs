//! Explanations of why a rule matches a message or does not.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use bytes::Bytes;
use common::{rule, rule_with_action, sql};
use peeklock_filter::{
    CorrelationFilter, Decision, Filter, Rule, RuleSet, SystemProperty, Value, ViewBuilder,
};

use Decision::{Error, Matched, NotMatched};

fn message() -> Bytes {
    let mut view = ViewBuilder::new();
    view.system(SystemProperty::Label, &Value::text("order"));
    view.user("Priority", &Value::text("Low"));
    view.user("size", &Value::Long(5));
    view.user("gone", &Value::Null);
    view.finish()
}

fn explain(rule: &Rule) -> (Decision, String) {
    let mut rules = RuleSet::new();
    rules.insert(1, rule).unwrap();
    let [explained] = &rules.explain(&message())[..] else { panic!("one rule, one answer") };
    assert_eq!((explained.key, &explained.rule), (1, &rule.name));
    assert_eq!(explained.matched(), explained.decision == Matched);
    (explained.decision, explained.why.clone())
}

#[test]
fn a_sql_filter_is_explained_by_its_deciding_part() {
    let cases = [
        ("Priority = 'High'", NotMatched, "Priority = 'High' is false: user.Priority is 'Low'"),
        ("Priority = 'Low'", Matched, "Priority = 'Low' is true: user.Priority is 'Low'"),
        ("quantity > 3", NotMatched, "user.quantity is not set, so quantity > 3 is unknown"),
        ("sys.To = 'x'", NotMatched, "sys.To is not set, so sys.To = 'x' is unknown"),
        ("gone = 1", NotMatched, "gone = 1 is unknown: user.gone is null"),
        ("size > 3 AND Priority = 'High'", NotMatched, "Priority = 'High' is false: user.Priority is 'Low'"),
        ("size > 3 AND quantity = 1", NotMatched, "user.quantity is not set, so quantity = 1 is unknown"),
        (
            "size > 3 AND sys.Label LIKE 'ord%'",
            Matched,
            "size > 3 is true: user.size is 5; sys.Label LIKE 'ord%' is true: sys.Label is 'order'",
        ),
        ("size > 9 OR Priority = 'Low'", Matched, "Priority = 'Low' is true: user.Priority is 'Low'"),
        (
            "size > 9 OR Priority = 'High'",
            NotMatched,
            "size > 9 is false: user.size is 5; Priority = 'High' is false: user.Priority is 'Low'",
        ),
        ("NOT (size > 3)", NotMatched, "size > 3 is true: user.size is 5"),
        ("size IN (1, 2)", NotMatched, "size IN (1, 2) is false: user.size is 5"),
        ("EXISTS(quantity)", NotMatched, "EXISTS(quantity) is false: user.quantity is not set"),
        ("quantity IS NULL", Matched, "quantity IS NULL is true: user.quantity is not set"),
        ("1 = 0", NotMatched, "1 = 0 is false"),
        ("Priority > 3", Error, "Priority > 3 compares text 'Low' with a number 3"),
        ("size", Error, "size is 5, which is neither true nor false"),
    ];
    for (expression, decision, why) in cases {
        assert_eq!(explain(&rule("r", sql(expression))), (decision, why.to_owned()), "{expression}");
    }
}

#[test]
fn other_filters_and_actions_are_explained() {
    assert_eq!(explain(&Rule::take_all()), (Matched, "a true filter matches every message".to_owned()));
    assert_eq!(
        explain(&rule("r", Filter::False)),
        (NotMatched, "a false filter matches no message".to_owned())
    );
    let correlation = |label: &str, priority: &str| {
        let properties = vec![
            ("priority".to_owned(), Value::text(priority).into()),
            ("size".to_owned(), Value::Long(5).into()),
        ];
        let filter =
            CorrelationFilter { label: Some(label.to_owned()), properties, ..CorrelationFilter::default() };
        rule("r", Filter::Correlation(filter))
    };
    let met = "sys.Label is 'order', user.priority is 'Low', user.size is 5";
    assert_eq!(explain(&correlation("order", "Low")), (Matched, met.to_owned()));
    let unmet = "sys.Label is 'order', not 'bill'; user.priority is 'Low', not 'High'";
    assert_eq!(explain(&correlation("bill", "High")), (NotMatched, unmet.to_owned()));
    let properties = vec![("nowhere".to_owned(), Value::Long(1).into())];
    let missing = Filter::Correlation(CorrelationFilter { properties, ..CorrelationFilter::default() });
    assert_eq!(explain(&rule("r", missing)), (NotMatched, "user.nowhere is not set, expected 1".to_owned()));

    let (decision, why) = explain(&rule_with_action("r", Filter::True, "SET a = 1"));
    assert_eq!((decision, why.contains("its copy is changed")), (Matched, true));
    let (decision, why) = explain(&rule_with_action("r", sql("size = 5"), "SET a = size / 0"));
    assert_eq!(decision, Error);
    assert_eq!(why, "size = 5 is true: user.size is 5; but the action fails: size / 0 divides by zero");
}

#[test]
fn every_rule_is_explained_in_order() {
    let mut rules = RuleSet::new();
    rules.insert(2, &rule("b", Filter::True)).unwrap();
    rules.insert(1, &rule("z", Filter::False)).unwrap();
    rules.insert(1, &rule("A", sql("size = 5"))).unwrap();
    let explained = rules.explain(&message());
    let order: Vec<_> = explained.iter().map(|one| (one.key, one.rule.as_str(), one.matched())).collect();
    assert_eq!(order, [(1, "A", true), (1, "z", false), (2, "b", true)]);
    assert!(rules.explain(b"\x63").iter().any(|one| one.decision == Error));
}
