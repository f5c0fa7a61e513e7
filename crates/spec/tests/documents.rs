//! Arbitrary documents: no text causes a panic, and JSON has its standard meaning.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use peeklock_spec::{Document, NamespaceSpec, QueueSpec, emulator, from_json, from_json_bytes, from_toml};
use proptest::prelude::*;
use serde_json::Value;

const TOML: &str = "hosts = ['a']\n[keys.app]\nrights = ['Send']\nprimary-key = 'x'\n[queues.orders]\nlock-duration = '30s'\n\
                    max-size = 10\n[topics.news.subscriptions.a.rules.r]\nsql = 'a > 1'\nparameters = { b = 1.5 }\n";
const EMULATOR: &str = r#"{ "UserConfig": { "Namespaces": [ { "Name": "n", "Queues": [ { "Name": "q", "Properties": {
    "LockDuration": "PT1M", "MaxDeliveryCount": 3 } } ], "Topics": [ { "Name": "t", "Subscriptions": [ { "Name": "s",
    "Rules": [ { "Name": "r", "Properties": { "FilterType": "Sql", "SqlFilter": { "SqlExpression": "a = 1" } } } ] } ] } ] } ] } }"#;

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e300..1e300).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..8)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// Returns a valid text with one piece replaced.
fn damaged(text: &'static str) -> impl Strategy<Value = String> {
    (0..text.len(), 0..6_usize, "[\\]\\[{}\",:'=a0.\\-\n]{0,4}").prop_map(move |(at, length, put)| {
        let end = (at + length).min(text.len());
        format!("{}{put}{}", &text[..at], &text[end..])
    })
}

fn read_all(text: &str) {
    if let Ok(spec) = from_toml::<NamespaceSpec>(text) {
        let _ = spec.check();
    }
    if let Ok(spec) = from_json::<NamespaceSpec>(text) {
        let _ = spec.check();
    }
    if let Ok(document) = Document::json(text) {
        let _ = emulator::read(&document);
    }
}

#[test]
fn the_samples_are_valid() {
    from_toml::<NamespaceSpec>(TOML).unwrap().check().unwrap();
    assert_eq!(emulator::read(&Document::json(EMULATOR).unwrap()).unwrap().len(), 1);
}

proptest! {
    #[test]
    fn json_has_its_standard_meaning(value in any_json(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        prop_assert_eq!(from_json::<Value>(&text.unwrap()).unwrap(), value);
    }

    #[test]
    fn arbitrary_text_does_not_panic(text in any::<String>(), bytes in any::<Vec<u8>>()) {
        read_all(&text);
        let _ = from_json_bytes::<QueueSpec>(&bytes);
    }

    #[test]
    fn a_damaged_document_does_not_panic(toml in damaged(TOML), json in damaged(EMULATOR)) {
        read_all(&toml);
        read_all(&json);
    }
}

#[test]
fn a_namespace_has_a_tier() {
    let space: NamespaceSpec = from_toml("tier = \"standard\"").unwrap();
    assert_eq!(space.tier, Some(peeklock_types::Tier::Standard));
    let refused = from_toml::<NamespaceSpec>("tier = \"basic\"").unwrap_err().to_string();
    assert!(refused.contains("'basic' is not a tier; write premium or standard"), "{refused}");
}
