//! A value expression returns a value, null, or the reason why there is none.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use common::user_view;
use peeklock_filter::{Expression, RuleError, SystemProperty, UNREADABLE, Value, ViewBuilder, limits};

fn message() -> bytes::Bytes {
    let mut view = ViewBuilder::new();
    view.system(SystemProperty::Label, &Value::text("order"));
    view.system(SystemProperty::Priority, &Value::Long(7));
    view.user("Tenant", &Value::text("shop 1"));
    view.user("tenant", &Value::text("the second one"));
    view.user("my key", &Value::Long(3));
    view.user("half", &Value::Double(0.5));
    view.user("nothing", &Value::Null);
    view.user("which", &Value::text("TENANT"));
    view.user("paying", &Value::Bool(true));
    view.user("guid", &Value::Uuid([7; 16]));
    view.finish()
}

#[test]
fn an_expression_returns_its_value() {
    let view = message();
    for (text, expected) in [
        ("tenant", Value::text("shop 1")),
        ("TENANT", Value::text("shop 1")),
        ("user.tenant", Value::text("shop 1")),
        ("(tenant)", Value::text("shop 1")),
        ("[my key]", Value::Long(3)),
        ("\"my key\"", Value::Long(3)),
        ("sys.Label", Value::text("order")),
        ("sys.priority", Value::Long(7)),
        ("sys.Priority + 1", Value::Long(8)),
        ("sys.To", Value::Null),
        ("missing", Value::Null),
        ("nothing", Value::Null),
        ("tenant + missing", Value::Null),
        ("'a' + '/' + tenant", Value::text("a/shop 1")),
        ("property(which)", Value::text("shop 1")),
        ("p('my key') * 2", Value::Long(6)),
        ("-half", Value::Double(-0.5)),
        ("paying", Value::Bool(true)),
        ("guid", Value::Uuid([7; 16])),
        ("'all'", Value::text("all")),
        ("5", Value::Long(5)),
        ("NULL", Value::Null),
        ("TRUE", Value::Bool(true)),
    ] {
        let expression = Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(expression.source(), text);
        assert_eq!(expression.evaluate(&view, 1), Ok(expected), "{text}");
    }
}

#[test]
fn parse_errors_name_the_place() {
    for (text, column, found_part, expected_part) in [
        ("", 1, "the end", "a property or a value"),
        ("tenant tier", 8, "'tier'", "an operator or the end"),
        ("tenant +", 9, "the end", "a property or a value"),
        ("ä +", 4, "the end", "a property or a value"),
        ("tenant = 'a'", 1, "'tenant = 'a''", "a value and not a condition"),
        ("a AND b", 1, "'a AND b'", "a value and not a condition"),
        ("(a = 1)", 2, "'a = 1'", "a value and not a condition"),
        ("EXISTS(a)", 1, "'EXISTS(a)'", "a value and not a condition"),
        ("sys.Foo", 5, "'Foo'", "Priority"),
        ("@tenant", 1, "'@tenant'", "a parameter"),
        ("SET a = 1", 5, "'a'", "an operator or the end"),
        ("a; b", 2, "';'", "an operator or the end"),
        ("'tenant", 1, "a text that does not end", "closing quote"),
    ] {
        let error = Expression::parse(text).expect_err(text);
        let RuleError::Syntax { column: at, found, expected, .. } = &error else { panic!("{text}: {error}") };
        assert_eq!(*at, column, "{text}: {error}");
        assert!(found.contains(found_part), "{text}: found {found}");
        assert!(expected.contains(expected_part), "{text}: expected {expected}");
        assert!(error.to_string().starts_with("the expression does not parse: at column"), "{error}");
    }
    let long = "a".repeat(limits::EXPRESSION_CHARS_MAX + 1);
    assert!(matches!(Expression::parse(&long), Err(RuleError::TooLong { count: 1025, .. })));
    let deep = format!("{}a{}", "(".repeat(100), ")".repeat(100));
    assert!(matches!(Expression::parse(&deep), Err(RuleError::TooDeep { .. })));
}

#[test]
fn evaluation_errors_name_the_reason() {
    let view = message();
    for (text, part) in [
        ("tenant + 1", "calculates with text 'shop 1' and a number 1"),
        ("[my key] / 0", "divides by zero"),
        ("-tenant", "where a number is needed"),
        ("p([my key])", "where text is needed"),
    ] {
        let error = Expression::parse(text).unwrap().evaluate(&view, 1).expect_err(text);
        assert!(error.contains(part), "{text}: {error}");
    }
    let error = Expression::parse("tenant").unwrap().evaluate(UNREADABLE, 1).unwrap_err();
    assert!(error.contains("cannot be read"), "{error}");
}

#[test]
fn the_cost_of_an_expression_is_limited() {
    let view = user_view(&[("a", Value::text("x".repeat(30_000)))]);
    let error = Expression::parse("a + a + a").unwrap().evaluate(&view, 1).unwrap_err();
    assert!(error.contains("at most"), "{error}");
    let search = format!("{}p('b' + 'c')", "p(a + 'b') + ".repeat(70));
    let view = user_view(&[("b", Value::text("x".repeat(1 << 20))), ("a", Value::text("a"))]);
    let error = Expression::parse(&search).unwrap().evaluate(&view, 1).unwrap_err();
    assert!(error.contains("steps"), "{error}");
}

#[test]
fn new_ids_depend_on_the_seed() {
    let expression = Expression::parse("newid()").unwrap();
    assert_eq!(expression.evaluate(&[], 1), expression.evaluate(&[], 1));
    assert_ne!(expression.evaluate(&[], 1), expression.evaluate(&[], 2));
}
