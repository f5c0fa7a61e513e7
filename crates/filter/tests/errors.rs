//! The error of an invalid rule names the place, the unexpected part and the expected one.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use common::{name, rule, rule_with_action, sql, sql_with};
use peeklock_filter::{
    CorrelationFilter, Filter, Rule, RuleError, RuleName, RuleNameError, RuleSet, Value, limits,
};

/// Filters with the column of the error, a part of its found text, and a part of its expected text.
const FILTERS: [(&str, usize, &str, &str); 48] = [
    ("", 1, "the end", "a property or a value"),
    ("   ", 4, "the end", "a property or a value"),
    ("a =", 4, "the end", "a property or a value"),
    ("a = ", 5, "the end", "a property or a value"),
    ("= 1", 1, "'='", "a property or a value"),
    ("a = = 1", 5, "'='", "a property or a value"),
    ("a == 1", 4, "'='", "a property or a value"),
    ("a = 1 b", 7, "'b'", "AND, OR or the end"),
    ("a = 1 AND", 10, "the end", "a property or a value"),
    ("a = 1 AND AND b = 2", 11, "the keyword AND", "a property"),
    ("a = 1 = 2", 7, "'='", "AND, OR or the end"),
    ("(a = 1", 7, "the end", "')'"),
    ("a = 1)", 6, "')'", "AND, OR or the end"),
    ("()", 2, "')'", "a property or a value"),
    ("a = 'text", 5, "a text that does not end", "closing quote"),
    ("[a = 1", 1, "a name that does not end", "closing bracket"),
    ("\"a = 1", 1, "a name that does not end", "closing double quote"),
    ("[] = 1", 1, "an empty name", "the name of a property"),
    ("a = 1 # b", 7, "'#'", "an operator"),
    ("ä = 'ö' ?", 9, "'?'", "an operator"),
    ("sys.Foo = 1", 5, "'Foo'", "MessageId"),
    ("sys. = 1", 6, "'='", "system property"),
    ("user. = 1", 7, "'='", "the name of a property"),
    ("foo.bar = 1", 1, "'foo.'", "[a.b]"),
    ("[sys].Label = 'x'", 1, "'[sys].'", "'sys.' or 'user.'"),
    ("a IS 1", 6, "'1'", "NULL or NOT NULL"),
    ("a IS NOT 1", 10, "'1'", "NULL"),
    ("a NOT = 1", 7, "'='", "IN or LIKE"),
    ("a IN 1", 6, "'1'", "'('"),
    ("a IN ()", 7, "')'", "a property or a value"),
    ("a IN (1, 2", 11, "the end", "',' or ')'"),
    ("a IN (1 2)", 9, "'2'", "',' or ')'"),
    ("a LIKE", 7, "the end", "a property or a value"),
    ("a LIKE 'x' ESCAPE ''", 19, "''", "one character"),
    ("a LIKE 'x' ESCAPE 'ab'", 19, "'ab'", "one character"),
    ("a LIKE 'x!' ESCAPE '!'", 8, "'x!'", "behind each escape"),
    ("EXISTS a", 8, "'a'", "'('"),
    ("EXISTS(1)", 8, "'1'", "the name of a property"),
    ("EXISTS(a", 9, "the end", "')'"),
    ("foo(a) = 1", 1, "'foo'", "newid()"),
    ("newid(1) = 1", 7, "'1'", "')'"),
    ("a = 99999999999999999999", 5, "'99999999999999999999'", "a number"),
    ("a = 9223372036854775808", 5, "'9223372036854775808'", "up to 9223372036854775807"),
    ("a = 1x", 5, "'1x'", "a number"),
    ("a = 1e", 5, "'1e'", "a number"),
    ("a = @", 5, "'@' alone", "parameter"),
    ("a = @missing", 5, "'@missing'", "a parameter that the rule gives a value"),
    ("a = 1; b = 2", 6, "';'", "AND, OR or the end"),
];

/// Conditions in the place of values, and values in the place of conditions.
const SHAPES: [(&str, usize, &str, &str); 13] = [
    ("5", 1, "'5'", "a condition"),
    ("'text'", 1, "'text'", "a condition"),
    ("a + 1", 1, "'a + 1'", "a condition"),
    ("newid()", 1, "newid()", "a condition"),
    ("a = 1 AND 5", 11, "'5'", "a condition"),
    ("5 OR a = 1", 1, "'5'", "a condition"),
    ("NOT 'x'", 5, "'x'", "a condition"),
    ("(a = 1) + 1 = 2", 2, "'a = 1'", "a value"),
    ("a = (b = 1)", 6, "'b = 1'", "a value"),
    ("(a = 1) = TRUE", 2, "'a = 1'", "a value"),
    ("-(a = 1) = 1", 3, "'a = 1'", "a value"),
    ("a IN ((b = 1))", 8, "'b = 1'", "a value"),
    ("(a OR b) IS NULL", 2, "'a OR b'", "a value"),
];

