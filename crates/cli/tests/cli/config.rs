//! Configuration files: their effect, their errors, and the sources of values.

use std::fs;
use std::path::Path;
use std::process::Output;

use tempfile::TempDir;

use crate::broker::{Broker, failure_of, peeklock, serve, text_of};

const FILE: &str = "
listen-tls = 'off'

[limits]
max-connections = 100

[keys.app]
rights = ['Send', 'Listen', 'Manage']
primary-key = 'a-secret-of-mine'

[queues.orders]
lock-duration = '30s'

[topics.news.subscriptions.high.rules.urgent]
sql = 'Priority > 5'

[keys.reader]
entity = 'orders'
rights = ['Listen']
primary-key = 'only-look'

[namespaces.shop.queues.bills]
[namespaces.shop.keys.cashier]
primary-key = 'till'
";

const EMULATOR: &str = r#"{ // as the emulator takes it
  "UserConfig": { "Namespaces": [ { "Name": "sbemulatorns",
      "Queues": [ { "Name": "queue.1", "Properties": { "MaxDeliveryCount": 3, "ForwardTo": "" } } ],
      "Topics": [ { "Name": "topic.1", "Subscriptions": [ { "Name": "subscription.1" } ] } ] } ],
    "Logging": { "Type": "File" } } }"#;

const HUBS: &str = r#"{ "UserConfig": { "NamespaceConfig": [ { "Type": "EventHub", "Name": "emulatorNs1",
    "Entities": [ { "Name": "eh1", "PartitionCount": "2", "ConsumerGroups": [ { "Name": "cg1" } ] } ] } ],
    "LoggingConfig": { "Type": "File" } } }"#;

