//! Actions change one subscription's copy, statement by statement.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use bytes::Bytes;
use common::{evaluate, name, rule_with_action};
use peeklock_filter::{
    Action, Change, Changed, Changes, Filter, Outcome, Rule, RuleSet, SystemProperty, Value, Verdict,
    ViewBuilder, limits,
};

fn message() -> Bytes {
    let mut view = ViewBuilder::new();
    view.system(SystemProperty::Label, &Value::text("order"));
    view.user("Priority", &Value::text("High"));
    view.user("quantity", &Value::Long(5));
    view.user("price", &Value::Double(2.5));
    view.user("active", &Value::Bool(true));
    view.user("long", &Value::text("x".repeat(30_000)));
    view.finish()
}

/// Returns the changes of an action without the rule name at the end, or the reason why it failed.
fn run(action: &str) -> Result<Vec<Change>, String> {
    let mut rules = RuleSet::new();
    rules
        .insert(1, &rule_with_action("Rule-1", Filter::True, action))
        .unwrap_or_else(|error| panic!("{error}"));
    let [Verdict { key: 1, outcome }] = &evaluate(&rules, &message())[..] else { panic!("{action}") };
    match outcome {
        Outcome::Copies { plain: false, changed } => {
            let [Changed { rule, changes }] = &changed[..] else { panic!("{action}") };
            assert_eq!(*rule, name("rule-1"));
            let mut changes = Changes::decode(changes).unwrap();
            assert_eq!(changes.pop(), Some(user("RuleName", Value::text("Rule-1"))));
            Ok(changes)
        }
        Outcome::Error { rule, reason } if *rule == name("Rule-1") => Err(reason.clone()),
        other => panic!("{action}: {other:?}"),
    }
}

fn user(name: &str, value: Value) -> Change {
    Change::SetUser { name: name.to_owned(), value }
}

fn system(property: SystemProperty, value: Value) -> Change {
    Change::SetSystem { property, value }
}

fn removed(name: &str) -> Change {
    Change::RemoveUser { name: name.to_owned() }
}

#[test]
fn statements_change_the_copy_in_order() {
    let cases = [
        ("SET color = 'red'", vec![user("color", Value::text("red"))]),
        ("set user.color = 'red';", vec![user("color", Value::text("red"))]),
        ("SET a = 1; SET b = 2", vec![user("a", Value::Long(1)), user("b", Value::Long(2))]),
        ("SET a = 1, REMOVE b", vec![user("a", Value::Long(1)), removed("b")]),
        (
            "SET a = 1 SET b = 2 REMOVE c",
            vec![user("a", Value::Long(1)), user("b", Value::Long(2)), removed("c")],
        ),
        ("SET total = quantity * price", vec![user("total", Value::Double(12.5))]),
        ("SET [my name] = TRUE", vec![user("my name", Value::Bool(true))]),
        // Each statement reads the changes of earlier statements.
        ("SET a = 1; SET a = a + 1; SET b = a", vec![user("a", Value::Long(2)), user("b", Value::Long(2))]),
        ("REMOVE quantity; SET left = quantity", vec![removed("quantity"), user("left", Value::Null)]),
        ("SET x = 1; SET y = p('x')", vec![user("x", Value::Long(1)), user("y", Value::Long(1))]),
        (
            "SET x = 'y'; SET y = 7; SET z = p(x)",
            vec![user("x", Value::text("y")), user("y", Value::Long(7)), user("z", Value::Long(7))],
        ),
        (
            "SET sys.Label = 'new'; SET old = sys.Label",
            vec![system(SystemProperty::Label, Value::text("new")), user("old", Value::text("new"))],
        ),
        ("SET a = missing", vec![user("a", Value::Null)]),
        ("SET a = NULL", vec![user("a", Value::Null)]),
        // The sender's spelling stays.
        ("SET PRIORITY = 'Low'", vec![user("Priority", Value::text("Low"))]),
        ("REMOVE PRIORITY", vec![removed("Priority")]),
        ("SET a = 1; SET A = 2", vec![user("A", Value::Long(2))]),
        ("SET a = 1; REMOVE A", vec![removed("A")]),
    ];
    for (action, expected) in cases {
        assert_eq!(run(action), Ok(expected), "{action}");
    }
}

#[test]
fn a_property_keeps_its_kind_where_that_is_possible() {
    let cases = [
        ("SET quantity = 7.0", "quantity", Value::Long(7)),
        ("SET quantity = 7.5", "quantity", Value::Double(7.5)),
        ("SET quantity = '7'", "quantity", Value::Long(7)),
        ("SET quantity = 'many'", "quantity", Value::text("many")),
        ("SET price = 3", "price", Value::Double(3.0)),
        ("SET price = '3.5'", "price", Value::Double(3.5)),
        ("SET active = 'False'", "active", Value::Bool(false)),
        ("SET Priority = 1", "Priority", Value::text("1")),
        ("SET Priority = 1.5", "Priority", Value::text("1.5")),
        ("SET Priority = TRUE", "Priority", Value::Bool(true)),
        ("SET Priority = NULL", "Priority", Value::Null),
    ];
    for (action, name, value) in cases {
        assert_eq!(run(action), Ok(vec![user(name, value)]), "{action}");
    }
}

