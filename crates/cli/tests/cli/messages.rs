//! Send, receive and peek against a running broker.

use std::io::Write;
use std::process::Stdio;

use crate::broker::{Broker, text_of};

fn broker() -> Broker {
    Broker::start(&["--listen-tls", "off", "--queue", "orders", "--queue", "once,max-delivery=1"])
}

fn json_lines(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_message_is_sent_peeked_and_received() {
    let broker = broker();
    let sent = broker.run(&["send", "orders", "hello", "--id", "order-17", "--property", "tier=gold"]);
    assert!(sent.starts_with("Sent 1 message to 'orders' in "), "{sent}");
    let seen = broker.run(&["peek", "orders"]);
    assert!(seen.starts_with("#1  order-17  enqueued 20"), "{seen}");
    assert!(seen.ends_with("\n  tier = gold\nhello\n"), "{seen}");
    let received = broker.run(&["receive", "orders"]);
    assert!(received.starts_with("#1  order-17  "), "{received}");
    assert!(received.ends_with("\nhello\n"), "{received}");
    assert_eq!(broker.run(&["peek", "orders"]), "");
}

#[test]
fn json_is_one_object_per_line() {
    let broker = broker();
    let sent = json_lines(&broker.run(&["send", "orders", "hi", "--count", "3", "--id", "n", "--json"]));
    assert_eq!(sent[0]["sent"], 3);
    let seen = json_lines(&broker.run(&["peek", "orders", "--from", "2", "--count", "5", "--json"]));
    let numbers: Vec<_> = seen.iter().map(|message| message["sequenceNumber"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [2, 3]);
    assert_eq!(seen[0]["messageId"], "n-2");
    assert_eq!(seen[0]["body"], "hi");
    let received = json_lines(&broker.run(&["receive", "orders", "--count", "2", "--json"]));
    assert_eq!(received.len(), 2);
    assert_eq!(received[0]["deliveryCount"], 0);
    assert!(received[0]["lockToken"].is_string());
}

#[test]
fn each_line_of_stdin_becomes_a_message() {
    let broker = broker();
    let mut send = broker.command(&["send", "orders", "-"]);
    let mut send = send.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    send.stdin.take().unwrap().write_all("one\ntwo\nthree\n".as_bytes()).unwrap();
    assert!(text_of(&send.wait_with_output().unwrap()).starts_with("Sent 3 messages"));
    let received = json_lines(&broker.run(&["receive", "orders", "--count", "3", "--json"]));
    let bodies: Vec<_> = received.iter().map(|message| message["body"].as_str().unwrap()).collect();
    assert_eq!(bodies, ["one", "two", "three"]);
}

#[test]
fn a_file_is_one_message_of_any_bytes() {
    let broker = broker();
    let file = broker.data().join("../body.bin");
    std::fs::write(&file, [0xff, 0x00, 0x41]).unwrap();
    broker.run(&["send", "orders", "--file", file.to_str().unwrap()]);
    let received = json_lines(&broker.run(&["receive", "orders", "--delete", "--json"]));
    assert_eq!(received[0]["bodyHex"], "ff0041");
    assert_eq!(broker.run(&["peek", "orders"]), "");
}

#[test]
fn an_empty_queue_is_reported_and_is_not_a_failure() {
    let broker = broker();
    let output = broker.command(&["receive", "orders", "--wait", "10ms"]).output().unwrap();
    assert_eq!(text_of(&output), "");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "nothing to receive in 'orders' within 10ms\n");
}

#[test]
fn an_abandoned_message_is_delivered_again_and_finally_dead_lettered() {
    let broker = broker();
    broker.run(&["send", "orders", "again"]);
    broker.run(&["receive", "orders", "--abandon"]);
    let received = json_lines(&broker.run(&["receive", "orders", "--json"]));
    assert_eq!(received[0]["deliveryCount"], 1);
    broker.run(&["send", "once", "poison"]);
    broker.run(&["receive", "once", "--abandon"]);
    let seen = json_lines(&broker.run(&["peek", "once", "--dead-letter", "--json"]));
    assert_eq!(seen[0]["body"], "poison");
    assert_eq!(seen[0]["properties"]["DeadLetterReason"], "MaxDeliveryCountExceeded");
    let dead = json_lines(&broker.run(&["receive", "once", "--dead-letter", "--json"]));
    assert_eq!(dead[0]["body"], "poison");
}

#[test]
fn a_kept_message_stays_locked() {
    let broker = broker();
    broker.run(&["send", "orders", "held"]);
    broker.run(&["receive", "orders", "--keep"]);
    assert_eq!(broker.run(&["receive", "orders", "--wait", "50ms"]), "");
    assert!(broker.run(&["peek", "orders"]).ends_with("held\n"));
}

#[test]
fn many_messages_are_transferred() {
    let broker = broker();
    let sent = broker.run(&["send", "orders", "x", "--count", "5000"]);
    assert!(sent.starts_with("Sent 5000 messages"), "{sent}");
    let received = broker.run(&["receive", "orders", "--count", "10000", "--wait", "100ms", "--json"]);
    let numbers: Vec<_> =
        json_lines(&received).iter().map(|m| m["sequenceNumber"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=5000).collect::<Vec<_>>());
}
