//! Compares random filters and messages with a naive evaluator, which walks an owned tree and matches patterns by trying everything.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test may fail, and numbers are small"
)]

mod common;

use std::collections::HashMap;
use std::fmt::Write;

use common::{Says, says, user_view};
use peeklock_filter::Value;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

#[derive(Clone, Debug)]
enum Term {
    Constant(Value),
    Property(&'static str),
    ByName(Box<Term>),
    Minus(Box<Term>),
    Calculated(Box<Term>, char, Box<Term>),
}

#[derive(Clone, Debug)]
enum Test {
    Compared(Term, &'static str, Term),
    Like(bool, Term, Term, Option<Term>),
    In(bool, Term, Vec<Term>),
    IsNull(bool, Term),
    Exists(&'static str),
    Plain(&'static str),
    Not(Box<Test>),
    And(Box<Test>, Box<Test>),
    Or(Box<Test>, Box<Test>),
}

struct Failed;

type Message = HashMap<String, Value>;

fn naive_term(term: &Term, message: &Message) -> Result<Value, Failed> {
    match term {
        Term::Constant(value) => Ok(value.clone()),
        Term::Property(name) => Ok(message.get(&name.to_lowercase()).cloned().unwrap_or(Value::Null)),
        Term::ByName(name) => match naive_term(name, message)? {
            Value::Null => Ok(Value::Null),
            Value::Text(name) => Ok(message.get(&name.to_lowercase()).cloned().unwrap_or(Value::Null)),
            _ => Err(Failed),
        },
        Term::Minus(term) => match naive_term(term, message)? {
            Value::Null => Ok(Value::Null),
            Value::Long(number) => long(-i128::from(number)),
            Value::Double(number) => Ok(Value::Double(-number)),
            _ => Err(Failed),
        },
        Term::Calculated(left, operator, right) => {
            let (left, right) = (naive_term(left, message)?, naive_term(right, message)?);
            match (left, right) {
                (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
                (Value::Text(left), Value::Text(right)) if *operator == '+' => {
                    Ok(Value::text(format!("{left}{right}")))
                }
                (Value::Long(left), Value::Long(right)) => naive_long(left.into(), *operator, right.into()),
                (left, right) => naive_double(number(&left)?, *operator, number(&right)?),
            }
        }
    }
}

fn long(number: i128) -> Result<Value, Failed> {
    i64::try_from(number).map(Value::Long).map_err(|_| Failed)
}

fn number(value: &Value) -> Result<f64, Failed> {
    match value {
        Value::Long(number) => Ok(*number as f64),
        Value::Double(number) => Ok(*number),
        _ => Err(Failed),
    }
}

fn naive_long(left: i128, operator: char, right: i128) -> Result<Value, Failed> {
    match operator {
        '+' => long(left + right),
        '-' => long(left - right),
        '*' => long(left * right),
        _ if right == 0 => Err(Failed),
        '/' => long(left / right),
        // The service cannot divide the smallest number by -1, not even for the remainder.
        _ if left == i128::from(i64::MIN) && right == -1 => Err(Failed),
        _ => long(left % right),
    }
}

fn naive_double(left: f64, operator: char, right: f64) -> Result<Value, Failed> {
    match operator {
        '+' => Ok(Value::Double(left + right)),
        '-' => Ok(Value::Double(left - right)),
        '*' => Ok(Value::Double(left * right)),
        _ if right == 0.0 => Err(Failed),
        '/' => Ok(Value::Double(left / right)),
        _ => Ok(Value::Double(left % right)),
    }
}

/// Returns less, equal and greater separately, because NaN is none of them.
fn naive_relation(left: &Value, right: &Value) -> Result<(Option<bool>, bool, Option<bool>), Failed> {
    Ok(match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => (None, left == right, None),
        (Value::Text(left), Value::Text(right)) => (Some(left < right), left == right, Some(left > right)),
        (Value::Long(left), Value::Long(right)) => (Some(left < right), left == right, Some(left > right)),
        (Value::Double(left), Value::Double(right)) => {
            (Some(left < right), left == right, Some(left > right))
        }
        (Value::Long(left), Value::Double(right)) => mixed((*left).into(), *right),
        (Value::Double(left), Value::Long(right)) => {
            let (less, equal, greater) = mixed((*right).into(), *left);
            (greater, equal, less)
        }
        _ => return Err(Failed),
    })
}

fn mixed(whole: i128, number: f64) -> (Option<bool>, bool, Option<bool>) {
    if number.is_nan() {
        return (Some(false), false, Some(false));
    }
    // Infinity becomes the largest i128, which no i64 reaches.
    let (less, greater) = (whole < number.ceil() as i128, whole > number.floor() as i128);
    (Some(less), !less && !greater, Some(greater))
}

fn naive_like(text: &[char], pattern: &[Option<char>], any: &[bool]) -> bool {
    match (pattern.first(), any.first()) {
        (None, _) => text.is_empty(),
        (_, Some(true)) => (0..=text.len()).any(|skip| naive_like(&text[skip..], &pattern[1..], &any[1..])),
        (Some(expected), _) => {
            !text.is_empty()
                && expected.is_none_or(|expected| expected == text[0])
                && naive_like(&text[1..], &pattern[1..], &any[1..])
        }
    }
}

fn naive_pattern(text: &str, pattern: &str, escape: Option<char>) -> Result<bool, Failed> {
    let (mut chars, mut any) = (Vec::new(), Vec::new());
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        let is_escaped = Some(c) == escape;
        let c = if is_escaped { rest.next().ok_or(Failed)? } else { c };
        any.push(!is_escaped && c == '%');
        chars.push(if !is_escaped && c == '_' { None } else { Some(c) });
    }
    Ok(naive_like(&text.chars().collect::<Vec<_>>(), &chars, &any))
}

fn naive_test(test: &Test, message: &Message) -> Result<Option<bool>, Failed> {
    match test {
        Test::Not(test) => Ok(naive_test(test, message)?.map(|is_true| !is_true)),
        Test::And(left, right) => match naive_test(left, message)? {
            Some(false) => Ok(Some(false)),
            left => match (left, naive_test(right, message)?) {
                (_, Some(false)) => Ok(Some(false)),
                (Some(true), Some(true)) => Ok(Some(true)),
                _ => Ok(None),
            },
        },
        Test::Or(left, right) => match naive_test(left, message)? {
            Some(true) => Ok(Some(true)),
            left => match (left, naive_test(right, message)?) {
                (_, Some(true)) => Ok(Some(true)),
                (Some(false), Some(false)) => Ok(Some(false)),
                _ => Ok(None),
            },
        },
        Test::Plain(name) => match message.get(&name.to_lowercase()) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(is_true)) => Ok(Some(*is_true)),
            Some(_) => Err(Failed),
        },
        Test::Exists(name) => Ok(Some(message.contains_key(&name.to_lowercase()))),
        Test::IsNull(is_negated, term) => {
            Ok(Some((naive_term(term, message)? == Value::Null) != *is_negated))
        }
        Test::Compared(left, operator, right) => {
            let (left, right) = (naive_term(left, message)?, naive_term(right, message)?);
            if left == Value::Null || right == Value::Null {
                return Ok(None);
            }
            let (less, equal, greater) = naive_relation(&left, &right)?;
            Ok(Some(match *operator {
                "=" => equal,
                "<" => less.ok_or(Failed)?,
                ">" => greater.ok_or(Failed)?,
                "<=" => less.ok_or(Failed)? || equal,
                ">=" => greater.ok_or(Failed)? || equal,
                _ => !equal,
            }))
        }
        Test::In(is_negated, term, list) => {
            let value = naive_term(term, message)?;
            if value == Value::Null {
                return Ok(None);
            }
            let mut found = Some(false);
            for term in list {
                match naive_term(term, message)? {
                    Value::Null => found = None,
                    element if naive_relation(&value, &element)?.1 => return Ok(Some(!is_negated)),
                    _ => (),
                }
            }
            Ok(found.map(|found| found != *is_negated))
        }
        Test::Like(is_negated, text, pattern, escape) => {
            naive_like_test(message, *is_negated, text, pattern, escape)
        }
    }
}

fn naive_like_test(
    message: &Message,
    is_negated: bool,
    text: &Term,
    pattern: &Term,
    escape: &Option<Term>,
) -> Result<Option<bool>, Failed> {
    let text = naive_term(text, message)?;
    let pattern = naive_term(pattern, message)?;
    let escape = escape.as_ref().map(|escape| naive_term(escape, message)).transpose()?;
    let as_text = |value: &Value| match value {
        Value::Null => Ok(None),
        Value::Text(text) => Ok(Some(text.to_string())),
        _ => Err(Failed),
    };
    let (text, pattern) = (as_text(&text)?, as_text(&pattern)?);
    let escape = match escape {
        Some(escape) => match as_text(&escape)? {
            Some(escape) if escape.chars().count() == 1 => escape.chars().next(),
            Some(_) => return Err(Failed),
            None => return Ok(None),
        },
        None => None,
    };
    let (Some(text), Some(pattern)) = (text, pattern) else { return Ok(None) };
    Ok(Some(naive_pattern(&text, &pattern, escape)? != is_negated))
}

/// Writes the expression with as few parentheses as the precedence allows.
fn write_term(term: &Term, level: u8, out: &mut String) {
    let own = match term {
        Term::Calculated(_, '+' | '-', _) => 0,
        Term::Calculated(..) => 1,
        Term::Minus(_) => 2,
        _ => 3,
    };
    if own < level {
        out.push('(');
    }
    match term {
        Term::Constant(Value::Text(text)) => write!(out, "'{}'", text.replace('\'', "''")).unwrap(),
        Term::Constant(value) => write!(out, "{value}").unwrap(),
        Term::Property(name) => out.push_str(name),
        Term::ByName(name) => {
            out.push_str("p(");
            write_term(name, 0, out);
            out.push(')');
        }
        Term::Minus(term) => {
            out.push_str("- ");
            write_term(term, 2, out);
        }
        Term::Calculated(left, operator, right) => {
            write_term(left, own, out);
            write!(out, " {operator} ").unwrap();
            write_term(right, own + 1, out);
        }
    }
    if own < level {
        out.push(')');
    }
}

fn write_test(test: &Test, level: u8, out: &mut String) {
    let own = match test {
        Test::Or(..) => 0,
        Test::And(..) => 1,
        Test::Not(_) => 2,
        _ => 3,
    };
    if own < level {
        out.push('(');
    }
    let not = |is_negated: &bool| if *is_negated { " NOT" } else { "" };
    match test {
        Test::Or(left, right) | Test::And(left, right) => {
            write_test(left, own, out);
            out.push_str(if own == 0 { " OR " } else { " AND " });
            write_test(right, own + 1, out);
        }
        Test::Not(test) => {
            out.push_str("NOT ");
            write_test(test, 2, out);
        }
        Test::Plain(name) => out.push_str(name),
        Test::Exists(name) => write!(out, "EXISTS({name})").unwrap(),
        Test::IsNull(is_negated, term) => {
            write_term(term, 0, out);
            write!(out, " IS{} NULL", not(is_negated)).unwrap();
        }
        Test::Compared(left, operator, right) => {
            write_term(left, 0, out);
            write!(out, " {operator} ").unwrap();
            write_term(right, 0, out);
        }
        Test::In(is_negated, term, list) => {
            write_term(term, 0, out);
            write!(out, "{} IN (", not(is_negated)).unwrap();
            for (at, term) in list.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { ", " });
                write_term(term, 0, out);
            }
            out.push(')');
        }
        Test::Like(is_negated, text, pattern, escape) => {
            write_term(text, 0, out);
            write!(out, "{} LIKE ", not(is_negated)).unwrap();
            write_term(pattern, 0, out);
            if let Some(escape) = escape {
                out.push_str(" ESCAPE ");
                write_term(escape, 0, out);
            }
        }
    }
    if own < level {
        out.push(')');
    }
}

