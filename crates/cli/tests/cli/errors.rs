//! Errors name what happened and what to do.

use std::net::TcpListener;

use tempfile::TempDir;

use crate::broker::{Broker, failure_of, peeklock, serve};

fn broker() -> Broker {
    Broker::start(&["--listen-tls", "off", "--queue", "orders"])
}

#[test]
fn an_unknown_queue_is_named_with_the_remedy() {
    let broker = broker();
    for command in [["send", "nowhere", "x"].as_slice(), &["receive", "nowhere"], &["peek", "nowhere"]] {
        let error = broker.fails(command);
        assert!(error.contains("'nowhere'"), "{error}");
        assert_eq!(error.matches("peeklock queue create nowhere").count(), 1, "{error}");
    }
}

#[test]
fn a_wrong_key_is_rejected_by_name() {
    let broker = broker();
    let url = format!("amqp://RootManageSharedAccessKey:wrong@{}", broker.address());
    let error = failure_of(&peeklock().args(["send", "orders", "x", "--connect", &url]).output().unwrap());
    assert!(error.contains("refuses the credentials of 'RootManageSharedAccessKey'"), "{error}");
    let string = broker.connection_string().replace("SAS_KEY_VALUE", "wrong");
    let error = failure_of(&peeklock().args(["send", "orders", "x", "--connect", &string]).output().unwrap());
    assert!(error.contains("access to 'orders' is refused"), "{error}");
    assert!(error.contains("RootManageSharedAccessKey"), "{error}");
}

#[test]
fn missing_rights_are_reported() {
    let broker = Broker::start(&["--listen-tls", "off", "--queue", "orders", "--key", "reader=r:Listen"]);
    let connect = broker.connection_string().replace("***", "r");
    let error =
        failure_of(&peeklock().args(["send", "orders", "x", "--connect", &connect]).output().unwrap());
    assert!(error.contains("access to 'orders' is refused"), "{error}");
    let error = failure_of(&peeklock().args(["queue", "list", "--connect", &connect]).output().unwrap());
    assert!(error.contains("refused"), "{error}");
}

#[test]
fn a_missing_broker_is_reported_with_the_remedy() {
    // The listener was bound and dropped, and the kernel does not reuse its port for a while.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("amqp://a:b@{address}");
    let error = failure_of(&peeklock().args(["peek", "orders", "--connect", &url]).output().unwrap());
    assert!(error.contains(&address.to_string()) && error.contains("peeklock serve"), "{error}");
}

#[test]
fn a_data_directory_serves_one_broker() {
    let broker = broker();
    let second = serve(&broker.data()).args(["--listen-tls", "off"]).output().unwrap();
    let error = failure_of(&second);
    assert!(error.contains(broker.data().to_str().unwrap()), "{error}");
}

#[test]
fn other_machines_need_a_real_key() {
    let folder = TempDir::new().unwrap();
    let open = |key: &[&str]| {
        let mut command = peeklock();
        command.arg("serve").arg("--data").arg(folder.path().join("data"));
        failure_of(
            &command.args(["--listen", "0.0.0.0:0", "--listen-tls", "off"]).args(key).output().unwrap(),
        )
    };
    assert!(open(&[]).contains("--key NAME=SECRET"));
    assert!(open(&["--key", "app=SAS_KEY_VALUE"]).contains("known to everybody"));
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = TempDir::new().unwrap();
    let mut command = peeklock();
    command.arg("serve").arg("--data").arg(folder.path().join("data"));
    let error = failure_of(&command.args(["--listen", &address, "--listen-tls", "off"]).output().unwrap());
    assert!(error.contains(&address) && error.contains("--listen"), "{error}");
}

#[test]
fn wrong_usage_has_its_own_exit_code() {
    for arguments in [
        ["send", "orders"].as_slice(),
        &["receive", "orders", "--wait", "5"],
        &["receive", "orders", "--delete", "--keep"],
        &["serve", "--queue", "a b"],
        &["serve", "--key", "nosecret"],
        &["serve", "--listen", "nowhere"],
        &["queue", "create", "$bad"],
        &["queue", "create", "orders", "--lock-duration", "5"],
        &["queue", "create", "orders", "--retry", "sometimes"],
        &["queue", "update", "orders", "--max-size", "1GB"],
        &["send", "orders", "x", "--at", "tomorrow"],
        &["receive", "orders", "--delay", "5s"],
        &["serve", "--queue", "orders,color=red"],
        &["frobnicate"],
    ] {
        let output = peeklock().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    let output = peeklock().args(["peek", "orders", "--connect", "localhost"]).output().unwrap();
    assert!(failure_of(&output).contains("connection string"));
}

#[test]
fn help_and_version_are_printed() {
    let text =
        |arguments: &[&str]| String::from_utf8(peeklock().args(arguments).output().unwrap().stdout).unwrap();
    assert_eq!(text(&["--version"]), format!("peeklock {}\n", env!("CARGO_PKG_VERSION")));
    for command in ["serve", "send", "receive", "peek"] {
        assert!(text(&[command, "--help"]).contains("Examples:"), "{command}");
    }
}
