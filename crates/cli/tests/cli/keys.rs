//! Access keys from the command line.

use serde_json::Value;

use crate::broker::{Broker, failure_of, peeklock, text_of};

fn with(connect: &str, arguments: &[&str]) -> std::process::Output {
    peeklock().args(arguments).args(["--connect", connect]).output().unwrap()
}

fn key(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_key_is_created_used_rotated_and_removed() {
    let broker = Broker::start(&["--listen-tls", "off", "--queue", "orders"]);
    let shown = broker.run(&["key", "create", "app", "--rights", "Send,listen"]);
    assert!(shown.contains("\nRights                   Send,Listen\n"), "{shown}");
    let connect = shown.lines().find_map(|line| line.strip_prefix("Connection string")).unwrap().trim();
    text_of(&with(connect, &["send", "orders", "x"]));
    let error = failure_of(&with(connect, &["queue", "create", "more"]));
    assert!(error.contains("access to queue 'more' is refused"), "{error}");
    let before = key(&broker.run(&["key", "show", "app", "--json"]));
    let after = key(&broker.run(&["key", "rotate", "app", "--secondary", "--json"]));
    assert_eq!(before["primaryKey"], after["primaryKey"]);
    assert_ne!(before["secondaryKey"], after["secondaryKey"]);
    text_of(&with(connect, &["send", "orders", "x"]));
    broker.run(&["key", "rotate", "app"]);
    failure_of(&with(connect, &["send", "orders", "x"]));
    let list = broker.run(&["key", "list"]);
    assert!(list.contains("app") && list.contains("RootManageSharedAccessKey"), "{list}");
    let secret = after["primaryKey"].as_str().unwrap();
    for list in [list, broker.run(&["key", "list", "--json"])] {
        assert!(!list.contains(secret) && !list.contains("SAS_KEY_VALUE"), "secrets are not listed: {list}");
    }
    let again = broker.fails(&["key", "create", "app", "--rights", "Send"]);
    assert!(again.contains("already a key 'app'"), "{again}");
    assert_eq!(broker.run(&["key", "remove", "app"]), "Removed key 'app'\n");
    let gone = broker.fails(&["key", "show", "app"]);
    assert!(gone.contains("no key 'app' of the namespace"), "{gone}");
}

#[test]
fn a_key_of_a_queue_is_valid_for_that_queue_only() {
    let broker = Broker::start(&["--listen-tls", "off", "--queue", "orders", "--queue", "bills"]);
    let shown = broker.run(&["key", "create", "till", "--rights", "Manage", "--queue", "orders"]);
    let connect = shown.lines().find_map(|line| line.strip_prefix("Connection string")).unwrap().trim();
    text_of(&with(connect, &["send", "orders", "x"]));
    text_of(&with(connect, &["queue", "show", "orders"]));
    text_of(&with(connect, &["queue", "update", "orders", "--ttl", "1h"]));
    failure_of(&with(connect, &["send", "bills", "x"]));
    failure_of(&with(connect, &["queue", "list"]));
    failure_of(&with(connect, &["queue", "update", "bills", "--ttl", "1h"]));
    assert!(!broker.run(&["key", "list"]).contains("till"));
    assert!(broker.run(&["key", "list", "--queue", "orders"]).contains("till"));
}

#[test]
fn keys_survive_a_restart() {
    let broker = Broker::start(&["--listen-tls", "off", "--queue", "orders"]);
    let before = broker.run(&["key", "create", "app", "--rights", "Send", "--json"]);
    let (_, folder) = broker.stop_with("TERM");
    let broker = Broker::start_in(folder, &["--listen-tls", "off"]);
    assert_eq!(broker.run(&["key", "show", "app", "--json"]), before);
}