fn written(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn validate(file: &str) -> Output {
    peeklock().args(["config", "validate", file]).output().unwrap()
}

fn refused(text: &str) -> String {
    let folder = TempDir::new().unwrap();
    let file = written(&folder, "peeklock.toml", text);
    failure_of(&validate(&file)).replace(&file, "FILE")
}

#[test]
fn a_file_sets_options_keys_and_entities() {
    let folder = TempDir::new().unwrap();
    let file = written(&folder, "peeklock.toml", FILE);
    let broker = Broker::start(&["--config", &file, "--queue", "more"]);
    let label = |name: &str| broker.labels.get(name).map(String::as_str);
    assert_eq!(label("Configuration"), Some(file.as_str()));
    assert_eq!(label("AMQP over TLS"), None);
    assert_eq!(label("Queues"), Some("more, orders"));
    assert_eq!(label("Topics"), Some("news"));
    assert_eq!(label("Namespaces"), Some("shop"));
    assert!(label("Connection string").unwrap().contains("SharedAccessKeyName=app;SharedAccessKey=***;"));
    assert!(broker.data().join("namespaces").join("shop").is_dir());
    let run = |key: &str, arguments: &[&str]| {
        let connect = format!("amqp://{key}@{}", broker.address());
        peeklock().args(arguments).args(["--connect", &connect]).output().unwrap()
    };
    text_of(&run("app:a-secret-of-mine", &["send", "orders", "x"]));
    // A key of one queue, with the right to receive from it.
    assert!(text_of(&run("reader:only-look", &["receive", "orders"])).ends_with("\nx\n"));
    failure_of(&run("reader:only-look", &["send", "orders", "x"]));
    failure_of(&run("reader:only-look", &["receive", "more"]));
    // The key of one namespace is valid in that namespace only.
    text_of(&run("cashier:till", &["send", "bills", "x"]));
    failure_of(&run("cashier:till", &["send", "orders", "x"]));
    failure_of(&run("app:a-secret-of-mine", &["send", "bills", "x"]));
}

#[test]
fn the_files_of_both_emulators_fit_into_one_broker() {
    let folder = TempDir::new().unwrap();
    let queues = written(&folder, "Config.json", EMULATOR);
    let hubs = written(&folder, "Hubs.json", HUBS);
    let broker = Broker::start(&["--listen-tls", "off", "--config", &queues, "--config", &hubs]);
    assert_eq!(broker.labels["Queues"], "queue.1");
    assert_eq!(broker.labels["Topics"], "topic.1");
    assert_eq!(broker.labels["Hubs"], "eh1");
    broker.run(&["send", "topic.1", "hello"]);
    let received = broker.run(&["receive", "topic.1/Subscriptions/subscription.1"]);
    assert!(received.ends_with("\nhello\n"), "{received}");
    let verdict = text_of(&peeklock().args(["config", "validate", &queues, &hubs]).output().unwrap());
    assert!(verdict.contains("1 queue, 1 topic, 1 subscription, 1 hub"), "{verdict}");
}

#[test]
fn a_declaration_changes_an_existing_queue_where_that_is_possible() {
    let broker = Broker::start(&["--listen-tls", "off", "--queue", "orders"]);
    let (_, folder) = broker.stop_with("TERM");
    let broker = Broker::start_in(folder, &["--listen-tls", "off", "--queue", "orders,max-delivery-count=3"]);
    let (_, folder) = broker.stop_with("TERM");
    let mut command = serve(&folder.path().join("data"));
    let error =
        failure_of(&command.args(["--listen-tls", "off", "--queue", "orders,sessions"]).output().unwrap());
    assert!(error.contains("'orders'") && error.contains("'requires session' cannot be changed"), "{error}");
}

#[test]
fn errors_in_a_file_are_reported_with_their_place() {
    assert_eq!(
        refused("data = 'x'\nlisten-tsl = 'off'\n"),
        "error: FILE: line 2, column 1: unknown key 'listen-tsl'; did you mean 'listen-tls'?\n"
    );
    assert!(refused("listen = 'nowhere'").contains("line 1, column 10: listen: 'nowhere': not an address"));
    assert!(refused("listen = true").contains("line 1, column 10: listen: 'true': not an address"));
    assert!(refused("[limits]\nmax-links = 'many'").contains("line 2, column 13: limits.max-links: 'many'"));
    assert!(
        refused("[queues.orders]\nlock-duration = '5'")
            .contains("queues.orders.lock-duration: '5' is not a duration")
    );
    assert!(
        refused("[queues.orders]\nlock-duration = '2h'")
            .contains("line 1, column 9: queues.orders: a lock duration")
    );
    let told = refused("[topics.news.subscriptions.high.rules.urgent]\nsql = 'Priority >'");
    assert!(
        told.contains("line 2, column 7: topics.news.subscriptions.high.rules.urgent.sql: the SQL filter"),
        "{told}"
    );
    assert!(
        refused("[keys.app]\nrights = ['Send']")
            .contains("line 1, column 7: keys.app: the policy 'app' has no key")
    );
    assert!(refused("[queues.a]\n[topics.A]").contains("cannot share a name"));
    assert!(refused("[namespaces.'a/b']").contains("line 1, column 13: namespaces: 'a/b' is not the name"));
    assert!(refused("data = ").contains("line 1, column 8: "), "{}", refused("data = "));
    assert!(refused("tls-cert = 'x'").contains("a certificate and its private key go together"));
    assert!(refused("[jwt]\nissuer = 'x'").contains("all three of jwt-keys"));
    assert!(
        refused("[namespaces.a]\nhosts = ['h']\n[namespaces.b]\nhosts = ['H']")
            .contains("a host belongs to one")
    );
    assert!(
        failure_of(&validate("no-such-file.toml"))
            .contains("cannot read the configuration no-such-file.toml")
    );
}

#[test]
fn two_files_cannot_declare_the_same_entity() {
    let folder = TempDir::new().unwrap();
    let one = written(&folder, "one.toml", "[queues.orders]");
    let two = written(&folder, "two.toml", "[queues.ORDERS]");
    let error = failure_of(&peeklock().args(["config", "validate", &one, &two]).output().unwrap());
    assert!(error.contains("is declared, and again in"), "{error}");
}

#[test]
fn the_source_of_every_value_is_shown() {
    let folder = TempDir::new().unwrap();
    written(&folder, "peeklock.toml", "listen = 7001\nhttp = '127.0.0.1:7002'\n[limits]\nmax-links = 9\n");
    let output = peeklock()
        .current_dir(folder.path())
        .args(["config", "show", "--origin", "--data", "elsewhere"])
        .env("PEEKLOCK_HTTPS", "127.0.0.1:7003")
        .env("EMULATOR_HTTP_PORT", "7004")
        .output()
        .unwrap();
    let text = text_of(&output);
    let line =
        |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{text}"));
    assert!(line("data = \"elsewhere\"").ends_with("# --data"));
    assert!(line("listen = \"127.0.0.1:7001\"").ends_with("# peeklock.toml, line 1"));
    assert!(line("http = \"127.0.0.1:7004\"").ends_with("# EMULATOR_HTTP_PORT"));
    assert!(line("https = \"127.0.0.1:7003\"").ends_with("# PEEKLOCK_HTTPS"));
    assert!(line("listen-tls = ").ends_with("# default"));
    assert!(line("max-links = 9").ends_with("# peeklock.toml, line 4"));
    assert!(line("# tls-cert =").ends_with("# not set"));
    // The output can be read as a file.
    let shown = text_of(&peeklock().args(["config", "show"]).output().unwrap());
    let file = written(&folder, "shown.toml", &shown);
    text_of(&validate(&file));
}

#[test]
fn a_port_in_use_is_reported_with_the_process() {
    let broker = Broker::start(&["--listen-tls", "off"]);
    let folder = TempDir::new().unwrap();
    let mut command = peeklock();
    command.args(["serve", "--listen-tls", "off", "--http", "off", "--listen", broker.address()]);
    let error = failure_of(&command.arg("--data").arg(folder.path()).output().unwrap());
    assert!(error.contains(&format!("cannot listen on {}: peeklock (process ", broker.address())), "{error}");
    assert!(error.contains("--listen ADDRESS"), "{error}");
}

#[test]
fn a_certificate_without_its_key_is_reported() {
    let tls_of = |broker: &Broker, file: &str| broker.data().join("tls").join(file);
    let (one, two) =
        (Broker::start(&["--listen-tls", "127.0.0.1:0"]), Broker::start(&["--listen-tls", "127.0.0.1:0"]));
    let folder = TempDir::new().unwrap();
    let start = |certificate: &Path, key: &Path| {
        let mut command = serve(folder.path());
        command
            .args(["--listen-tls", "127.0.0.1:0"])
            .arg("--tls-cert")
            .arg(certificate)
            .arg("--tls-key")
            .arg(key);
        failure_of(&command.output().unwrap())
    };
    let (certificate, key) = (tls_of(&one, "certificate.pem"), tls_of(&two, "authority-key.pem"));
    assert!(start(&certificate, &key).contains("is not the private key of the certificate"));
    assert!(start(&certificate, &certificate).contains("holds no private key"));
    assert!(start(&key, &key).contains("holds no certificate"));
    assert!(
        start(&certificate, Path::new("missing.pem")).contains("cannot read the private key missing.pem")
    );
}