const ACTIONS: [(&str, usize, &str, &str); 15] = [
    ("", 1, "the end", "SET or REMOVE"),
    ("a = 1", 1, "'a'", "SET or REMOVE"),
    ("SET", 4, "the end", "the name of a property"),
    ("SET a", 6, "the end", "'='"),
    ("SET a 1", 7, "'1'", "'='"),
    ("SET a =", 8, "the end", "a property or a value"),
    ("SET a = 1 b", 11, "'b'", "';' or the end"),
    ("SET a = 1;; SET b = 1", 11, "';'", "SET or REMOVE"),
    ("SET a = (b = 1)", 10, "'b = 1'", "a value"),
    ("SET sys.SequenceNumber = 1", 5, "sys.SequenceNumber", "another property"),
    ("SET sys.Priority = 1", 5, "sys.Priority", "another property"),
    ("SET sys.Nothing = 1", 9, "'Nothing'", "MessageId"),
    ("SET set = 1", 5, "the keyword SET", "brackets"),
    ("REMOVE sys.Label", 8, "sys.Label", "a user property"),
    ("REMOVE 5", 8, "'5'", "the name of a property"),
];

fn check(rule: &Rule, text: &str, column: usize, found_part: &str, expected_part: &str) {
    let error = rule.check().expect_err(text);
    let RuleError::Syntax { column: at, found, expected, .. } = &error else { panic!("{text}: {error}") };
    assert_eq!(*at, column, "{text}: {error}");
    assert!(found.contains(found_part), "{text}: found {found}");
    assert!(expected.contains(expected_part), "{text}: expected {expected}");
    assert_eq!(error.column(), Some(column));
    assert!(error.to_string().contains(&format!("column {column}")), "{error}");
    assert_eq!(RuleSet::new().insert(0, rule), Err(error));
}

#[test]
fn an_invalid_filter_has_an_error_with_its_column() {
    for (text, column, found, expected) in FILTERS.into_iter().chain(SHAPES) {
        check(&rule("r", sql(text)), text, column, found, expected);
    }
}

#[test]
fn an_invalid_action_has_an_error_with_its_column() {
    for (text, column, found, expected) in ACTIONS {
        check(&rule_with_action("r", Filter::True, text), text, column, found, expected);
    }
}

#[test]
fn a_parse_error_reads_as_a_sentence() {
    let error = rule("r", sql("Priority = 'High' AND sys.Foo > 3")).check().unwrap_err().to_string();
    assert!(
        error.starts_with(
            "the SQL filter does not parse: at column 27 found 'Foo', expected one of the system properties"
        ),
        "{error}"
    );
}

#[test]
fn length_and_depth_are_limited() {
    let of_len = |count: usize| sql(&format!("a = '{}'", "ä".repeat(count - 6)));
    assert_eq!(rule("r", of_len(limits::EXPRESSION_CHARS_MAX)).check(), Ok(()));
    let error = rule("r", of_len(limits::EXPRESSION_CHARS_MAX + 1)).check().unwrap_err();
    assert!(matches!(error, RuleError::TooLong { count: 1025, .. }), "{error}");

    let nested = |depth: usize| sql(&format!("{}a{} = 1", "(".repeat(depth), ")".repeat(depth)));
    assert_eq!(rule("r", nested(limits::EXPRESSION_DEPTH_MAX)).check(), Ok(()));
    for deep in [nested(limits::EXPRESSION_DEPTH_MAX + 1), nested(500)] {
        let error = rule("r", deep).check().unwrap_err();
        assert!(matches!(error, RuleError::TooDeep { column: 66, .. }), "{error}");
    }
    for deep in ["NOT ", "- ", "+", "p(", "NOT ("] {
        let error = rule("r", sql(&deep.repeat(1000 / deep.len()))).check().unwrap_err();
        assert!(matches!(error, RuleError::TooDeep { .. }), "{error}");
    }
    // Chains may be as long as the text allows.
    assert_eq!(rule("r", sql(&format!("{}a", "a OR ".repeat(200)))).check(), Ok(()));
    assert_eq!(rule("r", sql(&format!("{}1 = a", "1+".repeat(500)))).check(), Ok(()));
    assert_eq!(rule("r", sql(&format!("a IN ({}1)", "1,".repeat(500)))).check(), Ok(()));
}

