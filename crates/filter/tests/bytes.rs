//! Rules, views and changes survive encoding and decoding, and arbitrary bytes are rejected without harm.
#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

mod common;

use bytes::Bytes;
use common::{evaluate, rule, rule_with_action, sql};
use peeklock_filter::{
    Action, Change, Changes, CorrelationFilter, DecodeError, Entries, Filter, Given, Kind, Rule, RuleName,
    RuleSet, SqlFilter, SystemProperty, Value, ViewBuilder, ViewProperty,
};
use proptest::prelude::*;

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Long),
        any::<u64>().prop_map(|bits| Value::Double(f64::from_bits(bits))),
        ".{0,200}".prop_map(Value::text),
        prop::collection::vec(any::<u8>(), 0..200).prop_map(|bytes| Value::Binary(Bytes::from(bytes))),
        any::<[u8; 16]>().prop_map(Value::Uuid),
        any::<i64>().prop_map(Value::Time),
        any::<i64>().prop_map(Value::Span),
    ]
}

fn any_given() -> impl Strategy<Value = Given> {
    let typed = |kind: Kind, text: String| Given::parse(kind, &text).unwrap();
    prop_oneof![
        any_value().prop_map(Given::from),
        any::<i32>().prop_map(move |number| typed(Kind::Int, number.to_string())),
        any::<u64>().prop_map(move |number| typed(Kind::Ulong, number.to_string())),
        any::<f32>().prop_map(move |number| typed(Kind::Float, number.to_string())),
        any::<char>().prop_map(move |letter| typed(Kind::Char, letter.to_string())),
        "[0-9]{1,20}\\.[0-9]{1,8}".prop_map(move |text| typed(Kind::Decimal, text)),
        "2026-01-02T03:04:05\\.[0-9]{1,7}(Z|\\+02:00)?".prop_map(move |text| typed(Kind::Time, text)),
    ]
}

fn pairs() -> impl Strategy<Value = Vec<(String, Given)>> {
    prop::collection::vec((".{0,20}", any_given()), 0..5)
}

fn correlation() -> impl Strategy<Value = CorrelationFilter> {
    (prop::collection::vec(prop::option::of(".{0,20}"), 8), pairs()).prop_map(|(mut texts, properties)| {
        CorrelationFilter {
            correlation_id: texts.remove(0),
            message_id: texts.remove(0),
            to: texts.remove(0),
            reply_to: texts.remove(0),
            label: texts.remove(0),
            session_id: texts.remove(0),
            reply_to_session_id: texts.remove(0),
            content_type: texts.remove(0),
            properties,
        }
    })
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let filter = prop_oneof![
        Just(Filter::True),
        Just(Filter::False),
        (".{0,200}", pairs())
            .prop_map(|(expression, parameters)| Filter::Sql(SqlFilter { expression, parameters })),
        correlation().prop_map(Filter::Correlation),
    ];
    let action = (".{0,200}", pairs()).prop_map(|(expression, parameters)| Action { expression, parameters });
    ("[$a-zA-Z_][a-z0-9_.~-]{1,40}z", filter, prop::option::of(action))
        .prop_map(|(name, filter, action)| Rule { name: RuleName::parse(&name).unwrap(), filter, action })
}

fn system_property() -> impl Strategy<Value = SystemProperty> {
    prop::sample::select(SystemProperty::ALL.to_vec())
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (".{0,20}", any_value()).prop_map(|(name, value)| Change::SetUser { name, value }),
        ".{0,20}".prop_map(|name| Change::RemoveUser { name }),
        (system_property(), any_value()).prop_map(|(property, value)| Change::SetSystem { property, value }),
    ]
}