fn number_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => (0_i64..4).prop_map(Value::Long),
        1 => Just(Value::Long(i64::MAX)),
        4 => prop::sample::select(vec![0.0, 0.5, 1.0, 2.0, 2.5, 9.223_372_036_854_776e18]).prop_map(Value::Double),
    ]
}

fn text_value() -> impl Strategy<Value = Value> {
    "[ab%_!n']{0,5}".prop_map(Value::text)
}

/// Includes values that cannot be written in a filter.
fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => number_value(),
        4 => text_value(),
        2 => any::<bool>().prop_map(Value::Bool),
        1 => Just(Value::Null),
        1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0]).prop_map(Value::Double),
        1 => prop::sample::select(vec![i64::MIN, -1]).prop_map(Value::Long),
    ]
}

fn message() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let of = |name: &'static str, value: BoxedStrategy<Value>| {
        prop::option::weighted(0.8, value).prop_map(move |value| value.map(|value| (name, value)))
    };
    let properties = vec![
        of("N1", number_value().boxed()),
        of("n2", number_value().boxed()),
        of("T1", text_value().boxed()),
        of("t2", text_value().boxed()),
        of("b", any::<bool>().prop_map(Value::Bool).boxed()),
        of("x", any_value().boxed()),
    ];
    properties.prop_map(|properties| properties.into_iter().flatten().collect())
}

