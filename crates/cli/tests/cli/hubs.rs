//! Event hubs from the command line.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::broker::{Broker, peeklock, text_of};

fn json(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn meters() -> Broker {
    let broker = Broker::start(&["--listen-tls", "off"]);
    let created = broker.run(&["hub", "create", "meters", "--partitions", "2", "--group", "audit"]);
    assert_eq!(created, "Created hub 'meters' (2 partitions, kept for 1d)\n");
    broker
}

#[test]
fn a_hub_is_created_changed_listed_shown_and_deleted() {
    let broker = meters();
    let again = broker.fails(&["hub", "create", "meters"]);
    assert!(again.contains("already a queue, topic or hub 'meters'"), "{again}");
    let updated = broker.run(&["hub", "update", "meters", "--partitions", "3", "--retention", "7d"]);
    assert_eq!(updated, "Updated hub 'meters' (3 partitions, kept for 7d)\n");
    let fewer = broker.fails(&["hub", "update", "meters", "--partitions", "1"]);
    assert!(fewer.contains("3 partitions and cannot have fewer"), "{fewer}");
    assert!(broker.fails(&["hub", "update", "meters"]).contains("nothing to change"));
    let list = broker.run(&["hub", "list"]);
    let row: Vec<_> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["meters", "3", "7d", "2", "active"], "{list}");
    assert!(
        broker.run(&["hub", "group", "create", "meters", "billing"]).contains("'billing' (of hub 'meters')")
    );
    assert_eq!(broker.run(&["hub", "group", "list", "meters"]).lines().count(), 4);
    broker.run(&["hub", "group", "delete", "meters", "audit"]);
    let shown = broker.run(&["hub", "show", "meters"]);
    assert!(shown.contains("\nPartitions               3\n") && shown.contains("billing"), "{shown}");
    assert!(!shown.contains("audit"), "{shown}");
    let told = json(&broker.run(&["hub", "show", "meters", "--json"]));
    assert_eq!((&told[0]["retentionHours"], &told[0]["partitionCount"]), (&168.into(), &3.into()));
    assert_eq!(broker.run(&["hub", "delete", "meters"]), "Deleted hub 'meters'\n");
    let gone = broker.fails(&["hub", "show", "meters"]);
    assert!(gone.contains("no hub 'meters'") && gone.contains("peeklock hub create meters"), "{gone}");
    let gone = broker.fails(&["checkpoint", "list", "meters", "--group", "x"]);
    assert!(gone.contains("the hub 'meters' does not exist"), "{gone}");
}

#[test]
fn events_are_sent_seen_and_followed() {
    let broker = meters();
    broker.run(&["send", "meters", "cold", "--partition", "1", "--count", "3"]);
    broker.run(&["send", "meters", "warm", "--partition-key", "home-7", "--property", "room=kitchen"]);
    let seen = json(&broker.run(&["events", "meters", "--json"]));
    assert_eq!(seen.len(), 4, "{seen:?}");
    let warm = seen.iter().find(|event| event["body"] == "warm").unwrap();
    assert_eq!((&warm["partitionKey"], &warm["properties"]["room"]), (&"home-7".into(), &"kitchen".into()));
    let some = broker.run(&["events", "meters", "--partition", "1", "--from", "1", "--count", "2"]);
    assert!(some.starts_with("1#1  enqueued ") && some.contains("\ncold\n1#2  "), "{some}");
    assert!(broker.fails(&["events", "meters", "--partition", "9"]).contains("no partition 9"));
    assert!(broker.fails(&["events", "none"]).contains("the hub 'none' does not exist"));

    let mut command = peeklock();
    command.args(["events", "meters", "--follow", "--from", "earliest", "--count", "5", "--json"]);
    command.args(["--connect", broker.connection_string()]).stdout(Stdio::piped());
    let mut following = command.spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut bodies: Vec<String> = (0..4).map(|_| body(&lines.next().unwrap().unwrap())).collect();
    broker.run(&["send", "meters", "new", "--partition", "0"]);
    bodies.push(body(&lines.next().unwrap().unwrap()));
    assert_eq!(bodies.last().unwrap(), "new", "{bodies:?}");
    assert!(following.wait().unwrap().success());
}

fn body(line: &str) -> String {
    json(line)[0]["body"].as_str().unwrap().to_owned()
}

#[test]
fn checkpoints_are_shown_and_reset_after_confirmation() {
    let broker = meters();
    broker.run(&["send", "meters", "x", "--partition", "1", "--count", "4"]);
    let reset = |to: &str, more: &[&str]| {
        let start = ["checkpoint", "reset", "meters", "--group", "audit", "--to", to];
        [&start, more].concat().iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()
    };
    let run = |arguments: Vec<String>| broker.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let lag = || {
        let told = json(&broker.run(&["checkpoint", "show", "meters", "--group", "audit", "--json"]));
        told.iter().map(|one| one["lagEvents"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(lag(), [0, 4]);
    let told = run(reset("latest", &["--dry-run"]));
    assert!(
        told.ends_with("Would move 1 checkpoint of consumer group 'audit'. Nothing was changed.\n"),
        "{told}"
    );
    assert_eq!(lag(), [0, 4]);
    let arguments = reset("latest", &[]);
    let refused = broker.fails(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(refused.contains("add --yes"), "{refused}");
    run(reset("latest", &["--yes"]));
    assert_eq!(lag(), [0, 0]);
    run(reset("1", &["--partition", "1", "--yes"]));
    assert_eq!(lag(), [0, 2]);
    let list = broker.run(&["checkpoint", "list", "meters"]);
    let rows: Vec<Vec<_>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 5, "the list has a heading, and two rows for each of two groups: {list}");
    assert!(rows.iter().any(|row| row[..2] == ["audit", "1"] && row[4] == "1" && row[6] == "2"), "{list}");
    let none = broker.fails(&["checkpoint", "show", "meters", "--group", "none"]);
    assert!(none.contains("no consumer group 'none'"), "{none}");
}

#[test]
fn the_hubs_of_a_file_exist_after_a_restart() {
    let broker = meters();
    let (_, folder) = broker.stop_with("TERM");
    let config = folder.path().join("peeklock.toml");
    std::fs::write(&config, "[hubs.meters]\npartition-count = 4\n[hubs.clicks]\n").unwrap();
    let verdict = text_of(&peeklock().args(["config", "validate"]).arg(&config).output().unwrap());
    assert!(verdict.contains("2 hubs"), "{verdict}");
    let config = config.to_str().unwrap().to_owned();
    let broker = Broker::start_in(folder, &["--listen-tls", "off", "--config", &config]);
    assert_eq!(broker.labels["Hubs"], "clicks, meters");
    let told = json(&broker.run(&["hub", "show", "meters", "--json"]));
    assert_eq!(told[0]["partitionCount"], 4);
    assert_eq!(told[0]["consumerGroups"], serde_json::json!(["$Default", "audit"]));
}
