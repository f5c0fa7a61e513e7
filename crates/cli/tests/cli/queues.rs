//! Managing queues over the wire.

use serde_json::Value;

use crate::broker::Broker;

fn shown(broker: &Broker, queue: &str) -> Value {
    serde_json::from_str(&broker.run(&["queue", "show", queue, "--json"])).unwrap()
}

#[test]
fn a_queue_is_created_listed_shown_and_deleted() {
    let broker = Broker::start(&["--listen-tls", "off"]);
    assert_eq!(
        broker.run(&["queue", "create", "orders", "--lock-duration", "5s", "--max-delivery-count", "3"]),
        "Created queue 'orders'\n"
    );
    broker.run(&["send", "orders", "one"]);
    let list = broker.run(&["queue", "list"]);
    let row: Vec<_> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..6], ["orders", "1", "0", "0", "0", "0"], "{list}");
    let json = shown(&broker, "orders");
    assert_eq!(json["lockDuration"], "5s");
    assert_eq!(json["maxDeliveryCount"], 3);
    assert_eq!(json["activeCount"], 1);
    assert_eq!(json["requiresSession"], false);
    assert_eq!(json["forwardTo"], Value::Null);
    let text = broker.run(&["queue", "show", "orders"]);
    assert!(text.contains("\n  max-delivery-count     3\n"), "{text}");
    assert!(!text.contains("sessions"), "a setting with its default is not shown: {text}");
    assert_eq!(broker.run(&["queue", "delete", "orders"]), "Deleted queue 'orders'\n");
    assert_eq!(broker.run(&["queue", "list", "--json"]), "");
}

#[test]
fn every_setting_reaches_the_broker_and_is_shown() {
    let broker =
        Broker::start(&["--listen-tls", "off", "--queue", "archive", "--queue", "jobs,sessions,lock=30s"]);
    assert_eq!(shown(&broker, "jobs")["requiresSession"], true);
    assert_eq!(shown(&broker, "jobs")["lockDuration"], "30s");
    let settings = [
        ["--lock-duration", "30s"],
        ["--max-delivery-count", "5"],
        ["--ttl", "1h"],
        ["--auto-delete-idle", "1d"],
        ["--duplicate-window", "10m"],
        ["--max-size", "1GiB"],
        ["--max-message-size", "100MiB"],
        ["--status", "receive-disabled"],
        ["--forward-dead-letters-to", "archive"],
        ["--retry", "exponential:1s..10m:jitter"],
        ["--poison-session", "block"],
    ];
    let create = ["queue", "create", "full", "--sessions", "--dead-letter-expired"];
    broker.run(&[&create, settings.concat().as_slice()].concat());
    let text = broker.run(&["queue", "show", "full"]);
    for [flag, value] in settings {
        let line = format!("\n  {:<22} {value}\n", flag.trim_start_matches('-'));
        assert!(text.contains(&line), "{line}{text}");
    }
    assert!(text.contains("\n  sessions               true\n"), "{text}");
    assert!(text.contains("\n  dead-letter-expired    true\n"), "{text}");
}

#[test]
fn an_update_changes_only_the_named_settings() {
    let broker =
        Broker::start(&["--listen-tls", "off", "--queue", "orders,ttl=1h,max-delivery=3", "--queue", "next"]);
    let updated = broker.run(&[
        "queue",
        "update",
        "orders",
        "--lock-duration",
        "5m",
        "--ttl",
        "none",
        "--forward-to",
        "next",
    ]);
    assert_eq!(updated, "Updated queue 'orders'\n");
    let json = shown(&broker, "orders");
    assert_eq!(json["lockDuration"], "5m");
    assert_eq!(json["defaultTimeToLive"], Value::Null);
    assert_eq!(json["forwardTo"], "next");
    assert_eq!(json["maxDeliveryCount"], 3, "a setting that is not named stays");
    let error = broker.fails(&["queue", "update", "next", "--sessions"]);
    assert!(
        error.contains("'next'") && error.contains("cannot be changed after the entity was created"),
        "{error}"
    );
    assert!(broker.fails(&["queue", "update", "orders"]).contains("nothing to change"));
    let error = broker.fails(&["queue", "update", "nowhere", "--ttl", "1h"]);
    assert!(error.contains("nowhere"), "{error}");
}

#[test]
fn a_disabled_queue_is_reported() {
    let broker = Broker::start(&["--listen-tls", "off", "--queue", "orders"]);
    broker.run(&["queue", "update", "orders", "--status", "send-disabled"]);
    let error = broker.fails(&["send", "orders", "x"]);
    assert!(error.contains("disabled"), "{error}");
    broker.run(&["queue", "update", "orders", "--status", "active"]);
    broker.run(&["send", "orders", "x"]);
}

#[test]
fn a_purge_removes_the_selected_messages() {
    let broker = Broker::start(&["--listen-tls", "off", "--queue", "orders,max-delivery=1"]);
    broker.run(&["send", "orders", "dead"]);
    broker.run(&["receive", "orders", "--abandon"]);
    broker.run(&["send", "orders", "x", "--count", "5"]);
    let error = broker.fails(&["queue", "purge", "orders"]);
    assert!(error.contains("--yes"), "a script has to pass --yes: {error}");
    assert_eq!(
        broker.run(&["queue", "purge", "orders", "--older-than", "1h", "--yes"]),
        "Purged 0 messages from 'orders'\n"
    );
    assert_eq!(broker.run(&["queue", "purge", "orders", "--yes"]), "Purged 5 messages from 'orders'\n");
    let json = shown(&broker, "orders");
    assert_eq!((json["activeCount"].as_u64(), json["deadLetterCount"].as_u64()), (Some(0), Some(1)));
    let purged = broker.run(&["queue", "purge", "orders", "--dead-letters", "--yes", "--json"]);
    assert_eq!(purged, "{\"purged\":1,\"queue\":\"orders\"}\n");
}

#[test]
fn a_queue_is_created_once_and_deleted_once() {
    let broker = Broker::start(&["--listen-tls", "off", "--queue", "orders"]);
    let again = broker.fails(&["queue", "create", "orders"]);
    assert!(
        again.contains("there is already a queue, topic or hub 'orders'")
            && again.contains("peeklock queue update orders"),
        "{again}"
    );
    let unknown = broker.fails(&["queue", "delete", "nowhere"]);
    assert!(unknown.contains("there is no queue 'nowhere'"), "{unknown}");
    let unknown = broker.fails(&["queue", "show", "nowhere"]);
    assert!(unknown.contains("peeklock queue create nowhere"), "{unknown}");
}