fn number_term() -> BoxedStrategy<Term> {
    let leaf = prop_oneof![
        number_value().prop_map(Term::Constant),
        prop::sample::select(vec!["n1", "N2", "n1", "n2", "x"]).prop_map(Term::Property),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        let operator = prop::sample::select(vec!['+', '-', '*', '/', '%']);
        prop_oneof![
            3 => (inner.clone(), operator, inner.clone())
                .prop_map(|(left, operator, right)| Term::Calculated(left.into(), operator, right.into())),
            1 => inner.prop_map(|term| Term::Minus(term.into())),
        ]
    })
    .boxed()
}

fn text_term() -> BoxedStrategy<Term> {
    let leaf = prop_oneof![
        3 => text_value().prop_map(Term::Constant),
        3 => prop::sample::select(vec!["t1", "T2", "t1", "x"]).prop_map(Term::Property),
        1 => prop::sample::select(vec!["t1", "n1", "zz"]).prop_map(|name| Term::ByName(Term::Constant(Value::text(name)).into())),
    ];
    leaf.prop_recursive(2, 4, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(left, right)| Term::Calculated(
                left.into(),
                '+',
                right.into()
            )),
            inner.prop_map(|name| Term::ByName(name.into())),
        ]
    })
    .boxed()
}

fn any_term() -> BoxedStrategy<Term> {
    prop_oneof![
        4 => number_term(),
        4 => text_term(),
        1 => any::<bool>().prop_map(|value| Term::Constant(Value::Bool(value))),
        1 => Just(Term::Constant(Value::Null)),
    ]
    .boxed()
}

