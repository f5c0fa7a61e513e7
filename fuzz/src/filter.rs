//! Evaluates arbitrary rules on arbitrary views. A rule set must be able to explain each of its decisions.

use peeklock_filter::{
    Action, Changes, CorrelationFilter, Decision, Entries, Expression, Filter, Outcome, Rule, RuleName,
    RuleSet, SqlFilter, Value, Verdict, ViewProperty,
};

/// Evaluates one input: the text of a filter, a zero byte, the text of an action, a zero byte, and a view.
pub fn fuzz_filter(input: &[u8]) {
    fuzz_decoders(input);
    let mut parts = input.splitn(3, |byte| *byte == 0);
    let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (filter, action) = (text(), text());
    let view = parts.next().unwrap_or_default();
    fuzz_expression(&filter, view);
    let parameters =
        vec![("p".to_owned(), Value::Long(5).into()), ("@q".to_owned(), Value::text("text").into())];
    let filter = Filter::Sql(SqlFilter { expression: filter, parameters: parameters.clone() });
    let action = Some(Action { expression: action, parameters });
    for rule in [
        Rule { name: RuleName::default_rule(), filter: filter.clone(), action: None },
        Rule { name: RuleName::default_rule(), filter: Filter::True, action: action.clone() },
        Rule { name: RuleName::default_rule(), filter, action },
    ] {
        fuzz_rule(&rule, view);
    }
    fuzz_correlation(view);
}

fn fuzz_decoders(input: &[u8]) {
    if let Ok(changes) = Changes::decode(input) {
        assert_eq!(
            Changes::decode(&Changes::encode(&changes)),
            Ok(changes),
            "encoding and decoding changed the changes"
        );
    }
    if let Ok(rule) = Rule::decode(&mut &*input) {
        survives_storage(&rule);
        fuzz_rule(&rule, input);
    }
}

fn survives_storage(rule: &Rule) {
    let mut stored = Vec::new();
    rule.encode(&mut stored);
    assert_eq!(Rule::decode(&mut &*stored).as_ref(), Ok(rule), "storing changed a rule");
}

fn fuzz_rule(rule: &Rule, view: &[u8]) {
    let mut rules = RuleSet::new();
    let inserted = rules.insert(1, rule);
    assert_eq!(inserted, rule.check(), "the check and the insertion of a rule differ");
    if let Err(error) = inserted {
        check_column(rule, error.column());
        assert!(rules.is_empty(), "a rejected rule left a trace");
        return;
    }
    survives_storage(rule);
    let mut verdicts = Vec::new();
    rules.evaluate(view, 0, &mut verdicts);
    rules.explain(view).iter().for_each(|explained| {
        let decision = match verdicts.as_slice() {
            [] => Decision::NotMatched,
            [Verdict { outcome: Outcome::Copies { .. }, .. }] => Decision::Matched,
            _ => Decision::Error,
        };
        // An action that creates ids creates other ones the next time.
        assert!(
            explained.decision == decision || has_new_ids(rule),
            "{rule:?}: {decision:?}, but {explained:?}"
        );
    });
    for verdict in &verdicts {
        if let Outcome::Copies { changed, .. } = &verdict.outcome {
            changed.iter().for_each(|copy| {
                drop(Changes::decode(&copy.changes).expect("the encoder writes legal bytes"))
            });
        }
    }
    rules.remove_all(1);
    assert!(rules.is_empty() && !rules.needs_view(), "a removed rule left a trace");
}

/// Parses the text of a filter as a value.
fn fuzz_expression(text: &str, view: &[u8]) {
    match Expression::parse(text) {
        Ok(expression) => {
            assert_eq!(
                expression.evaluate(view, 1),
                expression.evaluate(view, 1),
                "the same message has another value"
            );
        }
        Err(error) => {
            let columns = 1..=text.chars().count() + 1;
            assert!(
                error.column().is_none_or(|column| columns.contains(&column)),
                "a column outside of the text"
            );
        }
    }
}

fn has_new_ids(rule: &Rule) -> bool {
    format!("{rule:?}").to_lowercase().contains("newid")
}

fn check_column(rule: &Rule, column: Option<usize>) {
    let filter = match &rule.filter {
        Filter::Sql(filter) => filter.expression.chars().count(),
        _ => 0,
    };
    let action = rule.action.as_ref().map_or(0, |action| action.expression.chars().count());
    assert!(
        column.is_none_or(|column| (1..=filter.max(action) + 1).contains(&column)),
        "a column outside of the text"
    );
}

/// Checks that a filter made from the first property of a message matches the message.
fn fuzz_correlation(view: &[u8]) {
    let mut entries = Entries::of(view);
    let first = entries.find_map(|entry| match entry {
        Ok(ViewProperty::User(name, value)) => Some((name.to_owned(), value.to_value().into())),
        _ => None,
    });
    let (Some(property), true) = (first, entries.all(|entry| entry.is_ok())) else { return };
    let filter = CorrelationFilter { properties: vec![property], ..CorrelationFilter::default() };
    let rule = Rule { name: RuleName::default_rule(), filter: Filter::Correlation(filter), action: None };
    let mut rules = RuleSet::new();
    if rules.insert(1, &rule).is_ok() {
        let mut verdicts = Vec::new();
        rules.evaluate(view, 0, &mut verdicts);
        assert_eq!(verdicts.len(), 1, "{rule:?} does not match its message");
    }
}
