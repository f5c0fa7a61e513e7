//! Classes, policies and tenants from the command line.

use std::fs;

use serde_json::{Value, json};

use crate::broker::{Broker, failure_of, peeklock, text_of};

const CLASSES: [&str; 6] = ["--class", "low=0-3", "--class", "normal=4-6", "--class", "high=7-9"];

fn run(broker: &Broker, words: &str, more: &[&str]) -> String {
    broker.run(&[words.split(' ').collect::<Vec<_>>().as_slice(), more].concat())
}

/// Returns the error of a command that fails with exit code 1 or 2.
fn fails(broker: &Broker, words: &str, more: &[&str]) -> String {
    let words = words.split(' ').collect::<Vec<_>>();
    let output = broker.command(&[words.as_slice(), more].concat()).output().unwrap();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn order(broker: &Broker, queue: &str) -> Value {
    let shown: Value = serde_json::from_str(&broker.run(&["queue", "show", queue, "--json"])).unwrap();
    shown["order"].clone()
}

#[test]
fn a_queue_with_classes_is_created_shown_and_changed() {
    let broker = Broker::start(&["--listen-tls", "off"]);
    assert_eq!(
        run(&broker, "queue create jobs", &CLASSES),
        "Created queue 'jobs' (classes high, normal, low; aged; lock 1m)\n"
    );
    let text = broker.run(&["queue", "show", "jobs"]);
    assert!(text.contains("\nOrder                    aged\n  default-class          normal\n"), "{text}");
    assert!(
        text.contains(
            "\nCLASS   PRIORITIES  OFFSET\nhigh           7-9     0ms\nnormal         4-6     30s\n"
        ),
        "{text}"
    );
    let list = broker.run(&["queue", "list"]);
    assert!(list.contains("classes high, normal, low; aged"), "{list}");
    let changed = run(&broker, "queue update jobs --order weighted --class high=7-9,weight=4", &[]);
    assert_eq!(changed, "Updated queue 'jobs' (classes high, normal, low; weighted; lock 1m)\n");
    let shown = order(&broker, "jobs");
    assert_eq!(shown["classes"]["high"], json!({ "priorities": "7-9", "weight": 4 }));
    assert_eq!(shown["classes"]["low"], json!({ "priorities": "0-3" }), "a setting that is not named stays");
    run(&broker, "queue update jobs --lock-duration 5s", &[]);
    assert_eq!(order(&broker, "jobs"), shown, "a setting that is not named stays");
    run(&broker, "queue update jobs --no-class low --class high,target=10s,weight=none --order aged", &[]);
    let shown = order(&broker, "jobs");
    assert_eq!(shown["classes"]["high"], json!({ "priorities": "7-9", "target": "10s", "objective": 0.99 }));
    assert_eq!(shown["classes"].as_object().unwrap().len(), 2);
    assert_eq!(broker.run(&["queue", "update", "jobs", "--no-order"]), "Updated queue 'jobs'\n");
    assert_eq!(order(&broker, "jobs"), Value::Null);
    assert!(!broker.run(&["queue", "show", "jobs"]).contains("Order"));
}

#[test]
fn rules_tenants_and_rates_are_kept_in_their_order() {
    let broker = Broker::start(&[
        "--listen-tls",
        "off",
        "--queue",
        "jobs,class=low=0-3,class=high=4-9 target=10s weight=2",
    ]);
    assert_eq!(order(&broker, "jobs")["classes"]["high"]["weight"], 2);
    let flags = [
        "--class-rule",
        "high: tier = 'paying'",
        "--class-rule",
        "low: bulk = TRUE",
        "--tenant-key",
        "tenant",
        "--tenant-class",
        "paying,weight=2.5,max-share=0.3,when=tier = 'paying'",
        "--tenant-class",
        "free,rate=5/s burst 10",
        "--rate",
        "100/s",
        "--max-outstanding",
        "4",
    ];
    run(&broker, "queue update jobs", &flags);
    let shown = broker.run(&["queue", "show", "jobs", "--json"]);
    assert!(
        shown.find("\"paying\":{").unwrap() < shown.find("\"free\":{").unwrap(),
        "asked in this order: {shown}"
    );
    // A second change starts from the result of the first.
    run(&broker, "queue update jobs --send-rate 50/s --tenant-class free,weight=0.5", &[]);
    let shown = order(&broker, "jobs");
    assert_eq!((&shown["rate"], &shown["sendRate"]), (&"100/s burst 100".into(), &"50/s burst 50".into()));
    let names =
        shown["rules"].as_array().unwrap().iter().map(|rule| rule["class"].clone()).collect::<Vec<_>>();
    assert_eq!(names, ["high", "low"]);
    let classes = &shown["tenants"]["classes"];
    assert_eq!((&classes["paying"]["weight"], &classes["free"]), (&json!(2.5), &json!({ "weight": 0.5 })));
    let text = broker.run(&["queue", "show", "jobs"]);
    assert!(text.contains("\n  class-rule             low: bulk = TRUE\n"), "{text}");
    assert!(
        text.contains(
            "\npaying           2.5  0.3        tier = 'paying'\nfree             0.5  -          -\n"
        ),
        "{text}"
    );
}

#[test]
fn a_subscription_has_an_order_of_its_own() {
    let broker = Broker::start(&["--listen-tls", "off"]);
    broker.run(&["topic", "create", "news"]);
    let created = run(&broker, "subscription create news all --order strict", &CLASSES);
    assert_eq!(created, "Created subscription 'all' (classes high, normal, low; strict; lock 1m)\n");
    let updated = run(&broker, "subscription update news all --class low,target=1h --lock-duration 5s", &[]);
    assert_eq!(updated, "Updated subscription 'all' (classes high, normal, low; strict; lock 5s)\n");
    let text = broker.run(&["subscription", "show", "news", "all"]);
    assert!(text.contains("\nlow            0-3  1h for 0.99\n"), "{text}");
    let refused = fails(&broker, "subscription update news all --send-rate 5/s", &[]);
    assert!(refused.contains("set send rates on a queue"), "{refused}");
    assert!(fails(&broker, "topic create other --order strict", &[]).contains("--order"));
}

#[test]
fn invalid_orders_are_rejected_and_change_nothing() {
    let broker = Broker::start(&["--listen-tls", "off"]);
    run(&broker, "queue create jobs", &CLASSES);
    let before = order(&broker, "jobs");
    for (flags, said) in [
        ("--class extra=9-12", "overlap at 9"),
        ("--class extra=12-10", "'12-10' is not a range of priorities"),
        ("--class extra=", "'' is not a range of priorities"),
        ("--order lifo", "write fifo, strict, aged or weighted"),
        ("--default-class urgent", "there is no class 'urgent'"),
        ("--class high=7-9,weight=0", "a whole number from 1 to 1000"),
        ("--class high=7-9,weight=-2", "a whole number from 1 to 1000"),
        ("--class urgent,target=10s", "there is no class 'urgent'"),
        ("--order strict --class high=7-9,weight=4", "either the most urgent class always goes first"),
        ("--tenant-key tenant --default-tenant-class gold", "there is no class 'gold'"),
        ("--tenant-key tenant --tenant-class gold,weight=0", "above 0"),
        ("--rate -5/s", "unexpected argument"),
        ("--rate=-5/s", "'-5/s' is not a rate"),
    ] {
        let told = fails(&broker, &format!("queue update jobs {flags}"), &[]);
        assert!(told.contains(said), "{flags}: {told}");
    }
    let told = fails(&broker, "queue update jobs --class-rule", &["high: tier ="]);
    assert!(told.contains("does not parse: at column 7"), "{told}");
    let told = fails(&broker, "queue update jobs --tenant-key", &["tenant +"]);
    assert!(told.contains("a key is the name of a property"), "{told}");
    assert_eq!(order(&broker, "jobs"), before);
}

#[test]
fn the_figures_of_classes_and_the_reason_of_a_wait_are_shown() {
    let broker = Broker::start(&["--listen-tls", "off"]);
    let flags = ["--class", "low=0-3,target=10s", "--class", "normal=4-6", "--class", "high=7-9"];
    run(&broker, "queue create jobs --order strict --tenant-key tenant", &flags);
    for (body, priority) in [("one", "low"), ("two", "low"), ("three", "high")] {
        broker.run(&["send", "jobs", body, "--priority", priority, "--property", "tenant=acme"]);
    }
    let shown: Value = serde_json::from_str(&broker.run(&["queue", "show", "jobs", "--json"])).unwrap();
    let classes = &shown["runtime"]["order"]["classes"];
    assert_eq!((&classes[0]["name"], &classes[0]["waiting"]), (&"high".into(), &1.into()), "{shown}");
    assert_eq!((&classes[2]["name"], &classes[2]["waiting"]), (&"low".into(), &2.into()), "{shown}");
    let text = broker.run(&["queue", "show", "jobs"]);
    let row = text.lines().rfind(|line| line.starts_with("low ")).unwrap();
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!(cells[..3], ["low", "2", "0"], "{text}");
    assert!(text.contains("\nFitted no class          0\n"), "{text}");
    let second: Value =
        serde_json::from_str(broker.run(&["peek", "jobs", "--json"]).lines().nth(1).unwrap()).unwrap();
    let number = second["sequenceNumber"].to_string();
    let told = broker.run(&["queue", "explain", "jobs", &number]);
    assert!(
        told.starts_with(&format!("Message {number} of 'jobs' is waiting\nClass                    low\n")),
        "{told}"
    );
    assert!(told.contains("\nTenant                   acme"), "{told}");
    assert!(told.contains("\nGoes before it           1 message of high, 1 of low\n"), "{told}");
    let told: Value =
        serde_json::from_str(&broker.run(&["queue", "explain", "jobs", &number, "--json"])).unwrap();
    assert_eq!((&told["aheadCount"], &told["state"]), (&2.into(), &"waiting".into()));
    assert!(broker.run(&["receive", "jobs"]).contains("three"), "the most urgent message is first");
    let gone = fails(&broker, "queue explain jobs 4711", &[]);
    assert!(gone.contains("4711"), "{gone}");
}

#[test]
fn a_file_declares_orders_and_is_checked_without_a_broker() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("peeklock.toml");
    let good = "[queues.jobs.order]\npolicy = 'strict'\nclasses.high.priorities = '5-9'\nclasses.low.priorities = '0-4'\n\
                [[queues.jobs.order.rules]]\nwhen = \"tier = 'paying'\"\nclass = 'high'\n";
    let validate = |text: &str| {
        fs::write(&path, text).unwrap();
        peeklock().args(["config", "validate"]).arg(&path).output().unwrap()
    };
    text_of(&validate(good));
    let told = failure_of(&validate(&good.replace("'paying'", "")));
    assert!(
        told.contains("line 6, column 8: queues.jobs.order.rules.[1].when: the SQL filter does not parse"),
        "{told}"
    );
    let told = failure_of(&validate(&good.replace("'0-4'", "'0-5'")));
    assert!(told.contains("line 4, column 26: queues.jobs.order.classes.low.priorities: "), "{told}");
    let told = failure_of(&validate(&good.replace("class = 'high'", "class = 'hgih'")));
    assert!(
        told.contains("line 7, column 9: queues.jobs.order.rules.[1].class: there is no class 'hgih'"),
        "{told}"
    );
    let told = failure_of(&validate(&good.replace("policy", "polcy")));
    assert!(told.contains("did you mean 'policy'?"), "{told}");
    fs::write(&path, good).unwrap();
    let broker = Broker::start(&["--listen-tls", "off", "--config", path.to_str().unwrap()]);
    assert_eq!(order(&broker, "jobs")["policy"], "strict");
}
