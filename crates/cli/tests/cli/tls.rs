//! The commands over TLS, with the certificate that the broker creates.

use crate::broker::{Broker, failure_of, peeklock, text_of};

#[test]
fn the_certificate_of_the_first_start_can_be_trusted() {
    let broker = Broker::start(&["--listen-tls", "127.0.0.1:0", "--queue", "orders"]);
    let address = &broker.labels["AMQP over TLS"];
    let certificate = &broker.labels["Certificate"];
    let url = format!("amqps://RootManageSharedAccessKey:SAS_KEY_VALUE@{address}");
    let run = |arguments: &[&str]| {
        text_of(&peeklock().args(arguments).args(["--connect", &url, "--ca", certificate]).output().unwrap())
    };
    run(&["send", "orders", "over tls", "--count", "500"]);
    let received = run(&["receive", "orders", "--count", "500", "--json"]);
    assert_eq!(received.lines().count(), 500);
    let string = format!(
        "Endpoint=sb://{address};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"
    );
    let sent =
        peeklock().args(["send", "orders", "x", "--connect", &string, "--ca", certificate]).output().unwrap();
    text_of(&sent);
}

#[test]
fn trust_names_the_file_that_the_broker_prints() {
    let broker = Broker::start(&["--listen-tls", "127.0.0.1:0", "--tls-name", "shop.servicebus.windows.net"]);
    let data = broker.data().display().to_string();
    let text = text_of(&peeklock().args(["trust", "--data", &data]).output().unwrap());
    assert!(text.contains(&broker.labels["Certificate"]), "{text}");
    let none = peeklock().args(["trust", "--data", "/nowhere"]).output().unwrap();
    assert!(failure_of(&none).contains("--listen-tls"));
}

#[test]
fn an_untrusted_certificate_is_rejected() {
    let broker = Broker::start(&["--listen-tls", "127.0.0.1:0", "--queue", "orders"]);
    let url = format!("amqps://a:b@{}", broker.labels["AMQP over TLS"]);
    let error = failure_of(&peeklock().args(["peek", "orders", "--connect", &url]).output().unwrap());
    assert!(error.contains("--ca FILE"), "{error}");
    let missing =
        peeklock().args(["peek", "orders", "--connect", &url, "--ca", "no-such.pem"]).output().unwrap();
    assert!(failure_of(&missing).contains("no-such.pem"));
}
