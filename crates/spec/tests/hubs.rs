//! Hubs in configuration files and in the API, and their errors.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::time::Duration;

use peeklock_spec::{Document, HubSpec, NamespaceSpec, from_json, from_toml};
use peeklock_types::{ConsumerGroup, ExpiredPosition, HubSettings, QueueStatus};

/// Returns the line and the text of the error.
fn wrong(text: &str) -> (usize, String) {
    let document = Document::toml(text).unwrap();
    let problem = match document.read::<NamespaceSpec>() {
        Err(problem) => problem,
        Ok(space) => {
            let misfit = space.check().unwrap_err();
            let path: Vec<&str> = misfit.path.iter().map(String::as_str).collect();
            document.problem(&path, misfit.message)
        }
    };
    (problem.line, problem.to_string())
}

#[test]
fn a_hub_is_read_and_written() {
    let text = "
        [hubs.telemetry]
        partition-count = 16
        retention = '7d'
        retention-bytes = '1GiB'
        expired-position = 'earliest'
        status = 'send-disabled'
        user-metadata = 'meters'
        consumer-groups = ['$Default', 'audit', 'AUDIT']";
    let space: NamespaceSpec = from_toml(text).unwrap();
    space.check().unwrap();
    let (_, spec) = &space.hubs.0[0];
    let settings = HubSettings {
        partition_count: 16,
        retention: Some(Duration::from_secs(7 * 86_400)),
        retention_bytes: Some(1 << 30),
        expired_position: ExpiredPosition::Earliest,
        status: QueueStatus::SendDisabled,
        user_metadata: Some("meters".to_owned()),
    };
    assert_eq!(spec.settings(), settings);
    assert_eq!(spec.groups(), [ConsumerGroup::parse("audit").unwrap()]);
    let shown = serde_json::to_string(&HubSpec::of(&settings)).unwrap();
    assert!(shown.contains(r#""retentionHours":168,"retentionBytes":"1GiB""#), "{shown}");
    assert_eq!(from_json::<HubSpec>(&shown).unwrap().settings(), settings);
}

#[test]
fn retention_is_in_hours_or_a_duration_or_unlimited() {
    let retention = |json: &str| from_json::<HubSpec>(json).unwrap().retention;
    assert_eq!(retention("{}"), None);
    assert_eq!(retention(r#"{ "retentionHours": 1 }"#), Some(Some(Duration::from_secs(3600))));
    assert_eq!(retention(r#"{ "retentionHours": 0.5 }"#), Some(Some(Duration::from_secs(1800))));
    assert_eq!(retention(r#"{ "retentionHours": null }"#), Some(None));
    assert_eq!(retention(r#"{ "retention": "PT90S" }"#), Some(Some(Duration::from_secs(90))));
    assert_eq!(retention(r#"{ "retention": "none" }"#), Some(None));
    assert_eq!(
        retention(r#"{ "retention": "1h", "retentionHours": 1 }"#),
        Some(Some(Duration::from_secs(3600)))
    );
    let told = from_json::<HubSpec>(r#"{ "retention": "1h", "retentionHours": 2 }"#).unwrap_err().to_string();
    assert!(told.contains("say different things"), "{told}");
    for bad in ["-1", "\"many\"", "1e300"] {
        let told =
            from_json::<HubSpec>(&format!(r#"{{ "retentionHours": {bad} }}"#)).unwrap_err().to_string();
        assert!(told.contains("not a number of hours"), "{bad}: {told}");
    }
    // A duration that is not a number of whole hours survives as well.
    let odd = HubSettings { retention: Some(Duration::from_millis(90_001)), ..HubSettings::default() };
    let shown = serde_json::to_string(&HubSpec::of(&odd)).unwrap();
    assert_eq!(from_json::<HubSpec>(&shown).unwrap().settings(), odd);
}

#[test]
fn errors_have_their_place() {
    assert_eq!(
        wrong("[hubs.a]\npartition-count = 2000"),
        (1, "line 1, column 7: hubs.a: a hub with 2000 partitions; give it 1 to 1024".to_owned())
    );
    let (line, told) = wrong("[hubs.a]\nconsumer-groups = ['ok', 'a/b']");
    assert_eq!(line, 2);
    assert!(told.contains("'a/b' has the character '/'"), "{told}");
    let (line, told) = wrong("[hubs.a]\npartitions = 2");
    assert!(line == 2 && told.contains("unknown key 'partitions'"), "{told}");
    let (_, told) = wrong("[hubs.a]\nexpired-position = 'skip'");
    assert!(told.contains("'skip' is not what becomes of a reader") && told.contains("earliest"), "{told}");
    let (_, told) = wrong("[hubs.a]\nretention-bytes = 10");
    assert!(told.contains("too little"), "{told}");
    for kind in ["queue", "topic"] {
        let (line, told) = wrong(&format!("[{kind}s.a]\n[hubs.A]"));
        assert_eq!(line, 2);
        assert!(told.contains(&format!("there is a {kind} 'A' already; a {kind} and a hub")), "{told}");
    }
}
