//! Shared helpers for the tests of rules.
#![allow(dead_code, reason = "each test file uses a part")]

use bytes::Bytes;
use peeklock_filter::{
    Action, Filter, Outcome, Rule, RuleName, RuleSet, SqlFilter, Value, Verdict, ViewBuilder,
};

/// The result of an expression for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    True,
    False,
    Unknown,
    Error,
}

pub(crate) fn name(text: &str) -> RuleName {
    RuleName::parse(text).unwrap()
}

pub(crate) fn sql(expression: &str) -> Filter {
    Filter::Sql(SqlFilter { expression: expression.to_owned(), parameters: Vec::new() })
}

pub(crate) fn sql_with(expression: &str, parameters: &[(&str, Value)]) -> Filter {
    let parameters =
        parameters.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into())).collect();
    Filter::Sql(SqlFilter { expression: expression.to_owned(), parameters })
}

pub(crate) fn rule(text: &str, filter: Filter) -> Rule {
    Rule { name: name(text), filter, action: None }
}

pub(crate) fn rule_with_action(text: &str, filter: Filter, action: &str) -> Rule {
    let action = Some(Action { expression: action.to_owned(), parameters: Vec::new() });
    Rule { name: name(text), filter, action }
}

pub(crate) fn user_view(properties: &[(&str, Value)]) -> Bytes {
    let mut view = ViewBuilder::new();
    properties.iter().for_each(|(name, value)| view.user(name, value));
    view.finish()
}

pub(crate) fn evaluate<K: Copy + Ord + std::hash::Hash>(rules: &RuleSet<K>, view: &[u8]) -> Vec<Verdict<K>> {
    let mut verdicts = Vec::new();
    rules.evaluate(view, 1, &mut verdicts);
    verdicts
}

/// Returns the result of an expression. It evaluates the negation as well, because a filter alone does not distinguish false from unknown.
pub(crate) fn says(expression: &str, parameters: &[(&str, Value)], view: &[u8]) -> Says {
    let mut rules = RuleSet::new();
    rules
        .insert(0, &rule("it", sql_with(expression, parameters)))
        .unwrap_or_else(|error| panic!("{expression}: {error}"));
    rules.insert(1, &rule("not", sql_with(&format!("NOT ({expression})"), parameters))).unwrap();
    match evaluate(&rules, view).as_slice() {
        [] => Says::Unknown,
        [Verdict { outcome: Outcome::Error { .. }, .. }, Verdict { outcome: Outcome::Error { .. }, .. }] => {
            Says::Error
        }
        [Verdict { key: 0, outcome: Outcome::Copies { plain: true, .. } }] => Says::True,
        [Verdict { key: 1, outcome: Outcome::Copies { plain: true, .. } }] => Says::False,
        other => panic!("{expression}: {other:?}"),
    }
}