#[test]
fn an_action_sets_system_properties() {
    let cases = [
        ("SET sys.Label = 'x'", SystemProperty::Label, Value::text("x")),
        ("SET sys.Subject = 'x'", SystemProperty::Label, Value::text("x")),
        ("SET sys.To = Priority", SystemProperty::To, Value::text("High")),
        ("SET sys.ReplyTo = 'q'", SystemProperty::ReplyTo, Value::text("q")),
        ("SET sys.CorrelationId = 5", SystemProperty::CorrelationId, Value::text("5")),
        ("SET sys.MessageId = 'm'", SystemProperty::MessageId, Value::text("m")),
        ("SET sys.SessionId = Priority", SystemProperty::SessionId, Value::text("High")),
        ("SET sys.ReplyToSessionId = 's'", SystemProperty::ReplyToSessionId, Value::text("s")),
        ("SET sys.ContentType = 'text/plain'", SystemProperty::ContentType, Value::text("text/plain")),
        ("SET sys.Label = NULL", SystemProperty::Label, Value::Null),
        ("SET sys.TimeToLive = 'PT1S'", SystemProperty::TimeToLive, Value::Span(10_000_000)),
        (
            "SET sys.ScheduledEnqueueTimeUtc = '1970-01-02'",
            SystemProperty::ScheduledEnqueueTimeUtc,
            Value::Time(86_400_000),
        ),
    ];
    for (action, property, value) in cases {
        assert_eq!(run(action), Ok(vec![system(property, value)]), "{action}");
    }
}

#[test]
fn failed_actions_return_the_reason() {
    let cases = [
        ("SET a = quantity / 0", "quantity / 0 divides by zero"),
        ("SET a = Priority * 2", "Priority * 2 calculates with text 'High' and a number 2"),
        ("SET sys.Label = active", "sys.Label cannot be set to a truth value true"),
        ("SET sys.TimeToLive = 'soon'", "sys.TimeToLive cannot be set to text 'soon'"),
        ("SET sys.TimeToLive = 5", "sys.TimeToLive cannot be set to a number 5"),
        ("SET sys.SessionId = long", "sys.SessionId would have 30000 characters; at most 128 are allowed"),
        ("SET a = long + long + long", "makes a text of 90000 bytes; at most 65536 are allowed"),
        ("SET a = long; SET b = long", "changes of 60026 bytes; at most 49152 are allowed"),
        ("SET sys.ContentType = 'é'", "sys.ContentType cannot be set to 'é', as it is not ASCII"),
    ];
    for (action, expected) in cases {
        let reason = run(action).unwrap_err();
        assert!(reason.contains(expected), "{action}: {reason}");
    }
}

#[test]
fn the_limit_of_changes_covers_their_encoded_size() {
    let longest = |len: usize| {
        let mut rules = RuleSet::new();
        rules.insert(1, &rule_with_action("r", Filter::True, "SET a = t; SET b = 1; SET c = TRUE")).unwrap();
        let view = common::user_view(&[("t", Value::text("x".repeat(len)))]);
        match evaluate(&rules, &view).remove(0).outcome {
            Outcome::Copies { changed, .. } => Some(changed[0].changes.len()),
            Outcome::Error { .. } => None,
        }
    };
    let sizes: Vec<usize> =
        (limits::CHANGES_SIZE_BYTES_MAX - 200..limits::CHANGES_SIZE_BYTES_MAX).map_while(longest).collect();
    assert!(!sizes.is_empty() && sizes.len() < 200);
    assert!(sizes.iter().all(|size| *size <= limits::CHANGES_SIZE_BYTES_MAX), "{:?}", sizes.last());
}

#[test]
fn new_ids_depend_on_the_seed() {
    let mut rules = RuleSet::new();
    for key in [1, 2] {
        rules.insert(key, &rule_with_action("r", Filter::True, "SET a = newid(); SET b = newid()")).unwrap();
    }
    let ids = |seed| {
        let mut verdicts = Vec::new();
        rules.evaluate(&[], seed, &mut verdicts);
        verdicts
    };
    assert_eq!(ids(1), ids(1));
    let mut all: Vec<Value> = [ids(1), ids(2)]
        .iter()
        .flatten()
        .flat_map(|verdict| match &verdict.outcome {
            Outcome::Copies { changed, .. } => Changes::decode(&changed[0].changes).unwrap(),
            Outcome::Error { reason, .. } => panic!("{reason}"),
        })
        .filter_map(|change| match change {
            Change::SetUser { name, value } if name != "RuleName" => Some(value),
            _ => None,
        })
        .collect();
    all.sort_by_key(ToString::to_string);
    all.dedup();
    assert_eq!(all.len(), 8);
}

#[test]
fn an_action_has_parameters_and_many_statements() {
    let parameters = vec![("@x".to_owned(), Value::Uuid([7; 16]).into())];
    let action = Action { expression: "SET id = @X".to_owned(), parameters };
    let mut rules = RuleSet::new();
    rules.insert(1, &Rule { name: name("r"), filter: Filter::True, action: Some(action) }).unwrap();
    let [Verdict { outcome: Outcome::Copies { changed, .. }, .. }] = &evaluate(&rules, &[])[..] else {
        panic!()
    };
    assert_eq!(Changes::decode(&changed[0].changes).unwrap()[0], user("id", Value::Uuid([7; 16])));

    let many: String =
        (0..limits::STATEMENT_COUNT_MAX).map(|number| format!("SET a{number} = {number};")).collect();
    assert_eq!(run(&many).unwrap().len(), limits::STATEMENT_COUNT_MAX);
}
