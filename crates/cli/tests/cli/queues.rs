//! Managing queues over the wire.

use crate::broker::Broker;

#[test]
fn a_queue_is_created_listed_shown_and_deleted() {
    let broker = Broker::start(&["--listen-tls", "off"]);
    assert_eq!(
        broker.run(&["queue", "create", "orders", "--lock", "5s", "--max-delivery", "3"]),
        "Created queue 'orders'\n"
    );
    broker.run(&["send", "orders", "one"]);
    let list = broker.run(&["queue", "list"]);
    let row: Vec<_> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..5], ["orders", "1", "0", "0", "0"], "{list}");
    let shown: serde_json::Value =
        serde_json::from_str(&broker.run(&["queue", "show", "orders", "--json"])).unwrap();
    assert_eq!(shown["lockDurationMs"], 5000);
    assert_eq!(shown["maxDeliveryCount"], 3);
    assert_eq!(shown["activeCount"], 1);
    assert!(broker.run(&["queue", "show", "orders"]).contains("\nMax deliveries  3\n"));
    assert_eq!(broker.run(&["queue", "delete", "orders"]), "Deleted queue 'orders'\n");
    assert_eq!(broker.run(&["queue", "list", "--json"]), "");
}

#[test]
fn a_queue_is_created_once_and_deleted_once() {
    let broker = Broker::start(&["--listen-tls", "off", "--queue", "orders"]);
    let again = broker.fails(&["queue", "create", "orders"]);
    assert!(again.contains("orders") && again.contains("409"), "{again}");
    let unknown = broker.fails(&["queue", "delete", "nowhere"]);
    assert!(unknown.contains("nowhere") && unknown.contains("404"), "{unknown}");
    let unknown = broker.fails(&["queue", "show", "nowhere"]);
    assert!(unknown.contains("nowhere"), "{unknown}");
}
