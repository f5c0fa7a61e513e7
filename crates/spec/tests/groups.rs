//! Queue groups in configuration files, and their errors.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected fails")]

use std::time::Duration;

use peeklock_spec::{Document, NamespaceSpec, QueueGroupSpec, from_json, from_toml};
use peeklock_types::OrderPolicy;

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
fn a_queue_group_is_read_and_written() {
    let text = "
        [queues.high]
        [groups.work]
        order = 'weighted'
        members = ['high', { name = 'news/Subscriptions/all', weight = 4, offset = '2m' }]
        max-outstanding = 4
    ";
    let space: NamespaceSpec = from_toml(text).unwrap();
    space.check().unwrap();
    let group = space.groups.0[0].1.settings();
    assert_eq!((group.policy, group.max_outstanding), (OrderPolicy::Weighted, 4));
    assert_eq!((group.weight(0), group.weight(1)), (1, 4));
    assert_eq!(group.members[1].offset, Some(Duration::from_secs(120)));
    let shown = serde_json::to_string(&QueueGroupSpec::of(&group)).unwrap();
    let expected = r#"{"members":["high",{"name":"news/Subscriptions/all","offset":"2m","weight":4}],"order":"weighted","maxOutstanding":4}"#;
    assert_eq!(shown, expected);
    assert_eq!(from_json::<QueueGroupSpec>(&shown).unwrap().settings(), group);
    let plain: QueueGroupSpec = from_json(r#"{"members": ["a"]}"#).unwrap();
    assert_eq!(plain.settings().policy, OrderPolicy::Aged);
}

#[test]
fn errors_have_their_place() {
    for (text, line, part) in [
        ("[groups.work]\norder = 'lifo'\nmembers = ['a']", 2, "'lifo' is not a policy"),
        ("[groups.work]\n\nmembers = []", 3, "has no members"),
        ("[groups.work]\norder = 'fifo'", 1, "has no members"),
        ("[groups.work]\nmembers = ['a', 'b', 'A']", 2, "'A' is named twice"),
        ("[groups.work]\nmembers = ['a', 'a//b']", 2, "a//b"),
        ("[groups.work]\nmembers = ['a', 7]", 2, "the name of a queue or subscription"),
        ("[groups.work]\nmembers = [{ name = 'a', wight = 1 }]", 2, "did you mean 'weight'?"),
        ("[groups.work]\nmembers = [{ weight = 1 }]", 2, "'name' is missing"),
        ("[groups.work]\norder = 'weighted'\nmembers = [{ name = 'a', weight = 0 }]", 3, "from 1 to 1000"),
        ("[groups.work]\norder = 'strict'\nmembers = [{ name = 'a', weight = 2 }]", 3, "say which"),
        ("[groups.work]\nmembers = ['work']", 2, "member of itself"),
        ("[groups.work]\nmembers = ['a']\n[groups.more]\nmembers = ['work']", 4, "'work' is a group"),
        ("[queues.Work]\n[groups.work]\nmembers = ['a']", 2, "there is a queue 'Work'"),
        ("[topics.work]\n[groups.work]\nmembers = ['a']", 2, "there is a topic 'work'"),
        ("[topics.a]\n[groups.work]\nmembers = ['a']", 3, "'a' is a topic"),
        ("[queues.a]\nrequires-session = true\n[groups.work]\nmembers = ['a']", 4, "has sessions"),
        ("[groups.work]\nmembers = ['a']\nmax-outstanding = 0", 3, "outside of 1 to"),
        ("[groups.'t/Subscriptions/s']\nmembers = ['a']", 1, "the name of a subscription"),
    ] {
        let (at, told) = wrong(text);
        assert!(told.contains(part), "{text}\n{told}");
        assert_eq!(at, line, "{text}\n{told}");
    }
}
