//! Topics, subscriptions and rules from the command line.

use serde_json::Value;

use crate::broker::Broker;

/// Starts a broker with orders of two priorities, and a subscription that matches nothing.
fn priorities() -> Broker {
    let broker = Broker::start(&["--listen-tls", "off"]);
    broker.run(&["topic", "create", "orders"]);
    for (name, filter) in [("high", "Priority = 'High'"), ("low", "Priority = 'Low'")] {
        broker.run(&["subscription", "create", "orders", name, "--sql", filter]);
    }
    broker.run(&["subscription", "create", "orders", "nothing", "--false"]);
    broker
}

fn json(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_message_reaches_the_subscriptions_whose_filter_matches() {
    let broker = priorities();
    broker.run(&["send", "orders", "urgent", "--property", "Priority=High"]);
    broker.run(&["send", "orders", "some day", "--property", "Priority=Low"]);
    broker.run(&["send", "orders", "whatever"]);
    let peeked = broker.run(&["peek", "orders/subscriptions/high"]);
    assert!(peeked.contains("Priority = High") && peeked.ends_with("\nurgent\n"), "{peeked}");
    assert_eq!(
        broker.run(&["receive", "orders/subscriptions/high", "--count", "5", "--wait", "100ms"]),
        peeked
    );
    assert!(broker.run(&["receive", "orders/Subscriptions/LOW"]).ends_with("\nsome day\n"));
    let listed = json(&broker.run(&["subscription", "list", "orders", "--json"]));
    let names: Vec<_> = listed.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["high", "low", "nothing"]);
    assert!(listed.iter().all(|one| one["messageCount"] == 0), "{listed:?}");
}

#[test]
fn a_topic_is_created_changed_listed_shown_and_deleted() {
    let broker = priorities();
    let again = broker.fails(&["topic", "create", "orders"]);
    assert!(
        again.contains("already a queue, topic or hub 'orders'")
            && again.contains("peeklock topic update orders"),
        "{again}"
    );
    assert_eq!(broker.run(&["topic", "update", "orders", "--ttl", "1h"]), "Updated topic 'orders'\n");
    let shown = broker.run(&["topic", "show", "orders"]);
    assert!(shown.contains("\n  ttl                    1h\n"), "{shown}");
    assert!(shown.contains("\nSubscriptions            3\n"), "{shown}");
    let list = broker.run(&["topic", "list"]);
    let row: Vec<_> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..2], ["orders", "3"], "{list}");
    assert_eq!(broker.run(&["queue", "list", "--json"]), "", "a topic is not a queue");
    assert_eq!(broker.run(&["topic", "delete", "orders"]), "Deleted topic 'orders'\n");
    for command in [["topic", "show", "orders"].as_slice(), &["topic", "update", "orders", "--ttl", "1h"]] {
        let gone = broker.fails(command);
        assert!(
            gone.contains("there is no topic 'orders'; create it with `peeklock topic create orders`"),
            "{gone}"
        );
    }
    let gone = broker.fails(&["receive", "orders/subscriptions/high"]);
    assert!(gone.contains("peeklock subscription create orders high"), "{gone}");
}

#[test]
fn a_subscription_has_its_own_settings() {
    let broker = priorities();
    let create =
        ["subscription", "create", "orders", "late", "--lock-duration", "5m", "--max-delivery-count", "3"];
    assert_eq!(broker.run(&create), "Created subscription 'late'\n");
    let shown = broker.run(&["subscription", "show", "orders", "late"]);
    assert!(shown.contains("\n  lock-duration          5m\n"), "{shown}");
    assert!(shown.contains("\n  $Default               every message\n"), "{shown}");
    let update =
        ["subscription", "update", "orders", "late", "--dead-letter-filter-errors=false", "--lock", "1m"];
    assert_eq!(broker.run(&update), "Updated subscription 'late'\n");
    let [shown] = &json(&broker.run(&["subscription", "show", "orders", "late", "--json"]))[..] else {
        panic!()
    };
    assert_eq!((&shown["lockDuration"], &shown["maxDeliveryCount"]), (&"1m".into(), &3.into()));
    assert_eq!(shown["deadLetterOnFilterError"], false);
    broker.run(&["subscription", "delete", "orders", "late"]);
    let gone = broker.fails(&["subscription", "show", "orders", "late"]);
    assert!(gone.contains("no subscription 'late' of topic 'orders'"), "{gone}");
    let gone = broker.fails(&["subscription", "list", "nowhere"]);
    assert!(gone.contains("'nowhere'"), "{gone}");
}

