//! Messages with sessions, times and addresses, against a running broker.

use serde_json::Value;

use crate::broker::{Broker, text_of};

fn broker() -> Broker {
    Broker::start(&["--listen-tls", "off", "--queue", "orders", "--queue", "tables,sessions"])
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_session_is_received_by_name_or_as_the_next_one() {
    let broker = broker();
    for (session, body) in [("table-4", "coffee"), ("table-7", "tea"), ("table-4", "cake")] {
        broker.run(&["send", "tables", body, "--session", session]);
    }
    assert_eq!(broker.run(&["session", "list", "tables"]), "table-4\ntable-7\n");
    let seen = json_lines(&broker.run(&["peek", "tables", "--session", "table-4", "--json"]));
    let bodies: Vec<_> = seen.iter().map(|message| message["body"].as_str().unwrap()).collect();
    assert_eq!(bodies, ["coffee", "cake"]);
    let tea = broker.run(&["receive", "tables", "--session", "table-7", "--count", "9", "--wait", "100ms"]);
    assert!(tea.contains("  session table-7\ntea\n"), "{tea}");
    let next = json_lines(&broker.run(&["receive", "tables", "--next-session", "--count", "2", "--json"]));
    assert_eq!(next[1]["sessionId"], "table-4");
    assert_eq!(next[1]["body"], "cake");
    let none = broker.command(&["receive", "tables", "--next-session", "--wait", "50ms"]).output().unwrap();
    assert_eq!(text_of(&none), "");
    assert_eq!(String::from_utf8_lossy(&none.stderr), "no session to receive in 'tables' within 50ms\n");
    let none = broker.command(&["session", "list", "tables"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&none.stderr), "no session of 'tables' has messages\n");
}

#[test]
fn a_queue_with_sessions_reports_a_missing_session() {
    let broker = broker();
    let error = broker.fails(&["send", "tables", "x"]);
    assert!(error.contains("session"), "{error}");
    let error = broker.fails(&["receive", "tables"]);
    assert!(error.contains("session"), "{error}");
    let error = broker.fails(&["receive", "orders", "--session", "a"]);
    assert!(error.contains("session"), "{error}");
}

#[test]
fn a_scheduled_message_waits() {
    let broker = broker();
    broker.run(&["send", "orders", "past", "--at", "2020-01-01T01:00:00+01:00"]);
    let past = json_lines(&broker.run(&["receive", "orders", "--json"]));
    assert_eq!(
        (past[0]["body"].as_str(), past[0]["scheduledFor"].as_str()),
        (Some("past"), Some("2020-01-01T00:00:00.000Z"))
    );
    broker.run(&["send", "orders", "later", "--in", "365d"]);
    broker.run(&["send", "orders", "soon", "--in", "300ms"]);
    let seen = json_lines(&broker.run(&["peek", "orders", "--json"]));
    assert_eq!(seen[0]["state"], "scheduled");
    assert!(seen[0]["scheduledFor"].is_string());
    let received = json_lines(&broker.run(&["receive", "orders", "--json"]));
    assert_eq!(received[0]["body"], "soon");
    assert_eq!(broker.run(&["receive", "orders", "--wait", "50ms"]), "");
}

#[test]
fn a_message_expires() {
    let broker = broker();
    broker.run(&["send", "orders", "short", "--ttl", "1ms"]);
    broker.run(&["send", "orders", "long", "--ttl", "90d"]);
    let received =
        json_lines(&broker.run(&["receive", "orders", "--count", "2", "--wait", "200ms", "--json"]));
    assert_eq!(received.len(), 1);
    assert_eq!(received[0]["body"], "long");
    assert!(received[0]["expiresAt"].is_string());
}

#[test]
fn a_delayed_message_is_not_delivered_before_its_time() {
    let broker = broker();
    broker.run(&["send", "orders", "again"]);
    broker.run(&["receive", "orders", "--abandon", "--delay", "1h"]);
    assert_eq!(broker.run(&["receive", "orders", "--wait", "50ms"]), "");
    let seen = json_lines(&broker.run(&["peek", "orders", "--json"]));
    assert_eq!(
        (seen[0]["deliveryCount"].as_u64(), seen[0]["properties"].to_string()),
        (Some(1), "{}".to_owned())
    );
}

#[test]
fn the_fields_of_a_reply_are_transferred() {
    let broker = broker();
    let addressed =
        ["--message-id", "7", "--correlation-id", "3", "--reply-to", "served", "--subject", "drink"];
    broker.run(&[&["send", "orders", "tea", "--reply-to-session", "r"], addressed.as_slice()].concat());
    let received = &json_lines(&broker.run(&["receive", "orders", "--json"]))[0];
    for (key, value) in [
        ("messageId", "7"),
        ("correlationId", "3"),
        ("replyTo", "served"),
        ("subject", "drink"),
        ("replyToSessionId", "r"),
    ] {
        assert_eq!(received[key], value, "{received}");
    }
}