fn leaf_test() -> BoxedStrategy<Test> {
    let operator = || prop::sample::select(vec!["=", "<>", "!=", "<", "<=", ">", ">="]);
    let compared = |term: fn() -> BoxedStrategy<Term>| {
        (term(), operator(), term()).prop_map(|(left, operator, right)| Test::Compared(left, operator, right))
    };
    let listed = |term: fn() -> BoxedStrategy<Term>| {
        (any::<bool>(), term(), prop::collection::vec(term(), 1..4))
            .prop_map(|(is_negated, term, list)| Test::In(is_negated, term, list))
    };
    let escape = prop_oneof![
        prop::sample::select(vec!["!", "%", "a"]).prop_map(|text| Term::Constant(Value::text(text))),
        Just(Term::Property("t2")),
    ];
    prop_oneof![
        6 => compared(number_term),
        6 => compared(text_term),
        1 => compared(any_term),
        2 => listed(number_term),
        2 => listed(text_term),
        4 => (any::<bool>(), text_term(), text_term(), prop::option::of(escape))
            .prop_map(|(is_negated, text, pattern, escape)| Test::Like(is_negated, text, pattern, escape)),
        2 => (any::<bool>(), any_term()).prop_map(|(is_negated, term)| Test::IsNull(is_negated, term)),
        1 => prop::sample::select(vec!["n1", "T1", "zz", "X"]).prop_map(Test::Exists),
        2 => prop::sample::select(vec!["b", "B", "x"]).prop_map(Test::Plain),
    ]
    .boxed()
}

fn test() -> impl Strategy<Value = Test> {
    leaf_test().prop_recursive(4, 12, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|test| Test::Not(test.into())),
            (inner.clone(), inner.clone()).prop_map(|(left, right)| Test::And(left.into(), right.into())),
            (inner.clone(), inner).prop_map(|(left, right)| Test::Or(left.into(), right.into())),
        ]
    })
}

/// Returns whether the rule is rejected at creation, because its text pattern is invalid.
fn is_refused_at_once(test: &Test) -> bool {
    match test {
        Test::Not(test) => is_refused_at_once(test),
        Test::And(left, right) | Test::Or(left, right) => {
            is_refused_at_once(left) || is_refused_at_once(right)
        }
        Test::Like(_, _, Term::Constant(Value::Text(pattern)), Some(Term::Constant(Value::Text(escape)))) => {
            naive_pattern("", pattern, escape.chars().next()).is_err()
        }
        _ => false,
    }
}

fn expected(test: &Test, properties: &[(&str, Value)]) -> Says {
    let owned = properties.iter().map(|(name, value)| (name.to_lowercase(), value.clone())).collect();
    match naive_test(test, &owned) {
        Ok(Some(true)) => Says::True,
        Ok(Some(false)) => Says::False,
        Ok(None) => Says::Unknown,
        Err(Failed) => Says::Error,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn filters_give_the_same_results_as_the_naive_evaluator(test in test(), properties in message()) {
        let mut text = String::new();
        write_test(&test, 0, &mut text);
        prop_assume!(text.chars().count() <= 1000 && !is_refused_at_once(&test));
        let expected = expected(&test, &properties);
        prop_assert_eq!(says(&text, &[], &user_view(&properties)), expected, "{}", text);
    }
}

/// If nearly all filters failed, the comparison above would prove little.
#[test]
fn every_result_occurs_often() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut counts = [0; 4];
    for _ in 0..1000 {
        let (test, properties) = (test(), message()).new_tree(&mut runner).unwrap().current();
        counts[expected(&test, &properties) as usize] += 1;
    }
    assert!(counts.iter().all(|count| *count > 80), "{counts:?}");
}