proptest! {
    #[test]
    fn rules_survive_encoding_and_decoding(rules in prop::collection::vec(any_rule(), 0..4), tail in any::<[u8; 3]>()) {
        let mut bytes = Vec::new();
        rules.iter().for_each(|rule| rule.encode(&mut bytes));
        bytes.extend_from_slice(&tail);
        let mut rest = &bytes[..];
        for rule in &rules {
            let decoded = Rule::decode(&mut rest).unwrap();
            prop_assert_eq!(&decoded, rule);
            prop_assert_eq!(decoded.name.as_str(), rule.name.as_str());
        }
        prop_assert_eq!(rest, &tail[..]);
    }

    #[test]
    fn a_truncated_rule_is_rejected(rule in any_rule(), cut in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        rule.encode(&mut bytes);
        let mut rest = &bytes[..cut.index(bytes.len())];
        let before = rest;
        prop_assert!(Rule::decode(&mut rest).is_err());
        prop_assert_eq!(rest, before);
    }

    #[test]
    fn changes_survive_encoding_and_decoding(changes in prop::collection::vec(any_change(), 0..6)) {
        prop_assert_eq!(Changes::decode(&Changes::encode(&changes)), Ok(changes));
    }

    #[test]
    fn views_survive_encoding_and_decoding(
        system in prop::collection::vec((system_property(), any_value()), 0..5),
        user in prop::collection::vec((".{0,20}", any_value()), 0..5),
    ) {
        let mut view = ViewBuilder::new();
        system.iter().for_each(|(property, value)| view.system(*property, value));
        user.iter().for_each(|(name, value)| view.user(name, value));
        let view = view.finish();
        let (mut system_found, mut user_found) = (Vec::new(), Vec::new());
        for entry in Entries::of(&view) {
            match entry.unwrap() {
                ViewProperty::System(property, value) => system_found.push((property, value.to_value())),
                ViewProperty::User(name, value) => user_found.push((name.to_owned(), value.to_value())),
            }
        }
        prop_assert_eq!(system_found, system);
        prop_assert_eq!(user_found, user);
    }

    #[test]
    fn arbitrary_bytes_are_decoded_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Changes::decode(&bytes);
        let _ = Rule::decode(&mut &bytes[..]);
        prop_assert!(Entries::of(&bytes).count() <= bytes.len());
        let mut rules = RuleSet::new();
        rules.insert(0, &rule("a", sql("a LIKE '%x_' OR p(b) = c"))).unwrap();
        rules.insert(0, &rule_with_action("b", Filter::True, "SET a = p(b + sys.Label)")).unwrap();
        evaluate(&rules, &bytes);
        rules.explain(&bytes);
    }

    #[test]
    fn arbitrary_text_parses_or_the_error_has_a_column_inside_it(text in "[a-c0-9'()%_.@\\[\\]\" =<>!+*/,;ANDORTISULKE-]{0,60}") {
        for (rule, max) in [
            (rule("r", sql(&text)), text.chars().count() + 1),
            (rule_with_action("r", Filter::True, &text), text.chars().count() + 1),
        ] {
            if let Err(error) = rule.check() {
                let column = error.column().unwrap();
                prop_assert!((1..=max).contains(&column), "{}: {}", text, error);
            }
        }
    }
}

#[test]
fn invalid_bytes_are_reported_by_name() {
    assert_eq!(Changes::decode(&[9]), Err(DecodeError::Unknown { of: "kind of a change", tag: 9 }));
    assert_eq!(Changes::decode(&[1, 200]), Err(DecodeError::Short("a change of a property")));
    assert_eq!(Changes::decode(&[1, 2, 0xff, 0xff]), Err(DecodeError::Value("a change of a property")));
    assert_eq!(Rule::decode(&mut &[0][..]), Err(DecodeError::Missing("name")));
    assert!(matches!(Entries::of(&[77, 0]).next(), Some(Err(DecodeError::Value("a system property")))));
    // A length beyond the input reserves no memory.
    assert!(matches!(
        Entries::of(&[0, 5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]).next(),
        Some(Err(DecodeError::Short(_)))
    ));
}

/// Stored rules must stay readable. The first version of data format 3 wrote these bytes.
#[test]
fn the_stored_form_of_a_rule_does_not_change() {
    let rule = Rule {
        name: RuleName::parse("high").unwrap(),
        filter: Filter::Sql(SqlFilter {
            expression: "a = @b".to_owned(),
            parameters: vec![("b".to_owned(), Value::Long(1).into())],
        }),
        action: Some(Action { expression: "REMOVE a".to_owned(), parameters: Vec::new() }),
    };
    let mut bytes = Vec::new();
    rule.encode(&mut bytes);
    let expected = b"\x2b\x01\x04high\x02\x17\x02\x01\x06a = @b\x02\x0c\x01b\0\x03\x01\0\0\0\0\0\0\0\x03\x0a\x01\x08REMOVE a";
    assert_eq!(bytes, expected);
    let changes = [
        Change::SetSystem { property: SystemProperty::State, value: Value::Bool(true) },
        Change::SetUser { name: "a".to_owned(), value: Value::text("x") },
        Change::RemoveUser { name: "b".to_owned() },
    ];
    assert_eq!(&Changes::encode(&changes)[..], b"\x02\x13\x02\x00\x01a\x05\x01x\x01\x01b");
}