#[test]
fn the_numbers_of_statements_and_parameters_are_limited() {
    let statements = |count| rule_with_action("r", Filter::True, &"SET a = 1;".repeat(count));
    assert_eq!(statements(limits::STATEMENT_COUNT_MAX).check(), Ok(()));
    let error = statements(limits::STATEMENT_COUNT_MAX + 1).check().unwrap_err();
    assert!(matches!(error, RuleError::TooManyStatements { column: 321, .. }), "{error}");

    let named: Vec<(String, Value)> = (0..=64).map(|number| (format!("p{number}"), Value::Null)).collect();
    let named: Vec<(&str, Value)> =
        named.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    assert_eq!(rule("r", sql_with("a = 1", &named[..64])).check(), Ok(()));
    let error = rule("r", sql_with("a = 1", &named)).check().unwrap_err();
    assert!(matches!(error, RuleError::TooManyParameters { count: 65, .. }), "{error}");
    let error = rule("r", sql_with("a = 1", &[("@P", Value::Null), ("p", Value::Null)])).check().unwrap_err();
    assert!(matches!(error, RuleError::RepeatedParameter { .. }), "{error}");
    let long = Value::text("x".repeat(limits::RULE_VALUE_SIZE_BYTES_MAX + 1));
    let error = rule("r", sql_with("a = 1", &[("p", long)])).check().unwrap_err();
    assert!(matches!(error, RuleError::ValueTooLarge { .. }), "{error}");
    let error = rule("r", sql_with("a = 1", &[("", Value::Null)])).check().unwrap_err();
    assert!(matches!(error, RuleError::NameLength { count: 0 }), "{error}");
}

#[test]
fn an_invalid_correlation_filter_is_rejected() {
    let with = |properties: &[(&str, Value)]| {
        let properties =
            properties.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into())).collect();
        let filter = CorrelationFilter { properties, ..CorrelationFilter::default() };
        rule("r", Filter::Correlation(filter)).check()
    };
    assert_eq!(with(&[]), Err(RuleError::NoCondition));
    assert_eq!(with(&[("a", Value::Long(1))]), Ok(()));
    assert!(matches!(
        with(&[("a", Value::Long(1)), ("A", Value::Long(1))]),
        Err(RuleError::RepeatedProperty { .. })
    ));
    assert!(matches!(with(&[("a", Value::Null)]), Err(RuleError::NeverEqual { .. })));
    assert!(matches!(with(&[("a", Value::Double(f64::NAN))]), Err(RuleError::NeverEqual { .. })));
    assert!(matches!(with(&[("", Value::Long(1))]), Err(RuleError::NameLength { count: 0 })));
    let many: Vec<String> =
        (0..=limits::CORRELATION_PROPERTY_COUNT_MAX).map(|number| format!("p{number}")).collect();
    let many: Vec<(&str, Value)> = many.iter().map(|name| (name.as_str(), Value::Long(1))).collect();
    assert!(matches!(with(&many), Err(RuleError::TooManyProperties { count: 65 })));
    let long = CorrelationFilter { label: Some("x".repeat(5000)), ..CorrelationFilter::default() };
    assert!(matches!(rule("r", Filter::Correlation(long)).check(), Err(RuleError::ValueTooLarge { .. })));
}

#[test]
fn a_rejected_rule_keeps_the_existing_one() {
    let mut rules = RuleSet::new();
    rules.insert(1, &rule("r", Filter::True)).unwrap();
    rules.insert(1, &rule("R", sql("a ="))).unwrap_err();
    assert_eq!(common::evaluate(&rules, &[]).len(), 1);
}

#[test]
fn rule_names_ignore_case_and_invalid_ones_are_rejected() {
    assert_eq!(name("$Default"), RuleName::default_rule());
    assert_eq!(name("High"), name("HIGH"));
    assert_eq!(name("High").to_string(), "High");
    assert!(name("a") < name("B"));
    assert_eq!(RuleName::parse(""), Err(RuleNameError::Empty));
    assert_eq!(RuleName::parse(&"ä".repeat(51)), Err(RuleNameError::TooLong { count: 51 }));
    assert!(RuleName::parse(&"ä".repeat(50)).is_ok());
    for bad in ["a/b", "a\\b", "a?b", "a#b", "a b", "a\0", "a%b", "<a>"] {
        assert!(matches!(RuleName::parse(bad), Err(RuleNameError::Character { .. })), "{bad}");
    }
    for bad in [".", "..", "-", "$"] {
        assert!(matches!(RuleName::parse(bad), Err(RuleNameError::NoLetter { .. })), "{bad}");
    }
}