#[test]
fn rules_are_added_listed_shown_and_removed() {
    let broker = priorities();
    let place = ["orders", "nothing"];
    let rule = |action: &str, rest: &[&str]| broker.run(&[&["rule", action], &place[..], rest].concat());
    assert_eq!(
        rule("add", &["large", "--sql", "Amount > @least", "--parameter", "@least:=1000"]),
        "Added rule 'large'\n"
    );
    rule(
        "add",
        &[
            "rome",
            "--correlation",
            "city=Rome",
            "--correlation",
            "sys.Label=order",
            "--action",
            "SET Region = 'IT'",
        ],
    );
    let list = rule("list", &[]);
    assert!(list.contains("$Default  no message"), "{list}");
    assert!(list.contains("rome      sys.Label=order and city=Rome  SET Region = 'IT'"), "{list}");
    let shown = rule("show", &["large"]);
    assert!(shown.contains("Amount > @least") && shown.contains("1000"), "{shown}");
    broker.run(&["send", "orders", "one", "--property", "Amount:=1500"]);
    broker.run(&["send", "orders", "two", "--property", "city=Rome", "--subject", "order"]);
    let received = broker.run(&["receive", "orders/subscriptions/nothing", "--count", "2", "--json"]);
    let received = json(&received);
    assert_eq!(received[0]["body"], "one");
    assert_eq!(received[1]["properties"]["Region"], "IT");
    assert_eq!(rule("remove", &["large"]), "Removed rule 'large'\n");
    let gone = broker.fails(&["rule", "show", "orders", "nothing", "large"]);
    assert!(gone.contains("no rule 'large'") && gone.contains("peeklock rule list orders nothing"), "{gone}");
    let twice = broker.fails(&["rule", "add", "orders", "nothing", "rome", "--true"]);
    assert!(twice.contains("already a rule 'rome'"), "{twice}");
}

#[test]
fn a_parse_error_of_a_rule_has_its_position() {
    let broker = priorities();
    let wrong = broker.fails(&["rule", "add", "orders", "high", "r", "--sql", "Priority = = 1"]);
    assert!(wrong.contains("column 12"), "{wrong}");
    let wrong = broker.fails(&["subscription", "create", "orders", "new", "--sql", "Priority ="]);
    assert!(wrong.contains("column"), "{wrong}");
    let none = broker.fails(&["rule", "add", "orders", "high", "r"]);
    assert!(none.contains("--sql"), "{none}");
}

#[test]
fn the_subscriptions_of_a_message_are_explained() {
    let broker = priorities();
    let explain = ["topic", "explain", "orders", "--property", "Priority=High"];
    let text = broker.run(&explain);
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("high").contains("gets it"), "{text}");
    assert!(row("low").contains("does not") && row("low").contains("$Default"), "{text}");
    let all = json(&broker.run(&[&explain[..], &["--json"]].concat()));
    let copies: Vec<_> = all.iter().map(|one| one["copies"].as_u64().unwrap()).collect();
    assert_eq!(copies, [1, 0, 0]);
    assert!(!all[1]["rules"][0]["why"].as_str().unwrap().is_empty());
    broker.run(&["topic", "create", "lonely"]);
    assert!(broker.run(&["topic", "explain", "lonely"]).contains("no subscriptions"));
    assert!(broker.fails(&["topic", "explain", "nowhere"]).contains("no topic 'nowhere'"));
}
