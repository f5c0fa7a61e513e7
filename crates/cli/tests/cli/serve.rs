//! The first screen, the stop, and the restart.

use crate::broker::Broker;

#[test]
fn the_first_screen_shows_how_to_connect() {
    let broker = Broker::start(&["--listen-tls", "off", "--queue", "orders", "--queue", "bills,lock=5s"]);
    let label = |name: &str| broker.labels.get(name).map(String::as_str);
    let address = broker.address();
    assert!(address.starts_with("127.0.0.1:") && !address.ends_with(":0"), "{address}");
    let expected = format!(
        "Endpoint=sb://{address};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;\
         UseDevelopmentEmulator=true;"
    );
    assert_eq!(label("Connection string"), Some(expected.as_str()));
    assert_eq!(label("Data directory"), broker.data().to_str());
    assert_eq!(label("Recovered"), Some("0 messages in 0 queues"));
    assert_eq!(label("Queues"), Some("bills, orders"));
    assert!(label("Ready").unwrap().ends_with(" ms"));
    assert_eq!(label("AMQP over TLS"), None);
    assert_eq!(label("Certificate"), None);
}

#[test]
fn a_real_key_stays_secret_and_works() {
    let broker = Broker::start(&["--listen-tls", "off", "--queue", "orders", "--key", "app=hidden-secret"]);
    assert!(broker.connection_string().contains("SharedAccessKeyName=app;SharedAccessKey=***;"));
    let connect = broker.connection_string().replace("***", "hidden-secret");
    let sent =
        crate::broker::peeklock().args(["send", "orders", "x", "--connect", &connect]).output().unwrap();
    assert!(crate::broker::text_of(&sent).starts_with("Sent 1 message to 'orders'"));
}

#[test]
fn ctrl_c_stops_cleanly_and_messages_survive() {
    let broker = Broker::start(&["--listen-tls", "off", "--queue", "orders"]);
    broker.run(&["send", "orders", "kept"]);
    let (code, folder) = broker.stop_with("INT");
    assert_eq!(code, 0);
    let broker = Broker::start_in(folder, &["--listen-tls", "off"]);
    assert_eq!(broker.labels["Recovered"], "1 message in 1 queue");
    assert!(broker.run(&["receive", "orders"]).ends_with("\nkept\n"));
    let (code, _) = broker.stop_with("TERM");
    assert_eq!(code, 0);
}

#[test]
fn a_hangup_reloads_and_stops_nothing() {
    let broker = Broker::start(&["--listen-tls", "127.0.0.1:0", "--queue", "orders"]);
    let certificate = broker.labels["Certificate"].clone();
    broker.signal("HUP");
    assert_eq!(broker.next_line(), format!("Reloaded the certificate {certificate}"));
    broker.run(&["send", "orders", "x"]);
    assert_eq!(broker.stop_with("TERM").0, 0);
    let broker = Broker::start(&["--listen-tls", "off"]);
    broker.signal("HUP");
    assert_eq!(broker.next_line(), "Nothing to reload: no address uses TLS");
    assert_eq!(broker.stop_with("TERM").0, 0);
}

#[test]
fn the_files_of_the_broker_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let broker = Broker::start(&["--listen-tls", "127.0.0.1:0", "--queue", "orders"]);
    broker.run(&["send", "orders", "x"]);
    let mut folders = vec![broker.data()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let metadata = entry.metadata().unwrap();
            assert_eq!(metadata.permissions().mode() & 0o077, 0, "{}", entry.path().display());
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    let mode = std::fs::metadata(broker.data()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert!(!broker.labels.contains_key("Warning"));
    let (_, folder) = broker.stop_with("TERM");
    let data = folder.path().join("data");
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let broker = Broker::start_in(folder, &["--listen-tls", "off"]);
    assert!(broker.labels["Warning"].contains("mode 755"), "{}", broker.labels["Warning"]);
}

#[test]
fn secrets_come_from_files() {
    let folder = tempfile::TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let keys = write("keys", "# of the shop\napp=from-a-file:Send\n");
    let broker = Broker::start(&["--listen-tls", "off", "--queue", "orders", "--key-file", &keys]);
    let string = broker.connection_string().replace("***", "from-a-file");
    let connect = write("connect", &format!("{string}\n"));
    let sent = crate::broker::peeklock().args(["send", "orders", "x", "--connect-file", &connect]).output();
    assert!(crate::broker::text_of(&sent.unwrap()).starts_with("Sent 1 message to 'orders'"));
    let variable = crate::broker::peeklock()
        .args(["send", "orders", "x"])
        .env("PEEKLOCK_CONNECT_FILE", &connect)
        .output();
    assert!(crate::broker::text_of(&variable.unwrap()).starts_with("Sent 1 message to 'orders'"));
}

#[test]
fn confirmed_messages_survive_a_kill() {
    let broker = Broker::start(&["--listen-tls", "off", "--queue", "orders"]);
    broker.run(&["send", "orders", "kept", "--count", "100"]);
    broker.run(&["receive", "orders", "--count", "40"]);
    let folder = broker.kill();
    let broker = Broker::start_in(folder, &["--listen-tls", "off"]);
    assert_eq!(broker.labels["Recovered"], "60 messages in 1 queue");
}
