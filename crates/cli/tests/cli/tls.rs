//! The commands over TLS, with the certificate that the broker creates, and the SDK with a certificate of the owner's authority.

use std::path::PathBuf;
use std::time::Duration;

use peeklock::handler::Text;
use peeklock::{Client, Kind, Message};
use rcgen::{BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::sync::mpsc;

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

/// The files of an owner with an authority of its own, which has signed the certificate of the broker.
struct Owner {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    _folder: TempDir,
}

impl Owner {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        let folder = TempDir::new().unwrap();
        let file = |name: &str, text: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let trusted: &Certificate = authority.as_ref();
        Owner {
            authority: file("authority.pem", trusted.pem()),
            certificate: file("certificate.pem", certificate.pem()),
            key: file("key.pem", key.serialize_pem()),
            _folder: folder,
        }
    }

    /// Starts a broker with this certificate, and returns a connection string for it.
    fn broker(&self) -> (Broker, String) {
        let (certificate, key) = (self.certificate.to_str().unwrap(), self.key.to_str().unwrap());
        let listen = ["--listen-tls", "127.0.0.1:0", "--tls-cert", certificate, "--tls-key", key];
        let broker =
            Broker::start(&[&listen[..], &["--queue", "orders", "--key", "app=secret:Manage"]].concat());
        let address = &broker.labels["AMQP over TLS"];
        let string = format!("Endpoint=sb://{address};SharedAccessKeyName=app;SharedAccessKey=secret");
        (broker, string)
    }
}

#[tokio::test]
async fn the_sdk_works_with_a_connection_string_and_an_authority_of_the_owner() {
    let owner = Owner::new();
    let (_broker, string) = owner.broker();
    let client = Client::builder(&string).certificates(&owner.authority).connect().await.unwrap();
    let (done, mut texts) = mpsc::channel(10);
    let processor = client
        .processor("orders")
        .handler(move |Text(text): Text| {
            let done = done.clone();
            async move { done.send(text).await }
        })
        .start()
        .await
        .unwrap();
    client.sender("orders").await.unwrap().send(Message::text("coffee")).await.unwrap();
    assert_eq!(texts.recv().await.as_deref(), Some("coffee"));
    processor.stop(Duration::from_secs(30)).await.unwrap();
    let counts = client.admin().queue("orders").await.unwrap().counts;
    assert_eq!((counts.message_count, counts.locked_count), (0, 0), "{counts:?}");
}

#[tokio::test]
async fn the_sdk_names_the_remedy_for_an_unknown_authority() {
    let (owner, stranger) = (Owner::new(), Owner::new());
    let (_broker, string) = owner.broker();
    let builders = [Client::builder(&string), Client::builder(&string).certificates(&stranger.authority)];
    for builder in builders {
        let error = builder.connect().await.err().unwrap();
        assert_eq!((error.kind(), error.code(), error.is_transient()), (Kind::Connection, "E-TLS-01", false));
        assert!(error.to_string().contains("`certificates` in code"), "{error}");
    }
}
